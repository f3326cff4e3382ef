/* One token against weight rows, for decode: the rows of a task are one contiguous stretch of the file,
 * read once, in order, with a prefetch ahead; everything else stays in registers and L1. 256-bit
 * vectors suffice, memory is what bounds it.
 *
 * Signed weights give their sign to the activation: |w| <= 128 is the unsigned side that vpdpbusd and
 * vpmaddubsw want, and two products stay below 2^15. (A bias of 128 as in the tiles would leave large
 * lane sums that cancel only in f32.)
 *
 * Included after gemm_tile.h, whose packed layout for a single token is linear; DPBUSD_256 is defined
 * where the instruction exists. */

#include "kernels/x86/gemv_float_256.h"

INLINE const char *gemv_activations(enum ds_type_id id, const struct ds_gemm_call *c) { (void)id; return c->x; }

/* Eight 32-bit lanes whose sum is the dot product of 32 weights and activations; lanes 0-3 of the first sixteen. */
INLINE __m256i dot_32(const int8_t *weights, const char *x, bool nonneg)
{
    __m256i w = _mm256_load_si256((const __m256i *)(const void *)weights), a = _mm256_loadu_si256((const __m256i *)(const void *)x);
    if (!nonneg) {
        a = _mm256_sign_epi8(a, w);
        w = _mm256_abs_epi8(w);
    }
#if defined(DPBUSD_256)
    return DPBUSD_256(_mm256_setzero_si256(), w, a);
#else
    return _mm256_madd_epi16(_mm256_maddubs_epi16(w, a), _mm256_set1_epi16(1));
#endif
}

/* Adds one block's products to acc and its minimum's part to mins. */
INLINE void add_32(enum ds_type_id id, const char *w, const char *x, __m256 *acc, float *mins)
{
    const struct ds_gemm_form f = ds_gemm_form_of(id);
    _Alignas(32) int8_t q[32];
    float scale, min = 0;
    struct ds_chunk c = { q, &scale, &min, NULL };
    ds_unpack_32(id, &c, w);
    const float d = load_f(x + 32);
    *acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot_32(q, x, f.nonneg)), _mm256_set1_ps(scale * d), *acc);
    if (f.min) *mins += min * (d * (-1.0f / 128) * (float)load_i(x + 36));
}

/* Blocks of 32. Two accumulators keep the additions apart. */
INLINE float row_q8_0(enum ds_type_id id, const char *w, const char *x, int k)
{
    const int bytes = ds_block_bytes(id);
    __m256 acc0 = _mm256_setzero_ps(), acc1 = acc0;
    float mins = 0;
    int b = k / 32;
    for (; b >= 4; b -= 4, w += 4 * bytes, x += 4 * Q8_0_BYTES) {
        prefetch(w, 4 * bytes);
        add_32(id, w, x, &acc0, &mins);
        add_32(id, w + bytes, x + Q8_0_BYTES, &acc1, &mins);
        add_32(id, w + 2 * bytes, x + 2 * Q8_0_BYTES, &acc0, &mins);
        add_32(id, w + 3 * bytes, x + 3 * Q8_0_BYTES, &acc1, &mins);
    }
    for (; b; b--, w += bytes, x += Q8_0_BYTES) add_32(id, w, x, &acc0, &mins);
    return sum_8(_mm256_add_ps(acc0, acc1)) + mins;
}

/* scale[0] in lanes 0-3, scale[1] in lanes 4-7. */
INLINE __m256 two_scales(const float *scale)
{
    double two;
    memcpy(&two, scale, 8);
    return _mm256_permutevar8x32_ps(_mm256_castpd_ps(_mm256_set1_pd(two)), _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}

/* Blocks of 256. */
INLINE float row_q8_k(enum ds_type_id id, const char *w, const char *x, int k)
{
    const struct ds_gemm_form f = ds_gemm_form_of(id);
    const int bytes = ds_block_bytes(id);
    __m256 acc = _mm256_setzero_ps();
    for (int b = 0; b < k / 256; b++, w += bytes, x += Q8_K_BYTES) {
        _Alignas(32) int8_t q[256];
        float scale[16], min = 0;
        _Alignas(32) int16_t m[16];
        struct ds_chunk c = { q, scale, &min, m };
        ds_unpack_256(id, &c, w);
        prefetch(w, bytes);
        __m256 y[2] = { _mm256_setzero_ps(), _mm256_setzero_ps() };
        __m256i whole = _mm256_setzero_si256();
        UNROLL for (int j = 0; j < 8; j++) {
            __m256i s = dot_32(q + 32 * j, x + 32 * j, f.nonneg);
            if (f.group == 256) whole = _mm256_add_epi32(whole, s);
            else y[j & 1] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s), f.group == 32 ? _mm256_set1_ps(scale[j]) : two_scales(scale + 2 * j), y[j & 1]);
        }
        if (f.group == 256) y[0] = _mm256_mul_ps(_mm256_cvtepi32_ps(whole), _mm256_set1_ps(scale[0]));
        if (f.mgroup == 16) {
            __m256i s = _mm256_madd_epi16(_mm256_load_si256((const __m256i *)m), _mm256_loadu_si256((const __m256i *)(x + K_M16)));
            y[1] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s), _mm256_set1_ps(min), y[1]);
        } else if (f.mgroup == 32) {
            __m128i s = _mm_madd_epi16(_mm_load_si128((const __m128i *)m), _mm_loadu_si128((const __m128i *)(x + K_M32)));
            y[1] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_zextsi128_si256(s)), _mm256_set1_ps(min), y[1]);
        }
        acc = _mm256_fmadd_ps(_mm256_add_ps(y[0], y[1]), _mm256_set1_ps(load_f(x + K_D)), acc);
    }
    return sum_8(acc);
}

#include "kernels/gemv_rows.h"
