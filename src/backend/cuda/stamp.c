/* Stage times without events: most of our kernels write when they start and end, and a border between stages takes one of those
 * times. Only between two kernels that write none does a stamp have a kernel of its own. Nothing waits: the kernels that overlap
 * without a profile do so with one. */
#include "backend/cuda/host.h"

#include <stdlib.h>

enum { SLOTS = 16384 };

size_t ds_cuda_stamp_bytes(void) { return SLOTS * sizeof(unsigned long long); }

static unsigned long long *slot(const struct ds_cuda *c, int i) { return (unsigned long long *)c->slots.p + i; }

/* The last slot serves all that come when none is left. */
static int new_slot(struct ds_cuda *c) { return c->n_slots < SLOTS - 1 ? c->n_slots++ : SLOTS - 1; }

static bool room_for(struct ds_cuda *c, int i)
{
    if (i < c->cap_stamps) return true;
    const int cap = i < 512 ? 1024 : 2 * i;
    int *p = realloc(c->stamp_slot, (size_t)cap * sizeof *p);
    if (!p) return false;
    c->stamp_slot = p;
    c->cap_stamps = cap;
    return true;
}

/* A profile starts with stamp 0 of each step. */
static void start_step(struct ds_cuda *c)
{
    struct ds_err e = { 0 };
    c->n_slots = 0;
    c->slot_waits = c->slot_ended = -1;
    c->stamping = ds_cuda_room(c, &c->slots, ds_cuda_stamp_bytes(), "time stamps", &e) &&
                  ds_cuda_ok(c, cudaMemsetAsync(c->slots.p, 0, c->slots.bytes, c->stream), "clearing time stamps");
}

void ds_cuda_stamp(struct ds_backend *be, int i)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    if (i == 0) start_step(c);
    if (!c->stamping || !room_for(c, i)) return;
    if (c->slot_ended < 0 && c->slot_waits < 0) c->slot_waits = new_slot(c);
    c->stamp_slot[i] = c->slot_ended >= 0 ? c->slot_ended : c->slot_waits;
}

/* What the next kernel writes. */
struct ds_cu_stamp ds_cuda_stamp_next(struct ds_cuda *c)
{
    struct ds_cu_stamp t = { NULL, NULL };
    if (!c->stamping) return t;
    if (c->slot_waits >= 0) t.start = slot(c, c->slot_waits);
    c->slot_waits = -1;
    c->slot_ended = new_slot(c);
    t.end = slot(c, c->slot_ended);
    return t;
}

/* The next kernel writes nothing. */
void ds_cuda_stamp_settle(struct ds_cuda *c)
{
    if (!c->stamping) return;
    if (c->slot_waits >= 0) ds_cuda_ok(c, ds_cu_stamp_now(slot(c, c->slot_waits), c->stream), "recording a stamp");
    c->slot_waits = c->slot_ended = -1;
}

void ds_cuda_stamps_read(struct ds_cuda *c)
{
    if (!c->stamping) return;
    if (!c->slots_host && !(c->slots_host = malloc(ds_cuda_stamp_bytes()))) return;
    ds_cuda_ok(c, cudaMemcpyAsync(c->slots_host, c->slots.p, (size_t)c->n_slots * sizeof *c->slots_host, cudaMemcpyDeviceToHost, c->stream),
               "reading time stamps");
}

uint64_t ds_cuda_stamp_ns(struct ds_backend *be, int i)
{
    const struct ds_cuda *c = ds_cuda_of(be);
    return c->stamping && c->slots_host && i < c->cap_stamps ? c->slots_host[c->stamp_slot[i]] : 0;
}
