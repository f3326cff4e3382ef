/* 8-bit operands of weight products: e4m3 with one f32 scale a row (largest |value| / 448). The producers of activations
 * write them instead of bf16, with the row in registers, so that no pass over memory is added. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"

#include <cuda_fp8.h>

enum { THREADS = 256, WARPS = THREADS / 32, WIDE_THREADS = 512 };
static __device__ const float E4M3_MAX = 448.f;

/* Largest value over the block; every thread gets it. red: one float per warp, shared. */
static __device__ __forceinline__ float block_max(float v, float *red)
{
    v = warp_max(v);
    if (threadIdx.x % 32 == 0) red[threadIdx.x / 32] = v;
    __syncthreads();
    return warp_max(threadIdx.x % 32 < blockDim.x / 32 ? red[threadIdx.x % 32] : 0.f);
}

/* The factor that takes a row to e4m3; the row's scale is stored. A row of zeros stays zeros. */
static __device__ __forceinline__ float row_factor(float largest, float *scale)
{
    if (threadIdx.x == 0) *scale = largest > 0.f ? largest / E4M3_MAX : 1.f;
    return largest > 0.f ? E4M3_MAX / largest : 0.f;
}

static __device__ __forceinline__ uint32_t pack_e4m3(float a, float b, float c, float d)
{
    const uint32_t lo = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, __NV_E4M3),
                   hi = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, __NV_E4M3);
    return lo | hi << 16;
}

static __device__ __forceinline__ float max4(float m, float4 v)
{
    return fmaxf(fmaxf(m, fmaxf(fabsf(v.x), fabsf(v.y))), fmaxf(fabsf(v.z), fabsf(v.w)));
}

/* --- rows of bf16: weights, and activations that came in bf16 --- */

static __device__ __forceinline__ float2 two(uint32_t w)
{
    return make_float2(__uint_as_float(w << 16), __uint_as_float(w & 0xffff0000u));
}

/* Two passes, the second out of the cache: rows of any length that is a multiple of 8. */
__global__ void __launch_bounds__(THREADS) rows_kernel(uint8_t *__restrict__ dst, float *__restrict__ scale,
                                                       const uint16_t *__restrict__ src, int k)
{
    next_may_start();
    prior_done();
    __shared__ float red[32];
    const uint4 *row = reinterpret_cast<const uint4 *>(src + (int64_t)blockIdx.x * k);
    uint2 *out = reinterpret_cast<uint2 *>(dst + (int64_t)blockIdx.x * k);
    float largest = 0;
    for (int i = threadIdx.x; i < k / 8; i += THREADS) {
        const uint4 v = row[i];
        const float2 a = two(v.x), b = two(v.y), c = two(v.z), d = two(v.w);
        largest = max4(max4(largest, make_float4(a.x, a.y, b.x, b.y)), make_float4(c.x, c.y, d.x, d.y));
    }
    const float f = row_factor(block_max(largest, red), scale + blockIdx.x);
    for (int i = threadIdx.x; i < k / 8; i += THREADS) {
        const uint4 v = row[i];
        const float2 a = two(v.x), b = two(v.y), c = two(v.z), d = two(v.w);
        out[i] = make_uint2(pack_e4m3(a.x * f, a.y * f, b.x * f, b.y * f), pack_e4m3(c.x * f, c.y * f, d.x * f, d.y * f));
    }
}

/* --- producers --- */

template <int V> /* float4 of a thread's share kept in registers */
__global__ void __launch_bounds__(THREADS) rms_kernel(uint8_t *__restrict__ h, float *__restrict__ scale, const float *__restrict__ x,
                                                      const float *__restrict__ gain, int dim, float eps,
                                                      struct ds_cu_stamp stamp)
{
    next_may_start();
    prior_done();
    stamp_start(stamp);
    __shared__ float sums[32], tops[32];
    const float4 *xr = reinterpret_cast<const float4 *>(x + (int64_t)blockIdx.x * dim);
    float4 v[V];
    float sum = 0, largest = 0;
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int j = i * THREADS + threadIdx.x;
        v[i] = j * 4 < dim ? xr[j] : make_float4(0, 0, 0, 0);
        sum += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
    }
    const float r = rsqrtf(block_sum(sum, sums) / (float)dim + eps);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int j = i * THREADS + threadIdx.x;
        if (j * 4 >= dim) break;
        const float4 g = reinterpret_cast<const float4 *>(gain)[j];
        v[i] = make_float4(v[i].x * r * g.x, v[i].y * r * g.y, v[i].z * r * g.z, v[i].w * r * g.w);
        largest = max4(largest, v[i]);
    }
    const float f = row_factor(block_max(largest, tops), scale + blockIdx.x);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int j = i * THREADS + threadIdx.x;
        if (j * 4 >= dim) break;
        reinterpret_cast<uint32_t *>(h + (int64_t)blockIdx.x * dim)[j] = pack_e4m3(v[i].x * f, v[i].y * f, v[i].z * f, v[i].w * f);
    }
    stamp_end(stamp);
}

template <int V> /* pieces of eight values of a thread's share */
__global__ void __launch_bounds__(WIDE_THREADS)
    swiglu_kernel(uint8_t *__restrict__ act, float *__restrict__ scale, const uint16_t *__restrict__ gate, int64_t ldg,
                  const uint16_t *__restrict__ up, int64_t ldu, int dim, struct ds_cu_stamp stamp)
{
    next_may_start();
    prior_done();
    stamp_start(stamp);
    __shared__ float red[32];
    const int64_t row = blockIdx.x;
    float v[V][8], largest = 0;
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int j = (i * WIDE_THREADS + threadIdx.x) * 8;
        uint4 g4 = make_uint4(0, 0, 0, 0), u4 = g4;
        if (j < dim) {
            g4 = *reinterpret_cast<const uint4 *>(gate + row * ldg + j);
            u4 = *reinterpret_cast<const uint4 *>(up + row * ldu + j);
        }
        const uint32_t g[4] = { g4.x, g4.y, g4.z, g4.w }, u[4] = { u4.x, u4.y, u4.z, u4.w };
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const float2 a = two(g[w]), b = two(u[w]);
            v[i][2 * w] = silu_fast(a.x) * b.x;
            v[i][2 * w + 1] = silu_fast(a.y) * b.y;
            largest = fmaxf(largest, fmaxf(fabsf(v[i][2 * w]), fabsf(v[i][2 * w + 1])));
        }
    }
    const float f = row_factor(block_max(largest, red), scale + row);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int j = (i * WIDE_THREADS + threadIdx.x) * 8;
        if (j >= dim) break;
        *reinterpret_cast<uint2 *>(act + row * dim + j) =
            make_uint2(pack_e4m3(v[i][0] * f, v[i][1] * f, v[i][2] * f, v[i][3] * f),
                       pack_e4m3(v[i][4] * f, v[i][5] * f, v[i][6] * f, v[i][7] * f));
    }
    stamp_end(stamp);
}

/* A block per token: warp w normalises heads w, w + WARPS, ... of 128, four values a lane. */
template <int V>
__global__ void __launch_bounds__(THREADS) gated_norm_kernel(uint8_t *__restrict__ y, float *__restrict__ scale,
                                                             const float *__restrict__ o, const uint16_t *__restrict__ z,
                                                             int64_t ldz, const float *__restrict__ gain, int n_vh, float eps,
                                                             struct ds_cu_stamp stamp)
{
    next_may_start();
    prior_done();
    stamp_start(stamp);
    __shared__ float red[32];
    const int64_t t = blockIdx.x;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float4 g = reinterpret_cast<const float4 *>(gain)[lane];
    float4 v[V];
    uint2 zw[V];
    float largest = 0;
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int h = i * WARPS + warp;
        v[i] = make_float4(0, 0, 0, 0);
        zw[i] = make_uint2(0, 0);
        if (h >= n_vh) continue;
        v[i] = reinterpret_cast<const float4 *>(o + (t * n_vh + h) * 128)[lane];
        zw[i] = *reinterpret_cast<const uint2 *>(z + t * ldz + h * 128 + lane * 4);
    }
#pragma unroll
    for (int i = 0; i < V; i++) {
        const float r = rsqrtf(warp_sum(v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w) / 128.f + eps);
        const float2 a = two(zw[i].x), b = two(zw[i].y);
        v[i] = make_float4(v[i].x * r * g.x * silu_fast(a.x), v[i].y * r * g.y * silu_fast(a.y), v[i].z * r * g.z * silu_fast(b.x),
                           v[i].w * r * g.w * silu_fast(b.y));
        largest = max4(largest, v[i]);
    }
    const float f = row_factor(block_max(largest, red), scale + t);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int h = i * WARPS + warp;
        if (h >= n_vh) break;
        reinterpret_cast<uint32_t *>(y + (t * n_vh + h) * 128)[lane] = pack_e4m3(v[i].x * f, v[i].y * f, v[i].z * f, v[i].w * f);
    }
    stamp_end(stamp);
}

/* One warp per (token, row), for shapes that the library declines. */
__global__ void gemm_any_kernel(void *__restrict__ y, int64_t ldy, bool y_f32, bool add, const __nv_fp8_e4m3 *__restrict__ w,
                                const float *__restrict__ w_scale, const __nv_fp8_e4m3 *__restrict__ x, const float *__restrict__ x_scale,
                                int n, int rows, int k)
{
    const int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= (int64_t)n * rows) return;
    const int t = (int)(i / rows), r = (int)(i % rows);
    float sum = 0;
    for (int j = threadIdx.x % 32; j < k; j += 32) sum += (float)w[(int64_t)r * k + j] * (float)x[(int64_t)t * k + j];
    sum = warp_sum(sum) * w_scale[r] * x_scale[t];
    if (threadIdx.x % 32) return;
    if (y_f32) {
        float *o = (float *)y + t * ldy + r;
        *o = add ? *o + sum : sum;
    } else {
        ((uint16_t *)y)[t * ldy + r] = to_bf16(sum);
    }
}

extern "C" cudaError_t ds_cu_gemm_any_f8(void *y, int64_t ldy, bool y_f32, bool add, const void *w, const float *w_scale, const void *x,
                                         const float *x_scale, int n, int rows, int k, cudaStream_t s)
{
    gemm_any_kernel<<<(unsigned)(((int64_t)n * rows + 7) / 8), 256, 0, s>>>(y, ldy, y_f32, add, (const __nv_fp8_e4m3 *)w, w_scale,
                                                                            (const __nv_fp8_e4m3 *)x, x_scale, n, rows, k);
    return cudaGetLastError();
}

extern "C" cudaError_t ds_cu_f8_rows(uint8_t *dst, float *scale, const uint16_t *src, int64_t rows, int k, cudaStream_t s)
{
    if (k % 8) return cudaErrorInvalidValue;
    return launch(rows_kernel, dim3((unsigned)rows), THREADS, 0, s, dst, scale, src, k);
}

extern "C" bool ds_cu_rms_norm_f8_fits(int dim) { return dim % 16 == 0 && dim <= 4 * THREADS * 8; }
extern "C" cudaError_t ds_cu_rms_norm_f8(uint8_t *h, float *scale, const float *x, const float *gain, int n, int dim, float eps,
                                         struct ds_cu_stamp t, cudaStream_t s)
{
    const int v = (dim / 4 + THREADS - 1) / THREADS;
    const dim3 grid((unsigned)n);
    if (v <= 2) return launch(rms_kernel<2>, grid, THREADS, 0, s, h, scale, x, gain, dim, eps, t);
    if (v <= 5) return launch(rms_kernel<5>, grid, THREADS, 0, s, h, scale, x, gain, dim, eps, t);
    return launch(rms_kernel<8>, grid, THREADS, 0, s, h, scale, x, gain, dim, eps, t);
}

extern "C" bool ds_cu_swiglu_f8_fits(int dim) { return dim % 16 == 0 && dim <= 8 * WIDE_THREADS * 6; }
extern "C" cudaError_t ds_cu_swiglu_f8(uint8_t *act, float *scale, const uint16_t *gate, int64_t ldg, const uint16_t *up, int64_t ldu,
                                       int rows, int dim, struct ds_cu_stamp t, cudaStream_t s)
{
    const int v = (dim / 8 + WIDE_THREADS - 1) / WIDE_THREADS;
    const dim3 grid((unsigned)rows);
    if (v <= 2) return launch(swiglu_kernel<2>, grid, WIDE_THREADS, 0, s, act, scale, gate, ldg, up, ldu, dim, t);
    if (v <= 5) return launch(swiglu_kernel<5>, grid, WIDE_THREADS, 0, s, act, scale, gate, ldg, up, ldu, dim, t);
    return launch(swiglu_kernel<6>, grid, WIDE_THREADS, 0, s, act, scale, gate, ldg, up, ldu, dim, t);
}

extern "C" bool ds_cu_gated_norm_f8_fits(int n_vh, int dv) { return dv == 128 && n_vh <= 8 * WARPS; }
extern "C" cudaError_t ds_cu_gated_norm_f8(uint8_t *y, float *scale, const float *o, const uint16_t *z, int64_t ldz,
                                           const float *gain, int n, int n_vh, float eps, struct ds_cu_stamp t, cudaStream_t s)
{
    const int v = (n_vh + WARPS - 1) / WARPS;
    const dim3 grid((unsigned)n);
    if (v <= 4) return launch(gated_norm_kernel<4>, grid, THREADS, 0, s, y, scale, o, z, ldz, gain, n_vh, eps, t);
    if (v <= 6) return launch(gated_norm_kernel<6>, grid, THREADS, 0, s, y, scale, o, z, ldz, gain, n_vh, eps, t);
    return launch(gated_norm_kernel<8>, grid, THREADS, 0, s, y, scale, o, z, ldz, gain, n_vh, eps, t);
}
