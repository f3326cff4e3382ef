/* Feed-forward block, dense or mixture of experts.
 *
 *   dense:   x <- x + W_down (silu(W_gate h) * (W_up h))                       h = rms(x)
 *   experts: x <- x + sum_e w_e SwiGLU_e(h) + sigmoid(w_sg . h) SwiGLU_shared(h), w = renormalised top k of softmax(W_router h) */
#include "model/model.h"

static void dense(struct ds_forward *f, const struct ds_layer *l, int n)
{
    struct ds_scratch *sc = f->sc;
    const struct ds_product in[] = { ds_into(&l->gate, sc->gate), ds_into(&l->up, sc->up) };
    const struct ds_product out = ds_into(&l->down, sc->x);
    ds_op_matmul(f->run, 2, in, sc->h, n, false);
    ds_op_swiglu(f->run, sc->act, sc->gate, sc->up, n, f->m->hp.n_ff);
    ds_op_matmul(f->run, 1, &out, sc->act, n, true);
}

static void experts(struct ds_forward *f, const struct ds_layer *l, int n)
{
    const struct ds_hparams *hp = &f->m->hp;
    struct ds_scratch *sc = f->sc;
    struct ds_run *r = f->run;
    const int k = hp->n_expert_used;
    const struct ds_product in[] = { ds_into(&l->router, sc->router), ds_into(&l->gate_sh, sc->sgate), ds_into(&l->up_sh, sc->sup),
                                     ds_into(&l->sh_gate, sc->sg) };
    const struct ds_product gate = ds_into(&l->gate_exps, sc->egate), up = ds_into(&l->up_exps, sc->eup), down = ds_into(&l->down_exps, sc->ey);
    const struct ds_product shared = ds_into(&l->down_sh, sc->sy);

    ds_op_matmul(r, 4, in, sc->h, n, false);
    ds_op_moe_route(r, sc->route, sc->router, n, hp->n_expert, k);
    ds_op_matmul_experts(r, &gate, sc->h, sc->route, n, k, false);
    ds_op_matmul_experts(r, &up, sc->h, sc->route, n, k, false);
    ds_op_swiglu(r, sc->eact, sc->egate, sc->eup, n * k, hp->n_ff_exp);
    ds_op_matmul_experts(r, &down, sc->eact, sc->route, n, k, true);
    ds_op_swiglu(r, sc->sact, sc->sgate, sc->sup, n, hp->n_ff_shexp);
    ds_op_matmul(r, 1, &shared, sc->sact, n, false);
    ds_op_moe_combine(r, sc->x, sc->ey, sc->route, sc->sy, sc->sg, n, k, hp->hidden);
}

void ds_block_ffn(struct ds_forward *f, int layer, int n)
{
    const struct ds_layer *l = &f->m->layers[layer];
    ds_op_rms_norm(f->run, f->sc->h, f->sc->x, l->post_norm, 0, n, f->m->hp.hidden, f->m->hp.eps);
    if (ds_is_moe(&f->m->hp)) experts(f, l, n);
    else dense(f, l, n);
}
