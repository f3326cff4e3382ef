/* Norms, activations and gates against the acceptance vectors of docs/model (double precision) and, at
 * every ISA level, against the reference. */
#include "levels.h"

static void check_values(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    const float x[4] = { 1, 2, 3, 4 }, gain[4] = { 1, 1.5f, 0.5f, 2 };
    const float rms[4] = { 0.3651483473f, 1.0954450420f, 0.5477225210f, 2.9211867786f };
    const float gain2[4] = { 1, 0.5f, 2, 1 }, z[4] = { 0, 1, -1, 2 };
    const float gated[4] = { 0, 0.2669448318f, -0.5892210932f, 2.5729727788f };
    float y[4], g, beta, one = 1, act, big = 25, zero = 0;
    (void)ref;

    k->rms_norm(y, x, gain, 4, 1e-6f);
    for (int i = 0; i < 4; i++) CHECK_MSG(near(y[i], rms[i], 1e-6), "%s: %.9g, want %.9g", level, y[i], rms[i]);
    k->gated_norm(y, x, z, gain2, 4, 1e-6f);
    for (int i = 0; i < 4; i++) CHECK_MSG(near(y[i], gated[i], 1e-6), "%s: %.9g, want %.9g", level, y[i], gated[i]);

    float three_four[2] = { 3, 4 }, tiny[2] = { 1e-4f, 0 };
    k->l2_norm(three_four, 2, 1e-6f, 1);
    CHECK(near(three_four[0], 0.6, 1e-6) && near(three_four[1], 0.8, 1e-6));
    k->l2_norm(tiny, 2, 1e-6f, 1);
    CHECK(near(tiny[0], 1, 1e-6) && tiny[1] == 0);

    const float a = 0.5f, b = 0.3f, A = -2, dt = 0.25f;
    k->gdn_gates(&g, &beta, &a, &b, &A, &dt, 1);
    CHECK_MSG(near(g, -2.2737420122, 1e-6), "%s: g %.9g", level, g);
    CHECK_MSG(near(beta, 0.5744425168, 1e-6), "%s: beta %.9g", level, beta);
    CHECK(near(expf(g), 0.1029263071, 1e-6));
    k->gdn_gates(&g, &beta, &big, &b, &one, &zero, 1);
    CHECK_MSG(g == 25, "%s: softplus(25) = %.9g", level, (double)g);

    const float gate = 3;
    k->swiglu(&act, &gate, &one, 1);
    CHECK_MSG(near(act, 2.8577223805, 1e-6), "%s: silu(3) = %.9g", level, act);
}
static void test_values(void) { for_each_level(check_values); }

static const struct ds_test tests[] = { { "norm.values", test_values } };
DS_TEST_MAIN(tests)
