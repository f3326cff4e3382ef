/* The witness: one path's logits, greedy tokens and caches against a proven one's.
 *
 * With an oracle file the reference are stored vectors (GGUF tensors ids.n, logits.n, argmax.n,
 * greedy.n, keys_Ll.n, values_Ll.n, conv_Ll.n, recurrent_Ll.n). Without one it is the template: the
 * plain CPU path in the file's own types, run on a page of prose. No logit is masked, and greedy runs go
 * on past end-of-text. */
#include "engine/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- limits: what counts as the same --- */

bool ds_check_float_weights(const struct ds_engine *g)
{
    for (int i = 0; i < g->model.n_mats; i++)
        if (g->model.mats[i].t->type->act != DS_ACT_NONE) return false;
    return true;
}

/* Against f32 vectors of unquantised weights: exact but for rounding on a backend that computes in f32;
 * quantised weights carry their own error, so only the answer is judged. */
static struct ds_check_limits oracle_limits(const struct ds_engine *g)
{
    const bool exact = g->be->cosine_limit >= 0.999999;
    if (!ds_check_float_weights(g)) return (struct ds_check_limits){ .cosine = 0.999, .greedy_from = 64 };
    if (!exact) return (struct ds_check_limits){ .cosine = g->be->cosine_limit, .greedy_from = 64 };
    return (struct ds_check_limits){ .cosine = 0.999999, .argmax_all = true, .greedy_from = 1, .cache_abs = g->kv_f16 ? 0 : 1e-4 };
}

static void say_limits(struct ds_check_report *r, const struct ds_check_limits *l)
{
    char caches[64] = "", from[64] = "";
    if (l->cache_abs > 0) snprintf(caches, sizeof caches, ", caches within %g", l->cache_abs);
    if (l->cache_rel > 0) snprintf(caches, sizeof caches, ", caches within %g of their norm", l->cache_rel);
    if (l->greedy_from > 1) snprintf(from, sizeof from, " after prompts of %d tokens and more", l->greedy_from);
    snprintf(r->limits, sizeof r->limits, "end to end: logits cosine at least %g%s, every greedy token%s%s", l->cosine,
             l->argmax_all ? ", every argmax" : "", from, caches);
}

/* --- comparing --- */

struct diff { double max_abs, num, den; };

static void add_diff(struct diff *d, const float *got, const float *ref, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double x = (double)got[i] - ref[i];
        if (!(fabs(x) <= d->max_abs)) d->max_abs = isnan(x) ? INFINITY : fabs(x);
        d->num += x * x;
        d->den += (double)ref[i] * ref[i];
    }
}

static double relative(const struct diff *d) { return d->den > 0 ? sqrt(d->num / d->den) : d->num > 0 ? INFINITY : 0; }

double ds_check_cosine(const float *a, const float *b, size_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

int ds_check_argmax(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* --- a prompt against its reference --- */

struct caches { struct diff kv, conv, rec; bool has_kv, has_conv, has_rec; };

static ds_status compare_layer(ds_session *s, const struct ds_check_reference *ref, int layer, struct caches *c, struct ds_err *e)
{
    const struct ds_hparams *hp = &s->g->model.hp;
    const bool attn = hp->attn[layer];
    const size_t na = attn ? (size_t)ref->n * (size_t)hp->at.n_kv * (size_t)hp->at.hd : (size_t)(hp->gdn.conv_k - 1) * (size_t)ds_gdn_channels(&hp->gdn);
    const size_t nb = attn ? na : (size_t)hp->gdn.n_vh * (size_t)hp->gdn.dk * (size_t)hp->gdn.dv;
    const float *ra = ref->cache(ref->cache_ctx, attn ? "keys" : "conv", layer, ref->n, na);
    const float *rb = ref->cache(ref->cache_ctx, attn ? "values" : "recurrent", layer, ref->n, nb);
    if (!ra && !rb) return DS_OK;
    float *a = malloc((na + nb) * sizeof *a);
    if (!a) return ds_fail(e, DS_ENOMEM, "the system refused memory to compare the caches of layer %d", layer);
    float *b = a + na;
    if (attn) ds_session_kv(s, layer, a, b);
    else ds_session_gdn_state(s, layer, a, b);
    if (ra) add_diff(attn ? &c->kv : &c->conv, a, ra, na);
    if (rb) add_diff(attn ? &c->kv : &c->rec, b, rb, nb);
    if (attn) c->has_kv = true;
    else {
        c->has_conv |= ra != NULL;
        c->has_rec |= rb != NULL;
    }
    free(a);
    return DS_OK;
}

static int greedy_agreement(ds_session *s, const int32_t *want, struct ds_err *e, ds_status *st)
{
    int equal = 0;
    const int vocab = s->g->model.hp.n_vocab;
    for (int i = 0; i < DS_CHECK_GREEDY; i++) {
        const int32_t id = ds_check_argmax(ds_session_logits(s), vocab);
        if (id != want[i]) break;      /* from here on the two go their own ways */
        equal++;
        if (i + 1 < DS_CHECK_GREEDY && (*st = ds_session_decode(s, id, e))) break;
    }
    return equal;
}

static bool within(double got, double limit) { return limit <= 0 || got <= limit; }

static void judge(struct ds_check_case *c, const struct caches *k, const struct ds_check_limits *l)
{
    const double rel = fmax(fmax(relative(&k->kv), relative(&k->conv)), relative(&k->rec));
    const double worst = fmax(fmax(k->kv.max_abs, k->conv.max_abs), k->rec.max_abs);
    if (!(c->logits_cosine >= l->cosine))
        snprintf(c->why, sizeof c->why, "logits cosine %.9f is below %.6f", c->logits_cosine, l->cosine);
    else if (c->argmax_judged && c->argmax_agreement < 1)
        snprintf(c->why, sizeof c->why, "argmax agrees at %.4f of the positions, expected all", c->argmax_agreement);
    else if (c->greedy_judged && c->greedy_equal != c->greedy_total)
        snprintf(c->why, sizeof c->why, "greedy tokens agree for %d of %d", c->greedy_equal, c->greedy_total);
    else if (!within(worst, l->cache_abs))
        snprintf(c->why, sizeof c->why, "a cache differs by %.3g, limit %.3g", worst, l->cache_abs);
    else if (!within(rel, l->cache_rel))
        snprintf(c->why, sizeof c->why, "a cache differs by %.3g of its norm, limit %.3g", rel, l->cache_rel);
    c->pass = !c->why[0];
}

static ds_status compare(ds_session *s, const struct ds_check_reference *ref, const struct ds_check_limits *l, struct ds_check_case *c, struct ds_err *e)
{
    const int vocab = s->g->model.hp.n_vocab;
    struct diff d = { 0 };
    struct caches k = { 0 };
    ds_session_reset(s);
    ds_status st = ds_session_prefill(s, ref->ids, ref->n, DS_ROWS_ALL, NULL, NULL, e);
    if (st) return st;
    int agree = 0;
    for (int i = 0; i < ref->n; i++) agree += ds_check_argmax(ds_session_logits_row(s, i), vocab) == ref->argmax[i];
    add_diff(&d, ds_session_logits(s), ref->logits, (size_t)vocab);
    for (int i = 0; i < s->g->model.hp.n_layer && !st; i++) st = compare_layer(s, ref, i, &k, e);
    *c = (struct ds_check_case){ .n = ref->n, .logits_cosine = ds_check_cosine(ds_session_logits(s), ref->logits, (size_t)vocab), .logits_max_abs = d.max_abs,
                                 .argmax_agreement = (double)agree / ref->n, .greedy_total = DS_CHECK_GREEDY, .argmax_judged = l->argmax_all,
                                 .greedy_judged = ref->n >= l->greedy_from, .caches_judged = l->cache_abs > 0 || l->cache_rel > 0,
                                 .kv_max_abs = k.has_kv ? k.kv.max_abs : NAN, .conv_max_abs = k.has_conv ? k.conv.max_abs : NAN,
                                 .recurrent_max_abs = k.has_rec ? k.rec.max_abs : NAN };
    if (!st) c->greedy_equal = greedy_agreement(s, ref->greedy, e, &st);
    judge(c, &k, l);
    return st;
}

struct ds_check_case *ds_check_next(struct ds_check_report *r, struct ds_err *e)
{
    struct ds_check_case *p = realloc(r->cases, (size_t)(r->n_cases + 1) * sizeof *p);
    if (!p) {
        ds_fail(e, DS_ENOMEM, "the system refused memory for the report");
        return NULL;
    }
    r->cases = p;
    return &p[r->n_cases];
}

ds_status ds_check_add(struct ds_check_report *r, ds_session *s, const struct ds_check_reference *ref, const struct ds_check_limits *l, struct ds_err *e)
{
    struct ds_check_case *c = ds_check_next(r, e);
    if (!c) return DS_ENOMEM;
    say_limits(r, l);
    ds_status st = compare(s, ref, l, c, e);
    if (!st) r->pass &= r->cases[r->n_cases++].pass;
    return st;
}

/* --- against an oracle file --- */

static const struct ds_tensor *oracle_tensor(const struct ds_gguf *o, const char *what, int n, const struct ds_type *type, size_t elems, struct ds_err *e)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%d", what, n);
    const struct ds_tensor *t = ds_gguf_find(o, name);
    if (t && t->type == type && t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3] == elems) return t;
    ds_fail(e, DS_EFORMAT, "%s: oracle tensor '%s' is %s, expected %zu values of %s", ds_gguf_path(o), name, t ? "of another shape or type" : "missing", elems,
            type->name);
    return NULL;
}

static const float *oracle_cache(void *ctx, const char *what, int layer, int n, size_t elems)
{
    char name[32];
    snprintf(name, sizeof name, "%s_L%d", what, layer);
    const struct ds_tensor *t = oracle_tensor(ctx, name, n, &ds_types[DS_T_F32], elems, NULL);
    return t ? t->data : NULL;
}

static ds_status oracle_case(struct ds_check_report *r, ds_session *s, const struct ds_gguf *o, int n, struct ds_err *e)
{
    const struct ds_type *i32 = &ds_types[DS_T_I32], *f32 = &ds_types[DS_T_F32];
    const struct ds_check_limits l = oracle_limits(s->g);
    const struct ds_tensor *ids = oracle_tensor(o, "ids", n, i32, (size_t)n, e), *am = ids ? oracle_tensor(o, "argmax", n, i32, (size_t)n, e) : NULL;
    const struct ds_tensor *gr = am ? oracle_tensor(o, "greedy", n, i32, DS_CHECK_GREEDY, e) : NULL;
    const struct ds_tensor *lg = gr ? oracle_tensor(o, "logits", n, f32, (size_t)s->g->model.hp.n_vocab, e) : NULL;
    if (!lg) return DS_EFORMAT;
    const struct ds_check_reference ref = { n, ids->data, lg->data, am->data, gr->data, oracle_cache, (void *)(uintptr_t)o };
    return ds_check_add(r, s, &ref, &l, e);
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static ds_status against_oracle(struct ds_check_report *r, ds_session *s, const char *path, ds_tick tick, void *tick_ctx, struct ds_err *e)
{
    struct ds_gguf *o;
    int lengths[256], n = 0;
    ds_status st = ds_gguf_open(&o, path, e);
    if (st) return st;
    for (size_t i = 0; i < ds_gguf_n_tensors(o) && n < 256; i++)
        if (sscanf(ds_gguf_tensor(o, i)->name, "ids.%d", &lengths[n]) == 1 && lengths[n] > 0) n++;
    qsort(lengths, (size_t)n, sizeof *lengths, by_number);
    if (!n) st = ds_fail(e, DS_EFORMAT, "%s: this is no oracle file: it has no tensor 'ids.<n>'", path);
    for (int i = 0; i < n && !st; i++) {
        st = oracle_case(r, s, o, lengths[i], e);
        if (!st && tick && tick(tick_ctx, i + 1, n) && i + 1 < n) st = ds_fail(e, DS_ECANCEL, "stopped after %d of %d prompts", i + 1, n);
    }
    ds_gguf_close(o);
    return st;
}

ds_status ds_check(const struct ds_options *o, const char *oracle, struct ds_check_report *r, ds_tick tick, void *tick_ctx, struct ds_err *e)
{
    struct ds_err own = { 0 };
    struct ds_options opt = *o;
    ds_engine *g = NULL;
    ds_session *s = NULL;
    if (!e) e = &own;
    memset(r, 0, sizeof *r);
    r->pass = true;
    if (!opt.kv) opt.kv = "f32";   /* so that caches can be judged; --kv f16 is honoured */
    ds_status st = ds_engine_open(&g, &opt, e);
    if (!st) {
        snprintf(r->backend, sizeof r->backend, "%s", ds_engine_backend(g));
        snprintf(r->placement, sizeof r->placement, "%s", ds_engine_placement(g));
        snprintf(r->isa, sizeof r->isa, "%s", ds_engine_isa(g));
        st = ds_session_new(&s, g, e);
    }
    /* In step where the path can be run so; a CPU path of float weights agrees with the template to the last bits end to end too. */
    const bool in_step = !st && !oracle && g->be->op_limit > 0 && (strcmp(g->be->name, "cpu") || !ds_check_float_weights(g));
    if (in_step) {
        st = ds_check_tandem(r, s, &opt, tick, tick_ctx, e);
        g = NULL, s = NULL;
    } else if (!st) {
        st = oracle ? against_oracle(r, s, oracle, tick, tick_ctx, e) : ds_check_template(r, s, &opt, tick, tick_ctx, e);
    }
    ds_session_free(s);
    ds_engine_close(g);
    r->pass &= !st && r->n_cases > 0;
    return st;
}

void ds_check_report_free(struct ds_check_report *r)
{
    free(r->cases);
    memset(r, 0, sizeof *r);
}
