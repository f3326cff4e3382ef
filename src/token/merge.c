#include "token/bpe.h"

#include <stdlib.h>
#include <string.h>

/* --- growable arrays ---------------------------------------------------------------------------- */

/* p with room for need items, or NULL (p stays as it is). */
static void *grown(void *p, size_t *cap, size_t need, size_t item)
{
    size_t c = *cap ? *cap : 64;
    while (c < need) c *= 2;
    void *q = realloc(p, c * item);
    if (q) *cap = c;
    return q;
}

bool ds_ids_push(struct ds_ids_out *o, int32_t id)
{
    if (o->n == o->cap) {
        int32_t *p = grown(o->p, &o->cap, o->n + 1, sizeof *p);
        if (!p) return false;
        o->p = p;
    }
    o->p[o->n++] = id;
    return true;
}

/* --- short pieces: the lowest rank is searched each time ----------------------------------------------- */

enum { SHORT = 24 };
#define NO_RANK UINT32_MAX

static uint32_t rank_of(const struct ds_bpe *b, int32_t left, int32_t right)
{
    const uint64_t *r = ds_map64_get(&b->merges, (uint64_t)left << 32 | (uint32_t)right);
    return r ? (uint32_t)*r : NO_RANK;
}

static bool merge_short(const struct ds_bpe *b, const char *piece, size_t n, struct ds_ids_out *out)
{
    int32_t sym[SHORT];
    uint32_t rank[SHORT];                            /* of sym[i] and sym[i + 1] */
    for (size_t i = 0; i < n; i++) sym[i] = b->byte_id[(unsigned char)piece[i]];
    for (size_t i = 0; i + 1 < n; i++) rank[i] = rank_of(b, sym[i], sym[i + 1]);
    for (size_t at; n > 1; n--) {
        at = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[at]) at = i;
        if (rank[at] == NO_RANK) break;
        sym[at] = b->result[rank[at]];
        memmove(sym + at + 1, sym + at + 2, (n - at - 2) * sizeof *sym);
        if (at + 2 < n) {
            memmove(rank + at, rank + at + 1, (n - at - 2) * sizeof *rank);
            rank[at] = rank_of(b, sym[at], sym[at + 1]);
        }
        if (at) rank[at - 1] = rank_of(b, sym[at - 1], sym[at]);
    }
    for (size_t i = 0; i < n; i++)
        if (!ds_ids_push(out, sym[i])) return false;
    return true;
}

/* --- long pieces: a queue --------------------------------------------------------------------------------
 *
 * Pairs wait in runs: lists of positions in increasing order, all of one rank. The heap holds the run
 * heads, least (rank, position) first. A pair of a rank whose newest run ends before it joins that run
 * at no cost; otherwise it begins one. Repetitive text makes few long runs, the worst case one run a pair. */

#define NONE UINT32_MAX

static bool reserve_piece(const struct ds_bpe *b, struct ds_bpe_work *w, size_t n)
{
    if (!w->newest) {
        w->newest = calloc(b->n_merges + 1, sizeof *w->newest);
        if (!w->newest) return false;
    }
    if (n <= w->cap) return true;
    int32_t *sym = realloc(w->sym, n * sizeof *sym);
    if (sym) w->sym = sym;
    uint32_t *rank = realloc(w->rank, n * sizeof *rank);
    if (rank) w->rank = rank;
    if (!sym || !rank) return false;
    w->cap = n;
    return true;
}

void ds_bpe_work_free(struct ds_bpe_work *w)
{
    free(w->sym);
    free(w->rank);
    free(w->pair);
    free(w->heap);
    free(w->newest);
    memset(w, 0, sizeof *w);
}

static void settle_head(struct ds_bpe_work *w)
{
    struct ds_bpe_head *h = w->heap, x = h[0];
    size_t i = 0;
    for (size_t c; (c = 2 * i + 1) < w->n_heap; i = c) {
        if (c + 1 < w->n_heap && h[c + 1].key < h[c].key) c++;
        if (h[c].key >= x.key) break;
        h[i] = h[c];
    }
    h[i] = x;
}

static bool add_head(struct ds_bpe_work *w, struct ds_bpe_head x)
{
    if (w->n_heap == w->heap_cap) {
        struct ds_bpe_head *h = grown(w->heap, &w->heap_cap, w->n_heap + 1, sizeof *h);
        if (!h) return false;
        w->heap = h;
    }
    size_t i = w->n_heap++;
    for (size_t up; i && w->heap[up = (i - 1) / 2].key > x.key; i = up) w->heap[i] = w->heap[up];
    w->heap[i] = x;
    return true;
}

static bool push(struct ds_bpe_work *w, uint32_t rank, size_t at)
{
    uint32_t x = w->free, tail = w->newest[rank];    /* newest: last pair of the rank's newest run, + 1 */
    if (x != NONE) {
        w->free = w->pair[x].next;
    } else {
        if (w->n_pairs == w->pair_cap) {
            struct ds_bpe_pair *p = grown(w->pair, &w->pair_cap, w->n_pairs + 1, sizeof *p);
            if (!p) return false;
            w->pair = p;
        }
        x = (uint32_t)w->n_pairs++;
    }
    w->pair[x] = (struct ds_bpe_pair){ (uint32_t)at, NONE };
    w->newest[rank] = x + 1;
    if (!tail || w->pair[tail - 1].at >= at) return add_head(w, (struct ds_bpe_head){ (uint64_t)rank << 32 | (uint32_t)at, x });
    w->pair[tail - 1].next = x;
    return true;
}

/* Takes the first pair of the queue, which is not empty: rank << 32 | position. */
static uint64_t pop(struct ds_bpe_work *w)
{
    struct ds_bpe_head *head = &w->heap[0];
    uint64_t key = head->key;
    uint32_t x = head->first, next = w->pair[x].next, rank = (uint32_t)(key >> 32);
    w->pair[x].next = w->free;
    w->free = x;
    if (next != NONE) {
        *head = (struct ds_bpe_head){ (uint64_t)rank << 32 | w->pair[next].at, next };
    } else {
        if (w->newest[rank] == x + 1) w->newest[rank] = 0;
        *head = w->heap[--w->n_heap];
    }
    settle_head(w);
    return key;
}

/* A symbol lies at the bytes that it covers: its id is kept at the first and at the last of them, so both
 * neighbours are found from a position without links. rank[i] is the rank of the pair whose left symbol
 * begins at i; a queued pair that differs from it is stale. A symbol made here is spelled by characters of
 * the byte alphabet alone, one for each byte, so its decoded length is what it covers. */
static bool set_pair(const struct ds_bpe *b, struct ds_bpe_work *w, size_t at, int32_t left, int32_t right)
{
    w->rank[at] = rank_of(b, left, right);
    return w->rank[at] == NO_RANK || push(w, w->rank[at], at);
}

static bool merge_at(const struct ds_bpe *b, struct ds_bpe_work *w, size_t at, size_t n)
{
    size_t right = at + ds_vocab_bytes_len(b->v, w->sym[at]), end = right + ds_vocab_bytes_len(b->v, w->sym[right]);
    int32_t to = b->result[w->rank[at]];
    w->sym[at] = w->sym[end - 1] = to;
    w->rank[right] = w->rank[at] = NO_RANK;
    if (end < n && !set_pair(b, w, at, to, w->sym[end])) return false;
    if (!at) return true;
    int32_t left = w->sym[at - 1];
    return set_pair(b, w, at - ds_vocab_bytes_len(b->v, left), left, to);
}

static bool merge_long(const struct ds_bpe *b, struct ds_bpe_work *w, const char *piece, size_t n, struct ds_ids_out *out)
{
    if (!reserve_piece(b, w, n)) return false;
    w->n_pairs = w->n_heap = 0;
    w->free = NONE;
    for (size_t i = 0; i < n; i++) w->sym[i] = b->byte_id[(unsigned char)piece[i]];
    w->rank[n - 1] = NO_RANK;
    for (size_t i = 0; i + 1 < n; i++)
        if (!set_pair(b, w, i, w->sym[i], w->sym[i + 1])) return false;
    while (w->n_heap) {
        uint64_t first = pop(w);
        size_t at = (uint32_t)first;
        if (w->rank[at] == first >> 32 && !merge_at(b, w, at, n)) return false;
    }
    for (size_t i = 0; i < n; i += ds_vocab_bytes_len(b->v, w->sym[i]))
        if (!ds_ids_push(out, w->sym[i])) return false;
    return true;
}

bool ds_bpe_piece(const struct ds_bpe *b, struct ds_bpe_work *w, const char *piece, size_t n, struct ds_ids_out *out)
{
    if (n == 1) return ds_ids_push(out, b->byte_id[(unsigned char)piece[0]]);
    return n <= SHORT ? merge_short(b, piece, n, out) : merge_long(b, w, piece, n, out);
}
