#include "levels.h"

static void check_values(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level)
{
    const float hist[3] = { 1, 2, 3 }, u = 4, w[4] = { 0.1f, 0.2f, 0.3f, 0.4f };
    float f = NAN;
    (void)ref;
    k->conv_silu(&f, 1, &u, 1, hist, 1, w, 4, 1, 0, 1);
    CHECK_MSG(near(f, 2.8577223805, 1e-6), "%s: %.9g", level, f);
}
static void test_values(void) { for_each_level(check_values); }

static const struct ds_test tests[] = { { "conv.values", test_values } };
DS_TEST_MAIN(tests)
