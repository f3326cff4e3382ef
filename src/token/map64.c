#include "token/map64.h"

#include <stdlib.h>

bool ds_map64_init(struct ds_map64 *t, size_t max_keys, uint64_t seed)
{
    int bits = 3;
    while (bits < 40 && ((size_t)1 << bits) / 2 < max_keys) bits++;
    t->slot = calloc((size_t)1 << bits, sizeof *t->slot);
    t->seed = seed;
    t->shift = 64 - bits;
    return t->slot != NULL;
}

void ds_map64_free(struct ds_map64 *t)
{
    free(t->slot);
    t->slot = NULL;
}

void ds_map64_add(struct ds_map64 *t, uint64_t key, uint64_t value)
{
    size_t mask = ((size_t)1 << (64 - t->shift)) - 1, i = ds_map64_home(t, key);
    while (t->slot[i].key1 && t->slot[i].key1 != key + 1) i = (i + 1) & mask;
    if (!t->slot[i].key1) t->slot[i] = (struct ds_map64_slot){ key + 1, value };
}
