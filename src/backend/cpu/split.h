/* How an op is cut into tasks for the pool: enough pieces that uneven threads balance, none so small
 * that handing it out costs more than doing it. */
#ifndef DS_BACKEND_CPU_SPLIT_H
#define DS_BACKEND_CPU_SPLIT_H

#include "backend/cpu/cpu.h"

/* Pieces for `items` equal items of `cost` floats touched each: at least 16 Ki floats a piece, at most
 * four pieces a thread, never more than items. */
static inline int ds_cpu_pieces(const struct ds_cpu *c, size_t items, size_t cost)
{
    size_t p = items * cost / 16384, most = 4 * (size_t)c->threads;
    if (c->threads == 1) return 1;
    if (p > most) p = most;
    if (p > items) p = items;
    return p ? (int)p : 1;
}

/* Piece i of p covers items [begin(i), begin(i + 1)). */
static inline size_t ds_cpu_begin(size_t items, int p, int i) { return items * (size_t)i / (size_t)p; }

#endif
