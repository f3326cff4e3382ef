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
    bool forced;                    /* the prompt's end is the beginning of the answer, which nobody has seen yet */
    bool one_call;                  /* the answer ends with its first call */
    bool enough;                    /* and it was told: what still comes is not wanted */
    ds_said_fn fn; void *ctx;
    struct ds_reader *ahead;        /* one_call: the engine's own, for the token at which that call is whole */
    bool complete;                  /* it has come */
};

/* Reads the template; model, thinking switches in "chat_template_kwargs" and sampling, stops aside, are read by
 * the calls below. False: refused. */
bool ds_talk_open(struct ds_talk *t, const struct ds_call *c, const char *id_prefix, struct ds_refusal *r);
void ds_talk_close(struct ds_talk *t);                       /* accepts a zeroed struct */

/* model, delivery, sampling, chat_template_kwargs. What nobody asks for is what the family's vendor recommends, with the
 * think block open or not; for other templates greedy. To be called when t->thinking is known. */
bool ds_talk_common(struct ds_talk *t, const struct ds_call *c, struct ds_request *q, struct ds_refusal *r);

/* m.role, which must be one of the words: system and developer are DS_ROLE_SYSTEM, tool and function DS_ROLE_TOOL. */
bool ds_talk_role(const json_t *m, const char *where, const char *words, enum ds_chat_role *role, struct ds_refusal *r);
/* A message's content, appended to the message begun last: absent, null, a string, or an array of parts with text; other parts
 * are refused. name: "messages[3].content", a field of m. gap: between parts. */
bool ds_talk_content(struct ds_talk *t, const json_t *m, const char *name, const char *gap, struct ds_refusal *r);
/* One part of type `type` ("text" where it has none), by its words alone. */
bool ds_talk_part(struct ds_talk *t, const json_t *part, const char *where, struct ds_refusal *r);
/* Shows v to the model as its JSON, appended to the message begun last. */
void ds_talk_json(struct ds_talk *t, const json_t *v);
/* A call that the assistant made: its name, and under `arguments` an object, or a string with one. */
bool ds_talk_call(struct ds_talk *t, const json_t *call, const char *where, const char *arguments, struct ds_refusal *r);
/* One function, with its name and description: kept under its name, shown to the model in the family's form. parameters: the
 * field that holds its schema. where: "tools[2].function", the object f. */
bool ds_talk_tool(struct ds_talk *t, const json_t *f, const char *where, const char *parameters, struct ds_refusal *r);
/* Is a tool of this type none that the model could call? Then it is left out, and the log says so. */
bool ds_talk_leaves_out(const struct ds_call *c, const char *type, const char *known);
/* Makes the answer begin with a call: of the named function, or of any (NULL). Thinking is then off. */
bool ds_talk_force_call(struct ds_talk *t, const char *name, const char *where, struct ds_refusal *r);
/* The prompt's ids and boundaries into q. what: the field that is named when it does not fit. */
bool ds_talk_encode(struct ds_talk *t, const struct ds_call *c, struct ds_request *q, const char *what, struct ds_refusal *r);

/* The answer. ds_talk_listen before the first piece. ds_talk_complete is what an adapter's `complete` does: it shares nothing with
 * the others that either changes. */
bool ds_talk_listen(struct ds_talk *t, ds_said_fn fn, void *ctx);
void ds_talk_piece(struct ds_talk *t, const struct ds_piece *p);
bool ds_talk_complete(struct ds_talk *t, const char *text, size_t n);
void ds_talk_finish(struct ds_talk *t, const struct ds_ending *f);
int ds_talk_n_calls(const struct ds_talk *t);
/* Why the answer ended, for the client: the server may have gone on for a moment after it was complete. */
enum ds_finish ds_talk_reason(const struct ds_talk *t, const struct ds_ending *f);
bool ds_talk_is_cut(const struct ds_talk *t, const struct ds_ending *f);      /* by a limit or the end of the server */

/* --- small things -------------------------------------------------------------------------------------- */

/* reasoning_effort, under the name that the API has for it: sets t->thinking. */
bool ds_talk_effort(struct ds_talk *t, const json_t *o, const char *name, struct ds_refusal *r);

#endif
