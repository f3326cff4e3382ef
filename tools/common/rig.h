/* Timing: a model made ready to be measured, and what one timed prefill or decode run gives. */
#ifndef DS_TOOLS_COMMON_RIG_H
#define DS_TOOLS_COMMON_RIG_H

#include "common/options.h"
#include "common/progress.h"

#define DS_WARM_UP_MIN 16           /* tokens of the shortest warm-up */
#define DS_RATE_MIN 256             /* shorter prefills have a latency, not a rate */

struct ds_rig {
    ds_engine *g;
    ds_session *s;
    int32_t *ids;                   /* seeded pseudo-random ids that the vocabulary knows */
    int n_ids;
    enum ds_prof_mode mode;         /* of timed prefills */
    bool lines;                     /* one profile line on stderr per timed prefill */
    struct ds_progress bar;
};

/* Opens engine and session for prompts and runs of up to `tokens` tokens. When o->ctx is 0 the window is
 * sized for them, so that a short measurement of a large model does not take the memory of its whole window. */
ds_status ds_rig_open(struct ds_rig *r, const struct ds_options *o, int tokens, struct ds_err *e);
void ds_rig_close(struct ds_rig *r);        /* a zeroed rig is allowed */

/* Untimed, never profiled: DS_WARM_UP_MIN tokens twice, then P tokens too if they would take less than a second
 * or so (so that scratch is touched at full size). *tokens: how many ran. */
ds_status ds_rig_warm_up(struct ds_rig *r, int P, int *tokens, struct ds_err *e);
/* Brings the session to `depth` tokens untimed, then times a prefill of P. *p: its profile. */
ds_status ds_rig_prefill(struct ds_rig *r, int depth, int P, unsigned skip, double *ms, struct ds_profile *p, struct ds_err *e);
/* Brings the session to `depth` tokens (at least 1), then times `steps` decode steps. */
ds_status ds_rig_decode(struct ds_rig *r, int depth, int steps, double *ms, struct ds_err *e);
/* GB that one decode step at `depth` has to move: weights, state and cache, by the profile's own count. */
ds_status ds_rig_decode_gb(struct ds_rig *r, int depth, double *gb, struct ds_err *e);

/* The repetitions of one prefill measurement. */
struct ds_cell {
    int P, depth, ubatch;
    unsigned skip;
    bool cold;
    int n, cap;
    double *ms;                     /* [n] wall */
    struct ds_profile *prof;        /* [n] */
};
ds_status ds_cell_init(struct ds_cell *c, int reps, struct ds_err *e);
void ds_cell_free(struct ds_cell *c);
ds_status ds_cell_run(struct ds_cell *c, struct ds_rig *r, struct ds_err *e);    /* one more repetition */
int ds_cell_median(const struct ds_cell *c);                                     /* index of the median wall */
/* Prints the notice that a skipped run needs, once, on stderr. */
void ds_say_timing_only(const char *prog, unsigned skip);
const char *ds_skip_words(unsigned skip);       /* "", "gdn", "attn", "gdn,attn" */

#endif
