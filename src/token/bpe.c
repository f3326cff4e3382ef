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
            return ds_fail(e, DS_EFORMAT,
                           "%s: key 'tokenizer.ggml.tokens' has no ordinary token for byte 0x%02X, expected all 256", path, i);
        b->byte_id[i] = id;
    }
    return DS_OK;
}

/* A merge on its way into the table. Merges are bound in blocks, so that the memory which one of them needs is
 * on its way while others are looked at. */
struct pending {
    const char *left, *right;
    size_t n_left, n_right;
    uint64_t h_left, h_right;
};
enum { BLOCK = 32 };

static ds_status split_merge(struct pending *m, struct ds_str s, uint64_t rank, const char *path, struct ds_err *e)
{
    const char *space = s.n > 1 ? memchr(s.p + 1, ' ', s.n - 1) : NULL;
    m->left = s.p;
    m->n_left = space ? (size_t)(space - s.p) : 0;
    m->right = s.p + m->n_left + (space != NULL);
    m->n_right = s.n - m->n_left - (space != NULL);
    if (!space || !m->n_right || memchr(m->right, ' ', m->n_right))
        return ds_fail(e, DS_EFORMAT, "%s: key '" KEY_MERGES "' entry %llu is not two pieces with one space between them", path,
                       (unsigned long long)rank);
    return DS_OK;
}

static bool is_ordinary(const struct ds_vocab *v, int32_t id)
{
    return id >= 0 && id < v->n && ds_vocab_is_ordinary(v, id);
}

/* Vocabularies list results in the order of their merges: the id after the last result is tried before a search. */
static int32_t find_result(const struct ds_vocab *v, const struct pending *m, int32_t guess, char *joined)
{
    size_t n = m->n_left + m->n_right;
    memcpy(joined, m->left, m->n_left);
    memcpy(joined + m->n_left, m->right, m->n_right);
    if (is_ordinary(v, guess) && ds_vocab_spell_len(v, guess) == n && !memcmp(v->spell + v->spell_at[guess], joined, n))
        return guess;
    return ds_vocab_find(v, joined, n);
}

static ds_status bind_block(struct ds_bpe *b, const struct ds_arr *a, uint64_t from, uint64_t to, char *joined, const char *path,
                            struct ds_err *e)
{
    struct pending block[BLOCK];
    uint64_t keys[BLOCK];
    for (uint64_t i = from; i < to; i++) {
        struct pending *m = &block[i - from];
        ds_status st = split_merge(m, ds_arr_str(a, i), i, path, e);
        if (st) return st;
        m->h_left = ds_vocab_hash(b->v, m->left, m->n_left);
        m->h_right = ds_vocab_hash(b->v, m->right, m->n_right);
    }
    for (uint64_t i = from; i < to; i++) {
        struct pending *m = &block[i - from];
        int32_t l = ds_vocab_find_hashed(b->v, m->left, m->n_left, m->h_left);
        int32_t r = ds_vocab_find_hashed(b->v, m->right, m->n_right, m->h_right);
        int32_t res = find_result(b->v, m, i ? b->result[i - 1] + 1 : 256, joined);
        const char *wrong = !is_ordinary(b->v, l) ? "left piece" : !is_ordinary(b->v, r) ? "right piece" : "result";
        if (!is_ordinary(b->v, l) || !is_ordinary(b->v, r) || !is_ordinary(b->v, res))
            return ds_fail(e, DS_EFORMAT, "%s: key '" KEY_MERGES "' entry %llu: its %s is no ordinary token of the vocabulary",
                           path, (unsigned long long)i, wrong);
        b->result[i] = res;
        keys[i - from] = (uint64_t)l << 32 | (uint32_t)r;
        ds_map64_expect(&b->merges, keys[i - from]);
    }
    for (uint64_t i = from; i < to; i++) ds_map64_add(&b->merges, keys[i - from], i);
    return DS_OK;
}

ds_status ds_bpe_init(struct ds_bpe *b, const struct ds_vocab *v, const struct ds_gguf *g, struct ds_err *e)
{
    const char *path = ds_gguf_path(g);
    struct ds_arr a;
    b->v = v;
    ds_status st = bind_bytes(b, path, e);
    if (st || (st = ds_gguf_arr(g, KEY_MERGES, &a, e))) return st;
    if (a.n && a.t != DS_KV_STR)
        return ds_fail(e, DS_EFORMAT, "%s: key '" KEY_MERGES "' is an array of another kind than strings", path);
    if (a.n >= (uint64_t)1 << 30)
        return ds_fail(e, DS_EUNSUP, "%s: key '" KEY_MERGES "' has %llu entries", path, (unsigned long long)a.n);

    size_t longest = 1;
    for (uint64_t i = 0; i < a.n; i++) {
        size_t n = ds_arr_str(&a, i).n;
        if (n > longest) longest = n;
    }
    char *joined = malloc(longest);
    b->n_merges = (size_t)a.n;
    b->result = malloc(((size_t)a.n + 1) * sizeof *b->result);
    if (!joined || !b->result || !ds_map64_init(&b->merges, (size_t)a.n, v->seed)) {
        free(joined);
        return ds_fail(e, DS_ENOMEM, "no memory for %llu merges", (unsigned long long)a.n);
    }
    for (uint64_t i = 0; i < a.n && !st; i += BLOCK)
        st = bind_block(b, &a, i, i + BLOCK < a.n ? i + BLOCK : a.n, joined, path, e);
    free(joined);
    return st;
}

void ds_bpe_free(struct ds_bpe *b)
{
    ds_map64_free(&b->merges);
    free(b->result);
    b->result = NULL;
}
