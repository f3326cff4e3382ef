/* The machine's f32 rate: independent chains of fused multiply-adds in registers. Included after a vec_*.h. */
#ifndef DS_KERNELS_SIMD_PEAK_H
#define DS_KERNELS_SIMD_PEAK_H

static double fma_peak(float *sink, int rounds)
{
    enum { CHAINS = 12 };
    vf x[CHAINS], a = v_set1(0.999f), b = v_set1(*sink);
    for (int i = 0; i < CHAINS; i++) x[i] = v_set1((float)i);
    for (int r = 0; r < rounds; r++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) x[i] = v_fma(x[i], a, b);
    for (int i = 1; i < CHAINS; i++) x[0] = v_add(x[0], x[i]);
    *sink = v_sum(x[0]) * 1e-6f;
    return 2.0 * CHAINS * VL * rounds;
}

#endif
