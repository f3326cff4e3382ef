#include "base/json.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_WIDTH = 100 };

void ds_jo_init(struct ds_json_out *j, struct ds_bytes *b, bool pretty)
{
    memset(j, 0, sizeof *j);
    j->b = b;
    j->pretty = pretty;
    j->start = b->n;
}

static void newline(struct ds_json_out *j, int depth)
{
    ds_bytes_puts(j->b, "\n");
    for (int i = 0; i < depth; i++) ds_bytes_puts(j->b, "  ");
}

static size_t column(const struct ds_bytes *b)
{
    size_t n = 0;
    while (n < b->n && n < LINE_WIDTH && b->p[b->n - 1 - n] != '\n') n++;
    return n;
}

/* Comma and line break before an item of the innermost level. */
static void separate(struct ds_json_out *j, bool number)
{
    if (j->depth == 0) return;
    bool any = j->level[j->depth - 1].any;
    if (any) ds_bytes_puts(j->b, ",");
    j->level[j->depth - 1].any = true;
    if (!j->pretty) return;
    if (number && j->level[j->depth - 1].kind == '[' && column(j->b) < LINE_WIDTH) {
        if (any) ds_bytes_puts(j->b, " ");
        return;
    }
    j->level[j->depth - 1].broken = true;
    newline(j, j->depth);
}

/* Before every value. False, with the buffer failed, where no value may stand. */
static bool begin(struct ds_json_out *j, bool number)
{
    bool in_object = j->depth > 0 && j->level[j->depth - 1].kind == '{';
    if (j->b->failed || in_object != j->after_key || (j->depth == 0 && j->b->n > j->start)) {
        j->b->failed = true;
        return false;
    }
    if (!j->after_key) separate(j, number);
    j->after_key = false;
    return true;
}

static void open_level(struct ds_json_out *j, char kind)
{
    if (!begin(j, false)) return;
    if (j->depth == DS_JSON_DEPTH) {
        j->b->failed = true;
        return;
    }
    j->level[j->depth].kind = kind;
    j->level[j->depth].any = j->level[j->depth].broken = false;
    j->depth++;
    ds_bytes_add(j->b, &kind, 1);
}

static void close_level(struct ds_json_out *j, char kind, const char *end)
{
    if (j->b->failed || j->depth == 0 || j->level[j->depth - 1].kind != kind || j->after_key) {
        j->b->failed = true;
        return;
    }
    j->depth--;
    if (j->level[j->depth].broken) newline(j, j->depth);
    ds_bytes_puts(j->b, end);
}

void ds_jo_obj(struct ds_json_out *j) { open_level(j, '{'); }
void ds_jo_obj_end(struct ds_json_out *j) { close_level(j, '{', "}"); }
void ds_jo_arr(struct ds_json_out *j) { open_level(j, '['); }
void ds_jo_arr_end(struct ds_json_out *j) { close_level(j, '[', "]"); }

static void quoted(struct ds_bytes *b, const char *s, size_t n)
{
    ds_bytes_puts(b, "\"");
    while (n) {
        size_t len = ds_utf8_len(s, n);
        unsigned char c = (unsigned char)s[0];
        const char *known = "\bb\ff\nn\rr\tt", *name = c && c < 0x20 ? strchr(known, c) : NULL;
        if (len == 0) {
            ds_bytes_puts(b, "\xef\xbf\xbd");
            len = 1;
        } else if (c == '"' || c == '\\') {
            ds_bytes_puts(b, "\\");
            ds_bytes_add(b, s, 1);
        } else if (name) {
            ds_bytes_puts(b, "\\");
            ds_bytes_add(b, name + 1, 1);
        } else if (c < 0x20) {
            ds_bytes_printf(b, "\\u%04x", c);
        } else {
            ds_bytes_add(b, s, len);
        }
        s += len;
        n -= len;
    }
    ds_bytes_puts(b, "\"");
}

void ds_jo_key(struct ds_json_out *j, const char *key)
{
    if (j->b->failed || j->depth == 0 || j->level[j->depth - 1].kind != '{' || j->after_key) {
        j->b->failed = true;
        return;
    }
    separate(j, false);
    quoted(j->b, key, strlen(key));
    ds_bytes_puts(j->b, j->pretty ? ": " : ":");
    j->after_key = true;
}

void ds_jo_strn(struct ds_json_out *j, const char *s, size_t n)
{
    if (begin(j, false)) quoted(j->b, s, n);
}

void ds_jo_str(struct ds_json_out *j, const char *s)
{
    if (s) ds_jo_strn(j, s, strlen(s));
    else ds_jo_null(j);
}

void ds_jo_num(struct ds_json_out *j, double v)
{
    char text[40];
    if (!isfinite(v)) {
        ds_jo_null(j);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);   /* %g drops trailing zeros */
        if (strtod(text, NULL) == v) break;
    }
    for (char *p = text; *p; p++)
        if (!strchr("+-0123456789eE", *p)) *p = '.';   /* the locale's decimal point */
    if (begin(j, true)) ds_bytes_puts(j->b, text);
}

void ds_jo_int(struct ds_json_out *j, int64_t v)
{
    if (begin(j, true)) ds_bytes_printf(j->b, "%" PRId64, v);
}

void ds_jo_bool(struct ds_json_out *j, bool v)
{
    if (begin(j, false)) ds_bytes_puts(j->b, v ? "true" : "false");
}

void ds_jo_null(struct ds_json_out *j)
{
    if (begin(j, true)) ds_bytes_puts(j->b, "null");
}

void ds_jo_copy(struct ds_json_out *j, const struct ds_json *v)
{
    switch (v->kind) {
    case DS_JNULL: ds_jo_null(j); break;
    case DS_JBOOL: ds_jo_bool(j, v->num != 0); break;
    case DS_JNUM: ds_jo_num(j, v->num); break;
    case DS_JSTR: ds_jo_strn(j, v->str, v->n); break;
    case DS_JARR:
        ds_jo_arr(j);
        for (size_t i = 0; i < v->n; i++) ds_jo_copy(j, &v->items[i]);
        ds_jo_arr_end(j);
        break;
    case DS_JOBJ:
        ds_jo_obj(j);
        for (size_t i = 0; i < v->n; i++) {
            ds_jo_key(j, v->keys[i]);
            ds_jo_copy(j, &v->items[i]);
        }
        ds_jo_obj_end(j);
        break;
    }
}
