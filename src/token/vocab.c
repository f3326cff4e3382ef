#include "token/vocab.h"

#include "base/hash.h"
#include "token/bytes.h"

#include <stdlib.h>
#include <string.h>

#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_TYPES "tokenizer.ggml.token_type"
#define MAX_SPELL ((uint64_t)1 << 30)                /* all spellings together; offsets are 32 bits */

/* Slot of a spelling, or the free slot where it would go. */
static size_t slot_of(const struct ds_vocab *v, const char *s, size_t n, uint64_t hash)
{
    for (size_t i = (size_t)hash & v->index_mask;; i = (i + 1) & v->index_mask) {
        int32_t id = v->index[i].id;
        if (id < 0) return i;
        if (v->index[i].hash == (uint32_t)(hash >> 32) && ds_vocab_spell_len(v, id) == n &&
            !memcmp(v->spell + v->spell_at[id], s, n))
            return i;
    }
}

uint64_t ds_vocab_hash(const struct ds_vocab *v, const char *spelling, size_t n)
{
    uint64_t hash = ds_hash64(spelling, n, v->seed);
#if defined(__GNUC__)
    __builtin_prefetch(&v->index[(size_t)hash & v->index_mask]);
#endif
    return hash;
}

int32_t ds_vocab_find_hashed(const struct ds_vocab *v, const char *spelling, size_t n, uint64_t hash)
{
    return v->index[slot_of(v, spelling, n, hash)].id;
}

int32_t ds_vocab_find(const struct ds_vocab *v, const char *spelling, size_t n)
{
    return ds_vocab_find_hashed(v, spelling, n, ds_hash64(spelling, n, v->seed));
}

static ds_status read_types(struct ds_vocab *v, const struct ds_gguf *g, struct ds_err *e)
{
    struct ds_arr a;
    memset(v->type, DS_TOKEN_NORMAL, (size_t)v->n);
    if (!ds_gguf_has(g, KEY_TYPES)) return DS_OK;
    ds_status st = ds_gguf_arr(g, KEY_TYPES, &a, e);
    if (st) return st;
    if (a.t == DS_KV_STR || a.t == DS_KV_ARR || a.t == DS_KV_F32 || a.t == DS_KV_F64)
        return ds_fail(e, DS_EFORMAT, "%s: key '" KEY_TYPES "' is an array of another kind than integers", ds_gguf_path(g));
    if (a.n != (uint64_t)v->n)
        return ds_fail(e, DS_EFORMAT, "%s: key '" KEY_TYPES "' has %llu entries, expected %d, one for each token",
                       ds_gguf_path(g), (unsigned long long)a.n, v->n);
    for (int i = 0; i < v->n; i++) {
        int64_t t = ds_arr_int(&a, (uint64_t)i);
        if (t < DS_TOKEN_UNDEFINED || t > DS_TOKEN_BYTE)
            return ds_fail(e, DS_EFORMAT, "%s: key '" KEY_TYPES "' says %lld for token %d, expected 0 to 6", ds_gguf_path(g),
                           (long long)t, i);
        v->type[i] = (unsigned char)t;
    }
    return DS_OK;
}

static ds_status allocate(struct ds_vocab *v, uint64_t total, struct ds_err *e)
{
    size_t n = (size_t)v->n, slots = 8;
    while (slots / 2 < n) slots *= 2;
    v->type = malloc(n);
    v->spell = malloc((size_t)total + n);
    v->bytes = malloc((size_t)total + 1);
    v->spell_at = malloc((n + 1) * sizeof *v->spell_at);
    v->bytes_at = malloc((n + 1) * sizeof *v->bytes_at);
    v->index = malloc(slots * sizeof *v->index);
    if (!v->type || !v->spell || !v->bytes || !v->spell_at || !v->bytes_at || !v->index)
        return ds_fail(e, DS_ENOMEM, "no memory for a vocabulary of %d tokens", v->n);
    v->index_mask = slots - 1;
    memset(v->index, 0xFF, slots * sizeof *v->index);
    return DS_OK;
}

static void copy_token(struct ds_vocab *v, int id, struct ds_str s)
{
    char *spell = v->spell + v->spell_at[id], *bytes = v->bytes + v->bytes_at[id];
    size_t w = s.n;
    if (s.n) memcpy(spell, s.p, s.n);
    spell[s.n] = 0;
    if (ds_vocab_is_special(v, id) && s.n) memcpy(bytes, s.p, s.n);          /* these are literal */
    else if (v->type[id] != DS_TOKEN_UNUSED) w = ds_bytes_unspell(bytes, s.p, s.n);
    else w = 0;
    v->spell_at[id + 1] = v->spell_at[id] + (uint32_t)s.n + 1;
    v->bytes_at[id + 1] = v->bytes_at[id] + (uint32_t)w;
}

/* Of tokens that share a spelling the one that encoding produces is kept; two such are an error. */
static ds_status index_token(struct ds_vocab *v, int id, uint64_t hash, const char *path, struct ds_err *e)
{
    size_t at = slot_of(v, v->spell + v->spell_at[id], ds_vocab_spell_len(v, id), hash);
    int32_t other = v->index[at].id;
    if (other >= 0) {
        if (v->type[id] == DS_TOKEN_UNUSED) return DS_OK;
        if (v->type[other] != DS_TOKEN_UNUSED)
            return ds_fail(e, DS_EFORMAT, "%s: key '" KEY_TOKENS "' spells tokens %d and %d the same", path, other, id);
    }
    v->index[at].hash = (uint32_t)(hash >> 32);
    v->index[at].id = id;
    return DS_OK;
}

ds_status ds_vocab_init(struct ds_vocab *v, const struct ds_gguf *g, uint64_t seed, struct ds_err *e)
{
    const char *path = ds_gguf_path(g);
    struct ds_arr a;
    ds_status st = ds_gguf_arr(g, KEY_TOKENS, &a, e);
    if (st) return st;
    if (a.t != DS_KV_STR)
        return ds_fail(e, DS_EFORMAT, "%s: key '" KEY_TOKENS "' is an array of another kind than strings", path);
    if (!a.n) return ds_fail(e, DS_EFORMAT, "%s: key '" KEY_TOKENS "' is empty, expected a vocabulary", path);

    uint64_t total = 0;
    for (uint64_t i = 0; i < a.n && total + a.n < MAX_SPELL; i++) total += ds_arr_str(&a, i).n;
    if (a.n >= MAX_SPELL || total + a.n >= MAX_SPELL)
        return ds_fail(e, DS_EUNSUP, "%s: key '" KEY_TOKENS "' holds %llu tokens of more than 1 GiB in all", path,
                       (unsigned long long)a.n);

    v->n = (int)a.n;
    v->seed = seed;
    if ((st = allocate(v, total, e)) || (st = read_types(v, g, e))) return st;
    v->spell_at[0] = v->bytes_at[0] = 0;
    enum { AHEAD = 16 };
    uint64_t hash[AHEAD];                            /* of tokens that are copied and not indexed yet */
    for (int i = 0; i < v->n + AHEAD; i++) {
        int old = i - AHEAD;
        if (old >= 0 && old < v->n && (st = index_token(v, old, hash[old % AHEAD], path, e))) return st;
        if (i >= v->n) continue;
        copy_token(v, i, ds_arr_str(&a, (uint64_t)i));
        hash[i % AHEAD] = ds_vocab_hash(v, v->spell + v->spell_at[i], ds_vocab_spell_len(v, i));
    }
    return DS_OK;
}

void ds_vocab_free(struct ds_vocab *v)
{
    free(v->type);
    free(v->spell);
    free(v->bytes);
    free(v->spell_at);
    free(v->bytes_at);
    free(v->index);
    memset(v, 0, sizeof *v);
}
