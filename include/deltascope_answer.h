/* deltascope answers: from logits to text that may be shown.
 *
 * An answer picks tokens, counts penalties, completes characters, watches for stop strings and knows why it ended.
 * Prefill and decode stay the caller's. One thread at a time. Nothing prints or exits. */
#ifndef DELTASCOPE_ANSWER_H
#define DELTASCOPE_ANSWER_H

#include "deltascope.h"

enum ds_finish {
    DS_FINISH_LENGTH,               /* as many tokens as were asked for */
    DS_FINISH_END,                  /* the model ended its turn or the text */
    DS_FINISH_STOP,                 /* a stop string */
    DS_FINISH_WINDOW,               /* the window is full: prompt and answer together have as many tokens as it */
    DS_FINISH_ENOUGH,               /* whoever reads the answer has all that he wants */
    DS_FINISH_INTERRUPTED
};
extern const char *const ds_finish_names[];     /* "length", "end", "stop", "window", "enough", "interrupted" */

enum { DS_LOGPROBS_MAX = 20 };
struct ds_logprob { int32_t id; float logprob; };

struct ds_answer_options {
    struct ds_sampling sampling;
    const char *const *stops; int n_stops;      /* copied; none empty */
    int64_t max_new;                /* tokens; -1: until something else ends it */
    int logprobs;                   /* likeliest tokens told beside each; -1: no probabilities */
    bool ignore_end;                /* end tokens are never picked */
};
typedef struct ds_answer ds_answer;

ds_answer *ds_answer_new(const ds_engine *g, const struct ds_answer_options *o);     /* NULL: no memory */
void ds_answer_free(ds_answer *a);
/* Tokens before the answer: the repetition penalty counts them, the others do not. */
void ds_answer_prompt(ds_answer *a, const int32_t *ids, int64_t n);

struct ds_token_step {
    int32_t id;                     /* the token picked; -1: none, the answer was over before */
    const char *text; size_t n;     /* what may be shown now; whole characters, no part of a stop string; NUL-terminated */
    bool over;
    enum ds_finish finish;          /* when over */
    const char *stop;               /* DS_FINISH_STOP: the string that was met */
    float logprob;                  /* of id before penalties and temperature */
    struct ds_logprob top[DS_LOGPROBS_MAX]; int n_top;
};
/* Picks the next token from the session's logits, which stay as they are. When the step is not over
 * the caller decodes its id and comes again. Text stays valid until the next call. */
ds_status ds_answer_step(ds_answer *a, const ds_session *s, struct ds_token_step *out, struct ds_err *e);
/* Ends it from outside: the text that was held back. */
void ds_answer_end(ds_answer *a, enum ds_finish why, struct ds_token_step *out);

#endif
