/* Small vocabularies, made in memory: the 256 byte symbols are ids 0..255 in byte order, then what a test adds. */
#ifndef DS_TESTS_UNIT_VOCAB_H
#define DS_TESTS_UNIT_VOCAB_H

#include "base/utf8.h"
#include "gguf/gguf.h"
#include "token/bytes.h"
#include "token/token.h"

#include <stdlib.h>
#include <string.h>

struct vocab {
    const char *tokens[1024];
    int32_t types[1024];
    int n;
    const char *merges[1024];
    int n_merges;
    const char *model, *pre, *chat;
    int eos;                       /* -1: no key */
    char symbols[256][5];
};

static inline void vocab_init(struct vocab *v)
{
    memset(v, 0, sizeof *v);
    v->model = "gpt2";
    v->pre = "qwen35";
    v->eos = -1;
    for (int i = 0; i < 256; i++) {
        ds_utf8_put(v->symbols[i], ds_byte_symbol((unsigned char)i));
        v->tokens[i] = v->symbols[i];
        v->types[i] = 1;
    }
    v->n = 256;
}

static inline int vocab_token(struct vocab *v, const char *spelling, int type)
{
    v->tokens[v->n] = spelling;
    v->types[v->n] = type;
    return v->n++;
}

static inline void vocab_merge(struct vocab *v, const char *merge) { v->merges[v->n_merges++] = merge; }

/* The file; NULL: no memory. */
static inline struct ds_gguf *vocab_gguf(const struct vocab *v)
{
    struct ds_gguf_writer *w = ds_gguf_writer_new();
    if (!w) return NULL;
    if (v->model) ds_gguf_put_str(w, "tokenizer.ggml.model", v->model);
    if (v->pre) ds_gguf_put_str(w, "tokenizer.ggml.pre", v->pre);
    if (v->chat) ds_gguf_put_str(w, "tokenizer.chat_template", v->chat);
    if (v->eos >= 0) ds_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)v->eos);
    ds_gguf_put_strs(w, "tokenizer.ggml.tokens", v->tokens, (size_t)v->n);
    ds_gguf_put_i32s(w, "tokenizer.ggml.token_type", v->types, (size_t)v->n);
    ds_gguf_put_strs(w, "tokenizer.ggml.merges", v->merges, (size_t)v->n_merges);
    return ds_gguf_from_writer(w, "vocab", NULL, NULL, NULL);
}

#endif
