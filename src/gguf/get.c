/* Values of keys, with a sentence for each way in which one is not what the caller needs. */
#include "gguf/dir.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *ds_str_show(char dst[DS_SHOW], struct ds_str s)
{
    size_t at = 0;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        bool plain = c >= 0x20 && c < 0x7f && c != '\\';
        if (at + 4 + 4 > DS_SHOW) {   /* room for one more escape, or for the dots, and the NUL */
            memcpy(dst + at, "...", 3);
            at += 3;
            break;
        }
        if (plain) dst[at++] = (char)c;
        else at += (size_t)snprintf(dst + at, DS_SHOW - at, "\\x%02x", c);
    }
    dst[at] = 0;
    return dst;
}

const char *ds_kv_type_name(enum ds_kv_type t)
{
    static const char *const names[] = { "u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64" };
    return (unsigned)t < sizeof names / sizeof *names ? names[t] : "unknown";
}

size_t ds_kv_bytes(enum ds_kv_type t)
{
    static const unsigned char bytes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    return bytes[t];
}

bool ds_kv_is_int(enum ds_kv_type t)
{
    return t != DS_KV_F32 && t != DS_KV_F64 && t != DS_KV_BOOL && t != DS_KV_STR && t != DS_KV_ARR;
}

/* --- scalars at an address --- */

static float f32_at(const unsigned char *p)
{
    uint32_t bits = ds_le32(p);
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static double f64_at(const unsigned char *p)
{
    uint64_t bits = ds_le64(p);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Integers and bools; u64 values keep their bits. */
static int64_t int_at(enum ds_kv_type t, const unsigned char *p)
{
    switch (t) {
    case DS_KV_U8: case DS_KV_BOOL: return p[0];
    case DS_KV_I8: return (int8_t)p[0];
    case DS_KV_U16: return p[0] | p[1] << 8;
    case DS_KV_I16: return (int16_t)(p[0] | p[1] << 8);
    case DS_KV_U32: return ds_le32(p);
    case DS_KV_I32: return (int32_t)ds_le32(p);
    case DS_KV_U64: case DS_KV_I64: return (int64_t)ds_le64(p);
    default: return 0;
    }
}

static double num_at(enum ds_kv_type t, const unsigned char *p)
{
    if (t == DS_KV_F32) return f32_at(p);
    if (t == DS_KV_F64) return f64_at(p);
    if (t == DS_KV_U64) return (double)ds_le64(p);
    return (double)int_at(t, p);
}

/* --- keys --- */

/* Begins every sentence about a key. The key may be the file's own, with any bytes in it. */
static ds_status bad(const char *label, const char *key, struct ds_err *e, const char *what)
{
    char shown[DS_SHOW];
    return ds_fail(e, DS_EFORMAT, "%s: key '%s' %s", label, ds_str_show(shown, (struct ds_str){ key, strlen(key) }), what);
}

static ds_status missing(const char *label, const char *key, struct ds_err *e)
{
    return bad(label, key, e, "is missing");
}

static ds_status wrong_type(const char *label, const struct ds_kv *kv, const char *key, const char *expected, struct ds_err *e)
{
    char what[96];
    if (kv->t == DS_KV_ARR) snprintf(what, sizeof what, "is an array of %s, expected %s", ds_kv_type_name(kv->elem), expected);
    else snprintf(what, sizeof what, "has type %s, expected %s", ds_kv_type_name(kv->t), expected);
    return bad(label, key, e, what);
}

ds_status ds_keys_u64(const struct ds_keys *k, const char *label, const char *key, uint64_t *v, struct ds_err *e)
{
    char what[96];
    const struct ds_kv *kv = ds_keys_find(k, key);
    if (!kv) return missing(label, key, e);
    if (!ds_kv_is_int(kv->t)) return wrong_type(label, kv, key, "an integer", e);
    int64_t i = int_at(kv->t, kv->p);
    if (i < 0 && kv->t != DS_KV_U64) {
        snprintf(what, sizeof what, "is %" PRId64 ", expected a number that is not negative", i);
        return bad(label, key, e, what);
    }
    *v = (uint64_t)i;
    return DS_OK;
}

ds_status ds_gguf_u64(const struct ds_gguf *g, const char *key, uint64_t *v, struct ds_err *e)
{
    return ds_keys_u64(&g->keys, g->label, key, v, e);
}

ds_status ds_gguf_f64(const struct ds_gguf *g, const char *key, double *v, struct ds_err *e)
{
    const struct ds_kv *kv = ds_keys_find(&g->keys, key);
    if (!kv) return missing(g->label, key, e);
    if (kv->t != DS_KV_F32 && kv->t != DS_KV_F64 && !ds_kv_is_int(kv->t)) return wrong_type(g->label, kv, key, "a number", e);
    *v = num_at(kv->t, kv->p);
    return DS_OK;
}

ds_status ds_gguf_bool(const struct ds_gguf *g, const char *key, bool *v, struct ds_err *e)
{
    const struct ds_kv *kv = ds_keys_find(&g->keys, key);
    if (!kv) return missing(g->label, key, e);
    if (kv->t != DS_KV_BOOL) return wrong_type(g->label, kv, key, "a bool", e);
    *v = kv->p[0] != 0;
    return DS_OK;
}

ds_status ds_gguf_str(const struct ds_gguf *g, const char *key, struct ds_str *v, struct ds_err *e)
{
    const struct ds_kv *kv = ds_keys_find(&g->keys, key);
    if (!kv) return missing(g->label, key, e);
    if (kv->t != DS_KV_STR) return wrong_type(g->label, kv, key, "a string", e);
    *v = (struct ds_str){ (const char *)kv->p, (size_t)kv->n };
    return DS_OK;
}

ds_status ds_gguf_arr(const struct ds_gguf *g, const char *key, struct ds_arr *a, struct ds_err *e)
{
    const struct ds_kv *kv = ds_keys_find(&g->keys, key);
    if (!kv) return missing(g->label, key, e);
    if (kv->t != DS_KV_ARR) return wrong_type(g->label, kv, key, "an array", e);
    *a = (struct ds_arr){ kv->elem, kv->n, kv };
    return DS_OK;
}

size_t ds_gguf_n_keys(const struct ds_gguf *g) { return g->keys.n; }

struct ds_str ds_gguf_key_name(const struct ds_gguf *g, size_t i)
{
    return i < g->keys.n ? g->keys.kv[i].key : (struct ds_str){ "", 0 };
}

bool ds_gguf_has(const struct ds_gguf *g, const char *key)
{
    return ds_keys_find(&g->keys, key) != NULL;
}

/* --- elements --- */

/* Address of element i of a numeric array, or NULL. */
static const unsigned char *element(const struct ds_arr *a, uint64_t i)
{
    const struct ds_kv *kv = a->impl;
    size_t size = ds_kv_bytes(a->t);
    return i < a->n && size ? kv->p + i * size : NULL;
}

struct ds_str ds_arr_str(const struct ds_arr *a, uint64_t i)
{
    const struct ds_kv *kv = a->impl;
    if (a->t != DS_KV_STR || i >= a->n) return (struct ds_str){ "", 0 };
    const unsigned char *p = kv->strs[i];
    return (struct ds_str){ (const char *)p + 8, (size_t)ds_le64(p) };
}

int64_t ds_arr_int(const struct ds_arr *a, uint64_t i)
{
    const unsigned char *p = element(a, i);
    if (!p) return 0;
    int64_t v = int_at(a->t, p);
    return v < 0 && a->t == DS_KV_U64 ? INT64_MAX : v;
}

double ds_arr_num(const struct ds_arr *a, uint64_t i)
{
    const unsigned char *p = element(a, i);
    return p ? num_at(a->t, p) : 0;
}
