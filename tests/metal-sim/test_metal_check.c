/* `check` without an oracle, which is what a Mac's owner runs first: a sound device passes on every model and in both placements,
 * and a device on which one kernel puts two numbers into each other's place fails, by the name of the op. */
#include "../model/model_fixture.h"

#include <stdio.h>

#define MINI(name) { .model = FIXTURES name ".gguf", .backend = "metal" }

static const struct ds_options dense = MINI("mini-dense"), equalheads = MINI("mini-equalheads-tied"), moe = MINI("mini-moe");
static const struct ds_options tales = { .model = "models/tales-q8_0.gguf", .backend = "metal" };
enum { SHORT = 40, LONG = 97, SAID = 600 };        /* windows: prompts of 1, 2 and 5 tokens; of up to 65 */

/* The report of a check; whether it passes. */
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
    ds_status st = ds_check(&o, NULL, &r, NULL, NULL, &e);
    snprintf(said, n, "%s", e.msg);
    for (int i = 0; !st && i < r.n_cases; i++)
        if (!r.cases[i].pass && !said[0]) snprintf(said, n, "%d tokens: %s", r.cases[i].n, r.cases[i].why);
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
    sound(&tales, "full", SHORT, "");
    sound(&tales, "gemm", SHORT, "");
}

static void rough_arithmetic_passes(void)
{
    sound(&moe, "full", SHORT, "rough=1");
    sound(&tales, "full", SHORT, "rough=1");
}

static void a_wrong_kernel_is_named(void)
{
    static const struct { const struct ds_options *model; const char *kernel, *op; } cases[] = {
        { &moe, "embed_bf16", "embed" }, { &moe, "rms_norm", "rms_norm" }, { &moe, "gemv_bf16", "matmul" }, { &moe, "gemm_bf16", "matmul" },
        { &moe, "gdn_prep", "gdn" }, { &moe, "conv_tail", "gdn_prep" }, { &moe, "gdn_seq", "gdn" }, { &moe, "gated_norm", "gated_norm" },
        { &moe, "qk_norm", "qk_norm" }, { &moe, "rope_store_f32", "" }, { &moe, "attn_part_f32", "attn" }, { &moe, "attn_merge", "attn" },
        { &moe, "swiglu", "swiglu" }, { &moe, "moe_route", "moe_route" }, { &moe, "gemv_experts_bf16", "matmul_experts" },
        { &moe, "gemm_experts_bf16", "matmul_experts" }, { &moe, "moe_sort", "matmul_experts" }, { &moe, "moe_combine", "moe_combine" },
        { &tales, "act_half", "matmul" }, { &tales, "gemm_q8_0", "matmul" }, { &tales, "gdn_chunk", "gdn" }, { &tales, "attn_prefill_f32", "attn" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char device[64], said[SAID];
        snprintf(device, sizeof device, "swap=%s", cases[i].kernel);
        const bool pass = passes(cases[i].model, "full", SHORT, device, said, sizeof said);
        CHECK_MSG(!pass && strstr(said, cases[i].op), "%s: %s", cases[i].kernel, pass ? "passes" : said);
    }
}

static const struct ds_test tests[] = {
    { "check_passes_on_a_sound_device", a_sound_device_passes },
    { "check_passes_with_rough_arithmetic", rough_arithmetic_passes },
    { "check_names_a_wrong_kernel", a_wrong_kernel_is_named },
};
DS_TEST_MAIN(tests)
