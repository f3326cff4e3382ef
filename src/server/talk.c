#include "server/talk.h"

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
    ds_dialog_free(t->d);
    ds_chat_template_free(&t->t);
    free(t->model);
    *t = (struct ds_talk){ .model = NULL };
}

/* --- request ------------------------------------------------------------------------------------------- */

bool ds_talk_member(const json_t *o, const char *name, json_type type, const json_t **v, struct ds_refusal *r)
{
    static const char *const names[] = { [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a string" };
    json_t *f = json_object_get(o, name);
    *v = NULL;
    if (!f || json_is_null(f)) return true;
    if (json_typeof(f) != type) return ds_refuse(r, 400, name, "'%s' is not %s", name, names[type]);
    *v = f;
    return true;
}

static bool read_kwargs(struct ds_talk *t, const json_t *body, struct ds_refusal *r)
{
    const json_t *o;
    bool thinking = t->thinking > 0, preserve = false;
    if (!ds_talk_member(body, "chat_template_kwargs", JSON_OBJECT, &o, r)) return false;
    if (!ds_field_bool(o, "enable_thinking", &thinking, r) || !ds_field_bool(o, "preserve_thinking", &preserve, r)) return false;
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

static bool is_text(const char *type)
{
    return !type || !strcmp(type, "text") || !strcmp(type, "input_text") || !strcmp(type, "output_text") || !strcmp(type, "refusal");
}

static bool part(struct ds_talk *t, const json_t *p, const char *where, struct ds_refusal *r)
{
    const char *type = json_string_value(json_object_get(p, "type"));
    const json_t *text = json_object_get(p, "text");
    if (!json_is_object(p)) return ds_refuse(r, 400, where, "'%s' holds a part that is not an object", where);
    if (!is_text(type)) return ds_refuse(r, 400, where, "'%s' holds a part of type '%.40s': only text is read here", where, type);
    if (type && !strcmp(type, "refusal")) text = json_object_get(p, "refusal");
    if (!json_is_string(text)) return ds_refuse(r, 400, where, "'%s' holds a part whose 'text' is not a string", where);
    ds_dialog_text(t->d, json_string_value(text), json_string_length(text));
    return true;
}

bool ds_talk_content(struct ds_talk *t, const json_t *content, const char *where, const char *gap, struct ds_refusal *r)
{
    size_t i;
    json_t *p;
    if (!content || json_is_null(content)) return true;
    if (json_is_string(content)) {
        ds_dialog_text(t->d, json_string_value(content), json_string_length(content));
        return true;
    }
    if (!json_is_array(content)) return ds_refuse(r, 400, where, "'%s' is neither a string nor an array of parts", where);
    json_array_foreach(content, i, p) {
        if (i) ds_dialog_text(t->d, gap, strlen(gap));
        if (!part(t, p, where, r)) return false;
    }
    return true;
}

bool ds_talk_tool(struct ds_talk *t, const char *name, const json_t *description, const json_t *parameters, const char *where,
                  struct ds_refusal *r)
{
    if (!name || !*name) return ds_refuse(r, 400, where, "'%s' has no name", where);
    if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
        return ds_refuse(r, 400, where, "'%s' has parameters that are no JSON schema (an object)", where);
    json_t *function = json_object(), *declared = json_object();
    json_object_set_new(function, "name", json_string(name));
    if (json_is_string(description)) json_object_set(function, "description", (json_t *)(uintptr_t)description);
    if (json_is_object(parameters)) json_object_set(function, "parameters", (json_t *)(uintptr_t)parameters);
    json_object_set_new(declared, "type", json_string("function"));
    bool ok = json_object_set_new(declared, "function", function) == 0;
    if (ok) ds_dialog_tool(t->d, name, declared, json_is_object(parameters) ? parameters : NULL);
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

bool ds_talk_listen(struct ds_talk *t, ds_said_fn fn, void *ctx)
{
    t->fn = fn;
    t->ctx = ctx;
    t->reader = ds_reader_new(t->d, &t->tail, said, t);
    return t->reader != NULL;
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

bool ds_talk_piece(struct ds_talk *t, const struct ds_piece *p)
{
    ds_reader_feed(t->reader, p->text, p->n);
    return !t->enough;
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
