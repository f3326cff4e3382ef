/* The parts of a session as bytes: KV rows position by position, the GDN state as a whole. */
#include "engine/engine.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

static size_t kv_dim(const struct ds_model *m) { return (size_t)m->hp.at.n_kv * (size_t)m->hp.at.hd; }


uint64_t ds_engine_layout_id(const ds_engine *g)
{
    const uint64_t parts[] = { g->info.hash, g->kv_f16, ds_engine_kv_bytes(g), ds_engine_state_bytes(g) };
    return ds_hash64(parts, sizeof parts, 0);
}

size_t ds_engine_kv_bytes(const ds_engine *g)
{
    return 2 * (size_t)g->info.n_attn * kv_dim(&g->model) * g->be->ops->elem_bytes(g->be, DS_BUF_KV);
}

size_t ds_engine_state_bytes(const ds_engine *g)
{
    return (size_t)g->info.n_gdn * (ds_conv_elems(&g->model.hp.gdn) + ds_recurrent_elems(&g->model.hp.gdn)) * sizeof(float);
}

/* Calls move for the K and V rows of [from, to) of every attention layer; p walks over [layer][k, v][position]. */
static void each_kv(const ds_session *s, int64_t from, int64_t to, char *p,
                    void (*move)(struct ds_backend *be, struct ds_buf *b, void *p, size_t off, size_t n))
{
    struct ds_backend *be = s->g->be;
    const size_t dim = kv_dim(&s->g->model), off = (size_t)from * dim, n = (size_t)(to - from) * dim;
    const size_t bytes = n * be->ops->elem_bytes(be, DS_BUF_KV);
    for (int i = 0; i < s->g->model.hp.n_layer; i++) {
        if (!s->g->model.hp.attn[i]) continue;
        move(be, s->st.k[i], p, off, n);
        move(be, s->st.v[i], p + bytes, off, n);
        p += 2 * bytes;
    }
}

/* Calls move for the state of every GDN layer, which lies in conv[] and S[] at slot `slot`; p walks over [layer][conv, S]. */
static void each_state(const struct ds_engine *g, struct ds_buf *const *conv, struct ds_buf *const *S, int slot, char *p,
                       void (*move)(struct ds_backend *be, struct ds_buf *b, void *p, size_t off, size_t n))
{
    const size_t nc = ds_conv_elems(&g->model.hp.gdn), nr = ds_recurrent_elems(&g->model.hp.gdn);
    for (int i = 0; i < g->model.hp.n_layer; i++) {
        if (g->model.hp.attn[i]) continue;
        move(g->be, conv[i], p, (size_t)slot * nc, nc);
        p += nc * sizeof(float);
        move(g->be, S[i], p, (size_t)slot * nr, nr);
        p += nr * sizeof(float);
    }
}

static void get(struct ds_backend *be, struct ds_buf *b, void *p, size_t off, size_t n) { be->ops->buf_get(be, p, b, off, n); }
static void set(struct ds_backend *be, struct ds_buf *b, void *p, size_t off, size_t n) { be->ops->buf_set(be, b, off, p, n); }

void ds_session_get_kv(const ds_session *s, int64_t from, int64_t to, void *dst) { each_kv(s, from, to, dst, get); }
void ds_session_set_kv(ds_session *s, int64_t from, int64_t to, const void *src) { each_kv(s, from, to, (char *)(uintptr_t)src, set); }
void ds_session_get_state(const ds_session *s, void *dst) { each_state(s->g, s->st.conv, s->st.S, 0, dst, get); }
void ds_session_get_cut(const ds_session *s, int slot, void *dst)
{
    each_state(s->g, s->g->scratch.cut_conv, s->g->scratch.cut_S, slot, dst, get);
}

ds_status ds_session_set_cuts(ds_session *s, const int64_t *pos, int n, ds_cut_fn fn, void *ctx, struct ds_err *e)
{
    for (int i = 1; i < n; i++)
        if (pos[i] <= pos[i - 1]) return ds_fail(e, DS_EARG, "position %lld to keep does not follow %lld", (long long)pos[i], (long long)pos[i - 1]);
    int64_t *own = n ? malloc((size_t)n * sizeof *own) : NULL;
    if (n && !own) return ds_fail(e, DS_ENOMEM, "the system refused memory for %d positions", n);
    if (n) memcpy(own, pos, (size_t)n * sizeof *own);
    free(s->cuts);
    s->cuts = own;
    s->n_cuts = n;
    s->cut_fn = fn;
    s->cut_ctx = ctx;
    return DS_OK;
}

ds_status ds_session_resume(ds_session *s, const int32_t *ids, int64_t n, const void *state, const float *logits, struct ds_err *e)
{
    if (n < 1 || n > s->st.ctx)
        return ds_fail(e, DS_EARG, "a prefix of %lld tokens cannot be resumed in a window of %lld", (long long)n, (long long)s->st.ctx);
    ds_status st = ds_session_hold(s, n, e);
    if (st) return st;
    memmove(s->tokens, ids, (size_t)n * sizeof *ids);
    each_state(s->g, s->st.conv, s->st.S, 0, (char *)(uintptr_t)state, set);
    s->st.pos = n;
    s->rows_n = 0;
    s->failed = s->profiled = false;
    s->timing_only = s->skip != 0;
    s->has_logits = logits != NULL;
    if (logits) memcpy(s->logits, logits, (size_t)s->g->model.hp.n_vocab * sizeof *logits);
    return DS_OK;
}
