/* What every program does around the engine: say what failed, open the model with a progress bar,
 * stop on Ctrl-C, and notice that the output could not be written. */
#ifndef DS_TOOLS_COMMON_TOOL_H
#define DS_TOOLS_COMMON_TOOL_H

#include "common/options.h"

#include "base/buf.h"

#include <stdatomic.h>

/* Set to the signal's number by SIGINT and SIGTERM once ds_tool_catch_interrupt was called. */
extern _Atomic int ds_tool_interrupted;
void ds_tool_catch_interrupt(void);
int ds_tool_stop(void *ctx);                     /* a ds_stop: whether it was set */

/* Prints "prog: sentence" and returns the exit code for it: 2 for bad arguments, 130 after an
 * interrupt, otherwise 1. */
int ds_tool_fail(const char *prog, const struct ds_err *e);

/* Opens the engine of o with a progress bar on stderr; from here on interrupts are caught, and one stops the loading (DS_ECANCEL). */
ds_status ds_tool_open(ds_engine **g, const struct ds_options *o, struct ds_err *e);

/* Writes n bytes to stdout at once. What is lost there is said once: by the first call that fails, not by ds_tool_finish again. */
ds_status ds_tool_print(const void *p, size_t n, struct ds_err *e);
/* Writes b to stdout, or to `path`: through a temporary file that is renamed into place, behind the links of path when it has some. */
ds_status ds_tool_write(const struct ds_bytes *b, const char *path, struct ds_err *e);
/* Flushes stdout; EXIT_FAIL when anything written there was lost (with a sentence, if none was said yet), otherwise rc. */
int ds_tool_finish(const char *prog, int rc);

/* "16.8 MB" (powers of 1000), "3.2 G" without a unit; for people, never for scripts. */
void ds_human_bytes(char dst[16], double bytes);
void ds_human_count(char dst[16], double n);

#endif
