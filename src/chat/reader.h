/* Reads what the model writes: content, reasoning and tool calls, told as events while the text comes in.
 *
 * However the text is split, the events are the same, apart from where the texts of one kind are cut. A call is told when it
 * is whole: a call that cannot be read is told as the content that it is, and one that the token limit cut is never carried
 * out. A live reader tells a call from its first parameter on, and texts as they come: then one that is cut has no end, and its
 * arguments are no JSON. docs/chat.md lists what is tolerated. Linear time. */
#ifndef DS_CHAT_READER_H
#define DS_CHAT_READER_H

#include "chat/dialog.h"

enum ds_said {
    DS_SAID_CONTENT, DS_SAID_REASONING,     /* text */
    DS_SAID_CALL,                           /* a call begins: text is its name */
    DS_SAID_ARGUMENTS,                      /* its arguments, or a part of them: the text of a JSON object */
    DS_SAID_CALL_END
};
typedef void (*ds_said_fn)(void *ctx, enum ds_said kind, const char *text, size_t n);

struct ds_reader;

/* d: the declared tools; without any, calls are ordinary text. It must outlive the reader. tail: how the prompt ends; its prefix
 * is read first, and unless it is unseen only calls that it holds are told; it must stay. live: calls are told in parts. NULL: no memory. */
struct ds_reader *ds_reader_new(const struct ds_dialog *d, const struct ds_chat_tail *tail, bool live, ds_said_fn fn, void *ctx);
void ds_reader_free(struct ds_reader *r);                   /* NULL allowed */
/* Text in whole UTF-8 characters, in pieces of any length. */
void ds_reader_feed(struct ds_reader *r, const char *text, size_t n);
/* The answer is over. cut: by a limit, not by the model. */
void ds_reader_finish(struct ds_reader *r, bool cut);
int ds_reader_n_calls(const struct ds_reader *r);           /* told so far */
bool ds_reader_failed(const struct ds_reader *r);           /* no memory: something was not told */

#endif
