/* Builds a header in memory and puts it, with the tensors, into a file or into an object. */
#include "base/buf.h"
#include "base/os.h"
#include "gguf/dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 32 };

struct entry {
    char name[64];
    const struct ds_type *type;
    uint32_t n_dims;
    uint64_t ne[4], bytes;
    const void *data;
};

struct ds_gguf_writer {
    struct ds_bytes keys;
    uint64_t n_keys;
    struct entry *tensors;
    size_t n_tensors;
    struct ds_bytes header;        /* filled by finish */
    struct ds_err err;             /* the first failure */
    int (*progress)(void *, uint64_t, uint64_t);
    void *progress_ctx;
};

static const size_t MAX_HEADER = (size_t)1 << 30;

struct ds_gguf_writer *ds_gguf_writer_new(void)
{
    struct ds_gguf_writer *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    ds_bytes_init(&w->keys, MAX_HEADER);
    ds_bytes_init(&w->header, MAX_HEADER);
    return w;
}

void ds_gguf_writer_free(struct ds_gguf_writer *w)
{
    if (!w) return;
    ds_bytes_free(&w->keys);
    ds_bytes_free(&w->header);
    free(w->tensors);
    free(w);
}

/* --- little-endian pieces --- */

static void put_le(struct ds_bytes *b, uint64_t v, int bytes)
{
    unsigned char le[8];
    for (int i = 0; i < 8; i++) le[i] = (unsigned char)(v >> 8 * i);
    ds_bytes_add(b, le, (size_t)bytes);
}

static void put_text(struct ds_bytes *b, const char *s)
{
    put_le(b, strlen(s), 8);
    ds_bytes_puts(b, s);
}

static uint64_t f32_bits(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static struct ds_bytes *begin_key(struct ds_gguf_writer *w, const char *key, enum ds_kv_type t)
{
    put_text(&w->keys, key);
    put_le(&w->keys, t, 4);
    w->n_keys++;
    return &w->keys;
}

static struct ds_bytes *begin_array(struct ds_gguf_writer *w, const char *key, enum ds_kv_type t, size_t n)
{
    struct ds_bytes *b = begin_key(w, key, DS_KV_ARR);
    put_le(b, t, 4);
    put_le(b, n, 8);
    return b;
}

void ds_gguf_put_u32(struct ds_gguf_writer *w, const char *key, uint32_t v) { put_le(begin_key(w, key, DS_KV_U32), v, 4); }
void ds_gguf_put_u64(struct ds_gguf_writer *w, const char *key, uint64_t v) { put_le(begin_key(w, key, DS_KV_U64), v, 8); }
void ds_gguf_put_f32(struct ds_gguf_writer *w, const char *key, float v) { put_le(begin_key(w, key, DS_KV_F32), f32_bits(v), 4); }
void ds_gguf_put_bool(struct ds_gguf_writer *w, const char *key, bool v) { put_le(begin_key(w, key, DS_KV_BOOL), v, 1); }
void ds_gguf_put_str(struct ds_gguf_writer *w, const char *key, const char *v) { put_text(begin_key(w, key, DS_KV_STR), v); }

void ds_gguf_put_i32s(struct ds_gguf_writer *w, const char *key, const int32_t *v, size_t n)
{
    struct ds_bytes *b = begin_array(w, key, DS_KV_I32, n);
    for (size_t i = 0; i < n; i++) put_le(b, (uint32_t)v[i], 4);
}

void ds_gguf_put_f32s(struct ds_gguf_writer *w, const char *key, const float *v, size_t n)
{
    struct ds_bytes *b = begin_array(w, key, DS_KV_F32, n);
    for (size_t i = 0; i < n; i++) put_le(b, f32_bits(v[i]), 4);
}

void ds_gguf_put_strs(struct ds_gguf_writer *w, const char *key, const char *const *v, size_t n)
{
    struct ds_bytes *b = begin_array(w, key, DS_KV_STR, n);
    for (size_t i = 0; i < n; i++) put_text(b, v[i]);
}

/* --- tensors --- */

static void refuse(struct ds_gguf_writer *w, ds_status code, const char *name, const char *what)
{
    if (!w->err.code) ds_fail(&w->err, code, "tensor '%.63s' %s", name, what);
}

void ds_gguf_put_tensor(struct ds_gguf_writer *w, const char *name, const struct ds_type *type, uint32_t n_dims,
                        const uint64_t *ne, const void *data)
{
    struct entry t = { .type = type, .n_dims = n_dims, .ne = { 1, 1, 1, 1 }, .data = data };
    size_t n = strlen(name);
    if (n >= sizeof t.name) {
        refuse(w, DS_EARG, name, "has a name of more than 63 bytes");
        return;
    }
    if (n_dims < 1 || n_dims > 4) {
        refuse(w, DS_EARG, name, "does not have 1 to 4 dimensions");
        return;
    }
    memcpy(t.name, name, n + 1);
    memcpy(t.ne, ne, n_dims * sizeof *ne);
    if (!ds_tensor_size(type, t.ne, &t.bytes)) {
        refuse(w, DS_EARG, name, "has a shape that its type cannot have");
        return;
    }
    if (!(w->n_tensors & (w->n_tensors - 1))) {   /* full at powers of two */
        struct entry *more = realloc(w->tensors, (w->n_tensors ? 2 * w->n_tensors : 1) * sizeof *more);
        if (!more) {
            refuse(w, DS_ENOMEM, name, "found no memory");
            return;
        }
        w->tensors = more;
    }
    w->tensors[w->n_tensors++] = t;
}

static uint64_t padding(uint64_t n)
{
    return (ALIGNMENT - n % ALIGNMENT) % ALIGNMENT;
}

/* Makes the header and runs it through the reader's checks. The parse is left in *h, the size of the file in *file_size. */
static ds_status finish(struct ds_gguf_writer *w, const char *label, struct ds_header *h, uint64_t *file_size, struct ds_err *e)
{
    uint64_t off = 0;
    struct ds_bytes *b = &w->header;
    if (w->err.code) return ds_fail(e, w->err.code, "%s: %s", label, w->err.msg);
    ds_bytes_free(b);
    ds_bytes_puts(b, "GGUF");
    put_le(b, 3, 4);
    put_le(b, w->n_tensors, 8);
    put_le(b, w->n_keys, 8);
    ds_bytes_add(b, w->keys.p, w->keys.n);
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct entry *t = &w->tensors[i];
        put_text(b, t->name);
        put_le(b, t->n_dims, 4);
        for (uint32_t d = 0; d < t->n_dims; d++) put_le(b, t->ne[d], 8);
        put_le(b, t->type->gguf_id, 4);
        put_le(b, off, 8);
        if (t->bytes > INT64_MAX - ALIGNMENT - off) return ds_fail(e, DS_EARG, "%s: has more than 2^63 bytes", label);
        off += t->bytes + padding(t->bytes);
    }
    if (w->keys.failed || b->failed) return ds_fail(e, DS_ENOMEM, "%s: no memory for its header", label);
    *file_size = b->n + padding(b->n) + off;
    return ds_header_parse(h, label, (const unsigned char *)b->p, b->n, *file_size, e);
}

/* --- to a file --- */

void ds_gguf_writer_progress(struct ds_gguf_writer *w, int (*progress)(void *ctx, uint64_t done, uint64_t total), void *ctx)
{
    w->progress = progress;
    w->progress_ctx = ctx;
}

/* A file being written: the last answer to progress lies at most SLICE bytes back. */
enum { SLICE = 16 << 20 };
struct sink { const struct ds_gguf_writer *w; const char *path; struct ds_out out; uint64_t done, total; };

static ds_status put_padded(struct sink *s, const void *data, uint64_t bytes, struct ds_err *e)
{
    static const char zeros[ALIGNMENT];
    const struct ds_gguf_writer *w = s->w;
    ds_status st = DS_OK;
    for (uint64_t at = 0; at < bytes && !st; at += SLICE) {
        const uint64_t n = bytes - at < SLICE ? bytes - at : SLICE;
        st = ds_out_write(&s->out, (const char *)data + at, (size_t)n, e);
        s->done += n;
        if (!st && w->progress && w->progress(w->progress_ctx, s->done, s->total))
            st = ds_fail(e, DS_ECANCEL, "%s: stopped after %.1f of %.1f MiB", s->path, (double)s->done * 0x1p-20, (double)s->total * 0x1p-20);
    }
    s->done += padding(bytes);
    return st ? st : ds_out_write(&s->out, zeros, (size_t)padding(bytes), e);
}

static ds_status write_all(struct sink *s, const char *part, const char *target, struct ds_err *e)
{
    const struct ds_gguf_writer *w = s->w;
    ds_status st = ds_out_open(&s->out, part, true, e);
    if (st) return st;
    st = put_padded(s, w->header.p, w->header.n, e);
    for (size_t i = 0; i < w->n_tensors && !st; i++) st = put_padded(s, w->tensors[i].data, w->tensors[i].bytes, e);
    if (!st) return ds_out_place(&s->out, target, false, e);
    ds_out_drop(&s->out);
    return st;
}

ds_status ds_gguf_write(struct ds_gguf_writer *w, const char *path, struct ds_err *e)
{
    struct ds_header h;
    struct ds_names names = { 0 };
    struct sink s = { .w = w, .path = path };
    char target[DS_PATH_MAX], part[DS_PATH_MAX];
    ds_status st = finish(w, path, &h, &s.total, e);
    if (st) return st;
    st = ds_tensors_index(&names, h.tensors, h.n_tensors, path, e);
    free(names.slot);
    ds_header_free(&h);
    if (st || (st = ds_out_target(target, path, e))) return st;
    if (snprintf(part, sizeof part, "%s.part", target) >= (int)sizeof part) return ds_fail(e, DS_EARG, "%s: the path is too long", path);
    return write_all(&s, part, target, e);
}

/* --- to an object --- */

struct ds_gguf *ds_gguf_from_writer(struct ds_gguf_writer *w, const char *label, void *owned, void (*own_free)(void *),
                                    struct ds_err *e)
{
    struct ds_header h;
    uint64_t size = 0;
    struct ds_gguf *g = ds_gguf_empty(label, 1);
    if (!g) {
        ds_fail(e, DS_ENOMEM, "%s: no memory for its directory", label);
        ds_gguf_writer_free(w);
        if (own_free) own_free(owned);
        return NULL;
    }
    g->writer = w;
    g->owned = owned;
    g->own_free = own_free;
    ds_status s = finish(w, label, &h, &size, e);
    if (!s) {
        for (size_t i = 0; i < h.n_tensors; i++) h.tensors[i].data = w->tensors[i].data;
        g->parts[0].map = (struct ds_map){ .data = (const unsigned char *)w->header.p, .size = w->header.n };
        g->parts[0].header_bytes = h.end;
        g->n_parts = 1;
        g->file_bytes = size;
        s = ds_gguf_adopt(g, label, &h, -1, e);
    }
    if (!s) s = ds_gguf_finish(g, e);
    if (!s) return g;
    ds_gguf_close(g);
    return NULL;
}
