/* Times of a backend's ops in the geometry of a 27B model, by its own stamps. */
#ifndef DS_TESTS_BACKEND_BENCH_H
#define DS_TESTS_BACKEND_BENCH_H

#include "backend_pair.h"

static inline int ds_channels(const struct ds_gdn_shape *s) { return 2 * s->n_kh * s->dk + s->n_vh * s->dv; }

enum { HIDDEN = 5120, N_FF = 17408, BENCH_REPS = 7 };
static const struct ds_gdn_shape BENCH_GDN = { .n_kh = 16, .n_vh = 48, .dk = 128, .dv = 128, .conv_k = 4, .eps = 1e-6f };
static const struct ds_attn_shape BENCH_ATTN = {
    .n_head = 24, .n_kv = 4, .hd = 256, .n_rot = 64, .rope_base = 1e7f, .eps = 1e-6f
};

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Random values in a buffer: a block of them, repeated in the backend's own format. */
static struct ds_buf *bench_buf(struct ds_backend *be, struct ds_rng *r, enum ds_buf_kind kind, size_t rows, size_t dim, float sd)
{
    enum { BLOCK = 1 << 20 };
    static float v[BLOCK], stored[BLOCK];
    struct ds_err e = { 0 };
    struct ds_buf *b = need(be->ops->buf_new(be, kind, rows, dim, &e), e.msg);
    const size_t n = rows * dim, first = n < BLOCK ? n : BLOCK;
    for (size_t i = 0; i < first; i++) v[i] = sd * ds_rng_normal(r);
    be->ops->buf_write(be, b, 0, v, first);
    be->ops->buf_get(be, stored, b, 0, first);
    for (size_t at = first; at < n; at += BLOCK) be->ops->buf_set(be, b, at, stored, n - at < BLOCK ? n - at : BLOCK);
    return b;
}

static struct ds_weight *bench_weight(struct ds_backend *be, struct ds_tensor *t, const char *name, struct ds_rng *r, const struct ds_type *type,
                                      int in, int out, unsigned use)
{
    enum { BLOCK = 1 << 20 };
    struct ds_err e = { 0 };
    const size_t n = (size_t)in * (size_t)out, bytes = ds_type_row_bytes(type, n);
    char *data = need(malloc(bytes), "no memory");
    const size_t first = n < BLOCK ? n : BLOCK, fb = ds_type_row_bytes(type, first);
    type->random(data, first, 1.f / sqrtf((float)in), ds_rng_u64(r));
    for (size_t at = fb; at < bytes; at += fb) memcpy(data + at, data, bytes - at < fb ? bytes - at : fb);
    if (use & DS_USE_VECTOR)               /* decay rates among them: negative, or the state grows without end */
        for (size_t i = 0; i < n; i++) ((float *)(void *)data)[i] = -fabsf(((float *)(void *)data)[i]);
    *t = (struct ds_tensor){ .n_dims = 2,
                             .ne = { (uint64_t)in, (uint64_t)out, 1, 1 },
                             .type = type,
                             .gguf_id = type->gguf_id,
                             .data = data,
                             .bytes = bytes };
    snprintf(t->name, sizeof t->name, "%s", name);
    struct ds_weight *w = need(be->ops->weight_new(be, t, use, &e), e.msg);
    return w;
}

/* Median, least and most milliseconds of fn between two stamps. */
static double time_op(struct ds_backend *be, void (*fn)(struct ds_backend *be, void *ctx), void *ctx, int n, int64_t pos,
                      double *least)
{
    double ms[BENCH_REPS];
    struct ds_err e = { 0 };
    for (int i = -2; i < BENCH_REPS; i++) {
        const struct ds_step s = { .n = n, .pos = pos };
        be->ops->begin(be, &s);
        be->ops->stamp(be, 0);
        fn(be, ctx);
        be->ops->stamp(be, 1);
        if (be->ops->end(be, &e)) {
            printf("  %s\n", e.msg);
            return NAN;
        }
        if (i >= 0) ms[i] = (double)(be->ops->stamp_ns(be, 1) - be->ops->stamp_ns(be, 0)) * 1e-6;
    }
    qsort(ms, BENCH_REPS, sizeof *ms, by_value);
    *least = ms[0];
    return ms[BENCH_REPS / 2];
}

/* --- weight products: each of a layer's products once, times its number of layers --- */

struct bench_product { int n_w, in, outs[4], layers; bool add; const char *name, *tensors[4]; };
static const struct bench_product BENCH_PRODUCTS[] = {
    { 4, HIDDEN, { 10240, 6144, 48, 48 }, 48, false, "qkv z b a", { "blk.0.attn_qkv.weight", "blk.0.attn_gate.weight",
                                                                    "blk.0.ssm_beta.weight", "blk.0.ssm_alpha.weight" } },
    { 1, 6144, { HIDDEN }, 64, true, "ssm_out, attn_output", { "blk.0.ssm_out.weight" } },
    { 3, HIDDEN, { 12288, 1024, 1024 }, 16, false, "q k v", { "blk.1.attn_q.weight", "blk.1.attn_k.weight", "blk.1.attn_v.weight" } },
    { 2, HIDDEN, { N_FF, N_FF }, 64, false, "gate up", { "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight" } },
    { 1, N_FF, { HIDDEN }, 64, true, "down", { "blk.0.ffn_down.weight" } },
};
enum { N_PRODUCTS = sizeof BENCH_PRODUCTS / sizeof *BENCH_PRODUCTS };
struct product_ctx { int n_w, n; bool add; struct ds_buf *x, *y[4]; const struct ds_weight *w[4]; };

static void run_product(struct ds_backend *be, void *ctx)
{
    struct product_ctx *c = ctx;
    if (be->grouped) be->ops->matmul(be, c->n_w, c->y, c->w, c->x, c->n, c->add);
    else for (int i = 0; i < c->n_w; i++) be->ops->matmul(be, 1, &c->y[i], &c->w[i], c->x, c->n, c->add);
}

/* The products of 64 layers one after another and nothing else: the ceiling of a prefill, under the clock that such work keeps. */
static void run_all_products(struct ds_backend *be, void *ctx)
{
    struct product_ctx *c = ctx;
    for (int layer = 0; layer < 64; layer++) {
        run_product(be, &c[layer % 4 == 3 ? 2 : 0]);
        run_product(be, &c[1]);
        run_product(be, &c[3]);
        run_product(be, &c[4]);
    }
}

static void bench_products(struct ds_backend *be, const struct ds_sizes *sz, struct ds_rng *r, const struct ds_type *type, const int *sizes,
                           int n_sizes)
{
    struct ds_err e = { 0 };
    struct ds_weight *w[N_PRODUCTS][4] = { { 0 } };
    struct ds_tensor t[N_PRODUCTS][4];
    for (int i = 0; i < N_PRODUCTS; i++)
        for (int j = 0; j < BENCH_PRODUCTS[i].n_w; j++)
            w[i][j] = bench_weight(be, &t[i][j], BENCH_PRODUCTS[i].tensors[j], r, type, BENCH_PRODUCTS[i].in, BENCH_PRODUCTS[i].outs[j], DS_USE_GEMM);
    if (be->prepares && be->ops->reserve(be, sz, &e)) need(NULL, e.msg);
    for (int k = 0; k < n_sizes; k++) {
        const int n = sizes[k];
        struct product_ctx c[N_PRODUCTS];
        double flop = 0, least = 0;
        for (int i = 0; i < N_PRODUCTS; i++) {
            const struct bench_product *b = &BENCH_PRODUCTS[i];
            c[i] = (struct product_ctx){
                .n_w = b->n_w, .n = n, .add = b->add, .x = bench_buf(be, r, DS_BUF_ACT, (size_t)n, (size_t)b->in, 1)
            };
            double mine = 0;
            for (int j = 0; j < b->n_w; j++) {
                c[i].w[j] = w[i][j];
                c[i].y[j] = bench_buf(be, r, b->add ? DS_BUF_F32 : DS_BUF_PROJ, (size_t)n, (size_t)b->outs[j], 1);
                mine += 2.0 * n * b->in * b->outs[j];
            }
            const double ms = time_op(be, run_product, &c[i], n, 0, &least);
            printf("%s n %-6d %-22s %9.4f ms (least %.4f)  %7.1f TFLOP/s  %7.1f GB/s of weights\n", type->name, n, b->name, ms,
                   least, mine / ms * 1e-9, mine / (2.0 * n) / type->block * type->bytes / ms * 1e-6);
            flop += mine * b->layers;
        }
        const double all = time_op(be, run_all_products, c, n, 0, &least);
        printf("%s n %-6d all of 64 layers       %9.3f ms (least %.3f)   %7.1f TFLOP/s  %8.0f tok/s\n", type->name, n, all, least,
               flop / all * 1e-9, n / all * 1e3);
        fflush(stdout);
        for (int i = 0; i < N_PRODUCTS; i++) {
            be->ops->buf_free(be, c[i].x);
            for (int j = 0; j < c[i].n_w; j++) be->ops->buf_free(be, c[i].y[j]);
        }
    }
    for (int i = 0; i < N_PRODUCTS; i++)
        for (int j = 0; j < BENCH_PRODUCTS[i].n_w; j++) {
            be->ops->weight_free(be, w[i][j]);
            free((void *)(uintptr_t)t[i][j].data);
        }
}

/* --- the other ops, one layer each --- */

struct layer_ctx {
    int n;
    struct ds_buf *x, *h, *u, *a, *b, *z, *prep, *conv, *S, *o, *y, *qg, *k, *v, *kc, *vc, *gate, *up, *act;
    struct ds_weight *gain, *conv_w, *ssm_a, *dt, *gv, *gq;
};
static void run_rms(struct ds_backend *be, void *c_)
{
    struct layer_ctx *c = c_;
    be->ops->rms_norm(be, c->h, c->x, c->gain, 0, c->n, HIDDEN, 1e-6f);
}
static void run_prep(struct ds_backend *be, void *c_)
{
    struct layer_ctx *c = c_;
    be->ops->gdn_prep(be, c->prep, c->conv, c->u, c->a, c->b, c->conv_w, c->ssm_a, c->dt, &BENCH_GDN, c->n);
}
static void run_gdn(struct ds_backend *be, void *c_)
{
    struct layer_ctx *c = c_;
    be->ops->gdn(be, c->o, c->S, c->prep, &BENCH_GDN, c->n, 0, c->n);
}
static void run_core(struct ds_backend *be, void *c_)
{
    run_prep(be, c_);
    run_gdn(be, c_);
}
static void run_gated(struct ds_backend *be, void *c_)
{
    struct layer_ctx *c = c_;
    be->ops->gated_norm(be, c->y, c->o, c->z, c->gv, &BENCH_GDN, c->n);
}
static void run_stage(struct ds_backend *be, void *c_)
{
    run_core(be, c_);
    run_gated(be, c_);
}
static void run_qk(struct ds_backend *be, void *c_)
{
    struct layer_ctx *c = c_;
    be->ops->qk_norm(be, c->qg, c->k, c->gq, c->gq, &BENCH_ATTN, c->n);
}
static void run_rope(struct ds_backend *be, void *c_)
{
    struct layer_ctx *c = c_;
    be->ops->rope_store(be, c->qg, c->k, c->v, c->kc, c->vc, &BENCH_ATTN, c->n);
}
static void run_attn(struct ds_backend *be, void *c_)
{
    struct layer_ctx *c = c_;
    be->ops->attn(be, c->y, c->qg, c->kc, c->vc, &BENCH_ATTN, c->n);
}
static void run_swiglu(struct ds_backend *be, void *c_)
{
    struct layer_ctx *c = c_;
    be->ops->swiglu(be, c->act, c->gate, c->up, c->n, N_FF);
}

static void bench_layer(struct ds_backend *be, struct ds_rng *r, int n)
{
    static const struct { const char *name; void (*fn)(struct ds_backend *, void *);
    } ops[] = {
        { "rms_norm", run_rms },     { "swiglu", run_swiglu }, { "gdn_prep", run_prep },   { "gdn", run_gdn },
        { "gdn core", run_core },    { "gdn stage", run_stage },
        { "gated_norm", run_gated }, { "qk_norm", run_qk },    { "rope_store", run_rope }, { "attn", run_attn },
    };
    const size_t T = (size_t)n, channels = (size_t)ds_channels(&BENCH_GDN), inner = 6144;
    struct ds_tensor t[6];
    struct layer_ctx c = { .n = n };
    struct { struct ds_buf **b; enum ds_buf_kind kind; size_t rows, dim;
    } want[] = {
        { &c.x, DS_BUF_F32, T, HIDDEN },
        { &c.h, DS_BUF_ACT, T, HIDDEN },
        { &c.u, DS_BUF_PROJ, T, channels },
        { &c.a, DS_BUF_PROJ, T, 48 },
        { &c.b, DS_BUF_PROJ, T, 48 },
        { &c.z, DS_BUF_PROJ, T, inner },
        { &c.prep, DS_BUF_F32, 1, ds_gdn_prep_elems(&BENCH_GDN, n) },
        { &c.conv, DS_BUF_STATE, 3, channels },
        { &c.S, DS_BUF_STATE, 48 * 128, 128 },
        { &c.o, DS_BUF_F32, T, inner },
        { &c.y, DS_BUF_ACT, T, inner },
        { &c.qg, DS_BUF_PROJ, T, 2 * inner },
        { &c.k, DS_BUF_PROJ, T, 1024 },
        { &c.v, DS_BUF_PROJ, T, 1024 },
        { &c.kc, DS_BUF_KV, T, 1024 },
        { &c.vc, DS_BUF_KV, T, 1024 },
        { &c.gate, DS_BUF_PROJ, T, N_FF },
        { &c.up, DS_BUF_PROJ, T, N_FF },
        { &c.act, DS_BUF_ACT, T, N_FF },
    };
    struct {
        struct ds_weight **w;
        int in, out;
    } vec[] = { { &c.gain, HIDDEN, 1 }, { &c.conv_w, 4, (int)channels }, { &c.ssm_a, 48, 1 }, { &c.dt, 48, 1 }, { &c.gv, 128, 1 },
                { &c.gq, 256, 1 } };
    enum { N_WANT = sizeof want / sizeof *want, N_VEC = sizeof vec / sizeof *vec };
    for (int i = 0; i < N_WANT; i++) *want[i].b = bench_buf(be, r, want[i].kind, want[i].rows, want[i].dim, 1);
    for (int i = 0; i < N_VEC; i++)
        *vec[i].w = bench_weight(be, &t[i], "bench", r, &ds_types[DS_T_F32], vec[i].in, vec[i].out, DS_USE_VECTOR);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        double least = 0;
        const double ms = time_op(be, ops[i].fn, &c, n, 0, &least);
        printf("n %-6d %-12s %9.4f ms (least %.4f)", n, ops[i].name, ms, least);
        if (ops[i].fn == run_attn) printf("  %.1f TFLOP/s", 4.0 * 24 * 256 * n * (n + 1.0) / 2 / ms * 1e-9);
        putchar('\n');
    }
    fflush(stdout);
    for (int i = 0; i < N_WANT; i++) be->ops->buf_free(be, *want[i].b);
    for (int i = 0; i < N_VEC; i++) {
        be->ops->weight_free(be, *vec[i].w);
        free((void *)(uintptr_t)t[i].data);
    }
}

/* sizes: "1024,8192" times the ops other than products at these lengths; NULL times everything at the usual ones. */
static int bench_backend(struct ds_backend *be, const struct ds_sizes *sz, const char *sizes)
{
    static const int products[] = { 256, 512, 1024, 2048, 4096 }, one[] = { 1 };
    const char *at = sizes ? sizes : "256,1024,4096,8192,16384,32768";
    struct ds_rng r;
    ds_rng_seed(&r, 1);
    while (*at) {
        char *end;
        const long n = strtol(at, &end, 10);
        if (end == at || n < 1 || n > 32768) return printf("a length of 1 to 32768 is expected at '%s'\n", at), 1;
        bench_layer(be, &r, (int)n);
        at = *end == ',' ? end + 1 : end;
    }
    if (sizes) return 0;
    bench_products(be, sz, &r, &ds_types[DS_T_BF16], products, 5);
    bench_products(be, sz, &r, &ds_types[DS_T_Q8_0], one, 1);
    bench_products(be, sz, &r, &ds_types[DS_T_Q4_K], one, 1);
    return 0;
}

#endif
