/* Which tensors a model has, and how each is filled. */
#include "synth/synth.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lister {
    struct ds_synth_tensor *t;
    size_t n, cap;
    const struct ds_geometry *g;
    const struct ds_type *type;
    float branch;                  /* rms that one residual branch adds */
    int layer;                     /* -1: not in a block */
};

enum { TENSORS_PER_LAYER = 20, TENSORS_OUTSIDE = 3 };

/* A row that is no multiple of the type's block takes q8_0, then f16. */
static const struct ds_type *fitting(const struct ds_type *type, uint64_t row)
{
    if (row % type->block == 0) return type;
    const struct ds_type *q8 = &ds_types[DS_T_Q8_0];
    return row % q8->block == 0 ? q8 : &ds_types[DS_T_F16];
}

static struct ds_synth_tensor *add(struct lister *l, const char *name, const struct ds_type *type, uint32_t n_dims, int n0, int n1, int n2)
{
    struct ds_synth_tensor *t = &l->t[l->n++];
    memset(t, 0, sizeof *t);
    if (l->layer < 0) snprintf(t->name, sizeof t->name, "%s", name);
    else snprintf(t->name, sizeof t->name, "blk.%d.%s", l->layer, name);
    t->n_dims = n_dims;
    t->ne[0] = (uint64_t)n0;
    t->ne[1] = (uint64_t)n1;
    t->ne[2] = (uint64_t)n2;
    t->ne[3] = 1;
    t->type = fitting(type, t->ne[0]);
    t->n = t->ne[0] * t->ne[1] * t->ne[2];
    t->bytes = ds_type_row_bytes(t->type, t->ne[0]) * t->ne[1] * t->ne[2];
    return t;
}

/* [in] -> [out]; inputs of rms x give outputs of rms x * gain. */
static void matrix(struct lister *l, const char *name, int in, int out, float gain)
{
    add(l, name, l->type, 2, in, out, 1)->a = gain / sqrtf((float)in);
}

static void experts(struct lister *l, const char *name, int in, int out, float gain)
{
    add(l, name, l->type, 3, in, out, l->g->n_expert)->a = gain / sqrtf((float)in);
}

static void vector(struct lister *l, const char *name, int n, float lo, float hi)
{
    struct ds_synth_tensor *t = add(l, name, &ds_types[DS_T_F32], 1, n, 1, 1);
    t->fill = DS_FILL_UNIFORM;
    t->a = lo;
    t->b = hi;
}

/* Norm gains around 1, not 1: a gain left out or added twice must show. */
static void gain(struct lister *l, const char *name, int n, float around) { vector(l, name, n, 0.9f * around, 1.1f * around); }

/* Decay per token: exp(-A softplus(a + dt)) with A in 0.25..16 and softplus(dt) from 0.001 to 0.1, the ranges that such
 * layers are initialised with: memories of a few tokens up to thousands. */
static void gdn(struct lister *l)
{
    const struct ds_geometry *g = l->g;
    const int inner = g->n_vh * DS_GEO_GDN_DIM, channels = 2 * g->n_kh * DS_GEO_GDN_DIM + inner;
    matrix(l, "attn_qkv.weight", g->hidden, channels, 1);
    matrix(l, "attn_gate.weight", g->hidden, inner, 1);
    matrix(l, "ssm_beta.weight", g->hidden, g->n_vh, 1);
    matrix(l, "ssm_alpha.weight", g->hidden, g->n_vh, 1);
    vector(l, "ssm_a", g->n_vh, -16, -0.25f);
    vector(l, "ssm_dt.bias", g->n_vh, -6.9f, -2.25f);
    add(l, "ssm_conv1d.weight", &ds_types[DS_T_F32], 2, DS_GEO_CONV, channels, 1)->a = 0.5f;
    gain(l, "ssm_norm.weight", DS_GEO_GDN_DIM, 1);
    matrix(l, "ssm_out.weight", inner, g->hidden, l->branch * 1.7f);        /* its input, a gated norm, has rms 0.58 */
}

/* Query and key gains of 1.4 give scores of deviation 2: attention picks, but on no single token. */
static void attention(struct lister *l)
{
    const struct ds_geometry *g = l->g;
    const int hd = DS_GEO_HEAD_DIM;
    matrix(l, "attn_q.weight", g->hidden, 2 * g->n_head * hd, 1);
    matrix(l, "attn_k.weight", g->hidden, g->n_kv * hd, 1);
    matrix(l, "attn_v.weight", g->hidden, g->n_kv * hd, 1);
    matrix(l, "attn_output.weight", g->n_head * hd, g->hidden, l->branch * 4);   /* averaged values, half gated away: rms 0.1 to 0.3 */
    gain(l, "attn_q_norm.weight", hd, 1.4f);
    gain(l, "attn_k_norm.weight", hd, 1.4f);
}

static void dense(struct lister *l)
{
    const struct ds_geometry *g = l->g;
    matrix(l, "ffn_gate.weight", g->hidden, g->n_ff, 1);
    matrix(l, "ffn_up.weight", g->hidden, g->n_ff, 1);
    matrix(l, "ffn_down.weight", g->n_ff, g->hidden, l->branch * 1.7f);     /* silu(x) y has rms 0.6 */
}

/* Rounding swaps experts in near ties, the one discontinuity of the model. Router logits of deviation 3 leave little weight
 * to the last of the chosen, and the shared expert writes more than the routed ones. */
static void mixture(struct lister *l)
{
    const struct ds_geometry *g = l->g;
    add(l, "ffn_gate_inp.weight", &ds_types[DS_T_F32], 2, g->hidden, g->n_expert, 1)->a = 3 / sqrtf((float)g->hidden);
    experts(l, "ffn_gate_exps.weight", g->hidden, g->n_ff_exp, 1);
    experts(l, "ffn_up_exps.weight", g->hidden, g->n_ff_exp, 1);
    experts(l, "ffn_down_exps.weight", g->n_ff_exp, g->hidden, l->branch * 1.5f);
    matrix(l, "ffn_gate_shexp.weight", g->hidden, g->n_ff_shexp, 1);
    matrix(l, "ffn_up_shexp.weight", g->hidden, g->n_ff_shexp, 1);
    matrix(l, "ffn_down_shexp.weight", g->n_ff_shexp, g->hidden, l->branch * 3);
    add(l, "ffn_gate_inp_shexp.weight", &ds_types[DS_T_F32], 1, g->hidden, 1, 1)->a = 1 / sqrtf((float)g->hidden);
}

/* The head's rows are the embedding's (shifted by one where there is a matrix of its own, so that a greedy run counts through
 * the vocabulary). The stream still holds the last token's embedding, cosine about 0.7, which marks one row out; the last
 * gain, of both signs and mean `lean`, sets its logit to 20 over others of deviation 2. Margins as wide as a trained model's
 * keep greedy runs equal under rounding; the values of all logits still depend on every layer. */
static void head(struct lister *l, int vocab)
{
    const float root = sqrtf((float)l->g->hidden), lean = 20 / (2 * 0.7f * root), half = sqrtf(3 * (1 - lean * lean));
    vector(l, "output_norm.weight", l->g->hidden, 2 / root * (lean - half), 2 / root * (lean + half));
    if (!l->g->tied) add(l, "output.weight", l->type, 2, l->g->hidden, vocab, 1)->fill = DS_FILL_EMBED;
}

ds_status ds_synth_list(struct ds_synth_tensor **out, size_t *n, const struct ds_geometry *g, const struct ds_type *type, int layers, int vocab,
                        struct ds_err *e)
{
    struct lister l = { .cap = (size_t)layers * TENSORS_PER_LAYER + TENSORS_OUTSIDE, .g = g, .type = type, .layer = -1 };
    l.branch = 1 / sqrtf(2.0f * (float)layers);
    l.t = malloc(l.cap * sizeof *l.t);
    if (!l.t) return ds_fail(e, DS_ENOMEM, "the system refused memory for a list of %zu tensors", l.cap);
    add(&l, "token_embd.weight", type, 2, g->hidden, vocab, 1)->a = 1;
    head(&l, vocab);
    for (l.layer = 0; l.layer < layers; l.layer++) {
        gain(&l, "attn_norm.weight", g->hidden, 1);
        gain(&l, "post_attention_norm.weight", g->hidden, 1);
        if ((l.layer + 1) % DS_GEO_INTERVAL == 0) attention(&l);
        else gdn(&l);
        if (g->n_expert) mixture(&l);
        else dense(&l);
    }
    *out = l.t;
    *n = l.n;
    return DS_OK;
}
