/* The table of CPU kernels other than weight products (gemm.h), and the contract of each entry.
 *
 * Pure functions: no threads, no malloc, no model, no file. Row-major f32 unless said otherwise;
 * outputs alias nothing unless said otherwise; any size may be 0; no alignment is asked for except of
 * scratch (64 bytes). `ref/` fills every entry with plain C, the oracle of every other variant;
 * ds_kernels_init overwrites entries in rising order of instruction set. */
#ifndef DS_KERNELS_KERNELS_H
#define DS_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Gated delta rule over n tokens for R value heads that read one key head, value columns [j0, j1).
 *
 * For token t and each head, with S the [dk][dv] state of that head and S' its transpose:
 *     S  <- exp(g) S
 *     d   = beta (v - S'k)
 *     S  <- S + k d'
 *     o   = S'q
 *
 * Columns of S never meet, so a call may own any of them; its bits do not depend on j0, j1 or R.
 * Head r of the call uses o + r*o_step, S + r*S_step, v + r*v_step, g + r*g_step, beta + r*g_step. */
struct ds_gdn_args {
    float *o; size_t ldo, o_step;              /* o[t*ldo + j] */
    float *S; size_t S_step;                   /* S[i*dv + j], read and written */
    const float *q, *k; size_t ldk;            /* q[t*ldk + i]: unit length; q already times 1/sqrt(dk) */
    const float *v; size_t ldv, v_step;        /* v[t*ldv + j] */
    const float *g, *beta; size_t ldg, g_step; /* g[t*ldg] <= 0: natural log of the decay; beta[t*ldg] in [0, 1] */
    int n, dk, dv;
    int j0, j1;
    int R;
    int phase;                                 /* absolute position of token 0, modulo DS_GDN_CHUNK */
    void *scratch;                             /* gdn_scratch(dk, dv) bytes, 64-byte aligned, contents undefined */
};

/* Chunkwise forms cut the token axis at absolute multiples of this, so that a state saved there and
 * restored continues with the same bits. */
enum { DS_GDN_CHUNK = 64 };

/* Causal attention of `heads` query heads that share one kv head, tokens t0..t1-1 of a step whose
 * token t stands at absolute position pos + t:
 *     y = sigmoid(gate) * softmax(scale q.K) V      over positions 0..pos+t
 *
 * Key blocks lie on absolute multiples of DS_ATTN_BLOCK and the arithmetic of one query does not depend on
 * its neighbours, so any split of a prompt gives the same bits. */
struct ds_attn_args {
    float *y; size_t ldy;                      /* y[t*ldy + a*hd + i] */
    const float *q; size_t ldq, q_step;        /* q[t*ldq + a*q_step + i]; the gate lies hd further on */
    const void *K, *V; size_t ldkv;            /* row of position p at element p*ldkv; f16 or f32 */
    bool kv_f16;
    int heads, hd;
    float scale;
    int64_t pos;
    int t0, t1;
    void *scratch;                             /* attn_scratch(hd, heads) bytes, 64-byte aligned, contents undefined */
};

enum { DS_ATTN_BLOCK = 64 };

struct ds_kernels {
    /* y_i = x_i / sqrt(mean(x^2) + eps) * gain_i. y may be x. */
    void (*rms_norm)(float *y, const float *x, const float *gain, int n, float eps);

    /* act_i = silu(gate_i) * up_i. */
    void (*swiglu)(float *act, const float *gate, const float *up, int n);

    /* y_i = x_i / sqrt(mean(x^2)+eps) * gain_i * silu(z_i), one head of n values. */
    void (*gated_norm)(float *y, const float *x, const float *z, const float *gain, int n, float eps);

    /* Causal depthwise conv and SiLU for channels [c0, c1) of n tokens:
     *   f[t][c - c0] = silu(sum_j w[c*K + j] * in[t - (K-1) + j][c]),  in = rows of u, before them rows of hist.
     * u [n] rows ldu apart; hist [K-1] rows ldh apart, oldest first, not changed; f rows ldf apart. */
    void (*conv_silu)(float *f, size_t ldf, const float *u, size_t ldu, const float *hist, size_t ldh, const float *w, int K,
                      int n, int c0, int c1);

    /* x <- x * scale / max(|x|, eps), one vector of n. Sum of squares in f32 lanes or better. */
    void (*l2_norm)(float *x, int n, float eps, float scale);

    /* beta_h = sigmoid(b_h), g_h = A_h * softplus(a_h + dt_h), n values. softplus(x) = x above 20. g <= 0. */
    void (*gdn_gates)(float *g, float *beta, const float *a, const float *b, const float *A, const float *dt, int n);

    /* Two forms of one function: token after token, and chunk after chunk. They agree to rounding. */
    void (*gdn_seq)(const struct ds_gdn_args *a);
    void (*gdn_chunk)(const struct ds_gdn_args *a);
    size_t (*gdn_scratch)(int dk, int dv);     /* enough for either form and any n, R */

    /* Rotates the first n_rot values of one head: pairs (j, j + n_rot/2), cos/sin [n_rot/2] for its position. */
    void (*rope)(float *x, const float *cos, const float *sin, int n_rot);

    /* Rows to and from the f16 cache: round to nearest even; NaN stays NaN, infinities stay. */
    void (*f32_to_f16)(uint16_t *dst, const float *src, size_t n);
    void (*f16_to_f32)(float *dst, const uint16_t *src, size_t n);

    void (*attn)(const struct ds_attn_args *a);
    size_t (*attn_scratch)(int hd, int heads);
    int (*attn_tokens)(int heads);             /* a good t1 - t0 for one call; any other is as right */

    /* Folds positions [p0, p1) into one token's unnormalised softmax. For head a (a->t0 names the token, pos the last
     * row that exists; y, gate, t1, scratch unused), with the new maximum M = max(m[a], max_p scale q.k_p) and
     * e = exp(m[a] - M):
     *   m[a] <- M,  l[a] <- e l[a] + sum_p exp(s_p - M),  acc[a*hd + i] <- e acc[a*hd + i] + sum_p exp(s_p - M) v_p[i]
     * Begins from m = -inf, l = 0, acc = 0. Sums in another order than attn. */
    void (*attn_part)(float *m, float *l, float *acc, const struct ds_attn_args *a, int64_t p0, int64_t p1);

    /* y_i *= sigmoid(gate_i). */
    void (*gate_mul)(float *y, const float *gate, int n);

    /* y_i += a * x_i. */
    void (*axpy)(float *y, float a, const float *x, int n);
};

void ds_kernels_init(struct ds_kernels *k, unsigned isa);   /* reference first, then the best of the mask */

#endif
