#include "common/svg.h"

#include <stdarg.h>
#include <stdio.h>

/* Text for an element or attribute: markup characters as entities, control characters dropped. */
static void escaped(struct ds_bytes *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '&') ds_bytes_puts(b, "&amp;");
        else if (*s == '<') ds_bytes_puts(b, "&lt;");
        else if (*s == '>') ds_bytes_puts(b, "&gt;");
        else if (*s == '"') ds_bytes_puts(b, "&quot;");
        else if ((unsigned char)*s >= 0x20) ds_bytes_add(b, s, 1);
    }
}

void ds_svg_open(struct ds_bytes *b, int w, int h, const char *title)
{
    ds_bytes_printf(b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                    "font-family=\"system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif\">\n<title>", w, h, w, h);
    escaped(b, title);
    ds_bytes_puts(b, "</title>\n");
    ds_svg_rect(b, 0, 0, w, h, "#ffffff");
}

void ds_svg_close(struct ds_bytes *b) { ds_bytes_puts(b, "</svg>\n"); }

void ds_svg_rect(struct ds_bytes *b, double x, double y, double w, double h, const char *fill)
{
    ds_bytes_printf(b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, w, h, fill);
}

void ds_svg_line(struct ds_bytes *b, double x1, double y1, double x2, double y2, const char *stroke, double width, const char *dash)
{
    ds_bytes_printf(b, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"%.1f\"", x1, y1, x2, y2, stroke, width);
    if (*dash) ds_bytes_printf(b, " stroke-dasharray=\"%s\"", dash);
    ds_bytes_puts(b, "/>\n");
}

void ds_svg_text(struct ds_bytes *b, double x, double y, const char *anchor, int size, const char *fill, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ds_bytes_printf(b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\">", x, y, anchor, size, fill);
    escaped(b, text);
    ds_bytes_puts(b, "</text>\n");
}
