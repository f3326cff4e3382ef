/* The gated delta rule: acceptance vectors, both forms at every ISA level against the reference. */
#include "levels.h"

/* Two tokens by hand, dk = dv = 2, S0 = I (docs/math.md). */
static void check_values(const struct ds_kernels *kernels, const struct ds_kernels *ref, const char *level)
{
    const float half = 0.70710678f;
    const float k[4] = { 0.6f, 0.8f, 1, 0 }, q[4] = { 0.8f * half, 0.6f * half, 0, half }, v[4] = { 1, 2, 0, -1 };
    const float g[2] = { -0.6931471806f, -0.2231435513f }, beta[2] = { 0.5f, 0.25f };
    const float want_o[4] = { 0.5204305910f, 0.7551900423f, 0.1583919190f, 0.6448813844f }, want_S[4] = { 0.426f, 0.038f, 0.224f, 0.912f };
    (void)ref;
    for (int chunk = 0; chunk < 2; chunk++) {
        float o[4] = { NAN, NAN, NAN, NAN }, S[4] = { 1, 0, 0, 1 };
        size_t bytes = kernels->gdn_scratch(2, 2) / 4 + 1;
        float *scratch = poisoned(bytes);
        struct ds_gdn_args a = { .o = o, .ldo = 2, .S = S, .q = q, .k = k, .ldk = 2, .v = v, .ldv = 2, .g = g, .beta = beta, .ldg = 1,
                                 .n = 2, .dk = 2, .dv = 2, .j0 = 0, .j1 = 2, .R = 1, .scratch = scratch };
        (chunk ? kernels->gdn_chunk : kernels->gdn_seq)(&a);
        for (int i = 0; i < 4; i++) {
            CHECK_MSG(near(o[i], want_o[i], 1e-6), "%s: o[%d] = %.9g, want %.9g", level, i, o[i], want_o[i]);
            CHECK_MSG(near(S[i], want_S[i], 3e-6), "%s: S[%d] = %.9g, want %.9g", level, i, S[i], want_S[i]);
        }
        drop(scratch, bytes);
    }
}
static void test_values(void) { for_each_level(check_values); }

static const struct ds_test tests[] = { { "gdn.values", test_values } };
DS_TEST_MAIN(tests)
