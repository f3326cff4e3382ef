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

/* --- long pieces: a queue for each rank, a heap of the ranks that wait ------------------------------------
 *
 * A queue is in order of position by itself. Equal texts are merged by equal steps, lowest rank first and
 * leftmost first, so of two places where one pair comes about the left one is never behind. */

#define NONE UINT32_MAX
enum { ASK_EVERY = 1 << 14 };      /* steps between two questions whether to stop: about a millisecond */

static bool reserve_piece(const struct ds_bpe *b, struct ds_bpe_work *w, size_t n)
{
    if (!w->queue) {
        w->queue = calloc(b->n_merges + 1, sizeof *w->queue);
        if (!w->queue) return false;
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
    free(w->queue);
    memset(w, 0, sizeof *w);
}

static bool add_rank(struct ds_bpe_work *w, uint32_t rank)
{
    if (w->n_heap == w->heap_cap) {
        uint32_t *h = grown(w->heap, &w->heap_cap, w->n_heap + 1, sizeof *h);
        if (!h) return false;
        w->heap = h;
    }
    size_t i = w->n_heap++;
    for (size_t up; i && w->heap[up = (i - 1) / 2] > rank; i = up) w->heap[i] = w->heap[up];
    w->heap[i] = rank;
    return true;
}

static void drop_first_rank(struct ds_bpe_work *w)
{
    uint32_t *h = w->heap, x = h[--w->n_heap];
    size_t i = 0;
    for (size_t c; (c = 2 * i + 1) < w->n_heap; i = c) {
        if (c + 1 < w->n_heap && h[c + 1] < h[c]) c++;
        if (h[c] >= x) break;
        h[i] = h[c];
    }
    h[i] = x;
}

static bool push(struct ds_bpe_work *w, uint32_t rank, size_t at)
{
    uint32_t x = w->free;
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
    struct ds_bpe_queue *q = &w->queue[rank];
    uint32_t last = q->last;
    q->last = x;
    if (q->waits) {
        w->pair[last].next = x;
        return true;
    }
    q->waits = true;
    q->first = x;
    return add_rank(w, rank);
}

/* Takes the first pair of the lowest rank that waits. */
static size_t pop(struct ds_bpe_work *w, uint32_t *rank)
{
    *rank = w->heap[0];
    struct ds_bpe_queue *q = &w->queue[*rank];
    uint32_t x = q->first;
    q->first = w->pair[x].next;
    if (q->first == NONE) {
        q->waits = false;
        drop_first_rank(w);
    }
    w->pair[x].next = w->free;
    w->free = x;
    return w->pair[x].at;
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
        if (!set_pair(b, w, i, w->sym[i], w->sym[i + 1]) || (i % ASK_EVERY == 0 && ds_bpe_stops(w))) return false;
    for (size_t step = 1; w->n_heap; step++) {
        uint32_t rank;
        if (step % ASK_EVERY == 0 && ds_bpe_stops(w)) return false;
        size_t at = pop(w, &rank);
        if (w->rank[at] == rank && !merge_at(b, w, at, n)) return false;
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
