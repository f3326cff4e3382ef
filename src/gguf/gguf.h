/* GGUF files -> a checked directory of keys and tensors, and back.
 *
 * Everything that a file claims (counts, lengths, offsets, sizes) is checked against the file's real
 * size before anything that depends on it is allocated or read. A rejected file gives one sentence:
 * file, key or tensor, what was found, what was expected. Versions 2 and 3, little-endian. Split
 * files (-00001-of-0000N.gguf) open from any shard's name and act as one directory. */
#ifndef DS_GGUF_GGUF_H
#define DS_GGUF_GGUF_H

#include "base/err.h"
#include "base/os.h"
#include "quant/type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ds_kv_type {
    DS_KV_U8, DS_KV_I8, DS_KV_U16, DS_KV_I16, DS_KV_U32, DS_KV_I32, DS_KV_F32, DS_KV_BOOL,
    DS_KV_STR, DS_KV_ARR, DS_KV_U64, DS_KV_I64, DS_KV_F64
};

struct ds_str { const char *p; size_t n; };          /* bytes in the map, not NUL-terminated */
/* s in printable ASCII for a sentence: other bytes as \xNN, cut after some 60 characters with "...". Returns dst. */
enum { DS_SHOW = 72 };
const char *ds_str_show(char dst[DS_SHOW], struct ds_str s);

struct ds_tensor {
    char name[64];                 /* NUL-terminated UTF-8; longer names are rejected */
    uint32_t n_dims;               /* 1..4 */
    uint64_t ne[4];                /* ne[0] is contiguous; unused dims are 1; none is 0 */
    const struct ds_type *type;    /* NULL: a type that exists but is not supported (see gguf_id) */
    uint32_t gguf_id;
    const void *data;              /* in the map, aligned to at least 8 bytes there; NULL when type is NULL, or in a directory made for a plan */
    uint64_t bytes;                /* 0 when type is NULL */
    int shard;                     /* which file of a split set; -1: data given to a writer, in no file */
    uint64_t file_off;             /* absolute offset in that file */
};

/* What a file may claim at most. Real files stay far below; the limits keep the memory and the time that a hostile one
 * costs small, sparse files of terabytes included. */
enum {
    DS_GGUF_MAX_KEYS = 1 << 16, DS_GGUF_MAX_TENSORS = 1 << 20, DS_GGUF_MAX_ALIGNMENT = 1 << 24,
    DS_GGUF_MAX_ARRAY_ELEMENTS = 1 << 25     /* all arrays together */
};

struct ds_gguf;                    /* opaque */

ds_status ds_gguf_open(struct ds_gguf **out, const char *path, struct ds_err *e);
/* The same parser on bytes in memory (fuzzing, tests); data must outlive the object and be 8-byte aligned. A shard of a
 * split set is refused: its siblings are files. */
ds_status ds_gguf_open_mem(struct ds_gguf **out, const char *label, const void *data, size_t n, struct ds_err *e);
void ds_gguf_close(struct ds_gguf *g);               /* NULL allowed */

const char *ds_gguf_path(const struct ds_gguf *g);
uint64_t ds_gguf_file_bytes(const struct ds_gguf *g);        /* all shards */
/* XXH64 of the header bytes and, per tensor, its first and last 4 KiB. Computed at each call: it reads from every tensor. */
uint64_t ds_gguf_hash(const struct ds_gguf *g);
int ds_gguf_n_shards(const struct ds_gguf *g);               /* 0 for an object made by ds_gguf_from_writer */
const struct ds_map *ds_gguf_shard(const struct ds_gguf *g, int i);

size_t ds_gguf_n_tensors(const struct ds_gguf *g);
const struct ds_tensor *ds_gguf_tensor(const struct ds_gguf *g, size_t i);
const struct ds_tensor *ds_gguf_find(const struct ds_gguf *g, const char *name);   /* hashed; NULL when absent */

/* Keys (of the first shard). `has` tells presence; getters fail with a sentence when the key is absent or of another kind.
 * Integers are accepted from any integer type that holds the value; f64 takes any numeric type and does not look at the
 * value, which may be NaN. */
size_t ds_gguf_n_keys(const struct ds_gguf *g);
struct ds_str ds_gguf_key_name(const struct ds_gguf *g, size_t i);
bool ds_gguf_has(const struct ds_gguf *g, const char *key);
ds_status ds_gguf_u64(const struct ds_gguf *g, const char *key, uint64_t *v, struct ds_err *e);
ds_status ds_gguf_f64(const struct ds_gguf *g, const char *key, double *v, struct ds_err *e);
ds_status ds_gguf_bool(const struct ds_gguf *g, const char *key, bool *v, struct ds_err *e);
ds_status ds_gguf_str(const struct ds_gguf *g, const char *key, struct ds_str *v, struct ds_err *e);
/* Arrays: n elements of type t, never arrays. Strings are reached by index in O(1) (an index is built at open). An index
 * past the end, or an accessor that does not fit t, gives 0 or the empty string. */
struct ds_arr { enum ds_kv_type t; uint64_t n; const void *impl; };
ds_status ds_gguf_arr(const struct ds_gguf *g, const char *key, struct ds_arr *a, struct ds_err *e);
struct ds_str ds_arr_str(const struct ds_arr *a, uint64_t i);
int64_t ds_arr_int(const struct ds_arr *a, uint64_t i);      /* any integer or bool type; a u64 above INT64_MAX saturates */
double ds_arr_num(const struct ds_arr *a, uint64_t i);       /* any numeric type */
bool ds_kv_is_int(enum ds_kv_type t);                        /* u8 .. i64, without bool */
const char *ds_kv_type_name(enum ds_kv_type t);              /* "u32", "string", ... */

/* --- writing (synth, tests, session tools) ---
 *
 * Build a directory in memory, then write it, or turn it into a struct ds_gguf without a file. A put never fails by itself:
 * what went wrong (memory, a duplicate, a shape that the type cannot have) is reported by the write, in the reader's own
 * sentence, because the finished header goes through the reader's checks. */
struct ds_gguf_writer;
struct ds_gguf_writer *ds_gguf_writer_new(void);             /* NULL: no memory */
void ds_gguf_writer_free(struct ds_gguf_writer *w);
void ds_gguf_put_u32(struct ds_gguf_writer *w, const char *key, uint32_t v);
void ds_gguf_put_f32(struct ds_gguf_writer *w, const char *key, float v);
void ds_gguf_put_bool(struct ds_gguf_writer *w, const char *key, bool v);
void ds_gguf_put_str(struct ds_gguf_writer *w, const char *key, const char *v);
void ds_gguf_put_u64(struct ds_gguf_writer *w, const char *key, uint64_t v);
void ds_gguf_put_i32s(struct ds_gguf_writer *w, const char *key, const int32_t *v, size_t n);
void ds_gguf_put_f32s(struct ds_gguf_writer *w, const char *key, const float *v, size_t n);
void ds_gguf_put_strs(struct ds_gguf_writer *w, const char *key, const char *const *v, size_t n);
/* Declares a tensor whose bytes lie at data (borrowed until the write, or until the object made by
 * ds_gguf_from_writer is closed). */
void ds_gguf_put_tensor(struct ds_gguf_writer *w, const char *name, const struct ds_type *type, uint32_t n_dims,
                        const uint64_t *ne, const void *data);
/* Is told the bytes that ds_gguf_write has written so far; non-zero stops it with DS_ECANCEL. */
void ds_gguf_writer_progress(struct ds_gguf_writer *w, int (*progress)(void *ctx, uint64_t done, uint64_t total), void *ctx);
/* Writes to PATH.part and renames, behind the links of PATH when it has some. On failure PATH is as it was, and no part is left. The
 * writer stays usable. */
ds_status ds_gguf_write(struct ds_gguf_writer *w, const char *path, struct ds_err *e);
/* An object over the writer's keys and tensors (tensor data stay where `data` points; the writer is consumed; `owned`, when
 * not NULL, is freed by own_free at close). NULL on failure: then the writer and `owned` are freed too. */
struct ds_gguf *ds_gguf_from_writer(struct ds_gguf_writer *w, const char *label, void *owned, void (*own_free)(void *),
                                    struct ds_err *e);

#endif
