/* Any bytes as a session file; of what passes its checks, everything is read. Checksums would keep a fuzzer out, so they are
 * put right first, except in inputs of odd length. */
#include "base/hash.h"
#include "store/file.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static volatile uint64_t sink;

static void touch(const void *p, size_t n)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++) sink += b[i];
}

static uint64_t word(const uint8_t *p)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static void fix_head(uint8_t *p, size_t n)
{
    if (n < 104) return;
    const uint64_t to = word(p + 56), snaps = word(p + 64);
    if (to > n || snaps > n) return;
    const uint64_t head = 88 + 16 * snaps + (4 * to + 7) / 8 * 8;
    if (head + 8 > n) return;
    const uint64_t h = ds_hash64(p, (size_t)head, 0);
    for (int i = 0; i < 8; i++) p[head + (uint64_t)i] = (uint8_t)(h >> 8 * i);
}

static void walk(const struct ds_file *f)
{
    const float *logits;
    for (int64_t a, b, t = f->from; t < f->to; t = b) {
        const void *rows = ds_file_rows(f, t, &a, &b);
        if (a > t || b <= t || b > f->to) abort();
        touch(rows, (size_t)(b - a) * f->sh->kv);
    }
    for (int i = 0; i < f->n_snaps; i++) {
        touch(ds_file_state(f, i, &logits), f->sh->state);
        if (logits) touch(logits, f->sh->logits);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct ds_shape sh = { .layout = 1, .kv = 16, .planes = 2, .state = 24, .logits = 12, .n_vocab = 3 };
    struct ds_file f;
    struct ds_err e = { 0 };
    uint8_t *p = malloc(n + 1);
    if (!p) return 0;
    memcpy(p, data, n);
    if (n % 2 == 0) fix_head(p, n);
    if (!ds_file_head(&f, "input", p, n, &sh, &e)) {
        walk(&f);
        if (!ds_file_body(&f, "input", &e)) sink++;
    }
    if (e.code && (!e.msg[0] || strchr(e.msg, '\n'))) abort();
    free(p);
    return 0;
}
