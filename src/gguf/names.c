#include "base/hash.h"
#include "gguf/dir.h"

#include <stdlib.h>
#include <string.h>

/* The slot that holds name, or the empty one where it belongs. */
static uint32_t *slot_of(const struct ds_names *t, const void *list, ds_name_at *at, struct ds_str name)
{
    size_t i = (size_t)ds_hash64(name.p, name.n, t->seed) & t->mask;
    for (; t->slot[i]; i = (i + 1) & t->mask) {
        struct ds_str s = at(list, t->slot[i] - 1);
        if (s.n == name.n && !memcmp(s.p, name.p, s.n)) break;
    }
    return &t->slot[i];
}

bool ds_names_build(struct ds_names *t, const void *list, size_t n, ds_name_at *at, size_t *first, size_t *dup)
{
    size_t cap = 8;
    while (cap < 2 * n) cap *= 2;
    t->slot = calloc(cap, sizeof *t->slot);
    t->mask = cap - 1;
    t->seed = ds_now_ns() ^ (uint64_t)(uintptr_t)t->slot;
    *dup = n;
    if (!t->slot) return false;
    for (size_t i = 0; i < n; i++) {
        uint32_t *s = slot_of(t, list, at, at(list, i));
        if (*s) {
            *first = *s - 1;
            *dup = i;
            free(t->slot);
            t->slot = NULL;
            return false;
        }
        *s = (uint32_t)i + 1;
    }
    return true;
}

size_t ds_names_find(const struct ds_names *t, const void *list, ds_name_at *at, struct ds_str name)
{
    uint32_t s = t->slot ? *slot_of(t, list, at, name) : 0;
    return s ? s - 1 : SIZE_MAX;
}
