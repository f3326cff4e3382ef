/* Weight products with AVX-512 VNNI. */
#define VECTOR_BITS 512
#define ROWS 32
#define TOKS 6
#define HAS_WIDE 0
#include "kernels/gemm_tile.h"
#include "kernels/x86/gemm_vec.h"
#include "kernels/gemm_float.h"
#include "kernels/x86/gemm_shuffle_512.h"
#include "kernels/x86/gemm_pack_256.h"
#include "kernels/x86/gemm_fma.h"
#define V_DPBUSD(s, u, i) _mm512_dpbusd_epi32(s, u, i)
#define V_DPWSSD(s, a, b) _mm512_dpwssd_epi32(s, a, b)
#include "kernels/x86/gemm_vnni.h"
#include "kernels/x86/gemv_512vnni.h"

static const char *name(const struct ds_gemm_kernels *g, const struct ds_type *t, int n, bool decode)
{
    static const char *const names[DS_T_COUNT] = DS_KERNEL_NAMES("avx512vnni 32x6");
    (void)g, (void)n, (void)decode;
    return names[ds_type_id(t)];
}

void ds_gemm_avx512vnni(struct ds_gemm_kernels *g)
{
    fill_table(g);
    g->gemv = gemv;
    g->name = name;
}
