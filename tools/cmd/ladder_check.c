/* What makes a record of the ladder: its fields, and figures that can be true of its own machine. */
#include "cmd/ladder.h"
#include "common/record.h"
#include "common/report.h"
#include "common/rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUM_WITHIN 0.02                 /* stages against the wall */
#define ROUNDING 1e-6

struct where { const char *file; int index; const struct ds_json *r; };   /* a record, for messages */

static ds_status refuse(const struct where *w, struct ds_err *e, const char *key, const char *why)
{
    return ds_fail(e, DS_EFORMAT, "%s: record %d: '%s' %s", w->file, w->index, key, why);
}

/* --- kinds ------------------------------------------------------------------------------------------ */

enum kind { TEXT, TEXT_OR_NULL, COUNT, POSITIVE, NUMBER, TIME, AMOUNT, YES_NO, LIST, OBJECT, CLOCK };
static const char *const kind_names[] = {
    "text", "text or null", "a whole number", "a positive number", "a number", "a number from 0 up",
    "a number from 1e-9 up, which is a single operation or byte", "true or false", "a list", "an object", "what the system told"
};
struct field { const char *key; enum kind kind; const char *words; };     /* words: the only texts allowed, with bars between */

static bool is_kind(const struct ds_json *v, enum kind k)
{
    switch (k) {
    case TEXT:         return v->kind == DS_JSTR && v->n;
    case TEXT_OR_NULL: return v->kind == DS_JSTR || v->kind == DS_JNULL;
    case COUNT:        return v->kind == DS_JNUM && v->num >= 0 && v->num <= 1e9 && v->num == floor(v->num);
    case POSITIVE:     return v->kind == DS_JNUM && v->num > 0;
    case NUMBER:       return v->kind == DS_JNUM;
    case TIME:         return v->kind == DS_JNUM && v->num >= 0;
    case AMOUNT:       return v->kind == DS_JNUM && v->num >= 1e-9;
    case YES_NO:       return v->kind == DS_JBOOL;
    case LIST:         return v->kind == DS_JARR;
    case OBJECT:       return v->kind == DS_JOBJ;
    case CLOCK:        return v->kind == DS_JOBJ || v->kind == DS_JSTR || v->kind == DS_JNULL;
    }
    return false;
}

/* Texts go into tables and onto terminals. */
static bool has_control(const struct ds_json *v)
{
    return v && v->kind == DS_JSTR && !ds_text_is_plain(v->str, v->n);
}

static bool among(const char *words, const char *s)
{
    const size_t n = strlen(s);
    for (const char *p = words; p; p = strchr(p, '|'), p = p ? p + 1 : NULL)
        if (!strncmp(p, s, n) && (!p[n] || p[n] == '|')) return true;
    return false;
}

/* The fields of o, which is the record or, with `inside`, a part of it. */
static ds_status check_fields(const struct where *w, const struct ds_json *o, const char *inside, const struct field *f, size_t n, struct ds_err *e)
{
    for (; n--; f++) {
        char key[64];
        const struct ds_json *v = ds_json_get(o, f->key);
        snprintf(key, sizeof key, "%s%s%s", inside ? inside : "", inside ? "." : "", f->key);
        if (!v) return refuse(w, e, key, "is missing, and a record without its provenance is not taken");
        if (!is_kind(v, f->kind)) return ds_fail(e, DS_EFORMAT, "%s: record %d: '%s' is not %s", w->file, w->index, key, kind_names[f->kind]);
        if (has_control(v) || (f->kind == CLOCK && v->kind == DS_JOBJ && has_control(ds_json_get(v, "before"))))
            return refuse(w, e, key, "holds a control character");
        if (f->words && !among(f->words, v->str))
            return ds_fail(e, DS_EFORMAT, "%s: record %d: '%s' is '%.40s', expected %s", w->file, w->index, key, v->str, f->words);
    }
    return DS_OK;
}
#define FIELDS(table) table, sizeof (table) / sizeof *(table)

static const struct field in_record[] = {
    { "rung", COUNT, NULL }, { "name", TEXT, NULL }, { "phase", TEXT, "prefill" }, { "P", COUNT, NULL }, { "ubatch", COUNT, NULL },
    { "ms", LIST, NULL }, { "median_ms", POSITIVE, NULL }, { "stages_ms", OBJECT, NULL }, { "gemm_classes", LIST, NULL },
    { "skip", TEXT_OR_NULL, NULL }, { "profile", TEXT, "stamp|drain" }, { "runs_of_rung", COUNT, NULL }, { "warm_up_tokens", COUNT, NULL },
    { "flags", LIST, NULL }, { "machine", OBJECT, NULL }, { "backend", TEXT, NULL }, { "placement", TEXT, "full|gemm" },
    { "kv", TEXT, "f16|f32" }, { "gdn", TEXT, "seq|chunk" }, { "commit", TEXT, NULL }, { "model", TEXT_OR_NULL, NULL },
    { "model_hash", TEXT, NULL }, { "command", TEXT, NULL }, { "date", TEXT, NULL }, { "clock", CLOCK, NULL }, { "busy", YES_NO, NULL },
    { "busy_why", TEXT_OR_NULL, NULL },
};
static const struct field in_machine[] = {
    { "cpu", TEXT, NULL }, { "cores", COUNT, NULL }, { "threads", COUNT, NULL }, { "isa", TEXT, NULL }, { "gpu", TEXT_OR_NULL, NULL },
    { "peak_int8_gops", NUMBER, NULL }, { "peak_f32_gflops", POSITIVE, NULL }, { "peak_float_product_gflops", NUMBER, NULL },
    { "read_gbs", POSITIVE, NULL }, { "copy_gbs", POSITIVE, NULL },
};
static const struct field in_class[] = {
    { "class", TEXT, NULL }, { "kernel", TEXT, NULL }, { "ms", TIME, NULL }, { "gflop", AMOUNT, NULL }, { "gb", AMOUNT, NULL },
    { "bound_ms", TIME, NULL },
};

/* --- what it measured ------------------------------------------------------------------------------- */

static bool says_decode(const struct ds_json *v) { return v && v->kind == DS_JSTR && strstr(v->str, "decode"); }

/* A record that speaks of decoding anywhere is not a prefill measurement: the two have different limits. */
static bool from_decode(const struct ds_json *r)
{
    static const char *const words[] = { "phase", "kind", "name", "mode" };
    static const char *const keys[] = { "decode", "decode_steps", "steps", "ms_per_token" };
    const struct ds_json *command = ds_json_get(r, "command");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (says_decode(ds_json_get(r, words[i]))) return true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct ds_json *v = ds_json_get(r, keys[i]);
        if (v && v->kind != DS_JNULL && !(v->kind == DS_JBOOL && !v->num)) return true;
    }
    return command && command->kind == DS_JSTR && (strstr(command->str, "--decode") || strstr(command->str, "-decode-"));
}

/* The rung's number, name, skip, flags and runs say the same. */
static ds_status check_rung(const struct ds_record *rec, const struct where *w, struct ds_err *e)
{
    const char *name = ds_json_get(w->r, "name")->str, *words = ds_skip_words(ds_rung_skip(rec->rung));
    const struct ds_json *skip = ds_json_get(w->r, "skip"), *flags = ds_json_get(w->r, "flags");
    const int runs = (int)ds_json_get(w->r, "runs_of_rung")->num;
    bool timing_only = false;
    if (strcmp(name, ds_rung_names[rec->rung]))
        return ds_fail(e, DS_EFORMAT, "%s: record %d: 'name' is '%.40s', but rung %d is '%s'", w->file, w->index, name, rec->rung, ds_rung_names[rec->rung]);
    if (strcmp(skip->kind == DS_JSTR ? skip->str : "", words))
        return ds_fail(e, DS_EFORMAT, "%s: record %d: 'skip' is '%.40s', but rung %d leaves out %s", w->file, w->index,
                       skip->kind == DS_JSTR ? skip->str : "", rec->rung, *words ? words : "nothing");
    for (size_t i = 0; i < flags->n; i++) {
        if (flags->items[i].kind != DS_JSTR) return refuse(w, e, "flags", "holds something that is not text");
        timing_only |= !strcmp(flags->items[i].str, "TIMING ONLY");
    }
    if (timing_only != (*words != 0))
        return refuse(w, e, "flags", *words ? "lacks TIMING ONLY where a stage was left out" : "says TIMING ONLY where nothing was left out");
    if (runs != (rec->rung == 4 ? 0 : rec->rung) && !(rec->rung == 5 && runs == 0))
        return refuse(w, e, "runs_of_rung", "names a rung whose runs this one does not read");
    return DS_OK;
}

static ds_status read_times(struct ds_record *rec, const struct where *w, struct ds_err *e)
{
    const struct ds_json *ms = ds_json_get(w->r, "ms"), *st = ds_json_get(w->r, "stages_ms");
    if (ms->n < 1 || ms->n > 100000) return refuse(w, e, "ms", "is not a list of repetitions");
    double *v = malloc(ms->n * sizeof *v), sum = 0;
    if (!v) return ds_fail(e, DS_ENOMEM, "%s: no memory", w->file);
    bool good = true;
    for (size_t i = 0; i < ms->n; i++) {
        good &= ms->items[i].kind == DS_JNUM && ms->items[i].num > 0;
        v[i] = ms->items[i].num;
    }
    rec->reps = (int)ms->n;
    rec->median_ms = v[ds_median_index(v, rec->reps)];
    rec->min_ms = ds_min(v, rec->reps);
    rec->max_ms = ds_max(v, rec->reps);
    free(v);
    if (!good) return refuse(w, e, "ms", "holds something that is not a positive number");
    if (fabs(ds_json_get(w->r, "median_ms")->num - rec->median_ms) > ROUNDING * rec->median_ms)
        return refuse(w, e, "median_ms", "is not the (lower) median of its own repetitions");
    for (int s = 0; s < DS_ST_COUNT; s++) {
        const struct ds_json *x = ds_json_get(st, ds_stage_names[s]);
        if (!x || x->kind != DS_JNUM) return refuse(w, e, "stages_ms", "lacks a stage");
        if (x->num < -SUM_WITHIN * rec->median_ms) return refuse(w, e, "stages_ms", "holds a negative time");
        rec->stages[s] = x->num;
        sum += s == DS_ST_QKNORM ? 0 : x->num;
    }
    if (fabs(sum - rec->median_ms) > SUM_WITHIN * rec->median_ms)
        return ds_fail(e, DS_EFORMAT, "%s: record %d: 'stages_ms' add up to %.3f ms, but the wall is %.3f ms, more than %.0f %% away", w->file,
                       w->index, sum, rec->median_ms, 100 * SUM_WITHIN);
    return DS_OK;
}

/* No repetition may be faster than its own machine's peaks allow for the products alone, and their times are all of the stage's, so that
 * none is left out. A build without the profiler knows no
 * products, and no time of theirs. */
static ds_status check_rates(const struct ds_record *rec, const struct where *w, struct ds_err *e)
{
    const struct ds_json *m = ds_json_get(w->r, "machine"), *classes = ds_json_get(w->r, "gemm_classes");
    const struct ds_peaks pk = { .int8_gops = ds_json_get(m, "peak_int8_gops")->num, .f32_gflops = ds_json_get(m, "peak_f32_gflops")->num,
                                 .mm_gflops = ds_json_get(m, "peak_float_product_gflops")->num };
    const double stage = rec->stages[DS_ST_GEMM];
    double least = 0, sum = 0, fastest = rec->min_ms < stage ? rec->min_ms : stage;
    for (size_t i = 0; i < classes->n; i++) {
        const struct ds_json *c = &classes->items[i];
        ds_status st = check_fields(w, c, "gemm_classes", FIELDS(in_class), e);
        if (st) return st;
        const double peak = ds_kernel_peak(&pk, ds_json_get(c, "kernel")->str);
        if (!(peak > 0)) return refuse(w, e, "machine", "gives no peak for a kernel in 'gemm_classes'");
        sum += ds_json_get(c, "ms")->num;
        least += ds_bound_ms(ds_json_get(c, "gflop")->num, 0, peak, 0);
    }
    if (!classes->n && stage > 0) return refuse(w, e, "gemm_classes", "names no product, but 'stages_ms' holds time for them");
    if (fastest < least * (1 - ROUNDING))
        return ds_fail(e, DS_EFORMAT, "%s: record %d: the weight products, or a whole repetition in 'ms', took %.3f ms where its machine's own peak "
                       "needs %.3f ms", w->file, w->index, fastest, least);
    if (fabs(sum - stage) > ROUNDING * stage)
        return ds_fail(e, DS_EFORMAT, "%s: record %d: 'gemm_classes' add up to %.6g ms, but 'stages_ms' has %.6g ms of gemm+roundtrip", w->file,
                       w->index, sum, stage);
    return DS_OK;
}

/* --- a record ---------------------------------------------------------------------------------------- */

static const char *text_of(const struct ds_json *o, const char *key)
{
    const struct ds_json *v = ds_json_get(o, key);
    return v && v->kind == DS_JSTR && v->n ? v->str : NULL;
}

static void take_provenance(struct ds_record *rec, const struct ds_json *r)
{
    const struct ds_json *m = ds_json_get(r, "machine"), *clock = ds_json_get(r, "clock");
    rec->threads = (int)ds_json_get(m, "threads")->num;
    rec->cores = (int)ds_json_get(m, "cores")->num;
    rec->cpu = text_of(m, "cpu");
    rec->gpu = text_of(m, "gpu");
    rec->isa = text_of(m, "isa");
    rec->backend = text_of(r, "backend");
    rec->placement = text_of(r, "placement");
    rec->commit = text_of(r, "commit");
    rec->model = text_of(r, "model");
    rec->model_hash = text_of(r, "model_hash");
    rec->command = text_of(r, "command");
    rec->date = text_of(r, "date");
    rec->clock = clock->kind == DS_JOBJ ? text_of(clock, "before") : text_of(r, "clock");
    rec->busy = ds_json_get(r, "busy")->num != 0;
}

ds_status ds_record_read(struct ds_record *rec, const struct ds_json *r, const char *file, int index, struct ds_err *e)
{
    const struct where w = { file, index, r };
    ds_status st;
    *rec = (struct ds_record){ .json = r };
    if (r->kind != DS_JOBJ) return ds_fail(e, DS_EFORMAT, "%s: record %d is not an object", file, index);
    if (from_decode(r)) return ds_fail(e, DS_EFORMAT, "%s: record %d comes from a decode run, and prefill is not decode", file, index);
    if ((st = check_fields(&w, r, NULL, FIELDS(in_record), e)) || (st = check_fields(&w, ds_json_get(r, "machine"), "machine", FIELDS(in_machine), e)))
        return st;
    take_provenance(rec, r);
    rec->rung = (int)ds_json_get(r, "rung")->num;
    rec->P = (int)ds_json_get(r, "P")->num;
    rec->ubatch = (int)ds_json_get(r, "ubatch")->num;
    if (rec->rung >= DS_RUNGS) return refuse(&w, e, "rung", "is not a rung from 0 to 5");
    if (rec->P < 1) return refuse(&w, e, "P", "is not a prompt length");
    if (rec->ubatch < 1) return refuse(&w, e, "ubatch", "is not a number of tokens");
    if (rec->threads < 1 || rec->cores < 1) return refuse(&w, e, "machine", "has no threads or no cores");
    if ((st = check_rung(rec, &w, e)) || (st = read_times(rec, &w, e))) return st;
    return check_rates(rec, &w, e);
}
