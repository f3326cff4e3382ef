#include "vec_avx512.h"

#include "kernels/simd_kernels.h"

void ds_kernels_avx512(struct ds_kernels *k) { simd_kernels(k); }
