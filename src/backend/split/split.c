/* Placement gemm: two backends as one. Weight products go to the device, everything else to the host.
 *
 * A buffer is the host's. The kinds that cross have a shadow on the device: inputs of products (ACT,
 * ROUTE: uploaded once per content) and outputs (PROJ, LOGITS: downloaded after each product). The
 * copies happen inside matmul, so the profile counts them in gemm+roundtrip. */
#include "backend/backend.h"

#include "base/os.h"

#include <stdlib.h>
#include <string.h>

struct ds_split {
    struct ds_backend be;
    struct ds_backend *host, *dev;
    struct ds_buf *dev_add;        /* device output of products that are added into the residual: [ubatch][hidden] */
    float *stage;                  /* the same on the host */
    size_t stage_n;
};

/* The public names are each backend's own; here they are pairs. */
struct ds_buf {
    enum ds_buf_kind kind;
    size_t rows, dim;
    struct ds_buf *host, *dev;     /* dev NULL: the kind does not cross */
    size_t fresh;                  /* ACT, ROUTE: rows of dev that hold the host's content */
};
struct ds_weight { struct ds_weight *host, *dev; uint64_t out; };

static struct ds_split *split_of(const struct ds_backend *be) { return (struct ds_split *)(uintptr_t)be; }

/* --- memory --- */

static bool crosses(enum ds_buf_kind kind) { return kind != DS_BUF_F32 && kind != DS_BUF_STATE && kind != DS_BUF_KV; }

static void buf_free(struct ds_backend *be, struct ds_buf *b)
{
    struct ds_split *s = split_of(be);
    if (!b) return;
    s->host->ops->buf_free(s->host, b->host);
    s->dev->ops->buf_free(s->dev, b->dev);
    free(b);
}

static struct ds_buf *buf_new(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim, struct ds_err *e)
{
    struct ds_split *s = split_of(be);
    struct ds_buf *b = calloc(1, sizeof *b);
    if (!b) {
        ds_fail(e, DS_ENOMEM, "the system refused a buffer");
        return NULL;
    }
    *b = (struct ds_buf){ .kind = kind, .rows = rows, .dim = dim };
    b->host = s->host->ops->buf_new(s->host, kind, rows, dim, e);
    if (b->host && crosses(kind)) b->dev = s->dev->ops->buf_new(s->dev, kind, rows, dim, e);
    if (b->host && (b->dev || !crosses(kind))) return b;
    buf_free(be, b);
    return NULL;
}

static uint64_t buf_bytes(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim)
{
    struct ds_split *s = split_of(be);
    uint64_t n = s->host->ops->buf_bytes(s->host, kind, rows, dim);
    return crosses(kind) ? n + s->dev->ops->buf_bytes(s->dev, kind, rows, dim) : n;
}

static void buf_read(struct ds_backend *be, float *dst, const struct ds_buf *src, size_t off, size_t n)
{
    struct ds_split *s = split_of(be);
    s->host->ops->buf_read(s->host, dst, src->host, off, n);
}

static void buf_write(struct ds_backend *be, struct ds_buf *dst, size_t off, const float *src, size_t n)
{
    struct ds_split *s = split_of(be);
    s->host->ops->buf_write(s->host, dst->host, off, src, n);
    dst->fresh = 0;
}

static void buf_get(struct ds_backend *be, void *dst, const struct ds_buf *src, size_t off, size_t n)
{
    struct ds_split *s = split_of(be);
    s->host->ops->buf_get(s->host, dst, src->host, off, n);
}

static void buf_set(struct ds_backend *be, struct ds_buf *dst, size_t off, const void *src, size_t n)
{
    struct ds_split *s = split_of(be);
    s->host->ops->buf_set(s->host, dst->host, off, src, n);
    dst->fresh = 0;
}

static float *buf_map(struct ds_backend *be, struct ds_buf *b, bool write)
{
    struct ds_split *s = split_of(be);
    if (write) b->fresh = 0;
    return s->host->ops->buf_map(s->host, b->host, write);
}

static size_t elem_bytes(struct ds_backend *be, enum ds_buf_kind kind)
{
    struct ds_split *s = split_of(be);
    return s->host->ops->elem_bytes(s->host, kind);
}

static void peaks(struct ds_backend *be, struct ds_peaks *p) { split_of(be)->dev->ops->peaks(split_of(be)->dev, p); }
static uint64_t mem_available(struct ds_backend *be, const struct ds_sizes *sz)
{
    return split_of(be)->host->ops->mem_available(split_of(be)->host, sz);
}

static ds_status reserve(struct ds_backend *be, const struct ds_sizes *sz, struct ds_err *e)
{
    struct ds_split *s = split_of(be);
    if (s->host->ops->reserve(s->host, sz, e) || s->dev->ops->reserve(s->dev, sz, e)) return e ? e->code : DS_ENOMEM;
    be->gdn_form = s->host->gdn_form;
    s->stage_n = (size_t)sz->ubatch * (size_t)sz->hidden;
    if (!(s->stage = ds_mem_alloc(s->stage_n * sizeof(float)))) return ds_fail(e, DS_ENOMEM, "the system refused a staging buffer");
    s->dev_add = s->dev->ops->buf_new(s->dev, DS_BUF_PROJ, (size_t)sz->ubatch, (size_t)sz->hidden, e);
    return s->dev_add ? DS_OK : DS_ENOMEM;
}

static uint64_t own_bytes(struct ds_backend *be)
{
    struct ds_split *s = split_of(be);
    uint64_t dev_add = s->stage_n ? s->dev->ops->buf_bytes(s->dev, DS_BUF_PROJ, 1, s->stage_n) : 0;
    return s->host->ops->own_bytes(s->host) + s->dev->ops->own_bytes(s->dev) + s->stage_n * sizeof(float) + dev_add;
}

/* --- weights --- */

static void weight_free(struct ds_backend *be, struct ds_weight *w)
{
    struct ds_split *s = split_of(be);
    if (!w) return;
    if (w->host) s->host->ops->weight_free(s->host, w->host);
    if (w->dev) s->dev->ops->weight_free(s->dev, w->dev);
    free(w);
}

static struct ds_weight *weight_new(struct ds_backend *be, const struct ds_tensor *t, unsigned use, struct ds_err *e)
{
    struct ds_split *s = split_of(be);
    const unsigned host_use = use & (DS_USE_VECTOR | DS_USE_EMBED), dev_use = use & DS_USE_GEMM;
    struct ds_weight *w = calloc(1, sizeof *w);
    if (!w) {
        ds_fail(e, DS_ENOMEM, "tensor '%s': the system refused memory for it", t->name);
        return NULL;
    }
    w->out = t->ne[1];
    if (host_use) w->host = s->host->ops->weight_new(s->host, t, host_use, e);
    if (dev_use && (w->host || !host_use)) w->dev = s->dev->ops->weight_new(s->dev, t, dev_use, e);
    if ((!host_use || w->host) && (!dev_use || w->dev)) return w;
    weight_free(be, w);
    return NULL;
}

static uint64_t weight_extra_bytes(struct ds_backend *be, const struct ds_weight *w)
{
    struct ds_split *s = split_of(be);
    return (w->host ? s->host->ops->weight_extra_bytes(s->host, w->host) : 0) +
           (w->dev ? s->dev->ops->weight_extra_bytes(s->dev, w->dev) : 0);
}

static const char *kernel_name(struct ds_backend *be, const struct ds_weight *w, int n)
{
    struct ds_split *s = split_of(be);
    return s->dev->ops->kernel_name(s->dev, w->dev, n);
}

/* --- a step: the host's clock and order; the device only computes products --- */

static bool begin(struct ds_backend *be, const struct ds_step *step)
{
    struct ds_split *s = split_of(be);
    be->step = *step;
    s->host->ops->begin(s->host, step);
    struct ds_step alone = *step;
    alone.timeline = NULL;                 /* transfers in between: nothing to record */
    s->dev->ops->begin(s->dev, &alone);
    return true;
}

static ds_status end(struct ds_backend *be, struct ds_err *e)
{
    struct ds_split *s = split_of(be);
    ds_status host = s->host->ops->end(s->host, e);
    ds_status dev = s->dev->ops->end(s->dev, e);
    return host ? host : dev;
}

static void stamp(struct ds_backend *be, int i) { split_of(be)->host->ops->stamp(split_of(be)->host, i); }
static uint64_t stamp_ns(struct ds_backend *be, int i) { return split_of(be)->host->ops->stamp_ns(split_of(be)->host, i); }
static void drain(struct ds_backend *be)
{
    struct ds_split *s = split_of(be);
    s->host->ops->drain(s->host);
    s->dev->ops->drain(s->dev);
}

static void free_backend(struct ds_backend *be)
{
    struct ds_split *s = split_of(be);
    s->dev->ops->buf_free(s->dev, s->dev_add);
    s->host->ops->free(s->host);
    s->dev->ops->free(s->dev);
    ds_mem_free(s->stage, s->stage_n * sizeof(float));
    free(s);
}

/* --- products: copy in once, multiply, copy out --- */

static void upload(struct ds_split *s, const struct ds_buf *b, size_t rows)
{
    struct ds_buf *x = (struct ds_buf *)(uintptr_t)b;   /* fresh is a cache of the content, not content */
    const size_t n = rows * x->dim;
    if (rows <= x->fresh) return;
    if (x->kind == DS_BUF_ROUTE) {
        struct ds_route_slot slot[64];
        for (size_t i = 0; i < n; i += 64) {
            size_t part = n - i < 64 ? n - i : 64;
            s->host->ops->buf_get(s->host, slot, x->host, i, part);
            s->dev->ops->buf_set(s->dev, x->dev, i, slot, part);
        }
    } else {
        s->dev->ops->buf_write(s->dev, x->dev, 0, s->host->ops->buf_map(s->host, x->host, false), n);
    }
    x->fresh = rows;
}

static void download(struct ds_split *s, struct ds_buf *y, size_t n)
{
    float *p = s->host->ops->buf_map(s->host, y->host, true);
    s->dev->ops->buf_read(s->dev, p, y->dev, 0, n);
    y->fresh = 0;
}

static void add_into(struct ds_split *s, struct ds_buf *y, size_t n)
{
    float *p = s->host->ops->buf_map(s->host, y->host, true);
    s->dev->ops->buf_read(s->dev, s->stage, s->dev_add, 0, n);
    for (size_t i = 0; i < n; i++) p[i] += s->stage[i];
    y->fresh = 0;
}

static void matmul(struct ds_backend *be, int n_w, struct ds_buf *const *y, const struct ds_weight *const *w, const struct ds_buf *x, int n,
                   bool add)
{
    struct ds_split *s = split_of(be);
    upload(s, x, (size_t)n);
    for (int i = 0; i < n_w; i++) {
        struct ds_buf *out = add ? s->dev_add : y[i]->dev;
        const struct ds_weight *dw = w[i]->dev;
        s->dev->ops->matmul(s->dev, 1, &out, &dw, x->dev, n, false);
        if (add) add_into(s, y[i], (size_t)n * w[i]->out);
        else download(s, y[i], (size_t)n * w[i]->out);
    }
}

static void matmul_experts(struct ds_backend *be, struct ds_buf *y, const struct ds_weight *w, const struct ds_buf *x, const struct ds_buf *route,
                           int n, int k, bool per_slot)
{
    struct ds_split *s = split_of(be);
    upload(s, x, (size_t)n * (per_slot ? (size_t)k : 1));
    upload(s, route, (size_t)n);
    s->dev->ops->matmul_experts(s->dev, y->dev, w->dev, x->dev, route->dev, n, k, per_slot);
    download(s, y, (size_t)n * (size_t)k * w->out);
}

/* --- everything else runs on the host; what it writes is stale on the device --- */

static void embed(struct ds_backend *be, struct ds_buf *x, const struct ds_weight *table)
{
    struct ds_split *s = split_of(be);
    s->host->ops->embed(s->host, x->host, table->host);
}

static void rms_norm(struct ds_backend *be, struct ds_buf *h, const struct ds_buf *x, const struct ds_weight *gain, int row0, int n, int dim,
                     float eps)
{
    struct ds_split *s = split_of(be);
    s->host->ops->rms_norm(s->host, h->host, x->host, gain->host, row0, n, dim, eps);
    h->fresh = 0;
}

static void gdn_prep(struct ds_backend *be, struct ds_buf *prep, struct ds_buf *conv, const struct ds_buf *u, const struct ds_buf *a,
                     const struct ds_buf *b, const struct ds_weight *conv_w, const struct ds_weight *ssm_a, const struct ds_weight *ssm_dt,
                     const struct ds_gdn_shape *sh, int n)
{
    struct ds_split *s = split_of(be);
    s->host->ops->gdn_prep(s->host, prep->host, conv->host, u->host, a->host, b->host, conv_w->host, ssm_a->host, ssm_dt->host, sh, n);
}

static void gdn(struct ds_backend *be, struct ds_buf *o, struct ds_buf *S, const struct ds_buf *prep, const struct ds_gdn_shape *sh, int n, int t0, int t1)
{
    struct ds_split *s = split_of(be);
    s->host->ops->gdn(s->host, o->host, S->host, prep->host, sh, n, t0, t1);
}

static void conv_tail(struct ds_backend *be, struct ds_buf *dst, size_t off, const struct ds_buf *conv, const struct ds_buf *u,
                      const struct ds_gdn_shape *sh, int t)
{
    struct ds_split *s = split_of(be);
    s->host->ops->conv_tail(s->host, dst->host, off, conv->host, u->host, sh, t);
}

static void copy(struct ds_backend *be, struct ds_buf *dst, size_t off, const struct ds_buf *src, size_t n)
{
    struct ds_split *s = split_of(be);
    s->host->ops->copy(s->host, dst->host, off, src->host, n);
}

static void gated_norm(struct ds_backend *be, struct ds_buf *y, const struct ds_buf *o, const struct ds_buf *z, const struct ds_weight *gain,
                       const struct ds_gdn_shape *sh, int n)
{
    struct ds_split *s = split_of(be);
    s->host->ops->gated_norm(s->host, y->host, o->host, z->host, gain->host, sh, n);
    y->fresh = 0;
}

static void qk_norm(struct ds_backend *be, struct ds_buf *qg, struct ds_buf *k, const struct ds_weight *gain_q, const struct ds_weight *gain_k,
                    const struct ds_attn_shape *sh, int n)
{
    struct ds_split *s = split_of(be);
    s->host->ops->qk_norm(s->host, qg->host, k->host, gain_q->host, gain_k->host, sh, n);
}

static void rope_store(struct ds_backend *be, struct ds_buf *qg, struct ds_buf *k, const struct ds_buf *v, struct ds_buf *kcache,
                       struct ds_buf *vcache, const struct ds_attn_shape *sh, int n)
{
    struct ds_split *s = split_of(be);
    s->host->ops->rope_store(s->host, qg->host, k->host, v->host, kcache->host, vcache->host, sh, n);
}

static void attn(struct ds_backend *be, struct ds_buf *y, const struct ds_buf *qg, const struct ds_buf *kcache, const struct ds_buf *vcache,
                 const struct ds_attn_shape *sh, int n)
{
    struct ds_split *s = split_of(be);
    s->host->ops->attn(s->host, y->host, qg->host, kcache->host, vcache->host, sh, n);
    y->fresh = 0;
}

static void swiglu(struct ds_backend *be, struct ds_buf *act, const struct ds_buf *gate, const struct ds_buf *up, int rows, int dim)
{
    struct ds_split *s = split_of(be);
    s->host->ops->swiglu(s->host, act->host, gate->host, up->host, rows, dim);
    act->fresh = 0;
}

static void moe_route(struct ds_backend *be, struct ds_buf *route, const struct ds_buf *logits, int n, int n_expert, int k)
{
    struct ds_split *s = split_of(be);
    s->host->ops->moe_route(s->host, route->host, logits->host, n, n_expert, k);
    route->fresh = 0;
}

static void moe_combine(struct ds_backend *be, struct ds_buf *x, const struct ds_buf *y, const struct ds_buf *route, const struct ds_buf *shared,
                        const struct ds_buf *sg, int n, int k, int dim)
{
    struct ds_split *s = split_of(be);
    s->host->ops->moe_combine(s->host, x->host, y->host, route->host, shared ? shared->host : NULL, sg ? sg->host : NULL, n, k, dim);
}

static void copy_cols(struct ds_backend *be, struct ds_buf *act, const struct ds_buf *src, int n, int src_dim, int dim)
{
    struct ds_split *s = split_of(be);
    s->host->ops->copy_cols(s->host, act->host, src->host, n, src_dim, dim);
    act->fresh = 0;
}

static const struct ds_ops split_ops = {
    .free = free_backend, .peaks = peaks, .mem_available = mem_available, .reserve = reserve, .own_bytes = own_bytes,
    .buf_new = buf_new, .buf_free = buf_free, .buf_bytes = buf_bytes, .buf_read = buf_read, .buf_write = buf_write,
    .buf_get = buf_get, .buf_set = buf_set, .buf_map = buf_map, .elem_bytes = elem_bytes,
    .weight_new = weight_new, .weight_free = weight_free, .weight_extra_bytes = weight_extra_bytes, .kernel_name = kernel_name,
    .begin = begin, .end = end, .stamp = stamp, .stamp_ns = stamp_ns, .drain = drain,
    .embed = embed, .rms_norm = rms_norm, .matmul = matmul, .matmul_experts = matmul_experts,
    .gdn_prep = gdn_prep, .gdn = gdn, .conv_tail = conv_tail, .copy = copy, .gated_norm = gated_norm, .qk_norm = qk_norm, .rope_store = rope_store,
    .attn = attn,
    .swiglu = swiglu, .moe_route = moe_route, .moe_combine = moe_combine, .copy_cols = copy_cols,
};

struct ds_backend *ds_split_new(struct ds_backend *host, struct ds_backend *device, struct ds_err *e)
{
    struct ds_split *s = calloc(1, sizeof *s);
    if (!s) {
        host->ops->free(host);
        device->ops->free(device);
        ds_fail(e, DS_ENOMEM, "the system refused memory for the split of two backends");
        return NULL;
    }
    s->be.ops = &split_ops;
    s->be.name = device->name;
    s->be.placement = "gemm";
    s->be.device = device->device;
    s->be.gdn_form = host->gdn_form;
    s->be.cosine_limit = device->cosine_limit;
    s->be.cache_limit = device->cache_limit;
    s->be.product_limit = device->product_limit;
    s->be.op_limit = device->op_limit;
    s->host = host;
    s->dev = device;
    return &s->be;
}
