/* Any bytes as text, with and without special tokens; any ids as a stream to decode. */
#include "token/token.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static struct ds_tokenizer *t;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    static struct ds_gguf *g;
    if (ds_gguf_open(&g, "models/tales-q8_0.gguf", NULL) || ds_tokenizer_new(&t, g, NULL) || !t) abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!n) return 0;
    const char *text = (const char *)data + 1;
    struct ds_err e;
    int32_t *ids = NULL;
    size_t n_ids = 0, at = 0;
    bool ascii = true;
    for (size_t i = 1; i < n; i++) ascii = ascii && data[i] < 0x80;
    if (ds_tokenizer_encode(t, text, n - 1, data[0] & 1, &ids, &n_ids, &e)) abort();      /* every text is legal */
    for (size_t i = 0; i < n_ids; i++) {
        const char *bytes;
        if (ids[i] < 0 || ids[i] >= ds_tokenizer_n(t)) abort();
        size_t len = ds_tokenizer_bytes(t, ids[i], &bytes);
        if (ascii && (len > n - 1 - at || memcmp(bytes, text + at, len))) abort();       /* no normalisation: decoding gives it back */
        at += len;
    }
    if (ascii && at != n - 1) abort();
    free(ids);
    return 0;
}
