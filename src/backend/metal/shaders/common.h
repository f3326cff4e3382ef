/* What every shader includes. Metal Shading Language 3.1 and C++14: nothing that only one of the two has.
 *
 * Arguments and buffers of each kernel: args.h. Arithmetic is float; half is a format to keep values in. exp, log and the roots
 * are the precise ones, and no code path depends on infinities or NaN, so that the mathematics does not depend on the mode
 * that the file is compiled in. */
#ifndef DS_METAL_COMMON_H
#define DS_METAL_COMMON_H

#include <metal_stdlib>
#include <metal_simdgroup_matrix>

#include "backend/metal/args.h"

using namespace metal;

/* Before each loop that indexes an array which is to stay in registers: an index that the compiler does not know puts the array
 * into memory. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL
#endif

/* Below every finite float that is meant: stands for minus infinity, which fast mode may not assume to exist. */
constant float NEVER = -3e38f;

/* 1 / (1 + exp(-x)). The exponential is of a negative number: nothing overflows, and tiny results keep their digits. */
static inline float sigmoid(float x)
{
    const float e = precise::exp(-fabs(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

static inline float silu(float x) { return x * sigmoid(x); }

/* log(1 + exp(x)) = max(x, 0) + log(1 + e), e = exp(-|x|). Metal has no log1p. With u = 1 + e rounded, log(u) e / (u - 1) is
 * exact to a few ulp: the error that rounding made in u is the same in log(u) and in u - 1 (Goldberg). u = 1: e itself. */
static inline float softplus(float x)
{
    const float e = precise::exp(-fabs(x)), u = 1.0f + e;
    const float l = u == 1.0f ? e : precise::log(u) * (e / (u - 1.0f));
    return max(x, 0.0f) + l;
}

/* Metal converts no vector by itself, and C++ has no name for it that both compilers know: element by element. */
static inline float4 widen(half4 h)
{
    float4 f;
    f.x = float(h.x);
    f.y = float(h.y);
    f.z = float(h.z);
    f.w = float(h.w);
    return f;
}

/* Sum over a threadgroup. Each simdgroup adds its own lanes, then every thread adds the simdgroups' sums in one order, so that
 * all have the same bits. The second barrier lets the caller use `scratch` again. */
static inline float group_sum(float v, threadgroup float *scratch, uint lane, uint sg, uint n_sg)
{
    v = simd_sum(v);
    if (lane == 0) scratch[sg] = v;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float s = 0.0f;
    for (uint i = 0; i < n_sg; i++) s += scratch[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return s;
}

#endif
