/* UTF-8 well-formedness (RFC 3629: no overlong form, no surrogate, nothing above U+10FFFF). */
#ifndef DS_BASE_UTF8_H
#define DS_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the n >= 1 bytes at s begin with: a character (its length 1..4, *cp set), a character that more
 * bytes could complete (0), or no character at all (-1). */
int ds_utf8_scan(const unsigned char *s, size_t n, uint32_t *cp);
/* Writes a scalar value, returns its length. */
size_t ds_utf8_put(char dst[4], uint32_t cp);
/* Length of the well-formed sequence at p (1..4), or 0 when the n bytes there do not begin with one. n may be 0. */
size_t ds_utf8_len(const char *p, size_t n);
bool ds_utf8_valid(const char *p, size_t n);

#endif
