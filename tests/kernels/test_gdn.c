/* The gated delta rule: acceptance vectors, both forms at every ISA level against a double-precision
 * recurrence, and the properties that the engine builds on (splits, strips, extreme gates). */
#include "levels.h"

/* --- a problem with one key head and R value heads --- */

struct problem {
    int n, dk, dv, R;
    float *q, *k, *v, *g, *beta, *S0;      /* [n][dk] x 2, [R][n][dv], [n][R] x 2, [R][dk][dv] */
    float *o, *S;                          /* [n][R][dv], [R][dk][dv]: of the last run */
    float *want_o, *want_S;
    float *scratch; size_t scratch_n;
};

static size_t sz(int a, int b, int c) { return (size_t)a * (size_t)b * (size_t)c; }

static void unit(float *x, int n, double scale)
{
    double s = 0;
    for (int i = 0; i < n; i++) s += (double)x[i] * x[i];
    for (int i = 0; i < n; i++) x[i] = (float)(s > 0 ? x[i] * scale / sqrt(s) : 0);
}

/* The equations in double, over the problem's f32 inputs. */
static void recurrence(struct problem *p)
{
    double *S = malloc(sz(p->dk, p->dv, 1) * sizeof *S);
    for (int r = 0; r < p->R; r++) {
        for (size_t i = 0; i < sz(p->dk, p->dv, 1); i++) S[i] = p->S0[sz(r, p->dk, p->dv) + i];
        for (int t = 0; t < p->n; t++) {
            double alpha = exp((double)p->g[t * p->R + r]), beta = p->beta[t * p->R + r];
            for (int j = 0; j < p->dv; j++) {
                double m = 0, o = 0;
                for (int i = 0; i < p->dk; i++) m += (S[i * p->dv + j] *= alpha) * p->k[t * p->dk + i];
                double d = beta * (p->v[(r * p->n + t) * p->dv + j] - m);
                for (int i = 0; i < p->dk; i++) o += (S[i * p->dv + j] += p->k[t * p->dk + i] * d) * p->q[t * p->dk + i];
                p->want_o[(t * p->R + r) * p->dv + j] = (float)o;
            }
        }
        for (size_t i = 0; i < sz(p->dk, p->dv, 1); i++) p->want_S[sz(r, p->dk, p->dv) + i] = (float)S[i];
    }
    free(S);
}

static struct problem problem_new(struct ds_rng *rng, int n, int dk, int dv, int R)
{
    struct problem p = { .n = n, .dk = dk, .dv = dv, .R = R };
    p.q = normals(rng, sz(n, dk, 1), 1);
    p.k = normals(rng, sz(n, dk, 1), 1);
    p.v = normals(rng, sz(R, n, dv), 1);
    p.g = normals(rng, sz(n, R, 1), 1);
    p.beta = normals(rng, sz(n, R, 1), 1);
    p.S0 = normals(rng, sz(R, dk, dv), 0.3f);
    for (int t = 0; t < n; t++) unit(p.q + t * dk, dk, 1 / sqrt(dk)), unit(p.k + t * dk, dk, 1);
    for (int i = 0; i < n * R; i++) p.g[i] = -0.05f * fabsf(p.g[i]), p.beta[i] = 1 / (1 + expf(-p.beta[i]));
    p.o = poisoned(sz(n, R, dv));
    p.S = poisoned(sz(R, dk, dv));
    p.want_o = poisoned(sz(n, R, dv));
    p.want_S = poisoned(sz(R, dk, dv));
    return p;
}

static void problem_free(struct problem *p)
{
    drop(p->q, sz(p->n, p->dk, 1)), drop(p->k, sz(p->n, p->dk, 1)), drop(p->v, sz(p->R, p->n, p->dv));
    drop(p->g, sz(p->n, p->R, 1)), drop(p->beta, sz(p->n, p->R, 1)), drop(p->S0, sz(p->R, p->dk, p->dv));
    drop(p->o, sz(p->n, p->R, p->dv)), drop(p->S, sz(p->R, p->dk, p->dv));
    drop(p->want_o, sz(p->n, p->R, p->dv)), drop(p->want_S, sz(p->R, p->dk, p->dv));
}

enum form { SEQ, CHUNK };

/* Tokens [t0, t1) of the problem, whose token 0 stands at position `pos`, heads [r0, r1), columns [j0, j1), on p->S. */
static void run_part(struct problem *p, const struct ds_kernels *k, enum form form, int pos, int t0, int t1, int r0, int r1,
                     int j0, int j1)
{
    size_t n = k->gdn_scratch(p->dk, p->dv) / sizeof(float) + 1;
    float *scratch = poisoned(n);
    struct ds_gdn_args a = {
        .o = p->o + (t0 * p->R + r0) * p->dv, .ldo = sz(p->R, p->dv, 1), .o_step = (size_t)p->dv,
        .S = p->S + sz(r0, p->dk, p->dv), .S_step = sz(p->dk, p->dv, 1),
        .q = p->q + t0 * p->dk, .k = p->k + t0 * p->dk, .ldk = (size_t)p->dk,
        .v = p->v + sz(r0, p->n, p->dv) + t0 * p->dv, .ldv = (size_t)p->dv, .v_step = sz(p->n, p->dv, 1),
        .g = p->g + t0 * p->R + r0, .beta = p->beta + t0 * p->R + r0, .ldg = (size_t)p->R, .g_step = 1,
        .n = t1 - t0, .dk = p->dk, .dv = p->dv, .j0 = j0, .j1 = j1, .R = r1 - r0,
        .phase = (pos + t0) % DS_GDN_CHUNK, .scratch = scratch,
    };
    (form == SEQ ? k->gdn_seq : k->gdn_chunk)(&a);
    drop(scratch, n);
}

static void restart(struct problem *p)
{
    memcpy(p->S, p->S0, sz(p->R, p->dk, p->dv) * sizeof(float));
    for (size_t i = 0; i < sz(p->n, p->R, p->dv); i++) p->o[i] = NAN;
}

static void run_all(struct problem *p, const struct ds_kernels *k, enum form form, int pos)
{
    restart(p);
    run_part(p, k, form, pos, 0, p->n, 0, p->R, 0, p->dv);
}

static void check_both(struct problem *p, const struct ds_kernels *k, int pos, double limit, const char *level, const char *what)
{
    recurrence(p);
    for (int form = 0; form < 2; form++) {
        run_all(p, k, (enum form)form, pos);
        double eo = sqrt(nmse(p->o, p->want_o, sz(p->n, p->R, p->dv))), es = sqrt(nmse(p->S, p->want_S, sz(p->R, p->dk, p->dv)));
        CHECK_MSG(eo <= limit && es <= limit, "%s %s: %s n %d dk %d dv %d R %d pos %d: o off by %.2e, S by %.2e", level,
                  form ? "chunk" : "seq", what, p->n, p->dk, p->dv, p->R, pos, eo, es);
    }
}

/* --- cases --- */

/* Two tokens by hand, dk = dv = 2, S0 = I. */
static void check_values(const struct ds_kernels *kernels, const struct ds_kernels *ref, const char *level)
{
    const float half = 0.70710678f;
    const float k[4] = { 0.6f, 0.8f, 1, 0 }, q[4] = { 0.8f * half, 0.6f * half, 0, half }, v[4] = { 1, 2, 0, -1 };
    const float g[2] = { -0.6931471806f, -0.2231435513f }, beta[2] = { 0.5f, 0.25f };
    const float want_o[4] = { 0.5204305910f, 0.7551900423f, 0.1583919190f, 0.6448813844f },
                want_S[4] = { 0.426f, 0.038f, 0.224f, 0.912f };
    (void)ref;
    for (int form = 0; form < 2; form++) {
        float o[4] = { NAN, NAN, NAN, NAN }, S[4] = { 1, 0, 0, 1 };
        size_t n = kernels->gdn_scratch(2, 2) / sizeof(float) + 1;
        float *scratch = poisoned(n);
        struct ds_gdn_args a = { .o = o, .ldo = 2, .S = S, .q = q, .k = k, .ldk = 2, .v = v, .ldv = 2, .g = g, .beta = beta,
                                 .ldg = 1, .n = 2, .dk = 2, .dv = 2, .j0 = 0, .j1 = 2, .R = 1, .scratch = scratch };
        (form == SEQ ? kernels->gdn_seq : kernels->gdn_chunk)(&a);
        for (int i = 0; i < 4; i++) {
            CHECK_MSG(near(o[i], want_o[i], 1e-6), "%s: o[%d] = %.9g, want %.9g", level, i, (double)o[i], (double)want_o[i]);
            CHECK_MSG(near(S[i], want_S[i], 3e-6), "%s: S[%d] = %.9g, want %.9g", level, i, (double)S[i], (double)want_S[i]);
        }
        drop(scratch, n);
    }
}
static void test_values(void) { for_each_level(check_values); }

/* Every length up to three chunks and a bit, at every kind of phase. */
static void check_lengths(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    struct ds_rng rng;
    (void)ref;
    ds_rng_seed(&rng, 1);
    for (int n = 1; n <= 200; n++) {
        struct problem p = problem_new(&rng, n, 32, 32, 2);
        check_both(&p, k, n * 37 % 131, 2e-6, level, "lengths");
        problem_free(&p);
    }
}
static void test_lengths(void) { for_each_level(check_lengths); }

/* Sizes that are no multiple of anything, and the family's own. */
static void check_sizes(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    static const int dims[][3] = { { 1, 1, 1 },     { 2, 3, 1 },     { 5, 7, 3 },    { 16, 16, 2 }, { 16, 48, 1 },
                                   { 32, 24, 2 },   { 48, 33, 1 },   { 31, 130, 2 }, { 64, 65, 1 }, { 100, 17, 3 },
                                   { 128, 128, 1 }, { 128, 128, 3 }, { 128, 64, 2 }, { 256, 96, 1 } };
    struct ds_rng rng;
    (void)ref;
    ds_rng_seed(&rng, 2);
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        for (int n = 0; n < 2; n++) {
            struct problem p = problem_new(&rng, n ? 77 : 1, dims[i][0], dims[i][1], dims[i][2]);
            check_both(&p, k, 5, 2e-6, level, "sizes");
            problem_free(&p);
        }
    }
}
static void test_sizes(void) { for_each_level(check_sizes); }

/* Gates from "forget nothing" to "forget all", equal keys written with beta near 1, keys of zero, for every
 * length up to 200. The limit is the engine's: 1e-5 of the norm. */
static void check_extremes(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    static const float gates[] = { 0, -1e-6f, -20, -200 };
    struct ds_rng rng;
    (void)ref;
    ds_rng_seed(&rng, 3);
    for (int n = 1; n <= 200; n++) {
        struct problem p = problem_new(&rng, n, 16, 16, 2);
        for (int i = 0; i < n * p.R; i++) p.g[i] = gates[n % 5 < 4 ? n % 5 : (int)(ds_rng_u64(&rng) % 4)];
        for (int t = 0; t < n; t++) {
            bool same = n % 3 == 1 && t % 32 > 2, zero = n % 3 == 2 && t % 5 == 0;
            if (same) memcpy(p.k + t * p.dk, p.k, (size_t)p.dk * sizeof(float));
            if (zero) memset(p.k + t * p.dk, 0, (size_t)p.dk * sizeof(float));
            for (int r = 0; same && r < p.R; r++) p.beta[t * p.R + r] = 0.9999f;
        }
        check_both(&p, k, n * 11, 1e-5, level, "extremes");
        problem_free(&p);
    }
}
static void test_extremes(void) { for_each_level(check_extremes); }

/* Tokens of total decay, then tokens of next to none, which must keep their digits. */
static void check_steps(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    struct ds_rng rng;
    (void)ref;
    ds_rng_seed(&rng, 4);
    for (int at = 0; at < 40; at += 3) {
        struct problem p = problem_new(&rng, 64, 32, 32, 1);
        for (int t = 0; t < p.n; t++) p.g[t] = t <= at ? -200 : -1e-3f;
        check_both(&p, k, 0, 1e-5, level, "steps");
        recurrence(&p);
        run_all(&p, k, CHUNK, 0);
        for (int t = at; t < p.n; t++) {
            double e = sqrt(nmse(p.o + t * p.dv, p.want_o + t * p.dv, (size_t)p.dv));
            CHECK_MSG(e <= 1e-5, "%s chunk: token %d after a decay of exp(-200) at %d is off by %.2e", level, t, at, e);
        }
        problem_free(&p);
    }
}
static void test_steps(void) { for_each_level(check_steps); }

/* n = 0 touches nothing. */
static void check_empty(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    float S = 3, o = 5;
    (void)ref;
    for (int form = 0; form < 2; form++) {
        struct ds_gdn_args a = { .o = &o, .S = &S, .n = 0, .dk = 1, .dv = 1, .j0 = 0, .j1 = 1, .R = 1 };
        (form == SEQ ? k->gdn_seq : k->gdn_chunk)(&a);
        CHECK_MSG(S == 3 && o == 5, "%s", level);
    }
}
static void test_empty(void) { for_each_level(check_empty); }

/* Heads and columns may be handed out in any cut, with the same bits. */
static void check_strips(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    struct ds_rng rng;
    (void)ref;
    ds_rng_seed(&rng, 5);
    struct problem p = problem_new(&rng, 75, 40, 100, 3);
    size_t no = sz(p.n, p.R, p.dv), ns = sz(p.R, p.dk, p.dv);
    for (int form = 0; form < 2; form++) {
        run_all(&p, k, (enum form)form, 9);
        memcpy(p.want_o, p.o, no * sizeof(float)), memcpy(p.want_S, p.S, ns * sizeof(float));
        for (int cut = 1; cut < p.dv; cut += 7) {
            restart(&p);
            run_part(&p, k, (enum form)form, 9, 0, p.n, 0, 1, 0, p.dv);
            run_part(&p, k, (enum form)form, 9, 0, p.n, 1, 3, 0, cut);
            run_part(&p, k, (enum form)form, 9, 0, p.n, 1, 3, cut, p.dv);
            CHECK_MSG(!memcmp(p.o, p.want_o, no * sizeof(float)) && !memcmp(p.S, p.want_S, ns * sizeof(float)),
                      "%s form %d cut %d", level, form, cut);
        }
    }
    problem_free(&p);
}
static void test_strips(void) { for_each_level(check_strips); }

/* Prefill in parts: the sequential form has the same bits for any split, the chunkwise one for splits at
 * absolute multiples of DS_GDN_CHUNK, and stays within rounding for others. */
static void check_splits(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    struct ds_rng rng;
    (void)ref;
    ds_rng_seed(&rng, 6);
    struct problem p = problem_new(&rng, 200, 32, 32, 2);
    size_t no = sz(p.n, p.R, p.dv), ns = sz(p.R, p.dk, p.dv);
    for (int pos = 0; pos < 130; pos += 43) {
        for (int form = 0; form < 2; form++) {
            run_all(&p, k, (enum form)form, pos);
            memcpy(p.want_o, p.o, no * sizeof(float)), memcpy(p.want_S, p.S, ns * sizeof(float));
            for (int step = 1; step < 200; step += step < 20 ? 1 : 13) {
                restart(&p);
                for (int t = 0; t < p.n; t += step)
                    run_part(&p, k, (enum form)form, pos, t, t + step < p.n ? t + step : p.n, 0, p.R, 0, p.dv);
                bool same = !memcmp(p.o, p.want_o, no * sizeof(float)) && !memcmp(p.S, p.want_S, ns * sizeof(float));
                if (form == SEQ) CHECK_MSG(same, "%s seq: steps of %d", level, step);
                else
                    CHECK_MSG(nmse(p.o, p.want_o, no) < 1e-11 && nmse(p.S, p.want_S, ns) < 1e-11, "%s chunk: steps of %d", level,
                              step);
            }
            int cut = DS_GDN_CHUNK - pos % DS_GDN_CHUNK + DS_GDN_CHUNK;
            restart(&p);
            run_part(&p, k, (enum form)form, pos, 0, cut, 0, p.R, 0, p.dv);
            run_part(&p, k, (enum form)form, pos, cut, p.n, 0, p.R, 0, p.dv);
            CHECK_MSG(!memcmp(p.o, p.want_o, no * sizeof(float)) && !memcmp(p.S, p.want_S, ns * sizeof(float)),
                      "%s form %d: cut at %d", level, form, pos + cut);
        }
    }
    problem_free(&p);
}
static void test_splits(void) { for_each_level(check_splits); }

static const struct ds_test tests[] = {
    { "gdn.values", test_values },     { "gdn.lengths", test_lengths }, { "gdn.sizes", test_sizes },
    { "gdn.extremes", test_extremes }, { "gdn.steps", test_steps },     { "gdn.empty", test_empty },
    { "gdn.strips", test_strips },     { "gdn.splits", test_splits },
};
DS_TEST_MAIN(tests)
