/* Gated DeltaNet, chunk after chunk: the recurrence of gdn.metal for 32 tokens at once, as matrix products.
 *
 * The mathematics. Number the tokens of a chunk 0..C-1, let S be the state before it, e_i the decay of token i, and
 *     D_ij = e_{j+1} ... e_i  (j <= i; D_ii = 1)          E_i = e_0 ... e_i
 * Token i reads the state that tokens j < i have already changed, and what token j added is k_j n_j' with n_j its corrected
 * value (d in gdn.metal). Unrolling that gives, for all tokens together,
 *     n_i + sum_{j<i} A_ij n_j = beta_i (v_i - E_i S'k_i)          A_ij = beta_i (k_i.k_j) D_ij
 *     o_i = E_i S'q_i + sum_{j<=i} P_ij n_j                        P_ij = (q_i.k_j) D_ij
 *     S  <- E_{C-1} S + sum_j D_{C-1,j} k_j n_j'
 * that is: K S, Q S, K K' and Q K' are products; then a triangular solve of size 32; then P N and K'N. What was a chain of 32
 * links is one short solve, and all the rest runs on the matrix units.
 *
 * Work division. A group owns 32 value columns of one head and each of its four simdgroups 8 of them, for good: the columns of
 * S, N and O never meet. A simdgroup keeps its 128 x 8 slice of S in registers as sixteen 8x8 tiles from the first chunk to
 * the last. What the group shares is K and Q, which pass through threadgroup memory in slices of 32 of the 128 dimensions,
 * and the two 32 x 32 matrices A and P, of which each simdgroup makes one column of tiles. Groups of one head, and heads that
 * share a key head, make A and P again each for itself: a quarter of the products, and cheaper than another kernel and its
 * traffic as long as the whole recurrence is one part in fifty of a prompt.
 *
 * Decays. D could be exp(c_i - c_j) of running sums c; but g falls to -100 and below in real models, and then the difference
 * of two large floats has lost the digits that D needs. As a product of the e_t it has all of them, never exceeds one, and
 * dies to zero where it should. No exponential of a positive number is ever taken, and none of a sum.
 *
 * The solve. T = I + A is lower triangular with ones on its diagonal. Its 8x8 blocks: the four on the diagonal are inverted by
 * substitution (eight lanes, eight steps), after that
 *     N_b = T_bb^-1 (R_b - sum_{a<b} A_ba N_a)
 * is ten tile products per simdgroup. A is kept negated, because the units can add a product but not subtract one.
 *
 * All of it is float. With half tiles K K' would be off by 1e-3, which the solve turns into an error of the state that stays.
 *
 * A chunk ends at an absolute multiple of 32 whatever the step's first token is, so the first and last may be short: missing
 * tokens have k = q = v = 0, beta = 0, e = 1, and change nothing. Threadgroup memory: 17 KB. */
#include "common.h"

enum { C = DS_METAL_GDN_CHUNK, DK = 128, SLICE = 32, N_SLICE = DK / SLICE, COLS = DS_METAL_GDN_COLS, NB = C / 8 };

/* 32 x 32 matrices lie as 8x8 blocks, each contiguous: element (i, j), and block (bi, bj). */
static inline uint at(uint i, uint j) { return 64 * (NB * (i / 8) + j / 8) + 8 * (i % 8) + j % 8; }
static inline uint block(uint bi, uint bj) { return 64 * (NB * bi + bj); }

/* Tokens t .. t+n-1, dimensions d0 .. d0+31 of one key head, zeros after them. 128 threads, 8 values each. */
static inline void stage(threadgroup float *to, device const float *from, uint stride, uint n, uint d0, uint tid)
{
    const uint i = tid / 4, j = 8 * (tid % 4);
    threadgroup float *p = to + at(i, j);
    device const float *row = from + ulong(i) * stride + d0 + j;
    for (uint c = 0; c < 8; c++) p[c] = i < n ? row[c] : 0.0f;
}

/* Turns K K' into -A and Q K' into P. A thread has eight columns of one row and walks them from the right: the product of
 * decays grows by one factor per step. Columns right of its eight only pass by. */
static inline void apply_decays(threadgroup float *am, threadgroup float *pm, threadgroup const float *e, threadgroup const float *beta,
                                threadgroup float *row_decay, threadgroup float *tail_decay, uint tid)
{
    const int i = int(tid / 4), j0 = 8 * int(tid % 4);
    float d = 1.0f;
    for (int j = i; j >= j0; j--) {
        if (j < j0 + 8) {
            const uint x = at(uint(i), uint(j));
            pm[x] *= d;
            am[x] = j < i ? -beta[i] * am[x] * d : 0.0f;
            if (i == C - 1) tail_decay[j] = d;
        }
        d *= e[j];
    }
    if (j0 == 0) row_decay[i] = d;
    if (i / 8 == j0 / 8)
        for (int j = i + 1; j < j0 + 8; j++) pm[at(uint(i), uint(j))] = 0.0f;
}

/* Column `lane` of the inverse of diagonal block b of I + A. */
static inline void invert(threadgroup float *inv, threadgroup const float *am, uint b, uint lane)
{
    float x[8];
    UNROLL
    for (uint i = 0; i < 8; i++) {
        x[i] = i == lane ? 1.0f : 0.0f;
        UNROLL
        for (uint l = 0; l < i; l++) x[i] += am[block(b, b) + 8 * i + l] * x[l];
    }
    UNROLL
    for (uint i = 0; i < 8; i++) inv[64 * b + 8 * i + lane] = x[i];
}

static inline simdgroup_float8x8 zero() { return make_filled_simdgroup_matrix<float, 8, 8>(0.0f); }

kernel void gdn_chunk(constant ds_metal_gdn &a [[buffer(0)]], device const float *q [[buffer(1)]], device const float *k [[buffer(2)]],
                      device const float *v [[buffer(3)]], device const float *g [[buffer(4)]], device const float *beta [[buffer(5)]],
                      device const float *s_in [[buffer(6)]], device float *s_out [[buffer(7)]], device float *o [[buffer(8)]],
                      uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]])
{
    threadgroup float kx[C * SLICE];                               /* a slice of K */
    threadgroup float qx[C * SLICE];                               /* a slice of Q; between the passes the simdgroups' own columns */
    threadgroup float am[C * C];                                   /* K K', then -A */
    threadgroup float pm[C * C];                                   /* Q K', then P */
    threadgroup float inv[NB * 64];
    threadgroup float e[C];
    threadgroup float b[C];
    threadgroup float row_decay[C];                                /* E_i */
    threadgroup float tail_decay[C];                               /* D_{C-1,j} */

    const uint n_kh = uint(a.n_kh), n_vh = uint(a.n_vh), dv = uint(a.dv), head = group.y, stride = n_kh * DK;
    const uint col = group.x * COLS + 8 * sg;                      /* first of this simdgroup's value columns */
    const ulong key0 = ulong(head % n_kh) * DK, value0 = ulong(head) * dv + col, state = ulong(head) * DK * dv + col;

    simdgroup_float8x8 s[DK / 8];
    UNROLL
    for (uint r = 0; r < DK / 8; r++) simdgroup_load(s[r], s_in + state + ulong(8 * r) * dv, dv);

    for (uint t = uint(a.t0), n; t < uint(a.t1); t += n) {
        n = min(uint(C) - (uint(a.phase) + t) % C, uint(a.t1) - t);
        device const float *kc = k + ulong(t) * stride + key0, *qc = q + ulong(t) * stride + key0;

        /* First pass over the dimensions: K S, Q S (this simdgroup's columns) and K K', Q K' (its column of tiles). */
        simdgroup_float8x8 ks[NB], qs[NB], kk[NB], qk[NB];
        UNROLL
        for (uint r = 0; r < NB; r++) ks[r] = zero(), qs[r] = zero(), kk[r] = zero(), qk[r] = zero();
        UNROLL
        for (uint d = 0; d < N_SLICE; d++) {
            threadgroup_barrier(mem_flags::mem_threadgroup);       /* what lay here has been used */
            stage(kx, kc, stride, n, d * SLICE, tid);
            stage(qx, qc, stride, n, d * SLICE, tid);
            if (d == 0 && tid < C) {
                const ulong x = ulong(t + tid) * n_vh + head;
                e[tid] = tid < n ? precise::exp(g[x]) : 1.0f;
                b[tid] = tid < n ? beta[x] : 0.0f;
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
            UNROLL
            for (uint j = 0; j < SLICE / 8; j++) {
                simdgroup_float8x8 kt;
                simdgroup_load(kt, kx + block(sg, j), 8, ulong2(0), true);
                UNROLL
                for (uint r = 0; r < NB; r++) {
                    simdgroup_float8x8 kr, qr;
                    simdgroup_load(kr, kx + block(r, j));
                    simdgroup_load(qr, qx + block(r, j));
                    simdgroup_multiply_accumulate(ks[r], kr, s[4 * d + j], ks[r]);
                    simdgroup_multiply_accumulate(qs[r], qr, s[4 * d + j], qs[r]);
                    if (r >= sg) {
                        simdgroup_multiply_accumulate(kk[r], kr, kt, kk[r]);
                        simdgroup_multiply_accumulate(qk[r], qr, kt, qk[r]);
                    }
                }
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        UNROLL
        for (uint r = 0; r < NB; r++) {
            simdgroup_store(ks[r], qx + block(r, sg));
            if (r >= sg) {
                simdgroup_store(kk[r], am + block(r, sg));
                simdgroup_store(qk[r], pm + block(r, sg));
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        apply_decays(am, pm, e, b, row_decay, tail_decay, tid);
        threadgroup_barrier(mem_flags::mem_threadgroup);

        /* Right hand sides over K S, in place; beside it the inverses. From here to the second pass a simdgroup touches no
         * columns of qx but its own, and its own barriers suffice. */
        if (lane < 8) invert(inv, am, sg, lane);
        for (uint x = lane; x < C * 8; x += 32) {
            const uint i = x / 8, p = at(i, 8 * sg + x % 8);
            const float vi = i < n ? v[ulong(t + i) * n_vh * dv + value0 + x % 8] : 0.0f;
            qx[p] = b[i] * (vi - row_decay[i] * qx[p]);
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        threadgroup_barrier(mem_flags::mem_threadgroup);

        simdgroup_float8x8 nv[NB], tile, sum;
        UNROLL
        for (uint r = 0; r < NB; r++) {
            simdgroup_load(sum, qx + block(r, sg));
            UNROLL
            for (uint j = 0; j < r; j++) {
                simdgroup_load(tile, am + block(r, j));
                simdgroup_multiply_accumulate(sum, tile, nv[j], sum);
            }
            simdgroup_load(tile, inv + 64 * r);
            nv[r] = zero();
            simdgroup_multiply_accumulate(nv[r], tile, sum, nv[r]);
        }

        /* O = diag(E) Q S + P N. Rows are scaled element by element, which only memory can do: no lane knows which elements
         * of a tile are its own. */
        simdgroup_barrier(mem_flags::mem_threadgroup);
        UNROLL
        for (uint r = 0; r < NB; r++) simdgroup_store(qs[r], qx + block(r, sg));
        simdgroup_barrier(mem_flags::mem_threadgroup);
        for (uint x = lane; x < C * 8; x += 32) qx[at(x / 8, 8 * sg + x % 8)] *= row_decay[x / 8];
        simdgroup_barrier(mem_flags::mem_threadgroup);
        UNROLL
        for (uint r = 0; r < NB; r++) {
            simdgroup_load(sum, qx + block(r, sg));
            UNROLL
            for (uint j = 0; j <= r; j++) {
                simdgroup_load(tile, pm + block(r, j));
                simdgroup_multiply_accumulate(sum, tile, nv[j], sum);
            }
            qs[r] = sum;
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        UNROLL
        for (uint r = 0; r < NB; r++) simdgroup_store(qs[r], qx + block(r, sg));
        simdgroup_barrier(mem_flags::mem_threadgroup);
        for (uint x = lane; x < C * 8; x += 32)
            if (x / 8 < n) o[ulong(t + x / 8) * n_vh * dv + value0 + x % 8] = qx[at(x / 8, 8 * sg + x % 8)];

        /* What each token leaves of itself at the chunk's end. */
        simdgroup_barrier(mem_flags::mem_threadgroup);
        UNROLL
        for (uint r = 0; r < NB; r++) simdgroup_store(nv[r], qx + block(r, sg));
        simdgroup_barrier(mem_flags::mem_threadgroup);
        for (uint x = lane; x < C * 8; x += 32) qx[at(x / 8, 8 * sg + x % 8)] *= tail_decay[x / 8];
        simdgroup_barrier(mem_flags::mem_threadgroup);
        UNROLL
        for (uint r = 0; r < NB; r++) simdgroup_load(nv[r], qx + block(r, sg));

        /* Second pass: S <- E_{C-1} S + K' diag(D) N. A number times a tile is a diagonal matrix times it. */
        const simdgroup_float8x8 decay = simdgroup_float8x8(row_decay[C - 1]);
        UNROLL
        for (uint d = 0; d < N_SLICE; d++) {
            threadgroup_barrier(mem_flags::mem_threadgroup);
            stage(kx, kc, stride, n, d * SLICE, tid);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            UNROLL
            for (uint j = 0; j < SLICE / 8; j++) {
                sum = zero();
                UNROLL
                for (uint r = 0; r < NB; r++) {
                    simdgroup_load(tile, kx + block(r, j), 8, ulong2(0), true);
                    simdgroup_multiply_accumulate(sum, tile, nv[r], sum);
                }
                simdgroup_multiply_accumulate(s[4 * d + j], decay, s[4 * d + j], sum);
            }
        }
    }
    UNROLL
    for (uint r = 0; r < DK / 8; r++) simdgroup_store(s[r], s_out + state + ulong(8 * r) * dv, dv);
}
