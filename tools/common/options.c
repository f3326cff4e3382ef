#include "common/options.h"

#include "base/os.h"
#include "common/record.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MODEL "models/tales-q8_0.gguf"

int ds_cli_usage(const char *prog, const char *fmt, ...)
{
    va_list ap;
    fprintf(stderr, "%s: ", prog);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return DS_EXIT_USAGE;
}

bool ds_env_on(const char *name)
{
    const char *v = getenv(name);
    return v && *v && strcmp(v, "0") != 0;
}

const char *ds_default_model(void)
{
    static char path[4096];
    char dir[3072];
    if (ds_exe_dir(dir, sizeof dir)) {
        snprintf(path, sizeof path, "%s/../%s", dir, DEFAULT_MODEL);
        if (ds_file_exists(path)) return path;
    }
    snprintf(path, sizeof path, "%s", DEFAULT_MODEL);
    return ds_file_exists(path) ? path : NULL;
}

/* --- values ---------------------------------------------------------------------------------- */

struct value { const char *prog, *name, *text; };   /* which option of which tool, and what was given */

static int bad_number(const struct value *v, double min, double max)
{
    return ds_cli_usage(v->prog, "%s '%s': expected a number from %.15g to %.15g", v->name, v->text, min, max);
}

/* The C library's readers take more than these options do: blanks in front, base 16, "nan" and "inf". */
static const char *skip_digits(const char *s) { return s + strspn(s, "0123456789"); }
static const char *skip_sign(const char *s) { return s + (*s == '-' || *s == '+'); }

/* Behind the decimal number at s ("12", "1.5", ".5", "2e-3"); NULL when there is none. */
static const char *skip_decimal(const char *s)
{
    const char *first = skip_sign(s), *end = skip_digits(first);
    bool digits = end != first;
    if (*end == '.') {
        digits |= end[1] >= '0' && end[1] <= '9';
        end = skip_digits(end + 1);
    }
    if (!digits) return NULL;
    if (*end != 'e' && *end != 'E') return end;
    const char *exponent = skip_sign(end + 1), *after = skip_digits(exponent);
    return after != exponent ? after : end;
}

static bool whole_number(const char *s, long long *out)
{
    const char *first = skip_sign(s);
    errno = 0;
    *out = strtoll(s, NULL, 10);
    return skip_digits(first) != first && !*skip_digits(first) && !errno;
}

static int parse_int(const struct ds_opt *o, const struct value *v, long long *x)
{
    if (!whole_number(v->text, x) || (double)*x < o->min || (double)*x > o->max) return bad_number(v, o->min, o->max);
    return DS_CLI_GO;
}

static int parse_float(const struct ds_opt *o, const struct value *v)
{
    const char *end = skip_decimal(v->text);
    double x = end && !*end ? strtod(v->text, NULL) : NAN;
    if (!isfinite(x) || x < o->min || x > o->max) return bad_number(v, o->min, o->max);
    *(float *)o->dst = (float)x;
    return DS_CLI_GO;
}

static int parse_seed(const struct ds_opt *o, const struct value *v)
{
    const char *end = skip_digits(v->text);
    errno = 0;
    unsigned long long x = strtoull(v->text, NULL, 10);
    if (end == v->text || *end || errno)
        return ds_cli_usage(v->prog, "%s '%s': expected a whole number from 0 to 2^64-1", v->name, v->text);
    *(uint64_t *)o->dst = x;
    return DS_CLI_GO;
}

/* "1536", "512M", "2G", "2GiB": powers of 1024. */
static int parse_size(const struct ds_opt *o, const struct value *v)
{
    static const char units[] = "KMGT";
    const char *end = skip_decimal(v->text), *digits = skip_sign(v->text);
    bool number = end && digits == v->text && *digits != '.';
    if (!number) end = v->text + strlen(v->text);
    double x = number ? strtod(v->text, NULL) : 0, scale = 1;
    const char *u = *end ? strchr(units, *end >= 'a' ? *end - 32 : *end) : NULL;
    if (u) {
        for (long k = u - units; k >= 0; k--) scale *= 1024;
        end++;
        if (*end == 'i') end++;
        if (*end == 'B') end++;
    }
    if (!number || *end || !(x * scale <= 0x1p62))
        return ds_cli_usage(v->prog, "%s '%s': expected a size such as 512M or 2G", v->name, v->text);
    *(uint64_t *)o->dst = (uint64_t)(x * scale);
    return DS_CLI_GO;
}

/* Index of word [s, s+n) among the words of `list` that `sep` separates; -1 when absent. */
static int word_index(const char *list, char sep, const char *s, size_t n)
{
    for (int i = 0; list; i++) {
        const char *end = strchr(list, sep);
        size_t len = end ? (size_t)(end - list) : strlen(list);
        if (len == n && !strncmp(list, s, n)) return i;
        list = end ? end + 1 : NULL;
    }
    return -1;
}

static int parse_path(const struct ds_opt *o, const struct value *v)
{
    if (!*v->text) return ds_cli_usage(v->prog, "%s '': expected the name of a file, not an empty one", v->name);
    *(const char **)o->dst = v->text;
    return DS_CLI_GO;
}

static int parse_texts(const struct ds_opt *o, const struct value *v)
{
    struct ds_texts *list = o->dst;
    if (list->n == DS_TEXTS_MAX) return ds_cli_usage(v->prog, "%s is given more than %d times", v->name, DS_TEXTS_MAX);
    list->v[list->n++] = v->text;
    return DS_CLI_GO;
}

static int parse_choice(const struct ds_opt *o, const struct value *v)
{
    if (word_index(o->arg, '|', v->text, strlen(v->text)) < 0)
        return ds_cli_usage(v->prog, "%s '%s': expected one of %s", v->name, v->text, o->arg);
    *(const char **)o->dst = v->text;
    return DS_CLI_GO;
}

static int parse_words(const struct ds_opt *o, const struct value *v)
{
    unsigned bits = 0;
    for (const char *p = v->text; p;) {
        const char *end = strchr(p, ',');
        int i = word_index(o->arg, ',', p, end ? (size_t)(end - p) : strlen(p));
        if (i < 0) return ds_cli_usage(v->prog, "%s '%s': expected words of %s, separated by commas", v->name, v->text, o->arg);
        bits |= 1u << i;
        p = end ? end + 1 : NULL;
    }
    *(unsigned *)o->dst |= bits;
    return DS_CLI_GO;
}

static int parse_ints(const struct ds_opt *o, const struct value *v)
{
    struct ds_ints list = { .n = 0 };
    for (const char *p = v->text; p;) {
        const char *end = strchr(p, ',');
        size_t n = end ? (size_t)(end - p) : strlen(p);
        char one[32];
        long long x;
        if (n >= sizeof one || list.n == DS_INTS_MAX)
            return ds_cli_usage(v->prog, "%s '%s': expected at most %d numbers", v->name, v->text, DS_INTS_MAX);
        memcpy(one, p, n);
        one[n] = 0;
        if (!whole_number(one, &x) || (double)x < o->min || (double)x > o->max)
            return ds_cli_usage(v->prog, "%s '%s': expected numbers from %.15g to %.15g, separated by commas", v->name, v->text, o->min,
                                o->max);
        list.v[list.n++] = (int)x;
        p = end ? end + 1 : NULL;
    }
    *(struct ds_ints *)o->dst = list;
    return DS_CLI_GO;
}

static int parse_flag(const struct ds_opt *o, const struct value *v)
{
    const char *s = v->text;
    if (s && strcmp(s, "true") && strcmp(s, "false") && strcmp(s, "1") && strcmp(s, "0"))
        return ds_cli_usage(v->prog, "%s takes no value, or =true or =false, not '%s'", v->name, s);
    *(bool *)o->dst = !s || !strcmp(s, "true") || !strcmp(s, "1");
    return DS_CLI_GO;
}

static int parse_profile(const struct ds_opt *o, const struct value *v)
{
    enum ds_prof_mode m = DS_PROF_STAMP;
    if (v->text && !strcmp(v->text, "drain")) m = DS_PROF_DRAIN;
    else if (v->text && strcmp(v->text, "stamp")) return ds_cli_usage(v->prog, "%s '%s': expected stamp or drain", v->name, v->text);
    *(enum ds_prof_mode *)o->dst = m;
    return DS_CLI_GO;
}

static bool value_optional(enum ds_opt_kind k) { return k == DS_OPT_FLAG || k == DS_OPT_PROFILE; }

static int set_option(const struct ds_opt *o, const struct value *v)
{
    long long x;
    int rc;
    switch (o->kind) {
    case DS_OPT_FLAG:    return parse_flag(o, v);
    case DS_OPT_INT:     if ((rc = parse_int(o, v, &x)) == DS_CLI_GO) *(int *)o->dst = (int)x; return rc;
    case DS_OPT_INT64:   if ((rc = parse_int(o, v, &x)) == DS_CLI_GO) *(int64_t *)o->dst = x; return rc;
    case DS_OPT_SEED:    return parse_seed(o, v);
    case DS_OPT_FLOAT:   return parse_float(o, v);
    case DS_OPT_SIZE:    return parse_size(o, v);
    case DS_OPT_TEXT:    *(const char **)o->dst = v->text; return DS_CLI_GO;
    case DS_OPT_PATH:    return parse_path(o, v);
    case DS_OPT_TEXTS:   return parse_texts(o, v);
    case DS_OPT_CHOICE:  return parse_choice(o, v);
    case DS_OPT_INTS:    return parse_ints(o, v);
    case DS_OPT_WORDS:   return parse_words(o, v);
    case DS_OPT_PROFILE: return parse_profile(o, v);
    }
    return DS_EXIT_USAGE;
}

/* --- common options ---------------------------------------------------------------------------- */

#define MAX_COMMON 28

static bool refuses_skips(const struct ds_cli *c) { return c->groups & (DS_GROUP_ANSWER | DS_GROUP_RUNGS); }

static int common_table(struct ds_opt *t, const struct ds_cli *c)
{
    struct ds_common *m = c->common;
    int n = 0;
    if (!m) return 0;
    struct ds_options *e = &m->engine;
    if (c->groups & DS_GROUP_MODEL)
        t[n++] = (struct ds_opt){ "-m", "--model", DS_OPT_PATH, &e->model, "MODEL", 0, 0, "GGUF file (default: " DEFAULT_MODEL ")" };
    if (c->groups & DS_GROUP_SYNTH) {
        t[n++] = (struct ds_opt){ "--like", NULL, DS_OPT_TEXT, &e->synth.like, "NAME", 0, 0, "random weights in the geometry of NAME" };
        t[n++] = (struct ds_opt){ "--type", NULL, DS_OPT_TEXT, &e->synth.type, "TYPE", 0, 0, "their storage type (default: q8_0)" };
        t[n++] = (struct ds_opt){ "--layers", NULL, DS_OPT_INT, &e->synth.layers, "N", 1, 512, "N layers, fewer or more than published" };
        t[n++] = (struct ds_opt){ "--vocab", NULL, DS_OPT_INT, &e->synth.vocab, "N", 288, 1 << 20, "only N vocabulary rows" };
        t[n++] = (struct ds_opt){ "--seed", NULL, DS_OPT_SEED, &e->synth.seed, "S", 0, 0, "seed of whatever is random (default: 0)" };
    }
    if (c->groups & DS_GROUP_ENGINE) {
        t[n++] = (struct ds_opt){ "--backend", NULL, DS_OPT_CHOICE, &e->backend, DS_BACKENDS, 0, 0, "where the forward runs" };
        t[n++] = (struct ds_opt){ "--placement", NULL, DS_OPT_CHOICE, &e->placement, "gemm|full", 0, 0,
                                  "weight products on the device, or everything" };
        t[n++] = (struct ds_opt){ "--threads", "-t", DS_OPT_INT, &e->threads, "N", 1, 1024, "CPU threads (default: the usable ones)" };
        t[n++] = (struct ds_opt){ "--isa", NULL, DS_OPT_CHOICE, &e->isa,
                                  "auto|scalar|avx2|avxvnni|avx512|avx512vnni|avx512bf16|neon|dotprod|i8mm", 0, 0,
                                  "forbids CPU instructions above it" };
        t[n++] = (struct ds_opt){ "--gemm", NULL, DS_OPT_TEXT, &e->gemm, "bf16|fp8[:LIST]", 0, 0,
                                  "operands of weight products on a GPU (default: bf16)" };
        t[n++] = (struct ds_opt){ "--weights", NULL, DS_OPT_CHOICE, &e->weights, "auto|blocks|bf16", 0, 0,
                                  "copies of the weights for them (default: auto)" };
        t[n++] = (struct ds_opt){ "--ubatch", NULL, DS_OPT_INT, &e->ubatch, "N", 1, 65536, "tokens per prefill chunk (default: 512; GPU: up to 4096)" };
        t[n++] = (struct ds_opt){ "--ctx", NULL, DS_OPT_INT64, &e->ctx, "N", 1, 1 << 30, "window in tokens" };
        t[n++] = (struct ds_opt){ "--kv", NULL, DS_OPT_CHOICE, &e->kv, "f16|f32", 0, 0, "type of the KV cache (default: f16)" };
        t[n++] = (struct ds_opt){ "--gdn", NULL, DS_OPT_CHOICE, &e->gdn, "auto|seq|chunk", 0, 0, "form of the recurrence in prefill" };
        t[n++] = (struct ds_opt){ "--gpu-work", NULL, DS_OPT_FLOAT, &e->gpu_work, "N", 0.000001, 1000000,
                                  "Metal: most operations of a command buffer, in 1e9 (default: 200)" };
    }
    if (c->groups & (DS_GROUP_PROF | DS_GROUP_ANSWER)) {
        t[n++] = (struct ds_opt){ "--profile", NULL, DS_OPT_PROFILE, &m->profile, "[=drain]", 0, 0,
                                  "stage times on stderr; drain waits after each stage" };
        t[n++] = (struct ds_opt){ "--skip", NULL, DS_OPT_WORDS, &m->skip, "gdn,attn", 0, 0,
                                  refuses_skips(c) ? NULL : "leave stages out, for timing only" };
    }
    return n;
}

static int environment(const struct ds_cli *c)
{
    struct ds_common *m = c->common;
    if (!m || !(c->groups & (DS_GROUP_PROF | DS_GROUP_ANSWER))) return DS_CLI_GO;
    if (m->profile == DS_PROF_OFF && ds_env_on("FAK_QPROFILE")) m->profile = DS_PROF_STAMP;
    if (ds_env_on("FAK_PREFILL_NO_GDN")) m->skip |= DS_SKIP_GDN;
    if (ds_env_on("FAK_PREFILL_NO_ATTN")) m->skip |= DS_SKIP_ATTN;
    if ((c->groups & DS_GROUP_ANSWER) && m->skip)
        return ds_cli_usage(c->prog, "a skipped stage (--skip, FAK_PREFILL_NO_GDN, FAK_PREFILL_NO_ATTN) is TIMING ONLY and leaves no "
                            "model answer: use bench or ladder");
    return DS_CLI_GO;
}

/* The engine keeps to what there is; here it is said. */
static void say_threads(const struct ds_cli *c)
{
    const int threads = c->common ? c->common->engine.threads : 0, usable = ds_cpu_count();
    if (threads > usable) fprintf(stderr, "%s: --threads %d: this machine gives %d, using %d\n", c->prog, threads, usable, usable);
}

/* Which weights: -m, --like, or the default model. */
static int choose_model(const struct ds_cli *c)
{
    struct ds_options *e = c->common ? &c->common->engine : NULL;
    if (!e) return DS_CLI_GO;
    if (c->arg_is_model && c->n_args && e->model)
        return ds_cli_usage(c->prog, "two models are named: '%s' and '%s'", e->model, c->args[0]);
    if (c->arg_is_model && c->n_args) e->model = c->args[0];
    const struct ds_synth_spec *s = &e->synth;
    if (s->like && e->model) return ds_cli_usage(c->prog, "-m '%s' and --like '%s' exclude each other", e->model, s->like);
    if (!s->like && (s->type || s->layers || s->vocab)) return ds_cli_usage(c->prog, "--type, --layers and --vocab need --like");
    if (s->like) {
        const char *const *names = ds_synth_names();
        while (*names && strcmp(*names, s->like)) names++;
        if (!*names) return ds_cli_usage(c->prog, "--like '%s': no such geometry (see --help)", s->like);
        if (!s->type) e->synth.type = "q8_0";
    }
    if ((c->groups & DS_GROUP_MODEL) && !s->like && !e->model) e->model = ds_default_model();
    return DS_CLI_GO;
}

/* --- help -------------------------------------------------------------------------------------- */

static void help_rows(const struct ds_opt *t, int n)
{
    for (int i = 0; i < n; i++) {
        if (!t[i].help) continue;
        char left[128];
        bool joined = t[i].kind == DS_OPT_PROFILE;
        snprintf(left, sizeof left, "%s%s%s%s%s", t[i].name, t[i].alias ? ", " : "", t[i].alias ? t[i].alias : "",
                 t[i].arg && !joined ? " " : "", t[i].arg ? t[i].arg : "");
        if (strlen(left) > 26) printf("  %s\n  %-26s %s\n", left, "", t[i].help);
        else printf("  %-26s %s\n", left, t[i].help);
    }
}

static void print_help(const struct ds_cli *c, const struct ds_opt *common, int n_common)
{
    printf("usage: %s %s\n\n%s", c->prog, c->usage, c->about);
    if (c->n_opts) {
        printf("\noptions\n");
        help_rows(c->opts, c->n_opts);
    }
    if (n_common) {
        printf("\ncommon options\n");
        help_rows(common, n_common);
    }
    printf("  %-26s %s\n  %-26s %s\n", "--help, -h", "this text", "--version", "version and commit");
    if (c->common && (c->groups & DS_GROUP_SYNTH)) {
        printf("\ngeometries for --like:");
        for (const char *const *p = ds_synth_names(); *p; p++) printf(" %s", *p);
        printf("\n");
    }
    if (c->common && (c->groups & DS_GROUP_PROF))
        printf("\nenvironment (empty or 0: off): FAK_QPROFILE=1 is --profile%s", refuses_skips(c) ? ".\n" :
               ", FAK_PREFILL_NO_GDN=1 is --skip gdn,\nFAK_PREFILL_NO_ATTN=1 is --skip attn.\n");
    printf("\nexit codes: 0 success, 1 failure, 2 bad usage, 130 interrupted.\n");
}

/* --- parse ------------------------------------------------------------------------------------- */

/* Is the option called `name` meant by the n bytes at s? Names of several letters go with one dash or two. */
static bool names_option(const char *name, const char *s, size_t n)
{
    size_t skip = 0;
    if (name && n > 2 && s[1] == '-') skip = 2;
    else if (name && n > 2) skip = 1;
    if (skip) name += strspn(name, "-");
    return name && strlen(name) == n - skip && !strncmp(name, s + skip, n - skip);
}

static const struct ds_opt *find_option(const struct ds_opt *t, int count, const char *s, size_t n)
{
    for (int i = 0; i < count; i++)
        if (names_option(t[i].name, s, n) || names_option(t[i].alias, s, n)) return &t[i];
    return NULL;
}

struct parse { struct ds_cli *c; struct ds_opt common[MAX_COMMON]; int n_common; int argc; char **argv; int i; };

static int parse_option(struct parse *p)
{
    struct ds_cli *c = p->c;
    char *a = p->argv[p->i];
    char *eq = strchr(a, '=');
    size_t n = eq ? (size_t)(eq - a) : strlen(a);
    const struct ds_opt *o = find_option(c->opts, c->n_opts, a, n);
    if (!o) o = find_option(p->common, p->n_common, a, n);
    if (!o) return ds_cli_usage(c->prog, "unknown option '%s' (see %s --help)", a, c->prog);
    struct value v = { c->prog, o->name, eq ? eq + 1 : NULL };
    if (!v.text && !value_optional(o->kind)) {
        if (p->i + 1 >= p->argc) return ds_cli_usage(c->prog, "%s needs a value (%s)", o->name, o->arg ? o->arg : "VALUE");
        v.text = p->argv[++p->i];
    }
    c->given[c->n_given < DS_GIVEN_MAX ? c->n_given++ : DS_GIVEN_MAX - 1] = o->name;
    return set_option(o, &v);
}

const char *ds_cli_given_besides(const struct ds_cli *c, const char *words)
{
    for (int i = 0; i < c->n_given; i++)
        if (word_index(words, ' ', c->given[i], strlen(c->given[i])) < 0) return c->given[i];
    return NULL;
}

int ds_cli_parse(struct ds_cli *c, int argc, char **argv)
{
    struct parse p = { .c = c, .argc = argc, .argv = argv };
    bool plain = false;
    p.n_common = common_table(p.common, c);
    ds_command_line(c->command, sizeof c->command, c->prog, argc, argv);
    c->args = argv + 1;
    c->n_args = c->n_given = 0;
    for (p.i = 1; p.i < argc; p.i++) {
        char *a = argv[p.i];
        int rc;
        if (plain || a[0] != '-' || !a[1]) {
            c->args[c->n_args++] = a;
        } else if (!strcmp(a, "--")) {
            plain = true;
        } else if (names_option("--help", a, strlen(a)) || !strcmp(a, "-h")) {
            print_help(c, p.common, p.n_common);
            return DS_EXIT_OK;
        } else if (names_option("--version", a, strlen(a))) {
            printf("deltascope %s (%s)\n", DS_VERSION, ds_commit());
            return DS_EXIT_OK;
        } else if ((rc = parse_option(&p)) != DS_CLI_GO) {
            return rc;
        }
    }
    if (c->n_args > c->max_args) return ds_cli_usage(c->prog, "unexpected argument '%s'", c->args[c->max_args]);
    if (c->n_args < c->min_args) return ds_cli_usage(c->prog, "an argument is missing: %s %s", c->prog, c->usage);
    for (int i = 0; i < c->n_args; i++)
        if (!*c->args[i]) return ds_cli_usage(c->prog, "argument %d is empty, expected the name of a file", i + 1);
    int rc = environment(c);
    if (rc == DS_CLI_GO) rc = choose_model(c);
    if (rc == DS_CLI_GO) say_threads(c);
    return rc;
}
