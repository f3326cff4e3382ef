/* Products on the executor: every weight type, tiles that do not fill, activations beyond half, experts. */
#include "shader.h"

static const struct { enum ds_type_id id; const char *name; double limit; } types[] = {
    /* tiles of half: activations and weights rounded to 11 bits (2^-12 rms each); tiles of float: float arithmetic */
    { DS_T_Q8_0, "q8_0", 4e-7 }, { DS_T_Q4_0, "q4_0", 4e-7 }, { DS_T_Q4_K, "q4_k", 4e-7 }, { DS_T_Q5_K, "q5_k", 4e-7 },
    { DS_T_Q6_K, "q6_k", 4e-7 }, { DS_T_F16, "f16", 1e-12 }, { DS_T_BF16, "bf16", 1e-12 }, { DS_T_F32, "f32", 1e-12 },
};
enum { N_TYPES = sizeof types / sizeof *types };
static const double vector_limit = 1e-12;      /* gemv: float arithmetic */

struct weights { unsigned char *bytes; size_t size; float *f; };
static struct weights make_weights(enum ds_type_id id, size_t n, uint64_t seed)
{
    const struct ds_type *t = &ds_types[id];
    struct weights w = { poisoned_bytes(ds_type_row_bytes(t, n)), ds_type_row_bytes(t, n), poisoned(n) };
    t->random(w.bytes, n, 0.05f, seed);
    t->decode(w.f, w.bytes, n);
    return w;
}
static void free_weights(struct weights *w) { free(w->bytes), free(w->f); }

/* want[t][r] = w[r] . x[t] + y0[t][r] */
static double *product(const float *w, const float *x, const float *y0, int n, int in, int out, int ldy)
{
    double *want = malloc(sizeof *want * (size_t)n * (size_t)out);
    for (int t = 0; t < n; t++) {
        for (int r = 0; r < out; r++) {
            double s = y0 ? y0[t * ldy + r] : 0;
            for (int i = 0; i < in; i++) s += (double)w[(size_t)r * (size_t)in + (size_t)i] * x[(size_t)t * (size_t)in + (size_t)i];
            want[(size_t)t * (size_t)out + (size_t)r] = s;
        }
    }
    return want;
}

/* x as tiles take it. */
struct halves { uint16_t *h; float *scale; };
static struct halves act_half(const float *x, int n, int dim)
{
    const struct ds_metal_rows a = { .n = n, .dim = dim };
    struct halves o = { poisoned_bytes((size_t)n * (size_t)dim * 2), poisoned((size_t)n) };
    struct call c = call_of("act_half", &a, sizeof a);
    bind(&c, 1, x, (size_t)n * (size_t)dim * 4), bind(&c, 2, o.h, (size_t)n * (size_t)dim * 2), bind(&c, 3, o.scale, (size_t)n * 4);
    run(&c, n, 1, 1, 256);
    return o;
}

static void one_product(const char *kind, int which, int n, int in, int out, int add, float sd)
{
    struct ds_rng rng;
    ds_rng_seed(&rng, (uint64_t)(n * 31 + in * 7 + out));
    const int ldy = out + 3;
    struct weights w = make_weights(types[which].id, (size_t)in * (size_t)out, (uint64_t)in);
    float *x = normals(&rng, (size_t)n * (size_t)in, sd), *y = normals(&rng, (size_t)(n * ldy), sd);
    double *want = product(w.f, x, add ? y : NULL, n, in, out, ldy), num = 0, den = 1e-30;
    float *before = poisoned((size_t)(n * ldy));
    memcpy(before, y, sizeof *y * (size_t)(n * ldy));
    if (!add)
        for (int t = 0; t < n; t++)
            for (int r = 0; r < out; r++) y[t * ldy + r] = NAN;
    const struct ds_metal_gemm a = { .n = n, .in = in, .out = out, .ldy = ldy, .add = add };
    char name[32];
    snprintf(name, sizeof name, "%s_%s", kind, types[which].name);
    struct call c = call_of(name, &a, sizeof a);
    const bool tiles = !strcmp(kind, "gemm"), halved = tiles && ds_types[types[which].id].act != DS_ACT_NONE;
    struct halves h = { NULL, NULL };
    if (halved) h = act_half(x, n, in);
    bind(&c, 1, w.bytes, w.size);
    if (halved) bind(&c, 2, h.h, (size_t)n * (size_t)in * 2), bind(&c, 3, h.scale, (size_t)n * 4);
    else bind(&c, 2, x, (size_t)n * (size_t)in * 4);
    bind(&c, halved ? 4 : 3, y, ((size_t)(n - 1) * (size_t)ldy + (size_t)out) * 4);
    if (tiles) {
        c.d.constants[0] = n % 32 || out % 64 || in % 32;
        run(&c, up(n, 32), up(out, 64), 1, 128);
    } else {
        run(&c, up(out, 8), n, 1, 128);
    }
    for (int t = 0; t < n; t++) {
        for (int r = 0; r < out; r++) {
            double e = y[t * ldy + r] - want[t * out + r];
            num += e * e, den += want[t * out + r] * want[t * out + r];
        }
        for (int r = out; r < ldy; r++) CHECK_MSG(y[t * ldy + r] == before[t * ldy + r], "%s wrote column %d of %d", name, r, out);
    }
    const double limit = tiles ? types[which].limit : vector_limit;
    CHECK_MSG(num <= limit * den, "%s n %d in %d out %d add %d sd %g: nmse %.2e (limit %.0e)", name, n, in, out, add, (double)sd, num / den, limit);
    free(want), free(x), free(y), free(before), free(h.h), free(h.scale), free_weights(&w);
}

static int row_of(int which) { return ds_types[types[which].id].block; }

static void test_gemm_full_tiles(void)
{
    for (int i = 0; i < N_TYPES; i++) one_product("gemm", i, 64, 512, 128, i & 1, 1);
}
static void test_gemm_edges(void)
{
    for (int i = 0; i < N_TYPES; i++) {
        const int block = row_of(i);
        const int shape[][2] = { { 1, 1 }, { 31, 63 }, { 33, 65 }, { 7, 130 } };
        for (int s = 0; s < 4; s++) one_product("gemm", i, shape[s][0], block == 1 ? 37 + 24 * s : block * (1 + s % 2), shape[s][1], s & 1, 1);
    }
}
/* 1e5 times a normal value is beyond half for most rows; 1e-20 is below it. */
static void test_gemm_range(void)
{
    for (int i = 0; i < N_TYPES; i++) {
        one_product("gemm", i, 33, row_of(i) == 1 ? 64 : row_of(i), 64, 0, 1e5f);
        one_product("gemm", i, 5, row_of(i) == 1 ? 64 : row_of(i), 64, 0, 1e-20f);
    }
}
static void test_gemv(void)
{
    for (int i = 0; i < N_TYPES; i++) {
        const int block = row_of(i);
        one_product("gemv", i, 1, 1024, 24, 0, 1);
        one_product("gemv", i, 3, block == 1 ? 77 : block * 3, 13, 1, 1e5f);
        one_product("gemv", i, 1, block == 1 ? 1 : block, 1, 0, 1);
    }
}

/* One token of NaN or infinities leaves its neighbours in the tile alone. */
static void test_gemm_neighbours(void)
{
    const int n = 32, in = 64, out = 64;
    struct ds_rng rng;
    ds_rng_seed(&rng, 3);
    struct weights w = make_weights(DS_T_Q8_0, (size_t)(in * out), 1);
    float *x = normals(&rng, (size_t)(n * in), 1), *y = poisoned((size_t)(n * out));
    x[5 * in + 3] = NAN, x[9 * in] = INFINITY;
    for (int i = 0; i < in; i++) x[11 * in + i] = 0;
    struct halves h = act_half(x, n, in);
    CHECK(h.scale[5] == 1 && h.scale[9] == 1 && h.scale[11] == 1);
    const struct ds_metal_gemm a = { .n = n, .in = in, .out = out, .ldy = out };
    struct call c = call_of("gemm_q8_0", &a, sizeof a);
    bind(&c, 1, w.bytes, w.size), bind(&c, 2, h.h, (size_t)(n * in) * 2), bind(&c, 3, h.scale, (size_t)n * 4), bind(&c, 4, y, (size_t)(n * out) * 4);
    run(&c, 1, 1, 1, 128);
    int spoiled = 0;
    for (int i = 0; i < n * out; i++) spoiled += (i / out != 5 && i / out != 9) && !isfinite(y[i]);
    CHECK_MSG(spoiled == 0, "%d", spoiled);
    free(x), free(y), free(h.h), free(h.scale), free_weights(&w);
}

static const struct ds_test tests[] = {
    { "metal_gemm_full_tiles", test_gemm_full_tiles }, { "metal_gemm_edges", test_gemm_edges }, { "metal_gemm_range", test_gemm_range },
    { "metal_gemm_neighbours", test_gemm_neighbours }, { "metal_gemv", test_gemv },
};
DS_TEST_MAIN(tests)
