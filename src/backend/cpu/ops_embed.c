#include "backend/cpu/split.h"

struct embed_ctx { float *x; const struct ds_tensor *t; const int32_t *ids; int n, pieces; };

static void embed_rows(void *ctx, int i, int thread)
{
    const struct embed_ctx *e = ctx;
    size_t dim = (size_t)e->t->ne[0], row = ds_type_row_bytes(e->t->type, dim);
    (void)thread;
    for (size_t t = ds_cpu_begin((size_t)e->n, e->pieces, i); t < ds_cpu_begin((size_t)e->n, e->pieces, i + 1); t++)
        e->t->type->decode(e->x + t * dim, (const unsigned char *)e->t->data + (size_t)e->ids[t] * row, dim);
}

void ds_cpu_embed(struct ds_backend *be, struct ds_buf *x, const struct ds_weight *table)
{
    struct ds_cpu *c = ds_cpu_of(be);
    struct embed_ctx e = { ds_cpu_f32(x), table->t, be->step.ids, be->step.n, 0 };
    e.pieces = ds_cpu_pieces(c, (size_t)e.n, 2 * (size_t)table->t->ne[0]);
    ds_pool_run(c->pool, embed_rows, &e, e.pieces);
    ds_cpu_touch(x);
}
