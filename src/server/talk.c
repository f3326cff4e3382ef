#include "server/talk.h"

#include "chat/value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ds_talk_open(struct ds_talk *t, const struct ds_call *c, const char *id_prefix, struct ds_refusal *r)
{
    size_t n;
    struct ds_err e;
    const char *text = ds_engine_chat_template(c->g, &n);
    *t = (struct ds_talk){ .g = c->g, .created = ds_unix_seconds(), .thinking = -1, .preserve = -1 };
    ds_make_id(t->id, id_prefix);
    if (ds_chat_template_read(&t->t, text, n, c->options->generic_tools, &e)) return ds_refuse(r, 503, NULL, "%s", e.msg);
    t->d = ds_dialog_new(&t->t);
    return t->d ? true : ds_refuse(r, 503, NULL, "no memory for the request");
}

void ds_talk_close(struct ds_talk *t)
{
    ds_reader_free(t->reader);
    ds_reader_free(t->ahead);
    ds_dialog_free(t->d);
    ds_chat_template_free(&t->t);
    free(t->model);
    *t = (struct ds_talk){ .model = NULL };
}

/* --- request ------------------------------------------------------------------------------------------- */

static bool read_kwargs(struct ds_talk *t, const json_t *body, struct ds_refusal *r)
{
    const json_t *o;
    bool thinking = t->thinking > 0, preserve = false;
    if (!ds_field_json(body, "chat_template_kwargs", JSON_OBJECT, &o, r) ||
        !ds_field_bool(o, "chat_template_kwargs.enable_thinking", &thinking, r) ||
        !ds_field_bool(o, "chat_template_kwargs.preserve_thinking", &preserve, r))
        return false;
    if (json_is_boolean(json_object_get(o, "enable_thinking"))) t->thinking = thinking;
    if (json_is_boolean(json_object_get(o, "preserve_thinking"))) t->preserve = preserve;
    return true;
}

static struct ds_sampling recommended(const struct ds_talk *t)
{
    struct ds_sampling s = DS_SAMPLING_GREEDY;
    bool thinks = t->thinking < 0 ? ds_chat_thinks_alone(&t->t) : ds_chat_opens(&t->t, t->thinking > 0);
    if (t->t.family != DS_CHAT_QWEN35 && t->t.family != DS_CHAT_QWEN36) return s;
    s.temp = thinks ? 1 : 0.7f;
    s.top_p = thinks ? 0.95f : 0.8f;
    s.top_k = 20;
    s.presence_penalty = thinks && t->t.family == DS_CHAT_QWEN36 ? 0 : 1.5f;
    return s;
}

bool ds_talk_common(struct ds_talk *t, const struct ds_call *c, struct ds_request *q, struct ds_refusal *r)
{
    const char *model = c->model;
    if (!read_kwargs(t, c->body, r)) return false;
    q->sampling = recommended(t);
    if (!ds_field_model(c->body, &model, r) || !ds_field_delivery(c->body, q, r) || !ds_field_sampling(c->body, c, q, r))
        return false;
    t->stream = q->stream;
    size_t n = strlen(model) + 1;
    t->model = malloc(n);
    if (!t->model) return ds_refuse(r, 503, NULL, "no memory for the request");
    memcpy(t->model, model, n);
    return true;
}

bool ds_talk_effort(struct ds_talk *t, const json_t *o, const char *name, struct ds_refusal *r)
{
    const char *effort = NULL;
    if (!ds_field_word(o, name, "none minimal low medium high xhigh max", &effort, r)) return false;
    if (effort) t->thinking = strcmp(effort, "none") && strcmp(effort, "minimal");
    return true;
}

/* --- messages ------------------------------------------------------------------------------------------ */

bool ds_talk_role(const json_t *m, const char *where, const char *words, enum ds_chat_role *role, struct ds_refusal *r)
{
    const char *name = NULL;
    struct ds_name field = ds_name(where, "role");
    if (!ds_field_word(m, field.s, words, &name, r)) return false;
    if (!name) return ds_refuse(r, 400, field.s, "'%s' is missing", field.s);
    *role = name[0] == 'u' ? DS_ROLE_USER : name[0] == 'a' ? DS_ROLE_ASSISTANT : name[0] == 't' || name[0] == 'f' ? DS_ROLE_TOOL
                                                                                                          : DS_ROLE_SYSTEM;
    return true;
}

bool ds_talk_part(struct ds_talk *t, const json_t *part, const char *where, struct ds_refusal *r)
{
    static const struct ds_rule others[] = {
        { DS_RULE_OBJECT, "cache_control", NULL }, { DS_RULE_ARRAY, "annotations", NULL }, { DS_RULE_ARRAY, "logprobs", NULL },
        { DS_RULE_END, NULL, NULL },
    };
    const char *type = "text", *key = "text";
    const json_t *text;
    if (!ds_is_object(part, where, r) || !ds_field_text(part, ds_name(where, "type").s, &type, r) || !ds_field_rules(part, where, others, r))
        return false;
    if (!strcmp(type, "refusal")) key = "refusal";
    else if (strcmp(type, "text") && strcmp(type, "input_text") && strcmp(type, "output_text"))
        return ds_refuse(r, 400, ds_name(where, "type").s, "'%s' is '%.40s': only text is read here", ds_name(where, "type").s, type);
    struct ds_name name = ds_name(where, key);
    if (!ds_field_json(part, name.s, JSON_STRING, &text, r)) return false;
    if (!text) return ds_refuse(r, 400, name.s, "'%s' is missing", name.s);
    ds_dialog_text(t->d, json_string_value(text), json_string_length(text));
    return true;
}

bool ds_talk_content(struct ds_talk *t, const json_t *m, const char *name, const char *gap, struct ds_refusal *r)
{
    const char *dot = strrchr(name, '.');
    const json_t *content = json_object_get(m, dot ? dot + 1 : name);
    size_t i;
    json_t *p;
    if (!content || json_is_null(content)) return true;
    if (json_is_string(content)) {
        ds_dialog_text(t->d, json_string_value(content), json_string_length(content));
        return true;
    }
    if (!json_is_array(content))
        return ds_refuse(r, 400, name, "'%s' is %s, expected a string or an array of parts", name, ds_json_type(content));
    json_array_foreach(content, i, p) {
        if (i) ds_dialog_text(t->d, gap, strlen(gap));
        if (!ds_talk_part(t, p, ds_item(name, i).s, r)) return false;
    }
    return true;
}

void ds_talk_json(struct ds_talk *t, const json_t *v)
{
    struct ds_bytes b;
    ds_bytes_init(&b, INT32_MAX);
    ds_value_dump(&b, v);
    if (b.n) ds_dialog_text(t->d, b.p, b.n);
    ds_bytes_free(&b);
}

bool ds_talk_call(struct ds_talk *t, const json_t *call, const char *where, const char *arguments, struct ds_refusal *r)
{
    const char *name;
    const json_t *v = json_object_get(call, arguments);
    struct ds_name field = ds_name(where, arguments);
    if (!ds_field_name(call, ds_name(where, "name").s, &name, r)) return false;
    if (v && !json_is_null(v) && !json_is_string(v) && !json_is_object(v))
        return ds_refuse(r, 400, field.s, "'%s' is %s, expected an object, or a string with one", field.s, ds_json_type(v));
    ds_dialog_call(t->d, name, v);
    return true;
}

/* --- tools --------------------------------------------------------------------------------------------- */

bool ds_talk_leaves_out(const struct ds_call *c, const char *type, const char *known)
{
    char line[160];
    if (!type || !strcmp(type, known)) return false;
    snprintf(line, sizeof line, "a tool of type '%.40s' is left out: it is not one that the model could call", type);
    c->note(c, line);
    return true;
}

bool ds_talk_tool(struct ds_talk *t, const json_t *f, const char *where, const char *parameters, struct ds_refusal *r)
{
    const char *name;
    const json_t *description, *schema;
    bool strict;
    if (!ds_is_object(f, where, r) || !ds_field_name(f, ds_name(where, "name").s, &name, r) ||
        !ds_field_json(f, ds_name(where, "description").s, JSON_STRING, &description, r) ||
        !ds_field_json(f, ds_name(where, parameters).s, JSON_OBJECT, &schema, r) ||
        !ds_field_bool(f, ds_name(where, "strict").s, &strict, r))
        return false;
    json_t *function = json_object(), *declared = json_object();
    json_object_set_new(function, "name", json_string(name));
    if (description) json_object_set(function, "description", (json_t *)(uintptr_t)description);
    if (schema) json_object_set(function, "parameters", (json_t *)(uintptr_t)schema);
    json_object_set_new(declared, "type", json_string("function"));
    bool ok = json_object_set_new(declared, "function", function) == 0;
    if (ok) ds_dialog_tool(t->d, name, declared, schema);
    json_decref(declared);
    return ok ? true : ds_refuse(r, 503, NULL, "no memory for the request");
}

bool ds_talk_force_call(struct ds_talk *t, const char *name, const char *where, struct ds_refusal *r)
{
    static const char begin[] = "<tool_call>\n<function=";
    if (!ds_dialog_n_tools(t->d)) return ds_refuse(r, 400, where, "'%s' asks for a call, but there are no tools", where);
    if (name && !ds_dialog_tool_name(t->d, name))
        return ds_refuse(r, 400, where, "'%s' names '%.64s', which is none of the tools", where, name);
    if (ds_dialog_last_role(t->d) == DS_ROLE_ASSISTANT)
        return ds_refuse(r, 400, where, "'%s' asks for a call, but the last message begins another answer", where);
    ds_dialog_begin(t->d, DS_ROLE_ASSISTANT);
    ds_dialog_text(t->d, begin, sizeof begin - 1);
    if (name) {
        ds_dialog_text(t->d, name, strlen(name));
        ds_dialog_text(t->d, ">\n", 2);
    }
    t->thinking = 0;
    t->forced = true;
    return true;
}

bool ds_talk_encode(struct ds_talk *t, const struct ds_call *c, struct ds_request *q, const char *what, struct ds_refusal *r)
{
    struct ds_chat chat;
    struct ds_chat_prompt p;
    struct ds_err e;
    ds_status st = ds_dialog_chat(t->d, t->thinking, t->preserve, &chat, &e);
    if (!st) st = ds_chat_encode(c->g, &t->t, &chat, &p, &e);
    if (st) return ds_refuse(r, st == DS_ENOMEM ? 503 : 400, what, "%s", e.msg);
    q->prompt = p.ids;
    q->bounds = p.bounds;
    q->n_bounds = p.n_bounds;
    t->tail = p.tail;
    t->tail.unseen = t->forced;
    t->progress = q->return_progress;
    return ds_request_fits(c, q, what, r);
}

/* --- answer -------------------------------------------------------------------------------------------- */

static void said(void *ctx, enum ds_said kind, const char *text, size_t n)
{
    struct ds_talk *t = ctx;
    if (t->enough) return;
    t->fn(t->ctx, kind, text, n);
    t->enough = t->one_call && kind == DS_SAID_CALL_END;
}

static void heard(void *ctx, enum ds_said kind, const char *text, size_t n)
{
    struct ds_talk *t = ctx;
    (void)text;
    (void)n;
    t->complete |= kind == DS_SAID_CALL_END;
}

/* The engine's reader is live whatever the client reads: a stream and an answer in one piece are equally long. */
bool ds_talk_listen(struct ds_talk *t, ds_said_fn fn, void *ctx)
{
    t->fn = fn;
    t->ctx = ctx;
    t->reader = ds_reader_new(t->d, &t->tail, t->stream, said, t);
    if (t->one_call) t->ahead = ds_reader_new(t->d, &t->tail, true, heard, t);
    return t->reader && (t->ahead || !t->one_call);
}

enum ds_finish ds_talk_reason(const struct ds_talk *t, const struct ds_ending *f)
{
    return t->enough ? DS_FINISH_ENOUGH : f->reason;
}

bool ds_talk_is_cut(const struct ds_talk *t, const struct ds_ending *f)
{
    enum ds_finish why = ds_talk_reason(t, f);
    return why == DS_FINISH_LENGTH || why == DS_FINISH_WINDOW || why == DS_FINISH_INTERRUPTED;
}

void ds_talk_piece(struct ds_talk *t, const struct ds_piece *p)
{
    ds_reader_feed(t->reader, p->text, p->n);
}

bool ds_talk_complete(struct ds_talk *t, const char *text, size_t n)
{
    if (t->ahead) ds_reader_feed(t->ahead, text, n);
    return t->complete;
}

void ds_talk_finish(struct ds_talk *t, const struct ds_ending *f)
{
    enum ds_finish why = ds_talk_reason(t, f);
    ds_reader_finish(t->reader, why != DS_FINISH_END && why != DS_FINISH_ENOUGH);
}

int ds_talk_n_calls(const struct ds_talk *t)
{
    return ds_reader_n_calls(t->reader);
}
