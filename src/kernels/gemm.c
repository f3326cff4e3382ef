/* Feature mask -> table of weight products. */
#include "kernels/gemm.h"

#include "kernels/gemm_variants.h"

void ds_gemm_kernels_init(struct ds_gemm_kernels *g, unsigned isa)
{
    *g = (struct ds_gemm_kernels){ .isa = isa };
    ds_gemm_ref(g);
}
