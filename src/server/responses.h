/* What /v1/responses keeps of a request and of the answer under way; for its two files alone. */
#ifndef DS_SERVER_RESPONSES_H
#define DS_SERVER_RESPONSES_H

#include "server/talk.h"

enum item { NO_ITEM, REASONING, MESSAGE, CALL, CUSTOM };        /* CUSTOM: a call whose one argument is free text */

struct responses {
    struct ds_talk t;
    struct ds_bytes *out;           /* where the event under way is written */
    int64_t sequence, max_output, reasoning_tokens;
    char *instructions;             /* NULL: none */
    float temperature, top_p;
    json_t *tools, *choice;         /* the request's own; NULL: none */
    json_t *custom;                 /* an object whose keys are the names of the custom tools */
    json_t *spaces;                 /* of tools in a namespace: {"SPACE.NAME", as the model sees it: {"namespace", "name"}} */
    enum item item;                 /* the one that is open */
    bool cut;                       /* the answer ended before it did */
    int n_items;                    /* those that were opened */
    char item_id[48], call_id[48];
    struct ds_bytes name, text;     /* of the open item: a call's name; its text or arguments */
    struct ds_bytes arguments;      /* of an open custom call: JSON around its text, */
    size_t taken;                   /* of which so many bytes were told */
    struct ds_bytes items;          /* items that are whole, for "output" */
};

/* The request of /v1/responses into a (zeroed, with its texts ready) and q. False: refused. */
bool ds_responses_read(const struct ds_call *c, struct responses *a, struct ds_request *q, struct ds_refusal *r);

#endif
