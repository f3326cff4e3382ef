/* POST /v1/responses: OpenAI's other chats. Nothing is kept between requests: earlier turns come as input items. */
#include "server/talk.h"

#include "chat/value.h"

#include <stdlib.h>
#include <string.h>

enum item { NO_ITEM, REASONING, MESSAGE, CALL };

struct responses {
    struct ds_talk t;
    struct ds_bytes *out;           /* where the event under way is written */
    int64_t sequence, max_output, reasoning_tokens;
    char *instructions;             /* NULL: none */
    float temperature, top_p;
    json_t *tools, *choice;         /* the request's own; NULL: none */
    enum item item;                 /* the one that is open */
    int n_items;                    /* those that were opened */
    char item_id[48], call_id[48];
    struct ds_bytes name, text;     /* of the open item: a call's name; its text or arguments */
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

static void echo(const struct responses *a, struct ds_json_out *j)
{
    ds_jo_member_str(j, "instructions", a->instructions);
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
    const char *choice = json_string_value(a->choice);
    if (json_is_object(a->choice)) {
        ds_jo_key(j, "tool_choice");
        ds_jo_obj(j);
        ds_jo_member_str(j, "type", "function");
        ds_jo_member_str(j, "name", json_string_value(json_object_get(a->choice, "name")));
        ds_jo_obj_end(j);
    } else {
        ds_jo_member_str(j, "tool_choice", choice ? choice : "auto");
    }
    ds_jo_key(j, "tools");
    ds_jo_arr(j);
    for (size_t i = 0; i < json_array_size(a->tools); i++) {
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
    echo(a, j);
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
    static const char *const types[] = { "", "reasoning", "message", "function_call" };
    static const struct ds_bytes none = { .n = 0 };
    ds_jo_obj(j);
    ds_jo_member_str(j, "id", a->item_id);
    ds_jo_member_str(j, "type", types[a->item]);
    ds_jo_member_str(j, "status", whole ? "completed" : "in_progress");
    if (a->item == CALL) {
        ds_jo_member_str(j, "call_id", a->call_id);
        ds_jo_member_text(j, "name", &a->name);
        ds_jo_member_text(j, "arguments", whole ? &a->text : &none);
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
    static const char *const deltas[] = { "", "response.reasoning_text.delta", "response.output_text.delta",
                                          "response.function_call_arguments.delta" };
    static const char *const dones[] = { "", "response.reasoning_text.done", "response.output_text.done",
                                         "response.function_call_arguments.done" };
    struct ds_json_out j;
    item_event(a, &j, delta ? deltas[a->item] : dones[a->item], a->item != CALL);
    if (delta) {
        ds_jo_key(&j, "delta");
        ds_jo_strn(&j, delta, n);
    } else {
        if (a->item == CALL) ds_jo_member_text(&j, "name", &a->name);
        ds_jo_member_text(&j, a->item == CALL ? "arguments" : "text", &a->text);
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
        if (a->item != CALL) part_event(a, "response.content_part.done", true);
        added_or_done(a, "response.output_item.done", true);
    }
    a->item = NO_ITEM;
}

static void open_item(struct responses *a, enum item kind)
{
    static const char *const prefixes[] = { "", "rs_", "msg_", "fc_" };
    if (a->item == kind && kind != CALL) return;
    close_item(a);
    a->item = kind;
    a->n_items++;
    a->text.n = 0;
    ds_make_id(a->item_id, prefixes[kind]);
    if (kind == CALL) ds_make_id(a->call_id, "call_");
    if (!a->t.stream) return;
    added_or_done(a, "response.output_item.added", false);
    if (kind != CALL) part_event(a, "response.content_part.added", false);
}

static void said(void *ctx, enum ds_said kind, const char *text, size_t n)
{
    static const enum item of[] = { [DS_SAID_CONTENT] = MESSAGE, [DS_SAID_REASONING] = REASONING, [DS_SAID_CALL] = CALL };
    struct responses *a = ctx;
    if (kind == DS_SAID_CALL_END) {
        close_item(a);
        return;
    }
    if (kind == DS_SAID_CALL) {
        close_item(a);
        a->name.n = 0;
        ds_bytes_add(&a->name, text, n);
    }
    if (kind != DS_SAID_ARGUMENTS) open_item(a, of[kind]);
    if (kind == DS_SAID_CALL) return;
    ds_bytes_add(&a->text, text, n);
    if (a->t.stream) text_event(a, text, n);
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
    ds_bytes_free(&a->items);
    free(a->instructions);
    json_decref(a->tools);
    json_decref(a->choice);
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
    static const struct { const char *name; enum ds_chat_role role; } roles[] = {
        { "system", DS_ROLE_SYSTEM }, { "developer", DS_ROLE_SYSTEM }, { "user", DS_ROLE_USER }, { "assistant", DS_ROLE_ASSISTANT },
    };
    const char *name = json_string_value(json_object_get(m, "role"));
    size_t i = 0;
    while (i < 4 && (!name || strcmp(name, roles[i].name))) i++;
    if (i == 4)
        return ds_refuse(r, 400, where, "'%s.role' is '%.40s', expected system, developer, user or assistant", where, name ? name : "");
    if (roles[i].role == DS_ROLE_ASSISTANT) {
        begin_assistant(a, t, !t->called);
    } else {
        ds_dialog_begin(a->t.d, roles[i].role);
        t->open = false;
    }
    return ds_talk_content(&a->t, json_object_get(m, "content"), where, "", r);
}

static bool read_reasoning(struct responses *a, const json_t *m, struct turn *t)
{
    static const char *const lists[] = { "content", "summary" };
    begin_assistant(a, t, false);
    for (int k = 0; k < 2; k++) {
        size_t i;
        json_t *p;
        json_array_foreach(json_object_get(m, lists[k]), i, p) {
            const char *text = json_string_value(json_object_get(p, "text"));
            if (text) ds_dialog_reasoning(a->t.d, text, strlen(text));
        }
        if (json_array_size(json_object_get(m, lists[k]))) break;
    }
    return true;
}

static bool read_call(struct responses *a, const json_t *m, const char *where, struct turn *t, struct ds_refusal *r)
{
    const char *name = json_string_value(json_object_get(m, "name"));
    if (!name) return ds_refuse(r, 400, where, "'%s' is a call without a name", where);
    begin_assistant(a, t, true);
    t->called = true;
    const json_t *input = json_object_get(m, "input");
    if (!json_is_string(input)) {
        ds_dialog_call(a->t.d, name, json_object_get(m, "arguments"));
        return true;
    }
    json_t *wrapped = json_object();           /* a custom tool's call: one text */
    json_object_set(wrapped, "input", (json_t *)(uintptr_t)input);
    ds_dialog_call(a->t.d, name, wrapped);
    json_decref(wrapped);
    return true;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static bool read_item(struct responses *a, const json_t *m, const char *where, struct turn *t, struct ds_refusal *r)
{
    const char *type = json_string_value(json_object_get(m, "type"));
    if (!json_is_object(m)) return ds_refuse(r, 400, where, "'%s' is not an object", where);
    if (!type || !strcmp(type, "message")) return read_message(a, m, where, t, r);
    if (!strcmp(type, "reasoning")) return read_reasoning(a, m, t);
    if (!strcmp(type, "function_call") || !strcmp(type, "custom_tool_call")) return read_call(a, m, where, t, r);
    if (!ends_with(type, "_call_output"))
        return ds_refuse(r, 400, where, "'%s' is an item of type '%.40s', which cannot be read here", where, type);
    t->open = false;
    ds_dialog_begin(a->t.d, DS_ROLE_TOOL);
    return ds_talk_content(&a->t, json_object_get(m, "output"), where, "\n\n", r);
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
        return ds_talk_content(&a->t, input, "input", "", r);
    }
    if (!json_array_size(input))
        return ds_refuse(r, 400, "input", "'input' is missing, or neither a string nor an array of items");
    for (size_t i = 0; i < json_array_size(input); i++) {
        char where[32];
        snprintf(where, sizeof where, "input[%zu]", i);
        if (!read_item(a, json_array_get(input, i), where, &t, r)) return false;
    }
    return true;
}

static bool read_tools(const struct ds_call *c, struct responses *a, struct ds_refusal *r)
{
    const json_t *tools, *tool;
    size_t i;
    if (!ds_talk_member(c->body, "tools", JSON_ARRAY, &tools, r)) return false;
    a->tools = json_incref((json_t *)(uintptr_t)tools);
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool) {
        char where[32], line[160];
        const char *type = json_string_value(json_object_get(tool, "type"));
        const char *name = json_string_value(json_object_get(tool, "name"));
        snprintf(where, sizeof where, "tools[%zu]", i);
        if (type && strcmp(type, "function")) {
            snprintf(line, sizeof line, "a tool of type '%.40s' is left out: it is not one that the model could call", type);
            c->note(c, line);
        } else if (!ds_talk_tool(&a->t, name, json_object_get(tool, "description"), json_object_get(tool, "parameters"), where, r)) {
            return false;
        }
    }
    return true;
}

static bool read_chat(const struct ds_call *c, struct responses *a, struct ds_refusal *r)
{
    const json_t *v = json_object_get(c->body, "tool_choice");
    const char *mode = json_string_value(v), *name = json_string_value(json_object_get(v, "name"));
    bool parallel = true;
    if (!ds_field_bool(c->body, "parallel_tool_calls", &parallel, r)) return false;
    a->t.one_call = !parallel || name;
    a->choice = json_incref((json_t *)(uintptr_t)v);
    if (!(mode && !strcmp(mode, "none")) && !read_tools(c, a, r)) return false;
    if (!read_input(a, c->body, r)) return false;
    if (!v || json_is_null(v) || (mode && (!strcmp(mode, "auto") || !strcmp(mode, "none")))) return true;
    if (mode && !strcmp(mode, "required")) return ds_talk_force_call(&a->t, NULL, "tool_choice", r);
    if (name) return ds_talk_force_call(&a->t, name, "tool_choice", r);
    return ds_refuse(r, 400, "tool_choice", "'tool_choice' is neither none, auto, required nor {\"type\": \"function\", \"name\": ...}");
}

/* --- request ----------------------------------------------------------------------------------------------- */

static bool read_format(const json_t *body, struct ds_refusal *r)
{
    const json_t *text, *format;
    const char *type = "text";
    if (!ds_talk_member(body, "text", JSON_OBJECT, &text, r) || !ds_talk_member(text, "format", JSON_OBJECT, &format, r) ||
        !ds_field_text(format, "type", &type, r))
        return false;
    if (strcmp(type, "text")) return ds_refuse(r, 400, "text.format", "'text.format' is '%.40s': only text is supported", type);
    return true;
}

static bool read_shape(const struct ds_call *c, struct responses *a, struct ds_refusal *r)
{
    const char *previous = NULL, *effort = NULL, *instructions = NULL;
    const json_t *reasoning;
    bool background = false;
    if (!ds_field_int(c->body, "max_output_tokens", 1, INT32_MAX, &a->max_output, r) ||
        !ds_field_text(c->body, "previous_response_id", &previous, r) || !ds_field_text(c->body, "instructions", &instructions, r) ||
        !ds_field_bool(c->body, "background", &background, r) || !ds_talk_member(c->body, "reasoning", JSON_OBJECT, &reasoning, r) ||
        !ds_field_text(reasoning, "effort", &effort, r) || !read_format(c->body, r))
        return false;
    if (previous)
        return ds_refuse(r, 400, "previous_response_id",
                         "'previous_response_id' is not supported: nothing is kept here, send the earlier turns as input items");
    if (background)
        return ds_refuse(r, 400, "background", "'background' is not supported: an answer is given to the request that asks");
    if (effort) a->t.thinking = strcmp(effort, "none") && strcmp(effort, "minimal");
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
    struct responses *a = calloc(1, sizeof *a);
    struct ds_request *q = malloc(sizeof *q);
    if (!a || !q) {
        ds_refuse(&r->refusal, 503, NULL, "no memory for the request");
        free(a);
        free(q);
        return;
    }
    ds_request_init(q);
    q->label = "responses";
    a->max_output = -1;
    ds_bytes_init(&a->name, (size_t)1 << 30);
    ds_bytes_init(&a->text, (size_t)1 << 30);
    ds_bytes_init(&a->items, (size_t)1 << 30);
    r->request = q;
    r->api = &responses_api;
    r->ctx = a;
    fill(c, a, q, &r->refusal);              /* what a refusal leaves behind is freed by the server */
}

const struct ds_route ds_routes_responses[] = {
    { "POST", "/v1/responses", handle, ds_error_openai, false },
    { NULL, NULL, NULL, NULL, false }
};
