/* The witness without an oracle, end to end: the path's logits, greedy tokens and caches against those of
 * the plain CPU path on the same prose. */
#include "engine/check.h"

#include <stdlib.h>
#include <string.h>

/* Against the template: the same weights, so the backend's own limits. Rounding of activations to 8 bits
 * turns a last-bit difference into a step, so caches are judged for float weights only. */
static struct ds_check_limits template_limits(const struct ds_engine *g)
{
    return (struct ds_check_limits){ .cosine = g->be->cosine_limit, .greedy_from = g->be->cosine_limit >= 0.999999 ? 1 : 64,
                            .cache_rel = ds_check_float_weights(g) && !g->kv_f16 ? g->be->cache_limit : 0 };
}

/* The template's own caches, read when asked for: buf[0] keys or conv, buf[1] values or recurrent. The
 * template has decoded past the prompt by then, so recurrent caches were recorded with the prompt. */
struct template_caches { float **a, **b; };

static const float *template_cache(void *ctx, const char *what, int layer, int n, size_t elems)
{
    struct template_caches *c = ctx;
    (void)n; (void)elems;
    return !strcmp(what, "keys") || !strcmp(what, "conv") ? c->a[layer] : c->b[layer];
}

static ds_status record_caches(ds_session *s, struct template_caches *c, struct ds_err *e)
{
    const struct ds_hparams *hp = &s->g->model.hp;
    for (int i = 0; i < hp->n_layer; i++) {
        const size_t kv = (size_t)s->st.pos * (size_t)hp->at.n_kv * (size_t)hp->at.hd;
        const size_t na = hp->attn[i] ? kv : (size_t)(hp->gdn.conv_k - 1) * (size_t)ds_gdn_channels(&hp->gdn);
        const size_t nb = hp->attn[i] ? kv : (size_t)hp->gdn.n_vh * (size_t)hp->gdn.dk * (size_t)hp->gdn.dv;
        if (!(c->a[i] = malloc(na * sizeof(float))) || !(c->b[i] = malloc(nb * sizeof(float))))
            return ds_fail(e, DS_ENOMEM, "the system refused memory for the template's caches");
        if (hp->attn[i]) ds_session_kv(s, i, c->a[i], c->b[i]);
        else ds_session_gdn_state(s, i, c->a[i], c->b[i]);
    }
    return DS_OK;
}

static ds_status template_case(struct ds_check_report *r, ds_session *s, ds_session *tmpl, int n, struct ds_err *e)
{
    const struct ds_hparams *hp = &s->g->model.hp;
    const size_t L = (size_t)hp->n_layer, vocab = (size_t)hp->n_vocab;
    const struct ds_check_limits l = template_limits(s->g);
    int32_t greedy[DS_CHECK_GREEDY], *ids = malloc(2 * (size_t)n * sizeof *ids), *am = ids ? ids + n : NULL;
    float *logits = malloc(vocab * sizeof *logits), **caches = calloc(2 * L, sizeof *caches);
    struct template_caches tc = { caches, caches ? caches + L : NULL };
    ds_status st = ids && logits && caches ? DS_OK : ds_fail(e, DS_ENOMEM, "the system refused memory for the template's results");
    ds_session_reset(tmpl);
    if (!st && !(st = ds_check_prompt(tmpl->g, ids, n, e)) && !(st = ds_session_prefill(tmpl, ids, n, DS_ROWS_ALL, NULL, NULL, e)) &&
        !(st = record_caches(tmpl, &tc, e))) {
        for (int i = 0; i < n; i++) am[i] = ds_check_argmax(ds_session_logits_row(tmpl, i), hp->n_vocab);
        memcpy(logits, ds_session_logits(tmpl), vocab * sizeof *logits);
        for (int i = 0; i < DS_CHECK_GREEDY && !st; i++) {
            greedy[i] = ds_check_argmax(ds_session_logits(tmpl), hp->n_vocab);
            if (i + 1 < DS_CHECK_GREEDY) st = ds_session_decode(tmpl, greedy[i], e);
        }
        const struct ds_check_reference ref = { n, ids, logits, am, greedy, template_cache, &tc };
        if (!st) st = ds_check_add(r, s, &ref, &l, e);
    }
    for (size_t i = 0; caches && i < 2 * L; i++) free(caches[i]);
    free(caches);
    free(logits);
    free(ids);
    return st;
}

ds_status ds_check_template(struct ds_check_report *r, ds_session *s, const struct ds_options *o, ds_tick tick, void *tick_ctx, struct ds_err *e)
{
    const bool on_cpu = !strcmp(s->g->be->name, "cpu");
    int lengths[16];
    struct ds_options to = *o;
    ds_engine *g = NULL;
    ds_session *t = NULL;
    to.backend = "cpu";
    to.placement = "full";
    to.gdn = "seq";
    to.gemm = to.weights = NULL;
    to.gpu_work = 0;
    if (on_cpu) to.isa = "scalar";     /* a device is compared with the fast CPU path, which is proven against this one */
    ds_status st = ds_engine_open(&g, &to, e);
    if (!st) st = ds_session_new(&t, g, e);
    int n = 0;
    if (!st) st = ds_check_lengths(r, lengths, &n, g, on_cpu ? 40e9 : 800e9, e);
    for (int i = 0; i < n && !st; i++) {
        st = template_case(r, s, t, lengths[i], e);
        if (!st && tick && tick(tick_ctx, i + 1, n) && i + 1 < n) st = ds_fail(e, DS_ECANCEL, "stopped after %d of %d prompts", i + 1, n);
    }
    ds_session_free(t);
    ds_engine_close(g);
    return st;
}
