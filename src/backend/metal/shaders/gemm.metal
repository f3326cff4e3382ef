/* Products with many tokens: y = x W', on the weights as the file has them.
 *
 * A group of four simdgroups makes a tile of 64 weight rows by 32 tokens, walking the inner dimension in steps of 32. In each
 * step the 128 threads decode 64x32 weights into threadgroup memory and copy 32x32 activations beside them; then each
 * simdgroup multiplies its quarter, 32 rows by 16 tokens: eight 8x8 accumulators in float, which is 16 registers a lane.
 *
 * Why these sizes. A weight is decoded once per 32 tokens, so decoding (some 3 operations a weight) stays below a tenth of the
 * 64 that multiplying it takes. The two tiles are 6 KB in half (12 in float), the result's 8 KB take the same memory afterwards:
 * two groups fit a core of the older families, which halve the occupancy above 16 KB. 64 x 64 would halve the decoding again, but
 * 16 accumulators a lane cost more in registers than they gain on M1 to M4.
 *
 * Tiles lie as contiguous 8x8 blocks, one matrix load of adjacent bytes each: block (r, k) of a tile with four blocks in
 * k begins at 64 (4 r + k). A thread writes 8 consecutive elements of a row, one row of a block. */
#include "quant.h"

constant int edges [[function_constant(0)]];

enum { ROWS = DS_METAL_TILE_ROWS, TOKENS = DS_METAL_TILE_TOKENS, STEP = DS_METAL_TILE_IN, THREADS = 128 };

/* Threadgroup memory in floats: the two input tiles, or the result. */
template <typename T> struct pool_size {
    enum { inputs = (ROWS + TOKENS) * STEP * sizeof(T) / 4, result = ROWS * TOKENS, floats = inputs > result ? inputs : result };
};

/* Eight elements of a token, which begin at a multiple of four. */
static inline void take8(device const half *x, thread half (&h)[8])
{
    const half4 a = *(device const half4 *)x, b = *(device const half4 *)(x + 4);
    h[0] = a.x, h[1] = a.y, h[2] = a.z, h[3] = a.w;
    h[4] = b.x, h[5] = b.y, h[6] = b.z, h[7] = b.w;
}
static inline void take8(device const float *x, thread float (&h)[8])
{
    const float4 a = *(device const float4 *)x, b = *(device const float4 *)(x + 4);
    h[0] = a.x, h[1] = a.y, h[2] = a.z, h[3] = a.w;
    h[4] = b.x, h[5] = b.y, h[6] = b.z, h[7] = b.w;
}

/* What a thread brings in: 16 weights of one row, 8 activations of one token. */
template <typename W> struct loader {
    typedef typename W::tile T;
    device const uchar *row;                   /* of weights */
    device const T *x;                         /* of the token */
    uint in, w_k, x_k;                         /* elements of a row; where this thread's share begins in a step */
    bool checked;                              /* a row may end inside of a step */

    void load(uint k0, thread float (&w)[16], thread T (&h)[8])
    {
        const uint k = k0 + x_k;
        read16<W>(row, k0 + w_k, in, w);
        if (checked) {
            UNROLL
            for (uint i = 0; i < 8; i++) h[i] = k + i < in ? x[k + i] : T(0.0f);
        } else {
            take8(x + k, h);
        }
    }
};

/* Four elements of a tile in one store. */
static inline void put4(threadgroup half *to, half a, half b, half c, half d)
{
    half4 v;
    v.x = a, v.y = b, v.z = c, v.w = d;
    *(threadgroup half4 *)to = v;
}
static inline void put4(threadgroup float *to, float a, float b, float c, float d)
{
    float4 v;
    v.x = a, v.y = b, v.z = c, v.w = d;
    *(threadgroup float4 *)to = v;
}

/* acc[a][b]: weight rows 8b.. by tokens 8a.. of this simdgroup's quarter. Both tiles have k along their rows, so one of the two
 * must be loaded transposed: the tokens', of which there are two to four of the weights'. */
template <typename W>
static void multiply(loader<W> from, threadgroup typename W::tile *wt, threadgroup typename W::tile *xt, uint tid, uint sg,
                     thread simdgroup_float8x8 (&acc)[2][4])
{
    typedef typename W::tile T;
    const uint wr = tid / 2, xr = tid / 4;
    threadgroup T *w_to = wt + 64 * (4 * (wr / 8) + 2 * (tid % 2)) + 8 * (wr % 8);
    threadgroup T *x_to = xt + 64 * (4 * (xr / 8) + tid % 4) + 8 * (xr % 8);
    threadgroup const T *w_from = wt + 64 * 4 * (4 * (sg % 2)), *x_from = xt + 64 * 4 * (2 * (sg / 2));
    for (uint k0 = 0; k0 < from.in; k0 += STEP) {
        float w[16];
        T h[8];
        from.load(k0, w, h);                   /* before the barrier: decoding overlaps the other simdgroups' products */
        threadgroup_barrier(mem_flags::mem_threadgroup);
        UNROLL
        for (uint i = 0; i < 8; i += 4) {
            put4(w_to + i, T(w[i]), T(w[i + 1]), T(w[i + 2]), T(w[i + 3]));
            put4(w_to + 64 + i, T(w[8 + i]), T(w[9 + i]), T(w[10 + i]), T(w[11 + i]));
            put4(x_to + i, h[i], h[i + 1], h[i + 2], h[i + 3]);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        UNROLL
        for (uint k = 0; k < STEP / 8; k++) {
            simdgroup_matrix<T, 8, 8> x[2], wm[4];
            UNROLL
            for (uint a = 0; a < 2; a++) simdgroup_load(x[a], x_from + 64 * (4 * a + k), 8, ulong2(0), true);
            UNROLL
            for (uint b = 0; b < 4; b++) simdgroup_load(wm[b], w_from + 64 * (4 * b + k));
            UNROLL
            for (uint a = 0; a < 2; a++)
                UNROLL
                for (uint b = 0; b < 4; b++) simdgroup_multiply_accumulate(acc[a][b], wm[b], x[a], acc[a][b]);
        }
    }
}

/* Accumulators to threadgroup memory as [token][row], where any thread can find any element. */
static void lay_out(threadgroup float *result, uint sg, thread simdgroup_float8x8 (&acc)[2][4])
{
    threadgroup_barrier(mem_flags::mem_threadgroup);               /* the last step's tiles have been read */
    UNROLL
    for (uint a = 0; a < 2; a++)
        UNROLL
        for (uint b = 0; b < 4; b++)
            simdgroup_store(acc[a][b], result + (16 * (sg / 2) + 8 * a) * ROWS + 32 * (sg % 2) + 8 * b, ROWS, ulong2(0), true);
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

static void clear(thread simdgroup_float8x8 (&acc)[2][4])
{
    UNROLL
    for (uint a = 0; a < 2; a++)
        UNROLL
        for (uint b = 0; b < 4; b++) acc[a][b] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}

/* A whole tile: products of the loader's row and token with all others', to pool[token][row]. */
template <typename W> static void tile(loader<W> from, threadgroup float *pool, uint tid, uint sg)
{
    threadgroup typename W::tile *wt = (threadgroup typename W::tile *)pool;
    simdgroup_float8x8 acc[2][4];
    from.w_k = 16 * (tid % 2);
    from.x_k = 8 * (tid % 4);
    clear(acc);
    multiply<W>(from, wt, wt + ROWS * STEP, tid, sg, acc);
    lay_out(pool, sg, acc);
}

/* Rows and tokens past the end repeat the last one: their products are never stored. */
template <typename W>
static loader<W> matrix_loader(constant ds_metal_gemm &a, device const uchar *w, device const typename W::tile *x, uint t0, uint r0, uint tid)
{
    const uint in = uint(a.in);
    loader<W> from;
    from.row = w + ulong(min(r0 + tid / 2, uint(a.out) - 1)) * row_bytes<W>(in);
    from.x = x + ulong(min(t0 + tid / 4, uint(a.n) - 1)) * in;
    from.in = in;
    from.checked = edges != 0;
    return from;
}

static inline void put(constant ds_metal_gemm &a, device float *y, uint t, uint r, float v)
{
    device float *to = y + ulong(t) * ulong(a.ldy) + r;
    *to = a.add ? *to + v : v;
}

/* Quantised weights: half tiles, scaled activations. */
template <typename W>
kernel void gemm(constant ds_metal_gemm &a [[buffer(0)]], device const uchar *w [[buffer(1)]], device const half *xh [[buffer(2)]],
                 device const float *scale [[buffer(3)]], device float *y [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                 uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]])
{
    threadgroup float pool[pool_size<half>::floats];
    const uint n = uint(a.n), out = uint(a.out), t0 = group.x * TOKENS, r0 = group.y * ROWS;
    tile<W>(matrix_loader<W>(a, w, xh, t0, r0, tid), pool, tid, sg);
    for (uint i = tid; i < ROWS * TOKENS; i += THREADS) {
        const uint t = t0 + i / ROWS, r = r0 + i % ROWS;
        if (t >= n || r >= out) continue;
        put(a, y, t, r, pool[i] / scale[t]);
    }
}
template [[host_name("gemm_q8_0")]] kernel decltype(gemm<w_q8_0>) gemm<w_q8_0>;
template [[host_name("gemm_q4_0")]] kernel decltype(gemm<w_q4_0>) gemm<w_q4_0>;
template [[host_name("gemm_q4_k")]] kernel decltype(gemm<w_q4_k>) gemm<w_q4_k>;
template [[host_name("gemm_q5_k")]] kernel decltype(gemm<w_q5_k>) gemm<w_q5_k>;
template [[host_name("gemm_q6_k")]] kernel decltype(gemm<w_q6_k>) gemm<w_q6_k>;

/* Float weights: float tiles, the activations as they are. Such weights choose experts and open gates, where a rounding is not
 * averaged out but turns a decision over; and where all of a file is float, its products are as exact as the CPU's. */
template <typename W>
kernel void gemm_float(constant ds_metal_gemm &a [[buffer(0)]], device const uchar *w [[buffer(1)]], device const float *x [[buffer(2)]],
                       device float *y [[buffer(3)]], uint3 group [[threadgroup_position_in_grid]],
                       uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]])
{
    threadgroup float pool[pool_size<float>::floats];
    const uint t0 = group.x * TOKENS, r0 = group.y * ROWS, n = uint(a.n), out = uint(a.out);
    tile<W>(matrix_loader<W>(a, w, x, t0, r0, tid), pool, tid, sg);
    for (uint i = tid; i < ROWS * TOKENS; i += THREADS) {
        const uint t = t0 + i / ROWS, r = r0 + i % ROWS;
        if (t < n && r < out) put(a, y, t, r, pool[i]);
    }
}
template [[host_name("gemm_f16")]] kernel decltype(gemm_float<w_f16>) gemm_float<w_f16>;
template [[host_name("gemm_bf16")]] kernel decltype(gemm_float<w_bf16>) gemm_float<w_bf16>;
template [[host_name("gemm_f32")]] kernel decltype(gemm_float<w_f32>) gemm_float<w_f32>;

/* --- the same over tokens that chose one expert: a tile of the grid is up to 32 slots of the sorted order --- */

/* Whether the buffer at w has the tile's expert. It has or has not for the whole group: nobody waits at a barrier in vain. */
static inline bool has_expert(constant ds_metal_experts &a, device const ds_metal_tile &t)
{
    return t.count != 0 && t.expert >= a.e0 && t.expert - a.e0 < a.n_e;
}

template <typename W>
static loader<W> expert_loader(constant ds_metal_experts &a, device const uchar *w, device const typename W::tile *x, device const uint *order,
                               device const ds_metal_tile &t, uint r0, uint tid)
{
    const uint in = uint(a.in), out = uint(a.out), slot = order[uint(t.first) + min(tid / 4, uint(t.count) - 1)];
    loader<W> from;
    from.row = w + (ulong(t.expert - a.e0) * out + min(r0 + tid / 2, out - 1)) * row_bytes<W>(in);
    from.x = x + ulong(slot / uint(a.per_x)) * in;
    from.in = in;
    from.checked = true;
    return from;
}

template <typename W>
kernel void gemm_experts(constant ds_metal_experts &a [[buffer(0)]], device const uchar *w [[buffer(1)]],
                         device const half *xh [[buffer(2)]], device const float *scale [[buffer(3)]], device const uint *order [[buffer(4)]],
                         device const ds_metal_tile *tiles [[buffer(5)]], device float *y [[buffer(6)]],
                         uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                         uint sg [[simdgroup_index_in_threadgroup]])
{
    threadgroup float pool[pool_size<half>::floats];
    device const ds_metal_tile &of = tiles[group.x];
    const uint out = uint(a.out), r0 = group.y * ROWS;
    if (!has_expert(a, of)) return;
    tile<W>(expert_loader<W>(a, w, xh, order, of, r0, tid), pool, tid, sg);
    for (uint i = tid; i < ROWS * TOKENS; i += THREADS) {
        const uint t = i / ROWS, r = r0 + i % ROWS;
        if (t >= uint(of.count) || r >= out) continue;
        const uint slot = order[uint(of.first) + t];
        y[ulong(slot) * out + r] = pool[i] / scale[slot / uint(a.per_x)];
    }
}
template [[host_name("gemm_experts_q8_0")]] kernel decltype(gemm_experts<w_q8_0>) gemm_experts<w_q8_0>;
template [[host_name("gemm_experts_q4_0")]] kernel decltype(gemm_experts<w_q4_0>) gemm_experts<w_q4_0>;
template [[host_name("gemm_experts_q4_k")]] kernel decltype(gemm_experts<w_q4_k>) gemm_experts<w_q4_k>;
template [[host_name("gemm_experts_q5_k")]] kernel decltype(gemm_experts<w_q5_k>) gemm_experts<w_q5_k>;
template [[host_name("gemm_experts_q6_k")]] kernel decltype(gemm_experts<w_q6_k>) gemm_experts<w_q6_k>;

template <typename W>
kernel void gemm_experts_float(constant ds_metal_experts &a [[buffer(0)]], device const uchar *w [[buffer(1)]],
                               device const float *x [[buffer(2)]], device const uint *order [[buffer(3)]],
                               device const ds_metal_tile *tiles [[buffer(4)]], device float *y [[buffer(5)]],
                               uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                               uint sg [[simdgroup_index_in_threadgroup]])
{
    threadgroup float pool[pool_size<float>::floats];
    device const ds_metal_tile &of = tiles[group.x];
    const uint out = uint(a.out), r0 = group.y * ROWS;
    if (!has_expert(a, of)) return;
    tile<W>(expert_loader<W>(a, w, x, order, of, r0, tid), pool, tid, sg);
    for (uint i = tid; i < ROWS * TOKENS; i += THREADS) {
        const uint t = i / ROWS, r = r0 + i % ROWS;
        if (t < uint(of.count) && r < out) y[ulong(order[uint(of.first) + t]) * out + r] = pool[i];
    }
}
template [[host_name("gemm_experts_f16")]] kernel decltype(gemm_experts_float<w_f16>) gemm_experts_float<w_f16>;
template [[host_name("gemm_experts_bf16")]] kernel decltype(gemm_experts_float<w_bf16>) gemm_experts_float<w_bf16>;
template [[host_name("gemm_experts_f32")]] kernel decltype(gemm_experts_float<w_f32>) gemm_experts_float<w_f32>;
