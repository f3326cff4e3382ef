/* Bodies of requests as JSON, within limits: a text may cost no more than it is worth. */
#include "server/api.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An object takes some 200 bytes once it is read, a number 50: a long list of ids is for the window to refuse. */
enum { DEPTH_MAX = 128, VALUES_MAX = 1 << 20, NUMBERS_MAX = 8 << 20 };

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

/* Where a value stands: at each level the key before the last colon, or in an array the number of commas. */
struct place { const char *key; size_t n, index; bool array; };

static void name_place(const struct place *at, int depth, char *dst, size_t size)
{
    size_t n = 0;
    for (int i = 1; i <= depth && n < size; i++) {
        if (at[i].array) n += (size_t)snprintf(dst + n, size - n, "[%zu]", at[i].index);
        else n += (size_t)snprintf(dst + n, size - n, "%s%.*s", n ? "." : "", at[i].n < size ? (int)at[i].n : (int)size, at[i].key);
    }
}

/* A whole number that 64 bits do not hold, as a decimal fraction of the same length: the JSON library takes no larger ones. */
static void shorten(char *p, size_t n)
{
    char digits[8], *end = p + n;
    if (*p == '-') p++;
    size_t len = (size_t)(end - p), tail = (size_t)snprintf(digits, sizeof digits, "e%zu", len - 1);
    memmove(p + 2, p + 1, len - 2);
    p[1] = '.';
    memcpy(end - tail, digits, tail);
}

/* A number that no field can take is refused here, where its digits are at hand. */
static bool check_number(char *p, size_t n, const struct place *at, int depth, struct ds_refusal *r)
{
    size_t sign = *p == '-', digits = strspn(p + sign, "0123456789");
    bool whole = sign + digits == n, huge = digits >= 300 || memchr(p, 'e', n) || memchr(p, 'E', n);
    char name[64] = "";
    if (huge && !isfinite(strtod(p, NULL))) {
        name_place(at, depth, name, sizeof name);
        return ds_refuse(r, 400, name, "'%s' holds the number %.*s%s, which is out of every range", name, n < 40 ? (int)n : 40, p,
                         n < 40 ? "" : "...");
    }
    errno = 0;
    if (whole && digits > 18 && p[sign] != '0' && (strtoll(p, NULL, 10), errno)) shorten(p, n);
    return true;
}

static size_t number_length(const char *p)
{
    return strspn(p, "+-.0123456789eE");
}

static size_t string_length(char *p, size_t n)
{
    size_t i = 1;
    while (i < n && p[i] != '"') i = p[i] == '\\' ? mend_escape(p, i, n) : i + 1;
    return i < n ? i + 1 : n;
}

/* Before the JSON library sees it: within limits, with strings that make no character (half a surrogate pair) as U+FFFD
 * and with numbers that it can hold, all in place. */
static bool prepare(char *p, size_t n, struct ds_refusal *r)
{
    int depth = 0;
    size_t values = 1, numbers = 0, len;
    struct place at[DEPTH_MAX + 2] = { { .key = "" } };
    const char *string = "";
    size_t n_string = 0;
    for (size_t i = 0; i < n; i += len) {
        char c = p[i];
        len = 1;
        if (c == '"') {
            len = string_length(p + i, n - i);
            string = p + i + 1;
            n_string = len > 2 ? len - 2 : 0;
        } else if (c == '-' || (c >= '0' && c <= '9')) {
            len = number_length(p + i);
            if (!check_number(p + i, len, at, depth, r)) return false;
            numbers++;
        }
        if (c == ':') at[depth].key = string, at[depth].n = n_string;
        if (c == ',') at[depth].index++;
        if (c == '[' || c == '{') at[++depth] = (struct place){ .key = "", .array = c == '[' };
        if ((c == ']' || c == '}') && depth) depth--;
        if (c == ',' || c == ':') values++;
        if (depth > DEPTH_MAX) return ds_refuse(r, 400, NULL, "the JSON is nested deeper than %d levels", DEPTH_MAX);
        if (values > VALUES_MAX + numbers) return ds_refuse(r, 400, NULL, "the JSON holds more than %d values beside numbers", VALUES_MAX);
        if (numbers > NUMBERS_MAX) return ds_refuse(r, 400, NULL, "the JSON holds more than %d numbers", NUMBERS_MAX);
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
