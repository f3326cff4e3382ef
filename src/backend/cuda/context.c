/* Life of the backend: device, stream, steps. */
#include "backend/cuda/host.h"
#include "backend/cuda/open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ds_status ds_cuda_check(cudaError_t st, const char *doing, struct ds_err *e)
{
    if (st == cudaSuccess) return DS_OK;
    (void)cudaGetLastError();
    return ds_fail(e, st == cudaErrorMemoryAllocation ? DS_ENOMEM : DS_EIO, "CUDA failed while %s: %s", doing,
                   cudaGetErrorString(st));
}

bool ds_cuda_ok(struct ds_cuda *c, cudaError_t st, const char *doing)
{
    if (st == cudaSuccess) return true;
    if (!c->err.code) ds_cuda_check(st, doing, &c->err);
    return false;
}

/* --- steps --- */

/* The step's position and ids, on both sides. */
static ds_status room_for_ids(struct ds_cuda *c, int n, struct ds_err *e)
{
    const size_t bytes = sizeof(int64_t) + (size_t)n * sizeof(int32_t);
    if (!ds_cuda_room(c, &c->ids, bytes, "token ids", e)) return DS_ENOMEM;
    if ((c->head && n <= c->head_ids) || c->be.plan_only) return DS_OK;
    cudaFreeHost(c->head);
    c->head = NULL;
    c->head_ids = 0;
    ds_status st = ds_cuda_check(cudaMallocHost((void **)&c->head, bytes), "taking pinned memory", e);
    if (!st) c->head_ids = n;
    return st;
}

bool ds_cuda_begin(struct ds_backend *be, const struct ds_step *s)
{
    struct ds_cuda *c = ds_cuda_of(be);
    const int n = s->ids ? s->n : 0;
    struct ds_err e = { 0 };
    be->step = *s;
    c->stamping = false;
    c->err = (struct ds_err){ 0 };
    if (room_for_ids(c, n, &e)) {
        c->err = e;
        return true;
    }
    *c->head = s->pos;
    if (n) memcpy(c->head + 1, s->ids, (size_t)n * sizeof *s->ids);
    ds_cuda_ok(c, cudaMemcpyAsync(c->ids.p, c->head, sizeof *c->head + (size_t)n * sizeof *s->ids, cudaMemcpyHostToDevice, c->stream),
               "sending token ids");
    return !ds_cuda_replay(c);
}

ds_status ds_cuda_end(struct ds_backend *be, struct ds_err *e)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    ds_cuda_stamp_settle(c);
    ds_cuda_record_end(c);
    ds_cuda_stamps_read(c);
    ds_cuda_ok(c, cudaStreamSynchronize(c->stream), "running a step");
    if (c->err.code && e) *e = c->err;
    return c->err.code;
}

void ds_cuda_drain(struct ds_backend *be)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    ds_cuda_ok(c, cudaStreamSynchronize(c->stream), "waiting for the device");
}

/* --- life --- */

ds_status ds_cuda_reserve(struct ds_backend *be, const struct ds_sizes *sz, struct ds_err *e)
{
    struct ds_cuda *c = ds_cuda_of(be);
    c->ubatch = sz->ubatch;
    c->attn = sz->attn;
    ds_cuda_graphs_drop(c);
    ds_status st = ds_cuda_group_all(c, e);
    if (st) return st;
    ds_cuda_plan(c, sz);
    if (!st) st = ds_cuda_make_copies(c, e);
    if (!st) st = ds_cuda_take_scratch(c, sz, e);
    if (!st) st = room_for_ids(c, sz->ubatch, e);
    return st ? st : ds_cuda_choose_algorithms(c, sz->ubatch, e);
}

uint64_t ds_cuda_own_bytes(struct ds_backend *be)
{
    const struct ds_cuda *c = ds_cuda_of(be);
    uint64_t n = c->slots.bytes + c->workspace.bytes + c->ids.bytes + c->part.bytes + c->tiles.bytes + c->decoded.bytes + c->x8.bytes;
    for (int i = 0; i < DS_CUDA_SETS; i++) n += c->wide[i].bytes;
    return n;
}

void ds_cuda_free(struct ds_backend *be)
{
    struct ds_cuda *c = ds_cuda_of(be);
    struct ds_cuda_room *const rooms[] = { &c->slots, &c->workspace, &c->ids, &c->part, &c->tiles, &c->decoded, &c->x8 };
    if (c->stream) cudaStreamSynchronize(c->stream);
    ds_cuda_graphs_drop(c);
    ds_cuda_lt_free(c);
    for (int i = 0; i < DS_CUDA_STAGING; i++) {
        if (c->staged[i]) cudaEventDestroy(c->staged[i]);
        cudaFreeHost(c->staging[i]);
    }
    free(c->stamp_slot);
    free(c->slots_host);
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) ds_cuda_room_free(c, rooms[i]);
    for (int i = 0; i < DS_CUDA_SETS; i++) ds_cuda_room_free(c, &c->wide[i]);
    cudaFreeHost(c->head);
    if (c->stream) cudaStreamDestroy(c->stream);
    ds_pool_free(c->pool);
    free(c);
}

static ds_status find_device(struct ds_cuda *c, struct ds_err *e)
{
    int count = 0, major = 0, minor = 0;
    cudaError_t st = cudaGetDeviceCount(&count);
    if (st != cudaSuccess || !count) {
        (void)cudaGetLastError();
        return ds_fail(e, DS_EUNSUP, "no CUDA device: %s", st != cudaSuccess ? cudaGetErrorString(st) : "none is present");
    }
    ds_status s = ds_cuda_check(cudaSetDevice(0), "taking the first device", e);
    if (!s) s = ds_cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "asking the device", e);
    if (!s) s = ds_cuda_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), "asking the device", e);
    if (s) return s;
    c->sm = 10 * major + minor;
    if (c->sm < 80)
        return ds_fail(e, DS_EUNSUP, "the CUDA device has compute capability %d.%d, expected 8.0 or later", major, minor);
    return ds_cuda_check(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "creating a stream", e);
}

struct ds_backend *ds_cuda_open(const struct ds_backend_options *o, struct ds_err *e)
{
    struct ds_cuda *c = calloc(1, sizeof *c);
    if (!c || !(c->pool = ds_pool_new(o->threads))) {
        free(c);
        ds_fail(e, DS_ENOMEM, "the system refused memory for the CUDA backend");
        return NULL;
    }
    c->be.ops = &ds_cuda_ops;
    c->be.name = "cuda";
    c->be.placement = "full";
    c->be.grouped = true;
    c->be.cosine_limit = 0.9999;               /* bf16 operands */
    c->be.cache_limit = 2e-2;
    c->kv_f16 = !o->kv || strcmp(o->kv, "f32") != 0;
    c->be.plans = true;
    c->be.owns_weights = true;
    c->be.prepares = true;
    c->be.ubatch = 4096;
    if (find_device(c, e) || ds_cuda_parse_gemm(c, o->gemm, e) || ds_cuda_parse_weights(c, o->weights, e) ||
        ds_cuda_lt_init(c, e)) {
        ds_cuda_free(&c->be);
        return NULL;
    }
    c->gdn_chunk = c->sm == 90 && (!o->gdn || strcmp(o->gdn, "seq") != 0);
    c->be.gdn_form = c->gdn_chunk ? "chunk" : "seq";
    return &c->be;
}
