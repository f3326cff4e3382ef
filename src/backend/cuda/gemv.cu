/* Decode: one token times matrices in their stored blocks. Bound by the bytes of the matrices: 16-byte
 * loads, two rows a warp so that several are in flight, and no integer-to-float conversions, which run at a
 * quarter of the rate: a byte is put below the exponent of 2^23 instead. */
#include "backend/cuda/kernels.h"
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
/* Byte j of four unsigned bytes. */
template <int J> static __device__ __forceinline__ float byte_value(uint32_t w)
{
    return __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7440 + J)) - 8388608.f;
}

/* bf16 rows; k a multiple of 8. */
__global__ void __launch_bounds__(WARPS * 32) gemv_bf16_kernel(struct ds_cu_gemv c)
{
    const place p = find(c);
    const uint4 *w[ROWS], *x = reinterpret_cast<const uint4 *>(c.x);
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

/* Q8_0 with quants and scales apart; k a multiple of 32. A lane takes 16 quants, half a block. */
__global__ void __launch_bounds__(WARPS * 32) gemv_q8_kernel(struct ds_cu_gemv c)
{
    const place p = find(c);
    const int8_t *base = (const int8_t *)c.m[p.m].w;
    const uint4 *q[ROWS];
    const __half *d[ROWS];
    float sum[ROWS] = {};
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        q[i] = reinterpret_cast<const uint4 *>(base + row_of(c, p, i) * c.k);
        d[i] = reinterpret_cast<const __half *>(base + (int64_t)c.m[p.m].rows * c.k) + row_of(c, p, i) * (c.k / 32);
    }
#pragma unroll 4
    for (int at = threadIdx.x % 32; at < c.k / 16; at += 32) {
        const uint4 x0 = reinterpret_cast<const uint4 *>(c.x)[2 * at], x1 = reinterpret_cast<const uint4 *>(c.x)[2 * at + 1];
        const uint32_t xs[8] = { x0.x, x0.y, x0.z, x0.w, x1.x, x1.y, x1.z, x1.w };
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const uint4 a = __ldcs(q[i] + at);
            const uint32_t qs[4] = { a.x ^ 0x80808080u, a.y ^ 0x80808080u, a.z ^ 0x80808080u, a.w ^ 0x80808080u };
            float part = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                part += (byte_value<0>(qs[j]) - 128.f) * lo(xs[2 * j]);
                part += (byte_value<1>(qs[j]) - 128.f) * hi(xs[2 * j]);
                part += (byte_value<2>(qs[j]) - 128.f) * lo(xs[2 * j + 1]);
                part += (byte_value<3>(qs[j]) - 128.f) * hi(xs[2 * j + 1]);
            }
            sum[i] += __half2float(d[i][at / 2]) * part;
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) put(c, p, i, sum[i]);
}

/* Scales and minima of the pair of sub-blocks 2*pair and 2*pair + 1 of a Q4_K block; sw: its 12 bytes of scales. */
static __device__ __forceinline__ void q4k_scales(const uint32_t sw[3], int pair, float sc[2], float m[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int j = 2 * pair + h, sh = 8 * (j & 3);
        if (j < 4) {
            sc[h] = (float)(sw[0] >> sh & 63);
            m[h] = (float)(sw[1] >> sh & 63);
        } else {
            sc[h] = (float)((sw[2] >> sh & 15) | (sw[0] >> (sh + 6) & 3) << 4);
            m[h] = (float)((sw[2] >> (sh + 4) & 15) | (sw[1] >> (sh + 6) & 3) << 4);
        }
    }
}

/* Q4_K: 16-byte aligned blocks of 144 bytes. A lane takes 16 bytes of quants: 16 elements of each sub-block of a pair. */
__global__ void __launch_bounds__(WARPS * 32) gemv_q4k_kernel(struct ds_cu_gemv c)
{
    const place p = find(c);
    const uint8_t *row[ROWS];
    float sum[ROWS] = {};
#pragma unroll
    for (int i = 0; i < ROWS; i++) row[i] = (const uint8_t *)c.m[p.m].w + row_of(c, p, i) * (c.k / 256) * 144;
#pragma unroll 2
    for (int at = threadIdx.x % 32; at < c.k / 32; at += 32) {
        const int part = at % 8, pair = part / 2;
        const uint4 *x = reinterpret_cast<const uint4 *>(c.x + (int64_t)(at / 8) * 256 + pair * 64 + part % 2 * 16);
        float xs[2][16], xsum[2] = {};
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint4 x0 = x[4 * h], x1 = x[4 * h + 1];  /* the second sub-block lies 32 elements further */
            const uint32_t w[8] = { x0.x, x0.y, x0.z, x0.w, x1.x, x1.y, x1.z, x1.w };
#pragma unroll
            for (int j = 0; j < 8; j++) {
                xs[h][2 * j] = lo(w[j]);
                xs[h][2 * j + 1] = hi(w[j]);
                xsum[h] += lo(w[j]) + hi(w[j]);
            }
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const uint8_t *b = row[i] + (int64_t)(at / 8) * 144;
            const uint4 head = *reinterpret_cast<const uint4 *>(b), q4 = __ldcs(reinterpret_cast<const uint4 *>(b + 16) + part);
            const uint32_t sw[3] = { head.y, head.z, head.w }, qs[4] = { q4.x, q4.y, q4.z, q4.w };
            const float2 dm = __half22float2(*reinterpret_cast<const __half2 *>(&head.x));
            float sc[2], m[2];
            q4k_scales(sw, pair, sc, m);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float qx = 0;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const uint32_t q = qs[j] >> 4 * h & 0x0f0f0f0fu;
                    qx += byte_value<0>(q) * xs[h][4 * j] + byte_value<1>(q) * xs[h][4 * j + 1] +
                          byte_value<2>(q) * xs[h][4 * j + 2] + byte_value<3>(q) * xs[h][4 * j + 3];
                }
                sum[i] += dm.x * sc[h] * qx - dm.y * m[h] * xsum[h];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) put(c, p, i, sum[i]);
}

template <int TYPE> __global__ void __launch_bounds__(WARPS * 32) gemv_kernel(struct ds_cu_gemv c)
{
    const place p = find(c);
    const uint8_t *row[ROWS];
    float sum[ROWS] = {};
#pragma unroll
    for (int i = 0; i < ROWS; i++) row[i] = (const uint8_t *)c.m[p.m].w + row_of(c, p, i) * (c.k / c.block) * c.block_bytes;
#pragma unroll 4
    for (int at = threadIdx.x % 32; at < c.k; at += 32) {
        const float x = bf16_bits(c.x[at]);
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            sum[i] += element<TYPE>(row[i] + (int64_t)(at / c.block) * c.block_bytes, (int)(at % c.block)) * x;
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) put(c, p, i, sum[i]);
}

extern "C" cudaError_t ds_cu_gemv(const struct ds_cu_gemv *c, cudaStream_t s)
{
    unsigned grid = 0;
    for (int i = 0; i < c->n_m; i++) grid += (unsigned)(c->m[i].rows + ROWS * WARPS - 1) / (ROWS * WARPS);
    if (c->type == DS_T_BF16 && c->k % 8 == 0) {
        gemv_bf16_kernel<<<grid, WARPS * 32, 0, s>>>(*c);
    } else if (c->apart) {
        gemv_q8_kernel<<<grid, WARPS * 32, 0, s>>>(*c);
    } else if (c->type == DS_T_Q4_K) {
        gemv_q4k_kernel<<<grid, WARPS * 32, 0, s>>>(*c);
    } else {
        DS_CU_BY_TYPE(c->type, gemv_kernel, <<<grid, WARPS * 32, 0, s>>>(*c))
    }
    return cudaGetLastError();
}
