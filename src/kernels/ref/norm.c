#include "kernels/kernels_variants.h"

#include <math.h>

/* Sums of squares run in double: hidden sizes reach 5120, and one wild channel must not drown the rest. */
static double sum_squares(const float *x, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++) s += (double)x[i] * x[i];
    return s;
}

static float rms_factor(const float *x, int n, float eps)
{
    return (float)(1.0 / sqrt(sum_squares(x, n) / n + eps));
}

void ds_rms_norm_ref(float *y, const float *x, const float *gain, int n, float eps)
{
    float r = rms_factor(x, n, eps);
    for (int i = 0; i < n; i++) y[i] = x[i] * r * gain[i];
}

void ds_gated_norm_ref(float *y, const float *x, const float *z, const float *gain, int n, float eps)
{
    float r = rms_factor(x, n, eps);
    for (int i = 0; i < n; i++) y[i] = x[i] * r * gain[i] * ds_silu(z[i]);
}

void ds_l2_norm_ref(float *x, int n, float eps, float scale)
{
    double norm = sqrt(sum_squares(x, n));
    float r = (float)(scale / (norm > eps ? norm : (double)eps));
    for (int i = 0; i < n; i++) x[i] *= r;
}
