/* Decode: one token times Q8_0 and Q4_K matrices, which are rearranged at load for this kernel.
 *
 * Bound by the bytes of the matrices. One block an SM; each warp keeps a ring of pieces in shared memory
 * filled by bulk copies, and fills it before the kernel in front has finished, since weights do not depend on it:
 * norms and other small kernels between two products run while the next matrix is already on its way.
 *
 * A piece is 16 rows by 256 of k in the order in which a tensor core's lanes want it. Quants enter as f16
 * denormals, which are exact and need no arithmetic: the integer q in the low bits of a half is q 2^-24. Column j of
 * the other operand is x in the piece's j-th 32 of k and 0 elsewhere, so that eight block sums come out apart, each in
 * the lane that knows its scale; the constant part (q + 128, or the minimum) is taken off with the sum of x. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/quant.cuh"
#include "backend/cuda/sm90.cuh"

enum {
    WARPS = 16,
    ROWS = 16,
    STEP = 256,
    ROUND = 4,                                   /* tiles between two sums over the warps */
    Q8_PIECE = ROWS * (STEP + STEP / 32 * 2),
    Q4K_PIECE = ROWS * 144,
    SUMS = 2 * ROUND * WARPS * ROWS * 4          /* bytes */
};

template <int TYPE> struct piece { enum { BYTES = TYPE == DS_T_Q8_0 ? Q8_PIECE : Q4K_PIECE }; };

static __host__ __device__ int pieces_of(int k) { return (k + STEP - 1) / STEP; }

/* --- at load --- */

/* Quant bytes 8t .. 8t+7 of 32 as the lane's half of an operand; a row past the end is zero. */
static __device__ __forceinline__ uint2 eight(const uint8_t *b, bool live, uint32_t flip)
{
    uint32_t w[2] = { 0, 0 };
    if (live)
        for (int i = 0; i < 8; i++) w[i / 4] |= (uint32_t)b[i] << i % 4 * 8;
    return live ? make_uint2(w[0] ^ flip, w[1] ^ flip) : make_uint2(0, 0);
}

__global__ void pack_q8_kernel(uint8_t *__restrict__ dst, const uint8_t *__restrict__ src, int rows, int k)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, pieces = pieces_of(k), blocks = k / 32;
    const int64_t n = (int64_t)((rows + ROWS - 1) / ROWS) * pieces, step = (int64_t)gridDim.x * (blockDim.x / 32);
    for (int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < n; i += step) {
        const int r0 = (int)(i / pieces) * ROWS + g, b0 = (int)(i % pieces) * (STEP / 32);
        uint8_t *out = dst + i * Q8_PIECE;
        for (int j = 0; j < STEP / 32; j++) {
            const bool in_k = b0 + j < blocks;
            const uint8_t *b = src + ((int64_t)r0 * blocks + b0 + j) * 34;
            const uint2 lo = eight(b + 2 + 8 * t, in_k && r0 < rows, 0x80808080u);
            const uint2 hi = eight(b + (int64_t)8 * blocks * 34 + 2 + 8 * t, in_k && r0 + 8 < rows, 0x80808080u);
            reinterpret_cast<uint4 *>(out)[j * 32 + lane] = make_uint4(lo.x, lo.y, hi.x, hi.y);
        }
        for (int j = lane; j < ROWS * (STEP / 32); j += 32) {
            const int r = (int)(i / pieces) * ROWS + j / 8, b = b0 + j % 8;
            const bool live = r < rows && b < blocks;
            reinterpret_cast<uint16_t *>(out + ROWS * STEP)[j] =
                live ? (uint16_t)u16_at(src + ((int64_t)r * blocks + b) * 34) : (uint16_t)0;
        }
    }
}

/* Header of a row: scale and minimum (f16), then for each pair of 32 the two scales and minima, 6 bits each: 16 bits of the
 * four pairs, then 8 bits of each. */
__global__ void pack_q4k_kernel(uint8_t *__restrict__ dst, const uint8_t *__restrict__ src, int rows, int k)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, pieces = k / STEP;
    const int64_t n = (int64_t)((rows + ROWS - 1) / ROWS) * pieces, step = (int64_t)gridDim.x * (blockDim.x / 32);
    for (int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < n; i += step) {
        const int r0 = (int)(i / pieces) * ROWS, at = (int)(i % pieces);
        uint8_t *out = dst + i * Q4K_PIECE;
        for (int p = 0; p < 4; p++) {
            const uint8_t *b = src + ((int64_t)(r0 + g) * pieces + at) * 144 + 16 + 32 * p + 8 * t;
            const uint2 lo = eight(b, r0 + g < rows, 0), hi = eight(b + (int64_t)8 * pieces * 144, r0 + g + 8 < rows, 0);
            reinterpret_cast<uint4 *>(out)[p * 32 + lane] = make_uint4(lo.x, lo.y, hi.x, hi.y);
        }
        for (int j = lane; j < ROWS * 4; j += 32) {
            const int r = r0 + j / 4, pair = j % 4;
            uint8_t *head = out + ROWS * (STEP / 2) + j / 4 * 16;
            uint32_t v = 0, d = 0;
            if (r < rows) {
                const uint8_t *b = src + ((int64_t)r * pieces + at) * 144;
                int sc[2], m[2];
                for (int h = 0; h < 2; h++) k_scale(b + 4, 2 * pair + h, &sc[h], &m[h]);
                v = (uint32_t)(sc[0] | m[0] << 6 | sc[1] << 12 | m[1] << 18);
                d = u16_at(b) | u16_at(b + 2) << 16;
            }
            reinterpret_cast<uint16_t *>(head + 4)[pair] = (uint16_t)v;
            head[12 + pair] = (uint8_t)(v >> 16);
            if (pair == 0) *reinterpret_cast<uint32_t *>(head) = d;
        }
    }
}

/* --- one piece --- */

static __device__ __forceinline__ void mma_f16(float d[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                               uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
/* Bytes 0 and 2, or 1 and 3, as denormal halves. */
static __device__ __forceinline__ uint32_t even_bytes(uint32_t w) { return __byte_perm(w, 0, 0x4240); }
static __device__ __forceinline__ uint32_t odd_bytes(uint32_t w) { return __byte_perm(w, 0, 0x4341); }

/* acc: the lane's share of rows lane/4 and lane/4 + 8, times 2^-24. xsum: 128 2^-24 times the sum of x in each 32. */
static __device__ __forceinline__ void add_piece_q8(float acc[2], const uint8_t *p, const uint16_t *xs, const float *xsum)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint4 x = reinterpret_cast<const uint4 *>(xs)[lane];
    float d[4] = {}, e[4] = {};
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const uint4 w = reinterpret_cast<const uint4 *>(p)[j * 32 + lane];
        const uint32_t on = g == j ? ~0u : 0u;
        mma_f16(d, even_bytes(w.x), even_bytes(w.z), odd_bytes(w.x), odd_bytes(w.z), x.x & on, x.y & on);
        mma_f16(e, even_bytes(w.y), even_bytes(w.w), odd_bytes(w.y), odd_bytes(w.w), x.z & on, x.w & on);
    }
    const __half2 *scales = reinterpret_cast<const __half2 *>(p + ROWS * STEP);
    const float2 s0 = __half22float2(scales[lane]), s1 = __half22float2(scales[32 + lane]),
                 sx = reinterpret_cast<const float2 *>(xsum)[t];
    acc[0] += s0.x * (d[0] + e[0] - sx.x) + s0.y * (d[1] + e[1] - sx.y);
    acc[1] += s1.x * (d[2] + e[2] - sx.x) + s1.y * (d[3] + e[3] - sx.y);
}

/* What a row's pair of 32 adds, from its block sums: the second one's quants were not shifted down by 4 bits. */
static __device__ __forceinline__ float pair_q4k(const uint8_t *head, int t, float sum0, float sum1, float2 sx)
{
    const float2 d = __half22float2(*reinterpret_cast<const __half2 *>(head));
    const uint32_t v = reinterpret_cast<const uint16_t *>(head + 4)[t] | (uint32_t)head[12 + t] << 16;
    return d.x * ((float)(v & 63) * sum0 + (float)(v >> 12 & 63) * (sum1 * 0.0625f)) -
           d.y * ((float)(v >> 6 & 63) * sx.x + (float)(v >> 18) * sx.y);
}

/* xsum: 2^-24 times the sum of x in each 32. */
static __device__ __forceinline__ void add_piece_q4k(float acc[2], const uint8_t *p, const uint16_t *xs, const float *xsum)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint4 x = reinterpret_cast<const uint4 *>(xs)[lane];
    const uint32_t low = 0x000f000fu, high = 0x00f000f0u;
    float d[4] = {}, e[4] = {};
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint4 w = reinterpret_cast<const uint4 *>(p)[j * 32 + lane];
        const uint4 v = make_uint4(w.x >> 8, w.y >> 8, w.z >> 8, w.w >> 8);
        const uint32_t on = g == 2 * j ? ~0u : 0u, on2 = g == 2 * j + 1 ? ~0u : 0u;
        mma_f16(d, w.x & low, w.z & low, v.x & low, v.z & low, x.x & on, x.y & on);
        mma_f16(e, w.x & high, w.z & high, v.x & high, v.z & high, x.x & on2, x.y & on2);
        mma_f16(d, w.y & low, w.w & low, v.y & low, v.w & low, x.z & on, x.w & on);
        mma_f16(e, w.y & high, w.w & high, v.y & high, v.w & high, x.z & on2, x.w & on2);
    }
    const float2 sx = reinterpret_cast<const float2 *>(xsum)[t];
    const uint8_t *head = p + ROWS * (STEP / 2) + g * 16;
    acc[0] += pair_q4k(head, t, d[0] + e[0], d[1] + e[1], sx);
    acc[1] += pair_q4k(head + 8 * 16, t, d[2] + e[2], d[3] + e[3], sx);
}

/* --- the product --- */

/* x as f16 in the operand's order, zeros up to a whole piece, and its sums. Eight values a thread; four threads have 32. */
static __device__ __forceinline__ void stage_x(uint16_t *xs, float *xsum, const uint16_t *x, int k, float times)
{
    for (int i = threadIdx.x; i < pieces_of(k) * (STEP / 8); i += WARPS * 32) {
        const uint4 v = i * 8 < k ? *reinterpret_cast<const uint4 *>(x + i * 8) : make_uint4(0, 0, 0, 0);
        const uint32_t a = bf16_to_f16(v.x), b = bf16_to_f16(v.y), c = bf16_to_f16(v.z), d = bf16_to_f16(v.w);
        reinterpret_cast<uint4 *>(xs)[i] = make_uint4(__byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632),
                                                      __byte_perm(c, d, 0x5410), __byte_perm(c, d, 0x7632));
        float sum = 0;
        const uint32_t all[4] = { a, b, c, d };
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 f = __half22float2(*reinterpret_cast<const __half2 *>(&all[j]));
            sum += f.x + f.y;
        }
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (i % 4 == 0) xsum[i / 4] = sum * times;
    }
    __syncthreads();
}

/* The matrix that tile `tile` of all matrices belongs to. */
static __device__ __forceinline__ int matrix_of(const struct ds_cu_gemv &c, int tile, int *in_matrix)
{
    int m = 0;
    for (; m + 1 < c.n_m; m++) {
        const int tiles = (c.m[m].rows + ROWS - 1) / ROWS;
        if (tile < tiles) break;
        tile -= tiles;
    }
    *in_matrix = tile;
    return m;
}

/* Piece i of the block's tiles, which lie gridDim.x apart. */
template <int TYPE> static __device__ __forceinline__ const uint8_t *piece_at(const struct ds_cu_gemv &c, int i, int per_tile)
{
    int tile;
    const int m = matrix_of(c, blockIdx.x + i / per_tile * gridDim.x, &tile);
    return (const uint8_t *)c.m[m].w + ((int64_t)tile * per_tile + i % per_tile) * piece<TYPE>::BYTES;
}

/* Sums tiles first .. of the block over the warps and stores them. */
static __device__ __forceinline__ void put_tiles(const struct ds_cu_gemv &c, const float *sums, int first, int n_tiles)
{
    const int i = threadIdx.x / ROWS, row = threadIdx.x % ROWS;
    if (i >= ROUND || first + i >= n_tiles) return;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += sums[(i * WARPS + w) * ROWS + row];
    sum *= 16777216.f;                           /* 2^24 */
    int tile;
    const int m = matrix_of(c, blockIdx.x + (first + i) * gridDim.x, &tile), r = tile * ROWS + row;
    if (r >= c.m[m].rows) return;
    if (c.m[m].y_f32) {
        float *o = (float *)c.m[m].y + r;
        *o = c.add ? *o + sum : sum;
    } else {
        ((uint16_t *)c.m[m].y)[r] = to_bf16(sum);
    }
}

/* A warp's ring of pieces: its pieces are those of the block at warp, warp + WARPS, ... */
template <int TYPE> struct ring {
    uint32_t slots, slot, phase, base, bars;
    __device__ __forceinline__ void start(const struct ds_cu_gemv &c, uint8_t *at, uint64_t *bar, int n_slots, int n, int per_tile)
    {
        const int warp = threadIdx.x / 32;
        slots = n_slots, slot = phase = 0;
        base = shared_addr(at + (size_t)warp * n_slots * piece<TYPE>::BYTES);
        bars = shared_addr(bar + warp * n_slots);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        if (threadIdx.x % 32 == 0) {
            for (int i = 0; i < n_slots; i++) barrier_init(bars + 8 * i, 1);
            barrier_init_done();
            for (int i = 0; i < n_slots && warp + i * WARPS < n; i++) fill(c, i, warp + i * WARPS, per_tile);
        }
        __syncwarp();
#endif
    }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __device__ __forceinline__ void fill(const struct ds_cu_gemv &c, uint32_t to, int i, int per_tile)
    {
        barrier_expect(bars + 8 * to, piece<TYPE>::BYTES);
        bulk_load(base + to * piece<TYPE>::BYTES, piece_at<TYPE>(c, i, per_tile), piece<TYPE>::BYTES, bars + 8 * to);
    }
    /* The slot is read: it takes the piece `slots` turns later. */
    __device__ __forceinline__ void next(const struct ds_cu_gemv &c, int i, int n, int per_tile)
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0 && i + (int)slots * WARPS < n) fill(c, slot, i + (int)slots * WARPS, per_tile);
        if (++slot == slots) slot = 0, phase ^= 1;
    }
#endif
};

/* Shared memory: rings, x, sums of x, sums of tiles, barriers. Older GPUs have no ring and read pieces where they lie. */
template <int TYPE>
__global__ void __launch_bounds__(WARPS * 32, 1) gemv_packed_kernel(__grid_constant__ const struct ds_cu_gemv c, int tiles, int slots)
{
    extern __shared__ __align__(128) uint8_t smem[];
    const int per_tile = pieces_of(c.k), mine = (tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x,
              n = mine * per_tile, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint16_t *xs = reinterpret_cast<uint16_t *>(smem + (size_t)WARPS * slots * piece<TYPE>::BYTES);
    float *xsum = reinterpret_cast<float *>(xs + per_tile * STEP), *sums = xsum + per_tile * (STEP / 32);
    uint64_t *bars = reinterpret_cast<uint64_t *>(sums + SUMS / 4);
    ring<TYPE> r;
    next_may_start();
    r.start(c, smem, bars, slots, n, per_tile);
    prior_done();
    stage_x(xs, xsum, c.x, c.k, (TYPE == DS_T_Q8_0 ? 128.f : 1.f) / 16777216.f);

    int at = warp;                               /* the warp's next piece */
    for (int first = 0, turn = 0; first < mine; first += ROUND, turn ^= 1) {
        float *round = sums + turn * ROUND * WARPS * ROWS;
        for (int i = first; i < first + ROUND && i < mine; i++) {
            float acc[2] = { 0, 0 };
            for (; at < (i + 1) * per_tile; at += WARPS) {
                const int k = (at - i * per_tile) * STEP;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
                const uint8_t *p = smem + (size_t)(warp * slots + (int)r.slot) * piece<TYPE>::BYTES;
                barrier_wait(r.bars + 8 * r.slot, r.phase);
#else
                const uint8_t *p = piece_at<TYPE>(c, at, per_tile);
#endif
                if constexpr (TYPE == DS_T_Q8_0) add_piece_q8(acc, p, xs + k, xsum + k / 32);
                else add_piece_q4k(acc, p, xs + k, xsum + k / 32);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
                r.next(c, at, n, per_tile);
#endif
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                acc[h] += __shfl_xor_sync(~0u, acc[h], 1);
                acc[h] += __shfl_xor_sync(~0u, acc[h], 2);
                if (lane % 4 == 0) round[((i - first) * WARPS + warp) * ROWS + lane / 4 + 8 * h] = acc[h];
            }
        }
        __syncthreads();                         /* the next round's sums lie in the other half */
        put_tiles(c, round, first, mine);
    }
}

/* --- launchers --- */

extern "C" size_t ds_cu_packed_bytes(int type, int64_t rows, int k)
{
    return (size_t)((rows + ROWS - 1) / ROWS) * (size_t)pieces_of(k) * (type == DS_T_Q8_0 ? Q8_PIECE : Q4K_PIECE);
}

extern "C" bool ds_cu_can_pack(int type, int k)
{
    return k <= 32768 && ((type == DS_T_Q8_0 && k % 32 == 0) || (type == DS_T_Q4_K && k % STEP == 0));
}

extern "C" cudaError_t ds_cu_pack(void *dst, const void *src, int type, int64_t rows, int k, cudaStream_t s)
{
    const int64_t n = (rows + ROWS - 1) / ROWS * pieces_of(k), blocks = (n + 7) / 8;
    const unsigned grid = (unsigned)(blocks > 16384 ? 16384 : blocks);
    if (type == DS_T_Q8_0) pack_q8_kernel<<<grid, 256, 0, s>>>((uint8_t *)dst, (const uint8_t *)src, (int)rows, k);
    else pack_q4k_kernel<<<grid, 256, 0, s>>>((uint8_t *)dst, (const uint8_t *)src, (int)rows, k);
    return cudaGetLastError();
}

/* What a kernel may use on this device, asked once. */
struct limits { cudaError_t st; int sms, shared; };
static const limits &limits_of_device()
{
    static const limits l = [] {
        limits r = {};
        int device = 0;
        r.st = cudaGetDevice(&device);
        if (r.st == cudaSuccess) r.st = cudaDeviceGetAttribute(&r.sms, cudaDevAttrMultiProcessorCount, device);
        if (r.st == cudaSuccess) r.st = cudaDeviceGetAttribute(&r.shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        for (auto kernel : { gemv_packed_kernel<DS_T_Q8_0>, gemv_packed_kernel<DS_T_Q4_K> })
            if (r.st == cudaSuccess) r.st = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, r.shared);
        return r;
    }();
    return l;
}

template <int TYPE> static cudaError_t launch_packed(const struct ds_cu_gemv *c, cudaStream_t s)
{
    const limits &l = limits_of_device();
    if (l.st != cudaSuccess) return l.st;
    int tiles = 0;
    for (int i = 0; i < c->n_m; i++) tiles += (c->m[i].rows + ROWS - 1) / ROWS;
    const int grid = tiles < l.sms ? tiles : l.sms, per_tile = pieces_of(c->k), fixed = per_tile * (STEP * 2 + STEP / 32 * 4) + SUMS,
              slot = WARPS * (piece<TYPE>::BYTES + 8), most = (tiles + grid - 1) / grid * per_tile;
    int slots = can_overlap() ? (l.shared - fixed) / slot : 0;
    if (slots > (most + WARPS - 1) / WARPS) slots = (most + WARPS - 1) / WARPS;
    return launch(gemv_packed_kernel<TYPE>, dim3((unsigned)grid), WARPS * 32, (size_t)(fixed + slots * slot), s, *c, tiles, slots);
}

cudaError_t ds_cu_gemv_packed(const struct ds_cu_gemv *c, cudaStream_t s)
{
    return c->type == DS_T_Q8_0 ? launch_packed<DS_T_Q8_0>(c, s) : launch_packed<DS_T_Q4_K>(c, s);
}
