/* Gated DeltaNet by chunks of 64 tokens on Hopper's tensor cores.
 *
 * With c the running sum of g inside a chunk, D_ij = exp(c_i - c_j), all of one chunk and value head:
 *     T = (I + A)^-1 diag(beta),  A_ij = beta_i k_i.k_j D_ij (j < i);      P_ij = q_i.k_j D_ij / sqrt(dk) (j <= i)
 *     R = V - diag(e^c) K S;   N = T R;   O = diag(e^c) Q S / sqrt(dk) + P N;   S <- e^c_last S + sum_j e^(c_last - c_j) k_j N_j'
 * Three kernels. conv_tiles and gram run over all chunks at once; scan carries S through the chunks. What
 * enters a tensor core is f16 (|T| <= 1 and |P| <= 1/sqrt(dk) because each step contracts; v saturates);
 * S, A, its inverse, c and all sums are f32.
 *
 * Tiles, one after another (see ds_cu_gdn_chunk_bytes): K and Q per (chunk, key head), V per (chunk, value
 * head), T and P per (chunk, value head), gates likewise; swizzled as sm90.cuh says, heads of
 * 128 as two halves of 64 columns. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/sm90.cuh"

enum {
    C = 64,
    D = 128,
    HALF_TILE = C * 128,
    KQ_TILE = 4 * HALF_TILE,
    V_TILE = 2 * HALF_TILE,
    TP_TILE = 2 * HALF_TILE,
    E_TILE = 4 * C * 4
};

struct tiles { uint8_t *kq, *v, *tp; float *e; };
enum { E_UP = 0, E_DOWN = C, E_C = 2 * C, E_DECAY = 3 * C };     /* in a tile of e: e^c, e^(c_last - c), c, e^c_last */

static __host__ __device__ int n_chunks(const ds_cu_gdn &g) { return g.n <= g.first ? 1 : 1 + (g.n - g.first + C - 1) / C; }

static __device__ __forceinline__ tiles tiles_at(void *base, const ds_cu_gdn &g)
{
    const int64_t nc = n_chunks(g);
    tiles t;
    t.kq = (uint8_t *)base;
    t.v = t.kq + nc * g.n_kh * KQ_TILE;
    t.tp = t.v + nc * g.n_vh * V_TILE;
    t.e = (float *)(t.tp + nc * g.n_vh * TP_TILE);
    return t;
}

static __device__ __forceinline__ void chunk_span(const ds_cu_gdn &g, int chunk, int *t0, int *len)
{
    *t0 = chunk ? g.first + (chunk - 1) * C : 0;
    const int left = g.n - *t0, full = chunk ? C : g.first;
    *len = left < full ? left : full;
}

/* --- convolution, SiLU, unit length. Block: one chunk of one head; warp: 8 tokens; lane: 4 channels. --- */

enum { CONV_ROWS = 8, CONV_THREADS = 32 * C / CONV_ROWS };

__global__ void __launch_bounds__(CONV_THREADS, 3)
    conv_tiles_kernel(void *base, const float *__restrict__ hist, const uint16_t *__restrict__ u, int64_t ldu,
                      const float *__restrict__ conv_w, ds_cu_gdn g)
{
    const tiles tl = tiles_at(base, g);
    const int chunk = blockIdx.y, part = blockIdx.x, lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * CONV_ROWS;
    const int c0 = part * D + lane * 4, channels = 2 * g.n_kh * D + g.n_vh * D;
    int t0, len;
    chunk_span(g, chunk, &t0, &len);

    uint2 raw[CONV_ROWS + 3];                    /* bf16 inputs, all in flight before the first is used */
#pragma unroll
    for (int r = 0; r < CONV_ROWS + 3; r++) {
        const int row = row0 + r - 3, m = t0 + row;
        raw[r] = m >= 0 && row < len ? __ldg(reinterpret_cast<const uint2 *>(u + m * ldu + c0)) : make_uint2(0, 0);
    }
    float w[4][4], win[4][4];                    /* taps; the last four inputs of each channel */
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float4 f = __ldg(reinterpret_cast<const float4 *>(conv_w) + c0 + i);
        w[i][0] = f.x, w[i][1] = f.y, w[i][2] = f.z, w[i][3] = f.w;
    }
    uint8_t *tile = tl.v + ((int64_t)chunk * g.n_vh + part - 2 * g.n_kh) * V_TILE;
    if (part < g.n_kh) tile = tl.kq + ((int64_t)chunk * g.n_kh + part) * KQ_TILE + 2 * HALF_TILE;
    else if (part < 2 * g.n_kh) tile = tl.kq + ((int64_t)chunk * g.n_kh + part - g.n_kh) * KQ_TILE;
    tile += lane / 16 * HALF_TILE + lane % 2 * 8;
#pragma unroll
    for (int r = 0; r < CONV_ROWS + 3; r++) {
        const int row = row0 + r - 3, m = t0 + row;
        float *in = win[r % 4];
        in[0] = __uint_as_float(raw[r].x << 16);
        in[1] = __uint_as_float(raw[r].x & 0xffff0000u);
        in[2] = __uint_as_float(raw[r].y << 16);
        in[3] = __uint_as_float(raw[r].y & 0xffff0000u);
        if (m < 0)
#pragma unroll
            for (int i = 0; i < 4; i++) in[i] = hist[(int64_t)(3 + m) * channels + c0 + i];
        if (r < 3) continue;
        float f[4], sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float s = w[i][0] * win[(r + 1) % 4][i] + w[i][1] * win[(r + 2) % 4][i] + w[i][2] * win[(r + 3) % 4][i] +
                            w[i][3] * win[r % 4][i];
            f[i] = row < len ? silu_fast(s) : 0.f;           /* rows past the end are zero tokens */
            sum += f[i] * f[i];
        }
        if (part < 2 * g.n_kh) {
            const float s = 1.f / fmaxf(sqrtf(warp_sum(sum)), g.eps);
#pragma unroll
            for (int i = 0; i < 4; i++) f[i] *= s;
        }
        *reinterpret_cast<uint2 *>(tile + swizzled(row, lane / 2 % 8)) = make_uint2(pack_f16(f[0], f[1]), pack_f16(f[2], f[3]));
    }
}

/* --- Gram products, decay, inverse. Block: one chunk of one value head. --- */

static __device__ __forceinline__ void ldmatrix_x4(uint32_t r[4], uint32_t addr)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr)
                 : "memory");
}
static __device__ __forceinline__ void mma_f16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

enum { A_LD = C + 4, GRAM_THREADS = 128 };       /* floats of a row of A: 16-byte aligned, banks spread */

struct gram_shared {
    union {
        uint8_t kq[KQ_TILE];                     /* until the products are done */
        struct { uint8_t p[HALF_TILE]; float x[C * A_LD]; } done;
    };
    float a[C * A_LD], y[C / 2 * (C / 2 + 4)], c[C], beta[C];
};

/* One 16 x 16 block on the diagonal of X = (I + A)^-1 by forward substitution, a column per lane. */
static __device__ __forceinline__ void solve_diagonal(float *x, const float *a, int at)
{
    const int j = threadIdx.x % 16;
    float col[16];
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float s = i == j ? 1.f : 0.f, s2 = 0;
#pragma unroll
        for (int m = 0; m < i; m += 4) {
            const float4 r = *reinterpret_cast<const float4 *>(a + (at + i) * A_LD + at + m);
            s -= r.x * col[m];
            if (m + 1 < i) s2 -= r.y * col[m + 1];
            if (m + 2 < i) s -= r.z * col[m + 2];
            if (m + 3 < i) s2 -= r.w * col[m + 3];
        }
        col[i] = s + s2;
    }
    if (threadIdx.x % 32 < 16)
#pragma unroll
        for (int i = 0; i < 16; i++) x[(at + i) * A_LD + at + j] = col[i];
}

/* TF32 keeps 10 bits of mantissa, rounded to nearest here; sums are f32. */
static __device__ __forceinline__ uint32_t to_tf32(float v)
{
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
    return r;
}

/* out[16 rows x 8 columns] = SIGN l r, l [16 x K], r [K x 8]: one warp. Rows of each lie ld floats apart. */
template <int K, int SIGN>
static __device__ __forceinline__ void tile_product(float *out, int ld_out, const float *l, int ld_l, const float *r, int ld_r)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float d[4] = {};
#pragma unroll
    for (int k = 0; k < K; k += 8) {
        const uint32_t a0 = to_tf32(l[g * ld_l + k + t]), a1 = to_tf32(l[(g + 8) * ld_l + k + t]);
        const uint32_t a2 = to_tf32(l[g * ld_l + k + t + 4]), a3 = to_tf32(l[(g + 8) * ld_l + k + t + 4]);
        const uint32_t b0 = to_tf32(r[(k + t) * ld_r + g]), b1 = to_tf32(r[(k + t + 4) * ld_r + g]);
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
    *reinterpret_cast<float2 *>(out + g * ld_out + 2 * t) = make_float2(SIGN * d[0], SIGN * d[1]);
    *reinterpret_cast<float2 *>(out + (g + 8) * ld_out + 2 * t) = make_float2(SIGN * d[2], SIGN * d[3]);
}

/* X = (I + A)^-1 from blocks: [L11 0; L21 L22]^-1 = [X11 0; -X22 L21 X11, X22], 16 to 32 to 64. The blocks on the diagonal
 * are solved in f32; a product that joins two has TF32 operands, an error of the order of what rounding X to f16 adds
 * later. Upper blocks beyond those on the diagonal are not written. */
static __device__ __forceinline__ void invert(float *x, const float *a, float *y)
{
    enum { LDY = C / 2 + 4 };
    const int warp = threadIdx.x / 32, at = warp / 2 * 32, n8 = warp % 2 * 8, row = warp / 2 * 16;
    solve_diagonal(x, a, 16 * warp);
    for (int i = threadIdx.x % 64; i < 16 * 16; i += 64)         /* 32 x 32 blocks are read whole */
        x[(at + i / 16) * A_LD + at + 16 + i % 16] = 0;
    __syncthreads();
    /* two warps for each pair of 16 x 16 blocks, 8 columns each; a warp reads the columns of y that it wrote */
    tile_product<16, 1>(y + row * LDY + n8, LDY, a + (at + 16) * A_LD + at, A_LD, x + at * A_LD + at + n8, A_LD);
    __syncwarp();
    tile_product<16, -1>(x + (at + 16) * A_LD + at + n8, A_LD, x + (at + 16) * A_LD + at + 16, A_LD, y + row * LDY + n8, LDY);
    __syncthreads();
    /* one pair of 32 x 32 blocks: 8 columns a warp, two tiles of 16 rows */
    const int c8 = warp * 8;
    for (int r = 0; r < 32; r += 16) tile_product<32, 1>(y + r * LDY + c8, LDY, a + (32 + r) * A_LD, A_LD, x + c8, A_LD);
    __syncwarp();
    for (int r = 0; r < 32; r += 16)
        tile_product<32, -1>(x + (32 + r) * A_LD + c8, A_LD, x + (32 + r) * A_LD + 32, A_LD, y + c8, LDY);
    __syncthreads();
}

/* The tile of e to memory; c and beta to shared memory. One warp, two tokens a lane. */
static __device__ __forceinline__ void gates(float *c, float *beta, float *e, const uint16_t *a, int64_t lda, const uint16_t *b,
                                             int64_t ldb, float rate, float dt, int t0, int len)
{
    const int lane = threadIdx.x % 32;
    float gs[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = 2 * lane + i;
        gs[i] = 0;
        float bt = 0;
        if (row < len) {
            const float x = bf16_bits(a[(int64_t)(t0 + row) * lda]) + dt;
            gs[i] = rate * (x > 20.f ? x : log1pf(expf(x)));
            bt = sigmoidf(bf16_bits(b[(int64_t)(t0 + row) * ldb]));
        }
        beta[row] = bt;
    }
    float sum = gs[0] + gs[1];
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        const float up = __shfl_up_sync(~0u, sum, o);
        if (lane >= o) sum += up;
    }
    const float last = __shfl_sync(~0u, sum, 31), c0 = sum - gs[1];
    c[2 * lane] = c0;
    c[2 * lane + 1] = sum;
    reinterpret_cast<float2 *>(e + E_UP)[lane] = make_float2(expf(c0), expf(sum));
    reinterpret_cast<float2 *>(e + E_DOWN)[lane] = make_float2(expf(last - c0), expf(last - sum));
    reinterpret_cast<float2 *>(e + E_C)[lane] = make_float2(c0, sum);
    if (lane == 31) e[E_DECAY] = expf(last);
}

/* hist <- the last rows of [hist; u], by the value heads' blocks together. */
static __device__ __forceinline__ void keep_history(float *hist, const uint16_t *u, int64_t ldu, const ds_cu_gdn &g)
{
    const int channels = 2 * g.n_kh * D + g.n_vh * D;
    for (int c = blockIdx.x * GRAM_THREADS + threadIdx.x; c < channels; c += g.n_vh * GRAM_THREADS)
        for (int r = 0; r < 3; r++) {            /* rising r reads only rows not yet written */
            const int m = r + g.n - 3;
            hist[(int64_t)r * channels + c] = m < 0 ? hist[(int64_t)(3 + m) * channels + c] : bf16_bits(u[m * ldu + c]);
        }
}

__global__ void __launch_bounds__(GRAM_THREADS, 4)
    gram_kernel(void *base, float *__restrict__ hist, const uint16_t *__restrict__ u, int64_t ldu, const uint16_t *__restrict__ a,
                int64_t lda, const uint16_t *__restrict__ b, int64_t ldb, const float *__restrict__ ssm_a,
                const float *__restrict__ ssm_dt, ds_cu_gdn g)
{
    extern __shared__ __align__(1024) uint8_t raw[];
    gram_shared &sh = *reinterpret_cast<gram_shared *>(raw);
    const tiles tl = tiles_at(base, g);
    const int chunk = blockIdx.y, h = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (chunk == n_chunks(g)) {                  /* the last row of blocks: nobody reads the history any more */
        keep_history(hist, u, ldu, g);
        return;
    }
    int t0, len;
    chunk_span(g, chunk, &t0, &len);

    const uint4 *src = reinterpret_cast<const uint4 *>(tl.kq + ((int64_t)chunk * g.n_kh + h % g.n_kh) * KQ_TILE);
    uint4 in[KQ_TILE / 16 / GRAM_THREADS];
#pragma unroll
    for (int i = 0; i < KQ_TILE / 16 / GRAM_THREADS; i++) in[i] = __ldg(src + i * GRAM_THREADS + threadIdx.x);
    if (warp == 0)
        gates(sh.c, sh.beta, tl.e + ((int64_t)chunk * g.n_vh + h) * (E_TILE / 4), a + h, lda, b + h, ldb, ssm_a[h], ssm_dt[h], t0,
              len);
#pragma unroll
    for (int i = 0; i < KQ_TILE / 16 / GRAM_THREADS; i++)
        reinterpret_cast<uint4 *>(sh.kq)[i * GRAM_THREADS + threadIdx.x] = in[i];
    __syncthreads();

    /* a warp has rows 16 warp .. of both products, columns up to the diagonal */
    float kk[8][4] = {}, qk[8][4] = {};
    const uint32_t kt = shared_addr(sh.kq), qt = kt + 2 * HALF_TILE;
#pragma unroll
    for (int ks = 0; ks < 8; ks++) {
        uint32_t ka[4], qa[4];
        const uint32_t at = ks / 4 * HALF_TILE + swizzled(16 * warp + lane % 16, ks % 4 * 2 + lane / 16);
        ldmatrix_x4(ka, kt + at);
        ldmatrix_x4(qa, qt + at);
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            if (j > 2 * warp + 1) break;
            uint32_t kb[4];
            ldmatrix_x4(kb, kt + ks / 4 * HALF_TILE + swizzled(8 * j + lane % 8 + lane / 16 * 8, ks % 4 * 2 + lane / 8 % 2));
            mma_f16(kk[j], ka, kb[0], kb[1]);
            mma_f16(kk[j + 1], ka, kb[2], kb[3]);
            mma_f16(qk[j], qa, kb[0], kb[1]);
            mma_f16(qk[j + 1], qa, kb[2], kb[3]);
        }
    }
    __syncthreads();                             /* the tiles of K and Q are dead: P and X take their place */
    const float scale = rsqrtf((float)D);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = 16 * warp + lane / 4 + 8 * half;
        const float cr = sh.c[row], bt = sh.beta[row];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const int col = 8 * j + 2 * (lane % 4);
            uint32_t *p = reinterpret_cast<uint32_t *>(sh.done.p + swizzled(row, col / 8) + col % 8 * 2);
            if (j > 2 * warp + 1) {              /* above the diagonal, where A is not read */
                *p = 0;
                continue;
            }
            const float2 cc = *reinterpret_cast<const float2 *>(sh.c + col);
            /* masked before exp: above the diagonal the difference is positive */
            const float d0 = exp_fast(col <= row ? cr - cc.x : -INFINITY), d1 = exp_fast(col < row ? cr - cc.y : -INFINITY);
            *p = pack_f16(qk[j][2 * half] * scale * d0, qk[j][2 * half + 1] * scale * d1);
            *reinterpret_cast<float2 *>(sh.a + row * A_LD + col) =
                make_float2(col < row ? bt * kk[j][2 * half] * d0 : 0.f, col + 1 < row ? bt * kk[j][2 * half + 1] * d1 : 0.f);
        }
    }
    __syncthreads();
    invert(sh.done.x, sh.a, sh.y);
    uint4 *dst = reinterpret_cast<uint4 *>(tl.tp + ((int64_t)chunk * g.n_vh + h) * TP_TILE);
#pragma unroll
    for (int i = 0; i < C * 8 / GRAM_THREADS; i++) {
        const int at = i * GRAM_THREADS + threadIdx.x, row = at / 8, col = at % 8 * 8;
        uint4 o = make_uint4(0, 0, 0, 0);
        if (col / 16 <= row / 16) {
            const float4 x0 = *reinterpret_cast<const float4 *>(sh.done.x + row * A_LD + col),
                         b0 = *reinterpret_cast<const float4 *>(sh.beta + col);
            const float4 x1 = *reinterpret_cast<const float4 *>(sh.done.x + row * A_LD + col + 4);
            const float4 b1 = *reinterpret_cast<const float4 *>(sh.beta + col + 4);
            o = make_uint4(pack_f16(x0.x * b0.x, x0.y * b0.y), pack_f16(x0.z * b0.z, x0.w * b0.w),
                           pack_f16(x1.x * b1.x, x1.y * b1.y), pack_f16(x1.z * b1.z, x1.w * b1.w));
        }
        dst[swizzled(row, at % 8) / 16] = o;
        dst[HALF_TILE / 16 + at] = reinterpret_cast<const uint4 *>(sh.done.p)[at];
    }
}

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

static __device__ __forceinline__ void load_chunk(uint32_t stage, uint32_t bar, const tiles &tl, const ds_cu_gdn &g, int chunk,
                                                  int head, int half)
{
    const int64_t kt = (int64_t)chunk * g.n_kh + head % g.n_kh, vt = (int64_t)chunk * g.n_vh + head;
    barrier_expect(bar, KQ_TILE + TP_TILE + HALF_TILE + E_TILE);
    bulk_load(stage, tl.kq + kt * KQ_TILE, KQ_TILE, bar);
    bulk_load(stage + KQ_TILE, tl.tp + vt * TP_TILE, TP_TILE, bar);
    bulk_load(stage + KQ_TILE + TP_TILE, tl.v + vt * V_TILE + half * HALF_TILE, HALF_TILE, bar);
    bulk_load(stage + KQ_TILE + TP_TILE + HALF_TILE, tl.e + vt * (E_TILE / 4), E_TILE, bar);
}
#endif

__global__ void __launch_bounds__(128, 1)
    scan_kernel(float *__restrict__ o, float *__restrict__ S, void *base, ds_cu_gdn g, int from, int to)
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

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) barrier_init(bar0 + 8 * i, 1);
        barrier_init_done();
        for (int i = 0; i < STAGES && i < nc; i++) load_chunk(ring + i * STAGE, bar0 + 8 * i, tl, g, chunk0 + i, head, half);
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

        float *out = o + ((int64_t)t0 * g.n_vh + head) * D + dv0;
#pragma unroll
        for (int j = 0; j < 32; j++) {
            const int row = j / 4 * 8 + col0 + j % 2;
            if (row >= lo && row < hi) out[(int64_t)row * g.n_vh * D + j / 2 % 2 * 8] = so[j];
        }
        wgmma_wait<0>();
        wgmma_hold(st);
        __syncthreads();                         /* every warp is done with this slot */
        if (threadIdx.x == 0 && i + STAGES < nc) load_chunk(kt, bar0 + 8 * slot, tl, g, chunk + STAGES, head, half);
    }
#pragma unroll
    for (int i = 0; i < 64; i++) Sh[(int64_t)(i / 4 * 8 + col0 + i % 2) * D + i / 2 % 2 * 8] = st[i];
#endif
}

/* --- launchers --- */

extern "C" bool ds_cu_gdn_chunk_fits(const struct ds_cu_gdn *g, int sm)
{
    return sm == 90 && g->dk == D && g->dv == D && g->conv_k == 4 && g->n_vh % g->n_kh == 0;
}

extern "C" size_t ds_cu_gdn_chunk_bytes(const struct ds_cu_gdn *g, int n)
{
    return (size_t)(n / C + 2) * ((size_t)g->n_kh * KQ_TILE + (size_t)g->n_vh * (V_TILE + TP_TILE + E_TILE));
}

extern "C" cudaError_t ds_cu_gdn_prep_chunk(void *tiles, float *hist, const uint16_t *u, int64_t ldu, const uint16_t *a,
                                            int64_t lda, const uint16_t *b, int64_t ldb, const float *conv_w, const float *ssm_a,
                                            const float *ssm_dt, const struct ds_cu_gdn *g, cudaStream_t s)
{
    conv_tiles_kernel<<<dim3((unsigned)(2 * g->n_kh + g->n_vh), (unsigned)n_chunks(*g)), CONV_THREADS, 0, s>>>(tiles, hist, u,
                                                                                                               ldu, conv_w, *g);
    cudaError_t st = cudaGetLastError();
    if (st != cudaSuccess) return st;
    st = cudaFuncSetAttribute(gram_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(gram_shared));
    if (st != cudaSuccess) return st;
    gram_kernel<<<dim3((unsigned)g->n_vh, (unsigned)n_chunks(*g) + 1), GRAM_THREADS, sizeof(gram_shared), s>>>(
        tiles, hist, u, ldu, a, lda, b, ldb, ssm_a, ssm_dt, *g);
    return cudaGetLastError();
}

extern "C" cudaError_t ds_cu_gdn_chunk(float *o, float *S, const void *tiles, const struct ds_cu_gdn *g, int t0, int t1,
                                       cudaStream_t s)
{
    cudaError_t st = cudaFuncSetAttribute(scan_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, STAGES * STAGE);
    if (st != cudaSuccess) return st;
    scan_kernel<<<(unsigned)(2 * g->n_vh), 128, STAGES * STAGE, s>>>(o, S, (void *)tiles, *g, t0, t1);
    return cudaGetLastError();
}
