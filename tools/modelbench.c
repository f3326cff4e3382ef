/* modelbench: the same benchmark under the flag names that existing scripts use. */
#include "common/bench.h"
#include "common/tool.h"

#include "base/os.h"

int main(int argc, char **argv)
{
    struct ds_bench_spec s = { .prog = "modelbench", .prefill = { { 256, 512, 1024 }, 3 }, .reps = 5, .decode_reps = 1 };
    struct ds_options *o = &s.common.engine;
    bool lean = true, metal = false;
    int decode_steps = 0, decode_reps = 0;
    const struct ds_opt opts[] = {
        { "-gguf", NULL, DS_OPT_PATH, &o->model, "MODEL", 0, 0, "GGUF file (default: the model that ships in models/)" },
        { "-prefill-sizes", NULL, DS_OPT_INTS, &s.prefill, "P,P,...", 1, 1 << 20, "prompt lengths (default: 256,512,1024)" },
        { "-lean", NULL, DS_OPT_FLAG, &lean, NULL, 0, 0, "weights stay in the file's own types: the default, and the only way here" },
        { "-threads", NULL, DS_OPT_INT, &o->threads, "N", 1, 1024, "CPU threads (default: the usable ones)" },
        { "-backend", NULL, DS_OPT_CHOICE, &o->backend, DS_BACKENDS, 0, 0, "where the forward runs" },
        { "-metal", NULL, DS_OPT_FLAG, &metal, NULL, 0, 0, "short for -backend metal" },
        { "-placement", NULL, DS_OPT_CHOICE, &o->placement, "gemm|full", 0, 0, "weight products on the device, or everything" },
        { "-ubatch", NULL, DS_OPT_INT, &o->ubatch, "N", 1, 65536, "tokens per prefill chunk (default: 512)" },
        { "-reps", NULL, DS_OPT_INT, &s.reps, "R", 1, 1000, "repetitions; the median is reported (default: 5)" },
        { "-decode-steps", NULL, DS_OPT_INT, &decode_steps, "N", 0, 1 << 20, "time N decode steps too" },
        { "-decode-reps", NULL, DS_OPT_INT, &decode_reps, "N", 0, 1000, "repetitions of the decode run" },
        { "-json", NULL, DS_OPT_FLAG, &s.json, NULL, 0, 0, "JSON on stdout, nothing else" },
    };
    struct ds_cli cli = {
        .prog = s.prog,
        .usage = "-gguf MODEL [options]",
        .about = "Times prefill, and decode when -decode-steps or -decode-reps is given. Warms up first.\n",
        .opts = opts, .n_opts = sizeof opts / sizeof *opts,
        .common = &s.common, .groups = DS_GROUP_PROF,
    };
    ds_program_start();
    int rc = ds_cli_parse(&cli, argc, argv);
    if (rc != DS_CLI_GO) return ds_tool_finish(s.prog, rc);
    if (!lean) return ds_cli_usage(s.prog, "-lean=false: weights are never widened here, so there is no other way to run");
    if (metal && o->backend) return ds_cli_usage(s.prog, "-metal and -backend '%s' exclude each other", o->backend);
    if (metal) o->backend = "metal";
    if (!o->model) o->model = ds_default_model();
    if (decode_steps || decode_reps) {
        if (s.common.skip) return ds_cli_usage(s.prog, "decoding needs filled caches, and a skipped stage leaves them unfilled");
        s.decode = decode_steps ? decode_steps : 32;
        s.decode_reps = decode_reps ? decode_reps : 1;
    }
    s.command = cli.command;
    return ds_tool_finish(s.prog, ds_bench_run(&s));
}
