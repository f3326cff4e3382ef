/* The forward pass as a whole: against oracle vectors, against itself in other placements and splits,
 * with stages left out, and with the profile on and off. */
#include "model_fixture.h"

#include "base/cpu.h"

static const char *const minis[] = { "mini-dense", "mini-equalheads-tied", "mini-moe" };

/* --- against f32 vectors of an independent implementation --- */

static void check_oracle(const char *model, const char *oracle, const char *isa, const char *placement, const char *gdn)
{
    struct ds_check_report r;
    struct ds_err e = { 0 };
    struct ds_options o = { .model = model, .isa = isa, .placement = placement, .gdn = gdn };
    ds_status st = ds_check(&o, oracle, &r, NULL, NULL, &e);
    CHECK_MSG(!st, "%s", e.msg);
    CHECK_MSG(r.pass, "%s on %s", model, isa);
    for (int i = 0; i < r.n_cases; i++) CHECK_MSG(r.cases[i].pass, "%s isa %s n %d: %s", model, isa, r.cases[i].n, r.cases[i].why);
    ds_check_report_free(&r);
}

static void oracle_minis_on_every_isa(void)
{
    const char *levels[16];
    const int n = ds_cpu_levels(levels, 16);
    for (int m = 0; m < 3; m++)
        for (int i = 0; i < n; i++) {
            char model[96], oracle[96];
            snprintf(model, sizeof model, FIXTURES "%s.gguf", minis[m]);
            snprintf(oracle, sizeof oracle, FIXTURES "%s.oracle.gguf", minis[m]);
            check_oracle(model, oracle, levels[i], "full", "seq");
            check_oracle(model, oracle, levels[i], "full", "chunk");
        }
}

static void oracle_tales_q8_0(void) { check_oracle("models/tales-q8_0.gguf", FIXTURES "tales.oracle.gguf", "auto", "full", "auto"); }
static void oracle_minis_in_placement_gemm(void)
{
    for (int m = 0; m < 3; m++) {
        char model[96], oracle[96];
        snprintf(model, sizeof model, FIXTURES "%s.gguf", minis[m]);
        snprintf(oracle, sizeof oracle, FIXTURES "%s.oracle.gguf", minis[m]);
        check_oracle(model, oracle, "auto", "gemm", "auto");
    }
}

/* Without an oracle: the path against the plain one, quantised weights op by op, float weights end to end. */
static void check_without_oracle_passes_on_the_cpu(void)
{
    static const char *const models[] = { "models/tales-q8_0.gguf", FIXTURES "mini-dense.gguf", FIXTURES "mini-moe.gguf" };
    for (int i = 0; i < 6; i++) {
        struct ds_check_report r;
        struct ds_err e = { 0 };
        const struct ds_options o = { .model = models[i / 2], .placement = i % 2 ? "gemm" : "full" };
        CHECK_MSG(!ds_check(&o, NULL, &r, NULL, NULL, &e), "%s", e.msg);
        CHECK(r.pass && r.n_cases >= 5);
        for (int k = 0; k < r.n_cases; k++)
            CHECK_MSG(r.cases[k].pass && r.cases[k].logits_cosine >= 0.999999, "%s n %d: %s", models[i / 2], r.cases[k].n, r.cases[k].why);
        ds_check_report_free(&r);
    }
}

/* --- the via-MM path: products on one backend, everything else on another --- */

/* DS_TEST_DEVICE names the backend of the products; the CPU's are exact, a device's have half operands. */
static void via_mm(const char *model, const char *kv)
{
    struct rig a, b;
    const char *device = getenv("DS_TEST_DEVICE");
    const bool rounded = device && strstr(model, "q8_0");  /* the template rounds activations to 8 bits, a device does not */
    const double cosine = rounded ? 0.999 : device ? 0.9999 : 0.999999, caches = rounded ? 5e-2 : device ? 2e-2 : 1e-5;
    const struct ds_options full = { .model = model, .backend = "cpu", .placement = "full", .kv = kv, .ubatch = 64 };
    struct ds_options split = full;
    split.backend = device ? device : "cpu";
    split.placement = "gemm";
    if (rig_open(&a, &full) && rig_open(&b, &split)) {
        int32_t ids[150], ga[24], gb[24];
        const int vocab = ds_engine_info(a.g)->n_vocab;
        fill_ids(ids, 150, vocab, 7);
        if (rig_prefill(&a, ids, 150) && rig_prefill(&b, ids, 150)) {
            const double c = rig_cosine(ds_session_logits(a.s), ds_session_logits(b.s), (size_t)vocab);
            CHECK_MSG(c >= cosine, "%s kv %s: cosine %.9f", model, kv, c);
            const double d = state_diff(&b, &a);
            CHECK_MSG(d <= caches, "%s kv %s: caches differ by %g", model, kv, d);
            if (rig_greedy(&a, ga, 24) && rig_greedy(&b, gb, 24)) CHECK(rounded || !memcmp(ga, gb, sizeof ga));
        }
        CHECK(!strcmp(ds_engine_placement(b.g), "gemm"));
        rig_close(&b);
    }
    rig_close(&a);
}

static void qwen35_hybrid_via_mm_matches_cpu_template(void)
{
    for (int m = 0; m < 3; m++) {
        char model[96];
        snprintf(model, sizeof model, FIXTURES "%s.gguf", minis[m]);
        via_mm(model, "f32");
        via_mm(model, "f16");
    }
    via_mm("models/tales-q8_0.gguf", "f16");
}

/* --- leaving a stage out --- */

static struct ds_profile profiled_run(struct rig *r, unsigned skip, const int32_t *ids, int n, float *logits)
{
    struct ds_profile p = { 0 };
    ds_session_reset(r->s);
    ds_session_set_skip(r->s, skip);
    ds_session_reset(r->s);
    ds_session_set_profile(r->s, DS_PROF_STAMP);
    if (rig_prefill(r, ids, n) && ds_session_profile(r->s)) p = *ds_session_profile(r->s);
    memcpy(logits, ds_session_logits(r->s), (size_t)ds_engine_info(r->g)->n_vocab * sizeof *logits);
    return p;
}

#ifdef DS_NO_PROFILE
enum { PROFILED = 0 };      /* every stage's time and work read 0; what the tests say about bits and caches still holds */
#else
enum { PROFILED = 1 };
#endif

static bool all_zero(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != 0) return false;
    return true;
}

/* A stage's least time over some runs: other load on the machine only adds. */
static double least_ms(struct rig *r, unsigned skip, enum ds_stage stage, const int32_t *ids)
{
    static float scrap[4096];
    double least = INFINITY;
    for (int i = 0; i < 7; i++) least = fmin(least, profiled_run(r, skip, ids, 200, scrap).stage_ms[stage]);
    return least;
}

static void qwen35_hybrid_prefill_isolation_gates_zero_the_stage(void)
{
    struct rig r;
    const struct ds_options o = { .model = "models/tales-q8_0.gguf" };
    int32_t ids[200];
    static float base[4096], cut[4096];
    if (!rig_open(&r, &o)) return;
    fill_ids(ids, 200, 4096, 3);
    const struct ds_profile p0 = profiled_run(&r, 0, ids, 200, base);
    CHECK(!PROFILED || (p0.stage_ms[DS_ST_GDN] > 0 && p0.stage_ms[DS_ST_ATTN] > 0 && p0.stage_ms[DS_ST_GEMM] > 0));
    CHECK(!ds_session_is_timing_only(r.s));
    const struct { unsigned skip; enum ds_stage gone, kept; } cases[] = { { DS_SKIP_GDN, DS_ST_GDN, DS_ST_ATTN }, { DS_SKIP_ATTN, DS_ST_ATTN, DS_ST_GDN } };
    for (int i = 0; i < 2; i++) {
        ds_session_free(r.s);   /* a fresh one: rows of a KV cache outlive a reset */
        REQUIRE(!ds_session_new(&r.s, r.g, NULL));
        const struct ds_profile p = profiled_run(&r, cases[i].skip, ids, 200, cut);
        CHECK(ds_session_is_timing_only(r.s));
        /* what stands in for the stage is one copy: no operations, a small part of the time */
        CHECK(p.stage_gflop[cases[i].gone] == 0 && p.stage_gflop[cases[i].kept] == p0.stage_gflop[cases[i].kept]);
        if (PROFILED) CHECK(least_ms(&r, cases[i].skip, cases[i].gone, ids) < 0.5 * least_ms(&r, 0, cases[i].gone, ids));
        ds_session_free(r.s);
        REQUIRE(!ds_session_new(&r.s, r.g, NULL));
        profiled_run(&r, cases[i].skip, ids, 200, cut);
        CHECK(p.stage_gflop[DS_ST_GEMM] == p0.stage_gflop[DS_ST_GEMM]);
        CHECK(memcmp(cut, base, sizeof base) != 0);
        for (int l = 0; l < 8; l++) {   /* the skipped kind's caches stay unfilled */
            const bool attn = ds_engine_layer_is_attn(r.g, l);
            size_t n;
            float *s = layer_state(&r, l, &n);
            CHECK(all_zero(s, n) == (attn == (cases[i].skip == DS_SKIP_ATTN)));
            free(s);
        }
    }
    const struct ds_profile both = profiled_run(&r, DS_SKIP_GDN | DS_SKIP_ATTN, ids, 200, cut);
    CHECK(both.stage_gflop[DS_ST_GDN] == 0 && both.stage_gflop[DS_ST_ATTN] == 0 && both.stage_ms[DS_ST_QKNORM] == 0);
    profiled_run(&r, 0, ids, 200, cut);
    CHECK(!memcmp(cut, base, sizeof base) && !ds_session_is_timing_only(r.s));
    rig_close(&r);
}

/* --- the profile --- */

static void profile_does_not_change_a_bit(void)
{
    struct rig r;
    const struct ds_options o = { .model = FIXTURES "mini-moe.gguf" };
    int32_t ids[100];
    static float off[512], on[512];
    if (!rig_open(&r, &o)) return;
    fill_ids(ids, 100, 512, 5);
    if (rig_prefill(&r, ids, 100)) memcpy(off, ds_session_logits(r.s), sizeof off);
    CHECK(ds_session_profile(r.s) == NULL);
    for (int mode = DS_PROF_STAMP; mode <= DS_PROF_DRAIN; mode++) {
        ds_session_reset(r.s);
        ds_session_set_profile(r.s, (enum ds_prof_mode)mode);
        if (rig_prefill(&r, ids, 100)) memcpy(on, ds_session_logits(r.s), sizeof on);
        CHECK(!memcmp(on, off, sizeof on));
    }
    rig_close(&r);
}

static void profile_parts_sum_to_the_wall(void)
{
    struct rig r;
    const struct ds_options o = { .model = "models/tales-q8_0.gguf", .ubatch = 128 };
    int32_t ids[300];
    static float x[4096];
    if (!rig_open(&r, &o)) return;
    fill_ids(ids, 300, 4096, 9);
    const struct ds_profile p = profiled_run(&r, 0, ids, 300, x);
    const double sum = p.stage_ms[DS_ST_GEMM] + p.stage_ms[DS_ST_GDN] + p.stage_ms[DS_ST_ATTN] + p.stage_ms[DS_ST_NORM_ACT] + p.stage_ms[DS_ST_OTHER];
    CHECK_MSG(fabs(sum - p.total_ms) <= 0.02 * p.total_ms, "sum %g, wall %g", sum, p.total_ms);
    CHECK(p.stage_ms[DS_ST_OTHER] >= 0 && p.P == 300);
    CHECK(!PROFILED || (p.stage_ms[DS_ST_QKNORM] > 0 && p.stage_ms[DS_ST_QKNORM] < p.stage_ms[DS_ST_ATTN]));
    double classes = 0;
    for (int i = 0; i < p.n_classes; i++) classes += p.classes[i].ms;
    CHECK(fabs(classes - p.stage_ms[DS_ST_GEMM]) <= 1e-6 * classes);
    rig_close(&r);
}

/* --- any split of a prompt is the same prompt --- */

static void prefill_in_pieces(struct rig *r, const int32_t *ids, int n, uint32_t seed)
{
    ds_session_reset(r->s);
    for (int at = 0; at < n;) {
        static const int most[] = { 1, 2, 3, 5, 17, 63, 64, 65, 128, 200 };
        seed = seed * 1664525u + 1013904223u;
        int m = 1 + (int)((seed >> 8) % (uint32_t)most[(seed >> 20) % 10]);
        if (m > n - at) m = n - at;
        if (!rig_prefill(r, ids + at, m)) return;
        at += m;
    }
}

static void split_property(const char *model, const char *gdn, int schedules, double logit_abs)
{
    struct rig whole, cut;
    const struct ds_options o = { .model = model, .kv = "f32", .gdn = gdn, .ubatch = 256 };
    int32_t ids[231], want[16], got[16];
    if (rig_open(&whole, &o) && rig_open(&cut, &o)) {
        const int vocab = ds_engine_info(whole.g)->n_vocab;
        fill_ids(ids, 231, vocab, 11);
        for (int i = 0; i < schedules; i++) {
            ds_session_reset(whole.s);
            if (!rig_prefill(&whole, ids, 231)) break;
            prefill_in_pieces(&cut, ids, 231, 1000u + (uint32_t)i);
            if (ds_session_pos(cut.s) != 231) break;
            double worst = 0;
            for (int k = 0; k < vocab; k++) worst = fmax(worst, fabs((double)ds_session_logits(whole.s)[k] - ds_session_logits(cut.s)[k]));
            CHECK_MSG(worst <= logit_abs, "schedule %d: logits differ by %g", i, worst);
            const double d = state_diff(&cut, &whole);
            CHECK_MSG(d <= 1e-4, "schedule %d: state differs by %g", i, d);
            if (rig_greedy(&whole, want, 16) && rig_greedy(&cut, got, 16)) CHECK(!memcmp(want, got, sizeof want));
        }
        rig_close(&cut);
    }
    rig_close(&whole);
}

static void any_split_gives_the_same_result(void)
{
    split_property(FIXTURES "mini-dense.gguf", "seq", 60, 1e-4);
    split_property(FIXTURES "mini-dense.gguf", "chunk", 60, 1e-4);
    split_property(FIXTURES "mini-equalheads-tied.gguf", "auto", 40, 1e-4);
    split_property(FIXTURES "mini-moe.gguf", "auto", 40, 1e-4);
}

/* A prefill cut where a GDN chunk ends goes on bit for bit. */
static void cut_at_64_is_bit_equal(void)
{
    static const char *const forms[] = { "seq", "chunk" };
    for (int f = 0; f < 2; f++) {
        struct rig a, b;
        const struct ds_options o = { .model = "models/tales-q8_0.gguf", .gdn = forms[f] };
        int32_t ids[200];
        if (rig_open(&a, &o) && rig_open(&b, &o)) {
            fill_ids(ids, 200, 4096, 21);
            for (int cut = 64; cut < 200; cut += 64) {
                ds_session_reset(a.s);
                ds_session_reset(b.s);
                if (!rig_prefill(&a, ids, 200) || !rig_prefill(&b, ids, cut) || !rig_prefill(&b, ids + cut, 200 - cut)) break;
                CHECK(!memcmp(ds_session_logits(a.s), ds_session_logits(b.s), 4096 * sizeof(float)));
                CHECK(state_diff(&a, &b) == 0);
            }
            rig_close(&b);
        }
        rig_close(&a);
    }
}

/* A session taken apart and put together elsewhere goes on bit for bit. */
static void parts_make_the_same_session(void)
{
    struct rig a, b;
    const struct ds_options o = { .model = FIXTURES "mini-dense.gguf", .ubatch = 64 };
    int32_t ids[150];
    if (rig_open(&a, &o) && rig_open(&b, &o)) {
        fill_ids(ids, 150, 512, 31);
        const size_t row = ds_engine_kv_bytes(a.g), state = ds_engine_state_bytes(a.g);
        char *kv = malloc(128 * row), *st = malloc(state);
        CHECK(ds_engine_layout_id(a.g) == ds_engine_layout_id(b.g));
        if (kv && st && rig_prefill(&a, ids, 128)) {
            ds_session_get_kv(a.s, 0, 128, kv);
            ds_session_get_state(a.s, st);
            for (int from = 0; from < 128; from += 50) {   /* in pieces, which hold the layers side by side */
                const int to = from + 50 < 128 ? from + 50 : 128;
                char *piece = malloc((size_t)(to - from) * row);
                ds_session_get_kv(a.s, from, to, piece);
                ds_session_set_kv(b.s, from, to, piece);
                free(piece);
            }
            CHECK(!ds_session_resume(b.s, ids, 128, st, ds_session_logits(a.s), NULL));
            CHECK(ds_session_pos(b.s) == 128 && state_diff(&a, &b) == 0 && rig_argmax(&a) == rig_argmax(&b));
            if (rig_prefill(&a, ids + 128, 22) && rig_prefill(&b, ids + 128, 22))
                CHECK(!memcmp(ds_session_logits(a.s), ds_session_logits(b.s), 512 * sizeof(float)) && state_diff(&a, &b) == 0);
            CHECK(ds_session_resume(b.s, ids, 1 << 30, st, NULL, NULL) == DS_EARG && ds_session_pos(b.s) == 150);
        }
        free(kv);
        free(st);
        rig_close(&b);
    }
    rig_close(&a);
}

/* States kept inside a chunk are those of a prefill that ends there, and keeping them changes no bit. */
struct kept { char *state[8]; int64_t pos[8]; int n; size_t bytes; };

static void keep(void *ctx, ds_session *s, int64_t pos, int slot)
{
    struct kept *k = ctx;
    k->state[k->n] = malloc(k->bytes);
    ds_session_get_cut(s, slot, k->state[k->n]);
    k->pos[k->n++] = pos;
}

static void cuts_keep_the_state_inside_a_chunk(void)
{
    static const char *const forms[] = { "seq", "chunk" };
    const int64_t at[] = { 2, 64, 128, 150, 192, 249, 250 };
    for (int f = 0; f < 2; f++) {
        struct rig a, b;
        const struct ds_options o = { .model = FIXTURES "mini-dense.gguf", .gdn = forms[f], .max_cuts = 8, .ubatch = 200 };
        int32_t ids[250];
        if (rig_open(&a, &o) && rig_open(&b, &o)) {
            struct kept k = { .bytes = ds_engine_state_bytes(a.g) };
            char *want = malloc(k.bytes);
            fill_ids(ids, 250, 512, 41);
            CHECK(!ds_session_set_cuts(a.s, at, 7, keep, &k, NULL) && rig_prefill(&a, ids, 250));
            CHECK(k.n == 7);
            for (int i = 0; i < k.n; i++) {
                ds_session_reset(b.s);
                CHECK(k.pos[i] == at[i] && rig_prefill(&b, ids, (int)k.pos[i]));
                ds_session_get_state(b.s, want);
                const double d = rel_norm((float *)(void *)k.state[i], (float *)(void *)want, k.bytes / sizeof(float));
                CHECK_MSG(d < 1e-5, "%s: state at %d differs by %g", forms[f], (int)at[i], d);   /* the cut at 2 splits the first GDN chunk */
                free(k.state[i]);
            }
            ds_session_reset(a.s);
            ds_session_reset(b.s);
            k.n = 0;
            const int64_t even[] = { 64, 192 };
            CHECK(!ds_session_set_cuts(a.s, even, 2, keep, &k, NULL) && rig_prefill(&a, ids, 250) && rig_prefill(&b, ids, 250) && k.n == 2);
            CHECK(!memcmp(ds_session_logits(a.s), ds_session_logits(b.s), 512 * sizeof(float)) && state_diff(&a, &b) == 0);
            for (int i = 0; i < k.n; i++) {
                ds_session_reset(b.s);
                CHECK(rig_prefill(&b, ids, (int)even[i]));
                ds_session_get_state(b.s, want);
                CHECK(!memcmp(k.state[i], want, k.bytes));
            }
            const int64_t falling[] = { 64, 64 };
            CHECK(ds_session_set_cuts(a.s, falling, 2, keep, &k, NULL) == DS_EARG);
            free(k.state[0]);
            free(k.state[1]);
            free(want);
            rig_close(&b);
        }
        rig_close(&a);
    }
}

/* --- limits and refusals --- */

static void window_and_ids_are_checked_before_any_work(void)
{
    struct rig r;
    const struct ds_options o = { .model = FIXTURES "mini-dense.gguf", .ctx = 40 };
    struct ds_err e = { 0 };
    int32_t ids[64];
    if (!rig_open(&r, &o)) return;
    fill_ids(ids, 64, 512, 1);
    CHECK(ds_session_prefill(r.s, ids, 41, DS_ROWS_LAST, NULL, NULL, &e) == DS_EARG && strstr(e.msg, "41") && strstr(e.msg, "40"));
    CHECK(ds_session_pos(r.s) == 0);
    CHECK(rig_prefill(&r, ids, 40));
    CHECK(ds_session_decode(r.s, 1, &e) == DS_EARG && strstr(e.msg, "41"));
    ds_session_reset(r.s);
    ids[3] = 512;
    CHECK(ds_session_prefill(r.s, ids, 10, DS_ROWS_LAST, NULL, NULL, &e) == DS_EARG && strstr(e.msg, "512"));
    ids[3] = -1;
    CHECK(ds_session_prefill(r.s, ids, 10, DS_ROWS_LAST, NULL, NULL, &e) == DS_EARG);
    CHECK(ds_session_prefill(r.s, ids, 0, DS_ROWS_LAST, NULL, NULL, &e) == DS_EARG);
    ids[3] = 3;
    CHECK(rig_prefill(&r, ids, 10));
    rig_close(&r);
}

static int stop_at_second(void *ctx, int done, int total)
{
    (void)ctx;
    return done >= 64 && done < total;
}

static void cancel_keeps_the_tokens_done(void)
{
    struct rig r, whole;
    const struct ds_options o = { .model = FIXTURES "mini-dense.gguf", .ubatch = 32 };
    struct ds_err e = { 0 };
    int32_t ids[200];
    if (rig_open(&r, &o) && rig_open(&whole, &o)) {
        fill_ids(ids, 200, 512, 2);
        CHECK(ds_session_prefill(r.s, ids, 200, DS_ROWS_LAST, stop_at_second, NULL, &e) == DS_ECANCEL);
        CHECK(ds_session_pos(r.s) == 64 && ds_session_logits(r.s) == NULL && !memcmp(ds_session_tokens(r.s), ids, 64 * sizeof *ids));
        if (rig_prefill(&r, ids + 64, 136) && rig_prefill(&whole, ids, 200))
            CHECK(!memcmp(ds_session_logits(r.s), ds_session_logits(whole.s), 512 * sizeof(float)));
        rig_close(&whole);
    }
    rig_close(&r);
}

static int stop_at_zero(void *ctx) { return (*(int *)ctx)-- == 0; }

/* Wherever a chunk is stopped, the session stands before it, bit for bit. */
static void stop_undoes_the_chunk(const char *placement)
{
    struct rig r, whole;
    const struct ds_options o = { .model = FIXTURES "mini-dense.gguf", .ubatch = 64, .placement = placement };
    struct ds_err e = { 0 };
    int32_t ids[200];
    if (rig_open(&r, &o) && rig_open(&whole, &o)) {
        int left, stops = 0;
        int64_t stood[64];
        fill_ids(ids, 200, 512, 3);
        CHECK(rig_prefill(&whole, ids, 200));
        for (int at = 0; at < 64; at++) {
            CHECK(!ds_session_set_stop(r.s, stop_at_zero, &left, &e));
            left = at;
            const ds_status st = ds_session_prefill(r.s, ids, 200, DS_ROWS_LAST, NULL, NULL, &e);
            const int64_t pos = ds_session_pos(r.s);
            CHECK(!ds_session_set_stop(r.s, NULL, NULL, &e));
            if (!st) break;
            stood[stops++] = pos;
            CHECK(st == DS_ECANCEL && !ds_session_logits(r.s));
            if (rig_prefill(&r, ids + pos, 200 - (int)pos))
                CHECK(!memcmp(ds_session_logits(r.s), ds_session_logits(whole.s), 512 * sizeof(float)));
            ds_session_reset(r.s);
        }
        CHECK_MSG(stops >= 16 && stops < 64 && stops % 4 == 0, "%d stops within four chunks", stops);
        for (int i = 0; i < stops; i++) CHECK(stood[i] == i / (stops / 4) * 64);
        rig_close(&whole);
    }
    rig_close(&r);
}

static void stop_undoes_the_chunk_in_both_placements(void)
{
    stop_undoes_the_chunk("full");
    stop_undoes_the_chunk("gemm");
}

static const struct ds_test tests[] = {
    { "oracle_minis_on_every_isa", oracle_minis_on_every_isa },
    { "oracle_minis_in_placement_gemm", oracle_minis_in_placement_gemm },
    { "oracle_tales_q8_0", oracle_tales_q8_0 },
    { "check_without_oracle_passes_on_the_cpu", check_without_oracle_passes_on_the_cpu },
    { "qwen35_hybrid_via_mm_matches_cpu_template", qwen35_hybrid_via_mm_matches_cpu_template },
    { "qwen35_hybrid_prefill_isolation_gates_zero_the_stage", qwen35_hybrid_prefill_isolation_gates_zero_the_stage },
    { "profile_does_not_change_a_bit", profile_does_not_change_a_bit },
    { "profile_parts_sum_to_the_wall", profile_parts_sum_to_the_wall },
    { "any_split_gives_the_same_result", any_split_gives_the_same_result },
    { "cut_at_64_is_bit_equal", cut_at_64_is_bit_equal },
    { "parts_make_the_same_session", parts_make_the_same_session },
    { "cuts_keep_the_state_inside_a_chunk", cuts_keep_the_state_inside_a_chunk },
    { "window_and_ids_are_checked_before_any_work", window_and_ids_are_checked_before_any_work },
    { "cancel_keeps_the_tokens_done", cancel_keeps_the_tokens_done },
    { "stop_undoes_the_chunk", stop_undoes_the_chunk_in_both_placements },
};
DS_TEST_MAIN(tests)
