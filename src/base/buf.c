#include "base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ds_bytes_init(struct ds_bytes *b, size_t max)
{
    *b = (struct ds_bytes){ .max = max };
}

void ds_bytes_free(struct ds_bytes *b)
{
    free(b->p);
    *b = (struct ds_bytes){ .max = b->max };
}

/* Makes room for n more bytes and the NUL. */
static bool reserve(struct ds_bytes *b, size_t n)
{
    if (b->failed) return false;
    if (n > b->max || b->n > b->max - n || b->n + n == SIZE_MAX) {
        b->failed = true;
        return false;
    }
    size_t need = b->n + n + 1;
    if (need <= b->cap) return true;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need) cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    if (cap > b->max && b->max >= need) cap = b->max;
    char *p = realloc(b->p, cap);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

void ds_bytes_add(struct ds_bytes *b, const void *src, size_t n)
{
    if (!reserve(b, n)) return;
    if (n) memcpy(b->p + b->n, src, n);
    b->n += n;
    b->p[b->n] = 0;
}

void ds_bytes_puts(struct ds_bytes *b, const char *s)
{
    ds_bytes_add(b, s, strlen(s));
}

void ds_bytes_printf(struct ds_bytes *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) b->failed = true;
    else if (reserve(b, (size_t)n)) {
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
}
