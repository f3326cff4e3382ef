#include "vec_avx2.h"

#include "kernels/simd_kernels.h"

void ds_kernels_avx2(struct ds_kernels *k) { simd_kernels(k); }
