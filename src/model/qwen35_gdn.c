/* Gated DeltaNet block: mixer of the layers that are not full attention.
 *
 *   u, z, b, a = W_qkv h, W_z h, W_beta h, W_alpha h        h = rms(x)
 *   q, k, v    = split(silu(conv(u)));  q, k normalised per head
 *   S <- e^g S + k (beta (v - (e^g S)'k))';  o = S'q          per value head, g = A softplus(a + dt), beta = sigmoid(b)
 *   x <- x + W_out (rms(o) silu(z)) */
#include "model/model.h"

/* Tokens t0..t1-1 of the step from projections to y. */
static void tokens(struct ds_forward *f, const struct ds_gdn_layer *io, int n, int t0, int t1)
{
    const struct ds_gdn_shape *sh = &f->m->hp.gdn;
    struct ds_scratch *sc = f->sc;
    if (f->run->be->gdn_walks && !f->run->be->step.decode) {
        ds_op_gdn_walk(f->run, io, sh, n, t0, t1);
        return;
    }
    if (t0 == 0) ds_op_gdn_prep(f->run, sc->prep, io->conv, io->u, io->a, io->b, io->conv_w, io->ssm_a, io->ssm_dt, sh, n);
    ds_op_gdn(f->run, sc->o, io->S, sc->prep, sh, n, t0, t1);
    if (t1 == n) ds_op_gated_norm(f->run, io->y, sc->o, io->z, io->gain, sh, n);
}

/* All of them, stopping where the state is to be kept. */
static void recurrence(struct ds_forward *f, const struct ds_gdn_layer *io, int layer, int n)
{
    const struct ds_gdn_shape *sh = &f->m->hp.gdn;
    struct ds_scratch *sc = f->sc;
    int t = 0;
    for (int i = 0; i < f->n_cuts; i++)
        ds_op_conv_tail(f->run, sc->cut_conv[layer], (size_t)i * ds_conv_elems(sh), io->conv, io->u, sh, f->cuts[i]);
    for (int i = 0; i < f->n_cuts; i++) {
        if (f->cuts[i] > t) tokens(f, io, n, t, f->cuts[i]);
        ds_op_copy(f->run, DS_ST_GDN, sc->cut_S[layer], (size_t)i * ds_recurrent_elems(sh), io->S, ds_recurrent_elems(sh));
        t = f->cuts[i];
    }
    if (t < n) tokens(f, io, n, t, n);
}

void ds_block_gdn(struct ds_forward *f, int layer, int n)
{
    const struct ds_layer *l = &f->m->layers[layer];
    const struct ds_gdn_shape *sh = &f->m->hp.gdn;
    struct ds_scratch *sc = f->sc;
    struct ds_run *r = f->run;
    const struct ds_product in[] = { ds_into(&l->qkv, sc->u), ds_into(&l->z, sc->z), ds_into(&l->beta, sc->b), ds_into(&l->alpha, sc->a) };
    const struct ds_product out = ds_into(&l->ssm_out, sc->x);

    ds_op_rms_norm(r, sc->h, sc->x, l->attn_norm, 0, n, f->m->hp.hidden, f->m->hp.eps);
    ds_op_matmul(r, 4, in, sc->h, n, false);
    if (f->skip & DS_SKIP_GDN) {
        ds_op_copy_cols(r, DS_ST_GDN, sc->y_gdn, sc->z, n, sh->n_vh * sh->dv, sh->n_vh * sh->dv);
    } else {
        const struct ds_gdn_layer io = { sc->y_gdn, f->st->S[layer], f->st->conv[layer], sc->u, sc->z, sc->a, sc->b,
                                         l->conv, l->ssm_a, l->ssm_dt, l->ssm_norm };
        recurrence(f, &io, layer, n);
    }
    ds_op_matmul(r, 1, &out, sc->y_gdn, n, true);
}
