/* JSON values as the templates write them, and the way back: the text of a parameter as a JSON value. */
#ifndef DS_CHAT_VALUE_H
#define DS_CHAT_VALUE_H

#include "base/buf.h"
#include "chat/chat.h"

#include <jansson.h>

/* JSON as Python's json.dumps(ensure_ascii=False) writes it: ", " and ": ", keys in their order, shortest floats. */
void ds_value_dump(struct ds_bytes *b, const json_t *v);
/* What stands between the quotes of a string, or of a part of one. */
void ds_value_escape(struct ds_bytes *b, const char *s, size_t n);
/* The value of a parameter. Strings stand as they are; Qwen3.5 writes other scalars as Python does (True, None),
 * everything else is JSON. */
void ds_value_text(struct ds_bytes *b, const json_t *v, enum ds_chat_family family);

/* The text of a parameter by the schema it was declared with (NULL: none), which may refer into root ("#/...").
 * A text that fits none of the declared types stays a string: it is never lost. Without a declared type, what reads as JSON
 * other than a string is that. A new reference; NULL for want of memory. */
json_t *ds_value_read(struct ds_str text, const json_t *schema, const json_t *root);
/* Is every text of this parameter a string, and the string that text? */
bool ds_value_is_text(const json_t *schema, const json_t *root);
/* A JSON value whose declared type is another: a string goes through ds_value_read. A new reference. */
json_t *ds_value_fit(json_t *v, const json_t *schema, const json_t *root);

#endif
