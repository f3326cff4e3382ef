/* The executor itself: what its built-in functions return, and that its orders differ but are repeatable. */
#include "shader.h"

static void test_lanes(void)
{
    int in[32], out[15 * 32];
    float fin[32], fout[128], fsum = 0;
    long sum = 0;
    for (int i = 0; i < 32; i++) in[i] = (i * 37 + 11) % 32 - 9, fin[i] = (float)in[i] / 4, sum += in[i], fsum += fin[i];
    const struct ds_metal_count a = { .count = 21 };
    struct call c = call_of("lanes", &a, sizeof a);
    bind(&c, 1, in, sizeof in), bind(&c, 2, fin, sizeof fin), bind(&c, 3, out, sizeof out), bind(&c, 4, fout, sizeof fout);
    c.d.constants[1] = 2;
    run(&c, 1, 1, 1, 32);
    int most = in[0], least = in[0], before = 0;
    unsigned umost = 0, uleast = ~0u, all = ~0u, any = 0;
    for (int i = 0; i < 32; i++) {
        const unsigned u = (unsigned)in[i];
        most = in[i] > most ? in[i] : most, least = in[i] < least ? in[i] : least;
        umost = u > umost ? u : umost, uleast = u < uleast ? u : uleast, all &= u, any |= u;
    }
    for (int i = 0; i < 32; i++) {
        const int want[15] = { (int)sum, most, least, (int)umost, (int)uleast, (int)all, (int)any, before + in[i], before, in[31 - i], in[i ^ 5],
                               i < 3 ? out[352 + i] : in[i - 3], i > 28 ? out[384 + i] : in[i + 3], in[7], 42 };
        for (int f = 0; f < 15; f++) CHECK_MSG(out[32 * f + i] == want[f], "function %d lane %d: %d, expected %d", f, i, out[32 * f + i], want[f]);
        before += in[i];
        CHECK(fout[i] == fsum && fout[32 + i] == (float)most / 4 && fout[64 + i] == (float)least / 4 && fout[96 + i] == (float)before / 4);
    }
}

/* Element (r, c) of a load with origin (x, y) is p[(y + r) * stride + x + c]; transposed, r and c change places. */
static void test_matrices(void)
{
    float in[9 * 16], out[384];
    uint16_t hout[64];
    for (int i = 0; i < 144; i++) in[i] = (float)(i % 13 - 6);
    struct call c = call_of("matrices", in, sizeof in);
    bind(&c, 1, out, sizeof out), bind(&c, 2, hout, sizeof hout);
    run(&c, 1, 1, 1, 32);
    int bad = 0;
    for (int r = 0; r < 8; r++) {
        for (int col = 0; col < 8; col++) {
            const float x = in[(1 + r) * 16 + 8 + col], y = in[(1 + col) * 16 + 8 + r];
            float z = x;
            for (int k = 0; k < 8; k++) z += in[(1 + r) * 16 + 8 + k] * in[(1 + col) * 16 + 8 + k];
            bad += out[8 * r + col] != x || out[64 + 8 * r + col] != y || out[128 + 8 * r + col] != z || out[192 + 8 * col + r] != z;
            bad += out[256 + 8 * r + col] != (r == col ? 3 : 0) || out[320 + 8 * r + col] != 2 || hout[8 * r + col] != ds_f32_to_f16(0.1f);
        }
    }
    CHECK_MSG(bad == 0, "%d of 64", bad);
}

static void test_threads(void)
{
    int out[6 * 64 * 8];
    struct call c = call_of("threads", out, sizeof out);
    char err[400] = "";
    const struct sim_options o = { .seed = 5, .host_threads = 2 };
    const uint32_t groups[3] = { 3, 2, 1 }, t[3] = { 16, 4, 1 };
    c.d.buffer[0].read_only = false;
    memcpy(c.d.groups, groups, sizeof groups), memcpy(c.d.threads, t, sizeof t);
    CHECK_MSG(sim_run(&c.d, &o, err, sizeof err) == SIM_OK, "%s", err);
    int bad = 0;
    for (int g = 0; g < 6; g++) {
        for (int i = 0; i < 64; i++) {
            const int *x = out + 8 * (64 * g + i);
            bad += x[0] != i / 32 * 32 + (i + 1) % 32 || x[1] != (i + 40) % 64 || x[2] != i || x[3] != 2 || x[4] != g || x[5] != 0 || x[6] != 2;
        }
    }
    CHECK_MSG(bad == 0, "%d of 384", bad);
}

/* Orders follow from the seed alone: the same seed, the same bits, with any number of workers; another seed, another order of sums.
 * Rough arithmetic is near, and not the same. */
static void test_seeds(void)
{
    enum { DIM = 999, N = 20 };
    struct ds_rng rng;
    ds_rng_seed(&rng, 1);
    float *x = normals(&rng, N * DIM, 1), *gain = normals(&rng, DIM, 1), *h[4];
    const struct ds_metal_rows a = { .n = N, .dim = DIM };
    for (int i = 0; i < 4; i++) {
        char err[400] = "";
        const struct sim_options o = { .seed = i == 2 ? 8 : 7, .host_threads = i + 1, .rough = i == 3 };
        h[i] = poisoned(N * DIM);
        struct call c = call_of("rms_norm", &a, sizeof a);
        const uint32_t groups[3] = { N, 1, 1 }, t[3] = { 256, 1, 1 };
        bind(&c, 1, x, N * DIM * 4), bind(&c, 2, gain, DIM * 4), bind(&c, 3, h[i], N * DIM * 4);
        memcpy(c.d.groups, groups, sizeof groups), memcpy(c.d.threads, t, sizeof t);
        CHECK_MSG(sim_run(&c.d, &o, err, sizeof err) == SIM_OK, "%s", err);
    }
    CHECK(!memcmp(h[0], h[1], N * DIM * 4));
    CHECK(memcmp(h[0], h[2], N * DIM * 4));
    CHECK(memcmp(h[0], h[3], N * DIM * 4));
    for (int i = 0; i < N * DIM; i++) CHECK(fabsf(h[3][i] - h[0][i]) <= 5e-7f * fabsf(h[0][i]));
    free(x), free(gain), free(h[0]), free(h[1]), free(h[2]), free(h[3]);
}

static const struct ds_test tests[] = {
    { "metal_sim_lanes", test_lanes }, { "metal_sim_matrices", test_matrices }, { "metal_sim_threads", test_threads }, { "metal_sim_seeds", test_seeds },
};
DS_TEST_MAIN(tests)
