/* GGUF files byte by byte, for tests that need files which no writer would make. Little-endian. The caller sees that the
 * capacity suffices; a builder that ran over says so in `full`. */
#ifndef DS_TESTS_GGUF_BYTES_H
#define DS_TESTS_GGUF_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct gb { unsigned char *p; size_t n, cap; int full; };

enum gb_type { GB_U8, GB_I8, GB_U16, GB_I16, GB_U32, GB_I32, GB_F32, GB_BOOL, GB_STR, GB_ARR, GB_U64, GB_I64, GB_F64 };
enum { GB_T_F32 = 0, GB_T_Q8_0 = 8, GB_T_IQ2_XXS = 16, GB_T_I8 = 24, GB_T_I32 = 26 };

static inline void gb_raw(struct gb *b, const void *src, size_t n)
{
    if (n > b->cap - b->n) {
        b->full = 1;
        return;
    }
    memcpy(b->p + b->n, src, n);
    b->n += n;
}

static inline void gb_int(struct gb *b, uint64_t v, int bytes)
{
    unsigned char le[8];
    for (int i = 0; i < 8; i++) le[i] = (unsigned char)(v >> 8 * i);
    gb_raw(b, le, (size_t)bytes);
}

static inline void gb_fill(struct gb *b, int byte, size_t n)
{
    unsigned char c = (unsigned char)byte;
    while (n--) gb_raw(b, &c, 1);
}

static inline void gb_strn(struct gb *b, const char *s, size_t n)
{
    gb_int(b, n, 8);
    gb_raw(b, s, n);
}
static inline void gb_str(struct gb *b, const char *s) { gb_strn(b, s, strlen(s)); }

static inline void gb_header(struct gb *b, uint32_t version, uint64_t n_tensors, uint64_t n_keys)
{
    gb_raw(b, "GGUF", 4);
    gb_int(b, version, 4);
    gb_int(b, n_tensors, 8);
    gb_int(b, n_keys, 8);
}

static inline void gb_key(struct gb *b, const char *key, uint32_t type)
{
    gb_str(b, key);
    gb_int(b, type, 4);
}
static inline void gb_key_u32(struct gb *b, const char *key, uint32_t v) { gb_key(b, key, GB_U32); gb_int(b, v, 4); }
static inline void gb_key_u16(struct gb *b, const char *key, uint32_t v) { gb_key(b, key, GB_U16); gb_int(b, v, 2); }
static inline void gb_key_str(struct gb *b, const char *key, const char *v) { gb_key(b, key, GB_STR); gb_str(b, v); }
static inline void gb_key_arr(struct gb *b, const char *key, uint32_t elem, uint64_t n)
{
    gb_key(b, key, GB_ARR);
    gb_int(b, elem, 4);
    gb_int(b, n, 8);
}

static inline void gb_tensor(struct gb *b, const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type, uint64_t off)
{
    gb_str(b, name);
    gb_int(b, n_dims, 4);
    for (uint32_t d = 0; d < n_dims && d < 5; d++) gb_int(b, ne[d], 8);
    gb_int(b, type, 4);
    gb_int(b, off, 8);
}
static inline void gb_tensor1(struct gb *b, const char *name, uint64_t n, uint32_t type, uint64_t off)
{
    gb_tensor(b, name, 1, &n, type, off);
}

static inline void gb_align(struct gb *b, size_t a)
{
    while (b->n % a && !b->full) gb_fill(b, 0, 1);
}

#endif
