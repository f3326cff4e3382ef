/* Norms, activations, RoPE and copies: one pass over memory each. */
#include "common.h"

kernel void rms_norm(constant ds_metal_rows &a [[buffer(0)]], device const float *x [[buffer(1)]], device const float *gain [[buffer(2)]],
                     device float *h [[buffer(3)]], uint3 group [[threadgroup_position_in_grid]],
                     uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                     uint sg [[simdgroup_index_in_threadgroup]], uint n_sg [[simdgroups_per_threadgroup]])
{
    threadgroup float scratch[32];
    device const float *row = x + ulong(group.x) * ulong(a.dim);
    device float *out = h + ulong(group.x) * ulong(a.dim);
    float sum = 0.0f;
    for (uint i = tid; i < uint(a.dim); i += 256) sum += row[i] * row[i];
    sum = group_sum(sum, scratch, lane, sg, n_sg);
    const float r = precise::rsqrt(sum / float(a.dim) + a.eps);
    for (uint i = tid; i < uint(a.dim); i += 256) out[i] = row[i] * r * gain[i];
}

/* Activations as the matrix units take them. A half ends at 65504 and real models exceed that now and then, so each row is
 * multiplied by a power of two, which costs no digit, and the product's epilogue takes it out again. The largest magnitude is
 * found among the bit patterns: as integers they order like the numbers, and NaN comes out on top instead of being lost. */
kernel void act_half(constant ds_metal_rows &a [[buffer(0)]], device const float *x [[buffer(1)]], device half *xh [[buffer(2)]],
                     device float *scale [[buffer(3)]], uint3 group [[threadgroup_position_in_grid]],
                     uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                     uint sg [[simdgroup_index_in_threadgroup]], uint n_sg [[simdgroups_per_threadgroup]])
{
    threadgroup uint largest[32];
    device const float *row = x + ulong(group.x) * ulong(a.dim);
    device half *out = xh + ulong(group.x) * ulong(a.dim);
    uint top = 0;
    for (uint i = tid; i < uint(a.dim); i += 256) top = max(top, as_type<uint>(row[i]) & 0x7fffffffu);
    top = simd_max(top);
    if (lane == 0) largest[sg] = top;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 0; i < n_sg; i++) top = max(top, largest[i]);
    /* With exponent field e the row times 2^(136 - e) lies in [512, 1024). 2^126 is the last whose inverse is a normal number. */
    float s = 1.0f;
    if (top != 0 && top < 0x7f800000u) s = as_type<float>(min(263u - (top >> 23), 253u) << 23);
    for (uint i = tid; i < uint(a.dim); i += 256) out[i] = half(row[i] * s);
    if (tid == 0) scale[group.x] = s;
}

kernel void swiglu(constant ds_metal_count &a [[buffer(0)]], device const float *gate [[buffer(1)]], device const float *up [[buffer(2)]],
                   device float *act [[buffer(3)]], uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]])
{
    for (uint j = 0; j < 4; j++) {
        const ulong i = ulong(group.x) * 1024 + j * 256 + tid;
        if (i < ulong(a.count)) act[i] = silu(gate[i]) * up[i];
    }
}

kernel void copy(constant ds_metal_count &a [[buffer(0)]], device const float *src [[buffer(1)]], device float *dst [[buffer(2)]],
                 uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]])
{
    for (uint j = 0; j < 4; j++) {
        const ulong i = ulong(group.x) * 1024 + j * 256 + tid;
        if (i < ulong(a.count)) dst[i] = src[i];
    }
}

kernel void copy_cols(constant ds_metal_cols &a [[buffer(0)]], device const float *src [[buffer(1)]], device float *act [[buffer(2)]],
                      uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]])
{
    const uint i = group.x * 256 + tid;
    if (i < uint(a.dim)) act[ulong(group.y) * ulong(a.dim) + i] = src[ulong(group.y) * ulong(a.src_dim) + i % uint(a.src_dim)];
}

/* A simdgroup per head would do; a whole group keeps dv free and the code the same as above. */
kernel void gated_norm(constant ds_metal_gdn &a [[buffer(0)]], device const float *o [[buffer(1)]], device const float *z [[buffer(2)]],
                       device const float *gain [[buffer(3)]], device float *y [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                       uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                       uint sg [[simdgroup_index_in_threadgroup]], uint n_sg [[simdgroups_per_threadgroup]])
{
    threadgroup float scratch[32];
    const ulong at = (ulong(group.y) * ulong(a.n_vh) + group.x) * ulong(a.dv);
    float sum = 0.0f;
    for (uint i = tid; i < uint(a.dv); i += 128) sum += o[at + i] * o[at + i];
    sum = group_sum(sum, scratch, lane, sg, n_sg);
    const float r = precise::rsqrt(sum / float(a.dv) + a.eps);
    for (uint i = tid; i < uint(a.dv); i += 128) y[at + i] = o[at + i] * r * gain[i] * silu(z[at + i]);
}

/* Query halves and keys in place. Every thread writes only what it alone has read. */
kernel void qk_norm(constant ds_metal_attn &a [[buffer(0)]], device float *qg [[buffer(1)]], device float *k [[buffer(2)]],
                    device const float *gain_q [[buffer(3)]], device const float *gain_k [[buffer(4)]],
                    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                    uint n_sg [[simdgroups_per_threadgroup]])
{
    threadgroup float scratch[32];
    const uint n_head = uint(a.n_head), n_kv = uint(a.n_kv), hd = uint(a.hd);
    const bool is_q = group.x < n_head;
    device float *row = is_q ? qg + (ulong(group.y) * n_head + group.x) * 2 * hd : k + (ulong(group.y) * n_kv + (group.x - n_head)) * hd;
    device const float *gain = is_q ? gain_q : gain_k;
    float sum = 0.0f;
    for (uint i = tid; i < hd; i += 128) sum += row[i] * row[i];
    sum = group_sum(sum, scratch, lane, sg, n_sg);
    const float r = precise::rsqrt(sum / float(hd) + a.eps);
    for (uint i = tid; i < hd; i += 128) row[i] = row[i] * r * gain[i];
}

/* A value on its way to the cache. Half overflows to infinity by the format's own rule. */
static inline void keep(device half *dst, float v) { *dst = half(v); }
static inline void keep(device float *dst, float v) { *dst = v; }

/* Heads of the grid: queries, keys, values. Angles come from the host, which has double: in float, position times frequency
 * loses the digits that matter after some ten thousand tokens. The thread of the first of a pair turns both. */
template <typename KV>
kernel void rope_store(constant ds_metal_attn &a [[buffer(0)]], device float *qg [[buffer(1)]], device float *k [[buffer(2)]],
                       device const float *v [[buffer(3)]], device const float *turn [[buffer(4)]], device KV *kcache [[buffer(5)]],
                       device KV *vcache [[buffer(6)]], uint3 group [[threadgroup_position_in_grid]],
                       uint tid [[thread_index_in_threadgroup]])
{
    const uint n_head = uint(a.n_head), n_kv = uint(a.n_kv), hd = uint(a.hd), pairs = uint(a.n_rot) / 2, h = group.x;
    const ulong t = group.y;
    if (h >= n_head + n_kv) {
        const ulong at = (t * n_kv + (h - n_head - n_kv)) * hd;
        for (uint i = tid; i < hd; i += 128) keep(vcache + at + i, v[at + i]);
        return;
    }
    const bool is_q = h < n_head;
    const ulong at = (t * n_kv + (h - n_head)) * hd;               /* of a key */
    device float *row = is_q ? qg + (t * n_head + h) * 2 * hd : k + at;
    for (uint i = tid; i < pairs; i += 128) {
        const float c = turn[(t * pairs + i) * 2], s = turn[(t * pairs + i) * 2 + 1];
        const float x = row[i], y = row[i + pairs];
        const float x1 = x * c - y * s, y1 = y * c + x * s;
        row[i] = x1;
        row[i + pairs] = y1;
        if (!is_q) {
            keep(kcache + at + i, x1);
            keep(kcache + at + i + pairs, y1);
        }
    }
    if (!is_q)
        for (uint i = 2 * pairs + tid; i < hd; i += 128) keep(kcache + at + i, row[i]);
}
template [[host_name("rope_store_f16")]] kernel decltype(rope_store<half>) rope_store<half>;
template [[host_name("rope_store_f32")]] kernel decltype(rope_store<float>) rope_store<float>;
