/* `check` without an oracle, which is what a Mac's owner runs first: a sound device passes on every model and in both placements,
 * and a device on which one kernel puts two numbers into each other's place fails, by the name of the op. */
#include "../model/model_fixture.h"

#include <stdio.h>

/* A bound on buffers too, which is the device's alone: the template must not be given it. */
#define MINI(name) { .model = FIXTURES name ".gguf", .backend = "metal", .gpu_work = 100 }

static const struct ds_options dense = MINI("mini-dense"), equalheads = MINI("mini-equalheads-tied"), moe = MINI("mini-moe");
static const struct ds_options tales = { .model = "models/tales-q8_0.gguf", .backend = "metal" };
enum { SHORT = 40, LONG = 96, SAID = 600 };        /* windows: prompts of 1, 2 and 5 tokens; of 64 too */

/* Enough once a prompt fails. */
static int stop_at_failure(void *report, int done, int total)
{
    const struct ds_check_report *r = report;
    (void)done, (void)total;
    return !r->pass;
}

/* Whether a check passes; what it said if not. */
static bool passes(const struct ds_options *model, const char *placement, int ctx, const char *device, char *said, size_t n)
{
    struct ds_options o = *model;
    struct ds_check_report r;
    struct ds_err e = { 0 };
    char text[80];
    snprintf(text, sizeof text, "races=0%s%s", *device ? "," : "", device);
    setenv("DS_METAL_SIM", text, 1);
    o.placement = placement;
    o.ctx = ctx;
    ds_status st = ds_check(&o, NULL, &r, stop_at_failure, &r, &e);
    snprintf(said, n, "%s", e.msg);
    for (int i = 0; i < r.n_cases; i++)
        if (!r.cases[i].pass) snprintf(said, n, "%d tokens: %s", r.cases[i].n, r.cases[i].why);
    const bool pass = !st && r.pass;
    ds_check_report_free(&r);
    return pass;
}

static void sound(const struct ds_options *model, const char *placement, int ctx, const char *device)
{
    char said[SAID];
    const bool pass = passes(model, placement, ctx, device, said, sizeof said);
    CHECK_MSG(pass, "%s in placement %s: %s", model->model, placement, said);
}

static void a_sound_device_passes(void)
{
    sound(&dense, "full", SHORT, "");
    sound(&equalheads, "full", SHORT, "");
    sound(&moe, "full", LONG, "");
    sound(&moe, "gemm", SHORT, "");
    sound(&tales, "gemm", SHORT, "");
}

static void rough_arithmetic_passes(void)
{
    sound(&moe, "full", SHORT, "rough=1");
    sound(&tales, "full", SHORT, "rough=1");
}

static void wrong(const struct ds_options *model, int ctx, const char *kernel, const char *op)
{
    char device[64], said[SAID];
    snprintf(device, sizeof device, "swap=%s", kernel);
    const bool pass = passes(model, "full", ctx, device, said, sizeof said);
    CHECK_MSG(!pass && strstr(said, op), "%s: %s", kernel, pass ? "passes" : said);
}

static void a_wrong_kernel_is_named(void)
{
    static const char *const cases[][2] = {
        { "embed_bf16", "embed" }, { "rms_norm", "rms_norm" }, { "gemv_bf16", "matmul" }, { "gemm_bf16", "matmul" }, { "gdn_prep", "gdn" },
        { "conv_tail", "gdn" }, { "gdn_seq", "gdn" }, { "gated_norm", "gated_norm" }, { "qk_norm", "qk_norm" }, { "rope_store_f32", "" },
        { "attn_part_f32", "attn" }, { "attn_merge", "attn" }, { "swiglu", "swiglu" }, { "moe_route", "moe_route" },
        { "gemv_experts_bf16", "matmul_experts" }, { "gemm_experts_bf16", "matmul_experts" }, { "moe_sort", "experts" },
        { "moe_combine", "moe_combine" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) wrong(&moe, SHORT, cases[i][0], cases[i][1]);
    wrong(&tales, SHORT, "act_half", "matmul");
    wrong(&tales, LONG, "gdn_chunk", "gdn");
    wrong(&tales, LONG, "attn_prefill_f32", "attn");
}

static const struct ds_test tests[] = {
    { "check_passes_on_a_sound_device", a_sound_device_passes },
    { "check_passes_with_rough_arithmetic", rough_arithmetic_passes },
    { "check_names_a_wrong_kernel", a_wrong_kernel_is_named },
};
DS_TEST_MAIN(tests)
