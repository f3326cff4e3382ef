/* Synthetic models run, and their activations are sane: rounding them to 8 bits moves the logits by a few percent of their
 * spread, not by half of it as with plain 1/sqrt(fan-in) weights. */
#include "deltascope.h"
#include "gguf/gguf.h"
#include "synth/synth.h"
#include "../harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_TOKENS = 24, VOCAB = 512 };

/* Logits [N_TOKENS][VOCAB] of a fixed prompt; false with a printed reason. */
static bool logits_of(const struct ds_options *o, float *dst)
{
    ds_engine *g = NULL;
    ds_session *s = NULL;
    struct ds_err e = { 0 };
    int32_t ids[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) ids[i] = i * 37 % 256;
    bool ok = !ds_engine_open(&g, o, &e) && !ds_session_new(&s, g, &e) && !ds_session_prefill(s, ids, N_TOKENS, DS_ROWS_ALL, NULL, NULL, &e);
    CHECK_MSG(ok, "%s", e.msg);
    for (int i = 0; ok && i < N_TOKENS; i++) memcpy(dst + i * VOCAB, ds_session_logits_row(s, i), VOCAB * sizeof *dst);
    ds_session_free(s);
    ds_engine_close(g);
    return ok;
}

static double deviation(const float *a, const float *b, int n)
{
    double mean = 0, square = 0;
    for (int i = 0; i < n; i++) mean += a[i] - (b ? b[i] : 0);
    mean /= n;
    for (int i = 0; i < n; i++) {
        double d = a[i] - (b ? b[i] : 0) - mean;
        square += d * d;
    }
    return sqrt(square / n);
}

/* The model's weights, decoded to f32, in a file: the same network without rounding of activations. */
static bool write_decoded(const struct ds_synth_spec *spec, const char *path)
{
    struct ds_synth_spec plain = *spec;
    struct ds_gguf *from = NULL, *to = NULL;
    struct ds_err e = { 0 };
    plain.type = "f32";
    bool ok = !ds_synth_write(&plain, path, &e) && !ds_gguf_open(&to, path, &e) && !ds_synth_make(spec, &from, &e);
    CHECK_MSG(ok, "%s", e.msg);
    FILE *f = ok ? fopen(path, "r+b") : NULL;
    for (size_t i = 0; f && i < ds_gguf_n_tensors(from); i++) {
        const struct ds_tensor *t = ds_gguf_tensor(from, i), *u = ds_gguf_find(to, t->name);
        float *y = malloc(u->bytes);
        if (y) t->type->decode(y, t->data, u->bytes / sizeof *y);
        ok = ok && y && !fseek(f, (long)u->file_off, SEEK_SET) && fwrite(y, 1, u->bytes, f) == u->bytes;
        free(y);
    }
    ok = f && !fclose(f) && ok;
    ds_gguf_close(from);
    ds_gguf_close(to);
    CHECK(ok);
    return ok;
}

static void rounding_moves_logits_little(void)
{
    static const struct { const char *type; double limit; } cases[] = { { "q8_0", 0.025 }, { "q4_k", 0.035 } };
    const char *path = "build/test_synth_forward.gguf";
    float *a = malloc(N_TOKENS * VOCAB * sizeof *a), *b = malloc(N_TOKENS * VOCAB * sizeof *b);
    REQUIRE(a && b);
    for (int k = 0; k < 2; k++) {
        struct ds_options o = { .synth = { .like = "qwen3.5-0.8b", .type = cases[k].type, .layers = 4, .vocab = VOCAB, .seed = 3 },
                                .backend = "cpu", .ctx = 64 };
        if (!write_decoded(&o.synth, path) || !logits_of(&o, a)) break;
        struct ds_options plain = { .model = path, .backend = "cpu", .ctx = 64 };
        if (!logits_of(&plain, b)) break;
        for (int t = 0; t < N_TOKENS; t++) {
            double spread = deviation(b + t * VOCAB, NULL, VOCAB), moved = deviation(a + t * VOCAB, b + t * VOCAB, VOCAB);
            CHECK_MSG(spread > 1 && spread < 4, "%s: logits of token %d have deviation %g", cases[k].type, t, spread);
            CHECK_MSG(moved < cases[k].limit * spread, "%s: rounding moves token %d by %.4f of the spread", cases[k].type, t, moved / spread);
            CHECK_MSG(moved > 0.001 * spread, "%s: nothing was rounded", cases[k].type);
        }
    }
    remove(path);
    free(a);
    free(b);
}

/* The logit that the head marks out stands clear of the others: the token itself when tied, the next one otherwise. */
static void greedy_token_is_clear(void)
{
    static const struct { const char *like; int step; } cases[] = { { "qwen3.5-0.8b", 0 }, { "qwen3.5-9b", 1 } };
    float *a = malloc(N_TOKENS * VOCAB * sizeof *a);
    REQUIRE(a);
    for (int k = 0; k < 2; k++) {
        struct ds_options o = { .synth = { .like = cases[k].like, .type = "q4_0", .layers = 1, .vocab = VOCAB, .seed = 4 }, .backend = "cpu", .ctx = 64 };
        if (!logits_of(&o, a)) break;
        for (int t = 0; t < N_TOKENS; t++) {
            const float *row = a + t * VOCAB;
            int marked = t * 37 % 256 + cases[k].step;
            float other = -INFINITY;
            for (int j = 0; j < VOCAB; j++)
                if (j != marked && row[j] > other) other = row[j];
            CHECK_MSG(row[marked] > other + 3, "%s: token %d gives %g against %g", cases[k].like, t, row[marked], other);
        }
    }
    free(a);
}

/* An engine for its plan alone: the plan of the whole one, no hash, and no session. */
static void plan_only_engine(void)
{
    struct ds_options o = { .synth = { .like = "qwen3.5-0.8b", .type = "q4_0", .layers = 4, .vocab = VOCAB }, .backend = "cpu", .ctx = 64 };
    ds_engine *whole = NULL, *plan = NULL;
    ds_session *s = NULL;
    struct ds_plan a, b;
    struct ds_err e = { 0 };
    CHECK(!ds_engine_open(&whole, &o, &e));
    o.synth.plan_only = true;
    CHECK(!ds_engine_open(&plan, &o, &e));
    if (whole && plan) {
        ds_engine_plan(whole, &a);
        ds_engine_plan(plan, &b);
        CHECK(a.available == 0 && b.available > 0 && ds_engine_info(plan)->hash == 0 && ds_engine_info(whole)->hash);
        b.available = 0;
        CHECK(!memcmp(&a, &b, sizeof a));
        CHECK(ds_session_new(&s, plan, &e) == DS_EARG && !s && strstr(e.msg, "plan"));
        CHECK(!ds_session_new(&s, whole, &e) && s);
    }
    ds_session_free(s);
    ds_engine_close(plan);
    ds_engine_close(whole);
}

static const struct ds_test tests[] = {
    { "rounding_moves_logits_little", rounding_moves_logits_little },
    { "greedy_token_is_clear", greedy_token_is_clear },
    { "plan_only_engine", plan_only_engine },
};
DS_TEST_MAIN(tests)
