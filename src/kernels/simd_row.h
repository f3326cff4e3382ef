/* Kernels that walk one row: norms, activations, conv, RoPE, conversions. Included after a vec_*.h and
 * simd_math.h; contracts in kernels.h. */
#ifndef DS_KERNELS_SIMD_ROW_H
#define DS_KERNELS_SIMD_ROW_H

#include "kernels/kernels_variants.h"

#include <math.h>

/* Four accumulators: two FMA pipes of latency four would idle on fewer than eight, but these rows come
 * from L2 or beyond. */
static float sum_squares(const float *x, int n)
{
    vf s[4] = { v_zero(), v_zero(), v_zero(), v_zero() };
    int i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        for (int j = 0; j < 4; j++) {
            vf a = v_load(x + i + j * VL);
            s[j] = v_fma(a, a, s[j]);
        }
    }
    for (; i < n; i += VL) {
        vf a = i + VL <= n ? v_load(x + i) : v_load_n(x + i, n - i);
        s[0] = v_fma(a, a, s[0]);
    }
    return v_sum(v_add(v_add(s[0], s[1]), v_add(s[2], s[3])));
}

static void rms_norm(float *y, const float *x, const float *gain, int n, float eps)
{
    vf r = v_set1(1.0f / sqrtf(sum_squares(x, n) / (float)n + eps));
    int i = 0;
    for (; i + VL <= n; i += VL) v_store(y + i, v_mul(v_mul(v_load(x + i), r), v_load(gain + i)));
    if (i < n) v_store_n(y + i, v_mul(v_mul(v_load_n(x + i, n - i), r), v_load_n(gain + i, n - i)), n - i);
}

static void gated_norm(float *y, const float *x, const float *z, const float *gain, int n, float eps)
{
    vf r = v_set1(1.0f / sqrtf(sum_squares(x, n) / (float)n + eps));
    int i = 0;
    for (; i + VL <= n; i += VL) v_store(y + i, v_mul(v_mul(v_mul(v_load(x + i), r), v_load(gain + i)), v_silu(v_load(z + i))));
    if (i < n) {
        vf u = v_mul(v_mul(v_load_n(x + i, n - i), r), v_load_n(gain + i, n - i));
        v_store_n(y + i, v_mul(u, v_silu(v_load_n(z + i, n - i))), n - i);
    }
}

static void l2_norm(float *x, int n, float eps, float scale)
{
    float norm = sqrtf(sum_squares(x, n));
    vf r = v_set1(scale / (norm > eps ? norm : eps));
    int i = 0;
    for (; i + VL <= n; i += VL) v_store(x + i, v_mul(v_load(x + i), r));
    if (i < n) v_store_n(x + i, v_mul(v_load_n(x + i, n - i), r), n - i);
}

static void swiglu(float *act, const float *gate, const float *up, int n)
{
    int i = 0;
    for (; i + VL <= n; i += VL) v_store(act + i, v_mul(v_silu(v_load(gate + i)), v_load(up + i)));
    if (i < n) v_store_n(act + i, v_mul(v_silu(v_load_n(gate + i, n - i)), v_load_n(up + i, n - i)), n - i);
}

static void gate_mul(float *y, const float *gate, int n)
{
    int i = 0;
    for (; i + VL <= n; i += VL) v_store(y + i, v_mul(v_load(y + i), v_sigmoid(v_load(gate + i))));
    if (i < n) v_store_n(y + i, v_mul(v_load_n(y + i, n - i), v_sigmoid(v_load_n(gate + i, n - i))), n - i);
}

static void axpy(float *y, float a, const float *x, int n)
{
    vf s = v_set1(a);
    int i = 0;
    for (; i + VL <= n; i += VL) v_store(y + i, v_fma(s, v_load(x + i), v_load(y + i)));
    if (i < n) v_store_n(y + i, v_fma(s, v_load_n(x + i, n - i), v_load_n(y + i, n - i)), n - i);
}

static void gdn_gates(float *g, float *beta, const float *a, const float *b, const float *A, const float *dt, int n)
{
    int i = 0;
    for (; i + VL <= n; i += VL) {
        v_store(beta + i, v_sigmoid(v_load(b + i)));
        v_store(g + i, v_mul(v_load(A + i), v_softplus(v_add(v_load(a + i), v_load(dt + i)))));
    }
    if (i < n) {
        v_store_n(beta + i, v_sigmoid(v_load_n(b + i, n - i)), n - i);
        v_store_n(g + i, v_mul(v_load_n(A + i, n - i), v_softplus(v_add(v_load_n(a + i, n - i), v_load_n(dt + i, n - i)))),
                  n - i);
    }
}

/* One strip of m <= VL channels through all tokens; the window of four inputs stays in registers. Rows of u lie pages apart, where no
 * hardware prefetcher sees the next strip coming, so this one asks for it. */
static void conv4_strip(float *f, size_t ldf, const float *u, size_t ldu, const float *hist, size_t ldh, const float *w, int n,
                        int m)
{
    float taps[4 * VL] = { 0 };
    vf t[4], x0, x1, x2;
    if (m == VL) {
        v_load4(w, t);
        x0 = v_load(hist), x1 = v_load(hist + ldh), x2 = v_load(hist + 2 * ldh);
    } else {
        for (int i = 0; i < 4 * m; i++) taps[i] = w[i];
        v_load4(taps, t);
        x0 = v_load_n(hist, m), x1 = v_load_n(hist + ldh, m), x2 = v_load_n(hist + 2 * ldh, m);
    }
    for (int i = 0; i < n; i++, f += ldf, u += ldu) {
        vf x3 = m == VL ? v_load(u) : v_load_n(u, m);
        vf s = v_silu(v_fma(t[3], x3, v_fma(t[2], x2, v_fma(t[1], x1, v_mul(t[0], x0)))));
        if (m == VL) v_store(f, s);
        else v_store_n(f, s, m);
        __builtin_prefetch(u + VL);
        __builtin_prefetch(f + VL, 1);
        x0 = x1, x1 = x2, x2 = x3;
    }
}

/* The family's kernel size is 4; another goes by the reference. */
static void conv_silu(float *f, size_t ldf, const float *u, size_t ldu, const float *hist, size_t ldh, const float *w, int K,
                      int n, int c0, int c1)
{
    if (K != 4) {
        ds_conv_silu_ref(f, ldf, u, ldu, hist, ldh, w, K, n, c0, c1);
        return;
    }
    for (int c = c0; c < c1; c += VL)
        conv4_strip(f + (c - c0), ldf, u + c, ldu, hist + c, ldh, w + (size_t)c * 4, n, c1 - c < VL ? c1 - c : VL);
}

static void rope(float *x, const float *cosines, const float *sines, int n_rot)
{
    int half = n_rot / 2;
    float *y = x + half;
    for (int j = 0; j < half; j += VL) {
        int m = half - j < VL ? half - j : VL;
        vf a = m == VL ? v_load(x + j) : v_load_n(x + j, m), b = m == VL ? v_load(y + j) : v_load_n(y + j, m);
        vf c = m == VL ? v_load(cosines + j) : v_load_n(cosines + j, m), s = m == VL ? v_load(sines + j) : v_load_n(sines + j, m);
        vf p = v_fnma(b, s, v_mul(a, c)), q = v_fma(a, s, v_mul(b, c));
        if (m == VL) {
            v_store(x + j, p);
            v_store(y + j, q);
        } else {
            v_store_n(x + j, p, m);
            v_store_n(y + j, q, m);
        }
    }
}

static void f32_to_f16(uint16_t *dst, const float *src, size_t n)
{
    size_t i = 0;
    for (; i + VL <= n; i += VL) v_store_f16(dst + i, v_load(src + i));
    ds_f32_to_f16_ref(dst + i, src + i, n - i);
}

static void f16_to_f32(float *dst, const uint16_t *src, size_t n)
{
    size_t i = 0;
    for (; i + VL <= n; i += VL) v_store(dst + i, v_load_f16(src + i));
    ds_f16_to_f32_ref(dst + i, src + i, n - i);
}

#endif
