#include "common/grid.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ds_grid_init(struct ds_grid *t, const char *align)
{
    memset(t, 0, sizeof *t);
    t->align = align;
    t->cols = (int)strlen(align);
}

void ds_grid_free(struct ds_grid *t)
{
    for (int i = 0; i < t->n; i++) free(t->cell[i]);
    free(t->cell);
    memset(t, 0, sizeof *t);
}

void ds_grid_cell(struct ds_grid *t, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    if (t->failed) return;
    if (t->n == t->cap) {
        int cap = t->cap ? 2 * t->cap : 64;
        char **grown = realloc(t->cell, (size_t)cap * sizeof *grown);
        if (!grown) { t->failed = true; return; }
        t->cell = grown;
        t->cap = cap;
    }
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t n = strlen(text) + 1;
    char *copy = malloc(n);
    if (!copy) { t->failed = true; return; }
    memcpy(copy, text, n);
    t->cell[t->n++] = copy;
}

void ds_grid_end_row(struct ds_grid *t)
{
    while (!t->failed && t->n % t->cols) ds_grid_cell(t, "%s", "");
}

/* Code points, so that a column of UTF-8 text lines up. */
static int width(const char *s)
{
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static int column_width(const struct ds_grid *t, int c)
{
    int w = 0;
    for (int i = c; i < t->n; i += t->cols) w = width(t->cell[i]) > w ? width(t->cell[i]) : w;
    return w;
}

static void spaces(struct ds_bytes *b, int n)
{
    for (; n > 0; n--) ds_bytes_puts(b, " ");
}

/* One cell, padded to w on the side that its alignment leaves free. */
static void padded(struct ds_bytes *b, const struct ds_grid *t, int i, int w, bool last)
{
    int fill = w - width(t->cell[i]);
    bool right = t->align[i % t->cols] == 'r';
    if (right) spaces(b, fill);
    ds_bytes_puts(b, t->cell[i]);
    if (!right && !last) spaces(b, fill);
}

void ds_grid_text(struct ds_bytes *b, const struct ds_grid *t)
{
    if (t->failed) b->failed = true;
    for (int i = 0; i < t->n && !b->failed; i += t->cols) {
        int end = t->cols;                 /* no blanks after the last filled cell */
        while (end > 1 && !*t->cell[i + end - 1]) end--;
        for (int c = 0; c < end; c++) {
            if (c) ds_bytes_puts(b, "  ");
            padded(b, t, i + c, column_width(t, c), c == end - 1);
        }
        ds_bytes_puts(b, "\n");
    }
}

void ds_grid_markdown(struct ds_bytes *b, const struct ds_grid *t)
{
    if (t->failed) b->failed = true;
    for (int i = 0; i < t->n && !b->failed; i += t->cols) {
        for (int c = 0; c < t->cols; c++) {
            ds_bytes_puts(b, c ? " | " : "| ");
            padded(b, t, i + c, column_width(t, c), false);
        }
        ds_bytes_puts(b, " |\n");
        if (i) continue;
        for (int c = 0; c < t->cols; c++) {
            ds_bytes_puts(b, "|");
            for (int k = column_width(t, c) + 1; k > 0; k--) ds_bytes_puts(b, "-");
            ds_bytes_puts(b, t->align[c] == 'r' ? ":" : "-");
        }
        ds_bytes_puts(b, "|\n");
    }
}
