/* deltascope ladder: measure rung by rung, merge records, compare two. */
#include "cmd/cmd.h"
#include "cmd/ladder.h"
#include "common/record.h"
#include "common/tool.h"

#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ladder_args {
    struct ds_ladder_spec spec;
    const char *out, *before, *machine;
    bool merge, json;
    bool lengths_given;
};

/* --- where the records come from --------------------------------------------------------------------- */

static ds_status measured(struct ds_ladder *l, const struct ladder_args *a, struct ds_err *e)
{
    struct ds_bytes text;
    ds_bytes_init(&text, DS_LADDER_MAX);
    ds_status st = ds_ladder_measure(&text, &a->spec, e);
    struct ds_json *doc = NULL;
    if (!st && text.failed) st = ds_fail(e, DS_ENOMEM, "the records pass %zu bytes", text.max);
    if (!st && !(doc = ds_json_parse(text.p, text.n, e))) st = e->code;
    ds_bytes_free(&text);
    return st ? st : ds_ladder_add(l, doc, "this run", e);
}

static ds_status merged(struct ds_ladder *l, const struct ladder_args *a, const struct ds_cli *cli, struct ds_err *e)
{
    ds_status st = DS_OK;
    const struct ds_options *o = &a->spec.common.engine;
    if (a->machine) st = ds_ladder_add_template(l, a->machine, o->backend ? o->backend : "cpu", o->placement ? o->placement : "full", e);
    for (int i = 0; i < cli->n_args && !st; i++) st = ds_ladder_add_file(l, cli->args[i], e);
    return st;
}

/* The section of the earlier record that section 0 is compared with: of the same machine and model, and of
 * the same path when there is one. */
static ds_status match_before(struct ds_view *v, const char *path, struct ds_err *e)
{
    const struct ds_record *now = v->l->n_sections == 1 ? v->l->sections[0].first : NULL;
    int found = -1;
    if (!now) return ds_fail(e, DS_EARG, "--before sets two records of one machine side by side, and here are %d machines", v->l->n_sections);
    for (int s = 0; s < v->before->n_sections; s++) {
        const struct ds_record *then = v->before->sections[s].first;
        if (!then || strcmp(then->cpu, now->cpu) || strcmp(then->gpu ? then->gpu : "", now->gpu ? now->gpu : "")) continue;
        bool same_path = !strcmp(then->backend, now->backend) && !strcmp(then->placement, now->placement);
        if (found < 0 || same_path) found = s;
    }
    if (found < 0) return ds_fail(e, DS_EFORMAT, "%s: holds no record of this machine (%s)", path, now->cpu);
    if (strcmp(v->before->hash, v->l->hash))
        return ds_fail(e, DS_EFORMAT, "%s: was made under model hash %s, the records beside it under %s", path, v->before->hash, v->l->hash);
    v->before_section = found;
    return DS_OK;
}

static int by_value(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* The columns: the lengths asked for, or all that the records have. */
static void choose_lengths(struct ds_view *v, const struct ladder_args *a)
{
    v->P = a->spec.prefill;
    if (a->lengths_given || !v->l->n) return;
    v->P.n = 0;
    for (int i = 0; i < v->l->n; i++) {
        int k = 0;
        while (k < v->P.n && v->P.v[k] != v->l->rec[i].P) k++;
        if (k == v->P.n && k < DS_INTS_MAX) v->P.v[v->P.n++] = v->l->rec[i].P;
    }
    qsort(v->P.v, (size_t)v->P.n, sizeof *v->P.v, by_value);
}

/* --- output ------------------------------------------------------------------------------------------ */

static ds_status write_file(void (*make)(struct ds_bytes *, const struct ds_view *), const struct ds_view *v, const char *dir, const char *name,
                            struct ds_err *e)
{
    char path[4096];
    struct ds_bytes b;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path) return ds_fail(e, DS_EARG, "%s: the path is too long", dir);
    ds_bytes_init(&b, DS_LADDER_MAX);
    make(&b, v);
    ds_status st = ds_tool_write(&b, path, e);
    ds_bytes_free(&b);
    return st;
}

static void json_of(struct ds_bytes *b, const struct ds_view *v) { ds_ladder_json(b, v->l); }

static const struct { const char *name; void (*make)(struct ds_bytes *, const struct ds_view *); } outs[] = {
    { "ladder.md", ds_ladder_markdown }, { "ladder.json", json_of }, { "ladder.svg", ds_ladder_svg },
};
enum { N_OUT = sizeof outs / sizeof *outs };

static ds_status write_all(const struct ds_view *v, const struct ladder_args *a, struct ds_err *e)
{
    ds_status st = DS_OK;
    struct ds_bytes b;
    if (a->out) {
        for (int i = 0; i < N_OUT; i++)
            if ((st = write_file(outs[i].make, v, a->out, outs[i].name, e))) return st;
        fprintf(stderr, "wrote ladder.md, ladder.json and ladder.svg to %s\n", a->out);
    }
    ds_bytes_init(&b, DS_LADDER_MAX);
    (a->json ? json_of : ds_ladder_markdown)(&b, v);
    st = ds_tool_write(&b, NULL, e);
    ds_bytes_free(&b);
    return st;
}

/* The folder, and that its files can be written: known before an hour of measuring. */
static ds_status prepare_out(const char *dir, struct ds_err *e)
{
    char path[DS_PATH_MAX], target[DS_PATH_MAX];
    ds_status st = ds_dir_make(dir, e);
    if (st && ds_file_exists(dir)) return ds_fail(e, DS_EIO, "%s: is not a folder", dir);
    for (int i = 0; i < N_OUT && !st; i++) {
        if (snprintf(path, sizeof path, "%s/%s", dir, outs[i].name) >= (int)sizeof path) return ds_fail(e, DS_EARG, "%s: the path is too long", dir);
        st = ds_out_target(target, path, e);
    }
    return st;
}

static ds_status make_ladder(const struct ladder_args *a, const struct ds_cli *cli, struct ds_err *e)
{
    struct ds_ladder now = { .n = 0 }, before = { .n = 0 };
    struct ds_view v = { .l = &now };
    ds_status st = a->out ? prepare_out(a->out, e) : DS_OK;
    if (!st && a->before) st = ds_ladder_add_file(&before, a->before, e);      /* before an hour of measuring */
    if (!st) st = a->merge ? merged(&now, a, cli, e) : measured(&now, a, e);
    if (!st && a->before) {
        v.before = &before;
        st = match_before(&v, a->before, e);
    }
    if (!st) {
        choose_lengths(&v, a);
        st = write_all(&v, a, e);
    }
    ds_ladder_free(&now);
    ds_ladder_free(&before);
    return st;
}

/* --- options ----------------------------------------------------------------------------------------- */

/* What means something to a merge. */
#define MERGING "--merge --machine --prefill --out --before --json"

static int check_args(struct ladder_args *a, const struct ds_cli *cli)
{
    const char *prog = cli->prog;
    if (a->spec.common.skip)
        return ds_cli_usage(prog, "the ladder leaves stages out by itself: --skip, FAK_PREFILL_NO_GDN and FAK_PREFILL_NO_ATTN must be off");
    if (!a->merge && cli->n_args) return ds_cli_usage(prog, "unexpected argument '%s' (files are for --merge)", cli->args[0]);
    if (!a->merge && a->machine) return ds_cli_usage(prog, "--machine '%s' names a machine that was not measured here: it needs --merge", a->machine);
    if (a->merge && !cli->n_args && !a->machine) return ds_cli_usage(prog, "--merge needs files, or --machine for an empty ladder");
    const char *idle = a->merge ? ds_cli_given_besides(cli, a->machine ? MERGING " --backend --placement" : MERGING) : NULL;
    if (idle) return ds_cli_usage(prog, "%s does nothing with --merge, which measures nothing%s", idle,
                                  a->machine ? "" : " (--backend and --placement describe the machine of --machine)");
    if (a->machine && (!*a->machine || !ds_text_is_plain(a->machine, strlen(a->machine))))
        return ds_cli_usage(prog, "--machine: expected a name without control characters%s", *a->machine ? "" : ", not an empty one");
    for (int i = 1; i < a->spec.prefill.n; i++)
        if (a->spec.prefill.v[i] <= a->spec.prefill.v[i - 1]) return ds_cli_usage(prog, "--prefill: lengths must rise");
    return DS_CLI_GO;
}

int ds_cmd_ladder(int argc, char **argv)
{
    struct ladder_args a = { .spec = { .prog = "deltascope ladder", .reps = 3 } };
    const struct ds_opt opts[] = {
        { "--prefill", NULL, DS_OPT_INTS, &a.spec.prefill, "P,P,...", 1, 1 << 20, "prompt lengths (default: 256,512,1024)" },
        { "--reps", NULL, DS_OPT_INT, &a.spec.reps, "R", 1, 1000, "repetitions; cells are medians (default: 3)" },
        { "--out", NULL, DS_OPT_PATH, &a.out, "DIR", 0, 0, "also write ladder.md, ladder.json and ladder.svg there" },
        { "--before", NULL, DS_OPT_PATH, &a.before, "FILE", 0, 0, "an earlier ladder.json of this machine, set beside" },
        { "--merge", NULL, DS_OPT_FLAG, &a.merge, NULL, 0, 0, "measure nothing: put the records of FILES together" },
        { "--machine", NULL, DS_OPT_TEXT, &a.machine, "NAME", 0, 0, "with --merge: an empty ladder for a machine still to be measured" },
        { "--json", NULL, DS_OPT_FLAG, &a.json, NULL, 0, 0, "JSON on stdout, nothing else" },
    };
    struct ds_cli cli = {
        .prog = a.spec.prog,
        .usage = "(-m MODEL | --like NAME --type T) [options]   or   deltascope ladder --merge FILE... [options]",
        .about = "Rungs: 0 baseline with its stages, 1 no GDN, 2 no attention, 3 neither (the matmul-only floor),\n"
                 "4 the qk-norm timer, 5 chunk sizing. A cell is a measurement, or it is blank.\n",
        .opts = opts, .n_opts = sizeof opts / sizeof *opts, .common = &a.spec.common,
        .groups = DS_GROUP_MODEL | DS_GROUP_SYNTH | DS_GROUP_ENGINE | DS_GROUP_PROF | DS_GROUP_RUNGS, .max_args = 4096,
    };
    struct ds_err e;
    int rc = ds_cli_parse(&cli, argc, argv);
    if (rc != DS_CLI_GO) return rc;
    a.lengths_given = a.spec.prefill.n > 0;
    if (!a.lengths_given) a.spec.prefill = (struct ds_ints){ { 256, 512, 1024 }, 3 };
    a.spec.command = cli.command;
    if ((rc = check_args(&a, &cli)) != DS_CLI_GO) return rc;
    ds_tool_catch_interrupt();
    return make_ladder(&a, &cli, &e) ? ds_tool_fail(cli.prog, &e) : DS_EXIT_OK;
}
