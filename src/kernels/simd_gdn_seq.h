/* The gated delta rule, token after token, on strips of columns that stay in L1. Included after a
 * vec_*.h and simd_math.h.
 *
 * As the equations stand, a token walks its state four times: decay, read with k, update, read with q.
 * Two identities make it one walk of one load, four multiply-adds and one store per element.
 *
 *   Reading before decaying:     m = S'k of the decayed state is alpha (S_old'k), and
 *                                o = S_new'q = alpha (S_old'q) + d (k.q).
 *     So both reads are of the old state, d and o follow without another walk, and
 *   the write of one token and the reads of the next are the same walk:
 *                                s = alpha s + k_i d;   m_next += s k_next,i;   y_next += s q_next,i.
 *
 * Nothing but exp(g) <= 1 is ever multiplied in, so the state is exact in range whatever the gates do.
 * Counted as the usual 7 operations per element (8 are done), the bound is 7/8 of the FMA peak. */
#ifndef DS_KERNELS_SIMD_GDN_SEQ_H
#define DS_KERNELS_SIMD_GDN_SEQ_H

#include "kernels/kernels.h"

/* Columns [j, j + cols) of a [rows][ld] matrix to a buffer of `wide` columns, the rest zero; and back. */
static void strip_pack(float *dst, int wide, const float *src, size_t ld, int rows, int cols)
{
    for (int i = 0; i < rows; i++, dst += wide, src += ld)
        for (int c = 0; c < wide; c += VL)
            v_store(dst + c, c + VL <= cols ? v_load(src + c) : c < cols ? v_load_n(src + c, cols - c) : v_zero());
}

static void strip_unpack(float *dst, size_t ld, const float *src, int wide, int rows, int cols)
{
    for (int i = 0; i < rows; i++, src += wide, dst += ld) {
        for (int c = 0; c < cols; c += VL) {
            if (c + VL <= cols) v_store(dst + c, v_load(src + c));
            else v_store_n(dst + c, v_load(src + c), cols - c);
        }
    }
}

/* x.y; lanes past n count as zero. */
static float dot(const float *x, const float *y, int n)
{
    vf s = v_zero();
    int i = 0;
    for (; i + VL <= n; i += VL) s = v_fma(v_load(x + i), v_load(y + i), s);
    if (i < n) s = v_fma(v_load_n(x + i, n - i), v_load_n(y + i, n - i), s);
    return v_sum(s);
}

/* One strip of `vecs` vectors (a constant at every call), of which `cols` columns are real. S rows lie ld apart. */
INLINE void seq_strip(const struct ds_gdn_args *a, float *S, size_t ld, const float *v, const float *g, const float *beta,
                      float *o, int vecs, int cols)
{
    const float *k = a->k, *q = a->q;
    vf m[SEQ_VECS], y[SEQ_VECS], d[SEQ_VECS];
    for (int c = 0; c < vecs; c++) m[c] = y[c] = v_zero();
    for (int i = 0; i < a->dk; i++) {
        vf ki = v_set1(k[i]), qi = v_set1(q[i]);
#pragma GCC unroll 8
        for (int c = 0; c < vecs; c++) {
            vf s = v_load(S + (size_t)i * ld + c * VL);
            m[c] = v_fma(s, ki, m[c]);
            y[c] = v_fma(s, qi, y[c]);
        }
    }
    for (int t = 0; t < a->n; t++, v += a->ldv, o += a->ldo, g += a->ldg, beta += a->ldg) {
        vf alpha = v_exp(v_set1(*g)), b = v_set1(*beta), kq = v_set1(dot(k, q, a->dk));
#pragma GCC unroll 8
        for (int c = 0; c < vecs; c++) {
            int left = cols > c * VL ? cols - c * VL : 0;
            vf x = left >= VL ? v_load(v + c * VL) : v_load_n(v + c * VL, left);
            d[c] = v_mul(b, v_fnma(alpha, m[c], x));
            vf out = v_fma(d[c], kq, v_mul(alpha, y[c]));
            if (left >= VL) v_store(o + c * VL, out);
            else v_store_n(o + c * VL, out, left);
            m[c] = y[c] = v_zero();
        }
        /* The last token has no next; reading with its own k and q again costs nothing that matters. */
        const float *kn = t + 1 < a->n ? k + a->ldk : k, *qn = t + 1 < a->n ? q + a->ldk : q;
        for (int i = 0; i < a->dk; i++) {
            vf ki = v_set1(k[i]), kni = v_set1(kn[i]), qni = v_set1(qn[i]);
#pragma GCC unroll 8
            for (int c = 0; c < vecs; c++) {
                float *p = S + (size_t)i * ld + c * VL;
                vf s = v_fma(ki, d[c], v_mul(alpha, v_load(p)));
                v_store(p, s);
                m[c] = v_fma(s, kni, m[c]);
                y[c] = v_fma(s, qni, y[c]);
            }
        }
        k = kn, q = qn;
    }
}

static void gdn_seq(const struct ds_gdn_args *a)
{
    enum { WIDE = SEQ_VECS * VL };
    if (!a->n) return;
    for (size_t r = 0; r < (size_t)a->R; r++) {
        const float *g = a->g + r * a->g_step, *beta = a->beta + r * a->g_step;
        for (int j = a->j0, cols; j < a->j1; j += cols) {
            cols = a->j1 - j < WIDE ? a->j1 - j : WIDE;
            float *S = a->S + r * a->S_step + j, *o = a->o + r * a->o_step + j;
            const float *v = a->v + r * a->v_step + j;
            if (a->n == 1 && cols == WIDE) {
                seq_strip(a, S, (size_t)a->dv, v, g, beta, o, SEQ_VECS, WIDE);
                continue;
            }
            float *buf = a->scratch;
            int wide = cols <= VL ? VL : WIDE;
            strip_pack(buf, wide, S, (size_t)a->dv, a->dk, cols);
            if (cols <= VL) seq_strip(a, buf, VL, v, g, beta, o, 1, cols);
            else seq_strip(a, buf, WIDE, v, g, beta, o, SEQ_VECS, cols);
            strip_unpack(S, (size_t)a->dv, buf, wide, a->dk, cols);
        }
    }
}

#endif
