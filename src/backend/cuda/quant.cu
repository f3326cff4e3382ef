/* Stored blocks to numbers: bf16 copies for the tensor cores, and embedding rows. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/quant.cuh"

template <int TYPE> __global__ void dequant_kernel(uint16_t *__restrict__ dst, const uint8_t *__restrict__ src, uint32_t block,
                                                   uint32_t block_bytes, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x * 2;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 2; i < n; i += step) {
        const int64_t j = i + 1 < n ? i + 1 : i;
        const float lo = element<TYPE>(src + i / block * block_bytes, (int)(i % block));
        const float hi = element<TYPE>(src + j / block * block_bytes, (int)(j % block));
        if (j > i) *reinterpret_cast<uint32_t *>(dst + i) = pack_bf16(lo, hi);
        else dst[i] = to_bf16(lo);
    }
}

template <int TYPE>
__global__ void embed_kernel(float *__restrict__ x, const uint8_t *__restrict__ table, uint32_t block, uint32_t block_bytes,
                             const int32_t *__restrict__ ids, int dim)
{
    const uint8_t *row = table + (int64_t)ids[blockIdx.x] * (dim / block) * block_bytes;
    for (int i = threadIdx.x; i < dim; i += blockDim.x)
        x[(int64_t)blockIdx.x * dim + i] = element<TYPE>(row + (int64_t)(i / block) * block_bytes, (int)(i % block));
}

extern "C" cudaError_t ds_cu_dequant(uint16_t *dst, const void *src, int type, uint32_t block, uint32_t block_bytes, int64_t n,
                                     cudaStream_t s)
{
    const int64_t want = (n / 2 + 255) / 256;
    const unsigned grid = (unsigned)(want < 1 ? 1 : want > 16384 ? 16384 : want);
    DS_CU_BY_TYPE(type, dequant_kernel, <<<grid, 256, 0, s>>>(dst, (const uint8_t *)src, block, block_bytes, n))
    return cudaGetLastError();
}

extern "C" cudaError_t ds_cu_embed(float *x, const void *table, int type, uint32_t block, uint32_t block_bytes,
                                   const int32_t *ids, int n, int dim, cudaStream_t s)
{
    DS_CU_BY_TYPE(type, embed_kernel, <<<n, 256, 0, s>>>(x, (const uint8_t *)table, block, block_bytes, ids, dim))
    return cudaGetLastError();
}
