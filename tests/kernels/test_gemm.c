/* Weight products: every storage type on every instruction set of this machine.
 *
 * The truth is computed in double precision from decoded weights and from activations that the
 * reference quantisers rounded, so that only the summation order is free. Limits: relative to the
 * norm of a token's outputs, 2e-6 where products are summed in f32 (integer parts are exact). */
#include "base/cpu.h"
#include "base/rng.h"
#include "../harness.h"
#include "kernels/gemm.h"
#include "quant/act.h"

#include <math.h>
#include <stdlib.h>

enum input { RANDOM, ZEROS, ONE_HOT, HUGE_RANGE, TINY, INPUTS };

static void *aligned(size_t n)
{
    void *p = aligned_alloc(64, (n + 127) / 64 * 64);
    if (p) memset(p, 0xff, (n + 127) / 64 * 64);
    return p;
}

static void fill_activations(float *x, int n, int k, enum input in, struct ds_rng *rng)
{
    for (int t = 0; t < n; t++)
        for (int i = 0; i < k; i++) {
            float v = ds_rng_normal(rng);
            if (in == ZEROS) v = 0;
            if (in == ONE_HOT) v = i == (t * 37) % k ? -3.25f : 0;
            if (in == HUGE_RANGE) v *= exp2f((float)(i * 7 % 41) - 20);
            if (in == TINY) v *= 1e-30f;
            x[(size_t)t * (size_t)k + (size_t)i] = v;
        }
}

/* What the product sees of the activations. */
static void round_activations(double *out, const float *x, enum ds_act_fmt f, int k)
{
    struct ds_block_q8_0 *b0 = malloc((size_t)k / 32 * sizeof *b0 + 1);
    struct ds_block_q8_k *bk = malloc((size_t)k / 256 * sizeof *bk + 1);
    if (f == DS_AF_Q8_0) ds_act_q8_0(b0, x, (size_t)k);
    if (f == DS_AF_Q8_K) ds_act_q8_k(bk, x, (size_t)k);
    for (int i = 0; i < k; i++) {
        if (f == DS_AF_F32) out[i] = x[i];
        if (f == DS_AF_Q8_0) out[i] = (double)ds_f16_to_f32(b0[i / 32].d) * b0[i / 32].q[i % 32];
        if (f == DS_AF_Q8_K) out[i] = (double)bk[i / 256].d * bk[i / 256].q[i % 256];
    }
    free(b0);
    free(bk);
}

struct problem {
    const struct ds_type *type;
    int n, rows, k;
    unsigned char *w;         /* deliberately at an odd address */
    void *w_mem;
    float *x;                 /* [n][k] */
    double *truth;            /* [n][rows] */
    double *size;             /* [n][rows]: sum of |w x|, what rounding errors are relative to */
};

static void problem_free(struct problem *p)
{
    free(p->w_mem);
    free(p->x);
    free(p->truth);
    free(p->size);
}

static void fill_weights(const struct ds_type *t, void *w, size_t n, uint64_t seed)
{
    if (t->random) {
        t->random(w, n, 0.05f, seed);
        return;
    }
    struct ds_rng rng;
    ds_rng_seed(&rng, seed);
    float *v = malloc(n * sizeof *v);
    for (size_t i = 0; i < n; i++) v[i] = 0.05f * ds_rng_normal(&rng);
    t->encode(w, v, n);
    free(v);
}

/* The products of p's weights and rounded activations. */
static void problem_truth(struct problem *p, enum ds_act_fmt f)
{
    float *w = malloc(sizeof(float) * (size_t)p->k);
    double *x = malloc(sizeof(double) * (size_t)p->k);
    for (int t = 0; t < p->n; t++) {
        round_activations(x, p->x + (size_t)t * (size_t)p->k, f, p->k);
        for (int r = 0; r < p->rows; r++) {
            p->type->decode(w, p->w + ds_type_row_bytes(p->type, (size_t)p->k) * (size_t)r, (size_t)p->k);
            double s = 0, a = 0;
            for (int i = 0; i < p->k; i++) s += w[i] * x[i], a += fabs(w[i] * x[i]);
            p->truth[t * p->rows + r] = s;
            p->size[t * p->rows + r] = a;
        }
    }
    free(w);
    free(x);
}

/* Overwrites all bytes of the blocks but the f16 scales with v, or with random bytes for v < 0. */
static void problem_patterns(struct problem *p, int v, struct ds_rng *rng)
{
    static const struct { const char *type; int from, to; } keep[] = {     /* bytes of d and m */
        { "q8_0", 0, 2 }, { "q4_0", 0, 2 }, { "q4_1", 0, 4 }, { "q5_0", 0, 2 }, { "q5_1", 0, 4 }, { "q2_k", 80, 84 }, { "q3_k", 108, 110 },
        { "q4_k", 0, 4 }, { "q5_k", 0, 4 }, { "q6_k", 208, 210 }, { "iq4_nl", 0, 2 }, { "iq4_xs", 0, 2 }, { "mxfp4", 0, 1 },
    };
    size_t n = ds_type_row_bytes(p->type, (size_t)p->k) * (size_t)p->rows;
    for (size_t j = 0; j < sizeof keep / sizeof *keep; j++)
        for (size_t i = 0; !strcmp(keep[j].type, p->type->name) && i < n; i++) {
            int at = (int)(i % p->type->bytes);
            if (at < keep[j].from || at >= keep[j].to) p->w[i] = (unsigned char)(v < 0 ? (int)(ds_rng_u64(rng) >> 56) : v);
        }
}

static void problem_new(struct problem *p, const struct ds_type *type, int n, int rows, int k, enum input in, enum ds_act_fmt f, uint64_t seed)
{
    struct ds_rng rng;
    ds_rng_seed(&rng, seed);
    size_t rb = ds_type_row_bytes(type, (size_t)k);
    *p = (struct problem){ .type = type, .n = n, .rows = rows, .k = k };
    p->w_mem = malloc(rb * (size_t)rows + 2);
    p->w = (unsigned char *)p->w_mem + 1;
    p->x = malloc(sizeof(float) * (size_t)n * (size_t)k);
    p->truth = malloc(sizeof(double) * (size_t)n * (size_t)rows);
    p->size = malloc(sizeof(double) * (size_t)n * (size_t)rows);
    fill_weights(type, p->w, (size_t)rows * (size_t)k, seed);
    fill_activations(p->x, n, k, in, &rng);
    problem_truth(p, f);
}

/* Runs the product in blocks of `rstep` rows and `tstep` tokens into y [n][rows + 3]. */
static void run(const struct ds_gemm_kernels *g, const struct problem *p, float *y, bool add, bool decode, int rstep, int tstep)
{
    enum ds_act_fmt f = g->act_fmt(g, p->type, p->n, decode);
    void *x = aligned(g->act_bytes(f, p->n, p->k)), *scratch = aligned(g->scratch_bytes(g, p->type, p->k));
    for (int t = 0; t < p->n; t += tstep) g->act_pack(g, f, x, p->x, (size_t)p->k, NULL, p->n, p->k, t, t + tstep < p->n ? t + tstep : p->n);
    struct ds_gemm_call c = { .y = y, .ldy = (size_t)p->rows + 3, .w = p->w, .type = p->type, .x = x, .n = p->n, .k = p->k, .add = add,
                              .scratch = scratch };
    for (c.t0 = 0; c.t0 < p->n; c.t0 += tstep)
        for (c.r0 = 0; c.r0 < p->rows; c.r0 += rstep) {
            c.r1 = c.r0 + rstep < p->rows ? c.r0 + rstep : p->rows;
            c.t1 = c.t0 + tstep < p->n ? c.t0 + tstep : p->n;
            (decode ? g->gemv : g->gemm)(g, &c);
        }
    free(x);
    free(scratch);
}

static const float pad = 12345.0f;      /* beyond the rows of y: must survive */

static float *output_new(const struct problem *p, float v)
{
    size_t n = (size_t)p->n * (size_t)(p->rows + 3);
    float *y = malloc(sizeof(float) * n);
    for (size_t i = 0; i < n; i++) y[i] = i % (size_t)(p->rows + 3) < (size_t)p->rows ? v : pad;
    return y;
}

/* Worst error of y - base relative to the sum of magnitudes, and whether the padding survived. */
static double worst(const struct problem *p, const float *y, double base)
{
    double e = 0;
    for (int t = 0; t < p->n; t++) {
        const float *row = y + (size_t)t * (size_t)(p->rows + 3);
        for (int r = 0; r < p->rows; r++) {
            double d = fabs(row[r] - base - p->truth[t * p->rows + r]) / (p->size[t * p->rows + r] + 1e-37 + fabs(base));
            if (!(d <= e)) e = d;
        }
        for (int r = p->rows; r < p->rows + 3; r++)
            if (row[r] != pad) e = INFINITY;
    }
    return e;
}

static const double limit = 2e-6;

static void check_product(const struct ds_gemm_kernels *g, const char *level, const struct ds_type *type, int n, int rows, int k, enum input in)
{
    struct problem p;
    problem_new(&p, type, n, rows, k, in, g->act_fmt(g, type, n, false), (uint64_t)(n * 131 + rows * 17 + k + (int)in));
    float *y = output_new(&p, 0);
    run(g, &p, y, false, false, rows, n);
    double e = worst(&p, y, 0);
    CHECK_MSG(e <= limit, "%s %s n=%d rows=%d k=%d input %d: error %.2e", type->name, level, n, rows, k, (int)in, e);

    /* Cut into the smallest tasks: the same bits. */
    float *cut = output_new(&p, 0);
    run(g, &p, cut, false, false, g->row_step, g->tok_step);
    CHECK_MSG(!memcmp(y, cut, sizeof(float) * (size_t)n * (size_t)(rows + 3)), "%s %s n=%d rows=%d k=%d: bits change with the split", type->name,
              level, n, rows, k);

    /* Accumulate. */
    float *acc = output_new(&p, 2.5f);
    run(g, &p, acc, true, false, rows, n);
    double ea = worst(&p, acc, 2.5);
    CHECK_MSG(ea <= limit, "%s %s n=%d rows=%d k=%d add: error %.2e", type->name, level, n, rows, k, ea);
    if (n == 1) {
        run(g, &p, cut, false, true, rows, 1);
        double ev = worst(&p, cut, 0);
        CHECK_MSG(ev <= limit, "%s %s rows=%d k=%d gemv: error %.2e", type->name, level, rows, k, ev);
        run(g, &p, acc, true, true, g->row_step, 1);
        ea = worst(&p, acc, 0);
    }
    free(y);
    free(cut);
    free(acc);
    problem_free(&p);
}

typedef void (*level_fn)(const struct ds_gemm_kernels *g, const char *level, const struct ds_type *type);

static void each_type(const struct ds_gemm_kernels *g, const char *level, level_fn fn)
{
    for (int id = 0; id < DS_T_COUNT; id++)
        if (ds_types[id].decode) fn(g, level, &ds_types[id]);
}

/* The exact table is one more level: there every type meets the activations as they are. */
static void each_type_and_level(level_fn fn)
{
    const char *levels[16];
    int n = ds_cpu_levels(levels, 16);
    struct ds_gemm_kernels exact;
    ds_gemm_kernels_exact(&exact);
    for (int id = 0; id < DS_T_COUNT; id++) CHECK(exact.act_fmt(&exact, &ds_types[id], 1, false) == DS_AF_F32);
    each_type(&exact, "exact", fn);
    for (int i = 0; i < n; i++) {
        unsigned mask = 0;
        CHECK(ds_cpu_mask(levels[i], &mask, NULL) == DS_OK);
        struct ds_gemm_kernels g;
        ds_gemm_kernels_init(&g, mask);
        each_type(&g, levels[i], fn);
    }
}

static int k_of(const struct ds_type *t, int blocks) { return t->act == DS_ACT_NONE ? 37 * blocks : t->block * blocks; }

static void shapes(const struct ds_gemm_kernels *g, const char *level, const struct ds_type *type)
{
    static const int ns[] = { 1, 2, 3, 5, 11, 12, 13, 14, 15, 16, 17, 64, 65 };
    static const int rows[] = { 1, 3, 8, 15, 16, 17, 31, 33, 40, 64, 70 };
    for (int i = 0; i < 13; i++)
        for (int j = 0; j < 11; j += ns[i] > 20 ? 5 : 2) check_product(g, level, type, ns[i], rows[j], k_of(type, 1 + (i + j) % 5), RANDOM);
}
static void test_shapes(void) { each_type_and_level(shapes); }

static void inputs(const struct ds_gemm_kernels *g, const char *level, const struct ds_type *type)
{
    for (enum input in = ZEROS; in < INPUTS; in++) check_product(g, level, type, 6, 18, k_of(type, 3), in);
    check_product(g, level, type, 3, 17, 256 * 11, RANDOM);
}
static void test_inputs(void) { each_type_and_level(inputs); }

/* Every bit pattern of the integers, the largest products next to each other. Bytes that hold scales keep them. Every other pattern meets
 * activations of which most are as large as an integer gets. */
static void patterns(const struct ds_gemm_kernels *g, const char *level, const struct ds_type *type)
{
    static const int bytes[] = { 0x00, 0x7f, 0x80, 0xff, 0x88, 0x77, -1 };
    enum { N = 4, ROWS = 7 };
    for (int i = 0; i < 7; i++) {
        struct problem p;
        struct ds_rng rng;
        ds_rng_seed(&rng, (uint64_t)i);
        problem_new(&p, type, N, ROWS, k_of(type, 2), RANDOM, g->act_fmt(g, type, N, false), 5);
        problem_patterns(&p, bytes[i], &rng);
        for (int j = 0; j < N * p.k; j++) p.x[j] = (j / 64 + j / p.k) % 3 == 0 ? -1.0f : (j / 32) % 2 ? 1.0f : i % 2 ? ds_rng_normal(&rng) : 0.5f;
        problem_truth(&p, g->act_fmt(g, type, N, false));
        float *y = output_new(&p, 0);
        run(g, &p, y, false, false, ROWS, N);
        double e = worst(&p, y, 0);
        CHECK_MSG(e <= limit, "%s %s pattern %d: error %.2e", type->name, level, i, e);
        p.n = 1;
        run(g, &p, y, false, false, ROWS, 1);
        e = worst(&p, y, 0);
        CHECK_MSG(e <= limit, "%s %s pattern %d, one token: error %.2e", type->name, level, i, e);
        run(g, &p, y, false, true, ROWS, 1);
        e = worst(&p, y, 0);
        CHECK_MSG(e <= limit, "%s %s pattern %d gemv: error %.2e", type->name, level, i, e);
        free(y);
        problem_free(&p);
    }
}
static void test_patterns(void) { each_type_and_level(patterns); }

/* One token's numbers do not depend on its neighbours, nor does a gathered row on its place. */
static void neighbours(const struct ds_gemm_kernels *g, const char *level, const struct ds_type *type)
{
    enum { N = 29, ROWS = 19 };
    struct problem p;
    enum ds_act_fmt f = g->act_fmt(g, type, N, false);
    problem_new(&p, type, N, ROWS, k_of(type, 4), RANDOM, f, 99);
    float *y = output_new(&p, 0);
    run(g, &p, y, false, false, ROWS, N);

    int32_t rows[7] = { 28, 3, 3, 0, 17, 12, 5 }, yrow[7] = { 2, 0, 6, 1, 5, 4, 3 };
    for (int n = 1; n <= 7; n++) {
        void *x = aligned(g->act_bytes(f, n, p.k)), *scratch = aligned(g->scratch_bytes(g, type, p.k));
        g->act_pack(g, f, x, p.x, (size_t)p.k, rows, n, p.k, 0, n);
        float z[7][ROWS];
        struct ds_gemm_call c = { .y = z[0], .ldy = ROWS, .yrow = yrow, .w = p.w, .type = type, .x = x, .n = n, .k = p.k, .t1 = n, .r1 = ROWS,
                                  .scratch = scratch };
        g->gemm(g, &c);
        for (int t = 0; t < n; t++)
            CHECK_MSG(!memcmp(z[yrow[t]], y + (size_t)rows[t] * (ROWS + 3), sizeof z[0]), "%s %s: gathered row %d of %d differs", type->name, level,
                      t, n);
        free(x);
        free(scratch);
    }
    free(y);
    problem_free(&p);
}
static void test_neighbours(void) { each_type_and_level(neighbours); }

/* Not-a-number and infinity in the activations reach every output of their token and no other's. */
static void not_finite(const struct ds_gemm_kernels *g, const char *level, const struct ds_type *type)
{
    struct problem p;
    problem_new(&p, type, 5, 17, k_of(type, 2), RANDOM, g->act_fmt(g, type, 5, false), 7);
    p.x[1 * p.k + 3] = NAN;
    p.x[3 * p.k + p.k - 1] = INFINITY;
    float *y = output_new(&p, 0);
    run(g, &p, y, false, false, 17, 5);
    for (int t = 0; t < 5; t++)
        for (int r = 0; r < 17; r++)
            CHECK_MSG((t & 1) == !isfinite(y[t * 20 + r]), "%s %s token %d row %d: %g", type->name, level, t, r, (double)y[t * 20 + r]);
    free(y);
    problem_free(&p);
}
static void test_not_finite(void) { each_type_and_level(not_finite); }

static const struct ds_test tests[] = {
    { "gemm_shapes", test_shapes },
    { "gemm_inputs", test_inputs },
    { "gemm_patterns", test_patterns },
    { "gemm_neighbours", test_neighbours },
    { "gemm_not_finite", test_not_finite },
};
DS_TEST_MAIN(tests)
