/* Norms, activations, RoPE and copies: one pass over memory each. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"

/* --- rms --- */

template <int V> /* float4 of a thread's share kept in registers */
__global__ void __launch_bounds__(256)
    rms_norm_kernel(uint16_t *__restrict__ h, const float *__restrict__ x, const float *__restrict__ gain, int dim, float eps,
                    struct ds_cu_stamp stamp)
{
    next_may_start();
    prior_done();
    stamp_start(stamp);
    __shared__ float red[32];
    const float4 *xr = reinterpret_cast<const float4 *>(x + (int64_t)blockIdx.x * dim);
    float4 v[V];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int j = i * 256 + threadIdx.x;
        v[i] = j * 4 < dim ? xr[j] : make_float4(0, 0, 0, 0);
        sum += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
    }
    const float r = rsqrtf(block_sum(sum, red) / (float)dim + eps);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int j = i * 256 + threadIdx.x;
        if (j * 4 >= dim) break;
        const float4 g = reinterpret_cast<const float4 *>(gain)[j];
        const uint2 o = { pack_bf16(v[i].x * r * g.x, v[i].y * r * g.y), pack_bf16(v[i].z * r * g.z, v[i].w * r * g.w) };
        reinterpret_cast<uint2 *>(h + (int64_t)blockIdx.x * dim)[j] = o;
    }
    stamp_end(stamp);
}

__global__ void rms_norm_any_kernel(uint16_t *__restrict__ h, const float *__restrict__ x, const float *__restrict__ gain,
                                    int dim, float eps, struct ds_cu_stamp stamp)
{
    next_may_start();
    prior_done();
    stamp_start(stamp);
    __shared__ float red[32];
    const float *xr = x + (int64_t)blockIdx.x * dim;
    float sum = 0;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) sum += xr[i] * xr[i];
    const float r = rsqrtf(block_sum(sum, red) / (float)dim + eps);
    for (int i = threadIdx.x; i < dim; i += blockDim.x) h[(int64_t)blockIdx.x * dim + i] = to_bf16(xr[i] * r * gain[i]);
    stamp_end(stamp);
}

/* --- activations. Eight values a thread: dim is a multiple of 8 and rows are 16-byte aligned, or the plain form runs. --- */

__global__ void swiglu_kernel(uint16_t *__restrict__ act, const uint16_t *__restrict__ gate, int64_t ldg,
                              const uint16_t *__restrict__ up, int64_t ldu, int dim, struct ds_cu_stamp stamp)
{
    next_may_start();
    prior_done();
    stamp_start(stamp);
    const int64_t row = blockIdx.y;
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (i >= dim) return;
    const uint4 g4 = *reinterpret_cast<const uint4 *>(gate + row * ldg + i),
                u4 = *reinterpret_cast<const uint4 *>(up + row * ldu + i);
    const uint32_t g[4] = { g4.x, g4.y, g4.z, g4.w }, u[4] = { u4.x, u4.y, u4.z, u4.w };
    uint32_t o[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float g0 = __uint_as_float(g[j] << 16), g1 = __uint_as_float(g[j] & 0xffff0000u);
        const float u0 = __uint_as_float(u[j] << 16), u1 = __uint_as_float(u[j] & 0xffff0000u);
        o[j] = pack_bf16(silu_fast(g0) * u0, silu_fast(g1) * u1);
    }
    *reinterpret_cast<uint4 *>(act + row * dim + i) = make_uint4(o[0], o[1], o[2], o[3]);
    stamp_end(stamp);
}

__global__ void swiglu_any_kernel(uint16_t *__restrict__ act, const uint16_t *__restrict__ gate, int64_t ldg,
                                  const uint16_t *__restrict__ up, int64_t ldu, int dim, struct ds_cu_stamp stamp)
{
    next_may_start();
    prior_done();
    stamp_start(stamp);
    const int64_t row = blockIdx.y;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < dim) act[row * dim + i] = to_bf16(silu_fast(bf16_bits(gate[row * ldg + i])) * bf16_bits(up[row * ldu + i]));
    stamp_end(stamp);
}

/* One warp per (token, head). */
__global__ void gated_norm_kernel(uint16_t *__restrict__ y, const float *__restrict__ o, const uint16_t *__restrict__ z,
                                  int64_t ldz, const float *__restrict__ gain, int64_t n_rows, int n_vh, int dv, float eps,
                                  struct ds_cu_stamp stamp)
{
    next_may_start();
    prior_done();
    stamp_start(stamp);
    const int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= n_rows) return;
    const int lane = threadIdx.x % 32;
    const float *orow = o + i * dv;
    const uint16_t *zrow = z + i / n_vh * ldz + i % n_vh * dv;
    uint16_t *yrow = y + i * dv;
    if (dv == 128) {
        const float4 v = reinterpret_cast<const float4 *>(orow)[lane], g = reinterpret_cast<const float4 *>(gain)[lane];
        const float r = rsqrtf(warp_sum(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w) / 128.f + eps);
        const uint16_t *zp = zrow + lane * 4;
        const float z0 = silu_fast(bf16_bits(zp[0])), z1 = silu_fast(bf16_bits(zp[1])), z2 = silu_fast(bf16_bits(zp[2])),
                    z3 = silu_fast(bf16_bits(zp[3]));
        reinterpret_cast<uint2 *>(yrow)[lane] = make_uint2(pack_bf16(v.x * r * g.x * z0, v.y * r * g.y * z1),
                                                           pack_bf16(v.z * r * g.z * z2, v.w * r * g.w * z3));
        stamp_end(stamp);
        return;
    }
    float sum = 0;
    for (int j = lane; j < dv; j += 32) sum += orow[j] * orow[j];
    const float r = rsqrtf(warp_sum(sum) / (float)dv + eps);
    for (int j = lane; j < dv; j += 32) yrow[j] = to_bf16(orow[j] * r * gain[j] * silu_fast(bf16_bits(zrow[j])));
    stamp_end(stamp);
}

/* --- attention inputs --- */

/* One warp per (token, head); heads 0 .. n_head-1 are queries, the rest keys. hd 256: eight neighbours a lane. */
__global__ void qk_norm_kernel(ds_cu_qk c, const float *__restrict__ gain_q, const float *__restrict__ gain_k,
                               struct ds_cu_stamp stamp)
{
    next_may_start();
    prior_done();
    stamp_start(stamp);
    const int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int heads = c.n_head + c.n_kv, lane = threadIdx.x % 32;
    if (i >= (int64_t)c.n * heads) return;
    const int64_t t = i / heads;
    const int h = (int)(i % heads);
    const bool is_q = h < c.n_head;
    uint16_t *row = is_q ? c.qg + t * c.ldq + (int64_t)h * 2 * c.hd : c.k + t * c.ldk + (int64_t)(h - c.n_head) * c.hd;
    const float *gain = is_q ? gain_q : gain_k;
    float sum = 0;
    if (c.hd == 256 && (uintptr_t)row % 16 == 0) {
        const uint4 in = reinterpret_cast<const uint4 *>(row)[lane];
        const float4 g0 = reinterpret_cast<const float4 *>(gain)[2 * lane],
                     g1 = reinterpret_cast<const float4 *>(gain)[2 * lane + 1];
        const uint32_t x[4] = { in.x, in.y, in.z, in.w };
        const float g[8] = { g0.x, g0.y, g0.z, g0.w, g1.x, g1.y, g1.z, g1.w };
        float v[8];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            v[2 * j] = __uint_as_float(x[j] << 16);
            v[2 * j + 1] = __uint_as_float(x[j] & 0xffff0000u);
            sum += v[2 * j] * v[2 * j] + v[2 * j + 1] * v[2 * j + 1];
        }
        const float r = rsqrtf(warp_sum(sum) / 256.f + c.eps);
        reinterpret_cast<uint4 *>(row)[lane] =
            make_uint4(pack_bf16(v[0] * r * g[0], v[1] * r * g[1]), pack_bf16(v[2] * r * g[2], v[3] * r * g[3]),
                       pack_bf16(v[4] * r * g[4], v[5] * r * g[5]), pack_bf16(v[6] * r * g[6], v[7] * r * g[7]));
        stamp_end(stamp);
        return;
    }
    for (int j = lane; j < c.hd; j += 32) sum += bf16_bits(row[j]) * bf16_bits(row[j]);
    const float r = rsqrtf(warp_sum(sum) / (float)c.hd + c.eps);
    for (int j = lane; j < c.hd; j += 32) row[j] = to_bf16(bf16_bits(row[j]) * r * gain[j]);
    stamp_end(stamp);
}

static __device__ __forceinline__ void put_kv(void *cache, bool f16, int64_t at, float v)
{
    if (f16) ((__half *)cache)[at] = __float2half_rn(f16_range(v));
    else ((float *)cache)[at] = v;
}

/* One block per token: queries and keys turn in place, keys and values go to the caches. */
__global__ void rope_store_kernel(ds_cu_qk c, ds_cu_freq freq, const uint16_t *__restrict__ v, int64_t ldv,
                                  void *__restrict__ kcache, void *__restrict__ vcache, bool f16, const int64_t *__restrict__ from,
                                  struct ds_cu_stamp stamp)
{
    next_may_start();
    prior_done();
    stamp_start(stamp);
    __shared__ float cs[DS_CU_MAX_PAIRS], sn[DS_CU_MAX_PAIRS];
    const int half = c.n_rot / 2, kv = c.n_kv * c.hd;
    const int64_t t = blockIdx.x, pos = *from, to = (pos + t) * kv;
    for (int j = threadIdx.x; j < half; j += blockDim.x) {
        /* positions reach 2^18: the angle is reduced in f64 */
        const double theta = (double)(pos + t) * freq.f[j], turns = rint(theta * 0.15915494309189535);
        sincosf((float)(theta - turns * 6.283185307179586), &sn[j], &cs[j]);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < (c.n_head + c.n_kv) * half; i += blockDim.x) {
        const int h = i / half, j = i % half;
        const bool is_q = h < c.n_head;
        uint16_t *p = is_q ? c.qg + t * c.ldq + (int64_t)h * 2 * c.hd + j : c.k + t * c.ldk + (int64_t)(h - c.n_head) * c.hd + j;
        const float a = bf16_bits(p[0]), b = bf16_bits(p[half]);
        const uint16_t x = to_bf16(a * cs[j] - b * sn[j]), y = to_bf16(b * cs[j] + a * sn[j]);
        p[0] = x;
        p[half] = y;
        if (is_q) continue;
        put_kv(kcache, f16, to + (h - c.n_head) * c.hd + j, bf16_bits(x));
        put_kv(kcache, f16, to + (h - c.n_head) * c.hd + j + half, bf16_bits(y));
    }
    for (int i = threadIdx.x; i < kv; i += blockDim.x) {
        if (i % c.hd >= c.n_rot) put_kv(kcache, f16, to + i, bf16_bits(c.k[t * c.ldk + i]));
        put_kv(vcache, f16, to + i, bf16_bits(v[t * ldv + i]));
    }
    stamp_end(stamp);
}

/* --- copies --- */

__global__ void copy_cols_kernel(uint16_t *__restrict__ act, ds_cu_mat src, int src_dim, int dim)
{
    next_may_start();
    prior_done();
    const int64_t t = blockIdx.x;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) {
        const int64_t at = t * src.ld + i % src_dim;
        act[t * dim + i] = src.f32 ? to_bf16(((const float *)src.p)[at]) : ((const uint16_t *)src.p)[at];
    }
}

static unsigned blocks_for(int64_t items, int per_block)
{
    const int64_t b = (items + per_block - 1) / per_block;
    return (unsigned)(b < 1 ? 1 : b > 1 << 20 ? 1 << 20 : b);
}

extern "C" cudaError_t ds_cu_rms_norm(uint16_t *h, const float *x, const float *gain, int n, int dim, float eps,
                                      struct ds_cu_stamp t, cudaStream_t s)
{
    const int v = (dim / 4 + 255) / 256;
    if (dim % 4 || v > 8) launch(rms_norm_any_kernel, dim3(n), 256, 0, s, h, x, gain, dim, eps, t);
    else if (v <= 1) launch(rms_norm_kernel<1>, dim3(n), 256, 0, s, h, x, gain, dim, eps, t);
    else if (v <= 2) launch(rms_norm_kernel<2>, dim3(n), 256, 0, s, h, x, gain, dim, eps, t);
    else if (v <= 5) launch(rms_norm_kernel<5>, dim3(n), 256, 0, s, h, x, gain, dim, eps, t);
    else launch(rms_norm_kernel<8>, dim3(n), 256, 0, s, h, x, gain, dim, eps, t);
    return cudaGetLastError();
}

extern "C" cudaError_t ds_cu_swiglu(uint16_t *act, const uint16_t *gate, int64_t ldg, const uint16_t *up, int64_t ldu, int rows,
                                    int dim, struct ds_cu_stamp t, cudaStream_t s)
{
    const bool wide = dim % 8 == 0 && ldg % 8 == 0 && ldu % 8 == 0 && (uintptr_t)gate % 16 == 0 && (uintptr_t)up % 16 == 0;
    for (int r0 = 0; r0 < rows; r0 += 65535) {            /* the grid's second dimension ends there */
        const unsigned m = (unsigned)(rows - r0 < 65535 ? rows - r0 : 65535);
        uint16_t *a = act + (int64_t)r0 * dim;
        const uint16_t *g = gate + r0 * ldg, *u = up + r0 * ldu;
        if (wide) launch(swiglu_kernel, dim3(blocks_for(dim / 8, 256), m), 256, 0, s, a, g, ldg, u, ldu, dim, t);
        else launch(swiglu_any_kernel, dim3(blocks_for(dim, 256), m), 256, 0, s, a, g, ldg, u, ldu, dim, t);
    }
    return cudaGetLastError();
}

extern "C" cudaError_t ds_cu_gated_norm(uint16_t *y, const float *o, const uint16_t *z, int64_t ldz, const float *gain, int n,
                                        int n_vh, int dv, float eps, struct ds_cu_stamp t, cudaStream_t s)
{
    const int64_t rows = (int64_t)n * n_vh;
    launch(gated_norm_kernel, dim3((unsigned)((rows + 7) / 8)), 256, 0, s, y, o, z, ldz, gain, rows, n_vh, dv, eps, t);
    return cudaGetLastError();
}

extern "C" cudaError_t ds_cu_qk_norm(const struct ds_cu_qk *c, const float *gain_q, const float *gain_k,
                                     struct ds_cu_stamp t, cudaStream_t s)
{
    const int64_t rows = (int64_t)c->n * (c->n_head + c->n_kv);
    launch(qk_norm_kernel, dim3((unsigned)((rows + 7) / 8)), 256, 0, s, *c, gain_q, gain_k, t);
    return cudaGetLastError();
}

extern "C" cudaError_t ds_cu_rope_store(const struct ds_cu_qk *c, const struct ds_cu_freq *freq, const uint16_t *v, int64_t ldv,
                                        void *kcache, void *vcache, bool f16, const int64_t *pos,
                                        struct ds_cu_stamp t, cudaStream_t s)
{
    if (c->n_rot > 2 * DS_CU_MAX_PAIRS) return cudaErrorInvalidValue;
    launch(rope_store_kernel, dim3((unsigned)c->n), 256, 0, s, *c, *freq, v, ldv, kcache, vcache, f16, pos, t);
    return cudaGetLastError();
}

extern "C" cudaError_t ds_cu_copy_cols(uint16_t *act, struct ds_cu_mat src, int n, int src_dim, int dim, cudaStream_t s)
{
    launch(copy_cols_kernel, dim3((unsigned)n), 256, 0, s, act, src, src_dim, dim);
    return cudaGetLastError();
}
