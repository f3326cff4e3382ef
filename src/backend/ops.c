#include "backend/ops.h"

#include <stdlib.h>

/* --- marks --- */

#ifdef DS_NO_PROFILE
#define MARK(r, stage, cls, kernel, flop, bytes) ((void)(r), (void)(stage))
#else
static void mark(struct ds_run *r, enum ds_stage stage, int cls, const char *kernel, double flop, double bytes)
{
    const struct ds_label l = { stage, cls, cls < 0 ? NULL : ds_class_names[cls], kernel };
    int i = ds_prof_mark(r->prof, &l, flop, bytes);
    if (i < 0) return;
    if (r->prof->mode == DS_PROF_DRAIN) r->be->ops->drain(r->be);
    r->be->ops->stamp(r->be, i);
}
/* The arguments are evaluated only when the profile is on. */
#define MARK(r, stage, cls, kernel, flop, bytes)                          \
    do {                                                                  \
        if ((r)->prof) mark(r, stage, cls, kernel, flop, bytes);          \
    } while (0)
#endif

bool ds_run_begin(struct ds_run *r, const struct ds_step *s)
{
    struct ds_step step = *s;
    if (r->prof) {
        ds_prof_step(r->prof);
        step.timeline = NULL;              /* stamps are read step by step: none is replayed */
    }
    bool issue = r->be->ops->begin(r->be, &step);
    if (issue) MARK(r, DS_ST_OTHER, -1, NULL, 0, 0);
    return issue;
}

static ds_status read_stamps(struct ds_run *r, struct ds_err *e)
{
    const int n = r->prof->n + 1;
    if (n > r->ns_cap) {
        uint64_t *p = realloc(r->ns, 2 * (size_t)n * sizeof *p);
        if (!p) return ds_fail(e, DS_ENOMEM, "the system refused memory for %d time stamps", n);
        r->ns = p;
        r->ns_cap = 2 * n;
    }
    for (int i = 0; i < n; i++) r->ns[i] = r->be->ops->stamp_ns(r->be, i);
    ds_prof_collect(r->prof, r->ns);
    return DS_OK;
}

ds_status ds_run_end(struct ds_run *r, struct ds_err *e)
{
    if (r->prof) r->be->ops->stamp(r->be, r->prof->n);
    ds_status st = r->be->ops->end(r->be, e);
    if (!st && r->prof) st = read_stamps(r, e);
    return st;
}

void ds_run_free(struct ds_run *r)
{
    free(r->ns);
    r->ns = NULL;
    r->ns_cap = 0;
}

/* --- ops. Bytes are those that must move: inputs and outputs once, f32 unless stored otherwise. --- */

void ds_op_embed(struct ds_run *r, struct ds_buf *x, const struct ds_weight *table)
{
    MARK(r, DS_ST_OTHER, -1, NULL, 0, 0);
    r->be->ops->embed(r->be, x, table);
}

void ds_op_rms_norm(struct ds_run *r, struct ds_buf *h, const struct ds_buf *x, const struct ds_weight *gain, int row0, int n, int dim, float eps)
{
    MARK(r, DS_ST_NORM_ACT, -1, NULL, 4.0 * n * dim, 8.0 * n * dim);
    r->be->ops->rms_norm(r->be, h, x, gain, row0, n, dim, eps);
}

#ifndef DS_NO_PROFILE
static double product_flop(const struct ds_product *p, double rows) { return 2.0 * rows * (double)p->in * (double)p->out; }
static double product_bytes(const struct ds_product *p, double rows)
{
    return (double)p->bytes + 4.0 * rows * ((double)p->in + (double)p->out);
}
#endif

static void matmul_group(struct ds_run *r, int n_p, const struct ds_product *p, const struct ds_buf *x, int n, bool add)
{
    struct ds_buf *y[8];
    const struct ds_weight *w[8];
    int largest = 0;
    for (int i = 0; i < n_p; i++) {
        y[i] = p[i].y;
        w[i] = p[i].w;
        if (p[i].out > p[largest].out) largest = i;
    }
    for (int i = 0; i < n_p; i++)   /* one label: a group counts where its largest product belongs */
        MARK(r, DS_ST_GEMM, (int)p[largest].cls, r->be->ops->kernel_name(r->be, w[largest], n), product_flop(&p[i], n), product_bytes(&p[i], n));
    (void)largest;
    r->be->ops->matmul(r->be, n_p, y, w, x, n, add);
}

void ds_op_matmul(struct ds_run *r, int n_p, const struct ds_product *p, const struct ds_buf *x, int n, bool add)
{
    if (r->be->grouped || (r->be->groups_decode && r->be->step.decode && !r->prof)) {
        matmul_group(r, n_p, p, x, n, add);
        return;
    }
    for (int i = 0; i < n_p; i++) matmul_group(r, 1, &p[i], x, n, add);
}

void ds_op_matmul_experts(struct ds_run *r, const struct ds_product *p, const struct ds_buf *x, const struct ds_buf *route, int n, int k, bool per_slot)
{
    MARK(r, DS_ST_GEMM, (int)p->cls, r->be->ops->kernel_name(r->be, p->w, n), product_flop(p, (double)n * k), product_bytes(p, (double)n * k));
    r->be->ops->matmul_experts(r->be, p->y, p->w, x, route, n, k, per_slot);
}

#ifndef DS_NO_PROFILE
static double gdn_channels(const struct ds_gdn_shape *sh) { return 2.0 * sh->n_kh * sh->dk + (double)sh->n_vh * sh->dv; }
static double conv_flop(const struct ds_gdn_shape *sh, int n) { return (2.0 * sh->conv_k + 4.0) * n * gdn_channels(sh); }
/* counted at the sequential form's 7 dk dv operations per token and value head, whatever form runs */
static double gdn_flop(const struct ds_gdn_shape *sh, int n) { return 7.0 * n * sh->n_vh * sh->dk * (double)sh->dv; }
static double gated_flop(const struct ds_gdn_shape *sh, int n) { return 8.0 * n * sh->n_vh * sh->dv; }
#endif

void ds_op_gdn_prep(struct ds_run *r, struct ds_buf *prep, struct ds_buf *conv, const struct ds_buf *u, const struct ds_buf *a, const struct ds_buf *b,
                    const struct ds_weight *conv_w, const struct ds_weight *ssm_a, const struct ds_weight *ssm_dt, const struct ds_gdn_shape *sh, int n)
{
    MARK(r, DS_ST_GDN, -1, NULL, conv_flop(sh, n), 8.0 * n * gdn_channels(sh));
    r->be->ops->gdn_prep(r->be, prep, conv, u, a, b, conv_w, ssm_a, ssm_dt, sh, n);
}

void ds_op_gdn(struct ds_run *r, struct ds_buf *o, struct ds_buf *S, const struct ds_buf *prep, const struct ds_gdn_shape *sh, int n, int t0, int t1)
{
    MARK(r, DS_ST_GDN, -1, NULL, gdn_flop(sh, t1 - t0),
         4.0 * (t1 - t0) * (2.0 * sh->n_kh * sh->dk + 2.0 * sh->n_vh * sh->dv) + 8.0 * sh->n_vh * sh->dk * sh->dv);
    r->be->ops->gdn(r->be, o, S, prep, sh, n, t0, t1);
}

void ds_op_gdn_walk(struct ds_run *r, const struct ds_gdn_layer *l, const struct ds_gdn_shape *sh, int n, int t0, int t1)
{
    MARK(r, DS_ST_GDN, -1, NULL, conv_flop(sh, t1 - t0) + gdn_flop(sh, t1 - t0) + gated_flop(sh, t1 - t0),
         4.0 * (t1 - t0) * (gdn_channels(sh) + 2.0 * sh->n_vh * sh->dv) + 8.0 * sh->n_vh * sh->dk * sh->dv);
    r->be->ops->gdn_walk(r->be, l, sh, n, t0, t1);
}

void ds_op_conv_tail(struct ds_run *r, struct ds_buf *dst, size_t off, const struct ds_buf *conv, const struct ds_buf *u, const struct ds_gdn_shape *sh, int t)
{
    MARK(r, DS_ST_GDN, -1, NULL, 0, 8.0 * (sh->conv_k - 1) * gdn_channels(sh));
    r->be->ops->conv_tail(r->be, dst, off, conv, u, sh, t);
}

void ds_op_copy(struct ds_run *r, enum ds_stage stage, struct ds_buf *dst, size_t off, const struct ds_buf *src, size_t n)
{
    MARK(r, stage, -1, NULL, 0, 8.0 * (double)n);
    r->be->ops->copy(r->be, dst, off, src, n);
}

void ds_op_gated_norm(struct ds_run *r, struct ds_buf *y, const struct ds_buf *o, const struct ds_buf *z, const struct ds_weight *gain,
                      const struct ds_gdn_shape *sh, int n)
{
    MARK(r, DS_ST_GDN, -1, NULL, gated_flop(sh, n), 12.0 * n * sh->n_vh * sh->dv);
    r->be->ops->gated_norm(r->be, y, o, z, gain, sh, n);
}

void ds_op_qk_norm(struct ds_run *r, struct ds_buf *qg, struct ds_buf *k, const struct ds_weight *gain_q, const struct ds_weight *gain_k,
                   const struct ds_attn_shape *sh, int n)
{
    MARK(r, DS_ST_QKNORM, -1, NULL, 4.0 * n * (sh->n_head + sh->n_kv) * sh->hd, 8.0 * n * (sh->n_head + sh->n_kv) * sh->hd);
    r->be->ops->qk_norm(r->be, qg, k, gain_q, gain_k, sh, n);
}

void ds_op_rope_store(struct ds_run *r, struct ds_buf *qg, struct ds_buf *k, const struct ds_buf *v, struct ds_buf *kcache, struct ds_buf *vcache,
                      const struct ds_attn_shape *sh, int n)
{
    MARK(r, DS_ST_ATTN, -1, NULL, 3.0 * n * (sh->n_head + sh->n_kv) * sh->n_rot, 8.0 * n * (sh->n_head * sh->n_rot + 2.0 * sh->n_kv * sh->hd));
    r->be->ops->rope_store(r->be, qg, k, v, kcache, vcache, sh, n);
}

void ds_op_attn(struct ds_run *r, struct ds_buf *y, const struct ds_buf *qg, const struct ds_buf *kcache, const struct ds_buf *vcache,
                const struct ds_attn_shape *sh, int n)
{
    /* n queries see pos+1 .. pos+n keys */
    MARK(r, DS_ST_ATTN, -1, NULL, 4.0 * sh->n_head * sh->hd * n * ((double)r->be->step.pos + (n + 1) / 2.0),
         12.0 * n * sh->n_head * sh->hd + 4.0 * sh->n_kv * sh->hd * ((double)r->be->step.pos + n));
    r->be->ops->attn(r->be, y, qg, kcache, vcache, sh, n);
}

void ds_op_swiglu(struct ds_run *r, struct ds_buf *act, const struct ds_buf *gate, const struct ds_buf *up, int rows, int dim)
{
    MARK(r, DS_ST_NORM_ACT, -1, NULL, 5.0 * rows * dim, 12.0 * rows * dim);
    r->be->ops->swiglu(r->be, act, gate, up, rows, dim);
}

void ds_op_moe_route(struct ds_run *r, struct ds_buf *route, const struct ds_buf *logits, int n, int n_expert, int k)
{
    MARK(r, DS_ST_NORM_ACT, -1, NULL, 4.0 * n * n_expert, 4.0 * n * n_expert);
    r->be->ops->moe_route(r->be, route, logits, n, n_expert, k);
}

void ds_op_moe_combine(struct ds_run *r, struct ds_buf *x, const struct ds_buf *y, const struct ds_buf *route, const struct ds_buf *shared,
                       const struct ds_buf *sg, int n, int k, int dim)
{
    MARK(r, DS_ST_NORM_ACT, -1, NULL, 2.0 * n * (k + 1) * dim, 4.0 * n * (k + 3.0) * dim);
    r->be->ops->moe_combine(r->be, x, y, route, shared, sg, n, k, dim);
}

void ds_op_copy_cols(struct ds_run *r, enum ds_stage stage, struct ds_buf *act, const struct ds_buf *src, int n, int src_dim, int dim)
{
    MARK(r, stage, -1, NULL, 0, 8.0 * n * dim);
    r->be->ops->copy_cols(r->be, act, src, n, src_dim, dim);
}
