/* What the executor is for: each mistake of tests/metal-sim/faults.txt, planted in a shader, must be found, by the check that
 * it is meant for. So must what no shader can do wrong but its host: unbound buffers, groups that are too large. */
#include "shader.h"

static struct ds_rng rng;

/* A small run of one kernel, whole or with a fault (NULL: none). What the executor said, and how far results are from right. */
struct outcome { enum sim_result r; char said[400]; double error; };
static const char *named(char *dst, size_t n, const char *kernel, const char *fault)
{
    snprintf(dst, n, fault ? "%s@%s" : "%s", kernel, fault);
    return dst;
}

static struct outcome gemm(const char *fault)
{
    enum { N = 33, IN = 40, OUT = 65, LDY = 68 };
    struct outcome o = { .error = 0 };
    char name[64];
    float *w = normals(&rng, OUT * IN, 1), *x = normals(&rng, N * IN, 1), *y = poisoned((N - 1) * LDY + OUT);
    uint16_t *wh = poisoned_bytes(OUT * IN * 2);
    double num = 0, den = 0;
    for (int i = 0; i < OUT * IN; i++) wh[i] = ds_f32_to_f16(w[i]);
    const struct ds_metal_gemm a = { .n = N, .in = IN, .out = OUT, .ldy = LDY };
    struct call c = call_of(named(name, sizeof name, "gemm_f16", fault), &a, sizeof a);
    bind(&c, 1, wh, OUT * IN * 2), bind(&c, 2, x, N * IN * 4), bind(&c, 3, y, ((N - 1) * LDY + OUT) * 4);
    c.d.constants[0] = 1;
    o.r = run_quietly(&c, up(N, 32), up(OUT, 64), 1, 128, o.said, sizeof o.said);
    for (int t = 0; t < N; t++) {
        for (int r = 0; r < OUT; r++) {
            double s = 0;
            for (int i = 0; i < IN; i++) s += (double)ds_f16_to_f32(wh[r * IN + i]) * x[t * IN + i];
            num += (y[t * LDY + r] - s) * (y[t * LDY + r] - s), den += s * s;
        }
    }
    o.error = isfinite(num) ? num / den : INFINITY;
    free(w), free(x), free(y), free(wh);
    return o;
}

static struct outcome gdn(const char *kernel, const char *fault)
{
    enum { N = 40, KH = 2, VH = 4, DK = 128, DV = 32 };
    struct outcome o = { .error = 0 };
    char name[64];
    const size_t kq = N * KH * DK, nv = N * VH * DV, ng = N * VH, ns = VH * DK * DV;
    float *q = normals(&rng, kq, 0.01f), *k = normals(&rng, kq, 0.08f), *v = normals(&rng, nv, 1), *g = poisoned(ng), *beta = poisoned(ng);
    float *s = normals(&rng, ns, 1), *s1 = poisoned(ns), *y = poisoned(nv);
    double num = 0, den = 0;
    for (size_t i = 0; i < ng; i++) g[i] = -0.1f, beta[i] = 0.5f;
    const struct ds_metal_gdn a = { .n = N, .n_kh = KH, .n_vh = VH, .dk = DK, .dv = DV, .t0 = 0, .t1 = N };
    struct call c = call_of(named(name, sizeof name, kernel, fault), &a, sizeof a);
    bind(&c, 1, q, kq * 4), bind(&c, 2, k, kq * 4), bind(&c, 3, v, nv * 4), bind(&c, 4, g, ng * 4), bind(&c, 5, beta, ng * 4);
    bind(&c, 6, s, ns * 4), bind(&c, 7, s1, ns * 4), bind(&c, 8, y, nv * 4);
    o.r = run_quietly(&c, 1, VH, 1, 128, o.said, sizeof o.said);
    for (int h = 0; h < VH; h++) {
        for (int t = 0; t < N; t++) {
            const float *kr = k + (t * KH + h % KH) * DK, *qr = q + (t * KH + h % KH) * DK;
            for (int j = 0; j < DV; j++) {
                float *col = s + h * DK * DV + j, m = 0, out = 0;
                for (int i = 0; i < DK; i++) col[i * DV] *= expf(-0.1f), m += col[i * DV] * kr[i];
                for (int i = 0; i < DK; i++) col[i * DV] += kr[i] * 0.5f * (v[(t * VH + h) * DV + j] - m), out += col[i * DV] * qr[i];
                num += (y[(t * VH + h) * DV + j] - out) * (double)(y[(t * VH + h) * DV + j] - out), den += out * out;
            }
        }
    }
    o.error = isfinite(num) ? num / den : INFINITY;
    free(q), free(k), free(v), free(g), free(beta), free(s), free(s1), free(y);
    return o;
}

/* Two queries at positions 21 and 22. All keys are alike and all values but the last, so the answer is known. */
static struct outcome attn(const char *fault)
{
    enum { POS = 21, HD = 256 };
    struct outcome o = { .error = 0 };
    char name[64];
    float *qg = poisoned(2 * 2 * HD), *k = poisoned((POS + 2) * HD), *v = poisoned((POS + 2) * HD), *y = poisoned(2 * HD);
    for (int i = 0; i < 4 * HD; i++) qg[i] = 0;
    for (int i = 0; i < (POS + 2) * HD; i++) k[i] = 0, v[i] = i / HD <= POS ? 1 : 1 + POS;
    const struct ds_metal_attn a = { .n = 2, .n_head = 1, .n_kv = 1, .hd = HD, .pos = POS, .scale = 1 };
    struct call c = call_of(named(name, sizeof name, "attn_prefill_f32", fault), &a, sizeof a);
    bind(&c, 1, qg, 4 * HD * 4), bind(&c, 2, k, (POS + 2) * HD * 4), bind(&c, 3, v, (POS + 2) * HD * 4), bind(&c, 4, y, 2 * HD * 4);
    o.r = run_quietly(&c, 1, 1, 1, 128, o.said, sizeof o.said);
    o.error = fabs(y[0] - 0.5) + fabs(y[HD] - 0.5 * (2 * POS + 2) / (POS + 2));
    if (!isfinite(o.error)) o.error = INFINITY;
    free(qg), free(k), free(v), free(y);
    return o;
}

static struct outcome act_half(const char *fault)
{
    enum { N = 2, DIM = 200 };
    struct outcome o = { .error = 0 };
    char name[64];
    float x[N * DIM], scale[N] = { NAN, NAN };
    uint16_t h[N * DIM];
    for (int i = 0; i < N * DIM; i++) x[i] = i % DIM == 180 ? 3000 : 1;
    const struct ds_metal_rows a = { .n = N, .dim = DIM };
    struct call c = call_of(named(name, sizeof name, "act_half", fault), &a, sizeof a);
    bind(&c, 1, x, sizeof x), bind(&c, 2, h, sizeof h), bind(&c, 3, scale, sizeof scale);
    o.r = run_quietly(&c, N, 1, 1, 256, o.said, sizeof o.said);
    o.error = scale[0] == 0.25f && scale[1] == 0.25f ? 0 : 1;
    return o;
}

static struct outcome run_of(const char *which, const char *fault)
{
    if (!strncmp(which, "gemm", 4)) return gemm(fault);
    if (!strncmp(which, "chunk", 5)) return gdn("gdn_chunk", fault);
    if (!strncmp(which, "seq", 3)) return gdn("gdn_seq", fault);
    if (!strncmp(which, "attn", 4)) return attn(fault);
    return act_half(fault);
}

/* said: what the executor's sentence must hold; NULL: it runs, and its results are wrong. */
static void expect(const char *fault, const char *said)
{
    struct outcome whole = run_of(fault, NULL), broken = run_of(fault, fault);
    CHECK_MSG(whole.r == SIM_OK && whole.error < 1e-5, "without the fault: %s, error %g", whole.said, whole.error);
    if (said) CHECK_MSG(broken.r == SIM_FAULT && strstr(broken.said, said), "not found: '%s', expected '%s'", broken.said, said);
    else CHECK_MSG(broken.r == SIM_OK && broken.error > 1e-3, "'%s', error %g", broken.said, broken.error);
}

#define PLANTED(name, said) static void test_##name(void) { expect(#name, said); }
PLANTED(gemm_no_barrier, "race")
PLANTED(gemm_no_barrier_before_reuse, "race")
PLANTED(gemm_barrier_of_nothing, "race")
PLANTED(gemm_edge_token, "of buffer 3")
PLANTED(gemm_edge_row, "of buffer 1")
PLANTED(gemm_edge_k, "of buffer 2")
PLANTED(gemm_tile_stride, "race")
PLANTED(gemm_row_stride, NULL)
PLANTED(gemm_two_tiles_one_place, "race: write of buffer 3")
PLANTED(chunk_no_barrier, "race")
PLANTED(chunk_no_simdgroup_barrier, "race")
PLANTED(chunk_too_much_memory, "threadgroup memory")
PLANTED(chunk_state_not_decayed, NULL)
PLANTED(seq_head_order, NULL)
PLANTED(attn_mask, NULL)
PLANTED(attn_past_the_cache, "of buffer")
PLANTED(half_divergent_barrier, "divergence")
PLANTED(half_early_return, "divergence")
PLANTED(half_unwritten_memory, NULL)
PLANTED(half_one_simdgroup_only, NULL)

static void test_unbound_buffer(void)
{
    float x[8] = { 0 };
    const struct ds_metal_count a = { .count = 8 };
    char said[400] = "";
    struct call c = call_of("copy", &a, sizeof a);
    bind(&c, 1, x, sizeof x);
    CHECK(run_quietly(&c, 1, 1, 1, 256, said, sizeof said) == SIM_FAULT && strstr(said, "buffer 2 is not bound"));
    bind(&c, 2, x, sizeof x), bind(&c, 0, &a, 8);
    CHECK(run_quietly(&c, 1, 1, 1, 256, said, sizeof said) == SIM_FAULT && strstr(said, "buffer 0 has 8 bytes"));
}

static void test_oversized_group(void)
{
    float x[8] = { 0 }, y[8] = { 0 };
    const struct ds_metal_count a = { .count = 8 };
    const struct sim_options o = { .max_threads = 128 };
    char said[400] = "";
    struct call c = call_of("copy", &a, sizeof a);
    bind(&c, 1, x, sizeof x), bind(&c, 2, y, sizeof y);
    const uint32_t groups[3] = { 1, 1, 1 }, threads[3] = { 256, 1, 1 };
    memcpy(c.d.groups, groups, sizeof groups), memcpy(c.d.threads, threads, sizeof threads);
    CHECK(sim_run(&c.d, &o, said, sizeof said) == SIM_DROPPED && strstr(said, "256 threads"));
    CHECK(sim_kernel_max_threads("copy", &o) == 128);
}

static void test_misaligned_buffer(void)
{
    unsigned char x[40] = { 0 }, y[40];
    const struct ds_metal_count a = { .count = 8 };
    char said[400] = "";
    struct call c = call_of("copy", &a, sizeof a);
    bind(&c, 1, x + 2, 32), bind(&c, 2, y, 32);
    enum sim_result r = run_quietly(&c, 1, 1, 1, 256, said, sizeof said);
    CHECK_MSG(r == SIM_FAULT && (strstr(said, "aligned") || strstr(said, "multiple")), "%s", said);
}

#define ROW(name) { #name, test_##name }
static const struct ds_test tests[] = {
    ROW(gemm_no_barrier), ROW(gemm_no_barrier_before_reuse), ROW(gemm_barrier_of_nothing), ROW(gemm_edge_token), ROW(gemm_edge_row),
    ROW(gemm_edge_k), ROW(gemm_tile_stride), ROW(gemm_row_stride), ROW(gemm_two_tiles_one_place), ROW(chunk_no_barrier),
    ROW(chunk_no_simdgroup_barrier), ROW(chunk_too_much_memory), ROW(chunk_state_not_decayed), ROW(seq_head_order), ROW(attn_mask),
    ROW(attn_past_the_cache), ROW(half_divergent_barrier), ROW(half_early_return), ROW(half_unwritten_memory), ROW(half_one_simdgroup_only),
    { "metal_unbound_buffer", test_unbound_buffer }, { "metal_oversized_group", test_oversized_group },
    { "metal_misaligned_buffer", test_misaligned_buffer },
};
int main(int argc, char **argv)
{
    ds_rng_seed(&rng, 4);
    return ds_test_main(tests, (int)(sizeof tests / sizeof *tests), argc, argv);
}
