/* A few SVG shapes, escaped and closed. Coordinates in pixels. */
#ifndef DS_TOOLS_COMMON_SVG_H
#define DS_TOOLS_COMMON_SVG_H

#include "base/buf.h"

void ds_svg_open(struct ds_bytes *b, int w, int h, const char *title);
void ds_svg_close(struct ds_bytes *b);
void ds_svg_rect(struct ds_bytes *b, double x, double y, double w, double h, const char *fill);
/* dash: "" for a solid line, or lengths as in stroke-dasharray. */
void ds_svg_line(struct ds_bytes *b, double x1, double y1, double x2, double y2, const char *stroke, double width, const char *dash);
/* anchor: "start", "middle", "end". Text is escaped. */
void ds_svg_text(struct ds_bytes *b, double x, double y, const char *anchor, int size, const char *fill, const char *fmt, ...) DS_PRINTF(7, 8);

#endif
