/* The witness without an oracle for weights whose products round their activations to 8 bits: the path
 * and the plain CPU path op by op, on the same inputs (backend/tandem).
 *
 * End to end, two correct paths drift apart there: a last-bit difference turns over a rounding, which is
 * a step of 1/127 of the largest activation, and a deep network carries it to the logits as a difference
 * of 1e-4 in cosine. In step, every op must agree to the backend's own limit, and a wrong one is named. */
#include "engine/check.h"

#include "backend/tandem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double relative(const struct ds_tandem_diff *d) { return d->den > 0 ? sqrt(d->num / d->den) : d->num > 0 ? INFINITY : 0; }

struct caches { struct ds_tandem_diff kv, conv, rec; };

static void compare_caches(const ds_session *s, struct caches *c)
{
    const struct ds_hparams *hp = &s->g->model.hp;
    struct ds_backend *be = s->g->be;
    const size_t kv = (size_t)s->st.pos * (size_t)hp->at.n_kv * (size_t)hp->at.hd;
    for (int i = 0; i < hp->n_layer; i++) {
        if (hp->attn[i]) {
            ds_tandem_compare(be, s->st.k[i], kv, &c->kv);
            ds_tandem_compare(be, s->st.v[i], kv, &c->kv);
        } else {
            ds_tandem_compare(be, s->st.conv[i], ds_conv_elems(&hp->gdn), &c->conv);
            ds_tandem_compare(be, s->st.S[i], ds_recurrent_elems(&hp->gdn), &c->rec);
        }
    }
}

static void judge(struct ds_check_case *c, const struct caches *k, double op, const char *op_name, const struct ds_backend *be)
{
    const double rel = fmax(fmax(relative(&k->kv), relative(&k->conv)), relative(&k->rec));
    if (!(op <= be->cache_limit))
        snprintf(c->why, sizeof c->why, "%s differs by %.3g of its norm, limit %.3g", op_name, op, be->cache_limit);
    else if (!(c->logits_cosine >= be->cosine_limit))
        snprintf(c->why, sizeof c->why, "logits cosine %.9f is below %.6f", c->logits_cosine, be->cosine_limit);
    else if (!(rel <= be->cache_limit))
        snprintf(c->why, sizeof c->why, "a cache differs by %.3g of its norm, limit %.3g", rel, be->cache_limit);
    else if (c->argmax_agreement < 1)
        snprintf(c->why, sizeof c->why, "argmax agrees at %.4f of the positions, expected all", c->argmax_agreement);
    else if (c->greedy_equal != c->greedy_total)
        snprintf(c->why, sizeof c->why, "greedy tokens agree for %d of %d", c->greedy_equal, c->greedy_total);
    c->pass = !c->why[0];
}

static ds_status tandem_case(struct ds_check_report *r, ds_session *s, int n, struct ds_err *e)
{
    struct ds_backend *be = s->g->be;
    const struct ds_tandem_report *t = ds_tandem_read(be);
    struct ds_check_case *c = ds_check_next(r, e);
    struct caches k = { 0 };
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    if (!c || !ids) {
        free(ids);
        return ds_fail(e, DS_ENOMEM, "the system refused memory for a prompt of %d tokens", n);
    }
    ds_session_reset(s);
    ds_tandem_reset(be);
    ds_status st = ds_check_prompt(s->g, ids, n, e);
    if (!st) st = ds_session_prefill(s, ids, n, DS_ROWS_ALL, NULL, NULL, e);
    free(ids);
    if (st) return st;
    compare_caches(s, &k);
    *c = (struct ds_check_case){ .n = n, .logits_cosine = t->cosine, .logits_max_abs = t->max_abs, .argmax_agreement = (double)t->rows_agree / t->rows,
                                 .greedy_total = DS_CHECK_GREEDY, .kv_max_abs = s->g->info.n_attn ? k.kv.max_abs : NAN,
                                 .conv_max_abs = s->g->info.n_gdn ? k.conv.max_abs : NAN, .recurrent_max_abs = s->g->info.n_gdn ? k.rec.max_abs : NAN };
    const int before = t->rows_agree;
    for (int i = 0; i + 1 < DS_CHECK_GREEDY && !st; i++) st = ds_session_decode(s, ds_check_argmax(ds_session_logits(s), s->g->model.hp.n_vocab), e);
    c->greedy_equal = t->rows_agree - before + (c->argmax_agreement == 1);   /* the first token is the prompt's last row */
    judge(c, &k, t->worst, t->worst_op, be);
    if (!st) r->pass &= r->cases[r->n_cases++].pass;
    return st;
}

ds_status ds_check_tandem(struct ds_check_report *r, const struct ds_options *o, ds_tick tick, void *tick_ctx, struct ds_err *e)
{
    int lengths[16];
    ds_engine *g = NULL;
    ds_session *s = NULL;
    ds_status st = ds_engine_open_tandem(&g, o, e);
    if (!st) st = ds_session_new(&s, g, e);
    const int n = st ? 0 : ds_check_lengths(lengths, g->info.gemm_flop_per_token, 40e9, g->info.ctx);
    for (int i = 0; i < n && !st; i++) {
        st = tandem_case(r, s, lengths[i], e);
        if (!st && tick && tick(tick_ctx, i + 1, n) && i + 1 < n) st = ds_fail(e, DS_ECANCEL, "stopped after %d of %d prompts", i + 1, n);
    }
    ds_session_free(s);
    ds_engine_close(g);
    return st;
}
