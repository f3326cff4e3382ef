/* Weights on the device: upload through pinned staging. */
#include "backend/cuda/host.h"

#include <stdlib.h>
#include <string.h>

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
    void *p;
    if (!ds_cuda_mem_take(c, &p, n * sizeof(float), t->name, e)) return DS_ENOMEM;
    w->f32 = p;
    w->bytes += n * sizeof(float);
    if (c->be.plan_only) return DS_OK;
    float *host = malloc(n * sizeof *host);
    if (!host) return ds_fail(e, DS_ENOMEM, "tensor '%s': the system refused memory for it", t->name);
    t->type->decode(host, t->data, n);
    ds_status st = upload(c, w->f32, host, n * sizeof *host, e);
    free(host);
    return st;
}

static ds_status new_matrix(struct ds_cuda *c, struct ds_weight *w, struct ds_err *e)
{
    const struct ds_tensor *t = w->t;
    if (!ds_cuda_mem_take(c, &w->blocks, (size_t)t->bytes, t->name, e)) return DS_ENOMEM;
    w->bytes += t->bytes;
    return c->be.plan_only ? DS_OK : upload(c, w->blocks, t->data, (size_t)t->bytes, e);
}

struct ds_weight *ds_cuda_weight_new(struct ds_backend *be, const struct ds_tensor *t, unsigned use, struct ds_err *e)
{
    struct ds_cuda *c = ds_cuda_of(be);
    struct ds_weight *w = calloc(1, sizeof *w);
    if (!w) {
        ds_fail(e, DS_ENOMEM, "tensor '%s': the system refused memory for it", t->name);
        return NULL;
    }
    *w = (struct ds_weight){ .t = t, .use = use, .in = (int)t->ne[0], .out = (int)t->ne[1], .n_expert = (int)t->ne[2] };
    w->next = c->weights;
    w->prev = &c->weights;
    if (w->next) w->next->prev = &w->next;
    c->weights = w;
    ds_status st = DS_OK;
    if (use & DS_USE_VECTOR) st = new_vector(c, w, e);
    if (!st && use & (DS_USE_GEMM | DS_USE_EMBED)) st = new_matrix(c, w, e);
    if (!st) return w;
    ds_cuda_weight_free(be, w);
    return NULL;
}

void ds_cuda_weight_free(struct ds_backend *be, struct ds_weight *w)
{
    struct ds_cuda *c = ds_cuda_of(be);
    if (!w) return;
    *w->prev = w->next;
    if (w->next) w->next->prev = w->prev;
    ds_cuda_graphs_drop(c);
    ds_cuda_group_leave(c, w);
    if (w->f32) cudaFree(w->f32);
    ds_cuda_mem_give(c, w->blocks, (size_t)w->bytes);
    free(w);
}

uint64_t ds_cuda_weight_extra_bytes(struct ds_backend *be, const struct ds_weight *w)
{
    const struct ds_cuda_group *g = w->group;
    (void)be;
    return w->bytes + (g && g->w[0] == w ? g->bytes : 0);
}
