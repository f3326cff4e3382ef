/* The shaders as text, one entry per .metal file with its own headers spliced in: made by tools/metal-sources.sh at build, and
 * compiled at start, because the command line tools alone bring no Metal compiler. */
#ifndef DS_BACKEND_METAL_SOURCES_H
#define DS_BACKEND_METAL_SOURCES_H

#include <stddef.h>

struct ds_metal_source { const char *name, *text; size_t n; };   /* text ends with a NUL beyond n */
extern const struct ds_metal_source ds_metal_sources[];          /* name NULL past the last */

#endif
