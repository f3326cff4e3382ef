#include "token/bpe.h"

#include "token/bytes.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define KEY_MERGES "tokenizer.ggml.merges"

/* --- tables ----------------------------------------------------------------------------------- */

static ds_status bind_bytes(struct ds_bpe *b, const char *path, struct ds_err *e)
{
    for (int i = 0; i < 256; i++) {
        char s[4];
        int32_t id = ds_vocab_find(b->v, s, ds_utf8_put(s, ds_byte_symbol((unsigned char)i)));
        if (id < 0 || !ds_vocab_is_ordinary(b->v, id))
            return ds_fail(e, DS_EFORMAT, "%s: key 'tokenizer.ggml.tokens' has no ordinary token for byte 0x%02X, expected all 256", path, i);
        b->byte_id[i] = id;
    }
    return DS_OK;
}

static int32_t ordinary(const struct ds_vocab *v, const char *s, size_t n)
{
    int32_t id = ds_vocab_find(v, s, n);
    return id >= 0 && ds_vocab_is_ordinary(v, id) ? id : -1;
}

/* joined: room for the merge's bytes. */
static ds_status add_merge(struct ds_bpe *b, struct ds_str m, uint64_t rank, char *joined, const char *path, struct ds_err *e)
{
    const char *space = m.n > 1 ? memchr(m.p + 1, ' ', m.n - 1) : NULL;
    size_t left = space ? (size_t)(space - m.p) : 0, right = space ? m.n - left - 1 : 0;
    if (!right || memchr(space + 1, ' ', right))
        return ds_fail(e, DS_EFORMAT, "%s: key '" KEY_MERGES "' entry %llu is not two pieces with one space between them", path,
                       (unsigned long long)rank);
    memcpy(joined, m.p, left);
    memcpy(joined + left, space + 1, right);
    int32_t l = ordinary(b->v, joined, left), r = ordinary(b->v, joined + left, right), to = ordinary(b->v, joined, left + right);
    if (l < 0 || r < 0 || to < 0)
        return ds_fail(e, DS_EFORMAT, "%s: key '" KEY_MERGES "' entry %llu: its %s is no ordinary token of the vocabulary", path,
                       (unsigned long long)rank, l < 0 ? "left piece" : r < 0 ? "right piece" : "result");
    ds_table_add(&b->merges, (uint64_t)l << 32 | (uint32_t)r, rank);
    b->result[rank] = to;
    return DS_OK;
}

ds_status ds_bpe_init(struct ds_bpe *b, const struct ds_vocab *v, const struct ds_gguf *g, struct ds_err *e)
{
    const char *path = ds_gguf_path(g);
    struct ds_arr a;
    b->v = v;
    ds_status st = bind_bytes(b, path, e);
    if (st || (st = ds_gguf_arr(g, KEY_MERGES, &a, e))) return st;
    if (a.n && a.t != DS_KV_STR) return ds_fail(e, DS_EFORMAT, "%s: key '" KEY_MERGES "' is an array of another kind than strings", path);
    if (a.n >= (uint64_t)1 << 30)
        return ds_fail(e, DS_EUNSUP, "%s: key '" KEY_MERGES "' has %llu entries", path, (unsigned long long)a.n);

    size_t longest = 1;
    for (uint64_t i = 0; i < a.n; i++) {
        size_t n = ds_arr_str(&a, i).n;
        if (n > longest) longest = n;
    }
    char *joined = malloc(longest);
    b->result = malloc(((size_t)a.n + 1) * sizeof *b->result);
    if (!joined || !b->result || !ds_table_init(&b->merges, (size_t)a.n, v->seed)) {
        free(joined);
        return ds_fail(e, DS_ENOMEM, "no memory for %llu merges", (unsigned long long)a.n);
    }
    for (uint64_t i = 0; i < a.n && !st; i++) st = add_merge(b, ds_arr_str(&a, i), i, joined, path, e);
    free(joined);
    return st;
}

void ds_bpe_free(struct ds_bpe *b)
{
    ds_table_free(&b->merges);
    free(b->result);
    b->result = NULL;
}

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

static bool reserve_work(struct ds_bpe_work *w, size_t n)
{
    if (n <= w->cap) return true;
    size_t c = n < 256 ? 256 : n;
    int32_t *sym = realloc(w->sym, c * sizeof *sym);
    if (sym) w->sym = sym;
    uint32_t *rank = realloc(w->rank, c * sizeof *rank);
    if (rank) w->rank = rank;
    if (!sym || !rank) return false;
    w->cap = c;
    return true;
}

void ds_bpe_work_free(struct ds_bpe_work *w)
{
    free(w->sym);
    free(w->rank);
    free(w->heap);
    memset(w, 0, sizeof *w);
}

/* --- heap: smallest rank, then smallest position, first ------------------------------------------- */

static void sift_down(uint64_t *h, size_t n, size_t i)
{
    uint64_t x = h[i];
    for (size_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && h[c + 1] < h[c]) c++;
        if (h[c] >= x) break;
        h[i] = h[c];
    }
    h[i] = x;
}

static bool push(struct ds_bpe_work *w, uint32_t rank, size_t at)
{
    if (w->n_heap == w->heap_cap) {
        uint64_t *h = grown(w->heap, &w->heap_cap, w->n_heap + 1, sizeof *h);
        if (!h) return false;
        w->heap = h;
    }
    uint64_t x = (uint64_t)rank << 32 | (uint32_t)at, *h = w->heap;
    size_t i = w->n_heap++;
    for (size_t up; i && h[up = (i - 1) / 2] > x; i = up) h[i] = h[up];
    h[i] = x;
    return true;
}

static uint64_t pop(struct ds_bpe_work *w)
{
    uint64_t top = w->heap[0];
    w->heap[0] = w->heap[--w->n_heap];
    sift_down(w->heap, w->n_heap, 0);
    return top;
}

/* --- merging --------------------------------------------------------------------------------------
 *
 * A symbol lies at the bytes that it covers: its id is kept at the first and at the last of them, so
 * both neighbours are found from a position without links. rank[i] is the rank of the pair whose left
 * symbol begins at i; a heap entry that differs from it is stale. A symbol made here is spelled by
 * characters of the byte alphabet alone, one for each byte, so its decoded length is what it covers. */

#define NO_RANK UINT32_MAX

static uint32_t rank_of(const struct ds_bpe *b, int32_t left, int32_t right)
{
    const uint64_t *r = ds_table_get(&b->merges, (uint64_t)left << 32 | (uint32_t)right);
    return r ? (uint32_t)*r : NO_RANK;
}

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

bool ds_bpe_piece(const struct ds_bpe *b, struct ds_bpe_work *w, const char *piece, size_t n, struct ds_ids_out *out)
{
    if (n == 1) return ds_ids_push(out, b->byte_id[(unsigned char)piece[0]]);
    if (!reserve_work(w, n)) return false;
    for (size_t i = 0; i < n; i++) w->sym[i] = b->byte_id[(unsigned char)piece[i]];
    w->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++)
        if (!set_pair(b, w, i, w->sym[i], w->sym[i + 1])) return false;
    while (w->n_heap) {
        uint64_t top = pop(w);
        size_t at = (uint32_t)top;
        if (w->rank[at] == top >> 32 && !merge_at(b, w, at, n)) return false;
    }
    for (size_t i = 0; i < n; i += ds_vocab_bytes_len(b->v, w->sym[i]))
        if (!ds_ids_push(out, w->sym[i])) return false;
    return true;
}
