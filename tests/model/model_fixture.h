/* Opening engines and comparing sessions, shared by the model tests. */
#ifndef DS_TESTS_MODEL_FIXTURE_H
#define DS_TESTS_MODEL_FIXTURE_H

#include "deltascope.h"
#include "../harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURES "tests/fixtures/"

struct rig { ds_engine *g; ds_session *s; };

static inline bool rig_open(struct rig *r, const struct ds_options *o)
{
    struct ds_err e = { 0 };
    memset(r, 0, sizeof *r);
    bool ok = !ds_engine_open(&r->g, o, &e) && !ds_session_new(&r->s, r->g, &e);
    CHECK_MSG(ok, "%s", e.msg);
    return ok;
}

static inline void rig_close(struct rig *r)
{
    ds_session_free(r->s);
    ds_engine_close(r->g);
}

static inline bool rig_prefill(struct rig *r, const int32_t *ids, int n)
{
    struct ds_err e = { 0 };
    ds_status st = ds_session_prefill(r->s, ids, n, DS_ROWS_LAST, NULL, NULL, &e);
    CHECK_MSG(!st, "%s", e.msg);
    return !st;
}

static inline int rig_argmax(const struct rig *r)
{
    const float *x = ds_session_logits(r->s);
    int best = 0;
    for (int i = 1; i < ds_engine_info(r->g)->n_vocab; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* n greedy tokens into out, going on past end-of-text. */
static inline bool rig_greedy(struct rig *r, int32_t *out, int n)
{
    for (int i = 0; i < n; i++) {
        struct ds_err e = { 0 };
        out[i] = rig_argmax(r);
        if (i + 1 < n && ds_session_decode(r->s, out[i], &e)) {
            CHECK_MSG(false, "%s", e.msg);
            return false;
        }
    }
    return true;
}

static inline double rig_cosine(const float *a, const float *b, size_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return ab / sqrt(aa * bb);
}

static inline double rel_norm(const float *got, const float *ref, size_t n)
{
    double num = 0, den = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - ref[i];
        num += d * d;
        den += (double)ref[i] * ref[i];
    }
    if (!isfinite(num)) return INFINITY;
    return den > 0 ? sqrt(num / den) : num > 0 ? INFINITY : 0;
}

/* Both caches of one layer as one malloc'ed array; *n its length. */
static inline float *layer_state(const struct rig *r, int layer, size_t *n)
{
    const struct ds_model_info *f = ds_engine_info(r->g);
    const bool attn = ds_engine_layer_is_attn(r->g, layer);
    const size_t na = attn ? (size_t)ds_session_pos(r->s) * (size_t)(f->n_kv * f->head_dim)
                           : (size_t)(f->conv_kernel - 1) * (size_t)(2 * f->gdn_kh * f->gdn_dk + f->gdn_vh * f->gdn_dv);
    const size_t nb = attn ? na : (size_t)f->gdn_vh * (size_t)(f->gdn_dk * f->gdn_dv);
    float *p = malloc((na + nb) * sizeof *p);
    if (!p) abort();
    if (attn) ds_session_kv(r->s, layer, p, p + na);
    else ds_session_gdn_state(r->s, layer, p, p + na);
    *n = na + nb;
    return p;
}

/* Largest relative difference of any layer's caches. */
static inline double state_diff(const struct rig *a, const struct rig *b)
{
    double worst = 0;
    for (int i = 0; i < ds_engine_info(a->g)->n_layer; i++) {
        size_t na, nb;
        float *x = layer_state(a, i, &na), *y = layer_state(b, i, &nb);
        double d = na == nb ? rel_norm(x, y, na) : INFINITY;
        if (!(d <= worst)) worst = d;
        free(x);
        free(y);
    }
    return worst;
}

static inline void fill_ids(int32_t *ids, int n, int vocab, uint32_t seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)((seed >> 8) % (uint32_t)vocab);
    }
}

#endif
