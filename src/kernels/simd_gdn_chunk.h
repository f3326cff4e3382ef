/* The gated delta rule, a block of tokens at a time, as small matrix products. Included after a vec_*.h,
 * simd_math.h, simd_tile.h and simd_gdn_seq.h.
 *
 * For a block of C tokens that starts from state S0, with G_ij = g_{j+1} + ... + g_i (so G_ii = 0) and
 * c_i = g_0 + ... + g_i:
 *
 *     A_ij = beta_i (k_i.k_j) exp(G_ij)   j < i           P_ij = (q_i.k_j) exp(G_ij)   j <= i
 *     (I + A) N = diag(beta) (V - diag(exp c) K S0)       the corrected values, by forward substitution
 *     O  = diag(exp c) Q S0 + P N
 *     S1 = exp(c_last) S0 + K' diag(exp G_last) N
 *
 * Which products are shared. k.k and q.k belong to the key head: they are formed once for its R value heads.
 * exp G multiplies them per value head. Everything else is linear in the columns of V and S, so it runs
 * on strips of TILE_COLS columns: a strip of S (dk x TILE_COLS) stays in L1 for the blocks of 64 tokens.
 *
 * How large C should be. Per token and column the reads of S0 and the update cost 3 dk multiply-adds,
 * whatever C is; the sequential form needs 4 dk, because it must also decay and cannot share. What the block
 * adds is C + C dk / (R dv). So C wants to be small: just large enough to make the 3 dk a matrix product that
 * runs at the FMA peak. 16 measured best of 16, 32, 64 (docs/notes/cpu-gdn.md). Blocks lie on absolute multiples of
 * 16, so also on those of DS_GDN_CHUNK.
 *
 * Range. Every exponent is a sum of g <= 0, taken row after row (G_ij = G_{i-1,j} + g_i): no difference of
 * large sums, which after one token of g = -200 would cost its successors five digits. The mask is put
 * in before exp. */
#ifndef DS_KERNELS_SIMD_GDN_CHUNK_H
#define DS_KERNELS_SIMD_GDN_CHUNK_H

#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

enum { GDN_BLOCK = 16, GDN_BLOCKS = DS_GDN_CHUNK / GDN_BLOCK, SOLVE_ROWS = 8 };

struct gdn_block {
    int t, n;                                  /* first token, tokens */
    float kk[GDN_BLOCK][GDN_BLOCK];            /* k_i.k_j, j < i; the rest undefined */
    float qk[GDN_BLOCK][GDN_BLOCK];            /* q_i.k_j, j <= i; the rest undefined */
};

/* One value head's factors of one block. A short block leaves the rows past its last as they were: they are computed
 * with, never read by a row that counts. */
struct gdn_decay {
    float A[GDN_BLOCK][GDN_BLOCK];             /* -A_ij; 0 for j >= i */
    float P[GDN_BLOCK][GDN_BLOCK];             /* 0 for j > i */
    float beta[GDN_BLOCK];
    float in[GDN_BLOCK];                       /* exp c_i: from S0 to token i */
    float out[GDN_BLOCK];                      /* exp G_last,i: from token i to S1 */
    float all;                                 /* exp c_last */
};

/* Thread-private working set, the strip first. */
struct gdn_work {
    float N[GDN_BLOCK][TILE_COLS], O[GDN_BLOCK][TILE_COLS];
    struct gdn_block block[GDN_BLOCKS];
    struct gdn_decay decay[GDN_BLOCKS];
    float S[];                                 /* [dk][TILE_COLS] */
};

/* --- per key head --- */

/* Rows past the block's last are read as the last; what they give is never used. */
static void block_products(struct gdn_block *b, const struct ds_gdn_args *a)
{
    const float *k = a->k + (size_t)b->t * a->ldk, *q = a->q + (size_t)b->t * a->ldk, *ki[DOTS_ROWS], *qi[DOTS_ROWS];
    const void *kj[DOTS_COLS];
    size_t last = (size_t)b->n - 1;
    for (int i = 0; i < b->n; i += DOTS_ROWS) {
        for (size_t r = 0; r < DOTS_ROWS; r++) {
            size_t row = (size_t)i + r < last ? (size_t)i + r : last;
            ki[r] = k + row * a->ldk, qi[r] = q + row * a->ldk;
        }
        for (int j = 0; j < i + DOTS_ROWS; j += DOTS_COLS) {
            for (size_t c = 0; c < DOTS_COLS; c++) kj[c] = k + ((size_t)j + c < last ? (size_t)j + c : last) * a->ldk;
            tile_dots(b->kk[i] + j, GDN_BLOCK, ki, kj, false, a->dk);
            tile_dots(b->qk[i] + j, GDN_BLOCK, qi, kj, false, a->dk);
        }
    }
}

/* --- per value head --- */

static void block_decay(struct gdn_decay *d, const struct gdn_block *b, const float *g, const float *beta, size_t ld)
{
    const vf masked = v_set1(-INFINITY), zero = v_zero();
    vf G[GDN_BLOCK / VL];
    float c = 0;
    for (int x = 0; x < GDN_BLOCK / VL; x++) G[x] = masked;
    for (int i = 0; i < b->n; i++) {
        vf gi = v_set1(g[(size_t)i * ld]), minus_beta = v_set1(-beta[(size_t)i * ld]);
        for (int x = 0; x < GDN_BLOCK / VL; x++) {
            int below = i - x * VL;                                       /* lanes of this vector with j < i */
            int lo = below < 0 ? 0 : below > VL ? VL : below, hi = below + 1 < 0 ? 0 : below + 1 > VL ? VL : below + 1;
            G[x] = v_first(lo, v_add(G[x], gi), v_first(hi, zero, masked));
            vf D = v_exp(G[x]);
            v_store(d->A[i] + x * VL, v_first(lo, v_mul(minus_beta, v_mul(v_load(b->kk[i] + x * VL), D)), zero));
            v_store(d->P[i] + x * VL, v_first(hi, v_mul(v_load(b->qk[i] + x * VL), D), zero));
            v_store(d->out + x * VL, D);                                  /* the last row stays */
        }
        c += g[(size_t)i * ld];
        d->in[i] = c;
        d->beta[i] = beta[(size_t)i * ld];
    }
    for (int x = 0; x < GDN_BLOCK; x += VL) v_store(d->in + x, v_exp(v_load(d->in + x)));
    d->all = d->in[b->n - 1];
}

/* --- per strip of columns --- */

/* (I + A) N = rhs in place. Rows are finished SOLVE_ROWS at a time: what lies left of their diagonal block is a
 * matrix product, the block itself is substituted in registers, so that no chain is longer than SOLVE_ROWS. */
static void solve(float N[][TILE_COLS], const float A[][GDN_BLOCK])
{
    static const float one = 1.0f;
    for (int i = 0; i < GDN_BLOCK; i += SOLVE_ROWS) {
        if (i) tile_panel(N[i], TILE_COLS, &one, 0, SOLVE_ROWS, A[i], GDN_BLOCK, 1, N[0], TILE_COLS, i);
        for (int c = 0; c < TILE_COLS; c += VL) {
            vf x[SOLVE_ROWS];
#pragma GCC unroll 8
            for (int r = 0; r < SOLVE_ROWS; r++) x[r] = v_load(N[i + r] + c);
#pragma GCC unroll 8
            for (int j = 0; j < SOLVE_ROWS; j++)
#pragma GCC unroll 8
                for (int r = j + 1; r < SOLVE_ROWS; r++) x[r] = v_fma(v_set1(A[i + r][i + j]), x[j], x[r]);
#pragma GCC unroll 8
            for (int r = 0; r < SOLVE_ROWS; r++) v_store(N[i + r] + c, x[r]);
        }
    }
}

/* Value head r of the call: one block on one strip, of which `cols` columns from j on are real. */
static void block_strip(struct gdn_work *w, const struct ds_gdn_args *a, const struct gdn_block *b, const struct gdn_decay *d,
                        size_t r, int j, int cols)
{
    const float *k = a->k + (size_t)b->t * a->ldk, *q = a->q + (size_t)b->t * a->ldk;
    const float *v = a->v + r * a->v_step + (size_t)b->t * a->ldv + j;
    float *o = a->o + r * a->o_step + (size_t)b->t * a->ldo + j;
    for (int i = 0; i < b->n; i++)                       /* rows of o lie far apart: no hardware prefetcher sees them coming */
        for (int c = 0; c < cols; c += 16) __builtin_prefetch(o + (size_t)i * a->ldo + c, 1);
    tile_panel(w->N[0], TILE_COLS, NULL, 0, b->n, k, a->ldk, 1, w->S, TILE_COLS, a->dk);
    tile_panel(w->O[0], TILE_COLS, NULL, 0, b->n, q, a->ldk, 1, w->S, TILE_COLS, a->dk);
    for (int i = 0; i < b->n; i++) {
        vf in = v_set1(d->in[i]), beta = v_set1(d->beta[i]);
        for (int c = 0; c < TILE_COLS; c += VL) {
            const float *x = v + (size_t)i * a->ldv + c;
            vf vi = c + VL <= cols ? v_load(x) : c < cols ? v_load_n(x, cols - c) : v_zero();
            v_store(w->N[i] + c, v_mul(beta, v_fnma(in, v_load(w->N[i] + c), vi)));
        }
    }
    solve(w->N, d->A);
    for (int i = 0; i < b->n; i += TILE_ROWS) {          /* P is lower triangular: rows from i on see columns up to their own */
        int rows = b->n - i < TILE_ROWS ? b->n - i : TILE_ROWS;
        tile_panel(w->O[i], TILE_COLS, d->in + i, 1, rows, d->P[i], GDN_BLOCK, 1, w->N[0], TILE_COLS, i + rows);
    }
    for (int i = 0; i < b->n; i++) {
        for (int c = 0; c < TILE_COLS; c += VL) v_store(w->N[i] + c, v_mul(v_set1(d->out[i]), v_load(w->N[i] + c)));
    }
    strip_unpack(o, a->ldo, w->O[0], TILE_COLS, b->n, cols);
    tile_panel(w->S, TILE_COLS, &d->all, 0, a->dk, k, 1, a->ldk, w->N[0], TILE_COLS, b->n);
}

static void head_strips(struct gdn_work *w, const struct ds_gdn_args *a, int blocks, size_t r)
{
    float *S = a->S + r * a->S_step;
    for (int j = a->j0, cols; j < a->j1; j += cols) {
        cols = a->j1 - j < TILE_COLS ? a->j1 - j : TILE_COLS;
        strip_pack(w->S, TILE_COLS, S + j, (size_t)a->dv, a->dk, cols);
        for (int s = 0; s < blocks; s++) block_strip(w, a, &w->block[s], &w->decay[s], r, j, cols);
        strip_unpack(S + j, (size_t)a->dv, w->S, TILE_COLS, a->dk, cols);
    }
}

static void gdn_chunk(const struct ds_gdn_args *a)
{
    struct gdn_work *w = a->scratch;
    for (int t = 0, pos = a->phase, blocks; t < a->n;) {
        for (blocks = 0; blocks < GDN_BLOCKS && t < a->n && !(blocks && pos % DS_GDN_CHUNK == 0); blocks++) {
            struct gdn_block *b = &w->block[blocks];
            int room = GDN_BLOCK - pos % GDN_BLOCK;
            b->t = t;
            b->n = a->n - t < room ? a->n - t : room;
            t += b->n, pos += b->n;
            block_products(b, a);
        }
        for (size_t r = 0; r < (size_t)a->R; r++) {
            for (int s = 0; s < blocks; s++) {
                size_t at = (size_t)w->block[s].t * a->ldg + r * a->g_step;
                block_decay(&w->decay[s], &w->block[s], a->g + at, a->beta + at, a->ldg);
            }
            head_strips(w, a, blocks, r);
        }
    }
}

static size_t gdn_scratch(int dk, int dv)
{
    (void)dv;
    size_t seq = (size_t)dk * SEQ_VECS * VL * sizeof(float);
    size_t chunk = sizeof(struct gdn_work) + (size_t)dk * TILE_COLS * sizeof(float);
    return seq > chunk ? seq : chunk;
}

#endif
