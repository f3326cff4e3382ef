/* A chat that is put together from JSON, message by message, for ds_chat_encode; and the tools that it declares.
 *
 * Every text and value is copied. Failure (no memory) is sticky: the last call, ds_dialog_chat, says so. */
#ifndef DS_CHAT_DIALOG_H
#define DS_CHAT_DIALOG_H

#include "chat/chat.h"

#include <jansson.h>

struct ds_dialog;

struct ds_dialog *ds_dialog_new(const struct ds_chat_template *t);      /* t must outlive it; NULL: no memory */
void ds_dialog_free(struct ds_dialog *d);                               /* NULL allowed */

/* A message. Until the next one, the four calls below add to it. */
void ds_dialog_begin(struct ds_dialog *d, enum ds_chat_role role);
void ds_dialog_text(struct ds_dialog *d, const char *s, size_t n);      /* appended to its content */
void ds_dialog_reasoning(struct ds_dialog *d, const char *s, size_t n); /* appended to what was thought before the content */
/* A call that the assistant made. arguments: an object, or a string with one in JSON; a text that is none is kept as it is. */
void ds_dialog_call(struct ds_dialog *d, const char *name, const json_t *arguments);

/* A function that may be called. declared: the JSON that the model sees, {"type": "function", "function": {...}} in the
 * family; parameters: its JSON schema, may be NULL. */
void ds_dialog_tool(struct ds_dialog *d, const char *name, const json_t *declared, const json_t *parameters);

int ds_dialog_n_messages(const struct ds_dialog *d);
enum ds_chat_role ds_dialog_last_role(const struct ds_dialog *d);       /* DS_ROLE_SYSTEM before the first */
int ds_dialog_n_tools(const struct ds_dialog *d);
/* The schema of a tool's parameters (NULL without one); *known, when not NULL: is it declared? */
const json_t *ds_dialog_schema(const struct ds_dialog *d, const char *name, bool *known);
/* The declared name that `name` stands for: itself, or the only one that differs in case alone; NULL: none. */
const char *ds_dialog_tool_name(const struct ds_dialog *d, const char *name);

/* The chat, valid until d changes. thinking and preserve: 0 or 1, -1: as the template does when nobody says. */
ds_status ds_dialog_chat(struct ds_dialog *d, int thinking, int preserve, struct ds_chat *out, struct ds_err *e);

#endif
