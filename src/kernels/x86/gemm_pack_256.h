/* Activations into packed tiles with 256-bit vectors: each token of the tile is quantised into eight
 * dwords of 32 bytes, a transpose brings the tokens side by side, and the sums of groups of four are
 * then vertical. Same numbers as ds_act_q8_0 and ds_act_q8_k. */
#include "kernels/x86/transpose_256.h"

/* Largest |x| as bits: as integers they have the order of the magnitudes, with infinity and NaN on top. */
INLINE __m256i top_bits_32(const float *x)
{
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm256_and_si256(mask, _mm256_loadu_si256((const __m256i *)(const void *)(x + 8 * i)));
    return _mm256_max_epi32(_mm256_max_epi32(v[0], v[1]), _mm256_max_epi32(v[2], v[3]));
}

INLINE int top_of(__m256i v)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}

/* Four vectors of integers to 32 bytes in order, saturated. */
INLINE __m256i to_bytes(const __m256i v[4])
{
    __m256i b = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(b, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Q8_0: half away from zero. Adding the float below 0.5 and cutting is exact for |x * inverse| < 2^22. */
INLINE __m256i quantise_32(const float *x, float *d)
{
    const int top = top_of(top_bits_32(x));
    float amax;
    memcpy(&amax, &top, 4);
    *d = amax / 127;
    if (top >= 0x7f800000 || *d < 1.17549435e-38f) {
        *d = top >= 0x7f800000 ? NAN : ds_round_h(*d);
        return _mm256_setzero_si256();
    }
    const __m256 inverse = _mm256_set1_ps(1 / *d), sign = _mm256_set1_ps(-0.0f), half = _mm256_set1_ps(0.49999997f);
    __m256i v[4];
    for (int i = 0; i < 4; i++) {
        __m256 y = _mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse);
        v[i] = _mm256_cvttps_epi32(_mm256_add_ps(y, _mm256_or_ps(half, _mm256_and_ps(y, sign))));
    }
    *d = ds_round_h(*d);
    return to_bytes(v);
}

/* Q8_K's -127 / (first element of largest magnitude); d: its inverse. 0 for a block that becomes zero. */
INLINE float scale_256(const float *x, float *d)
{
    __m256i most = top_bits_32(x);
    for (int i = 32; i < 256; i += 32) most = _mm256_max_epi32(most, top_bits_32(x + i));
    const int top = top_of(most);
    float amax;
    memcpy(&amax, &top, 4);
    *d = top >= 0x7f800000 ? NAN : 0;
    if (top >= 0x7f800000 || amax <= 127 / 3.40282347e+38f) return 0;
    const __m256i mask = _mm256_set1_epi32(0x7fffffff), wanted = _mm256_set1_epi32(top);
    for (int i = 0; i < 256; i += 8) {
        __m256i same = _mm256_cmpeq_epi32(wanted, _mm256_and_si256(mask, _mm256_loadu_si256((const __m256i *)(const void *)(x + i))));
        int bits = _mm256_movemask_ps(_mm256_castsi256_ps(same));
        if (bits) {
            float s = -127 / x[i + __builtin_ctz((unsigned)bits)];
            *d = 1 / s;
            return s;
        }
    }
    return 0;
}

/* 32 elements times s, half to even, at most 127 (by saturation; -127 is the extreme on the other side). */
INLINE __m256i scaled_32(const float *x, float s)
{
    __m256i v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(s)));
    return to_bytes(v);
}

/* Per lane the sum of its four signed bytes. */
INLINE __m256i sum_4(__m256i v)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), v), _mm256_set1_epi16(1));
}

/* Per lane the sum of the magnitudes of its sixteen bytes in four vectors. */
INLINE __m256i magnitudes_16(const __m256i a[4])
{
    __m256i s = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) s = _mm256_add_epi16(s, _mm256_maddubs_epi16(_mm256_abs_epi8(a[i]), _mm256_set1_epi8(1)));
    return _mm256_madd_epi16(s, _mm256_set1_epi16(1));
}

/* The first w dwords of v. */
INLINE void store_row(char *dst, __m256i v, int w)
{
    if (w == TOKS) {
        _mm_storeu_si128((__m128i *)(void *)dst, _mm256_castsi256_si128(v));
        _mm_storel_epi64((__m128i *)(void *)(dst + 16), _mm256_extracti128_si256(v, 1));
    } else {
        _Alignas(32) char a[32];
        _mm256_store_si256((__m256i *)(void *)a, v);
        memcpy(dst, a, 4 * (size_t)w);
    }
}

/* x[t]: where token t's elements begin; x[t] = x[w - 1] for t >= w. */
INLINE void pack_width_q8_0(char *dst, int w, const float *const x[8], int len)
{
    const __m256i minus_128 = _mm256_set1_epi32(-128);
    for (int b = 0; b < len / 32; b++, dst += Q8_0_BYTES * w) {
        _Alignas(32) float d[8] = { 0 };
        __m256i a[8], sum = _mm256_setzero_si256();
        for (int t = 0; t < TOKS; t++) a[t] = quantise_32(x[t] + 32 * b, &d[t]);
        for (int t = TOKS; t < 8; t++) a[t] = _mm256_setzero_si256();
        transpose_8x8(a);
        for (int j = 0; j < 8; j++) sum = _mm256_add_epi32(sum, sum_4(a[j]));
        for (int j = 0; j < 8; j++) store_row(dst + 4 * w * j, a[j], w);
        memcpy(dst + 32 * w, d, 4 * (size_t)w);
        store_row(dst + 36 * w, _mm256_mullo_epi32(sum, minus_128), w);
    }
}

/* Two vectors of sums as pairs of int16. */
INLINE __m256i pairs(__m256i a, __m256i b) { return _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa); }

INLINE void pack_width_q8_k(char *dst, int w, const float *const x[8], int len)
{
    for (int b = 0; b < len / 256; b++, dst += Q8_K_BYTES * w) {
        _Alignas(32) float d[8] = { 0 };
        float s[TOKS];
        __m256i sum16[16], all = _mm256_setzero_si256(), most = all;
        for (int t = 0; t < TOKS; t++) s[t] = scale_256(x[t] + 256 * b, &d[t]);
        for (int g = 0; g < 8; g++) {
            __m256i a[8];
            for (int t = 0; t < TOKS; t++) a[t] = s[t] != 0 ? scaled_32(x[t] + 256 * b + 32 * g, s[t]) : _mm256_setzero_si256();
            for (int t = TOKS; t < 8; t++) a[t] = _mm256_setzero_si256();
            transpose_8x8(a);
            for (int j = 0; j < 8; j++) store_row(dst + 32 * w * g + 4 * w * j, a[j], w);
            for (int h = 0; h < 2; h++) most = _mm256_max_epi32(most, magnitudes_16(a + 4 * h));
            for (int h = 0; h < 2; h++)
                sum16[2 * g + h] = _mm256_add_epi32(_mm256_add_epi32(sum_4(a[4 * h]), sum_4(a[4 * h + 1])),
                                                    _mm256_add_epi32(sum_4(a[4 * h + 2]), sum_4(a[4 * h + 3])));
            all = _mm256_add_epi32(all, _mm256_add_epi32(sum16[2 * g], sum16[2 * g + 1]));
        }
        const __m256i minus_128 = _mm256_set1_epi32(-128);
        store_row(dst + K_D * w, _mm256_castps_si256(_mm256_load_ps(d)), w);
        store_row(dst + K_S256 * w, _mm256_mullo_epi32(all, minus_128), w);
        for (int j = 0; j < 8; j++)
            store_row(dst + K_S32 * w + 4 * w * j, _mm256_mullo_epi32(_mm256_add_epi32(sum16[2 * j], sum16[2 * j + 1]), minus_128), w);
        for (int j = 0; j < 16; j++) store_row(dst + K_S16 * w + 4 * w * j, _mm256_mullo_epi32(sum16[j], minus_128), w);
        for (int j = 0; j < 4; j++)
            store_row(dst + K_M32 * w + 4 * w * j,
                      pairs(_mm256_add_epi32(sum16[4 * j], sum16[4 * j + 1]), _mm256_add_epi32(sum16[4 * j + 2], sum16[4 * j + 3])), w);
        for (int j = 0; j < 8; j++) store_row(dst + K_M16 * w + 4 * w * j, pairs(sum16[2 * j], sum16[2 * j + 1]), w);
        store_row(dst + K_A16 * w, most, w);
    }
}

/* --- one token, for decode: its integers lie in order, so nothing is transposed --- */

static void pack_one_q8_0(char *dst, const float *x, int len)
{
    for (int b = 0; b < len / 32; b++, x += 32, dst += Q8_0_BYTES) {
        float d;
        const __m256i q = quantise_32(x, &d);
        __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sum_4(q)), _mm256_extracti128_si256(sum_4(q), 1));
        s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
        const int sum = -128 * _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
        _mm256_storeu_si256((__m256i *)(void *)dst, q);
        memcpy(dst + 32, &d, 4);
        memcpy(dst + 36, &sum, 4);
    }
}

/* Sums of fours of 128 elements to sums of sixteens. */
INLINE __m256i sums_16(const __m256i a[4])
{
    const __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(a[0], a[1]), _mm256_hadd_epi32(a[2], a[3]));
    return _mm256_permutevar8x32_epi32(s, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Two vectors of sums, in order, as int16. */
INLINE __m256i narrow(__m256i a, __m256i b) { return _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8); }

INLINE void store_256(char *dst, __m256i v) { _mm256_storeu_si256((__m256i *)(void *)dst, v); }

static void pack_one_q8_k(char *dst, const float *x, int len)
{
    const __m256i ones = _mm256_set1_epi8(1), minus_128 = _mm256_set1_epi32(-128);
    for (int b = 0; b < len / 256; b++, x += 256, dst += Q8_K_BYTES) {
        float d;
        const float s = scale_256(x, &d);
        __m256i fours[8], magnitudes[8], sum16[2];
        for (int g = 0; g < 8; g++) {
            const __m256i q = s != 0 ? scaled_32(x + 32 * g, s) : _mm256_setzero_si256();
            store_256(dst + 32 * g, q);
            fours[g] = sum_4(q);
            magnitudes[g] = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(q), ones), _mm256_set1_epi16(1));
        }
        for (int h = 0; h < 2; h++) sum16[h] = sums_16(fours + 4 * h);
        const __m256i sum32 = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sum16[0], sum16[1]), 0xd8);
        __m128i all = _mm_add_epi32(_mm256_castsi256_si128(sum32), _mm256_extracti128_si256(sum32, 1));
        all = _mm_add_epi32(all, _mm_shuffle_epi32(all, 0x4e));
        const int sum = -128 * _mm_cvtsi128_si32(_mm_add_epi32(all, _mm_shuffle_epi32(all, 0xb1)));
        const int most = top_of(_mm256_max_epi32(sums_16(magnitudes), sums_16(magnitudes + 4)));
        memcpy(dst + K_D, &d, 4);
        memcpy(dst + K_S256, &sum, 4);
        store_256(dst + K_S32, _mm256_mullo_epi32(sum32, minus_128));
        for (int h = 0; h < 2; h++) store_256(dst + K_S16 + 32 * h, _mm256_mullo_epi32(sum16[h], minus_128));
        _mm_storeu_si128((__m128i *)(void *)(dst + K_M32), _mm256_castsi256_si128(narrow(sum32, sum32)));
        store_256(dst + K_M16, narrow(sum16[0], sum16[1]));
        memcpy(dst + K_A16, &most, 4);
    }
}

#if VECTOR_BITS == 512
#include "kernels/x86/gemm_pack_512.h"
#endif

static void pack_q8_0(char *dst, int w, const float *const x[8], int len)
{
    if (w == 1) pack_one_q8_0(dst, x[0], len);
#if VECTOR_BITS == 512
    else if (w == TOKS) pack_six_q8_0(dst, x, len);
#else
    else if (w == TOKS) pack_width_q8_0(dst, TOKS, x, len);
#endif
    else pack_width_q8_0(dst, w, x, len);
}

static void pack_q8_k(char *dst, int w, const float *const x[8], int len)
{
    if (w == 1) pack_one_q8_k(dst, x[0], len);
    else if (w == TOKS) pack_width_q8_k(dst, TOKS, x, len);
    else pack_width_q8_k(dst, w, x, len);
}
