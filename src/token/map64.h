/* Hash table u64 -> u64 for tables that are filled once and then only read.
 *
 * Open addressing, at most half full. The mix is seeded, so that a file cannot be written to make
 * its own keys collide. Keys must not be 2^64 - 1. */
#ifndef DS_TOKEN_MAP64_H
#define DS_TOKEN_MAP64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ds_map64_slot { uint64_t key1, value; };      /* key + 1; 0: free */
struct ds_map64 {
    struct ds_map64_slot *slot;
    uint64_t seed;
    int shift;                                       /* 64 - log2(slots) */
};

bool ds_map64_init(struct ds_map64 *t, size_t max_keys, uint64_t seed);      /* false: no memory */
void ds_map64_free(struct ds_map64 *t);                                      /* accepts a zeroed struct */
/* Adds key unless it is there; at most max_keys may be added. */
void ds_map64_add(struct ds_map64 *t, uint64_t key, uint64_t value);

static inline size_t ds_map64_home(const struct ds_map64 *t, uint64_t key)
{
    uint64_t h = (key ^ t->seed) * 0x9E3779B97F4A7C15u;      /* two rounds: one leaves the top bits a plain product */
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
    return (size_t)(h >> t->shift);
}

/* The key will be added or looked up soon. A hint. */
static inline void ds_map64_expect(const struct ds_map64 *t, uint64_t key)
{
#if defined(__GNUC__)
    __builtin_prefetch(&t->slot[ds_map64_home(t, key)], 1);
#endif
}

static inline const uint64_t *ds_map64_get(const struct ds_map64 *t, uint64_t key)
{
    size_t mask = ((size_t)1 << (64 - t->shift)) - 1;
    for (size_t i = ds_map64_home(t, key);; i = (i + 1) & mask) {
        if (t->slot[i].key1 == key + 1) return &t->slot[i].value;
        if (!t->slot[i].key1) return NULL;
    }
}

#endif
