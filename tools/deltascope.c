/* The command line: one row per subcommand. */
#include "cmd/cmd.h"
#include "common/options.h"
#include "common/record.h"
#include "common/tool.h"

#include "base/os.h"

#include <stdio.h>
#include <string.h>

static const struct { const char *name; int (*fn)(int argc, char **argv); const char *about; } commands[] = {
    { "info",     ds_cmd_info,     "what a model is, what memory it takes, which kernels will run" },
    { "run",      ds_cmd_run,      "continue a text" },
    { "tokenize", ds_cmd_tokenize, "text to ids and back" },
    { "bench",    ds_cmd_bench,    "time prefill and decode" },
    { "ladder",   ds_cmd_ladder,   "measure prefill rung by rung: stages, skips, floor, chunk sizes" },
    { "check",    ds_cmd_check,    "prove that a path computes what it should" },
    { "synth",    ds_cmd_synth,    "write a model with random weights" },
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void help(FILE *f)
{
    fprintf(f, "usage: deltascope COMMAND [options]\n\ncommands\n");
    for (int i = 0; i < N_COMMANDS; i++) fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].about);
    fprintf(f, "\n'deltascope COMMAND --help' lists a command's options. modelbench is a program of its own.\n");
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    ds_program_start();
    if (!name) {
        help(stderr);
        return DS_EXIT_USAGE;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        help(stdout);
        return ds_tool_finish("deltascope", DS_EXIT_OK);
    }
    if (!strcmp(name, "--version")) {
        printf("deltascope %s (%s)\n", DS_VERSION, ds_commit());
        return ds_tool_finish("deltascope", DS_EXIT_OK);
    }
    for (int i = 0; i < N_COMMANDS; i++)
        if (!strcmp(name, commands[i].name)) {
            char prog[32];
            snprintf(prog, sizeof prog, "deltascope %s", name);
            return ds_tool_finish(prog, commands[i].fn(argc - 1, argv + 1));
        }
    return ds_cli_usage("deltascope", "unknown command '%s' (see deltascope --help)", name);
}
