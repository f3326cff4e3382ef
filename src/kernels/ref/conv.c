#include "kernels/kernels_variants.h"

void ds_conv_silu_ref(float *f, size_t ldf, const float *u, size_t ldu, const float *hist, size_t ldh, const float *w, int K,
                      int n, int c0, int c1)
{
    for (int t = 0; t < n; t++) {
        for (int c = c0; c < c1; c++) {
            float s = 0;
            for (int j = 0; j < K; j++) {
                int row = t - (K - 1) + j;
                float in = row >= 0 ? u[(size_t)row * ldu + (size_t)c] : hist[(size_t)(row + K - 1) * ldh + (size_t)c];
                s += w[(size_t)c * (size_t)K + (size_t)j] * in;
            }
            f[(size_t)t * ldf + (size_t)(c - c0)] = ds_silu(s);
        }
    }
}
