/* POST /v1/responses: OpenAI's other chats. Nothing is kept between requests: earlier turns come as input items. */
#include "server/talk.h"

#include "chat/value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum item { NO_ITEM, REASONING, MESSAGE, CALL, CUSTOM };        /* CUSTOM: a call whose one argument is free text */

struct responses {
    struct ds_talk t;
    struct ds_bytes *out;           /* where the event under way is written */
    int64_t sequence, max_output, reasoning_tokens;
    char *instructions;             /* NULL: none */
    float temperature, top_p;
    json_t *tools, *choice;         /* the request's own; NULL: none */
    json_t *custom;                 /* an object whose keys are the names of the custom tools */
    enum item item;                 /* the one that is open */
    int n_items;                    /* those that were opened */
    char item_id[48], call_id[48];
    struct ds_bytes name, text;     /* of the open item: a call's name; its text or arguments */
    struct ds_bytes arguments;      /* of an open custom call: JSON around its text, */
    size_t taken;                   /* of which so many bytes were told */
    struct ds_bytes items;          /* items that are whole, for "output" */
};

/* --- the response object ---------------------------------------------------------------------------------- */

static void usage(const struct responses *a, const struct ds_ending *f, struct ds_json_out *j)
{
    ds_jo_key(j, "usage");
    if (!f) {
        ds_jo_null(j);
        return;
    }
    ds_jo_obj(j);
    ds_jo_member_int(j, "input_tokens", f->prompt);
    ds_jo_key(j, "input_tokens_details");
    ds_jo_obj(j);
    ds_jo_member_int(j, "cached_tokens", f->cached);
    ds_jo_obj_end(j);
    ds_jo_member_int(j, "output_tokens", f->completion);
    ds_jo_key(j, "output_tokens_details");
    ds_jo_obj(j);
    ds_jo_member_int(j, "reasoning_tokens", a->reasoning_tokens);
    ds_jo_obj_end(j);
    ds_jo_member_int(j, "total_tokens", f->prompt + f->completion);
    ds_jo_obj_end(j);
}

/* "key": {"member": value} */
static void member_of_member(struct ds_json_out *j, const char *key, const char *member, const char *value)
{
    ds_jo_key(j, key);
    if (!value) {
        ds_jo_null(j);
        return;
    }
    ds_jo_obj(j);
    ds_jo_member_str(j, member, value);
    ds_jo_obj_end(j);
}

static const char *status_of(const struct responses *a, const struct ds_ending *f)
{
    return !f ? "in_progress" : ds_talk_is_cut(&a->t, f) ? "incomplete" : "completed";
}

/* 0.95 again, from a float. */
static double rounded(float v)
{
    return (double)(int64_t)((double)v * 1e6 + 0.5) / 1e6;
}

/* Of its fields the request gets those back that the shape wants. Instructions and tools, which may be long, come once: at the end. */
static void echo(const struct responses *a, bool over, struct ds_json_out *j)
{
    ds_jo_member_str(j, "instructions", over ? a->instructions : NULL);
    ds_jo_key(j, "max_output_tokens");
    if (a->max_output < 0) ds_jo_null(j);
    else ds_jo_int(j, a->max_output);
    ds_jo_member_str(j, "model", a->t.model);
    ds_jo_key(j, "parallel_tool_calls");
    ds_jo_bool(j, !a->t.one_call);
    ds_jo_member_str(j, "previous_response_id", NULL);
    ds_jo_key(j, "store");
    ds_jo_bool(j, false);
    ds_jo_key(j, "temperature");
    ds_jo_num(j, rounded(a->temperature));
    ds_jo_key(j, "top_p");
    ds_jo_num(j, rounded(a->top_p));
    ds_jo_key(j, "text");
    ds_jo_obj(j);
    member_of_member(j, "format", "type", "text");
    ds_jo_obj_end(j);
    ds_jo_member_str(j, "truncation", "disabled");
    ds_jo_key(j, "tool_choice");
    if (json_is_object(a->choice)) {
        ds_jo_obj(j);
        ds_jo_member_str(j, "type", json_string_value(json_object_get(a->choice, "type")));
        ds_jo_member_str(j, "name", json_string_value(json_object_get(a->choice, "name")));
        ds_jo_obj_end(j);
    } else {
        ds_jo_str(j, json_is_string(a->choice) ? json_string_value(a->choice) : "auto");
    }
    ds_jo_key(j, "tools");
    ds_jo_arr(j);
    for (size_t i = 0; over && i < json_array_size(a->tools); i++) {
        if (i) ds_bytes_puts(j->b, ",");
        ds_value_dump(j->b, json_array_get(a->tools, i));
    }
    ds_jo_arr_end(j);
}

/* f NULL: it is not over. failure: what went wrong, or NULL. */
static void response(const struct responses *a, const struct ds_ending *f, const char *failure, struct ds_json_out *j)
{
    ds_jo_obj(j);
    ds_jo_member_str(j, "id", a->t.id);
    ds_jo_member_str(j, "object", "response");
    ds_jo_member_int(j, "created_at", a->t.created);
    ds_jo_member_str(j, "status", failure ? "failed" : status_of(a, f));
    ds_jo_key(j, "error");
    if (failure) {
        ds_jo_obj(j);
        ds_jo_member_str(j, "code", "server_error");
        ds_jo_member_str(j, "message", failure);
        ds_jo_obj_end(j);
    } else {
        ds_jo_null(j);
    }
    member_of_member(j, "incomplete_details", "reason", f && ds_talk_is_cut(&a->t, f) ? "max_output_tokens" : NULL);
    echo(a, f || failure, j);
    ds_jo_key(j, "output");
    ds_jo_arr(j);
    if (a->items.n) ds_bytes_add(j->b, a->items.p, a->items.n);
    ds_jo_arr_end(j);
    usage(a, f, j);
    ds_jo_obj_end(j);
}

/* --- events ------------------------------------------------------------------------------------------------ */

static void begin_event(struct responses *a, struct ds_json_out *j, const char *type)
{
    ds_sse_begin(a->out, type);
    ds_jo_init(j, a->out, false);
    ds_jo_obj(j);
    ds_jo_member_str(j, "type", type);
    ds_jo_member_int(j, "sequence_number", a->sequence++);
}

static void end_event(struct responses *a, struct ds_json_out *j)
{
    ds_jo_obj_end(j);
    ds_sse_end(a->out);
}

static void response_event(struct responses *a, const char *type, const struct ds_ending *f, const char *failure)
{
    struct ds_json_out j;
    begin_event(a, &j, type);
    ds_jo_key(&j, "response");
    response(a, f, failure, &j);
    end_event(a, &j);
}

/* The members that events of the open item share; part: it has content parts. */
static void item_event(struct responses *a, struct ds_json_out *j, const char *type, bool part)
{
    begin_event(a, j, type);
    ds_jo_member_str(j, "item_id", a->item_id);
    ds_jo_member_int(j, "output_index", a->n_items - 1);
    if (part) ds_jo_member_int(j, "content_index", 0);
}

/* --- items ------------------------------------------------------------------------------------------------- */

static bool is_call(enum item kind) { return kind == CALL || kind == CUSTOM; }

/* The member that holds an item's text, by item. */
static const char *const text_members[] = { "", "text", "text", "arguments", "input" };

static void part(const struct responses *a, bool whole, struct ds_json_out *j)
{
    static const struct ds_bytes none = { .n = 0 };
    ds_jo_obj(j);
    ds_jo_member_str(j, "type", a->item == MESSAGE ? "output_text" : "reasoning_text");
    ds_jo_member_text(j, "text", whole ? &a->text : &none);
    if (a->item == MESSAGE) {
        ds_jo_key(j, "annotations");
        ds_jo_arr(j);
        ds_jo_arr_end(j);
        ds_jo_key(j, "logprobs");
        ds_jo_arr(j);
        ds_jo_arr_end(j);
    }
    ds_jo_obj_end(j);
}

/* The open item, empty or whole. */
static void item(const struct responses *a, bool whole, struct ds_json_out *j)
{
    static const char *const types[] = { "", "reasoning", "message", "function_call", "custom_tool_call" };
    static const struct ds_bytes none = { .n = 0 };
    ds_jo_obj(j);
    ds_jo_member_str(j, "id", a->item_id);
    ds_jo_member_str(j, "type", types[a->item]);
    ds_jo_member_str(j, "status", whole ? "completed" : "in_progress");
    if (is_call(a->item)) {
        ds_jo_member_str(j, "call_id", a->call_id);
        ds_jo_member_text(j, "name", &a->name);
        ds_jo_member_text(j, text_members[a->item], whole ? &a->text : &none);
    } else {
        if (a->item == MESSAGE) ds_jo_member_str(j, "role", "assistant");
        if (a->item == REASONING) {
            ds_jo_key(j, "summary");
            ds_jo_arr(j);
            ds_jo_arr_end(j);
        }
        ds_jo_key(j, "content");
        ds_jo_arr(j);
        if (whole) part(a, true, j);
        ds_jo_arr_end(j);
    }
    ds_jo_obj_end(j);
}

static void added_or_done(struct responses *a, const char *type, bool whole)
{
    struct ds_json_out j;
    begin_event(a, &j, type);
    ds_jo_member_int(&j, "output_index", a->n_items - 1);
    ds_jo_key(&j, "item");
    item(a, whole, &j);
    end_event(a, &j);
}

static void part_event(struct responses *a, const char *type, bool whole)
{
    struct ds_json_out j;
    item_event(a, &j, type, true);
    ds_jo_key(&j, "part");
    part(a, whole, &j);
    end_event(a, &j);
}

/* delta NULL: the text is whole, and told once more. */
static void text_event(struct responses *a, const char *delta, size_t n)
{
    static const char *const kinds[] = { "", "reasoning_text", "output_text", "function_call_arguments", "custom_tool_call_input" };
    struct ds_json_out j;
    char type[64];
    snprintf(type, sizeof type, "response.%s.%s", kinds[a->item], delta ? "delta" : "done");
    item_event(a, &j, type, !is_call(a->item));
    if (delta) {
        ds_jo_key(&j, "delta");
        ds_jo_strn(&j, delta, n);
    } else {
        if (a->item == CALL) ds_jo_member_text(&j, "name", &a->name);
        ds_jo_member_text(&j, text_members[a->item], &a->text);
    }
    if (a->item == MESSAGE) {
        ds_jo_key(&j, "logprobs");
        ds_jo_arr(&j);
        ds_jo_arr_end(&j);
    }
    end_event(a, &j);
}

static void close_item(struct responses *a)
{
    struct ds_json_out j;
    if (a->item == NO_ITEM) return;
    if (a->items.n) ds_bytes_puts(&a->items, ",");
    ds_jo_init(&j, &a->items, false);
    item(a, true, &j);
    if (a->t.stream) {
        text_event(a, NULL, 0);
        if (!is_call(a->item)) part_event(a, "response.content_part.done", true);
        added_or_done(a, "response.output_item.done", true);
    }
    a->item = NO_ITEM;
}

static void open_item(struct responses *a, enum item kind)
{
    static const char *const prefixes[] = { "", "rs_", "msg_", "fc_", "ctc_" };
    if (a->item == kind && !is_call(kind)) return;
    close_item(a);
    a->item = kind;
    a->n_items++;
    a->text.n = a->arguments.n = a->taken = 0;
    ds_make_id(a->item_id, prefixes[kind]);
    if (is_call(kind)) ds_make_id(a->call_id, "call_");
    if (!a->t.stream) return;
    added_or_done(a, "response.output_item.added", false);
    if (!is_call(kind)) part_event(a, "response.content_part.added", false);
}

static void add_text(struct responses *a, const char *text, size_t n)
{
    ds_bytes_add(&a->text, text, n);
    if (a->t.stream) text_event(a, text, n);
}

static void open_call(struct responses *a, const char *name, size_t n)
{
    close_item(a);
    a->name.n = 0;
    ds_bytes_add(&a->name, name, n);
    open_item(a, json_object_get(a->custom, a->name.p) ? CUSTOM : CALL);
}

/* One escape of a JSON string, as ds_value_escape writes it; bytes used, 0: it is not whole. */
static size_t unescape(const char *p, size_t n, char *c)
{
    static const char from[] = "nrtbf\"\\", to[] = "\n\r\t\b\f\"\\";
    if (n < 2) return 0;
    const char *k = strchr(from, p[1]);
    if (k) return *c = to[k - from], 2;
    if (n < 6) return 0;
    char hex[5] = { p[2], p[3], p[4], p[5], 0 };
    *c = (char)strtol(hex, NULL, 16);
    return 6;
}

/* The free text of a custom call is the string in {"input": "..."}; what came of it is told. */
static void take_input(struct responses *a)
{
    static const char head[] = "{\"input\": \"";
    const char *p = a->arguments.p;
    size_t n = a->arguments.n, from = sizeof head - 1, at = a->taken ? a->taken : from, used = 1;
    struct ds_bytes text;
    if (n < from || memcmp(p, head, from)) return;
    ds_bytes_init(&text, INT32_MAX);
    for (; at < n && p[at] != '"' && used; at += used) {
        char c = p[at];
        used = c == '\\' ? unescape(p + at, n - at, &c) : 1;
        if (used) ds_bytes_add(&text, &c, 1);
    }
    a->taken = at;
    if (text.n) add_text(a, text.p, text.n);
    ds_bytes_free(&text);
}

static void add_arguments(struct responses *a, const char *text, size_t n)
{
    if (a->item != CUSTOM) {
        add_text(a, text, n);
        return;
    }
    ds_bytes_add(&a->arguments, text, n);
    take_input(a);
}

/* A custom call with other parameters than its one is told as it is. */
static void close_call(struct responses *a)
{
    if (a->item == CUSTOM && !a->taken) add_text(a, a->arguments.p, a->arguments.n);
    close_item(a);
}

static void said(void *ctx, enum ds_said kind, const char *text, size_t n)
{
    struct responses *a = ctx;
    if (kind == DS_SAID_CALL) open_call(a, text, n);
    else if (kind == DS_SAID_CALL_END) close_call(a);
    else if (kind == DS_SAID_ARGUMENTS) add_arguments(a, text, n);
    else {
        open_item(a, kind == DS_SAID_REASONING ? REASONING : MESSAGE);
        add_text(a, text, n);
    }
}

/* --- adapter ----------------------------------------------------------------------------------------------- */

static void on_begin(void *ctx, struct ds_bytes *out)
{
    struct responses *a = ctx;
    a->out = out;
    if (!a->t.stream) return;
    response_event(a, "response.created", NULL, NULL);
    response_event(a, "response.in_progress", NULL, NULL);
}

static void on_started(void *ctx, const struct ds_started *s, struct ds_bytes *out)
{
    (void)ctx;
    (void)s;
    (void)out;
}

/* An event of a kind that clients know, with the progress beside what they expect. */
static void on_progress(void *ctx, const struct ds_prompt_progress *p, struct ds_bytes *out)
{
    struct responses *a = ctx;
    struct ds_json_out j;
    if (!a->t.stream) return;
    a->out = out;
    begin_event(a, &j, "response.in_progress");
    ds_jo_progress(&j, p);
    ds_jo_key(&j, "response");
    response(a, NULL, NULL, &j);
    end_event(a, &j);
}

static bool on_piece(void *ctx, const struct ds_piece *p, struct ds_bytes *out)
{
    struct responses *a = ctx;
    a->out = out;
    bool more = ds_talk_piece(&a->t, p);
    a->reasoning_tokens += p->id >= 0 && a->item == REASONING;
    return more;
}

static void on_finish(void *ctx, const struct ds_ending *f, struct ds_bytes *out)
{
    struct responses *a = ctx;
    struct ds_json_out j;
    a->out = out;
    ds_talk_finish(&a->t, f);
    if (is_call(a->item)) a->item = NO_ITEM;         /* it was cut, and must not look whole: it has no "done" */
    close_item(a);
    if (a->t.stream) {
        response_event(a, ds_talk_is_cut(&a->t, f) ? "response.incomplete" : "response.completed", f, NULL);
        return;
    }
    ds_jo_init(&j, out, false);
    response(a, f, NULL, &j);
    ds_bytes_puts(out, "\n");
}

static void on_error(void *ctx, int status, const char *sentence, struct ds_bytes *out)
{
    struct responses *a = ctx;
    struct ds_refusal r;
    a->out = out;
    if (a->t.stream) {
        response_event(a, "response.failed", NULL, sentence);
        return;
    }
    ds_refuse(&r, status, NULL, "%s", sentence);
    ds_error_openai(&r, out);
}

static void on_keepalive(void *ctx, struct ds_bytes *out)
{
    struct responses *a = ctx;
    ds_bytes_puts(out, a->t.stream ? ": keepalive\n\n" : "\n");
}

static void on_free(void *ctx)
{
    struct responses *a = ctx;
    ds_talk_close(&a->t);
    ds_bytes_free(&a->name);
    ds_bytes_free(&a->text);
    ds_bytes_free(&a->arguments);
    ds_bytes_free(&a->items);
    free(a->instructions);
    json_decref(a->tools);
    json_decref(a->choice);
    json_decref(a->custom);
    free(a);
}

static const struct ds_api responses_api = {
    on_begin, on_started, on_progress, on_piece, on_finish, on_error, on_keepalive, on_free
};

/* --- input ------------------------------------------------------------------------------------------------- */

/* What an assistant says in one turn comes as several items: reasoning, then words, then calls, all of one message. */
struct turn { bool open, called; };

static void begin_assistant(struct responses *a, struct turn *t, bool goes_on)
{
    if (t->open && goes_on) return;
    ds_dialog_begin(a->t.d, DS_ROLE_ASSISTANT);
    t->open = true;
    t->called = false;
}

static bool read_message(struct responses *a, const json_t *m, const char *where, struct turn *t, struct ds_refusal *r)
{
    enum ds_chat_role role;
    if (!ds_talk_role(m, where, "system developer user assistant", &role, r)) return false;
    if (role == DS_ROLE_ASSISTANT) {
        begin_assistant(a, t, !t->called);
    } else {
        ds_dialog_begin(a->t.d, role);
        t->open = false;
    }
    return ds_talk_content(&a->t, m, ds_name(where, "content").s, "", r);
}

/* Its texts, or where there are none, those of its summary. */
static bool read_reasoning(struct responses *a, const json_t *m, const char *where, struct turn *t, struct ds_refusal *r)
{
    static const char *const lists[] = { "content", "summary" };
    const json_t *parts[2], *p, *text;
    size_t i;
    begin_assistant(a, t, false);
    for (int k = 0; k < 2; k++)
        if (!ds_field_json(m, ds_name(where, lists[k]).s, JSON_ARRAY, &parts[k], r)) return false;
    int k = !json_array_size(parts[0]);
    json_array_foreach((json_t *)(uintptr_t)parts[k], i, p) {
        struct ds_name at = ds_item(ds_name(where, lists[k]).s, i);
        if (!ds_is_object(p, at.s, r) || !ds_field_json(p, ds_name(at.s, "text").s, JSON_STRING, &text, r)) return false;
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

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
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
    if (!strcmp(type, "function_call")) return read_call(a, m, where, t, r);
    if (!strcmp(type, "custom_tool_call")) return read_custom_call(a, m, where, t, r);
    if (!ends_with(type, "_call_output"))
        return ds_refuse(r, 400, of.s, "'%s' is '%.40s', an item that cannot be read here", of.s, type);
    t->open = false;
    ds_dialog_begin(a->t.d, DS_ROLE_TOOL);
    return ds_talk_content(&a->t, m, ds_name(where, "output").s, "\n\n", r);
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

static bool read_tools(const struct ds_call *c, struct responses *a, struct ds_refusal *r)
{
    const json_t *tools, *tool;
    size_t i;
    if (!ds_field_json(c->body, "tools", JSON_ARRAY, &tools, r)) return false;
    a->tools = json_incref((json_t *)(uintptr_t)tools);
    a->custom = json_object();
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool) {
        const char *type = NULL;
        struct ds_name where = ds_item("tools", i);
        if (!ds_is_object(tool, where.s, r) || !ds_field_text(tool, ds_name(where.s, "type").s, &type, r)) return false;
        if (type && !strcmp(type, "custom")) {
            if (!add_custom(a, tool, where.s, r)) return false;
        } else if (!ds_talk_leaves_out(c, type, "function") && !ds_talk_tool(&a->t, tool, where.s, "parameters", r)) {
            return false;
        }
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
        { DS_RULE_OBJECT, "metadata", NULL }, { DS_RULE_COUNT, "max_tool_calls", NULL }, { DS_RULE_WORD, "truncation", "auto disabled" },
        { DS_RULE_NOT, "previous_response_id", "nothing is kept here, send the earlier turns as input items" },
        { DS_RULE_NOT, "conversation", "nothing is kept here, send the earlier turns as input items" },
        { DS_RULE_NOT, "prompt", "there are no stored prompts here" },
        { DS_RULE_NOT, "background", "an answer is given to the request that asks" }, { DS_RULE_END, NULL, NULL },
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

static bool fill(const struct ds_call *c, struct responses *a, struct ds_request *q, struct ds_refusal *r)
{
    if (!ds_talk_open(&a->t, c, "resp_", r) || !read_shape(c, a, r) || !ds_talk_common(&a->t, c, q, r) || !read_chat(c, a, r) ||
        !ds_talk_encode(&a->t, c, q, "input", r))
        return false;
    q->max_new = a->max_output;
    a->temperature = q->sampling.temp;
    a->top_p = q->sampling.top_p;
    return ds_talk_listen(&a->t, said, a) ? true : ds_refuse(r, 503, NULL, "no memory for the request");
}

static void handle(const struct ds_call *c, struct ds_reply *r)
{
    struct responses *a = ds_reply_by_engine(r, &responses_api, sizeof *a, "responses");
    if (!a) return;
    struct ds_bytes *texts[] = { &a->name, &a->text, &a->arguments, &a->items };
    for (int i = 0; i < 4; i++) ds_bytes_init(texts[i], (size_t)1 << 30);
    a->max_output = -1;
    fill(c, a, r->request, &r->refusal);
}

const struct ds_route ds_routes_responses[] = {
    { "POST", "/v1/responses", handle, ds_error_openai, false },
    { NULL, NULL, NULL, NULL, false }
};
