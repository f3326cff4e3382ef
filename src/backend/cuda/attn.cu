/* Attention for any shape, a block per query: decode, short steps, odd head sizes, f32 caches. Keys are
 * divided over blocks where there are few queries; a second kernel joins the parts. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"

enum { WARPS = 4, PER_LANE = 8 };

/* Elements of a lane: WIDE (hd 256, f16) 8 neighbours in one load, else every 32nd. */
template <bool WIDE> static __device__ __forceinline__ int dim_of(int i, int lane) { return WIDE ? lane * 8 + i : i * 32 + lane; }

template <bool WIDE>
static __device__ __forceinline__ void load_row(float r[PER_LANE], const void *base, bool f16, int64_t at, int hd, int lane)
{
    if constexpr (WIDE) {
        const uint4 v = *reinterpret_cast<const uint4 *>((const uint16_t *)base + at + lane * 8);
        const uint32_t w[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 f = __half22float2(*reinterpret_cast<const __half2 *>(&w[i]));
            r[2 * i] = f.x;
            r[2 * i + 1] = f.y;
        }
    } else {
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            const int d = i * 32 + lane;
            r[i] = d >= hd ? 0.f : f16 ? __half2float(((const __half *)base)[at + d]) : ((const float *)base)[at + d];
        }
    }
}

template <bool WIDE> __global__ void __launch_bounds__(WARPS * 32) attn_any_kernel(ds_cu_attn c)
{
    next_may_start();
    prior_done();
    __shared__ float sm[WARPS], sl[WARPS], sacc[WARPS][PER_LANE * 32];
    const int t = blockIdx.x, a = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t kv_ld = (int64_t)c.n_kv * c.hd, head = (int64_t)(a / (c.n_head / c.n_kv)) * c.hd;
    const uint16_t *q = c.qg + t * c.ldq + (int64_t)a * 2 * c.hd;
    const int64_t keys = *c.at + t + 1, share = (keys + c.splits - 1) / c.splits, p0 = blockIdx.z * share,
                  p1 = p0 + share < keys ? p0 + share : keys;
    float qr[PER_LANE], acc[PER_LANE] = {}, m = -INFINITY, l = 0;
    const float scale = rsqrtf((float)c.hd);
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        const int d = dim_of<WIDE>(i, lane);
        qr[i] = d < c.hd ? bf16_bits(q[d]) * scale : 0.f;
    }
    for (int64_t p = p0 + warp; p < p1; p += WARPS) {
        float kr[PER_LANE], vr[PER_LANE], s = 0;
        load_row<WIDE>(kr, c.k, c.f16, p * kv_ld + head, c.hd, lane);
        load_row<WIDE>(vr, c.v, c.f16, p * kv_ld + head, c.hd, lane);
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) s += qr[i] * kr[i];
        s = warp_sum(s);
        const float top = fmaxf(m, s), keep = expf(m - top), e = expf(s - top);
        l = l * keep + e;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) acc[i] = acc[i] * keep + e * vr[i];
        m = top;
    }
    if (lane == 0) sm[warp] = m, sl[warp] = l;
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) sacc[warp][dim_of<WIDE>(i, lane)] = acc[i];
    __syncthreads();

    float top = -INFINITY, sum = 0, f[WARPS];
    for (int w = 0; w < WARPS; w++) top = fmaxf(top, sm[w]);
    for (int w = 0; w < WARPS; w++) {
        f[w] = sl[w] > 0 ? expf(sm[w] - top) : 0.f;
        sum += f[w] * sl[w];
    }
    float *part = c.part + ((int64_t)(blockIdx.z * c.n + t) * c.n_head + a) * (c.hd + 2);
    for (int d = threadIdx.x; d < c.hd; d += WARPS * 32) {
        float o = 0;
        for (int w = 0; w < WARPS; w++) o += f[w] * sacc[w][d];
        if (c.splits == 1) c.y[((int64_t)t * c.n_head + a) * c.hd + d] = to_bf16(o / sum * sigmoidf(bf16_bits(q[c.hd + d])));
        else part[d] = o;
    }
    if (c.splits > 1 && threadIdx.x == 0) part[c.hd] = top, part[c.hd + 1] = sum;
}

__global__ void join_kernel(ds_cu_attn c)
{
    next_may_start();
    prior_done();
    const int t = blockIdx.x, a = blockIdx.y;
    const uint16_t *gate = c.qg + t * c.ldq + (int64_t)a * 2 * c.hd + c.hd;
    const int64_t step = (int64_t)c.n * c.n_head * (c.hd + 2);
    const float *part = c.part + ((int64_t)t * c.n_head + a) * (c.hd + 2);
    float top = -INFINITY, sum = 0;
    for (int s = 0; s < c.splits; s++) top = fmaxf(top, part[s * step + c.hd]);
    for (int s = 0; s < c.splits; s++)
        if (part[s * step + c.hd + 1] > 0) sum += expf(part[s * step + c.hd] - top) * part[s * step + c.hd + 1];
    for (int d = threadIdx.x; d < c.hd; d += blockDim.x) {
        float o = 0;
        for (int s = 0; s < c.splits; s++)
            if (part[s * step + c.hd + 1] > 0) o += expf(part[s * step + c.hd] - top) * part[s * step + d];
        c.y[((int64_t)t * c.n_head + a) * c.hd + d] = to_bf16(o / sum * sigmoidf(bf16_bits(gate[d])));
    }
}

extern "C" cudaError_t ds_cu_attn_any(const struct ds_cu_attn *c, cudaStream_t s)
{
    if (c->hd > 32 * PER_LANE) return cudaErrorInvalidValue;
    const dim3 grid((unsigned)c->n, (unsigned)c->n_head, (unsigned)c->splits);
    if (c->hd == 256 && c->f16) launch(attn_any_kernel<true>, grid, WARPS * 32, 0, s, *c);
    else launch(attn_any_kernel<false>, grid, WARPS * 32, 0, s, *c);
    if (c->splits > 1) launch(join_kernel, dim3((unsigned)c->n, (unsigned)c->n_head), 128, 0, s, *c);
    return cudaGetLastError();
}
