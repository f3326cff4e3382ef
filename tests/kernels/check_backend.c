/* Every op of a backend against the CPU reference, on random and extreme inputs.
 *
 *   check_backend [--backend NAME] [--gemm FORM] [--bench [--sizes N,N]] [--list] [CASE...]
 *
 * NAME is a backend of this build, or "split": two CPU backends as one (the default, so that the driver itself is
 * tested on every host). Limits are normalised mean square errors. A 16-bit result carries 2e-6 by its rounding
 * alone; operands that pass through 16 bits inside an op show in that op's limit. DS_CHECK_VERBOSE=1 prints each error. */
#include "backend_pair.h"

#include "backend_bench.h"
#include "backend_f8.h"

static const double ROUNDED = 1e-5;                    /* 16-bit results */

/* --- copies --- */

static void case_buffers(struct pair *p)
{
    static const enum ds_buf_kind kinds[] = { DS_BUF_F32, DS_BUF_STATE, DS_BUF_ACT, DS_BUF_PROJ, DS_BUF_LOGITS, DS_BUF_KV };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct buf2 b = buf_make(p, kinds[i], 7, 33);
        compare(p, &b, 7 * 33, 0, "new buffer of kind %d is zero", (int)kinds[i]);
        buf_drop(p, &b);
        b = buf_random(p, kinds[i], 7, 33, 100);
        compare(p, &b, 7 * 33, 0, "kind %d written and read", (int)kinds[i]);
        const size_t es = p->dev->ops->elem_bytes(p->dev, kinds[i]);
        unsigned char stored[64 * 8];
        p->dev->ops->buf_get(p->dev, stored, b.dev, 5, 60);
        float zero[60] = { 0 };
        p->dev->ops->buf_write(p->dev, b.dev, 5, zero, 60);
        p->dev->ops->buf_set(p->dev, b.dev, 5, stored, 60);
        compare(p, &b, 7 * 33, 0, "kind %d got and set, %zu bytes an element", (int)kinds[i], es);
        buf_drop(p, &b);
    }
}

static void case_embed(struct pair *p)
{
    const int n = 37, dim = 512, vocab = 300;
    int32_t ids[37];
    for (int i = 0; i < n; i++) ids[i] = (int32_t)(ds_rng_u64(&p->rng) % (uint64_t)vocab);
    ids[0] = 0;
    ids[1] = vocab - 1;
    for (int t = 0; t < DS_T_COUNT; t++) {
        if (!ds_types[t].decode || !ds_types[t].random) continue;
        struct weight2 w;
        matrix(p, &w, &ds_types[t], dim, vocab, 1, DS_USE_EMBED);
        struct buf2 x = buf_poisoned(p, DS_BUF_F32, (size_t)n, (size_t)dim);
        begin(p, n, 0, ids);
        p->ref->ops->embed(p->ref, x.ref, w.ref);
        p->dev->ops->embed(p->dev, x.dev, w.dev);
        end(p);
        compare(p, &x, (size_t)(n * dim), 1e-13, "embed %s", ds_types[t].name);
        buf_drop(p, &x);
        weight_drop(p, &w);
    }
}

/* --- norms and activations --- */

static void case_rms_norm(struct pair *p)
{
    static const struct {
        int n, row0, dim;
        float sd;
    } c[] = { { 5, 0, 5120, 1 }, { 3, 2, 1024, 1e4f }, { 9, 0, 100, 1e-4f }, { 1, 4, 64, 1 }, { 2, 0, 33, 1 } };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct weight2 g;
        random_vector(p, &g, c[i].dim, 1, 1, 0.2f);
        struct buf2 x = buf_random(p, DS_BUF_F32, 12, (size_t)c[i].dim, c[i].sd),
                    h = buf_poisoned(p, DS_BUF_ACT, 12, (size_t)c[i].dim);
        begin(p, c[i].n, 0, NULL);
        p->ref->ops->rms_norm(p->ref, h.ref, x.ref, g.ref, c[i].row0, c[i].n, c[i].dim, 1e-6f);
        p->dev->ops->rms_norm(p->dev, h.dev, x.dev, g.dev, c[i].row0, c[i].n, c[i].dim, 1e-6f);
        end(p);
        compare(p, &h, (size_t)(c[i].n * c[i].dim), ROUNDED, "rms_norm dim %d sd %g", c[i].dim, (double)c[i].sd);
        buf_drop(p, &x);
        buf_drop(p, &h);
        weight_drop(p, &g);
    }
}

static void case_swiglu(struct pair *p)
{
    static const struct { int rows, dim; float sd; } c[] = { { 5, 17408, 1 }, { 70, 100, 30 }, { 1, 512, 1e-3f }, { 3, 7, 1 } };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        const size_t r = (size_t)c[i].rows, d = (size_t)c[i].dim;
        struct buf2 g = buf_random(p, DS_BUF_PROJ, r, d, c[i].sd), u = buf_random(p, DS_BUF_PROJ, r, d, 1),
                    a = buf_poisoned(p, DS_BUF_ACT, r, d);
        begin(p, c[i].rows, 0, NULL);
        p->ref->ops->swiglu(p->ref, a.ref, g.ref, u.ref, c[i].rows, c[i].dim);
        p->dev->ops->swiglu(p->dev, a.dev, g.dev, u.dev, c[i].rows, c[i].dim);
        end(p);
        compare(p, &a, r * d, ROUNDED, "swiglu dim %d sd %g", c[i].dim, (double)c[i].sd);
        buf_drop(p, &g);
        buf_drop(p, &u);
        buf_drop(p, &a);
    }
}

static void case_copy_cols(struct pair *p)
{
    struct buf2 s = buf_random(p, DS_BUF_PROJ, 9, 48, 1), f = buf_random(p, DS_BUF_F32, 9, 48, 1),
                a = buf_poisoned(p, DS_BUF_ACT, 9, 100);
    for (int i = 0; i < 2; i++) {
        struct buf2 *from = i ? &f : &s;
        begin(p, 9, 0, NULL);
        p->ref->ops->copy_cols(p->ref, a.ref, from->ref, 9, 48, 100);
        p->dev->ops->copy_cols(p->dev, a.dev, from->dev, 9, 48, 100);
        end(p);
        compare(p, &a, 900, ROUNDED, "copy_cols %d", i);
    }
    buf_drop(p, &s);
    buf_drop(p, &f);
    buf_drop(p, &a);
}

/* --- products: against sums in f64 over the decoded weights --- */

/* A weight that a backend keeps in 16 bits differs from the file's by 2^-9 each; activations that a CPU quantises
 * differ by 2^-8 of their block's largest. */
static double product_limit(const struct pair *p, const struct ds_type *t)
{
    return t->act != DS_ACT_NONE && !strcmp(p->dev->name, "cpu") ? 3e-4 : ROUNDED;
}

static void check_matmul(struct pair *p, const struct ds_type *type, int in, int out, int n, bool add)
{
    struct weight2 w;
    matrix(p, &w, type, in, out, 1, DS_USE_GEMM);
    struct buf2 x = buf_random(p, DS_BUF_ACT, (size_t)n, (size_t)in, 1);
    struct buf2 y =
        add ? buf_random(p, DS_BUF_F32, (size_t)n, (size_t)out, 1) : buf_poisoned(p, DS_BUF_PROJ, (size_t)n, (size_t)out);
    float *xv = got(p, &x, 0, (size_t)(n * in), false), *want = product_of(w.f32, xv, n, in, out);
    if (add) {
        float *y0 = got(p, &y, 0, (size_t)(n * out), false);
        for (int i = 0; i < n * out; i++) want[i] += y0[i];
        free(y0);
    }
    begin(p, n, 0, NULL);
    p->dev->ops->matmul(p->dev, 1, &y.dev, (const struct ds_weight *const *)&w.dev, x.dev, n, add);
    end(p);
    compare_to(p, &y, want, (size_t)n * (size_t)out, product_limit(p, type), "matmul %s [%d][%d] n %d%s", type->name, in, out, n,
               add ? " add" : "");
    free(xv);
    free(want);
    buf_drop(p, &x);
    buf_drop(p, &y);
    weight_drop(p, &w);
}

static void case_matmul_types(struct pair *p)
{
    for (int t = 0; t < DS_T_COUNT; t++) {
        if (!ds_types[t].decode || !ds_types[t].random) continue;
        check_matmul(p, &ds_types[t], 512, 96, 1, false);
        check_matmul(p, &ds_types[t], 512, 96, 19, false);
    }
}

static void case_matmul_shapes(struct pair *p)
{
    static const int n[] = { 1, 2, 3, 8, 31, 64, 128, 192 };
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        check_matmul(p, &ds_types[DS_T_BF16], 256, 128, n[i], false);
        check_matmul(p, &ds_types[DS_T_BF16], 256, 128, n[i], true);
        check_matmul(p, &ds_types[DS_T_Q8_0], 320, 72, n[i], true);
    }
    check_matmul(p, &ds_types[DS_T_BF16], 100, 33, 5, false);
    check_matmul(p, &ds_types[DS_T_BF16], 64, 1, 5, false);
    check_matmul(p, &ds_types[DS_T_F32], 64, 1, 1, false);
    check_matmul(p, &ds_types[DS_T_Q4_K], 1024, 40, 1, true);
    check_matmul(p, &ds_types[DS_T_Q8_0], 1024, 1000, 1, true);
    check_matmul(p, &ds_types[DS_T_Q8_0], 5120, 4700, 1, false);     /* more tiles than multiprocessors, twice */
    check_matmul(p, &ds_types[DS_T_Q4_K], 2304, 4700, 1, true);
}

/* One input, several matrices; repeated, then other destinations, then one of them alone. */
static void case_matmul_groups(struct pair *p)
{
    static const int outs[4] = { 96, 64, 6, 6 };
    static const char *const names[4] = { "blk.0.attn_qkv.weight", "blk.0.attn_gate.weight", "blk.0.ssm_beta.weight", "blk.0.ssm_alpha.weight" };
    const int in = 256, n = 70;
    struct weight2 w[4];
    struct buf2 y[4], x = buf_random(p, DS_BUF_ACT, (size_t)n, (size_t)in, 1);
    float *xv = got(p, &x, 0, (size_t)(n * in), false), *want[4];
    struct ds_buf *yd[4];
    const struct ds_weight *wd[4];
    for (int i = 0; i < 4; i++) {
        p->name = names[i];
        matrix(p, &w[i], &ds_types[i % 2 ? DS_T_Q8_0 : DS_T_BF16], in, outs[i], 1, DS_USE_GEMM);
        want[i] = product_of(w[i].f32, xv, n, in, outs[i]);
        y[i] = buf_poisoned(p, DS_BUF_PROJ, (size_t)n, (size_t)outs[i]);
    }
    p->name = NULL;
    for (int round = 0; round < 3; round++) {
        const int rows = round == 1 ? 1 : n - round;       /* one token between two long steps */
        for (int i = 0; i < 4; i++) {
            yd[i] = y[i].dev;
            wd[i] = w[i].dev;
        }
        begin(p, rows, 0, NULL);
        if (p->dev->grouped) p->dev->ops->matmul(p->dev, 4, yd, wd, x.dev, rows, false);
        else for (int i = 0; i < 4; i++) p->dev->ops->matmul(p->dev, 1, &yd[i], &wd[i], x.dev, rows, false);
        end(p);
        for (int i = 0; i < 4; i++)
            compare_to(p, &y[i], want[i], (size_t)rows * (size_t)outs[i], p->f8 ? F8_LIMIT : product_limit(p, w[i].t.type),
                       "group round %d matrix %d", round, i);
    }
    begin(p, n, 0, NULL);
    p->dev->ops->matmul(p->dev, 1, &yd[1], &wd[1], x.dev, n, false);
    end(p);
    compare_to(p, &y[1], want[1], (size_t)n * (size_t)outs[1], p->f8 ? F8_LIMIT : product_limit(p, w[1].t.type), "one of a group alone");
    compare_to(p, &y[0], want[0], (size_t)(n - 2) * (size_t)outs[0], p->f8 ? F8_LIMIT : product_limit(p, w[0].t.type), "its neighbour stays");
    for (int i = 0; i < 4; i++) {
        buf_drop(p, &y[i]);
        weight_drop(p, &w[i]);
        free(want[i]);
    }
    free(xv);
    buf_drop(p, &x);
}

/* One token: a small op and the product behind it, which a backend may run as one; then the same with another op between
 * them, and what the small op made, which stays readable. */
enum small { NORM, SWIGLU, GATED };
static void check_chain(struct pair *p, enum small op, const struct ds_type *type, int in, int out, bool between)
{
    static const char *const names[] = { "norm", "swiglu", "gated norm" };
    const struct ds_gdn_shape sh = { .n_kh = 1, .n_vh = in / 128, .dk = 128, .dv = 128, .conv_k = 4, .eps = 1e-6f };
    struct weight2 w, g;
    matrix(p, &w, type, in, out, 1, DS_USE_GEMM);          /* before the buffers, which get room for its format */
    random_vector(p, &g, op == GATED ? 128 : in, 1, 1, 0.2f);
    struct buf2 a = buf_random(p, op == SWIGLU ? DS_BUF_PROJ : DS_BUF_F32, 1, (size_t)in, 1), b = buf_random(p, DS_BUF_PROJ, 1, (size_t)in, 1),
                h = buf_poisoned(p, DS_BUF_ACT, 1, (size_t)in), y = buf_random(p, DS_BUF_F32, 1, (size_t)out, 1),
                other = buf_poisoned(p, DS_BUF_ACT, 1, (size_t)in);
    float *y0 = got(p, &y, 0, (size_t)out, false);
    begin(p, 1, 0, NULL);
    for (int i = 0; i < 2; i++) {
        struct ds_backend *be = i ? p->dev : p->ref;
        struct ds_buf *bh = i ? h.dev : h.ref, *ba = i ? a.dev : a.ref, *bb = i ? b.dev : b.ref;
        const struct ds_weight *wg = i ? g.dev : g.ref;
        if (op == NORM) be->ops->rms_norm(be, bh, ba, wg, 0, 1, in, 1e-6f);
        if (op == SWIGLU) be->ops->swiglu(be, bh, ba, bb, 1, in);
        if (op == GATED) be->ops->gated_norm(be, bh, ba, bb, wg, &sh, 1);
        if (between) be->ops->copy_cols(be, i ? other.dev : other.ref, bh, 1, in, in);
    }
    p->dev->ops->matmul(p->dev, 1, &y.dev, (const struct ds_weight *const *)&w.dev, h.dev, 1, true);
    end(p);
    compare(p, &h, (size_t)in, ROUNDED, "%s of %d before %s%s", names[op], in, type->name, between ? ", read between" : "");
    if (between) compare(p, &other, (size_t)in, ROUNDED, "%s of %d copied", names[op], in);
    float *hv = got(p, &h, 0, (size_t)in, false), *want = product_of(w.f32, hv, 1, in, out);
    for (int i = 0; i < out; i++) want[i] += y0[i];
    compare_to(p, &y, want, (size_t)out, product_limit(p, type), "%s of %d, then %s%s", names[op], in, type->name,
               between ? ", read between" : "");
    free(hv);
    free(want);
    free(y0);
    buf_drop(p, &a);
    buf_drop(p, &b);
    buf_drop(p, &h);
    buf_drop(p, &y);
    buf_drop(p, &other);
    weight_drop(p, &w);
    weight_drop(p, &g);
}

static void case_one_token(struct pair *p)
{
    static const int types[] = { DS_T_Q8_0, DS_T_Q4_K, DS_T_BF16, DS_T_Q6_K };
    static const struct { int in, out; } sizes[] = { { 256, 40 }, { 768, 33 }, { 5120, 2400 }, { 9216, 64 } };
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int op = NORM; op <= GATED; op++)
                check_chain(p, (enum small)op, &ds_types[types[t]], sizes[i].in, sizes[i].out, (i + t) % 2);
    check_chain(p, NORM, &ds_types[DS_T_Q8_0], 5120, 64, true);
    check_chain(p, SWIGLU, &ds_types[DS_T_Q8_0], 160, 48, false);
    check_chain(p, SWIGLU, &ds_types[DS_T_Q4_K], 17408, 5120, false);
}

static void case_experts(struct pair *p)
{
    const int n = 11, k = 3, experts = 6, in = 64, out = 40;
    struct buf2 logits = buf_random(p, DS_BUF_PROJ, (size_t)n, (size_t)experts, 2),
                route = buf_make(p, DS_BUF_ROUTE, (size_t)n, (size_t)k);
    begin(p, n, 0, NULL);
    p->ref->ops->moe_route(p->ref, route.ref, logits.ref, n, experts, k);
    p->dev->ops->moe_route(p->dev, route.dev, logits.dev, n, experts, k);
    end(p);
    struct ds_route_slot a[33], b[33];
    p->ref->ops->buf_get(p->ref, a, route.ref, 0, (size_t)(n * k));
    p->dev->ops->buf_get(p->dev, b, route.dev, 0, (size_t)(n * k));
    for (int i = 0; i < n * k; i++)
        if (a[i].expert != b[i].expert || fabsf(a[i].weight - b[i].weight) > 1e-5f)
            fail(p, "route slot %d: expert %d weight %g, want %d %g", i, (int)b[i].expert, (double)b[i].weight, (int)a[i].expert,
                 (double)a[i].weight);
    for (int per_slot = 0; per_slot < 2; per_slot++) {
        struct weight2 w;
        matrix(p, &w, &ds_types[DS_T_BF16], in, out, experts, DS_USE_GEMM);
        const int rows = per_slot ? n * k : n;
        struct buf2 x = buf_random(p, DS_BUF_ACT, (size_t)rows, (size_t)in, 1),
                    y = buf_poisoned(p, DS_BUF_PROJ, (size_t)(n * k), (size_t)out);
        begin(p, n, 0, NULL);
        p->ref->ops->matmul_experts(p->ref, y.ref, w.ref, x.ref, route.ref, n, k, per_slot);
        p->dev->ops->matmul_experts(p->dev, y.dev, w.dev, x.dev, route.dev, n, k, per_slot);
        end(p);
        compare(p, &y, (size_t)(n * k * out), ROUNDED, "experts per_slot %d", per_slot);
        struct buf2 res = buf_random(p, DS_BUF_F32, (size_t)n, (size_t)out, 1),
                    sh = buf_random(p, DS_BUF_PROJ, (size_t)n, (size_t)out, 1);
        struct buf2 sg = buf_random(p, DS_BUF_PROJ, (size_t)n, 1, 3);
        begin(p, n, 0, NULL);
        p->ref->ops->moe_combine(p->ref, res.ref, y.ref, route.ref, per_slot ? sh.ref : NULL, per_slot ? sg.ref : NULL, n, k,
                                 out);
        p->dev->ops->moe_combine(p->dev, res.dev, y.dev, route.dev, per_slot ? sh.dev : NULL, per_slot ? sg.dev : NULL, n, k,
                                 out);
        end(p);
        compare(p, &res, (size_t)(n * out), ROUNDED, "combine shared %d", per_slot);
        buf_drop(p, &res);
        buf_drop(p, &sh);
        buf_drop(p, &sg);
        buf_drop(p, &x);
        buf_drop(p, &y);
        weight_drop(p, &w);
    }
    buf_drop(p, &logits);
    buf_drop(p, &route);
}

/* --- GDN --- */

/* How hard the keys are on the inverse inside a chunk. */
enum keys { RANDOM, CORRELATED, REPEATED, COLLINEAR };
struct gdn_case {
    struct ds_gdn_shape sh;
    enum keys keys;
    float a_mean, b_mean;
    int n[4];
    int64_t pos;
    double limit;
    const char *name;
};

static void fill_u(struct pair *p, float *u, const struct gdn_case *c, int n, const float *common)
{
    const int key = c->sh.n_kh * c->sh.dk, channels = ds_channels(&c->sh);
    const float own = c->keys == RANDOM ? 1 : c->keys == CORRELATED ? 0.4f : c->keys == COLLINEAR ? 0.02f : 0;
    for (int t = 0; t < n; t++)
        for (int i = 0; i < channels; i++) {
            const bool is_key = i >= key && i < 2 * key;
            u[(size_t)t * (size_t)channels + (size_t)i] =
                is_key && c->keys != RANDOM ? common[i] + own * ds_rng_normal(&p->rng) : ds_rng_normal(&p->rng);
        }
}

static void check_gdn(struct pair *p, const struct gdn_case *c)
{
    const struct ds_gdn_shape *sh = &c->sh;
    const int channels = ds_channels(sh), inner = sh->n_vh * sh->dv;
    int longest = 1;
    for (int i = 0; i < 4; i++)
        if (c->n[i] > longest) longest = c->n[i];
    const size_t rows = (size_t)longest;
    struct weight2 conv_w, ssm_a, dt, gain;
    random_vector(p, &conv_w, sh->conv_k, channels, 0, 0.5f);
    random_vector(p, &ssm_a, sh->n_vh, 1, 0, 1);
    for (int i = 0; i < sh->n_vh; i++) ssm_a.f32[i] = -fabsf(ssm_a.f32[i]) - 0.01f;
    float *rates = need(malloc((size_t)sh->n_vh * sizeof *rates), "no memory");
    memcpy(rates, ssm_a.f32, (size_t)sh->n_vh * sizeof *rates);
    weight_drop(p, &ssm_a);
    vector(p, &ssm_a, rates, sh->n_vh, 1);
    free(rates);
    random_vector(p, &dt, sh->n_vh, 1, 0, 0.5f);
    random_vector(p, &gain, sh->dv, 1, 1, 0.2f);
    const size_t per = ds_gdn_prep_elems(sh, longest);
    struct buf2 S = buf_random(p, DS_BUF_STATE, (size_t)(sh->n_vh * sh->dk), (size_t)sh->dv, 0.05f);
    struct buf2 conv = buf_random(p, DS_BUF_STATE, (size_t)(sh->conv_k - 1), (size_t)channels, 1),
                prep = buf_make(p, DS_BUF_F32, 1, per);
    float *common = numbers(p, (size_t)channels, 1), *uv = need(malloc(rows * (size_t)channels * sizeof *uv), "no memory");
    float *av = need(malloc(rows * (size_t)sh->n_vh * sizeof *av), "no memory"),
          *bv = need(malloc(rows * (size_t)sh->n_vh * sizeof *bv), "no memory");
    int64_t pos = c->pos;
    for (int i = 0; i < 4 && c->n[i]; i++) {
        const int n = c->n[i];
        struct buf2 u = buf_make(p, DS_BUF_PROJ, (size_t)n, (size_t)channels),
                    a = buf_make(p, DS_BUF_PROJ, (size_t)n, (size_t)sh->n_vh);
        struct buf2 b = buf_make(p, DS_BUF_PROJ, (size_t)n, (size_t)sh->n_vh),
                    z = buf_random(p, DS_BUF_PROJ, (size_t)n, (size_t)inner, 1);
        struct buf2 o = buf_poisoned(p, DS_BUF_F32, (size_t)n, (size_t)inner),
                    y = buf_poisoned(p, DS_BUF_ACT, (size_t)n, (size_t)inner);
        fill_u(p, uv, c, n, common);
        for (int j = 0; j < n * sh->n_vh; j++) {
            av[j] = c->a_mean + ds_rng_normal(&p->rng);
            bv[j] = c->b_mean + ds_rng_normal(&p->rng);
        }
        put(p, &u, uv);
        put(p, &a, av);
        put(p, &b, bv);
        const int tail = n > 3 ? n / 2 : n;
        struct buf2 kept = buf_poisoned(p, DS_BUF_F32, 2, (size_t)((sh->conv_k - 1) * channels));
        const size_t half = (size_t)((sh->conv_k - 1) * channels);
        begin(p, n, pos, NULL);
        p->ref->ops->conv_tail(p->ref, kept.ref, 0, conv.ref, u.ref, sh, tail);
        p->dev->ops->conv_tail(p->dev, kept.dev, 0, conv.dev, u.dev, sh, tail);
        p->ref->ops->copy(p->ref, kept.ref, half, conv.ref, half);
        p->dev->ops->copy(p->dev, kept.dev, half, conv.dev, half);
        p->ref->ops->gdn_prep(p->ref, prep.ref, conv.ref, u.ref, a.ref, b.ref, conv_w.ref, ssm_a.ref, dt.ref, sh, n);
        p->ref->ops->gdn(p->ref, o.ref, S.ref, prep.ref, sh, n, 0, n);
        p->ref->ops->gated_norm(p->ref, y.ref, o.ref, z.ref, gain.ref, sh, n);
        p->dev->ops->gdn_prep(p->dev, prep.dev, conv.dev, u.dev, a.dev, b.dev, conv_w.dev, ssm_a.dev, dt.dev, sh, n);
        const int cut = n > 2 ? (int)(ds_rng_u64(&p->rng) % (uint64_t)n) : 0;      /* in two calls, cut anywhere */
        p->dev->ops->gdn(p->dev, o.dev, S.dev, prep.dev, sh, n, 0, cut);
        p->dev->ops->gdn(p->dev, o.dev, S.dev, prep.dev, sh, n, cut, n);
        p->dev->ops->gated_norm(p->dev, y.dev, o.dev, z.dev, gain.dev, sh, n);
        end(p);
        compare(p, &conv, (size_t)((sh->conv_k - 1) * channels), 1e-13, "%s: conv state after n %d", c->name, n);
        compare(p, &o, (size_t)n * (size_t)inner, c->limit, "%s: o, pos %d n %d", c->name, (int)pos, n);
        compare(p, &S, (size_t)(sh->n_vh * sh->dk * sh->dv), c->limit, "%s: S, pos %d n %d", c->name, (int)pos, n);
        compare(p, &y, (size_t)n * (size_t)inner, c->limit * 10 + ROUNDED, "%s: y, pos %d n %d", c->name, (int)pos, n);
        compare(p, &kept, 2 * half, 1e-13, "%s: conv tail after %d of %d, and a copy", c->name, tail, n);
        pos += n;
        buf_drop(p, &kept);
        buf_drop(p, &u);
        buf_drop(p, &a);
        buf_drop(p, &b);
        buf_drop(p, &z);
        buf_drop(p, &o);
        buf_drop(p, &y);
    }
    free(common);
    free(uv);
    free(av);
    free(bv);
    buf_drop(p, &S);
    buf_drop(p, &conv);
    buf_drop(p, &prep);
    weight_drop(p, &conv_w);
    weight_drop(p, &ssm_a);
    weight_drop(p, &dt);
    weight_drop(p, &gain);
}

#define SHAPE(kh_, vh_, dk_, dv_) { .n_kh = kh_, .n_vh = vh_, .dk = dk_, .dv = dv_, .conv_k = 4, .eps = 1e-6f }
/* 16-bit operands inside chunks: 1e-3 relative on random keys, 3e-3 on correlated ones, 1e-2 near collinear. */
static void case_gdn_random(struct pair *p)
{
    static const struct gdn_case c[] = {
        { SHAPE(2, 6, 128, 128), RANDOM, 0, 0, { 64, 128, 200, 0 }, 0, 4e-6, "2/6 heads" },
        { SHAPE(2, 6, 128, 128), RANDOM, 0, 0, { 1, 5, 63, 65 }, 0, 4e-6, "2/6 heads, odd lengths" },
        { SHAPE(2, 4, 128, 128), RANDOM, 0, 0, { 100, 1, 40, 33 }, 37, 4e-6, "2/4 heads, unaligned" },
        { SHAPE(3, 3, 128, 128), RANDOM, 0, 0, { 130, 2, 0, 0 }, 63, 4e-6, "3/3 heads" },
        { SHAPE(1, 4, 128, 128), RANDOM, 0, 0, { 96, 0, 0, 0 }, 0, 4e-6, "1/4 heads" },
        { SHAPE(2, 4, 32, 64), RANDOM, 0, 0, { 70, 3, 0, 0 }, 0, 4e-6, "dk 32 dv 64" },
        { SHAPE(2, 2, 64, 40), RANDOM, 0, 0, { 35, 1, 0, 0 }, 0, 4e-6, "dk 64 dv 40" },
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) check_gdn(p, &c[i]);
}

static void case_gdn_hard(struct pair *p)
{
    static const struct gdn_case c[] = {
        { SHAPE(2, 6, 128, 128), CORRELATED, -3, 1, { 256, 64, 0, 0 }, 0, 1e-5, "correlated keys" },
        { SHAPE(2, 6, 128, 128), COLLINEAR, -9, 2, { 256, 64, 0, 0 }, 0, 1e-4, "nearly collinear keys, slow decay" },
        { SHAPE(2, 6, 128, 128), REPEATED, -9, 6, { 256, 64, 0, 0 }, 0, 1e-4, "repeated keys, beta near 1" },
        { SHAPE(2, 6, 128, 128), COLLINEAR, -12, 8, { 192, 40, 0, 0 }, 20, 2e-4, "collinear keys, beta near 1, no decay" },
        { SHAPE(2, 6, 128, 128), RANDOM, 40, 0, { 128, 33, 0, 0 }, 0, 1e-5, "decay to nothing" },
        { SHAPE(2, 6, 128, 128), RANDOM, -40, -30, { 128, 33, 0, 0 }, 0, 1e-5, "no decay, no update" },
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) check_gdn(p, &c[i]);
}

/* --- attention --- */

struct attn_case { struct ds_attn_shape sh; int n; int64_t pos, ctx; float sd; };

static void check_attn(struct pair *p, const struct attn_case *c)
{
    const struct ds_attn_shape *sh = &c->sh;
    const int n = c->n;
    const size_t kv = (size_t)(sh->n_kv * sh->hd), q = (size_t)(sh->n_head * sh->hd), past = (size_t)c->pos * kv,
                 filled = (size_t)(c->pos + n) * kv;
    struct weight2 gq, gk;
    random_vector(p, &gq, sh->hd, 1, 1, 0.2f);
    random_vector(p, &gk, sh->hd, 1, 1, 0.2f);
    struct buf2 qg = buf_random(p, DS_BUF_PROJ, (size_t)n, 2 * q, c->sd), k = buf_random(p, DS_BUF_PROJ, (size_t)n, kv, c->sd);
    struct buf2 v = buf_random(p, DS_BUF_PROJ, (size_t)n, kv, 1), y = buf_poisoned(p, DS_BUF_ACT, (size_t)n, q);
    struct buf2 kc = buf_poisoned(p, DS_BUF_KV, (size_t)c->ctx, kv), vc = buf_poisoned(p, DS_BUF_KV, (size_t)c->ctx, kv);
    for (int i = 0; i < 2; i++) {                          /* rows of earlier steps; what lies beyond stays poisoned */
        struct buf2 *b = i ? &vc : &kc;
        float *old = numbers(p, past, 1);
        for (size_t j = 0; j < past; j++) old[j] = as_kind(DS_BUF_KV, old[j]);
        p->ref->ops->buf_write(p->ref, b->ref, 0, old, past);
        p->dev->ops->buf_write(p->dev, b->dev, 0, old, past);
        free(old);
    }
    begin(p, n, c->pos, NULL);
    p->ref->ops->qk_norm(p->ref, qg.ref, k.ref, gq.ref, gk.ref, sh, n);
    p->dev->ops->qk_norm(p->dev, qg.dev, k.dev, gq.dev, gk.dev, sh, n);
    end(p);
    compare(p, &qg, (size_t)n * 2 * q, ROUNDED, "qk_norm queries hd %d n %d", sh->hd, n);
    compare(p, &k, (size_t)n * kv, ROUNDED, "qk_norm keys hd %d n %d", sh->hd, n);
    begin(p, n, c->pos, NULL);
    p->ref->ops->rope_store(p->ref, qg.ref, k.ref, v.ref, kc.ref, vc.ref, sh, n);
    p->dev->ops->rope_store(p->dev, qg.dev, k.dev, v.dev, kc.dev, vc.dev, sh, n);
    end(p);
    compare(p, &qg, (size_t)n * 2 * q, ROUNDED, "rope queries hd %d n %d pos %d", sh->hd, n, (int)c->pos);
    compare(p, &kc, filled, ROUNDED, "key cache hd %d n %d pos %d", sh->hd, n, (int)c->pos);
    compare(p, &vc, filled, ROUNDED, "value cache hd %d n %d pos %d", sh->hd, n, (int)c->pos);
    for (int i = 0; i < 3; i++) {                          /* the same bits for attention itself */
        struct buf2 *b = i == 0 ? &qg : i == 1 ? &kc : &vc;
        const size_t m = i == 0 ? (size_t)n * 2 * q : filled;
        float *x = got(p, b, 0, m, true);
        p->ref->ops->buf_write(p->ref, b->ref, 0, x, m);
        free(x);
    }
    begin(p, n, c->pos, NULL);
    p->ref->ops->attn(p->ref, y.ref, qg.ref, kc.ref, vc.ref, sh, n);
    p->dev->ops->attn(p->dev, y.dev, qg.dev, kc.dev, vc.dev, sh, n);
    end(p);
    compare(p, &y, (size_t)n * q, ROUNDED, "attn %d/%d heads of %d, n %d pos %d sd %g", sh->n_head, sh->n_kv, sh->hd, n,
            (int)c->pos, (double)c->sd);
    buf_drop(p, &qg);
    buf_drop(p, &k);
    buf_drop(p, &v);
    buf_drop(p, &y);
    buf_drop(p, &kc);
    buf_drop(p, &vc);
    weight_drop(p, &gq);
    weight_drop(p, &gk);
}

#define HEADS(h_, kv_, d_, rot_) { .n_head = h_, .n_kv = kv_, .hd = d_, .n_rot = rot_, .rope_base = 1e7f, .eps = 1e-6f }
static void case_attn(struct pair *p)
{
    static const struct attn_case c[] = {
        { HEADS(6, 1, 256, 64), 1, 0, 8, 1 },        { HEADS(6, 1, 256, 64), 1, 700, 800, 1 },
        { HEADS(6, 2, 256, 64), 5, 130, 200, 1 },    { HEADS(6, 1, 256, 64), 64, 0, 64, 1 },
        { HEADS(6, 1, 256, 64), 200, 0, 320, 1 },    { HEADS(4, 2, 256, 64), 130, 77, 256, 1 },
        { HEADS(2, 1, 256, 64), 300, 500, 1000, 4 }, { HEADS(2, 1, 256, 64), 17, 1000, 1100, 1 },
        { HEADS(4, 2, 64, 16), 40, 9, 64, 1 },       { HEADS(4, 4, 32, 32), 1, 300, 310, 1 },
        { HEADS(2, 1, 256, 64), 129, 127, 256, 20 },
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) check_attn(p, &c[i]);
}

/* --- steps --- */

static void case_stamps(struct pair *p)
{
    struct buf2 x = buf_random(p, DS_BUF_F32, 64, 1024, 1), h = buf_make(p, DS_BUF_ACT, 64, 1024);
    struct weight2 g;
    random_vector(p, &g, 1024, 1, 1, 0);
    begin(p, 64, 0, NULL);
    for (int i = 0; i < 5; i++) {
        p->dev->ops->stamp(p->dev, i);
        p->dev->ops->rms_norm(p->dev, h.dev, x.dev, g.dev, 0, 64, 1024, 1e-6f);
        if (i == 2) p->dev->ops->drain(p->dev);
    }
    p->dev->ops->stamp(p->dev, 5);
    end(p);
    for (int i = 0; i < 5; i++)
        if (p->dev->ops->stamp_ns(p->dev, i) > p->dev->ops->stamp_ns(p->dev, i + 1))
            fail(p, "stamp %d is later than stamp %d", i, i + 1);
    if (p->dev->ops->stamp_ns(p->dev, 5) == p->dev->ops->stamp_ns(p->dev, 0)) fail(p, "no time passed between stamps");
    buf_drop(p, &x);
    buf_drop(p, &h);
    weight_drop(p, &g);
}

/* --- the program --- */

static const struct { const char *name; void (*fn)(struct pair *);
} cases[] = {
    { "backend.buffers", case_buffers },
    { "backend.embed", case_embed },
    { "backend.rms_norm", case_rms_norm },
    { "backend.swiglu", case_swiglu },
    { "backend.copy_cols", case_copy_cols },
    { "backend.matmul_types", case_matmul_types },
    { "backend.matmul_shapes", case_matmul_shapes },
    { "backend.matmul_groups", case_matmul_groups },
    { "backend.one_token", case_one_token },
    { "backend.experts", case_experts },
    { "backend.gdn_random", case_gdn_random },
    { "backend.gdn_hard", case_gdn_hard },
    { "backend.attn", case_attn },
    { "backend.stamps", case_stamps },
    { "backend.f8", case_f8 },
};
enum { N_CASES = sizeof cases / sizeof *cases };

static bool is_wanted(const char *name, int argc, char **argv)
{
    bool any = false, found = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--backend") || !strcmp(argv[i], "--sizes") || !strcmp(argv[i], "--gemm")) i++;
        else if (argv[i][0] != '-') any = true, found |= !strcmp(argv[i], name);
    }
    return found || !any;
}

static int run_cases(struct pair *p, int argc, char **argv)
{
    int failed = 0;
    for (int i = 0; i < N_CASES; i++) {
        if (!is_wanted(cases[i].name, argc, argv)) continue;
        p->failures = 0;
        ds_rng_seed(&p->rng, 1 + (uint64_t)i);
        cases[i].fn(p);
        printf("%s %s\n", p->failures ? "FAIL" : "ok", cases[i].name);
        fflush(stdout);
        failed += p->failures != 0;
    }
    return failed;
}

int main(int argc, char **argv)
{
    const char *name = "split", *sizes = NULL, *gemm = NULL;
    bool bench = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--list")) {
            for (int j = 0; j < N_CASES; j++) puts(cases[j].name);
            return 0;
        }
        if (!strcmp(argv[i], "--backend") && i + 1 < argc) name = argv[++i];
        else if (!strcmp(argv[i], "--sizes") && i + 1 < argc) sizes = argv[++i];
        else if (!strcmp(argv[i], "--gemm") && i + 1 < argc) gemm = argv[++i];
        else if (!strcmp(argv[i], "--bench")) bench = true;
    }
    struct ds_err e = { 0 };
    struct ds_backend_options o = { .threads = 2, .isa = 0, .kv = "f16", .gdn = "seq" };
    struct pair p = { .ref = NULL };
    p.ref = need(ds_backend_open("cpu", "full", &o, &e), e.msg);
    o.isa = ds_cpu_detect();
    o.gdn = "auto";
    o.threads = ds_cpu_count();
    o.gemm = gemm;
    p.f8 = gemm && !strncmp(gemm, "fp8", 3);
    const bool split = !strcmp(name, "split");
    p.dev = need(ds_backend_open(split ? "cpu" : name, split ? "gemm" : "full", &o, &e), e.msg);
    const struct ds_sizes sz = { .ubatch = bench ? 32768 : 512,
                                 .ctx = bench ? 32768 : 2048,
                                 .hidden = 5120,
                                 .n_expert = 8,
                                 .n_expert_used = 3,
                                 .gdn = { .n_kh = 16, .n_vh = 48, .dk = 128, .dv = 128, .conv_k = 4, .eps = 1e-6f },
                                 .attn = { .n_head = 24, .n_kv = 4, .hd = 256, .n_rot = 64, .rope_base = 1e7f, .eps = 1e-6f } };
    p.sizes = sz;
    if (p.ref->ops->reserve(p.ref, &sz, &e) || p.dev->ops->reserve(p.dev, &sz, &e)) need(NULL, e.msg);
    const int failed = bench ? bench_backend(p.dev, &sz, sizes) : run_cases(&p, argc, argv);
    p.ref->ops->free(p.ref);
    p.dev->ops->free(p.dev);
    return failed != 0;
}
