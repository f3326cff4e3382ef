/* From files to one directory: mapping, split sets, the hash. */
#include "base/hash.h"
#include "gguf/dir.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LABEL = 200, HASH_SPAN = 4096 };

/* The end of a long path, so that it leaves room for the rest of the sentence. */
static const char *label_of(const char *path)
{
    size_t n = strlen(path);
    return n > MAX_LABEL ? path + n - MAX_LABEL : path;
}

/* --- one object --- */

struct ds_gguf *ds_gguf_empty(const char *path, int n_parts)
{
    struct ds_gguf *g = calloc(1, sizeof *g);
    size_t n = strlen(path);
    if (!g) return NULL;
    g->path = malloc(n + 1);
    g->parts = calloc((size_t)n_parts + 1, sizeof *g->parts);
    if (!g->path || !g->parts) {
        ds_gguf_close(g);
        return NULL;
    }
    memcpy(g->path, path, n + 1);
    g->label = label_of(g->path);
    return g;
}

ds_status ds_gguf_adopt(struct ds_gguf *g, const char *label, struct ds_header *h, int shard, struct ds_err *e)
{
    size_t n = g->n_tensors + h->n_tensors;
    ds_status s = DS_OK;
    struct ds_tensor *t = n ? realloc(g->tensors, n * sizeof *t) : NULL;
    if (n && !t) {
        s = ds_fail(e, DS_ENOMEM, "%s: no memory for %zu tensors", label, n);
    } else {
        if (h->n_tensors) memcpy(t + g->n_tensors, h->tensors, h->n_tensors * sizeof *t);
        for (size_t i = g->n_tensors; i < n; i++) t[i].shard = shard;
        g->tensors = t;
        g->n_tensors = n;
        if (!g->keys.kv) {
            g->keys = h->keys;
            h->keys = (struct ds_keys){ 0 };
        }
    }
    ds_header_free(h);
    return s;
}

ds_status ds_gguf_finish(struct ds_gguf *g, struct ds_err *e)
{
    return ds_tensors_index(&g->names, g->tensors, g->n_tensors, g->label, e);
}

/* Parses the file that part i maps. */
static ds_status parse_part(const struct ds_gguf *g, int i, const char *label, struct ds_header *h, struct ds_err *e)
{
    const struct ds_map *m = &g->parts[i].map;
    ds_status s = ds_header_parse(h, label, m->data, m->size, m->size, e);
    if (s) return s;
    for (size_t k = 0; k < h->n_tensors; k++)
        if (h->tensors[k].type) h->tensors[k].data = m->data + h->tensors[k].file_off;
    return DS_OK;
}

static ds_status adopt_part(struct ds_gguf *g, int i, const char *label, struct ds_header *h, struct ds_err *e)
{
    g->parts[i].header_bytes = h->end;
    g->file_bytes += g->parts[i].map.size;
    return ds_gguf_adopt(g, label, h, i, e);
}

/* --- split sets --- */

/* Optional split key of a file; *v keeps its value when the key is absent. */
static ds_status split_key(const struct ds_keys *k, const char *label, const char *key, uint64_t *v, struct ds_err *e)
{
    return ds_keys_find(k, key) ? ds_keys_u64(k, label, key, v, e) : DS_OK;
}

/* "PREFIX-00002-of-00005.gguf" -> length of PREFIX, 2, 5. */
static bool split_name(const char *path, size_t *prefix, unsigned *no, unsigned *count)
{
    static const char form[] = "-#####-of-#####.gguf";
    size_t n = strlen(path), m = sizeof form - 1;
    if (n <= m) return false;
    const char *p = path + n - m;
    for (size_t i = 0; i < m; i++)
        if (form[i] == '#' ? p[i] < '0' || p[i] > '9' : p[i] != form[i]) return false;
    *prefix = n - m;
    *no = (unsigned)strtoul(p + 1, NULL, 10);
    *count = (unsigned)strtoul(p + 10, NULL, 10);
    return true;
}

/* What shard i (from 0) of n says about itself. */
static ds_status check_shard(const struct ds_keys *k, const char *label, unsigned i, unsigned n, struct ds_err *e)
{
    uint64_t no = 0, count = 0;
    ds_status s = ds_keys_u64(k, label, "split.count", &count, e);
    if (!s) s = ds_keys_u64(k, label, "split.no", &no, e);
    if (s) return s;
    if (count != n)
        return ds_fail(e, DS_EFORMAT, "%s: key 'split.count' is %" PRIu64 ", the file's name says %u", label, count, n);
    if (no != i)
        return ds_fail(e, DS_EFORMAT, "%s: key 'split.no' is %" PRIu64 ", expected %u (counted from 0) for this name", label, no,
                       i);
    return DS_OK;
}

static ds_status add_shard(struct ds_gguf *g, const char *name, unsigned i, unsigned n, uint64_t *promised, struct ds_err *e)
{
    struct ds_header h;
    const char *label = label_of(name);
    ds_status s = ds_map_open(&g->parts[i].map, name, e);
    if (s) return s;
    g->parts[i].mapped = true;
    g->n_parts = (int)i + 1;
    s = parse_part(g, (int)i, label, &h, e);
    if (s) return s;
    s = check_shard(&h.keys, label, i, n, e);
    if (!s && i == 0) s = split_key(&h.keys, label, "split.tensors.count", promised, e);
    if (!s) return adopt_part(g, (int)i, label, &h, e);
    ds_header_free(&h);
    return s;
}

static ds_status open_set(struct ds_gguf **out, const char *path, size_t prefix, unsigned n, struct ds_err *e)
{
    ds_status s = DS_OK;
    uint64_t promised = UINT64_MAX;
    size_t size = strlen(path) + 1;
    char *name = malloc(size);
    struct ds_gguf *g = ds_gguf_empty(path, (int)n);
    if (!name || !g) s = ds_fail(e, DS_ENOMEM, "%s: no memory for %u shards", label_of(path), n);
    for (unsigned i = 0; i < n && !s; i++) {
        memcpy(name, path, prefix);
        snprintf(name + prefix, size - prefix, "-%05u-of-%05u.gguf", i + 1, n);
        s = add_shard(g, name, i, n, &promised, e);
    }
    if (!s && promised != UINT64_MAX && promised != g->n_tensors)
        s = ds_fail(e, DS_EFORMAT, "%s: key 'split.tensors.count' promises %" PRIu64 " tensors, the %u shards hold %zu",
                    label_of(path), promised, n, g->n_tensors);
    if (!s) s = ds_gguf_finish(g, e);
    free(name);
    if (s) ds_gguf_close(g);
    else *out = g;
    return s;
}

/* --- open, close --- */

/* Parses part 0 of g, whose map is set, as a whole file. *count is what it says about a split set, 1 when nothing; above
 * 1 nothing has been adopted. */
static ds_status load_whole(struct ds_gguf *g, uint64_t *count, struct ds_err *e)
{
    struct ds_header h;
    const char *label = g->label;
    g->n_parts = 1;
    *count = 1;
    ds_status s = parse_part(g, 0, label, &h, e);
    if (s) return s;
    uint64_t no = 0;               /* a merged set keeps split.count 0 or 1 and split.no 0 */
    s = split_key(&h.keys, label, "split.count", count, e);
    if (!s) s = split_key(&h.keys, label, "split.no", &no, e);
    if (!s && *count <= 1 && no)
        s = ds_fail(e, DS_EFORMAT, "%s: key 'split.no' is %" PRIu64 ", expected 0 in a file whose split.count is %" PRIu64, label, no, *count);
    if (s || *count > 1) {
        ds_header_free(&h);
        return s;
    }
    s = adopt_part(g, 0, label, &h, e);
    return s ? s : ds_gguf_finish(g, e);
}

ds_status ds_gguf_open(struct ds_gguf **out, const char *path, struct ds_err *e)
{
    uint64_t count = 1;
    size_t prefix;
    unsigned no, of;
    *out = NULL;
    struct ds_gguf *g = ds_gguf_empty(path, 1);
    if (!g) return ds_fail(e, DS_ENOMEM, "%s: no memory to open it", label_of(path));
    ds_status s = ds_map_open(&g->parts[0].map, path, e);
    g->parts[0].mapped = !s;
    if (!s) s = load_whole(g, &count, e);
    if (!s && count <= 1) {
        *out = g;
        return DS_OK;
    }
    ds_gguf_close(g);
    if (s) return s;
    if (!split_name(path, &prefix, &no, &of))
        return ds_fail(e, DS_EFORMAT,
                       "%s: is one of %" PRIu64 " shards, but its name does not end in -0000K-of-0000N.gguf, so the others "
                       "cannot be found",
                       label_of(path), count);
    if (of != count)
        return ds_fail(e, DS_EFORMAT, "%s: key 'split.count' is %" PRIu64 ", the file's name says %u", label_of(path), count, of);
    if (no < 1 || no > of) return ds_fail(e, DS_EFORMAT, "%s: the file's name says shard %u of %u", label_of(path), no, of);
    return open_set(out, path, prefix, of, e);
}

ds_status ds_gguf_open_mem(struct ds_gguf **out, const char *label, const void *data, size_t n, struct ds_err *e)
{
    uint64_t count = 1;
    *out = NULL;
    struct ds_gguf *g = ds_gguf_empty(label, 1);
    if (!g) return ds_fail(e, DS_ENOMEM, "%s: no memory to open it", label_of(label));
    g->parts[0].map = (struct ds_map){ .data = data, .size = n };
    ds_status s = load_whole(g, &count, e);
    if (!s && count > 1)
        s = ds_fail(e, DS_EUNSUP, "%s: is one of %" PRIu64 " shards, which open by file name only", label_of(label), count);
    if (s) ds_gguf_close(g);
    else *out = g;
    return s;
}

void ds_gguf_close(struct ds_gguf *g)
{
    if (!g) return;
    for (int i = 0; i < g->n_parts && g->parts; i++)
        if (g->parts[i].mapped) ds_map_close(&g->parts[i].map);
    ds_keys_free(&g->keys);
    ds_gguf_writer_free(g->writer);
    if (g->own_free) g->own_free(g->owned);
    free(g->names.slot);
    free(g->tensors);
    free(g->parts);
    free(g->path);
    free(g);
}

/* --- what it is --- */

const char *ds_gguf_path(const struct ds_gguf *g) { return g->path; }
uint64_t ds_gguf_file_bytes(const struct ds_gguf *g) { return g->file_bytes; }
int ds_gguf_n_shards(const struct ds_gguf *g) { return g->writer ? 0 : g->n_parts; }

const struct ds_map *ds_gguf_shard(const struct ds_gguf *g, int i)
{
    return i >= 0 && i < ds_gguf_n_shards(g) ? &g->parts[i].map : NULL;
}

uint64_t ds_gguf_hash(const struct ds_gguf *g)
{
    uint64_t h = 0;
    for (int i = 0; i < g->n_parts; i++) h = ds_hash64(g->parts[i].map.data, g->parts[i].header_bytes, h);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct ds_tensor *t = &g->tensors[i];
        size_t span = t->bytes < HASH_SPAN ? (size_t)t->bytes : HASH_SPAN;
        if (!t->data) continue;
        h = ds_hash64(t->data, span, h);
        h = ds_hash64((const char *)t->data + t->bytes - span, span, h);
    }
    return h;
}

size_t ds_gguf_n_tensors(const struct ds_gguf *g) { return g->n_tensors; }

const struct ds_tensor *ds_gguf_tensor(const struct ds_gguf *g, size_t i)
{
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const struct ds_tensor *ds_gguf_find(const struct ds_gguf *g, const char *name)
{
    size_t i = ds_names_find(&g->names, g->tensors, ds_tensor_name_at, (struct ds_str){ name, strlen(name) });
    return i == SIZE_MAX ? NULL : &g->tensors[i];
}
