#include "backend/cpu/split.h"

#include <math.h>

/* --- routing --- */

struct route_ctx { struct ds_cpu *c; struct ds_route_slot *slot; const float *logits; size_t n; int n_expert, k, pieces; };

/* Softmax in f32, then the k largest, the lower index first on ties. */
static void route_token(struct ds_route_slot *slot, float *p, const float *logits, int n_expert, int k)
{
    float top = logits[0], sum = 0, kept = 0;
    for (int e = 1; e < n_expert; e++) top = fmaxf(top, logits[e]);
    for (int e = 0; e < n_expert; e++) sum += p[e] = expf(logits[e] - top);
    for (int e = 0; e < n_expert; e++) p[e] /= sum;
    for (int j = 0; j < k; j++) {
        int best = -1;
        for (int e = 0; e < n_expert; e++)
            if (!(p[e] < 0) && (best < 0 || p[e] > p[best])) best = e;      /* NaN still yields an expert that exists */
        slot[j] = (struct ds_route_slot){ best, p[best] };
        kept += p[best];
        p[best] = -1;
    }
    kept = fmaxf(kept, 0x1p-14f);
    for (int j = 0; j < k; j++) slot[j].weight /= kept;
}

static void route_tokens(void *ctx, int i, int thread)
{
    const struct route_ctx *r = ctx;
    float *p = ds_cpu_scratch(r->c, thread, (size_t)r->n_expert * sizeof *p);
    for (size_t t = ds_cpu_begin(r->n, r->pieces, i); t < ds_cpu_begin(r->n, r->pieces, i + 1); t++)
        route_token(r->slot + t * (size_t)r->k, p, r->logits + t * (size_t)r->n_expert, r->n_expert, r->k);
}

void ds_cpu_moe_route(struct ds_backend *be, struct ds_buf *route, const struct ds_buf *logits, int n, int n_expert, int k)
{
    struct ds_cpu *c = ds_cpu_of(be);
    struct route_ctx r = { c, route->p, ds_cpu_f32(logits), (size_t)n, n_expert, k, 0 };
    r.pieces = ds_cpu_pieces(c, r.n, (size_t)n_expert * (size_t)(k + 8));
    ds_pool_run(c->pool, route_tokens, &r, r.pieces);
}

size_t ds_cpu_scratch_moe(const struct ds_cpu *c, const struct ds_sizes *sz)
{
    (void)c;
    return (size_t)sz->n_expert * sizeof(float);
}

/* --- combination --- */

struct combine_ctx {
    const struct ds_kernels *k;
    float *x;
    const float *y, *shared, *sg;
    const struct ds_route_slot *slot;
    size_t n, top, dim;
    int pieces;
};

static float sigmoid(float x)
{
    float e = expf(-fabsf(x));
    return (x < 0 ? e : 1.0f) / (1.0f + e);
}

static void combine_tokens(void *ctx, int i, int thread)
{
    const struct combine_ctx *r = ctx;
    (void)thread;
    for (size_t t = ds_cpu_begin(r->n, r->pieces, i); t < ds_cpu_begin(r->n, r->pieces, i + 1); t++) {
        float *x = r->x + t * r->dim;
        for (size_t s = t * r->top; s < (t + 1) * r->top; s++) r->k->axpy(x, r->slot[s].weight, r->y + s * r->dim, (int)r->dim);
        if (r->shared) r->k->axpy(x, r->sg ? sigmoid(r->sg[t]) : 1.0f, r->shared + t * r->dim, (int)r->dim);
    }
}

void ds_cpu_moe_combine(struct ds_backend *be, struct ds_buf *x, const struct ds_buf *y, const struct ds_buf *route,
                        const struct ds_buf *shared, const struct ds_buf *sg, int n, int k, int dim)
{
    struct ds_cpu *c = ds_cpu_of(be);
    struct combine_ctx r = { .k = &c->k, .x = ds_cpu_f32(x), .y = ds_cpu_f32(y), .shared = shared ? ds_cpu_f32(shared) : NULL,
                             .sg = sg ? ds_cpu_f32(sg) : NULL, .slot = route->p, .n = (size_t)n, .top = (size_t)k,
                             .dim = (size_t)dim };
    r.pieces = ds_cpu_pieces(c, r.n, (size_t)dim * (size_t)(k + 2));
    ds_pool_run(c->pool, combine_tokens, &r, r.pieces);
    ds_cpu_touch(x);
}
