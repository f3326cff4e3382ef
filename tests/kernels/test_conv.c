/* Causal depthwise conv and SiLU: the acceptance vector, and every ISA level against double arithmetic. */
#include "levels.h"

static void check_values(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    const float hist[3] = { 1, 2, 3 }, u = 4, w[4] = { 0.1f, 0.2f, 0.3f, 0.4f };
    float f = NAN;
    (void)ref;
    k->conv_silu(&f, 1, &u, 1, hist, 1, w, 4, 1, 0, 1);
    CHECK_MSG(near(f, 2.8577223805, 1e-6), "%s: %.9g", level, (double)f);
}
static void test_values(void) { for_each_level(check_values); }

/* Channels c0..c1-1 of `channels`, n tokens, kernel size K; outside the channels nothing is written. */
static void one_case(const struct ds_kernels *k, struct ds_rng *rng, int K, int n, int channels, int c0, int c1, const char *level)
{
    size_t nu = (size_t)n * (size_t)channels, nh = (size_t)(K - 1) * (size_t)channels, nw = (size_t)K * (size_t)channels;
    int ldf = c1 - c0 + 5;
    float *u = normals(rng, nu, 2), *hist = normals(rng, nh, 2), *w = normals(rng, nw, 1), *f = poisoned((size_t)(n * ldf));
    double num = 0, den = 0;
    k->conv_silu(f, (size_t)ldf, u, (size_t)channels, hist, (size_t)channels, w, K, n, c0, c1);
    for (int t = 0; t < n; t++) {
        for (int c = c0; c < c1; c++) {
            double s = 0;
            for (int j = 0; j < K; j++) {
                int row = t + j - (K - 1);
                s += (double)w[c * K + j] * (row < 0 ? hist[(row + K - 1) * channels + c] : u[row * channels + c]);
            }
            s = s / (1 + exp(-s));
            num += (f[t * ldf + c - c0] - s) * (f[t * ldf + c - c0] - s);
            den += s * s;
        }
        for (int c = c1 - c0; c < ldf; c++) CHECK_MSG(isnan(f[t * ldf + c]), "%s: wrote past channel %d", level, c1);
    }
    CHECK_MSG(num <= 1e-13 * den, "%s: K %d n %d channels %d..%d: nmse %.2e (limit 1e-13: f32 rounding)", level, K, n, c0, c1, num / den);
    drop(u, nu), drop(hist, nh), drop(w, nw), drop(f, (size_t)(n * ldf));
}

static void check_shapes(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    struct ds_rng rng;
    (void)ref;
    ds_rng_seed(&rng, 1);
    for (int n = 1; n < 8; n++)
        for (int width = 1; width < 40; width += 3) one_case(k, &rng, 4, n, 64, n, n + width, level);
    for (int K = 1; K < 8; K++) one_case(k, &rng, K, 9, 50, 1, 50, level);
    one_case(k, &rng, 4, 70, 384, 128, 256, level);
}
static void test_shapes(void) { for_each_level(check_shapes); }

static const struct ds_test tests[] = { { "conv.values", test_values }, { "conv.shapes", test_shapes } };
DS_TEST_MAIN(tests)
