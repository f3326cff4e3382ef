#include "base/utf8.h"

int ds_utf8_scan(const unsigned char *s, size_t n, uint32_t *cp)
{
    unsigned c = s[0], lo = 0x80, hi = 0xBF;
    int len;
    if (c < 0x80) {
        *cp = c;
        return 1;
    }
    if (c >= 0xC2 && c <= 0xDF) len = 2;
    else if ((c & 0xF0) == 0xE0) len = 3;
    else if (c >= 0xF0 && c <= 0xF4) len = 4;
    else return -1;
    if (c == 0xE0) lo = 0xA0;          /* below: overlong */
    else if (c == 0xED) hi = 0x9F;     /* above: surrogates */
    else if (c == 0xF0) lo = 0x90;     /* below: overlong */
    else if (c == 0xF4) hi = 0x8F;     /* above: past U+10FFFF */
    uint32_t v = c & (0x7Fu >> len);
    for (int i = 1; i < len; i++, lo = 0x80, hi = 0xBF) {
        if ((size_t)i == n) return 0;
        if (s[i] < lo || s[i] > hi) return -1;
        v = v << 6 | (s[i] & 0x3F);
    }
    *cp = v;
    return len;
}

size_t ds_utf8_put(char dst[4], uint32_t cp)
{
    if (cp < 0x80) {
        dst[0] = (char)cp;
        return 1;
    }
    size_t len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--, cp >>= 6) dst[i] = (char)(0x80 | (cp & 0x3F));
    dst[0] = (char)((0xF00u >> len & 0xFF) | cp);
    return len;
}

size_t ds_utf8_len(const char *p, size_t n)
{
    uint32_t cp;
    int len = n ? ds_utf8_scan((const unsigned char *)p, n, &cp) : 0;
    return len > 0 ? (size_t)len : 0;
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
