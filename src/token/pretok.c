#include "token/pretok.h"

#include "base/utf8.h"
#include "token/unicode.h"

#include <stdint.h>
#include <string.h>

static const struct ds_pretok flavours[] = {
    { "qwen35", true },
    { "qwen2", false },
};

const struct ds_pretok *ds_pretok_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof flavours / sizeof *flavours; i++)
        if (strlen(flavours[i].name) == n && !memcmp(flavours[i].name, name, n)) return &flavours[i];
    return NULL;
}

const char *ds_pretok_names(void)
{
    return "qwen35, qwen2";
}

/* --- units: one character, or one byte that is none -------------------------------------------- */

enum cls { LETTER = 1, NUMBER = 2, NEWLINE = 4, SPACE = 8, OTHER = 16 };   /* SPACE: white space but CR and LF */
struct unit { enum cls cls; unsigned len; };

static enum cls class_of(const struct ds_pretok *p, uint32_t cp)
{
    switch (ds_char_class(cp)) {
    case DS_CHAR_LETTER: return LETTER;
    case DS_CHAR_MARK:   return p->marks_are_letters ? LETTER : OTHER;
    case DS_CHAR_NUMBER: return NUMBER;
    case DS_CHAR_SPACE:  return SPACE;
    default:             return OTHER;
    }
}

static struct unit unit_at(const struct ds_pretok *p, const unsigned char *s, size_t n)
{
    unsigned c = s[0];
    if (c < 0x80) {
        unsigned lower = c | 0x20;
        if (lower >= 'a' && lower <= 'z') return (struct unit){ LETTER, 1 };
        if (c > ' ') return (struct unit){ c >= '0' && c <= '9' ? NUMBER : OTHER, 1 };
        if (c == '\n' || c == '\r') return (struct unit){ NEWLINE, 1 };
        return (struct unit){ c == ' ' || (c >= 0x09 && c <= 0x0D) ? SPACE : OTHER, 1 };
    }
    uint32_t cp;
    int len = ds_utf8_scan(s, n, &cp);
    if (len <= 0) return (struct unit){ OTHER, 1 };
    return (struct unit){ class_of(p, cp), (unsigned)len };
}

/* End of the run from i of units whose class is in the set. */
static size_t run(const struct ds_pretok *p, const unsigned char *s, size_t n, size_t i, unsigned set)
{
    while (i < n) {
        struct unit u = unit_at(p, s + i, n - i);
        if (!(u.cls & set)) break;
        i += u.len;
    }
    return i;
}

/* Length of 's 't 're 've 'm 'll 'd in any case at s, 0 when there is none. U+017F is a case of s. */
static size_t contraction(const unsigned char *s, size_t n)
{
    if (s[0] != '\'' || n < 2) return 0;
    if (n >= 3 && s[1] == 0xC5 && s[2] == 0xBF) return 3;
    unsigned a = s[1] | 0x20u, b = n >= 3 ? s[2] | 0x20u : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* The last three alternatives, at a white space. */
static size_t white_space(const struct ds_pretok *p, const unsigned char *s, size_t n)
{
    size_t end = 0, last = 0, after_newline = 0;     /* last: start of the run's last character */
    while (end < n) {
        struct unit u = unit_at(p, s + end, n - end);
        if (!(u.cls & (SPACE | NEWLINE))) break;
        last = end;
        end += u.len;
        if (u.cls == NEWLINE) after_newline = end;
    }
    if (after_newline) return after_newline;
    return end == n || last == 0 ? end : last;
}

size_t ds_pretok_next(const struct ds_pretok *p, const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t len = contraction(s, n);
    if (len) return len;

    /* A mark that is a letter here may also stand before the letters: the same piece either way. */
    struct unit u = unit_at(p, s, n);
    if (u.cls == LETTER) return run(p, s, n, u.len, LETTER);
    if (u.cls == NUMBER) return u.len;
    if (u.cls == NEWLINE) return white_space(p, s, n);

    struct unit next = { 0, 0 };
    if (u.len < n) next = unit_at(p, s + u.len, n - u.len);
    if (next.cls == LETTER) return run(p, s, n, u.len + next.len, LETTER);
    if (u.cls == OTHER || (s[0] == ' ' && next.cls == OTHER)) return run(p, s, n, run(p, s, n, u.len, OTHER), NEWLINE);
    return white_space(p, s, n);
}
