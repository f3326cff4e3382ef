/* One token against weight rows with 512-bit VNNI, for decode. A weight is unpacked to 64 unsigned bytes in
 * whatever order its nibbles come out; the activations are brought into that order once per call, with what
 * undoes the bias of signed weights beside them, lane by lane, so that all lane sums are exact. After that a
 * block costs little more than its loads, and memory bounds the rate.
 *
 *     blocks of 32, two at a time    vpdpbusd, then both scales in f32
 *     blocks of 256                  vpmaddubsw, then vpdpwssd with the integer sub-scales, one f32 scale
 *                                    (IQ4_XS, whose weights need eight bits: vpdpbusd and vpmulld) */

#define LOAD512(p) _mm512_loadu_si512(p)
#define LOAD256(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define LOAD128(p) _mm_loadu_si128((const __m128i *)(const void *)(p))

#include "kernels/x86/gemv_float_256.h"

/* Activations of 64 elements. */
struct unit { int8_t x[64]; union { int32_t lane[16]; int16_t pair[32]; } undo; };
struct x_32 { struct unit u; float d[4]; };                          /* two blocks: [d0 d1 - -], with minima [d0 dsum0 d1 dsum1] */
struct x_256 { struct unit u[4]; int16_t sums[16]; float d; float pad[7]; };

/* Which sixteens of the elements the bytes of a unit hold. */
struct order { uint8_t unit[4][4]; };
static inline struct order order_of(enum ds_type_id id)
{
    switch (id) {
    case DS_T_Q8_0: return (struct order){ { { 0, 1, 2, 3 } } };
    case DS_T_Q6_K: return (struct order){ { { 0, 1, 2, 3 }, { 4, 5, 6, 7 }, { 8, 9, 10, 11 }, { 12, 13, 14, 15 } } };
    case DS_T_Q4_K: case DS_T_Q5_K: return (struct order){ { { 0, 1, 4, 5 }, { 2, 3, 6, 7 }, { 8, 9, 12, 13 }, { 10, 11, 14, 15 } } };
    case DS_T_Q2_K: case DS_T_Q3_K: return (struct order){ { { 0, 1, 8, 9 }, { 2, 3, 10, 11 }, { 4, 5, 12, 13 }, { 6, 7, 14, 15 } } };
    case DS_T_IQ4_XS: return (struct order){ { { 0, 2, 4, 6 }, { 1, 3, 5, 7 }, { 8, 10, 12, 14 }, { 9, 11, 13, 15 } } };
    default: return (struct order){ { { 0, 2, 1, 3 } } };
    }
}

/* What is added to a type's integers to make them unsigned. */
static inline int bias_of(enum ds_type_id id)
{
    switch (id) {
    case DS_T_Q8_0: case DS_T_IQ4_NL: case DS_T_IQ4_XS: return 128;
    case DS_T_Q4_0: return 8;
    case DS_T_Q5_0: return 16;
    case DS_T_MXFP4: return 12;
    case DS_T_Q3_K: return 4;
    case DS_T_Q6_K: return 32;
    default: return 0;
    }
}

/* Two packed blocks of 32, or 256 elements of a packed block: x points at integer 16i through at[i]. */
INLINE void fill_unit(struct unit *u, const uint8_t order[4], const int8_t *const at[16], int bias, bool by_pairs)
{
    const __m512i zero = _mm512_setzero_si512(), b = _mm512_set1_epi8((char)bias);
    __m512i v = _mm512_zextsi128_si512(LOAD128(at[order[0]]));
    v = _mm512_inserti32x4(v, LOAD128(at[order[1]]), 1);
    v = _mm512_inserti32x4(v, LOAD128(at[order[2]]), 2);
    v = _mm512_inserti32x4(v, LOAD128(at[order[3]]), 3);
    _mm512_storeu_si512(u->x, v);
    v = by_pairs ? _mm512_sub_epi16(zero, _mm512_maddubs_epi16(b, v)) : _mm512_sub_epi32(zero, _mm512_dpbusd_epi32(zero, b, v));
    _mm512_storeu_si512(&u->undo, v);
}

INLINE void prepare_32(struct x_32 *o, enum ds_type_id id, const char *x, int k)
{
    static const int8_t none[16];
    const struct order order = order_of(id);
    for (int b = 0; b < k / 32; b += 2, x += 2 * Q8_0_BYTES, o++) {
        const bool both = b + 1 < k / 32;
        const int8_t *at[16] = { (const int8_t *)x, (const int8_t *)x + 16, both ? (const int8_t *)x + Q8_0_BYTES : none,
                                 both ? (const int8_t *)x + Q8_0_BYTES + 16 : none };
        fill_unit(&o->u, order.unit[0], at, bias_of(id), false);
        const float d[2] = { load_f(x + 32), both ? load_f(x + Q8_0_BYTES + 32) : 0 };
        if (ds_gemm_form_of(id).min)
            for (int i = 0; i < 2; i++) {
                o->d[2 * i] = d[i];
                o->d[2 * i + 1] = i == 0 || both ? d[i] * (-1.0f / 128) * (float)load_i(x + i * Q8_0_BYTES + 36) : 0;
            }
        else memcpy(o->d, d, 8);
    }
}

INLINE void prepare_256(struct x_256 *o, enum ds_type_id id, const char *x, int k)
{
    const struct order order = order_of(id);
    for (int b = 0; b < k / 256; b++, x += Q8_K_BYTES, o++) {
        const int8_t *at[16];
        for (int i = 0; i < 16; i++) at[i] = (const int8_t *)x + 16 * i;
        for (int i = 0; i < 4; i++) fill_unit(&o->u[i], order.unit[i], at, bias_of(id), id != DS_T_IQ4_XS);
        memset(o->sums, 0, sizeof o->sums);
        memcpy(o->sums, x + (ds_gemm_form_of(id).mgroup == 16 ? K_M16 : K_M32), ds_gemm_form_of(id).mgroup == 16 ? 32 : 16);
        o->d = load_f(x + K_D);
    }
}

/* --- blocks of 32 ---------------------------------------------------------------------------------- */

/* Sixteen bytes of two blocks: [lo of both | hi of both]. */
INLINE __m512i nibbles_2x16(const uint8_t *a, const uint8_t *b)
{
    __m256i v = _mm256_inserti128_si256(_mm256_castsi128_si256(LOAD128(a)), LOAD128(b), 1);
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(v), _mm256_srli_epi16(v, 4), 1);
    return _mm512_and_si512(both, _mm512_set1_epi8(15));
}

/* Adds 16 where a block's bit is set. */
INLINE __m512i fifth_bits(__m512i v, uint32_t a, uint32_t b)
{
    uint64_t lo = (a & 0xffff) | b << 16, hi = a >> 16 | (b & 0xffff0000);
    return _mm512_mask_add_epi8(v, lo | hi << 32, v, _mm512_set1_epi8(16));
}

/* levels[v] + bias. */
INLINE __m512i levels_of(__m512i v, const int8_t levels[16], int bias)
{
    __m128i table = _mm_add_epi8(LOAD128(levels), _mm_set1_epi8((char)bias));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), v);
}

/* The integers of two blocks, unsigned; *h: their d (and m) as f16, in the order of x_32.d. */
INLINE __m512i load_2x32(enum ds_type_id id, const char *w, int bytes, __m128i *h)
{
    static const int8_t iq4[16] = DS_IQ4_VALUES, mx4[16] = DS_MXFP4_VALUES;
    const char *v = w + bytes;
    uint16_t d[2];
    uint32_t dm[2];
    memcpy(&d[0], w, 2);
    memcpy(&d[1], v, 2);
    *h = _mm_insert_epi16(_mm_cvtsi32_si128(d[0]), d[1], 1);
    if (id == DS_T_Q4_1 || id == DS_T_Q5_1) {
        memcpy(&dm[0], w, 4);
        memcpy(&dm[1], v, 4);
        *h = _mm_insert_epi32(_mm_cvtsi32_si128((int)dm[0]), (int)dm[1], 1);
    }
    switch (id) {
    case DS_T_Q8_0: {
        __m512i q = _mm512_inserti64x4(_mm512_castsi256_si512(LOAD256(w + 2)), LOAD256(v + 2), 1);
        return _mm512_xor_si512(q, _mm512_set1_epi8((char)0x80));
    }
    case DS_T_Q4_0: return nibbles_2x16((const uint8_t *)w + 2, (const uint8_t *)v + 2);
    case DS_T_Q4_1: return nibbles_2x16((const uint8_t *)w + 4, (const uint8_t *)v + 4);
    case DS_T_Q5_0: return fifth_bits(nibbles_2x16((const uint8_t *)w + 6, (const uint8_t *)v + 6), (uint32_t)load_i(w + 2), (uint32_t)load_i(v + 2));
    case DS_T_Q5_1: return fifth_bits(nibbles_2x16((const uint8_t *)w + 8, (const uint8_t *)v + 8), (uint32_t)load_i(w + 4), (uint32_t)load_i(v + 4));
    case DS_T_IQ4_NL: return levels_of(nibbles_2x16((const uint8_t *)w + 2, (const uint8_t *)v + 2), iq4, bias_of(id));
    default: return levels_of(nibbles_2x16((const uint8_t *)w + 1, (const uint8_t *)v + 1), mx4, bias_of(id));
    }
}

INLINE __m128 scales_2x32(enum ds_type_id id, const char *w, int bytes, __m128i h)
{
    if (id != DS_T_MXFP4) return _mm_cvtph_ps(h);
    uint32_t bits[2];
    for (int i = 0; i < 2; i++) {
        uint8_t e = (uint8_t)w[i * bytes];
        bits[i] = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;         /* 2^(e-128) */
    }
    return _mm_castsi128_ps(_mm_insert_epi32(_mm_cvtsi32_si128((int)bits[0]), (int)bits[1], 1));
}

/* Adds two blocks' products to acc and, with minima, their scaled parts to mins. */
INLINE void add_2x32(enum ds_type_id id, const char *w, const struct x_32 *x, __m512i lanes, __m512 *acc, __m128 *mins)
{
    const struct ds_gemm_form f = ds_gemm_form_of(id);
    const int bytes = ds_block_bytes(id);
    __m128i h;
    __m512i q = load_2x32(id, w, bytes, &h);
    __m128 d = _mm_mul_ps(scales_2x32(id, w, bytes, h), _mm_loadu_ps(x->d));
    __m512i s = _mm512_dpbusd_epi32(f.nonneg ? _mm512_setzero_si512() : LOAD512(x->u.undo.lane), q, LOAD512(x->u.x));
    *acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s), _mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(d)), *acc);
    if (f.min) *mins = _mm_add_ps(*mins, d);
}

INLINE float row_q8_0(enum ds_type_id id, const char *w, const char *prepared, int k)
{
    const struct x_32 *x = (const struct x_32 *)(const void *)prepared;
    const struct ds_gemm_form f = ds_gemm_form_of(id);
    const int bytes = ds_block_bytes(id), second = f.min ? 2 : 1;             /* lane of the second block's scale */
    const __m512i by_halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, second, second, second, second, second, second, second, second);
    const __m512i by_quarters = _mm512_setr_epi32(0, 0, 0, 0, second, second, second, second, 0, 0, 0, 0, second, second, second, second);
    const __m512i lanes = id == DS_T_Q8_0 ? by_halves : by_quarters;
    __m512 acc0 = _mm512_setzero_ps(), acc1 = acc0;
    __m128 mins = _mm_setzero_ps();
    int b = k / 32;
    for (; b >= 4; b -= 4, w += 4 * bytes, x += 2) {
        prefetch(w, 4 * bytes);
        add_2x32(id, w, x, lanes, &acc0, &mins);
        add_2x32(id, w + 2 * bytes, x + 1, lanes, &acc1, &mins);
    }
    if (b >= 2) {
        add_2x32(id, w, x++, lanes, &acc0, &mins);
        w += 2 * bytes;
    }
    if (b & 1) {                                                              /* an odd last block with a zero one */
        char last[2 * sizeof(struct ds_block_q8_0)] = { 0 };                  /* the largest block */
        add_2x32(id, memcpy(last, w, (size_t)bytes), x, lanes, &acc1, &mins);
    }
    float m[4];
    _mm_storeu_ps(m, mins);
    return _mm512_reduce_add_ps(_mm512_add_ps(acc0, acc1)) + (f.min ? m[1] + m[3] : 0);
}

/* --- blocks of 256 --------------------------------------------------------------------------------- */

/* Lane of a unit's 32 int16 -> index of its scale: group elements share one. (From constants, so that it is one.) */
INLINE __m512i scale_index(enum ds_type_id id, int i)
{
    const struct order o = order_of(id);
    const int group = ds_gemm_form_of(id).group == 32 ? 32 : 16;             /* Q2_K and Q3_K: before they were multiplied in */
    const long long each = 0x0001000100010001, a = o.unit[i][0] * 16 / group * each, b = o.unit[i][1] * 16 / group * each;
    const long long c = o.unit[i][2] * 16 / group * each, d = o.unit[i][3] * 16 / group * each;
    return _mm512_setr_epi64(a, a, b, b, c, c, d, d);
}

#include "kernels/x86/gemv_k4_512.h"

/* One block: unsigned integers in units, int16 sub-scales and minima, f32 scales. */
struct w_256 { __m512i u[4]; __m256i scale, m; float d, min; };

INLINE void load_q6_k(struct w_256 *o, const struct ds_block_q6_k *b)
{
    const __m512i low = _mm512_set1_epi8(15), high = _mm512_set1_epi8(48);
    o->scale = _mm256_cvtepi8_epi16(LOAD128(b->scales));
    o->d = ds_h2f(b->d);
    for (int n = 0; n < 2; n++) {
        __m512i v = LOAD512(b->ql + 64 * n);
        __m512i h = _mm512_srlv_epi64(_mm512_broadcast_i64x4(LOAD256(b->qh + 32 * n)), _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2));
        o->u[2 * n] = _mm512_or_si512(_mm512_and_si512(v, low), _mm512_and_si512(_mm512_slli_epi16(h, 4), high));
        o->u[2 * n + 1] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(v, 4), low), _mm512_and_si512(h, high));
    }
}

INLINE void load_q2_k(struct w_256 *o, const struct ds_block_q2_k *b)
{
    const __m512i two = _mm512_set1_epi8(3);
    __m128i s = LOAD128(b->scales), low = _mm_set1_epi8(15);
    __m512i v = LOAD512(b->qs);
    o->scale = _mm256_cvtepu8_epi16(_mm_and_si128(s, low));
    o->m = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(s, 4), low));
    o->d = ds_h2f(b->d);
    o->min = -ds_h2f(b->dmin);
    o->u[0] = _mm512_and_si512(v, two);
    o->u[1] = _mm512_and_si512(_mm512_srli_epi16(v, 2), two);
    o->u[2] = _mm512_and_si512(_mm512_srli_epi16(v, 4), two);
    o->u[3] = _mm512_and_si512(_mm512_srli_epi16(v, 6), two);
}

INLINE void load_q3_k(struct w_256 *o, const struct ds_block_q3_k *b)
{
    const __m512i two = _mm512_set1_epi8(3), four = _mm512_set1_epi8(4);
    uint32_t sc[4];
    ds_q3_scales(sc, b->scales);
    __m128i scales = _mm_setr_epi32((int)sc[0], (int)sc[1], (int)sc[2], (int)sc[3]);
    o->scale = _mm256_cvtepi8_epi16(_mm_sub_epi8(scales, _mm_set1_epi8(32)));
    o->d = ds_h2f(b->d);
    __m512i v = LOAD512(b->qs);
    __m512i h = _mm512_srlv_epi64(_mm512_broadcast_i64x4(LOAD256(b->hmask)), _mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4));
    o->u[0] = _mm512_or_si512(_mm512_and_si512(v, two), _mm512_and_si512(_mm512_slli_epi16(h, 2), four));
    o->u[1] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(v, 2), two), _mm512_and_si512(_mm512_slli_epi16(h, 1), four));
    o->u[2] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(v, 4), two), _mm512_and_si512(h, four));
    o->u[3] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(v, 6), two), _mm512_and_si512(_mm512_srli_epi16(h, 1), four));
}

INLINE void load_iq4_xs(struct w_256 *o, const struct ds_block_iq4_xs *b)
{
    static const int8_t iq4[16] = DS_IQ4_VALUES;
    const __m512i low = _mm512_set1_epi8(15);
    __m128i scales = _mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)ds_iq4_xs_scales(b)));
    o->scale = _mm256_zextsi128_si256(_mm_sub_epi16(scales, _mm_set1_epi16(32)));
    o->d = ds_h2f(b->d);
    for (int i = 0; i < 2; i++) {
        __m512i v = LOAD512(b->qs + 64 * i);
        o->u[2 * i] = levels_of(_mm512_and_si512(v, low), iq4, 128);
        o->u[2 * i + 1] = levels_of(_mm512_and_si512(_mm512_srli_epi16(v, 4), low), iq4, 128);
    }
}

INLINE void load_256(enum ds_type_id id, struct w_256 *o, const void *w)
{
    switch (id) {
    case DS_T_Q2_K: load_q2_k(o, w); break;
    case DS_T_Q3_K: load_q3_k(o, w); break;
    case DS_T_Q6_K: load_q6_k(o, w); break;
    default: load_iq4_xs(o, w); break;
    }
}

/* sum of scale * (u - bias) * x over a block, in sixteen lanes. */
INLINE __m512i dot_256(enum ds_type_id id, const struct w_256 *w, const struct x_256 *x, const __m512i index[4])
{
    __m512i acc = _mm512_setzero_si512();
    for (int i = 0; i < 4; i++) {
        __m512i scale = _mm512_permutexvar_epi16(index[i], _mm512_castsi256_si512(w->scale));
        if (id == DS_T_IQ4_XS) {     /* scales as int32: both halves of a lane hold the same one */
            __m512i s = _mm512_dpbusd_epi32(LOAD512(x->u[i].undo.lane), w->u[i], LOAD512(x->u[i].x));
            acc = _mm512_add_epi32(acc, _mm512_mullo_epi32(s, _mm512_srai_epi32(scale, 16)));
        } else {
            __m512i pairs = _mm512_maddubs_epi16(w->u[i], LOAD512(x->u[i].x));
            if (!ds_gemm_form_of(id).nonneg) pairs = _mm512_add_epi16(pairs, LOAD512(x->u[i].undo.pair));
            acc = _mm512_dpwssd_epi32(acc, pairs, scale);
        }
    }
    return acc;
}

INLINE float row_q8_k(enum ds_type_id id, const char *w, const char *prepared, int k)
{
    if (id == DS_T_Q4_K || id == DS_T_Q5_K) return row_k4(id, w, prepared, k);
    const struct x_256 *x = (const struct x_256 *)(const void *)prepared;
    const struct ds_gemm_form f = ds_gemm_form_of(id);
    const int bytes = ds_block_bytes(id);
    const __m512i index[4] = { scale_index(id, 0), scale_index(id, 1), scale_index(id, 2), scale_index(id, 3) };
    __m512 acc = _mm512_setzero_ps();
    __m256 mins = _mm256_setzero_ps();
    for (int b = 0; b < k / 256; b++, w += bytes, x++) {
        struct w_256 o;
        load_256(id, &o, w);
        prefetch(w, bytes);
        acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot_256(id, &o, x, index)), _mm512_set1_ps(o.d * x->d), acc);
        if (f.mgroup)
            mins = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(o.m, LOAD256(x->sums))), _mm256_set1_ps(o.min * x->d), mins);
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(acc, _mm512_castps256_ps512(mins)));
}

INLINE const char *gemv_activations(enum ds_type_id id, const struct ds_gemm_call *c)
{
    const struct ds_gemm_form f = ds_gemm_form_of(id);
    if (f.chunk == 0) return c->x;
    if (f.xblock == 32) prepare_32(c->scratch, id, c->x, c->k);
    else if (id == DS_T_Q4_K || id == DS_T_Q5_K) prepare_k4(c->scratch, id, c->x, c->k);
    else prepare_256(c->scratch, id, c->x, c->k);
    return c->scratch;
}

#include "kernels/gemv_rows.h"
