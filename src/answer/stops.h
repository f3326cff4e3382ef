/* Stop strings in a stream of text, also where they span several pieces of it. */
#ifndef DS_ANSWER_STOPS_H
#define DS_ANSWER_STOPS_H

#include "base/buf.h"

struct ds_stops {
    const char *const *strings; int n;       /* not copied; none of them empty */
    struct ds_bytes held;                    /* the end of the text so far, where a stop string may have begun */
};
void ds_stops_init(struct ds_stops *s, const char *const *strings, int n);
void ds_stops_free(struct ds_stops *s);

/* Takes more text and appends to `out` what no stop string can reach any more. When one is complete it is returned: `out`
 * ends before it, and what follows is dropped. NULL otherwise. */
const char *ds_stops_put(struct ds_stops *s, const char *text, size_t n, struct ds_bytes *out);
void ds_stops_end(struct ds_stops *s, struct ds_bytes *out);     /* the text is over: releases what was held */

#endif
