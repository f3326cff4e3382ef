/* deltascope: prefill of Qwen3.5/3.6 hybrid models, measured by stage.
 *
 * The only header that a tool includes besides those of src/base. An *engine* is a loaded model on a
 * backend; a *session* is one token timeline with its KV cache, convolution and recurrent state. All
 * functions are safe to call from one thread at a time per engine. Nothing here prints or exits. */
#ifndef DELTASCOPE_H
#define DELTASCOPE_H

#include "base/err.h"
#include "base/peaks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DS_VERSION "0.1.0"

/* --- engine ----------------------------------------------------------------------------------- */

enum ds_skip { DS_SKIP_GDN = 1, DS_SKIP_ATTN = 2 };
enum ds_prof_mode { DS_PROF_OFF, DS_PROF_STAMP, DS_PROF_DRAIN };
enum ds_rows { DS_ROWS_LAST, DS_ROWS_ALL, DS_ROWS_NONE };   /* which positions get logits */

struct ds_synth_spec {              /* random weights in a published geometry (see ds_synth_names) */
    const char *like;               /* "qwen3.5-0.8b", ...; NULL: no synthesis */
    const char *type;               /* storage type of 2-D weights: "q8_0" */
    int layers, vocab;              /* 0: as published */
    uint64_t seed;
    /* Only the facts and the plan are wanted: where the backend can tell them without weights, none are made, the engine has no
     * hash, ds_plan.available is set, and sessions are refused. Memory that does not suffice is no failure then. */
    bool plan_only;
    /* Progress of making (and writing) the weights, done and total in bytes; non-zero stops with DS_ECANCEL. May be NULL. */
    int (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
};

struct ds_options {
    const char *model;              /* path of a GGUF file; ignored when synth.like is set */
    struct ds_synth_spec synth;
    const char *backend;            /* "cpu", "cuda", "metal", NULL or "auto" */
    const char *placement;          /* "gemm", "full"; NULL: "full" */
    const char *isa;                /* NULL or "auto", or a level (forbids anything above it) */
    const char *kv;                 /* "f16" (NULL) or "f32" */
    int threads;                    /* 0: as many as are usable here */
    int ubatch;                     /* tokens per prefill chunk; 0: 512, on a GPU up to 4096 where that fits */
    int64_t ctx;                    /* 0: the model's, or what memory allows */
    int sessions;                   /* that memory must hold at once; 0: 1 */
    uint64_t reserve;               /* bytes of it that are somebody else's: stored prefixes */
    int max_cuts;                   /* states that a prefill may keep per chunk (ds_session_set_cuts); 0: none */
    const char *gdn;                /* NULL or "auto", "seq", "chunk": form of the recurrence in prefill */
    const char *gemm;               /* operands of weight products on a GPU: NULL or "bf16", "fp8", "fp8:" and a list (docs/cuda.md) */
    const char *weights;            /* copies for them: NULL or "auto", "blocks" (none), "bf16" (all) */
    float gpu_work;                 /* Metal: most operations of one command buffer, in 1e9; 0: the backend's choice */
    /* Loading progress, done and total in bytes; non-zero stops with DS_ECANCEL. May be NULL. */
    int (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
};

typedef struct ds_engine ds_engine;
typedef struct ds_session ds_session;

ds_status ds_engine_open(ds_engine **out, const struct ds_options *o, struct ds_err *e);
void ds_engine_close(ds_engine *g);                  /* NULL allowed; sessions must be closed before */

struct ds_plan {                    /* bytes; exact: what the engine allocates, nothing hidden */
    uint64_t weights;               /* the map, or device copies */
    uint64_t weights_extra;         /* repacked or converted copies kept beside or instead of it */
    uint64_t kv;                    /* for ctx tokens, one session */
    uint64_t state;                 /* conv and recurrent state, one session */
    uint64_t snapshots;             /* one snapshot of state and last logits, KV not counted */
    uint64_t scratch;               /* activations of one ubatch and kernel scratch, all threads */
    uint64_t available;             /* a plan alone: bytes that could be had when it was made; 0: the weights are there */
};

struct ds_model_info {
    const char *path, *arch, *name;
    uint64_t hash, file_bytes, params;      /* hash 0: weights that were not made */
    char type[16];                  /* storage type with most bytes: "q8_0" */
    int n_layer, n_gdn, n_attn, n_mtp, hidden, n_vocab, n_ff;
    int n_head, n_kv, head_dim, n_rot;
    int gdn_kh, gdn_vh, gdn_dk, gdn_dv, conv_kernel;
    int n_expert, n_expert_used, n_ff_exp, n_ff_shexp;
    int full_attention_interval;
    float rms_eps, rope_base;
    bool tied;
    int64_t ctx_model, ctx;         /* the model's window; the one planned here */
    int n_tensors;
    double gemm_flop_per_token;     /* 2 x layer GEMM weights touched by a token, head left out */
    double load_ms;
};
const struct ds_model_info *ds_engine_info(const ds_engine *g);
void ds_engine_plan(const ds_engine *g, struct ds_plan *plan);
/* i-th row of "type -> tensors, bytes"; false past the end. */
bool ds_engine_type_row(const ds_engine *g, int i, const char **type, int *tensors, uint64_t *bytes);
/* i-th row of "GEMM class -> storage type, kernel"; false past the end. A class of several types has several rows. */
bool ds_engine_kernel_row(const ds_engine *g, int i, const char **cls, const char **type, const char **kernel);
const char *ds_engine_backend(const ds_engine *g);   /* "cpu" */
const char *ds_engine_device(const ds_engine *g);    /* the accelerator by its own name; NULL: none takes part */
const char *ds_engine_placement(const ds_engine *g); /* "gemm" or "full" */
const char *ds_engine_isa(const ds_engine *g);       /* "avx512vnni" */
const char *ds_engine_gdn_form(const ds_engine *g);  /* "seq" or "chunk" */
const char *ds_engine_weight_forms(const ds_engine *g);   /* copies of the weights that prefill's products read; NULL: the file's blocks */
const char *ds_engine_kv_type(const ds_engine *g);   /* "f16" or "f32" */
int ds_engine_threads(const ds_engine *g);
int ds_engine_ubatch(const ds_engine *g);

/* --- session ---------------------------------------------------------------------------------- */

ds_status ds_session_new(ds_session **out, ds_engine *g, struct ds_err *e);
void ds_session_free(ds_session *s);                 /* NULL allowed */
void ds_session_reset(ds_session *s);                /* position 0, zero state */

/* Leave stages out, for timing only: caches stay unfilled, logits are no model answer, and
 * ds_session_is_timing_only stays true until the session is reset with no skip set. */
void ds_session_set_skip(ds_session *s, unsigned skip);
bool ds_session_is_timing_only(const ds_session *s);

/* Appends n tokens. Logits afterwards: those of the last token, or of all n (rows == DS_ROWS_ALL,
 * ds_session_logits_row). tick, when not NULL, is called after every chunk with tokens done and
 * total; a non-zero return stops with DS_ECANCEL, the session holding the tokens done so far.
 * Fails before any work when the window would overflow (both numbers in the sentence) or an id is
 * out of range; a NaN or Inf in the logits names the first layer that produced one (DS_ENUM). */
typedef int (*ds_tick)(void *ctx, int done, int total);
ds_status ds_session_prefill(ds_session *s, const int32_t *ids, int n, enum ds_rows rows, ds_tick tick, void *tick_ctx,
                             struct ds_err *e);
/* stop, when not NULL, is asked after every layer of every chunk of prefill, on the same thread: non-zero undoes the chunk and
 * stops with DS_ECANCEL, the session holding the tokens of the chunks before it. For chunks that take seconds: it costs a copy of
 * the GDN state a chunk, and as much memory from this call until one with NULL. Errors: DS_ENOMEM. */
typedef int (*ds_stop)(void *ctx);
ds_status ds_session_set_stop(ds_session *s, ds_stop stop, void *ctx, struct ds_err *e);
ds_status ds_session_decode(ds_session *s, int32_t id, struct ds_err *e);   /* one token, the decode path */

int64_t ds_session_pos(const ds_session *s);                         /* tokens held */
const int32_t *ds_session_tokens(const ds_session *s);               /* [pos] */
const float *ds_session_logits(const ds_session *s);                 /* [n_vocab] of the last token; NULL at position 0 */
const float *ds_session_logits_row(const ds_session *s, int i);      /* after DS_ROWS_ALL */

/* Caches as f32, for witnesses. Layer l must be of the kind asked for (else false).
 * keys, values [n_kv][pos][head_dim]; conv [conv_kernel-1][channels], oldest first; recurrent [vh][dk][dv]. */
bool ds_session_kv(const ds_session *s, int layer, float *keys, float *values);
bool ds_session_gdn_state(const ds_session *s, int layer, float *conv, float *recurrent);
bool ds_engine_layer_is_attn(const ds_engine *g, int layer);

/* --- the parts of a session, for whoever stores prefixes ---------------------------------------
 *
 * A prefix of n tokens can go on from: its token ids, the KV rows of positions 0..n-1, the GDN state after
 * token n-1, and, to answer without computing, the logits there. Bytes are in the engine's own layout, which
 * ds_engine_layout_id names: equal ids on equal models mean exchangeable bytes. */

uint64_t ds_engine_layout_id(const ds_engine *g);    /* model hash, KV type and format in one number */
size_t ds_engine_kv_bytes(const ds_engine *g);       /* of one position, all layers */
size_t ds_engine_state_bytes(const ds_engine *g);    /* conv and recurrent state of all layers */
/* Rows of positions [from, to); dst and src hold (to - from) * ds_engine_kv_bytes. to <= pos for get, <= ctx for set. */
void ds_session_get_kv(const ds_session *s, int64_t from, int64_t to, void *dst);
void ds_session_set_kv(ds_session *s, int64_t from, int64_t to, const void *src);
void ds_session_get_state(const ds_session *s, void *dst);           /* the state at pos */
/* Asks the next prefill for the GDN state at these positions (absolute token counts, ascending), without
 * splitting its chunks. fn is called after the chunk that passes a position, while ds_session_get_cut of that
 * slot is valid. A chunk keeps at most max_cuts of them: the last ones. Positions at multiples of 64 leave every
 * bit of the prefill as it is. n 0 asks for none; each prefill uses the request up. */
typedef void (*ds_cut_fn)(void *ctx, ds_session *s, int64_t pos, int slot);
ds_status ds_session_set_cuts(ds_session *s, const int64_t *pos, int n, ds_cut_fn fn, void *ctx, struct ds_err *e);
void ds_session_get_cut(const ds_session *s, int slot, void *dst);   /* ds_engine_state_bytes */
/* Makes the session stand after ids[0..n): its KV rows below n must be right (set by ds_session_set_kv, or its own
 * from before). logits [n_vocab] may be NULL: then there are none until the next token. Fails without any change
 * when n is beyond the window. */
ds_status ds_session_resume(ds_session *s, const int32_t *ids, int64_t n, const void *state, const float *logits, struct ds_err *e);

/* --- profile ----------------------------------------------------------------------------------- */

enum ds_stage { DS_ST_GEMM, DS_ST_GDN, DS_ST_ATTN, DS_ST_QKNORM, DS_ST_NORM_ACT, DS_ST_OTHER, DS_ST_COUNT };
extern const char *const ds_stage_names[DS_ST_COUNT];   /* "gemm+roundtrip", "gdn-recurrence", ... */

struct ds_class_time {
    const char *cls, *kernel;       /* "qkv", "q8_0 avx512vnni 16x12" */
    double ms, gflop, gb;           /* measured; operations; bytes that must move (weights once, activations in and out) */
};
struct ds_profile {
    enum ds_prof_mode mode;
    int P;                          /* tokens of this prefill */
    double total_ms;                /* wall */
    double stage_ms[DS_ST_COUNT];   /* qk-norm is a part of full-attn; the others sum to the wall */
    double stage_gflop[DS_ST_COUNT], stage_gb[DS_ST_COUNT];
    int n_classes;
    struct ds_class_time classes[16];
};
void ds_session_set_profile(ds_session *s, enum ds_prof_mode mode);
const struct ds_profile *ds_session_profile(const ds_session *s);    /* of the last prefill; NULL when off */
/* The one-line form, "[cpuprof-hybrid P=256] total=...", without newline. */
void ds_profile_line(const struct ds_profile *p, const char *backend, char *dst, size_t n);

/* --- text ---------------------------------------------------------------------------------------
 *
 * These read the vocabulary only: any number of threads may call them while another one runs the engine. */

struct ds_ids { int32_t *p; size_t n; };             /* p from malloc; the caller frees it */
/* special: text of special tokens becomes their ids; otherwise it is plain text. */
ds_status ds_tokenize(const ds_engine *g, const char *text, size_t n, bool special, struct ds_ids *out, struct ds_err *e);
/* The same for a long text: stop (NULL: none) is asked every few milliseconds, and non-zero ends it with DS_ECANCEL. */
ds_status ds_tokenize_until(const ds_engine *g, const char *text, size_t n, bool special, ds_stop stop, void *ctx,
                            struct ds_ids *out, struct ds_err *e);
/* Bytes of one id. Returns their number; *p stays valid while the engine lives. Padding ids give 0. */
size_t ds_token_bytes(const ds_engine *g, int32_t id, const char **p);
/* The vocabulary's own spelling (byte alphabet) of an id, NUL-terminated; NULL when out of range. */
const char *ds_token_piece(const ds_engine *g, int32_t id);
bool ds_token_is_end(const ds_engine *g, int32_t id);       /* end of turn or of text */

/* Holds back bytes that do not yet complete a UTF-8 character. */
struct ds_stream { char pend[8]; int n; };
/* Appends the bytes of id; writes the complete characters to dst (NUL-terminated, at most cap-1
 * bytes), returns their number. Bytes that can never become valid are replaced by U+FFFD. Three
 * bytes of room for each of ds_token_bytes, and ten more, always suffice; what does not fit is lost. */
size_t ds_stream_put(struct ds_stream *st, const ds_engine *g, int32_t id, char *dst, size_t cap);
size_t ds_stream_end(struct ds_stream *st, char *dst, size_t cap);   /* flushes what is left */

/* Chat frame of the family around messages, ready for generation. thinking: the think prefix is open,
 * where the file's template has that switch. Roles: system, user, assistant, tool; at least one user. A last message
 * of the assistant is a beginning to go on from. *text is the caller's to free. docs/chat.md has the rules. */
struct ds_message { const char *role, *content; };
ds_status ds_chat_render(const ds_engine *g, const struct ds_message *m, int n, bool thinking, char **text, struct ds_err *e);
/* The same as ids. Special tokens count in the frame, those around thinking and calls in the assistant's turns
 * too; everywhere else they are plain text, so that nobody's message can close its own turn. */
ds_status ds_chat_tokenize(const ds_engine *g, const struct ds_message *m, int n, bool thinking, struct ds_ids *out, struct ds_err *e);
/* Will an answer begin with thinking? asked: 1 on, 0 off, -1 nobody said; a template without the switch answers the same to all. */
bool ds_chat_thinks(const ds_engine *g, int asked);
/* The file's own template text, not NUL-terminated, valid while the engine lives; n 0 without one. */
const char *ds_engine_chat_template(const ds_engine *g, size_t *n);

struct ds_bias { int32_t id; float add; };           /* added to a logit; -INFINITY: never picked */
struct ds_sampling {
    float temp, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    int top_k;                      /* 0: all */
    uint64_t seed;
    const struct ds_bias *bias; int n_bias;          /* copied; ids out of range are skipped */
};
#define DS_SAMPLING_GREEDY ((struct ds_sampling){ .temp = 0, .top_p = 1, .repeat_penalty = 1 })
typedef struct ds_sampler ds_sampler;
ds_sampler *ds_sampler_new(const ds_engine *g, const struct ds_sampling *p);      /* NULL: no memory */
void ds_sampler_free(ds_sampler *s);
void ds_sampler_prompt(ds_sampler *s, int32_t id);                   /* a token of the prompt: counts for repeat_penalty alone */
void ds_sampler_accept(ds_sampler *s, int32_t id);                   /* a token of the answer: counts for all penalties */
int32_t ds_sampler_pick(ds_sampler *s, const float *logits);         /* padding rows are never picked */

/* --- files, witness ------------------------------------------------------------------------------ */

/* Writes a synthetic model as a GGUF file, behind the links of path when it has some; whatever fails leaves path as it was. */
ds_status ds_synth_write(const struct ds_synth_spec *spec, const char *path, struct ds_err *e);
const char *const *ds_synth_names(void);             /* NULL-terminated */

struct ds_check_case {
    int n;
    double logits_cosine, logits_max_abs, argmax_agreement;
    int greedy_equal, greedy_total;
    double kv_max_abs, conv_max_abs, recurrent_max_abs;      /* NaN: the oracle has no such tensor */
    bool pass;
    char why[160];                  /* empty when passed */
    bool argmax_judged, greedy_judged, caches_judged;        /* whether these can make the case fail; the cosine always can */
};
struct ds_check_report {
    bool pass;
    char backend[16], placement[16], isa[32];                /* of the path that was checked */
    int n_cases;
    struct ds_check_case *cases;
    char limits[320];               /* what was judged and how strictly, in words */
    int n_left_out;                 /* longer prompts that the window does not hold, or the plain path takes too long for */
};
/* The witness. oracle: path of an oracle file; NULL: compare with the template (the plain CPU path). */
ds_status ds_check(const struct ds_options *o, const char *oracle, struct ds_check_report *r, ds_tick tick, void *tick_ctx,
                   struct ds_err *e);
void ds_check_report_free(struct ds_check_report *r);

/* Measured peaks of this machine with this engine's threads and ISA (about 0.3 s; kept after the first call). */
const struct ds_peaks *ds_engine_peaks(ds_engine *g);
/* Measures once more and keeps the larger figures: for when something ran faster than the peak on record,
 * which a busy moment may have made too low. */
const struct ds_peaks *ds_engine_peaks_again(ds_engine *g);

#endif
