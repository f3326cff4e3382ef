/* Qwen3.5/3.6 hybrids: hyper-parameters, layers with their weights, state, and the forward pass.
 *
 * The equations are written once, on the ops of backend/ops.h; nothing here knows a backend. Layer i
 * is full attention when the interval rule says so, else Gated DeltaNet (GDN). Source: the model
 * family's published configuration and the GGUF keys and tensors of its conversions. */
#ifndef DS_MODEL_MODEL_H
#define DS_MODEL_MODEL_H

#include "backend/backend.h"
#include "backend/ops.h"
#include "gguf/gguf.h"

#include <stdbool.h>
#include <stdint.h>

#define DS_MAX_LAYERS 512

struct ds_hparams {
    const char *arch;              /* "qwen35", "qwen35moe" (static) */
    int n_layer, n_mtp;            /* layers that run; trailing MTP blocks, recognised and unused */
    int hidden, n_vocab, n_ff;
    int interval;                  /* full attention where (i+1) % interval == 0, unless listed */
    bool attn[DS_MAX_LAYERS];
    float eps;
    struct ds_attn_shape at;
    struct ds_gdn_shape gdn;
    int n_expert, n_expert_used, n_ff_exp, n_ff_shexp;   /* 0 when dense */
    bool tied;                     /* no output.weight: the head is the embedding table */
    int64_t ctx;                   /* the model's window */
};

/* A bound matrix: in -> out. */
struct ds_matrix { const struct ds_tensor *t; struct ds_weight *w; enum ds_class cls; };

struct ds_layer {
    bool attn;
    struct ds_weight *attn_norm, *post_norm;          /* [hidden] */
    /* GDN */
    struct ds_matrix qkv, z, beta, alpha, ssm_out;    /* hidden -> channels, n_vh*dv, n_vh, n_vh;  n_vh*dv -> hidden */
    struct ds_weight *conv, *ssm_a, *ssm_dt, *ssm_norm;   /* [channels][conv_k], [n_vh], [n_vh], [dv] */
    /* full attention */
    struct ds_matrix q, k, v, o;                      /* hidden -> 2*n_head*hd, n_kv*hd, n_kv*hd;  n_head*hd -> hidden */
    struct ds_weight *q_norm, *k_norm;                /* [hd] */
    /* FFN, dense or experts */
    struct ds_matrix gate, up, down;
    struct ds_matrix router, gate_exps, up_exps, down_exps, gate_sh, up_sh, down_sh, sh_gate;
};

struct ds_model {
    struct ds_hparams hp;
    struct ds_backend *be;
    struct ds_matrix embed, head;                     /* the same weight when tied */
    struct ds_weight *out_norm;
    struct ds_layer *layers;
    struct ds_weight **owned; int n_owned, cap_owned;
    struct ds_matrix *mats; int n_mats, cap_mats;     /* every matrix, for reports */
    uint64_t params;                                  /* of the tensors that run, MTP left out */
    double gemm_flop;                                 /* 2 x layer GEMM weights that a token touches */
};

/* Reads and checks every key and tensor shape; no backend needed, nothing allocated. */
ds_status ds_hparams_read(struct ds_hparams *hp, const struct ds_gguf *g, struct ds_err *e);
/* Makes the weights on the backend. progress: bytes done and total; non-zero stops with DS_ECANCEL. On failure the model is empty. */
ds_status ds_model_bind(struct ds_model *m, const struct ds_gguf *g, struct ds_backend *be, int (*progress)(void *, uint64_t, uint64_t),
                        void *progress_ctx, struct ds_err *e);
void ds_model_free(struct ds_model *m);
struct ds_sizes ds_model_sizes(const struct ds_model *m, int ubatch, int64_t ctx);
static inline int ds_gdn_channels(const struct ds_gdn_shape *s) { return 2 * s->n_kh * s->dk + s->n_vh * s->dv; }
/* Elements of one GDN layer's state. */
static inline size_t ds_conv_elems(const struct ds_gdn_shape *s) { return (size_t)(s->conv_k - 1) * (size_t)ds_gdn_channels(s); }
static inline size_t ds_recurrent_elems(const struct ds_gdn_shape *s) { return (size_t)s->n_vh * (size_t)s->dk * (size_t)s->dv; }
static inline bool ds_is_moe(const struct ds_hparams *hp) { return hp->n_expert > 0; }

/* --- state: everything that depends on the tokens so far; it advances as one --- */

struct ds_state {
    struct ds_backend *be;
    int n_layer;
    int64_t pos, ctx;              /* tokens held; window */
    /* per layer; NULL where the layer is of the other kind */
    struct ds_buf **k, **v;        /* KV [ctx][n_kv*hd], after norm and RoPE; raw v */
    struct ds_buf **conv, **S;     /* STATE [conv_k-1][channels], oldest first; STATE [n_vh][dk][dv] */
};
ds_status ds_state_new(struct ds_state *s, const struct ds_model *m, int64_t ctx, struct ds_err *e);
void ds_state_free(struct ds_state *s);
void ds_state_reset(struct ds_state *s, const struct ds_model *m);
uint64_t ds_state_kv_bytes(const struct ds_model *m, int64_t ctx);
uint64_t ds_state_gdn_bytes(const struct ds_model *m);
uint64_t ds_state_kept_bytes(const struct ds_model *m);     /* of a copy of it */

/* --- activations of one step, shared by all sessions of an engine --- */

#define DS_LOGIT_ROWS 16           /* head rows per product when all positions are wanted */

struct ds_scratch {
    int ubatch;
    struct ds_buf *x, *h;                              /* residual F32 and normed input ACT [ubatch][hidden] */
    struct ds_buf *u, *z, *a, *b, *prep, *o, *y_gdn;   /* GDN layer */
    struct ds_buf *qg, *k, *v, *y_attn;                /* attention layer */
    struct ds_buf *gate, *up, *act;                    /* dense FFN */
    struct ds_buf *router, *route, *egate, *eup, *eact, *ey, *sgate, *sup, *sact, *sy, *sg;   /* experts */
    struct ds_buf *logits;                             /* [DS_LOGIT_ROWS][n_vocab] */
    /* States kept within a step, per GDN layer (NULL elsewhere): F32 [max_cuts] of what ds_state holds. */
    int max_cuts;
    struct ds_buf **cut_conv, **cut_S;                 /* [n_layer] */
};
ds_status ds_scratch_new(struct ds_scratch *sc, const struct ds_model *m, int ubatch, int max_cuts, struct ds_err *e);
void ds_scratch_free(struct ds_scratch *sc, const struct ds_model *m);
uint64_t ds_scratch_bytes(const struct ds_model *m, int ubatch, int max_cuts);

/* --- forward --- */

struct ds_forward {
    struct ds_run *run;
    const struct ds_model *m;
    struct ds_state *st;
    struct ds_scratch *sc;
    unsigned skip;                 /* enum ds_skip bits */
    const int *cuts; int n_cuts;   /* tokens of the step after which the GDN state is kept: ascending, 1..n, at most sc->max_cuts */
    /* Called after the embedding (layer -1) and after each layer; NULL: never. False leaves the rest out: the step fails with
     * DS_ECANCEL, and the state is neither the old one nor the new. For witnesses, and for those who may be stopped. */
    bool (*after_layer)(void *ctx, int layer, struct ds_buf *x, int n);
    void *after_ctx;
};
/* Runs one step of n tokens through all layers and advances the state's position. Logits of the last
 * token go to sc->logits when want_logits. */
ds_status ds_forward_step(struct ds_forward *f, const int32_t *ids, int n, bool decode, bool want_logits, struct ds_err *e);
/* Head on rows row0.. of the last step's residual, n <= DS_LOGIT_ROWS, into sc->logits. A step of its own. */
ds_status ds_forward_head(struct ds_forward *f, int row0, int n, struct ds_err *e);

/* One block kind a file. In: residual x. Out: x with the block's output added. */
void ds_block_gdn(struct ds_forward *f, int layer, int n);
void ds_block_attn(struct ds_forward *f, int layer, int n);
void ds_block_ffn(struct ds_forward *f, int layer, int n);

static inline struct ds_product ds_into(const struct ds_matrix *m, struct ds_buf *y)
{
    return (struct ds_product){ y, m->w, m->cls, m->t->ne[0], m->t->ne[1], m->t->bytes };
}

#endif
