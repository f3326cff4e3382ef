/* Searches in byte strings. */
#ifndef DS_CHAT_FIND_H
#define DS_CHAT_FIND_H

#include "gguf/gguf.h"

#include <stdbool.h>
#include <string.h>

/* Offset of the first `what` in s; s.n when there is none. */
static inline size_t ds_find(struct ds_str s, const char *what)
{
    size_t len = strlen(what);
    for (size_t i = 0; i + len <= s.n; i++) {
        const char *at = memchr(s.p + i, what[0], s.n - len - i + 1);
        if (!at) break;
        i = (size_t)(at - s.p);
        if (!memcmp(at, what, len)) return i;
    }
    return s.n;
}

static inline bool ds_begins(struct ds_str s, const char *with)
{
    size_t len = strlen(with);
    return s.n >= len && !memcmp(s.p, with, len);
}

static inline struct ds_str ds_after(struct ds_str s, size_t n)
{
    return (struct ds_str){ s.p + n, s.n - n };
}

static inline struct ds_str ds_text(const char *p)
{
    return (struct ds_str){ p ? p : "", p ? strlen(p) : 0 };
}

#endif
