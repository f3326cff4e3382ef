/* Gated DeltaNet by chunks of 64 tokens on Hopper's tensor cores.
 *
 * With c the running sum of g inside a chunk, D_ij = exp(c_i - c_j), all of one chunk and value head:
 *     T = (I + A)^-1 diag(beta),  A_ij = beta_i k_i.k_j D_ij (j < i);      P_ij = q_i.k_j D_ij / sqrt(dk) (j <= i)
 *     R = V - diag(e^c) K S;   N = T R;   O = diag(e^c) Q S / sqrt(dk) + P N;   S <- e^c_last S + sum_j e^(c_last - c_j) k_j N_j'
 * Two kernels: gdn_prep.cu makes tiles of all chunks, scan carries S through the chunks and follows it. What
 * enters a tensor core is f16 (|T| <= 1 and |P| <= 1/sqrt(dk) because each step contracts; v saturates);
 * S, A, its inverse, c and all sums are f32. */
#include "backend/cuda/gdn_tiles.cuh"
#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/sm90.cuh"

/* --- scan. Block: one value head, 64 of its value columns; one warpgroup. S is kept transposed: its rows
 * are value columns, so every product chains through registers. --- */

enum { STAGES = 3, STAGE = KQ_TILE + TP_TILE + HALF_TILE + 1024 };

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
static __device__ __forceinline__ int chunk_of(const ds_cu_gdn &g, int t) { return t < g.first ? 0 : 1 + (t - g.first) / C; }

/* The A operand of k-step s out of an accumulator. */
static __device__ __forceinline__ void operand(uint32_t a[4], const float *d)
{
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = pack_f16(d[2 * i], d[2 * i + 1]);
}

/* Only rows lo .. hi-1 of the chunk run in this call: the others become tokens of value 0 that neither read nor write S.
 * T and P stay: a block on the diagonal of a unit lower triangular inverse is the inverse of that block. */
static __device__ __forceinline__ void narrow(uint8_t *v, float *e, int lo, int hi)
{
    const float before = lo > 0 ? e[E_C + lo - 1] : 0.f, last = e[E_C + hi - 1];
    const int row = threadIdx.x / 2;
    if (row < lo || row >= hi)
        for (int u = 0; u < 4; u++)
            *reinterpret_cast<uint4 *>(v + row * 128 + threadIdx.x % 2 * 64 + u * 16) = make_uint4(0, 0, 0, 0);
    if (threadIdx.x < C) {
        const int i = threadIdx.x;
        const bool runs = i >= lo && i < hi;
        e[E_UP + i] = runs ? expf(e[E_C + i] - before) : 0.f;
        e[E_DOWN + i] = runs ? expf(last - e[E_C + i]) : 0.f;
        if (i == 0) e[E_DECAY] = expf(last - before);
    }
    stores_to_async();                           /* the slot is refilled by bulk copies later */
    __syncthreads();
}

/* Once its tiles are complete: launch_no 0 does not ask. */
static __device__ __forceinline__ void load_chunk(uint32_t stage, uint32_t bar, const tiles &tl, const ds_cu_gdn &g, int chunk,
                                                  int head, int half, uint32_t launch_no)
{
    for (uint32_t done = 0; done != launch_no;)
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(done) : "l"(tl.ready + chunk * g.n_kh + head % g.n_kh) : "memory");
    const int64_t kt = (int64_t)chunk * g.n_kh + head % g.n_kh, vt = (int64_t)chunk * g.n_vh + head;
    barrier_expect(bar, KQ_TILE + TP_TILE + HALF_TILE + E_TILE);
    bulk_load(stage, tl.kq + kt * KQ_TILE, KQ_TILE, bar);
    bulk_load(stage + KQ_TILE, tl.tp + vt * TP_TILE, TP_TILE, bar);
    bulk_load(stage + KQ_TILE + TP_TILE, tl.v + vt * V_TILE + half * HALF_TILE, HALF_TILE, bar);
    bulk_load(stage + KQ_TILE + TP_TILE + HALF_TILE, tl.e + vt * (E_TILE / 4), E_TILE, bar);
}
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* The lane's rows row0 + 8 j, + 1 of the readout, those in lo .. hi-1. out: at row0. */
template <bool ALL>
static __device__ __forceinline__ void store_rows(float *out, const ds_cu_gdn &g, const float (&so)[32], int row0, int lo, int hi)
{
    const uint32_t ld = (uint32_t)g.n_vh * D;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        const int row = j / 2 * 8 + j % 2;
        float *p = out + (uint32_t)row * ld;
        if (!ALL && (row0 + row < lo || row0 + row >= hi)) continue;
        p[0] = so[j / 2 * 4 + j % 2];
        p[8] = so[j / 2 * 4 + j % 2 + 2];
    }
}
#endif

/* prep_blocks: blocks of the prep kernel that was launched just before and may still run, 0 when it is done. What was
 * before that one is done in either case. */
__global__ void __launch_bounds__(128, 1)
    scan_kernel(float *__restrict__ o, float *__restrict__ S, void *base, ds_cu_gdn g, int from, int to, int prep_blocks)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ __align__(8) uint64_t bars[STAGES];
    const tiles tl = tiles_at(base, g);
    const int chunk0 = chunk_of(g, from), nc = chunk_of(g, to - 1) + 1 - chunk0, head = blockIdx.x / 2, half = blockIdx.x % 2,
              warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int dv0 = half * 64 + 16 * warp + lane / 4, col0 = 2 * (lane % 4);
    const uint32_t ring = shared_addr(smem), bar0 = shared_addr(bars);
    float *Sh = S + (int64_t)head * D * D + dv0;

    uint32_t launch_no = 0;
    if (!prep_blocks) prior_done();
    if (threadIdx.x == 0) {
        if (prep_blocks) launch_no = (uint32_t)(*(volatile unsigned long long *)tl.launches / prep_blocks);
        for (int i = 0; i < STAGES; i++) barrier_init(bar0 + 8 * i, 1);
        barrier_init_done();
        for (int i = 0; i < STAGES && i < nc; i++) load_chunk(ring + i * STAGE, bar0 + 8 * i, tl, g, chunk0 + i, head, half, launch_no);
    }
    float st[64];
#pragma unroll
    for (int i = 0; i < 64; i++) st[i] = Sh[(int64_t)(i / 4 * 8 + col0 + i % 2) * D + i / 2 % 2 * 8];
    __syncthreads();

    const float scale = rsqrtf((float)D);
    for (int i = 0; i < nc; i++) {
        const int chunk = chunk0 + i, slot = i % STAGES;
        int t0, len;
        chunk_span(g, chunk, &t0, &len);
        const uint32_t kt = ring + slot * STAGE, qt = kt + 2 * HALF_TILE, tt = kt + KQ_TILE, pt = tt + HALF_TILE,
                       vt = tt + TP_TILE;
        float *e = reinterpret_cast<float *>(smem + slot * STAGE + KQ_TILE + TP_TILE + HALF_TILE);
        barrier_wait(bar0 + 8 * slot, i / STAGES & 1);
        const int lo = from - t0 > 0 ? from - t0 : 0, hi = to - t0 < len ? to - t0 : len;    /* rows of this call */
        if (lo > 0 || hi < len) narrow(smem + (vt - ring), e, lo, hi);

        float sk[32], so[32];
        uint32_t n16[4][4], ns[4][4];
        {
            uint32_t a[8][4], v[4][4], r[4][4];
            float2 ec[8];
#pragma unroll
            for (int ks = 0; ks < 8; ks++) operand(a[ks], st + 8 * ks);
            wgmma_hold(a);
            wgmma_fence();
            wgmma_64x64<true>(sk, a[0], desc_k_major(kt));
#pragma unroll
            for (int ks = 1; ks < 8; ks++) wgmma_64x64<false>(sk, a[ks], desc_k_major(kt + ks / 4 * HALF_TILE + ks % 4 * 32));
            wgmma_commit();
            wgmma_64x64<true>(so, a[0], desc_k_major(qt));
#pragma unroll
            for (int ks = 1; ks < 8; ks++) wgmma_64x64<false>(so, a[ks], desc_k_major(qt + ks / 4 * HALF_TILE + ks % 4 * 32));
            wgmma_commit();
#pragma unroll
            for (int j = 0; j < 8; j++) ec[j] = *reinterpret_cast<const float2 *>(e + E_UP + 8 * j + col0);
#pragma unroll
            for (int j = 0; j < 8; j += 2)
                ldmatrix_x4_trans(v[j / 2], vt + swizzled(8 * (j + lane / 16) + lane % 8, 2 * warp + lane / 8 % 2));
            wgmma_wait<1>();
            wgmma_hold(sk);                      /* a and so are in flight until the next wait */
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float2 vv = __half22float2(*reinterpret_cast<const __half2 *>(&v[j][i])), x = ec[2 * j + i / 2];
                    r[j][i] = pack_f16(vv.x - x.x * sk[8 * j + 2 * i], vv.y - x.y * sk[8 * j + 2 * i + 1]);
                }
            wgmma_hold(r);
            wgmma_fence();
            float n[32];
            wgmma_64x64<true>(n, r[0], desc_k_major(tt));
#pragma unroll
            for (int ks = 1; ks < 4; ks++) wgmma_64x64<false>(n, r[ks], desc_k_major(tt + ks * 32));
            wgmma_commit();
            wgmma_wait<1>();
            wgmma_hold(so);                      /* Q S is there: scaled while N is computed */
            const float decay = e[E_DECAY];
#pragma unroll
            for (int i = 0; i < 64; i++) st[i] *= decay;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                so[4 * j] *= ec[j].x * scale;
                so[4 * j + 1] *= ec[j].y * scale;
                so[4 * j + 2] *= ec[j].x * scale;
                so[4 * j + 3] *= ec[j].y * scale;
            }
            float2 el[8];
#pragma unroll
            for (int j = 0; j < 8; j++) el[j] = *reinterpret_cast<const float2 *>(e + E_DOWN + 8 * j + col0);
            wgmma_hold(st);
            wgmma_hold(so);
            wgmma_wait<0>();
            wgmma_hold(n);
#pragma unroll
            for (int ks = 0; ks < 4; ks++) {
                operand(n16[ks], n + 8 * ks);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float2 x = el[2 * ks + i / 2];
                    ns[ks][i] = pack_f16(n[8 * ks + 2 * i] * x.x, n[8 * ks + 2 * i + 1] * x.y);
                }
            }
        }
        wgmma_hold(st);
        wgmma_hold(so);
        wgmma_hold(n16);
        wgmma_hold(ns);
        wgmma_fence();
#pragma unroll
        for (int ks = 0; ks < 4; ks++) wgmma_64x64<false>(so, n16[ks], desc_k_major(pt + ks * 32));
        wgmma_commit();
#pragma unroll
        for (int ks = 0; ks < 4; ks++) wgmma_64x128_n(st, ns[ks], desc_n_major(kt + ks * 2048, HALF_TILE));
        wgmma_commit();
        wgmma_wait<1>();
        wgmma_hold(so);

        float *out = o + ((int64_t)(t0 + col0) * g.n_vh + head) * D + dv0;
        if (hi - lo == C) store_rows<true>(out, g, so, 0, 0, C);
        else store_rows<false>(out, g, so, col0, lo, hi);
        wgmma_wait<0>();
        wgmma_hold(st);
        __syncthreads();                         /* every warp is done with this slot */
        if (threadIdx.x == 0 && i + STAGES < nc) load_chunk(kt, bar0 + 8 * slot, tl, g, chunk + STAGES, head, half, launch_no);
    }
#pragma unroll
    for (int i = 0; i < 64; i++) Sh[(int64_t)(i / 4 * 8 + col0 + i % 2) * D + i / 2 % 2 * 8] = st[i];
    if (prep_blocks) prior_done();
#endif
}

extern "C" cudaError_t ds_cu_gdn_chunk(float *o, float *S, const void *tiles, const struct ds_cu_gdn *g, int t0, int t1,
                                       bool follows, cudaStream_t s)
{
    static const cudaError_t raised =
        cudaFuncSetAttribute(scan_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, STAGES * STAGE);
    if (raised != cudaSuccess) return raised;
    return launch(scan_kernel, dim3((unsigned)(2 * g->n_vh)), 128, STAGES * STAGE, s, o, S, (void *)tiles, *g, t0, t1,
                  follows && can_watch(*g) ? ds_cu_gdn_prep_blocks() : 0);
}
