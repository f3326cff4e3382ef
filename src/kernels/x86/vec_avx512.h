/* The vector words that src/kernels/simd_*.h are written in, for AVX-512 (F, DQ, VL). Each variant's
 * header defines the same words:
 *
 *   vf, VL                    a vector of VL floats
 *   TILE_ROWS, TILE_VECS      accumulators of the matrix tile: rows x vectors, all in registers
 *   v_load_n, v_store_n       the first n < VL lanes; the others load as 0 and are not touched in memory
 *   v_fma(a, b, c)            a b + c, rounded once;  v_fnma: c - a b
 *   v_max(a, x)               a NaN in x survives
 *   v_ldexp(p, n)             p 2^n for p in [0.5, 2] and integral n in [-160, 0], denormals included
 *   v_sums(a)                 lane i is the sum over the lanes of a[i], i < VL; v_sum: of one vector
 *   v_load4(p, x)             x[j] lane i = p[4 i + j]
 *   v_transpose(x)            swaps lane i of x[j] and lane j of x[i], for all i, j < VL
 *
 * No global symbols: a file that includes this is compiled for this instruction set. */
#ifndef DS_KERNELS_X86_VEC_AVX512_H
#define DS_KERNELS_X86_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512 vf;
enum { VL = 16, TILE_ROWS = 8, TILE_VECS = 2, SEQ_VECS = 2 };

static inline __mmask16 first_lanes(int n) { return (__mmask16)((1u << n) - 1); }

static inline vf v_zero(void) { return _mm512_setzero_ps(); }
static inline vf v_set1(float x) { return _mm512_set1_ps(x); }
static inline vf v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline vf v_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
static inline void v_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
static inline void v_store_n(float *p, vf x, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), x); }
static inline vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf v_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
static inline vf v_max(vf a, vf x) { return _mm512_max_ps(a, x); }
static inline vf v_abs(vf x) { return _mm512_abs_ps(x); }
static inline vf v_round(vf x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vf v_ldexp(vf p, vf n) { return _mm512_scalef_ps(p, n); }
/* x < 0 ? a : b */
static inline vf v_if_neg(vf x, vf a, vf b)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ), b, a);
}
/* lane < n ? a : b, n in 0..VL */
static inline vf v_first(int n, vf a, vf b) { return _mm512_mask_blend_ps(first_lanes(n), b, a); }
static inline float v_sum(vf x) { return _mm512_reduce_add_ps(x); }

/* Adds neighbours of a and b: within each 128-bit lane a's pair sums lie below b's. */
static inline __m512 pair_sums(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

static inline vf v_sums(const vf a[16])
{
    __m512 q[4];          /* q[r], lane 4 l + c: partial sum of a[4 r + c] over its 128-bit lane l */
    for (int r = 0; r < 4; r++) q[r] = pair_sums(pair_sums(a[4 * r], a[4 * r + 1]), pair_sums(a[4 * r + 2], a[4 * r + 3]));
    __m512 x = _mm512_add_ps(_mm512_shuffle_f32x4(q[0], q[1], 0x88), _mm512_shuffle_f32x4(q[0], q[1], 0xdd));
    __m512 y = _mm512_add_ps(_mm512_shuffle_f32x4(q[2], q[3], 0x88), _mm512_shuffle_f32x4(q[2], q[3], 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
}

static inline void v_load4(const float *p, vf x[4])
{
    const __m512i even = _mm512_set_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0);
    __m512 a = v_load(p), b = v_load(p + 16), c = v_load(p + 32), d = v_load(p + 48);
    for (int j = 0; j < 4; j++) {
        __m512i at = _mm512_add_epi32(even, _mm512_set1_epi32(j));
        __m512 lo = _mm512_permutex2var_ps(a, at, b), hi = _mm512_permutex2var_ps(c, at, d);
        x[j] = _mm512_shuffle_f32x4(lo, hi, 0x44);
    }
}

static inline void v_transpose(vf x[16])
{
    __m512 a[16], b[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {          /* b[i + c], 128-bit lane l: column 4 l + c of rows i..i+3 */
        b[i] = _mm512_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm512_shuffle_ps(a[i], a[i + 2], 0xee);
        b[i + 2] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        __m512 p = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x88), q = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x88);
        __m512 r = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xdd), s = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xdd);
        x[c] = _mm512_shuffle_f32x4(p, q, 0x88);
        x[4 + c] = _mm512_shuffle_f32x4(r, s, 0x88);
        x[8 + c] = _mm512_shuffle_f32x4(p, q, 0xdd);
        x[12 + c] = _mm512_shuffle_f32x4(r, s, 0xdd);
    }
}

static inline vf v_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p)); }
static inline void v_store_f16(uint16_t *p, vf x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#endif
