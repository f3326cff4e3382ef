/* Prompt in, answer out: the loop of prefill, pick, print, decode. */
#ifndef DS_TOOLS_CMD_GENERATE_H
#define DS_TOOLS_CMD_GENERATE_H

#include "base/buf.h"
#include "common/options.h"
#include "deltascope_answer.h"

struct ds_generation {
    /* in */
    ds_engine *g;
    ds_session *s;
    struct ds_sampling sampling;   /* the seed moves on from answer to answer */
    struct ds_texts stops;
    int max_new;               /* -1: until something else ends it */
    bool print;                /* on stdout as it comes */
    /* out, of the last call; the caller frees both with ds_generation_free */
    enum ds_finish finish;
    struct ds_ids ids;
    struct ds_bytes text;
    double prefill_ms, decode_ms;
    /* Ids that belong to the conversation and that the session does not hold yet. */
    struct ds_ids owed;
};
void ds_generation_free(struct ds_generation *r);

/* Appends the prompt, which may be empty where the session holds logits, and generates. Ctrl-C is no failure: finish tells. */
ds_status ds_generate(struct ds_generation *r, const int32_t *prompt, size_t n, struct ds_err *e);
/* The session takes in what is owed, as far as the window holds it, so that it can be saved as a whole. */
ds_status ds_generation_settle(struct ds_generation *r, struct ds_err *e);

#endif
