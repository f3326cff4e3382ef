/* What the host asks before it trusts a device, and how fast it is. */
#include "common.h"

/* A known answer from each thing that the other kernels rely on: writes of every thread, threadgroup memory, simdgroup sums and
 * matrices. Devices without a real GPU accept kernels and write zeros. */
kernel void sentinel(constant ds_metal_sentinel &a [[buffer(0)]], device uint *out [[buffer(1)]], device float *product [[buffer(2)]],
                     device float *sums [[buffer(3)]], uint tid [[thread_index_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                     uint n_sg [[simdgroups_per_threadgroup]])
{
    threadgroup half left[64];
    threadgroup half right[64];
    threadgroup float scratch[32];
    out[tid] = (tid + a.seed) * 2654435761u;
    if (tid < 64) {
        left[tid] = half(float(int(tid / 8) - int(tid % 8)));
        right[tid] = half(float(tid / 8 + 2 * (tid % 8)));
    }
    const float own = simd_sum(float(lane)), all = group_sum(float(tid), scratch, lane, sg, n_sg);
    if (tid == 0) {
        sums[0] = own;
        sums[1] = all;
    }
    if (sg == 0) {
        simdgroup_half8x8 l, r;
        simdgroup_float8x8 p = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        simdgroup_load(l, left);
        simdgroup_load(r, right);
        simdgroup_multiply_accumulate(p, l, r, p);
        simdgroup_store(p, product);
    }
}

/* Eight chains a thread hide the latency of each. The factor below one keeps every chain finite. */
kernel void probe_fma(constant ds_metal_probe &a [[buffer(0)]], device float *out [[buffer(1)]],
                      uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]])
{
    float x[8];
    UNROLL
    for (uint i = 0; i < 8; i++) x[i] = float(tid + i);
    for (uint n = 0; n < a.count; n++)
        for (uint j = 0; j < 8; j++)
            UNROLL
            for (uint i = 0; i < 8; i++) x[i] = fma(x[i], 0.75f, 0.5f);
    float s = 0.0f;
    UNROLL
    for (uint i = 0; i < 8; i++) s += x[i];
    out[ulong(group.x) * 256 + tid] = s;
}

kernel void probe_mm(constant ds_metal_probe &a [[buffer(0)]], device float *out [[buffer(1)]],
                     uint3 group [[threadgroup_position_in_grid]], uint sg [[simdgroup_index_in_threadgroup]])
{
    const simdgroup_half8x8 l = make_filled_simdgroup_matrix<half, 8, 8>(half(0.25f)), r = make_filled_simdgroup_matrix<half, 8, 8>(half(0.5f));
    simdgroup_float8x8 p[8];
    UNROLL
    for (uint i = 0; i < 8; i++) p[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint n = 0; n < a.count; n++)
        UNROLL
        for (uint j = 0; j < 2; j++)
            UNROLL
            for (uint i = 0; i < 8; i++) simdgroup_multiply_accumulate(p[i], l, r, p[i]);
    const simdgroup_float8x8 one = simdgroup_float8x8(1.0f);       /* every chain ends up in the result, or it would be left out */
    UNROLL
    for (uint i = 1; i < 8; i++) simdgroup_multiply_accumulate(p[0], one, p[i], p[0]);
    simdgroup_store(p[0], out + (ulong(group.x) * 4 + sg) * 64);
}

kernel void probe_read(constant ds_metal_probe &a [[buffer(0)]], device const float *src [[buffer(1)]], device float *out [[buffer(2)]],
                       uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                       uint n_sg [[simdgroups_per_threadgroup]])
{
    threadgroup float scratch[32];
    device const float *p = src + ulong(group.x) * a.count * 256 + tid;
    float s = 0.0f;
    for (uint i = 0; i < a.count; i++) s += p[ulong(i) * 256];
    s = group_sum(s, scratch, lane, sg, n_sg);
    if (tid == 0) out[group.x] = s;
}
