/* Internals shared by the files that implement include/deltascope.h. */
#ifndef DS_ENGINE_ENGINE_H
#define DS_ENGINE_ENGINE_H

#include "deltascope.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "token/token.h"

#define DS_DEFAULT_UBATCH 512
#define DS_MAX_CUTS 64             /* kept states per chunk, at most */

struct ds_engine {
    struct ds_gguf *gguf;
    struct ds_backend *be;
    struct ds_model model;
    struct ds_tokenizer *tok;      /* NULL: the model has none */
    struct ds_scratch scratch;     /* one step at a time, whatever session it belongs to */
    struct ds_run run;
    struct ds_model_info info;
    struct ds_peaks peaks;
    bool peaks_known;
    int threads, ubatch, max_cuts;
    unsigned isa;
    bool kv_f16;
    bool plan_only;                /* the weights were not made */
    uint64_t room;                 /* memory that could be had for all of it, when plan_only */
};

struct ds_session {
    struct ds_engine *g;
    struct ds_state st;
    struct ds_prof prof;
    int32_t *tokens; int64_t cap_tokens;
    float *logits;                 /* [n_vocab] of the last token */
    bool has_logits;
    float *rows; size_t rows_n, rows_cap;   /* [rows_n][n_vocab] after DS_ROWS_ALL */
    int64_t *cuts; int n_cuts;     /* positions whose state the next prefill hands out */
    ds_cut_fn cut_fn; void *cut_ctx;
    ds_stop stop; void *stop_ctx; void *undo;   /* undo: the GDN state at the start of the chunk that may be stopped */
    unsigned skip;
    bool timing_only, profiled, failed;
};

/* An engine whose backend runs the path that o describes and the plain CPU path in step (backend/tandem). */
ds_status ds_engine_open_tandem(ds_engine **out, const struct ds_options *o, struct ds_err *e);

/* Makes room for `need` token ids in all. */
ds_status ds_session_hold(struct ds_session *s, int64_t need, struct ds_err *e);

#endif
