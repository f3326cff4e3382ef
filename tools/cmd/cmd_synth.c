/* deltascope synth: write a model with random weights. */
#include "cmd/cmd.h"
#include "common/progress.h"
#include "common/tool.h"

#include "base/os.h"

int ds_cmd_synth(int argc, char **argv)
{
    struct ds_common common = { .skip = 0 };
    const char *path = NULL;
    bool force = false;
    const struct ds_opt opts[] = {
        { "-o", "--output", DS_OPT_PATH, &path, "FILE", 0, 0, "file to write" },
        { "--force", NULL, DS_OPT_FLAG, &force, NULL, 0, 0, "overwrite FILE when it exists" },
    };
    struct ds_cli cli = {
        .prog = "deltascope synth", .usage = "--like NAME --type T [--layers N] [--vocab N] [--seed S] -o FILE",
        .about = "Writes a GGUF file with seeded random weights whose activations stay sane: for timing, not for text.\n",
        .opts = opts, .n_opts = sizeof opts / sizeof *opts, .common = &common, .groups = DS_GROUP_SYNTH,
    };
    char target[DS_PATH_MAX];
    struct ds_progress bar;
    struct ds_err e;
    int rc = ds_cli_parse(&cli, argc, argv);
    if (rc != DS_CLI_GO) return rc;
    if (!common.engine.synth.like) return ds_cli_usage(cli.prog, "--like is missing (see %s --help)", cli.prog);
    if (!path) return ds_cli_usage(cli.prog, "-o is missing (see %s --help)", cli.prog);
    if (ds_out_target(target, path, &e)) return ds_tool_fail(cli.prog, &e);     /* before the weights are made */
    if (ds_file_exists(path) && !force) return ds_cli_usage(cli.prog, "%s: exists already, and --force was not given", path);
    ds_tool_catch_interrupt();
    ds_progress_start(&bar, "making weights", DS_PROGRESS_BYTES);
    common.engine.synth.progress = ds_progress_bytes;
    common.engine.synth.progress_ctx = &bar;
    ds_status st = ds_synth_write(&common.engine.synth, path, &e);
    ds_progress_end(&bar);
    return st ? ds_tool_fail(cli.prog, &e) : DS_EXIT_OK;
}
