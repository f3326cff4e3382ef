#include "store/file.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC 0x5849464552505344u          /* "DSPREFIX" */
#define VERSION 1
#define MAX_TOKENS ((uint64_t)1 << 31)
#define MAX_SNAPS ((uint64_t)1 << 20)

enum { W_MAGIC, W_VERSION, W_LAYOUT, W_KV, W_STATE, W_LOGITS, W_FROM, W_TO, W_SNAPS, W_EXACT, W_BYTES, WORDS };

static uint64_t load(const unsigned char *p)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static void store(unsigned char *p, uint64_t v)
{
    for (int i = 0; i < 8; i++) p[i] = (unsigned char)(v >> 8 * i);
}

static uint64_t ids_bytes(int64_t to) { return ((uint64_t)to * 4 + 7) / 8 * 8; }
static int64_t piece_end(int64_t t, int64_t to)
{
    const int64_t b = (t / DS_BLOCK + 1) * DS_BLOCK;
    return b < to ? b : to;
}

uint64_t ds_file_bytes(const struct ds_shape *sh, int64_t from, int64_t to, const struct ds_file_snap *snaps, int n)
{
    uint64_t sum = 8 * WORDS + 16 * (uint64_t)n + ids_bytes(to) + 16 + (uint64_t)(to - from) * sh->kv + (uint64_t)n * sh->state;
    for (int i = 0; i < n; i++) sum += snaps[i].flags & DS_FILE_LOGITS ? sh->logits : 0;
    return sum;
}

/* --- reading --- */

struct ds_file_snap ds_file_snap(const struct ds_file *f, int i)
{
    const unsigned char *p = f->data + 8 * WORDS + 16 * (size_t)i;
    return (struct ds_file_snap){ (int64_t)load(p), load(p + 8) };
}

static ds_status check_snaps(const struct ds_file *f, const char *name, struct ds_err *e)
{
    int64_t before = f->from;
    uint64_t sum = f->body + 8 + (uint64_t)(f->to - f->from) * f->sh->kv;
    for (int i = 0; i < f->n_snaps; i++) {
        const struct ds_file_snap s = ds_file_snap(f, i);
        if (s.pos <= before || s.pos > f->to || s.flags >> DS_FILE_KIND_SHIFT > DS_SNAP_END)
            return ds_fail(e, DS_EFORMAT, "%s: snapshot %d is out of order", name, i);
        before = s.pos;
        sum += f->sh->state + (s.flags & DS_FILE_LOGITS ? f->sh->logits : 0);
    }
    if (before != f->to) return ds_fail(e, DS_EFORMAT, "%s: the last snapshot is at %lld, expected %lld", name,
            (long long)before, (long long)f->to);
    if (sum != f->size) return ds_fail(e, DS_EFORMAT, "%s: its parts take %llu bytes, the file has %zu", name,
            (unsigned long long)sum, f->size);
    return DS_OK;
}

static ds_status check_words(const char *name, const uint64_t *w, size_t n, const struct ds_shape *sh, struct ds_err *e)
{
    if (w[W_MAGIC] != MAGIC) return ds_fail(e, DS_EFORMAT, "%s: is not a session file", name);
    if (w[W_VERSION] != VERSION)
        return ds_fail(e, DS_EUNSUP, "%s: has version %llu, expected %d", name, (unsigned long long)w[W_VERSION], VERSION);
    if (w[W_BYTES] != n)
        return ds_fail(e, DS_EFORMAT, "%s: has %zu bytes, its head says %llu", name, n, (unsigned long long)w[W_BYTES]);
    if (w[W_LAYOUT] != sh->layout || w[W_KV] != sh->kv || w[W_STATE] != sh->state || w[W_LOGITS] != sh->logits)
        return ds_fail(e, DS_EUNSUP, "%s: was made with another model or KV type (layout %016llx, expected %016llx)", name,
                       (unsigned long long)w[W_LAYOUT], (unsigned long long)sh->layout);
    if (w[W_TO] < 1 || w[W_TO] > MAX_TOKENS || w[W_FROM] >= w[W_TO] || w[W_EXACT] > w[W_TO] || w[W_SNAPS] < 1 ||
            w[W_SNAPS] > MAX_SNAPS)
        return ds_fail(e, DS_EFORMAT, "%s: its range %llu to %llu or its %llu snapshots are off", name,
                (unsigned long long)w[W_FROM],
                       (unsigned long long)w[W_TO], (unsigned long long)w[W_SNAPS]);
    return DS_OK;
}

bool ds_file_begun(const void *data, size_t n)
{
    unsigned char magic[8];
    store(magic, MAGIC);
    return !n || !memcmp(data, magic, n < sizeof magic ? n : sizeof magic);     /* an empty file's data are NULL */
}

ds_status ds_file_head(struct ds_file *f, const char *name, const void *data, size_t n, const struct ds_shape *sh,
        struct ds_err *e)
{
    const unsigned char *p = data;
    uint64_t w[WORDS];
    if (n < 8 * WORDS) return ds_fail(e, DS_EFORMAT, "%s: has %zu bytes, too few for a session file", name, n);
    for (int i = 0; i < WORDS; i++) w[i] = load(p + 8 * i);
    ds_status st = check_words(name, w, n, sh, e);
    if (st) return st;
    const uint64_t head = 8 * WORDS + 16 * w[W_SNAPS] + ids_bytes((int64_t)w[W_TO]);
    if (head + 16 > n) return ds_fail(e, DS_EFORMAT, "%s: has %zu bytes, its head alone takes %llu", name, n,
            (unsigned long long)head);
    if (ds_hash64(p, (size_t)head, 0) != load(p + head)) return ds_fail(e, DS_EFORMAT, "%s: the head's checksum does not match",
            name);
    *f = (struct ds_file){ .sh = sh, .data = p, .size = n, .from = (int64_t)w[W_FROM], .to = (int64_t)w[W_TO],
            .exact_to = (int64_t)w[W_EXACT],
                           .n_snaps = (int)w[W_SNAPS], .body = (size_t)head + 8 };
    f->ids = (const int32_t *)(const void *)(p + 8 * WORDS + 16 * w[W_SNAPS]);
    if ((st = check_snaps(f, name, e))) return st;
    for (int64_t i = 0; i < f->to; i++)
        if (f->ids[i] < 0 || f->ids[i] >= sh->n_vocab)
            return ds_fail(e, DS_EFORMAT, "%s: token %lld is id %d, expected 0 to %d", name, (long long)i, (int)f->ids[i],
                    sh->n_vocab - 1);
    return DS_OK;
}

ds_status ds_file_body(const struct ds_file *f, const char *name, struct ds_err *e)
{
    const unsigned char *p = f->data + f->body;
    uint64_t h = 0;
    for (int64_t t = f->from; t < f->to;) {
        const int64_t b = piece_end(t, f->to);
        const size_t n = (size_t)(b - t) * f->sh->kv;
        h = ds_hash64(p, n, h);
        p += n;
        t = b;
    }
    for (int i = 0; i < f->n_snaps; i++) {
        h = ds_hash64(p, f->sh->state, h);
        p += f->sh->state;
        if (!(ds_file_snap(f, i).flags & DS_FILE_LOGITS)) continue;
        h = ds_hash64(p, f->sh->logits, h);
        p += f->sh->logits;
    }
    return h == load(p) ? DS_OK : ds_fail(e, DS_EFORMAT, "%s: the body's checksum does not match", name);
}

const void *ds_file_state(const struct ds_file *f, int i, const float **logits)
{
    const unsigned char *p = f->data + f->body + (size_t)(f->to - f->from) * f->sh->kv;
    for (int k = 0; k < i; k++) p += f->sh->state + (ds_file_snap(f, k).flags & DS_FILE_LOGITS ? f->sh->logits : 0);
    *logits = ds_file_snap(f, i).flags & DS_FILE_LOGITS ? (const float *)(const void *)(p + f->sh->state) : NULL;
    return p;
}

const void *ds_file_rows(const struct ds_file *f, int64_t t, int64_t *a, int64_t *b)
{
    *a = t / DS_BLOCK * DS_BLOCK;
    if (*a < f->from) *a = f->from;
    *b = piece_end(t, f->to);
    return f->data + f->body + (size_t)(*a - f->from) * f->sh->kv;
}

/* --- writing --- */

ds_status ds_file_begin(struct ds_file_out *w, const struct ds_shape *sh, const int32_t *ids, int64_t from, int64_t to,
        int64_t exact_to, const struct ds_file_snap *snaps, int n, struct ds_err *e)
{
    const uint64_t words[WORDS] = { MAGIC, VERSION, sh->layout, sh->kv, sh->state, sh->logits, (uint64_t)from, (uint64_t)to,
                                    (uint64_t)n, (uint64_t)exact_to, ds_file_bytes(sh, from, to, snaps, n) };
    const size_t head = 8 * WORDS + 16 * (size_t)n + (size_t)ids_bytes(to);
    unsigned char *p = calloc(1, head + 8), *at = p;
    if (!p) return ds_fail(e, DS_ENOMEM, "%s: the system refused memory for its head", w->out.path);
    for (int i = 0; i < WORDS; i++, at += 8) store(at, words[i]);
    for (int i = 0; i < n; i++, at += 16) {
        store(at, (uint64_t)snaps[i].pos);
        store(at + 8, snaps[i].flags);
    }
    memcpy(at, ids, (size_t)to * 4);
    store(p + head, ds_hash64(p, head, 0));
    w->hash = 0;
    const ds_status st = ds_out_write(&w->out, p, head + 8, e);
    free(p);
    return st;
}

ds_status ds_file_put(struct ds_file_out *w, const void *p, size_t n, struct ds_err *e)
{
    w->hash = ds_hash64(p, n, w->hash);
    return ds_out_write(&w->out, p, n, e);
}

ds_status ds_file_end(struct ds_file_out *w, const char *target, struct ds_err *e)
{
    unsigned char h[8];
    store(h, w->hash);
    ds_status st = ds_out_write(&w->out, h, 8, e);
    if (!st) return ds_out_place(&w->out, target, true, e);
    ds_out_drop(&w->out);
    return st;
}
