/* What one GGUF file's header parses into. Private to src/gguf. */
#ifndef DS_GGUF_DIR_H
#define DS_GGUF_DIR_H

#include "gguf/gguf.h"

/* Finds names of a list in O(1): open addressing, slots hold position + 1. The hash is seeded afresh for each table, so
 * that no file can be made to collide on purpose. */
struct ds_names { uint32_t *slot; size_t mask; uint64_t seed; };
typedef struct ds_str ds_name_at(const void *list, size_t i);
/* False when memory is refused (*dup = n) or when entries *first and *dup have the same name. */
bool ds_names_build(struct ds_names *t, const void *list, size_t n, ds_name_at *at, size_t *first, size_t *dup);
size_t ds_names_find(const struct ds_names *t, const void *list, ds_name_at *at, struct ds_str name);   /* SIZE_MAX: absent */

struct ds_kv {
    struct ds_str key;
    enum ds_kv_type t;
    enum ds_kv_type elem;          /* arrays: type of the elements */
    uint64_t n;                    /* arrays: elements; strings: bytes */
    const unsigned char *p;        /* scalar, string bytes, or first element */
    const unsigned char **strs;    /* string arrays: [n], each at its length field */
};

size_t ds_kv_bytes(enum ds_kv_type t);   /* of one value; 0 for strings and arrays */

struct ds_keys { struct ds_kv *kv; size_t n; struct ds_names names; };
void ds_keys_free(struct ds_keys *k);
const struct ds_kv *ds_keys_find(const struct ds_keys *k, const char *key);
/* As ds_gguf_u64; label begins the sentence. */
ds_status ds_keys_u64(const struct ds_keys *k, const char *label, const char *key, uint64_t *v, struct ds_err *e);

struct ds_header {
    struct ds_keys keys;
    struct ds_tensor *tensors;
    size_t n_tensors;
    uint64_t end;                  /* bytes of magic, keys and tensor infos */
    uint64_t data;                 /* where the data section starts */
};
/* Parses and checks the header in bytes[0, n) of a file of file_size bytes (the header alone may be at hand: n <= file_size).
 * Tensors get their place in the file, but no data pointer and no shard. On failure nothing is left to free. */
ds_status ds_header_parse(struct ds_header *h, const char *label, const unsigned char *bytes, size_t n, uint64_t file_size,
                          struct ds_err *e);
void ds_header_free(struct ds_header *h);

/* Bytes of a tensor; false when ne[0] is not whole blocks or the size passes 2^63. */
bool ds_tensor_size(const struct ds_type *type, const uint64_t ne[4], uint64_t *bytes);
struct ds_str ds_tensor_name_at(const void *tensors, size_t i);
/* The name table of tensors; refuses duplicates. */
ds_status ds_tensors_index(struct ds_names *names, const struct ds_tensor *t, size_t n, const char *label, struct ds_err *e);

struct ds_gguf {
    char *path;
    const char *label;             /* begins each sentence: the path, or the end of a very long one */
    struct ds_keys keys;
    struct ds_tensor *tensors;
    size_t n_tensors;
    struct ds_names names;
    struct ds_gguf_part { struct ds_map map; bool mapped; uint64_t header_bytes; } *parts;   /* one per shard */
    int n_parts;
    uint64_t file_bytes;
    struct ds_gguf_writer *writer; /* keys of an object without a file lie in its header */
    void *owned;
    void (*own_free)(void *);
};
/* Takes over the header's keys (of the first part) and tensors. The header is consumed in any case. */
ds_status ds_gguf_adopt(struct ds_gguf *g, const char *label, struct ds_header *h, int shard, struct ds_err *e);
/* After the last part: builds the name table. */
ds_status ds_gguf_finish(struct ds_gguf *g, struct ds_err *e);
struct ds_gguf *ds_gguf_empty(const char *path, int n_parts);

static inline uint32_t ds_le32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t ds_le64(const unsigned char *p)
{
    return ds_le32(p) | (uint64_t)ds_le32(p + 4) << 32;
}

#endif
