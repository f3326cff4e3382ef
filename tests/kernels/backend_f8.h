/* 8-bit weight products with their producers: a norm, SwiGLU, the gated norm, and an input that came in another format. Runs when
 * the backend was opened with them (--gemm fp8); one token must not go through them. */
#ifndef DS_TESTS_BACKEND_F8_H
#define DS_TESTS_BACKEND_F8_H

#include "backend_pair.h"

/* e4m3 operands, 2.6 % each: about 1.4e-3. Far less means that a product was not an 8-bit one. */
static const double F8_LIMIT = 4e-3, F8_LEAST = 2e-4;

/* The rows of a random buffer at scales from 1e-4 to 1e4, and one of zeros. */
static struct buf2 rows_of_all_sizes(struct pair *p, enum ds_buf_kind kind, int n, int dim)
{
    struct buf2 b = buf_make(p, kind, (size_t)n, (size_t)dim);
    float *v = numbers(p, (size_t)n * (size_t)dim, 1);
    for (int t = 0; t < n; t++)
        for (int i = 0; i < dim; i++) v[t * dim + i] *= t % 7 == 3 ? 0.f : powf(10.f, (float)(t % 9 - 4));
    put(p, &b, v);
    free(v);
    return b;
}

/* Every row of y [n][out] against x W^T (+ y0), x as the reference's buffer holds it; rows count alike whatever their size. */
static void compare_f8(struct pair *p, const struct buf2 *y, const float *y0, const struct buf2 *x, const struct weight2 *w, int n, const char *what)
{
    const int in = (int)w->t.ne[0], out = (int)w->t.ne[1];
    float *xv = got(p, x, 0, (size_t)n * (size_t)in, false), *want = product_of(w->f32, xv, n, in, out);
    float *g = got(p, y, 0, (size_t)n * (size_t)out, true);
    double worst = 0, sum = 0;
    for (int i = 0; i < n * out; i++) {
        if (y0) g[i] -= y0[i];
        if (!isfinite(g[i])) worst = INFINITY;
    }
    for (int t = 0; t < n; t++) {
        const double e = nmse(g + (size_t)t * (size_t)out, want + (size_t)t * (size_t)out, (size_t)out);
        worst = e > worst ? e : worst;
        sum += e;
    }
    if (!(worst <= F8_LIMIT)) fail(p, "%s n %d: nmse of a row %.3g, at most %.0e", what, n, worst, F8_LIMIT);
    if (n > 1 && !(sum / n >= F8_LEAST)) fail(p, "%s n %d: nmse %.3g is too little for 8 bits", what, n, sum / n);
    if (getenv("DS_CHECK_VERBOSE")) printf("  %-60s n %d nmse %.2e, worst row %.2e\n", what, n, sum / n, worst);
    free(xv);
    free(want);
    free(g);
}

static void f8_matrix(struct pair *p, struct weight2 *w, const char *name, int type, int in, int out)
{
    p->name = name;
    matrix(p, w, &ds_types[type], in, out, 1, DS_USE_GEMM);
    p->name = NULL;
}

static void f8_vector(struct pair *p, struct weight2 *w, const char *name, int in)
{
    p->name = name;
    random_vector(p, w, in, 1, 1, 0.2f);
    p->name = NULL;
}

/* h = rms(x) into a group of two. */
static void f8_norm(struct pair *p, int n, int in, int out)
{
    struct weight2 gain, w[2];
    f8_vector(p, &gain, "blk.0.post_attention_norm.weight", in);
    f8_matrix(p, &w[0], "blk.0.ffn_gate.weight", DS_T_Q8_0, in, out);
    f8_matrix(p, &w[1], "blk.0.ffn_up.weight", DS_T_BF16, in, out);
    struct buf2 x = rows_of_all_sizes(p, DS_BUF_F32, n, in), h = buf_poisoned(p, DS_BUF_ACT, (size_t)n, (size_t)in);
    struct buf2 y[2] = { buf_poisoned(p, DS_BUF_PROJ, (size_t)n, (size_t)out), buf_poisoned(p, DS_BUF_PROJ, (size_t)n, (size_t)out) };
    struct ds_buf *yd[2] = { y[0].dev, y[1].dev };
    const struct ds_weight *wd[2] = { w[0].dev, w[1].dev };
    begin(p, n, 0, NULL);
    p->ref->ops->rms_norm(p->ref, h.ref, x.ref, gain.ref, 0, n, in, 1e-6f);
    p->dev->ops->rms_norm(p->dev, h.dev, x.dev, gain.dev, 0, n, in, 1e-6f);
    p->dev->ops->matmul(p->dev, 2, yd, wd, h.dev, n, false);
    end(p);
    for (int i = 0; i < 2; i++) compare_f8(p, &y[i], NULL, &h, &w[i], n, "norm, group");
    begin(p, n, 0, NULL);
    p->dev->ops->matmul(p->dev, 1, &yd[1], &wd[1], h.dev, n, false);
    end(p);
    compare_f8(p, &y[1], NULL, &h, &w[1], n, "norm, one of a group");
    buf_drop(p, &x);
    buf_drop(p, &h);
    weight_drop(p, &gain);
    for (int i = 0; i < 2; i++) {
        buf_drop(p, &y[i]);
        weight_drop(p, &w[i]);
    }
}

/* A product that adds into y, of what make() or the host left in x. */
static void f8_added(struct pair *p, struct weight2 *w, const struct buf2 *x, int n, const char *what)
{
    const int out = (int)w->t.ne[1];
    struct buf2 y = buf_random(p, DS_BUF_F32, (size_t)n, (size_t)out, 1e-3f);
    float *y0 = got(p, &y, 0, (size_t)n * (size_t)out, true);
    const struct ds_weight *wd = w->dev;
    begin(p, n, 0, NULL);
    p->dev->ops->matmul(p->dev, 1, &y.dev, &wd, x->dev, n, true);
    end(p);
    compare_f8(p, &y, y0, x, w, n, what);
    free(y0);
    buf_drop(p, &y);
}

static void f8_swiglu(struct pair *p, int n, int dim, int out)
{
    struct weight2 w;
    f8_matrix(p, &w, "blk.0.ffn_down.weight", DS_T_Q8_0, dim, out);
    struct buf2 gate = buf_random(p, DS_BUF_PROJ, (size_t)n, (size_t)dim, 2), up = buf_random(p, DS_BUF_PROJ, (size_t)n, (size_t)dim, 2);
    struct buf2 act = buf_poisoned(p, DS_BUF_ACT, (size_t)n, (size_t)dim);
    begin(p, n, 0, NULL);
    p->ref->ops->swiglu(p->ref, act.ref, gate.ref, up.ref, n, dim);
    p->dev->ops->swiglu(p->dev, act.dev, gate.dev, up.dev, n, dim);
    end(p);
    f8_added(p, &w, &act, n, "SwiGLU");
    buf_drop(p, &act);
    act = buf_random(p, DS_BUF_ACT, (size_t)n, (size_t)dim, 1);
    f8_added(p, &w, &act, n, "from the host");
    buf_drop(p, &act);
    buf_drop(p, &gate);
    buf_drop(p, &up);
    weight_drop(p, &w);
}

static void f8_gated(struct pair *p, int n, int n_vh, int out)
{
    const struct ds_gdn_shape sh = { .n_kh = n_vh, .n_vh = n_vh, .dk = 128, .dv = 128, .conv_k = 4, .eps = 1e-6f };
    const int dim = n_vh * 128;
    struct weight2 gain, w;
    f8_vector(p, &gain, "blk.0.ssm_norm.weight", 128);
    f8_matrix(p, &w, "blk.0.ssm_out.weight", DS_T_Q4_K, dim, out);
    struct buf2 o = rows_of_all_sizes(p, DS_BUF_F32, n, dim), z = buf_random(p, DS_BUF_PROJ, (size_t)n, (size_t)dim, 2);
    struct buf2 y = buf_poisoned(p, DS_BUF_ACT, (size_t)n, (size_t)dim);
    begin(p, n, 0, NULL);
    p->ref->ops->gated_norm(p->ref, y.ref, o.ref, z.ref, gain.ref, &sh, n);
    p->dev->ops->gated_norm(p->dev, y.dev, o.dev, z.dev, gain.dev, &sh, n);
    end(p);
    f8_added(p, &w, &y, n, "gated norm");
    buf_drop(p, &o);
    buf_drop(p, &z);
    buf_drop(p, &y);
    weight_drop(p, &gain);
    weight_drop(p, &w);
}

static void case_f8(struct pair *p)
{
    static const int n[] = { 1, 2, 17, 70, 300 };
    if (!p->f8) return;
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        f8_norm(p, n[i], 512, 320);
        f8_swiglu(p, n[i], 1536, 256);
        f8_gated(p, n[i], 6, 192);
    }
    f8_norm(p, 5, 5120, 64);
    f8_norm(p, 5, 2048, 64);
    f8_swiglu(p, 5, 17408, 64);
    f8_gated(p, 5, 48, 64);
    f8_gated(p, 5, 33, 64);
}

#endif
