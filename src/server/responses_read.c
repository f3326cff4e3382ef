/* Requests of /v1/responses: input items as messages, tools, and the many fields that are only checked. */
#include "server/responses.h"

#include <stdlib.h>
#include <string.h>

/* --- input ------------------------------------------------------------------------------------------------- */

/* What an assistant says in one turn comes as several items: reasoning, then words, then calls, all of one message. */
struct turn {
    bool open, called;
    bool words, shown;              /* something was said in it; the last of it was an item as its JSON */
};

static void begin_assistant(struct responses *a, struct turn *t, bool goes_on)
{
    if (t->open && goes_on) return;
    ds_dialog_begin(a->t.d, DS_ROLE_ASSISTANT);
    *t = (struct turn){ .open = true };
}

static bool read_message(struct responses *a, const json_t *m, const char *where, struct turn *t, struct ds_refusal *r)
{
    enum ds_chat_role role;
    if (!ds_talk_role(m, where, "system developer user assistant", &role, r)) return false;
    if (role == DS_ROLE_ASSISTANT) {
        begin_assistant(a, t, !t->called);
        if (t->shown) ds_dialog_text(a->t.d, "\n\n", 2);
        t->words = true;
        t->shown = false;
    } else {
        ds_dialog_begin(a->t.d, role);
        t->open = false;
    }
    return ds_talk_content(&a->t, m, ds_name(where, "content").s, "", r);
}

/* Its texts, or where there are none, those of its summary. */
static bool read_reasoning(struct responses *a, const json_t *m, const char *where, struct turn *t, struct ds_refusal *r)
{
    static const char *const lists[] = { "content", "summary" }, *const types[] = { "reasoning_text text", "summary_text" };
    const json_t *parts[2], *p, *text;
    const char *encrypted;
    size_t i;
    begin_assistant(a, t, false);
    if (!ds_field_text(m, ds_name(where, "encrypted_content").s, &encrypted, r)) return false;
    for (int k = 0; k < 2; k++)
        if (!ds_field_objects(m, ds_name(where, lists[k]).s, types[k], &parts[k], r)) return false;
    int k = !json_array_size(parts[0]);
    json_array_foreach((json_t *)(uintptr_t)parts[k], i, p) {
        struct ds_name at = ds_item(ds_name(where, lists[k]).s, i);
        if (!ds_field_json(p, ds_name(at.s, "text").s, JSON_STRING, &text, r)) return false;
        if (text) ds_dialog_reasoning(a->t.d, json_string_value(text), json_string_length(text));
    }
    return true;
}

static bool read_call(struct responses *a, const json_t *m, const char *where, struct turn *t, struct ds_refusal *r)
{
    begin_assistant(a, t, true);
    t->called = true;
    return ds_talk_call(&a->t, m, where, "arguments", r);
}

/* A custom tool's call: one text. */
static bool read_custom_call(struct responses *a, const json_t *m, const char *where, struct turn *t, struct ds_refusal *r)
{
    const json_t *input;
    if (!ds_field_json(m, ds_name(where, "input").s, JSON_STRING, &input, r)) return false;
    json_t *call = json_object(), *wrapped = json_object();
    json_object_set(wrapped, "input", (json_t *)(uintptr_t)input);
    json_object_set(call, "name", json_object_get(m, "name"));
    json_object_set_new(call, "arguments", wrapped);
    bool ok = read_call(a, call, where, t, r);
    json_decref(call);
    return ok;
}

/* o, a tool or a call, with the name that the model sees: tools of a namespace have both. A new reference; NULL: no memory. */
static json_t *with_shown_name(const json_t *o, const char *space)
{
    json_t *it = (json_t *)(uintptr_t)o;
    const char *name = json_string_value(json_object_get(o, "name"));
    if (!space || !*space || !name || !*name) return json_incref(it);
    it = json_copy(it);
    if (it && !json_object_set_new(it, "name", json_sprintf("%s.%s", space, name))) return it;
    json_decref(it);
    return NULL;
}

/* A call that the assistant made, of a function or a custom tool. */
static bool read_any_call(struct responses *a, const json_t *m, const char *where, bool custom, struct turn *t, struct ds_refusal *r)
{
    const char *space = NULL;
    if (!ds_field_text(m, ds_name(where, "namespace").s, &space, r)) return false;
    json_t *call = with_shown_name(m, space);
    if (!call) return ds_refuse(r, 503, NULL, "no memory for the request");
    bool ok = custom ? read_custom_call(a, call, where, t, r) : read_call(a, call, where, t, r);
    json_decref(call);
    return ok;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

/* Items of tools that others run, and notes of the client's own, are shown as their JSON, so that a session that began elsewhere
 * goes on: what was asked for in the assistant's turn, what came of it as a tool's answer, all else as a system message. What is
 * not text (an image in base64, an encrypted note) is left out of it. */
static bool show_item(struct responses *a, const json_t *m, const char *type, struct turn *t, struct ds_refusal *r)
{
    json_t *shown = json_copy((json_t *)(uintptr_t)m);
    if (!shown) return ds_refuse(r, 503, NULL, "no memory for the request");
    json_object_del(shown, "encrypted_content");
    if (!strcmp(type, "image_generation_call")) json_object_del(shown, "result");
    if (ends_with(type, "_call") || ends_with(type, "_request")) {
        begin_assistant(a, t, !t->called);
        if (t->words) ds_dialog_text(a->t.d, "\n\n", 2);
        t->words = t->shown = true;
    } else {
        ds_dialog_begin(a->t.d, ends_with(type, "_output") || ends_with(type, "_response") ? DS_ROLE_TOOL : DS_ROLE_SYSTEM);
        t->open = false;
    }
    ds_talk_json(&a->t, shown);
    json_decref(shown);
    return true;
}

/* The answer of a tool that the client ran: its text. */
static bool read_output(struct responses *a, const json_t *m, const char *where, struct turn *t, struct ds_refusal *r)
{
    t->open = false;
    ds_dialog_begin(a->t.d, DS_ROLE_TOOL);
    return ds_talk_content(&a->t, m, ds_name(where, "output").s, "\n\n", r);
}

static bool read_item(struct responses *a, const json_t *m, const char *where, struct turn *t, struct ds_refusal *r)
{
    static const struct ds_rule rules[] = {
        { DS_RULE_TEXT, "id", NULL }, { DS_RULE_TEXT, "call_id", NULL }, { DS_RULE_TEXT, "status", NULL }, { DS_RULE_END, NULL, NULL },
    };
    const char *type = "message";
    struct ds_name of = ds_name(where, "type");
    if (!ds_is_object(m, where, r) || !ds_field_text(m, of.s, &type, r) || !ds_field_rules(m, where, rules, r)) return false;
    if (!strcmp(type, "message")) return read_message(a, m, where, t, r);
    if (!strcmp(type, "reasoning")) return read_reasoning(a, m, where, t, r);
    bool custom = !strcmp(type, "custom_tool_call");
    if (custom || !strcmp(type, "function_call")) return read_any_call(a, m, where, custom, t, r);
    if (!strcmp(type, "item_reference"))
        return ds_refuse(r, 400, of.s, "'%s' is 'item_reference', but nothing is kept here: send the item itself", of.s);
    if (!strncmp(type, "input_", 6) || !strcmp(type, "image"))
        return ds_refuse(r, 400, of.s, "'%s' is '%.40s', which is a part of a message and no item", of.s, type);
    if (!strcmp(type, "computer_call_output"))
        return ds_refuse(r, 400, of.s, "'%s' is 'computer_call_output', an image: only text is read here", of.s);
    bool own = !strcmp(type, "function_call_output") || !strcmp(type, "custom_tool_call_output");
    if (own || (ends_with(type, "_call_output") && json_is_string(json_object_get(m, "output")))) return read_output(a, m, where, t, r);
    return show_item(a, m, type, t, r);
}

static bool read_input(struct responses *a, const json_t *body, struct ds_refusal *r)
{
    const json_t *input = json_object_get(body, "input");
    struct turn t = { .open = false };
    if (a->instructions) {
        ds_dialog_begin(a->t.d, DS_ROLE_SYSTEM);
        ds_dialog_text(a->t.d, a->instructions, strlen(a->instructions));
    }
    if (json_is_string(input)) {
        ds_dialog_begin(a->t.d, DS_ROLE_USER);
        return ds_talk_content(&a->t, body, "input", "", r);
    }
    if (input && !json_is_null(input) && !json_is_array(input))
        return ds_refuse(r, 400, "input", "'input' is %s, expected a string or an array of items", ds_json_type(input));
    if (!ds_field_items(body, "input", &input, r)) return false;
    for (size_t i = 0; i < json_array_size(input); i++)
        if (!read_item(a, json_array_get(input, i), ds_item("input", i).s, &t, r)) return false;
    return true;
}

/* A tool that takes free text, perhaps by a grammar, is shown to the model as a function with one string; what the grammar is, it
 * can read, but it is not held to it. */
static bool add_custom(struct responses *a, const json_t *tool, const char *where, struct ds_refusal *r)
{
    const json_t *format, *description, *definition;
    const char *name, *type = "text", *syntax = "";
    struct ds_name at = ds_name(where, "format");
    if (!ds_field_name(tool, ds_name(where, "name").s, &name, r) ||
        !ds_field_json(tool, ds_name(where, "description").s, JSON_STRING, &description, r) ||
        !ds_field_json(tool, at.s, JSON_OBJECT, &format, r) || !ds_field_word(format, ds_name(at.s, "type").s, "text grammar", &type, r) ||
        !ds_field_text(format, ds_name(at.s, "syntax").s, &syntax, r) ||
        !ds_field_json(format, ds_name(at.s, "definition").s, JSON_STRING, &definition, r))
        return false;
    struct ds_bytes text;
    ds_bytes_init(&text, INT32_MAX);
    if (description) ds_bytes_add(&text, json_string_value(description), json_string_length(description));
    if (definition) {
        ds_bytes_printf(&text, "%sThe input follows this %s grammar:\n", text.n ? "\n\n" : "", syntax);
        ds_bytes_add(&text, json_string_value(definition), json_string_length(definition));
    }
    json_t *f = json_pack("{s:s, s:s#, s:{s:s, s:{s:{s:s}}, s:[s]}}", "name", name, "description", text.n ? text.p : "", (int)text.n,
                          "parameters", "type", "object", "properties", "input", "type", "string", "required", "input");
    bool ok = f && !json_object_set_new(a->custom, name, json_true());
    ok = ok ? ds_talk_tool(&a->t, f, where, "parameters", r) : ds_refuse(r, 503, NULL, "no memory for the request");
    json_decref(f);
    ds_bytes_free(&text);
    return ok;
}

/* space: the namespace that it is in; NULL: none. */
static bool add_tool(const struct ds_call *c, struct responses *a, const json_t *tool, const char *space, const char *where, struct ds_refusal *r)
{
    const char *type = NULL, *name = NULL;
    if (!ds_is_object(tool, where, r) || !ds_field_text(tool, ds_name(where, "type").s, &type, r)) return false;
    bool custom = type && !strcmp(type, "custom");
    if (!custom && ds_talk_leaves_out(c, type, "function")) return true;
    if (!ds_field_name(tool, ds_name(where, "name").s, &name, r)) return false;
    json_t *shown = with_shown_name(tool, space);
    if (!shown) return ds_refuse(r, 503, NULL, "no memory for the request");
    if (space)
        json_object_set_new(a->spaces, json_string_value(json_object_get(shown, "name")), json_pack("{s:s, s:s}", "namespace", space, "name", name));
    bool ok = custom ? add_custom(a, shown, where, r) : ds_talk_tool(&a->t, shown, where, "parameters", r);
    json_decref(shown);
    return ok;
}

static bool add_namespace(const struct ds_call *c, struct responses *a, const json_t *of, const char *where, struct ds_refusal *r)
{
    const json_t *tools, *tool, *description;
    const char *space;
    struct ds_name name = ds_name(where, "tools");
    size_t i;
    if (!ds_field_name(of, ds_name(where, "name").s, &space, r) || !ds_field_json(of, name.s, JSON_ARRAY, &tools, r) ||
        !ds_field_json(of, ds_name(where, "description").s, JSON_STRING, &description, r))
        return false;
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool)
        if (!add_tool(c, a, tool, space, ds_item(name.s, i).s, r)) return false;
    return true;
}

static bool read_tools(const struct ds_call *c, struct responses *a, struct ds_refusal *r)
{
    const json_t *tools, *tool;
    size_t i;
    if (!ds_field_json(c->body, "tools", JSON_ARRAY, &tools, r)) return false;
    a->tools = json_incref((json_t *)(uintptr_t)tools);
    a->custom = json_object();
    a->spaces = json_object();
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool) {
        const char *type = json_string_value(json_object_get(tool, "type"));
        struct ds_name where = ds_item("tools", i);
        bool space = type && !strcmp(type, "namespace");
        if (!(space ? add_namespace(c, a, tool, where.s, r) : add_tool(c, a, tool, NULL, where.s, r))) return false;
    }
    return true;
}

static bool read_chat(const struct ds_call *c, struct responses *a, struct ds_refusal *r)
{
    const json_t *v = json_object_get(c->body, "tool_choice");
    const char *mode = "auto", *name = NULL, *type = NULL;
    bool parallel = true;
    if (!ds_field_bool(c->body, "parallel_tool_calls", &parallel, r)) return false;
    if (json_is_object(v)) {
        if (!ds_field_word(v, "tool_choice.type", "function custom", &type, r) || !ds_field_name(v, "tool_choice.name", &name, r))
            return false;
    } else if (!ds_field_word(c->body, "tool_choice", "none auto required", &mode, r)) {
        return false;
    }
    a->t.one_call = !parallel || name;
    a->choice = json_incref((json_t *)(uintptr_t)v);
    if (strcmp(mode, "none") && !read_tools(c, a, r)) return false;
    if (!read_input(a, c->body, r)) return false;
    return name || !strcmp(mode, "required") ? ds_talk_force_call(&a->t, name, "tool_choice", r) : true;
}

/* --- request ----------------------------------------------------------------------------------------------- */

/* What "include" may ask for: all of it belongs to what is not here, so that nothing is left out. */
static bool read_include(const json_t *body, struct ds_refusal *r)
{
    static const char words[] = "file_search_call.results web_search_call.results web_search_call.action.sources "
                                "message.input_image.image_url computer_call_output.output.image_url code_interpreter_call.outputs "
                                "reasoning.encrypted_content";
    const json_t *include, *v;
    size_t i;
    if (!ds_field_json(body, "include", JSON_ARRAY, &include, r)) return false;
    json_array_foreach((json_t *)(uintptr_t)include, i, v) {
        const char *word = json_string_value(v), *at = word && *word && !strchr(word, ' ') ? strstr(words, word) : NULL;
        size_t n = word ? strlen(word) : 0;
        bool known = at && (at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n]);
        if (!known)
            return ds_refuse(r, 400, "include", "'include[%zu]' is %s%.60s, which is not known here", i, word ? "" : ds_json_type(v),
                             word ? word : "");
    }
    return true;
}

/* Fields of the API that this server does not read, and those that ask for what it does not do. */
static bool check_others(const json_t *body, struct ds_refusal *r)
{
    static const struct ds_rule rules[] = {
        { DS_RULE_TEXT, "user", NULL }, { DS_RULE_TEXT, "service_tier", NULL }, { DS_RULE_TEXT, "safety_identifier", NULL },
        { DS_RULE_TEXT, "prompt_cache_key", NULL }, { DS_RULE_TEXT, "prompt_cache_retention", NULL }, { DS_RULE_BOOL, "store", NULL },
        { DS_RULE_STRINGS, "metadata", NULL }, { DS_RULE_COUNT, "max_tool_calls", NULL },
        { DS_RULE_ARRAY, "context_management", NULL }, { DS_RULE_WORD, "truncation", "auto disabled" },
        { DS_RULE_NO_TEXT, "previous_response_id", "nothing is kept here, send the earlier turns as input items" },
        { DS_RULE_NO_NAME, "conversation", "nothing is kept here, send the earlier turns as input items" },
        { DS_RULE_NO_OBJECT, "prompt", "there are no stored prompts here" },
        { DS_RULE_NO_BOOL, "background", "an answer is given to the request that asks" }, { DS_RULE_END, NULL, NULL },
    };
    const json_t *text, *format;
    const char *word;
    bool usage;
    int64_t top = 0;
    if (!ds_field_rules(body, "", rules, r) || !ds_field_json(body, "text", JSON_OBJECT, &text, r) ||
        !ds_field_json(text, "text.format", JSON_OBJECT, &format, r) || !ds_field_word(format, "text.format.type", "text", &word, r) ||
        !ds_field_word(text, "text.verbosity", "low medium high", &word, r) || !ds_field_stream_options(body, &usage, r) ||
        !ds_field_int(body, "top_logprobs", 0, DS_LOGPROBS_MAX, &top, r) || !read_include(body, r))
        return false;
    return !top ? true : ds_refuse(r, 400, "top_logprobs", "'top_logprobs' is not supported in this API: expected 0");
}

static bool read_shape(const struct ds_call *c, struct responses *a, struct ds_refusal *r)
{
    const char *instructions = NULL, *summary;
    const json_t *reasoning;
    if (!ds_field_int(c->body, "max_output_tokens", 1, INT32_MAX, &a->max_output, r) ||
        !ds_field_text(c->body, "instructions", &instructions, r) || !ds_field_json(c->body, "reasoning", JSON_OBJECT, &reasoning, r) ||
        !ds_talk_effort(&a->t, reasoning, "reasoning.effort", r) ||
        !ds_field_word(reasoning, "reasoning.summary", "auto concise detailed none", &summary, r) ||
        !ds_field_word(reasoning, "reasoning.generate_summary", "auto concise detailed", &summary, r) || !check_others(c->body, r))
        return false;
    if (!instructions) return true;
    a->instructions = malloc(strlen(instructions) + 1);
    if (!a->instructions) return ds_refuse(r, 503, NULL, "no memory for the request");
    strcpy(a->instructions, instructions);
    return true;
}

bool ds_responses_read(const struct ds_call *c, struct responses *a, struct ds_request *q, struct ds_refusal *r)
{
    if (!ds_talk_open(&a->t, c, "resp_", r) || !read_shape(c, a, r) || !ds_talk_common(&a->t, c, q, r) || !read_chat(c, a, r) ||
        !ds_talk_encode(&a->t, c, q, "input", r))
        return false;
    q->max_new = a->max_output;
    a->temperature = q->sampling.temp;
    a->top_p = q->sampling.top_p;
    return true;
}
