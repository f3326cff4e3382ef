/* Gated DeltaNet token by token, in f32: decode, short steps, any head size up to 128, any GPU. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"

enum { MAX_TAPS = 8 };

/* in[m] of channel c, where rows before the step come from the history. */
static __device__ __forceinline__ float conv_in(const float *hist, const uint16_t *u, int64_t ldu, int channels, int conv_k,
                                                int m, int c)
{
    return m < 0 ? hist[(int64_t)(conv_k - 1 + m) * channels + c] : bf16_bits(u[m * ldu + c]);
}

/* A block per (token, head): query heads, then key heads, then value heads, which bring their gates. One token advances
 * the history too. */
__global__ void prep_seq_kernel(float *__restrict__ prep, float *hist, const uint16_t *__restrict__ u,
                                int64_t ldu, const uint16_t *__restrict__ a, int64_t lda, const uint16_t *__restrict__ b,
                                int64_t ldb, const float *__restrict__ conv_w, const float *__restrict__ ssm_a,
                                const float *__restrict__ ssm_dt, ds_cu_gdn g)
{
    __shared__ float red[32];
    const int t = blockIdx.y, part = blockIdx.x, key = g.n_kh * g.dk, value = g.n_vh * g.dv, channels = 2 * key + value,
              i = threadIdx.x;
    const bool is_value = part >= 2 * g.n_kh;
    const int h = is_value ? part - 2 * g.n_kh : part, dim = is_value ? g.dv : g.dk,
              c = is_value ? 2 * key + h * g.dv + i : h * g.dk + i;
    float f = 0;
    next_may_start();
    if (g.n == 1) {
        /* nobody else reads or writes the channel's history in this step: it is here before the others are done, and moves on */
        float old[MAX_TAPS], w[MAX_TAPS] = {};
#pragma unroll
        for (int j = 0; j < MAX_TAPS; j++) {
            if (j >= g.conv_k || i >= dim) continue;
            w[j] = conv_w[(int64_t)c * g.conv_k + j];
            if (j + 1 < g.conv_k) old[j] = hist[(int64_t)j * channels + c];
        }
        prior_done();
#pragma unroll
        for (int j = 0; j < MAX_TAPS; j++) {
            if (j >= g.conv_k || i >= dim) continue;
            if (j + 1 == g.conv_k) old[j] = bf16_bits(u[c]);
            f += w[j] * old[j];
            if (j) hist[(int64_t)(j - 1) * channels + c] = old[j];
        }
    } else {
        prior_done();
        for (int j = 0; j < g.conv_k && i < dim; j++)
            f += conv_w[(int64_t)c * g.conv_k + j] * conv_in(hist, u, ldu, channels, g.conv_k, t - (g.conv_k - 1) + j, c);
    }
    f = siluf(f);
    if (is_value) {
        float *v = prep + (int64_t)2 * g.n * key + (int64_t)t * value,
              *gt = prep + (int64_t)g.n * (2 * key + value) + (int64_t)t * g.n_vh;
        if (i < dim) v[h * g.dv + i] = f;
        if (i) return;
        const float x = bf16_bits(a[t * lda + h]) + ssm_dt[h];
        gt[h] = ssm_a[h] * (x > 20.f ? x : log1pf(expf(x)));
        gt[(int64_t)g.n * g.n_vh + h] = sigmoidf(bf16_bits(b[t * ldb + h]));
        return;
    }
    const bool is_q = h < g.n_kh;
    const float s = (is_q ? rsqrtf((float)g.dk) : 1.f) / fmaxf(sqrtf(block_sum(f * f, red)), g.eps);
    float *x = prep + (is_q ? (int64_t)t * key + h * g.dk : (int64_t)(g.n + t) * key + (h - g.n_kh) * g.dk);
    if (i < dim) x[i] = f * s;
}

__global__ void conv_tail_kernel(float *dst, const float *hist, const uint16_t *__restrict__ u, int64_t ldu, int n, int channels,
                                  int conv_k)
{
    next_may_start();
    prior_done();
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= channels) return;
    for (int r = 0; r < conv_k - 1; r++) {               /* in place too: rising r reads only rows not yet written */
        const int m = r + n - (conv_k - 1);
        dst[(int64_t)r * channels + c] = conv_in(hist, u, ldu, channels, conv_k, m, c);
    }
}

/* A warp owns 8 columns of one head's state: lane = 8 * quarter + column, and a quarter is every fourth
 * group of 8 rows. The state stays in registers over the whole step. */
__global__ void __launch_bounds__(128)
    gdn_seq_kernel(float *__restrict__ o, float *__restrict__ S, const float *__restrict__ prep, ds_cu_gdn g,
                                                      int t0, int t1)
{
    next_may_start();
    if (g.n > 1) prior_done();                   /* one token: nobody else writes S in this step, so it comes early */
    const int key = g.n_kh * g.dk, value = g.n_vh * g.dv, h = blockIdx.y, kh = h % g.n_kh, lane = threadIdx.x % 32,
              part = lane / 8;
    const int col = (blockIdx.x * 4 + threadIdx.x / 32) * 8 + lane % 8;
    const bool live = col < g.dv;
    const float *q = prep + kh * g.dk, *k = q + (int64_t)g.n * key, *v = prep + (int64_t)2 * g.n * key + (int64_t)h * g.dv + col;
    const float *gt = prep + (int64_t)g.n * (2 * key + value) + h, *beta = gt + (int64_t)g.n * g.n_vh;
    float *Sh = S + (int64_t)h * g.dk * g.dv + col;

    float s[32];
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const int r = i / 8 * 32 + part * 8 + i % 8;
        s[i] = live && r < g.dk ? Sh[(int64_t)r * g.dv] : 0.f;
    }
    prior_done();
    for (int t = t0; t < t1; t++) {
        const float decay = expf(gt[(int64_t)t * g.n_vh]), bt = beta[(int64_t)t * g.n_vh];
        const float vt = live ? v[(int64_t)t * value] : 0.f;
        float kr[32], m = 0, out = 0;
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int r = i / 8 * 32 + part * 8 + i % 8;
            kr[i] = r < g.dk ? k[(int64_t)t * key + r] : 0.f;
            s[i] *= decay;
            m += s[i] * kr[i];
        }
        m += __shfl_xor_sync(~0u, m, 8);
        m += __shfl_xor_sync(~0u, m, 16);
        const float d = bt * (vt - m);
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int r = i / 8 * 32 + part * 8 + i % 8;
            s[i] += kr[i] * d;
            out += s[i] * (r < g.dk ? q[(int64_t)t * key + r] : 0.f);
        }
        out += __shfl_xor_sync(~0u, out, 8);
        out += __shfl_xor_sync(~0u, out, 16);
        if (live && part == 0) o[(int64_t)t * value + (int64_t)h * g.dv + col] = out;
    }
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const int r = i / 8 * 32 + part * 8 + i % 8;
        if (live && r < g.dk) Sh[(int64_t)r * g.dv] = s[i];
    }
}

extern "C" cudaError_t ds_cu_conv_tail(float *dst, const float *hist, const uint16_t *u, int64_t ldu, int n, int channels,
                                       int conv_k, cudaStream_t s)
{
    return launch(conv_tail_kernel, dim3((unsigned)(channels + 255) / 256), 256, 0, s, dst, hist, u, ldu, n, channels, conv_k);
}

extern "C" cudaError_t ds_cu_gdn_prep_seq(float *prep, float *hist, const uint16_t *u, int64_t ldu, const uint16_t *a,
                                          int64_t lda, const uint16_t *b, int64_t ldb, const float *conv_w, const float *ssm_a,
                                          const float *ssm_dt, const struct ds_cu_gdn *g, cudaStream_t s)
{
    if (g->conv_k > MAX_TAPS) return cudaErrorInvalidValue;
    const unsigned threads = (unsigned)((g->dk > g->dv ? g->dk : g->dv) + 31) / 32 * 32;
    const dim3 grid((unsigned)(2 * g->n_kh + g->n_vh), (unsigned)g->n);
    cudaError_t st = launch(prep_seq_kernel, grid, threads, 0, s, prep, hist, u, ldu, a, lda, b, ldb, conv_w, ssm_a, ssm_dt, *g);
    if (st != cudaSuccess || g->n == 1) return st;
    return ds_cu_conv_tail(hist, hist, u, ldu, g->n, 2 * g->n_kh * g->dk + g->n_vh * g->dv, g->conv_k, s);
}

extern "C" cudaError_t ds_cu_gdn_seq(float *o, float *S, const float *prep, const struct ds_cu_gdn *g, int t0, int t1,
                                     cudaStream_t s)
{
    if (g->dk > 128) return cudaErrorInvalidValue;
    return launch(gdn_seq_kernel, dim3((unsigned)(g->dv + 31) / 32, (unsigned)g->n_vh), 128, 0, s, o, S, prep, *g, t0, t1);
}
