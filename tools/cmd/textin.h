/* Text that a user hands to a tool. */
#ifndef DS_TOOLS_CMD_TEXTIN_H
#define DS_TOOLS_CMD_TEXTIN_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

/* Appends a whole file, byte for byte; "-" is standard input. b must be initialised. */
ds_status ds_read_text(struct ds_bytes *b, const char *path, struct ds_err *e);
/* Replaces b by the next line of f without its end. False at the end of the input, or when a signal came first. */
bool ds_read_line(struct ds_bytes *b, FILE *f);

#endif
