/* The op table: each op unpacks buffers and weights and launches its kernels. */
#include "backend/cuda/host.h"

#include <math.h>

static void embed(struct ds_backend *be, struct ds_buf *x, const struct ds_weight *table)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    ds_cuda_stamp_settle(c);
    const struct ds_type *t = table->t->type;
    ds_cuda_ok(c, ds_cu_embed(x->own, table->blocks, (int)ds_type_id(t), t->block, t->bytes, ds_cuda_ids(c), be->step.n, table->in, c->stream),
               "embedding tokens");
}

static void rms_norm(struct ds_backend *be, struct ds_buf *h, const struct ds_buf *x, const struct ds_weight *gain, int row0,
                     int n, int dim, float eps)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    const float *from = (const float *)x->own + (int64_t)row0 * dim;
    const struct ds_cu_gemv_input in = { .kind = DS_CU_IN_NORM, .x = from, .gain = gain->f32, .eps = eps, .made = h->own };
    h->f8 = gain->f8_gain && n > 1 && h->scale && ds_cu_rms_norm_f8_fits(dim);
    if (n == 1 && ds_cuda_later(c, h, &in, dim, dim)) return;
    if (h->f8) ds_cuda_ok(c, ds_cu_rms_norm_f8(h->own, h->scale, from, gain->f32, n, dim, eps, ds_cuda_stamp_next(c), c->stream), "normalising");
    else ds_cuda_ok(c, ds_cu_rms_norm(h->own, from, gain->f32, n, dim, eps, ds_cuda_stamp_next(c), c->stream), "normalising");
}

/* --- GDN --- */

static struct ds_cu_gdn gdn_shape(const struct ds_backend *be, const struct ds_gdn_shape *sh, int n)
{
    const int left = 64 - (int)(be->step.pos % 64);        /* chunks lie on absolute multiples of 64 */
    return (struct ds_cu_gdn){
        .n = n,
        .n_kh = sh->n_kh,
        .n_vh = sh->n_vh,
        .dk = sh->dk,
        .dv = sh->dv,
        .conv_k = sh->conv_k,
        .eps = sh->eps,
        .first = left < n ? left : n,
    };
}

/* Short steps run token by token: a chunk's products would be mostly padding. */
static bool by_chunk(const struct ds_cuda *c, const struct ds_cu_gdn *g)
{
    return c->gdn_chunk && g->n >= 32 && ds_cu_gdn_chunk_fits(g, c->sm);
}

static void gdn_prep(struct ds_backend *be, struct ds_buf *prep, struct ds_buf *conv, const struct ds_buf *u,
                     const struct ds_buf *a, const struct ds_buf *b, const struct ds_weight *conv_w,
                     const struct ds_weight *ssm_a, const struct ds_weight *ssm_dt, const struct ds_gdn_shape *sh, int n)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    ds_cuda_stamp_settle(c);
    const struct ds_cu_gdn g = gdn_shape(be, sh, n);
    const int channels = 2 * sh->n_kh * sh->dk + sh->n_vh * sh->dv;
    const uint16_t *up = ds_cuda_proj(u), *ap = ds_cuda_proj(a), *bp = ds_cuda_proj(b);
    const int64_t ldu = ds_cuda_ld(u, (size_t)channels), lda = ds_cuda_ld(a, (size_t)sh->n_vh),
                  ldb = ds_cuda_ld(b, (size_t)sh->n_vh);
    if (by_chunk(c, &g)) {
        if (!ds_cuda_room(c, &c->tiles, ds_cu_gdn_chunk_bytes(&g, n), "chunk tiles", NULL)) return;
        if (c->tiles_zeroed != c->tiles.bytes)
            ds_cuda_ok(c, cudaMemsetAsync(c->tiles.p, 0, ds_cu_gdn_chunk_control_bytes(), c->stream), "preparing the recurrence");
        c->tiles_zeroed = c->tiles.bytes;
        c->tiles_of = prep;
        ds_cuda_ok(c,
                   ds_cu_gdn_prep_chunk(c->tiles.p, conv->own, up, ldu, ap, lda, bp, ldb, conv_w->f32, ssm_a->f32, ssm_dt->f32, &g,
                                        c->stream),
                   "preparing the recurrence");
        c->prepared = prep;
    } else {
        ds_cuda_ok(c,
                   ds_cu_gdn_prep_seq(prep->own, conv->own, up, ldu, ap, lda, bp, ldb, conv_w->f32, ssm_a->f32, ssm_dt->f32, &g,
                                      c->stream),
                   "preparing the recurrence");
    }
}

static void gdn(struct ds_backend *be, struct ds_buf *o, struct ds_buf *S, const struct ds_buf *prep,
                const struct ds_gdn_shape *sh, int n, int t0, int t1)
{
    if (t0 >= t1) return;
    const bool follows = ds_cuda_of(be)->prepared == prep;     /* nothing was launched since */
    struct ds_cuda *c = ds_cuda_ready(be);
    ds_cuda_stamp_settle(c);
    const struct ds_cu_gdn g = gdn_shape(be, sh, n);
    if (by_chunk(c, &g)) {
        if (c->tiles_of != prep && !c->err.code) ds_fail(&c->err, DS_EARG, "the recurrence's inputs were not the last prepared");
        ds_cuda_ok(c, ds_cu_gdn_chunk(o->own, S->own, c->tiles.p, &g, t0, t1, follows, c->stream), "running the recurrence");
    } else ds_cuda_ok(c, ds_cu_gdn_seq(o->own, S->own, prep->own, &g, t0, t1, c->stream), "running the recurrence");
}

static void conv_tail(struct ds_backend *be, struct ds_buf *dst, size_t off, const struct ds_buf *conv, const struct ds_buf *u,
                      const struct ds_gdn_shape *sh, int t)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    ds_cuda_stamp_settle(c);
    const int channels = 2 * sh->n_kh * sh->dk + sh->n_vh * sh->dv;
    ds_cuda_ok(c,
               ds_cu_conv_tail((float *)dst->own + off, conv->own, ds_cuda_proj(u), ds_cuda_ld(u, (size_t)channels), t, channels,
                               sh->conv_k, c->stream),
               "keeping the convolution's history");
}

static void copy(struct ds_backend *be, struct ds_buf *dst, size_t off, const struct ds_buf *src, size_t n)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    ds_cuda_stamp_settle(c);
    ds_cuda_ok(c, cudaMemcpyAsync((float *)dst->own + off, src->own, n * sizeof(float), cudaMemcpyDeviceToDevice, c->stream),
               "copying a buffer");
}

static void gated_norm(struct ds_backend *be, struct ds_buf *y, const struct ds_buf *o, const struct ds_buf *z,
                       const struct ds_weight *gain, const struct ds_gdn_shape *sh, int n)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    const int64_t ldz = ds_cuda_ld(z, (size_t)sh->n_vh * (size_t)sh->dv);
    const struct ds_cu_gemv_input in = { .kind = DS_CU_IN_GATED, .x = o->own, .gate = ds_cuda_proj(z), .gain = gain->f32,
                                         .eps = sh->eps, .made = y->own };
    y->f8 = gain->f8_gain && n > 1 && y->scale && ldz % 4 == 0 && (uintptr_t)ds_cuda_proj(z) % 8 == 0 && ds_cu_gated_norm_f8_fits(sh->n_vh, sh->dv);
    if (n == 1 && ds_cuda_later(c, y, &in, sh->n_vh * sh->dv, sh->dv)) return;
    if (y->f8)
        ds_cuda_ok(c, ds_cu_gated_norm_f8(y->own, y->scale, o->own, ds_cuda_proj(z), ldz, gain->f32, n, sh->n_vh, sh->eps, ds_cuda_stamp_next(c), c->stream),
                   "normalising the readout");
    else
        ds_cuda_ok(c, ds_cu_gated_norm(y->own, o->own, ds_cuda_proj(z), ldz, gain->f32, n, sh->n_vh, sh->dv, sh->eps, ds_cuda_stamp_next(c), c->stream),
               "normalising the readout");
}

/* --- attention --- */

static struct ds_cu_qk queries_keys(const struct ds_buf *qg, const struct ds_buf *k, const struct ds_attn_shape *sh, int n)
{
    return (struct ds_cu_qk){
        .qg = ds_cuda_proj(qg),
        .ldq = ds_cuda_ld(qg, (size_t)(2 * sh->n_head * sh->hd)),
        .k = ds_cuda_proj(k),
        .ldk = ds_cuda_ld(k, (size_t)(sh->n_kv * sh->hd)),
        .n = n,
        .n_head = sh->n_head,
        .n_kv = sh->n_kv,
        .hd = sh->hd,
        .n_rot = sh->n_rot,
        .eps = sh->eps,
    };
}

static void qk_norm(struct ds_backend *be, struct ds_buf *qg, struct ds_buf *k, const struct ds_weight *gain_q,
                    const struct ds_weight *gain_k, const struct ds_attn_shape *sh, int n)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    const struct ds_cu_qk q = queries_keys(qg, k, sh, n);
    ds_cuda_ok(c, ds_cu_qk_norm(&q, gain_q->f32, gain_k->f32, ds_cuda_stamp_next(c), c->stream), "normalising queries and keys");
}

static void rope_store(struct ds_backend *be, struct ds_buf *qg, struct ds_buf *k, const struct ds_buf *v, struct ds_buf *kcache,
                       struct ds_buf *vcache, const struct ds_attn_shape *sh, int n)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    const struct ds_cu_qk q = queries_keys(qg, k, sh, n);
    struct ds_cu_freq freq = { { 0 } };
    for (int j = 0; j < sh->n_rot / 2 && j < DS_CU_MAX_PAIRS; j++) freq.f[j] = pow((double)sh->rope_base, -2.0 * j / sh->n_rot);
    ds_cuda_ok(c,
               ds_cu_rope_store(&q, &freq, ds_cuda_proj(v), ds_cuda_ld(v, (size_t)(sh->n_kv * sh->hd)), kcache->own, vcache->own,
                                c->kv_f16, c->ids.p, ds_cuda_stamp_next(c), c->stream),
               "rotating and storing keys");
}

/* Few queries over many keys: the keys are divided as far as scratch allows, by powers of two, so that a recorded step serves
 * many positions. */
int ds_cuda_splits(const struct ds_cuda *c, const struct ds_attn_shape *sh, int n, int64_t pos)
{
    const size_t per_split = (size_t)n * (size_t)sh->n_head * (size_t)(sh->hd + 2), room = c->part.bytes / sizeof(float) / per_split;
    int splits = 1;
    while (splits < 64 && splits * 256 < pos + n && (size_t)splits * 2 <= room) splits *= 2;
    return splits;
}

static void attn(struct ds_backend *be, struct ds_buf *y, const struct ds_buf *qg, const struct ds_buf *kcache,
                 const struct ds_buf *vcache, const struct ds_attn_shape *sh, int n)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    ds_cuda_stamp_settle(c);
    struct ds_cu_attn a = {
        .y = y->own,
        .qg = ds_cuda_proj(qg),
        .ldq = ds_cuda_ld(qg, (size_t)(2 * sh->n_head * sh->hd)),
        .k = kcache->own,
        .v = vcache->own,
        .f16 = c->kv_f16,
        .n = n,
        .n_head = sh->n_head,
        .n_kv = sh->n_kv,
        .hd = sh->hd,
        .pos = be->step.pos,
        .at = c->ids.p,
        .splits = 1,
    };
    y->f8 = false;
    if (n > 16 && ds_cu_attn_sm90_fits(&a, c->sm)) {
        ds_cuda_ok(c, ds_cu_attn_sm90(&a, c->stream), "attending");
        return;
    }
    a.splits = ds_cuda_splits(c, sh, n, a.pos);
    a.part = c->part.p;
    ds_cuda_ok(c, ds_cu_attn_any(&a, c->stream), "attending");
}

/* --- FFN --- */

static bool aligned(const uint16_t *p, int64_t ld) { return (uintptr_t)p % 16 == 0 && ld % 8 == 0; }

static void swiglu(struct ds_backend *be, struct ds_buf *act, const struct ds_buf *gate, const struct ds_buf *up, int rows,
                   int dim)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    const uint16_t *g = ds_cuda_proj(gate), *u = ds_cuda_proj(up);
    const int64_t ldg = ds_cuda_ld(gate, (size_t)dim), ldu = ds_cuda_ld(up, (size_t)dim);
    act->f8 = c->f8_down && rows > 1 && act->scale && ds_cu_swiglu_f8_fits(dim) && aligned(g, ldg) && aligned(u, ldu);
    const struct ds_cu_gemv_input in = { .kind = DS_CU_IN_SWIGLU, .x = g, .gate = u, .made = act->own };
    if (rows == 1 && ds_cuda_later(c, act, &in, dim, dim)) return;
    if (act->f8) ds_cuda_ok(c, ds_cu_swiglu_f8(act->own, act->scale, g, ldg, u, ldu, rows, dim, ds_cuda_stamp_next(c), c->stream), "activating");
    else ds_cuda_ok(c, ds_cu_swiglu(act->own, g, ldg, u, ldu, rows, dim, ds_cuda_stamp_next(c), c->stream), "activating");
}

static void moe_route(struct ds_backend *be, struct ds_buf *route, const struct ds_buf *logits, int n, int n_expert, int k)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    ds_cuda_stamp_settle(c);
    ds_cuda_ok(c,
               ds_cu_moe_route(route->own, ds_cuda_proj(logits), ds_cuda_ld(logits, (size_t)n_expert), n, n_expert, k, c->stream),
               "choosing experts");
}

static void moe_combine(struct ds_backend *be, struct ds_buf *x, const struct ds_buf *y, const struct ds_buf *route,
                        const struct ds_buf *shared, const struct ds_buf *sg, int n, int k, int dim)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    ds_cuda_stamp_settle(c);
    ds_cuda_ok(c,
               ds_cu_moe_combine(x->own, ds_cuda_proj(y), route->own, shared ? ds_cuda_proj(shared) : NULL,
                                 shared ? ds_cuda_ld(shared, (size_t)dim) : 0, sg ? ds_cuda_proj(sg) : NULL,
                                 sg ? ds_cuda_ld(sg, 1) : 0, n, k, dim, c->stream),
               "combining experts");
}

static void copy_cols(struct ds_backend *be, struct ds_buf *act, const struct ds_buf *src, int n, int src_dim, int dim)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    ds_cuda_stamp_settle(c);
    const bool wide = ds_cuda_elem_bytes(be, src->kind) == 4;
    const struct ds_cu_mat m = { .p = wide ? src->own : ds_cuda_proj(src),
                                 .ld = wide ? src_dim : ds_cuda_ld(src, (size_t)src_dim),
                                 .f32 = wide };
    act->f8 = false;
    ds_cuda_ok(c, ds_cu_copy_cols(act->own, m, n, src_dim, dim, c->stream), "copying columns");
}

const struct ds_ops ds_cuda_ops = {
    .free = ds_cuda_free,
    .peaks = ds_cuda_peaks,
    .mem_available = ds_cuda_mem_available,
    .reserve = ds_cuda_reserve,
    .own_bytes = ds_cuda_own_bytes,
    .buf_new = ds_cuda_buf_new,
    .buf_free = ds_cuda_buf_free,
    .buf_bytes = ds_cuda_buf_bytes,
    .buf_read = ds_cuda_buf_read,
    .buf_write = ds_cuda_buf_write,
    .buf_get = ds_cuda_buf_get,
    .buf_set = ds_cuda_buf_set,
    .buf_map = ds_cuda_buf_map,
    .elem_bytes = ds_cuda_elem_bytes,
    .weight_new = ds_cuda_weight_new,
    .weight_free = ds_cuda_weight_free,
    .weight_extra_bytes = ds_cuda_weight_extra_bytes,
    .kernel_name = ds_cuda_kernel_name,
    .begin = ds_cuda_begin,
    .end = ds_cuda_end,
    .stamp = ds_cuda_stamp,
    .stamp_ns = ds_cuda_stamp_ns,
    .drain = ds_cuda_drain,
    .embed = embed,
    .rms_norm = rms_norm,
    .matmul = ds_cuda_matmul,
    .matmul_experts = ds_cuda_matmul_experts,
    .gdn_prep = gdn_prep,
    .gdn = gdn,
    .conv_tail = conv_tail,
    .copy = copy,
    .gated_norm = gated_norm,
    .qk_norm = qk_norm,
    .rope_store = rope_store,
    .attn = attn,
    .swiglu = swiglu,
    .moe_route = moe_route,
    .moe_combine = moe_combine,
    .copy_cols = copy_cols,
};
