/* One session in one file. */
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a session goes: the file behind the path's links, and its name until it is whole. */
struct place { char target[DS_PATH_MAX], part[DS_PATH_MAX]; };

/* What lies at the target is replaced only if it is a whole session of this engine. */
static ds_status check_target(const char *target, const char *path, const struct ds_shape *sh, struct ds_err *e)
{
    struct ds_map m;
    struct ds_file f;
    if (ds_file_kind(target) == DS_FILE_NONE) return DS_OK;
    ds_status st = ds_map_open(&m, path, e);
    if (st) return st;
    st = ds_file_head(&f, path, m.data, m.size, sh, e);
    if (!st && f.from)
        st = ds_fail(e, DS_EUNSUP, "%s: holds positions from %lld on, expected a whole session", path, (long long)f.from);
    ds_map_close(&m);
    return st;
}

/* A part that an ended process left may be written again; a file of somebody else's may not. */
static ds_status check_part(const char *part, struct ds_err *e)
{
    struct ds_map m;
    if (ds_file_kind(part) != DS_FILE_REGULAR) return DS_OK;       /* whatever else is there refuses to be created */
    ds_status st = ds_map_open(&m, part, e);
    if (st) return st;
    if (!ds_file_begun(m.data, m.size))
        st = ds_fail(e, DS_EIO, "%s: is no part of a session file, and would be overwritten", part);
    ds_map_close(&m);
    return st;
}

static ds_status find_place(struct place *at, const char *path, const struct ds_shape *sh, struct ds_err *e)
{
    const size_t suffix = strlen(DS_FILE_SUFFIX);
    ds_status st = ds_out_target(at->target, path, e);
    if (st) return st;
    const size_t n = strlen(at->target);
    if (n >= suffix && !strcmp(at->target + n - suffix, DS_FILE_SUFFIX))
        return ds_fail(e, DS_EARG, "%s: names that end in " DS_FILE_SUFFIX " are those of a server's prefixes, expected another",
                       path);
    if (snprintf(at->part, sizeof at->part, "%s.tmp", at->target) >= (int)sizeof at->part)
        return ds_fail(e, DS_EARG, "%s: the path is too long", path);
    st = check_target(at->target, path, sh, e);
    return st ? st : check_part(at->part, e);
}

ds_status ds_session_save_check(const ds_engine *g, const char *path, struct ds_err *e)
{
    const struct ds_shape sh = ds_store_shape(g);
    struct place at;
    struct ds_out out;
    struct ds_err why;
    ds_status st = find_place(&at, path, &sh, e);
    if (st) return st;
    if ((st = ds_out_open(&out, at.part, false, &why)))
        return ds_fail(e, st, "%s: no session can be saved there: %s", path, why.msg);
    ds_out_close(&out, false, NULL);
    ds_file_remove(at.part);
    return DS_OK;
}

static ds_status put_session(const ds_session *s, struct ds_file_out *w, const struct ds_shape *sh, const float *logits,
        struct ds_err *e)
{
    const int64_t pos = ds_session_pos(s);
    const size_t rows = DS_BLOCK * sh->kv;
    void *room = malloc((rows > sh->state ? rows : sh->state) + 1);
    ds_status st = room ? DS_OK : ds_fail(e, DS_ENOMEM, "the system refused memory for saving");
    for (int64_t a = 0; a < pos && !st; a += DS_BLOCK) {
        const int64_t b = a + DS_BLOCK < pos ? a + DS_BLOCK : pos;
        ds_session_get_kv(s, a, b, room);
        st = ds_file_put(w, room, (size_t)(b - a) * sh->kv, e);
    }
    if (!st) {
        ds_session_get_state(s, room);
        st = ds_file_put(w, room, sh->state, e);
    }
    if (!st && logits) st = ds_file_put(w, logits, sh->logits, e);
    free(room);
    return st;
}

ds_status ds_session_save(const ds_session *s, const ds_engine *g, const char *path, struct ds_err *e)
{
    const struct ds_shape sh = ds_store_shape(g);
    const int64_t pos = ds_session_pos(s);
    const float *logits = ds_session_logits(s);
    const struct ds_file_snap snap = { pos, (logits ? DS_FILE_LOGITS : 0u) | (unsigned)DS_SNAP_END << DS_FILE_KIND_SHIFT };
    struct ds_file_out w;
    struct place at;
    if (ds_session_is_timing_only(s)) return ds_fail(e, DS_EARG,
            "%s: a session with stages left out is for timing only and is not saved", path);
    if (pos < 1) return ds_fail(e, DS_EARG, "%s: the session holds no tokens, so there is nothing to save", path);
    ds_status st = find_place(&at, path, &sh, e);
    if (st) return st;
    st = ds_file_begin(&w, at.part, &sh, ds_session_tokens(s), 0, pos, 0, &snap, 1, e);
    if (st) return st;
    if ((st = put_session(s, &w, &sh, logits, e))) {
        ds_file_abort(&w);
        return st;
    }
    if ((st = ds_file_end(&w, e))) return st;
    if ((st = ds_file_rename(at.part, at.target, e))) ds_file_remove(at.part);
    return st;
}

static ds_status load(ds_session *s, const struct ds_file *f, const char *path, struct ds_err *e)
{
    const float *logits;
    if (f->from) return ds_fail(e, DS_EUNSUP, "%s: holds positions from %lld on, expected a whole session", path,
            (long long)f->from);
    if (ds_session_is_timing_only(s)) return ds_fail(e, DS_EARG,
            "%s: a session with stages left out cannot go on from a saved one", path);
    const void *state = ds_file_state(f, f->n_snaps - 1, &logits);
    for (int64_t a, b, t = 0; t < f->to; t = b) {
        const void *rows = ds_file_rows(f, t, &a, &b);
        ds_session_set_kv(s, a, b, rows);
    }
    return ds_session_resume(s, f->ids, f->to, state, logits, e);
}

ds_status ds_session_load(ds_session *s, const ds_engine *g, const char *path, struct ds_err *e)
{
    const struct ds_shape sh = ds_store_shape(g);
    struct ds_map m;
    struct ds_file f;
    ds_status st = ds_map_open(&m, path, e);
    if (st) return st;
    if (!(st = ds_file_head(&f, path, m.data, m.size, &sh, e)) && !(st = ds_file_body(&f, path, e))) {
        if (f.to > ds_engine_info(g)->ctx)
            st = ds_fail(e, DS_EARG, "%s: holds %lld tokens, but the window holds %lld", path, (long long)f.to,
                    (long long)ds_engine_info(g)->ctx);
        else st = load(s, &f, path, e);
    }
    ds_map_close(&m);
    return st;
}
