#include "chat/dialog.h"

#include "base/buf.h"
#include "chat/find.h"
#include "chat/value.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT ((size_t)INT32_MAX)

struct call {
    struct ds_bytes name, raw;
    struct ds_bytes *texts;    /* [2 * n_params] names and values in turn */
    struct ds_chat_param *params;
    int n_params;
};
struct message {
    enum ds_chat_role role;
    struct ds_bytes content, reasoning;
    bool has_reasoning;
    struct call *calls;
    struct ds_chat_call *views;
    int n_calls;
};
struct tool { char *name; json_t *parameters; };

struct ds_dialog {
    const struct ds_chat_template *t;
    struct message *messages;
    struct tool *tools;
    int n_messages, n_tools;
    struct ds_bytes lines;     /* of the tools */
    struct ds_chat_message *views;
    bool failed;
};

/* Room for one item more in an array of n; grows by doubling at powers of two. */
static void *more(struct ds_dialog *d, void *p, int n, size_t size)
{
    if (n && n & (n - 1)) return p;
    void *q = realloc(p, (n ? 2 * (size_t)n : 1) * size);
    if (!q) d->failed = true;
    return q;
}

struct ds_dialog *ds_dialog_new(const struct ds_chat_template *t)
{
    struct ds_dialog *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    d->t = t;
    ds_bytes_init(&d->lines, MAX_TEXT);
    return d;
}

static void free_call(struct call *c)
{
    for (int i = 0; i < 2 * c->n_params; i++) ds_bytes_free(&c->texts[i]);
    free(c->texts);
    free(c->params);
    ds_bytes_free(&c->name);
    ds_bytes_free(&c->raw);
}

void ds_dialog_free(struct ds_dialog *d)
{
    if (!d) return;
    for (int i = 0; i < d->n_messages; i++) {
        struct message *m = &d->messages[i];
        for (int k = 0; k < m->n_calls; k++) free_call(&m->calls[k]);
        free(m->calls);
        free(m->views);
        ds_bytes_free(&m->content);
        ds_bytes_free(&m->reasoning);
    }
    for (int i = 0; i < d->n_tools; i++) {
        free(d->tools[i].name);
        json_decref(d->tools[i].parameters);
    }
    free(d->messages);
    free(d->tools);
    free(d->views);
    ds_bytes_free(&d->lines);
    free(d);
}

/* --- messages ------------------------------------------------------------------------------------- */

void ds_dialog_begin(struct ds_dialog *d, enum ds_chat_role role)
{
    struct message *p = d->failed ? NULL : more(d, d->messages, d->n_messages, sizeof *p);
    if (!p) return;
    d->messages = p;
    p += d->n_messages++;
    *p = (struct message){ .role = role };
    ds_bytes_init(&p->content, MAX_TEXT);
    ds_bytes_init(&p->reasoning, MAX_TEXT);
}

static struct message *last(struct ds_dialog *d)
{
    return d->failed || !d->n_messages ? NULL : &d->messages[d->n_messages - 1];
}

void ds_dialog_text(struct ds_dialog *d, const char *s, size_t n)
{
    struct message *m = last(d);
    if (!m) return;
    ds_bytes_add(&m->content, s, n);
    d->failed |= m->content.failed;
}

void ds_dialog_reasoning(struct ds_dialog *d, const char *s, size_t n)
{
    struct message *m = last(d);
    if (!m) return;
    m->has_reasoning = true;
    ds_bytes_add(&m->reasoning, s, n);
    d->failed |= m->reasoning.failed;
}

static bool add_params(struct ds_dialog *d, struct call *c, json_t *o)
{
    size_t n = json_object_size(o);
    c->texts = calloc(2 * n + 1, sizeof *c->texts);
    c->params = calloc(n + 1, sizeof *c->params);
    if (!c->texts || !c->params) return false;
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        struct ds_bytes *t = &c->texts[2 * c->n_params++];
        ds_bytes_init(&t[0], MAX_TEXT);
        ds_bytes_init(&t[1], MAX_TEXT);
        ds_bytes_puts(&t[0], json_object_iter_key(it));
        ds_value_text(&t[1], json_object_iter_value(it), d->t->family);
        if (t[0].failed || t[1].failed) return false;
    }
    return true;
}

void ds_dialog_call(struct ds_dialog *d, const char *name, const json_t *arguments)
{
    struct message *m = last(d);
    struct call *c = m ? more(d, m->calls, m->n_calls, sizeof *c) : NULL;
    if (!c) return;
    m->calls = c;
    c += m->n_calls++;
    *c = (struct call){ .n_params = 0 };
    ds_bytes_init(&c->name, MAX_TEXT);
    ds_bytes_init(&c->raw, MAX_TEXT);
    ds_bytes_puts(&c->name, name);
    json_t *o = json_is_string(arguments)
                    ? json_loadb(json_string_value(arguments), json_string_length(arguments), JSON_ALLOW_NUL, NULL)
                    : json_incref((json_t *)arguments);
    if (json_is_object(o)) d->failed |= !add_params(d, c, o);
    else if (json_is_string(arguments)) ds_bytes_add(&c->raw, json_string_value(arguments), json_string_length(arguments));
    else if (arguments && !json_is_null(arguments)) ds_value_dump(&c->raw, arguments);
    d->failed |= c->name.failed || c->raw.failed;
    json_decref(o);
}

/* --- tools ---------------------------------------------------------------------------------------- */

void ds_dialog_tool(struct ds_dialog *d, const char *name, const json_t *declared, const json_t *parameters)
{
    struct tool *p = d->failed ? NULL : more(d, d->tools, d->n_tools, sizeof *p);
    if (!p) return;
    d->tools = p;
    p += d->n_tools;
    size_t n = strlen(name) + 1;
    p->name = malloc(n);
    if (!p->name) {
        d->failed = true;
        return;
    }
    memcpy(p->name, name, n);
    p->parameters = json_incref((json_t *)parameters);
    d->n_tools++;
    ds_bytes_puts(&d->lines, "\n");
    ds_value_dump(&d->lines, declared);
    d->failed |= d->lines.failed;
}

int ds_dialog_n_messages(const struct ds_dialog *d) { return d->n_messages; }
int ds_dialog_n_tools(const struct ds_dialog *d) { return d->n_tools; }

enum ds_chat_role ds_dialog_last_role(const struct ds_dialog *d)
{
    return d->n_messages ? d->messages[d->n_messages - 1].role : DS_ROLE_SYSTEM;
}

const json_t *ds_dialog_schema(const struct ds_dialog *d, const char *name, bool *known)
{
    for (int i = 0; i < d->n_tools; i++) {
        if (strcmp(d->tools[i].name, name)) continue;
        if (known) *known = true;
        return d->tools[i].parameters;
    }
    if (known) *known = false;
    return NULL;
}

static bool same_but_case(const char *a, const char *b)
{
    for (; *a && tolower((unsigned char)*a) == tolower((unsigned char)*b); a++) b++;
    return !*a && !*b;
}

const char *ds_dialog_tool_name(const struct ds_dialog *d, const char *name)
{
    const char *found = NULL;
    int n = 0;
    for (int i = 0; i < d->n_tools; i++) {
        if (!strcmp(d->tools[i].name, name)) return d->tools[i].name;
        if (!same_but_case(d->tools[i].name, name)) continue;
        found = d->tools[i].name;
        n++;
    }
    return n == 1 ? found : NULL;
}

/* --- the chat ------------------------------------------------------------------------------------- */

static struct ds_str view(const struct ds_bytes *b)
{
    return (struct ds_str){ b->n ? b->p : "", b->n };
}

static bool view_calls(struct message *m)
{
    struct ds_chat_call *v = realloc(m->views, ((size_t)m->n_calls + 1) * sizeof *v);
    if (!v) return false;
    m->views = v;
    for (int i = 0; i < m->n_calls; i++) {
        const struct call *c = &m->calls[i];
        for (int k = 0; k < c->n_params; k++)
            c->params[k] = (struct ds_chat_param){ view(&c->texts[2 * k]), view(&c->texts[2 * k + 1]) };
        v[i] = (struct ds_chat_call){ view(&c->name), c->params, c->n_params, view(&c->raw) };
    }
    return true;
}

ds_status ds_dialog_chat(struct ds_dialog *d, int thinking, int preserve, struct ds_chat *out, struct ds_err *e)
{
    struct ds_chat_message *v = d->failed ? NULL : realloc(d->views, ((size_t)d->n_messages + 1) * sizeof *v);
    bool ok = v != NULL;
    if (v) d->views = v;
    for (int i = 0; ok && i < d->n_messages; i++) {
        struct message *m = &d->messages[i];
        ok = view_calls(m);
        v[i] = (struct ds_chat_message){ m->role, view(&m->content), view(&m->reasoning), m->has_reasoning, m->views, m->n_calls };
    }
    if (!ok) return ds_fail(e, DS_ENOMEM, "no memory for the chat");
    *out = (struct ds_chat){ .messages = v, .n = d->n_messages, .tools = view(&d->lines),
                             .thinking = thinking < 0 ? ds_chat_thinks_alone(d->t) : thinking > 0,
                             .preserve_thinking = preserve < 0 ? d->t->preserves : preserve > 0 };
    return DS_OK;
}
