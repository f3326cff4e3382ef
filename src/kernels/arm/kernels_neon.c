#include "vec_neon.h"

#include "kernels/simd_kernels.h"

void ds_kernels_neon(struct ds_kernels *k) { simd_kernels(k); }
