/* A backend under test beside the reference: buffers and weights in both, the same bits in each. */
#ifndef DS_TESTS_BACKEND_PAIR_H
#define DS_TESTS_BACKEND_PAIR_H

#include "backend/backend.h"
#include "base/cpu.h"
#include "base/os.h"
#include "base/rng.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pair {
    struct ds_backend *ref, *dev;
    struct ds_rng rng;
    struct ds_sizes sizes;
    bool new_weights;                      /* since the last reserve of dev */
    const char *name;                      /* of the next weight; NULL: "weight" */
    bool f8;                               /* dev was opened with 8-bit products */
    int failures;                          /* of the running case */
};
struct buf2 { enum ds_buf_kind kind; size_t rows, dim; struct ds_buf *ref, *dev; };
struct weight2 { struct ds_tensor t; void *data; float *f32; struct ds_weight *ref, *dev; };

static void fail(struct pair *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("  ");
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
    p->failures++;
}

static void *need(void *ptr, const char *what)
{
    if (!ptr) {
        fprintf(stderr, "check_backend: %s\n", what);
        exit(1);
    }
    return ptr;
}

/* --- numbers: values that every format of a kind holds exactly --- */

static float as_kind(enum ds_buf_kind kind, float v)
{
    if (kind == DS_BUF_KV) return ds_f16_to_f32(ds_f32_to_f16(v));
    return kind == DS_BUF_ACT || kind == DS_BUF_PROJ ? ds_bf16_to_f32(ds_f32_to_bf16(v)) : v;
}

static float *numbers(struct pair *p, size_t n, float sd)
{
    float *v = need(calloc(n ? n : 1, sizeof *v), "no memory");
    for (size_t i = 0; i < n; i++) v[i] = sd * ds_rng_normal(&p->rng);
    return v;
}

/* --- buffers --- */

static struct buf2 buf_make(struct pair *p, enum ds_buf_kind kind, size_t rows, size_t dim)
{
    struct ds_err e = { 0 };
    struct buf2 b = { kind, rows, dim, p->ref->ops->buf_new(p->ref, kind, rows, dim, &e), NULL };
    need(b.ref, e.msg);
    b.dev = need(p->dev->ops->buf_new(p->dev, kind, rows, dim, &e), e.msg);
    return b;
}

static void buf_drop(struct pair *p, struct buf2 *b)
{
    p->ref->ops->buf_free(p->ref, b->ref);
    p->dev->ops->buf_free(p->dev, b->dev);
}

static void put(struct pair *p, struct buf2 *b, const float *v)
{
    const size_t n = b->rows * b->dim;
    float *x = need(calloc(n ? n : 1, sizeof *x), "no memory");
    for (size_t i = 0; i < n; i++) x[i] = as_kind(b->kind, v[i]);
    p->ref->ops->buf_write(p->ref, b->ref, 0, x, n);
    p->dev->ops->buf_write(p->dev, b->dev, 0, x, n);
    free(x);
}

static struct buf2 buf_random(struct pair *p, enum ds_buf_kind kind, size_t rows, size_t dim, float sd)
{
    struct buf2 b = buf_make(p, kind, rows, dim);
    float *v = numbers(p, rows * dim, sd);
    put(p, &b, v);
    free(v);
    return b;
}

/* An output: NaN everywhere, so that what is not written shows. */
static struct buf2 buf_poisoned(struct pair *p, enum ds_buf_kind kind, size_t rows, size_t dim)
{
    struct buf2 b = buf_make(p, kind, rows, dim);
    const size_t n = rows * dim;
    float *v = need(calloc(n ? n : 1, sizeof *v), "no memory");
    for (size_t i = 0; i < n; i++) v[i] = NAN;
    put(p, &b, v);
    free(v);
    return b;
}

/* --- weights --- */

/* Takes over data. w stays where it is: the weights point at its tensor. */
static void weight_bind(struct pair *p, struct weight2 *w, const struct ds_type *type, int in, int out, int experts, unsigned use,
                        void *data)
{
    struct ds_err e = { 0 };
    const size_t n = (size_t)in * (size_t)out * (size_t)experts;
    w->data = data;
    w->t = (struct ds_tensor){ .n_dims = experts > 1 ? 3
                                         : out > 1   ? 2
                                                     : 1,
                               .ne = { (uint64_t)in, (uint64_t)out, (uint64_t)experts, 1 },
                               .type = type,
                               .gguf_id = type->gguf_id,
                               .data = data,
                               .bytes = ds_type_row_bytes(type, n) };
    snprintf(w->t.name, sizeof w->t.name, "%s", p->name ? p->name : "weight");
    w->f32 = need(malloc(n * sizeof *w->f32), "no memory");
    type->decode(w->f32, data, n);
    w->ref = need(p->ref->ops->weight_new(p->ref, &w->t, use, &e), e.msg);
    w->dev = need(p->dev->ops->weight_new(p->dev, &w->t, use, &e), e.msg);
    p->new_weights = true;
}

static void matrix(struct pair *p, struct weight2 *w, const struct ds_type *type, int in, int out, int experts, unsigned use)
{
    const size_t n = (size_t)in * (size_t)out * (size_t)experts;
    void *data = need(malloc(ds_type_row_bytes(type, n)), "no memory");
    type->random(data, n, 1.f / sqrtf((float)in), ds_rng_u64(&p->rng));
    weight_bind(p, w, type, in, out, experts, use, data);
}

static void vector(struct pair *p, struct weight2 *w, const float *v, int in, int out)
{
    float *data = need(malloc((size_t)in * (size_t)out * sizeof *data), "no memory");
    memcpy(data, v, (size_t)in * (size_t)out * sizeof *data);
    weight_bind(p, w, &ds_types[DS_T_F32], in, out, 1, DS_USE_VECTOR, data);
}

static void random_vector(struct pair *p, struct weight2 *w, int in, int out, float mean, float sd)
{
    float *v = numbers(p, (size_t)in * (size_t)out, sd);
    for (int i = 0; i < in * out; i++) v[i] += mean;
    vector(p, w, v, in, out);
    free(v);
}

static void weight_drop(struct pair *p, struct weight2 *w)
{
    p->ref->ops->weight_free(p->ref, w->ref);
    p->dev->ops->weight_free(p->dev, w->dev);
    free(w->data);
    free(w->f32);
}

/* y [n][out] = x W^T in f64. */
static float *product_of(const float *w, const float *x, int n, int in, int out)
{
    float *y = need(malloc((size_t)n * (size_t)out * sizeof *y), "no memory");
    for (int t = 0; t < n; t++)
        for (int r = 0; r < out; r++) {
            double s = 0;
            for (int i = 0; i < in; i++)
                s += (double)w[(size_t)r * (size_t)in + (size_t)i] * x[(size_t)t * (size_t)in + (size_t)i];
            y[(size_t)t * (size_t)out + (size_t)r] = (float)s;
        }
    return y;
}

/* --- steps and comparison --- */

static void begin(struct pair *p, int n, int64_t pos, const int32_t *ids)
{
    const struct ds_step s = { .n = n, .pos = pos, .ids = ids };
    struct ds_err e = { 0 };
    if (p->new_weights && p->dev->prepares && p->dev->ops->reserve(p->dev, &p->sizes, &e)) need(NULL, e.msg);
    p->new_weights = false;
    p->ref->ops->begin(p->ref, &s);
    p->dev->ops->begin(p->dev, &s);
}

static void end(struct pair *p)
{
    struct ds_err e = { 0 };
    p->ref->ops->end(p->ref, NULL);
    if (p->dev->ops->end(p->dev, &e)) fail(p, "%s", e.msg);
}

/* Normalised mean square error of got against ref; infinite when a value is not finite. */
static double nmse(const float *got, const float *ref, size_t n)
{
    double num = 0, den = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)got[i] - ref[i];
        if (!isfinite(got[i])) return INFINITY;
        num += d * d;
        den += (double)ref[i] * ref[i];
    }
    return den > 0 ? num / den : num;
}

static float *got(struct pair *p, const struct buf2 *b, size_t off, size_t n, bool dev)
{
    float *v = need(calloc(n ? n : 1, sizeof *v), "no memory");
    if (dev) p->dev->ops->buf_read(p->dev, v, b->dev, off, n);
    else p->ref->ops->buf_read(p->ref, v, b->ref, off, n);
    return v;
}

static void compare_to(struct pair *p, const struct buf2 *b, const float *want, size_t n, double limit, const char *fmt, ...)
{
    char what[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    float *g = got(p, b, 0, n, true);
    const double err = nmse(g, want, n);
    if (getenv("DS_CHECK_VERBOSE")) printf("  %-60s nmse %.2e (limit %.0e)\n", what, err, limit);
    if (!(err <= limit)) {
        size_t at = 0;
        double worst = -1;
        for (size_t i = 0; i < n; i++) {
            const double d = isfinite(g[i]) ? fabs((double)g[i] - want[i]) : INFINITY;
            if (d > worst) worst = d, at = i;
        }
        fail(p, "%s: nmse %.3g, at most %.0e; worst at row %zu column %zu: %g, want %g", what, err, limit, at / b->dim,
             at % b->dim, (double)g[at], (double)want[at]);
    }
    free(g);
}

/* The first n elements of both sides. */
#define compare(p, b, n, limit, ...)                                   \
    do {                                                               \
        float *want_ = got(p, b, 0, n, false);                         \
        compare_to(p, b, want_, n, limit, __VA_ARGS__);                \
        free(want_);                                                   \
    } while (0)

#endif
