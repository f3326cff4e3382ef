/* Shared by the files of the witness (check*.c). */
#ifndef DS_ENGINE_CHECK_H
#define DS_ENGINE_CHECK_H

#include "engine/engine.h"

#define DS_CHECK_GREEDY 32         /* tokens of a greedy run */

/* What counts as the same. */
struct ds_check_limits {
    double cosine;                 /* of the last position's logits */
    bool argmax_all;               /* every position's argmax must agree */
    int greedy_from;               /* greedy tokens must agree for prompts of at least so many tokens */
    double cache_abs, cache_rel;   /* 0: not judged */
};

/* What a prompt must give. */
struct ds_check_reference {
    int n;
    const int32_t *ids;
    const float *logits;           /* [n_vocab], last position */
    const int32_t *argmax;         /* [n] */
    const int32_t *greedy;         /* [DS_CHECK_GREEDY] */
    /* Caches of a layer as f32 in the session's layouts; NULL where the reference has none. */
    const float *(*cache)(void *ctx, const char *what, int layer, int n, size_t elems);
    void *cache_ctx;
};

bool ds_check_float_weights(const struct ds_engine *g);
int ds_check_argmax(const float *x, int n);
double ds_check_cosine(const float *a, const float *b, size_t n);      /* 0 where one of them is */
/* Runs the prompt on s and adds the comparison to the report. */
ds_status ds_check_add(struct ds_check_report *r, ds_session *s, const struct ds_check_reference *ref, const struct ds_check_limits *l, struct ds_err *e);
/* Room for one more case at the report's end, not counted yet; NULL: no memory. */
struct ds_check_case *ds_check_next(struct ds_check_report *r, struct ds_err *e);

/* check_prompts.c: lengths that a witness runs: those that the window holds and that a plain path of `flop` operations per token
 * can afford; how many are neither goes to the report. DS_EARG: the window is too small for the shortest. */
ds_status ds_check_lengths(struct ds_check_report *r, int lengths[16], int *n, const struct ds_engine *g, double budget, struct ds_err *e);
/* n ids of prose, again and again; seeded ids where the model has no tokenizer. */
ds_status ds_check_prompt(const ds_engine *g, int32_t *ids, int n, struct ds_err *e);

/* End to end against the plain CPU path (check_template.c), or op by op in step with it (check_tandem.c, which closes s and its engine). */
ds_status ds_check_template(struct ds_check_report *r, ds_session *s, const struct ds_options *o, ds_tick tick, void *tick_ctx, struct ds_err *e);
ds_status ds_check_tandem(struct ds_check_report *r, ds_session *s, const struct ds_options *o, ds_tick tick, void *tick_ctx, struct ds_err *e);

#endif
