#include "token/bytes.h"

#include "base/utf8.h"

#include <stdbool.h>
#include <string.h>

static bool stands_for_itself(unsigned b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

/* The bytes that do not stand for themselves are 00-20, 7F-A0 and AD: 33 + 34 + 1. */
uint32_t ds_byte_symbol(unsigned char byte)
{
    if (stands_for_itself(byte)) return byte;
    if (byte <= 0x20) return 0x100u + byte;
    if (byte <= 0xA0) return 0x100u + 33 + (byte - 0x7Fu);
    return 0x100u + 67;
}

static int symbol_byte(uint32_t cp)
{
    if (cp < 0x100) return stands_for_itself(cp) ? (int)cp : -1;
    cp -= 0x100;
    return cp < 33 ? (int)cp : cp < 67 ? (int)(0x7F + cp - 33) : cp == 67 ? 0xAD : -1;
}

size_t ds_bytes_unspell(char *dst, const char *s, size_t n)
{
    size_t w = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = ds_utf8_scan((const unsigned char *)s + i, n - i, &cp);
        int b = len > 0 ? symbol_byte(cp) : -1;
        if (b >= 0) {
            dst[w++] = (char)b;
        } else {
            if (len <= 0) len = 1;
            memcpy(dst + w, s + i, (size_t)len);
            w += (size_t)len;
        }
        i += (size_t)len;
    }
    return w;
}
