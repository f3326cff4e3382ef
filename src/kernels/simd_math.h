/* exp and what is made of it, VL lanes at a time. Included after a vec_*.h. */
#ifndef DS_KERNELS_SIMD_MATH_H
#define DS_KERNELS_SIMD_MATH_H

/* exp(x) for x <= 0 (nothing in this engine needs another): within 1.5 ulp, denormal results included;
 * exp(-inf) = 0, NaN stays NaN.
 *
 * x = n ln 2 + r, |r| <= ln 2 / 2, with ln 2 in two parts so that r is exact to f32. Then
 * exp(r) = 1 + r + r^2 p(r), p a Chebyshev fit of degree 4 (absolute error of exp 8e-9), scaled by 2^n. */
static inline vf v_exp(vf x)
{
    x = v_max(v_set1(-110.0f), x);      /* exp(-104) already rounds to 0 */
    vf n = v_round(v_mul(x, v_set1(0x1.715476p+0f)));
    vf r = v_fnma(n, v_set1(0x1.62e400p-1f), x);
    r = v_fnma(n, v_set1(0x1.7f7d1cp-20f), r);
    vf p = v_set1(0x1.6d10fcp-10f);
    p = v_fma(p, r, v_set1(0x1.120b62p-7f));
    p = v_fma(p, r, v_set1(0x1.555520p-5f));
    p = v_fma(p, r, v_set1(0x1.5554dep-3f));
    p = v_fma(p, r, v_set1(0.5f));
    p = v_fma(v_mul(r, r), p, r);
    return v_ldexp(v_add(p, v_set1(1.0f)), n);
}

/* 1 / (1 + exp(-x)), as e / (1 + e) with e = exp(x) below zero. */
static inline vf v_sigmoid(vf x)
{
    vf one = v_set1(1.0f), e = v_exp(v_sub(v_zero(), v_abs(x)));
    return v_div(v_if_neg(x, e, one), v_add(one, e));
}

static inline vf v_silu(vf x) { return v_mul(x, v_sigmoid(x)); }

/* log(1 + exp(x)) = max(x, 0) + log1p(e), e = exp(-|x|) in [0, 1]; log1p(e) = 2 atanh(s), s = e / (2 + e) <= 1/3,
 * by a Chebyshev fit in s^2 (relative error 5e-9). */
static inline vf v_softplus(vf x)
{
    vf e = v_exp(v_sub(v_zero(), v_abs(x)));
    vf s = v_div(e, v_add(v_set1(2.0f), e)), z = v_mul(s, s);
    vf p = v_set1(0.281577784f);
    p = v_fma(p, z, v_set1(0.279651577f));
    p = v_fma(p, z, v_set1(0.400245952f));
    p = v_fma(p, z, v_set1(0.666663216f));
    p = v_fma(p, z, v_set1(2.0f));
    return v_fma(s, p, v_max(v_zero(), x));
}

#endif
