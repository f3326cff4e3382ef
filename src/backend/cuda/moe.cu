/* Expert choice and the weighted sum of expert outputs. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/device.cuh"

struct slot { int32_t expert; float weight; };

/* One warp per token. The lower index wins a tie. */
__global__ void route_kernel(slot *__restrict__ route, const uint16_t *__restrict__ logits, int64_t ld, int n, int n_expert,
                             int k)
{
    const int t = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (t >= n) return;
    float v[32];                                  /* up to 1024 experts */
    float top = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < 32; i++) {
        v[i] = i * 32 + lane < n_expert ? bf16_bits(logits[t * ld + i * 32 + lane]) : -INFINITY;
        top = fmaxf(top, v[i]);
    }
    top = warp_max(top);
    for (int j = 0; j < k; j++) {
        float best = -INFINITY;
        int at = 1 << 30;
#pragma unroll
        for (int i = 0; i < 32; i++)
            if (v[i] > best) best = v[i], at = i * 32 + lane;
        for (int o = 16; o; o >>= 1) {
            const float b2 = __shfl_xor_sync(~0u, best, o);
            const int a2 = __shfl_xor_sync(~0u, at, o);
            if (b2 > best || (b2 == best && a2 < at)) best = b2, at = a2;
        }
        if (at >= n_expert) at = j, best = top;   /* not a number: any choice, the logits' check will speak */
#pragma unroll
        for (int i = 0; i < 32; i++)
            if (i * 32 + lane == at) v[i] = -INFINITY;
        const float p = expf(best - top);
        sum += p;
        if (lane == 0) route[(int64_t)t * k + j] = { at, p };
    }
    __syncwarp();
    for (int j = lane; j < k; j += 32) route[(int64_t)t * k + j].weight /= sum;
}

__global__ void combine_kernel(float *__restrict__ x, const uint16_t *__restrict__ y, const slot *__restrict__ route,
                               const uint16_t *__restrict__ shared, int64_t ldsh, const uint16_t *__restrict__ sg, int64_t ldsg,
                               int k, int dim)
{
    const int64_t t = blockIdx.x;
    const float gate = sg ? sigmoidf(bf16_bits(sg[t * ldsg])) : 1.f;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) {
        float sum = x[t * dim + i];
        for (int j = 0; j < k; j++) sum += route[t * k + j].weight * bf16_bits(y[(t * k + j) * dim + i]);
        if (shared) sum += gate * bf16_bits(shared[t * ldsh + i]);
        x[t * dim + i] = sum;
    }
}

extern "C" cudaError_t ds_cu_moe_route(void *route, const uint16_t *logits, int64_t ld, int n, int n_expert, int k,
                                       cudaStream_t s)
{
    if (n_expert > 1024) return cudaErrorInvalidValue;
    route_kernel<<<(unsigned)(n + 3) / 4, 128, 0, s>>>((slot *)route, logits, ld, n, n_expert, k);
    return cudaGetLastError();
}

extern "C" cudaError_t ds_cu_moe_combine(float *x, const uint16_t *y, const void *route, const uint16_t *shared, int64_t ldsh,
                                         const uint16_t *sg, int64_t ldsg, int n, int k, int dim, cudaStream_t s)
{
    combine_kernel<<<(unsigned)n, 256, 0, s>>>(x, y, (const slot *)route, shared, ldsh, sg, ldsg, k, dim);
    return cudaGetLastError();
}
