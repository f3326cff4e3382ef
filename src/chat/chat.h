/* Chats as the family's templates write them, rendered in C: the text of a template is looked at, never run.
 *
 * A *template* is what was recognised in a file's tokenizer.chat_template. A *prompt* is the ids of a chat with the places
 * where its messages end. docs/chat.md has the rules in words. No JSON here: chat/dialog.h builds messages from it. */
#ifndef DS_CHAT_CHAT_H
#define DS_CHAT_CHAT_H

#include "base/err.h"
#include "deltascope.h"
#include "gguf/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- template ------------------------------------------------------------------------------------- */

enum ds_chat_family {
    DS_CHAT_NONE,              /* no template, or not ChatML */
    DS_CHAT_CHATML,            /* roles and contents in the ChatML frame, nothing else */
    DS_CHAT_QWEN35,
    DS_CHAT_QWEN36             /* as 3.5, with preserve_thinking and another rendering of values */
};
extern const char *const ds_chat_family_names[];        /* "none", "chatml", "qwen3.5", "qwen3.6" */

/* What stands after "<|im_start|>assistant\n" when an answer is due. */
enum ds_chat_think {
    DS_THINK_NOTHING,
    DS_THINK_CLOSED,           /* always "<think>\n\n</think>\n\n" */
    DS_THINK_OPEN,             /* always "<think>\n" */
    DS_THINK_SWITCH_OFF,       /* enable_thinking chooses; closed when it is not given */
    DS_THINK_SWITCH_ON         /* enable_thinking chooses; open when it is not given */
};

struct ds_chat_template {
    enum ds_chat_family family;
    enum ds_chat_think think;
    bool preserves;            /* preserve_thinking when nobody says */
    bool trims;                /* contents lose white space on both sides */
    /* What stands before and after the tools, one JSON object a line: from "# Tools" to "<tools>", and from the end of
     * "</tools>" on. From malloc; NULL: not known, and chats with tools are refused. */
    char *tools_head, *tools_tail;
};
/* generic_tools: a text of ours where the file's own is not known. Fails for want of memory alone. */
ds_status ds_chat_template_read(struct ds_chat_template *t, const char *text, size_t n, bool generic_tools, struct ds_err *e);
void ds_chat_template_free(struct ds_chat_template *t);     /* accepts a zeroed struct */
/* Does the think block stay open for a caller who wants `thinking`? */
bool ds_chat_opens(const struct ds_chat_template *t, bool thinking);
bool ds_chat_thinks_alone(const struct ds_chat_template *t);    /* thinking when nobody says */

/* --- messages ------------------------------------------------------------------------------------- */

/* A developer's message is a system message. Those at the head are one system turn, joined by blank lines. One that
 * comes later is rendered where it stands, as a user turn around "<system-reminder>\n...\n</system-reminder>", which
 * does not count as a user's message: so that nothing before it changes. */
enum ds_chat_role { DS_ROLE_SYSTEM, DS_ROLE_USER, DS_ROLE_ASSISTANT, DS_ROLE_TOOL };

struct ds_chat_param { struct ds_str name, value; };        /* value: as the template writes it, ds_value_text */
struct ds_chat_call {
    struct ds_str name;
    const struct ds_chat_param *params;     /* [n_params] */
    int n_params;
    struct ds_str raw;                      /* arguments that are no JSON object, kept as they are */
};
struct ds_chat_message {
    enum ds_chat_role role;
    struct ds_str content;
    struct ds_str reasoning;                /* assistant; given apart from content */
    bool has_reasoning;                     /* false: it is cut out of content */
    const struct ds_chat_call *calls;       /* assistant; [n_calls] */
    int n_calls;
};
struct ds_chat {
    const struct ds_chat_message *messages; /* [n] */
    int n;
    struct ds_str tools;                    /* "\n" and a tool's JSON, for each; empty: none */
    bool thinking, preserve_thinking;
};

/* --- rendering ------------------------------------------------------------------------------------ */

enum ds_chat_piece {
    DS_PIECE_FRAME,            /* the template's text: its markers are special tokens where the vocabulary has them */
    DS_PIECE_WORDS,            /* somebody's words: no special tokens in them, whatever they spell */
    DS_PIECE_OWN,              /* the model's words: of the special tokens, those around thinking and calls count */
    DS_PIECE_BOUND             /* no text: a message ends here, or the system turn, or an answer begins */
};
/* Receives the prompt in order. False stops (no memory). */
typedef bool (*ds_chat_emit)(void *ctx, enum ds_chat_piece kind, const char *s, size_t n);

/* How an answer goes on from the prompt: for whoever reads it (chat/answer.h). */
struct ds_chat_tail {
    bool in_think;             /* a think block is open */
    struct ds_str prefix;      /* the text of the last message, when that is an assistant's to go on from */
    bool unseen;               /* the prefix is not the client's: it is told with the answer. False as it comes from ds_chat_frame */
};
/* Fails with DS_EARG for what the template cannot say, DS_EUNSUP for tools without a known text; the sentence names the
 * message by its index. prefix points into the messages. */
ds_status ds_chat_frame(const struct ds_chat_template *t, const struct ds_chat *c, ds_chat_emit emit, void *ctx,
                        struct ds_chat_tail *tail, struct ds_err *e);

struct ds_chat_prompt {
    struct ds_ids ids;         /* from malloc, like bounds; free with ds_chat_prompt_free */
    int64_t *bounds;           /* [n_bounds] token counts, ascending: for ds_store_begin */
    int n_bounds;
    struct ds_chat_tail tail;
};
/* Text between special tokens is encoded as one, so the ids are those of the whole text in which only the template's markers
 * are special, and those of a chat's finished turns do not change when more turns follow. */
ds_status ds_chat_encode(const ds_engine *g, const struct ds_chat_template *t, const struct ds_chat *c, struct ds_chat_prompt *out,
                         struct ds_err *e);
void ds_chat_prompt_free(struct ds_chat_prompt *p);

#endif
