/* Decode: one token times Q8_0 and Q4_K matrices, which are rearranged at load for this kernel.
 *
 * Bound by the bytes of the matrices. One block an SM; each warp keeps a ring of pieces in shared memory
 * filled by bulk copies, and fills it before the kernel in front has finished, since weights do not depend on it:
 * norms and other small kernels between two products run while the next matrix is already on its way.
 *
 * A piece is 16 rows by 256 of k (Q4_K: twice that) in the order in which a tensor core's lanes want it. Quants enter as f16
 * denormals, which are exact and need no arithmetic: the integer q in the low bits of a half is q 2^-24. Column j of
 * the other operand is x in the part's j-th 32 of k and 0 elsewhere, so that eight block sums come out apart, each in
 * the lane that knows its scale; the constant part (q + 128, or the minimum) is taken off with the sum of x. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/quant.cuh"
#include "backend/cuda/sm90.cuh"

enum {
    WARPS = 16,
    ROWS = 16,
    PART = 256,                                  /* k of a part of a piece: one Q4_K block */
    ROUND = 4,                                   /* tiles between two sums over the warps */
    Q8_PART = ROWS * (PART + PART / 32 * 2),
    Q4K_PART = ROWS * 144,
    SUMS = 2 * ROUND * WARPS * ROWS * 4          /* bytes */
};

/* Pieces of both types have about as many bytes. */
template <int TYPE> struct piece {
    enum { PARTS = TYPE == DS_T_Q8_0 ? 1 : 2, STEP = PARTS * PART, PART_BYTES = TYPE == DS_T_Q8_0 ? Q8_PART : Q4K_PART,
           BYTES = PARTS * PART_BYTES };
};

template <int TYPE> static __host__ __device__ __forceinline__ int pieces_of(int k)
{
    return (k + piece<TYPE>::STEP - 1) / piece<TYPE>::STEP;
}

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
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, pieces = pieces_of<DS_T_Q8_0>(k), blocks = k / 32;
    const int64_t n = (int64_t)((rows + ROWS - 1) / ROWS) * pieces, step = (int64_t)gridDim.x * (blockDim.x / 32);
    for (int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < n; i += step) {
        const int r0 = (int)(i / pieces) * ROWS + g, b0 = (int)(i % pieces) * (PART / 32);
        uint8_t *out = dst + i * Q8_PART;
        for (int j = 0; j < PART / 32; j++) {
            const bool in_k = b0 + j < blocks;
            const uint8_t *b = src + ((int64_t)r0 * blocks + b0 + j) * 34;
            const uint2 lo = eight(b + 2 + 8 * t, in_k && r0 < rows, 0x80808080u);
            const uint2 hi = eight(b + (int64_t)8 * blocks * 34 + 2 + 8 * t, in_k && r0 + 8 < rows, 0x80808080u);
            reinterpret_cast<uint4 *>(out)[j * 32 + lane] = make_uint4(lo.x, lo.y, hi.x, hi.y);
        }
        for (int j = lane; j < ROWS * (PART / 32); j += 32) {
            const int r = (int)(i / pieces) * ROWS + j / 8, b = b0 + j % 8;
            const bool live = r < rows && b < blocks;
            reinterpret_cast<uint16_t *>(out + ROWS * PART)[j] =
                live ? (uint16_t)u16_at(src + ((int64_t)r * blocks + b) * 34) : (uint16_t)0;
        }
    }
}

/* Header of a row: scale and minimum (f16), then for each pair of 32 the two scales and minima, 6 bits each: 16 bits of the
 * four pairs, then 8 bits of each. */
__global__ void pack_q4k_kernel(uint8_t *__restrict__ dst, const uint8_t *__restrict__ src, int rows, int k)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, blocks = k / PART,
              parts = pieces_of<DS_T_Q4_K>(k) * piece<DS_T_Q4_K>::PARTS;
    const int64_t n = (int64_t)((rows + ROWS - 1) / ROWS) * parts, step = (int64_t)gridDim.x * (blockDim.x / 32);
    for (int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < n; i += step) {
        const int r0 = (int)(i / parts) * ROWS, at = (int)(i % parts), end = at < blocks ? rows : 0;
        uint8_t *out = dst + i * Q4K_PART;
        for (int p = 0; p < 4; p++) {
            const uint8_t *b = src + ((int64_t)(r0 + g) * blocks + at) * 144 + 16 + 32 * p + 8 * t;
            const uint2 lo = eight(b, r0 + g < end, 0), hi = eight(b + (int64_t)8 * blocks * 144, r0 + g + 8 < end, 0);
            reinterpret_cast<uint4 *>(out)[p * 32 + lane] = make_uint4(lo.x, lo.y, hi.x, hi.y);
        }
        for (int j = lane; j < ROWS * 4; j += 32) {
            const int r = r0 + j / 4, pair = j % 4;
            uint8_t *head = out + ROWS * (PART / 2) + j / 4 * 16;
            uint32_t v = 0, d = 0;
            if (r < end) {
                const uint8_t *b = src + ((int64_t)r * blocks + at) * 144;
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

/* --- one part of a piece --- */

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
static __device__ __forceinline__ void add_part_q8(float acc[2], const uint8_t *p, const uint16_t *xs, const float *xsum)
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
    const __half2 *scales = reinterpret_cast<const __half2 *>(p + ROWS * PART);
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
static __device__ __forceinline__ void add_part_q4k(float acc[2], const uint8_t *p, const uint16_t *xs, const float *xsum)
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
    const uint8_t *head = p + ROWS * (PART / 2) + g * 16;
    acc[0] += pair_q4k(head, t, d[0] + e[0], d[1] + e[1], sx);
    acc[1] += pair_q4k(head + 8 * 16, t, d[2] + e[2], d[3] + e[3], sx);
}

/* --- the input --- */

/* The matrices of a launch with their first tiles, which number all matrices through. */
struct call {
    int n_m, k, tiles, slots;
    bool add;
    struct ds_cu_gemv_input in;
    struct { void *y; const uint8_t *w; int rows, first; bool y_f32; } m[DS_CU_GEMV_MAX];
};

enum { GROUPS = 2 };                             /* eights of a norm's input that a thread has */

static __device__ __forceinline__ void eight_f32(float v[8], const uint4 r[2])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        v[4 * i] = __uint_as_float(r[i].x), v[4 * i + 1] = __uint_as_float(r[i].y);
        v[4 * i + 2] = __uint_as_float(r[i].z), v[4 * i + 3] = __uint_as_float(r[i].w);
    }
}
static __device__ __forceinline__ void eight_bf16(float v[8], uint4 r)
{
    const uint32_t w[4] = { r.x, r.y, r.z, r.w };
#pragma unroll
    for (int i = 0; i < 4; i++) v[2 * i] = __uint_as_float(w[i] << 16), v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
}
static __device__ __forceinline__ float squares(const float v[8])
{
    float s = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) s += v[i] * v[i];
    return s;
}

/* Values 8 i .. of the input as they lie in memory: all of a thread's are in flight before the first is used. */
struct raw { uint4 x[2], gate; };
template <int KIND> static __device__ __forceinline__ void load_raw(raw &r, const struct ds_cu_gemv_input &in, int i)
{
    enum { WIDE = KIND == DS_CU_IN_NORM || KIND == DS_CU_IN_GATED };
    const uint4 *x = (const uint4 *)in.x + (WIDE ? 2 * i : i);
    r.x[0] = x[0];
    if (WIDE) r.x[1] = x[1];
    if (KIND == DS_CU_IN_SWIGLU || KIND == DS_CU_IN_GATED) r.gate = reinterpret_cast<const uint4 *>(in.gate)[i];
}

/* ... and as they are: plain, silu(x) gate, or a head's norm times silu(gate) (16 lanes a head). */
template <int KIND>
static __device__ __forceinline__ void make_eight(float v[8], const raw &r, const float gain[8], float eps)
{
    float gate[8];
    if constexpr (KIND == DS_CU_IN_BF16) {
        eight_bf16(v, r.x[0]);
    } else if constexpr (KIND == DS_CU_IN_SWIGLU) {
        eight_bf16(v, r.x[0]);
        eight_bf16(gate, r.gate);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = silu_fast(v[j]) * gate[j];
    } else if constexpr (KIND == DS_CU_IN_GATED) {
        eight_f32(v, r.x);
        eight_bf16(gate, r.gate);
        float s = squares(v);
#pragma unroll
        for (int o = 1; o < 16; o <<= 1) s += __shfl_xor_sync(~0u, s, o);
        const float scale = rsqrtf(s / 128.f + eps);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] *= scale * gain[j] * silu_fast(gate[j]);
    }
}

/* Eight values as f16 in the operand's order and their share of the sums, four threads to a 32. What was made here is also
 * stored, each block its share. */
template <int KIND>
static __device__ __forceinline__ void put_eight(const struct call &c, uint16_t *xs, float *xsum, int i, const float v[8], float times)
{
    uint32_t h[4];
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        h[j] = pack_f16(v[2 * j], v[2 * j + 1]);
        const float2 f = __half22float2(*reinterpret_cast<const __half2 *>(&h[j]));
        sum += f.x + f.y;
    }
    reinterpret_cast<uint4 *>(xs)[i] = make_uint4(__byte_perm(h[0], h[1], 0x5410), __byte_perm(h[0], h[1], 0x7632),
                                                  __byte_perm(h[2], h[3], 0x5410), __byte_perm(h[2], h[3], 0x7632));
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (i % 4 == 0) xsum[i / 4] = sum * times;
    if (KIND != DS_CU_IN_BF16 && i % gridDim.x == blockIdx.x && 8 * i < c.k)
        reinterpret_cast<uint4 *>(c.in.made)[i] =
            make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
}

/* Gains of a thread's values: no kernel of a step writes them, so they are read before the others have finished. */
template <int KIND> static __device__ __forceinline__ void load_gains(float (&gain)[GROUPS][8], const struct call &c)
{
    if constexpr (KIND == DS_CU_IN_NORM || KIND == DS_CU_IN_GATED)
#pragma unroll
        for (int j = 0; j < (KIND == DS_CU_IN_NORM ? GROUPS : 1); j++) {
            const int i = KIND == DS_CU_IN_NORM ? j * WARPS * 32 + threadIdx.x : threadIdx.x % 16;
            uint4 r[2] = {};
            if (KIND == DS_CU_IN_GATED || 8 * i < c.k) {
                r[0] = reinterpret_cast<const uint4 *>(c.in.gain)[2 * i];
                r[1] = reinterpret_cast<const uint4 *>(c.in.gain)[2 * i + 1];
            }
            eight_f32(gain[j], r);
        }
}

/* The whole input, zeros up to a whole piece. Whole warps run or leave the loops: eights come in multiples of 32. */
template <int KIND>
static __device__ __forceinline__ void stage_x(const struct call &c, uint16_t *xs, float *xsum, float *red, int eights, float times,
                                               const float (&gain)[GROUPS][8])
{
    enum { BATCH = KIND == DS_CU_IN_NORM || KIND == DS_CU_IN_GATED ? GROUPS : 5 };
    for (int i0 = threadIdx.x; i0 < eights || KIND == DS_CU_IN_NORM; i0 += BATCH * WARPS * 32) {
        raw r[BATCH];
        float v[BATCH][8], scale = 0;
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            const int i = i0 + j * WARPS * 32;
            r[j] = {};
            if (8 * i < c.k) load_raw<KIND>(r[j], c.in, i);
        }
        if constexpr (KIND == DS_CU_IN_NORM) {   /* one batch is all of it */
#pragma unroll
            for (int j = 0; j < BATCH; j++) {
                eight_f32(v[j], r[j].x);
                scale += squares(v[j]);
            }
            scale = rsqrtf(block_sum(scale, red) / (float)c.k + c.in.eps);
        }
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            const int i = i0 + j * WARPS * 32;
            if (i >= eights) continue;
            if constexpr (KIND == DS_CU_IN_NORM)
#pragma unroll
                for (int l = 0; l < 8; l++) v[j][l] *= scale * gain[j][l];
            else make_eight<KIND>(v[j], r[j], gain[0], c.in.eps);
            put_eight<KIND>(c, xs, xsum, i, v[j], times);
        }
        if (KIND == DS_CU_IN_NORM) break;
    }
    __syncthreads();
}

/* --- the product --- */

static __device__ __forceinline__ int matrix_of(const struct call &c, int tile)
{
    int m = 0;
    while (m + 1 < c.n_m && tile >= c.m[m + 1].first) m++;
    return m;
}

/* A warp's way through the pieces of its block's tiles, which lie gridDim.x apart: every WARPS-th piece. */
template <int TYPE> struct cursor {
    int at, tile;
    const uint8_t *base;
    __device__ __forceinline__ void settle(const struct call &c, int per_tile)
    {
        while (at >= per_tile) at -= per_tile, tile += gridDim.x;
        if (tile >= c.tiles) return;
        const int m = matrix_of(c, tile);
        base = c.m[m].w + (int64_t)(tile - c.m[m].first) * per_tile * piece<TYPE>::BYTES;
    }
    __device__ __forceinline__ void start(const struct call &c, int per_tile)
    {
        at = threadIdx.x / 32;
        tile = blockIdx.x;
        settle(c, per_tile);
    }
    __device__ __forceinline__ void next(const struct call &c, int per_tile)
    {
        at += WARPS;
        if (at >= per_tile) settle(c, per_tile);
    }
    __device__ __forceinline__ const uint8_t *piece_at() const { return base + at * piece<TYPE>::BYTES; }
};

/* Sums tiles first .. of the block over the warps and stores them. */
static __device__ __forceinline__ void put_tiles(const struct call &c, const float *sums, int first, int n_tiles)
{
    const int i = threadIdx.x / ROWS, row = threadIdx.x % ROWS;
    if (i >= ROUND || first + i >= n_tiles) return;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += sums[(i * WARPS + w) * ROWS + row];
    sum *= 16777216.f;                           /* 2^24 */
    const int tile = blockIdx.x + (first + i) * gridDim.x, m = matrix_of(c, tile), r = (tile - c.m[m].first) * ROWS + row;
    if (r >= c.m[m].rows) return;
    if (c.m[m].y_f32) {
        float *o = (float *)c.m[m].y + r;
        if (c.add) atomicAdd(o, sum);            /* the only one to add here: not for order, but not to wait for the old value */
        else *o = sum;
    } else {
        ((uint16_t *)c.m[m].y)[r] = to_bf16(sum);
    }
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* A warp's ring of pieces in shared memory. */
template <int TYPE> struct ring {
    uint32_t slot, phase, base, bars;
    cursor<TYPE> ahead;
    __device__ __forceinline__ void fill(const struct call &c, int per_tile)
    {
        if (ahead.tile >= c.tiles) return;
        if (threadIdx.x % 32 == 0) {
            barrier_expect(bars + 8 * slot, piece<TYPE>::BYTES);
            bulk_load(base + slot * piece<TYPE>::BYTES, ahead.piece_at(), piece<TYPE>::BYTES, bars + 8 * slot);
        }
        ahead.next(c, per_tile);
    }
    __device__ __forceinline__ void turn(const struct call &c)
    {
        if (++slot == (uint32_t)c.slots) slot = 0, phase ^= 1;
    }
    __device__ __forceinline__ void start(const struct call &c, uint8_t *at, uint64_t *bar, int per_tile)
    {
        const int warp = threadIdx.x / 32;
        slot = phase = 0;
        base = shared_addr(at + (size_t)warp * c.slots * piece<TYPE>::BYTES);
        bars = shared_addr(bar + warp * c.slots);
        ahead.start(c, per_tile);
        if (threadIdx.x % 32 == 0) {
            for (int i = 0; i < c.slots; i++) barrier_init(bars + 8 * i, 1);
            barrier_init_done();
        }
        for (int i = 0; i < c.slots; i++, turn(c)) fill(c, per_tile);
        phase = 0;
        __syncwarp();
    }
    /* The piece in the current slot, once it is there. */
    __device__ __forceinline__ const uint8_t *piece_here(const uint8_t *at, const struct call &c)
    {
        barrier_wait(bars + 8 * slot, phase);
        return at + ((threadIdx.x / 32) * c.slots + slot) * piece<TYPE>::BYTES;
    }
    /* That piece has been read. */
    __device__ __forceinline__ void next(const struct call &c, int per_tile)
    {
        __syncwarp();
        fill(c, per_tile);
        turn(c);
    }
};
#endif

/* Shared memory: rings, x, sums of x, sums of tiles, barriers. Older GPUs have no ring and read pieces where they lie. */
template <int TYPE, int KIND> __global__ void __launch_bounds__(WARPS * 32, 1) gemv_packed_kernel(__grid_constant__ const struct call c)
{
    typedef piece<TYPE> P;
    extern __shared__ __align__(128) uint8_t smem[];
    const int per_tile = pieces_of<TYPE>(c.k), mine = (c.tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x,
              lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint16_t *xs = reinterpret_cast<uint16_t *>(smem + (size_t)WARPS * c.slots * P::BYTES);
    float *xsum = reinterpret_cast<float *>(xs + per_tile * P::STEP), *sums = xsum + per_tile * (P::STEP / 32);
    next_may_start();
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    ring<TYPE> r;
    r.start(c, smem, reinterpret_cast<uint64_t *>(sums + SUMS / 4), per_tile);
#else
    cursor<TYPE> r;
    r.start(c, per_tile);
#endif
    float gain[GROUPS][8];
    load_gains<KIND>(gain, c);
    prior_done();
    stage_x<KIND>(c, xs, xsum, sums, per_tile * (P::STEP / 8), (TYPE == DS_T_Q8_0 ? 128.f : 1.f) / 16777216.f, gain);

    int at = warp;                               /* the warp's next piece in tile i */
    for (int first = 0, turn = 0; first < mine; first += ROUND, turn ^= 1) {
        float *round = sums + turn * ROUND * WARPS * ROWS;
        for (int i = first; i < first + ROUND && i < mine; i++, at -= per_tile) {
            float acc[2] = { 0, 0 };
            for (; at < per_tile; at += WARPS) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
                const uint8_t *p = r.piece_here(smem, c);
#else
                const uint8_t *p = r.piece_at();
#endif
#pragma unroll
                for (int h = 0; h < P::PARTS; h++) {
                    const int k = at * P::STEP + h * PART;
                    if constexpr (TYPE == DS_T_Q8_0) add_part_q8(acc, p + h * P::PART_BYTES, xs + k, xsum + k / 32);
                    else add_part_q4k(acc, p + h * P::PART_BYTES, xs + k, xsum + k / 32);
                }
                r.next(c, per_tile);
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

extern "C" bool ds_cu_can_pack(int type, int k)
{
    return k <= 32768 && ((type == DS_T_Q8_0 && k % 32 == 0) || (type == DS_T_Q4_K && k % PART == 0));
}

extern "C" size_t ds_cu_packed_bytes(int type, int64_t rows, int k)
{
    const size_t tiles = (size_t)((rows + ROWS - 1) / ROWS);
    return type == DS_T_Q8_0 ? tiles * (size_t)pieces_of<DS_T_Q8_0>(k) * piece<DS_T_Q8_0>::BYTES
                             : tiles * (size_t)pieces_of<DS_T_Q4_K>(k) * piece<DS_T_Q4_K>::BYTES;
}

extern "C" cudaError_t ds_cu_pack(void *dst, const void *src, int type, int64_t rows, int k, cudaStream_t s)
{
    const int64_t parts = (rows + ROWS - 1) / ROWS * ((k + PART - 1) / PART + 1), blocks = (parts + 7) / 8;
    const unsigned grid = (unsigned)(blocks > 16384 ? 16384 : blocks);
    if (type == DS_T_Q8_0) pack_q8_kernel<<<grid, 256, 0, s>>>((uint8_t *)dst, (const uint8_t *)src, (int)rows, k);
    else pack_q4k_kernel<<<grid, 256, 0, s>>>((uint8_t *)dst, (const uint8_t *)src, (int)rows, k);
    return cudaGetLastError();
}

extern "C" bool ds_cu_gemv_makes(enum ds_cu_input kind, int k, int head)
{
    switch (kind) {
    case DS_CU_IN_NORM: return k % 8 == 0 && k <= GROUPS * WARPS * 32 * 8;
    case DS_CU_IN_GATED: return head == 128 && k % 256 == 0;
    case DS_CU_IN_SWIGLU: return k % 8 == 0;
    default: return false;
    }
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
        return r;
    }();
    return l;
}

template <int TYPE, int KIND> static cudaError_t launch_packed(struct call *c, cudaStream_t s)
{
    typedef piece<TYPE> P;
    const limits &l = limits_of_device();
    if (l.st != cudaSuccess) return l.st;
    static const cudaError_t raised =
        cudaFuncSetAttribute(gemv_packed_kernel<TYPE, KIND>, cudaFuncAttributeMaxDynamicSharedMemorySize, l.shared);
    if (raised != cudaSuccess) return raised;
    const int grid = c->tiles < l.sms ? c->tiles : l.sms, per_tile = pieces_of<TYPE>(c->k), slot = WARPS * (P::BYTES + 8);
    const int fixed = per_tile * (P::STEP * 2 + P::STEP / 32 * 4) + SUMS,
              most = ((c->tiles + grid - 1) / grid * per_tile + WARPS - 1) / WARPS;
    c->slots = can_overlap() ? (l.shared - fixed) / slot : 0;
    if (c->slots > most) c->slots = most;
    return launch(gemv_packed_kernel<TYPE, KIND>, dim3((unsigned)grid), WARPS * 32, (size_t)(fixed + c->slots * slot), s, *c);
}

template <int TYPE> static cudaError_t launch_kind(struct call *c, cudaStream_t s)
{
    switch (c->in.kind) {
    case DS_CU_IN_NORM: return launch_packed<TYPE, DS_CU_IN_NORM>(c, s);
    case DS_CU_IN_SWIGLU: return launch_packed<TYPE, DS_CU_IN_SWIGLU>(c, s);
    case DS_CU_IN_GATED: return launch_packed<TYPE, DS_CU_IN_GATED>(c, s);
    default: return launch_packed<TYPE, DS_CU_IN_BF16>(c, s);
    }
}

cudaError_t ds_cu_gemv_packed(const struct ds_cu_gemv *g, cudaStream_t s)
{
    struct call c = {};
    c.n_m = g->n_m, c.k = g->k, c.add = g->add, c.in = g->in;
    for (int i = 0; i < g->n_m; i++) {
        c.m[i] = { g->m[i].y, (const uint8_t *)g->m[i].w, g->m[i].rows, c.tiles, g->m[i].y_f32 };
        c.tiles += (g->m[i].rows + ROWS - 1) / ROWS;
    }
    return g->type == DS_T_Q8_0 ? launch_kind<DS_T_Q8_0>(&c, s) : launch_kind<DS_T_Q4_K>(&c, s);
}
