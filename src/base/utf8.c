#include "base/utf8.h"

size_t ds_utf8_len(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    if (n == 0) return 0;
    if (p[0] < 0x80) return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4) return 0;
    size_t len = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (n < len) return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    /* The lead byte alone cannot tell overlong forms, surrogates and values past U+10FFFF. */
    if (p[0] == 0xe0 && p[1] < 0xa0) return 0;
    if (p[0] == 0xed && p[1] > 0x9f) return 0;
    if (p[0] == 0xf0 && p[1] < 0x90) return 0;
    if (p[0] == 0xf4 && p[1] > 0x8f) return 0;
    return len;
}

bool ds_utf8_valid(const char *p, size_t n)
{
    while (n) {
        size_t len = ds_utf8_len(p, n);
        if (!len) return false;
        p += len;
        n -= len;
    }
    return true;
}
