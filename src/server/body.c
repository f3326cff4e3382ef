/* Bodies of requests as JSON, within limits: a text may cost no more than it is worth. */
#include "server/api.h"

#include <string.h>

enum { DEPTH_MAX = 128, VALUES_MAX = 8 << 20 };

static int hex4(const char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int c = p[i], d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* p[i] is the backslash of an escape in a string; returns where the escape ends. */
static size_t mend_escape(char *p, size_t i, size_t n)
{
    if (i + 6 > n || p[i + 1] != 'u') return i + 2;
    int v = hex4(p + i + 2);
    if (v < 0xD800 || v > 0xDFFF) return i + 6;
    if (v < 0xDC00 && i + 12 <= n && p[i + 6] == '\\' && p[i + 7] == 'u') {
        int low = hex4(p + i + 8);
        if (low >= 0xDC00 && low <= 0xDFFF) return i + 12;
    }
    memcpy(p + i + 2, "fffd", 4);
    return i + 6;
}

/* Strings that make no character (half a surrogate pair) become U+FFFD in place. */
static bool prepare(char *p, size_t n, struct ds_refusal *r)
{
    int depth = 0;
    size_t values = 1;
    bool in_string = false;
    for (size_t i = 0; i < n;) {
        char c = p[i];
        if (in_string && c == '\\') {
            i = mend_escape(p, i, n);
            continue;
        }
        if (c == '"') in_string = !in_string;
        else if (!in_string && (c == '[' || c == '{')) depth++;
        else if (!in_string && (c == ']' || c == '}')) depth--;
        else if (!in_string && (c == ',' || c == ':')) values++;
        if (depth > DEPTH_MAX) return ds_refuse(r, 400, NULL, "the JSON is nested deeper than %d levels", DEPTH_MAX);
        if (values > VALUES_MAX) return ds_refuse(r, 400, NULL, "the JSON holds more than %d values", VALUES_MAX);
        i++;
    }
    return true;
}

json_t *ds_body_parse(struct ds_bytes *b, struct ds_refusal *r)
{
    json_error_t err;
    if (!b->n) return ds_refuse(r, 400, NULL, "the body is empty, expected a JSON object"), NULL;
    if (!prepare(b->p, b->n, r)) return NULL;
    json_t *v = json_loadb(b->p, b->n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &err);
    if (!v) return ds_refuse(r, 400, NULL, "the body is not JSON: %s (line %d, column %d)", err.text, err.line, err.column), NULL;
    if (json_is_object(v)) return v;
    json_decref(v);
    return ds_refuse(r, 400, NULL, "the body is not a JSON object"), NULL;
}
