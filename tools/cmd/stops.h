/* Stop strings in a stream of text, also where they span several pieces of it. */
#ifndef DS_TOOLS_CMD_STOPS_H
#define DS_TOOLS_CMD_STOPS_H

#include "base/buf.h"
#include "common/options.h"

struct ds_stops {
    struct ds_texts strings;   /* none of them empty */
    struct ds_bytes held;      /* the end of the text so far, where a stop string may have begun */
};
void ds_stops_init(struct ds_stops *s, const struct ds_texts *strings);
void ds_stops_free(struct ds_stops *s);

/* Takes more text and appends to `out` what no stop string can reach any more. True when one is
 * complete: `out` ends before it, and what follows is dropped. */
bool ds_stops_put(struct ds_stops *s, const char *text, size_t n, struct ds_bytes *out);
void ds_stops_end(struct ds_stops *s, struct ds_bytes *out);     /* the text is over: releases what was held */

#endif
