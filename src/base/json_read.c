#include "base/json.h"
#include "base/utf8.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    const char *start, *p, *end;
    struct ds_err *e;
};

/* One sentence with the place. Always false, so that a check is one statement. */
static bool bad(const struct parser *s, const char *what)
{
    size_t line = 1, column = 1;
    for (const char *q = s->start; q < s->p; q++) {
        column++;
        if (*q == '\n') {
            line++;
            column = 1;
        }
    }
    ds_fail(s->e, DS_EFORMAT, "JSON line %zu column %zu: %s", line, column, what);
    return false;
}

static bool no_memory(const struct parser *s)
{
    ds_fail(s->e, DS_ENOMEM, "no memory for a JSON text of %zu bytes", (size_t)(s->end - s->start));
    return false;
}

static void skip_space(struct parser *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r')) s->p++;
}

static bool take(struct parser *s, char c)
{
    if (s->p == s->end || *s->p != c) return false;
    s->p++;
    return true;
}

static bool digits(struct parser *s)
{
    const char *from = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9') s->p++;
    return s->p > from;
}

static bool number(struct parser *s, struct ds_json *v)
{
    const char *from = s->p;
    char text[512];
    take(s, '-');
    if (!take(s, '0') && !digits(s)) return bad(s, "expected a value");
    if (take(s, '.') && !digits(s)) return bad(s, "expected a digit after the decimal point");
    if (take(s, 'e') || take(s, 'E')) {
        if (!take(s, '+')) take(s, '-');
        if (!digits(s)) return bad(s, "expected a digit in the exponent");
    }
    size_t n = (size_t)(s->p - from);
    if (n >= sizeof text) return bad(s, "number has more than 511 characters");
    memcpy(text, from, n);
    text[n] = 0;
    char *dot = strchr(text, '.');
    if (dot) *dot = localeconv()->decimal_point[0];   /* what strtod expects */
    v->kind = DS_JNUM;
    v->num = strtod(text, NULL);
    return isfinite(v->num) ? true : bad(s, "number is out of range");
}

static bool hex4(struct parser *s, unsigned *out)
{
    unsigned v = 0;
    if (s->end - s->p < 4) return false;
    for (int i = 0; i < 4; i++) {
        const char *all = "0123456789abcdef0123456789ABCDEF", *at = s->p[i] ? strchr(all, s->p[i]) : NULL;
        if (!at) return false;
        v = v << 4 | (unsigned)((at - all) & 15);
    }
    s->p += 4;
    *out = v;
    return true;
}

/* After "\u". A pair of surrogates is one character, a lone one is U+FFFD. */
static bool unicode_escape(struct parser *s, unsigned *c)
{
    unsigned low;
    if (!hex4(s, c)) return bad(s, "expected four hexadecimal digits after \\u");
    if (*c < 0xd800 || *c > 0xdfff) return true;
    if (*c < 0xdc00 && s->end - s->p >= 6 && s->p[0] == '\\' && s->p[1] == 'u') {
        const char *back = s->p;
        s->p += 2;
        if (hex4(s, &low) && low >= 0xdc00 && low <= 0xdfff) {
            *c = 0x10000 + ((*c - 0xd800) << 10) + (low - 0xdc00);
            return true;
        }
        s->p = back;
    }
    *c = 0xfffd;
    return true;
}

/* Decodes the string at p (on its opening quote) into fresh memory. No escape is shorter than what it stands for. */
static bool string(struct parser *s, char **out, size_t *out_n)
{
    const char *q = ++s->p;
    while (q < s->end && *q != '"') q += *q == '\\' && q + 1 < s->end ? 2 : 1;
    if (q >= s->end) return bad(s, "string has no end");
    char *d = malloc((size_t)(q - s->p) + 1);
    size_t n = 0;
    *out = d;
    if (!d) return no_memory(s);
    while (*s->p != '"') {
        unsigned char c = (unsigned char)*s->p;
        if (c < 0x20) return bad(s, "control character inside a string");
        if (c != '\\') {
            size_t len = ds_utf8_len(s->p, (size_t)(s->end - s->p));
            if (!len) return bad(s, "string is not valid UTF-8");
            memcpy(d + n, s->p, len);
            n += len;
            s->p += len;
            continue;
        }
        const char *from = "\"\\/bfnrt", *to = "\"\\/\b\f\n\r\t", *at = s->p[1] ? strchr(from, s->p[1]) : NULL;
        if (at) {
            d[n++] = to[at - from];
            s->p += 2;
        } else if (s->p[1] == 'u') {
            unsigned code;
            s->p += 2;
            if (!unicode_escape(s, &code)) return false;
            n += ds_utf8_put(d + n, code);
        } else {
            return bad(s, "unknown escape in a string");
        }
    }
    s->p++;
    d[n] = 0;
    *out_n = n;
    return true;
}

static bool value(struct parser *s, struct ds_json *v, int depth);

/* Room for one more item; capacities are powers of two, so the length alone tells when to grow. */
static bool grow(struct parser *s, struct ds_json *v)
{
    if (v->n & (v->n - 1)) return true;
    size_t cap = v->n ? v->n * 2 : 1;
    struct ds_json *items = realloc(v->items, cap * sizeof *items);
    if (!items) return no_memory(s);
    v->items = items;
    if (v->kind == DS_JARR) return true;
    char **keys = realloc(v->keys, cap * sizeof *keys);
    if (!keys) return no_memory(s);
    v->keys = keys;
    return true;
}

static bool container(struct parser *s, struct ds_json *v, int depth)
{
    bool object = *s->p++ == '{';
    char end = object ? '}' : ']';
    v->kind = object ? DS_JOBJ : DS_JARR;
    if (depth == DS_JSON_DEPTH) return bad(s, "nested deeper than 64 levels");
    skip_space(s);
    if (take(s, end)) return true;
    do {
        if (!grow(s, v)) return false;
        v->items[v->n] = (struct ds_json){ 0 };
        if (object) {
            size_t n;
            v->keys[v->n] = NULL;
            v->n++;
            skip_space(s);
            if (s->p == s->end || *s->p != '"') return bad(s, "expected a key in quotes");
            if (!string(s, &v->keys[v->n - 1], &n)) return false;
            if (strlen(v->keys[v->n - 1]) != n) return bad(s, "key contains NUL");
            skip_space(s);
            if (!take(s, ':')) return bad(s, "expected ':' after a key");
        } else {
            v->n++;
        }
        if (!value(s, &v->items[v->n - 1], depth + 1)) return false;
        skip_space(s);
    } while (take(s, ','));
    return take(s, end) ? true : bad(s, object ? "expected ',' or '}'" : "expected ',' or ']'");
}

static bool word(struct parser *s, const char *w)
{
    size_t n = strlen(w);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, w, n)) return bad(s, "expected a value");
    s->p += n;
    return true;
}

static bool value(struct parser *s, struct ds_json *v, int depth)
{
    skip_space(s);
    if (s->p == s->end) return bad(s, "text ends where a value is due");
    switch (*s->p) {
    case '{': case '[': return container(s, v, depth);
    case '"': v->kind = DS_JSTR; return string(s, &v->str, &v->n);
    case 't': v->kind = DS_JBOOL; v->num = 1; return word(s, "true");
    case 'f': v->kind = DS_JBOOL; return word(s, "false");
    case 'n': return word(s, "null");
    default: return number(s, v);
    }
}

static void release(struct ds_json *v)
{
    if (v->kind == DS_JARR || v->kind == DS_JOBJ)
        for (size_t i = 0; i < v->n; i++) {
            release(&v->items[i]);
            if (v->keys) free(v->keys[i]);
        }
    free(v->items);
    free(v->keys);
    free(v->str);
}

struct ds_json *ds_json_parse(const char *text, size_t n, struct ds_err *e)
{
    struct parser s = { text, text, text + n, e };
    struct ds_json *v = calloc(1, sizeof *v);
    if (!v) {
        no_memory(&s);
        return NULL;
    }
    if (value(&s, v, 0)) {
        skip_space(&s);
        if (s.p == s.end) return v;
        bad(&s, "text goes on after the value");
    }
    ds_json_free(v);
    return NULL;
}

void ds_json_free(struct ds_json *v)
{
    if (!v) return;
    release(v);
    free(v);
}

const struct ds_json *ds_json_get(const struct ds_json *obj, const char *key)
{
    if (!obj || obj->kind != DS_JOBJ) return NULL;
    for (size_t i = 0; i < obj->n; i++)
        if (!strcmp(obj->keys[i], key)) return &obj->items[i];
    return NULL;
}
