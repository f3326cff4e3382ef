/* Causal attention over the cache, two forms: many queries (heads of 256), and few queries with the keys divided over groups.
 * Both keep a running maximum m, the sum l of exp(s - m), and sums of exp(s - m) v, all float.
 *
 * Masked scores are NEVER, a finite number, and their weights are set to zero explicitly: infinities would turn into NaN where
 * a row has no visible key yet, and mean nothing in fast mode. */
#include "common.h"

/* --- many queries ---
 *
 * A group takes 8 queries of one head and walks the keys 32 at a time. Scores: each of the four simdgroups multiplies the 8 x 256
 * queries with 8 keys, both straight from where they lie: K is read as 8x8 tiles from the cache itself, since every element
 * is used once per group and a trip through threadgroup memory would only cost its barriers. Softmax: sixteen threads a query.
 * Then each simdgroup adds P V for its 64 of the 256 value dimensions, eight accumulators.
 *
 * Rows of the accumulators are rescaled when a maximum rises by multiplying with a diagonal matrix.
 *
 * Tiles have the cache's type. Queries are rounded to it: after the query norm they are of the size of the norm's gain, far from
 * half's limits. Accumulators in half would overflow (llama.cpp#13975). */
enum { QUERIES = DS_METAL_ATTN_TOKENS, KEYS = 32, HD = 256, OWN = 64 };

/* An 8x8 tile of the cache, rows row.. and columns col.., of which only rows below `rows` exist: past them zeros, by way of
 * threadgroup memory. The last tile of a cache that is exactly as long as the context would otherwise be read beyond its end. */
template <typename T>
static inline void load_rows(thread simdgroup_matrix<T, 8, 8> &m, device const T *cache, uint row, uint rows, ulong stride, uint col,
                             bool transpose, threadgroup T *spare, uint lane)
{
    if (row + 8 <= rows) {
        simdgroup_load(m, cache + ulong(row) * stride + col, stride, ulong2(0), transpose);
        return;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = lane; i < 64; i += 32) spare[i] = row + i / 8 < rows ? cache[ulong(row + i / 8) * stride + col + i % 8] : T(0.0f);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_load(m, spare, 8, ulong2(0), transpose);
}

template <typename T>
kernel void attn_prefill(constant ds_metal_attn &a [[buffer(0)]], device const float *qg [[buffer(1)]], device const T *kcache [[buffer(2)]],
                         device const T *vcache [[buffer(3)]], device float *y [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                         uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                         uint sg [[simdgroup_index_in_threadgroup]])
{
    threadgroup float pool[QUERIES * HD];                          /* queries as T, at the end the output */
    threadgroup float scores[QUERIES * KEYS];                      /* four 8x8 blocks, as each simdgroup stores its own */
    threadgroup T weights[QUERIES * KEYS];                         /* the same places */
    threadgroup float change[64];                                  /* diagonal: exp(old m - new m) of each query */
    threadgroup float sums[QUERIES];
    threadgroup T spare[4 * 64];
    threadgroup T *qt = (threadgroup T *)pool;

    const uint n = uint(a.n), n_head = uint(a.n_head), n_kv = uint(a.n_kv), head = group.y, t0 = group.x * QUERIES;
    const uint rows = uint(a.pos) + n, seen = uint(a.pos) + min(t0 + QUERIES, n);      /* of the cache; by the group's last query */
    const ulong stride = ulong(n_kv) * HD;
    device const T *kc = kcache + (head / (n_head / n_kv)) * HD, *vc = vcache + (head / (n_head / n_kv)) * HD;

    /* Queries as 32 blocks of 8x8. Past the last token the last again: computed, not stored. */
    for (uint i = tid; i < QUERIES * HD; i += 128) {
        const uint t = min(t0 + i / HD, n - 1), d = i % HD;
        qt[64 * (d / 8) + 8 * (i / HD) + d % 8] = T(qg[(ulong(t) * n_head + head) * 2 * HD + d]);
    }
    if (tid < 64) change[tid] = 0.0f;

    simdgroup_float8x8 acc[OWN / 8];
    UNROLL
    for (uint i = 0; i < OWN / 8; i++) acc[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    const uint row = tid / 16, key = tid % 16, visible = uint(a.pos) + min(t0 + row, n - 1);   /* this thread's query sees 0..visible */
    float m = NEVER, l = 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (uint k0 = 0; k0 < seen; k0 += KEYS) {
        simdgroup_float8x8 s = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        if (k0 + 8 * sg < rows) {
            for (uint d = 0; d < HD / 8; d++) {
                simdgroup_matrix<T, 8, 8> qm, km;
                simdgroup_load(qm, qt + 64 * d);
                load_rows(km, kc, k0 + 8 * sg, rows, stride, 8 * d, true, spare + 64 * sg, lane);
                simdgroup_multiply_accumulate(s, qm, km, s);
            }
        }
        simdgroup_store(s, scores + 64 * sg);
        threadgroup_barrier(mem_flags::mem_threadgroup);

        /* Keys `key` and `key + 16` of the 32. The sixteen threads of a query are neighbours in one simdgroup. */
        const uint x0 = 64 * (key / 8) + 8 * row + key % 8, x1 = x0 + 128;
        const bool sees0 = k0 + key <= visible, sees1 = k0 + key + 16 <= visible;
        const float s0 = sees0 ? scores[x0] * a.scale : NEVER, s1 = sees1 ? scores[x1] * a.scale : NEVER;
        float top = max(m, max(s0, s1));
        for (ushort d = 8; d > 0; d /= 2) top = max(top, simd_shuffle_xor(top, d));
        const float w0 = sees0 ? precise::exp(s0 - top) : 0.0f, w1 = sees1 ? precise::exp(s1 - top) : 0.0f;
        float sum = w0 + w1;
        for (ushort d = 8; d > 0; d /= 2) sum += simd_shuffle_xor(sum, d);
        const float old = precise::exp(m - top);
        l = l * old + sum;
        m = top;
        weights[x0] = T(w0);
        weights[x1] = T(w1);
        if (key == 0) change[9 * row] = old;
        threadgroup_barrier(mem_flags::mem_threadgroup);

        simdgroup_float8x8 scale;
        simdgroup_load(scale, change);
        UNROLL
        for (uint i = 0; i < OWN / 8; i++) {
            simdgroup_float8x8 scaled = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
            simdgroup_multiply_accumulate(scaled, scale, acc[i], scaled);
            acc[i] = scaled;
        }
        for (uint j = 0; j < KEYS / 8; j++) {
            if (k0 + 8 * j >= seen) continue;                      /* weights are zero there */
            simdgroup_matrix<T, 8, 8> pm, vm;
            simdgroup_load(pm, weights + 64 * j);
            UNROLL
            for (uint i = 0; i < OWN / 8; i++) {
                load_rows(vm, vc, k0 + 8 * j, rows, stride, OWN * sg + 8 * i, false, spare + 64 * sg, lane);
                simdgroup_multiply_accumulate(acc[i], pm, vm, acc[i]);
            }
        }
    }

    if (key == 0) sums[row] = l;
    threadgroup_barrier(mem_flags::mem_threadgroup);               /* the queries have been used */
    UNROLL
    for (uint i = 0; i < OWN / 8; i++) simdgroup_store(acc[i], pool + OWN * sg + 8 * i, HD);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = tid; i < QUERIES * HD; i += 128) {
        const uint t = t0 + i / HD, d = i % HD;
        if (t >= n) continue;
        y[(ulong(t) * n_head + head) * HD + d] = pool[i] / sums[i / HD] * sigmoid(qg[(ulong(t) * n_head + head) * 2 * HD + HD + d]);
    }
}
template [[host_name("attn_prefill_f16")]] kernel decltype(attn_prefill<half>) attn_prefill<half>;
template [[host_name("attn_prefill_f32")]] kernel decltype(attn_prefill<float>) attn_prefill<float>;

/* --- few queries ---
 *
 * With one query the cache's bytes are the cost, so the keys are divided over groups and in each over four simdgroups, whose lanes
 * read neighbouring dimensions. Four keys at a time: their sums over the lanes do not wait for each other. */
enum { PER_LANE = DS_METAL_MAX_HD / 32, AT_ONCE = 4 };

template <typename T>
kernel void attn_part(constant ds_metal_attn &a [[buffer(0)]], device const float *qg [[buffer(1)]], device const T *kcache [[buffer(2)]],
                      device const T *vcache [[buffer(3)]], device float *part [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                      uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                      uint sg [[simdgroup_index_in_threadgroup]])
{
    threadgroup float all[4 * DS_METAL_MAX_HD];
    threadgroup float all_m[4];
    threadgroup float all_l[4];
    const uint n_head = uint(a.n_head), n_kv = uint(a.n_kv), hd = uint(a.hd), head = group.y;
    const ulong t = group.z, stride = ulong(n_kv) * hd;
    const uint begin = group.x * uint(a.per_split), end = min(begin + uint(a.per_split), uint(a.pos) + uint(t) + 1);
    device const float *q = qg + (t * n_head + head) * 2 * hd;
    device const T *kc = kcache + (head / (n_head / n_kv)) * hd, *vc = vcache + (head / (n_head / n_kv)) * hd;
    float qv[PER_LANE], acc[PER_LANE], m = NEVER, l = 0.0f;
    UNROLL
    for (uint i = 0; i < PER_LANE; i++) {
        qv[i] = lane + 32 * i < hd ? q[lane + 32 * i] * a.scale : 0.0f;
        acc[i] = 0.0f;
    }
    for (uint p = begin + AT_ONCE * sg; p < end; p += 4 * AT_ONCE) {
        float s[AT_ONCE], top = m;
        UNROLL
        for (uint j = 0; j < AT_ONCE; j++) {
            s[j] = 0.0f;
            UNROLL
            for (uint i = 0; i < PER_LANE; i++)
                if (p + j < end && lane + 32 * i < hd) s[j] += qv[i] * float(kc[ulong(p + j) * stride + lane + 32 * i]);
            s[j] = simd_sum(s[j]);
        }
        UNROLL
        for (uint j = 0; j < AT_ONCE; j++) top = p + j < end ? max(top, s[j]) : top;
        const float old = precise::exp(m - top);
        l *= old;
        UNROLL
        for (uint i = 0; i < PER_LANE; i++) acc[i] *= old;
        UNROLL
        for (uint j = 0; j < AT_ONCE; j++) {
            if (p + j >= end) continue;
            const float w = precise::exp(s[j] - top);
            l += w;
            UNROLL
            for (uint i = 0; i < PER_LANE; i++)
                if (lane + 32 * i < hd) acc[i] += w * float(vc[ulong(p + j) * stride + lane + 32 * i]);
        }
        m = top;
    }
    UNROLL
    for (uint i = 0; i < PER_LANE; i++)
        if (lane + 32 * i < hd) all[hd * sg + lane + 32 * i] = acc[i];
    if (lane == 0) {
        all_m[sg] = m;
        all_l[sg] = l;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    device float *out = part + ((t * n_head + head) * ulong(a.n_split) + group.x) * (hd + 2);
    const float top = max(max(all_m[0], all_m[1]), max(all_m[2], all_m[3]));
    float w[4], sum = 0.0f;
    UNROLL
    for (uint j = 0; j < 4; j++) {
        w[j] = precise::exp(all_m[j] - top);
        sum += w[j] * all_l[j];
    }
    for (uint i = tid; i < hd; i += 128) out[i] = w[0] * all[i] + w[1] * all[hd + i] + w[2] * all[2 * hd + i] + w[3] * all[3 * hd + i];
    if (tid == 0) {
        out[hd] = top;
        out[hd + 1] = sum;
    }
}
template [[host_name("attn_part_f16")]] kernel decltype(attn_part<half>) attn_part<half>;
template [[host_name("attn_part_f32")]] kernel decltype(attn_part<float>) attn_part<float>;

/* Every thread finds the maximum and the sum for itself: n_split is small, and there is no barrier. */
kernel void attn_merge(constant ds_metal_attn &a [[buffer(0)]], device const float *qg [[buffer(1)]], device const float *part [[buffer(2)]],
                       device float *y [[buffer(3)]], uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]])
{
    const uint n_split = uint(a.n_split), hd = uint(a.hd);
    const ulong row = ulong(group.y) * ulong(a.n_head) + group.x;
    device const float *p = part + row * n_split * (hd + 2);
    float top = NEVER, sum = 0.0f;
    for (uint s = 0; s < n_split; s++) top = max(top, p[s * (hd + 2) + hd]);
    for (uint s = 0; s < n_split; s++) sum += precise::exp(p[s * (hd + 2) + hd] - top) * p[s * (hd + 2) + hd + 1];
    for (uint i = tid; i < hd; i += 128) {
        float v = 0.0f;
        for (uint s = 0; s < n_split; s++) v += precise::exp(p[s * (hd + 2) + hd] - top) * p[s * (hd + 2) + i];
        y[row * hd + i] = v / sum * sigmoid(qg[row * 2 * hd + hd + i]);
    }
}
