/* Stage times of a prefill: marks at stage borders while a step is issued, sums afterwards.
 *
 * A mark says "from here on, time belongs to this stage (and product class)". The backend stamps its
 * own clock at every mark; after the step the differences are added up. Consecutive work of one label
 * shares a mark. Nothing here reads a clock or knows a backend. */
#ifndef DS_PROF_PROF_H
#define DS_PROF_PROF_H

#include "deltascope.h"

#include <stdbool.h>
#include <stdint.h>

struct ds_label {
    enum ds_stage stage;
    int cls;                       /* enum ds_class, or -1 */
    const char *cls_name, *kernel; /* static strings; NULL without class */
};

struct ds_mark { struct ds_label label; double flop, bytes; };

struct ds_prof {
    enum ds_prof_mode mode;
    int n, cap;                    /* marks of the step in progress */
    struct ds_mark *marks;
    bool failed;                   /* no memory for marks: the profile of this prefill is void */
    struct ds_profile sum;         /* of the prefill so far */
};

void ds_prof_free(struct ds_prof *p);
void ds_prof_start(struct ds_prof *p, int P);       /* a prefill begins: zero sums */
void ds_prof_step(struct ds_prof *p);               /* a step begins: no marks */
/* Adds work under a label. Returns the index of a new mark to stamp, or -1 when the last one goes on. */
int ds_prof_mark(struct ds_prof *p, const struct ds_label *l, double flop, double bytes);
/* The step is over: ns[i] is the stamp of mark i, ns[n] that of the end. */
void ds_prof_collect(struct ds_prof *p, const uint64_t *ns);
/* The prefill is over: wall time; what no stage claimed becomes `other`. */
void ds_prof_finish(struct ds_prof *p, uint64_t wall_ns);

#endif
