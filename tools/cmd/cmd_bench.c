/* deltascope bench: time prefill and decode. */
#include "cmd/cmd.h"
#include "common/bench.h"

int ds_cmd_bench(int argc, char **argv)
{
    struct ds_bench_spec s = { .prog = "deltascope bench", .prefill = { { 256, 512, 1024 }, 3 }, .reps = 5 };
    const struct ds_opt opts[] = {
        { "--prefill", NULL, DS_OPT_INTS, &s.prefill, "P,P,...", 1, 1 << 20, "prompt lengths (default: 256,512,1024)" },
        { "--depth", NULL, DS_OPT_INT, &s.depth, "D", 0, 1 << 20, "tokens already held before each (default: 0)" },
        { "--decode", NULL, DS_OPT_INT, &s.decode, "N", 0, 1 << 20, "also time N decode steps (default: 0)" },
        { "--reps", NULL, DS_OPT_INT, &s.reps, "R", 1, 1000, "repetitions; the median is reported (default: 5)" },
        { "--cold", NULL, DS_OPT_FLAG, &s.cold, NULL, 0, 0, "no warm-up: a fresh engine for every repetition" },
        { "--bare", NULL, DS_OPT_FLAG, &s.bare, NULL, 0, 0, "no stage times; against a run with them, what their stamps cost" },
        { "--json", NULL, DS_OPT_FLAG, &s.json, NULL, 0, 0, "JSON on stdout, nothing else" },
        { "--ids", NULL, DS_OPT_FLAG, &s.ids, NULL, 0, 0, "with --json: the token ids too, for running another engine on them" },
    };
    struct ds_cli cli = {
        .prog = s.prog,
        .usage = "(-m MODEL | --like NAME --type T [--layers N] [--vocab N]) [options]",
        .about = "Times prefill at each length (repetitions alternate between lengths) and, when asked, decode.\n"
                 "Prompts are seeded pseudo-random ids. Below 256 tokens a latency is printed, not a rate.\n",
        .opts = opts, .n_opts = sizeof opts / sizeof *opts,
        .common = &s.common, .groups = DS_GROUP_MODEL | DS_GROUP_SYNTH | DS_GROUP_ENGINE | DS_GROUP_PROF,
    };
    int rc = ds_cli_parse(&cli, argc, argv);
    if (rc != DS_CLI_GO) return rc;
    s.command = cli.command;
    s.decode_reps = s.reps;
    if (s.decode && s.common.skip)
        return ds_cli_usage(s.prog, "--decode needs filled caches, and --skip leaves them unfilled");
    if (s.bare && s.common.profile != DS_PROF_OFF)
        return ds_cli_usage(s.prog, "--bare and --profile (or FAK_QPROFILE=1) exclude each other: without stage times there is no profile");
    return ds_bench_run(&s);
}
