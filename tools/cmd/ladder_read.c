/* Documents of the ladder: their records (ladder_check.c) sorted into sections, looked up, written again. */
#include "cmd/ladder.h"
#include "common/member.h"

#include "base/os.h"

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

static ds_status same_model(struct ds_ladder *l, const struct ds_record *r, const char *name, int index, struct ds_err *e)
{
    if (!*l->hash) {
        snprintf(l->hash, sizeof l->hash, "%s", r->model_hash);
        snprintf(l->model, sizeof l->model, "%s", r->model ? r->model : "unnamed");
    }
    if (strcmp(l->hash, r->model_hash))
        return ds_fail(e, DS_EFORMAT, "%s: record %d was made under model hash %.40s, the ones before it under %s", name, index, r->model_hash, l->hash);
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
    const struct ds_json *list = ds_json_get(doc, "records"), *kind = ds_json_get(doc, "kind");
    if (!list || list->kind != DS_JARR) return ds_fail(e, DS_EFORMAT, "%s: holds no 'records', so it is no ladder", name);
    if (!kind || kind->kind != DS_JSTR || strcmp(kind->str, DS_LADDER_KIND))
        return ds_fail(e, DS_EFORMAT, "%s: 'kind' is not '%s', so it is no ladder", name, DS_LADDER_KIND);
    if (list->n && (st = room_for(l, list->n, e))) return st;
    for (size_t i = 0; i < list->n; i++) {
        st = ds_record_read(&l->rec[l->n], &list->items[i], name, (int)i, e);
        if (!st) st = same_model(l, &l->rec[l->n], name, (int)i, e);
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
    ds_jm_text(&j, "kind", DS_LADDER_KIND);
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
