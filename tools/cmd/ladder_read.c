/* Records of the ladder: read, checked, sorted into sections, written again. */
#include "cmd/ladder.h"
#include "common/member.h"
#include "common/record.h"

#include "base/os.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ds_ladder_free(struct ds_ladder *l)
{
    for (int i = 0; i < l->n_docs; i++) ds_json_free(l->docs[i]);
    free(l->docs);
    free(l->rec);
    free(l->sections);
    memset(l, 0, sizeof *l);
}

/* --- checks --------------------------------------------------------------------------------------- */

struct where { const char *file; int index; const struct ds_json *r; };   /* a record, for messages */

static ds_status refuse(const struct where *w, struct ds_err *e, const char *key, const char *why)
{
    return ds_fail(e, DS_EFORMAT, "%s: record %d: '%s' %s", w->file, w->index, key, why);
}

static const char *string_of(const struct ds_json *o, const char *key)
{
    const struct ds_json *v = ds_json_get(o, key);
    return v && v->kind == DS_JSTR && v->n ? v->str : NULL;
}

static bool whole(const struct ds_json *o, const char *key, double min, int *out)
{
    const struct ds_json *v = ds_json_get(o, key);
    if (!v || v->kind != DS_JNUM || v->num < min || v->num > 1e9 || v->num != floor(v->num)) return false;
    *out = (int)v->num;
    return true;
}

static bool says_decode(const char *s) { return s && strstr(s, "decode"); }

/* A record that speaks of decoding anywhere is not a prefill measurement: the two have different limits. */
static bool from_decode(const struct ds_json *r)
{
    static const char *const words[] = { "phase", "kind", "name", "mode" };
    static const char *const keys[] = { "decode", "decode_steps", "steps", "ms_per_token" };
    const char *command = string_of(r, "command");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (says_decode(string_of(r, words[i]))) return true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct ds_json *v = ds_json_get(r, keys[i]);
        if (v && v->kind != DS_JNULL && !(v->kind == DS_JBOOL && !v->num)) return true;
    }
    return command && (strstr(command, "--decode") || strstr(command, "-decode-"));
}

static ds_status check_provenance(const struct where *w, struct ds_err *e)
{
    static const char *const machine[] = { "cpu", "isa", NULL };
    for (const char *const *k = ds_provenance_required(); *k; k++) {
        const struct ds_json *v = ds_json_get(w->r, *k);
        bool told = v && (v->kind != DS_JNULL || !strcmp(*k, "clock")) && !(v->kind == DS_JSTR && !v->n);
        if (!told) return refuse(w, e, *k, "is missing, and a record without its provenance is not taken");
    }
    const struct ds_json *m = ds_json_get(w->r, "machine");
    int n;
    for (const char *const *k = machine; *k; k++)
        if (!string_of(m, *k)) return refuse(w, e, "machine", "does not name the processor and its instruction set");
    if (!whole(m, "threads", 1, &n)) return refuse(w, e, "machine", "does not give the number of threads");
    const struct ds_json *busy = ds_json_get(w->r, "busy");
    if (busy->kind != DS_JBOOL) return refuse(w, e, "busy", "is not true or false");
    return DS_OK;
}

static ds_status read_times(struct ds_record *rec, const struct where *w, struct ds_err *e)
{
    const struct ds_json *ms = ds_json_get(w->r, "ms"), *median = ds_json_get(w->r, "median_ms"), *st = ds_json_get(w->r, "stages_ms");
    if (ms->kind != DS_JARR || ms->n < 1 || ms->n > 100000) return refuse(w, e, "ms", "is not a list of repetitions");
    double *v = malloc(ms->n * sizeof *v);
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
    if (!median || median->kind != DS_JNUM || fabs(median->num - rec->median_ms) > 1e-6 * rec->median_ms)
        return refuse(w, e, "median_ms", "is not the (lower) median of its own repetitions");
    for (int s = 0; s < DS_ST_COUNT; s++) {
        const struct ds_json *x = ds_json_get(st, ds_stage_names[s]);
        if (!x || x->kind != DS_JNUM) return refuse(w, e, "stages_ms", "lacks a stage");
        rec->stages[s] = x->num;
    }
    return DS_OK;
}

static ds_status read_record(struct ds_record *rec, const struct where *w, struct ds_err *e)
{
    const struct ds_json *r = w->r, *m = ds_json_get(r, "machine"), *clock = ds_json_get(r, "clock");
    *rec = (struct ds_record){ .json = r };
    if (r->kind != DS_JOBJ) return ds_fail(e, DS_EFORMAT, "%s: record %d is not an object", w->file, w->index);
    if (from_decode(r)) return ds_fail(e, DS_EFORMAT, "%s: record %d comes from a decode run, and prefill is not decode", w->file, w->index);
    ds_status st = check_provenance(w, e);
    if (st) return st;
    if (!whole(r, "rung", 0, &rec->rung) || rec->rung >= DS_RUNGS) return refuse(w, e, "rung", "is not a rung from 0 to 5");
    if (!whole(r, "P", 1, &rec->P)) return refuse(w, e, "P", "is not a prompt length");
    if (!whole(r, "ubatch", 1, &rec->ubatch)) return refuse(w, e, "ubatch", "is not a number of tokens");
    whole(m, "threads", 1, &rec->threads);
    whole(m, "cores", 1, &rec->cores);
    rec->cpu = string_of(m, "cpu");
    rec->gpu = string_of(m, "gpu");
    rec->isa = string_of(m, "isa");
    rec->backend = string_of(r, "backend");
    rec->placement = string_of(r, "placement");
    rec->commit = string_of(r, "commit");
    rec->model = string_of(r, "model");
    rec->command = string_of(r, "command");
    rec->date = string_of(r, "date");
    rec->clock = clock->kind == DS_JOBJ ? string_of(clock, "before") : clock->kind == DS_JSTR ? clock->str : NULL;
    rec->busy = ds_json_get(r, "busy")->num != 0;
    if (!rec->backend || !rec->placement || !rec->commit || !rec->command || !rec->date)
        return ds_fail(e, DS_EFORMAT, "%s: record %d: backend, placement, commit, command and date must be text", w->file, w->index);
    return read_times(rec, w, e);
}

/* --- sections ------------------------------------------------------------------------------------- */

static bool same(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

static bool same_section(const struct ds_record *a, const struct ds_record *b)
{
    return same(a->cpu, b->cpu) && same(a->gpu, b->gpu) && same(a->isa, b->isa) && same(a->backend, b->backend) &&
           same(a->placement, b->placement) && same(a->commit, b->commit) && a->threads == b->threads;
}

static struct ds_section *new_section(struct ds_ladder *l, struct ds_err *e)
{
    struct ds_section *grown = realloc(l->sections, (size_t)(l->n_sections + 1) * sizeof *grown);
    if (!grown) {
        ds_fail(e, DS_ENOMEM, "%d machines: no memory", l->n_sections + 1);
        return NULL;
    }
    l->sections = grown;
    memset(&grown[l->n_sections], 0, sizeof *grown);
    return &grown[l->n_sections++];
}

ds_status ds_ladder_add_template(struct ds_ladder *l, const char *machine, const char *backend, const char *placement, struct ds_err *e)
{
    struct ds_section *s = new_section(l, e);
    if (!s) return DS_ENOMEM;
    snprintf(s->title, sizeof s->title, "%s, %s/%s", machine, backend, placement);
    return DS_OK;
}

/* The records moved when the list grew: sections are found and made anew, templates kept in front. */
static ds_status sort_into_sections(struct ds_ladder *l, struct ds_err *e)
{
    int templates = 0;
    while (templates < l->n_sections && !l->sections[templates].first) templates++;
    l->n_sections = templates;
    for (int i = 0; i < l->n; i++) {
        struct ds_record *r = &l->rec[i];
        int k = templates;
        while (k < l->n_sections && !same_section(l->sections[k].first, r)) k++;
        r->section = k;
        if (k < l->n_sections) continue;
        struct ds_section *s = new_section(l, e);
        if (!s) return DS_ENOMEM;
        s->first = r;
        snprintf(s->title, sizeof s->title, "%s%s%s, %d thread%s, %s, %s/%s", r->cpu, r->gpu ? " + " : "", r->gpu ? r->gpu : "", r->threads,
                 r->threads == 1 ? "" : "s", r->isa, r->backend, r->placement);
    }
    return DS_OK;
}

/* --- documents ------------------------------------------------------------------------------------ */

static ds_status same_model(struct ds_ladder *l, const struct where *w, struct ds_err *e)
{
    const char *hash = string_of(w->r, "model_hash"), *model = string_of(w->r, "model");
    if (!hash) return refuse(w, e, "model_hash", "is not text");
    if (!*l->hash) {
        snprintf(l->hash, sizeof l->hash, "%s", hash);
        snprintf(l->model, sizeof l->model, "%s", model ? model : "unnamed");
    }
    if (strcmp(l->hash, hash))
        return ds_fail(e, DS_EFORMAT, "%s: record %d was made under model hash %s, the ones before it under %s", w->file, w->index, hash, l->hash);
    return DS_OK;
}

static ds_status keep_document(struct ds_ladder *l, struct ds_json *doc, struct ds_err *e)
{
    struct ds_json **grown = realloc(l->docs, (size_t)(l->n_docs + 1) * sizeof *grown);
    if (!grown) {
        ds_json_free(doc);
        return ds_fail(e, DS_ENOMEM, "%d files: no memory", l->n_docs + 1);
    }
    l->docs = grown;
    l->docs[l->n_docs++] = doc;
    return DS_OK;
}

static ds_status room_for(struct ds_ladder *l, size_t more, struct ds_err *e)
{
    struct ds_record *grown = realloc(l->rec, ((size_t)l->n + more) * sizeof *grown);
    if (!grown) return ds_fail(e, DS_ENOMEM, "%zu records: no memory", (size_t)l->n + more);
    l->rec = grown;
    return DS_OK;
}

ds_status ds_ladder_add(struct ds_ladder *l, struct ds_json *doc, const char *name, struct ds_err *e)
{
    ds_status st = keep_document(l, doc, e);
    if (st) return st;
    const struct ds_json *list = ds_json_get(doc, "records");
    if (!list || list->kind != DS_JARR) return ds_fail(e, DS_EFORMAT, "%s: holds no 'records', so it is no ladder", name);
    if (list->n && (st = room_for(l, list->n, e))) return st;
    for (size_t i = 0; i < list->n; i++) {
        struct where w = { name, (int)i, &list->items[i] };
        st = read_record(&l->rec[l->n], &w, e);
        if (!st) st = same_model(l, &w, e);
        if (st) return st;
        l->n++;
    }
    return sort_into_sections(l, e);
}

ds_status ds_ladder_add_file(struct ds_ladder *l, const char *path, struct ds_err *e)
{
    struct ds_map map = { .data = NULL };
    struct ds_err why;
    ds_status st = ds_map_open(&map, path, e);
    if (st) return st;
    struct ds_json *doc = NULL;
    if (map.size > DS_LADDER_MAX) st = ds_fail(e, DS_EFORMAT, "%s: %zu bytes are too many for a ladder", path, map.size);
    else if (!(doc = ds_json_parse((const char *)map.data, map.size, &why))) st = ds_fail(e, DS_EFORMAT, "%s: %.400s", path, why.msg);
    ds_map_close(&map);
    return st ? st : ds_ladder_add(l, doc, path, e);
}

void ds_ladder_json(struct ds_bytes *out, const struct ds_ladder *l)
{
    struct ds_json_out j;
    ds_jo_init(&j, out, true);
    ds_jo_obj(&j);
    ds_jm_text(&j, "kind", "prefill-ladder");
    ds_jm_arr(&j, "records");
    for (int i = 0; i < l->n; i++) ds_jo_copy(&j, l->rec[i].json);
    ds_jo_arr_end(&j);
    ds_jo_obj_end(&j);
    ds_bytes_puts(out, "\n");
}

/* --- look-up -------------------------------------------------------------------------------------- */

const struct ds_record *ds_ladder_find(const struct ds_ladder *l, int section, int rung, int P, int ubatch)
{
    const struct ds_record *best = NULL;
    for (int i = 0; i < l->n; i++) {
        const struct ds_record *r = &l->rec[i];
        if (r->section != section || r->rung != rung || r->P != P || (ubatch && r->ubatch != ubatch)) continue;
        if (!best || strcmp(r->date, best->date) > 0) best = r;
    }
    return best;
}

double ds_record_per_token(const struct ds_record *r)
{
    return (r->median_ms - (r->stages[DS_ST_ATTN] - r->stages[DS_ST_QKNORM])) / r->P;
}
