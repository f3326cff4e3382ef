/* The Metal backend when the device says no: refused at every step of opening, buffers that are too small, command buffers that
 * fail. The software device is told by DS_METAL_SIM what to refuse. Nothing may end the program; a prefill goes on with the
 * same result, or fails with one sentence. Its seed 0 means one fixed order, so that equal work gives equal bits. */
#include "../model/model_fixture.h"

#include "backend/metal/args.h"
#include "backend/metal/mtl.h"

#include <stdio.h>
#include <unistd.h>

#define MODEL FIXTURES "mini-dense.gguf"
enum { N = 13 };
#define SMALL 0.00001f                 /* about one dispatch in a command buffer */

static void device(const char *options)
{
    char text[160];
    snprintf(text, sizeof text, "seed=0,races=0%s%s", *options ? "," : "", options);
    setenv("DS_METAL_SIM", text, 1);
}

static const struct ds_options on_metal = { .model = MODEL, .backend = "metal", .placement = "full", .ubatch = 8, .ctx = 256 };
/* Layers of both kinds, experts, a head: every kind of command buffer. */
static const struct ds_options experts = { .model = FIXTURES "mini-moe.gguf", .backend = "metal", .ubatch = 8, .ctx = 256, .gpu_work = SMALL };

/* --- refused at the start: one sentence, which names what --- */

static void every_refusal_is_one_sentence(void)
{
    static const struct { const char *options, *words; } cases[] = {
        { "nil=device", "no Metal device" },
        { "nil=library", "error: planted" },
        { "nil=gdn_prep", "kernel 'gdn_prep'" },
        { "nil=gemm_bf16", "kernel 'gemm_bf16'" },
        { "nil=command", "the system refused a command buffer" },
        { "family=5", "needs Apple7 (M1) or later" },
        { "threads=64", "runs at most 64 threads" },
        { "zeros=1", "fails its self-test" },
        { "working-set=100000", "sysctl iogpu.wired_limit_mb" },
        { "no-copy=0,working-set=1000000", "should use at most" },
        { "max-buffer=40000", "in one piece" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ds_err e = { 0 };
        ds_engine *g = NULL;
        device(cases[i].options);
        const ds_status st = ds_engine_open(&g, &on_metal, &e);
        CHECK_MSG(st && !g, "%s opens", cases[i].options);
        CHECK_MSG(strstr(e.msg, cases[i].words) && !strchr(e.msg, '\n'), "%s: %s", cases[i].options, e.msg);
        ds_engine_close(g);
    }
    device("");
}

/* In placement gemm the GPU holds the weights and what crosses: both are kept against its working set, not only against the host's memory. */
static void placement_gemm_keeps_to_the_working_set(void)
{
    static const char *const sets[] = { "working-set=1500000", "working-set=2800000" };    /* the weights are 1.7 MB */
    struct ds_options o = on_metal;
    o.placement = "gemm";
    o.ubatch = 512;
    for (int i = 0; i < 2; i++) {
        struct ds_err e = { 0 };
        ds_engine *g = NULL;
        device(sets[i]);
        CHECK_MSG(ds_engine_open(&g, &o, &e) && !g && strstr(e.msg, "should use at most") && !strchr(e.msg, '\n'), "%s: %s", sets[i], e.msg);
        CHECK_MSG(i == 0 || strstr(e.msg, "a buffer needs"), "%s", e.msg);
        ds_engine_close(g);
    }
    device("");
}

/* --- the same result whatever the device allows --- */

struct outcome { bool ok; char why[512]; float *logits; float **state; size_t *n; int layers, vocab; };

static void keep(struct outcome *o, const struct rig *r)
{
    o->vocab = ds_engine_info(r->g)->n_vocab;
    o->layers = ds_engine_info(r->g)->n_layer;
    o->logits = malloc((size_t)o->vocab * sizeof(float));
    o->state = calloc((size_t)o->layers, sizeof *o->state);
    o->n = calloc((size_t)o->layers, sizeof *o->n);
    if (!o->logits || !o->state || !o->n) abort();
    memcpy(o->logits, ds_session_logits(r->s), (size_t)o->vocab * sizeof(float));
    for (int i = 0; i < o->layers; i++) o->state[i] = layer_state(r, i, &o->n[i]);
}

static void drop(struct outcome *o)
{
    for (int i = 0; o->state && i < o->layers; i++) free(o->state[i]);
    free(o->state);
    free(o->n);
    free(o->logits);
    *o = (struct outcome){ .ok = false };
}

/* A prefill of N tokens in two steps, then one decoded token. */
static struct outcome forward(const char *options, const struct ds_options *how)
{
    struct outcome o = { .ok = false };
    struct rig r = { NULL, NULL };
    struct ds_err e = { 0 };
    int32_t ids[N];
    device(options);
    o.ok = !ds_engine_open(&r.g, how, &e) && !ds_session_new(&r.s, r.g, &e);
    if (o.ok) {
        fill_ids(ids, N, ds_engine_info(r.g)->n_vocab, 5);
        o.ok = !ds_session_prefill(r.s, ids, N, DS_ROWS_LAST, NULL, NULL, &e) && !ds_session_decode(r.s, 7, &e);
    }
    if (o.ok) keep(&o, &r);
    snprintf(o.why, sizeof o.why, "%s", e.msg);
    rig_close(&r);
    return o;
}

static bool same(const struct outcome *a, const struct outcome *b)
{
    bool equal = a->vocab == b->vocab && !memcmp(a->logits, b->logits, (size_t)a->vocab * sizeof(float));
    for (int i = 0; i < a->layers && equal; i++) equal = a->n[i] == b->n[i] && !memcmp(a->state[i], b->state[i], a->n[i] * sizeof(float));
    return equal;
}

static void check_same(const struct outcome *want, const char *options, const struct ds_options *how)
{
    struct outcome got = forward(options, how);
    CHECK_MSG(got.ok, "%s: %s", options, got.why);
    if (got.ok) CHECK_MSG(same(want, &got), "%s gives another result", options);
    drop(&got);
}

static void pieces_copies_and_clocks_change_nothing(void)
{
    struct outcome want = forward("", &on_metal);
    CHECK_MSG(want.ok, "%s", want.why);
    if (want.ok) {
        check_same(&want, "max-buffer=1000000", &on_metal);   /* the head and the embedding in several pieces */
        check_same(&want, "no-copy=0", &on_metal);
        check_same(&want, "times=0", &on_metal);
        check_same(&want, "workers=1", &on_metal);
        struct ds_options small = on_metal;
        small.gpu_work = 0.001f;
        check_same(&want, "", &small);
    }
    drop(&want);
}

/* --- command buffers that fail --- */

/* How many command buffers a forward pass takes. */
static int count_buffers(struct outcome *want, const struct ds_options *how)
{
    char path[64], options[80];
    int n = 0;
    snprintf(path, sizeof path, "/tmp/metal-device-%ld", (long)getpid());
    snprintf(options, sizeof options, "report=%s", path);
    *want = forward(options, how);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%d", &n) != 1) n = 0;
    if (f) fclose(f);
    remove(path);
    return n;
}

/* Buffers of a forward pass in turn, each about one dispatch, with the codes for an internal error, a time-out and memory.
 * DS_TEST_STRIDE=1 takes every one. */
static void each_command_buffer(const char *placement)
{
    static const int codes[] = { 1, 2, 8 };
    const char *every = getenv("DS_TEST_STRIDE");
    const int stride = every ? atoi(every) : 17;
    struct ds_options small = experts;
    struct outcome want;
    small.placement = placement;
    const int n = count_buffers(&want, &small);
    CHECK_MSG(want.ok && n > 100, "%s, %d buffers", want.why, n);
    for (int k = 1; want.ok && k <= n && !ds_test_failures; k += stride) {
        char options[64];
        snprintf(options, sizeof options, "fail=%d:%d", k, codes[k % 3]);
        check_same(&want, options, &small);
    }
    printf("  %d command buffers in placement %s, every %d. failed\n", n, placement, stride);
    drop(&want);
}

static void a_failed_buffer_is_repeated_full(void) { each_command_buffer("full"); }
static void a_failed_buffer_is_repeated_gemm(void) { each_command_buffer("gemm"); }

static void a_device_that_is_lost_is_one_sentence(void)
{
    struct ds_options small = on_metal;
    small.gpu_work = SMALL;
    for (int k = 1; k < 80; k += 13) {
        char options[64];
        snprintf(options, sizeof options, "fail-from=%d:4", k);
        struct outcome got = forward(options, &small);
        CHECK_MSG(!got.ok && strstr(got.why, "Metal failed while") && strstr(got.why, "smaller parts") && !strchr(got.why, '\n'), "%d: %s", k,
                  got.why);
        drop(&got);
    }
}

/* The state of a session whose prefill failed is the one before it: reset is not needed for the bits, only for the session. */
static void after_a_failure_a_session_starts_again(void)
{
    struct rig r;
    struct ds_err e = { 0 };
    int32_t ids[N];
    struct outcome want = forward("", &on_metal);
    struct ds_options small = on_metal;
    small.gpu_work = SMALL;
    device("fail=4:2");
    if (want.ok && rig_open(&r, &small)) {
        fill_ids(ids, N, ds_engine_info(r.g)->n_vocab, 5);
        CHECK_MSG(!ds_session_prefill(r.s, ids, N, DS_ROWS_LAST, NULL, NULL, &e), "%s", e.msg);
        ds_session_reset(r.s);
        CHECK(!ds_session_prefill(r.s, ids, N, DS_ROWS_LAST, NULL, NULL, &e) && !ds_session_decode(r.s, 7, &e));
        struct outcome got = { .ok = true };
        keep(&got, &r);
        CHECK(same(&want, &got));
        drop(&got);
    }
    rig_close(&r);
    drop(&want);
}

/* --- what the host itself may do wrong: the software device finds it, and says what --- */

enum mistake { UNBOUND, TOO_SHORT, BEYOND, EARLY_LOOK, EARLY_FREE, WRITTEN_MAP, MISTAKES };

/* copy (count, src, dst) of 64 values with one mistake in its submission. */
static void submit(enum mistake what, struct ds_mtl_result *r)
{
    static _Alignas(16384) float mapped[4096];
    const struct ds_metal_count a = { .count = 64 };
    const uint32_t groups[3] = { 1, 1, 1 }, threads[3] = { 256, 1, 1 };
    struct ds_err e = { 0 };
    struct ds_mtl *d = ds_mtl_open(&e);
    if (!d) return;
    struct ds_mtl_buf *src = ds_mtl_buf_new(d, 256), *dst = ds_mtl_buf_new(d, 256), *map = ds_mtl_buf_wrap(d, mapped, sizeof mapped);
    struct ds_mtl_fn *f = ds_mtl_fn_new(d, "copy", NULL, 0, &e);
    struct ds_mtl_cmd *c = ds_mtl_begin(d);
    ds_mtl_use(c, f);
    ds_mtl_bytes(c, 0, &a, sizeof a);
    if (what != UNBOUND) ds_mtl_bind(c, 1, src, 0, what == TOO_SHORT ? 252 : what == BEYOND ? 260 : 256);
    ds_mtl_bind(c, 2, what == WRITTEN_MAP ? map : dst, 0, 256);
    ds_mtl_dispatch(c, groups, threads);
    ds_mtl_end(c);
    if (what == EARLY_LOOK) (void)ds_mtl_buf_ptr(dst);
    if (what == EARLY_FREE) {
        ds_mtl_buf_free(dst);
        dst = NULL;
    }
    ds_mtl_wait(c, r);
    ds_mtl_buf_free(src);
    ds_mtl_buf_free(dst);
    ds_mtl_buf_free(map);
    ds_mtl_fn_free(f);
    ds_mtl_close(d);
}

static void mistakes_of_the_host_are_found(void)
{
    static const char *const words[MISTAKES] = { "buffer 1 is not bound", "copy", "bound at 0 for 260 bytes", "the host looked into a buffer",
                                                 "was freed while", "must not be written" };
    device("");
    for (int i = 0; i < MISTAKES; i++) {
        struct ds_mtl_result r = { .status = DS_MTL_DONE };
        submit(i, &r);
        CHECK_MSG(r.status == DS_MTL_FAILED && strstr(r.reason, words[i]), "%s: %s", words[i], r.reason);
    }
}

static const struct ds_test tests[] = {
    { "mistakes_of_the_host_are_found", mistakes_of_the_host_are_found },
    { "every_refusal_is_one_sentence", every_refusal_is_one_sentence },
    { "placement_gemm_keeps_to_the_working_set", placement_gemm_keeps_to_the_working_set },
    { "pieces_copies_and_clocks_change_nothing", pieces_copies_and_clocks_change_nothing },
    { "a_failed_buffer_is_repeated_full", a_failed_buffer_is_repeated_full },
    { "a_failed_buffer_is_repeated_gemm", a_failed_buffer_is_repeated_gemm },
    { "a_device_that_is_lost_is_one_sentence", a_device_that_is_lost_is_one_sentence },
    { "after_a_failure_a_session_starts_again", after_a_failure_a_session_starts_again },
};
DS_TEST_MAIN(tests)
