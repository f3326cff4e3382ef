#include "backend/tandem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ds_tandem {
    struct ds_backend be;
    struct ds_backend *a, *b;      /* path, plain */
    struct ds_tandem_report report;
    double tie;                    /* limit of the product that made the logits */
    bool failed;                   /* no memory for a comparison */
};

struct ds_buf { enum ds_buf_kind kind; size_t rows, dim; struct ds_buf *a, *b; };
struct ds_weight { struct ds_weight *a, *b; const struct ds_tensor *t; };

static struct ds_tandem *of(const struct ds_backend *be) { return (struct ds_tandem *)(uintptr_t)be; }

/* --- memory and weights: everything twice --- */

static void buf_free(struct ds_backend *be, struct ds_buf *p)
{
    struct ds_tandem *t = of(be);
    if (!p) return;
    t->a->ops->buf_free(t->a, p->a);
    t->b->ops->buf_free(t->b, p->b);
    free(p);
}

static struct ds_buf *buf_new(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim, struct ds_err *e)
{
    struct ds_tandem *t = of(be);
    struct ds_buf *p = calloc(1, sizeof *p);
    if (!p) {
        ds_fail(e, DS_ENOMEM, "the system refused a buffer");
        return NULL;
    }
    *p = (struct ds_buf){ .kind = kind, .rows = rows, .dim = dim };
    if ((p->a = t->a->ops->buf_new(t->a, kind, rows, dim, e)) && (p->b = t->b->ops->buf_new(t->b, kind, rows, dim, e))) return p;
    buf_free(be, p);
    return NULL;
}

static uint64_t buf_bytes(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim)
{
    struct ds_tandem *t = of(be);
    return t->a->ops->buf_bytes(t->a, kind, rows, dim) + t->b->ops->buf_bytes(t->b, kind, rows, dim);
}

static void buf_read(struct ds_backend *be, float *dst, const struct ds_buf *src, size_t off, size_t n)
{
    of(be)->a->ops->buf_read(of(be)->a, dst, src->a, off, n);
}

static void buf_write(struct ds_backend *be, struct ds_buf *dst, size_t off, const float *src, size_t n)
{
    of(be)->a->ops->buf_write(of(be)->a, dst->a, off, src, n);
    of(be)->b->ops->buf_write(of(be)->b, dst->b, off, src, n);
}

static void buf_get(struct ds_backend *be, void *dst, const struct ds_buf *src, size_t off, size_t n)
{
    of(be)->a->ops->buf_get(of(be)->a, dst, src->a, off, n);
}

static void buf_set(struct ds_backend *be, struct ds_buf *dst, size_t off, const void *src, size_t n)
{
    of(be)->a->ops->buf_set(of(be)->a, dst->a, off, src, n);
    of(be)->b->ops->buf_set(of(be)->b, dst->b, off, src, n);
}

static float *buf_map(struct ds_backend *be, struct ds_buf *b, bool write) { return of(be)->a->ops->buf_map(of(be)->a, b->a, write); }
static size_t elem_bytes(struct ds_backend *be, enum ds_buf_kind kind) { return of(be)->a->ops->elem_bytes(of(be)->a, kind); }

static void weight_free(struct ds_backend *be, struct ds_weight *w)
{
    struct ds_tandem *t = of(be);
    if (!w) return;
    t->a->ops->weight_free(t->a, w->a);
    t->b->ops->weight_free(t->b, w->b);
    free(w);
}

static struct ds_weight *weight_new(struct ds_backend *be, const struct ds_tensor *x, unsigned use, struct ds_err *e)
{
    struct ds_tandem *t = of(be);
    struct ds_weight *w = calloc(1, sizeof *w);
    if (!w) {
        ds_fail(e, DS_ENOMEM, "tensor '%s': the system refused memory for it", x->name);
        return NULL;
    }
    w->t = x;
    if ((w->a = t->a->ops->weight_new(t->a, x, use, e)) && (w->b = t->b->ops->weight_new(t->b, x, use, e))) return w;
    weight_free(be, w);
    return NULL;
}

static uint64_t weight_extra_bytes(struct ds_backend *be, const struct ds_weight *w)
{
    return of(be)->a->ops->weight_extra_bytes(of(be)->a, w->a) + of(be)->b->ops->weight_extra_bytes(of(be)->b, w->b);
}

static const char *kernel_name(struct ds_backend *be, const struct ds_weight *w, int n) { return of(be)->a->ops->kernel_name(of(be)->a, w->a, n); }

/* --- life and steps --- */

static void free_backend(struct ds_backend *be)
{
    of(be)->a->ops->free(of(be)->a);
    of(be)->b->ops->free(of(be)->b);
    free(be);
}

static ds_status reserve(struct ds_backend *be, const struct ds_sizes *sz, struct ds_err *e)
{
    ds_status st = of(be)->a->ops->reserve(of(be)->a, sz, e);
    return st ? st : of(be)->b->ops->reserve(of(be)->b, sz, e);
}

static uint64_t own_bytes(struct ds_backend *be) { return of(be)->a->ops->own_bytes(of(be)->a) + of(be)->b->ops->own_bytes(of(be)->b); }
static uint64_t mem_available(struct ds_backend *be, const struct ds_sizes *sz) { return of(be)->a->ops->mem_available(of(be)->a, sz); }
static void peaks(struct ds_backend *be, struct ds_peaks *p) { of(be)->a->ops->peaks(of(be)->a, p); }
static void stamp(struct ds_backend *be, int i) { of(be)->a->ops->stamp(of(be)->a, i); }
static uint64_t stamp_ns(struct ds_backend *be, int i) { return of(be)->a->ops->stamp_ns(of(be)->a, i); }
static void drain(struct ds_backend *be) { of(be)->a->ops->drain(of(be)->a); }

static bool begin(struct ds_backend *be, const struct ds_step *s)
{
    struct ds_step alone = *s;
    be->step = *s;
    alone.timeline = NULL;                 /* results are compared in between: nothing to record */
    of(be)->a->ops->begin(of(be)->a, &alone);
    of(be)->b->ops->begin(of(be)->b, &alone);
    return true;
}

static ds_status end(struct ds_backend *be, struct ds_err *e)
{
    struct ds_tandem *t = of(be);
    ds_status st = t->a->ops->end(t->a, e);
    if (!st) st = t->b->ops->end(t->b, e);
    return st || !t->failed ? st : ds_fail(e, DS_ENOMEM, "the system refused memory to compare the two paths");
}

/* --- comparing --- */

static const float *values(struct ds_backend *be, struct ds_buf *b) { return be->ops->buf_map(be, b, false); }

static void add_diff(struct ds_tandem_diff *d, const float *got, const float *ref, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double x = (double)got[i] - ref[i];
        if (!(fabs(x) <= d->max_abs)) d->max_abs = isnan(x) ? INFINITY : fabs(x);
        d->num += x * x;
        d->den += (double)ref[i] * ref[i];
    }
}

static double relative(const struct ds_tandem_diff *d)
{
    if (!isfinite(d->num) || !isfinite(d->den)) return INFINITY;
    return d->den > 0 ? sqrt(d->num / d->den) : d->num > 0 ? INFINITY : 0;
}

/* How far rows of dim numbers are from the plain ones (tandem.h). A handful of numbers may cancel to almost nothing (a gate's
 * logit near zero), so there their norm counts as at least 0.1 a number, and no row is looked at alone. */
static double distance(const float *got, const float *ref, size_t rows, size_t dim)
{
    struct ds_tandem_diff all = { 0 };
    add_diff(&all, got, ref, rows * dim);
    if (dim < 32) {
        all.den = fmax(all.den, 0.01 * (double)(rows * dim));
        return relative(&all);
    }
    double worst = relative(&all);
    const double least = 0.01 * all.den / (double)rows;
    for (size_t i = 0; i < rows; i++) {
        struct ds_tandem_diff row = { 0 };
        add_diff(&row, got + i * dim, ref + i * dim, dim);
        row.den = fmax(row.den, least);
        worst = fmax(worst, relative(&row) / 4);
    }
    return worst;
}

static void note(struct ds_tandem *t, const char *op, const char *detail, double r, double limit)
{
    struct ds_tandem_report *p = &t->report;
    if (p->limit > 0 && r / limit <= p->worst / p->limit) return;
    p->worst = r;
    p->limit = limit;
    snprintf(p->worst_op, sizeof p->worst_op, "%s%s%s", op, detail ? " " : "", detail ? detail : "");
}

/* An op wrote rows of dim elements on both sides. */
static void judge(struct ds_tandem *t, const char *op, const char *detail, struct ds_buf *p, size_t rows, size_t dim)
{
    note(t, op, detail, distance(values(t->a, p->a), values(t->b, p->b), rows, dim), t->be.op_limit);
}

static double limit_of(const struct ds_tandem *t, const struct ds_weight *w)
{
    return w->t->type->act == DS_ACT_NONE ? t->be.op_limit : t->be.product_limit;
}

static void judge_product(struct ds_tandem *t, const char *op, const struct ds_weight *w, struct ds_buf *y, size_t rows)
{
    note(t, op, w->t->name, distance(values(t->a, y->a), values(t->b, y->b), rows, (size_t)w->t->ne[1]), limit_of(t, w));
}

/* The same experts in the same order: equal logits leave no choice. */
static void judge_route(struct ds_tandem *t, const struct ds_buf *p, size_t n)
{
    struct ds_route_slot a[64], b[64];
    double worst = 0;
    for (size_t i = 0; i < n; i += 64) {
        const size_t m = n - i < 64 ? n - i : 64;
        t->a->ops->buf_get(t->a, a, p->a, i, m);
        t->b->ops->buf_get(t->b, b, p->b, i, m);
        for (size_t j = 0; j < m; j++) {
            const double d = fabs((double)a[j].weight - b[j].weight);
            worst = a[j].expert == b[j].expert && isfinite(d) ? fmax(worst, d) : INFINITY;
        }
    }
    note(t, "moe_route", NULL, worst, t->be.op_limit);
}

/* The plain side gets the path's content of an input (or of an output that is added to). */
static void give(struct ds_tandem *t, const struct ds_buf *p, size_t n)
{
    memcpy(t->b->ops->buf_map(t->b, p->b, true), values(t->a, p->a), n * sizeof(float));
}

/* Experts that are none have been judged where they were chosen; the plain side must survive them. */
static void give_route(struct ds_tandem *t, const struct ds_buf *p, int n_expert)
{
    struct ds_route_slot slot[64];
    for (size_t i = 0, n = p->rows * p->dim; i < n; i += 64) {
        const size_t m = n - i < 64 ? n - i : 64;
        t->a->ops->buf_get(t->a, slot, p->a, i, m);
        for (size_t j = 0; j < m; j++)
            if (slot[j].expert < 0 || slot[j].expert >= n_expert) slot[j].expert = 0;
        t->b->ops->buf_set(t->b, p->b, i, slot, m);
    }
}

static int argmax(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return (int)best;
}

bool ds_tandem_tied(struct ds_backend *be, const float *logits, size_t vocab, int i)
{
    double sum = 0;
    for (size_t k = 0; k < vocab; k++) sum += (double)logits[k] * logits[k];
    return (double)logits[argmax(logits, vocab)] - logits[i] <= 4 * of(be)->tie * sqrt(sum / (double)vocab);
}

static void judge_logits(struct ds_tandem *t, const struct ds_weight *w, struct ds_buf *p, int n)
{
    const size_t vocab = (size_t)w->t->ne[1];
    const float *a = values(t->a, p->a), *b = values(t->b, p->b);
    t->tie = limit_of(t, w);
    for (int i = 0; i < n; i++, t->report.rows++)
        t->report.rows_agree += ds_tandem_tied(&t->be, b + (size_t)i * vocab, vocab, argmax(a + (size_t)i * vocab, vocab));
    a += (size_t)(n - 1) * vocab;
    b += (size_t)(n - 1) * vocab;
    double ab = 0, aa = 0, bb = 0;
    struct ds_tandem_diff d = { 0 };
    for (size_t i = 0; i < vocab; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    add_diff(&d, a, b, vocab);
    t->report.cosine = aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
    t->report.max_abs = d.max_abs;
}

void ds_tandem_reset(struct ds_backend *be) { memset(&of(be)->report, 0, sizeof of(be)->report); }
const struct ds_tandem_report *ds_tandem_read(struct ds_backend *be) { return &of(be)->report; }

void ds_tandem_compare(struct ds_backend *be, const struct ds_buf *b, size_t n, struct ds_tandem_diff *d)
{
    struct ds_tandem *t = of(be);
    float *x = malloc((2 * n + 1) * sizeof *x);
    if (!x) {
        t->failed = true;
        return;
    }
    t->a->ops->buf_read(t->a, x, b->a, 0, n);
    t->b->ops->buf_read(t->b, x + n, b->b, 0, n);
    add_diff(d, x, x + n, n);
    free(x);
}

/* --- ops: inputs over, both run, outputs compared --- */

static void embed(struct ds_backend *be, struct ds_buf *x, const struct ds_weight *table)
{
    struct ds_tandem *t = of(be);
    t->a->ops->embed(t->a, x->a, table->a);
    t->b->ops->embed(t->b, x->b, table->b);
    judge(t, "embed", NULL, x, (size_t)be->step.n, x->dim);
}

static void rms_norm(struct ds_backend *be, struct ds_buf *h, const struct ds_buf *x, const struct ds_weight *gain, int row0, int n, int dim, float eps)
{
    struct ds_tandem *t = of(be);
    give(t, x, (size_t)(row0 + n) * (size_t)dim);
    t->a->ops->rms_norm(t->a, h->a, x->a, gain->a, row0, n, dim, eps);
    t->b->ops->rms_norm(t->b, h->b, x->b, gain->b, row0, n, dim, eps);
    judge(t, "rms_norm", gain->t->name, h, (size_t)n, (size_t)dim);
}

static void matmul(struct ds_backend *be, int n_w, struct ds_buf *const *y, const struct ds_weight *const *w, const struct ds_buf *x, int n, bool add)
{
    struct ds_tandem *t = of(be);
    give(t, x, (size_t)n * (size_t)w[0]->t->ne[0]);
    for (int i = 0; i < n_w; i++) {
        const size_t out = (size_t)w[i]->t->ne[1];
        const struct ds_weight *wa = w[i]->a, *wb = w[i]->b;
        struct ds_buf *ya = y[i]->a, *yb = y[i]->b;
        if (add) give(t, y[i], (size_t)n * out);
        t->a->ops->matmul(t->a, 1, &ya, &wa, x->a, n, add);
        t->b->ops->matmul(t->b, 1, &yb, &wb, x->b, n, add);
        judge_product(t, "matmul", w[i], y[i], (size_t)n);
        if (y[i]->kind == DS_BUF_LOGITS) judge_logits(t, w[i], y[i], n);
    }
}

static void matmul_experts(struct ds_backend *be, struct ds_buf *y, const struct ds_weight *w, const struct ds_buf *x, const struct ds_buf *route, int n,
                           int k, bool per_slot)
{
    struct ds_tandem *t = of(be);
    give(t, x, (size_t)n * (per_slot ? (size_t)k : 1) * (size_t)w->t->ne[0]);
    give_route(t, route, (int)w->t->ne[2]);
    t->a->ops->matmul_experts(t->a, y->a, w->a, x->a, route->a, n, k, per_slot);
    t->b->ops->matmul_experts(t->b, y->b, w->b, x->b, route->b, n, k, per_slot);
    judge_product(t, "matmul_experts", w, y, (size_t)n * (size_t)k);
}

static size_t channels(const struct ds_gdn_shape *s) { return 2 * (size_t)s->n_kh * (size_t)s->dk + (size_t)s->n_vh * (size_t)s->dv; }

/* prep's layout is each backend's own, so it is judged by what the recurrence makes of it. */
static void gdn_prep(struct ds_backend *be, struct ds_buf *prep, struct ds_buf *conv, const struct ds_buf *u, const struct ds_buf *a, const struct ds_buf *b,
                     const struct ds_weight *conv_w, const struct ds_weight *ssm_a, const struct ds_weight *ssm_dt, const struct ds_gdn_shape *sh, int n)
{
    struct ds_tandem *t = of(be);
    give(t, u, (size_t)n * channels(sh));
    give(t, a, (size_t)n * (size_t)sh->n_vh);
    give(t, b, (size_t)n * (size_t)sh->n_vh);
    t->a->ops->gdn_prep(t->a, prep->a, conv->a, u->a, a->a, b->a, conv_w->a, ssm_a->a, ssm_dt->a, sh, n);
    t->b->ops->gdn_prep(t->b, prep->b, conv->b, u->b, a->b, b->b, conv_w->b, ssm_a->b, ssm_dt->b, sh, n);
    judge(t, "gdn_prep", conv_w->t->name, conv, (size_t)(sh->conv_k - 1), channels(sh));
}

static void gdn(struct ds_backend *be, struct ds_buf *o, struct ds_buf *S, const struct ds_buf *prep, const struct ds_gdn_shape *sh, int n, int t0, int t1)
{
    struct ds_tandem *t = of(be);
    t->a->ops->gdn(t->a, o->a, S->a, prep->a, sh, n, t0, t1);
    t->b->ops->gdn(t->b, o->b, S->b, prep->b, sh, n, t0, t1);
    if (t1 == n) judge(t, "gdn", NULL, o, (size_t)n, (size_t)sh->n_vh * (size_t)sh->dv);
}

static void conv_tail(struct ds_backend *be, struct ds_buf *dst, size_t off, const struct ds_buf *conv, const struct ds_buf *u, const struct ds_gdn_shape *sh,
                      int n)
{
    struct ds_tandem *t = of(be);
    t->a->ops->conv_tail(t->a, dst->a, off, conv->a, u->a, sh, n);
    t->b->ops->conv_tail(t->b, dst->b, off, conv->b, u->b, sh, n);
}

static void copy(struct ds_backend *be, struct ds_buf *dst, size_t off, const struct ds_buf *src, size_t n)
{
    of(be)->a->ops->copy(of(be)->a, dst->a, off, src->a, n);
    of(be)->b->ops->copy(of(be)->b, dst->b, off, src->b, n);
}

static void gated_norm(struct ds_backend *be, struct ds_buf *y, const struct ds_buf *o, const struct ds_buf *z, const struct ds_weight *gain,
                       const struct ds_gdn_shape *sh, int n)
{
    struct ds_tandem *t = of(be);
    const size_t elems = (size_t)n * (size_t)sh->n_vh * (size_t)sh->dv;
    give(t, o, elems);
    give(t, z, elems);
    t->a->ops->gated_norm(t->a, y->a, o->a, z->a, gain->a, sh, n);
    t->b->ops->gated_norm(t->b, y->b, o->b, z->b, gain->b, sh, n);
    judge(t, "gated_norm", gain->t->name, y, (size_t)n, elems / (size_t)n);
}

static void qk_norm(struct ds_backend *be, struct ds_buf *qg, struct ds_buf *k, const struct ds_weight *gain_q, const struct ds_weight *gain_k,
                    const struct ds_attn_shape *sh, int n)
{
    struct ds_tandem *t = of(be);
    const size_t nq = (size_t)n * 2 * (size_t)sh->n_head * (size_t)sh->hd, nk = (size_t)n * (size_t)sh->n_kv * (size_t)sh->hd;
    give(t, qg, nq);
    give(t, k, nk);
    t->a->ops->qk_norm(t->a, qg->a, k->a, gain_q->a, gain_k->a, sh, n);
    t->b->ops->qk_norm(t->b, qg->b, k->b, gain_q->b, gain_k->b, sh, n);
    judge(t, "qk_norm", gain_q->t->name, qg, (size_t)n, nq / (size_t)n);
    judge(t, "qk_norm", gain_k->t->name, k, (size_t)n, nk / (size_t)n);
}

static void rope_store(struct ds_backend *be, struct ds_buf *qg, struct ds_buf *k, const struct ds_buf *v, struct ds_buf *kcache, struct ds_buf *vcache,
                       const struct ds_attn_shape *sh, int n)
{
    struct ds_tandem *t = of(be);
    const size_t nq = (size_t)n * 2 * (size_t)sh->n_head * (size_t)sh->hd, nk = (size_t)n * (size_t)sh->n_kv * (size_t)sh->hd;
    give(t, qg, nq);
    give(t, k, nk);
    give(t, v, nk);
    t->a->ops->rope_store(t->a, qg->a, k->a, v->a, kcache->a, vcache->a, sh, n);
    t->b->ops->rope_store(t->b, qg->b, k->b, v->b, kcache->b, vcache->b, sh, n);
    judge(t, "rope", NULL, qg, (size_t)n, nq / (size_t)n);
}

static void attn(struct ds_backend *be, struct ds_buf *y, const struct ds_buf *qg, const struct ds_buf *kcache, const struct ds_buf *vcache,
                 const struct ds_attn_shape *sh, int n)
{
    struct ds_tandem *t = of(be);
    give(t, qg, (size_t)n * 2 * (size_t)sh->n_head * (size_t)sh->hd);
    t->a->ops->attn(t->a, y->a, qg->a, kcache->a, vcache->a, sh, n);
    t->b->ops->attn(t->b, y->b, qg->b, kcache->b, vcache->b, sh, n);
    judge(t, "attn", NULL, y, (size_t)n, (size_t)sh->n_head * (size_t)sh->hd);
}

static void swiglu(struct ds_backend *be, struct ds_buf *act, const struct ds_buf *gate, const struct ds_buf *up, int rows, int dim)
{
    struct ds_tandem *t = of(be);
    give(t, gate, (size_t)rows * (size_t)dim);
    give(t, up, (size_t)rows * (size_t)dim);
    t->a->ops->swiglu(t->a, act->a, gate->a, up->a, rows, dim);
    t->b->ops->swiglu(t->b, act->b, gate->b, up->b, rows, dim);
    judge(t, "swiglu", NULL, act, (size_t)rows, (size_t)dim);
}

static void moe_route(struct ds_backend *be, struct ds_buf *route, const struct ds_buf *logits, int n, int n_expert, int k)
{
    struct ds_tandem *t = of(be);
    give(t, logits, (size_t)n * (size_t)n_expert);
    t->a->ops->moe_route(t->a, route->a, logits->a, n, n_expert, k);
    t->b->ops->moe_route(t->b, route->b, logits->b, n, n_expert, k);
    judge_route(t, route, (size_t)n * (size_t)k);
}

static void moe_combine(struct ds_backend *be, struct ds_buf *x, const struct ds_buf *y, const struct ds_buf *route, const struct ds_buf *shared,
                        const struct ds_buf *sg, int n, int k, int dim)
{
    struct ds_tandem *t = of(be);
    const size_t elems = (size_t)n * (size_t)dim;
    give(t, x, elems);
    give(t, y, elems * (size_t)k);
    if (shared) give(t, shared, elems);
    if (sg) give(t, sg, (size_t)n);
    t->a->ops->moe_combine(t->a, x->a, y->a, route->a, shared ? shared->a : NULL, sg ? sg->a : NULL, n, k, dim);
    t->b->ops->moe_combine(t->b, x->b, y->b, route->b, shared ? shared->b : NULL, sg ? sg->b : NULL, n, k, dim);
    judge(t, "moe_combine", NULL, x, (size_t)n, (size_t)dim);
}

static void copy_cols(struct ds_backend *be, struct ds_buf *act, const struct ds_buf *src, int n, int src_dim, int dim)
{
    of(be)->a->ops->copy_cols(of(be)->a, act->a, src->a, n, src_dim, dim);
    of(be)->b->ops->copy_cols(of(be)->b, act->b, src->b, n, src_dim, dim);
}

static const struct ds_ops tandem_ops = {
    .free = free_backend, .peaks = peaks, .mem_available = mem_available, .reserve = reserve, .own_bytes = own_bytes,
    .buf_new = buf_new, .buf_free = buf_free, .buf_bytes = buf_bytes, .buf_read = buf_read, .buf_write = buf_write,
    .buf_get = buf_get, .buf_set = buf_set, .buf_map = buf_map, .elem_bytes = elem_bytes,
    .weight_new = weight_new, .weight_free = weight_free, .weight_extra_bytes = weight_extra_bytes, .kernel_name = kernel_name,
    .begin = begin, .end = end, .stamp = stamp, .stamp_ns = stamp_ns, .drain = drain,
    .embed = embed, .rms_norm = rms_norm, .matmul = matmul, .matmul_experts = matmul_experts,
    .gdn_prep = gdn_prep, .gdn = gdn, .conv_tail = conv_tail, .copy = copy, .gated_norm = gated_norm,
    .qk_norm = qk_norm, .rope_store = rope_store, .attn = attn,
    .swiglu = swiglu, .moe_route = moe_route, .moe_combine = moe_combine, .copy_cols = copy_cols,
};

struct ds_backend *ds_tandem_new(struct ds_backend *path, struct ds_backend *plain, struct ds_err *e)
{
    struct ds_tandem *t = calloc(1, sizeof *t);
    if (!t) {
        path->ops->free(path);
        plain->ops->free(plain);
        ds_fail(e, DS_ENOMEM, "the system refused memory to run two backends in step");
        return NULL;
    }
    t->be = *path;                 /* name, placement and limits are the path's */
    t->be.ops = &tandem_ops;
    t->be.grouped = t->be.groups_decode = false;
    t->a = path;
    t->b = plain;
    return &t->be;
}
