/* What goes when room is short.
 *
 * Rows that a session holds anyway go first. Then snapshots, the least worth first: each is worth the tokens from the
 * snapshot before it, which would have to be computed again, times the chance that somebody asks, by byte that it
 * frees. Along one prompt this thins evenly, since each one that goes makes the next worth more. */
#include "store/store.h"

#include <math.h>

void ds_store_mark(ds_store *st, const struct ds_live *except)
{
    st->epoch++;
    for (int i = 0; i < st->n_live; i++) {
        struct ds_live *L = st->live[i];
        if (L == except || !L->tip || ds_session_pos(L->s) < ds_node_end(L->tip)) continue;
        for (struct ds_node *n = L->tip; n; n = n->parent) {
            n->cover = L;
            n->cover_epoch = st->epoch;
        }
    }
}

/* Sets deep everywhere. */
static void survey(ds_store *st)
{
    const uint64_t now = ds_now_ns();
    for (struct ds_node *n = st->t.root; n; n = ds_tree_next(n, true)) n->deep = 0;
    for (struct ds_node *n = st->t.root; n; n = ds_tree_next(n, true)) {
        if (!n->used_ns || now - n->used_ns >= st->recent_ns) continue;
        for (struct ds_node *p = n; p && p->deep < ds_node_end(n); p = p->parent) p->deep = ds_node_end(n);
    }
    for (int i = 0; i < st->n_live; i++) {
        const struct ds_live *L = st->live[i];
        const int64_t end = L->n > ds_session_pos(L->s) ? L->n : ds_session_pos(L->s);
        if (!L->busy) continue;
        for (struct ds_node *p = L->tip; p && p->deep < end; p = p->parent) p->deep = end;
    }
}

static double weight(const struct ds_node *n, enum ds_snap_kind kind)
{
    if (kind == DS_SNAP_END && n->ram <= 1) return 8;        /* where the next turn begins */
    return kind != DS_SNAP_INTERVAL || n->n_child > 1 ? 2 : 1;
}

double ds_store_worth(const struct ds_store *st, const struct ds_node *n, enum ds_snap_kind kind)
{
    const struct ds_node *before = n->parent;
    uint64_t bytes = ds_tree_cost(st->t.sh.state) + (n->logits ? ds_tree_cost(st->t.sh.logits) : 0);
    while (before && !before->state) before = before->parent;
    for (const struct ds_node *p = n; n->state && p && p->ram == 1; p = p->parent)
        if (p->kv) bytes += ds_tree_cost((size_t)p->n * st->t.sh.kv);
    const double tokens = (double)(ds_node_end(n) - (before ? ds_node_end(before) : 0));
    const double again = n->on_disk ? 0.1 : 1;               /* reading is cheaper than computing */
    return weight(n, kind) * again * tokens / (1 + (double)(st->clock - n->used)) / (double)bytes;
}

static struct ds_node *least(ds_store *st, int64_t size, double *worth)
{
    struct ds_node *best = NULL;
    survey(st);
    for (struct ds_node *n = st->t.root; n; n = ds_tree_next(n, n->ram > 0)) {
        if (!n->state || n->hold || n->deep > size) continue;
        const double w = ds_store_worth(st, n, n->kind);
        if (best && w >= *worth) continue;
        best = n;
        *worth = w;
    }
    return best;
}

uint64_t ds_store_fixed(ds_store *st, int64_t size)
{
    uint64_t sum = st->t.tree;
    survey(st);
    for (struct ds_node *n = st->t.root; n; n = ds_tree_next(n, n->ram > 0)) {
        if (n->deep <= size) continue;
        if (n->kv) sum += ds_tree_cost((size_t)n->n * st->t.sh.kv);
        if (n->state) sum += ds_tree_cost(st->t.sh.state);
        if (n->logits) sum += ds_tree_cost(st->t.sh.logits);
    }
    return sum;
}

/* A prefix whose last snapshot in RAM goes is written first, where there is a folder. */
static void evict(ds_store *st, struct ds_node *n)
{
    n->pins++;
    if (n->ram == 1 && !n->on_disk && ds_disk_may_write(st)) ds_disk_write(st, n);
    n->pins--;
    ds_node_drop_state(&st->t, n);
    ds_tree_trim(&st->t, n);
    st->count.evicted++;
}

/* Spares give way to anything, except that a state may take one itself. */
static bool fits(ds_store *st, uint64_t bytes, const struct ds_claim *c)
{
    const uint64_t cost = ds_tree_cost(st->t.sh.state);
    for (;;) {
        const bool own = c->state && st->t.n_spare;
        if (ds_tree_used(&st->t) + bytes - (own ? cost : 0) <= st->mem) return true;
        if (!ds_tree_drop_spare(&st->t, own)) return false;
    }
}

static bool drop_doubled_rows(ds_store *st, uint64_t bytes, const struct ds_claim *c)
{
    for (int i = 0; i < st->n_live; i++)
        for (struct ds_node *n = st->live[i]->tip; n && !fits(st, bytes, c); n = n->parent)
            if (ds_store_cover(st, n)) ds_node_drop_kv(&st->t, n);
    return fits(st, bytes, c);
}

bool ds_store_room(ds_store *st, uint64_t bytes, const struct ds_claim *c)
{
    double worth = 0;
    if (fits(st, bytes, c)) return true;
    if (bytes > st->mem || c->score < 0) return false;
    ds_store_mark(st, st->leaving);
    if (drop_doubled_rows(st, bytes, c)) return true;
    while (!fits(st, bytes, c)) {
        struct ds_node *n = least(st, c->size, &worth);
        if (!n || worth > c->score) return false;
        evict(st, n);
    }
    return true;
}

void ds_store_sweep(ds_store *st, const struct ds_live *except)
{
    ds_store_mark(st, except);
    for (struct ds_node *n = ds_tree_next(st->t.root, true), *after; n; n = after) {
        after = ds_tree_next(n, true);
        if (!n->ram || ds_store_has_rows(st, n)) continue;
        after = ds_tree_next(n, false);
        for (struct ds_node *m = n; m != after; m = ds_tree_next(m, true)) ds_node_drop_state(&st->t, m);
    }
    for (struct ds_node *n = ds_tree_next(st->t.root, true); n;) {
        const bool nothing = !n->n_child && !n->ram && !n->seg && !n->pins;
        n = ds_tree_next(nothing ? ds_tree_trim(&st->t, n) : n, true);
    }
}
