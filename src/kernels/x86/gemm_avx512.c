/* Weight products with AVX-512 (F, BW, DQ, VL) where VNNI is missing. */
#define VECTOR_BITS 512
#define ROWS 32
#define TOKS 6
#define HAS_WIDE 1
#include "kernels/gemm_tile.h"
#include "kernels/x86/gemm_vec.h"
#include "kernels/gemm_float.h"
#include "kernels/x86/gemm_shuffle_512.h"
#include "kernels/x86/gemm_pack_256.h"
#include "kernels/x86/gemm_fma.h"
#include "kernels/x86/gemm_madd.h"
#include "kernels/x86/gemv_256.h"

static const char *name(const struct ds_gemm_kernels *g, const struct ds_type *t, int n, bool decode)
{
    static const char *const names[DS_T_COUNT] = DS_KERNEL_NAMES("avx512 32x6");
    (void)g, (void)n, (void)decode;
    return names[ds_type_id(t)];
}

void ds_gemm_avx512(struct ds_gemm_kernels *g)
{
    fill_table(g);
    g->gemv = gemv;
    g->name = name;
}
