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
 * The compilers' portable vectors; included by every kernel file and compiled with its flags. */
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

/* Where one chunk goes: q contiguous, scale j at scale[j * step], m j at m[(j / 2) * 2 * step + j % 2]
 * (pairs stay together for instructions that multiply and add two 16-bit numbers). */
struct ds_chunk { int8_t *q; float *scale, *min; int16_t *m; int step; };

static inline void ds_put_m(const struct ds_chunk *c, int j, int m) { c->m[(j / 2) * 2 * c->step + j % 2] = (int16_t)m; }

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

/* --- sixteen bytes at a time ---------------------------------------------------------------------- */

typedef uint8_t ds_u8x16 __attribute__((vector_size(16)));

static inline ds_u8x16 ds_load16(const void *p)
{
    ds_u8x16 v;
    memcpy(&v, p, 16);
    return v;
}

static inline void ds_store16(int8_t *p, ds_u8x16 v) { memcpy(p, &v, 16); }

/* table[i] for sixteen i < 16. */
static inline ds_u8x16 ds_lookup(ds_u8x16 table, ds_u8x16 i)
{
#if defined(__SSSE3__)
    return (ds_u8x16)_mm_shuffle_epi8((__m128i)table, (__m128i)i);
#elif defined(__aarch64__)
    return (ds_u8x16)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)i);
#else
    ds_u8x16 v;
    for (int j = 0; j < 16; j++) v[j] = table[i[j] & 15];
    return v;
#endif
}

/* 16 in byte e where bit e is set, for sixteen bits. */
static inline ds_u8x16 ds_bits_to_16(uint32_t bits)
{
    typedef uint64_t u64x2 __attribute__((vector_size(16)));
    const uint64_t each = 0x0101010101010101u;
    u64x2 v = { (bits & 255) * each, (bits >> 8 & 255) * each };       /* eight copies of a byte */
    v &= 0x8040201008040201u;                                          /* bit i of copy i */
    return (ds_u8x16)(((v + 0x7f7f7f7f7f7f7f7fu) & 0x8080808080808080u) >> 3);
}

/* --- 32 elements, one scale ------------------------------------------------------------------- */

static inline void ds_unpack_q8_0(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q8_0 *b = src;
    c->scale[0] = ds_h2f(b->d);
    memcpy(c->q, b->q, 32);
}

static inline void ds_unpack_q4_0(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q4_0 *b = src;
    ds_u8x16 v = ds_load16(b->qs);
    c->scale[0] = ds_h2f(b->d);
    ds_store16(c->q, (v & 15) - 8);
    ds_store16(c->q + 16, (v >> 4) - 8);
}

static inline void ds_unpack_q4_1(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q4_1 *b = src;
    ds_u8x16 v = ds_load16(b->qs);
    c->scale[0] = ds_h2f(b->d);
    c->min[0] = ds_h2f(b->m);
    ds_store16(c->q, v & 15);
    ds_store16(c->q + 16, v >> 4);
}

static inline void ds_unpack_q5_0(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q5_0 *b = src;
    ds_u8x16 v = ds_load16(b->qs);
    c->scale[0] = ds_h2f(b->d);
    ds_store16(c->q, (v & 15) + ds_bits_to_16(b->qh) - 16);
    ds_store16(c->q + 16, (v >> 4) + ds_bits_to_16(b->qh >> 16) - 16);
}

static inline void ds_unpack_q5_1(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q5_1 *b = src;
    ds_u8x16 v = ds_load16(b->qs);
    c->scale[0] = ds_h2f(b->d);
    c->min[0] = ds_h2f(b->m);
    ds_store16(c->q, (v & 15) + ds_bits_to_16(b->qh));
    ds_store16(c->q + 16, (v >> 4) + ds_bits_to_16(b->qh >> 16));
}

/* q_j = table[lo], q_{j+16} = table[hi]. */
static inline void ds_levels_32(int8_t *q, const uint8_t *qs, const int8_t table[16])
{
    ds_u8x16 t = ds_load16(table), v = ds_load16(qs);
    ds_store16(q, ds_lookup(t, v & 15));
    ds_store16(q + 16, ds_lookup(t, v >> 4));
}

static inline void ds_unpack_iq4_nl(const struct ds_chunk *c, const void *src)
{
    static const int8_t table[16] = DS_IQ4_VALUES;
    const struct ds_block_iq4_nl *b = src;
    c->scale[0] = ds_h2f(b->d);
    ds_levels_32(c->q, b->qs, table);
}

static inline void ds_unpack_mxfp4(const struct ds_chunk *c, const void *src)
{
    static const int8_t table[16] = DS_MXFP4_VALUES;
    const struct ds_block_mxfp4 *b = src;
    uint32_t bits = b->e < 2 ? 0x00200000u << b->e : (uint32_t)(b->e - 1) << 23;   /* 2^(e-128) */
    memcpy(c->scale, &bits, 4);
    ds_levels_32(c->q, b->qs, table);
}

/* --- 256 elements, sub-scales ------------------------------------------------------------------ */

/* Scales and minima of Q4_K and Q5_K: eight pairs of six bits, four bytes at a time (see ds_k4_scale). */
static inline void ds_k4_scales(const struct ds_chunk *c, const uint8_t s[12], float d, float dmin)
{
    uint32_t a[3], sc[2], m[2];
    memcpy(a, s, 12);
    sc[0] = a[0] & 0x3f3f3f3f;
    m[0] = a[1] & 0x3f3f3f3f;
    sc[1] = (a[2] & 0x0f0f0f0f) | (a[0] >> 2 & 0x30303030);
    m[1] = (a[2] >> 4 & 0x0f0f0f0f) | (a[1] >> 2 & 0x30303030);
    for (int j = 0; j < 8; j++) {
        c->scale[j * c->step] = d * (float)(int)(sc[j / 4] >> (8 * (j % 4)) & 255);
        ds_put_m(c, j, (int)(m[j / 4] >> (8 * (j % 4)) & 255));
    }
    c->min[0] = -dmin;
}

static inline void ds_unpack_q4_k(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q4_k *b = src;
    ds_k4_scales(c, b->scales, ds_h2f(b->d), ds_h2f(b->dmin));
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < 32; l += 16) {
            ds_u8x16 v = ds_load16(b->qs + 32 * i + l);
            ds_store16(c->q + 64 * i + l, v & 15);
            ds_store16(c->q + 64 * i + 32 + l, v >> 4);
        }
}

static inline void ds_unpack_q5_k(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q5_k *b = src;
    ds_k4_scales(c, b->scales, ds_h2f(b->d), ds_h2f(b->dmin));
    for (int l = 0; l < 32; l += 16) {
        ds_u8x16 h = ds_load16(b->qh + l);
        for (int i = 0; i < 4; i++, h >>= 2) {
            ds_u8x16 v = ds_load16(b->qs + 32 * i + l);
            ds_store16(c->q + 64 * i + l, (v & 15) | (h & 1) << 4);
            ds_store16(c->q + 64 * i + 32 + l, (v >> 4) | (h & 2) << 3);
        }
    }
}

static inline void ds_unpack_q6_k(const struct ds_chunk *c, const void *src)
{
    const struct ds_block_q6_k *b = src;
    float d = ds_h2f(b->d);
    for (int j = 0; j < 16; j++) c->scale[j * c->step] = d * (float)b->scales[j];
    for (int n = 0; n < 2; n++)
        for (int l = 0; l < 32; l += 16) {
            ds_u8x16 lo = ds_load16(b->ql + 64 * n + l), hi = ds_load16(b->ql + 64 * n + 32 + l), h = ds_load16(b->qh + 32 * n + l);
            int8_t *q = c->q + 128 * n + l;
            ds_store16(q, ((lo & 15) | (h & 3) << 4) - 32);
            ds_store16(q + 32, ((hi & 15) | (h & 12) << 2) - 32);
            ds_store16(q + 64, ((lo >> 4) | (h & 48)) - 32);
            ds_store16(q + 96, ((hi >> 4) | (h >> 2 & 48)) - 32);
        }
}

/* q_i sc: 0..45, looked up among 0, sc, 2 sc, 3 sc. */
static inline void ds_unpack_q2_k(const struct ds_chunk *c, const void *src)
{
    typedef uint32_t u32x4 __attribute__((vector_size(16)));
    const struct ds_block_q2_k *b = src;
    c->scale[0] = ds_h2f(b->d);
    c->min[0] = -ds_h2f(b->dmin);
    for (int j = 0; j < 16; j++) ds_put_m(c, j, b->scales[j] >> 4);
    for (int n = 0; n < 2; n++)
        for (int s = 0; s < 2; s++) {
            ds_u8x16 v = ds_load16(b->qs + 32 * n + 16 * s);
            for (int k = 0; k < 4; k++, v >>= 2) {
                u32x4 levels = (u32x4){ 0 } + (b->scales[8 * n + 2 * k + s] & 15) * 0x03020100u;
                ds_store16(c->q + 128 * n + 32 * k + 16 * s, ds_lookup((ds_u8x16)levels, v & 3));
            }
        }
}

/* The product of a value in -4..3 and a sub-scale in -32..31 reaches +128; negated it fits int8. Looked up
 * among the eight products. */
static inline void ds_unpack_q3_k(const struct ds_chunk *c, const void *src)
{
    typedef uint64_t u64x2 __attribute__((vector_size(16)));
    const struct ds_block_q3_k *b = src;
    c->scale[0] = -ds_h2f(b->d);
    for (int s = 0; s < 2; s++) {
        ds_u8x16 h = ds_load16(b->hmask + 16 * s);
        for (int n = 0; n < 2; n++) {
            ds_u8x16 v = ds_load16(b->qs + 32 * n + 16 * s);
            for (int k = 0; k < 4; k++, v >>= 2, h >>= 1) {
                int sc = ds_q3_scale(b->scales, 8 * n + 2 * k + s);
                uint64_t size = (uint64_t)(sc < 0 ? -sc : sc);
                u64x2 times = { size * 0x0706050403020100u, 0 };                    /* bytes i * size */
                ds_u8x16 levels = (uint8_t)(4 * size) - (ds_u8x16)times, negate = (ds_u8x16){ 0 } + (uint8_t)(sc < 0 ? 255 : 0);
                ds_store16(c->q + 128 * n + 32 * k + 16 * s, ds_lookup((levels ^ negate) - negate, (v & 3) | (h & 1) << 2));
            }
        }
    }
}

static inline void ds_unpack_iq4_xs(const struct ds_chunk *c, const void *src)
{
    static const int8_t table[16] = DS_IQ4_VALUES;
    const struct ds_block_iq4_xs *b = src;
    float d = ds_h2f(b->d);
    for (int j = 0; j < 8; j++) {
        c->scale[j * c->step] = d * (float)ds_iq4_xs_scale(b, j);
        ds_levels_32(c->q + 32 * j, b->qs + 16 * j, table);
    }
}

/* Names of a variant's kernels by type, for reports: "q8_0 avx2 16x6". */
#define DS_KERNEL_NAMES(what) \
    { [DS_T_F32] = "f32 " what, [DS_T_F16] = "f16 " what, [DS_T_BF16] = "bf16 " what, [DS_T_Q4_0] = "q4_0 " what, [DS_T_Q4_1] = "q4_1 " what, \
      [DS_T_Q5_0] = "q5_0 " what, [DS_T_Q5_1] = "q5_1 " what, [DS_T_Q8_0] = "q8_0 " what, [DS_T_Q2_K] = "q2_k " what, [DS_T_Q3_K] = "q3_k " what, \
      [DS_T_Q4_K] = "q4_k " what, [DS_T_Q5_K] = "q5_k " what, [DS_T_Q6_K] = "q6_k " what, [DS_T_IQ4_NL] = "iq4_nl " what, \
      [DS_T_IQ4_XS] = "iq4_xs " what, [DS_T_MXFP4] = "mxfp4 " what }

/* Unpacks one chunk of the given type. Called with a constant id it is that type's function alone. */
static inline __attribute__((always_inline)) void ds_unpack(enum ds_type_id id, const struct ds_chunk *c, const void *src)
{
    switch (id) {
    case DS_T_Q8_0: ds_unpack_q8_0(c, src); break;
    case DS_T_Q4_0: ds_unpack_q4_0(c, src); break;
    case DS_T_Q4_1: ds_unpack_q4_1(c, src); break;
    case DS_T_Q5_0: ds_unpack_q5_0(c, src); break;
    case DS_T_Q5_1: ds_unpack_q5_1(c, src); break;
    case DS_T_IQ4_NL: ds_unpack_iq4_nl(c, src); break;
    case DS_T_MXFP4: ds_unpack_mxfp4(c, src); break;
    case DS_T_Q2_K: ds_unpack_q2_k(c, src); break;
    case DS_T_Q3_K: ds_unpack_q3_k(c, src); break;
    case DS_T_Q4_K: ds_unpack_q4_k(c, src); break;
    case DS_T_Q5_K: ds_unpack_q5_k(c, src); break;
    case DS_T_Q6_K: ds_unpack_q6_k(c, src); break;
    case DS_T_IQ4_XS: ds_unpack_iq4_xs(c, src); break;
    default: break;
    }
}

#endif
