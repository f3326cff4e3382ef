#include "base/rng.h"
#include "../harness.h"

#include <math.h>

/* xoshiro256** from the state {1, 2, 3, 4}: the first values, computed by hand from the recurrence. */
static void rng_known_sequence(void)
{
    struct ds_rng r = { { 1, 2, 3, 4 } };
    CHECK(ds_rng_u64(&r) == 11520);
    CHECK(ds_rng_u64(&r) == 0);
    CHECK(ds_rng_u64(&r) == 1509978240);
    CHECK(ds_rng_u64(&r) == 1215971899390074240u);
}

/* splitmix64 from 0, the values that its author publishes. */
static void rng_seed_is_splitmix(void)
{
    struct ds_rng r;
    ds_rng_seed(&r, 0);
    CHECK(r.s[0] == 0xe220a8397b1dcdafu && r.s[1] == 0x6e789e6aa1b965f4u);
    CHECK(r.s[2] == 0x06c45d188009454fu && r.s[3] == 0xf88bb8a8724c81ecu);
}

static void rng_uniform_range_and_mean(void)
{
    struct ds_rng r;
    double sum = 0;
    ds_rng_seed(&r, 7);
    for (int i = 0; i < 200000; i++) {
        float u = ds_rng_uniform(&r);
        CHECK(u >= 0 && u < 1);
        sum += u;
    }
    CHECK(fabs(sum / 200000 - 0.5) < 0.003);
}

static void rng_normal_moments(void)
{
    struct ds_rng r;
    const int n = 400000;
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
    int beyond2 = 0;
    ds_rng_seed(&r, 8);
    for (int i = 0; i < n; i++) {
        double x = ds_rng_normal(&r);
        m1 += x;
        m2 += x * x;
        m3 += x * x * x;
        m4 += x * x * x * x;
        beyond2 += fabs(x) > 2;
    }
    CHECK(fabs(m1 / n) < 0.008);
    CHECK(fabs(m2 / n - 1) < 0.012);
    CHECK(fabs(m3 / n) < 0.03);
    CHECK(fabs(m4 / n - 3) < 0.1);
    CHECK(fabs((double)beyond2 / n - 0.0455) < 0.002);
}

/* The bits are the same on every host. */
static void rng_normal_pinned(void)
{
    struct ds_rng r;
    ds_rng_seed(&r, 1);
    float a = ds_rng_normal(&r), b = ds_rng_normal(&r);
    CHECK_MSG(a == -0x1.62542ap+0f && b == -0x1.956858p-1f, "%a %a", a, b);
}

static const struct ds_test tests[] = {
    { "rng_known_sequence", rng_known_sequence },
    { "rng_seed_is_splitmix", rng_seed_is_splitmix },
    { "rng_uniform_range_and_mean", rng_uniform_range_and_mean },
    { "rng_normal_moments", rng_normal_moments },
    { "rng_normal_pinned", rng_normal_pinned },
};
DS_TEST_MAIN(tests)
