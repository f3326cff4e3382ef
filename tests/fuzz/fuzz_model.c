/* Hostile files: raw bytes, or a valid small model with bytes of its directory overwritten and its end cut off, so that
 * what comes after the reader's checks is reached too: hyper-parameters and the tokenizer. The reader has fuzz_gguf. */
#include "gguf/gguf.h"
#include "model/model.h"
#include "token/token.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static unsigned char *model;        /* tests/fixtures/mini-dense.gguf, in memory */
static size_t model_size, directory;    /* bytes; those before the first tensor's data */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    struct ds_map m;
    struct ds_gguf *g;
    if (ds_map_open(&m, "tests/fixtures/mini-dense.gguf", NULL)) abort();
    if (ds_gguf_open_mem(&g, "fixture", m.data, m.size, NULL)) abort();
    model_size = m.size;
    directory = m.size;
    for (size_t i = 0; i < ds_gguf_n_tensors(g); i++)
        if (ds_gguf_tensor(g, i)->file_off < directory) directory = ds_gguf_tensor(g, i)->file_off;
    ds_gguf_close(g);
    model = malloc(m.size);
    if (!model) abort();
    memcpy(model, m.data, m.size);
    ds_map_close(&m);
    return 0;
}

static void refused(const struct ds_err *e)
{
    if (!e->code || !e->msg[0] || strchr(e->msg, '\n')) abort();     /* a refusal is one sentence */
}

static void open_all(const unsigned char *data, size_t n)
{
    struct ds_gguf *g = NULL;
    struct ds_err e = { 0 };
    if (ds_gguf_open_mem(&g, "input", data, n, &e)) {
        refused(&e);
        return;
    }
    static struct ds_hparams hp;
    if (ds_hparams_read(&hp, g, &e)) refused(&e);
    struct ds_tokenizer *t = NULL;
    if (ds_tokenizer_new(&t, g, &e)) {
        refused(&e);
    } else if (t) {
        int32_t *ids;
        size_t n_ids;
        if (!ds_tokenizer_encode(t, "a 12 \xc3\xa9<|im_end|>\n", 16, true, &ids, &n_ids, &e)) free(ids);
    }
    ds_tokenizer_free(t);
    ds_gguf_close(g);
}

/* Input that starts with 'P': four bytes for the length (0: whole), then edits of three or more bytes: offset (two bytes, scaled to
 * the directory), count 1..8, bytes. The edits are undone afterwards. */
static void patched(const uint8_t *d, size_t n)
{
    struct { size_t at; unsigned char old[8]; } undo[64];
    int done = 0;
    uint32_t cut;
    memcpy(&cut, d, 4);
    size_t i = 4;
    while (i + 3 < n && done < 64) {
        size_t at = (size_t)(d[i] | d[i + 1] << 8) * directory >> 16, len = 1 + d[i + 2] % 8;
        i += 3;
        if (len > n - i) len = n - i;
        if (at + len > model_size) break;
        undo[done].at = at;
        memcpy(undo[done].old, model + at, 8);
        done++;
        memcpy(model + at, d + i, len);
        i += len;
    }
    size_t size = cut && cut < model_size ? cut : model_size;
    unsigned char *exact = size < model_size ? malloc(size) : model;     /* its own block, so that reads past the end are seen */
    if (!exact) abort();
    if (exact != model) memcpy(exact, model, size);
    open_all(exact, size);
    if (exact != model) free(exact);
    while (done--) memcpy(model + undo[done].at, undo[done].old, 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n > 5 && data[0] == 'P') patched(data + 1, n - 1);
    else open_all(data, n);
    return 0;
}
