/* Growable bytes with a stated maximum. Failure is sticky: after one, every append is ignored and
 * `failed` is set, so that a caller checks once at the end. */
#ifndef DS_BASE_BUF_H
#define DS_BASE_BUF_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct ds_bytes {
    char *p;          /* NUL-terminated after every append (the NUL is not counted) */
    size_t n, cap, max;
    bool failed;
};
void ds_bytes_init(struct ds_bytes *b, size_t max);
void ds_bytes_free(struct ds_bytes *b);
void ds_bytes_add(struct ds_bytes *b, const void *src, size_t n);
void ds_bytes_puts(struct ds_bytes *b, const char *s);
void ds_bytes_printf(struct ds_bytes *b, const char *fmt, ...) DS_PRINTF(2, 3);

#endif
