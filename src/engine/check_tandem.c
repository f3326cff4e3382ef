/* The witness without an oracle for paths whose products round: the path and the plain CPU path op by op, on the
 * same inputs (backend/tandem).
 *
 * End to end, two correct paths drift apart there: a last-bit difference turns over a rounding, which is
 * a step of 1/127 of the largest activation (of 2^-11 of any on a device), and a deep network carries it to the logits as a
 * difference of 1e-4 in cosine, or turns an expert over. In step, every op must agree to the backend's own limits, and a wrong
 * one is named. In step every op is waited for, so the path also runs freely first, and must give what it gives in step. */
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

/* What the path gives for a prompt when nothing waits in between. */
struct free_run { float *logits; int32_t greedy[DS_CHECK_GREEDY]; };

/* Greedy tokens: all where the plain path can afford them, else a few. */
static int greedy_steps(const ds_session *s) { return s->g->info.gemm_flop_per_token < 4e9 ? DS_CHECK_GREEDY : 4; }

static ds_status run_prompt(ds_session *s, int n, struct ds_err *e)
{
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    if (!ids) return ds_fail(e, DS_ENOMEM, "the system refused memory for a prompt of %d tokens", n);
    ds_session_reset(s);
    ds_status st = ds_check_prompt(s->g, ids, n, e);
    if (!st) st = ds_session_prefill(s, ids, n, DS_ROWS_ALL, NULL, NULL, e);
    free(ids);
    return st;
}

static ds_status free_case(struct free_run *f, ds_session *s, int n, struct ds_err *e)
{
    const int vocab = s->g->model.hp.n_vocab, steps = greedy_steps(s);
    if (!(f->logits = malloc((size_t)vocab * sizeof *f->logits))) return ds_fail(e, DS_ENOMEM, "the system refused memory for logits");
    ds_status st = run_prompt(s, n, e);
    if (st) return st;
    memcpy(f->logits, ds_session_logits(s), (size_t)vocab * sizeof *f->logits);
    for (int i = 0; i < steps && !st; i++) {
        f->greedy[i] = ds_check_argmax(ds_session_logits(s), vocab);
        if (i + 1 < steps) st = ds_session_decode(s, f->greedy[i], e);
    }
    return st;
}

/* Equal work in the same order: the same but for devices whose sums have no fixed order. */
static const double same_cosine = 0.999999;

static void judge_free(struct ds_check_case *c, double same, int differs)
{
    if (!(same >= same_cosine)) snprintf(c->why, sizeof c->why, "logits differ from those of the same path op by op: cosine %.9f", same);
    else if (differs) snprintf(c->why, sizeof c->why, "greedy token %d is another than on the same path op by op", differs);
}

static void judge(struct ds_check_case *c, const struct caches *k, const struct ds_tandem_report *t, const struct ds_backend *be)
{
    const double rel = fmax(fmax(relative(&k->kv), relative(&k->conv)), relative(&k->rec));
    if (!(t->worst <= t->limit)) snprintf(c->why, sizeof c->why, "%s differs by %.3g of its norm, limit %.3g", t->worst_op, t->worst, t->limit);
    else if (!(c->logits_cosine >= be->cosine_limit))
        snprintf(c->why, sizeof c->why, "logits cosine %.9f is below %.6f", c->logits_cosine, be->cosine_limit);
    else if (!(rel <= be->op_limit))
        snprintf(c->why, sizeof c->why, "a cache differs by %.3g of its norm, limit %.3g", rel, be->op_limit);
    else if (c->argmax_agreement < 1)
        snprintf(c->why, sizeof c->why, "argmax agrees at %.4f of the positions, expected all", c->argmax_agreement);
    else if (c->greedy_equal != c->greedy_total)
        snprintf(c->why, sizeof c->why, "greedy tokens agree for %d of %d", c->greedy_equal, c->greedy_total);
    c->pass = !c->why[0];
}

/* Greedy tokens in step; the index (from 1) of the first that the free run has otherwise and that is no tie, 0: none. */
static ds_status greedy_run(ds_session *s, const struct free_run *f, int *differs, struct ds_err *e)
{
    const int vocab = s->g->model.hp.n_vocab, steps = greedy_steps(s);
    bool together = true;
    ds_status st = DS_OK;
    for (int i = 0; i < steps && !st; i++) {
        const float *logits = ds_session_logits(s);
        const int32_t best = ds_check_argmax(logits, vocab);
        if (together && best != f->greedy[i]) {
            together = false;                      /* a tie: from here on the two go their own ways */
            if (!ds_tandem_tied(s->g->be, logits, (size_t)vocab, f->greedy[i])) *differs = i + 1;
        }
        if (i + 1 < steps) st = ds_session_decode(s, best, e);
    }
    return st;
}

static ds_status tandem_case(struct ds_check_report *r, ds_session *s, const struct free_run *f, int n, struct ds_err *e)
{
    struct ds_backend *be = s->g->be;
    const struct ds_tandem_report *t = ds_tandem_read(be);
    const struct ds_model_info *info = &s->g->info;
    struct ds_check_case *c = ds_check_next(r, e);
    struct caches k = { 0 };
    int differs = 0;
    if (!c) return DS_ENOMEM;
    ds_tandem_reset(be);
    ds_status st = run_prompt(s, n, e);
    if (st) return st;
    compare_caches(s, &k);
    const double same = ds_check_cosine(ds_session_logits(s), f->logits, (size_t)s->g->model.hp.n_vocab);
    *c = (struct ds_check_case){ .n = n, .logits_cosine = t->cosine, .logits_max_abs = t->max_abs, .argmax_agreement = (double)t->rows_agree / t->rows,
                                 .greedy_total = greedy_steps(s), .argmax_judged = true, .greedy_judged = true, .caches_judged = true,
                                 .kv_max_abs = info->n_attn ? k.kv.max_abs : NAN,
                                 .conv_max_abs = info->n_gdn ? k.conv.max_abs : NAN, .recurrent_max_abs = info->n_gdn ? k.rec.max_abs : NAN };
    const int before = t->rows_agree;
    st = greedy_run(s, f, &differs, e);
    c->greedy_equal = t->rows_agree - before + (c->argmax_agreement == 1);   /* the first token is the prompt's last row */
    judge(c, &k, t, be);
    if (c->pass) judge_free(c, same, differs);
    c->pass = !c->why[0];
    if (!st) r->pass &= r->cases[r->n_cases++].pass;
    return st;
}

static void say_limits(struct ds_check_report *r, const struct ds_backend *be)
{
    snprintf(r->limits, sizeof r->limits, "op by op on the same inputs: products of quantised weights within %g of their norm, all else and the caches "
             "within %g, logits cosine at least %g, every argmax and greedy token; without waiting between the ops the same tokens, but for "
             "ties, and a cosine of at least %g", be->product_limit, be->op_limit, be->cosine_limit, same_cosine);
}

/* Operations per prompt that the plain path may take: on one thread of plain C, or with fast kernels beside products. */
static double budget(const ds_engine *g) { return !strcmp(g->be->name, "cpu") ? 40e9 : 4e12; }

/* Asks the caller whether to go on after `done` of n prompts. */
static ds_status go_on(ds_tick tick, void *tick_ctx, int done, int n, struct ds_err *e)
{
    if (!tick || !tick(tick_ctx, done, n) || done == n) return DS_OK;
    return ds_fail(e, DS_ECANCEL, "stopped after %d of %d prompts", done, n);
}

static ds_status free_runs(struct free_run *f, const int *lengths, int n, ds_session *s, ds_tick tick, void *tick_ctx, struct ds_err *e)
{
    ds_status st = DS_OK;
    for (int i = 0; i < n && !st; i++) {
        st = free_case(&f[i], s, lengths[i], e);
        if (!st) st = go_on(tick, tick_ctx, 0, n, e);
    }
    return st;
}

static ds_status in_step(struct ds_check_report *r, const struct free_run *f, const int *lengths, int n, const struct ds_options *o, ds_tick tick,
                         void *tick_ctx, struct ds_err *e)
{
    ds_engine *g = NULL;
    ds_session *s = NULL;
    ds_status st = ds_engine_open_tandem(&g, o, e);
    if (!st) st = ds_session_new(&s, g, e);
    for (int i = 0; i < n && !st; i++) {
        st = tandem_case(r, s, &f[i], lengths[i], e);
        if (!st) st = go_on(tick, tick_ctx, i + 1, n, e);
    }
    ds_session_free(s);
    ds_engine_close(g);
    return st;
}

/* s, and its engine, which the caller opened to run freely, are closed here: two engines of a large model do not fit a device. */
ds_status ds_check_tandem(struct ds_check_report *r, ds_session *s, const struct ds_options *o, ds_tick tick, void *tick_ctx, struct ds_err *e)
{
    int lengths[16], n = 0;
    struct free_run runs[16] = { { NULL, { 0 } } };
    ds_engine *g = s->g;
    say_limits(r, g->be);
    ds_status st = ds_check_lengths(r, lengths, &n, g, budget(g), e);
    if (!st) st = free_runs(runs, lengths, n, s, tick, tick_ctx, e);
    ds_session_free(s);
    ds_engine_close(g);
    if (!st) st = in_step(r, runs, lengths, n, o, tick, tick_ctx, e);
    for (int i = 0; i < n; i++) free(runs[i].logits);
    return st;
}
