/* The family's chat frame (ChatML with a think block), written in C: no template of a file is run. */
#ifndef DS_TOKEN_CHAT_H
#define DS_TOKEN_CHAT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* What a file's tokenizer.chat_template does after "<|im_start|>assistant\n". */
enum ds_chat_template {
    DS_CHAT_NONE,              /* no template, or not ChatML */
    DS_CHAT_PLAIN,             /* nothing */
    DS_CHAT_CLOSED,            /* always "<think>\n\n</think>\n\n" */
    DS_CHAT_OPEN,              /* always "<think>\n" */
    DS_CHAT_SWITCH_OFF,        /* enable_thinking chooses; closed when it is not given */
    DS_CHAT_SWITCH_ON          /* enable_thinking chooses; open when it is not given */
};
enum ds_chat_template ds_chat_recognise(const char *text, size_t n);
/* Does the think block stay open for a caller who wants `thinking`? */
bool ds_chat_opens(enum ds_chat_template t, bool thinking);
bool ds_chat_default(enum ds_chat_template t);       /* thinking when nobody says */

struct ds_turn { const char *role, *content; };      /* role: system (first only), user, assistant, tool */

/* Receives the prompt in order. frame: the text is the frame's or the model's own, in which special
 * tokens count; otherwise it is somebody's words, in which they do not. False stops (no memory). */
typedef bool (*ds_chat_emit)(void *ctx, const char *s, size_t n, bool frame);

/* The turns and the start of an answer. Contents are trimmed of white space. An assistant's reasoning,
 * the text up to its last "</think>", is kept after the last user turn and dropped before it. Fails on
 * a role that is unknown or out of place and when no user turn is there. */
ds_status ds_chat_frame(enum ds_chat_template t, const struct ds_turn *turns, int n, bool thinking, ds_chat_emit emit, void *ctx,
                        struct ds_err *e);

#endif
