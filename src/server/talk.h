/* What the chat APIs have in common: a chat read from a request, and an answer told as reasoning, content and calls. */
#ifndef DS_SERVER_TALK_H
#define DS_SERVER_TALK_H

#include "base/json.h"
#include "chat/reader.h"
#include "server/api.h"

/* Receives the answer; see chat/reader.h. */
struct ds_talk {
    const ds_engine *g;
    struct ds_chat_template t;
    struct ds_dialog *d;
    struct ds_chat_tail tail;
    struct ds_reader *reader;
    char *model;                    /* as the client named it */
    char id[48];
    int64_t created;
    bool stream, progress;
    int thinking, preserve;         /* 0, 1, -1: as the template does */
    bool one_call;                  /* the answer ends with its first call */
    bool enough;                    /* and it was told: what still comes is not wanted */
    ds_said_fn fn; void *ctx;
};

/* Reads the template; model, thinking switches in "chat_template_kwargs" and sampling, stops aside, are read by
 * the calls below. False: refused. */
bool ds_talk_open(struct ds_talk *t, const struct ds_call *c, const char *id_prefix, struct ds_refusal *r);
void ds_talk_close(struct ds_talk *t);                       /* accepts a zeroed struct */

/* model, delivery, sampling, chat_template_kwargs. What nobody asks for is what the family's vendor recommends, with the
 * think block open or not; for other templates greedy. To be called when t->thinking is known. */
bool ds_talk_common(struct ds_talk *t, const struct ds_call *c, struct ds_request *q, struct ds_refusal *r);

/* A message's content, appended to the message begun last: null, a string, or an array of parts with text; other parts are
 * refused. where: "messages[3].content". gap: between parts. */
bool ds_talk_content(struct ds_talk *t, const json_t *content, const char *where, const char *gap, struct ds_refusal *r);
/* One function: kept under its name, shown to the model in the family's form. */
bool ds_talk_tool(struct ds_talk *t, const char *name, const json_t *description, const json_t *parameters, const char *where,
                  struct ds_refusal *r);
/* Makes the answer begin with a call: of the named function, or of any (NULL). Thinking is then off. */
bool ds_talk_force_call(struct ds_talk *t, const char *name, const char *where, struct ds_refusal *r);
/* The prompt's ids and boundaries into q. what: the field that is named when it does not fit. */
bool ds_talk_encode(struct ds_talk *t, const struct ds_call *c, struct ds_request *q, const char *what, struct ds_refusal *r);

/* The answer. ds_talk_listen before the first piece; ds_talk_piece returns what an adapter's piece does. */
bool ds_talk_listen(struct ds_talk *t, ds_said_fn fn, void *ctx);
bool ds_talk_piece(struct ds_talk *t, const struct ds_piece *p);
void ds_talk_finish(struct ds_talk *t, const struct ds_ending *f);
int ds_talk_n_calls(const struct ds_talk *t);
/* Why the answer ended, for the client: the server may have gone on for a moment after it was complete. */
enum ds_finish ds_talk_reason(const struct ds_talk *t, const struct ds_ending *f);
bool ds_talk_is_cut(const struct ds_talk *t, const struct ds_ending *f);      /* by a limit or the end of the server */

/* --- small things -------------------------------------------------------------------------------------- */

/* A member whose value must be an object, an array or a string, or absent or null (NULL then). False: refused. */
bool ds_talk_member(const json_t *o, const char *name, json_type type, const json_t **v, struct ds_refusal *r);

#endif
