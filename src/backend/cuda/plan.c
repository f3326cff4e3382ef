/* What a model takes on the device beyond its blocks: copies of the matrices, and scratch for the largest step. */
#include "backend/cuda/host.h"

/* What the library and the driver take themselves, and what rounding loses. */
static const uint64_t MARGIN = (uint64_t)512 << 20;

static size_t elements(const struct ds_cuda_group *g) { return (size_t)g->in * (size_t)g->out * (size_t)g->w[0]->n_expert; }
static bool stored_as_bf16(const struct ds_cuda_group *g)
{
    for (int i = 0; i < g->n_w; i++)
        if (ds_type_id(g->w[i]->t->type) != DS_T_BF16) return false;
    return true;
}

/* A matrix stored as bf16 alone is its own copy. */
uint64_t ds_cuda_copy_bytes(const struct ds_cuda_group *g)
{
    if (g->form == DS_CUDA_F8) return (uint64_t)elements(g) + (uint64_t)g->out * sizeof(float);
    return g->form == DS_CUDA_BLOCKS || (g->n_w == 1 && stored_as_bf16(g)) ? 0 : (uint64_t)elements(g) * 2;
}

/* --- scratch --- */

struct want { struct ds_cuda_room *room; size_t bytes; const char *what; };
enum { MAX_WANTS = 9 + DS_CUDA_SETS };

static size_t tile_bytes(const struct ds_cuda *c, const struct ds_sizes *sz)
{
    const struct ds_gdn_shape *sh = &sz->gdn;
    const struct ds_cu_gdn g = { .n = sz->ubatch, .n_kh = sh->n_kh, .n_vh = sh->n_vh, .dk = sh->dk, .dv = sh->dv, .conv_k = sh->conv_k };
    return sh->n_vh && c->gdn_chunk && ds_cu_gdn_chunk_fits(&g, c->sm) ? ds_cu_gdn_chunk_bytes(&g, sz->ubatch) : 0;
}

static size_t largest(size_t a, size_t b) { return a > b ? a : b; }

/* Needs that depend on the groups' forms come last: all as if every group was decoded, or as decided. */
static int wants(struct want w[MAX_WANTS], struct ds_cuda *c, const struct ds_sizes *sz, bool decided)
{
    const size_t T = (size_t)sz->ubatch;
    size_t wide[DS_CUDA_SETS] = { 0 }, decoded = 0, x8 = 0;
    int n = 0;
    for (const struct ds_cuda_group *g = c->groups; g; g = g->next) {
        if (g->n_w > 1) wide[g->kind] = largest(wide[g->kind], T * (size_t)g->out * 2);
        if (g->form == DS_CUDA_BLOCKS || !decided) decoded = largest(decoded, elements(g) * 2);
        if (g->form == DS_CUDA_F8) x8 = largest(x8, T * ((size_t)g->in + sizeof(float)));
    }
    w[n++] = (struct want){ &c->workspace, DS_CUDA_WORKSPACE, "the library's workspace" };
    w[n++] = (struct want){ &c->ids, sizeof(int64_t) + T * sizeof(int32_t), "token ids" };
    w[n++] = (struct want){ &c->part, (size_t)DS_CUDA_SPLIT_ROWS * (size_t)sz->attn.n_head * (size_t)(sz->attn.hd + 2) * sizeof(float),
                            "split attention" };
    w[n++] = (struct want){ &c->tiles, tile_bytes(c, sz), "chunk tiles" };
    w[n++] = (struct want){ &c->slots, ds_cuda_stamp_bytes(), "time stamps" };
    for (int i = 0; i < DS_CUDA_SETS; i++) w[n++] = (struct want){ &c->wide[i], wide[i], "grouped results" };
    w[n++] = (struct want){ &c->x8, x8, "8-bit inputs" };
    w[n++] = (struct want){ &c->decoded, decoded, "decoded weights" };
    return n;
}

static uint64_t scratch_bytes(struct ds_cuda *c, const struct ds_sizes *sz, bool decided)
{
    struct want w[MAX_WANTS];
    uint64_t total = 0;
    for (int i = 0, n = wants(w, c, sz, decided); i < n; i++) total += w[i].bytes > w[i].room->bytes ? w[i].bytes : w[i].room->bytes;
    return total;
}

static uint64_t scratch_held(struct ds_cuda *c, const struct ds_sizes *sz)
{
    struct want w[MAX_WANTS];
    uint64_t total = 0;
    for (int i = 0, n = wants(w, c, sz, true); i < n; i++) total += w[i].room->bytes;
    return total;
}

ds_status ds_cuda_take_scratch(struct ds_cuda *c, const struct ds_sizes *sz, struct ds_err *e)
{
    struct want w[MAX_WANTS];
    for (int i = 0, n = wants(w, c, sz, true); i < n; i++)
        if (!ds_cuda_room(c, w[i].room, w[i].bytes, w[i].what, e)) return e && e->code ? e->code : DS_ENOMEM;
    return DS_OK;
}

/* --- forms --- */

/* Device bytes that can be had, as if nothing but the blocks was taken. */
static uint64_t room_now(struct ds_cuda *c)
{
    size_t free_now = 0, total = 0;
    if (cudaMemGetInfo(&free_now, &total) != cudaSuccess) return 0;
    const uint64_t taken = MARGIN + (c->be.plan_only ? c->held : 0);
    return free_now > taken ? free_now - taken : 0;
}

static uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

uint64_t ds_cuda_plan(struct ds_cuda *c, const struct ds_sizes *sz)
{
    uint64_t copies = 0, left;
    for (struct ds_cuda_group *g = c->groups; g; g = g->next) {
        if (g->made) continue;
        g->form = ds_cuda_wants_f8(c, g) ? DS_CUDA_F8 : stored_as_bf16(g) || c->copies == DS_CUDA_ALL_COPIES ? DS_CUDA_BF16 : DS_CUDA_BLOCKS;
        copies += ds_cuda_copy_bytes(g);
    }
    left = minus(minus(room_now(c) + scratch_held(c, sz), scratch_bytes(c, sz, false)), copies + sz->buffers);
    for (struct ds_cuda_group *g = c->groups; g && c->copies == DS_CUDA_AUTO; g = g->next) {
        if (g->made || g->form != DS_CUDA_BLOCKS) continue;
        g->form = DS_CUDA_BF16;
        const uint64_t bytes = ds_cuda_copy_bytes(g);
        if (bytes <= left) left -= bytes, copies += bytes;
        else g->form = DS_CUDA_BLOCKS;
    }
    return copies + minus(scratch_bytes(c, sz, true), scratch_held(c, sz));
}

uint64_t ds_cuda_mem_available(struct ds_backend *be, const struct ds_sizes *sz)
{
    struct ds_cuda *c = ds_cuda_of(be);
    struct ds_err e = { 0 };
    if (sz && ds_cuda_group_all(c, &e)) return 0;
    return minus(room_now(c), sz ? ds_cuda_plan(c, sz) : 0);
}
