/* One option parser for every tool, driven by tables.
 *
 * A tool describes itself in a struct ds_cli: its own options, the groups of common options that it
 * takes, and how many plain arguments. `ds_cli_parse` does the rest: --help, --version, range checks,
 * environment names, the default model. Bad usage is one sentence on stderr and exit code 2. */
#ifndef DS_TOOLS_COMMON_OPTIONS_H
#define DS_TOOLS_COMMON_OPTIONS_H

#include "deltascope.h"

enum ds_opt_kind {
    DS_OPT_FLAG,        /* bool *; takes no value, or =true / =false */
    DS_OPT_INT,         /* int *, within [min, max] */
    DS_OPT_INT64,       /* int64_t *, within [min, max] */
    DS_OPT_SEED,        /* uint64_t *, any value */
    DS_OPT_FLOAT,       /* float *, within [min, max], finite */
    DS_OPT_SIZE,        /* uint64_t *, bytes with an optional K, M, G or T (binary) */
    DS_OPT_TEXT,        /* const char **, not copied */
    DS_OPT_PATH,        /* const char **, not copied, not empty */
    DS_OPT_TEXTS,       /* struct ds_texts *, one more each time, not copied */
    DS_OPT_CHOICE,      /* const char **, one of the words in arg: "f16|f32" */
    DS_OPT_INTS,        /* struct ds_ints *, comma-separated, each within [min, max] */
    DS_OPT_WORDS,       /* unsigned *, comma-separated words of arg "gdn,attn": bit i for the i-th word */
    DS_OPT_PROFILE      /* enum ds_prof_mode *; value optional: stamp or drain */
};

#define DS_INTS_MAX 32
struct ds_ints { int v[DS_INTS_MAX]; int n; };
#define DS_TEXTS_MAX 32
#define DS_GIVEN_MAX 64
struct ds_texts { const char *v[DS_TEXTS_MAX]; int n; };

struct ds_opt {
    const char *name, *alias;       /* with their dashes; alias may be NULL */
    enum ds_opt_kind kind;
    void *dst;
    const char *arg;                /* word for the value in the help text, or the choices */
    double min, max;
    const char *help;               /* NULL: known only to be refused, and not listed */
};

/* Every backend there is, compiled in or not: choices of --backend. */
#define DS_BACKENDS "cpu|cuda|metal|auto"

enum ds_opt_group {
    DS_GROUP_MODEL  = 1,            /* -m, or the model that ships */
    DS_GROUP_SYNTH  = 2,            /* --like --type --layers --vocab --seed */
    DS_GROUP_ENGINE = 4,            /* --backend --placement --threads --isa --ubatch --ctx --kv --gdn */
    DS_GROUP_PROF   = 8,            /* --profile --skip and the environment names of both */
    DS_GROUP_ANSWER = 16,           /* the tool uses the output as the model's answer: skips are refused */
    DS_GROUP_RUNGS  = 32            /* the tool leaves stages out by itself: it refuses --skip, which is not listed */
};

struct ds_common {
    struct ds_options engine;       /* model: the default when none is named; NULL when there is none either */
    enum ds_prof_mode profile;
    unsigned skip;                  /* enum ds_skip bits */
};

struct ds_cli {
    const char *prog;               /* "deltascope bench" */
    const char *usage;              /* what follows prog in the usage line */
    const char *about;              /* one or a few lines of help, newline-terminated */
    const struct ds_opt *opts;
    int n_opts;
    struct ds_common *common;       /* NULL: no common options */
    unsigned groups;
    int min_args, max_args;         /* plain arguments: names of files, none empty */
    bool arg_is_model;              /* the first of them, when given, is the model */
    char command[1024];             /* out: the command line as typed */
    int n_args;                     /* out: how many plain arguments there are, */
    char **args;                    /* out: and where (inside argv) */
    const char *given[DS_GIVEN_MAX];    /* out: names of the options in the order given */
    int n_given;
};

enum { DS_EXIT_OK = 0, DS_EXIT_FAIL = 1, DS_EXIT_USAGE = 2, DS_EXIT_INTERRUPTED = 130 };
#define DS_CLI_GO (-1)              /* parsed; anything else is the exit code */

/* argv[0] is skipped. Reorders argv. */
int ds_cli_parse(struct ds_cli *c, int argc, char **argv);
/* The first option given that is not among `words`, which blanks separate; NULL when there is none. */
const char *ds_cli_given_besides(const struct ds_cli *c, const char *words);
/* Prints "prog: sentence" on stderr and returns DS_EXIT_USAGE. */
int ds_cli_usage(const char *prog, const char *fmt, ...) DS_PRINTF(2, 3);

/* True when the variable is set to anything but "" and "0". */
bool ds_env_on(const char *name);
/* models/NAME beside the folder of the executable, then in the working directory. NULL when in neither;
 * otherwise a static string. */
const char *ds_default_model(void);

#endif
