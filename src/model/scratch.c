/* Activations of one step: a table of buffers sized from the model, so that the plan and the
 * allocation cannot disagree. */
#include "model/model.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct want { size_t field; enum ds_buf_kind kind; size_t rows, dim; };
#define FIELD(name) offsetof(struct ds_scratch, name)
#define MAX_WANTS 32

static int wants(struct want w[MAX_WANTS], const struct ds_model *m, int ubatch)
{
    const struct ds_hparams *hp = &m->hp;
    const struct ds_sizes sz = ds_model_sizes(m, ubatch, 0);
    const size_t T = (size_t)ubatch, H = (size_t)hp->hidden;
    int n = 0;
#define ADD(name, kind, rows, dim) w[n++] = (struct want){ FIELD(name), kind, rows, (size_t)(dim) }
    ADD(x, DS_BUF_F32, T, H);
    ADD(h, DS_BUF_ACT, T, H);
    if (sz.gdn.n_vh) {
        const size_t inner = (size_t)sz.gdn.n_vh * (size_t)sz.gdn.dv;
        ADD(u, DS_BUF_PROJ, T, ds_gdn_channels(&sz.gdn));
        ADD(z, DS_BUF_PROJ, T, inner);
        ADD(a, DS_BUF_PROJ, T, sz.gdn.n_vh);
        ADD(b, DS_BUF_PROJ, T, sz.gdn.n_vh);
        ADD(prep, DS_BUF_F32, 1, ds_gdn_prep_elems(&sz.gdn, ubatch));
        ADD(o, DS_BUF_F32, T, inner);
        ADD(y_gdn, DS_BUF_ACT, T, inner);
    }
    if (sz.attn.n_head) {
        const size_t q = (size_t)sz.attn.n_head * (size_t)sz.attn.hd, kv = (size_t)sz.attn.n_kv * (size_t)sz.attn.hd;
        ADD(qg, DS_BUF_PROJ, T, 2 * q);
        ADD(k, DS_BUF_PROJ, T, kv);
        ADD(v, DS_BUF_PROJ, T, kv);
        ADD(y_attn, DS_BUF_ACT, T, q);
    }
    if (!ds_is_moe(hp)) {
        ADD(gate, DS_BUF_PROJ, T, hp->n_ff);
        ADD(up, DS_BUF_PROJ, T, hp->n_ff);
        ADD(act, DS_BUF_ACT, T, hp->n_ff);
    } else {
        const size_t slots = T * (size_t)hp->n_expert_used;
        ADD(router, DS_BUF_PROJ, T, hp->n_expert);
        ADD(route, DS_BUF_ROUTE, T, hp->n_expert_used);
        ADD(egate, DS_BUF_PROJ, slots, hp->n_ff_exp);
        ADD(eup, DS_BUF_PROJ, slots, hp->n_ff_exp);
        ADD(eact, DS_BUF_ACT, slots, hp->n_ff_exp);
        ADD(ey, DS_BUF_PROJ, slots, H);
        ADD(sgate, DS_BUF_PROJ, T, hp->n_ff_shexp);
        ADD(sup, DS_BUF_PROJ, T, hp->n_ff_shexp);
        ADD(sact, DS_BUF_ACT, T, hp->n_ff_shexp);
        ADD(sy, DS_BUF_PROJ, T, H);
        ADD(sg, DS_BUF_PROJ, T, 1);
    }
    ADD(logits, DS_BUF_LOGITS, DS_LOGIT_ROWS, hp->n_vocab);
#undef ADD
    return n;
}

static struct ds_buf **slot(struct ds_scratch *sc, const struct want *w) { return (struct ds_buf **)((char *)sc + w->field); }

/* The kept states: one buffer of max_cuts states per GDN layer. */
static ds_status new_cuts(struct ds_scratch *sc, const struct ds_model *m, int max_cuts, struct ds_err *e)
{
    const size_t L = (size_t)m->hp.n_layer;
    if (!max_cuts) return DS_OK;
    if (!(sc->cut_conv = calloc(2 * L, sizeof *sc->cut_conv))) return ds_fail(e, DS_ENOMEM, "the system refused memory for kept states");
    sc->cut_S = sc->cut_conv + L;
    sc->max_cuts = max_cuts;
    for (size_t i = 0; i < L; i++) {
        if (m->hp.attn[i]) continue;
        sc->cut_conv[i] = m->be->ops->buf_new(m->be, DS_BUF_F32, (size_t)max_cuts, ds_conv_elems(&m->hp.gdn), e);
        sc->cut_S[i] = m->be->ops->buf_new(m->be, DS_BUF_F32, (size_t)max_cuts, ds_recurrent_elems(&m->hp.gdn), e);
        if (!sc->cut_conv[i] || !sc->cut_S[i]) return DS_ENOMEM;
    }
    return DS_OK;
}

static void free_cuts(struct ds_scratch *sc, const struct ds_model *m)
{
    for (int i = 0; sc->cut_conv && i < 2 * m->hp.n_layer; i++) m->be->ops->buf_free(m->be, sc->cut_conv[i]);
    free(sc->cut_conv);
}

ds_status ds_scratch_new(struct ds_scratch *sc, const struct ds_model *m, int ubatch, int max_cuts, struct ds_err *e)
{
    struct want w[MAX_WANTS];
    const int n = wants(w, m, ubatch);
    memset(sc, 0, sizeof *sc);
    sc->ubatch = ubatch;
    for (int i = 0; i < n; i++)
        if (!(*slot(sc, &w[i]) = m->be->ops->buf_new(m->be, w[i].kind, w[i].rows, w[i].dim, e))) {
            ds_scratch_free(sc, m);
            return DS_ENOMEM;
        }
    ds_status st = new_cuts(sc, m, max_cuts, e);
    if (st) ds_scratch_free(sc, m);
    return st;
}

void ds_scratch_free(struct ds_scratch *sc, const struct ds_model *m)
{
    struct want w[MAX_WANTS];
    const int n = sc->ubatch ? wants(w, m, sc->ubatch) : 0;
    for (int i = 0; i < n; i++) m->be->ops->buf_free(m->be, *slot(sc, &w[i]));
    free_cuts(sc, m);
    memset(sc, 0, sizeof *sc);
}

uint64_t ds_scratch_bytes(const struct ds_model *m, int ubatch, int max_cuts)
{
    struct want w[MAX_WANTS];
    const int n = wants(w, m, ubatch);
    uint64_t total = 0;
    for (int i = 0; i < n; i++) total += m->be->ops->buf_bytes(m->be, w[i].kind, w[i].rows, w[i].dim);
    return total + (uint64_t)max_cuts * ds_state_kept_bytes(m);
}
