#include "chat/chat.h"

#include "base/buf.h"
#include "chat/find.h"

#include <stdlib.h>
#include <string.h>

const char *const ds_chat_family_names[] = { "none", "chatml", "qwen3.5", "qwen3.6", NULL };

static bool has(struct ds_str s, const char *what)
{
    return ds_find(s, what) < s.n;
}

/* A literal in a template writes line feeds as \n or as themselves. */
static enum ds_chat_think recognise_think(struct ds_str s)
{
    if (has(s, "enable_thinking")) return has(s, "enable_thinking is true") ? DS_THINK_SWITCH_OFF : DS_THINK_SWITCH_ON;
    if (has(s, "<think>\\n\\n</think>") || has(s, "<think>\n\n</think>")) return DS_THINK_CLOSED;
    if (has(s, "assistant\\n<think>") || has(s, "assistant\n<think>")) return DS_THINK_OPEN;
    return DS_THINK_NOTHING;
}

/* The family writes calls as <function=...> and results as <tool_response>, or at least has its switch. */
static enum ds_chat_family recognise_family(struct ds_str s)
{
    if (!has(s, "<|im_start|>")) return DS_CHAT_NONE;
    if (has(s, "preserve_thinking")) return DS_CHAT_QWEN36;
    if (has(s, "<function=") || has(s, "enable_thinking")) return DS_CHAT_QWEN35;
    return DS_CHAT_CHATML;
}

/* --- the text around tools ------------------------------------------------------------------------ */

/* The string literal of s in which position at lies and which opens with a quote directly before `at`. */
static char *literal(struct ds_str s, size_t at)
{
    struct ds_bytes b;
    if (!at || (s.p[at - 1] != '\'' && s.p[at - 1] != '"')) return NULL;
    char quote = s.p[at - 1];
    ds_bytes_init(&b, s.n + 1);
    for (; at < s.n && s.p[at] != quote; at++) {
        char c = s.p[at];
        if (c == '\\' && at + 1 < s.n) {
            c = s.p[++at];
            c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
        }
        ds_bytes_add(&b, &c, 1);
    }
    if (at == s.n || b.failed || !b.n) {
        ds_bytes_free(&b);
        return NULL;
    }
    return b.p;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !memcmp(s + n - m, end, m);
}

static char *literal_that(struct ds_str s, const char *begins, const char *ends)
{
    for (size_t at = 0; at < s.n;) {
        struct ds_str rest = { s.p + at, s.n - at };
        size_t found = ds_find(rest, begins);
        if (found == rest.n) return NULL;
        char *text = literal(s, at + found);
        if (text && ends_with(text, ends)) return text;
        free(text);
        at += found + 1;
    }
    return NULL;
}

static const char generic_head[] =
    "# Tools\n\n"
    "These functions can be called, each described by a JSON object with a schema of its parameters:\n\n"
    "<tools>";
static const char generic_tail[] =
    "\n\n"
    "To call one, write a block of this form, with each parameter between its own tags and nothing after the last block:\n\n"
    "<tool_call>\n<function=name_of_the_function>\n<parameter=name_of_a_parameter>\nvalue, on as many lines as it needs\n</parameter>\n"
    "</function>\n</tool_call>\n\n"
    "Give every required parameter. Several blocks may follow one another. Without a block, the answer goes to the user.";

static char *copy(const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = malloc(n);
    return p ? memcpy(p, s, n) : NULL;
}

static void read_tools(struct ds_chat_template *t, struct ds_str s)
{
    t->tools_head = literal_that(s, "# Tools", "<tools>");
    t->tools_tail = literal_that(s, "\\n\\nIf you choose", "</IMPORTANT>");
    if (!t->tools_tail) t->tools_tail = literal_that(s, "\n\nIf you choose", "</IMPORTANT>");
    if (t->tools_head && t->tools_tail) return;
    free(t->tools_head);
    free(t->tools_tail);
    t->tools_head = t->tools_tail = NULL;
}

ds_status ds_chat_template_read(struct ds_chat_template *t, const char *text, size_t n, bool generic_tools, struct ds_err *e)
{
    struct ds_str s = { text, n };
    *t = (struct ds_chat_template){ .family = recognise_family(s), .think = recognise_think(s) };
    if (t->family == DS_CHAT_NONE) return DS_OK;
    t->trims = t->family != DS_CHAT_CHATML || has(s, "trim");
    t->preserves = has(s, "preserve_thinking is false") || has(s, "preserve_thinking is not false") ||
                   has(s, "preserve_thinking is not defined") || has(s, "preserve_thinking is undefined");
    read_tools(t, s);
    if (t->tools_head || !generic_tools) return DS_OK;
    t->tools_head = copy(generic_head);
    t->tools_tail = copy(generic_tail);
    if (t->tools_head && t->tools_tail) return DS_OK;
    ds_chat_template_free(t);
    return ds_fail(e, DS_ENOMEM, "no memory for a chat template");
}

void ds_chat_template_free(struct ds_chat_template *t)
{
    free(t->tools_head);
    free(t->tools_tail);
    t->tools_head = t->tools_tail = NULL;
}

bool ds_chat_opens(const struct ds_chat_template *t, bool thinking)
{
    return t->think == DS_THINK_OPEN || (thinking && (t->think == DS_THINK_SWITCH_OFF || t->think == DS_THINK_SWITCH_ON));
}

bool ds_chat_thinks_alone(const struct ds_chat_template *t)
{
    return ds_chat_opens(t, t->think == DS_THINK_SWITCH_ON);
}
