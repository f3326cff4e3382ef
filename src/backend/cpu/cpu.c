/* The CPU backend's memory, weights and op table. It implements every op over a thread pool and is
 * the reference for all other backends. */
#include "backend/cpu/cpu.h"

#include "base/cpu.h"
#include "base/os.h"
#include "backend/cpu/open.h"
#include "backend/cpu/split.h"
#include "kernels/peaks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- buffers --- */

static size_t elem_bytes(struct ds_backend *be, enum ds_buf_kind kind)
{
    if (kind == DS_BUF_KV) return ds_cpu_of(be)->kv_f16 ? 2 : 4;
    return kind == DS_BUF_ROUTE ? sizeof(struct ds_route_slot) : 4;
}

static size_t panel_bytes(const struct ds_cpu *c, int fmt, size_t rows, size_t dim)
{
    return c->formats & 1u << fmt ? c->g.act_bytes((enum ds_act_fmt)fmt, (int)rows, (int)dim) : 0;
}

static uint64_t buf_bytes(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim)
{
    uint64_t total = (uint64_t)rows * dim * elem_bytes(be, kind);
    if (kind == DS_BUF_ACT)
        for (int f = 0; f < DS_AF_COUNT; f++) total += panel_bytes(ds_cpu_of(be), f, rows, dim);
    return total;
}

static void buf_free(struct ds_backend *be, struct ds_buf *b)
{
    (void)be;
    if (!b) return;
    ds_mem_free(b->p, b->bytes);
    for (int f = 0; f < DS_AF_COUNT; f++) ds_mem_free(b->panel[f].p, b->panel[f].cap);
    free(b);
}

static struct ds_buf *buf_new(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim, struct ds_err *e)
{
    struct ds_cpu *c = ds_cpu_of(be);
    struct ds_buf *b = calloc(1, sizeof *b);
    if (!b) goto refused;
    b->kind = kind;
    b->rows = rows;
    b->dim = dim;
    b->bytes = rows * dim * elem_bytes(be, kind);
    b->p = ds_mem_alloc(b->bytes);
    if (!b->p) goto refused;
    for (int f = 0; kind == DS_BUF_ACT && f < DS_AF_COUNT; f++) {
        b->panel[f].cap = panel_bytes(c, f, rows, dim);
        if (b->panel[f].cap && !(b->panel[f].p = ds_mem_alloc(b->panel[f].cap))) goto refused;
    }
    return b;
refused:
    buf_free(be, b);
    ds_fail(e, DS_ENOMEM, "the system refused a buffer of %.1f MiB", (double)rows * (double)dim * (double)elem_bytes(be, kind) / 1048576.0);
    return NULL;
}

struct bytes { char *dst; const char *src; size_t n; int pieces; };

static void bytes_task(void *ctx, int i, int thread)
{
    const struct bytes *b = ctx;
    const size_t from = ds_cpu_begin(b->n, b->pieces, i);
    (void)thread;
    memcpy(b->dst + from, b->src + from, ds_cpu_begin(b->n, b->pieces, i + 1) - from);
}

/* States are tens of megabytes, and the server copies some on the way through every prompt. */
void ds_cpu_bytes(struct ds_cpu *c, void *dst, const void *src, size_t n)
{
    struct bytes b = { .dst = dst, .src = src, .n = n, .pieces = ds_cpu_pieces(c, n / 4, 1) };
    if (n) ds_pool_run(c->pool, bytes_task, &b, b.pieces);
}

static void buf_get(struct ds_backend *be, void *dst, const struct ds_buf *src, size_t off, size_t n)
{
    size_t es = elem_bytes(be, src->kind);
    ds_cpu_bytes(ds_cpu_of(be), dst, (const char *)src->p + off * es, n * es);
}

static void buf_set(struct ds_backend *be, struct ds_buf *dst, size_t off, const void *src, size_t n)
{
    size_t es = elem_bytes(be, dst->kind);
    ds_cpu_bytes(ds_cpu_of(be), (char *)dst->p + off * es, src, n * es);
    ds_cpu_touch(dst);
}

static void buf_read(struct ds_backend *be, float *dst, const struct ds_buf *src, size_t off, size_t n)
{
    struct ds_cpu *c = ds_cpu_of(be);
    if (src->kind == DS_BUF_KV && c->kv_f16) c->k.f16_to_f32(dst, (const uint16_t *)src->p + off, n);
    else buf_get(be, dst, src, off, n);
}

static void buf_write(struct ds_backend *be, struct ds_buf *dst, size_t off, const float *src, size_t n)
{
    struct ds_cpu *c = ds_cpu_of(be);
    if (dst->kind == DS_BUF_KV && c->kv_f16) c->k.f32_to_f16((uint16_t *)dst->p + off, src, n);
    else buf_set(be, dst, off, src, n);
}

static float *buf_map(struct ds_backend *be, struct ds_buf *b, bool write)
{
    if (elem_bytes(be, b->kind) != 4 || b->kind == DS_BUF_ROUTE) return NULL;
    if (write) ds_cpu_touch(b);
    return b->p;
}

void ds_cpu_touch(struct ds_buf *b)
{
    for (int f = 0; f < DS_AF_COUNT; f++) b->panel[f].valid = false;
}

/* --- weights --- */

static void weight_free(struct ds_backend *be, struct ds_weight *w)
{
    (void)be;
    if (!w) return;
    ds_mem_free(w->f32, w->f32_bytes);
    free(w);
}

/* A matrix stays in the file's own blocks; what is kept is which packed activation formats it reads. */
static void note_formats(struct ds_cpu *c, const struct ds_tensor *t)
{
    for (int n = 1; n <= 64; n += 63)
        for (int decode = 0; decode < 2; decode++) c->formats |= 1u << c->g.act_fmt(&c->g, t->type, n, decode);
    size_t s = c->g.scratch_bytes(&c->g, t->type, (int)t->ne[0]);
    if (s > c->gemm_scratch) c->gemm_scratch = s;
    if (t->n_dims == 3 && (int)t->ne[0] > c->expert_dim) c->expert_dim = (int)t->ne[0];
}

static struct ds_weight *weight_new(struct ds_backend *be, const struct ds_tensor *t, unsigned use, struct ds_err *e)
{
    struct ds_weight *w = calloc(1, sizeof *w);
    if (!w) goto refused;
    w->t = t;
    if (use & DS_USE_VECTOR) {
        size_t n = (size_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
        w->f32_bytes = n * sizeof(float);
        if (!(w->f32 = ds_mem_alloc(w->f32_bytes))) goto refused;
        t->type->decode(w->f32, t->data, n);
    }
    if (use & DS_USE_GEMM) note_formats(ds_cpu_of(be), t);
    return w;
refused:
    weight_free(be, w);
    ds_fail(e, DS_ENOMEM, "tensor '%s': the system refused memory for it", t->name);
    return NULL;
}

static uint64_t weight_extra_bytes(struct ds_backend *be, const struct ds_weight *w)
{
    (void)be;
    return w->f32_bytes;
}

/* --- scratch --- */

static size_t align64(size_t n) { return (n + 63) & ~(size_t)63; }

static ds_status reserve(struct ds_backend *be, const struct ds_sizes *sz, struct ds_err *e)
{
    struct ds_cpu *c = ds_cpu_of(be);
    size_t need = c->gemm_scratch;
    if (c->gdn_auto) c->gdn_chunk = ds_cpu_gdn_prefers_chunk(c, &sz->gdn);
    be->gdn_form = c->gdn_chunk ? "chunk" : "seq";
    be->gdn_walks = ds_cpu_gdn_walks(c, &sz->gdn);
    size_t other[3] = { sz->gdn.n_vh ? ds_cpu_scratch_gdn(c, sz) : 0, sz->attn.n_head ? ds_cpu_scratch_attn(c, sz) : 0,
                        sz->n_expert ? ds_cpu_scratch_moe(c, sz) : 0 };
    for (int i = 0; i < 3; i++)
        if (other[i] > need) need = other[i];
    need = align64(need + 64);
    for (int i = 0; i < c->threads; i++) {
        c->scratch[i].cap = need;
        if (!(c->scratch[i].p = ds_mem_alloc(need))) return ds_fail(e, DS_ENOMEM, "the system refused %zu bytes of scratch", need);
    }
    c->shared_matmul_bytes = ds_cpu_shared_matmul(c, sz);
    if (c->shared_matmul_bytes && !(c->shared_matmul = ds_mem_alloc(c->shared_matmul_bytes)))
        return ds_fail(e, DS_ENOMEM, "the system refused %zu bytes of scratch", c->shared_matmul_bytes);
    return DS_OK;
}

static uint64_t own_bytes(struct ds_backend *be)
{
    struct ds_cpu *c = ds_cpu_of(be);
    uint64_t total = c->shared_matmul_bytes;
    for (int i = 0; i < c->threads; i++) total += c->scratch[i].cap;
    return total;
}

void *ds_cpu_scratch(struct ds_cpu *c, int thread, size_t bytes)
{
    if (bytes > c->scratch[thread].cap) abort();
    return c->scratch[thread].p;
}

/* --- steps and stamps --- */

static bool begin(struct ds_backend *be, const struct ds_step *s)
{
    be->step = *s;
#ifdef DS_POISON
    struct ds_cpu *c = ds_cpu_of(be);
    for (int i = 0; i < c->threads; i++) memset(c->scratch[i].p, 0xff, c->scratch[i].cap);
#endif
    return true;
}

static ds_status end(struct ds_backend *be, struct ds_err *e)
{
    (void)be; (void)e;
    return DS_OK;
}

static void stamp(struct ds_backend *be, int i)
{
    struct ds_cpu *c = ds_cpu_of(be);
    if (i >= c->stamps_cap) {
        int cap = i < 512 ? 1024 : 2 * i;
        uint64_t *p = realloc(c->stamps, (size_t)cap * sizeof *p);
        if (!p) return;
        c->stamps = p;
        c->stamps_cap = cap;
    }
    c->stamps[i] = ds_now_ns();
}

static uint64_t stamp_ns(struct ds_backend *be, int i)
{
    struct ds_cpu *c = ds_cpu_of(be);
    return i < c->stamps_cap ? c->stamps[i] : 0;
}

static void drain(struct ds_backend *be) { (void)be; }   /* ops return when they are done */

static void free_backend(struct ds_backend *be)
{
    struct ds_cpu *c = ds_cpu_of(be);
    ds_pool_free(c->pool);
    for (int i = 0; c->scratch && i < c->threads; i++) ds_mem_free(c->scratch[i].p, c->scratch[i].cap);
    ds_mem_free(c->shared_matmul, c->shared_matmul_bytes);
    free(c->scratch);
    free(c->stamps);
    free(c);
}

static void peaks(struct ds_backend *be, struct ds_peaks *p) { ds_measure_peaks(ds_cpu_of(be)->pool, ds_cpu_of(be)->isa, p); }

static uint64_t mem_available(struct ds_backend *be, const struct ds_sizes *sz)
{
    (void)sz;
    (void)be;
    return ds_mem_available();
}

static const struct ds_ops cpu_ops = {
    .free = free_backend, .peaks = peaks, .mem_available = mem_available, .reserve = reserve, .own_bytes = own_bytes,
    .buf_new = buf_new, .buf_free = buf_free, .buf_bytes = buf_bytes, .buf_read = buf_read, .buf_write = buf_write,
    .buf_get = buf_get, .buf_set = buf_set, .buf_map = buf_map, .elem_bytes = elem_bytes,
    .weight_new = weight_new, .weight_free = weight_free, .weight_extra_bytes = weight_extra_bytes, .kernel_name = ds_cpu_kernel_name,
    .begin = begin, .end = end, .stamp = stamp, .stamp_ns = stamp_ns, .drain = drain,
    .embed = ds_cpu_embed, .rms_norm = ds_cpu_rms_norm, .matmul = ds_cpu_matmul, .matmul_experts = ds_cpu_matmul_experts,
    .gdn_prep = ds_cpu_gdn_prep, .gdn = ds_cpu_gdn, .gated_norm = ds_cpu_gated_norm, .gdn_walk = ds_cpu_gdn_walk,
    .conv_tail = ds_cpu_conv_tail, .copy = ds_cpu_copy,
    .qk_norm = ds_cpu_qk_norm, .rope_store = ds_cpu_rope_store, .attn = ds_cpu_attn,
    .swiglu = ds_cpu_swiglu, .moe_route = ds_cpu_moe_route, .moe_combine = ds_cpu_moe_combine, .copy_cols = ds_cpu_copy_cols,
};

struct ds_backend *ds_cpu_open(const struct ds_backend_options *o, struct ds_err *e)
{
    struct ds_cpu *c = calloc(1, sizeof *c);
    if (!c || !(c->scratch = calloc((size_t)o->threads, sizeof *c->scratch)) || !(c->pool = ds_pool_new(o->threads))) {
        if (c) free(c->scratch);
        free(c);
        ds_fail(e, DS_ENOMEM, "the system refused a pool of %d threads", o->threads);
        return NULL;
    }
    c->be.ops = &cpu_ops;
    c->be.name = "cpu";
    c->be.plans = c->be.groups_decode = true;
    c->be.placement = "full";
    c->be.cosine_limit = 0.999999;
    c->be.cache_limit = c->be.product_limit = c->be.op_limit = 1e-5;
    c->threads = o->threads;
    c->isa = o->isa;
    c->kv_f16 = !o->kv || strcmp(o->kv, "f32") != 0;
    ds_kernels_init(&c->k, o->isa);
    if (o->exact) ds_gemm_kernels_exact(&c->g);
    else ds_gemm_kernels_init(&c->g, o->isa);
    c->gdn_auto = !o->gdn || !strcmp(o->gdn, "auto");
    c->gdn_chunk = !c->gdn_auto && !strcmp(o->gdn, "chunk");
    c->be.gdn_form = c->gdn_chunk ? "chunk" : "seq";
    return &c->be;
}
