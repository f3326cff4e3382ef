/* One token timeline: prefill in chunks, decode, logits, witnesses of its caches. */
#include "engine/engine.h"

#include "base/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

ds_status ds_session_new(ds_session **out, ds_engine *g, struct ds_err *e)
{
    struct ds_session *s = calloc(1, sizeof *s);
    *out = NULL;
    if (g->plan_only) {
        free(s);
        return ds_fail(e, DS_EARG, "the engine was opened for its plan only, so there are no weights to run a session on");
    }
    if (!s || !(s->logits = malloc((size_t)g->model.hp.n_vocab * sizeof(float)))) {
        free(s);
        return ds_fail(e, DS_ENOMEM, "the system refused memory for a session");
    }
    s->g = g;
    ds_status st = ds_state_new(&s->st, &g->model, g->info.ctx, e);
    if (st) {
        ds_session_free(s);
        return st;
    }
    *out = s;
    return DS_OK;
}

void ds_session_free(ds_session *s)
{
    if (!s) return;
    ds_state_free(&s->st);
    ds_prof_free(&s->prof);
    free(s->tokens);
    free(s->logits);
    free(s->rows);
    free(s->cuts);
    free(s->undo);
    free(s);
}

void ds_session_reset(ds_session *s)
{
    ds_state_reset(&s->st, &s->g->model);
    s->has_logits = s->failed = s->profiled = false;
    s->rows_n = 0;
    s->timing_only = s->skip != 0;
}

void ds_session_set_skip(ds_session *s, unsigned skip)
{
    s->skip = skip;
    if (skip) s->timing_only = true;
}

ds_status ds_session_set_stop(ds_session *s, ds_stop stop, void *ctx, struct ds_err *e)
{
    if (stop && !s->undo && !(s->undo = malloc(ds_engine_state_bytes(s->g))))
        return ds_fail(e, DS_ENOMEM, "the system refused %zu bytes for the state that a stop goes back to", ds_engine_state_bytes(s->g));
    if (!stop) {
        free(s->undo);
        s->undo = NULL;
    }
    s->stop = stop;
    s->stop_ctx = ctx;
    return DS_OK;
}

bool ds_session_is_timing_only(const ds_session *s) { return s->timing_only; }
void ds_session_set_profile(ds_session *s, enum ds_prof_mode mode) { s->prof.mode = mode; }
const struct ds_profile *ds_session_profile(const ds_session *s) { return s->profiled && !s->prof.failed ? &s->prof.sum : NULL; }
int64_t ds_session_pos(const ds_session *s) { return s->st.pos; }
const int32_t *ds_session_tokens(const ds_session *s) { return s->tokens; }
const float *ds_session_logits(const ds_session *s) { return s->has_logits ? s->logits : NULL; }

const float *ds_session_logits_row(const ds_session *s, int i)
{
    return i >= 0 && (size_t)i < s->rows_n ? s->rows + (size_t)i * (size_t)s->g->model.hp.n_vocab : NULL;
}

/* --- checks before any work --- */

static ds_status check_ids(const ds_session *s, const int32_t *ids, int n, struct ds_err *e)
{
    const int vocab = s->g->model.hp.n_vocab;
    if (s->failed) return ds_fail(e, DS_EARG, "the session failed earlier: reset it before it is used again");
    if (n < 1) return ds_fail(e, DS_EARG, "the prompt has no tokens");
    if (s->st.pos + n > s->st.ctx)
        return ds_fail(e, DS_EARG, "the prompt and what came before take %lld tokens, but the window holds %lld", (long long)(s->st.pos + n),
                       (long long)s->st.ctx);
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return ds_fail(e, DS_EARG, "token %d is id %d, expected 0 to %d", i, (int)ids[i], vocab - 1);
    return DS_OK;
}

ds_status ds_session_hold(ds_session *s, int64_t need, struct ds_err *e)
{
    if (need <= s->cap_tokens) return DS_OK;
    const int64_t cap = need < 4096 ? 4096 : 2 * need;
    int32_t *p = realloc(s->tokens, (size_t)cap * sizeof *p);
    if (!p) return ds_fail(e, DS_ENOMEM, "the system refused memory for %lld token ids", (long long)cap);
    s->tokens = p;
    s->cap_tokens = cap;
    return DS_OK;
}

static ds_status room_for(ds_session *s, int n, enum ds_rows rows, struct ds_err *e)
{
    ds_status st = ds_session_hold(s, s->st.pos + n, e);
    s->rows_n = 0;
    if (st) return st;
    const size_t want = rows == DS_ROWS_ALL ? (size_t)n * (size_t)s->g->model.hp.n_vocab : 0;
    if (want > s->rows_cap) {
        float *p = realloc(s->rows, want * sizeof *p);
        if (!p) return ds_fail(e, DS_ENOMEM, "the system refused %zu bytes for the logits of %d positions", want * sizeof(float), n);
        s->rows = p;
        s->rows_cap = want;
    }
    return DS_OK;
}

/* --- numbers that are none --- */

struct hunt { struct ds_backend *be; float *row; int hidden, bad; };

static bool finite_row(const float *x, size_t n)
{
    float sum[16] = { 0 }, all = 0;                      /* side by side: in one chain a vocabulary takes 0.1 ms of every token */
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) sum[j] += x[i + (size_t)j] * 0.0f;      /* NaN and Inf survive the product */
    for (; i < n; i++) all += x[i] * 0.0f;
    for (int j = 0; j < 16; j++) all += sum[j];
    return all == 0.0f;
}

static bool look(void *ctx, int layer, struct ds_buf *x, int n)
{
    struct hunt *h = ctx;
    h->be->ops->buf_read(h->be, h->row, x, (size_t)(n - 1) * (size_t)h->hidden, (size_t)h->hidden);
    if (h->bad == -2 && !finite_row(h->row, (size_t)h->hidden)) h->bad = layer;
    return true;
}

/* Runs the last token once more and looks at the residual after each layer. The state is spoilt
 * already, and the layer that spoilt it shows first. */
static ds_status name_layer(ds_session *s, struct ds_err *e)
{
    struct ds_engine *g = s->g;
    struct hunt h = { .be = g->be, .hidden = g->model.hp.hidden, .bad = -2 };
    const int64_t pos = s->st.pos;
    s->failed = true;
    s->has_logits = false;
    h.row = malloc((size_t)h.hidden * sizeof(float));
    if (h.row && pos > 0) {
        struct ds_forward f = { .run = &g->run, .m = &g->model, .st = &s->st, .sc = &g->scratch, .after_layer = look, .after_ctx = &h };
        g->run.prof = NULL;
        s->st.pos = pos - 1;
        ds_forward_step(&f, s->tokens + pos - 1, 1, false, false, NULL);
        s->st.pos = pos;
    }
    free(h.row);
    if (h.bad == -1) return ds_fail(e, DS_ENUM, "the embedding of token id %d is not finite", (int)s->tokens[pos - 1]);
    if (h.bad >= 0)
        return ds_fail(e, DS_ENUM, "the output of layer %d (%s) is not finite", h.bad, g->model.hp.attn[h.bad] ? "full attention" : "GDN");
    return ds_fail(e, DS_ENUM, "the output head gave logits that are not finite");
}

/* --- prefill and decode --- */

static void take_logits(ds_session *s)
{
    s->g->be->ops->buf_read(s->g->be, s->logits, s->g->scratch.logits, 0, (size_t)s->g->model.hp.n_vocab);
    s->has_logits = true;
}

static ds_status take_rows(ds_session *s, struct ds_forward *f, int n, struct ds_err *e)
{
    const size_t vocab = (size_t)s->g->model.hp.n_vocab;
    for (int i = 0; i < n; i += DS_LOGIT_ROWS) {
        const int m = n - i < DS_LOGIT_ROWS ? n - i : DS_LOGIT_ROWS;
        ds_status st = ds_forward_head(f, i, m, e);
        if (st) return st;
        s->g->be->ops->buf_read(s->g->be, s->rows + s->rows_n * vocab, s->g->scratch.logits, 0, (size_t)m * vocab);
        s->rows_n += (size_t)m;
    }
    memcpy(s->logits, s->rows + (s->rows_n - 1) * vocab, vocab * sizeof(float));
    s->has_logits = true;
    return DS_OK;
}

static struct ds_forward forward_of(ds_session *s, bool profile)
{
    s->g->run.prof = profile ? &s->prof : NULL;
    return (struct ds_forward){ .run = &s->g->run, .m = &s->g->model, .st = &s->st, .sc = &s->g->scratch, .skip = s->skip };
}

/* The asked-for positions that lie in a chunk of n tokens, as counts from its start: the last ones that have room. */
static int cuts_within(const ds_session *s, int n, int *at)
{
    const int max = s->g->scratch.max_cuts;
    int found = 0, first = 0;
    for (int i = 0; i < s->n_cuts && max && !s->skip; i++) {
        const int64_t t = s->cuts[i] - s->st.pos;
        if (t < 1 || t > n) continue;
        if (!found) first = i;
        found++;
    }
    const int kept = found < max ? found : max;
    for (int i = 0; i < kept; i++) at[i] = (int)(s->cuts[first + found - kept + i] - s->st.pos);
    return kept;
}

static void hand_out(ds_session *s, int64_t pos, const int *at, int n)
{
    for (int i = 0; i < n; i++) s->cut_fn(s->cut_ctx, s, pos + at[i], i);
}

static bool not_stopped(void *ctx, int layer, struct ds_buf *x, int n)
{
    const ds_session *s = ctx;
    (void)layer, (void)x, (void)n;
    return !s->stop(s->stop_ctx);
}

/* The forward pass of one chunk. A stop within it restores what was before: KV rows beyond pos are nobody's, the GDN state was
 * copied. */
static ds_status forward_chunk(ds_session *s, struct ds_forward *f, const int32_t *ids, int n, bool logits, struct ds_err *e)
{
    f->after_layer = s->stop ? not_stopped : NULL;
    f->after_ctx = s;
    if (s->stop && s->st.pos) ds_session_get_state(s, s->undo);
    ds_status st = ds_forward_step(f, ids, n, false, logits, e);
    if (st == DS_ECANCEL) {
        const bool timing_only = s->timing_only;
        if (s->st.pos) ds_session_resume(s, s->tokens, s->st.pos, s->undo, NULL, NULL);
        else ds_session_reset(s);
        s->timing_only = timing_only;
    } else if (st) {
        s->failed = true;
    }
    return st;
}

/* One chunk: forward, tokens, logits where asked. */
static ds_status chunk(ds_session *s, struct ds_forward *f, const int32_t *ids, int n, bool last, enum ds_rows rows, struct ds_err *e)
{
    const int64_t pos = s->st.pos;
    const bool logits = last && rows == DS_ROWS_LAST;
    int at[DS_MAX_CUTS];
    f->n_cuts = cuts_within(s, n, at);
    f->cuts = at;
    ds_status st = forward_chunk(s, f, ids, n, logits, e);
    if (st) return st;
    memmove(s->tokens + pos, ids, (size_t)n * sizeof *ids);
    hand_out(s, pos, at, f->n_cuts);
    f->n_cuts = 0;
    if (rows == DS_ROWS_ALL) st = take_rows(s, f, n, e);
    else if (logits) take_logits(s);
    return st;
}

ds_status ds_session_prefill(ds_session *s, const int32_t *ids, int n, enum ds_rows rows, ds_tick tick, void *tick_ctx, struct ds_err *e)
{
    ds_status st = check_ids(s, ids, n, e);
    if (st || (st = room_for(s, n, rows, e))) return st;
    const bool profile = s->prof.mode != DS_PROF_OFF;
    struct ds_forward f = forward_of(s, profile);
    s->has_logits = s->profiled = false;
    if (profile) ds_prof_start(&s->prof, n);
    const uint64_t t0 = ds_now_ns();
    int done = 0;
    while (done < n && !st) {
        const int m = n - done < s->g->ubatch ? n - done : s->g->ubatch;
        st = chunk(s, &f, ids + done, m, done + m == n, rows, e);
        done += m;
        if (!st && tick && tick(tick_ctx, done, n) && done < n)
            st = ds_fail(e, DS_ECANCEL, "stopped after %d of %d tokens", done, n);
    }
    /* A pass over the logits: a part of the prefill that a caller's clock sees too. */
    const bool finite = st || s->skip || !s->has_logits || finite_row(s->logits, (size_t)s->g->model.hp.n_vocab);
    if (profile && !st) {
        ds_prof_finish(&s->prof, ds_now_ns() - t0);
        s->profiled = true;
    }
    s->g->run.prof = NULL;
    s->n_cuts = 0;
    return finite ? st : name_layer(s, e);
}

ds_status ds_session_decode(ds_session *s, int32_t id, struct ds_err *e)
{
    ds_status st = check_ids(s, &id, 1, e);
    if (st || (st = room_for(s, 1, DS_ROWS_LAST, e))) return st;
    struct ds_forward f = forward_of(s, false);
    s->tokens[s->st.pos] = id;
    if ((st = ds_forward_step(&f, &id, 1, true, true, e))) {
        s->failed = true;
        return st;
    }
    take_logits(s);
    return s->skip || finite_row(s->logits, (size_t)s->g->model.hp.n_vocab) ? DS_OK : name_layer(s, e);
}

/* --- caches as witnesses see them --- */

static void by_head(float *dst, const float *src, int64_t n, int heads, int dim)
{
    for (int h = 0; h < heads; h++)
        for (int64_t t = 0; t < n; t++)
            memcpy(dst + ((size_t)h * (size_t)n + (size_t)t) * (size_t)dim, src + ((size_t)t * (size_t)heads + (size_t)h) * (size_t)dim,
                   (size_t)dim * sizeof(float));
}

bool ds_session_kv(const ds_session *s, int layer, float *keys, float *values)
{
    const struct ds_attn_shape *sh = &s->g->model.hp.at;
    const size_t n = (size_t)s->st.pos * (size_t)sh->n_kv * (size_t)sh->hd;
    if (!ds_engine_layer_is_attn(s->g, layer)) return false;
    float *tmp = malloc((n + 1) * sizeof *tmp);
    if (!tmp) return false;
    s->g->be->ops->buf_read(s->g->be, tmp, s->st.k[layer], 0, n);
    by_head(keys, tmp, s->st.pos, sh->n_kv, sh->hd);
    s->g->be->ops->buf_read(s->g->be, tmp, s->st.v[layer], 0, n);
    by_head(values, tmp, s->st.pos, sh->n_kv, sh->hd);
    free(tmp);
    return true;
}

bool ds_session_gdn_state(const ds_session *s, int layer, float *conv, float *recurrent)
{
    const struct ds_gdn_shape *sh = &s->g->model.hp.gdn;
    if (layer < 0 || layer >= s->g->model.hp.n_layer || s->g->model.hp.attn[layer]) return false;
    s->g->be->ops->buf_read(s->g->be, conv, s->st.conv[layer], 0, (size_t)(sh->conv_k - 1) * (size_t)ds_gdn_channels(sh));
    s->g->be->ops->buf_read(s->g->be, recurrent, s->st.S[layer], 0, (size_t)sh->n_vh * (size_t)sh->dk * (size_t)sh->dv);
    return true;
}
