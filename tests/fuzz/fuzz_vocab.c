/* Any bytes as a model file with a vocabulary: it is refused with one sentence, or it encodes and decodes. */
#include "token/token.h"

#include <stdlib.h>
#include <string.h>

static void check(const struct ds_tokenizer *t, bool special)
{
    static const char text[] = "aab abc <x> the the\n\n \xcc\x81\xff 12 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabababababab";
    int32_t *ids;
    size_t n, at = 0;
    if (ds_tokenizer_encode(t, text, sizeof text - 1, special, &ids, &n, NULL)) abort();
    for (size_t i = 0; i < n; i++) {
        const char *p;
        size_t len = ds_tokenizer_bytes(t, ids[i], &p);
        if (len > sizeof text - 1 - at || memcmp(p, text + at, len)) abort();
        at += len;
        if (ds_tokenizer_is_padding(t, ids[i]) || !ds_tokenizer_piece(t, ids[i])) abort();
    }
    if (at != sizeof text - 1) abort();
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ds_gguf *g;
    struct ds_tokenizer *t = NULL;
    struct ds_err e = { .msg = "" };
    if (ds_gguf_open_mem(&g, "fuzz", data, n, &e)) return 0;
    if (ds_tokenizer_new(&t, g, &e) && (!e.msg[0] || strchr(e.msg, '\n'))) abort();
    if (t) {
        check(t, false);
        check(t, true);
    }
    ds_tokenizer_free(t);
    ds_gguf_close(g);
    return 0;
}
