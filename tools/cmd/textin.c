#include "cmd/textin.h"
#include "common/tool.h"

#include <errno.h>
#include <string.h>

ds_status ds_read_text(struct ds_bytes *b, const char *path, struct ds_err *e)
{
    bool is_stdin = !strcmp(path, "-");
    const char *name = is_stdin ? "standard input" : path;
    char block[65536];
    size_t n;
    errno = 0;
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    if (!f) return ds_fail(e, DS_EIO, "%s: cannot be read: %s", name, strerror(errno));
    while (!ds_tool_interrupted && (n = fread(block, 1, sizeof block, f)) > 0 && !b->failed) ds_bytes_add(b, block, n);
    int why = ferror(f) ? errno : 0;
    if (!is_stdin) fclose(f);
    if (ds_tool_interrupted) return ds_fail(e, DS_ECANCEL, "%s: interrupted", name);
    if (why) return ds_fail(e, DS_EIO, "%s: cannot be read: %s", name, strerror(why));
    if (b->failed) return ds_fail(e, DS_ENOMEM, "%s: a text of more than %zu bytes", name, b->max);
    return DS_OK;
}

bool ds_read_line(struct ds_bytes *b, FILE *f)
{
    b->n = 0;
    for (int c; (c = getc(f)) != EOF;) {
        char byte = (char)c;
        if (c == '\n') {
            if (b->n && b->p[b->n - 1] == '\r') b->p[--b->n] = 0;
            return true;
        }
        ds_bytes_add(b, &byte, 1);
    }
    return b->n && !ferror(f);
}
