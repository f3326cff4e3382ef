/* Decode: one token times matrices in bf16 or in their file's blocks, a warp for two rows. Q8_0 and Q4_K have a
 * kernel and an arrangement of their own: gemv_packed.cu. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/quant.cuh"

enum { ROWS = 2, WARPS = 8 };                    /* rows of a warp, warps of a block */

/* Which matrix the block's rows belong to, and the warp's first row in it. */
struct place { int m, r; };
static __device__ __forceinline__ place find(const struct ds_cu_gemv &c)
{
    int block = blockIdx.x, m = 0;
    while (m + 1 < c.n_m) {
        const int blocks = (c.m[m].rows + ROWS * WARPS - 1) / (ROWS * WARPS);
        if (block < blocks) break;
        block -= blocks;
        m++;
    }
    return { m, (block * WARPS + (int)threadIdx.x / 32) * ROWS };
}

static __device__ __forceinline__ void put(const struct ds_cu_gemv &c, const place &p, int i, float sum)
{
    sum = warp_sum(sum);
    const int r = p.r + i;
    if (threadIdx.x % 32 || r >= c.m[p.m].rows) return;
    if (c.m[p.m].y_f32) {
        float *o = (float *)c.m[p.m].y + r;
        *o = c.add ? *o + sum : sum;
    } else {
        ((uint16_t *)c.m[p.m].y)[r] = to_bf16(sum);
    }
}

/* Row i of the warp's rows; past the last row the last is read again and not stored. */
static __device__ __forceinline__ int64_t row_of(const struct ds_cu_gemv &c, const place &p, int i)
{
    const int last = c.m[p.m].rows - 1;
    return p.r + i < last ? p.r + i : last;
}

static __device__ __forceinline__ float lo(uint32_t w) { return __uint_as_float(w << 16); }
static __device__ __forceinline__ float hi(uint32_t w) { return __uint_as_float(w & 0xffff0000u); }
/* bf16 rows; k a multiple of 8. */
__global__ void __launch_bounds__(WARPS * 32) gemv_bf16_kernel(struct ds_cu_gemv c)
{
    const place p = find(c);
    next_may_start();
    prior_done();
    const uint4 *w[ROWS], *x = reinterpret_cast<const uint4 *>(c.in.x);
    float sum[ROWS] = {};
#pragma unroll
    for (int i = 0; i < ROWS; i++) w[i] = reinterpret_cast<const uint4 *>((const uint16_t *)c.m[p.m].w + row_of(c, p, i) * c.k);
#pragma unroll 4
    for (int at = threadIdx.x % 32; at < c.k / 8; at += 32) {
        const uint4 b = x[at];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const uint4 a = __ldcs(w[i] + at);
            sum[i] += lo(a.x) * lo(b.x) + hi(a.x) * hi(b.x) + lo(a.y) * lo(b.y) + hi(a.y) * hi(b.y) + lo(a.z) * lo(b.z) +
                      hi(a.z) * hi(b.z) + lo(a.w) * lo(b.w) + hi(a.w) * hi(b.w);
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) put(c, p, i, sum[i]);
}

template <int TYPE> __global__ void __launch_bounds__(WARPS * 32) gemv_kernel(struct ds_cu_gemv c)
{
    const place p = find(c);
    next_may_start();
    prior_done();
    const uint8_t *row[ROWS];
    float sum[ROWS] = {};
#pragma unroll
    for (int i = 0; i < ROWS; i++) row[i] = (const uint8_t *)c.m[p.m].w + row_of(c, p, i) * (c.k / c.block) * c.block_bytes;
#pragma unroll 4
    for (int at = threadIdx.x % 32; at < c.k; at += 32) {
        const float x = bf16_bits(((const uint16_t *)c.in.x)[at]);
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            sum[i] += element<TYPE>(row[i] + (int64_t)(at / c.block) * c.block_bytes, (int)(at % c.block)) * x;
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) put(c, p, i, sum[i]);
}

template <typename KERNEL> static cudaError_t launch_rows(KERNEL kernel, const struct ds_cu_gemv *c, cudaStream_t s)
{
    unsigned grid = 0;
    for (int i = 0; i < c->n_m; i++) grid += (unsigned)(c->m[i].rows + ROWS * WARPS - 1) / (ROWS * WARPS);
    return launch(kernel, dim3(grid), WARPS * 32, 0, s, *c);
}

template <int TYPE> static cudaError_t launch_type(const struct ds_cu_gemv *c, cudaStream_t s)
{
    return launch_rows(gemv_kernel<TYPE>, c, s);
}

extern "C" cudaError_t ds_cu_gemv(const struct ds_cu_gemv *c, cudaStream_t s)
{
    if (c->packed) return ds_cu_gemv_packed(c, s);
    if (c->type == DS_T_BF16 && c->k % 8 == 0) return launch_rows(gemv_bf16_kernel, c, s);
    DS_CU_BY_TYPE(c->type, return launch_type, (c, s))
}
