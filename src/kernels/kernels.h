/* The table of CPU kernels other than weight products (gemm.h), and the contract of each entry.
 *
 * Pure functions: no threads, no malloc, no model, no file. Row-major f32 unless said otherwise;
 * outputs alias nothing. `ref/` fills every entry with plain C, the oracle of every other variant;
 * ds_kernels_init overwrites entries in rising order of instruction set. */
#ifndef DS_KERNELS_KERNELS_H
#define DS_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ds_kernels {
    /* y_i = x_i / sqrt(mean(x^2) + eps) * gain_i. y may be x. */
    void (*rms_norm)(float *y, const float *x, const float *gain, int n, float eps);

    /* act_i = silu(gate_i) * up_i. */
    void (*swiglu)(float *act, const float *gate, const float *up, int n);

    /* y_i = x_i / sqrt(mean(x^2)+eps) * gain_i * silu(z_i), one head of n values. */
    void (*gated_norm)(float *y, const float *x, const float *z, const float *gain, int n, float eps);

    /* Causal depthwise conv and SiLU for channels [c0, c1) of n tokens:
     *   f[t][c] = silu(sum_j w[c*K + j] * in[t - (K-1) + j][c]),  in = rows of u, before them rows of hist.
     * u [n] rows ldu apart; hist [K-1][ldh] oldest first; f rows ldf apart. hist is not changed. */
    void (*conv_silu)(float *f, size_t ldf, const float *u, size_t ldu, const float *hist, size_t ldh, const float *w, int K, int n, int c0,
                      int c1);

    /* x <- x * scale / max(|x|, eps), one vector of n. Sum of squares in f32 lanes or better. */
    void (*l2_norm)(float *x, int n, float eps, float scale);

    /* beta_h = sigmoid(b_h), g_h = A_h * softplus(a_h + dt_h), n values. softplus(x) = x above 20. g <= 0. */
    void (*gdn_gates)(float *g, float *beta, const float *a, const float *b, const float *A, const float *dt, int n);

    /* Gated delta rule, one value head, columns [j0, j1) of dv, n tokens in order (see ops.gdn).
     * q, k rows ldk apart (already normalised, q scaled), v rows ldv apart, g and beta ldg apart, o rows ldo apart.
     * S [dk][dv], columns j0..j1 read and written. */
    void (*gdn_seq)(float *o, size_t ldo, float *S, const float *q, const float *k, size_t ldk, const float *v, size_t ldv, const float *g,
                    const float *beta, size_t ldg, int n, int dk, int dv, int j0, int j1);

    /* The chunkwise form for one chunk of n <= 64 tokens, R value heads that share one key head. Head r uses
     * v + r*v_step, g + r*g_step, beta + r*g_step, o + r*o_step, S + r*S_step (elements). scratch: gdn_chunk_scratch(dk, dv) bytes. */
    void (*gdn_chunk)(float *o, size_t ldo, size_t o_step, float *S, size_t S_step, const float *q, const float *k, size_t ldk, const float *v,
                      size_t ldv, size_t v_step, const float *g, const float *beta, size_t ldg, size_t g_step, int n, int dk, int dv, int R,
                      void *scratch);
    size_t (*gdn_chunk_scratch)(int dk, int dv);

    /* Rotates the first n_rot values of one head: pairs (j, j + n_rot/2), cos/sin [n_rot/2] for its position. */
    void (*rope)(float *x, const float *cos, const float *sin, int n_rot);

    /* Rows to and from the f16 cache. */
    void (*f32_to_f16)(uint16_t *dst, const float *src, size_t n);
    void (*f16_to_f32)(float *dst, const uint16_t *src, size_t n);

    /* Causal attention of `heads` query heads that share one kv head, queries t0..t1-1 of the step, whose absolute
     * position is pos + t. q + t*ldq + a*q_step is query a of token t; its gate lies hd further on; y + t*ldy + a*hd the output:
     *   y = sigmoid(gate) * softmax(scale q.K) V over positions 0..pos+t.
     * K, V: rows of hd values ldkv elements apart, f16 (kv_f16) or f32. Key blocks lie on absolute multiples of 64, and one
     * query's arithmetic does not depend on its neighbours, so any split of a prompt gives the same bits.
     * scratch: attn_scratch(hd, heads) bytes. */
    void (*attn)(float *y, size_t ldy, const float *q, size_t ldq, size_t q_step, const void *K, const void *V, size_t ldkv, bool kv_f16, int heads,
                 int hd, float scale, int64_t pos, int t0, int t1, void *scratch);
    size_t (*attn_scratch)(int hd, int heads);

    /* y_i += a * x_i. */
    void (*axpy)(float *y, float a, const float *x, int n);
};

void ds_kernels_init(struct ds_kernels *k, unsigned isa);   /* reference first, then the best of the mask */

#endif
