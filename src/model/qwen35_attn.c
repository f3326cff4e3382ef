/* Full-attention block: gated, with QK-norm and partial RoPE.
 *
 *   [q | gate] per head = W_q h,  k = W_k h,  v = W_v h        h = rms(x)
 *   q, k <- rope(rms(q)), rope(rms(k))
 *   x <- x + W_o (sigmoid(gate) softmax(q.K / sqrt(hd)) V) */
#include "model/model.h"

void ds_block_attn(struct ds_forward *f, int layer, int n)
{
    const struct ds_layer *l = &f->m->layers[layer];
    const struct ds_attn_shape *sh = &f->m->hp.at;
    struct ds_scratch *sc = f->sc;
    struct ds_run *r = f->run;
    const struct ds_product in[] = { ds_into(&l->q, sc->qg), ds_into(&l->k, sc->k), ds_into(&l->v, sc->v) };
    const struct ds_product out = ds_into(&l->o, sc->x);

    ds_op_rms_norm(r, sc->h, sc->x, l->attn_norm, 0, n, f->m->hp.hidden, f->m->hp.eps);
    ds_op_matmul(r, 3, in, sc->h, n, false);
    if (f->skip & DS_SKIP_ATTN) {
        ds_op_copy_cols(r, DS_ST_ATTN, sc->y_attn, sc->qg, n, 2 * sh->n_head * sh->hd, sh->n_head * sh->hd);
    } else {
        ds_op_qk_norm(r, sc->qg, sc->k, l->q_norm, l->k_norm, sh, n);
        ds_op_rope_store(r, sc->qg, sc->k, sc->v, f->st->k[layer], f->st->v[layer], sh, n);
        ds_op_attn(r, sc->y_attn, sc->qg, f->st->k[layer], f->st->v[layer], sh, n);
    }
    ds_op_matmul(r, 1, &out, sc->y_attn, n, true);
}
