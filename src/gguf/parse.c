/* The header of one file. Every number that the file states is compared with the bytes that are really there before
 * anything is allocated, multiplied or read on its strength. */
#include "base/utf8.h"
#include "gguf/dir.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nothing is shorter: name's length, type, one byte; name's length, n_dims, one dim, type, offset. An empty name is another
 * error, with its own sentence. */
enum { MIN_KV = 8 + 4 + 1, MIN_TENSOR = 8 + 4 + 8 + 4 + 8, MIN_STR = 8, DEFAULT_ALIGNMENT = 32 };

struct cursor {
    const char *label;
    const unsigned char *bytes;
    size_t n, at;
    uint64_t elements;             /* array elements that may still come */
    struct ds_err *e;
};

static const unsigned char *take(struct cursor *c, uint64_t bytes)
{
    if (bytes > c->n - c->at) return NULL;
    const unsigned char *p = c->bytes + c->at;
    c->at += (size_t)bytes;
    return p;
}

static bool u32(struct cursor *c, uint32_t *v)
{
    const unsigned char *p = take(c, 4);
    if (p) *v = ds_le32(p);
    return p != NULL;
}

static bool u64(struct cursor *c, uint64_t *v)
{
    const unsigned char *p = take(c, 8);
    if (p) *v = ds_le64(p);
    return p != NULL;
}

static ds_status truncated(const struct cursor *c, const char *what)
{
    return ds_fail(c->e, DS_EFORMAT, "%s: file ends inside %s (%zu bytes are left at byte %zu)", c->label, what, c->n - c->at,
                   c->at);
}

static ds_status no_memory(const struct cursor *c)
{
    return ds_fail(c->e, DS_ENOMEM, "%s: no memory for its directory", c->label);
}

/* A string's length field and bytes. */
static bool str(struct cursor *c, struct ds_str *s)
{
    uint64_t n;
    if (!u64(c, &n)) return false;
    const unsigned char *p = take(c, n);
    if (!p) return false;
    *s = (struct ds_str){ (const char *)p, (size_t)n };
    return true;
}

/* --- magic and counts --- */

static ds_status check_magic(struct cursor *c)
{
    static const char lfs[] = "version https://git-lfs";
    char shown[DS_SHOW];
    if (c->n >= sizeof lfs - 1 && !memcmp(c->bytes, lfs, sizeof lfs - 1))
        return ds_fail(c->e, DS_EFORMAT, "%s: is a Git LFS pointer, not the model itself", c->label);
    const unsigned char *p = take(c, 4);
    if (!p) return ds_fail(c->e, DS_EFORMAT, "%s: has %zu bytes, too few for a GGUF file", c->label, c->n);
    if (memcmp(p, "GGUF", 4))
        return ds_fail(c->e, DS_EFORMAT, "%s: begins with '%s', expected 'GGUF'", c->label,
                       ds_str_show(shown, (struct ds_str){ (const char *)p, 4 }));
    return DS_OK;
}

static ds_status check_version(struct cursor *c)
{
    uint32_t v;
    if (!u32(c, &v)) return truncated(c, "the version");
    if (v && !(v & 0xffff))
        return ds_fail(c->e, DS_EFORMAT, "%s: is big-endian GGUF (version field 0x%08" PRIx32 "), expected little-endian",
                       c->label, v);
    if (v != 2 && v != 3) return ds_fail(c->e, DS_EFORMAT, "%s: GGUF version %" PRIu32 ", expected 2 or 3", c->label, v);
    return DS_OK;
}

static ds_status check_count(const struct cursor *c, const char *what, uint64_t n, uint64_t min_bytes, uint64_t max)
{
    if (n > (c->n - c->at) / min_bytes)
        return ds_fail(c->e, DS_EFORMAT, "%s: claims %" PRIu64 " %s, more than its %zu bytes can hold", c->label, n, what, c->n);
    if (n > max) return ds_fail(c->e, DS_EUNSUP, "%s: %" PRIu64 " %s, the limit is %" PRIu64, c->label, n, what, max);
    return DS_OK;
}

/* --- keys --- */

static ds_status bad_key(const struct cursor *c, struct ds_str key, const char *what)
{
    char shown[DS_SHOW];
    return ds_fail(c->e, DS_EFORMAT, "%s: key '%s' %s", c->label, ds_str_show(shown, key), what);
}

static ds_status check_bools(const struct cursor *c, struct ds_str key, const unsigned char *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i] > 1) return bad_key(c, key, "holds a bool that is neither 0 nor 1");
    return DS_OK;
}

static ds_status parse_strings(struct cursor *c, struct ds_kv *kv)
{
    struct ds_str s;
    if (kv->n == 0) return DS_OK;
    kv->strs = malloc((size_t)kv->n * sizeof *kv->strs);
    if (!kv->strs) return no_memory(c);
    for (uint64_t i = 0; i < kv->n; i++) {
        kv->strs[i] = c->bytes + c->at;
        if (!str(c, &s)) return bad_key(c, kv->key, "is a string array that runs past the end of the file");
    }
    return DS_OK;
}

static ds_status parse_array(struct cursor *c, struct ds_kv *kv)
{
    char shown[DS_SHOW];
    uint32_t t;
    if (!u32(c, &t) || !u64(c, &kv->n)) return bad_key(c, kv->key, "is an array cut off by the end of the file");
    if (t > DS_KV_F64) return bad_key(c, kv->key, "is an array of an unknown type");
    if (t == DS_KV_ARR) return bad_key(c, kv->key, "is an array of arrays, which is not supported");
    kv->elem = (enum ds_kv_type)t;
    size_t size = t == DS_KV_STR ? MIN_STR : ds_kv_bytes(kv->elem);
    if (kv->n > (c->n - c->at) / size)
        return ds_fail(c->e, DS_EFORMAT, "%s: key '%s' claims %" PRIu64 " array elements, more than the file can hold", c->label,
                       ds_str_show(shown, kv->key), kv->n);
    if (kv->n > c->elements)
        return ds_fail(c->e, DS_EUNSUP, "%s: key '%s' brings the array elements above the limit of %d", c->label,
                       ds_str_show(shown, kv->key), DS_GGUF_MAX_ARRAY_ELEMENTS);
    c->elements -= kv->n;
    kv->p = c->bytes + c->at;
    if (t == DS_KV_STR) return parse_strings(c, kv);
    take(c, kv->n * size);
    return t == DS_KV_BOOL ? check_bools(c, kv->key, kv->p, kv->n) : DS_OK;
}

static ds_status parse_key_name(struct cursor *c, struct ds_str *key, size_t i)
{
    char what[64];
    snprintf(what, sizeof what, "the name of key %zu", i);
    if (!str(c, key)) return truncated(c, what);
    if (key->n == 0) return ds_fail(c->e, DS_EFORMAT, "%s: key %zu has an empty name", c->label, i);
    if (key->n > 65535)
        return ds_fail(c->e, DS_EFORMAT, "%s: key %zu has a name of %zu bytes, the limit is 65535", c->label, i, key->n);
    if (memchr(key->p, 0, key->n)) return bad_key(c, *key, "contains NUL");
    if (!ds_utf8_valid(key->p, key->n)) return bad_key(c, *key, "is not valid UTF-8");
    return DS_OK;
}

static ds_status parse_key(struct cursor *c, struct ds_kv *kv, size_t i)
{
    char what[DS_SHOW + 32], shown[DS_SHOW];
    uint32_t t;
    ds_status s = parse_key_name(c, &kv->key, i);
    if (s) return s;
    snprintf(what, sizeof what, "the value of key '%s'", ds_str_show(shown, kv->key));
    if (!u32(c, &t)) return truncated(c, what);
    if (t > DS_KV_F64)
        return ds_fail(c->e, DS_EFORMAT, "%s: key '%s' has value type %" PRIu32 ", expected 0 to 12", c->label, shown, t);
    kv->t = (enum ds_kv_type)t;
    if (kv->t == DS_KV_ARR) return parse_array(c, kv);
    if (kv->t == DS_KV_STR) {
        struct ds_str v;
        if (!str(c, &v)) return truncated(c, what);
        kv->p = (const unsigned char *)v.p;
        kv->n = v.n;
        return DS_OK;
    }
    kv->p = take(c, ds_kv_bytes(kv->t));
    if (!kv->p) return truncated(c, what);
    return kv->t == DS_KV_BOOL ? check_bools(c, kv->key, kv->p, 1) : DS_OK;
}

static struct ds_str key_at(const void *list, size_t i)
{
    return ((const struct ds_kv *)list)[i].key;
}

static ds_status parse_keys(struct cursor *c, struct ds_keys *k, uint64_t n)
{
    size_t first = 0, dup = 0;
    char shown[DS_SHOW];
    k->kv = calloc(n ? (size_t)n : 1, sizeof *k->kv);
    if (!k->kv) return no_memory(c);
    for (; k->n < n; k->n++) {
        ds_status s = parse_key(c, &k->kv[k->n], k->n);
        if (s) {
            free(k->kv[k->n].strs);
            return s;
        }
    }
    if (ds_names_build(&k->names, k->kv, k->n, key_at, &first, &dup)) return DS_OK;
    if (dup == k->n) return no_memory(c);
    return ds_fail(c->e, DS_EFORMAT, "%s: key '%s' appears twice (entries %zu and %zu)", c->label,
                   ds_str_show(shown, k->kv[dup].key), first, dup);
}

void ds_keys_free(struct ds_keys *k)
{
    for (size_t i = 0; i < k->n; i++) free(k->kv[i].strs);
    free(k->kv);
    free(k->names.slot);
    *k = (struct ds_keys){ 0 };
}

const struct ds_kv *ds_keys_find(const struct ds_keys *k, const char *key)
{
    size_t i = ds_names_find(&k->names, k->kv, key_at, (struct ds_str){ key, strlen(key) });
    return i == SIZE_MAX ? NULL : &k->kv[i];
}

static ds_status read_alignment(const struct cursor *c, const struct ds_keys *k, uint64_t *alignment)
{
    uint64_t a = DEFAULT_ALIGNMENT;
    if (ds_keys_find(k, "general.alignment")) {
        ds_status s = ds_keys_u64(k, c->label, "general.alignment", &a, c->e);
        if (s) return s;
    }
    if (a < 8 || a > DS_GGUF_MAX_ALIGNMENT || (a & (a - 1)))
        return ds_fail(c->e, DS_EFORMAT, "%s: key 'general.alignment' is %" PRIu64 ", expected a power of two from 8 to %d",
                       c->label, a, DS_GGUF_MAX_ALIGNMENT);
    *alignment = a;
    return DS_OK;
}

/* --- tensors --- */

struct ds_str ds_tensor_name_at(const void *tensors, size_t i)
{
    const char *name = ((const struct ds_tensor *)tensors)[i].name;
    return (struct ds_str){ name, strlen(name) };
}

bool ds_tensor_size(const struct ds_type *type, const uint64_t ne[4], uint64_t *bytes)
{
    if (ne[0] % type->block) return false;
    uint64_t n = ne[0] / type->block;
    if (n > INT64_MAX / type->bytes) return false;
    n *= type->bytes;
    for (int d = 1; d < 4; d++) {
        if (ne[d] && n > INT64_MAX / ne[d]) return false;
        n *= ne[d];
    }
    *bytes = n;
    return true;
}

ds_status ds_tensors_index(struct ds_names *names, const struct ds_tensor *t, size_t n, const char *label, struct ds_err *e)
{
    size_t first = 0, dup = 0;
    char shown[DS_SHOW];
    if (ds_names_build(names, t, n, ds_tensor_name_at, &first, &dup)) return DS_OK;
    if (dup == n) return ds_fail(e, DS_ENOMEM, "%s: no memory for its directory", label);
    return ds_fail(e, DS_EFORMAT, "%s: tensor '%s' appears twice (entries %zu and %zu)", label,
                   ds_str_show(shown, ds_tensor_name_at(t, dup)), first, dup);
}

static ds_status bad_tensor(const struct cursor *c, const struct ds_tensor *t, const char *what)
{
    char shown[DS_SHOW];
    return ds_fail(c->e, DS_EFORMAT, "%s: tensor '%s' %s", c->label, ds_str_show(shown, ds_tensor_name_at(t, 0)), what);
}

static ds_status parse_tensor_name(struct cursor *c, struct ds_tensor *t, size_t i)
{
    struct ds_str s;
    char what[64], shown[DS_SHOW];
    snprintf(what, sizeof what, "the name of tensor %zu", i);
    if (!str(c, &s)) return truncated(c, what);
    if (s.n == 0) return ds_fail(c->e, DS_EFORMAT, "%s: tensor %zu has an empty name", c->label, i);
    if (s.n >= sizeof t->name)
        return ds_fail(c->e, DS_EFORMAT, "%s: tensor %zu has a name of %zu bytes, the limit is 63", c->label, i, s.n);
    ds_str_show(shown, s);
    if (memchr(s.p, 0, s.n)) return ds_fail(c->e, DS_EFORMAT, "%s: the name of tensor '%s' contains NUL", c->label, shown);
    if (!ds_utf8_valid(s.p, s.n))
        return ds_fail(c->e, DS_EFORMAT, "%s: the name of tensor '%s' is not valid UTF-8", c->label, shown);
    memcpy(t->name, s.p, s.n);
    return DS_OK;
}

static ds_status parse_dims(struct cursor *c, struct ds_tensor *t)
{
    char what[64];
    uint64_t elements = 1;
    for (int d = 0; d < 4; d++) t->ne[d] = 1;
    if (!u32(c, &t->n_dims)) return bad_tensor(c, t, "is cut off by the end of the file");
    if (t->n_dims < 1 || t->n_dims > 4) {
        snprintf(what, sizeof what, "has %" PRIu32 " dimensions, expected 1 to 4", t->n_dims);
        return bad_tensor(c, t, what);
    }
    for (uint32_t d = 0; d < t->n_dims; d++) {
        if (!u64(c, &t->ne[d])) return bad_tensor(c, t, "is cut off by the end of the file");
        if (t->ne[d] == 0) return bad_tensor(c, t, "has a dimension of 0");
        if (elements > INT64_MAX / t->ne[d]) return bad_tensor(c, t, "has more than 2^63 elements");
        elements *= t->ne[d];
    }
    return DS_OK;
}

/* The type, and with it the size. */
static ds_status set_type(const struct cursor *c, struct ds_tensor *t)
{
    char what[128];
    t->type = ds_type_by_gguf(t->gguf_id);
    if (!t->type) {
        if (ds_type_gguf_name(t->gguf_id)) return DS_OK;
        snprintf(what, sizeof what, "has type id %" PRIu32 ", which no GGUF file uses", t->gguf_id);
        return bad_tensor(c, t, what);
    }
    if (t->ne[0] % t->type->block) {
        snprintf(what, sizeof what, "has rows of %" PRIu64 " elements, %s needs a multiple of %d", t->ne[0], t->type->name,
                 t->type->block);
        return bad_tensor(c, t, what);
    }
    return ds_tensor_size(t->type, t->ne, &t->bytes) ? DS_OK : bad_tensor(c, t, "has more than 2^63 bytes");
}

static ds_status parse_tensor(struct cursor *c, struct ds_tensor *t, size_t i)
{
    ds_status s = parse_tensor_name(c, t, i);
    if (!s) s = parse_dims(c, t);
    if (s) return s;
    if (!u32(c, &t->gguf_id) || !u64(c, &t->file_off)) return bad_tensor(c, t, "is cut off by the end of the file");
    return set_type(c, t);
}

/* file_off, so far relative to the data section, becomes absolute. */
static ds_status place(const struct cursor *c, struct ds_tensor *t, uint64_t data, uint64_t alignment, uint64_t file_size)
{
    char what[160];
    uint64_t off = t->file_off;
    if (off % alignment) {
        snprintf(what, sizeof what, "has offset %" PRIu64 ", not a multiple of the alignment %" PRIu64, off, alignment);
        return bad_tensor(c, t, what);
    }
    if (data > file_size || off > file_size - data || t->bytes > file_size - data - off) {
        snprintf(what, sizeof what,
                 "needs %" PRIu64 " bytes at offset %" PRIu64 " of the data, past the end of the file (%" PRIu64 " bytes)",
                 t->bytes, off, file_size);
        return bad_tensor(c, t, what);
    }
    t->file_off = data + off;
    return DS_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct ds_tensor *x = *(const struct ds_tensor *const *)a, *y = *(const struct ds_tensor *const *)b;
    if (x->file_off != y->file_off) return x->file_off < y->file_off ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;   /* those of unknown size first */
}

/* Gaps between tensors are harmless; two tensors on the same bytes are a broken or forged directory. */
static ds_status check_overlap(const struct cursor *c, const struct ds_header *h)
{
    char shown[DS_SHOW], what[DS_SHOW + 32];
    ds_status s = DS_OK;
    const struct ds_tensor **order = malloc((h->n_tensors + 1) * sizeof *order);
    if (!order) return no_memory(c);
    for (size_t i = 0; i < h->n_tensors; i++) order[i] = &h->tensors[i];
    qsort(order, h->n_tensors, sizeof *order, by_offset);
    for (size_t i = 1; i < h->n_tensors && !s; i++) {
        const struct ds_tensor *a = order[i - 1], *b = order[i];
        if (a->file_off + a->bytes <= b->file_off) continue;
        snprintf(what, sizeof what, "overlaps tensor '%s'", ds_str_show(shown, ds_tensor_name_at(a, 0)));
        s = bad_tensor(c, b, strcmp(a->name, b->name) ? what : "is listed twice");
    }
    free(order);
    return s;
}

static ds_status parse_tensors(struct cursor *c, struct ds_header *h, uint64_t n)
{
    h->tensors = calloc(n ? (size_t)n : 1, sizeof *h->tensors);
    if (!h->tensors) return no_memory(c);
    for (; h->n_tensors < n; h->n_tensors++) {
        ds_status s = parse_tensor(c, &h->tensors[h->n_tensors], h->n_tensors);
        if (s) return s;
    }
    return DS_OK;
}

static ds_status parse(struct cursor *c, struct ds_header *h, uint64_t file_size)
{
    uint64_t n_tensors, n_keys, alignment = 0;
    ds_status s = check_magic(c);
    if (!s) s = check_version(c);
    if (s) return s;
    if (!u64(c, &n_tensors) || !u64(c, &n_keys)) return truncated(c, "the counts");
    s = check_count(c, "keys", n_keys, MIN_KV, DS_GGUF_MAX_KEYS);
    if (!s) s = parse_keys(c, &h->keys, n_keys);
    if (!s) s = read_alignment(c, &h->keys, &alignment);
    if (!s) s = check_count(c, "tensors", n_tensors, MIN_TENSOR, DS_GGUF_MAX_TENSORS);
    if (!s) s = parse_tensors(c, h, n_tensors);
    if (s) return s;
    h->end = c->at;
    h->data = (h->end + alignment - 1) / alignment * alignment;
    for (size_t i = 0; i < h->n_tensors && !s; i++) s = place(c, &h->tensors[i], h->data, alignment, file_size);
    return s ? s : check_overlap(c, h);
}

ds_status ds_header_parse(struct ds_header *h, const char *label, const unsigned char *bytes, size_t n, uint64_t file_size,
                          struct ds_err *e)
{
    struct cursor c = { .label = label, .bytes = bytes, .n = n, .elements = DS_GGUF_MAX_ARRAY_ELEMENTS, .e = e };
    *h = (struct ds_header){ 0 };
    ds_status s = parse(&c, h, file_size);
    if (s) ds_header_free(h);
    return s;
}

void ds_header_free(struct ds_header *h)
{
    ds_keys_free(&h->keys);
    free(h->tensors);
    *h = (struct ds_header){ 0 };
}
