/* Causal attention with head dim 256 and f16 caches on Hopper's tensor cores.
 *
 * A block takes 128 queries of one head: two warpgroups of 64 queries, and one that gives its
 * registers away and brings tiles of 64 keys and values through tensor maps, two stages deep. Online softmax in
 * base 2, f32. While the tensor cores add P V of one tile, the scores of the next are already under way. Rows past
 * the last key read as zeros. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/sm90.cuh"

#include <cuda.h>

enum {
    QROWS = 128,
    KEYS = 64,
    HD = 256,
    BOXES = HD / 64,
    Q_BYTES = QROWS * HD * 2,
    KV_BYTES = KEYS * HD * 2,
    BOX = KEYS * 128,
    KV_STAGES = 2
};
enum { CONSUMERS = 256, THREADS = CONSUMERS + 128, SMEM = Q_BYTES + 2 * KV_STAGES * KV_BYTES };

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct barriers { uint32_t k_full, k_empty, v_full, v_empty; };   /* first of KV_STAGES each */

static __device__ __forceinline__ void produce(const CUtensorMap *kmap, const CUtensorMap *vmap, uint32_t ks, uint32_t vs,
                                               const barriers &b, int tiles, int col)
{
    for (int j = 0; j < tiles; j++) {
        const int s = j % KV_STAGES, round = j / KV_STAGES;
        if (round) barrier_wait(b.k_empty + 8 * s, (round - 1) & 1);
        barrier_expect(b.k_full + 8 * s, KV_BYTES);
        for (int i = 0; i < BOXES; i++) box_load(ks + s * KV_BYTES + i * BOX, kmap, col + 64 * i, j * KEYS, b.k_full + 8 * s);
        if (round) barrier_wait(b.v_empty + 8 * s, (round - 1) & 1);
        barrier_expect(b.v_full + 8 * s, KV_BYTES);
        for (int i = 0; i < BOXES; i++) box_load(vs + s * KV_BYTES + i * BOX, vmap, col + 64 * i, j * KEYS, b.v_full + 8 * s);
    }
}

/* The warpgroup's 64 query rows, bf16 in memory, as f16 tiles. */
static __device__ __forceinline__ void load_queries(uint8_t *q, const ds_cu_attn &c, int row0, int head, int wg)
{
    enum { LOADS = 64 * (HD / 8) / 128 };
    const int tid = threadIdx.x % 128;
    uint4 v[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; i++) {            /* all in flight before the first is used */
        const int at = i * 128 + tid, t = row0 + at / (HD / 8);
        v[i] = t < c.n ? __ldg(reinterpret_cast<const uint4 *>(c.qg + t * c.ldq + (int64_t)head * 2 * HD + at % (HD / 8) * 8))
                       : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int at = i * 128 + tid, r = at / (HD / 8), u = at % (HD / 8);
        *reinterpret_cast<uint4 *>(q + u / 8 * (QROWS * 128) + swizzled(wg * 64 + r, u % 8)) =
            make_uint4(bf16_to_f16(v[i].x), bf16_to_f16(v[i].y), bf16_to_f16(v[i].z), bf16_to_f16(v[i].w));
    }
    stores_to_async();
    asm volatile("bar.sync %0, 128;" ::"r"(1 + wg) : "memory");
}

struct softmax { float m[2], l[2]; };            /* of rows lane/4 and lane/4 + 8; l is this thread's share */

/* Scores to probabilities, in place; `keep` gets the factors for what was summed so far. */
static __device__ __forceinline__ void probabilities(float (&s)[32], float keep[2], softmax &sm, float scale, int first_masked0)
{
    if (first_masked0 < KEYS) {                  /* row r sees keys below first_masked0 + r - lane/4 */
        const int col = 2 * (threadIdx.x % 4);
#pragma unroll
        for (int i = 0; i < 32; i++)
            if (i / 4 * 8 + col + i % 2 >= first_masked0 + i / 2 % 2 * 8) s[i] = -INFINITY;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = sm.m[h];
#pragma unroll
        for (int i = 0; i < 16; i++) top = fmaxf(top, s[i / 2 * 4 + 2 * h + i % 2]);
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        keep[h] = exp2_fast((sm.m[h] - top) * scale);
        sm.m[h] = top;
        sm.l[h] *= keep[h];
        const float shift = top * scale;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float &v = s[i / 2 * 4 + 2 * h + i % 2];
            v = exp2_fast(v * scale - shift);
            sm.l[h] += v;
        }
    }
}

/* The A operand of the product with the values. */
static __device__ __forceinline__ void pack(uint32_t (&p)[4][4], const float (&s)[32])
{
#pragma unroll
    for (int ks = 0; ks < 4; ks++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const __half2 h = __floats2half2_rn(s[8 * ks + 2 * i], s[8 * ks + 2 * i + 1]);
            p[ks][i] = *reinterpret_cast<const uint32_t *>(&h);
        }
}

static __device__ __forceinline__ void scores(float (&s)[32], uint32_t q, uint32_t k)
{
    wgmma_64x64_ss<true>(s, desc_k_major(q), desc_k_major(k));
#pragma unroll
    for (int i = 1; i < HD / 16; i++)
        wgmma_64x64_ss<false>(s, desc_k_major(q + i / 4 * (QROWS * 128) + i % 4 * 32),
                              desc_k_major(k + i / 4 * BOX + i % 4 * 32));
    wgmma_commit();
}

static __device__ __forceinline__ void add_values(float (&o)[128], const uint32_t p[4][4], uint32_t v)
{
#pragma unroll
    for (int ks = 0; ks < 4; ks++) wgmma_64x256_n(o, p[ks], desc_n_major(v + ks * 2048, BOX));
    wgmma_commit();
}

static __device__ __forceinline__ void consume(const ds_cu_attn &c, uint8_t *smem, uint32_t qs, uint32_t ks, uint32_t vs,
                                               const barriers &b, int tiles, int q0, int head)
{
    const int wg = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, row0 = q0 + 64 * wg;
    const int64_t pos0 = c.pos + row0;
    const int mine = (int)((pos0 + KEYS - 1) / KEYS) + 1 < tiles ? (int)((pos0 + KEYS - 1) / KEYS) + 1
                                                                 : tiles;     /* tiles that any of my rows sees */
    const int64_t first = pos0 + 16 * warp + lane / 4 + 1;                    /* keys that my first row sees */
    const float scale = 0.0625f * 1.4426950408889634f;
    float o[128], s[32], keep[2];
    uint32_t p[4][4];
    softmax sm = { { -INFINITY, -INFINITY }, { 0, 0 } };

    load_queries(smem, c, row0, head, wg);
    const uint32_t q = qs + wg * (64 * 128);
#pragma unroll
    for (int i = 0; i < 128; i++) o[i] = 0;

    barrier_wait(b.k_full, 0);
    wgmma_fence();
    scores(s, q, ks);
    wgmma_wait<0>();
    wgmma_hold(s);
    if (lane == 0) barrier_arrive(b.k_empty);
    probabilities(s, keep, sm, scale, (int)(first < KEYS ? first : KEYS));
    pack(p, s);

    for (int j = 1; j < mine; j++) {
        const int cur = j % KV_STAGES, prev = (j - 1) % KV_STAGES;
        barrier_wait(b.v_full + 8 * prev, (j - 1) / KV_STAGES & 1);
        barrier_wait(b.k_full + 8 * cur, j / KV_STAGES & 1);
        wgmma_hold(o);
        wgmma_hold(p);
        wgmma_fence();
        scores(s, q, ks + cur * KV_BYTES);
        add_values(o, p, vs + prev * KV_BYTES);
        wgmma_wait<1>();
        wgmma_hold(s);
        if (lane == 0) barrier_arrive(b.k_empty + 8 * cur);
        const int64_t seen = first - (int64_t)j * KEYS;
        probabilities(s, keep, sm, scale, (int)(seen < KEYS ? seen : KEYS));
        wgmma_wait<0>();
        wgmma_hold(o);
        wgmma_hold(s);                           /* p is read until here, so it is not overwritten before */
        pack(p, s);
        if (lane == 0) barrier_arrive(b.v_empty + 8 * prev);
        if (__any_sync(~0u, keep[0] != 1.f || keep[1] != 1.f)) {
#pragma unroll
            for (int i = 0; i < 128; i++) o[i] *= keep[i / 2 % 2];
        }
    }
    const int last = (mine - 1) % KV_STAGES;
    barrier_wait(b.v_full + 8 * last, (mine - 1) / KV_STAGES & 1);
    wgmma_hold(o);
    wgmma_hold(p);
    wgmma_fence();
    add_values(o, p, vs + last * KV_BYTES);
    wgmma_wait<0>();
    wgmma_hold(o);
    if (lane == 0) {
        barrier_arrive(b.v_empty + 8 * last);
        for (int j = mine; j < tiles; j++) {     /* tiles that only the other warpgroup reads: released in their own turn */
            const int s = j % KV_STAGES, parity = j / KV_STAGES & 1;
            barrier_wait(b.k_full + 8 * s, parity);
            barrier_arrive(b.k_empty + 8 * s);
            barrier_wait(b.v_full + 8 * s, parity);
            barrier_arrive(b.v_empty + 8 * s);
        }
    }

#pragma unroll
    for (int h = 0; h < 2; h++) {
        sm.l[h] += __shfl_xor_sync(~0u, sm.l[h], 1);
        sm.l[h] += __shfl_xor_sync(~0u, sm.l[h], 2);
        const int t = row0 + 16 * warp + lane / 4 + 8 * h;
        if (t >= c.n) continue;
        const float inv = 1.f / sm.l[h];
        const uint16_t *gate = c.qg + t * c.ldq + (int64_t)head * 2 * HD + HD + 2 * (lane % 4);
        uint16_t *y = c.y + ((int64_t)t * c.n_head + head) * HD + 2 * (lane % 4);
        uint32_t gates[HD / 8];                  /* in flight together */
#pragma unroll
        for (int j = 0; j < HD / 8; j++) gates[j] = __ldg(reinterpret_cast<const uint32_t *>(gate + 8 * j));
#pragma unroll
        for (int j = 0; j < HD / 8; j++) {
            const uint32_t g = gates[j];
            *reinterpret_cast<uint32_t *>(y + 8 * j) =
                pack_bf16(o[4 * j + 2 * h] * inv * sigmoid_fast(__uint_as_float(g << 16)),
                          o[4 * j + 2 * h + 1] * inv * sigmoid_fast(__uint_as_float(g & 0xffff0000u)));
        }
    }
}
#endif

__global__ void __launch_bounds__(THREADS, 1) attn_sm90_kernel(ds_cu_attn c, const __grid_constant__ CUtensorMap kmap,
                                                               const __grid_constant__ CUtensorMap vmap)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ __align__(8) uint64_t bars[4 * KV_STAGES];
    const int head = blockIdx.x, q0 = (int)(gridDim.y - 1 - blockIdx.y) * QROWS;      /* the longest first */
    const int64_t keys = c.pos + (q0 + QROWS < c.n ? q0 + QROWS : c.n);
    const int tiles = (int)((keys + KEYS - 1) / KEYS);
    const uint32_t qs = shared_addr(smem), ks = qs + Q_BYTES, vs = ks + KV_STAGES * KV_BYTES, bar0 = shared_addr(bars);
    const barriers b = { bar0, bar0 + 8 * KV_STAGES, bar0 + 16 * KV_STAGES, bar0 + 24 * KV_STAGES };
    if (threadIdx.x == 0) {
        for (int i = 0; i < KV_STAGES; i++) {
            barrier_init(b.k_full + 8 * i, 1);
            barrier_init(b.v_full + 8 * i, 1);
            barrier_init(b.k_empty + 8 * i, CONSUMERS / 32);
            barrier_init(b.v_empty + 8 * i, CONSUMERS / 32);
        }
        barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMERS) {
        registers_give<24>();
        if (threadIdx.x == CONSUMERS) produce(&kmap, &vmap, ks, vs, b, tiles, head / (c.n_head / c.n_kv) * HD);
    } else {
        registers_take<240>();
        consume(c, smem, qs, ks, vs, b, tiles, q0, head);
    }
#endif
}

/* Tensor map of a cache of `rows` rows: boxes of 64 columns by 64 rows. */
static cudaError_t encode(CUtensorMap *map, const void *cache, int64_t rows, int cols)
{
    typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                                  const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                  CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    static encode_fn fn;                         /* the driver's entry point, the same for every caller */
    if (!fn) {
        void *p = nullptr;
        cudaDriverEntryPointQueryResult found;
        cudaError_t st = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000, cudaEnableDefault, &found);
        if (st != cudaSuccess || !p) return st != cudaSuccess ? st : cudaErrorNotSupported;
        fn = (encode_fn)p;
    }
    const cuuint64_t dims[2] = { (cuuint64_t)cols, (cuuint64_t)rows }, strides[1] = { (cuuint64_t)cols * 2 };
    const cuuint32_t box[2] = { 64, KEYS }, step[2] = { 1, 1 };
    const CUresult r =
        fn(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)cache, dims, strides, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
           CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

extern "C" bool ds_cu_attn_sm90_fits(const struct ds_cu_attn *c, int sm)
{
    return sm == 90 && c->hd == HD && c->f16 && c->ldq % 8 == 0 && (uintptr_t)c->qg % 16 == 0;
}

extern "C" cudaError_t ds_cu_attn_sm90(const struct ds_cu_attn *c, cudaStream_t s)
{
    CUtensorMap kmap, vmap;
    cudaError_t st = encode(&kmap, c->k, c->pos + c->n, c->n_kv * HD);
    if (st == cudaSuccess) st = encode(&vmap, c->v, c->pos + c->n, c->n_kv * HD);
    if (st == cudaSuccess) st = cudaFuncSetAttribute(attn_sm90_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM);
    if (st != cudaSuccess) return st;
    attn_sm90_kernel<<<dim3((unsigned)c->n_head, (unsigned)((c->n + QROWS - 1) / QROWS)), THREADS, SMEM, s>>>(*c, kmap, vmap);
    return cudaGetLastError();
}
