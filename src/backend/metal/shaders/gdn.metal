/* Gated DeltaNet, all but the chunkwise form: conv and gates, the recurrence token by token, the conv state. */
#include "common.h"

/* Row t of the projections in channel c, where rows before the step come from the conv state. */
static inline float conv_input(device const float *conv, device const float *u, ulong channels, int k_1, int t, ulong c)
{
    return t >= 0 ? u[ulong(t) * channels + c] : conv[ulong(t + k_1) * channels + c];
}

static inline float conv_silu(device const float *conv, device const float *u, device const float *w, ulong channels, int conv_k, int t, ulong c)
{
    float s = 0.0f;
    for (int j = 0; j < conv_k; j++) s += w[c * ulong(conv_k) + ulong(j)] * conv_input(conv, u, channels, conv_k - 1, t - (conv_k - 1) + j, c);
    return silu(s);
}

/* A group makes one head of one token: q or k, normalised over the head, or v and the head's gates. The three passes that this
 * fuses (conv, norm, split) would each write and read the widest activation of the layer. */
kernel void gdn_prep(constant ds_metal_gdn &a [[buffer(0)]], device const float *conv [[buffer(1)]], device const float *u [[buffer(2)]],
                     device const float *ga [[buffer(3)]], device const float *gb [[buffer(4)]], device const float *conv_w [[buffer(5)]],
                     device const float *ssm_a [[buffer(6)]], device const float *ssm_dt [[buffer(7)]], device float *q [[buffer(8)]],
                     device float *k [[buffer(9)]], device float *v [[buffer(10)]], device float *g [[buffer(11)]],
                     device float *beta [[buffer(12)]], uint3 group [[threadgroup_position_in_grid]],
                     uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                     uint sg [[simdgroup_index_in_threadgroup]], uint n_sg [[simdgroups_per_threadgroup]])
{
    threadgroup float scratch[32];
    const uint n_kh = uint(a.n_kh), n_vh = uint(a.n_vh), dk = uint(a.dk), dv = uint(a.dv), head = group.x;
    const ulong channels = 2 * ulong(n_kh) * dk + ulong(n_vh) * dv;
    const int t = int(group.y);
    if (head >= 2 * n_kh) {
        const uint h = head - 2 * n_kh;
        const ulong base = 2 * ulong(n_kh) * dk + ulong(h) * dv, to = (ulong(t) * n_vh + h) * dv;
        for (uint i = tid; i < dv; i += 128) v[to + i] = conv_silu(conv, u, conv_w, channels, a.conv_k, t, base + i);
        if (tid == 0) {
            const ulong at = ulong(t) * n_vh + h;
            beta[at] = sigmoid(gb[at]);
            g[at] = ssm_a[h] * softplus(ga[at] + ssm_dt[h]);
        }
        return;
    }
    /* dk <= 256: a thread keeps its one or two values from the sum to the scaling. */
    const bool is_q = head < n_kh;
    float f[2], sum = 0.0f;
    UNROLL
    for (uint j = 0; j < 2; j++) {
        const uint i = tid + 128 * j;
        f[j] = i < dk ? conv_silu(conv, u, conv_w, channels, a.conv_k, t, ulong(head) * dk + i) : 0.0f;
        sum += f[j] * f[j];
    }
    sum = group_sum(sum, scratch, lane, sg, n_sg);
    const float r = (is_q ? precise::rsqrt(float(dk)) : 1.0f) / max(precise::sqrt(sum), a.eps);
    device float *to = (is_q ? q : k) + (ulong(t) * n_kh + (is_q ? head : head - n_kh)) * dk;
    UNROLL
    for (uint j = 0; j < 2; j++)
        if (tid + 128 * j < dk) to[tid + 128 * j] = f[j] * r;
}

/* dst <- the last conv_k - 1 rows of [conv; u]. With few tokens old rows remain, one place further up. */
kernel void conv_tail(constant ds_metal_gdn &a [[buffer(0)]], device const float *conv [[buffer(1)]], device const float *u [[buffer(2)]],
                      device float *dst [[buffer(3)]], uint3 group [[threadgroup_position_in_grid]],
                      uint tid [[thread_index_in_threadgroup]])
{
    const ulong channels = 2 * ulong(a.n_kh) * ulong(a.dk) + ulong(a.n_vh) * ulong(a.dv), c = ulong(group.x) * 256 + tid;
    if (c >= channels) return;
    for (int r = 0; r < a.conv_k - 1; r++)
        dst[ulong(r) * channels + c] = conv_input(conv, u, channels, a.conv_k - 1, a.n + r - (a.conv_k - 1), c);
}

/* The recurrence token by token:   S <- e S,  d = beta (v - S'k),  S <- S + k d',  o = S'q,   e = exp(g).
 *
 * Columns of S never meet, so the parallelism is heads x columns; along the tokens it is a chain, and what counts is how long
 * one link takes. A column is held by four neighbouring lanes, each with a quarter of its dk rows in registers. Written as
 * above a link has two reductions over the column, one waiting for the other. Because
 *     S'q (new) = e S'q (old) + (k.q) d
 * both can be taken of the old state at once, and k.q is one number per token that the group computes ahead. One reduction
 * over four lanes is two shuffles.
 *
 * k, q and v come into threadgroup memory eight tokens at a time, so that there is no barrier between the links. */
enum { SEQ_TOKENS = 8, SEQ_COLS = DS_METAL_GDN_COLS };

/* Row of the state that register r of lane part p holds. Four consecutive rows per lane: one wide load of k. */
static inline uint state_row(uint r, uint part) { return 16 * (r / 4) + 4 * part + r % 4; }

template <int PER>
static void gdn_tokens(constant ds_metal_gdn &a, device const float *q, device const float *k, device const float *v,
                       device const float *g, device const float *beta, device const float *s_in, device float *s_out,
                       device float *o, threadgroup float *kt, threadgroup float *qt, threadgroup float *vt,
                       threadgroup float *e, threadgroup float *b, threadgroup float *kq, uint head, uint col0, uint tid, uint lane, uint sg)
{
    const uint n_kh = uint(a.n_kh), n_vh = uint(a.n_vh), dk = uint(a.dk), dv = uint(a.dv), key_head = head % n_kh;
    const uint part = lane % 4, local = 8 * sg + lane / 4, col = col0 + local;
    const bool live = col < dv;                                    /* lanes past the last column go along for the barriers */
    const ulong state = ulong(head) * dk * dv + col;
    float s[PER];
    UNROLL
    for (uint r = 0; r < uint(PER); r++) {
        const uint i = state_row(r, part);
        s[r] = live && i < dk ? s_in[state + ulong(i) * dv] : 0.0f;
    }
    for (uint t0 = uint(a.t0); t0 < uint(a.t1); t0 += SEQ_TOKENS) {
        const uint n = min(uint(SEQ_TOKENS), uint(a.t1) - t0);
        threadgroup_barrier(mem_flags::mem_threadgroup);           /* the last tokens have been used */
        for (uint t = 0; t < n; t++) {
            const ulong row = (ulong(t0 + t) * n_kh + key_head) * dk;
            for (uint i = tid; i < dk; i += 128) {
                kt[t * dk + i] = k[row + i];
                qt[t * dk + i] = q[row + i];
            }
        }
        for (uint i = tid; i < n * SEQ_COLS; i += 128) {
            const uint c = col0 + i % SEQ_COLS;
            vt[i] = c < dv ? v[(ulong(t0 + i / SEQ_COLS) * n_vh + head) * dv + c] : 0.0f;
        }
        float dot_kq = 0.0f;                                       /* sixteen threads a token */
        if (tid / 16 < n) {
            const ulong row = (ulong(t0 + tid / 16) * n_kh + key_head) * dk;
            for (uint i = tid % 16; i < dk; i += 16) dot_kq += k[row + i] * q[row + i];
        }
        for (ushort d = 8; d > 0; d /= 2) dot_kq += simd_shuffle_xor(dot_kq, d);
        if (tid / 16 < n && tid % 16 == 0) {
            const ulong at = ulong(t0 + tid / 16) * n_vh + head;
            kq[tid / 16] = dot_kq;
            e[tid / 16] = precise::exp(g[at]);
            b[tid / 16] = beta[at];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint t = 0; t < n; t++) {
            threadgroup const float *kr = kt + t * dk, *qr = qt + t * dk;
            float sk = 0.0f, sq = 0.0f;
            UNROLL
            for (uint r = 0; r < uint(PER); r++) {
                const uint i = state_row(r, part);
                if (i < dk) {
                    sk += s[r] * kr[i];
                    sq += s[r] * qr[i];
                }
            }
            sk += simd_shuffle_xor(sk, 1);
            sq += simd_shuffle_xor(sq, 1);
            sk += simd_shuffle_xor(sk, 2);
            sq += simd_shuffle_xor(sq, 2);
            const float d = b[t] * (vt[t * SEQ_COLS + local] - e[t] * sk);
            UNROLL
            for (uint r = 0; r < uint(PER); r++) {
                const uint i = state_row(r, part);
                if (i < dk) s[r] = e[t] * s[r] + kr[i] * d;
            }
            if (part == 0 && live) o[(ulong(t0 + t) * n_vh + head) * dv + col] = e[t] * sq + kq[t] * d;
        }
    }
    UNROLL
    for (uint r = 0; r < uint(PER); r++) {
        const uint i = state_row(r, part);
        if (live && i < dk) s_out[state + ulong(i) * dv] = s[r];
    }
}

kernel void gdn_seq(constant ds_metal_gdn &a [[buffer(0)]], device const float *q [[buffer(1)]], device const float *k [[buffer(2)]],
                    device const float *v [[buffer(3)]], device const float *g [[buffer(4)]], device const float *beta [[buffer(5)]],
                    device const float *s_in [[buffer(6)]], device float *s_out [[buffer(7)]], device float *o [[buffer(8)]],
                    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]])
{
    threadgroup float kt[SEQ_TOKENS * DS_METAL_MAX_DK];
    threadgroup float qt[SEQ_TOKENS * DS_METAL_MAX_DK];
    threadgroup float vt[SEQ_TOKENS * SEQ_COLS];
    threadgroup float e[SEQ_TOKENS];
    threadgroup float b[SEQ_TOKENS];
    threadgroup float kq[SEQ_TOKENS];
    /* The register array has the size that the loop over it has: a run-time bound would put it into memory. */
    if (a.dk <= 128) gdn_tokens<32>(a, q, k, v, g, beta, s_in, s_out, o, kt, qt, vt, e, b, kq, group.y, group.x * SEQ_COLS, tid, lane, sg);
    else gdn_tokens<64>(a, q, k, v, g, beta, s_in, s_out, o, kt, qt, vt, e, b, kq, group.y, group.x * SEQ_COLS, tid, lane, sg);
}
