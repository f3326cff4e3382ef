/* Requests: a session begins at the best start, leaves what it had to the tree, and takes snapshots on the way. */
#include "store/store.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MEM ((uint64_t)2 << 30)
#define DEFAULT_DISK ((uint64_t)8 << 30)
#define SECOND 1e9
#define MOST_CUTS 64               /* that a chunk can keep */

const char *const ds_reuse_names[] = { "live", "snapshot", "disk", "empty", "no-prefix", "no-snapshot", "damaged" };

void ds_store_warn(const ds_store *st, const struct ds_err *e, const char *after)
{
    char text[640];
    if (!st->warn) return;
    snprintf(text, sizeof text, "%s; %s", e->msg, after);
    st->warn(st->warn_ctx, text);
}

struct ds_shape ds_store_shape(const ds_engine *g)
{
    const struct ds_model_info *f = ds_engine_info(g);
    return (struct ds_shape){ .layout = ds_engine_layout_id(g), .kv = ds_engine_kv_bytes(g), .planes = 2 * f->n_attn,
            .state = ds_engine_state_bytes(g),
                              .logits = (size_t)f->n_vocab * sizeof(float), .n_vocab = f->n_vocab };
}

int ds_store_cuts(int ubatch, int every) { return ubatch / (every > 0 ? every : 512) + 4; }

/* --- opening --- */

ds_status ds_store_open(ds_store **out, ds_engine *g, const struct ds_store_options *o, struct ds_err *e)
{
    *out = NULL;
    if (o->every < 0 || o->every % DS_BLOCK)
        return ds_fail(e, DS_EARG, "snapshots every %d tokens were asked for, expected a multiple of %d", o->every, DS_BLOCK);
    ds_store *st = calloc(1, sizeof *st);
    if (!st) return ds_fail(e, DS_ENOMEM, "the system refused memory for the session store");
    const struct ds_shape sh = ds_store_shape(g);
    st->g = g;
    st->mem = o->mem ? o->mem : DEFAULT_MEM;
    st->every = o->every ? o->every : 512;
    st->max_cuts = o->max_cuts < 0 ? 0 : o->max_cuts > MOST_CUTS ? MOST_CUTS : o->max_cuts;
    st->ubatch = ds_engine_ubatch(g);
    st->ctx = ds_engine_info(g)->ctx;
    st->recent_ns = (uint64_t)((o->recent_s > 0 ? o->recent_s : 600) * SECOND);
    st->idle_ns = (uint64_t)((o->idle_s <= 0 ? 1 : o->idle_s > 4 ? 4 : o->idle_s) * SECOND);
    st->warn = o->warn;
    st->warn_ctx = o->warn_ctx;
    st->last_ns = ds_now_ns();
    if (!ds_tree_init(&st->t, &sh)) {
        free(st);
        return ds_fail(e, DS_ENOMEM, "the system refused memory for the session store");
    }
    if (o->dir) ds_disk_open(st, o->dir, o->disk ? o->disk : DEFAULT_DISK);
    *out = st;
    return DS_OK;
}

void ds_store_close(ds_store *st)
{
    if (!st) return;
    for (int i = 0; i < st->n_live; i++) {
        free(st->live[i]->bounds);
        free(st->live[i]);
    }
    free(st->live);
    ds_disk_close(st);
    ds_tree_free(&st->t);
    free(st);
}

/* --- attached sessions --- */

struct ds_live *ds_live_of(const ds_store *st, const ds_session *s)
{
    for (int i = 0; i < st->n_live; i++)
        if (st->live[i]->s == s) return st->live[i];
    return NULL;
}

static struct ds_live *attach(ds_store *st, ds_session *s)
{
    struct ds_live *L = ds_live_of(st, s);
    if (L) return L;
    if (st->n_live == st->cap_live) {
        const int cap = st->cap_live + 8;
        struct ds_live **p = realloc(st->live, (size_t)cap * sizeof(struct ds_live *));
        if (!p) return NULL;
        st->live = p;
        st->cap_live = cap;
    }
    if (!(L = calloc(1, sizeof *L))) return NULL;
    L->s = s;
    return st->live[st->n_live++] = L;
}

void ds_live_set_tip(ds_store *st, struct ds_live *L, struct ds_node *n)
{
    struct ds_node *old = L->tip;
    if (n) n->pins++;
    L->tip = n;
    if (!old) return;
    old->pins--;
    ds_tree_trim(&st->t, old);
}

int64_t ds_common_with(const ds_session *s, const int32_t *ids, int64_t n)
{
    const int32_t *own = ds_session_tokens(s);
    const int64_t pos = ds_session_is_timing_only(s) ? 0 : ds_session_pos(s), most = pos < n ? pos : n;
    int64_t c = 0;
    while (c < most && own[c] == ids[c]) c++;
    return c;
}

static void touch(ds_store *st, struct ds_node *n)
{
    const uint64_t now = ds_now_ns();
    for (; n; n = n->parent) {
        n->used = st->clock;
        n->used_ns = now;
    }
}

/* --- taking snapshots --- */

static bool fill_state(ds_store *st, struct ds_live *L, struct ds_node *n, int slot, const float *logits, bool exact)
{
    if (!n->state && !ds_node_new_state(&st->t, n)) return false;
    if (slot < 0) ds_session_get_state(L->s, n->state);
    else ds_session_get_cut(L->s, slot, n->state);
    n->exact = exact;
    if (logits && (n->logits || ds_node_new_logits(&st->t, n))) memcpy(n->logits, logits, st->t.sh.logits);
    return true;
}

/* The node at position p of the session's timeline; NULL: no room. */
static struct ds_node *node_at(ds_store *st, const struct ds_live *L, int64_t p, int64_t size)
{
    const int32_t *ids = ds_session_tokens(L->s);
    const struct ds_claim c = { .size = size, .score = INFINITY };
    return ds_store_room(st, ds_tree_grow_cost(&st->t, ids, p), &c) ? ds_tree_grow(&st->t, ids, p) : NULL;
}

static void take(ds_store *st, struct ds_live *L, int64_t p, enum ds_snap_kind kind, int slot, const float *logits, bool exact)
{
    const int64_t pos = ds_session_pos(L->s), size = L->n > pos ? L->n : pos;
    struct ds_node *n = node_at(st, L, p, size);
    if (!n) {
        st->count.refused++;
        return;
    }
    touch(st, n);
    if (!L->tip || p > ds_node_end(L->tip)) ds_live_set_tip(st, L, n);
    n->pins++;
    const bool logits_new = logits && !n->logits;
    const uint64_t bytes = (n->state ? 0 : ds_tree_cost(st->t.sh.state)) + (logits_new ? ds_tree_cost(st->t.sh.logits) : 0);
    const bool better = !n->state || (exact >= n->exact && (logits_new || exact > n->exact));
    const struct ds_claim c = { size, ds_store_worth(st, n, kind), !n->state };
    if (n->state && kind > n->kind) n->kind = (uint8_t)kind;
    n->hold = true;
    if (better && ds_store_room(st, bytes, &c) && fill_state(st, L, n, slot, logits, exact)) {
        n->kind = (uint8_t)kind;
        n->no_save = false;
        st->count.taken++;
    } else if (better) {
        st->count.refused++;
    }
    n->hold = false;
    n->pins--;
    ds_tree_trim(&st->t, n);
}

/* --- what a session is about to lose --- */

/* A conversation that was edited moved on: the branch it left is nobody's main one. */
static void demote(ds_store *st, const struct ds_live *L, int64_t common, int64_t n)
{
    const int64_t pos = ds_session_pos(L->s);
    (void)st;
    if (2 * common < pos || 2 * n < pos) return;
    for (struct ds_node *p = L->tip; p && ds_node_end(p) > common; p = p->parent) p->used_ns = 0;
}

/* The deepest snapshot on the path to tip whose rows can be kept at all. */
static struct ds_node *reachable(ds_store *st, const struct ds_live *L, int64_t size)
{
    const uint64_t fixed = ds_store_fixed(st, size), state = ds_tree_cost(st->t.sh.state) + ds_tree_cost(st->t.sh.logits);
    const uint64_t node = ds_tree_cost(DS_BLOCK * st->t.sh.kv), room = st->mem > fixed + state ? st->mem - fixed - state : 0;
    struct ds_node *n = L->tip;
    while (n && n->parent && (!n->ram || ((uint64_t)ds_node_end(n) / DS_BLOCK + 1) * node > room)) n = n->parent;
    while (n && !n->state) n = n->parent;
    return n;
}

static void copy_rows(ds_store *st, const struct ds_live *L, struct ds_node *const *path, int n, int64_t size)
{
    for (int i = 0; i < n; i++) {
        struct ds_node *p = path[i];
        const struct ds_claim c = { .size = size, .score = p->seg ? -1 : INFINITY };
        if (!p->ram || p->kv) continue;
        if (!ds_store_room(st, ds_tree_cost((size_t)p->n * st->t.sh.kv), &c) || !ds_node_new_kv(&st->t, p)) {
            if (p->seg) continue;
            return;
        }
        ds_session_get_kv(L->s, p->from, ds_node_end(p), p->kv);
        p->kv_exact = ds_node_end(p) <= L->exact_to;
    }
}

/* Keeps the rows beyond `keep` that only this session holds, as far as there is room; what cannot be kept is
 * written, where there is a folder, and dropped. */
static void leave(ds_store *st, struct ds_live *L, int64_t keep)
{
    const int64_t size = ds_session_pos(L->s);
    int n = 0;
    if (!L->tip || ds_node_end(L->tip) <= keep || size < ds_node_end(L->tip)) return;
    st->leaving = L;
    struct ds_node *target = reachable(st, L, size);
    if (ds_disk_may_write(st) && (!target || target->ram > 1)) {
        struct ds_node *deep = L->tip;
        while (deep && !deep->state) deep = deep->parent;
        if (deep && deep != target) ds_disk_write(st, deep);
    }
    ds_store_mark(st, L);
    for (const struct ds_node *p = L->tip; p->parent && ds_node_end(p) > keep; p = p->parent) n++;
    struct ds_node **path = malloc((size_t)(n + 1) * sizeof(struct ds_node *));
    if (path) {
        const int all = n;
        int at = all;
        n = 0;
        for (struct ds_node *p = L->tip; at; p = p->parent) path[--at] = p;
        for (int i = 0; i < all; i++)
            if (!ds_store_cover(st, path[i]) && target && ds_node_end(path[i]) <= ds_node_end(target)) path[n++] = path[i];
        for (int i = 0; i < n; i++) path[i]->pins++;
        if (target) target->hold = true;
        copy_rows(st, L, path, n, size);
        if (target) target->hold = false;
        for (int i = 0; i < n; i++) path[i]->pins--;
    }
    free(path);
    st->leaving = NULL;
    struct ds_node *up = L->tip;
    while (up->parent && ds_node_end(up) > keep) up = up->parent;
    ds_live_set_tip(st, L, up);
    ds_store_sweep(st, NULL);
}

/* --- a request --- */

static ds_status check_prompt(const ds_store *st, const int32_t *ids, int64_t n, struct ds_err *e)
{
    const int vocab = st->t.sh.n_vocab;
    if (n < 1) return ds_fail(e, DS_EARG, "the prompt has no tokens");
    if (n > st->ctx) return ds_fail(e, DS_EARG, "the prompt takes %lld tokens, but the window holds %lld", (long long)n,
            (long long)st->ctx);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab) return ds_fail(e, DS_EARG, "token %lld is id %d, expected 0 to %d", (long long)i,
                (int)ids[i], vocab - 1);
    return DS_OK;
}

static void count_lookup(ds_store *st, const struct ds_lookup *l)
{
    st->count.hits_live += l->reason == DS_REUSE_LIVE;
    st->count.hits_snapshot += l->reason == DS_REUSE_SNAPSHOT;
    st->count.hits_disk += l->reason == DS_REUSE_DISK;
    st->count.misses += l->reason >= DS_MISS_EMPTY;
    st->count.reused += (uint64_t)l->start;
    st->count.recomputed += (uint64_t)l->recompute;
}

/* Finds and restores; a file that turns out damaged is gone at the next try. */
static struct ds_start begin_at_best(ds_store *st, struct ds_live *L, const int32_t *ids, int64_t n)
{
    struct ds_start f;
    bool damaged = false;
    for (;;) {
        ds_store_mark(st, L);
        f = ds_start_find(st, L, ids, n);
        struct ds_node *found = f.node;
        if (found) found->hold = true, found->pins++;
        st->disk.keep = f.node && f.node->seg;
        demote(st, L, f.common, n);
        const int64_t own = ds_common_with(L->s, ids, n);       /* the start may lie on another branch than the session's rows */
        leave(st, L, own < f.pos ? own : f.pos);
        st->disk.keep = false;
        if (found) found->hold = false;
        const ds_status s = ds_start_restore(st, L, &f, ids, n);
        if (found) {
            found->pins--;
            ds_tree_trim(&st->t, found);
        }
        if (!s) break;
        damaged |= s == DS_EFORMAT || s == DS_EIO || s == DS_EUNSUP;
        if (damaged) continue;
        leave(st, L, 0);                 /* no memory: from the beginning */
        f.node = NULL;
        f.pos = 0;
        f.reason = DS_MISS_NO_SNAPSHOT;
        ds_start_restore(st, L, &f, ids, n);
        break;
    }
    if (damaged && f.reason >= DS_MISS_EMPTY) f.reason = DS_MISS_DAMAGED;
    return f;
}

ds_status ds_store_begin(ds_store *st, ds_session *s, const int32_t *ids, int64_t n, const int64_t *bounds, int n_bounds,
                         struct ds_lookup *l, struct ds_err *e)
{
    const uint64_t t0 = ds_now_ns();
    ds_status rc = check_prompt(st, ids, n, e);
    if (rc) return rc;
    struct ds_live *L = attach(st, s);
    int64_t *own = n_bounds ? malloc((size_t)n_bounds * sizeof *own) : NULL;
    if (!L || (n_bounds && !own)) {
        free(own);
        return ds_fail(e, DS_ENOMEM, "the system refused memory for the request");
    }
    if (L->busy) ds_store_end(st, s);
    if (n_bounds) memcpy(own, bounds, (size_t)n_bounds * sizeof *own);
    free(L->bounds);
    L->bounds = own;
    L->n_bounds = n_bounds;
    st->clock++;
    L->used = st->clock;
    L->n = 0;
    const struct ds_start f = begin_at_best(st, L, ids, n);
    int64_t common;
    touch(st, ds_tree_find(&st->t, ids, n, &common, NULL));
    for (struct ds_node *p = L->tip; p; p = p->parent)       /* turns that this one goes on from */
        if (p->kind == DS_SNAP_END && ds_node_end(p) < f.pos) p->kind = DS_SNAP_BOUNDARY;
    L->busy = true;
    L->start = f.pos;
    L->n = n;
    *l = (struct ds_lookup){ .reason = f.reason, .prompt = n, .common = f.common, .snapshot = f.node ? f.pos : -1, .start = f.pos,
                             .recompute = n - f.pos, .exact = f.pos % DS_BLOCK == 0 && L->exact_to == f.pos,
                             .ms = (double)(ds_now_ns() - t0) * 1e-6 };
    count_lookup(st, l);
    st->last_ns = ds_now_ns();
    return DS_OK;
}

void ds_lookup_line(const struct ds_lookup *l, char *dst, size_t n)
{
    snprintf(dst, n, "prefix reason=%s prompt=%" PRId64 " common=%" PRId64
             " snapshot=%" PRId64 " start=%" PRId64 " recompute=%" PRId64 " exact=%d ms=%.1f",
             ds_reuse_names[l->reason], l->prompt, l->common, l->snapshot, l->start, l->recompute, l->exact, l->ms);
}

/* --- prefill with snapshots --- */

static enum ds_snap_kind kind_at(const struct ds_live *L, int64_t p)
{
    if (p == L->n - 1) return DS_SNAP_END;
    for (int i = 0; i < L->n_bounds; i++)
        if (L->bounds[i] / DS_BLOCK * DS_BLOCK == p) return DS_SNAP_BOUNDARY;
    return DS_SNAP_INTERVAL;
}

/* Adds p, kept ascending, when it lies in (from, to] and is not there yet. Full: no more. */
static void add_cut(int64_t *cut, int *n, int max, int64_t p, int64_t from, int64_t to)
{
    int at = *n;
    if (p <= from || p > to || *n == max) return;
    while (at && cut[at - 1] > p) at--;
    if (at && cut[at - 1] == p) return;
    memmove(cut + at + 1, cut + at, (size_t)(*n - at) * sizeof *cut);
    cut[at] = p;
    (*n)++;
}

/* Positions to keep in the chunk (from, to]: the end first, then boundaries, then the interval's. */
static int plan_chunk(const ds_store *st, const struct ds_live *L, int64_t from, int64_t to, int64_t *cut)
{
    int n = 0;
    add_cut(cut, &n, st->max_cuts, L->n - 1, from, to);
    for (int i = L->n_bounds; i--;) add_cut(cut, &n, st->max_cuts, L->bounds[i] / DS_BLOCK * DS_BLOCK, from, to);
    for (int64_t p = to / st->every * st->every; p > from; p -= st->every) add_cut(cut, &n, st->max_cuts, p, from, to);
    return n;
}

struct cutting { ds_store *st; struct ds_live *L; };

static void keep_cut(void *ctx, ds_session *s, int64_t pos, int slot)
{
    struct cutting *c = ctx;
    (void)s;
    take(c->st, c->L, pos, kind_at(c->L, pos), slot, NULL, c->L->piece_exact);
}

static ds_status set_cuts(struct cutting *c, int n, struct ds_err *e)
{
    ds_store *st = c->st;
    const int64_t pos = ds_session_pos(c->L->s);
    const int chunks = (n + st->ubatch - 1) / st->ubatch;
    int64_t *cut = malloc(((size_t)chunks * (size_t)st->max_cuts + 1) * sizeof *cut);
    int all = 0;
    if (!cut) return ds_fail(e, DS_ENOMEM, "the system refused memory for the snapshots of %d tokens", n);
    for (int i = 0; i < chunks; i++) {
        const int64_t from = pos + (int64_t)i * st->ubatch, to = i + 1 < chunks ? from + st->ubatch : pos + n;
        all += plan_chunk(st, c->L, from, to, cut + all);
    }
    const ds_status rc = ds_session_set_cuts(c->L->s, cut, all, keep_cut, c, e);
    free(cut);
    return rc;
}

ds_status ds_store_prefill(ds_store *st, ds_session *s, const int32_t *ids, int n, enum ds_rows rows, ds_tick tick,
                           void *tick_ctx, struct ds_err *e)
{
    struct ds_live *L = ds_live_of(st, s);
    if (!L || !L->busy) return ds_fail(e, DS_EARG, "a prefill through the store needs a begun request");
    struct cutting c = { st, L };
    const int64_t pos = ds_session_pos(s);
    L->piece_exact = pos % DS_BLOCK == 0 && L->exact_to == pos && !ds_session_is_timing_only(s);
    ds_status rc = st->max_cuts > 0 && n > 0 ? set_cuts(&c, n, e) : DS_OK;
    if (!rc) rc = ds_session_prefill(s, ids, n, rows, tick, tick_ctx, e);
    const int64_t now = ds_session_pos(s);
    if (L->piece_exact && now > pos) {
        /* The snapshot one token before the end divides the recurrence's last chunk, unless it lies where one ends. */
        const bool divided = st->max_cuts > 0 && now == L->n && now - 1 > pos && (now - 1) % DS_BLOCK;
        L->exact_to = divided ? now - 1 : now;
    }
    L->piece_exact = false;
    st->last_ns = ds_now_ns();
    return rc;
}

/* --- the end of a request --- */

void ds_store_end(ds_store *st, ds_session *s)
{
    struct ds_live *L = ds_live_of(st, s);
    const int64_t pos = ds_session_pos(s);
    if (!L || !L->busy) return;
    if (pos > 0 && !ds_session_is_timing_only(s) && (!L->tip || pos >= ds_node_end(L->tip)))
        take(st, L, pos, DS_SNAP_END, -1, ds_session_logits(s), L->exact_to == pos);
    L->busy = false;
    st->last_ns = ds_now_ns();
    ds_disk_unsaved(st);
}

void ds_store_forget(ds_store *st, ds_session *s)
{
    struct ds_live *L = ds_live_of(st, s);
    if (!L) return;
    /* What this request computed may be as wrong as its end. */
    for (struct ds_node *p = L->tip; L->busy && p && ds_node_end(p) > L->start; p = p->parent) ds_node_drop_state(&st->t, p);
    L->busy = false;
    leave(st, L, 0);
    ds_live_set_tip(st, L, NULL);
    ds_session_reset(s);
    L->exact_to = 0;
    ds_store_sweep(st, NULL);
}

void ds_store_detach(ds_store *st, ds_session *s)
{
    struct ds_live *L = ds_live_of(st, s);
    if (!L) return;
    ds_store_end(st, s);
    leave(st, L, 0);
    ds_live_set_tip(st, L, NULL);
    for (int i = 0; i < st->n_live; i++)
        if (st->live[i] == L) st->live[i] = st->live[--st->n_live];
    free(L->bounds);
    free(L);
}

/* --- files and numbers --- */

/* A quarter of the memory at most: they are for the next prompt, and the rest is for what was computed. */
static bool make_spare(ds_store *st)
{
    const uint64_t cost = ds_tree_cost(st->t.sh.state);
    const bool room = st->t.growing || ds_tree_used(&st->t) + cost <= st->mem;
    return (uint64_t)(st->t.n_spare + 1) * cost <= st->mem / 4 && room && ds_tree_grow_spare(&st->t);
}

bool ds_store_tick(ds_store *st)
{
    for (int i = 0; i < st->n_live; i++)
        if (st->live[i]->busy) return false;
    if (make_spare(st)) return true;
    if (!ds_disk_may_write(st) || ds_now_ns() - st->last_ns < st->idle_ns) return false;
    struct ds_node *n = ds_disk_unsaved(st);
    if (!n) return false;
    ds_disk_write(st, n);
    return ds_disk_may_write(st) && ds_disk_unsaved(st) != NULL;
}

void ds_store_flush(ds_store *st, uint64_t deadline_ns)
{
    struct ds_node *n;
    while (ds_disk_may_write(st) && (!deadline_ns || ds_now_ns() < deadline_ns) && (n = ds_disk_unsaved(st)))
        ds_disk_write(st, n);
}

void ds_store_get_stats(const ds_store *st, struct ds_store_stats *out)
{
    const struct ds_tree *t = &st->t;
    const struct ds_counts *c = &st->count;
    *out = (struct ds_store_stats){
        .mem_limit = st->mem, .mem_kv = t->kv, .mem_states = t->states, .mem_logits = t->logits, .mem_tree = t->tree,
        .disk_limit = st->disk.dir ? st->disk.limit : 0, .disk_used = st->disk.used, .nodes = t->nodes, .snapshots = t->snapshots,
        .files = st->disk.files,
        .hits_live = c->hits_live, .hits_snapshot = c->hits_snapshot, .hits_disk = c->hits_disk, .misses = c->misses,
        .tokens_reused = c->reused, .tokens_recomputed = c->recomputed, .taken = c->taken, .evicted = c->evicted,
        .refused = c->refused, .written = c->written, .loaded = c->loaded, .damaged = c->damaged, .unsaved = c->unsaved,
    };
    out->mem_used = out->mem_kv + out->mem_states + out->mem_logits + out->mem_tree;
}
