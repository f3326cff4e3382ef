/* Feature mask -> table of weight products. */
#include "kernels/gemm.h"

#include "base/cpu.h"
#include "kernels/gemm_variants.h"

void ds_gemm_kernels_exact(struct ds_gemm_kernels *g)
{
    *g = (struct ds_gemm_kernels){ .isa = 0 };
    ds_gemm_exact(g);
}

void ds_gemm_kernels_init(struct ds_gemm_kernels *g, unsigned isa)
{
    *g = (struct ds_gemm_kernels){ .isa = isa };
    ds_gemm_ref(g);
#if defined(__x86_64__) || defined(__i386__)
    if (isa & DS_CPU_AVX2) ds_gemm_avx2(g);
    if (isa & DS_CPU_AVX512) ds_gemm_avx512(g);
    if (isa & DS_CPU_AVXVNNI) ds_gemm_avxvnni(g);
    if (isa & DS_CPU_AVX512VNNI) ds_gemm_avx512vnni(g);
#elif defined(__aarch64__)
    if (isa & DS_CPU_NEON) ds_gemm_neon(g);
    if (isa & DS_CPU_DOTPROD) ds_gemm_dotprod(g);
    if (isa & DS_CPU_I8MM) ds_gemm_i8mm(g);
#endif
}
