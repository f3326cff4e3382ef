/* Byte-pair merges: the bytes of one piece -> ids. */
#ifndef DS_TOKEN_BPE_H
#define DS_TOKEN_BPE_H

#include "token/map64.h"
#include "token/vocab.h"

struct ds_bpe {
    const struct ds_vocab *v;
    struct ds_map64 merges;    /* left id << 32 | right id -> rank */
    int32_t *result;           /* [n_merges] id of the merged pair, by rank */
    size_t n_merges;
    int32_t byte_id[256];      /* symbol each byte starts as */
};

/* Reads tokenizer.ggml.merges; v must outlive b. Fails on a byte without a symbol, on a merge that
 * is not two spellings with one space between, and on one whose parts or result are no ordinary
 * tokens. Of equal merges the first counts. */
ds_status ds_bpe_init(struct ds_bpe *b, const struct ds_vocab *v, const struct ds_gguf *g, struct ds_err *e);
void ds_bpe_free(struct ds_bpe *b);                  /* accepts a zeroed struct */

struct ds_ids_out { int32_t *p; size_t n, cap; };    /* grows by doubling */
bool ds_ids_push(struct ds_ids_out *o, int32_t id);  /* false: no memory */

/* Work space of the pieces of one encoding (merge.c); zero it before, free it after. */
struct ds_bpe_pair { uint32_t at, next; };
struct ds_bpe_queue { uint32_t first, last; bool waits; };
struct ds_bpe_work {
    int (*stop)(void *ctx); void *stop_ctx;     /* NULL: none; asked now and then, non-zero ends the encoding */
    int32_t *sym;              /* [cap] by byte of the piece */
    uint32_t *rank;            /* [cap] */
    size_t cap;
    struct ds_bpe_pair *pair;  /* all that is queued */
    size_t n_pairs, pair_cap;
    uint32_t free;             /* pairs that were taken out */
    struct ds_bpe_queue *queue;    /* [n_merges] by rank */
    uint32_t *heap;            /* ranks that wait */
    size_t n_heap, heap_cap;
};
void ds_bpe_work_free(struct ds_bpe_work *w);
static inline bool ds_bpe_stops(const struct ds_bpe_work *w) { return w->stop && w->stop(w->stop_ctx); }

/* Appends the ids of one piece of n bytes, n < 2^32: again and again the adjacent pair of lowest
 * rank, leftmost of equals, is merged. O(n log n). False: no memory. */
bool ds_bpe_piece(const struct ds_bpe *b, struct ds_bpe_work *w, const char *piece, size_t n, struct ds_ids_out *out);

#endif
