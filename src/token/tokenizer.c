#include "token/token.h"

#include "base/os.h"
#include "token/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TEXT ((size_t)INT32_MAX)

static bool str_is(struct ds_str s, const char *lit)
{
    return s.n == strlen(lit) && !memcmp(s.p, lit, s.n);
}

/* The text of a key for a sentence, cut at 40 bytes and without control characters. */
static const char *shown(struct ds_str s, char dst[48])
{
    size_t n = s.n < 40 ? s.n : 40;
    for (size_t i = 0; i < n; i++) dst[i] = s.p[i] >= ' ' && s.p[i] < 0x7F ? s.p[i] : '?';
    dst[n] = 0;
    return dst;
}

static ds_status read_kind(struct ds_tokenizer *t, const struct ds_gguf *g, struct ds_err *e)
{
    struct ds_str model, pre;
    char buf[48];
    ds_status st = ds_gguf_str(g, "tokenizer.ggml.model", &model, e);
    if (st) return st;
    if (!str_is(model, "gpt2"))
        return ds_fail(e, DS_EUNSUP, "%s: key 'tokenizer.ggml.model' is '%s', expected gpt2 (byte-level BPE)", ds_gguf_path(g),
                       shown(model, buf));
    if ((st = ds_gguf_str(g, "tokenizer.ggml.pre", &pre, e))) return st;
    t->pretok = ds_pretok_find(pre.p, pre.n);
    if (!t->pretok)
        return ds_fail(e, DS_EUNSUP, "%s: key 'tokenizer.ggml.pre' is '%s', expected one of %s", ds_gguf_path(g), shown(pre, buf),
                       ds_pretok_names());
    return DS_OK;
}

/* Ids that the file names must lie in its table; those that end a turn or a text are marked. */
static ds_status read_ids(struct ds_tokenizer *t, const struct ds_gguf *g, struct ds_err *e)
{
    static const struct { const char *key; bool end; } keys[] = {
        { "tokenizer.ggml.eos_token_id", true },      { "tokenizer.ggml.eot_token_id", true },
        { "tokenizer.ggml.bos_token_id", false },     { "tokenizer.ggml.padding_token_id", false },
        { "tokenizer.ggml.unknown_token_id", false },
    };
    static const char *const ends[] = { "<|im_end|>", "<|endoftext|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        uint64_t id;
        if (!ds_gguf_has(g, keys[i].key)) continue;
        ds_status st = ds_gguf_u64(g, keys[i].key, &id, e);
        if (st) return st;
        if (id >= (uint64_t)t->vocab.n)
            return ds_fail(e, DS_EFORMAT, "%s: key '%s' is %llu, expected an id below %d", ds_gguf_path(g), keys[i].key,
                           (unsigned long long)id, t->vocab.n);
        t->is_end[id] |= keys[i].end;
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        int32_t id = ds_vocab_find(&t->vocab, ends[i], strlen(ends[i]));
        if (id >= 0 && t->vocab.type[id] == DS_TOKEN_CONTROL) t->is_end[id] = true;
    }
    return DS_OK;
}

static ds_status read_chat(struct ds_tokenizer *t, const struct ds_gguf *g, struct ds_err *e)
{
    t->chat_template = (struct ds_str){ "", 0 };
    return ds_gguf_has(g, "tokenizer.chat_template") ? ds_gguf_str(g, "tokenizer.chat_template", &t->chat_template, e) : DS_OK;
}

static ds_status build(struct ds_tokenizer *t, const struct ds_gguf *g, struct ds_err *e)
{
    uint64_t seed = ds_now_ns() * 0x9E3779B97F4A7C15u ^ (uintptr_t)t;    /* no result depends on it */
    ds_status st;
    if ((st = read_kind(t, g, e)) || (st = ds_vocab_init(&t->vocab, g, seed, e))) return st;
    if ((st = ds_bpe_init(&t->bpe, &t->vocab, g, e)) || (st = ds_special_init(&t->special, &t->vocab, ds_gguf_path(g), e)))
        return st;
    t->is_end = calloc((size_t)t->vocab.n, sizeof *t->is_end);
    if (!t->is_end) return ds_fail(e, DS_ENOMEM, "no memory for a vocabulary of %d tokens", t->vocab.n);
    if ((st = read_ids(t, g, e))) return st;
    return read_chat(t, g, e);
}

ds_status ds_tokenizer_new(struct ds_tokenizer **out, const struct ds_gguf *g, struct ds_err *e)
{
    *out = NULL;
    if (!ds_gguf_has(g, "tokenizer.ggml.model") && !ds_gguf_has(g, "tokenizer.ggml.tokens")) return DS_OK;
    struct ds_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return ds_fail(e, DS_ENOMEM, "no memory for a tokenizer");
    ds_status st = build(t, g, e);
    if (st) ds_tokenizer_free(t);
    else *out = t;
    return st;
}

void ds_tokenizer_free(struct ds_tokenizer *t)
{
    if (!t) return;
    ds_vocab_free(&t->vocab);
    ds_bpe_free(&t->bpe);
    ds_special_free(&t->special);
    free(t->is_end);
    free(t);
}

/* --- encoding ------------------------------------------------------------------------------------- */

static bool encode_plain(const struct ds_tokenizer *t, struct ds_bpe_work *w, const char *s, size_t n, struct ds_ids_out *out)
{
    while (n) {
        size_t len = ds_pretok_next(t->pretok, s, n);
        if (ds_bpe_stops(w) || !ds_bpe_piece(&t->bpe, w, s, len, out)) return false;
        s += len;
        n -= len;
    }
    return true;
}

static bool encode_special(const struct ds_tokenizer *t, struct ds_bpe_work *w, const char *s, size_t n, struct ds_ids_out *out)
{
    for (size_t at = 0; at < n;) {
        int32_t id = -1;
        size_t len = 0, found = ds_special_find(&t->special, s, n, at, &id, &len);
        if (!encode_plain(t, w, s + at, found - at, out)) return false;
        if (found < n && !ds_ids_push(out, id)) return false;
        at = found + len;
    }
    return true;
}

ds_status ds_tokenizer_encode(const struct ds_tokenizer *t, const char *text, size_t n, bool special, int32_t **ids,
                              size_t *n_ids, struct ds_err *e)
{
    return ds_tokenizer_encode_until(t, text, n, special, NULL, NULL, ids, n_ids, e);
}

ds_status ds_tokenizer_encode_until(const struct ds_tokenizer *t, const char *text, size_t n, bool special,
                                    int (*stop)(void *ctx), void *stop_ctx, int32_t **ids, size_t *n_ids, struct ds_err *e)
{
    struct ds_bpe_work w = { .stop = stop, .stop_ctx = stop_ctx };
    struct ds_ids_out out = { 0 };
    *ids = NULL;
    *n_ids = 0;
    if (n > MAX_TEXT) return ds_fail(e, DS_EARG, "a text of %zu bytes, expected at most %zu", n, MAX_TEXT);
    bool ok = special ? encode_special(t, &w, text, n, &out) : encode_plain(t, &w, text, n, &out);
    const bool stopped = !ok && ds_bpe_stops(&w);
    ds_bpe_work_free(&w);
    if (!ok) {
        free(out.p);
        if (stopped) return ds_fail(e, DS_ECANCEL, "tokenizing %zu bytes was interrupted", n);
        return ds_fail(e, DS_ENOMEM, "no memory to tokenize %zu bytes", n);
    }
    *ids = out.p;
    *n_ids = out.n;
    return DS_OK;
}

/* --- ids ------------------------------------------------------------------------------------------ */

static bool in_range(const struct ds_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocab.n;
}

int ds_tokenizer_n(const struct ds_tokenizer *t)
{
    return t->vocab.n;
}

size_t ds_tokenizer_bytes(const struct ds_tokenizer *t, int32_t id, const char **p)
{
    if (!in_range(t, id)) {
        *p = "";
        return 0;
    }
    *p = t->vocab.bytes + t->vocab.bytes_at[id];
    return ds_vocab_bytes_len(&t->vocab, id);
}

const char *ds_tokenizer_piece(const struct ds_tokenizer *t, int32_t id)
{
    return in_range(t, id) ? t->vocab.spell + t->vocab.spell_at[id] : NULL;
}

bool ds_tokenizer_is_end(const struct ds_tokenizer *t, int32_t id)
{
    return in_range(t, id) && t->is_end[id];
}

bool ds_tokenizer_is_padding(const struct ds_tokenizer *t, int32_t id)
{
    return !in_range(t, id) || t->vocab.type[id] == DS_TOKEN_UNUSED;
}

int32_t ds_tokenizer_find(const struct ds_tokenizer *t, const char *piece)
{
    return ds_vocab_find(&t->vocab, piece, strlen(piece));
}

struct ds_str ds_tokenizer_template(const struct ds_tokenizer *t)
{
    return t->chat_template;
}
