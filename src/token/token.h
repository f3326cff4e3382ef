/* Byte-level BPE: bytes <-> ids. One row per pre-tokenizer flavour (qwen35, qwen2). */
#ifndef DS_TOKEN_TOKEN_H
#define DS_TOKEN_TOKEN_H

#include "base/err.h"
#include "gguf/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ds_tokenizer;

/* Builds the tables from a file's tokenizer.* keys; g must outlive the tokenizer. A model without a
 * tokenizer gives *out = NULL and DS_OK. */
ds_status ds_tokenizer_new(struct ds_tokenizer **out, const struct ds_gguf *g, struct ds_err *e);
void ds_tokenizer_free(struct ds_tokenizer *t);      /* NULL allowed */

/* Linear time in n (merges O(n log n) inside a piece), flat stack. *ids from malloc. Any bytes are legal. */
ds_status ds_tokenizer_encode(const struct ds_tokenizer *t, const char *text, size_t n, bool special, int32_t **ids, size_t *n_ids,
                              struct ds_err *e);
/* The same; stop (NULL: none) is asked every few milliseconds, and non-zero ends it with DS_ECANCEL. */
ds_status ds_tokenizer_encode_until(const struct ds_tokenizer *t, const char *text, size_t n, bool special,
                                    int (*stop)(void *ctx), void *stop_ctx, int32_t **ids, size_t *n_ids, struct ds_err *e);
int ds_tokenizer_n(const struct ds_tokenizer *t);
size_t ds_tokenizer_bytes(const struct ds_tokenizer *t, int32_t id, const char **p);    /* decoded bytes of an id */
const char *ds_tokenizer_piece(const struct ds_tokenizer *t, int32_t id);               /* vocabulary spelling */
bool ds_tokenizer_is_end(const struct ds_tokenizer *t, int32_t id);
bool ds_tokenizer_is_padding(const struct ds_tokenizer *t, int32_t id);                 /* type 5 (unused) or out of range: never sampled */
int32_t ds_tokenizer_find(const struct ds_tokenizer *t, const char *piece);             /* id of a vocabulary spelling, -1 */
struct ds_str ds_tokenizer_template(const struct ds_tokenizer *t);                      /* tokenizer.chat_template; "" without one */

#endif
