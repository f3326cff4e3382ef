/* Names -> weights. Every tensor's presence, type and shape is checked against the keys before the
 * backend sees it. Nothing is permuted: files of this family store value heads in tiled order (value
 * head h uses key head h % n_kh) and the norm gains with the 1 already added. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct binder {
    struct ds_model *m;
    const struct ds_gguf *g;
    struct ds_err *e;
    int (*progress)(void *, uint64_t, uint64_t);
    void *progress_ctx;
    uint64_t done, total;
    ds_status st;                  /* first failure; later calls do nothing */
};

/* --- finding and checking --- */

static const struct ds_tensor *want(struct binder *b, const char *name, unsigned n_dims, uint64_t in, uint64_t out, uint64_t experts)
{
    const struct ds_tensor *t = ds_gguf_find(b->g, name);
    const char *path = ds_gguf_path(b->g);
    if (b->st) return NULL;
    if (!t)
        b->st = ds_fail(b->e, DS_EFORMAT, "%s: tensor '%s' is missing", path, name);
    else if (!t->type || !t->type->decode)
        b->st = ds_fail(b->e, DS_EUNSUP, "%s: tensor '%s' has type %s, which this engine does not decode", path, name,
                        ds_type_gguf_name(t->gguf_id) ? ds_type_gguf_name(t->gguf_id) : "unknown");
    else if (t->ne[0] != in || t->ne[1] != out || t->ne[2] != experts || t->ne[3] != 1)
        b->st = ds_fail(b->e, DS_EFORMAT, "%s: tensor '%s' is {%llu, %llu, %llu}, expected {%llu, %llu, %llu} from the keys", path, name,
                        (unsigned long long)t->ne[0], (unsigned long long)t->ne[1], (unsigned long long)t->ne[2], (unsigned long long)in,
                        (unsigned long long)out, (unsigned long long)experts);
    else if (t->n_dims < n_dims && experts > 1)
        b->st = ds_fail(b->e, DS_EFORMAT, "%s: tensor '%s' has %u dims, expected %u", path, name, t->n_dims, n_dims);
    return b->st ? NULL : t;
}

static bool grow(void **p, int n, int *cap, size_t elem)
{
    if (n < *cap) return true;
    int c = *cap ? 2 * *cap : 64;
    void *q = realloc(*p, (size_t)c * elem);
    if (!q) return false;
    *p = q;
    *cap = c;
    return true;
}

static struct ds_weight *make(struct binder *b, const struct ds_tensor *t, unsigned use)
{
    struct ds_model *m = b->m;
    if (!grow((void **)&m->owned, m->n_owned, &m->cap_owned, sizeof *m->owned)) {
        b->st = ds_fail(b->e, DS_ENOMEM, "the system refused memory for the list of weights");
        return NULL;
    }
    struct ds_weight *w = m->be->ops->weight_new(m->be, t, use, b->e);
    if (!w) {
        b->st = b->e && b->e->code ? b->e->code : DS_ENOMEM;
        return NULL;
    }
    m->owned[m->n_owned++] = w;
    m->params += t->ne[0] * t->ne[1] * t->ne[2];
    b->done += t->bytes;
    if (b->progress && b->progress(b->progress_ctx, b->done, b->total))
        b->st = ds_fail(b->e, DS_ECANCEL, "%s: loading was stopped after %.1f of %.1f MiB", ds_gguf_path(b->g), (double)b->done * 0x1p-20,
                        (double)b->total * 0x1p-20);
    return w;
}

static void matrix_use(struct binder *b, struct ds_matrix *dst, const char *name, enum ds_class cls, uint64_t in, uint64_t out, uint64_t experts,
                       unsigned use)
{
    struct ds_model *m = b->m;
    const struct ds_tensor *t = want(b, name, experts > 1 ? 3 : 2, in, out, experts);
    if (!t) return;
    struct ds_weight *w = make(b, t, use);
    if (!w) return;
    *dst = (struct ds_matrix){ t, w, cls };
    if (!(use & DS_USE_GEMM)) return;
    if (!grow((void **)&m->mats, m->n_mats, &m->cap_mats, sizeof *m->mats)) {
        b->st = ds_fail(b->e, DS_ENOMEM, "the system refused memory for the list of matrices");
        return;
    }
    m->mats[m->n_mats++] = *dst;
}

/* blk.LAYER.NAME as a matrix of a layer; its share of a token's products is added up. */
static void matrix(struct binder *b, struct ds_matrix *dst, int layer, const char *name, enum ds_class cls, int in, int out, int experts)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    matrix_use(b, dst, full, cls, (uint64_t)in, (uint64_t)out, (uint64_t)experts, DS_USE_GEMM);
    b->m->gemm_flop += 2.0 * in * out * (experts > 1 ? b->m->hp.n_expert_used : 1);
}

static struct ds_weight *vector_2d(struct binder *b, const char *name, uint64_t n0, uint64_t n1)
{
    const struct ds_tensor *t = want(b, name, 1, n0, n1, 1);
    return t ? make(b, t, DS_USE_VECTOR) : NULL;
}

static struct ds_weight *vector(struct binder *b, int layer, const char *name, int n0, int n1)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    return vector_2d(b, full, (uint64_t)n0, (uint64_t)n1);
}

/* ssm_a holds -exp(A_log): anything but a negative number means that it was exponentiated twice or not at all. */
static void check_ssm_a(struct binder *b, int layer)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.ssm_a", layer);
    const struct ds_tensor *t = b->st ? NULL : ds_gguf_find(b->g, name);
    for (uint64_t i = 0; t && i < t->ne[0]; i++) {
        float v[1024];
        uint64_t at = i % 1024;
        if (at == 0) t->type->decode(v, (const char *)t->data + ds_type_row_bytes(t->type, i), t->ne[0] - i < 1024 ? t->ne[0] - i : 1024);
        if (isfinite(v[at]) && v[at] < 0) continue;
        b->st = ds_fail(b->e, DS_EFORMAT, "%s: tensor '%s' holds %g at %llu, expected negative numbers (-exp(A_log))", ds_gguf_path(b->g), name, v[at],
                        (unsigned long long)i);
        return;
    }
}

/* --- layers --- */

static void bind_gdn(struct binder *b, int i)
{
    struct ds_layer *l = &b->m->layers[i];
    const struct ds_hparams *hp = &b->m->hp;
    const struct ds_gdn_shape *s = &hp->gdn;
    const int ch = ds_gdn_channels(s), inner = s->n_vh * s->dv;
    matrix(b, &l->qkv, i, "attn_qkv.weight", DS_C_QKV, hp->hidden, ch, 1);
    matrix(b, &l->z, i, "attn_gate.weight", DS_C_Z, hp->hidden, inner, 1);
    matrix(b, &l->beta, i, "ssm_beta.weight", DS_C_GATES, hp->hidden, s->n_vh, 1);
    matrix(b, &l->alpha, i, "ssm_alpha.weight", DS_C_GATES, hp->hidden, s->n_vh, 1);
    matrix(b, &l->ssm_out, i, "ssm_out.weight", DS_C_SSM_OUT, inner, hp->hidden, 1);
    l->conv = vector(b, i, "ssm_conv1d.weight", s->conv_k, ch);
    l->ssm_a = vector(b, i, "ssm_a", s->n_vh, 1);
    l->ssm_dt = vector(b, i, "ssm_dt.bias", s->n_vh, 1);
    l->ssm_norm = vector(b, i, "ssm_norm.weight", s->dv, 1);
    check_ssm_a(b, i);
}

static void bind_attn(struct binder *b, int i)
{
    struct ds_layer *l = &b->m->layers[i];
    const struct ds_hparams *hp = &b->m->hp;
    const struct ds_attn_shape *s = &hp->at;
    matrix(b, &l->q, i, "attn_q.weight", DS_C_ATTN, hp->hidden, 2 * s->n_head * s->hd, 1);
    matrix(b, &l->k, i, "attn_k.weight", DS_C_ATTN, hp->hidden, s->n_kv * s->hd, 1);
    matrix(b, &l->v, i, "attn_v.weight", DS_C_ATTN, hp->hidden, s->n_kv * s->hd, 1);
    matrix(b, &l->o, i, "attn_output.weight", DS_C_ATTN, s->n_head * s->hd, hp->hidden, 1);
    l->q_norm = vector(b, i, "attn_q_norm.weight", s->hd, 1);
    l->k_norm = vector(b, i, "attn_k_norm.weight", s->hd, 1);
}

static void bind_dense(struct binder *b, int i)
{
    struct ds_layer *l = &b->m->layers[i];
    const struct ds_hparams *hp = &b->m->hp;
    matrix(b, &l->gate, i, "ffn_gate.weight", DS_C_MLP, hp->hidden, hp->n_ff, 1);
    matrix(b, &l->up, i, "ffn_up.weight", DS_C_MLP, hp->hidden, hp->n_ff, 1);
    matrix(b, &l->down, i, "ffn_down.weight", DS_C_MLP, hp->n_ff, hp->hidden, 1);
}

static void bind_experts(struct binder *b, int i)
{
    struct ds_layer *l = &b->m->layers[i];
    const struct ds_hparams *hp = &b->m->hp;
    matrix(b, &l->router, i, "ffn_gate_inp.weight", DS_C_MLP, hp->hidden, hp->n_expert, 1);
    matrix(b, &l->gate_exps, i, "ffn_gate_exps.weight", DS_C_MLP, hp->hidden, hp->n_ff_exp, hp->n_expert);
    matrix(b, &l->up_exps, i, "ffn_up_exps.weight", DS_C_MLP, hp->hidden, hp->n_ff_exp, hp->n_expert);
    matrix(b, &l->down_exps, i, "ffn_down_exps.weight", DS_C_MLP, hp->n_ff_exp, hp->hidden, hp->n_expert);
    matrix(b, &l->gate_sh, i, "ffn_gate_shexp.weight", DS_C_MLP, hp->hidden, hp->n_ff_shexp, 1);
    matrix(b, &l->up_sh, i, "ffn_up_shexp.weight", DS_C_MLP, hp->hidden, hp->n_ff_shexp, 1);
    matrix(b, &l->down_sh, i, "ffn_down_shexp.weight", DS_C_MLP, hp->n_ff_shexp, hp->hidden, 1);
    matrix(b, &l->sh_gate, i, "ffn_gate_inp_shexp.weight", DS_C_MLP, hp->hidden, 1, 1);
}

/* The kind follows from the keys; the tensors must agree. */
static void check_kind(struct binder *b, int i)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.ssm_a", i);
    const bool has_ssm = ds_gguf_find(b->g, name) != NULL;
    if (b->st || has_ssm != b->m->hp.attn[i]) return;
    b->st = ds_fail(b->e, DS_EFORMAT, "%s: block %d %s '%s', expected a %s layer there (full_attention_interval %d)", ds_gguf_path(b->g), i,
                    has_ssm ? "has tensor" : "lacks tensor", name, b->m->hp.attn[i] ? "full-attention" : "GDN", b->m->hp.interval);
}

static void bind_layer(struct binder *b, int i)
{
    struct ds_layer *l = &b->m->layers[i];
    const int hidden = b->m->hp.hidden;
    check_kind(b, i);
    l->attn = b->m->hp.attn[i];
    l->attn_norm = vector(b, i, "attn_norm.weight", hidden, 1);
    l->post_norm = vector(b, i, "post_attention_norm.weight", hidden, 1);
    if (l->attn) bind_attn(b, i);
    else bind_gdn(b, i);
    if (ds_is_moe(&b->m->hp)) bind_experts(b, i);
    else bind_dense(b, i);
}

/* --- around the layers --- */

/* The MTP block is left unused, but a key that promises it must be true, and a block count that
 * silently includes it would run it as a 65th layer. */
static void check_mtp(struct binder *b)
{
    const struct ds_hparams *hp = &b->m->hp;
    char name[64];
    for (int i = 0; i < hp->n_layer + hp->n_mtp; i++) {
        snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", i);
        const bool has = ds_gguf_find(b->g, name) != NULL, mtp = i >= hp->n_layer;
        if (b->st || has == mtp) continue;
        if (has)
            b->st = ds_fail(b->e, DS_EFORMAT, "%s: tensor '%s' is present, but nextn_predict_layers names %d blocks (from block %d on)", ds_gguf_path(b->g),
                            name, hp->n_mtp, hp->n_layer);
        else
            b->st = ds_fail(b->e, DS_EFORMAT, "%s: tensor '%s' is missing, but nextn_predict_layers promises an MTP block there", ds_gguf_path(b->g), name);
    }
}

/* A block count that is too small would run the first layers of a deeper model and call it an answer. */
static void check_no_more_blocks(struct binder *b)
{
    const int blocks = b->m->hp.n_layer + b->m->hp.n_mtp;
    for (size_t i = 0; i < ds_gguf_n_tensors(b->g) && !b->st; i++) {
        const char *name = ds_gguf_tensor(b->g, i)->name;
        int block;
        if (sscanf(name, "blk.%9d.", &block) != 1 || block < blocks) continue;
        b->st = ds_fail(b->e, DS_EFORMAT, "%s: tensor '%s' belongs to block %d, but key '%s.block_count' is %d", ds_gguf_path(b->g), name, block,
                        b->m->hp.arch, blocks);
    }
}

static uint64_t total_bytes(const struct ds_gguf *g)
{
    uint64_t n = 0;
    for (size_t i = 0; i < ds_gguf_n_tensors(g); i++) n += ds_gguf_tensor(g, i)->bytes;
    return n;
}

static void bind_ends(struct binder *b)
{
    struct ds_model *m = b->m;
    const uint64_t hidden = (uint64_t)m->hp.hidden, vocab = (uint64_t)m->hp.n_vocab;
    matrix_use(b, &m->embed, "token_embd.weight", DS_C_HEAD, hidden, vocab, 1, DS_USE_EMBED | (m->hp.tied ? DS_USE_GEMM : 0));
    if (m->hp.tied) m->head = m->embed;
    else matrix_use(b, &m->head, "output.weight", DS_C_HEAD, hidden, vocab, 1, DS_USE_GEMM);
    m->out_norm = vector_2d(b, "output_norm.weight", hidden, 1);
}

ds_status ds_model_bind(struct ds_model *m, const struct ds_gguf *g, struct ds_backend *be, int (*progress)(void *, uint64_t, uint64_t),
                        void *progress_ctx, struct ds_err *e)
{
    memset(m, 0, sizeof *m);
    m->be = be;
    struct ds_err own = { 0 };
    struct binder b = { .m = m, .g = g, .e = e ? e : &own, .progress = progress, .progress_ctx = progress_ctx, .total = total_bytes(g) };
    b.st = ds_hparams_read(&m->hp, g, b.e);
    if (!b.st && !(m->layers = calloc((size_t)m->hp.n_layer, sizeof *m->layers)))
        b.st = ds_fail(b.e, DS_ENOMEM, "the system refused memory for %d layers", m->hp.n_layer);
    if (!b.st) {
        check_no_more_blocks(&b);
        check_mtp(&b);
        bind_ends(&b);
        for (int i = 0; i < m->hp.n_layer && !b.st; i++) bind_layer(&b, i);
    }
    if (b.st) ds_model_free(m);
    return b.st;
}

void ds_model_free(struct ds_model *m)
{
    for (int i = 0; i < m->n_owned; i++) m->be->ops->weight_free(m->be, m->owned[i]);
    free(m->owned);
    free(m->mats);
    free(m->layers);
    struct ds_backend *be = m->be;
    memset(m, 0, sizeof *m);
    m->be = be;
}

struct ds_sizes ds_model_sizes(const struct ds_model *m, int ubatch, int64_t ctx)
{
    struct ds_sizes s = { .ubatch = ubatch, .ctx = ctx, .hidden = m->hp.hidden, .n_expert = m->hp.n_expert, .n_expert_used = m->hp.n_expert_used };
    for (int i = 0; i < m->hp.n_layer; i++) {
        if (m->hp.attn[i]) s.attn = m->hp.at;
        else s.gdn = m->hp.gdn;
    }
    return s;
}
