/* The folder of files: its index in the tree, writing, reading, and what goes when it is full. */
#include "store/store.h"

#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART "writing.tmp"
#define PATH_MAX_BYTES 4096
#define RETRY_NS 60000000000u
#define MOST_FILES 8192
#define SPARE ((uint64_t)64 << 20)     /* left free on the file system */

static bool path_of(const ds_store *st, const char *name, char dst[PATH_MAX_BYTES])
{
    return snprintf(dst, PATH_MAX_BYTES, "%s/%s", st->disk.dir, name) < PATH_MAX_BYTES;
}

static void pause_writing(ds_store *st, const struct ds_err *e)
{
    if (ds_now_ns() >= st->disk.retry_ns) ds_store_warn(st, e, "no files are written for a minute");
    st->disk.retry_ns = ds_now_ns() + RETRY_NS;
    snprintf(st->disk.why, sizeof st->disk.why, "%s", e->msg);
}

bool ds_disk_may_write(const ds_store *st) { return st->disk.dir && ds_now_ns() >= st->disk.retry_ns; }

const char *ds_store_write_failure(const ds_store *st) { return st->disk.dir && !ds_disk_may_write(st) ? st->disk.why : NULL; }

/* --- the list of files --- */

static struct ds_seg *add_seg(ds_store *st, const char *name, uint64_t bytes, uint64_t used)
{
    struct ds_disk *d = &st->disk;
    struct ds_seg *g = d->n < d->cap ? calloc(1, sizeof *g) : NULL;
    if (!g) return NULL;
    snprintf(g->name, sizeof g->name, "%s", name);
    g->bytes = bytes;
    g->used = used;
    d->seg[d->n++] = g;
    d->used += bytes;
    d->files++;
    return g;
}

/* As many files as the limit can hold, within a sixteenth of the memory. */
static bool make_list(ds_store *st)
{
    const uint64_t each = ds_tree_cost(sizeof(struct ds_seg)) + sizeof(struct ds_seg *), most = st->mem / 16 / each;
    uint64_t n = st->disk.limit / (st->t.sh.state + 1) + 16;
    if (n > most) n = most;
    if (n > MOST_FILES) n = MOST_FILES;
    st->disk.cap = (int)n;
    st->t.tree += n * each;
    return (st->disk.seg = malloc((size_t)(n + 1) * sizeof(struct ds_seg *))) != NULL;
}

static void free_seg(ds_store *st, int i)
{
    struct ds_disk *d = &st->disk;
    struct ds_seg *g = d->seg[i];
    d->used -= g->bytes;
    d->files--;
    d->seg[i] = d->seg[--d->n];
    free(g);
}

/* Takes the dead files, and those that stood on them, out of the tree and the folder. */
static void bury(ds_store *st)
{
    char path[PATH_MAX_BYTES];
    for (struct ds_node *n = ds_tree_next(st->t.root, true); n; n = ds_tree_next(n, true)) {
        if (!n->seg) continue;
        if (n->parent->parent && !n->parent->seg) n->seg->dead = true;
        if (!n->seg->dead) continue;
        n->no_save |= n->seg->old;       /* or the next write would only bring it back */
        n->seg = NULL;
        n->on_disk = 0;
    }
    for (int i = st->disk.n; i--;) {
        struct ds_seg *g = st->disk.seg[i];
        if (!g->dead) continue;
        if (g->tip) g->tip->pins--;
        g->tip = NULL;
        if (g->spare) {
            g->dead = false;
            continue;
        }
        if (path_of(st, g->name, path)) ds_file_remove(path);
        free_seg(st, i);
    }
    ds_store_sweep(st, NULL);
}

/* --- room --- */

/* Files go by last use, and only those that no other stands on. */
static bool make_room(ds_store *st, uint64_t bytes)
{
    struct ds_disk *d = &st->disk;
    while (d->used + bytes > d->limit || d->n == d->cap) {
        struct ds_seg *old = NULL;
        for (int i = 0; i < d->n && !d->keep; i++) {
            struct ds_seg *g = d->seg[i];
            bool under = false;
            for (int k = 0; g->tip && k < g->tip->n_child; k++) under |= g->tip->child[k]->seg != NULL;
            for (const struct ds_node *p = g->tip; p && p->parent && p->seg == g && !under; p = p->parent)
                for (int k = 0; k < p->n_child; k++) under |= p->child[k]->seg && p->child[k]->seg != g;
            if (!under && !g->keep && (!old || g->used < old->used)) old = g;
        }
        if (!old) return false;
        old->dead = old->old = true;
        old->spare = false;
        bury(st);
    }
    return true;
}

/* --- opening --- */

struct found { char name[48]; uint64_t bytes; int64_t mtime, from; };
struct listing { struct found *v; int n, cap; bool failed; ds_store *st; };

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static void list_file(void *ctx, const char *name, uint64_t bytes, int64_t mtime)
{
    struct listing *l = ctx;
    char path[PATH_MAX_BYTES];
    if (!strcmp(name, PART) && path_of(l->st, name, path)) ds_file_remove(path);
    if (!ends_with(name, DS_FILE_SUFFIX) || strlen(name) >= sizeof l->v->name || l->failed) return;
    if (l->n == l->cap) {
        const int cap = l->cap ? 2 * l->cap : 64;
        struct found *p = realloc(l->v, (size_t)cap * sizeof *p);
        if (!p) {
            l->failed = true;
            return;
        }
        l->v = p;
        l->cap = cap;
    }
    struct found *f = &l->v[l->n++];
    *f = (struct found){ .bytes = bytes, .mtime = mtime };
    snprintf(f->name, sizeof f->name, "%s", name);
}

static int by_from(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return x->mtime < y->mtime ? -1 : x->mtime > y->mtime;
}

/* Makes the node that ends at n, within the part of the memory that the index of files may take. */
static struct ds_node *index_node(ds_store *st, const int32_t *ids, int64_t n)
{
    const uint64_t cost = ds_tree_grow_cost(&st->t, ids, n);
    return ds_tree_used(&st->t) + cost <= st->mem / 4 ? ds_tree_grow(&st->t, ids, n) : NULL;
}

/* Puts the file's range into the tree, or marks it as dead: what comes before it is not in files, or there is no room. */
static void index_file(ds_store *st, const struct ds_file *f, struct ds_seg *seg)
{
    int64_t common = 0;
    struct ds_node *n = st->t.root;
    seg->dead = true;
    if (f->from) {
        ds_tree_find(&st->t, f->ids, f->from, &common, NULL);
        if (common < f->from) return;
        seg->spare = !(n = index_node(st, f->ids, f->from));
        if (!n || !n->seg) return;
    }
    for (int i = 0; i < f->n_snaps; i++) {
        const struct ds_file_snap s = ds_file_snap(f, i);
        if (!(n = index_node(st, f->ids, s.pos))) {
            seg->spare = true;
            return;
        }
        for (struct ds_node *p = n; p->parent && !p->seg && p->from >= f->from; p = p->parent) {
            p->seg = seg;
            p->kv_exact = ds_node_end(p) <= f->exact_to;
        }
        if (n->seg != seg) continue;
        n->on_disk = DS_ON_DISK;
        if (s.flags & DS_FILE_LOGITS) n->on_disk |= DS_ON_DISK_LOGITS;
        if (s.flags & DS_FILE_EXACT) n->on_disk |= DS_ON_DISK_EXACT;
        n->kind = (uint8_t)(s.flags >> DS_FILE_KIND_SHIFT);
    }
    if (n->seg != seg) return;
    seg->dead = false;
    seg->tip = n;
    n->pins++;
}

static ds_status map_head(ds_store *st, const char *name, struct ds_map *m, struct ds_file *f, struct ds_err *e)
{
    char path[PATH_MAX_BYTES];
    if (!path_of(st, name, path)) return ds_fail(e, DS_EIO, "%s: the path is too long", st->disk.dir);
    ds_status s = ds_map_open(m, path, e);
    if (!s && (s = ds_file_head(f, path, m->data, m->size, &st->t.sh, e))) ds_map_close(m);
    return s;
}

/* The limit may be smaller than it was. v: the n files that the list has no room for; they go first, the deepest before others. */
static void enforce_limit(ds_store *st, const struct found *v, int n)
{
    char path[PATH_MAX_BYTES];
    uint64_t rest = 0;
    for (int i = 0; i < n; i++) rest += v[i].bytes;
    while (n-- && st->disk.used + rest > st->disk.limit) {
        if (path_of(st, v[n].name, path)) ds_file_remove(path);
        rest -= v[n].bytes;
    }
    if (st->disk.used > st->disk.limit) make_room(st, 0);
}

static void index_folder(ds_store *st)
{
    struct listing l = { .st = st };
    struct ds_err e = { 0 };
    if (ds_dir_each(st->disk.dir, list_file, &l, &e)) ds_store_warn(st, &e, "its files are not used");
    for (int i = 0; i < l.n; i++) {
        struct ds_map m;
        struct ds_file f;
        const ds_status s = map_head(st, l.v[i].name, &m, &f, &e);
        l.v[i].from = s == DS_OK ? f.from : s == DS_EUNSUP ? -1 : -2;
        if (s == DS_OK) ds_map_close(&m);
        else if (s == DS_EFORMAT) ds_store_warn(st, &e, "the file is dropped"), st->count.damaged++;
    }
    if (l.n) qsort(l.v, (size_t)l.n, sizeof *l.v, by_from);
    bool full = false;
    int i = 0;
    for (; i < l.n; i++) {
        struct ds_map m;
        struct ds_file f;
        struct ds_seg *seg = add_seg(st, l.v[i].name, l.v[i].bytes, 0);
        if (!seg) break;
        seg->dead = l.v[i].from == -2;
        if (l.v[i].from < 0 || map_head(st, l.v[i].name, &m, &f, &e)) continue;
        index_file(st, &f, seg);
        full |= seg->spare;
        seg->spare = full;               /* it may stand on one that found no room */
        ds_map_close(&m);
    }
    bury(st);
    if (l.n) enforce_limit(st, l.v + i, l.n - i);
    free(l.v);
}

void ds_disk_open(ds_store *st, const char *dir, uint64_t limit)
{
    struct ds_err e = { 0 };
    char path[PATH_MAX_BYTES];
    const size_t n = strlen(dir) + 1;
    st->disk.lock.fd = -1;
    st->disk.dir = malloc(n);
    if (!st->disk.dir) return;
    memcpy(st->disk.dir, dir, n);
    st->disk.limit = limit;
    if (!path_of(st, "lock", path)) ds_fail(&e, DS_EIO, "%s: the path is too long", dir);
    else if (!make_list(st)) ds_fail(&e, DS_ENOMEM, "%s: the system refused memory for its list of files", dir);
    else if (!ds_dir_make_private(dir, &e) && !ds_lock_take(&st->disk.lock, path, &e)) {
        index_folder(st);
        return;
    }
    ds_store_warn(st, &e, "no files are used");
    free(st->disk.seg);
    free(st->disk.dir);
    st->disk.dir = NULL;
}

void ds_disk_close(ds_store *st)
{
    if (!st->disk.dir) return;
    while (st->disk.n) free_seg(st, st->disk.n - 1);
    free(st->disk.seg);
    ds_lock_drop(&st->disk.lock);
    free(st->disk.dir);
}

/* --- reading --- */

ds_status ds_disk_read(ds_store *st, struct ds_seg *seg, struct ds_map *m, struct ds_file *f)
{
    struct ds_err e = { 0 };
    ds_status s = map_head(st, seg->name, m, f, &e);
    if (!s && (s = ds_file_body(f, seg->name, &e))) ds_map_close(m);
    if (s) {
        ds_store_warn(st, &e, "the file is dropped");
        st->count.damaged++;
        seg->dead = true;
        bury(st);
        return s;
    }
    seg->used = st->clock;
    st->count.loaded++;
    return DS_OK;
}

/* --- writing --- */

struct job {
    ds_store *st;
    struct ds_node **path; int n;        /* [n], parents first */
    int32_t *ids;
    struct ds_file_snap *snaps; int n_snaps;
    int64_t from, to, exact_to;
    void *rows;                          /* room for one piece, and for the rows of one node */
};

static void job_free(struct job *j)
{
    free(j->path);
    free(j->ids);
    free(j->snaps);
    free(j->rows);
}

static bool job_make(struct job *j, ds_store *st, struct ds_node *end)
{
    *j = (struct job){ .st = st, .to = ds_node_end(end) };
    for (struct ds_node *p = end; p->parent && !p->seg; p = p->parent) j->n++, j->n_snaps += p->state != NULL;
    j->path = malloc((size_t)j->n * sizeof(struct ds_node *));
    j->ids = malloc((size_t)j->to * sizeof *j->ids);
    j->snaps = malloc((size_t)(j->n_snaps + 1) * sizeof *j->snaps);
    j->rows = malloc(2 * DS_BLOCK * st->t.sh.kv);
    if (!j->path || !j->ids || !j->snaps || !j->rows) return false;
    int at = j->n, s = j->n_snaps;
    for (struct ds_node *p = end; p->parent; p = p->parent) {
        memcpy(j->ids + p->from, p->ids, (size_t)p->n * sizeof *p->ids);
        if (p->seg) continue;
        j->path[--at] = p;
        if (!p->state) continue;
        const unsigned flags = (p->logits ? DS_FILE_LOGITS : 0u) | (p->exact ? DS_FILE_EXACT : 0u) |
                               (unsigned)p->kind << DS_FILE_KIND_SHIFT;
        j->snaps[--s] = (struct ds_file_snap){ ds_node_end(p), flags };
    }
    j->from = j->exact_to = j->path[0]->from;
    for (int i = 0; i < j->n; i++) {
        const struct ds_node *p = j->path[i];
        const struct ds_live *L = ds_store_cover(st, p);
        if (!p->kv && !L) return false;
        if (j->exact_to == p->from && (p->kv ? p->kv_exact : ds_node_end(p) <= L->exact_to)) j->exact_to = ds_node_end(p);
    }
    return true;
}

static ds_status put_rows(struct job *j, struct ds_file_out *w, struct ds_err *e)
{
    const struct ds_shape *sh = &j->st->t.sh;
    char *one = (char *)j->rows + DS_BLOCK * sh->kv;
    ds_status s = DS_OK;
    for (int i = 0; i < j->n && !s;) {
        const int64_t a = j->path[i]->from, b = (a / DS_BLOCK + 1) * DS_BLOCK < j->to ? (a / DS_BLOCK + 1) * DS_BLOCK : j->to;
        for (; i < j->n && j->path[i]->from < b; i++) {
            const struct ds_node *p = j->path[i];
            if (!p->kv) ds_session_get_kv(ds_store_cover(j->st, p)->s, p->from, ds_node_end(p), one);
            ds_rows_put(sh, j->rows, a, b - a, p->kv ? p->kv : one, p->from, ds_node_end(p));
        }
        s = ds_file_put(w, j->rows, (size_t)(b - a) * sh->kv, e);
    }
    return s;
}

static ds_status write_file(struct job *j, const char *part, const char *path, struct ds_err *e)
{
    const struct ds_shape *sh = &j->st->t.sh;
    struct ds_file_out w;
    ds_status s = ds_out_open(&w.out, part, false, e);
    if (s) return s;
    s = ds_file_begin(&w, sh, j->ids, j->from, j->to, j->exact_to, j->snaps, j->n_snaps, e);
    if (!s) s = put_rows(j, &w, e);
    for (int i = 0; i < j->n && !s; i++) {
        const struct ds_node *p = j->path[i];
        if (p->state) s = ds_file_put(&w, p->state, sh->state, e);
        if (!s && p->logits) s = ds_file_put(&w, p->logits, sh->logits, e);
    }
    if (!s) return ds_file_end(&w, path, e);
    ds_out_drop(&w.out);
    return s;
}

static void written(struct job *j, struct ds_seg *seg)
{
    for (int i = 0; i < j->n; i++) {
        struct ds_node *p = j->path[i];
        p->seg = seg;
        if (!p->kv) p->kv_exact = ds_node_end(p) <= j->exact_to;
        if (p->state) p->on_disk = DS_ON_DISK | (p->logits ? DS_ON_DISK_LOGITS : 0) | (p->exact ? DS_ON_DISK_EXACT : 0);
    }
    seg->tip = j->path[j->n - 1];
    seg->tip->pins++;
    j->st->count.written++;
}

/* DS_EARG: it is this file alone that cannot be written. */
static ds_status write_job(struct job *j, struct ds_err *e)
{
    ds_store *st = j->st;
    char part[PATH_MAX_BYTES], path[PATH_MAX_BYTES], name[48];
    const uint64_t bytes = ds_file_bytes(&st->t.sh, j->from, j->to, j->snaps, j->n_snaps);
    snprintf(name, sizeof name, "%016llx-%lld" DS_FILE_SUFFIX,
             (unsigned long long)ds_hash64(j->ids, (size_t)j->to * sizeof *j->ids, st->t.sh.layout), (long long)j->from);
    if (!path_of(st, PART, part) || !path_of(st, name, path)) return ds_fail(e, DS_EIO, "%s: the path is too long", st->disk.dir);
    if (ds_file_kind(path) > DS_FILE_REGULAR) return ds_fail(e, DS_EARG, "%s: something that is no file has this name", path);
    if (ds_disk_free(st->disk.dir) < bytes + SPARE)
        return ds_fail(e, DS_EIO, "%s: the disk has less than %llu bytes free", st->disk.dir,
                (unsigned long long)(bytes + SPARE));
    ds_status s = write_file(j, part, path, e);
    if (s) return s;
    struct ds_seg *seg = add_seg(st, name, bytes, st->clock);
    if (seg) written(j, seg);
    else s = ds_fail(e, DS_ENOMEM, "%s: the system refused memory", path);
    return s;
}

bool ds_disk_write(ds_store *st, struct ds_node *n)
{
    struct job j;
    struct ds_err e = { 0 };
    if (n->seg) return true;
    n->pins++;
    ds_store_mark(st, NULL);
    bool ok = job_make(&j, st, n);
    if (ok) {
        const uint64_t bytes = ds_file_bytes(&st->t.sh, j.from, j.to, j.snaps, j.n_snaps);
        struct ds_node *below = j.path[0]->parent;
        for (struct ds_node *p = below; p->parent; p = p->parent) p->seg->used = st->clock, p->seg->keep = true;
        ok = make_room(st, bytes);
        for (struct ds_node *p = below; p->parent; p = p->parent) p->seg->keep = false;
        ds_store_mark(st, NULL);
        if (!ok && !st->disk.keep) {
            ds_fail(&e, DS_EIO, "%s: a prefix of %lld tokens takes %llu bytes, more than the limit of %llu leaves", st->disk.dir,
                    (long long)j.to,
                    (unsigned long long)bytes, (unsigned long long)st->disk.limit);
            ds_store_warn(st, &e, "it is not written");
            n->no_save = true;
        }
        const ds_status s = ok ? write_job(&j, &e) : DS_OK;
        if (s == DS_EARG) {
            ds_store_warn(st, &e, "the prefix is not written");
            n->no_save = true;
        } else if (s) {
            pause_writing(st, &e);
        }
        ok &= !s;
    } else {
        n->no_save = true;
    }
    job_free(&j);
    n->pins--;
    return ok;
}

struct ds_node *ds_disk_unsaved(ds_store *st)
{
    struct ds_node *best = NULL;
    uint64_t count = 0;
    if (!st->disk.dir) return NULL;
    for (struct ds_node *n = st->t.root; n; n = ds_tree_next(n, n->ram > 0)) {
        if (!n->state || n->seg || n->no_save) continue;
        count++;
        if (!best || ds_node_end(n) > ds_node_end(best)) best = n;
    }
    st->count.unsaved = count;
    return best;
}
