/* JSON for records: a writer that cannot produce invalid text, and a reader for our own files.
 *
 * The writer keeps the comma and nesting state; numbers that are not finite become null. The reader
 * parses a whole text into a tree, with limits on depth (64) and size; it is meant for files of
 * kilobytes to a few megabytes that these tools wrote. */
#ifndef DS_BASE_JSON_H
#define DS_BASE_JSON_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DS_JSON_DEPTH = 64 };

struct ds_json_out {
    struct ds_bytes *b;
    size_t start;       /* of this text in b: whatever stands before is left alone */
    int depth;
    struct { char kind; bool any, broken; } level[DS_JSON_DEPTH];   /* '{' or '['; has items; spans several lines */
    bool after_key;
    bool pretty;        /* newlines and two-space indent; runs of numbers share a line */
};
/* A call that JSON's grammar forbids (a value without key in an object, a second root, an unmatched end, more than
 * DS_JSON_DEPTH levels) sets b->failed. The text is whole when b has not failed and depth is 0. */
void ds_jo_init(struct ds_json_out *j, struct ds_bytes *b, bool pretty);
void ds_jo_obj(struct ds_json_out *j);     void ds_jo_obj_end(struct ds_json_out *j);
void ds_jo_arr(struct ds_json_out *j);     void ds_jo_arr_end(struct ds_json_out *j);
void ds_jo_key(struct ds_json_out *j, const char *key);
void ds_jo_str(struct ds_json_out *j, const char *s);                 /* NULL writes null */
void ds_jo_strn(struct ds_json_out *j, const char *s, size_t n);      /* bytes; invalid UTF-8 becomes U+FFFD */
void ds_jo_num(struct ds_json_out *j, double v);                      /* shortest form that reads back */
void ds_jo_int(struct ds_json_out *j, int64_t v);
void ds_jo_bool(struct ds_json_out *j, bool v);
void ds_jo_null(struct ds_json_out *j);

enum ds_json_kind { DS_JNULL, DS_JBOOL, DS_JNUM, DS_JSTR, DS_JARR, DS_JOBJ };
struct ds_json {
    enum ds_json_kind kind;
    double num;                 /* DS_JNUM; 0/1 for DS_JBOOL */
    char *str;                  /* DS_JSTR, NUL-terminated UTF-8 */
    size_t n;                   /* items of an array or object, bytes of a string */
    struct ds_json *items;      /* array elements or object values */
    char **keys;                /* object keys, NUL-terminated */
};
/* Strict JSON in valid UTF-8. A lone surrogate escape becomes U+FFFD; numbers past the range of double and NUL in keys are
 * errors. The sentence gives the line and column. */
struct ds_json *ds_json_parse(const char *text, size_t n, struct ds_err *e);  /* NULL on failure; free with ds_json_free */
void ds_json_free(struct ds_json *v);
const struct ds_json *ds_json_get(const struct ds_json *obj, const char *key);   /* NULL when absent or not an object */
/* Copies a value as it is into a writer (used by --merge). */
void ds_jo_copy(struct ds_json_out *j, const struct ds_json *v);

#endif
