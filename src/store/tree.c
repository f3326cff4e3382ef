#include "store/tree.h"

#include "base/os.h"

#include <string.h>

#define SPARE_STEP ((size_t)2 << 20)

/* --- counted memory --- */

uint64_t ds_tree_cost(size_t bytes)
{
    const uint64_t page = ds_page_size();
    if (bytes >= (size_t)1 << 20) return (bytes + page - 1) / page * page;
    return ((uint64_t)bytes + 63) / 64 * 64 + 64;      /* what the allocator keeps beside an aligned piece */
}

uint64_t ds_tree_used(const struct ds_tree *t) { return t->kv + t->states + t->logits + t->tree; }

static void *take(_Atomic uint64_t *count, size_t bytes)
{
    void *p = ds_mem_alloc(bytes);
    if (p) *count += ds_tree_cost(bytes);
    return p;
}

static void give(_Atomic uint64_t *count, void *p, size_t bytes)
{
    if (!p) return;
    *count -= ds_tree_cost(bytes);
    ds_mem_free(p, bytes);
}

/* --- rows --- */

void ds_rows_cut(const struct ds_shape *sh, void *dst, const void *src, int64_t from, int64_t n, int64_t a, int64_t b)
{
    const size_t row = sh->planes ? sh->kv / (size_t)sh->planes : 0, m = (size_t)(b - a) * row;
    for (int p = 0; p < sh->planes; p++)
        memcpy((char *)dst + (size_t)p * m, (const char *)src + ((size_t)p * (size_t)n + (size_t)(a - from)) * row, m);
}

void ds_rows_put(const struct ds_shape *sh, void *dst, int64_t from, int64_t n, const void *src, int64_t a, int64_t b)
{
    const size_t row = sh->planes ? sh->kv / (size_t)sh->planes : 0, m = (size_t)(b - a) * row;
    for (int p = 0; p < sh->planes; p++)
        memcpy((char *)dst + ((size_t)p * (size_t)n + (size_t)(a - from)) * row, (const char *)src + (size_t)p * m, m);
}

/* --- nodes --- */

static struct ds_node *new_node(struct ds_tree *t, struct ds_node *parent, int64_t from)
{
    struct ds_node *n = take(&t->tree, sizeof *n);
    if (!n) return NULL;
    t->nodes++;
    n->parent = parent;
    n->from = from;
    return n;
}

static void free_node(struct ds_tree *t, struct ds_node *n)
{
    ds_node_drop_kv(t, n);
    give(&t->states, n->state, t->sh.state);
    give(&t->logits, n->logits, t->sh.logits);
    t->snapshots -= n->state != NULL;
    give(&t->tree, n->child, (size_t)n->cap_child * sizeof(struct ds_node *));
    give(&t->tree, n, sizeof *n);
    t->nodes--;
}

/* Where a child that begins with id is or would be. */
static int place(const struct ds_node *n, int32_t id)
{
    int lo = 0, hi = n->n_child;
    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (n->child[mid]->ids[0] < id) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

static bool add_child(struct ds_tree *t, struct ds_node *p, struct ds_node *c)
{
    if (p->n_child == p->cap_child) {
        const int cap = p->cap_child ? p->cap_child + p->cap_child / 2 + 4 : 1;
        struct ds_node **own = take(&t->tree, (size_t)cap * sizeof(struct ds_node *));
        if (!own) return false;
        if (p->n_child) memcpy(own, p->child, (size_t)p->n_child * sizeof(struct ds_node *));
        give(&t->tree, p->child, (size_t)p->cap_child * sizeof(struct ds_node *));
        p->child = own;
        p->cap_child = cap;
    }
    const int at = place(p, c->ids[0]);
    memmove(p->child + at + 1, p->child + at, (size_t)(p->n_child - at) * sizeof(struct ds_node *));
    p->child[at] = c;
    p->n_child++;
    return true;
}

bool ds_tree_init(struct ds_tree *t, const struct ds_shape *sh)
{
    memset(t, 0, sizeof *t);
    t->sh = *sh;
    t->root = new_node(t, NULL, 0);
    return t->root != NULL;
}

void ds_tree_free(struct ds_tree *t)
{
    while (ds_tree_drop_spare(t, 0)) continue;
    for (struct ds_node *n = t->root; n;) {      /* leaves first, without recursion */
        if (n->n_child) {
            n = n->child[--n->n_child];
            continue;
        }
        struct ds_node *up = n->parent;
        free_node(t, n);
        n = up;
    }
    t->root = NULL;
}

struct ds_node *ds_tree_next(struct ds_node *n, bool below)
{
    if (below && n->n_child) return n->child[0];
    for (; n->parent; n = n->parent) {
        const int at = place(n->parent, n->ids[0]);
        if (at + 1 < n->parent->n_child) return n->parent->child[at + 1];
    }
    return NULL;
}

/* --- walking and growing --- */

struct ds_node *ds_tree_find(const struct ds_tree *t, const int32_t *ids, int64_t n, int64_t *common, struct ds_node **part)
{
    struct ds_node *at = t->root;
    int64_t pos = 0;
    if (part) *part = NULL;
    while (pos < n) {
        const int i = place(at, ids[pos]);
        if (i == at->n_child || at->child[i]->ids[0] != ids[pos]) break;
        struct ds_node *c = at->child[i];
        int k = 1;
        while (k < c->n && pos + k < n && c->ids[k] == ids[pos + k]) k++;
        pos += k;
        if (k < c->n) {
            if (part) *part = c;
            break;
        }
        at = c;
    }
    *common = pos;
    return at;
}

uint64_t ds_tree_grow_cost(const struct ds_tree *t, const int32_t *ids, int64_t n)
{
    struct ds_node *part;
    int64_t common;
    const struct ds_node *at = ds_tree_find(t, ids, n, &common, &part);
    if (common == n && !part) return 0;
    const uint64_t nodes = (uint64_t)(n - common) / DS_BLOCK + 3;
    const uint64_t table = 2 * ds_tree_cost((size_t)(2 * at->n_child + 8) * sizeof(struct ds_node *));
    const uint64_t rows = part && part->kv ? 2 * ds_tree_cost(DS_BLOCK * t->sh.kv) : 0;
    return nodes * (ds_tree_cost(sizeof(struct ds_node)) + ds_tree_cost(8 * sizeof(struct ds_node *))) + table + rows;
}

/* Cuts n after k tokens. The end of n, with its snapshot, stays the same object. */
static struct ds_node *split(struct ds_tree *t, struct ds_node *n, int k)
{
    struct ds_node *up = new_node(t, n->parent, n->from);
    void *low = NULL;
    if (!up) return NULL;
    up->n = k;
    memcpy(up->ids, n->ids, (size_t)k * sizeof n->ids[0]);
    if (n->kv && (!ds_node_new_kv(t, up) || !(low = take(&t->kv, (size_t)(n->n - k) * t->sh.kv)))) {
        free_node(t, up);
        return NULL;
    }
    if (!add_child(t, up, n)) {
        give(&t->kv, low, (size_t)(n->n - k) * t->sh.kv);
        free_node(t, up);
        return NULL;
    }
    if (n->kv) {
        ds_rows_cut(&t->sh, up->kv, n->kv, n->from, n->n, n->from, n->from + k);
        ds_rows_cut(&t->sh, low, n->kv, n->from, n->n, n->from + k, ds_node_end(n));
        ds_node_drop_kv(t, n);
        n->kv = low;
    }
    up->kv_exact = n->kv_exact;
    up->seg = n->seg;
    up->ram = n->ram;
    up->used = n->used;
    up->used_ns = n->used_ns;
    up->cover = n->cover;
    up->cover_epoch = n->cover_epoch;
    n->parent->child[place(n->parent, n->ids[0])] = up;
    n->parent = up;
    n->from += k;
    n->n -= k;
    memmove(n->ids, n->ids + k, (size_t)n->n * sizeof n->ids[0]);
    return up;
}

struct ds_node *ds_tree_grow(struct ds_tree *t, const int32_t *ids, int64_t n)
{
    struct ds_node *part;
    int64_t pos;
    struct ds_node *at = ds_tree_find(t, ids, n, &pos, &part), *top = at;
    if (part && !(at = top = split(t, part, (int)(pos - part->from)))) return NULL;
    while (pos < n) {
        const int64_t to = (pos / DS_BLOCK + 1) * DS_BLOCK;
        struct ds_node *c = new_node(t, at, pos);
        if (c) {
            c->n = (int)((to < n ? to : n) - pos);
            memcpy(c->ids, ids + pos, (size_t)c->n * sizeof *ids);
            if (add_child(t, at, c)) {
                at = c;
                pos += c->n;
                continue;
            }
            free_node(t, c);
        }
        if (at != top) ds_tree_trim(t, at);
        return NULL;
    }
    return at;
}

/* --- what nodes hold --- */

bool ds_node_new_kv(struct ds_tree *t, struct ds_node *n)
{
    return (n->kv = take(&t->kv, (size_t)n->n * t->sh.kv)) != NULL;
}

bool ds_tree_grow_spare(struct ds_tree *t)
{
    if (!t->growing) {
        t->growing = t->n_spare < DS_SPARE_STATES ? take(&t->states, t->sh.state) : NULL;
        t->grown = 0;
        return t->growing != NULL;
    }
    const size_t left = t->sh.state - t->grown, step = left < SPARE_STEP ? left : SPARE_STEP;
    memset((char *)t->growing + t->grown, 0, step);
    if ((t->grown += step) < t->sh.state) return true;
    if (t->n_spare == DS_SPARE_STATES) give(&t->states, t->growing, t->sh.state);
    else t->spare[t->n_spare++] = t->growing;
    t->growing = NULL;
    return true;
}

bool ds_tree_drop_spare(struct ds_tree *t, int keep)
{
    if (!t->growing && t->n_spare <= keep) return false;
    give(&t->states, t->growing ? t->growing : t->spare[--t->n_spare], t->sh.state);
    t->growing = NULL;
    return true;
}

bool ds_node_new_state(struct ds_tree *t, struct ds_node *n)
{
    n->state = t->n_spare ? t->spare[--t->n_spare] : take(&t->states, t->sh.state);
    if (!n->state) return false;
    t->snapshots++;
    for (struct ds_node *p = n; p; p = p->parent) p->ram++;
    return true;
}

bool ds_node_new_logits(struct ds_tree *t, struct ds_node *n)
{
    return (n->logits = take(&t->logits, t->sh.logits)) != NULL;
}

void ds_node_drop_kv(struct ds_tree *t, struct ds_node *n)
{
    give(&t->kv, n->kv, (size_t)n->n * t->sh.kv);
    n->kv = NULL;
}

void ds_node_drop_state(struct ds_tree *t, struct ds_node *n)
{
    if (!n->state) return;
    if (t->n_spare) give(&t->states, n->state, t->sh.state);
    else t->spare[t->n_spare++] = n->state;
    give(&t->logits, n->logits, t->sh.logits);
    n->state = NULL;
    n->logits = NULL;
    t->snapshots--;
    for (struct ds_node *p = n; p; p = p->parent) p->ram--;
}

struct ds_node *ds_tree_trim(struct ds_tree *t, struct ds_node *n)
{
    struct ds_node *stays = NULL;
    while (n->parent && !n->ram) {
        struct ds_node *up = n->parent;
        ds_node_drop_kv(t, n);
        if (!n->n_child && !n->seg && !n->pins) {
            const int at = place(up, n->ids[0]);
            memmove(up->child + at, up->child + at + 1, (size_t)(up->n_child - at - 1) * sizeof(struct ds_node *));
            up->n_child--;
            free_node(t, n);
        } else if (!stays) {
            stays = n;
        }
        n = up;
    }
    return stays ? stays : n;
}
