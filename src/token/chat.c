#include "token/chat.h"

#include "base/utf8.h"
#include "gguf/gguf.h"
#include "token/unicode.h"

#include <string.h>

/* --- template ------------------------------------------------------------------------------------- */

static const char *find(const char *text, size_t n, const char *what)
{
    size_t len = strlen(what);
    for (size_t i = 0; i + len <= n; i++)
        if (text[i] == what[0] && !memcmp(text + i, what, len)) return text + i;
    return NULL;
}

static bool has(const char *text, size_t n, const char *what)
{
    return find(text, n, what) != NULL;
}

/* A literal in a template writes line feeds as \n or as themselves. */
enum ds_chat_template ds_chat_recognise(const char *text, size_t n)
{
    if (!has(text, n, "<|im_start|>")) return DS_CHAT_NONE;
    if (has(text, n, "enable_thinking")) return has(text, n, "enable_thinking is true") ? DS_CHAT_SWITCH_OFF : DS_CHAT_SWITCH_ON;
    if (has(text, n, "<think>\\n\\n</think>") || has(text, n, "<think>\n\n</think>")) return DS_CHAT_CLOSED;
    if (has(text, n, "assistant\\n<think>") || has(text, n, "assistant\n<think>")) return DS_CHAT_OPEN;
    return DS_CHAT_PLAIN;
}

bool ds_chat_opens(enum ds_chat_template t, bool thinking)
{
    return t == DS_CHAT_OPEN || (thinking && (t == DS_CHAT_SWITCH_OFF || t == DS_CHAT_SWITCH_ON));
}

bool ds_chat_default(enum ds_chat_template t)
{
    return ds_chat_opens(t, t == DS_CHAT_SWITCH_ON);
}

/* --- frame ---------------------------------------------------------------------------------------- */

static struct ds_str trim(struct ds_str s)
{
    uint32_t cp;
    int len;
    while (s.n && (len = ds_utf8_scan((const unsigned char *)s.p, s.n, &cp)) > 0 && ds_char_class(cp) == DS_CHAR_SPACE) {
        s.p += len;
        s.n -= (size_t)len;
    }
    while (s.n) {
        size_t at = s.n - 1;
        while (at && s.n - at < 4 && ((unsigned char)s.p[at] & 0xC0) == 0x80) at--;
        len = ds_utf8_scan((const unsigned char *)s.p + at, s.n - at, &cp);
        if (len != (int)(s.n - at) || ds_char_class(cp) != DS_CHAR_SPACE) break;
        s.n = at;
    }
    return s;
}

static struct ds_str text_of(const char *p)
{
    return (struct ds_str){ p ? p : "", p ? strlen(p) : 0 };
}

struct frame {
    ds_chat_emit emit;
    void *ctx;
    bool ok;
};

static void put(struct frame *f, const char *s)
{
    f->ok = f->ok && f->emit(f->ctx, s, strlen(s), true);
}
static void put_words(struct frame *f, struct ds_str s, bool frame)
{
    f->ok = f->ok && (!s.n || f->emit(f->ctx, s.p, s.n, frame));
}

static void put_assistant(struct frame *f, enum ds_chat_template t, struct ds_str content, bool keep_reasoning)
{
    static const char end[] = "</think>", start[] = "<think>";
    put(f, "<|im_start|>assistant\n");
    if (t >= DS_CHAT_OPEN) {
        struct ds_str reasoning = { content.p, 0 };
        for (const char *at; (at = find(content.p, content.n, end));) {
            reasoning.n = (size_t)(at - reasoning.p);
            content.n -= (size_t)(at + sizeof end - 1 - content.p);
            content.p = at + sizeof end - 1;
        }
        content = trim(content);
        const char *open = find(reasoning.p, reasoning.n, start);
        if (open) {
            reasoning.n -= (size_t)(open + sizeof start - 1 - reasoning.p);
            reasoning.p = open + sizeof start - 1;
        }
        if (keep_reasoning) {
            put(f, "<think>\n");
            put_words(f, trim(reasoning), true);
            put(f, "\n</think>\n\n");
        }
    }
    put_words(f, content, true);
    put(f, "<|im_end|>\n");
}

/* Results in a row share one user turn. The line feed after the words belongs to them: "x.\n" can be one piece. */
static void put_tool(struct frame *f, const struct ds_turn *turns, int n, int i)
{
    if (i == 0 || strcmp(turns[i - 1].role, "tool")) put(f, "<|im_start|>user");
    put(f, "\n<tool_response>\n");
    put_words(f, trim(text_of(turns[i].content)), false);
    put_words(f, text_of("\n"), false);
    put(f, "</tool_response>");
    if (i + 1 == n || strcmp(turns[i + 1].role, "tool")) put(f, "<|im_end|>\n");
}

/* Index of the last user turn that is not wholly a tool's answer; -1 when there is none. */
static int last_query(const struct ds_turn *turns, int n)
{
    static const char start[] = "<tool_response>", end[] = "</tool_response>";
    for (int i = n - 1; i >= 0; i--) {
        if (strcmp(turns[i].role, "user")) continue;
        struct ds_str s = trim(text_of(turns[i].content));
        bool tool = s.n >= sizeof start + sizeof end - 2 && !memcmp(s.p, start, sizeof start - 1) &&
                    !memcmp(s.p + s.n - (sizeof end - 1), end, sizeof end - 1);
        if (!tool) return i;
    }
    return -1;
}

static ds_status check_roles(const struct ds_turn *turns, int n, struct ds_err *e)
{
    for (int i = 0; i < n; i++) {
        const char *r = turns[i].role;
        bool known = r && (!strcmp(r, "system") || !strcmp(r, "user") || !strcmp(r, "assistant") || !strcmp(r, "tool"));
        if (!known)
            return ds_fail(e, DS_EARG, "message %d has the role '%.40s', expected system, user, assistant or tool", i,
                           r ? r : "");
        if (i && !strcmp(r, "system"))
            return ds_fail(e, DS_EARG, "message %d is a system message, which may only be the first", i);
    }
    return DS_OK;
}

ds_status ds_chat_frame(enum ds_chat_template t, const struct ds_turn *turns, int n, bool thinking, ds_chat_emit emit, void *ctx,
                        struct ds_err *e)
{
    struct frame f = { emit, ctx, true };
    if (t == DS_CHAT_NONE) return ds_fail(e, DS_EUNSUP, "the model has no chat template of the ChatML kind");
    ds_status st = check_roles(turns, n, e);
    if (st) return st;
    int query = last_query(turns, n);
    if (query < 0) return ds_fail(e, DS_EARG, "a chat needs at least one user message");

    for (int i = 0; i < n; i++) {
        struct ds_str content = trim(text_of(turns[i].content));
        if (!strcmp(turns[i].role, "assistant")) {
            put_assistant(&f, t, content, i > query);
        } else if (!strcmp(turns[i].role, "tool")) {
            put_tool(&f, turns, n, i);
        } else {
            put(&f, turns[i].role[0] == 's' ? "<|im_start|>system\n" : "<|im_start|>user\n");
            put_words(&f, content, false);
            put(&f, "<|im_end|>\n");
        }
    }
    put(&f, "<|im_start|>assistant\n");
    if (ds_chat_opens(t, thinking)) put(&f, "<think>\n");
    else if (t != DS_CHAT_PLAIN) put(&f, "<think>\n\n</think>\n\n");
    return f.ok ? DS_OK : ds_fail(e, DS_ENOMEM, "no memory for the chat");
}
