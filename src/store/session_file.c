/* One session in one file. */
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A place that is held: the file behind the path's links, and its name until it is whole, whose lock keeps others away. */
struct ds_session_file {
    const ds_engine *g;
    struct ds_shape sh;
    struct ds_file_out w;
    char path[DS_PATH_MAX], target[DS_PATH_MAX], part[DS_PATH_MAX];
};

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
    ds_status st = ds_map_open(&m, part, e);
    if (st) return st;
    if (!ds_file_begun(m.data, m.size))
        st = ds_fail(e, DS_EIO, "%s: is no part of a session file, and would be overwritten", part);
    ds_map_close(&m);
    return st;
}

static ds_status find_place(struct ds_session_file *f, struct ds_err *e)
{
    const size_t suffix = strlen(DS_FILE_SUFFIX);
    ds_status st = ds_out_target(f->target, f->path, e);
    if (st) return st;
    const size_t n = strlen(f->target);
    if (n >= suffix && !strcmp(f->target + n - suffix, DS_FILE_SUFFIX))
        return ds_fail(e, DS_EARG, "%s: names that end in " DS_FILE_SUFFIX " are those of a server's prefixes, expected another",
                       f->path);
    if (snprintf(f->part, sizeof f->part, "%s.tmp", f->target) >= (int)sizeof f->part)
        return ds_fail(e, DS_EARG, "%s: the path is too long", f->path);
    return DS_OK;
}

/* What is checked after the part is held stays so: another process would have to hold it to change the file. */
static ds_status take_place(struct ds_session_file *f, struct ds_err *e)
{
    struct ds_err why;
    ds_status st = ds_out_claim(&f->w.out, f->part, false, &why);
    if (st && f->w.out.busy) return ds_fail(e, st, "%s: another process is using this session", f->path);
    if (st) return ds_fail(e, st, "%s: no session can be saved there: %s", f->path, why.msg);
    if ((st = check_part(f->part, e))) {
        ds_out_leave(&f->w.out);
        return st;
    }
    if ((st = check_target(f->target, f->path, &f->sh, e)) || (st = ds_out_empty(&f->w.out, e))) ds_out_drop(&f->w.out);
    return st;
}

ds_status ds_session_file_open(ds_session_file **out, const ds_engine *g, const char *path, struct ds_err *e)
{
    *out = NULL;
    if (strlen(path) >= DS_PATH_MAX) return ds_fail(e, DS_EARG, "%.400s...: the path is too long", path);
    ds_session_file *f = calloc(1, sizeof *f);
    if (!f) return ds_fail(e, DS_ENOMEM, "%s: the system refused memory for saving", path);
    f->g = g;
    f->sh = ds_store_shape(g);
    f->w.out.fd = -1;
    memcpy(f->path, path, strlen(path) + 1);
    ds_status st = find_place(f, e);
    if (!st) st = take_place(f, e);
    if (st) free(f);
    else *out = f;
    return st;
}

void ds_session_file_close(ds_session_file *f)
{
    if (f && f->w.out.fd >= 0) ds_out_drop(&f->w.out);
    free(f);
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

static ds_status check_session(const ds_session *s, const char *path, struct ds_err *e)
{
    if (ds_session_is_timing_only(s)) return ds_fail(e, DS_EARG,
            "%s: a session with stages left out is for timing only and is not saved", path);
    if (ds_session_pos(s) < 1) return ds_fail(e, DS_EARG, "%s: the session holds no tokens, so there is nothing to save", path);
    return DS_OK;
}

ds_status ds_session_file_save(ds_session_file *f, const ds_session *s, struct ds_err *e)
{
    const float *logits = ds_session_logits(s);
    const int64_t pos = ds_session_pos(s);
    const struct ds_file_snap snap = { pos, (logits ? DS_FILE_LOGITS : 0u) | (unsigned)DS_SNAP_END << DS_FILE_KIND_SHIFT };
    ds_status st = f->w.out.fd >= 0 ? check_session(s, f->path, e) : ds_fail(e, DS_EARG, "%s: is saved already", f->path);
    if (st) return st;
    st = ds_file_begin(&f->w, &f->sh, ds_session_tokens(s), 0, pos, 0, &snap, 1, e);
    if (!st) st = put_session(s, &f->w, &f->sh, logits, e);
    if (!st) return ds_file_end(&f->w, f->target, e);
    ds_out_drop(&f->w.out);
    return st;
}

ds_status ds_session_save(const ds_session *s, const ds_engine *g, const char *path, struct ds_err *e)
{
    ds_session_file *f;
    ds_status st = check_session(s, path, e);
    if (st || (st = ds_session_file_open(&f, g, path, e))) return st;
    st = ds_session_file_save(f, s, e);
    ds_session_file_close(f);
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
