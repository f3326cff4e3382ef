/* The gated delta rule in both forms, as the equations stand. */
#include "kernels/kernels_variants.h"

#include <math.h>
#include <string.h>

static void seq_head(const struct ds_gdn_args *a, float *o, float *S, const float *v, const float *g, const float *beta)
{
    for (int t = 0; t < a->n; t++) {
        const float *q = a->q + (size_t)t * a->ldk, *k = a->k + (size_t)t * a->ldk;
        float alpha = expf(g[(size_t)t * a->ldg]), b = beta[(size_t)t * a->ldg];
        for (int j = a->j0; j < a->j1; j++) {
            float *s = S + j, m = 0, out = 0;
            for (int i = 0; i < a->dk; i++) {
                s[(size_t)i * (size_t)a->dv] *= alpha;
                m += s[(size_t)i * (size_t)a->dv] * k[i];
            }
            float d = b * (v[(size_t)t * a->ldv + (size_t)j] - m);
            for (int i = 0; i < a->dk; i++) {
                s[(size_t)i * (size_t)a->dv] += k[i] * d;
                out += s[(size_t)i * (size_t)a->dv] * q[i];
            }
            o[(size_t)t * a->ldo + (size_t)j] = out;
        }
    }
}

void ds_gdn_seq_ref(const struct ds_gdn_args *a)
{
    for (size_t r = 0; r < (size_t)a->R; r++)
        seq_head(a, a->o + r * a->o_step, a->S + r * a->S_step, a->v + r * a->v_step, a->g + r * a->g_step,
                 a->beta + r * a->g_step);
}

static float dot(const float *x, const float *y, int n)
{
    float s = 0;
    for (int i = 0; i < n; i++) s += x[i] * y[i];
    return s;
}

/* One chunk of C tokens, one head. A, P and N are scratch:
 *   c_i = sum_{t<=i} g_t          D_ij = exp(c_i - c_j)
 *   A_ij = beta_i (k_i.k_j) D_ij  j < i        P_ij = (q_i.k_j) D_ij  j <= i
 *   (I + A) N = diag(beta) (V - diag(exp c) K S0)
 *   O = diag(exp c) Q S0 + P N
 *   S1 = exp(c_last) S0 + sum_j exp(c_last - c_j) k_j N_j' */
static void chunk_head(const struct ds_gdn_args *a, int t0, int C, float *o, float *S, const float *v, const float *g,
                       const float *beta)
{
    float (*A)[DS_GDN_CHUNK] = a->scratch, (*P)[DS_GDN_CHUNK] = A + DS_GDN_CHUNK, *N = P[DS_GDN_CHUNK];
    double c[DS_GDN_CHUNK];        /* in f32 the difference of two large sums would be off after one token of g = -200 */
    const float *q = a->q + (size_t)t0 * a->ldk, *k = a->k + (size_t)t0 * a->ldk;
    size_t dv = (size_t)a->dv;

    for (int i = 0; i < C; i++) {
        c[i] = (i ? c[i - 1] : 0) + g[(size_t)(t0 + i) * a->ldg];
        for (int j = 0; j <= i; j++) {
            float D = expf((float)(c[i] - c[j]));
            A[i][j] = beta[(size_t)(t0 + i) * a->ldg] * dot(k + (size_t)i * a->ldk, k + (size_t)j * a->ldk, a->dk) * D;
            P[i][j] = dot(q + (size_t)i * a->ldk, k + (size_t)j * a->ldk, a->dk) * D;
        }
    }
    for (int x = a->j0; x < a->j1; x++) {
        float *s = S + x;
        for (int i = 0; i < C; i++) {
            float m = 0, out = 0, e = expf((float)c[i]);
            for (int d = 0; d < a->dk; d++) {
                m += k[(size_t)i * a->ldk + (size_t)d] * s[(size_t)d * dv];
                out += q[(size_t)i * a->ldk + (size_t)d] * s[(size_t)d * dv];
            }
            N[i] = beta[(size_t)(t0 + i) * a->ldg] * (v[(size_t)(t0 + i) * a->ldv + (size_t)x] - e * m);
            out *= e;
            for (int j = 0; j < i; j++) N[i] -= A[i][j] * N[j];
            for (int j = 0; j <= i; j++) out += P[i][j] * N[j];
            o[(size_t)(t0 + i) * a->ldo + (size_t)x] = out;
        }
        for (int d = 0; d < a->dk; d++) {
            float sum = expf((float)c[C - 1]) * s[(size_t)d * dv];
            for (int j = 0; j < C; j++) sum += expf((float)(c[C - 1] - c[j])) * k[(size_t)j * a->ldk + (size_t)d] * N[j];
            s[(size_t)d * dv] = sum;
        }
    }
}

void ds_gdn_chunk_ref(const struct ds_gdn_args *a)
{
    for (int t = 0, C; t < a->n; t += C) {
        C = DS_GDN_CHUNK - (a->phase + t) % DS_GDN_CHUNK;
        if (C > a->n - t) C = a->n - t;
        for (size_t r = 0; r < (size_t)a->R; r++)
            chunk_head(a, t, C, a->o + r * a->o_step, a->S + r * a->S_step, a->v + r * a->v_step, a->g + r * a->g_step,
                       a->beta + r * a->g_step);
    }
}

size_t ds_gdn_scratch_ref(int dk, int dv)
{
    (void)dk, (void)dv;
    return sizeof(float) * (2 * DS_GDN_CHUNK + 1) * DS_GDN_CHUNK;
}
