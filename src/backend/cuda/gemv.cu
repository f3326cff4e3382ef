/* Decode: one token times matrices in their stored blocks. Bound by the bytes of the matrices, so loads are 16 bytes
 * wide and several are in flight; integer quants become exact halves by bit tricks (integer-to-float conversions run
 * at a quarter of the rate) and the tensor cores multiply and sum them. */
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

/* --- quants on tensor cores. A block takes TILE rows; its warps divide k. m16n8k16: a lane has rows lane/4 and
 * lane/4 + 8 and a quarter of each 16 k; which k is free as long as x is read in the same order. All 8 columns are
 * the same token. --- */

enum { TILE = 16 };

static __device__ __forceinline__ void mma_f16(float d[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint2 b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b.x), "r"(b.y));
}
static __device__ __forceinline__ __half2 halves(uint32_t w) { return *reinterpret_cast<__half2 *>(&w); }
static __device__ __forceinline__ uint32_t bits(__half2 h) { return *reinterpret_cast<uint32_t *>(&h); }
/* Unsigned bytes 0, 1 (HIGH: 2, 3) of w as halves 1024 + byte: 0x6400 is 1024, whose last bit counts 1. */
template <bool HIGH> static __device__ __forceinline__ __half2 bytes_up(uint32_t w)
{
    return halves(__byte_perm(w, 0x64646464u, HIGH ? 0x4342 : 0x4140));
}

/* x as f16 in shared memory. */
static __device__ __forceinline__ void stage_x(uint16_t *xs, const uint16_t *x, int k)
{
    for (int i = threadIdx.x; i < k / 8; i += WARPS * 32) {
        const uint4 v = reinterpret_cast<const uint4 *>(x)[i];
        reinterpret_cast<uint4 *>(xs)[i] = make_uint4(bf16_to_f16(v.x), bf16_to_f16(v.y), bf16_to_f16(v.z), bf16_to_f16(v.w));
    }
    __syncthreads();
}

/* The tile's matrix and its first row there. */
static __device__ __forceinline__ place find_tile(const struct ds_cu_gemv &c, int tile)
{
    int m = 0;
    for (; m + 1 < c.n_m; m++) {
        const int tiles = (c.m[m].rows + TILE - 1) / TILE;
        if (tile < tiles) break;
        tile -= tiles;
    }
    return { m, tile * TILE };
}

/* Adds the warps' shares of a tile and stores it. */
static __device__ __forceinline__ void put_tile(const struct ds_cu_gemv &c, const place &p, float (*red)[TILE], const float d[4])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads();                             /* the last tile's sums are read */
    if (lane % 4 == 0) {
        red[warp][lane / 4] = d[0];
        red[warp][lane / 4 + 8] = d[2];
    }
    __syncthreads();
    const int r = p.r + threadIdx.x;
    if (threadIdx.x >= TILE || r >= c.m[p.m].rows) return;
    float sum = 0;
    for (int w = 0; w < WARPS; w++) sum += red[w][threadIdx.x];
    if (c.m[p.m].y_f32) {
        float *o = (float *)c.m[p.m].y + r;
        *o = c.add ? *o + sum : sum;
    } else {
        ((uint16_t *)c.m[p.m].y)[r] = to_bf16(sum);
    }
}

/* Q8_0 with quants and scales apart; k a multiple of 32. A lane takes 16 quants of each of its rows per 64 of k. */
__global__ void __launch_bounds__(WARPS * 32, 3) gemv_q8_kernel(struct ds_cu_gemv c, int tiles)
{
    extern __shared__ __align__(16) uint16_t xs[];
    __shared__ float red[WARPS][TILE];
    enum { BATCH = 4 };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quarter = lane % 4;
    stage_x(xs, c.x, c.k);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const place p = find_tile(c, tile);
        const int rows = c.m[p.m].rows, r0 = min(p.r + lane / 4, rows - 1), r1 = min(p.r + lane / 4 + 8, rows - 1);
        const int8_t *base = (const int8_t *)c.m[p.m].w;
        const __half *scales = reinterpret_cast<const __half *>(base + (int64_t)rows * c.k);
        const int8_t *q0 = base + (int64_t)r0 * c.k, *q1 = base + (int64_t)r1 * c.k;
        const __half *s0 = scales + (int64_t)r0 * (c.k / 32), *s1 = scales + (int64_t)r1 * (c.k / 32);
        float d[4] = {};
        for (int at = warp * 64 + quarter * 16; at < c.k + quarter * 16; at += WARPS * 64 * BATCH) { /* whole warps go round */
            uint4 a[BATCH][2];
            __half sc[BATCH][2];
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const int k = at + i * WARPS * 64;
                a[i][0] = a[i][1] = make_uint4(0x80808080u, 0x80808080u, 0x80808080u, 0x80808080u);
                sc[i][0] = sc[i][1] = __half(0.f);
                if (k >= c.k) continue;
                a[i][0] = __ldcs(reinterpret_cast<const uint4 *>(q0 + k));
                a[i][1] = __ldcs(reinterpret_cast<const uint4 *>(q1 + k));
                sc[i][0] = s0[k / 32];
                sc[i][1] = s1[k / 32];
            }
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const int k = min(at + i * WARPS * 64, c.k - 16);
                const uint4 x0 = *reinterpret_cast<const uint4 *>(xs + k), x1 = *reinterpret_cast<const uint4 *>(xs + k + 8);
                const uint2 x[4] = { { x0.x, x0.y }, { x0.z, x0.w }, { x1.x, x1.y }, { x1.z, x1.w } };
                const uint32_t w0[4] = { a[i][0].x, a[i][0].y, a[i][0].z, a[i][0].w },
                               w1[4] = { a[i][1].x, a[i][1].y, a[i][1].z, a[i][1].w };
                const __half2 m0 = __half2half2(sc[i][0]), m1 = __half2half2(sc[i][1]), zero = __float2half2_rn(1024.f + 128.f);
#pragma unroll
                for (int s = 0; s < 4; s++) {
                    const uint32_t v0 = w0[s] ^ 0x80808080u, v1 = w1[s] ^ 0x80808080u;
                    mma_f16(d, bits(__hmul2(__hsub2(bytes_up<false>(v0), zero), m0)),
                            bits(__hmul2(__hsub2(bytes_up<false>(v1), zero), m1)),
                            bits(__hmul2(__hsub2(bytes_up<true>(v0), zero), m0)),
                            bits(__hmul2(__hsub2(bytes_up<true>(v1), zero), m1)), x[s]);
                }
            }
        }
        put_tile(c, p, red, d);
    }
}

/* Scales and minima of the pair of sub-blocks 2*pair and 2*pair + 1 of a Q4_K block with header h. */
static __device__ __forceinline__ void q4k_scales(const uint4 &h, int pair, __half2 sc[2], __half2 m[2])
{
    const uint32_t sw[3] = { h.y, h.z, h.w };
    const float2 dm = __half22float2(*reinterpret_cast<const __half2 *>(&h.x));
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int j = 2 * pair + i, sh = 8 * (j & 3);
        const uint32_t s = j < 4 ? sw[0] >> sh & 63 : (sw[2] >> sh & 15) | (sw[0] >> (sh + 6) & 3) << 4;
        const uint32_t n = j < 4 ? sw[1] >> sh & 63 : (sw[2] >> (sh + 4) & 15) | (sw[1] >> (sh + 6) & 3) << 4;
        sc[i] = __float2half2_rn(dm.x * (float)s);
        m[i] = __float2half2_rn(-dm.y * (float)n);
    }
}

/* Q4_K: 16-byte aligned blocks of 144 bytes for 256 of k. A lane takes a pair of sub-blocks of each of its rows. */
__global__ void __launch_bounds__(WARPS * 32, 2) gemv_q4k_kernel(struct ds_cu_gemv c, int tiles)
{
    extern __shared__ __align__(16) uint16_t xs[];
    __shared__ float red[WARPS][TILE];
    enum { BATCH = 3 };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, pair = lane % 4, blocks = c.k / 256;
    stage_x(xs, c.x, c.k);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const place p = find_tile(c, tile);
        const int rows = c.m[p.m].rows, r0 = min(p.r + lane / 4, rows - 1), r1 = min(p.r + lane / 4 + 8, rows - 1);
        const uint8_t *b0 = (const uint8_t *)c.m[p.m].w + (int64_t)r0 * blocks * 144,
                      *b1 = (const uint8_t *)c.m[p.m].w + (int64_t)r1 * blocks * 144;
        float d[4] = {};
        for (int at = warp; at < blocks; at += WARPS * BATCH) {
            uint4 in[BATCH][2][3];
#pragma unroll
            for (int i = 0; i < BATCH; i++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const int b = at + i * WARPS;
                    const uint4 *src = reinterpret_cast<const uint4 *>((r ? b1 : b0) + (int64_t)b * 144);
                    in[i][r][0] = in[i][r][1] = in[i][r][2] = make_uint4(0, 0, 0, 0);
                    if (b >= blocks) continue;
                    in[i][r][0] = __ldcs(src);
                    in[i][r][1] = __ldcs(src + 1 + 2 * pair);
                    in[i][r][2] = __ldcs(src + 2 + 2 * pair);
                }
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const int k = min(at + i * WARPS, blocks - 1) * 256 + pair * 64;
                __half2 sc[2][2], m[2][2];
#pragma unroll
                for (int r = 0; r < 2; r++) q4k_scales(in[i][r][0], pair, sc[r], m[r]);
                const __half2 zero = __float2half2_rn(1024.f);
                const uint32_t w0[8] = { in[i][0][1].x, in[i][0][1].y, in[i][0][1].z, in[i][0][1].w,
                                         in[i][0][2].x, in[i][0][2].y, in[i][0][2].z, in[i][0][2].w };
                const uint32_t w1[8] = { in[i][1][1].x, in[i][1][1].y, in[i][1][1].z, in[i][1][1].w,
                                         in[i][1][2].x, in[i][1][2].y, in[i][1][2].z, in[i][1][2].w };
#pragma unroll
                for (int h = 0; h < 2; h++)
#pragma unroll
                    for (int s = 0; s < 8; s++) {
                        const uint2 x = *reinterpret_cast<const uint2 *>(xs + k + 32 * h + 4 * s);
                        const uint32_t v0 = w0[s] >> 4 * h & 0x0f0f0f0fu, v1 = w1[s] >> 4 * h & 0x0f0f0f0fu;
                        mma_f16(d, bits(__hfma2(__hsub2(bytes_up<false>(v0), zero), sc[0][h], m[0][h])),
                                bits(__hfma2(__hsub2(bytes_up<false>(v1), zero), sc[1][h], m[1][h])),
                                bits(__hfma2(__hsub2(bytes_up<true>(v0), zero), sc[0][h], m[0][h])),
                                bits(__hfma2(__hsub2(bytes_up<true>(v1), zero), sc[1][h], m[1][h])), x);
                    }
            }
        }
        put_tile(c, p, red, d);
    }
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

/* Blocks of a kernel that fill the GPU once, at most one per tile. */
template <typename KERNEL> static cudaError_t launch_tiles(KERNEL kernel, const struct ds_cu_gemv *c, int per_sm, cudaStream_t s)
{
    const int bytes = c->k * 2;
    int device, sms, tiles = 0;
    cudaError_t st = cudaGetDevice(&device);
    if (st == cudaSuccess) st = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    if (st == cudaSuccess) st = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (st != cudaSuccess) return st;
    for (int i = 0; i < c->n_m; i++) tiles += (c->m[i].rows + TILE - 1) / TILE;
    kernel<<<(unsigned)(tiles < per_sm * sms ? tiles : per_sm * sms), WARPS * 32, (size_t)bytes, s>>>(*c, tiles);
    return cudaGetLastError();
}

extern "C" cudaError_t ds_cu_gemv(const struct ds_cu_gemv *c, cudaStream_t s)
{
    enum { MOST_K = 65536 / 2 };                 /* of x in shared memory */
    unsigned grid = 0;
    for (int i = 0; i < c->n_m; i++) grid += (unsigned)(c->m[i].rows + ROWS * WARPS - 1) / (ROWS * WARPS);
    if (c->apart && c->k > MOST_K) return cudaErrorInvalidValue;
    if (c->apart) return launch_tiles(gemv_q8_kernel, c, 3, s);
    if (c->type == DS_T_Q4_K && c->k <= MOST_K) return launch_tiles(gemv_q4k_kernel, c, 2, s);
    if (c->type == DS_T_BF16 && c->k % 8 == 0) {
        gemv_bf16_kernel<<<grid, WARPS * 32, 0, s>>>(*c);
    } else {
        DS_CU_BY_TYPE(c->type, gemv_kernel, <<<grid, WARPS * 32, 0, s>>>(*c))
    }
    return cudaGetLastError();
}
