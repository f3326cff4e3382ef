/* The best start that a prompt has among what is kept, and a session brought there. */
#include "store/store.h"

#include <stdlib.h>

static bool may_start(const struct ds_node *p, int64_t n)
{
    if (!p->state && !p->on_disk) return false;
    return ds_node_end(p) < n || (ds_node_end(p) == n && ((p->state && p->logits) || p->on_disk & DS_ON_DISK_LOGITS));
}

struct ds_start ds_start_find(const ds_store *st, const struct ds_live *L, const int32_t *ids, int64_t n)
{
    struct ds_start f = { .reason = DS_MISS_EMPTY };
    int64_t common;
    const int64_t own = L ? ds_common_with(L->s, ids, n) : 0;
    struct ds_node *last = ds_tree_find(&st->t, ids, n, &common, NULL);
    for (struct ds_node *p = last; p->parent; p = p->parent) {
        if (ds_node_end(p) > own && !ds_store_has_rows(st, p)) f.node = NULL;
        else if (!f.node && may_start(p, n)) f.node = p;
    }
    f.common = common > own ? common : own;
    if (f.node) {
        const bool logits = ds_node_end(f.node) == n;
        f.pos = ds_node_end(f.node);
        f.disk = !f.node->state || (logits && !f.node->logits);
        f.reason = f.disk ? DS_REUSE_DISK : DS_REUSE_SNAPSHOT;
    } else if (f.common || st->t.root->n_child) {
        f.reason = f.common ? DS_MISS_NO_SNAPSHOT : DS_MISS_NO_PREFIX;
    }
    if (own && own == ds_session_pos(L->s) && own >= f.pos && (own < n || ds_session_logits(L->s))) {
        f.node = NULL;
        f.pos = own;
        f.live = true;
        f.disk = false;
        f.reason = DS_REUSE_LIVE;
    }
    return f;
}

int ds_store_pick(const ds_store *st, ds_session *const *idle, int n, const int32_t *ids, int64_t n_ids)
{
    int best = -1;
    int64_t most = 0;
    for (int i = 0; i < n; i++) {            /* one that goes on as it is, or keeps most of its rows */
        const int64_t c = ds_common_with(idle[i], ids, n_ids);
        if (c > most && 2 * c >= ds_session_pos(idle[i])) best = i, most = c;
    }
    if (best >= 0) return best;
    uint64_t oldest = UINT64_MAX;
    for (int i = 0; i < n; i++) {
        const struct ds_live *L = ds_live_of(st, idle[i]);
        const uint64_t used = L && ds_session_pos(idle[i]) ? L->used : 0;
        if (used >= oldest) continue;
        best = i;
        oldest = used;
    }
    return best;
}

int64_t ds_store_peek(ds_store *st, const int32_t *ids, int64_t n_ids)
{
    ds_store_mark(st, NULL);
    int64_t best = ds_start_find(st, NULL, ids, n_ids).pos;
    for (int i = 0; i < st->n_live; i++) {
        const ds_session *s = st->live[i]->s;
        const int64_t c = st->live[i]->busy ? 0 : ds_common_with(s, ids, n_ids);
        if (c == ds_session_pos(s) && c > best) best = c;
    }
    return best;
}

/* --- restoring --- */

struct files { struct { struct ds_seg *seg; struct ds_map map; struct ds_file file; } *v; int n; };

static void close_files(struct files *fs)
{
    for (int i = 0; i < fs->n; i++) ds_map_close(&fs->v[i].map);
    free(fs->v);
}

static const struct ds_file *file_of(const struct files *fs, const struct ds_seg *seg)
{
    for (int i = 0; i < fs->n; i++)
        if (fs->v[i].seg == seg) return &fs->v[i].file;
    return NULL;
}

/* Reads and validates the files that the way from `own` to the start needs. */
static ds_status open_files(ds_store *st, struct files *fs, const struct ds_start *f, int64_t own)
{
    for (struct ds_node *p = f->node; p->parent; p = p->parent) {
        const bool rows = ds_node_end(p) > own && !p->kv && !ds_store_cover(st, p);
        if ((!rows && !(p == f->node && f->disk)) || file_of(fs, p->seg)) continue;
        void *v = realloc(fs->v, (size_t)(fs->n + 1) * sizeof *fs->v);
        if (!v) return DS_ENOMEM;
        fs->v = v;
        fs->v[fs->n].seg = p->seg;
        const ds_status s = ds_disk_read(st, p->seg, &fs->v[fs->n].map, &fs->v[fs->n].file);
        if (s) return s;
        fs->n++;
    }
    return DS_OK;
}

static void rows_from_file(const ds_store *st, ds_session *s, const struct ds_file *file, const struct ds_node *p, void *room)
{
    int64_t a, b;
    const void *src = ds_file_rows(file, p->from, &a, &b);
    ds_rows_cut(&st->t.sh, room, src, a, b - a, p->from, ds_node_end(p));
    ds_session_set_kv(s, p->from, ds_node_end(p), room);
}

static ds_status set_rows(ds_store *st, struct ds_live *L, const struct files *fs, const struct ds_start *f, int64_t own,
        bool *exact)
{
    void *room = malloc(DS_BLOCK * st->t.sh.kv + 1);
    if (!room) return DS_ENOMEM;
    *exact = (own < f->pos ? own : f->pos) <= L->exact_to;
    for (struct ds_node *p = f->node; p->parent && ds_node_end(p) > own; p = p->parent) {
        const struct ds_live *from = ds_store_cover(st, p);
        bool is_exact = p->kv_exact;
        if (p->kv) {
            ds_session_set_kv(L->s, p->from, ds_node_end(p), p->kv);
        } else if (from) {
            ds_session_get_kv(from->s, p->from, ds_node_end(p), room);
            ds_session_set_kv(L->s, p->from, ds_node_end(p), room);
            is_exact = ds_node_end(p) <= from->exact_to;
        } else {
            rows_from_file(st, L->s, file_of(fs, p->seg), p, room);
        }
        *exact &= is_exact;
    }
    free(room);
    return DS_OK;
}

static ds_status resume(struct ds_live *L, const struct files *fs, const struct ds_start *f, const int32_t *ids, int64_t n,
        bool *exact)
{
    const void *state = f->node->state;
    const float *logits = f->node->logits;
    bool state_exact = f->node->exact;
    if (f->disk) {
        const struct ds_file *file = file_of(fs, f->node->seg);
        int i = 0;
        while (i < file->n_snaps - 1 && ds_file_snap(file, i).pos < f->pos) i++;
        if (ds_file_snap(file, i).pos != f->pos) return DS_EFORMAT;
        state = ds_file_state(file, i, &logits);
        state_exact = ds_file_snap(file, i).flags & DS_FILE_EXACT;
    }
    *exact &= state_exact;
    return ds_session_resume(L->s, ids, f->pos, state, f->pos == n ? logits : NULL, NULL);
}

ds_status ds_start_restore(ds_store *st, struct ds_live *L, const struct ds_start *f, const int32_t *ids, int64_t n)
{
    struct files fs = { NULL, 0 };
    bool exact = false;
    if (f->live) return DS_OK;
    if (!f->node) {
        ds_session_reset(L->s);
        ds_live_set_tip(st, L, NULL);
        L->exact_to = 0;
        return DS_OK;
    }
    ds_store_mark(st, L);
    const int64_t own = ds_common_with(L->s, ids, n);
    ds_status s = open_files(st, &fs, f, own);
    if (!s && !(s = set_rows(st, L, &fs, f, own, &exact)) && !(s = resume(L, &fs, f, ids, n, &exact))) {
        ds_live_set_tip(st, L, f->node);
        L->exact_to = exact ? f->pos : 0;
    }
    close_files(&fs);
    return s;
}
