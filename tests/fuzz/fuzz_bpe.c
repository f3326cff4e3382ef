/* Any bytes through the shipped vocabulary: decoding gives them back, with special tokens and without, and the
 * stream of characters is well-formed. */
#include "base/utf8.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

static struct ds_engine engine;

static void load(void)
{
    struct ds_err e;
    engine.info.n_vocab = 4096;
    if (ds_gguf_open(&engine.gguf, "models/tales-q8_0.gguf", &e) || ds_tokenizer_new(&engine.tok, engine.gguf, &e)) abort();
}

static void check(const char *text, size_t n, bool special)
{
    struct ds_ids ids;
    struct ds_err e;
    struct ds_stream s = { .n = 0 };
    char shown[4096];
    size_t at = 0;
    if (ds_tokenize(&engine, text, n, special, &ids, &e)) abort();
    for (size_t i = 0; i < ids.n; i++) {
        const char *p;
        size_t len = ds_token_bytes(&engine, ids.p[i], &p);
        if (!len || len > n - at || memcmp(p, text + at, len)) abort();
        if (!special && ids.p[i] >= 4087) abort();
        at += len;
        size_t out = ds_stream_put(&s, &engine, ids.p[i], shown, sizeof shown);
        if (!ds_utf8_valid(shown, out)) abort();
    }
    if (at != n) abort();
    free(ids.p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!engine.tok) load();
    check((const char *)data, n, false);
    check((const char *)data, n, true);
    return 0;
}
