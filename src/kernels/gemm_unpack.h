/* From the file's blocks to one common form, so that each instruction set needs one product kernel
 * and not one per storage type.
 *
 * A chunk is one block of the file (32 or 256 elements). Unpacked, element i of it is
 *
 *     w_i = scale[i / group] * q_i + min * m[i / mgroup]
 *
 * q signed 8-bit integers. `min` is absent for symmetric types; where the file has no integer m
 * (Q4_1, Q5_1) it is 1. Sub-block scales of Q2_K and Q3_K are small enough to be multiplied into q
 * exactly, which leaves one scale per 256. All products of f16 scales with integer sub-scales fit f32.
 *
 * Included by every kernel file and compiled with its flags. */
#ifndef DS_KERNELS_GEMM_UNPACK_H
#define DS_KERNELS_GEMM_UNPACK_H

#include "quant/blocks.h"
#include "quant/type.h"

#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

enum ds_min_kind { DS_MIN_NONE, DS_MIN_F32, DS_MIN_INT };

/* What kernels must know of a type: constants that they specialise on. */
struct ds_gemm_form {
    uint16_t chunk;            /* elements of a block */
    uint16_t xblock;           /* elements per activation scale: 32 (Q8_0) or 256 (Q8_K) */
    uint16_t group;            /* elements per weight scale: 16, 32 or 256 */
    uint16_t mgroup;           /* elements per min: 16 or 32; 0: none */
    enum ds_min_kind min;
    bool nonneg;               /* q >= 0 */
};

/* Form of a quantised type; chunk 0 for F32, F16, BF16. */
static inline struct ds_gemm_form ds_gemm_form_of(enum ds_type_id id)
{
    switch (id) {
    case DS_T_Q8_0: case DS_T_Q4_0: case DS_T_Q5_0: case DS_T_IQ4_NL: case DS_T_MXFP4:
        return (struct ds_gemm_form){ 32, 32, 32, 0, DS_MIN_NONE, false };
    case DS_T_Q4_1: case DS_T_Q5_1: return (struct ds_gemm_form){ 32, 32, 32, 32, DS_MIN_F32, true };
    case DS_T_Q2_K: return (struct ds_gemm_form){ 256, 256, 256, 16, DS_MIN_INT, true };
    case DS_T_Q3_K: return (struct ds_gemm_form){ 256, 256, 256, 0, DS_MIN_NONE, false };
    case DS_T_Q4_K: case DS_T_Q5_K: return (struct ds_gemm_form){ 256, 256, 32, 32, DS_MIN_INT, true };
    case DS_T_Q6_K: return (struct ds_gemm_form){ 256, 256, 16, 0, DS_MIN_NONE, false };
    case DS_T_IQ4_XS: return (struct ds_gemm_form){ 256, 256, 32, 0, DS_MIN_NONE, false };
    default: return (struct ds_gemm_form){ 0 };
    }
}

/* ds_types[id].bytes of a weight type, as a constant. */
static inline int ds_block_bytes(enum ds_type_id id)
{
    switch (id) {
    case DS_T_F32: return 4;
    case DS_T_F16: case DS_T_BF16: return 2;
    case DS_T_Q4_0: return sizeof(struct ds_block_q4_0);
    case DS_T_Q4_1: return sizeof(struct ds_block_q4_1);
    case DS_T_Q5_0: return sizeof(struct ds_block_q5_0);
    case DS_T_Q5_1: return sizeof(struct ds_block_q5_1);
    case DS_T_Q8_0: return sizeof(struct ds_block_q8_0);
    case DS_T_Q2_K: return sizeof(struct ds_block_q2_k);
    case DS_T_Q3_K: return sizeof(struct ds_block_q3_k);
    case DS_T_Q4_K: return sizeof(struct ds_block_q4_k);
    case DS_T_Q5_K: return sizeof(struct ds_block_q5_k);
    case DS_T_Q6_K: return sizeof(struct ds_block_q6_k);
    case DS_T_IQ4_NL: return sizeof(struct ds_block_iq4_nl);
    case DS_T_IQ4_XS: return sizeof(struct ds_block_iq4_xs);
    case DS_T_MXFP4: return sizeof(struct ds_block_mxfp4);
    default: return 0;
    }
}

/* Where one chunk goes. q has room for chunk bytes, scale for chunk/group, m for chunk/mgroup. */
struct ds_chunk { int8_t *q; float *scale, *min; int16_t *m; };

static inline float ds_h2f(uint16_t h)
{
#if defined(__F16C__)
    return _cvtsh_ss(h);
#elif defined(__ARM_NEON)
    float16_t v;
    memcpy(&v, &h, 2);
    return (float)v;
#else
    return ds_f16_to_f32(h);
#endif
}

/* x rounded to f16. */
static inline float ds_round_h(float x)
{
#if defined(__F16C__)
    return _cvtsh_ss(_cvtss_sh(x, 0));
#elif defined(__ARM_NEON)
    return (float)(float16_t)x;
#else
    return ds_f16_to_f32(ds_f32_to_f16(x));
#endif
}

/* --- 32 bytes at a time ---------------------------------------------------------------------------
 *
 * The compilers' portable vectors. Results are stored 32 bytes at once, so that a kernel that loads them
 * right away is not held up by two half-written stores. */

typedef uint8_t ds_u8x16 __attribute__((vector_size(16)));
typedef uint8_t ds_u8x32 __attribute__((vector_size(32)));
typedef uint32_t ds_u32x8 __attribute__((vector_size(32)));
typedef uint64_t ds_u64x4 __attribute__((vector_size(32)));
#define DS_UNPACK_INLINE static inline __attribute__((always_inline))

/* q[0..31] = v. */
#define DS_STORE32(q, v) do { ds_u8x32 stored_ = (ds_u8x32)(v); memcpy((q), &stored_, 32); } while (0)

/* v = sixteen bytes at p, their low nibbles first, then their high ones. */
DS_UNPACK_INLINE void ds_nibbles(ds_u8x32 *v, const uint8_t *p)
{
#if defined(__AVX2__)
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    *v = (ds_u8x32)_mm256_inserti128_si256(_mm256_castsi128_si256(b), _mm_srli_epi16(b, 4), 1) & 15;
#else
    ds_u8x16 half[2];
    memcpy(half, p, 16);
    half[1] = half[0] >> 4;
    half[0] &= 15;
    memcpy(v, half, 32);
#endif
}

/* v[i] = table[v[i]], each half of 16 bytes with its own table; v[i] < 16. */
DS_UNPACK_INLINE void ds_lookup(ds_u8x32 *v, const ds_u8x32 *table)
{
#if defined(__AVX2__)
    *v = (ds_u8x32)_mm256_shuffle_epi8((__m256i)*table, (__m256i)*v);
#elif defined(__aarch64__)
    uint8x16_t t[2], i[2];
    memcpy(t, table, 32);
    memcpy(i, v, 32);
    i[0] = vqtbl1q_u8(t[0], i[0]);
    i[1] = vqtbl1q_u8(t[1], i[1]);
    memcpy(v, i, 32);
#else
    uint8_t t[32], i[32];
    memcpy(t, table, 32);
    memcpy(i, v, 32);
    for (int j = 0; j < 32; j++) i[j] = t[(j & 16) + i[j]];
    memcpy(v, i, 32);
#endif
}

/* Adds 16 to v[e] where bit e is set. */
DS_UNPACK_INLINE void ds_add_fifth_bits(ds_u8x32 *v, uint32_t bits)
{
    const uint64_t each = 0x0101010101010101u;
    ds_u64x4 b = { (bits & 255) * each, (bits >> 8 & 255) * each, (bits >> 16 & 255) * each, (bits >> 24) * each };   /* copies of a byte */
    b &= 0x8040201008040201u;                                                                                        /* bit i of copy i */
    *v += (ds_u8x32)(((b + 0x7f7f7f7f7f7f7f7fu) & 0x8080808080808080u) >> 3);
}

/* --- 32 elements, one scale ------------------------------------------------------------------- */

DS_UNPACK_INLINE void ds_unpack_q8_0(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q8_0 *b = src;
    c->scale[0] = ds_h2f(b->d);
    memcpy(c->q, b->q, 32);
}

DS_UNPACK_INLINE void ds_unpack_q4_0(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q4_0 *b = src;
    ds_u8x32 v;
    ds_nibbles(&v, b->qs);
    c->scale[0] = ds_h2f(b->d);
    DS_STORE32(c->q, v - 8);
}

DS_UNPACK_INLINE void ds_unpack_q4_1(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q4_1 *b = src;
    ds_u8x32 v;
    ds_nibbles(&v, b->qs);
    c->scale[0] = ds_h2f(b->d);
    c->min[0] = ds_h2f(b->m);
    DS_STORE32(c->q, v);
}

DS_UNPACK_INLINE void ds_unpack_q5_0(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q5_0 *b = src;
    ds_u8x32 v;
    ds_nibbles(&v, b->qs);
    ds_add_fifth_bits(&v, b->qh);
    c->scale[0] = ds_h2f(b->d);
    DS_STORE32(c->q, v - 16);
}

DS_UNPACK_INLINE void ds_unpack_q5_1(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q5_1 *b = src;
    ds_u8x32 v;
    ds_nibbles(&v, b->qs);
    ds_add_fifth_bits(&v, b->qh);
    c->scale[0] = ds_h2f(b->d);
    c->min[0] = ds_h2f(b->m);
    DS_STORE32(c->q, v);
}

/* q_j = levels[lo], q_{j+16} = levels[hi]. */
DS_UNPACK_INLINE void ds_levels_32(int8_t *q, const uint8_t *qs, const int8_t levels[2][16])
{
    ds_u8x32 table, v;
    memcpy(&table, levels, 32);
    ds_nibbles(&v, qs);
    ds_lookup(&v, &table);
    DS_STORE32(q, v);
}

DS_UNPACK_INLINE void ds_unpack_iq4_nl(const struct ds_chunk *c, const void *src)
{
    static const int8_t levels[2][16] = { DS_IQ4_VALUES, DS_IQ4_VALUES };
    const struct ds_block_iq4_nl *b = src;
    c->scale[0] = ds_h2f(b->d);
    ds_levels_32(c->q, b->qs, levels);
}

DS_UNPACK_INLINE void ds_unpack_mxfp4(const struct ds_chunk *c, const void *src)
{
    static const int8_t levels[2][16] = { DS_MXFP4_VALUES, DS_MXFP4_VALUES };
    const struct ds_block_mxfp4 *b = src;
    uint32_t bits = b->e < 2 ? 0x00200000u << b->e : (uint32_t)(b->e - 1) << 23;   /* 2^(e-128) */
    memcpy(c->scale, &bits, 4);
    ds_levels_32(c->q, b->qs, levels);
}

/* --- 256 elements, sub-scales ------------------------------------------------------------------ */

/* Scales and minima of Q4_K and Q5_K: eight pairs of six bits, four bytes at a time (see ds_k4_scale). */
DS_UNPACK_INLINE void ds_k4_scales(const struct ds_chunk *c, const uint8_t s[12], float d, float dmin)
{
    uint32_t a[3], sc[2], m[2];
    memcpy(a, s, 12);
    sc[0] = a[0] & 0x3f3f3f3f;
    m[0] = a[1] & 0x3f3f3f3f;
    sc[1] = (a[2] & 0x0f0f0f0f) | (a[0] >> 2 & 0x30303030);
    m[1] = (a[2] >> 4 & 0x0f0f0f0f) | (a[1] >> 2 & 0x30303030);
    for (int j = 0; j < 8; j++) {
        c->scale[j] = d * (float)(int)(sc[j / 4] >> (8 * (j % 4)) & 255);
        c->m[j] = (int16_t)((int)(m[j / 4] >> (8 * (j % 4)) & 255));
    }
    c->min[0] = -dmin;
}

DS_UNPACK_INLINE void ds_unpack_q4_k(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q4_k *b = src;
    ds_k4_scales(c, b->scales, ds_h2f(b->d), ds_h2f(b->dmin));
    for (int i = 0; i < 4; i++) {
        ds_u8x32 v;
        memcpy(&v, b->qs + 32 * i, 32);
        DS_STORE32(c->q + 64 * i, v & 15);
        DS_STORE32(c->q + 64 * i + 32, v >> 4);
    }
}

DS_UNPACK_INLINE void ds_unpack_q5_k(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q5_k *b = src;
    ds_k4_scales(c, b->scales, ds_h2f(b->d), ds_h2f(b->dmin));
    ds_u8x32 h;
    memcpy(&h, b->qh, 32);
    for (int i = 0; i < 4; i++, h >>= 2) {
        ds_u8x32 v;
        memcpy(&v, b->qs + 32 * i, 32);
        DS_STORE32(c->q + 64 * i, (v & 15) | (h & 1) << 4);
        DS_STORE32(c->q + 64 * i + 32, (v >> 4) | (h & 2) << 3);
    }
}

DS_UNPACK_INLINE void ds_unpack_q6_k(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q6_k *b = src;
    float d = ds_h2f(b->d);
    for (int j = 0; j < 16; j++) c->scale[j] = d * (float)b->scales[j];
    for (int n = 0; n < 2; n++) {
        ds_u8x32 lo, hi, h;
        memcpy(&lo, b->ql + 64 * n, 32);
        memcpy(&hi, b->ql + 64 * n + 32, 32);
        memcpy(&h, b->qh + 32 * n, 32);
        DS_STORE32(c->q + 128 * n, ((lo & 15) | (h & 3) << 4) - 32);
        DS_STORE32(c->q + 128 * n + 32, ((hi & 15) | (h & 12) << 2) - 32);
        DS_STORE32(c->q + 128 * n + 64, ((lo >> 4) | (h & 48)) - 32);
        DS_STORE32(c->q + 128 * n + 96, ((hi >> 4) | (h >> 2 & 48)) - 32);
    }
}

/* q_i sc: 0..45, looked up among 0, sc, 2 sc, 3 sc. */
DS_UNPACK_INLINE void ds_unpack_q2_k(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q2_k *b = src;
    c->scale[0] = ds_h2f(b->d);
    c->min[0] = -ds_h2f(b->dmin);
    for (int j = 0; j < 16; j++) c->m[j] = (int16_t)(b->scales[j] >> 4);
    for (int n = 0; n < 2; n++) {
        ds_u8x32 two;
        memcpy(&two, b->qs + 32 * n, 32);
        for (int k = 0; k < 4; k++, two >>= 2) {
            uint32_t lo = (b->scales[8 * n + 2 * k] & 15) * 0x03020100u, hi = (b->scales[8 * n + 2 * k + 1] & 15) * 0x03020100u;
            ds_u8x32 table = (ds_u8x32)(ds_u32x8){ lo, 0, 0, 0, hi, 0, 0, 0 }, v = two & 3;
            ds_lookup(&v, &table);
            DS_STORE32(c->q + 128 * n + 32 * k, v);
        }
    }
}

/* The sixteen scales of Q3_K plus 32, a byte each: four bits from bytes 0-7, two more from bytes 8-11 (see ds_q3_scale). */
DS_UNPACK_INLINE void ds_q3_scales(uint32_t sc[4], const uint8_t s[12])
{
    uint32_t a[3];
    memcpy(a, s, 12);
    for (int i = 0; i < 4; i++) sc[i] = (a[i & 1] >> (i & 2 ? 4 : 0) & 0x0f0f0f0f) | (a[2] >> (2 * i) & 0x03030303) << 4;
}

/* The eight scales of IQ4_XS plus 32, a byte each (see ds_iq4_xs_scale): nibbles and pairs of bits are spread over eight bytes. */
DS_UNPACK_INLINE uint64_t ds_iq4_xs_scales(const struct ds_block_iq4_xs *b)
{
    uint32_t low;
    memcpy(&low, b->scales_l, 4);
    uint64_t l = low, h = b->scales_h;
    l = (l | l << 16) & 0x0000ffff0000ffffu;
    l = (l | l << 8) & 0x00ff00ff00ff00ffu;
    l = (l | l << 4) & 0x0f0f0f0f0f0f0f0fu;
    h = (h | h << 24) & 0x000000ff000000ffu;
    h = (h | h << 12) & 0x000f000f000f000fu;
    h = (h | h << 6) & 0x0303030303030303u;
    return l | h << 4;
}

/* The product of a value in -4..3 and a sub-scale in -32..31 reaches +128; negated it fits int8. Looked up
 * among the eight products sc * (4 - i). */
DS_UNPACK_INLINE void ds_unpack_q3_k(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q3_k *b = src;
    const uint64_t index = 0x0706050403020100u;
    uint32_t sc[4];
    ds_u8x32 high;
    ds_q3_scales(sc, b->scales);
    memcpy(&high, b->hmask, 32);
    c->scale[0] = -ds_h2f(b->d);
    for (int n = 0; n < 2; n++) {
        ds_u8x32 two;
        memcpy(&two, b->qs + 32 * n, 32);
        for (int k = 0; k < 4; k++, two >>= 2, high >>= 1) {
            /* (sc + 32) (4 - i) - 32 (4 - i) in bytes modulo 256: i (sc + 32) < 512 would carry, so sc and 32 apart */
            uint32_t two_scales = sc[2 * n + k / 2] >> (16 * (k % 2));
            uint64_t lo = two_scales & 255, hi = two_scales >> 8 & 255;
            ds_u8x32 i_sc = (ds_u8x32)(ds_u64x4){ (lo & 31) * index, 0, (hi & 31) * index, 0 };
            ds_u8x32 i_32 = (ds_u8x32)(ds_u64x4){ (lo < 32) * (32 * index), 0, (hi < 32) * (32 * index), 0 };
            ds_u8x32 four = (ds_u8x32)(ds_u64x4){ (uint8_t)(4 * (lo - 32)) * 0x0101010101010101u, 0, (uint8_t)(4 * (hi - 32)) * 0x0101010101010101u, 0 };
            ds_u8x32 table = four - i_sc + i_32, v = (two & 3) | (high & 1) << 2;
            ds_lookup(&v, &table);
            DS_STORE32(c->q + 128 * n + 32 * k, v);
        }
    }
}

DS_UNPACK_INLINE void ds_unpack_iq4_xs(const struct ds_chunk *c, const void *src)
{
    static const int8_t levels[2][16] = { DS_IQ4_VALUES, DS_IQ4_VALUES };
    const struct ds_block_iq4_xs *b = src;
    float d = ds_h2f(b->d);
    uint64_t sc = ds_iq4_xs_scales(b);
    for (int j = 0; j < 8; j++) {
        c->scale[j] = d * (float)((int)(sc >> (8 * j) & 255) - 32);
        ds_levels_32(c->q + 32 * j, b->qs + 16 * j, levels);
    }
}

/* One chunk of a type with blocks of 32 or of 256. Called with a constant id it is that type's function alone. */
DS_UNPACK_INLINE void ds_unpack_32(enum ds_type_id id, const struct ds_chunk *c, const void *src)
{
    switch (id) {
    case DS_T_Q8_0: ds_unpack_q8_0(c, src); break;
    case DS_T_Q4_0: ds_unpack_q4_0(c, src); break;
    case DS_T_Q4_1: ds_unpack_q4_1(c, src); break;
    case DS_T_Q5_0: ds_unpack_q5_0(c, src); break;
    case DS_T_Q5_1: ds_unpack_q5_1(c, src); break;
    case DS_T_IQ4_NL: ds_unpack_iq4_nl(c, src); break;
    case DS_T_MXFP4: ds_unpack_mxfp4(c, src); break;
    default: break;
    }
}
DS_UNPACK_INLINE void ds_unpack_256(enum ds_type_id id, const struct ds_chunk *c, const void *src)
{
    switch (id) {
    case DS_T_Q2_K: ds_unpack_q2_k(c, src); break;
    case DS_T_Q3_K: ds_unpack_q3_k(c, src); break;
    case DS_T_Q4_K: ds_unpack_q4_k(c, src); break;
    case DS_T_Q5_K: ds_unpack_q5_k(c, src); break;
    case DS_T_Q6_K: ds_unpack_q6_k(c, src); break;
    case DS_T_IQ4_XS: ds_unpack_iq4_xs(c, src); break;
    default: break;
    }
}

/* Names of a variant's kernels by type, for reports: "q8_0 avx2 16x6". */
#define DS_KERNEL_NAMES(what) \
    { [DS_T_F32] = "f32 " what, [DS_T_F16] = "f16 " what, [DS_T_BF16] = "bf16 " what, [DS_T_Q4_0] = "q4_0 " what, [DS_T_Q4_1] = "q4_1 " what, \
      [DS_T_Q5_0] = "q5_0 " what, [DS_T_Q5_1] = "q5_1 " what, [DS_T_Q8_0] = "q8_0 " what, [DS_T_Q2_K] = "q2_k " what, [DS_T_Q3_K] = "q3_k " what, \
      [DS_T_Q4_K] = "q4_k " what, [DS_T_Q5_K] = "q5_k " what, [DS_T_Q6_K] = "q6_k " what, [DS_T_IQ4_NL] = "iq4_nl " what, \
      [DS_T_IQ4_XS] = "iq4_xs " what, [DS_T_MXFP4] = "mxfp4 " what }

#endif
