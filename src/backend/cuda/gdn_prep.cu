/* First half of the chunked recurrence (gdn_chunk.cu): convolution, SiLU and unit length, gates, Gram products, decay and
 * inverse, into tiles.
 *
 * One block an SM takes (chunk, key head) after (chunk, key head), the chunks in order, and says when each is complete, so
 * that the scan behind it follows in step and shares the SMs with it (64 registers a thread and 54 KB leave room for the
 * scan's). Four groups of four warps: two have K K', make A of every other value head and invert it in place; one has Q K'
 * and makes P; the last makes the gates. Whoever is done convolves v, and k and q of the next piece of work. */
#include "backend/cuda/gdn_tiles.cuh"
#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/sm90.cuh"

enum {
    THREADS = 512,
    GROUP = 128,                                 /* four warps; a group has the barrier of its number + 1 */
    WEIGHTS = 2,                                 /* the group that makes P */
    GATES = 3,
    PRODUCTS_DONE = 5,                           /* a barrier of all */
    MAX_RATIO = 4,                               /* value heads of a key head */
    CONV_ROWS = 4,                               /* tokens of a warp at a time: more would not fit into registers */
    A_LD = C + 4                                 /* floats of a row of A: 16-byte aligned, banks spread */
};

struct work {
    union {
        uint8_t kq[KQ_TILE];                     /* until the products are done */
        float a[2][C * A_LD];                    /* A, then X = (I + A)^-1 in its place */
    };
    uint8_t p[HALF_TILE];
    float y[2][C / 2 * (C / 2 + 4)], c[MAX_RATIO][C], beta[MAX_RATIO][C];     /* c times log2 e */
    int turn;                                    /* next piece of convolution */
};

static __device__ __forceinline__ int group() { return threadIdx.x / GROUP; }
static __device__ __forceinline__ void sync_group() { asm volatile("bar.sync %0, 128;" ::"r"(group() + 1) : "memory"); }

/* --- convolution. A lane has 4 channels, a warp 128: one head. --- */

struct conv_in {
    const float *hist;
    const uint16_t *u;
    int64_t ldu;
    const float *w;
    int channels;
};

static __device__ __forceinline__ void unpack(float (&f)[4], uint2 v)
{
    f[0] = __uint_as_float(v.x << 16);
    f[1] = __uint_as_float(v.x & 0xffff0000u);
    f[2] = __uint_as_float(v.y << 16);
    f[3] = __uint_as_float(v.y & 0xffff0000u);
}

/* Tokens m .. m+3 of channels c0 .. to rows row .. of a tile (its lane's place), UNIT: scaled to unit length. live: how many of
 * them there are; the others are tokens of zero. */
template <bool UNIT>
static __device__ __forceinline__ void conv(const conv_in &in, int c0, int m, int live, float eps, uint8_t *tile, int row)
{
    const char *u = (const char *)(in.u + c0);
    const uint32_t ld = 2 * (uint32_t)in.ldu, last = (uint32_t)(m + live - 1);
    uint2 raw[CONV_ROWS + 3];                    /* bf16, all in flight together; rows that do not exist are read elsewhere */
#pragma unroll
    for (int r = 0; r < CONV_ROWS + 3; r++) {
        const int at = m + r - 3;
        raw[r] = __ldg(reinterpret_cast<const uint2 *>(u + (uint64_t)min((uint32_t)(at < 0 ? 0 : at), last) * ld));
    }
    float w[4][4], win[4][4];                    /* taps; the last four inputs of each channel */
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float4 f = __ldg(reinterpret_cast<const float4 *>(in.w) + c0 + i);
        w[i][0] = f.x, w[i][1] = f.y, w[i][2] = f.z, w[i][3] = f.w;
    }
#pragma unroll
    for (int r = 0; r < 3; r++) unpack(win[r + 1], raw[r]);
    if (m < 3)
        for (int r = m; r < 3; r++)              /* tokens before the step */
            for (int i = 0; i < 4; i++) win[r - m + 1][i] = in.hist[(int64_t)r * in.channels + c0 + i];
    const int lane = threadIdx.x % 32, unit = (lane / 2 % 8 ^ row % 8) << 4;
    tile += lane / 16 * HALF_TILE + lane % 2 * 8 + row * 128;
    float f[CONV_ROWS][4], sum[CONV_ROWS];
#pragma unroll
    for (int r = 0; r < CONV_ROWS; r++) {
        unpack(win[r % 4], raw[r + 3]);
        sum[r] = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            f[r][i] = silu_fast(w[i][0] * win[(r + 1) % 4][i] + w[i][1] * win[(r + 2) % 4][i] + w[i][2] * win[(r + 3) % 4][i] +
                                w[i][3] * win[r % 4][i]);
            sum[r] += f[r][i] * f[r][i];
        }
    }
    if (UNIT)
#pragma unroll
        for (int o = 16; o; o >>= 1)             /* the rows' sums side by side */
#pragma unroll
            for (int r = 0; r < CONV_ROWS; r++) sum[r] += __shfl_xor_sync(~0u, sum[r], o);
#pragma unroll
    for (int r = 0; r < CONV_ROWS; r++) {
        float s = r < live ? 1.f : 0.f;
        if (UNIT) s *= fminf(rsqrt_fast(sum[r]), 1.f / eps);
        *reinterpret_cast<uint2 *>(tile + r * 128 + (unit ^ r << 4)) =
            make_uint2(pack_f16(f[r][0] * s, f[r][1] * s), pack_f16(f[r][2] * s, f[r][3] * s));
    }
}

/* hist <- the last rows of [hist; u] for n channels from c0. Nobody else reads or writes these. */
static __device__ __forceinline__ void keep_history(float *hist, const conv_in &in, int tokens, int c0, int n)
{
    for (int c = c0 + threadIdx.x; c < c0 + n; c += THREADS)
        for (int r = 0; r < 3; r++) {            /* rising r reads only rows not yet written */
            const int m = r + tokens - 3;
            hist[(int64_t)r * in.channels + c] = m < 0 ? hist[(int64_t)(3 + m) * in.channels + c] : bf16_bits(in.u[m * in.ldu + c]);
        }
}

/* --- Gram products: four warps each, a warp has 16 rows and the columns up to the diagonal --- */

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

/* s = L K' with L, K [64 x 128] in shared memory. */
static __device__ __forceinline__ void gram(float (&s)[8][4], uint32_t l, uint32_t k)
{
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
    for (int ks = 0; ks < 8; ks++) {
        uint32_t a[4];
        ldmatrix_x4(a, l + ks / 4 * HALF_TILE + swizzled(16 * warp + lane % 16, ks % 4 * 2 + lane / 16));
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            if (j > 2 * warp + 1) break;
            uint32_t b[4];
            ldmatrix_x4(b, k + ks / 4 * HALF_TILE + swizzled(8 * j + lane % 8 + lane / 16 * 8, ks % 4 * 2 + lane / 8 % 2));
            mma_f16(s[j], a, b[0], b[1]);
            mma_f16(s[j + 1], a, b[2], b[3]);
        }
    }
}

/* e^(c_row - c_col) at (row, col) and (row, col + 1), 0 at and beyond column `end`. Masked before exp: above the diagonal the
 * difference is positive. */
static __device__ __forceinline__ float2 decay(const float *c, float c_row, int col, int end)
{
    const float2 cc = *reinterpret_cast<const float2 *>(c + col);
    return make_float2(exp2_fast(col < end ? c_row - cc.x : -INFINITY), exp2_fast(col + 1 < end ? c_row - cc.y : -INFINITY));
}

/* A = beta K K' D below the diagonal. */
static __device__ __forceinline__ void put_a(float *a, const float (&kk)[8][4], const float *c, const float *beta)
{
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, row = 16 * warp + lane / 4;
    const float c0 = c[row], c8 = c[row + 8], b0 = beta[row], b8 = beta[row + 8];
#pragma unroll
    for (int j = 0; j < 8; j++) {
        if (j > 2 * warp + 1) break;
        const int col = 8 * j + 2 * (lane % 4);
        const float2 d0 = decay(c, c0, col, row), d8 = decay(c, c8, col, row + 8);
        *reinterpret_cast<float2 *>(a + row * A_LD + col) = make_float2(b0 * kk[j][0] * d0.x, b0 * kk[j][1] * d0.y);
        *reinterpret_cast<float2 *>(a + (row + 8) * A_LD + col) = make_float2(b8 * kk[j][2] * d8.x, b8 * kk[j][3] * d8.y);
    }
}

/* P = Q K' D / sqrt(dk) up to the diagonal; what lies above stays 0. */
static __device__ __forceinline__ void put_p(uint8_t *p, const float (&qk)[8][4], const float *c)
{
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, row = 16 * warp + lane / 4;
    const float scale = rsqrtf((float)D), c0 = c[row], c8 = c[row + 8];
#pragma unroll
    for (int j = 0; j < 8; j++) {
        if (j > 2 * warp + 1) break;
        const int col = 8 * j + 2 * (lane % 4);
        const float2 d0 = decay(c, c0, col, row + 1), d8 = decay(c, c8, col, row + 9);
        uint32_t *to = reinterpret_cast<uint32_t *>(p + swizzled(row, j) + lane % 4 * 4);
        to[0] = pack_f16(qk[j][0] * scale * d0.x, qk[j][1] * scale * d0.y);
        to[8 * 128 / 4] = pack_f16(qk[j][2] * scale * d8.x, qk[j][3] * scale * d8.y);     /* row + 8 is swizzled alike */
    }
}

/* --- inverse: a group --- */

/* One 16 x 16 block on the diagonal of X = (I + A)^-1 by forward substitution, a column per lane, in A's place. */
static __device__ __forceinline__ void solve_diagonal(float *a, int at)
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
    __syncwarp();
    if (threadIdx.x % 32 < 16)
#pragma unroll
        for (int i = 0; i < 16; i++) a[(at + i) * A_LD + at + j] = col[i];
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

/* X = (I + A)^-1 from blocks: [L11 0; L21 L22]^-1 = [X11 0; -X22 L21 X11, X22], 16 to 32 to 64, each in its place. The
 * blocks on the diagonal are solved in f32; a product that joins two has TF32 operands, an error of the order of what rounding
 * X to f16 adds later. Upper blocks beyond those on the diagonal are not written. */
static __device__ __forceinline__ void invert(float *x, float *y)
{
    enum { LDY = C / 2 + 4 };
    const int warp = threadIdx.x / 32 % 4, at = warp / 2 * 32, n8 = warp % 2 * 8, row = warp / 2 * 16;
    solve_diagonal(x, 16 * warp);
    for (int i = threadIdx.x % 64; i < 16 * 16; i += 64)         /* 32 x 32 blocks are read whole */
        x[(at + i / 16) * A_LD + at + 16 + i % 16] = 0;
    sync_group();
    /* two warps for each pair of 16 x 16 blocks, 8 columns each; a warp reads the columns of y that it wrote */
    tile_product<16, 1>(y + row * LDY + n8, LDY, x + (at + 16) * A_LD + at, A_LD, x + at * A_LD + at + n8, A_LD);
    sync_group();                                /* L21 is read */
    tile_product<16, -1>(x + (at + 16) * A_LD + at + n8, A_LD, x + (at + 16) * A_LD + at + 16, A_LD, y + row * LDY + n8, LDY);
    sync_group();
    /* one pair of 32 x 32 blocks: 8 columns a warp, two tiles of 16 rows */
    const int c8 = warp * 8;
    for (int r = 0; r < 32; r += 16) tile_product<32, 1>(y + r * LDY + c8, LDY, x + (32 + r) * A_LD, A_LD, x + c8, A_LD);
    sync_group();
    for (int r = 0; r < 32; r += 16)
        tile_product<32, -1>(x + (32 + r) * A_LD + c8, A_LD, x + (32 + r) * A_LD + 32, A_LD, y + c8, LDY);
    sync_group();
}

/* T = X diag(beta) in f16 to its tile; upper blocks are zero. */
static __device__ __forceinline__ void put_t(uint4 *dst, const float *x, const float *beta)
{
#pragma unroll
    for (int i = 0; i < C * 8 / GROUP; i++) {
        const int at = i * GROUP + threadIdx.x % GROUP, row = at / 8, col = at % 8 * 8;
        uint4 o = make_uint4(0, 0, 0, 0);
        if (col / 16 <= row / 16) {
            const float4 x0 = *reinterpret_cast<const float4 *>(x + row * A_LD + col), b0 = *reinterpret_cast<const float4 *>(beta + col);
            const float4 x1 = *reinterpret_cast<const float4 *>(x + row * A_LD + col + 4);
            const float4 b1 = *reinterpret_cast<const float4 *>(beta + col + 4);
            o = make_uint4(pack_f16(x0.x * b0.x, x0.y * b0.y), pack_f16(x0.z * b0.z, x0.w * b0.w),
                           pack_f16(x1.x * b1.x, x1.y * b1.y), pack_f16(x1.z * b1.z, x1.w * b1.w));
        }
        dst[swizzled(row, at % 8) / 16] = o;
    }
}

/* --- gates --- */

static constexpr float LOG2E = 1.4426950408889634f;

/* The tile of e of a head to memory; c and beta to shared memory. One warp, two tokens a lane. */
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
    c[2 * lane] = c0 * LOG2E;
    c[2 * lane + 1] = sum * LOG2E;
    reinterpret_cast<float2 *>(e + E_UP)[lane] = make_float2(expf(c0), expf(sum));
    reinterpret_cast<float2 *>(e + E_DOWN)[lane] = make_float2(expf(last - c0), expf(last - sum));
    reinterpret_cast<float2 *>(e + E_C)[lane] = make_float2(c0, sum);
    if (lane == 31) e[E_DECAY] = expf(last);
}

/* --- a piece of work --- */

struct gates_in {
    const uint16_t *a; int64_t lda;
    const uint16_t *b; int64_t ldb;
    const float *rate, *dt;
};

/* A, inverse and T of every other value head of the key head, from the group's own. */
static __device__ __forceinline__ void inverses(work &w, const tiles &tl, const ds_cu_gdn &g, int chunk, int kh, const float (&kk)[8][4])
{
    float *a = w.a[group()];
    for (int r = group(); r < g.n_vh / g.n_kh; r += 2) {
        put_a(a, kk, w.c[r], w.beta[r]);
        sync_group();
        invert(a, w.y[group()]);
        put_t(reinterpret_cast<uint4 *>(tl.tp + ((int64_t)chunk * g.n_vh + kh + r * g.n_kh) * TP_TILE), a, w.beta[r]);
        sync_group();                            /* X is read */
    }
}

static __device__ __forceinline__ void weights(work &w, const tiles &tl, const ds_cu_gdn &g, int chunk, int kh, const float (&qk)[8][4])
{
    for (int r = 0; r < g.n_vh / g.n_kh; r++) {
        uint4 *dst = reinterpret_cast<uint4 *>(tl.tp + ((int64_t)chunk * g.n_vh + kh + r * g.n_kh) * TP_TILE + HALF_TILE);
        put_p(w.p, qk, w.c[r]);
        sync_group();
#pragma unroll
        for (int i = threadIdx.x % GROUP; i < HALF_TILE / 16; i += GROUP) dst[i] = reinterpret_cast<const uint4 *>(w.p)[i];
        sync_group();                            /* P is read */
    }
}

/* A piece of work; chunk -1: none. */
struct unit { int i, chunk, kh; };
static __device__ __forceinline__ bool is_done_with_first(const ds_cu_gdn &g, int i) /* see next_unit */
{
    return g.first < 3 && i / g.n_kh == 1;
}
static __device__ __forceinline__ unit unit_at(const ds_cu_gdn &g, int i)
{
    while (is_done_with_first(g, i)) i += gridDim.x;
    return { i, i < n_chunks(g) * g.n_kh ? i / g.n_kh : -1, i % g.n_kh };
}
/* When the first chunk has one or two tokens the second reads the history too, and one block has both. */
static __device__ __forceinline__ unit next_unit(const ds_cu_gdn &g, const unit &u)
{
    if (u.chunk < 0) return u;
    if (u.chunk == 0 && g.first < 3 && n_chunks(g) > 1) return { u.i, 1, u.kh };
    return unit_at(g, u.i + gridDim.x);
}

/* CONV_ROWS rows of both halves of a tile. */
static __device__ __forceinline__ void clear_rows(uint8_t *tile, int row)
{
    for (int i = threadIdx.x % 32; i < 2 * CONV_ROWS * 8; i += 32)
        reinterpret_cast<uint4 *>(tile + i / (CONV_ROWS * 8) * HALF_TILE + row * 128)[i % (CONV_ROWS * 8)] = make_uint4(0, 0, 0, 0);
}

static __device__ __forceinline__ int take_turn(int *turn)
{
    int i = 0;
    if (threadIdx.x % 32 == 0) asm volatile("atom.shared.add.s32 %0, [%1], 1;" : "=r"(i) : "r"(shared_addr(turn)) : "memory");
    return __shfl_sync(~0u, i, 0);
}

/* CONV_ROWS tokens of one head at a time: first v of `now`, then k and q of `next`. By every warp that has nothing else to do. */
static __device__ __forceinline__ void convolve(work &w, const tiles &tl, const conv_in &in, const ds_cu_gdn &g, const unit &now,
                                                const unit &next)
{
    const int lane = threadIdx.x % 32, per = C / CONV_ROWS, n_v = now.chunk < 0 ? 0 : g.n_vh / g.n_kh * per,
              n = n_v + (next.chunk < 0 ? 0 : 2 * per);
    for (int i; (i = take_turn(&w.turn)) < n;) {
        int t0, len;
        const bool is_v = i < n_v;
        const int chunk = is_v ? now.chunk : next.chunk, kh = is_v ? now.kh : next.kh, part = (is_v ? i : i - n_v) / per,
                  row = i % per * CONV_ROWS;
        chunk_span(g, chunk, &t0, &len);
        const int live = min(len - row, (int)CONV_ROWS);
        if (is_v) {
            const int h = kh + part * g.n_kh;
            uint8_t *tile = tl.v + ((int64_t)chunk * g.n_vh + h) * V_TILE;
            if (live > 0) conv<false>(in, (2 * g.n_kh + h) * D + lane * 4, t0 + row, live, 0, tile, row);
            else clear_rows(tile, row);
        } else {                                 /* k, then q */
            uint8_t *tile = tl.kq + ((int64_t)chunk * g.n_kh + kh) * KQ_TILE + part * 2 * HALF_TILE;
            if (live > 0) conv<true>(in, ((1 - part) * g.n_kh + kh) * D + lane * 4, t0 + row, live, g.eps, tile, row);
            else clear_rows(tile, row);
        }
    }
}

/* What a later piece of work reads comes to the L2: n heads from `first`, n_kh apart, two lines of 128 bytes a row. */
static __device__ __forceinline__ void fetch(const conv_in &in, const ds_cu_gdn &g, int chunk, int first, int n)
{
    const int lane = threadIdx.x % 32;
    int t0, len;
    if (chunk < 0 || lane >= 2 * n) return;
    chunk_span(g, chunk, &t0, &len);
    const uint16_t *u = in.u + t0 * in.ldu + (first + lane / 2 * g.n_kh) * D + lane % 2 * 64;
    for (int row = threadIdx.x / 32; row < len; row += THREADS / 32)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(u + (uint32_t)row * (uint32_t)in.ldu));
}

static __device__ __forceinline__ void load_keys(work &w, const tiles &tl, const ds_cu_gdn &g, const unit &u)
{
    const uint4 *src = reinterpret_cast<const uint4 *>(tl.kq + ((int64_t)u.chunk * g.n_kh + u.kh) * KQ_TILE);
    uint4 v[KQ_TILE / 16 / THREADS];
#pragma unroll
    for (int i = 0; i < KQ_TILE / 16 / THREADS; i++) v[i] = __ldcg(src + i * THREADS + threadIdx.x);
#pragma unroll
    for (int i = 0; i < KQ_TILE / 16 / THREADS; i++) reinterpret_cast<uint4 *>(w.kq)[i * THREADS + threadIdx.x] = v[i];
}

/* Everything of a piece of work whose k and q are convolved, by the groups that do not make its gates. */
static __device__ __forceinline__ void make_products(work &w, const tiles &tl, const ds_cu_gdn &g, const unit &now)
{
    const uint32_t kt = shared_addr(w.kq);
    float s[8][4] = {};
    gram(s, group() == WEIGHTS ? kt + 2 * HALF_TILE : kt, kt);
    asm volatile("bar.sync %0, %1;" ::"r"((int)PRODUCTS_DONE), "r"((int)THREADS) : "memory");     /* K and Q are dead: A takes their place */
    if (group() == WEIGHTS) weights(w, tl, g, now.chunk, now.kh, s);
    else inverses(w, tl, g, now.chunk, now.kh, s);
}

static __device__ __forceinline__ void make_gates(work &w, const tiles &tl, const gates_in &gi, const ds_cu_gdn &g, const unit &now)
{
    const int r = threadIdx.x / 32 % 4, h = now.kh + r * g.n_kh;
    int t0, len;
    chunk_span(g, now.chunk, &t0, &len);
    if (h < g.n_vh)
        gates(w.c[r], w.beta[r], tl.e + ((int64_t)now.chunk * g.n_vh + h) * (E_TILE / 4), gi.a + h, gi.lda, gi.b + h, gi.ldb,
              gi.rate[h], gi.dt[h], t0, len);
    asm volatile("bar.arrive %0, %1;" ::"r"((int)PRODUCTS_DONE), "r"((int)THREADS) : "memory");
}

/* Every reader of these channels' history has run. */
static __device__ __forceinline__ void keep_head_histories(float *hist, const conv_in &in, const ds_cu_gdn &g, int kh)
{
    keep_history(hist, in, g.n, kh * D, D);
    keep_history(hist, in, g.n, (g.n_kh + kh) * D, D);
    for (int h = kh; h < g.n_vh; h += g.n_kh) keep_history(hist, in, g.n, (2 * g.n_kh + h) * D, D);
}

__global__ void __launch_bounds__(THREADS, 2)
    prep_kernel(void *base, float *hist, const uint16_t *__restrict__ u, int64_t ldu, gates_in gi, const float *__restrict__ conv_w,
                ds_cu_gdn g)
{
    extern __shared__ __align__(1024) uint8_t raw[];
    work &w = *reinterpret_cast<work *>(raw);
    const tiles tl = tiles_at(base, g);
    for (int i = threadIdx.x; i < HALF_TILE / 16; i += THREADS) reinterpret_cast<uint4 *>(w.p)[i] = make_uint4(0, 0, 0, 0);
    prior_done();
    uint32_t launch_no = 0;
    if (threadIdx.x == THREADS - 1) {
        launch_no = (uint32_t)(atomicAdd(tl.launches, 1ull) / gridDim.x + 1);
        __threadfence();
    }
    __syncthreads();
    next_may_start();                            /* the scan: it waits for each tile */
    const conv_in in = { hist, u, ldu, conv_w, 2 * g.n_kh * D + g.n_vh * D };
    /* k and q of a piece of work are convolved in the round before its own */
    for (unit now = { 0, -1, 0 }, next = unit_at(g, blockIdx.x); now.chunk >= 0 || next.chunk >= 0;) {
        const unit later = next_unit(g, next);
        if (threadIdx.x == 0) w.turn = 0;
        if (now.chunk >= 0) load_keys(w, tl, g, now);
        fetch(in, g, next.chunk, 2 * g.n_kh + next.kh, g.n_vh / g.n_kh);
        fetch(in, g, later.chunk, later.kh, 2);
        __syncthreads();
        if (now.chunk >= 0 && group() == GATES) make_gates(w, tl, gi, g, now);
        else if (now.chunk >= 0) make_products(w, tl, g, now);
        convolve(w, tl, in, g, now, next);
        __syncthreads();
        if (threadIdx.x == THREADS - 1 && now.chunk >= 0 && can_watch(g)) {
            __threadfence();
            copies_see_stores();                 /* the scan reads by bulk copies */
            asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(tl.ready + now.chunk * g.n_kh + now.kh), "r"(launch_no)
                         : "memory");
        }
        if (now.chunk >= 0 && now.i < g.n_kh && next.i != now.i) keep_head_histories(hist, in, g, now.kh);
        now = next;
        next = later;
    }
}

extern "C" int ds_cu_gdn_prep_blocks()
{
    static const int sms = [] {
        int device = 0, n = 0;
        return cudaGetDevice(&device) == cudaSuccess &&
                       cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device) == cudaSuccess ? n : 1;
    }();
    return sms;
}

extern "C" cudaError_t ds_cu_gdn_prep_chunk(void *tiles, float *hist, const uint16_t *u, int64_t ldu, const uint16_t *a,
                                            int64_t lda, const uint16_t *b, int64_t ldb, const float *conv_w, const float *ssm_a,
                                            const float *ssm_dt, const struct ds_cu_gdn *g, cudaStream_t s)
{
    static const cudaError_t raised =
        cudaFuncSetAttribute(prep_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(work));
    if (raised != cudaSuccess) return raised;
    const gates_in gi = { a, lda, b, ldb, ssm_a, ssm_dt };
    return launch(prep_kernel, dim3((unsigned)ds_cu_gdn_prep_blocks()), THREADS, sizeof(work), s, tiles, hist, u, ldu, gi, conv_w, *g);
}

extern "C" bool ds_cu_gdn_chunk_fits(const struct ds_cu_gdn *g, int sm)
{
    return sm == 90 && g->dk == D && g->dv == D && g->conv_k == 4 && g->n_vh % g->n_kh == 0 && g->n_vh / g->n_kh <= MAX_RATIO;
}

extern "C" size_t ds_cu_gdn_chunk_control_bytes() { return CONTROL; }

extern "C" size_t ds_cu_gdn_chunk_bytes(const struct ds_cu_gdn *g, int n)
{
    return CONTROL + (size_t)(n / C + 2) * ((size_t)g->n_kh * KQ_TILE + (size_t)g->n_vh * (V_TILE + TP_TILE + E_TILE));
}
