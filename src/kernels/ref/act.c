#include "kernels/kernels_variants.h"

#include <math.h>

/* 1 / (1 + exp(-x)). For x < 0 that is e / (1 + e) with e = exp(x): no overflow, and a tiny result keeps
 * its relative accuracy. */
float ds_sigmoid(float x)
{
    float e = expf(-fabsf(x));
    return (x < 0 ? e : 1.0f) / (1.0f + e);
}

float ds_silu(float x) { return x * ds_sigmoid(x); }

/* log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)). Above 20 the second term is below half an ulp, so the
 * "x above 20" of other implementations needs no branch. */
float ds_softplus(float x) { return (x > 0 ? x : 0.0f) + log1pf(expf(-fabsf(x))); }

void ds_swiglu_ref(float *act, const float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i++) act[i] = ds_silu(gate[i]) * up[i];
}

void ds_gate_mul_ref(float *y, const float *gate, int n)
{
    for (int i = 0; i < n; i++) y[i] *= ds_sigmoid(gate[i]);
}

void ds_axpy_ref(float *y, float a, const float *x, int n)
{
    for (int i = 0; i < n; i++) y[i] += a * x[i];
}

void ds_gdn_gates_ref(float *g, float *beta, const float *a, const float *b, const float *A, const float *dt, int n)
{
    for (int h = 0; h < n; h++) {
        beta[h] = ds_sigmoid(b[h]);
        g[h] = A[h] * ds_softplus(a[h] + dt[h]);
    }
}
