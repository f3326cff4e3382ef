/* Weights on the device: upload through pinned staging, bf16 copies, and groups of matrices that one
 * product serves. */
#include "backend/cuda/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Device memory that bf16 copies leave free for caches, activations and scratch. */
static const size_t KEEP_FREE = (size_t)6 << 30;

ds_status ds_cuda_staging(struct ds_cuda *c, struct ds_err *e)
{
    ds_status st = DS_OK;
    for (int i = 0; i < DS_CUDA_STAGING && !st; i++) {
        if (!c->staging[i]) st = ds_cuda_check(cudaMallocHost(&c->staging[i], DS_CUDA_STAGE_BYTES), "taking pinned memory", e);
        if (!st && !c->staged[i])
            st = ds_cuda_check(cudaEventCreateWithFlags(&c->staged[i], cudaEventDisableTiming), "creating an event", e);
    }
    return st;
}

enum { COPY_TASK = 1 << 20 };
struct copy { char *dst; const char *src; size_t n; };

static void copy_task(void *ctx, int task, int thread)
{
    const struct copy *c = ctx;
    const size_t at = (size_t)task * COPY_TASK, n = c->n - at < COPY_TASK ? c->n - at : COPY_TASK;
    (void)thread;
    memcpy(c->dst + at, c->src + at, n);
}

/* The threads read the map into one piece of pinned memory while the device takes the other. */
static ds_status upload(struct ds_cuda *c, void *dst, const void *src, size_t bytes, struct ds_err *e)
{
    int which = 0;
    ds_status st = ds_cuda_staging(c, e);
    for (size_t at = 0; at < bytes && !st; at += DS_CUDA_STAGE_BYTES, which ^= 1) {
        struct copy p = { c->staging[which], (const char *)src + at,
                          bytes - at < DS_CUDA_STAGE_BYTES ? bytes - at : DS_CUDA_STAGE_BYTES };
        if ((st = ds_cuda_check(cudaEventSynchronize(c->staged[which]), "uploading weights", e))) return st;
        ds_pool_run(c->pool, copy_task, &p, (int)((p.n + COPY_TASK - 1) / COPY_TASK));
        st = ds_cuda_check(cudaMemcpyAsync((char *)dst + at, p.dst, p.n, cudaMemcpyHostToDevice, c->stream), "uploading weights",
                           e);
        if (!st) st = ds_cuda_check(cudaEventRecord(c->staged[which], c->stream), "uploading weights", e);
    }
    return st ? st : ds_cuda_check(cudaStreamSynchronize(c->stream), "uploading weights", e);
}

static ds_status new_vector(struct ds_cuda *c, struct ds_weight *w, struct ds_err *e)
{
    const struct ds_tensor *t = w->t;
    const size_t n = (size_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
    float *host = malloc(n * sizeof *host);
    ds_status st = DS_ENOMEM;
    if (!host) return ds_fail(e, st, "tensor '%s': the system refused memory for it", t->name);
    t->type->decode(host, t->data, n);
    if ((w->f32 = ds_cuda_alloc(n * sizeof *host, t->name, e))) {
        w->bytes += n * sizeof *host;
        st = upload(c, w->f32, host, n * sizeof *host, e);
    }
    free(host);
    return st;
}

static ds_status dequant(struct ds_cuda *c, uint16_t *dst, const struct ds_weight *w, const void *blocks, struct ds_err *e)
{
    const struct ds_type *t = w->t->type;
    const int64_t n = (int64_t)w->in * w->out * w->n_expert;
    return ds_cuda_check(ds_cu_dequant(dst, blocks, (int)ds_type_id(t), t->block, t->bytes, n, c->stream), "decoding weights", e);
}

/* Decides by what is free now; without the copy, scratch for one decoded matrix is kept. */
static ds_status new_bf16(struct ds_cuda *c, struct ds_weight *w, const void *blocks, struct ds_err *e)
{
    const size_t n = (size_t)w->in * (size_t)w->out * (size_t)w->n_expert;
    size_t free_now = 0, total = 0;
    ds_status st = ds_cuda_check(cudaMemGetInfo(&free_now, &total), "asking for free memory", e);
    if (st) return st;
    if (free_now > n * 2 + KEEP_FREE && (w->bf16 = ds_cuda_alloc(n * 2, w->t->name, NULL))) {
        w->bytes += n * 2;
        return dequant(c, w->bf16, w, blocks, e);
    }
    if (n <= c->decoded_n) return DS_OK;
    cudaFree(c->decoded);
    c->decoded_n = 0;
    if (!(c->decoded = ds_cuda_alloc(n * 2, "decoded weights", e))) return DS_ENOMEM;
    c->own += n * 2;
    c->decoded_n = n;
    return DS_OK;
}

/* Prefill has its bf16 copy, so that only decode reads the blocks. */
static ds_status pack(struct ds_cuda *c, struct ds_weight *w, struct ds_err *e)
{
    const int type = (int)ds_type_id(w->t->type);
    const size_t bytes = ds_cu_packed_bytes(type, w->out, w->in);
    void *packed = ds_cuda_alloc(bytes, w->t->name, e);
    if (!packed) return DS_ENOMEM;
    ds_status st = ds_cuda_check(ds_cu_pack(packed, w->blocks, type, w->out, w->in, c->stream), "arranging weights", e);
    if (!st) st = ds_cuda_check(cudaStreamSynchronize(c->stream), "arranging weights", e);
    cudaFree(w->blocks);
    w->blocks = packed;
    w->packed = true;
    w->bytes += bytes - (size_t)w->t->bytes;
    return st;
}

static ds_status new_matrix(struct ds_cuda *c, struct ds_weight *w, unsigned use, struct ds_err *e)
{
    const struct ds_tensor *t = w->t;
    const enum ds_type_id type = ds_type_id(t->type);
    if (!(w->blocks = ds_cuda_alloc((size_t)t->bytes, t->name, e))) return DS_ENOMEM;
    w->bytes += t->bytes;
    ds_status st = upload(c, w->blocks, t->data, (size_t)t->bytes, e);
    if (st || !(use & DS_USE_GEMM)) return st;
    if (type == DS_T_BF16) {
        w->bf16 = w->blocks;
        return DS_OK;
    }
    if ((st = new_bf16(c, w, w->blocks, e))) return st;
    if (w->bf16 && w->n_expert == 1 && !(use & DS_USE_EMBED) && ds_cu_can_pack((int)type, w->in)) st = pack(c, w, e);
    return st;
}

struct ds_weight *ds_cuda_weight_new(struct ds_backend *be, const struct ds_tensor *t, unsigned use, struct ds_err *e)
{
    struct ds_cuda *c = ds_cuda_of(be);
    struct ds_weight *w = calloc(1, sizeof *w);
    if (!w) {
        ds_fail(e, DS_ENOMEM, "tensor '%s': the system refused memory for it", t->name);
        return NULL;
    }
    w->t = t;
    w->in = (int)t->ne[0];
    w->out = (int)t->ne[1];
    w->n_expert = (int)t->ne[2];
    ds_status st = DS_OK;
    if (use & DS_USE_VECTOR) st = new_vector(c, w, e);
    if (!st && use & (DS_USE_GEMM | DS_USE_EMBED)) st = new_matrix(c, w, use, e);
    if (!st && use & DS_USE_GEMM) {
        w->next = c->matrices;
        w->prev = &c->matrices;
        if (w->next) w->next->prev = &w->next;
        c->matrices = w;
    }
    if (!st) return w;
    ds_cuda_weight_free(be, w);
    return NULL;
}

void ds_cuda_weight_free(struct ds_backend *be, struct ds_weight *w)
{
    (void)be;
    if (!w) return;
    if (w->prev) *w->prev = w->next;
    if (w->next) w->next->prev = w->prev;
    cudaFree(w->f32);
    if (w->bf16 != w->blocks && !w->group) cudaFree(w->bf16);   /* a group's memory goes with the backend */
    cudaFree(w->blocks);
    free(w);
}

uint64_t ds_cuda_weight_extra_bytes(struct ds_backend *be, const struct ds_weight *w)
{
    (void)be;
    return w->bytes;
}

static bool can_group(int n_w, const struct ds_weight *const *w)
{
    if (n_w < 2 || n_w > 8) return false;
    for (int i = 0; i < n_w; i++)
        if (!w[i]->bf16 || w[i]->group || w[i]->in != w[0]->in || w[i]->n_expert != 1 || w[i]->in % 8 || w[i]->out % 8)
            return false;
    return true;
}

/* The copies move into one matrix; bf16 files keep their one copy there too. */
struct ds_cuda_group *ds_cuda_group_of(struct ds_cuda *c, int n_w, const struct ds_weight *const *w)
{
    struct ds_cuda_group *g = w[0]->group;
    if (g) {
        if (g->n_w != n_w) return NULL;
        for (int i = 0; i < n_w; i++)
            if (g->w[i] != w[i]) return NULL;
        return g;
    }
    if (!can_group(n_w, w) || !(g = calloc(1, sizeof *g))) return NULL;
    g->n_w = n_w;
    for (int i = 0; i < n_w; i++) g->out += w[i]->out;
    const size_t k = (size_t)w[0]->in;
    if (!(g->bf16 = ds_cuda_alloc((size_t)g->out * k * 2, "grouped weights", NULL))) {
        free(g);
        return NULL;
    }
    uint16_t *at = g->bf16;
    for (int i = 0; i < n_w; i++) {
        struct ds_weight *m = (struct ds_weight *)(uintptr_t)w[i];     /* the group is the backend's own bookkeeping */
        const size_t n = (size_t)m->out * k;
        ds_cuda_ok(c, cudaMemcpyAsync(at, m->bf16, n * 2, cudaMemcpyDeviceToDevice, c->stream), "grouping weights");
        ds_cuda_ok(c, cudaStreamSynchronize(c->stream), "grouping weights");
        cudaFree(m->bf16);
        if (m->blocks == m->bf16) m->blocks = NULL;
        m->bf16 = at;
        m->group = g;
        g->w[i] = m;
        at += n;
    }
    g->next = c->groups;
    c->groups = g;
    return g;
}

void ds_cuda_groups_free(struct ds_cuda *c)
{
    while (c->groups) {
        struct ds_cuda_group *g = c->groups;
        c->groups = g->next;
        cudaFree(g->bf16);
        free(g);
    }
}
