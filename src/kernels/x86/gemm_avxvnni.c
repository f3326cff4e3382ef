/* Weight products with AVX-VNNI, the 256-bit form. */
#define VECTOR_BITS 256
#define ROWS 16
#define TOKS 6
#define HAS_WIDE 0
#include "kernels/gemm_tile.h"
#include "kernels/x86/gemm_vec.h"
#include "kernels/gemm_float.h"
#include "kernels/x86/gemm_pack_256.h"
#include "kernels/x86/gemm_shuffle_256.h"
#include "kernels/x86/gemm_fma.h"
#if defined(__clang__)
#define DPBUSD_256(s, u, i) _mm256_dpbusd_avx_epi32(s, u, i)
#define V_DPWSSD(s, a, b) _mm256_dpwssd_avx_epi32(s, a, b)
#else
#define DPBUSD_256(s, u, i) _mm256_dpbusd_epi32(s, u, i)
#define V_DPWSSD(s, a, b) _mm256_dpwssd_epi32(s, a, b)
#endif
#define V_DPBUSD(s, u, i) DPBUSD_256(s, u, i)
#include "kernels/x86/gemm_vnni.h"
#include "kernels/x86/gemv_256.h"

static const char *name(const struct ds_gemm_kernels *g, const struct ds_type *t, int n, bool decode)
{
    static const char *const names[DS_T_COUNT] = DS_KERNEL_NAMES("avxvnni 16x6");
    (void)g, (void)n, (void)decode;
    return names[ds_type_id(t)];
}

void ds_gemm_avxvnni(struct ds_gemm_kernels *g)
{
    fill_table(g);
    g->gemv = gemv;
    g->name = name;
}
