/* The grammar of a tool call, read as its text grows; for chat/reader.c. */
#ifndef DS_CHAT_SCAN_H
#define DS_CHAT_SCAN_H

#include "chat/dialog.h"

#include "base/buf.h"

#define DS_TAG_CALL "<tool_call>"
#define DS_TAG_FUNCTION "<function="
#define DS_TAG_FUNCTION_NAME "<function name="

enum ds_scan_result {
    DS_SCAN_WAIT,              /* more text is needed */
    DS_SCAN_DONE,              /* calls were read; the text after `at` is not theirs */
    DS_SCAN_BAD                /* no call */
};

struct ds_scan_call { char *name; json_t *arguments; };

struct ds_scan {
    const struct ds_dialog *d;
    bool declared_only;        /* a call counts only if its name is declared */
    int state;
    size_t at;                 /* bytes read for good */
    size_t begin; int n_good;  /* where the call that is being read begins, and the calls before it */
    size_t value;              /* where the value or the JSON begins */
    char *param;               /* the parameter whose value is being read */
    int depth; bool quoted, escaped;        /* inside JSON */
    struct ds_scan_call *calls; int n_calls;
    struct ds_bytes stray;     /* text between the parts of a call */
    bool committed;            /* the call that is being read was told in part: from its first parameter on it is one, whatever follows */
    bool failed;               /* no memory */
};

void ds_scan_begin(struct ds_scan *s, const struct ds_dialog *d, bool declared_only);
void ds_scan_free(struct ds_scan *s);
/* text: from the tag on, the same bytes as before and more. end: nothing follows. */
enum ds_scan_result ds_scan_go(struct ds_scan *s, struct ds_str text, bool end);
bool ds_scan_is_whole(const struct ds_scan *s);     /* after DS_SCAN_WAIT: only optional end tags are awaited */

/* After DS_SCAN_WAIT: calls that stay as they are. *open: the one after them is read, and more parameters of it may come. */
int ds_scan_n_whole(const struct ds_scan *s, bool *open);
/* After DS_SCAN_WAIT, in an open call: the parameter that is being read and what is certain of its value, when that is a text. */
bool ds_scan_partial(const struct ds_scan *s, struct ds_str text, const char **param, struct ds_str *value);

/* Does s begin with what, or could it when it goes on? */
enum ds_match { DS_MATCH_NO, DS_MATCH_YES, DS_MATCH_MAYBE };
enum ds_match ds_match(struct ds_str s, const char *what, bool end);

#endif
