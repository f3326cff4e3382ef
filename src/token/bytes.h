/* The byte alphabet of GPT-2: every byte has a printable character of its own, so that a vocabulary
 * can be written as text. Bytes 21-7E, A1-AC and AE-FF stand for themselves as code points; the
 * other 68, in increasing order, are U+0100, U+0101, ... (space is U+0120, line feed U+010A). */
#ifndef DS_TOKEN_BYTES_H
#define DS_TOKEN_BYTES_H

#include <stddef.h>
#include <stdint.h>

uint32_t ds_byte_symbol(unsigned char byte);         /* byte -> code point */
/* Turns a spelling back into bytes; characters outside the alphabet, and bytes that are no UTF-8,
 * stay as they are. Writes at most n bytes; dst may not overlap s. Returns the number written. */
size_t ds_bytes_unspell(char *dst, const char *s, size_t n);

#endif
