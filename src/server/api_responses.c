/* POST /v1/responses: OpenAI's other chats. Nothing is kept between requests: earlier turns come as input items. */
#include "server/responses.h"

#include "chat/value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* The name of the open call, as the client knows it. */
static void call_name(const struct responses *a, bool with_space, struct ds_json_out *j)
{
    const json_t *of = json_object_get(a->spaces, a->name.p);
    if (!of) {
        ds_jo_member_text(j, "name", &a->name);
        return;
    }
    ds_jo_member_str(j, "name", json_string_value(json_object_get(of, "name")));
    if (with_space) ds_jo_member_str(j, "namespace", json_string_value(json_object_get(of, "namespace")));
}

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
    ds_jo_member_str(j, "status", !whole ? "in_progress" : a->cut ? "incomplete" : "completed");
    if (is_call(a->item)) {
        ds_jo_member_str(j, "call_id", a->call_id);
        call_name(a, true, j);
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
        if (a->item == CALL) call_name(a, false, &j);
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

static void on_piece(void *ctx, const struct ds_piece *p, struct ds_bytes *out)
{
    struct responses *a = ctx;
    a->out = out;
    ds_talk_piece(&a->t, p);
    a->reasoning_tokens += p->id >= 0 && a->item == REASONING;
}

static bool on_complete(void *ctx, const char *text, size_t n)
{
    struct responses *a = ctx;
    return ds_talk_complete(&a->t, text, n);
}

static void on_finish(void *ctx, const struct ds_ending *f, struct ds_bytes *out)
{
    struct responses *a = ctx;
    struct ds_json_out j;
    a->out = out;
    ds_talk_finish(&a->t, f);
    a->cut = ds_talk_is_cut(&a->t, f);
    if (is_call(a->item)) a->item = NO_ITEM;         /* it was cut, and must not look whole: it has no "done" */
    close_item(a);
    if (a->t.stream) {
        response_event(a, a->cut ? "response.incomplete" : "response.completed", f, NULL);
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
    json_decref(a->spaces);
    free(a);
}

static const struct ds_api responses_api = {
    on_begin, on_started, on_progress, on_piece, on_finish, on_error, on_keepalive, on_free, on_complete
};

/* --- request ----------------------------------------------------------------------------------------------- */

static void fill(const struct ds_call *c, struct responses *a, struct ds_request *q, struct ds_refusal *r)
{
    if (ds_responses_read(c, a, q, r) && !ds_talk_listen(&a->t, said, a)) ds_refuse(r, 503, NULL, "no memory for the request");
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
