/* Attention at every ISA level against double arithmetic, bitwise split properties, and the parts of a long
 * softmax. Cache rows that no query may see are NaN. */
#include "levels.h"

#include "quant/type.h"

struct problem {
    int n, heads, hd, n_kv;         /* kv heads in a cache row; the problem uses the second when there are two */
    int64_t pos;
    bool f16;
    float *q;                       /* [n][heads][2*hd]: query, gate */
    float *K, *V;                   /* [pos + n][hd], values that f16 holds exactly */
    void *cK, *cV;                  /* cache [pos + n + 64][n_kv*hd] */
    float *y, *want;                /* [n][heads][hd] */
};

static size_t cache_floats(const struct problem *p) { return (size_t)(p->pos + p->n + 64) * (size_t)p->n_kv * (size_t)p->hd; }

static void set_row(struct problem *p, void *cache, int64_t pos, const float *row)
{
    size_t at = (size_t)pos * (size_t)p->n_kv * (size_t)p->hd + (size_t)(p->n_kv - 1) * (size_t)p->hd;
    for (int i = 0; i < p->hd; i++) {
        if (p->f16) ((uint16_t *)cache)[at + (size_t)i] = ds_f32_to_f16(row ? row[i] : NAN);
        else ((float *)cache)[at + (size_t)i] = row ? row[i] : NAN;
    }
}

/* Rows [0, end) hold values, the rest NaN. */
static void fill_cache(struct problem *p, int64_t end)
{
    for (int64_t r = 0; r < p->pos + p->n + 64; r++) {
        set_row(p, p->cK, r, r < end ? p->K + r * p->hd : NULL);
        set_row(p, p->cV, r, r < end ? p->V + r * p->hd : NULL);
    }
}

static struct problem problem_new(struct ds_rng *rng, int64_t pos, int n, int heads, int hd, int n_kv, bool f16)
{
    struct problem p = { .n = n, .heads = heads, .hd = hd, .n_kv = n_kv, .pos = pos, .f16 = f16 };
    size_t rows = (size_t)(pos + n) * (size_t)hd, ny = (size_t)n * (size_t)heads * (size_t)hd;
    p.q = normals(rng, 2 * ny, 1.5f);
    p.K = normals(rng, rows, 1), p.V = normals(rng, rows, 1);
    for (size_t i = 0; i < rows; i++)
        p.K[i] = ds_f16_to_f32(ds_f32_to_f16(p.K[i])), p.V[i] = ds_f16_to_f32(ds_f32_to_f16(p.V[i]));
    p.cK = poisoned(cache_floats(&p)), p.cV = poisoned(cache_floats(&p));
    p.y = poisoned(ny), p.want = poisoned(ny);
    fill_cache(&p, pos + n);
    return p;
}

static void problem_free(struct problem *p)
{
    size_t rows = (size_t)(p->pos + p->n) * (size_t)p->hd, ny = (size_t)p->n * (size_t)p->heads * (size_t)p->hd;
    drop(p->q, 2 * ny), drop(p->K, rows), drop(p->V, rows), drop(p->cK, cache_floats(p)), drop(p->cV, cache_floats(p));
    drop(p->y, ny), drop(p->want, ny);
}

static struct ds_attn_args args_of(const struct problem *p)
{
    size_t hd = (size_t)p->hd, row = (size_t)p->n_kv * hd, off = (row - hd) * (p->f16 ? 2 : 4);
    return (struct ds_attn_args){ .y = p->y, .ldy = (size_t)p->heads * hd, .q = p->q, .ldq = 2 * (size_t)p->heads * hd,
                                  .q_step = 2 * hd, .K = (char *)p->cK + off, .V = (char *)p->cV + off, .ldkv = row,
                                  .kv_f16 = p->f16, .heads = p->heads, .hd = p->hd, .scale = (float)(1 / sqrt(p->hd)),
                                  .pos = p->pos };
}

static void run(const struct problem *p, const struct ds_kernels *k, int t0, int t1)
{
    struct ds_attn_args a = args_of(p);
    size_t n = k->attn_scratch(p->hd, p->heads) / sizeof(float) + 1;
    a.scratch = poisoned(n);
    a.t0 = t0, a.t1 = t1;
    k->attn(&a);
    drop(a.scratch, n);
}

static void direct(struct problem *p)
{
    double *s = malloc((size_t)(p->pos + p->n) * sizeof *s);
    for (int t = 0; t < p->n; t++) {
        for (int h = 0; h < p->heads; h++) {
            const float *q = p->q + (t * p->heads + h) * 2 * p->hd;
            double top = -INFINITY, l = 0;
            for (int64_t r = 0; r <= p->pos + t; r++) {
                s[r] = 0;
                for (int i = 0; i < p->hd; i++) s[r] += (double)q[i] * p->K[r * p->hd + i];
                s[r] /= sqrt(p->hd);
                top = fmax(top, s[r]);
            }
            for (int64_t r = 0; r <= p->pos + t; r++) l += s[r] = exp(s[r] - top);
            for (int i = 0; i < p->hd; i++) {
                double y = 0;
                for (int64_t r = 0; r <= p->pos + t; r++) y += s[r] * p->V[r * p->hd + i];
                p->want[(t * p->heads + h) * p->hd + i] = (float)(y / l / (1 + exp(-(double)q[p->hd + i])));
            }
        }
    }
    free(s);
}

/* f32 rounding of some hundred additions. */
static const double LIMIT = 1e-11;

static void check_problem(struct problem *p, const struct ds_kernels *k, double limit, const char *level, const char *what)
{
    size_t ny = (size_t)p->n * (size_t)p->heads * (size_t)p->hd;
    for (size_t i = 0; i < ny; i++) p->y[i] = NAN;
    run(p, k, 0, p->n);
    double e = nmse(p->y, p->want, ny);
    CHECK_MSG(e <= limit, "%s %s: pos %d n %d heads %d hd %d %s: nmse %.2e", level, what, (int)p->pos, p->n, p->heads, p->hd,
              p->f16 ? "f16" : "f32", e);
}

static void check_shapes(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    static const struct { int64_t pos; int n, heads, hd, n_kv; } cases[] = {
        { 0, 1, 1, 2, 1 },    { 0, 3, 2, 6, 2 },    { 5, 70, 3, 32, 1 },  { 63, 2, 4, 64, 2 },   { 64, 1, 6, 80, 1 },
        { 0, 140, 1, 16, 1 }, { 127, 40, 6, 256, 2 }, { 300, 33, 4, 256, 1 }, { 17, 50, 8, 128, 2 }, { 10, 3, 130, 18, 1 },
    };
    struct ds_rng rng;
    (void)ref;
    ds_rng_seed(&rng, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int f16 = 0; f16 < 2; f16++) {
            struct problem p = problem_new(&rng, cases[i].pos, cases[i].n, cases[i].heads, cases[i].hd, cases[i].n_kv, f16);
            direct(&p);
            check_problem(&p, k, LIMIT, level, "shapes");
            problem_free(&p);
        }
    }
}
static void test_shapes(void) { for_each_level(check_shapes); }

/* Scores that differ by hundreds: nearly all weights underflow, the running maximum jumps. A
 * score of 300 in f32 is off by 1e-5, and so is its weight. */
static void check_sharp(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    struct ds_rng rng;
    (void)ref;
    ds_rng_seed(&rng, 2);
    for (int round = 0; round < 3; round++) {
        struct problem p = problem_new(&rng, 100, 30, 2, 64, 1, round == 1);
        float factor = round == 2 ? 0 : 60;
        for (int i = 0; i < p.n * p.heads; i++)
            for (int j = 0; j < p.hd; j++) p.q[i * 2 * p.hd + j] *= factor;
        direct(&p);
        check_problem(&p, k, 10 * LIMIT, level, "sharp");
        problem_free(&p);
    }
}
static void test_sharp(void) { for_each_level(check_sharp); }

/* A prompt of 200 in steps of any size, the cache filled step by step; and one step in any token blocks. */
static void check_splits(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    struct ds_rng rng;
    (void)ref;
    ds_rng_seed(&rng, 3);
    for (int heads = 1; heads < 7; heads += 5) {
        struct problem p = problem_new(&rng, 0, 200, heads, 32, 1, true);
        size_t ny = (size_t)p.n * (size_t)p.heads * (size_t)p.hd;
        run(&p, k, 0, p.n);
        memcpy(p.want, p.y, ny * sizeof *p.y);
        for (int step = 1; step < 200; step += step < 10 ? 1 : step < 70 ? 7 : 31) {
            struct problem part = p;
            for (size_t i = 0; i < ny; i++) p.y[i] = NAN;
            for (int t = 0; t < p.n; t += step) {
                int m = t + step < p.n ? step : p.n - t;
                fill_cache(&p, t + m);
                part.pos = t, part.n = m;
                part.q = p.q + (size_t)t * 2 * (size_t)(p.heads * p.hd), part.y = p.y + (size_t)t * (size_t)(p.heads * p.hd);
                run(&part, k, 0, m);
            }
            CHECK_MSG(!memcmp(p.y, p.want, ny * sizeof *p.y), "%s: %d heads, steps of %d", level, heads, step);
            for (size_t i = 0; i < ny; i++) p.y[i] = NAN;
            for (int t = 0; t < p.n; t += step) run(&p, k, t, t + step < p.n ? t + step : p.n);
            CHECK_MSG(!memcmp(p.y, p.want, ny * sizeof *p.y), "%s: %d heads, token blocks of %d", level, heads, step);
        }
        problem_free(&p);
    }
}
static void test_splits(void) { for_each_level(check_splits); }

/* Parts of one long softmax, merged, equal the whole. */
static void check_parts(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    static const struct {
        int64_t pos;
        int heads, hd;
    } cases[] = { { 0, 1, 2 }, { 1, 3, 6 }, { 70, 4, 32 }, { 200, 6, 256 }, { 129, 7, 80 }, { 90, 2, 64 } };
    struct ds_rng rng;
    (void)ref;
    ds_rng_seed(&rng, 4);
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        int64_t pos = cases[i / 2].pos;
        struct problem p = problem_new(&rng, pos, 1, cases[i / 2].heads, cases[i / 2].hd, 2, i % 2);
        int H = p.heads, hd = p.hd;
        direct(&p);
        for (int64_t span = 1; span <= pos + 1; span = 2 * span + 1) {
            struct ds_attn_args a = args_of(&p);
            float m[8], l[8], *acc = poisoned((size_t)(H * hd)), M[8], L[8];
            for (int h = 0; h < H; h++) M[h] = -INFINITY, L[h] = 0;
            for (int j = 0; j < H * hd; j++) p.y[j] = 0;
            for (int64_t s = 0; s <= pos; s += span) {
                int64_t end = s + span <= pos + 1 ? s + span : pos + 1, cut = s + (end - s) / 2;
                for (int h = 0; h < H; h++) m[h] = -INFINITY, l[h] = 0;
                memset(acc, 0, (size_t)(H * hd) * sizeof *acc);
                k->attn_part(m, l, acc, &a, s, cut);
                k->attn_part(m, l, acc, &a, cut, end);
                for (int h = 0; h < H; h++) {
                    float top = fmaxf(M[h], m[h]), old = expf(M[h] - top), fresh = expf(m[h] - top);
                    for (int j = 0; j < hd; j++) p.y[h * hd + j] = old * p.y[h * hd + j] + fresh * acc[h * hd + j];
                    L[h] = old * L[h] + fresh * l[h], M[h] = top;
                }
            }
            for (int j = 0; j < H * hd; j++) p.y[j] /= L[j / hd] * (1 + expf(-p.q[j / hd * 2 * hd + hd + j % hd]));
            double e = nmse(p.y, p.want, (size_t)(H * hd));
            CHECK_MSG(e <= LIMIT, "%s: pos %d heads %d hd %d span %d: nmse %.2e", level, (int)pos, H, hd, (int)span, e);
            drop(acc, (size_t)(H * hd));
        }
        problem_free(&p);
    }
}
static void test_parts(void) { for_each_level(check_parts); }

static const struct ds_test tests[] = {
    { "attn.shapes", test_shapes }, { "attn.sharp", test_sharp }, { "attn.splits", test_splits }, { "attn.parts", test_parts },
};
DS_TEST_MAIN(tests)
