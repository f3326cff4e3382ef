/* Row-wise ops: norms, activations, the copy that stands in for a skipped stage. */
#include "backend/cpu/split.h"

#include <string.h>

/* --- RMSNorm of whole rows --- */

struct rms_ctx { const struct ds_kernels *k; float *h; const float *x, *gain; size_t n, dim; float eps; int pieces; };

static void rms_rows(void *ctx, int i, int thread)
{
    const struct rms_ctx *r = ctx;
    (void)thread;
    for (size_t t = ds_cpu_begin(r->n, r->pieces, i); t < ds_cpu_begin(r->n, r->pieces, i + 1); t++)
        r->k->rms_norm(r->h + t * r->dim, r->x + t * r->dim, r->gain, (int)r->dim, r->eps);
}

void ds_cpu_rms_norm(struct ds_backend *be, struct ds_buf *h, const struct ds_buf *x, const struct ds_weight *gain, int row0,
                     int n, int dim, float eps)
{
    struct ds_cpu *c = ds_cpu_of(be);
    struct rms_ctx r = { .k = &c->k, .h = ds_cpu_f32(h), .x = ds_cpu_f32(x) + (size_t)row0 * (size_t)dim, .gain = gain->f32,
                         .n = (size_t)n, .dim = (size_t)dim, .eps = eps };
    r.pieces = ds_cpu_pieces(c, r.n, 2 * r.dim);
    ds_pool_run(c->pool, rms_rows, &r, r.pieces);
    ds_cpu_touch(h);
}

/* --- QK-norm: heads of the query halves, then heads of k --- */

struct qk_ctx {
    const struct ds_kernels *k;
    float *qg, *key;
    const float *gain_q, *gain_k;
    const struct ds_attn_shape *sh;
    size_t n;
    int pieces;
};

static void qk_rows(void *ctx, int i, int thread)
{
    const struct qk_ctx *r = ctx;
    size_t hd = (size_t)r->sh->hd, nq = (size_t)r->sh->n_head, nkv = (size_t)r->sh->n_kv;
    size_t t0 = ds_cpu_begin(r->n, r->pieces, i), t1 = ds_cpu_begin(r->n, r->pieces, i + 1);
    (void)thread;
    for (size_t a = t0 * nq; a < t1 * nq; a++)
        r->k->rms_norm(r->qg + a * 2 * hd, r->qg + a * 2 * hd, r->gain_q, (int)hd, r->sh->eps);
    for (size_t b = t0 * nkv; b < t1 * nkv; b++) r->k->rms_norm(r->key + b * hd, r->key + b * hd, r->gain_k, (int)hd, r->sh->eps);
}

void ds_cpu_qk_norm(struct ds_backend *be, struct ds_buf *qg, struct ds_buf *k, const struct ds_weight *gain_q,
                    const struct ds_weight *gain_k, const struct ds_attn_shape *sh, int n)
{
    struct ds_cpu *c = ds_cpu_of(be);
    struct qk_ctx r = { &c->k, ds_cpu_f32(qg), ds_cpu_f32(k), gain_q->f32, gain_k->f32, sh, (size_t)n, 0 };
    r.pieces = ds_cpu_pieces(c, r.n, 2 * (size_t)(sh->n_head + sh->n_kv) * (size_t)sh->hd);
    ds_pool_run(c->pool, qk_rows, &r, r.pieces);
}

/* --- gated norm: n * n_vh heads of dv values, o, z and y alike contiguous --- */

struct gated_ctx { const struct ds_kernels *k; float *y; const float *o, *z, *gain; size_t heads, dv; float eps; int pieces; };

static void gated_heads(void *ctx, int i, int thread)
{
    const struct gated_ctx *r = ctx;
    (void)thread;
    for (size_t h = ds_cpu_begin(r->heads, r->pieces, i); h < ds_cpu_begin(r->heads, r->pieces, i + 1); h++)
        r->k->gated_norm(r->y + h * r->dv, r->o + h * r->dv, r->z + h * r->dv, r->gain, (int)r->dv, r->eps);
}

void ds_cpu_gated_norm(struct ds_backend *be, struct ds_buf *y, const struct ds_buf *o, const struct ds_buf *z,
                       const struct ds_weight *gain, const struct ds_gdn_shape *sh, int n)
{
    struct ds_cpu *c = ds_cpu_of(be);
    struct gated_ctx r = { .k = &c->k, .y = ds_cpu_f32(y), .o = ds_cpu_f32(o), .z = ds_cpu_f32(z), .gain = gain->f32,
                           .heads = (size_t)n * (size_t)sh->n_vh, .dv = (size_t)sh->dv, .eps = sh->eps };
    r.pieces = ds_cpu_pieces(c, r.heads, 4 * r.dv);
    ds_pool_run(c->pool, gated_heads, &r, r.pieces);
    ds_cpu_touch(y);
}

/* --- SwiGLU, element by element --- */

struct swiglu_ctx { const struct ds_kernels *k; float *act; const float *gate, *up; size_t n; int pieces; };

static void swiglu_range(void *ctx, int i, int thread)
{
    const struct swiglu_ctx *r = ctx;
    size_t a = ds_cpu_begin(r->n / 16, r->pieces, i) * 16, b = ds_cpu_begin(r->n / 16, r->pieces, i + 1) * 16;
    if (i + 1 == r->pieces) b = r->n;
    (void)thread;
    r->k->swiglu(r->act + a, r->gate + a, r->up + a, (int)(b - a));
}

void ds_cpu_swiglu(struct ds_backend *be, struct ds_buf *act, const struct ds_buf *gate, const struct ds_buf *up, int rows,
                   int dim)
{
    struct ds_cpu *c = ds_cpu_of(be);
    struct swiglu_ctx r = { &c->k, ds_cpu_f32(act), ds_cpu_f32(gate), ds_cpu_f32(up), (size_t)rows * (size_t)dim, 0 };
    r.pieces = ds_cpu_pieces(c, r.n, 4);
    ds_pool_run(c->pool, swiglu_range, &r, r.pieces);
    ds_cpu_touch(act);
}

/* --- copy_cols --- */

void ds_cpu_copy_cols(struct ds_backend *be, struct ds_buf *act, const struct ds_buf *src, int n, int src_dim, int dim)
{
    float *d = ds_cpu_f32(act);
    const float *s = ds_cpu_f32(src);
    (void)be;
    for (size_t t = 0; t < (size_t)n; t++) {
        for (size_t j = 0, len; j < (size_t)dim; j += len) {
            len = (size_t)dim - j < (size_t)src_dim ? (size_t)dim - j : (size_t)src_dim;
            memcpy(d + t * (size_t)dim + j, s + t * (size_t)src_dim, len * sizeof *d);
        }
    }
    ds_cpu_touch(act);
}
