/* Tables for people: cells are collected, then written aligned, or as Markdown. */
#ifndef DS_TOOLS_COMMON_TABLE_H
#define DS_TOOLS_COMMON_TABLE_H

#include "base/buf.h"

struct ds_table {
    const char *align;              /* one letter per column: l or r */
    int cols, n, cap;               /* n cells so far, row by row; the first row is the header */
    char **cell;
    bool failed;                    /* memory was refused: the writers then write nothing and mark b failed */
};
void ds_table_init(struct ds_table *t, const char *align);
void ds_table_free(struct ds_table *t);
void ds_table_cell(struct ds_table *t, const char *fmt, ...) DS_PRINTF(2, 3);
/* Fills up the row with empty cells. */
void ds_table_end_row(struct ds_table *t);

void ds_table_text(struct ds_bytes *b, const struct ds_table *t);
void ds_table_markdown(struct ds_bytes *b, const struct ds_table *t);

#endif
