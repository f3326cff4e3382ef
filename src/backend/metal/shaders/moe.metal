/* Mixture of experts around the products: choosing, sorting tokens by expert, adding up. */
#include "common.h"

/* A simdgroup per token. The k largest logits, the lower index first among equals: each round finds the first of those that
 * come after the last one found in that order. Nothing is marked, so any number of experts will do. The softmax over all
 * experts cancels in the renormalised weights. */
kernel void moe_route(constant ds_metal_route &a [[buffer(0)]], device const float *logits [[buffer(1)]],
                      device ds_metal_slot *route [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]])
{
    const uint t = 4 * group.x + sg, n_expert = uint(a.n_expert), none = 0xffffffffu;
    if (t >= uint(a.n)) return;
    device const float *row = logits + ulong(t) * n_expert;
    float last = 0.0f, top = 0.0f, sum = 0.0f;
    uint last_i = none;
    for (uint j = 0; j < uint(a.k); j++) {
        float best = NEVER;
        uint best_i = none;
        for (uint i = lane; i < n_expert; i += 32) {
            const float x = row[i];
            const bool open = last_i == none || x < last || (x == last && i > last_i);
            if (open && (best_i == none || x > best)) {
                best = x;
                best_i = i;
            }
        }
        const float most = simd_max(best);
        const uint first = simd_min(best_i != none && best == most ? best_i : none);
        last_i = first == none ? j : first;                        /* only logits that are no numbers leave none */
        last = row[last_i];
        if (j == 0) top = last;
        const float w = precise::exp(last - top);
        sum += w;
        if (lane == 0) {
            route[ulong(t) * uint(a.k) + j].expert = int(last_i);
            route[ulong(t) * uint(a.k) + j].weight = w;
        }
    }
    if (lane == 0)
        for (uint j = 0; j < uint(a.k); j++) route[ulong(t) * uint(a.k) + j].weight /= sum;
}

/* Slots in the order of their experts, rising within each, and tiles of at most 32 of one expert. One group: a thread counts and
 * writes the slots of its own experts, so the order is the same in every run, which atomic counters would not give. */
enum { SORT_EXPERTS = 1024, SORT_THREADS = 256 };

kernel void moe_sort(constant ds_metal_route &a [[buffer(0)]], device const ds_metal_slot *route [[buffer(1)]],
                     device uint *order [[buffer(2)]], device ds_metal_tile *tiles [[buffer(3)]], uint tid [[thread_index_in_threadgroup]])
{
    threadgroup uint first[SORT_EXPERTS];                          /* counts, then where an expert's slots begin */
    threadgroup uint first_tile[SORT_EXPERTS];
    threadgroup uint used_tiles[1];
    const uint slots = uint(a.n) * uint(a.k), n_expert = uint(a.n_expert);
    for (uint e = tid; e < n_expert; e += SORT_THREADS) {
        uint count = 0;
        for (uint s = 0; s < slots; s++) count += uint(route[s].expert) == e ? 1u : 0u;
        first[e] = count;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid == 0) {
        uint at = 0, tile = 0;
        for (uint e = 0; e < n_expert; e++) {
            const uint count = first[e];
            first[e] = at;
            first_tile[e] = tile;
            at += count;
            tile += (count + DS_METAL_TILE_TOKENS - 1) / DS_METAL_TILE_TOKENS;
        }
        used_tiles[0] = tile;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint e = tid; e < n_expert; e += SORT_THREADS) {
        const uint begin = first[e];
        uint at = begin;
        for (uint s = 0; s < slots; s++)
            if (uint(route[s].expert) == e) order[at++] = s;
        for (uint i = begin, tile = first_tile[e]; i < at; i += DS_METAL_TILE_TOKENS, tile++) {
            tiles[tile].expert = int(e);
            tiles[tile].first = int(i);
            tiles[tile].count = int(min(at - i, uint(DS_METAL_TILE_TOKENS)));
            tiles[tile].pad = 0;
        }
    }
    for (uint i = used_tiles[0] + tid; i < uint(a.n_tiles); i += SORT_THREADS) {
        tiles[i].expert = 0;
        tiles[i].first = 0;
        tiles[i].count = 0;
        tiles[i].pad = 0;
    }
}

kernel void moe_combine(constant ds_metal_combine &a [[buffer(0)]], device float *x [[buffer(1)]], device const float *y [[buffer(2)]],
                        device const ds_metal_slot *route [[buffer(3)]], device const float *shared [[buffer(4)]],
                        device const float *sg [[buffer(5)]], uint3 group [[threadgroup_position_in_grid]],
                        uint tid [[thread_index_in_threadgroup]])
{
    const uint i = group.x * 256 + tid, dim = uint(a.dim), k = uint(a.k);
    const ulong t = group.y;
    if (i >= dim) return;
    float s = x[t * dim + i];
    for (uint j = 0; j < k; j++) s += route[t * k + j].weight * y[(t * k + j) * dim + i];
    if (a.has_shared) s += (a.has_sg ? sigmoid(sg[t]) : 1.0f) * shared[t * dim + i];
    x[t * dim + i] = s;
}
