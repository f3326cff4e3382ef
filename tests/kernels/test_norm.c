/* Norms, activations, gates, RoPE and conversions: acceptance vectors (double precision), and at every ISA
 * level against double arithmetic for all lengths about the vector widths. */
#include "levels.h"

#include "quant/type.h"

enum { N_MAX = 300, GUARD = 16 };

/* --- acceptance vectors --- */

static void check_values(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    const float x[4] = { 1, 2, 3, 4 }, gain[4] = { 1, 1.5f, 0.5f, 2 };
    const float rms[4] = { 0.3651483473f, 1.0954450420f, 0.5477225210f, 2.9211867786f };
    const float gain2[4] = { 1, 0.5f, 2, 1 }, z[4] = { 0, 1, -1, 2 };
    const float gated[4] = { 0, 0.2669448318f, -0.5892210932f, 2.5729727788f };
    float y[4], g, beta, one = 1, act, big = 25, zero = 0;
    (void)ref;

    k->rms_norm(y, x, gain, 4, 1e-6f);
    for (int i = 0; i < 4; i++) CHECK_MSG(near(y[i], rms[i], 1e-6), "%s: %.9g, want %.9g", level, (double)y[i], (double)rms[i]);
    k->gated_norm(y, x, z, gain2, 4, 1e-6f);
    for (int i = 0; i < 4; i++)
        CHECK_MSG(near(y[i], gated[i], 1e-6), "%s: %.9g, want %.9g", level, (double)y[i], (double)gated[i]);

    float three_four[2] = { 3, 4 }, tiny[2] = { 1e-4f, 0 };
    k->l2_norm(three_four, 2, 1e-6f, 1);
    CHECK(near(three_four[0], 0.6, 1e-6) && near(three_four[1], 0.8, 1e-6));
    k->l2_norm(tiny, 2, 1e-6f, 1);
    CHECK(near(tiny[0], 1, 1e-6) && tiny[1] == 0);

    const float a = 0.5f, b = 0.3f, A = -2, dt = 0.25f;
    k->gdn_gates(&g, &beta, &a, &b, &A, &dt, 1);
    CHECK_MSG(near(g, -2.2737420122, 1e-6), "%s: g %.9g", level, (double)g);
    CHECK_MSG(near(beta, 0.5744425168, 1e-6), "%s: beta %.9g", level, (double)beta);
    CHECK(near(expf(g), 0.1029263071, 1e-6));
    k->gdn_gates(&g, &beta, &big, &b, &one, &zero, 1);
    CHECK_MSG(g == 25, "%s: softplus(25) = %.9g", level, (double)g);

    const float gate = 3;
    k->swiglu(&act, &gate, &one, 1);
    CHECK_MSG(near(act, 2.8577223805, 1e-6), "%s: silu(3) = %.9g", level, (double)act);

    float head[6] = { 1, 0, 0, 0, 7, 8 };
    const float cosines[2] = { 0.5403023059f, 0.8229020806f }, sines[2] = { 0.8414709848f, 0.5681832150f };
    k->rope(head, cosines, sines, 4);
    CHECK(near(head[0], 0.5403023, 1e-6) && near(head[2], 0.8414710, 1e-6) && head[4] == 7 && head[5] == 8);
}
static void test_values(void) { for_each_level(check_values); }

/* --- exp and its kin over their whole range --- */

/* Relative error of sigmoid, silu and softplus against double; the exponential inside is v_exp of -|x|. */
static void check_functions(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    enum { LIMIT = 4 };      /* in units of 2^-24 relative, plus the spacing of denormals */
    double worst[3] = { 0 };
    (void)ref;
    for (double x = -110; x <= 110; x += 0.0037) {
        float in = (float)x, one = 1, zero = 0, got[3] = { 1 }, beta;
        double e = exp(-fabs((double)in));
        double want[3] = { (in < 0 ? e : 1) / (1 + e), in * (in < 0 ? e : 1) / (1 + e), (in > 0 ? in : 0) + log1p(e) };
        k->gate_mul(&got[0], &in, 1);
        k->swiglu(&got[1], &in, &one, 1);
        k->gdn_gates(&got[2], &beta, &in, &in, &one, &zero, 1);
        for (int f = 0; f < 3; f++) {
            double err = fabs(got[f] - want[f]) / (fabs(want[f]) * 0x1p-24 + (f == 1 ? fabs(x) : 1) * 0x1p-149);
            if (!(err <= worst[f])) worst[f] = err;
        }
    }
    for (int f = 0; f < 3; f++) CHECK_MSG(worst[f] <= LIMIT, "%s: function %d is off by %.2f half ulps", level, f, worst[f]);
}
static void test_functions(void) { for_each_level(check_functions); }

static void check_special(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    const float in[4] = { INFINITY, -INFINITY, NAN, -0.0f }, one[4] = { 1, 1, 1, 1 }, zero[4] = { 0 };
    float gate[4] = { 1, 1, 1, 1 }, act[4], g[4], beta[4];
    (void)ref;
    k->gate_mul(gate, in, 4);
    CHECK_MSG(gate[0] == 1 && gate[1] == 0 && isnan(gate[2]) && gate[3] == 0.5f, "%s: sigmoid", level);
    k->swiglu(act, in, one, 4);
    CHECK_MSG(act[0] == INFINITY && isnan(act[2]) && act[3] == 0, "%s: silu", level);
    k->gdn_gates(g, beta, in, in, one, zero, 4);
    CHECK_MSG(g[0] == INFINITY && g[1] == 0 && isnan(g[2]) && isnan(beta[2]), "%s: softplus", level);
}
static void test_special(void) { for_each_level(check_special); }

/* --- every length, with guards behind the output --- */

static void check_guard(const float *y, int n, const char *level, const char *what)
{
    for (int i = 0; i < GUARD; i++) CHECK_MSG(isnan(y[n + i]), "%s %s: wrote past %d values", level, what, n);
}

static void check_close(const float *got, const double *want, int n, const char *level, const char *what)
{
    double num = 0, den = 0;
    for (int i = 0; i < n; i++) {
        CHECK_MSG(isfinite(got[i]), "%s %s: value %d of %d is not finite", level, what, i, n);
        num += (got[i] - want[i]) * (got[i] - want[i]);
        den += want[i] * want[i];
    }
    CHECK_MSG(num <= 1e-11 * den, "%s %s: n %d, nmse %.2e (limit 1e-11: f32 rounding, one cancellation)", level, what, n,
              num / den);
    check_guard(got, n, level, what);
}

static float *fill_nan(float *y) { for (int i = 0; i < N_MAX + GUARD; i++) y[i] = NAN; return y; }

static void check_lengths(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    struct ds_rng rng;
    double want[N_MAX], want2[N_MAX];
    float y[N_MAX + GUARD], y2[N_MAX + GUARD];
    (void)ref;
    ds_rng_seed(&rng, 1);
    for (int n = 1; n <= N_MAX; n += n < 70 ? 1 : 23) {
        float *x = normals(&rng, (size_t)n, 3), *z = normals(&rng, (size_t)n, 3), *gain = normals(&rng, (size_t)n, 1),
              *w = normals(&rng, (size_t)n, 1);
        double s = 0, eps = 1e-6f;
        for (int i = 0; i < n; i++) s += (double)x[i] * x[i];
        double r = 1 / sqrt(s / n + eps), silu;

        for (int i = 0; i < n; i++) want[i] = x[i] * r * gain[i];
        k->rms_norm(fill_nan(y), x, gain, n, 1e-6f);
        check_close(y, want, n, level, "rms_norm");
        memcpy(fill_nan(y), x, (size_t)n * sizeof *y);
        k->rms_norm(y, y, gain, n, 1e-6f);
        check_close(y, want, n, level, "rms_norm in place");

        for (int i = 0; i < n; i++) silu = z[i] / (1 + exp(-(double)z[i])), want[i] *= silu;
        k->gated_norm(fill_nan(y), x, z, gain, n, 1e-6f);
        check_close(y, want, n, level, "gated_norm");

        for (int i = 0; i < n; i++) want[i] = z[i] / (1 + exp(-(double)z[i])) * x[i];
        k->swiglu(fill_nan(y), z, x, n);
        check_close(y, want, n, level, "swiglu");

        for (int i = 0; i < n; i++) want[i] = x[i] / (1 + exp(-(double)z[i]));
        memcpy(fill_nan(y), x, (size_t)n * sizeof *y);
        k->gate_mul(y, z, n);
        check_close(y, want, n, level, "gate_mul");

        for (int i = 0; i < n; i++) want[i] = x[i] + -1.7f * (double)z[i];
        memcpy(fill_nan(y), x, (size_t)n * sizeof *y);
        k->axpy(y, -1.7f, z, n);
        check_close(y, want, n, level, "axpy");

        for (int i = 0; i < n; i++) want[i] = x[i] * 0.25 / sqrt(s);
        memcpy(fill_nan(y), x, (size_t)n * sizeof *y);
        k->l2_norm(y, n, 1e-6f, 0.25f);
        check_close(y, want, n, level, "l2_norm");

        for (int i = 0; i < n; i++)
            want[i] = gain[i] * log1p(exp((double)(x[i] + w[i]))), want2[i] = 1 / (1 + exp(-(double)z[i]));
        k->gdn_gates(fill_nan(y), fill_nan(y2), x, z, gain, w, n);
        check_close(y, want, n, level, "gates g");
        check_close(y2, want2, n, level, "gates beta");

        if (n % 2 == 0) {
            int half = n / 2;
            for (int j = 0; j < half; j++) {
                want[j] = (double)x[j] * w[j] - (double)x[j + half] * gain[j];
                want[j + half] = (double)x[j + half] * w[j] + (double)x[j] * gain[j];
            }
            memcpy(fill_nan(y), x, (size_t)n * sizeof *y);
            k->rope(y, w, gain, n);
            check_close(y, want, n, level, "rope");
        }
        drop(x, (size_t)n), drop(z, (size_t)n), drop(gain, (size_t)n), drop(w, (size_t)n);
    }
}
static void test_lengths(void) { for_each_level(check_lengths); }

static void check_zeros(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    float x[40] = { 0 }, y[40], gain[40], z[40];
    (void)ref;
    for (int i = 0; i < 40; i++) gain[i] = z[i] = 1, y[i] = NAN;
    k->rms_norm(y, x, gain, 40, 1e-6f);
    for (int i = 0; i < 40; i++) CHECK_MSG(y[i] == 0, "%s", level);
    k->gated_norm(y, x, z, gain, 40, 1e-6f);
    for (int i = 0; i < 40; i++) CHECK_MSG(y[i] == 0, "%s", level);
    k->l2_norm(x, 40, 1e-6f, 1);
    for (int i = 0; i < 40; i++) CHECK_MSG(x[i] == 0, "%s", level);
    for (int i = 0; i < 40; i++) x[i] = 1e15f;       /* the square of 1e15 fits, the square of 1e20 need not */
    k->rms_norm(y, x, gain, 40, 1e-6f);
    for (int i = 0; i < 40; i++) CHECK_MSG(near(y[i], 1, 1e-6), "%s: %g", level, (double)y[i]);
}
static void test_zeros(void) { for_each_level(check_zeros); }

/* --- f16 --- */

static void check_f16(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    enum { ALL = 65536 };
    uint16_t *h = (uint16_t *)poisoned(ALL), *back = h + ALL;
    float *f = poisoned(ALL), *want = poisoned(ALL);
    for (int i = 0; i < ALL; i++) h[i] = (uint16_t)i;
    k->f16_to_f32(f, h, ALL - 3);
    ref->f16_to_f32(want, h, ALL - 3);
    for (int i = 0; i < ALL - 3; i++) CHECK_MSG(f[i] == want[i] || (isnan(f[i]) && isnan(want[i])), "%s: f16 %04x", level, i);
    CHECK(isnan(f[ALL - 3]));
    struct ds_rng rng;
    ds_rng_seed(&rng, 1);
    for (int i = 0; i < ALL; i++) {
        uint32_t bits = (uint32_t)ds_rng_u64(&rng);
        if (i % 2)
            f[i] =
                (float)ldexp((double)bits / 4294967296.0 - 0.5, (int)(bits % 44) - 24); /* the range of f16 and a little more */
        else memcpy(&f[i], &bits, 4);
    }
    k->f32_to_f16(back, f, ALL - 3);
    for (int i = 0; i < ALL - 3; i++) {
        uint16_t w = ds_f32_to_f16(f[i]);
        bool nan = (w & 0x7fff) > 0x7c00, got_nan = (back[i] & 0x7fff) > 0x7c00;
        CHECK_MSG(nan ? got_nan : back[i] == w, "%s: %g gives %04x, want %04x", level, (double)f[i], back[i], w);
    }
    drop((float *)h, ALL), drop(f, ALL), drop(want, ALL);
}
static void test_f16(void) { for_each_level(check_f16); }

static const struct ds_test tests[] = {
    { "norm.values", test_values },   { "norm.functions", test_functions }, { "norm.special", test_special },
    { "norm.lengths", test_lengths }, { "norm.zeros", test_zeros },         { "norm.f16", test_f16 },
};
DS_TEST_MAIN(tests)
