/* The op table: each op names its buffers and its grid (args.h). */
#include "backend/metal/host.h"

#include <math.h>

static uint32_t up(int64_t a, int64_t b) { return (uint32_t)((a + b - 1) / b); }

/* Work of ops that move bytes rather than multiply: a value takes as long as some 40 operations. */
static double moves(double values) { return 40 * values; }

#define CALL(m, kernel, doing, args) ds_metal_call(m, (m)->fn[kernel], doing, &(args), sizeof(args))

/* --- embedding, norms, activations --- */

static void embed(struct ds_backend *be, struct ds_buf *x, const struct ds_weight *table)
{
    struct ds_metal *m = ds_metal_of(be);
    const int n = be->step.n, dim = table->in;
    for (int i = 0; i < table->n_pieces; i++) {
        const struct ds_metal_piece *p = &table->pieces[i];
        const struct ds_metal_embed a = { .n = n, .dim = dim, .row0 = p->first, .n_rows = p->n };
        struct ds_metal_call *c = ds_metal_call(m, m->typed[ds_type_id(table->type)][DS_MT_EMBED], "embedding tokens", &a, sizeof a);
        ds_metal_bind(c, (struct ds_metal_mem){ p->b, p->off, p->bytes });
        ds_metal_bind(c, (struct ds_metal_mem){ m->ids, 0, (size_t)n * sizeof(int32_t) });
        ds_metal_bind(c, ds_metal_out(m, x, 0, (size_t)n * (size_t)dim));
        ds_metal_go(m, c, (uint32_t)n, 1, 1, 128, moves((double)n * dim));
    }
}

static void rms_norm(struct ds_backend *be, struct ds_buf *h, const struct ds_buf *x, const struct ds_weight *gain, int row0, int n,
                     int dim, float eps)
{
    struct ds_metal *m = ds_metal_of(be);
    const struct ds_metal_rows a = { .n = n, .dim = dim, .eps = eps };
    const size_t values = (size_t)n * (size_t)dim;
    struct ds_metal_call *c = CALL(m, DS_MK_RMS_NORM, "normalising", a);
    ds_metal_bind(c, ds_metal_in(m, x, (size_t)row0 * (size_t)dim, values));
    ds_metal_bind(c, ds_metal_vec(gain));
    ds_metal_bind(c, ds_metal_out(m, h, 0, values));
    ds_metal_go(m, c, (uint32_t)n, 1, 1, 256, moves((double)values));
}

static void swiglu(struct ds_backend *be, struct ds_buf *act, const struct ds_buf *gate, const struct ds_buf *up_, int rows, int dim)
{
    struct ds_metal *m = ds_metal_of(be);
    const size_t values = (size_t)rows * (size_t)dim;
    const struct ds_metal_count a = { .count = (uint32_t)values };
    struct ds_metal_call *c = CALL(m, DS_MK_SWIGLU, "activating", a);
    ds_metal_bind(c, ds_metal_in(m, gate, 0, values));
    ds_metal_bind(c, ds_metal_in(m, up_, 0, values));
    ds_metal_bind(c, ds_metal_out(m, act, 0, values));
    ds_metal_go(m, c, up((int64_t)values, 1024), 1, 1, 256, moves((double)values));
}

static void copy_cols(struct ds_backend *be, struct ds_buf *act, const struct ds_buf *src, int n, int src_dim, int dim)
{
    struct ds_metal *m = ds_metal_of(be);
    const struct ds_metal_cols a = { .n = n, .src_dim = src_dim, .dim = dim };
    struct ds_metal_call *c = CALL(m, DS_MK_COPY_COLS, "standing in for a stage", a);
    ds_metal_bind(c, ds_metal_in(m, src, 0, (size_t)n * (size_t)src_dim));
    ds_metal_bind(c, ds_metal_out(m, act, 0, (size_t)n * (size_t)dim));
    ds_metal_go(m, c, up(dim, 256), (uint32_t)n, 1, 256, moves((double)n * dim));
}

static void copy(struct ds_backend *be, struct ds_buf *dst, size_t off, const struct ds_buf *src, size_t n)
{
    struct ds_metal *m = ds_metal_of(be);
    const struct ds_metal_count a = { .count = (uint32_t)n };
    struct ds_metal_call *c = CALL(m, DS_MK_COPY, "copying a buffer", a);
    ds_metal_bind(c, ds_metal_in(m, src, 0, n));
    ds_metal_bind(c, ds_metal_out(m, dst, off, n));
    ds_metal_go(m, c, up((int64_t)n, 1024), 1, 1, 256, moves((double)n));
}

/* --- GDN --- */

static size_t channels(const struct ds_gdn_shape *sh) { return 2 * (size_t)sh->n_kh * (size_t)sh->dk + (size_t)sh->n_vh * (size_t)sh->dv; }

static struct ds_metal_gdn gdn_args(const struct ds_backend *be, const struct ds_gdn_shape *sh, int n)
{
    return (struct ds_metal_gdn){ .n = n, .n_kh = sh->n_kh, .n_vh = sh->n_vh, .dk = sh->dk, .dv = sh->dv, .conv_k = sh->conv_k,
                                  .t1 = n, .phase = (int)(be->step.pos % 64), .eps = sh->eps };
}

/* The history after t tokens, from `conv` as it was before this step's. */
static void conv_tail(struct ds_backend *be, struct ds_buf *dst, size_t off, const struct ds_buf *conv, const struct ds_buf *u,
                      const struct ds_gdn_shape *sh, int t)
{
    struct ds_metal *m = ds_metal_of(be);
    const size_t C = channels(sh), kept = (size_t)(sh->conv_k - 1) * C;
    const struct ds_metal_gdn a = gdn_args(be, sh, t);
    struct ds_metal_call *c = CALL(m, DS_MK_CONV_TAIL, "keeping the convolution's history", a);
    ds_metal_bind(c, ds_metal_in(m, conv, 0, kept));
    ds_metal_bind(c, ds_metal_in(m, u, 0, (size_t)t * C));
    ds_metal_bind(c, ds_metal_out(m, dst, off, kept));
    ds_metal_go(m, c, up((int64_t)C, 256), 1, 1, 256, moves((double)kept));
}

/* Where q, k, v, g and beta lie in the prep buffer: one after the other. */
static void bind_prep(struct ds_metal *m, struct ds_metal_call *c, const struct ds_buf *prep, const struct ds_gdn_shape *sh, int n)
{
    const size_t key = (size_t)n * (size_t)sh->n_kh * (size_t)sh->dk, value = (size_t)n * (size_t)sh->n_vh * (size_t)sh->dv,
                 gate = (size_t)n * (size_t)sh->n_vh;
    const size_t sizes[5] = { key, key, value, gate, gate };
    for (size_t i = 0, at = 0; i < 5; at += sizes[i++]) ds_metal_bind(c, ds_metal_in(m, prep, at, sizes[i]));
}

static void gdn_prep(struct ds_backend *be, struct ds_buf *prep, struct ds_buf *conv, const struct ds_buf *u, const struct ds_buf *a,
                     const struct ds_buf *b, const struct ds_weight *conv_w, const struct ds_weight *ssm_a, const struct ds_weight *ssm_dt,
                     const struct ds_gdn_shape *sh, int n)
{
    struct ds_metal *m = ds_metal_of(be);
    const size_t C = channels(sh), gates = (size_t)n * (size_t)sh->n_vh;
    const struct ds_metal_gdn args = gdn_args(be, sh, n);
    struct ds_metal_call *c = CALL(m, DS_MK_GDN_PREP, "preparing the recurrence", args);
    ds_metal_bind(c, ds_metal_in(m, conv, 0, 0));
    ds_metal_bind(c, ds_metal_in(m, u, 0, (size_t)n * C));
    ds_metal_bind(c, ds_metal_in(m, a, 0, gates));
    ds_metal_bind(c, ds_metal_in(m, b, 0, gates));
    ds_metal_bind(c, ds_metal_vec(conv_w));
    ds_metal_bind(c, ds_metal_vec(ssm_a));
    ds_metal_bind(c, ds_metal_vec(ssm_dt));
    ds_metal_out(m, prep, 0, 0);
    bind_prep(m, c, prep, sh, n);
    ds_metal_go(m, c, (uint32_t)(2 * sh->n_kh + sh->n_vh), (uint32_t)n, 1, 128, moves(2.0 * n * (double)C));
    /* the new version of the history, from the old one */
    const struct ds_metal_mem old = ds_metal_in(m, conv, 0, 0);
    c = CALL(m, DS_MK_CONV_TAIL, "keeping the convolution's history", args);
    ds_metal_bind(c, old);
    ds_metal_bind(c, ds_metal_in(m, u, 0, (size_t)n * C));
    ds_metal_bind(c, ds_metal_out(m, conv, 0, 0));
    ds_metal_go(m, c, up((int64_t)C, 256), 1, 1, 256, moves(3.0 * (double)C));
}

/* Chunks pay when they are filled; the kernel for them is made for heads of 128. */
static bool by_chunk(const struct ds_metal *m, const struct ds_gdn_shape *sh, int tokens)
{
    return m->gdn_chunk && tokens >= DS_METAL_GDN_CHUNK && sh->dk == 128 && sh->dv % DS_METAL_GDN_COLS == 0;
}

static void gdn(struct ds_backend *be, struct ds_buf *o, struct ds_buf *S, const struct ds_buf *prep, const struct ds_gdn_shape *sh, int n,
                int t0, int t1)
{
    struct ds_metal *m = ds_metal_of(be);
    struct ds_metal_gdn a = gdn_args(be, sh, n);
    const bool chunk = by_chunk(m, sh, t1 - t0);
    if (t0 >= t1) return;
    a.t0 = t0;
    a.t1 = t1;
    struct ds_metal_call *c = CALL(m, chunk ? DS_MK_GDN_CHUNK : DS_MK_GDN_SEQ, "running the recurrence", a);
    bind_prep(m, c, prep, sh, n);
    ds_metal_bind(c, ds_metal_in(m, S, 0, 0));
    ds_metal_bind(c, ds_metal_out(m, S, 0, 0));
    ds_metal_bind(c, ds_metal_out(m, o, 0, (size_t)n * (size_t)sh->n_vh * (size_t)sh->dv));
    ds_metal_go(m, c, up(sh->dv, DS_METAL_GDN_COLS), (uint32_t)sh->n_vh, 1, 128, 40.0 * (t1 - t0) * sh->n_vh * sh->dk * (double)sh->dv);
}

static void gated_norm(struct ds_backend *be, struct ds_buf *y, const struct ds_buf *o, const struct ds_buf *z, const struct ds_weight *gain,
                       const struct ds_gdn_shape *sh, int n)
{
    struct ds_metal *m = ds_metal_of(be);
    const size_t values = (size_t)n * (size_t)sh->n_vh * (size_t)sh->dv;
    const struct ds_metal_gdn a = gdn_args(be, sh, n);
    struct ds_metal_call *c = CALL(m, DS_MK_GATED_NORM, "normalising the readout", a);
    ds_metal_bind(c, ds_metal_in(m, o, 0, values));
    ds_metal_bind(c, ds_metal_in(m, z, 0, values));
    ds_metal_bind(c, ds_metal_vec(gain));
    ds_metal_bind(c, ds_metal_out(m, y, 0, values));
    ds_metal_go(m, c, (uint32_t)sh->n_vh, (uint32_t)n, 1, 128, moves((double)values));
}

/* --- attention --- */

static struct ds_metal_attn attn_args(const struct ds_backend *be, const struct ds_attn_shape *sh, int n)
{
    return (struct ds_metal_attn){ .n = n, .n_head = sh->n_head, .n_kv = sh->n_kv, .hd = sh->hd, .n_rot = sh->n_rot,
                                   .pos = (int)be->step.pos, .scale = 1 / sqrtf((float)sh->hd), .eps = sh->eps };
}

static void qk_norm(struct ds_backend *be, struct ds_buf *qg, struct ds_buf *k, const struct ds_weight *gain_q, const struct ds_weight *gain_k,
                    const struct ds_attn_shape *sh, int n)
{
    struct ds_metal *m = ds_metal_of(be);
    const size_t q = (size_t)n * (size_t)sh->n_head * 2 * (size_t)sh->hd, kv = (size_t)n * (size_t)sh->n_kv * (size_t)sh->hd;
    const struct ds_metal_attn a = attn_args(be, sh, n);
    struct ds_metal_call *c = CALL(m, DS_MK_QK_NORM, "normalising queries and keys", a);
    ds_metal_bind(c, ds_metal_inout(m, qg, 0, q));
    ds_metal_bind(c, ds_metal_inout(m, k, 0, kv));
    ds_metal_bind(c, ds_metal_vec(gain_q));
    ds_metal_bind(c, ds_metal_vec(gain_k));
    ds_metal_go(m, c, (uint32_t)(sh->n_head + sh->n_kv), (uint32_t)n, 1, 128, moves((double)(q + kv)));
}

/* cos and sin of the step's positions, in double from the integer position: once per step, before a dispatch reads them. */
static bool need_turns(struct ds_metal *m, const struct ds_attn_shape *sh, int n)
{
    const size_t pairs = (size_t)sh->n_rot / 2, need = (size_t)n * pairs * 2;
    if (m->turn_step == m->step) return true;
    if (need > m->turn_cap) {                              /* larger than reserved: an op test */
        ds_metal_release(m, m->turn, m->turn_cap * sizeof(float));
        m->turn_cap = 0;
        if (!(m->turn = ds_metal_alloc(m, need * sizeof(float), "rotations", m->err.code ? NULL : &m->err))) return false;
        m->turn_cap = need;
    }
    float *p = ds_mtl_buf_ptr(m->turn);
    for (size_t j = 0; j < pairs; j++) {
        const double f = pow((double)sh->rope_base, -2.0 * (double)j / sh->n_rot);
        for (int t = 0; t < n; t++) {
            const double angle = (double)(m->be.step.pos + t) * f;
            p[((size_t)t * pairs + j) * 2] = (float)cos(angle);
            p[((size_t)t * pairs + j) * 2 + 1] = (float)sin(angle);
        }
    }
    m->turn_step = m->step;
    return true;
}

static void rope_store(struct ds_backend *be, struct ds_buf *qg, struct ds_buf *k, const struct ds_buf *v, struct ds_buf *kcache,
                       struct ds_buf *vcache, const struct ds_attn_shape *sh, int n)
{
    struct ds_metal *m = ds_metal_of(be);
    const size_t row = (size_t)sh->n_kv * (size_t)sh->hd, q = (size_t)n * (size_t)sh->n_head * 2 * (size_t)sh->hd, kv = (size_t)n * row;
    const struct ds_metal_attn a = attn_args(be, sh, n);
    if (!need_turns(m, sh, n)) return;
    struct ds_metal_call *c = CALL(m, DS_MK_ROPE_STORE, "rotating and storing keys", a);
    ds_metal_bind(c, ds_metal_inout(m, qg, 0, q));
    ds_metal_bind(c, ds_metal_inout(m, k, 0, kv));
    ds_metal_bind(c, ds_metal_in(m, v, 0, kv));
    ds_metal_bind(c, (struct ds_metal_mem){ m->turn, 0, (size_t)n * (size_t)(sh->n_rot / 2) * 2 * sizeof(float) });
    ds_metal_bind(c, ds_metal_out(m, kcache, (size_t)be->step.pos * row, kv));
    ds_metal_bind(c, ds_metal_out(m, vcache, (size_t)be->step.pos * row, kv));
    ds_metal_go(m, c, (uint32_t)(sh->n_head + 2 * sh->n_kv), (uint32_t)n, 1, 128, moves((double)(q + 2 * kv)));
}

struct attn_call { struct ds_buf *y; const struct ds_buf *qg, *k, *v; const struct ds_attn_shape *sh; };

static void bind_attn(struct ds_metal *m, struct ds_metal_call *c, const struct attn_call *at, int t0, int n, bool caches)
{
    const size_t q = (size_t)at->sh->n_head * 2 * (size_t)at->sh->hd, row = (size_t)at->sh->n_kv * (size_t)at->sh->hd;
    ds_metal_bind(c, ds_metal_in(m, at->qg, (size_t)t0 * q, (size_t)n * q));
    for (int i = 0; i < 2 && caches; i++)
        ds_metal_bind(c, ds_metal_in(m, i ? at->v : at->k, 0, ((size_t)m->be.step.pos + (size_t)(t0 + n)) * row));
}

static struct ds_metal_mem out_rows(struct ds_metal *m, const struct attn_call *at, int t0, int n)
{
    const size_t row = (size_t)at->sh->n_head * (size_t)at->sh->hd;
    return ds_metal_out(m, at->y, (size_t)t0 * row, (size_t)n * row);
}

/* Attention reaches about a quarter of the rate of products. */
static double attn_work(const struct ds_attn_shape *sh, int n, int64_t keys) { return 16.0 * n * sh->n_head * sh->hd * (double)keys; }

static void attn_tiles(struct ds_metal *m, const struct attn_call *at, int t0, int n)
{
    struct ds_metal_attn a = attn_args(&m->be, at->sh, n);
    a.pos += t0;
    struct ds_metal_call *c = CALL(m, DS_MK_ATTN_PREFILL, "attending", a);
    bind_attn(m, c, at, t0, n, true);
    ds_metal_bind(c, out_rows(m, at, t0, n));
    ds_metal_go(m, c, up(n, DS_METAL_ATTN_TOKENS), (uint32_t)at->sh->n_head, 1, 128, attn_work(at->sh, n, a.pos + n));
}

/* Keys in parts, then their sums: a few tokens, or heads that the tiles are not made for. */
static void attn_parts(struct ds_metal *m, const struct attn_call *at, int t0, int n)
{
    struct ds_metal_attn a = attn_args(&m->be, at->sh, n);
    a.pos += t0;
    const int keys = a.pos + n, most = DS_METAL_PART_ROWS / n, wanted = (keys + 255) / 256;
    a.n_split = wanted < most ? wanted : most;
    a.per_split = (keys + a.n_split - 1) / a.n_split;
    const size_t bytes = (size_t)n * (size_t)at->sh->n_head * (size_t)a.n_split * (size_t)(at->sh->hd + 2) * sizeof(float);
    struct ds_metal_call *c = CALL(m, DS_MK_ATTN_PART, "attending", a);
    bind_attn(m, c, at, t0, n, true);
    ds_metal_bind(c, (struct ds_metal_mem){ m->part, 0, bytes });
    ds_metal_go(m, c, (uint32_t)a.n_split, (uint32_t)at->sh->n_head, (uint32_t)n, 128, attn_work(at->sh, n, keys));
    c = CALL(m, DS_MK_ATTN_MERGE, "attending", a);
    bind_attn(m, c, at, t0, n, false);
    ds_metal_bind(c, (struct ds_metal_mem){ m->part, 0, bytes });
    ds_metal_bind(c, out_rows(m, at, t0, n));
    ds_metal_go(m, c, (uint32_t)at->sh->n_head, (uint32_t)n, 1, 128, moves((double)bytes / 4));
}

static void attn(struct ds_backend *be, struct ds_buf *y, const struct ds_buf *qg, const struct ds_buf *kcache, const struct ds_buf *vcache,
                 const struct ds_attn_shape *sh, int n)
{
    struct ds_metal *m = ds_metal_of(be);
    const struct attn_call at = { y, qg, kcache, vcache, sh };
    const bool tiles = sh->hd == 256 && n >= DS_METAL_ATTN_TOKENS;
    const double fit = m->budget / attn_work(sh, 1, be->step.pos + n);
    int step = fit > n ? n : (int)fit / DS_METAL_ATTN_TOKENS * DS_METAL_ATTN_TOKENS;
    if (step < DS_METAL_ATTN_TOKENS) step = DS_METAL_ATTN_TOKENS;
    if (!tiles && step > DS_METAL_PART_ROWS) step = DS_METAL_PART_ROWS;
    for (int t = 0; t < n; t += step) {
        const int now = n - t < step ? n - t : step;
        if (tiles) attn_tiles(m, &at, t, now);
        else attn_parts(m, &at, t, now);
    }
}

/* --- experts --- */

static void moe_route(struct ds_backend *be, struct ds_buf *route, const struct ds_buf *logits, int n, int n_expert, int k)
{
    struct ds_metal *m = ds_metal_of(be);
    const struct ds_metal_route a = { .n = n, .n_expert = n_expert, .k = k };
    struct ds_metal_call *c = CALL(m, DS_MK_MOE_ROUTE, "choosing experts", a);
    ds_metal_bind(c, ds_metal_in(m, logits, 0, (size_t)n * (size_t)n_expert));
    ds_metal_bind(c, ds_metal_out(m, route, 0, (size_t)n * (size_t)k));
    ds_metal_go(m, c, up(n, 4), 1, 1, 128, moves((double)n * n_expert));
}

/* A buffer that a kernel does not read still has to be bound to something. */
static void moe_combine(struct ds_backend *be, struct ds_buf *x, const struct ds_buf *y, const struct ds_buf *route, const struct ds_buf *shared,
                        const struct ds_buf *sg, int n, int k, int dim)
{
    struct ds_metal *m = ds_metal_of(be);
    const size_t values = (size_t)n * (size_t)dim;
    const struct ds_metal_combine a = { .n = n, .k = k, .dim = dim, .has_shared = shared != NULL, .has_sg = sg != NULL };
    struct ds_metal_call *c = CALL(m, DS_MK_MOE_COMBINE, "adding up experts", a);
    ds_metal_bind(c, ds_metal_inout(m, x, 0, values));
    ds_metal_bind(c, ds_metal_in(m, y, 0, values * (size_t)k));
    ds_metal_bind(c, ds_metal_in(m, route, 0, (size_t)n * (size_t)k));
    ds_metal_bind(c, ds_metal_in(m, shared ? shared : y, 0, values));
    ds_metal_bind(c, ds_metal_in(m, sg ? sg : y, 0, (size_t)n));
    ds_metal_go(m, c, up(dim, 256), (uint32_t)n, 1, 256, moves((double)values * (k + 2)));
}

const struct ds_ops ds_metal_ops = {
    .free = ds_metal_free, .peaks = ds_metal_peaks, .mem_available = ds_metal_mem_available, .reserve = ds_metal_reserve,
    .own_bytes = ds_metal_own_bytes,
    .buf_new = ds_metal_buf_new, .buf_free = ds_metal_buf_free, .buf_bytes = ds_metal_buf_bytes, .buf_read = ds_metal_buf_read,
    .buf_write = ds_metal_buf_write, .buf_get = ds_metal_buf_get, .buf_set = ds_metal_buf_set, .buf_map = ds_metal_buf_map,
    .elem_bytes = ds_metal_elem_bytes,
    .weight_new = ds_metal_weight_new, .weight_free = ds_metal_weight_free, .weight_extra_bytes = ds_metal_weight_extra_bytes,
    .kernel_name = ds_metal_kernel_name,
    .begin = ds_metal_begin, .end = ds_metal_end, .stamp = ds_metal_stamp, .stamp_ns = ds_metal_stamp_ns, .drain = ds_metal_drain,
    .embed = embed, .rms_norm = rms_norm, .matmul = ds_metal_matmul, .matmul_experts = ds_metal_matmul_experts,
    .gdn_prep = gdn_prep, .gdn = gdn, .conv_tail = conv_tail, .copy = copy, .gated_norm = gated_norm, .qk_norm = qk_norm,
    .rope_store = rope_store, .attn = attn, .swiglu = swiglu, .moe_route = moe_route, .moe_combine = moe_combine, .copy_cols = copy_cols,
};
