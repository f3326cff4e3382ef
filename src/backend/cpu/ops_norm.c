/* Row-wise ops: norms, activations, the copy that stands in for a skipped stage. */
#include "backend/cpu/split.h"

#include <string.h>

/* --- ops that write the rows of a product's input, and pack them at once where they can --- */

struct rows_ctx {
    struct ds_cpu *c;
    struct ds_buf *out;
    int n, dim, tokens, pieces;            /* rows; of a task when they are packed, else 0 and so many pieces */
};

static struct rows_ctx rows_of(struct ds_cpu *c, struct ds_buf *out, int n, int dim, size_t cost)
{
    struct rows_ctx r = { c, out, n, dim, ds_cpu_pack_tokens(c, out, n, dim), 0 };
    r.pieces = r.tokens ? (n + r.tokens - 1) / r.tokens : ds_cpu_pieces(c, (size_t)n, cost);
    return r;
}

static size_t rows_begin(const struct rows_ctx *r, int i)
{
    const size_t t = (size_t)i * (size_t)r->tokens, n = (size_t)r->n;
    return !r->tokens ? ds_cpu_begin(n, r->pieces, i) : t < n ? t : n;
}

static void rows_written(const struct rows_ctx *r, int i)
{
    if (r->tokens) ds_cpu_pack(r->c, r->out, r->n, r->dim, (int)rows_begin(r, i), (int)rows_begin(r, i + 1));
}

static void rows_done(const struct rows_ctx *r)
{
    ds_cpu_touch(r->out);
    if (r->tokens) ds_cpu_packed(r->c, r->out, r->n, r->dim);
}

/* --- RMSNorm of whole rows --- */

struct rms_ctx { struct rows_ctx rows; const float *x, *gain; float eps; };

static void rms_rows(void *ctx, int i, int thread)
{
    const struct rms_ctx *r = ctx;
    const size_t dim = (size_t)r->rows.dim;
    float *h = ds_cpu_f32(r->rows.out);
    (void)thread;
    for (size_t t = rows_begin(&r->rows, i); t < rows_begin(&r->rows, i + 1); t++)
        r->rows.c->k.rms_norm(h + t * dim, r->x + t * dim, r->gain, (int)dim, r->eps);
    rows_written(&r->rows, i);
}

void ds_cpu_rms_norm(struct ds_backend *be, struct ds_buf *h, const struct ds_buf *x, const struct ds_weight *gain, int row0,
                     int n, int dim, float eps)
{
    struct ds_cpu *c = ds_cpu_of(be);
    struct rms_ctx r = { rows_of(c, h, n, dim, 2 * (size_t)dim), ds_cpu_f32(x) + (size_t)row0 * (size_t)dim, gain->f32, eps };
    ds_pool_run(c->pool, rms_rows, &r, r.rows.pieces);
    rows_done(&r.rows);
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

/* --- gated norm: n_vh heads of dv values a row, o, z and y alike contiguous --- */

struct gated_ctx { struct rows_ctx rows; const float *o, *z, *gain; size_t dv; float eps; };

static void gated_heads(void *ctx, int i, int thread)
{
    const struct gated_ctx *r = ctx;
    const size_t dim = (size_t)r->rows.dim, end = rows_begin(&r->rows, i + 1) * dim;
    float *y = ds_cpu_f32(r->rows.out);
    (void)thread;
    for (size_t at = rows_begin(&r->rows, i) * dim; at < end; at += r->dv)
        r->rows.c->k.gated_norm(y + at, r->o + at, r->z + at, r->gain, (int)r->dv, r->eps);
    rows_written(&r->rows, i);
}

void ds_cpu_gated_norm(struct ds_backend *be, struct ds_buf *y, const struct ds_buf *o, const struct ds_buf *z,
                       const struct ds_weight *gain, const struct ds_gdn_shape *sh, int n)
{
    struct ds_cpu *c = ds_cpu_of(be);
    const int dim = sh->n_vh * sh->dv;
    struct gated_ctx r = { rows_of(c, y, n, dim, 4 * (size_t)dim), ds_cpu_f32(o), ds_cpu_f32(z), gain->f32, (size_t)sh->dv, sh->eps };
    ds_pool_run(c->pool, gated_heads, &r, r.rows.pieces);
    rows_done(&r.rows);
}

/* --- SwiGLU --- */

struct swiglu_ctx { struct rows_ctx rows; const float *gate, *up; };

static void swiglu_rows(void *ctx, int i, int thread)
{
    const struct swiglu_ctx *r = ctx;
    const size_t dim = (size_t)r->rows.dim;
    float *act = ds_cpu_f32(r->rows.out);
    (void)thread;
    for (size_t t = rows_begin(&r->rows, i); t < rows_begin(&r->rows, i + 1); t++)
        r->rows.c->k.swiglu(act + t * dim, r->gate + t * dim, r->up + t * dim, (int)dim);
    rows_written(&r->rows, i);
}

void ds_cpu_swiglu(struct ds_backend *be, struct ds_buf *act, const struct ds_buf *gate, const struct ds_buf *up, int rows,
                   int dim)
{
    struct ds_cpu *c = ds_cpu_of(be);
    struct swiglu_ctx r = { rows_of(c, act, rows, dim, 4 * (size_t)dim), ds_cpu_f32(gate), ds_cpu_f32(up) };
    ds_pool_run(c->pool, swiglu_rows, &r, r.rows.pieces);
    rows_done(&r.rows);
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
