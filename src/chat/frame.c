#include "chat/chat.h"

#include "base/utf8.h"
#include "chat/find.h"
#include "token/unicode.h"

struct frame {
    const struct ds_chat_template *t;
    const struct ds_chat *c;
    struct ds_chat_tail *tail;
    int query;                 /* index of the last user message that is not a tool's answer; -1: none, all turns are a tool loop's */
    ds_chat_emit emit;
    void *ctx;
    bool ok;
};

static void put(struct frame *f, enum ds_chat_piece kind, struct ds_str s)
{
    f->ok = f->ok && (!s.n || f->emit(f->ctx, kind, s.p, s.n));
}
static void put_frame(struct frame *f, const char *s)
{
    put(f, DS_PIECE_FRAME, ds_text(s));
}
static void put_bound(struct frame *f)
{
    f->ok = f->ok && f->emit(f->ctx, DS_PIECE_BOUND, "", 0);
}
static void put_end(struct frame *f)
{
    put_frame(f, "<|im_end|>\n");
    put_bound(f);
}

/* --- white space ---------------------------------------------------------------------------------- */

static struct ds_str trim_left(struct ds_str s)
{
    uint32_t cp;
    int len;
    while (s.n && (len = ds_utf8_scan((const unsigned char *)s.p, s.n, &cp)) > 0 && ds_char_class(cp) == DS_CHAR_SPACE)
        s = ds_after(s, (size_t)len);
    return s;
}

static struct ds_str trim(struct ds_str s)
{
    uint32_t cp;
    s = trim_left(s);
    while (s.n) {
        size_t at = s.n - 1;
        while (at && s.n - at < 4 && ((unsigned char)s.p[at] & 0xC0) == 0x80) at--;
        int len = ds_utf8_scan((const unsigned char *)s.p + at, s.n - at, &cp);
        if (len != (int)(s.n - at) || ds_char_class(cp) != DS_CHAR_SPACE) break;
        s.n = at;
    }
    return s;
}

static struct ds_str content_of(const struct frame *f, const struct ds_chat_message *m)
{
    return f->t->trims ? trim(m->content) : m->content;
}

/* --- turns ---------------------------------------------------------------------------------------- */

/* The messages of the system turn: those of the role at the head. */
static int system_messages(const struct ds_chat *c)
{
    int n = 0;
    while (n < c->n && c->messages[n].role == DS_ROLE_SYSTEM) n++;
    return n;
}

static void put_system(struct frame *f, int n)
{
    bool any = false;
    if (!n && !f->c->tools.n) return;
    put_frame(f, "<|im_start|>system\n");
    if (f->c->tools.n) {
        put_frame(f, f->t->tools_head);
        put(f, DS_PIECE_WORDS, f->c->tools);
        put(f, DS_PIECE_WORDS, ds_text("\n"));
        put_frame(f, "</tools>");
        put_frame(f, f->t->tools_tail);
        any = true;
    }
    for (int i = 0; i < n; i++) {
        struct ds_str text = content_of(f, &f->c->messages[i]);
        if (!text.n) continue;
        if (any) put_frame(f, "\n\n");
        put(f, DS_PIECE_WORDS, text);
        any = true;
    }
    put_end(f);
}

static void put_user(struct frame *f, const struct ds_chat_message *m)
{
    bool folded = m->role == DS_ROLE_SYSTEM;
    put_frame(f, "<|im_start|>user\n");
    if (folded) put_frame(f, "<system-reminder>\n");
    put(f, DS_PIECE_WORDS, content_of(f, m));
    if (folded) put_frame(f, "\n</system-reminder>");
    put_end(f);
}

/* Results in a row share one user turn. The line feed after the words belongs to them: "x.\n" can be one piece. */
static void put_tool(struct frame *f, int i)
{
    const struct ds_chat_message *m = f->c->messages;
    if (i == 0 || m[i - 1].role != DS_ROLE_TOOL) put_frame(f, "<|im_start|>user");
    put_frame(f, "\n<tool_response>\n");
    put(f, DS_PIECE_WORDS, trim(m[i].content));
    put(f, DS_PIECE_WORDS, ds_text("\n"));
    put_frame(f, "</tool_response>");
    if (i + 1 == f->c->n || m[i + 1].role != DS_ROLE_TOOL) put_end(f);
}

static void put_call(struct frame *f, const struct ds_chat_call *call)
{
    put_frame(f, "<tool_call>\n<function=");
    put(f, DS_PIECE_OWN, call->name);
    put_frame(f, ">\n");
    for (int i = 0; i < call->n_params; i++) {
        put_frame(f, "<parameter=");
        put(f, DS_PIECE_OWN, call->params[i].name);
        put_frame(f, ">\n");
        put(f, DS_PIECE_OWN, call->params[i].value);
        put_frame(f, "\n</parameter>\n");
    }
    put(f, DS_PIECE_OWN, call->raw);
    put_frame(f, call->raw.n ? "\n</function>\n</tool_call>" : "</function>\n</tool_call>");
}

/* --- the assistant -------------------------------------------------------------------------------- */

static bool is_family(const struct ds_chat_template *t)
{
    return t->family == DS_CHAT_QWEN35 || t->family == DS_CHAT_QWEN36;
}

struct split { struct ds_str reasoning, content; bool open; };      /* open: the think block has no end */

/* Reasoning is the text up to the last "</think>", from its "<think>" on, unless it is given apart. */
static struct split split_content(const struct ds_chat_message *m)
{
    static const char start[] = "<think>", end[] = "</think>";
    struct split s = { { m->content.p, 0 }, m->content, false };
    if (m->has_reasoning) {
        s.reasoning = m->reasoning;
        return s;
    }
    for (size_t at; (at = ds_find(s.content, end)) < s.content.n;) {
        s.reasoning.n = (size_t)(s.content.p + at - s.reasoning.p);
        s.content = ds_after(s.content, at + sizeof end - 1);
    }
    struct ds_str lead = trim_left(s.content);
    if (!s.reasoning.n && ds_begins(lead, start)) {
        s.reasoning = lead;
        s.content.n = 0;
        s.open = true;
    }
    size_t at = ds_find(s.reasoning, start);
    if (at < s.reasoning.n) s.reasoning = ds_after(s.reasoning, at + sizeof start - 1);
    return s;
}

static void put_assistant(struct frame *f, int i)
{
    const struct ds_chat_message *m = &f->c->messages[i];
    struct ds_str content = m->content;
    put_frame(f, "<|im_start|>assistant\n");
    if (is_family(f->t)) {
        struct split s = split_content(m);
        content = s.open ? m->content : s.content;
        if (i > f->query || f->c->preserve_thinking) {
            put_frame(f, "<think>\n");
            if (!s.open) put(f, DS_PIECE_OWN, trim(s.reasoning));
            put_frame(f, "\n</think>\n\n");
        }
    }
    if (f->t->trims) content = trim(content);
    put(f, DS_PIECE_OWN, content);
    for (int k = 0; k < m->n_calls; k++) {
        if (k || content.n) put_frame(f, k ? "\n" : "\n\n");
        put_call(f, &m->calls[k]);
    }
    put_end(f);
}

static void put_think_prefix(struct frame *f)
{
    f->tail->in_think = ds_chat_opens(f->t, f->c->thinking);
    if (f->tail->in_think) put_frame(f, "<think>\n");
    else if (f->t->think != DS_THINK_NOTHING) put_frame(f, "<think>\n\n</think>\n\n");
}

/* The last message is the beginning of the answer. White space at its end stays: the next word may need it. */
static void put_prefix(struct frame *f, const struct ds_chat_message *m)
{
    struct split s = split_content(m);
    struct ds_str content = f->t->trims ? trim_left(s.content) : s.content;
    put_frame(f, "<|im_start|>assistant\n");
    if (!s.reasoning.n && !s.open && !content.n) {
        put_think_prefix(f);
        return;
    }
    f->tail->in_think = s.open || !content.n;
    if (s.reasoning.n || s.open) {
        put_frame(f, "<think>\n");
        put(f, DS_PIECE_OWN, f->tail->in_think ? trim_left(s.reasoning) : trim(s.reasoning));
        if (!f->tail->in_think) put_frame(f, "\n</think>\n\n");
    } else if (f->t->think != DS_THINK_NOTHING) {
        put_frame(f, "<think>\n\n</think>\n\n");
    }
    put(f, DS_PIECE_OWN, content);
    f->tail->prefix = content;
}

/* --- the whole ------------------------------------------------------------------------------------ */

static int last_query(const struct ds_chat *c)
{
    static const char end[] = "</tool_response>";
    for (int i = c->n - 1; i >= 0; i--) {
        if (c->messages[i].role != DS_ROLE_USER) continue;
        struct ds_str s = trim(c->messages[i].content);
        bool answer = ds_begins(s, "<tool_response>") && s.n >= 2 * sizeof end - 3 &&
                      ds_begins(ds_after(s, s.n - (sizeof end - 1)), end);
        if (!answer) return i;
    }
    return -1;
}

static ds_status check(const struct frame *f, struct ds_err *e)
{
    const struct ds_chat *c = f->c;
    if (f->t->family == DS_CHAT_NONE) return ds_fail(e, DS_EUNSUP, "the model has no chat template of the ChatML kind");
    bool tools = c->tools.n, asked = false;
    for (int i = 0; i < c->n; i++) {
        asked |= c->messages[i].role == DS_ROLE_USER || c->messages[i].role == DS_ROLE_TOOL;
        tools |= !is_family(f->t) && (c->messages[i].role == DS_ROLE_TOOL || c->messages[i].n_calls);
    }
    if (!asked) return ds_fail(e, DS_EARG, "a chat needs at least one message of the user, or a tool's result");
    if (tools && !f->t->tools_head)
        return ds_fail(e, DS_EUNSUP,
                       "the model's chat template has no known text for tools (--tools-template generic uses one of ours)");
    if (c->messages[c->n - 1].role == DS_ROLE_ASSISTANT && c->messages[c->n - 1].n_calls)
        return ds_fail(e, DS_EARG, "the last message has tool calls: their results must follow");
    return DS_OK;
}

ds_status ds_chat_frame(const struct ds_chat_template *t, const struct ds_chat *c, ds_chat_emit emit, void *ctx,
                        struct ds_chat_tail *tail, struct ds_err *e)
{
    struct frame f = { t, c, tail, last_query(c), emit, ctx, true };
    *tail = (struct ds_chat_tail){ .prefix = { "", 0 } };
    ds_status st = check(&f, e);
    if (st) return st;
    int first = system_messages(c), last = c->messages[c->n - 1].role == DS_ROLE_ASSISTANT ? c->n - 1 : c->n;
    put_system(&f, first);
    for (int i = first; i < last; i++) {
        enum ds_chat_role role = c->messages[i].role;
        if (role == DS_ROLE_ASSISTANT) put_assistant(&f, i);
        else if (role == DS_ROLE_TOOL) put_tool(&f, i);
        else put_user(&f, &c->messages[i]);
    }
    if (last < c->n) {
        put_prefix(&f, &c->messages[last]);
    } else {
        put_frame(&f, "<|im_start|>assistant\n");
        put_think_prefix(&f);
    }
    return f.ok ? DS_OK : ds_fail(e, DS_ENOMEM, "no memory for the chat");
}
