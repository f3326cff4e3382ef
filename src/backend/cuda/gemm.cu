/* Products of any shape on plain FMA units: odd sizes that the library declines, and experts. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/device.cuh"

/* One warp per (token, row). */
__global__ void gemm_any_kernel(void *__restrict__ y, int64_t ldy, bool y_f32, bool add, const uint16_t *__restrict__ w,
                                const uint16_t *__restrict__ x, int n, int rows, int k)
{
    const int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= (int64_t)n * rows) return;
    const int t = (int)(i / rows), r = (int)(i % rows);
    float sum = 0;
    for (int j = threadIdx.x % 32; j < k; j += 32) sum += bf16_bits(w[(int64_t)r * k + j]) * bf16_bits(x[(int64_t)t * k + j]);
    sum = warp_sum(sum);
    if (threadIdx.x % 32) return;
    if (y_f32) {
        float *o = (float *)y + t * ldy + r;
        *o = add ? *o + sum : sum;
    } else {
        ((uint16_t *)y)[t * ldy + r] = to_bf16(sum);
    }
}

struct slot { int32_t expert; float weight; };

__global__ void gemm_experts_kernel(uint16_t *__restrict__ y, const uint16_t *__restrict__ w, const uint16_t *__restrict__ x,
                                    const slot *__restrict__ route, int k_used, bool per_slot, int rows, int k)
{
    const int s = blockIdx.y, r = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (r >= rows) return;
    const uint16_t *wr = w + ((int64_t)route[s].expert * rows + r) * k, *xs = x + (int64_t)(per_slot ? s : s / k_used) * k;
    float sum = 0;
    for (int j = threadIdx.x % 32; j < k; j += 32) sum += bf16_bits(wr[j]) * bf16_bits(xs[j]);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) y[(int64_t)s * rows + r] = to_bf16(sum);
}

extern "C" cudaError_t ds_cu_gemm_any(void *y, int64_t ldy, bool y_f32, bool add, const uint16_t *w, const uint16_t *x, int n,
                                      int rows, int k, cudaStream_t s)
{
    gemm_any_kernel<<<(unsigned)(((int64_t)n * rows + 7) / 8), 256, 0, s>>>(y, ldy, y_f32, add, w, x, n, rows, k);
    return cudaGetLastError();
}

extern "C" cudaError_t ds_cu_gemm_experts(uint16_t *y, const uint16_t *w, const uint16_t *x, const void *route, int slots,
                                          int k_used, bool per_slot, int rows, int k, cudaStream_t s)
{
    for (int s0 = 0; s0 < slots; s0 += 65535) {           /* the grid's second dimension ends there */
        const int m = slots - s0 < 65535 ? slots - s0 : 65535;
        const uint16_t *xs = per_slot ? x + (int64_t)s0 * k : x;
        if (!per_slot && s0) return cudaErrorInvalidConfiguration;
        gemm_experts_kernel<<<dim3((unsigned)(rows + 7) / 8, (unsigned)m), 256, 0, s>>>(
            y + (int64_t)s0 * rows, w, xs, (const slot *)route + s0, k_used, per_slot, rows, k);
    }
    return cudaGetLastError();
}
