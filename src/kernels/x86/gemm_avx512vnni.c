/* Integer products with AVX-512 VNNI: panels of 32 rows, tiles of 6 tokens. */
#define VECTOR_BITS 512
enum { ROWS = 32, TOKS = 6, LANES = 16, FLIP = 1 };
#include "kernels/gemm_tile.h"

#include "kernels/x86/gemm_vec.h"
#define V_DPBUSD(s, u, i) _mm512_dpbusd_epi32(s, u, i)
#define V_DPWSSD(s, a, b) _mm512_dpwssd_epi32(s, a, b)
#include "kernels/x86/gemm_transpose_avx512.h"
#include "kernels/x86/gemm_fma.h"
#include "kernels/x86/gemm_vnni.h"

/* vpdpbusd wants unsigned weights: the top bit is flipped and -128 * sum of x added. */
INLINE __m256i dot_32(__m256i w, const char *x, const char *start, bool nonneg)
{
    __m256i s = nonneg ? _mm256_setzero_si256() : _mm256_zextsi128_si256(_mm_cvtsi32_si128(load_i(start)));
    return _mm256_dpbusd_epi32(s, nonneg ? w : _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80)), _mm256_loadu_si256((const __m256i *)(const void *)x));
}
INLINE __m256i dot_2x16(__m256i w, const char *x, const char *start)
{
    __m256i s = _mm256_zextsi128_si256(_mm_loadl_epi64((const __m128i *)(const void *)start));
    s = _mm256_permutevar8x32_epi32(s, _mm256_setr_epi32(0, 7, 7, 7, 1, 7, 7, 7));
    return _mm256_dpbusd_epi32(s, _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80)), _mm256_loadu_si256((const __m256i *)(const void *)x));
}
#include "kernels/x86/gemv_256.h"

static const char *name(const struct ds_gemm_kernels *g, const struct ds_type *t, int n, bool decode)
{
    static const char *const names[DS_T_COUNT] = DS_KERNEL_NAMES("avx512vnni 32x6");
    (void)g, (void)n, (void)decode;
    return names[ds_type_id(t)];
}

void ds_gemm_avx512vnni(struct ds_gemm_kernels *g)
{
    g->row_step = ROWS;
    g->tok_step = TOKS;
    g->act_fmt = act_fmt;
    g->act_bytes = act_bytes;
    g->act_pack = act_pack;
    g->scratch_bytes = scratch_bytes;
    g->gemm = gemm;
    g->gemv = gemv;
    g->name = name;
}
