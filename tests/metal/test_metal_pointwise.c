/* Norms, activations, RoPE, copies on the executor against the plain kernels. */
#include "shader.h"

#include "kernels/kernels_variants.h"

#include <float.h>

static const double f32_limit = 1e-12;         /* nmse of float arithmetic with sums in another order; reached: about 1e-14 */

static struct ds_rng rng;

static double against(const float *y, const float *ref, size_t n)
{
    double *want = malloc(sizeof *want * n), e;
    for (size_t i = 0; i < n; i++) want[i] = ref[i];
    e = nmse(y, want, n);
    free(want);
    return e;
}

static void test_rms_norm(void)
{
    const int dims[] = { 1, 31, 33, 256, 257, 5120 };
    const float sds[] = { 1, 1e-6f, 1e15f };
    for (int i = 0; i < 18; i++) {
        const int n = 3, dim = dims[i % 6];
        const size_t all = (size_t)(n * dim);
        float *x = normals(&rng, all, sds[i / 6]), *gain = normals(&rng, (size_t)dim, 1), *h = poisoned(all), *ref = poisoned(all);
        const struct ds_metal_rows a = { .n = n, .dim = dim, .eps = 1e-6f };
        struct call c = call_of("rms_norm", &a, sizeof a);
        bind(&c, 1, x, all * 4), bind(&c, 2, gain, (size_t)dim * 4), bind(&c, 3, h, all * 4);
        run(&c, n, 1, 1, 256);
        for (int t = 0; t < n; t++) ds_rms_norm_ref(ref + t * dim, x + t * dim, gain, dim, a.eps);
        double e = against(h, ref, all);
        CHECK_MSG(e <= f32_limit, "dim %d sd %g: nmse %.2e", dim, (double)sds[i / 6], e);
        free(x), free(gain), free(h), free(ref);
    }
}

/* Each row times a power of two; nothing overflows, whatever the row's size, and what is no number stays none. */
static void test_act_half(void)
{
    const int n = 9, dim = 100;
    const float size[] = { 1, 1e5f, 3e38f, 1e-10f, 1e-44f, 0, 600, INFINITY, NAN };
    float x[900], scale[9];
    uint16_t h[900];
    for (int i = 0; i < n * dim; i++) x[i] = (i % dim == 7 ? 1 : (float)(i % 13 - 6) / 16) * (i / dim < 7 ? size[i / dim] : 1);
    x[7 * dim + 3] = INFINITY, x[8 * dim + 99] = NAN;
    const struct ds_metal_rows a = { .n = n, .dim = dim };
    struct call c = call_of("act_half", &a, sizeof a);
    bind(&c, 1, x, sizeof x), bind(&c, 2, h, sizeof h), bind(&c, 3, scale, sizeof scale);
    run_exactly = true;                        /* one row is subnormal */
    run(&c, n, 1, 1, 256);
    run_exactly = false;
    for (int t = 0; t < n; t++) {
        int e;
        CHECK_MSG(frexpf(scale[t], &e) == 0.5f, "row %d: %g is no power of two", t, (double)scale[t]);
        float top = fabsf(x[t * dim + 7] * scale[t]);
        if (t < 4 || t == 6) CHECK_MSG(top >= 512 && top < 1024, "row %d: %g", t, (double)top);
        else CHECK_MSG(t == 4 ? scale[t] > 1e37f : scale[t] == 1, "row %d: %g", t, (double)scale[t]);
        for (int i = 0; i < dim; i++)
            CHECK_MSG(h[t * dim + i] == ds_f32_to_f16(x[t * dim + i] * scale[t]), "row %d column %d: %04x", t, i, (unsigned)h[t * dim + i]);
    }
}

static void test_swiglu(void)
{
    const float odd[] = { 0, -0.0f, 1e-30f, 88, -88, 89, -104, 3e38f, -3e38f, 20, -20 };
    const int n = 1500;
    float *gate = normals(&rng, (size_t)n, 10), *up_ = normals(&rng, (size_t)n, 1), *act = poisoned((size_t)n), *ref = poisoned((size_t)n);
    memcpy(gate, odd, sizeof odd);
    for (int i = 0; i < 11; i++) up_[i] = 0.5f;
    const struct ds_metal_count a = { .count = (uint32_t)n };
    struct call c = call_of("swiglu", &a, sizeof a);
    bind(&c, 1, gate, (size_t)n * 4), bind(&c, 2, up_, (size_t)n * 4), bind(&c, 3, act, (size_t)n * 4);
    run(&c, up(n, 1024), 1, 1, 256);
    ds_swiglu_ref(ref, gate, up_, n);
    for (int i = 0; i < n; i++)
        CHECK_MSG(fabsf(act[i] - ref[i]) <= 1e-6f * fabsf(ref[i]) + FLT_MIN, "silu(%g) %g: %g, expected %g", (double)gate[i], (double)up_[i],
                  (double)act[i], (double)ref[i]);
    free(gate), free(up_), free(act), free(ref);
}

static void test_gated_norm(void)
{
    const int shape[][3] = { { 1, 1, 128 }, { 3, 5, 128 }, { 2, 3, 16 }, { 2, 1, 200 } };
    for (int i = 0; i < 4; i++) {
        const int n = shape[i][0], heads = shape[i][1], dv = shape[i][2];
        const size_t all = (size_t)(n * heads * dv);
        float *o = normals(&rng, all, 0.1f), *z = normals(&rng, all, 4), *gain = normals(&rng, (size_t)dv, 1);
        float *y = poisoned(all), *ref = poisoned(all);
        const struct ds_metal_gdn a = { .n = n, .n_vh = heads, .dv = dv, .eps = 1e-6f };
        struct call c = call_of("gated_norm", &a, sizeof a);
        bind(&c, 1, o, all * 4), bind(&c, 2, z, all * 4), bind(&c, 3, gain, (size_t)dv * 4), bind(&c, 4, y, all * 4);
        run(&c, heads, n, 1, 128);
        for (int h = 0; h < n * heads; h++) ds_gated_norm_ref(ref + h * dv, o + h * dv, z + h * dv, gain, dv, a.eps);
        double e = against(y, ref, all);
        CHECK_MSG(e <= f32_limit, "n %d heads %d dv %d: nmse %.2e", n, heads, dv, e);
        free(o), free(z), free(gain), free(y), free(ref);
    }
}

static void test_qk_norm(void)
{
    const int shape[][4] = { { 1, 1, 1, 256 }, { 3, 6, 2, 256 }, { 2, 4, 1, 48 } };
    for (int i = 0; i < 3; i++) {
        const int n = shape[i][0], nh = shape[i][1], nkv = shape[i][2], hd = shape[i][3];
        const size_t nq = (size_t)(n * nh * 2 * hd), nk = (size_t)(n * nkv * hd);
        float *q = normals(&rng, nq, 3), *k = normals(&rng, nk, 3), *gq = normals(&rng, (size_t)hd, 1), *gk = normals(&rng, (size_t)hd, 1);
        float *rq = poisoned(nq), *rk = poisoned(nk);
        memcpy(rq, q, nq * 4), memcpy(rk, k, nk * 4);
        const struct ds_metal_attn a = { .n = n, .n_head = nh, .n_kv = nkv, .hd = hd, .eps = 1e-6f };
        struct call c = call_of("qk_norm", &a, sizeof a);
        bind(&c, 1, q, nq * 4), bind(&c, 2, k, nk * 4), bind(&c, 3, gq, (size_t)hd * 4), bind(&c, 4, gk, (size_t)hd * 4);
        run(&c, nh + nkv, n, 1, 128);
        for (int h = 0; h < n * nh; h++) ds_rms_norm_ref(rq + 2 * h * hd, rq + 2 * h * hd, gq, hd, a.eps);
        for (int h = 0; h < n * nkv; h++) ds_rms_norm_ref(rk + h * hd, rk + h * hd, gk, hd, a.eps);
        double e = against(q, rq, nq), e2 = against(k, rk, nk);
        CHECK_MSG(e <= f32_limit && e2 <= f32_limit, "n %d heads %d/%d hd %d: nmse %.2e, %.2e", n, nh, nkv, hd, e, e2);
        free(q), free(k), free(gq), free(gk), free(rq), free(rk);
    }
}

/* n_rot is 64 of 256, all, or none of the head. */
static void rope_case(int n, int nh, int nkv, int hd, int n_rot, bool f16)
{
    const size_t nq = (size_t)(n * nh * 2 * hd), nk = (size_t)(n * nkv * hd), nt = (size_t)(n * n_rot), es = f16 ? 2 : 4;
    float *q = normals(&rng, nq, 1), *k = normals(&rng, nk, 1), *v = normals(&rng, nk, 1), *turn = poisoned(nt + 1);
    float *rq = poisoned(nq), *rk = poisoned(nk);
    unsigned char *kc = poisoned_bytes(nk * es), *vc = poisoned_bytes(nk * es);
    v[0] = 1e5f;                               /* beyond half */
    memcpy(rq, q, nq * 4), memcpy(rk, k, nk * 4);
    float c_[128], s_[128];
    for (int t = 0; t < n; t++) {
        for (int j = 0; j < n_rot / 2; j++) {
            double angle = (t + 100000) * pow(1e7, -2.0 * j / n_rot);
            turn[t * n_rot + 2 * j] = c_[j] = (float)cos(angle), turn[t * n_rot + 2 * j + 1] = s_[j] = (float)sin(angle);
        }
        for (int h = 0; h < nh; h++) ds_rope_ref(rq + (t * nh + h) * 2 * hd, c_, s_, n_rot);
        for (int h = 0; h < nkv; h++) ds_rope_ref(rk + (t * nkv + h) * hd, c_, s_, n_rot);
    }
    const struct ds_metal_attn a = { .n = n, .n_head = nh, .n_kv = nkv, .hd = hd, .n_rot = n_rot };
    struct call c = call_of(f16 ? "rope_store_f16" : "rope_store_f32", &a, sizeof a);
    bind(&c, 1, q, nq * 4), bind(&c, 2, k, nk * 4), bind(&c, 3, v, nk * 4), bind(&c, 4, turn, nt * 4 + 4);
    bind(&c, 5, kc, nk * es), bind(&c, 6, vc, nk * es);
    run(&c, nh + 2 * nkv, n, 1, 128);
    double e = against(q, rq, nq);
    CHECK_MSG(e <= f32_limit, "n %d heads %d/%d hd %d rot %d: nmse %.2e", n, nh, nkv, hd, n_rot, e);
    int bad = 0;
    for (size_t i = 0; i < nk; i++) {
        float kg = f16 ? ds_f16_to_f32(((uint16_t *)(void *)kc)[i]) : ((float *)(void *)kc)[i];
        float vg = f16 ? ds_f16_to_f32(((uint16_t *)(void *)vc)[i]) : ((float *)(void *)vc)[i];
        bad += vg != (f16 ? ds_f16_to_f32(ds_f32_to_f16(v[i])) : v[i]);
        bad += !(fabsf(kg - rk[i]) <= (f16 ? 5e-4f : 1e-6f) * (fabsf(rk[i]) + 0.01f));
    }
    CHECK_MSG(bad == 0, "n %d heads %d/%d hd %d rot %d: %d cache elements", n, nh, nkv, hd, n_rot, bad);
    free(q), free(k), free(v), free(turn), free(rq), free(rk), free(kc), free(vc);
}
static void test_rope_store(void)
{
    for (int f16 = 0; f16 < 2; f16++) {
        rope_case(3, 6, 2, 256, 64, f16);
        rope_case(2, 2, 1, 256, 256, f16);
        rope_case(1, 1, 1, 48, 16, f16);
        rope_case(2, 3, 3, 130, 0, f16);
    }
}

static void test_copies(void)
{
    const int n = 3, src_dim = 70, dim = 300;
    float *src = normals(&rng, 3000, 1), *dst = poisoned(3000), *act = poisoned(900);
    const struct ds_metal_count a = { .count = 2999 };
    struct call c = call_of("copy", &a, sizeof a);
    bind(&c, 1, src, 2999 * 4), bind(&c, 2, dst, 2999 * 4);
    run(&c, 3, 1, 1, 256);
    CHECK(!memcmp(src, dst, 2999 * 4));
    const struct ds_metal_cols b = { .n = n, .src_dim = src_dim, .dim = dim };
    c = call_of("copy_cols", &b, sizeof b);
    bind(&c, 1, src, (size_t)(n * src_dim) * 4), bind(&c, 2, act, (size_t)(n * dim) * 4);
    run(&c, up(dim, 256), n, 1, 256);
    int bad = 0;
    for (int i = 0; i < n * dim; i++) bad += act[i] != src[i / dim * src_dim + i % dim % src_dim];
    CHECK(bad == 0);
    free(src), free(dst), free(act);
}

static const struct ds_test tests[] = {
    { "metal_rms_norm", test_rms_norm }, { "metal_act_half", test_act_half }, { "metal_swiglu", test_swiglu },
    { "metal_gated_norm", test_gated_norm }, { "metal_qk_norm", test_qk_norm }, { "metal_rope_store", test_rope_store },
    { "metal_copies", test_copies },
};
int main(int argc, char **argv)
{
    ds_rng_seed(&rng, 11);
    return ds_test_main(tests, (int)(sizeof tests / sizeof *tests), argc, argv);
}
