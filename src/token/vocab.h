/* The token list: spellings, bytes, kinds, and the way back from a spelling to its id. */
#ifndef DS_TOKEN_VOCAB_H
#define DS_TOKEN_VOCAB_H

#include "base/err.h"
#include "gguf/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* tokenizer.ggml.token_type */
enum ds_token_type {
    DS_TOKEN_UNDEFINED, DS_TOKEN_NORMAL, DS_TOKEN_UNKNOWN, DS_TOKEN_CONTROL, DS_TOKEN_USER, DS_TOKEN_UNUSED, DS_TOKEN_BYTE
};

struct ds_vocab {
    int n;
    unsigned char *type;       /* [n] enum ds_token_type */
    char *spell, *bytes;       /* all spellings, each followed by a NUL; all decoded bytes */
    uint32_t *spell_at;        /* [n + 1] offsets into spell */
    uint32_t *bytes_at;        /* [n + 1] offsets into bytes */
    struct { uint32_t hash; int32_t id; } *index;    /* open addressing by spelling; id -1: free */
    size_t index_mask;
    uint64_t seed;
};

/* Reads tokenizer.ggml.tokens and token_type. Fails on an empty list and on a spelling that two
 * tokens share where both can come out of encoding. */
ds_status ds_vocab_init(struct ds_vocab *v, const struct ds_gguf *g, uint64_t seed, struct ds_err *e);
void ds_vocab_free(struct ds_vocab *v);              /* accepts a zeroed struct */

int32_t ds_vocab_find(const struct ds_vocab *v, const char *spelling, size_t n);     /* -1: none */
/* The same in two steps, for many look-ups at once: the first sends for the memory that the second reads. */
uint64_t ds_vocab_hash(const struct ds_vocab *v, const char *spelling, size_t n);
int32_t ds_vocab_find_hashed(const struct ds_vocab *v, const char *spelling, size_t n, uint64_t hash);

static inline size_t ds_vocab_spell_len(const struct ds_vocab *v, int32_t id)
{
    return v->spell_at[id + 1] - v->spell_at[id] - 1;
}
static inline uint32_t ds_vocab_bytes_len(const struct ds_vocab *v, int32_t id)
{
    return v->bytes_at[id + 1] - v->bytes_at[id];
}
/* Special tokens are literal text, found before the merges; ordinary ones are spelled in the byte
 * alphabet and are all that merges may produce; unused ones are neither. */
static inline bool ds_vocab_is_special(const struct ds_vocab *v, int32_t id)
{
    return v->type[id] == DS_TOKEN_CONTROL || v->type[id] == DS_TOKEN_USER;
}
static inline bool ds_vocab_is_ordinary(const struct ds_vocab *v, int32_t id)
{
    return !ds_vocab_is_special(v, id) && v->type[id] != DS_TOKEN_UNUSED;
}

#endif
