/* The chats of include/deltascope.h: roles and words, no tools. */
#include "chat/chat.h"

#include "base/buf.h"
#include "chat/find.h"

#include <stdlib.h>
#include <string.h>

#define MAX_CHAT ((size_t)INT32_MAX)

static ds_status read_role(enum ds_chat_role *role, const char *name, int i, struct ds_err *e)
{
    static const char *const names[] = { "system", "user", "assistant", "tool" };
    for (int k = 0; name && k < 4; k++) {
        if (strcmp(name, names[k])) continue;
        *role = (enum ds_chat_role)k;
        return DS_OK;
    }
    return ds_fail(e, DS_EARG, "message %d has the role '%.40s', expected system, user, assistant or tool", i, name ? name : "");
}

struct made { struct ds_chat_template t; struct ds_chat chat; struct ds_chat_message *m; };

static void drop(struct made *c)
{
    ds_chat_template_free(&c->t);
    free(c->m);
}

static ds_status make(struct made *c, const ds_engine *g, const struct ds_message *m, int n, bool thinking, struct ds_err *e)
{
    size_t len;
    const char *text = ds_engine_chat_template(g, &len);
    *c = (struct made){ .m = NULL };
    if (!ds_token_piece(g, 0)) return ds_fail(e, DS_EUNSUP, "%s: the model has no tokenizer", ds_engine_info(g)->path);
    ds_status st = ds_chat_template_read(&c->t, text, len, false, e);
    if (st) return st;
    c->m = calloc((size_t)n + 1, sizeof *c->m);
    if (!c->m) st = ds_fail(e, DS_ENOMEM, "no memory for a chat of %d messages", n);
    for (int i = 0; !st && i < n; i++) {
        c->m[i].content = ds_text(m[i].content);
        st = read_role(&c->m[i].role, m[i].role, i, e);
    }
    c->chat = (struct ds_chat){ .messages = c->m, .n = n, .thinking = thinking, .preserve_thinking = c->t.preserves };
    if (st) drop(c);
    return st;
}

static bool append(void *ctx, enum ds_chat_piece kind, const char *s, size_t n)
{
    struct ds_bytes *b = ctx;
    (void)kind;
    ds_bytes_add(b, s, n);
    return !b->failed;
}

ds_status ds_chat_render(const ds_engine *g, const struct ds_message *m, int n, bool thinking, char **text, struct ds_err *e)
{
    struct made c;
    struct ds_bytes b;
    struct ds_chat_tail tail;
    *text = NULL;
    ds_status st = make(&c, g, m, n, thinking, e);
    if (st) return st;
    ds_bytes_init(&b, MAX_CHAT);
    st = ds_chat_frame(&c.t, &c.chat, append, &b, &tail, e);
    if (st) ds_bytes_free(&b);
    else *text = b.p;
    drop(&c);
    return st;
}

ds_status ds_chat_tokenize(const ds_engine *g, const struct ds_message *m, int n, bool thinking, struct ds_ids *out,
                           struct ds_err *e)
{
    struct made c;
    struct ds_chat_prompt p;
    *out = (struct ds_ids){ NULL, 0 };
    ds_status st = make(&c, g, m, n, thinking, e);
    if (st) return st;
    if (!(st = ds_chat_encode(g, &c.t, &c.chat, &p, e))) {
        *out = p.ids;
        p.ids.p = NULL;
        ds_chat_prompt_free(&p);
    }
    drop(&c);
    return st;
}

bool ds_chat_thinks(const ds_engine *g, int asked)
{
    size_t len;
    struct ds_chat_template t;
    const char *text = ds_engine_chat_template(g, &len);
    if (ds_chat_template_read(&t, text, len, false, NULL)) return false;
    const bool thinks = asked < 0 ? ds_chat_thinks_alone(&t) : ds_chat_opens(&t, asked > 0);
    ds_chat_template_free(&t);
    return thinks;
}
