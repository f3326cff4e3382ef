/* Gated DeltaNet on the executor: conv, norms and gates; both forms of the recurrence, outputs and state, any cut of a step. */
#include "shader.h"

#include "kernels/kernels_variants.h"

static const double prep_limit = 1e-12;        /* nmse: float arithmetic */
/* Against the token by token form in double. Keys of unit length, decays from 1 to exp(-400). Reached: about 1e-13. */
static const double gdn_limit = 1e-11;

static struct ds_rng rng;

static double against(const float *y, const float *ref, size_t n)
{
    double *want = malloc(sizeof *want * (n + 1)), e;
    for (size_t i = 0; i < n; i++) want[i] = ref[i];
    e = nmse(y, want, n);
    free(want);
    return e;
}

/* --- prep --- */

static void prep_case(int n, int n_kh, int n_vh, int dk, int dv, int conv_k, float sd)
{
    const size_t C = (size_t)(2 * n_kh * dk + n_vh * dv), N = (size_t)n, kq = (size_t)(n * n_kh * dk), nv = (size_t)(n * n_vh * dv), ng = (size_t)(n * n_vh);
    float *conv = normals(&rng, (size_t)(conv_k - 1) * C + 1, sd), *u = normals(&rng, N * C, sd), *w = normals(&rng, C * (size_t)conv_k, 0.5f);
    float *ga = normals(&rng, ng, 8), *gb = normals(&rng, ng, 8), *A = normals(&rng, (size_t)n_vh, 1), *dt = normals(&rng, (size_t)n_vh, 1);
    float *q = poisoned(kq), *k = poisoned(kq), *v = poisoned(nv), *g = poisoned(ng), *beta = poisoned(ng);
    float *f = poisoned(N * C), *rq = poisoned(kq), *rk = poisoned(kq), *rv = poisoned(nv), *rg = poisoned(ng), *rb = poisoned(ng);
    for (int h = 0; h < n_vh; h++) A[h] = -expf(A[h]);
    const struct ds_metal_gdn a = { .n = n, .n_kh = n_kh, .n_vh = n_vh, .dk = dk, .dv = dv, .conv_k = conv_k, .eps = 1e-6f };
    struct call c = call_of("gdn_prep", &a, sizeof a);
    bind(&c, 1, conv, (size_t)(conv_k - 1) * C * 4), bind(&c, 2, u, N * C * 4), bind(&c, 3, ga, ng * 4), bind(&c, 4, gb, ng * 4);
    bind(&c, 5, w, C * (size_t)conv_k * 4), bind(&c, 6, A, (size_t)n_vh * 4), bind(&c, 7, dt, (size_t)n_vh * 4), bind(&c, 8, q, kq * 4);
    bind(&c, 9, k, kq * 4), bind(&c, 10, v, nv * 4), bind(&c, 11, g, ng * 4), bind(&c, 12, beta, ng * 4);
    run(&c, 2 * n_kh + n_vh, n, 1, 128);
    ds_conv_silu_ref(f, C, u, C, conv, C, w, conv_k, n, 0, (int)C);
    for (int t = 0; t < n; t++) {
        const float *row = f + (size_t)t * C;
        memcpy(rq + t * n_kh * dk, row, (size_t)(n_kh * dk) * 4), memcpy(rk + t * n_kh * dk, row + n_kh * dk, (size_t)(n_kh * dk) * 4);
        memcpy(rv + t * n_vh * dv, row + 2 * n_kh * dk, (size_t)(n_vh * dv) * 4);
        ds_gdn_gates_ref(rg + t * n_vh, rb + t * n_vh, ga + t * n_vh, gb + t * n_vh, A, dt, n_vh);
    }
    for (int h = 0; h < n * n_kh; h++)
        ds_l2_norm_ref(rq + h * dk, dk, a.eps, 1 / sqrtf((float)dk)), ds_l2_norm_ref(rk + h * dk, dk, a.eps, 1);
    const double e[5] = { against(q, rq, kq), against(k, rk, kq), against(v, rv, nv), against(g, rg, ng), against(beta, rb, ng) };
    for (int i = 0; i < 5; i++)
        CHECK_MSG(e[i] <= prep_limit, "n %d heads %d/%d dk %d dv %d K %d sd %g: output %d: nmse %.2e", n, n_kh, n_vh, dk, dv, conv_k, (double)sd, i, e[i]);
    free(conv), free(u), free(w), free(ga), free(gb), free(A), free(dt), free(q), free(k), free(v), free(g), free(beta);
    free(f), free(rq), free(rk), free(rv), free(rg), free(rb);
}
static void test_gdn_prep(void)
{
    prep_case(1, 1, 1, 128, 128, 4, 1);
    prep_case(5, 2, 6, 128, 128, 4, 1);
    prep_case(2, 1, 3, 16, 24, 4, 1);
    prep_case(3, 2, 2, 200, 40, 2, 1);
    prep_case(3, 1, 1, 256, 300, 4, 1e-8f);    /* norms below eps */
}

/* softplus where a plain log(1 + exp(x)) has lost its digits, and sigmoids of large arguments. */
static void test_gdn_gates(void)
{
    enum { N = 14 };
    const float at[N] = { -104, -90, -40, -20, -17, -10, -1, 0, 1, 10, 20, 40, 90, 3e38f };
    float a_[N], b_[N], A[N], dt[N], g[N], beta[N], u[N * 3] = { 0 }, conv[1] = { 0 }, w[N + 2] = { 0 }, q[1], k[1], v[N];
    for (int i = 0; i < N; i++) a_[i] = b_[i] = at[i], A[i] = -1, dt[i] = 0;
    const struct ds_metal_gdn a = { .n = 1, .n_kh = 1, .n_vh = N, .dk = 1, .dv = 1, .conv_k = 1, .eps = 1e-6f };
    struct call c = call_of("gdn_prep", &a, sizeof a);
    bind(&c, 1, conv, 4), bind(&c, 2, u, (N + 2) * 4), bind(&c, 3, a_, sizeof a_), bind(&c, 4, b_, sizeof b_), bind(&c, 5, w, sizeof w);
    bind(&c, 6, A, sizeof A), bind(&c, 7, dt, sizeof dt), bind(&c, 8, q, 4), bind(&c, 9, k, 4), bind(&c, 10, v, sizeof v);
    bind(&c, 11, g, sizeof g), bind(&c, 12, beta, sizeof beta);
    run(&c, 2 + N, 1, 1, 128);
    for (int i = 0; i < N; i++) {
        double x = at[i], sp = x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)), sig = 1 / (1 + exp(-x));
        CHECK_MSG(fabs(-g[i] - sp) <= 1e-6 * sp + 1e-38, "softplus(%g): %.9g, expected %.9g", x, (double)-g[i], sp);
        CHECK_MSG(fabs(beta[i] - sig) <= 1e-6 * sig + 1e-38, "sigmoid(%g): %.9g, expected %.9g", x, (double)beta[i], sig);
    }
}

static void test_conv_tail(void)
{
    const int K = 4, C = 2 * 16 + 300;
    for (int n = 1; n <= 5; n++) {
        float *conv = normals(&rng, (size_t)(3 * C), 1), *u = normals(&rng, (size_t)(n * C), 1), *dst = poisoned((size_t)(3 * C));
        const struct ds_metal_gdn a = { .n = n, .n_kh = 1, .n_vh = 1, .dk = 16, .dv = 300, .conv_k = K };
        struct call c = call_of("conv_tail", &a, sizeof a);
        bind(&c, 1, conv, (size_t)(3 * C) * 4), bind(&c, 2, u, (size_t)(n * C) * 4), bind(&c, 3, dst, (size_t)(3 * C) * 4);
        run(&c, up(C, 256), 1, 1, 256);
        int bad = 0;
        for (int r = 0; r < 3; r++)
            for (int i = 0; i < C; i++) bad += dst[r * C + i] != (n + r < 3 ? conv[(n + r) * C + i] : u[(n + r - 3) * C + i]);
        CHECK_MSG(bad == 0, "n %d: %d wrong", n, bad);
        free(conv), free(u), free(dst);
    }
}

/* --- the recurrence --- */

enum keys { RANDOM, EQUAL, ALTERNATING };
struct inputs { int n, n_kh, n_vh, dk, dv; float *q, *k, *v, *g, *beta, *S; };

static size_t state_size(const struct inputs *x) { return (size_t)(x->n_vh * x->dk * x->dv); }

/* hard: decays from none to exp(-400), beta up to 1, and keys that repeat, so that the solve has to cancel. */
static struct inputs make_inputs(int n, int n_kh, int n_vh, int dk, int dv, bool hard, enum keys kind)
{
    struct inputs x = { n, n_kh, n_vh, dk, dv, normals(&rng, (size_t)(n * n_kh * dk), 1), normals(&rng, (size_t)(n * n_kh * dk), 1),
                        normals(&rng, (size_t)(n * n_vh * dv), 1), poisoned((size_t)(n * n_vh)), poisoned((size_t)(n * n_vh)),
                        normals(&rng, (size_t)(n_vh * dk * dv), 1) };
    static const float decays[] = { -1e-3f, -0.1f, -5, -40, -400, 0, -1e-7f };
    for (int i = 0; i < n * n_kh; i++) {
        if (kind != RANDOM && i >= n_kh)
            for (int d = 0; d < dk; d++) x.k[i * dk + d] = x.k[(i % n_kh) * dk + d] * (kind == ALTERNATING && i / n_kh % 2 ? -1.0f : 1.0f);
        ds_l2_norm_ref(x.k + i * dk, dk, 1e-6f, 1), ds_l2_norm_ref(x.q + i * dk, dk, 1e-6f, 1 / sqrtf((float)dk));
    }
    for (int i = 0; i < n * n_vh; i++) {
        x.g[i] = hard ? decays[ds_rng_u64(&rng) % 7] : -0.05f * fabsf(ds_rng_normal(&rng));
        x.beta[i] = kind != RANDOM ? 1 : ds_rng_uniform(&rng);
    }
    return x;
}
static void free_inputs(struct inputs *x) { free(x->q), free(x->k), free(x->v), free(x->g), free(x->beta), free(x->S); }

/* Token by token in double, from x->S. */
static void recurrence(const struct inputs *x, double *o, double *S)
{
    for (size_t i = 0; i < state_size(x); i++) S[i] = x->S[i];
    for (int t = 0; t < x->n; t++) {
        for (int h = 0; h < x->n_vh; h++) {
            const float *q = x->q + (t * x->n_kh + h % x->n_kh) * x->dk, *k = x->k + (t * x->n_kh + h % x->n_kh) * x->dk;
            double e = exp(x->g[t * x->n_vh + h]), b = x->beta[t * x->n_vh + h];
            for (int j = 0; j < x->dv; j++) {
                double *s = S + (size_t)h * (size_t)(x->dk * x->dv) + j, m = 0, out = 0;
                for (int i = 0; i < x->dk; i++) s[i * x->dv] *= e, m += s[i * x->dv] * k[i];
                double d = b * (x->v[(t * x->n_vh + h) * x->dv + j] - m);
                for (int i = 0; i < x->dk; i++) s[i * x->dv] += k[i] * d, out += s[i * x->dv] * q[i];
                o[(t * x->n_vh + h) * x->dv + j] = out;
            }
        }
    }
}

/* Runs [0, n) in the given cuts; with a cut the state goes from one call to the next in place. */
static void gdn_case(const char *kernel, const struct inputs *x, int phase, const int *cuts, int n_cuts, const char *what)
{
    const size_t no = (size_t)(x->n * x->n_vh * x->dv), ns = state_size(x), kq = (size_t)(x->n * x->n_kh * x->dk) * 4, gs = (size_t)(x->n * x->n_vh) * 4;
    float *o = poisoned(no), *S = poisoned(ns);
    double *wo = malloc(no * sizeof *wo), *ws = malloc(ns * sizeof *ws);
    recurrence(x, wo, ws);
    for (int i = 0, t = 0; i <= n_cuts; i++) {
        const int end = i < n_cuts ? cuts[i] : x->n;
        const struct ds_metal_gdn a = { .n = x->n, .n_kh = x->n_kh, .n_vh = x->n_vh, .dk = x->dk, .dv = x->dv, .t0 = t, .t1 = end, .phase = phase };
        struct call c = call_of(kernel, &a, sizeof a);
        bind(&c, 1, x->q, kq), bind(&c, 2, x->k, kq), bind(&c, 3, x->v, no * 4), bind(&c, 4, x->g, gs), bind(&c, 5, x->beta, gs);
        bind(&c, 6, i ? S : x->S, ns * 4), bind(&c, 7, S, ns * 4), bind(&c, 8, o, no * 4);
        run(&c, up(x->dv, 32), x->n_vh, 1, 128);
        t = end;
    }
    const double eo = nmse(o, wo, no), es = nmse(S, ws, ns);
    CHECK_MSG(eo <= gdn_limit && es <= gdn_limit, "%s, %s, n %d phase %d heads %d/%d: nmse of outputs %.2e, of the state %.2e (limit %.0e)", kernel, what,
              x->n, phase, x->n_kh, x->n_vh, eo, es, gdn_limit);
    free(o), free(S), free(wo), free(ws);
}

static void both(const char *kernel)
{
    static const int cuts[] = { 1, 40, 41 };
    static const struct { int n, phase, kh, vh; bool hard; enum keys kind; int n_cuts; const char *what; } cases[] = {
        { 1, 0, 1, 1, false, RANDOM, 0, "one token" },      { 31, 0, 1, 1, false, RANDOM, 0, "short" },
        { 32, 0, 1, 3, false, RANDOM, 0, "three heads a key" }, { 33, 0, 2, 4, true, RANDOM, 0, "hard decays" },
        { 70, 41, 1, 2, true, RANDOM, 3, "cuts" },          { 65, 63, 1, 1, true, EQUAL, 0, "one key" },
        { 64, 0, 1, 1, false, EQUAL, 0, "one key, little decay" }, { 64, 5, 1, 1, false, ALTERNATING, 0, "a key and its negative" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct inputs x = make_inputs(cases[i].n, cases[i].kh, cases[i].vh, 128, i == 2 ? 32 : 64, cases[i].hard, cases[i].kind);
        gdn_case(kernel, &x, cases[i].phase, cuts, cases[i].n_cuts, cases[i].what);
        free_inputs(&x);
    }
}
static void test_gdn_seq(void)
{
    both("gdn_seq");
    const int shape[][3] = { { 16, 16, 9 }, { 48, 200, 3 }, { 256, 32, 11 }, { 130, 33, 8 } };
    for (int i = 0; i < 4; i++) {
        struct inputs x = make_inputs(shape[i][2], 1, 2, shape[i][0], shape[i][1], true, RANDOM);
        gdn_case("gdn_seq", &x, 0, NULL, 0, "other head sizes");
        free_inputs(&x);
    }
}
static void test_gdn_chunk(void) { both("gdn_chunk"); }

static const struct ds_test tests[] = {
    { "metal_gdn_prep", test_gdn_prep }, { "metal_gdn_gates", test_gdn_gates }, { "metal_conv_tail", test_conv_tail },
    { "metal_gdn_seq", test_gdn_seq }, { "metal_gdn_chunk", test_gdn_chunk },
};
int main(int argc, char **argv)
{
    ds_rng_seed(&rng, 5);
    return ds_test_main(tests, (int)(sizeof tests / sizeof *tests), argc, argv);
}
