/* Products with few tokens, and rows of the embedding. Here the weights' bytes are the cost: each is read once per token, by
 * neighbouring lanes from neighbouring addresses, and decoded in registers.
 *
 * A simdgroup makes two rows: both use the activations that a lane has loaded. Lane l takes elements 16l.. of every 512. */
#include "quant.h"

enum { LANES = 32 };

/* Dot products of rows w0 and w1 with x, complete in every lane. */
template <typename W> static inline float2 two_rows(device const uchar *w0, device const uchar *w1, device const float *x, uint in, uint lane)
{
    float s0 = 0.0f, s1 = 0.0f;
    for (uint k = 16 * lane; k < in; k += 16 * LANES) {
        float xv[16], v[16];
        read16<w_f32>((device const uchar *)x, k, in, xv);
        read16<W>(w0, k, in, v);
        UNROLL
        for (uint i = 0; i < 16; i++) s0 += v[i] * xv[i];
        read16<W>(w1, k, in, v);
        UNROLL
        for (uint i = 0; i < 16; i++) s1 += v[i] * xv[i];
    }
    float2 s;
    s.x = simd_sum(s0);
    s.y = simd_sum(s1);
    return s;
}

template <typename W>
kernel void gemv(constant ds_metal_gemm &a [[buffer(0)]], device const uchar *w [[buffer(1)]], device const float *x [[buffer(2)]],
                 device float *y [[buffer(3)]], uint3 group [[threadgroup_position_in_grid]],
                 uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]])
{
    const uint in = uint(a.in), out = uint(a.out), r = group.x * DS_METAL_GEMV_ROWS + 2 * sg;
    const ulong bytes = row_bytes<W>(in);
    device const uchar *w0 = w + ulong(min(r, out - 1)) * bytes, *w1 = w + ulong(min(r + 1, out - 1)) * bytes;
    const float2 s = two_rows<W>(w0, w1, x + ulong(group.y) * in, in, lane);
    if (lane < 2 && r + lane < out) {
        device float *to = y + ulong(group.y) * ulong(a.ldy) + r + lane;
        const float v = lane == 0 ? s.x : s.y;
        *to = a.add ? *to + v : v;
    }
}
template [[host_name("gemv_q8_0")]] kernel decltype(gemv<w_q8_0>) gemv<w_q8_0>;
template [[host_name("gemv_q4_0")]] kernel decltype(gemv<w_q4_0>) gemv<w_q4_0>;
template [[host_name("gemv_q4_k")]] kernel decltype(gemv<w_q4_k>) gemv<w_q4_k>;
template [[host_name("gemv_q5_k")]] kernel decltype(gemv<w_q5_k>) gemv<w_q5_k>;
template [[host_name("gemv_q6_k")]] kernel decltype(gemv<w_q6_k>) gemv<w_q6_k>;
template [[host_name("gemv_f16")]] kernel decltype(gemv<w_f16>) gemv<w_f16>;
template [[host_name("gemv_bf16")]] kernel decltype(gemv<w_bf16>) gemv<w_bf16>;
template [[host_name("gemv_f32")]] kernel decltype(gemv<w_f32>) gemv<w_f32>;

template <typename W>
kernel void gemv_experts(constant ds_metal_experts &a [[buffer(0)]], device const uchar *w [[buffer(1)]],
                         device const float *x [[buffer(2)]], device const ds_metal_slot *route [[buffer(3)]], device float *y [[buffer(4)]],
                         uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                         uint sg [[simdgroup_index_in_threadgroup]])
{
    const uint in = uint(a.in), out = uint(a.out), slot = group.y, r = group.x * DS_METAL_GEMV_ROWS + 2 * sg;
    const int expert = route[slot].expert - a.e0;
    if (expert < 0 || expert >= a.n_e) return;
    const ulong bytes = row_bytes<W>(in);
    device const uchar *base = w + ulong(expert) * out * bytes;
    device const uchar *w0 = base + ulong(min(r, out - 1)) * bytes, *w1 = base + ulong(min(r + 1, out - 1)) * bytes;
    const float2 s = two_rows<W>(w0, w1, x + ulong(slot / uint(a.per_x)) * in, in, lane);
    if (lane < 2 && r + lane < out) y[ulong(slot) * out + r + lane] = lane == 0 ? s.x : s.y;
}
template [[host_name("gemv_experts_q8_0")]] kernel decltype(gemv_experts<w_q8_0>) gemv_experts<w_q8_0>;
template [[host_name("gemv_experts_q4_0")]] kernel decltype(gemv_experts<w_q4_0>) gemv_experts<w_q4_0>;
template [[host_name("gemv_experts_q4_k")]] kernel decltype(gemv_experts<w_q4_k>) gemv_experts<w_q4_k>;
template [[host_name("gemv_experts_q5_k")]] kernel decltype(gemv_experts<w_q5_k>) gemv_experts<w_q5_k>;
template [[host_name("gemv_experts_q6_k")]] kernel decltype(gemv_experts<w_q6_k>) gemv_experts<w_q6_k>;
template [[host_name("gemv_experts_f16")]] kernel decltype(gemv_experts<w_f16>) gemv_experts<w_f16>;
template [[host_name("gemv_experts_bf16")]] kernel decltype(gemv_experts<w_bf16>) gemv_experts<w_bf16>;
template [[host_name("gemv_experts_f32")]] kernel decltype(gemv_experts<w_f32>) gemv_experts<w_f32>;

/* One row of the table per token. A table in several buffers: each call writes the ids that it has. */
template <typename W>
kernel void embed(constant ds_metal_embed &a [[buffer(0)]], device const uchar *table [[buffer(1)]], device const int *ids [[buffer(2)]],
                  device float *x [[buffer(3)]], uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]])
{
    const int row = ids[group.x] - a.row0;
    const uint dim = uint(a.dim);
    if (row < 0 || row >= a.n_rows) return;
    device const uchar *from = table + ulong(row) * row_bytes<W>(dim);
    device float *to = x + ulong(group.x) * dim;
    for (uint k = 16 * tid; k < dim; k += 16 * 128) {
        float v[16];
        read16<W>(from, k, dim, v);
        UNROLL
        for (uint i = 0; i < 16; i++)
            if (k + i < dim) to[k + i] = v[i];
    }
}
template [[host_name("embed_q8_0")]] kernel decltype(embed<w_q8_0>) embed<w_q8_0>;
template [[host_name("embed_q4_0")]] kernel decltype(embed<w_q4_0>) embed<w_q4_0>;
template [[host_name("embed_q4_k")]] kernel decltype(embed<w_q4_k>) embed<w_q4_k>;
template [[host_name("embed_q5_k")]] kernel decltype(embed<w_q5_k>) embed<w_q5_k>;
template [[host_name("embed_q6_k")]] kernel decltype(embed<w_q6_k>) embed<w_q6_k>;
template [[host_name("embed_f16")]] kernel decltype(embed<w_f16>) embed<w_f16>;
template [[host_name("embed_bf16")]] kernel decltype(embed<w_bf16>) embed<w_bf16>;
template [[host_name("embed_f32")]] kernel decltype(embed<w_f32>) embed<w_f32>;
