/* Caches and recurrent state of one timeline. */
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

static size_t kv_dim(const struct ds_model *m) { return (size_t)m->hp.at.n_kv * (size_t)m->hp.at.hd; }
static size_t conv_rows(const struct ds_model *m) { return (size_t)m->hp.gdn.conv_k - 1; }
static size_t s_rows(const struct ds_model *m) { return (size_t)m->hp.gdn.n_vh * (size_t)m->hp.gdn.dk; }

ds_status ds_state_new(struct ds_state *s, const struct ds_model *m, int64_t ctx, struct ds_err *e)
{
    const struct ds_ops *ops = m->be->ops;
    const size_t L = (size_t)m->hp.n_layer;
    struct ds_err own;
    if (!e) e = &own;
    *s = (struct ds_state){ .be = m->be, .n_layer = m->hp.n_layer, .ctx = ctx };
    struct ds_buf **all = calloc(4 * L, sizeof(struct ds_buf *));
    if (!all) return ds_fail(e, DS_ENOMEM, "the system refused memory for the state of %d layers", m->hp.n_layer);
    s->k = all;
    s->v = all + L;
    s->conv = all + 2 * L;
    s->S = all + 3 * L;
    for (size_t i = 0; i < L; i++) {
        bool ok;
        if (m->hp.attn[i])
            ok = (s->k[i] = ops->buf_new(m->be, DS_BUF_KV, (size_t)ctx, kv_dim(m), e)) &&
                 (s->v[i] = ops->buf_new(m->be, DS_BUF_KV, (size_t)ctx, kv_dim(m), e));
        else
            ok = (s->conv[i] = ops->buf_new(m->be, DS_BUF_STATE, conv_rows(m), (size_t)ds_gdn_channels(&m->hp.gdn), e)) &&
                 (s->S[i] = ops->buf_new(m->be, DS_BUF_STATE, s_rows(m), (size_t)m->hp.gdn.dv, e));
        if (!ok) {
            ds_state_free(s);
            return e->code ? e->code : DS_ENOMEM;
        }
    }
    return DS_OK;
}

void ds_state_free(struct ds_state *s)
{
    for (int i = 0; s->k && i < 4 * s->n_layer; i++) s->be->ops->buf_free(s->be, s->k[i]);
    free(s->k);
    memset(s, 0, sizeof *s);
}

static void zero(struct ds_backend *be, struct ds_buf *b, size_t n)
{
    static const float zeros[4096];
    for (size_t i = 0; b && i < n; i += 4096) be->ops->buf_write(be, b, i, zeros, n - i < 4096 ? n - i : 4096);
}

void ds_state_reset(struct ds_state *s, const struct ds_model *m)
{
    s->pos = 0;   /* rows of the KV cache beyond pos are never read */
    for (int i = 0; i < s->n_layer; i++) {
        zero(s->be, s->conv[i], ds_conv_elems(&m->hp.gdn));
        zero(s->be, s->S[i], ds_recurrent_elems(&m->hp.gdn));
    }
}

static int count(const struct ds_model *m, bool attn)
{
    int n = 0;
    for (int i = 0; i < m->hp.n_layer; i++) n += m->hp.attn[i] == attn;
    return n;
}

uint64_t ds_state_kv_bytes(const struct ds_model *m, int64_t ctx)
{
    return 2 * (uint64_t)count(m, true) * m->be->ops->buf_bytes(m->be, DS_BUF_KV, (size_t)ctx, kv_dim(m));
}

static uint64_t gdn_bytes(const struct ds_model *m, enum ds_buf_kind kind)
{
    const struct ds_ops *ops = m->be->ops;
    return (uint64_t)count(m, false) * (ops->buf_bytes(m->be, kind, conv_rows(m), (size_t)ds_gdn_channels(&m->hp.gdn)) +
                                        ops->buf_bytes(m->be, kind, s_rows(m), (size_t)m->hp.gdn.dv));
}

uint64_t ds_state_gdn_bytes(const struct ds_model *m) { return gdn_bytes(m, DS_BUF_STATE); }
uint64_t ds_state_kept_bytes(const struct ds_model *m) { return gdn_bytes(m, DS_BUF_F32); }
