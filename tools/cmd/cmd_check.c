/* deltascope check: the witness that a path computes what it should. */
#include "cmd/cmd.h"
#include "common/member.h"
#include "common/progress.h"
#include "common/grid.h"
#include "common/tool.h"

#include <math.h>
#include <stdio.h>

#define OUTPUT_MAX (4u << 20)

static void write_json(struct ds_bytes *out, const struct ds_check_report *r, const char *model, const char *oracle)
{
    struct ds_json_out j;
    ds_jo_init(&j, out, true);
    ds_jo_obj(&j);
    ds_jm_text(&j, "model", model);
    ds_jm_text(&j, "oracle", oracle);
    ds_jm_text(&j, "backend", r->backend);
    ds_jm_text(&j, "placement", r->placement);
    ds_jm_text(&j, "isa", r->isa);
    ds_jm_bool(&j, "pass", r->pass);
    ds_jm_text(&j, "limits", r->limits);
    ds_jm_int(&j, "left_out", r->n_left_out);
    ds_jm_arr(&j, "cases");
    for (int i = 0; i < r->n_cases; i++) {
        const struct ds_check_case *c = &r->cases[i];
        char greedy[32] = "";
        if (c->greedy_total > 0) snprintf(greedy, sizeof greedy, "%d/%d", c->greedy_equal, c->greedy_total);
        ds_jo_obj(&j);
        ds_jm_int(&j, "n", c->n);
        ds_jm_num(&j, "logits_cosine", c->logits_cosine);
        ds_jm_num(&j, "logits_max_abs", c->logits_max_abs);
        ds_jm_num(&j, "argmax_agreement", c->argmax_agreement);
        ds_jm_text(&j, "greedy_agreement", greedy);
        ds_jm_num(&j, "kv_max_abs", c->kv_max_abs);
        ds_jm_num(&j, "conv_max_abs", c->conv_max_abs);
        ds_jm_num(&j, "recurrent_max_abs", c->recurrent_max_abs);
        ds_jm_bool(&j, "argmax_judged", c->argmax_judged);
        ds_jm_bool(&j, "greedy_judged", c->greedy_judged);
        ds_jm_bool(&j, "caches_judged", c->caches_judged);
        ds_jm_bool(&j, "pass", c->pass);
        ds_jm_text(&j, "why", c->why);
        ds_jo_obj_end(&j);
    }
    ds_jo_arr_end(&j);
    ds_jo_obj_end(&j);
    ds_bytes_puts(out, "\n");
}

struct marks { bool blank, unjudged; };            /* which marks the table holds, for its legend */

/* A value that cannot make the case fail stands in parentheses. */
static void value(struct ds_grid *t, struct marks *m, bool judged, const char *text)
{
    m->unjudged |= !judged;
    ds_grid_cell(t, judged ? "%s" : "(%s)", text);
}

static void cache(struct ds_grid *t, struct marks *m, const struct ds_check_case *c, double v)
{
    char s[32];
    snprintf(s, sizeof s, "%.3g", v);
    if (!isnan(v)) value(t, m, c->caches_judged, s);
    else ds_grid_cell(t, "-");
    m->blank |= isnan(v);
}

static void case_row(struct ds_grid *t, struct marks *m, const struct ds_check_case *c)
{
    char s[32];
    ds_grid_cell(t, "%d", c->n);
    ds_grid_cell(t, "%.9f", c->logits_cosine);
    snprintf(s, sizeof s, "%.3g", c->logits_max_abs);
    value(t, m, false, s);
    snprintf(s, sizeof s, "%.2f %%", 100 * c->argmax_agreement);
    value(t, m, c->argmax_judged, s);
    snprintf(s, sizeof s, "%d/%d", c->greedy_equal, c->greedy_total);
    value(t, m, c->greedy_judged, s);
    cache(t, m, c, c->kv_max_abs);
    cache(t, m, c, c->conv_max_abs);
    cache(t, m, c, c->recurrent_max_abs);
    ds_grid_cell(t, "%s%s", c->pass ? "ok" : "FAIL: ", c->pass ? "" : c->why);
    ds_grid_end_row(t);
}

static void write_text(struct ds_bytes *out, const struct ds_check_report *r, const char *model, const char *oracle)
{
    struct ds_grid t;
    static const char *const head[] = { "tokens", "logits cosine", "max abs", "argmax", "greedy", "kv max abs", "conv max abs", "recurrent max abs", "" };
    struct marks m = { false, false };
    int passed = 0;
    ds_bytes_printf(out, "check %s on %s, placement %s, %s, against %s\n", model, r->backend, r->placement, r->isa,
                    oracle ? oracle : "the plain CPU path");
    ds_grid_init(&t, "rrrrrrrrl");
    for (size_t i = 0; i < sizeof head / sizeof *head; i++) ds_grid_cell(&t, "%s", head[i]);
    for (int i = 0; i < r->n_cases; i++) {
        case_row(&t, &m, &r->cases[i]);
        passed += r->cases[i].pass;
    }
    ds_grid_text(out, &t);
    ds_grid_free(&t);
    ds_bytes_puts(out, "max abs: the largest absolute difference of one value; a limit in parts of the norm is on all values together\n");
    if (m.blank) ds_bytes_puts(out, "'-': the reference has no such cache for this prompt\n");
    if (m.unjudged) ds_bytes_puts(out, "in parentheses: measured, not judged\n");
    if (r->n_left_out)
        ds_bytes_printf(out, "%d longer prompt%s left out: too much work for the plain path, or more than the window\n", r->n_left_out,
                        r->n_left_out > 1 ? "s" : "");
    ds_bytes_printf(out, "%s: %d of %d cases pass\n", r->pass ? "PASS" : "FAIL", passed, r->n_cases);
    ds_bytes_printf(out, "limits: %s\n", r->limits);
}

int ds_cmd_check(int argc, char **argv)
{
    struct ds_common common = { .skip = 0 };
    const char *oracle = NULL;
    bool json = false;
    const struct ds_opt opts[] = {
        { "--oracle", NULL, DS_OPT_PATH, &oracle, "FILE", 0, 0, "reference vectors (default: compare with the plain CPU path)" },
        { "--json", NULL, DS_OPT_FLAG, &json, NULL, 0, 0, "JSON on stdout, nothing else" },
    };
    struct ds_cli cli = {
        .prog = "deltascope check", .usage = "-m MODEL [--oracle FILE] [options]",
        .about = "Compares logits, greedy continuation, KV cache, convolution and recurrent state, case by case.\n"
                 "Exits with 1 when a case does not pass.\n",
        .opts = opts, .n_opts = sizeof opts / sizeof *opts, .common = &common,
        .groups = DS_GROUP_MODEL | DS_GROUP_SYNTH | DS_GROUP_ENGINE | DS_GROUP_ANSWER,
    };
    struct ds_check_report r;
    struct ds_progress bar;
    struct ds_bytes out;
    struct ds_err e;
    int rc = ds_cli_parse(&cli, argc, argv);
    if (rc != DS_CLI_GO) return rc;
    ds_tool_catch_interrupt();
    common.engine.progress = ds_progress_bytes;        /* no bar of its own, but an interrupt */
    ds_progress_start(&bar, "check", DS_PROGRESS_TOKENS);
    ds_status st = ds_check(&common.engine, oracle, &r, ds_progress_tick, &bar, &e);
    ds_progress_end(&bar);
    if (st) return ds_tool_fail(cli.prog, &e);
    ds_bytes_init(&out, OUTPUT_MAX);
    (json ? write_json : write_text)(&out, &r, common.engine.synth.like ? common.engine.synth.like : common.engine.model, oracle);
    st = ds_tool_write(&out, NULL, &e);
    rc = st ? ds_tool_fail(cli.prog, &e) : r.pass ? DS_EXIT_OK : DS_EXIT_FAIL;
    ds_bytes_free(&out);
    ds_check_report_free(&r);
    return rc;
}
