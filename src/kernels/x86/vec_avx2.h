/* The vector words of vec_avx512.h, for AVX2 with FMA and F16C. */
#ifndef DS_KERNELS_X86_VEC_AVX2_H
#define DS_KERNELS_X86_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

typedef __m256 vf;
enum { VL = 8, TILE_ROWS = 4, TILE_VECS = 2, SEQ_VECS = 2 };

static inline __m256i first_lanes(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
}

static inline vf v_zero(void) { return _mm256_setzero_ps(); }
static inline vf v_set1(float x) { return _mm256_set1_ps(x); }
static inline vf v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline vf v_load_n(const float *p, int n) { return _mm256_maskload_ps(p, first_lanes(n)); }
static inline void v_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
static inline void v_store_n(float *p, vf x, int n) { _mm256_maskstore_ps(p, first_lanes(n), x); }
static inline vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf v_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
static inline vf v_max(vf a, vf x) { return _mm256_max_ps(a, x); }
static inline vf v_abs(vf x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
static inline vf v_round(vf x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* In two factors: 2^n itself may be below the smallest normal. */
static inline vf v_ldexp(vf p, vf n)
{
    __m256i e = _mm256_cvtps_epi32(n), h = _mm256_srai_epi32(e, 1), bias = _mm256_set1_epi32(127);
    __m256 a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(h, bias), 23));
    __m256 b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(e, h), bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(p, a), b);
}
static inline vf v_if_neg(vf x, vf a, vf b) { return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ)); }
static inline vf v_first(int n, vf a, vf b) { return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(first_lanes(n))); }
static inline float v_sum(vf x)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline vf v_sums(const vf a[8])
{
    __m256 x = _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3]));
    __m256 y = _mm256_hadd_ps(_mm256_hadd_ps(a[4], a[5]), _mm256_hadd_ps(a[6], a[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
}

static inline void v_load4(const float *p, vf x[4])
{
    __m256 a = v_load(p), b = v_load(p + 8), c = v_load(p + 16), d = v_load(p + 24);
    __m256 ac = _mm256_permute2f128_ps(a, c, 0x20), AC = _mm256_permute2f128_ps(a, c, 0x31);      /* points 0, 4 and 1, 5 */
    __m256 bd = _mm256_permute2f128_ps(b, d, 0x20), BD = _mm256_permute2f128_ps(b, d, 0x31);      /* points 2, 6 and 3, 7 */
    __m256 lo = _mm256_unpacklo_ps(ac, AC), hi = _mm256_unpackhi_ps(ac, AC);
    __m256 Lo = _mm256_unpacklo_ps(bd, BD), Hi = _mm256_unpackhi_ps(bd, BD);
    x[0] = _mm256_shuffle_ps(lo, Lo, 0x44);
    x[1] = _mm256_shuffle_ps(lo, Lo, 0xee);
    x[2] = _mm256_shuffle_ps(hi, Hi, 0x44);
    x[3] = _mm256_shuffle_ps(hi, Hi, 0xee);
}

static inline void v_transpose(vf x[8])
{
    __m256 a[8], b[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {           /* b[i + c], 128-bit lane l: column 4 l + c of rows i..i+3 */
        b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        x[c] = _mm256_permute2f128_ps(b[c], b[4 + c], 0x20);
        x[4 + c] = _mm256_permute2f128_ps(b[c], b[4 + c], 0x31);
    }
}

static inline vf v_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)); }
static inline void v_store_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#endif
