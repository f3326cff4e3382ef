/* Tiles between the two halves of the chunked recurrence (gdn_prep.cu makes them, gdn_chunk.cu reads them), one after another:
 * K and Q per (chunk, key head), V per (chunk, value head), T and P per (chunk, value head), gates likewise; swizzled as
 * sm90.cuh says, heads of 128 as two halves of 64 columns.
 *
 * In front of them, what lets the second half run while the first still works: a counter that every block of the first
 * increments once, so that counter / blocks numbers the launches, and per (chunk, key head) the number of the launch
 * whose tiles are complete. Zero when the memory is new. */
#ifndef DS_BACKEND_CUDA_GDN_TILES_CUH
#define DS_BACKEND_CUDA_GDN_TILES_CUH

#include "backend/cuda/kernels.h"

enum {
    C = 64,
    D = 128,
    HALF_TILE = C * 128,
    KQ_TILE = 4 * HALF_TILE,
    V_TILE = 2 * HALF_TILE,
    TP_TILE = 2 * HALF_TILE,
    E_TILE = 4 * C * 4,
    CONTROL = 65536,                             /* bytes in front */
    READY_AT = 128,
    READY_MAX = (CONTROL - READY_AT) / 4
};

struct tiles { unsigned long long *launches; uint32_t *ready; uint8_t *kq, *v, *tp; float *e; };
enum { E_UP = 0, E_DOWN = C, E_C = 2 * C, E_DECAY = 3 * C };     /* in a tile of e: e^c, e^(c_last - c), c, e^c_last */

static __host__ __device__ int n_chunks(const ds_cu_gdn &g) { return g.n <= g.first ? 1 : 1 + (g.n - g.first + C - 1) / C; }

static __device__ __forceinline__ tiles tiles_at(void *base, const ds_cu_gdn &g)
{
    const int64_t nc = n_chunks(g);
    tiles t;
    t.launches = (unsigned long long *)base;
    t.ready = (uint32_t *)((uint8_t *)base + READY_AT);
    t.kq = (uint8_t *)base + CONTROL;
    t.v = t.kq + nc * g.n_kh * KQ_TILE;
    t.tp = t.v + nc * g.n_vh * V_TILE;
    t.e = (float *)(t.tp + nc * g.n_vh * TP_TILE);
    return t;
}

static __device__ __forceinline__ void chunk_span(const ds_cu_gdn &g, int chunk, int *t0, int *len)
{
    *t0 = chunk ? g.first + (chunk - 1) * C : 0;
    const int left = g.n - *t0, full = chunk ? C : g.first;
    *len = left < full ? left : full;
}

/* Whether each (chunk, key head) of the step has its place among the ready ones. */
static inline __host__ __device__ bool can_watch(const ds_cu_gdn &g) { return (int64_t)n_chunks(g) * g.n_kh <= READY_MAX; }

#endif
