/* Small device helpers shared by the kernels. */
#ifndef DS_BACKEND_CUDA_DEVICE_CUH
#define DS_BACKEND_CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "backend/cuda/kernels.h"

typedef __nv_bfloat16 bf16;

static __device__ __forceinline__ float bf16_bits(uint16_t v) { return __uint_as_float((uint32_t)v << 16); }
static __device__ __forceinline__ uint16_t to_bf16(float v) { return __bfloat16_as_ushort(__float2bfloat16_rn(v)); }
static __device__ __forceinline__ uint32_t pack_bf16(float lo, float hi)
{
    return (uint32_t)to_bf16(lo) | (uint32_t)to_bf16(hi) << 16;
}
/* Saturating, so that a large value never becomes an infinity. */
static __device__ __forceinline__ float f16_range(float v) { return fminf(fmaxf(v, -65504.f), 65504.f); }
static __device__ __forceinline__ uint32_t pack_f16(float lo, float hi)
{
    uint32_t r;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
static __device__ __forceinline__ uint32_t bf16_to_f16(uint32_t two)
{
    return pack_f16(__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u));
}
/* Time stamps of a kernel: when its inputs were there, after prior_done(), and when its last block was done. */
static __device__ __forceinline__ unsigned long long now_ns()
{
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}
static __device__ __forceinline__ void stamp_start(const ds_cu_stamp &t)
{
    if (t.start && threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0) *t.start = now_ns();
}
/* Blocks start in order: the last to end is among the last few waves, and only those write. */
static __device__ __forceinline__ void stamp_end(const ds_cu_stamp &t)
{
    const unsigned WAVES = 4096, all = gridDim.x * gridDim.y, mine = blockIdx.y * gridDim.x + blockIdx.x;
    if (!t.end || mine + WAVES < all) return;
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(t.end, now_ns());
}

static __device__ __forceinline__ float sigmoidf(float x) { return 1.f / (1.f + expf(-x)); }
static __device__ __forceinline__ float siluf(float x) { return x * sigmoidf(x); }

/* Hardware exponential and reciprocal, a few units in the last place of f32: for values that are rounded to 16 bits next.
 * e^88 and more is an infinity, whose reciprocal is 0. */
static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static __device__ __forceinline__ float exp_fast(float x) { return exp2_fast(x * 1.4426950408889634f); }
static __device__ __forceinline__ float sigmoid_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.f + exp_fast(-x)));
    return y;
}
static __device__ __forceinline__ float rsqrt_fast(float x)
{
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static __device__ __forceinline__ float silu_fast(float x) { return x * sigmoid_fast(x); }

static __device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
static __device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
    for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
    return v;
}
/* Sum over the block; every thread gets it. red: one float per warp, shared. */
static __device__ __forceinline__ float block_sum(float v, float *red)
{
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) red[threadIdx.x / 32] = v;
    __syncthreads();
    float s = threadIdx.x % 32 < (blockDim.x + 31) / 32 ? red[threadIdx.x % 32] : 0.f;
    return warp_sum(s);
}

#endif
