/* Every function of the stand-in library once, with the results where a test can see them. */
#include "common.h"

constant int twice [[function_constant(1)]];

/* out[f][lane] for f = 0..19: what a simdgroup's lanes get, from in[lane]. */
kernel void lanes(constant ds_metal_count &a [[buffer(0)]], device const int *in [[buffer(1)]], device const float *fin [[buffer(2)]],
                  device int *out [[buffer(3)]], device float *fout [[buffer(4)]], uint lane [[thread_index_in_simdgroup]])
{
    const int x = in[lane];
    const float f = fin[lane];
    device int *o = out + lane;
    o[0] = simd_sum(x);
    o[32] = simd_max(x);
    o[64] = simd_min(x);
    o[96] = int(simd_max(uint(x)));
    o[128] = int(simd_min(uint(x)));
    o[160] = int(simd_and(uint(x)));
    o[192] = int(simd_or(uint(x)));
    o[224] = simd_prefix_inclusive_sum(x);
    o[256] = simd_prefix_exclusive_sum(x);
    o[288] = simd_shuffle(x, ushort(31 - lane));
    o[320] = simd_shuffle_xor(x, 5);
    o[352] = simd_shuffle_up(x, 3);
    o[384] = simd_shuffle_down(x, 3);
    o[416] = simd_broadcast(x, 7);
    o[448] = int(a.count) * twice;
    fout[lane] = simd_sum(f);
    fout[lane + 32] = simd_max(f);
    fout[lane + 64] = simd_min(f);
    fout[lane + 96] = simd_prefix_inclusive_sum(f);
}

/* in: a matrix of 16 columns. out: blocks of 64. */
kernel void matrices(device const float *in [[buffer(0)]], device float *out [[buffer(1)]], device half *hout [[buffer(2)]])
{
    simdgroup_float8x8 x, y, z;
    ulong2 origin;
    origin.x = 8;
    origin.y = 1;
    simdgroup_load(x, in, 16, origin);
    simdgroup_store(x, out);
    simdgroup_load(y, in, 16, origin, true);
    simdgroup_store(y, out + 64);
    simdgroup_multiply_accumulate(z, x, y, x);
    simdgroup_store(z, out + 128);
    simdgroup_store(z, out + 192, 8, ulong2(0), true);
    simdgroup_store(simdgroup_float8x8(3.0f), out + 256);
    simdgroup_store(make_filled_simdgroup_matrix<float, 8, 8>(2.0f), out + 320);
    simdgroup_half8x8 h = make_filled_simdgroup_matrix<half, 8, 8>(half(0.1f));
    simdgroup_store(h, hout);
}

/* Positions, and the two kinds of barrier: a value goes from each thread to its neighbour in the simdgroup, then in the group. */
kernel void threads(device int *out [[buffer(0)]], uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                    uint3 at [[thread_position_in_threadgroup]], uint3 size [[threads_per_threadgroup]],
                    uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                    uint sg [[simdgroup_index_in_threadgroup]], uint n_sg [[simdgroups_per_threadgroup]])
{
    threadgroup int box[64];
    device int *o = out + 8 * (tid + size.x * size.y * (group.x + groups.x * group.y));
    box[tid] = int(tid);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    o[0] = box[32 * sg + (lane + 1) % 32];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    o[1] = box[(tid + 40) % 64];
    o[2] = int(at.x + size.x * at.y);
    o[3] = int(n_sg);
    o[4] = int(group.x + groups.x * group.y);
    o[5] = box[0];
    o[6] = int(groups.z + size.z);
    o[7] = 0;
}
