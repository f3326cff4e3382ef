/* Tables for people: cells are collected, then written aligned, or as Markdown. */
#ifndef DS_TOOLS_COMMON_GRID_H
#define DS_TOOLS_COMMON_GRID_H

#include "base/buf.h"

struct ds_grid {
    const char *align;              /* one letter per column: l or r */
    int cols, n, cap;               /* n cells so far, row by row; the first row is the header */
    char **cell;
    bool failed;                    /* memory was refused: the writers then write nothing and mark b failed */
};
void ds_grid_init(struct ds_grid *t, const char *align);
void ds_grid_free(struct ds_grid *t);
void ds_grid_cell(struct ds_grid *t, const char *fmt, ...) DS_PRINTF(2, 3);
/* Fills up the row with empty cells. */
void ds_grid_end_row(struct ds_grid *t);

void ds_grid_text(struct ds_bytes *b, const struct ds_grid *t);
void ds_grid_markdown(struct ds_bytes *b, const struct ds_grid *t);

#endif
