/* The forward pass: embed, layers, head. */
#include "model/model.h"

static void head(struct ds_forward *f, int row0, int n)
{
    const struct ds_product out = ds_into(&f->m->head, f->sc->logits);
    ds_op_rms_norm(f->run, f->sc->h, f->sc->x, f->m->out_norm, row0, n, f->m->hp.hidden, f->m->hp.eps);
    ds_op_matmul(f->run, 1, &out, f->sc->h, n, false);
}

static bool goes_on(struct ds_forward *f, int layer, int n)
{
    return !f->after_layer || f->after_layer(f->after_ctx, layer, f->sc->x, n);
}

/* False: stopped before the end. */
static bool layers(struct ds_forward *f, int n)
{
    if (!goes_on(f, -1, n)) return false;
    for (int i = 0; i < f->m->hp.n_layer; i++) {
        if (f->m->layers[i].attn) ds_block_attn(f, i, n);
        else ds_block_gdn(f, i, n);
        ds_block_ffn(f, i, n);
        if (!goes_on(f, i, n)) return false;
    }
    return true;
}

ds_status ds_forward_step(struct ds_forward *f, const int32_t *ids, int n, bool decode, bool want_logits, struct ds_err *e)
{
    const struct ds_step step = { .n = n, .pos = f->st->pos, .ids = ids, .decode = decode, .logits = want_logits,
                                  .n_cuts = f->n_cuts, .skip = f->skip, .timeline = f->after_layer ? NULL : f->st };
    bool whole = true;
    if (ds_run_begin(f->run, &step)) {
        ds_op_embed(f->run, f->sc->x, f->m->embed.w);
        whole = layers(f, n);
        if (whole && want_logits) head(f, n - 1, 1);
    }
    ds_status st = ds_run_end(f->run, e);
    if (!st && !whole) st = ds_fail(e, DS_ECANCEL, "stopped within a step of %d tokens", n);
    if (!st) f->st->pos += n;
    return st;
}

ds_status ds_forward_head(struct ds_forward *f, int row0, int n, struct ds_err *e)
{
    const struct ds_step step = { .n = n, .pos = f->st->pos, .row0 = row0, .logits = true, .skip = f->skip, .timeline = f->st };
    if (ds_run_begin(f->run, &step)) head(f, row0, n);
    return ds_run_end(f->run, e);
}
