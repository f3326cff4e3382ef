/* The CUDA backend's host side over a device that only counts: the plan is what is taken, steps take nothing, memory that is
 * refused is one sentence and leaves nothing behind, decode is replayed. */
#include "../harness.h"
#include "fake.h"
#include "deltascope.h"

#include <stdlib.h>

static struct ds_options options(const char *type)
{
    return (struct ds_options){ .backend = "cuda", .threads = 1, .ctx = 1000,
                                .synth = { .like = "qwen3.5-0.8b", .type = type, .layers = 4, .vocab = 512 } };
}

static uint64_t on_device(const ds_engine *g)
{
    struct ds_plan p;
    ds_engine_plan(g, &p);
    return p.weights + p.weights_extra + p.kv + p.state + p.scratch;
}

static int32_t ids[6000];

/* Prefills of several chunks and odd ends, then tokens one by one. */
static ds_status walk(ds_session *s, struct ds_err *e)
{
    static const int n[] = { 300, 1, 70, 512, 2 };
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        ds_status st = ds_session_prefill(s, ids, n[i], DS_ROWS_LAST, NULL, NULL, e);
        if (st) return st;
    }
    for (int i = 0; i < 8; i++) {
        ds_status st = ds_session_decode(s, i, e);
        if (st) return st;
    }
    return DS_OK;
}

static void one_plan(const struct ds_options *o, const char *what)
{
    struct ds_err e = { 0 };
    ds_engine *g = NULL, *plan = NULL;
    ds_session *s = NULL;
    struct ds_options po = *o;
    po.synth.plan_only = true;
    CHECK_MSG(!ds_engine_open(&plan, &po, &e), "%s: %s", what, e.msg);
    CHECK(ds_fake.held == 0 || !o->synth.like);              /* a file's weights are there */
    if (!o->synth.like) ds_engine_close(plan), plan = NULL;
    CHECK_MSG(!ds_engine_open(&g, o, &e), "%s: %s", what, e.msg);
    if (!g || ds_session_new(&s, g, &e)) return;
    if (plan) CHECK_MSG(on_device(plan) == on_device(g), "%s: planned %llu, the open engine says %llu", what, (unsigned long long)on_device(plan),
              (unsigned long long)on_device(g));
    CHECK_MSG(on_device(g) == ds_fake.held, "%s: planned %llu, taken %llu", what, (unsigned long long)on_device(g), (unsigned long long)ds_fake.held);
    const long before = ds_fake.allocations;
    CHECK_MSG(!walk(s, &e), "%s: %s", what, e.msg);
    CHECK_MSG(ds_fake.allocations == before, "%s: steps took memory %ld times", what, ds_fake.allocations - before);
    ds_session_free(s);
    ds_engine_close(g);
    ds_engine_close(plan);
    CHECK_MSG(ds_fake.held == 0 && ds_fake.pinned == 0 && ds_fake.streams == 0 && ds_fake.events == 0,
              "%s: %zu bytes, %zu pinned blocks, %d streams, %d events left", what, ds_fake.held, ds_fake.pinned, ds_fake.streams, ds_fake.events);
}

static void plan_is_taken(void)
{
    static const char *const types[] = { "q8_0", "q4_k", "bf16" }, *const weights[] = { NULL, "blocks", "bf16" }, *const gemm[] = { NULL, "fp8" };
    for (int t = 0; t < 3; t++)
        for (int w = 0; w < 3; w++)
            for (int f = 0; f < 2; f++) {
                struct ds_options o = options(types[t]);
                char what[64];
                snprintf(what, sizeof what, "%s %s %s", types[t], weights[w] ? weights[w] : "auto", gemm[f] ? gemm[f] : "bf16");
                o.weights = weights[w];
                o.gemm = gemm[f];
                o.ubatch = t ? 0 : 600;
                one_plan(&o, what);
            }
}

static void plan_of_experts(void)
{
    struct ds_options o = { .backend = "cuda", .threads = 1, .model = "tests/fixtures/mini-moe.gguf", .ctx = 1000, .ubatch = 512 };
    one_plan(&o, "experts");
    o.gemm = "fp8";
    one_plan(&o, "experts, fp8");
}

/* Less and less memory: copies go first, then the long chunk, then it is one sentence. */
static void less_memory(void)
{
    const struct ds_options o = options("q8_0");
    struct ds_err e = { 0 };
    struct ds_plan p;
    ds_engine *g = NULL;
    uint64_t all = 0, extra = 0;
    int opened = 0, without = 0, refused = 0, ubatch = 1 << 20;
    REQUIRE(!ds_engine_open(&g, &o, &e));
    all = on_device(g);
    ds_engine_plan(g, &p);
    extra = p.weights_extra;
    CHECK(extra > 0);
    ds_engine_close(g);
    for (uint64_t room = all + ((uint64_t)1 << 30); room > (512u << 20); room -= room / 32) {
        ds_fake.limit = room;
        e = (struct ds_err){ 0 };
        if (ds_engine_open(&g, &o, &e)) {
            CHECK(strlen(e.msg) > 20 && !strchr(e.msg, '\n'));
            refused++;
        } else {
            ds_session *s = NULL;
            CHECK(!refused);
            CHECK_MSG(!ds_session_new(&s, g, &e), "%s", e.msg);
            ds_engine_plan(g, &p);
            opened++;
            without += p.weights_extra < extra;
            CHECK(ds_engine_ubatch(g) <= ubatch);
            ubatch = ds_engine_ubatch(g);
            ds_session_free(s);
            ds_engine_close(g);
        }
        CHECK_MSG(ds_fake.held == 0, "%zu bytes left", ds_fake.held);
    }
    ds_fake.limit = (size_t)140 << 30;
    CHECK_MSG(opened > 0 && without > 0 && refused > 0, "opened %d, %d without all copies, refused %d", opened, without, refused);
}

/* Every single allocation refused once: a sentence, and nothing left. */
static void each_refused(void)
{
    const struct ds_options o = { .backend = "cuda", .threads = 1, .model = "tests/fixtures/mini-dense.gguf", .ctx = 1000, .gemm = "fp8:ffn" };
    for (long i = 1; i < 2000; i++) {
        struct ds_err e = { 0 };
        ds_engine *g = NULL;
        ds_session *s = NULL;
        ds_fake.allocations = 0;
        ds_fake.fail_at = i;
        ds_status st = ds_engine_open(&g, &o, &e);
        if (!st) st = ds_session_new(&s, g, &e);
        const bool reached = ds_fake.allocations >= i;
        ds_session_free(s);
        ds_engine_close(g);
        CHECK_MSG(ds_fake.held == 0, "allocation %ld: %zu bytes left", i, ds_fake.held);
        if (!reached) break;
        CHECK_MSG(!st || strstr(e.msg, "refused"), "allocation %ld: '%s'", i, e.msg);
    }
    ds_fake.fail_at = 0;
}

static void decode_is_replayed(void)
{
    const struct ds_options o = options("q8_0");
    struct ds_err e = { 0 };
    ds_engine *g = NULL;
    ds_session *s = NULL, *t = NULL;
    REQUIRE(!ds_engine_open(&g, &o, &e) && !ds_session_new(&s, g, &e) && !ds_session_new(&t, g, &e));
    REQUIRE(!ds_session_prefill(s, ids, 20, DS_ROWS_LAST, NULL, NULL, &e));
    ds_fake.graphs = 0;
    for (int i = 0; i < 10; i++) REQUIRE(!ds_session_decode(s, i, &e));
    CHECK_MSG(ds_fake.graphs == 9, "%ld graph launches of 10 steps", ds_fake.graphs);       /* the first step is issued op by op */
    const long waits = ds_fake.syncs;
    REQUIRE(!ds_session_decode(s, 3, &e));
    CHECK_MSG(ds_fake.syncs - waits <= 2, "%ld waits in one step", ds_fake.syncs - waits);  /* its end, and reading the logits */
    for (int i = 0; i < 10; i++) REQUIRE(!ds_session_decode(t, i, &e) && !ds_session_decode(s, i, &e));     /* two in turn */
    CHECK_MSG(ds_fake.graphs == 10 + 10 + 9, "%ld graph launches", ds_fake.graphs);
    ds_session_free(t);                                      /* its buffers go, and with them all that names them */
    ds_fake.graphs = 0;
    for (int i = 0; i < 4; i++) REQUIRE(!ds_session_decode(s, i, &e));
    CHECK_MSG(ds_fake.graphs == 3, "%ld graph launches after a session ended", ds_fake.graphs);
    ds_session_free(s);
    ds_engine_close(g);
    CHECK(ds_fake.held == 0);
}

/* A prompt of the same length at the same position is replayed too; another length, a profile or kept states are not. */
static void prefill_is_replayed(void)
{
    const struct ds_options o = options("q8_0");
    struct ds_err e = { 0 };
    ds_engine *g = NULL;
    ds_session *s = NULL;
    REQUIRE(!ds_engine_open(&g, &o, &e) && !ds_session_new(&s, g, &e));
    ds_fake.graphs = 0;
    for (int i = 0; i < 4; i++) {
        ds_session_reset(s);
        REQUIRE(!ds_session_prefill(s, ids, 256, DS_ROWS_LAST, NULL, NULL, &e));
        REQUIRE(!ds_session_prefill(s, ids, 100 + i, DS_ROWS_LAST, NULL, NULL, &e));
    }
    CHECK_MSG(ds_fake.graphs == 3, "%ld graph launches", ds_fake.graphs);
    ds_session_set_profile(s, DS_PROF_STAMP);
    ds_session_reset(s);
    const long before = ds_fake.products;
    REQUIRE(!ds_session_prefill(s, ids, 256, DS_ROWS_LAST, NULL, NULL, &e));
    CHECK(ds_fake.graphs == 3 && ds_fake.products > before);
    ds_session_free(s);
    ds_engine_close(g);
}

/* A record is written after the engine that it measured is closed. */
static void kernel_names_stay(void)
{
    const struct ds_options o = options("q8_0");
    struct ds_err e = { 0 };
    const char *cls, *type, *name[2] = { NULL, NULL };
    for (int i = 0; i < 2; i++) {
        ds_engine *g = NULL, *other = NULL;
        REQUIRE(!ds_engine_open(&g, &o, &e) && !ds_engine_open(&other, &o, &e));
        CHECK(ds_engine_kernel_row(i ? other : g, 0, &cls, &type, &name[i]));
        ds_engine_close(g);
        ds_engine_close(other);
    }
    CHECK(name[0] == name[1]);
    CHECK(name[0] && !strcmp(name[0], "q8_0 cublasLt bf16"));
}

static void forms_are_said(void)
{
    static const struct { const char *weights, *gemm, *says; } want[] = {
        { NULL, NULL, "bf16 copies" },
        { "blocks", NULL, "blocks, decoded" },
        { NULL, "fp8", "e4m3 and bf16 copies" },
        { "blocks", "fp8:ffn", "e4m3 copies, the" },
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct ds_options o = options("q8_0");
        struct ds_err e = { 0 };
        ds_engine *g = NULL;
        o.weights = want[i].weights;
        o.gemm = want[i].gemm;
        o.synth.plan_only = true;
        REQUIRE(!ds_engine_open(&g, &o, &e));
        CHECK_MSG(ds_engine_weight_forms(g) && !strncmp(ds_engine_weight_forms(g), want[i].says, strlen(want[i].says)), "'%s'", ds_engine_weight_forms(g));
        ds_engine_close(g);
    }
}

static void bad_options(void)
{
    static const struct { const char *gemm, *weights, *says; } bad[] = {
        { "int4", NULL, "--gemm 'int4'" }, { "fp8:", NULL, "--gemm: ''" }, { "fp8:ffn,head", NULL, "'head'" }, { "fp8ffn", NULL, "fp8ffn" },
        { NULL, "some", "--weights 'some'" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ds_options o = options("q8_0");
        struct ds_err e = { 0 };
        ds_engine *g = NULL;
        o.gemm = bad[i].gemm;
        o.weights = bad[i].weights;
        CHECK(ds_engine_open(&g, &o, &e) == DS_EARG);
        CHECK_MSG(strstr(e.msg, bad[i].says) != NULL, "'%s'", e.msg);
        ds_engine_close(g);
        CHECK(ds_fake.held == 0);
    }
}

static const struct ds_test tests[] = {
    { "cuda_host.plan_is_taken", plan_is_taken }, { "cuda_host.plan_of_experts", plan_of_experts }, { "cuda_host.less_memory", less_memory },
    { "cuda_host.each_refused", each_refused },   { "cuda_host.decode_is_replayed", decode_is_replayed }, { "cuda_host.bad_options", bad_options },
    { "cuda_host.prefill_is_replayed", prefill_is_replayed }, { "cuda_host.forms_are_said", forms_are_said },
    { "cuda_host.kernel_names_stay", kernel_names_stay },
};

int main(int argc, char **argv) { return ds_test_main(tests, sizeof tests / sizeof *tests, argc, argv); }
