/* POST /v1/chat/completions: OpenAI's chats, with reasoning_content, progress and timings added. */
#include "server/talk.h"

#include <stdlib.h>
#include <string.h>

struct chat {
    struct ds_talk t;
    bool logprobs, include_usage;
    struct ds_bytes *out;           /* where the event under way is written */
    struct ds_bytes content, reasoning, calls, probs;       /* JSON delivery: the texts; the items of two arrays */
    struct ds_bytes chunk_probs;    /* streaming: those of the tokens not told yet */
    int n_calls;
};

/* --- writing ------------------------------------------------------------------------------------------- */

static void head(const struct chat *a, const char *object, struct ds_json_out *j)
{
    ds_jo_obj(j);
    ds_jo_member_str(j, "id", a->t.id);
    ds_jo_member_str(j, "object", object);
    ds_jo_member_int(j, "created", a->t.created);
    ds_jo_member_str(j, "model", a->t.model);
}

static const char *reason(const struct chat *a, const struct ds_ending *f)
{
    if (ds_talk_is_cut(&a->t, f)) return "length";
    return ds_talk_n_calls(&a->t) ? "tool_calls" : "stop";
}

/* "name": [items that were written before] */
static void kept_array(struct ds_json_out *j, const char *name, const struct ds_bytes *items)
{
    ds_jo_key(j, name);
    ds_jo_arr(j);
    if (items->n) ds_bytes_add(j->b, items->p, items->n);
    ds_jo_arr_end(j);
}

static void probs_member(const struct chat *a, const struct ds_bytes *items, struct ds_json_out *j)
{
    ds_jo_key(j, "logprobs");
    if (!a->logprobs || !items->n) {
        ds_jo_null(j);
        return;
    }
    ds_jo_obj(j);
    kept_array(j, "content", items);
    ds_jo_key(j, "refusal");
    ds_jo_null(j);
    ds_jo_obj_end(j);
}

static void begin_chunk(struct chat *a, struct ds_json_out *j)
{
    ds_sse_begin(a->out, NULL);
    ds_jo_init(j, a->out, false);
    head(a, "chat.completion.chunk", j);
    ds_jo_key(j, "choices");
    ds_jo_arr(j);
}

static void end_chunk(struct chat *a, struct ds_json_out *j)
{
    ds_jo_obj_end(j);
    ds_sse_end(a->out);
}

/* Up to the members of a choice's delta, and from there to the end. finish NULL: there is more to come. */
static void begin_delta(struct chat *a, struct ds_json_out *j)
{
    begin_chunk(a, j);
    ds_jo_obj(j);
    ds_jo_member_int(j, "index", 0);
    ds_jo_key(j, "delta");
    ds_jo_obj(j);
}

static void end_delta(struct chat *a, struct ds_json_out *j, const char *finish)
{
    ds_jo_obj_end(j);
    probs_member(a, &a->chunk_probs, j);
    a->chunk_probs.n = 0;
    ds_jo_member_str(j, "finish_reason", finish);
    ds_jo_obj_end(j);
    ds_jo_arr_end(j);
    end_chunk(a, j);
}

/* --- what the model says -------------------------------------------------------------------------------- */

static void tell_text(struct chat *a, const char *member, struct ds_bytes *whole, const char *text, size_t n)
{
    struct ds_json_out j;
    if (!a->t.stream) {
        ds_bytes_add(whole, text, n);
        return;
    }
    begin_delta(a, &j);
    ds_jo_key(&j, member);
    ds_jo_strn(&j, text, n);
    end_delta(a, &j, NULL);
}

static void call_head(struct ds_json_out *j, const char *name, size_t n)
{
    char id[48];
    ds_make_id(id, "call_");
    ds_jo_member_str(j, "id", id);
    ds_jo_member_str(j, "type", "function");
    ds_jo_key(j, "function");
    ds_jo_obj(j);
    ds_jo_key(j, "name");
    ds_jo_strn(j, name, n);
    ds_jo_key(j, "arguments");
}

static void begin_call_delta(struct chat *a, struct ds_json_out *j)
{
    begin_delta(a, j);
    ds_jo_key(j, "tool_calls");
    ds_jo_arr(j);
    ds_jo_obj(j);
    ds_jo_member_int(j, "index", a->n_calls - 1);
}

static void end_call_delta(struct chat *a, struct ds_json_out *j)
{
    ds_jo_obj_end(j);
    ds_jo_obj_end(j);
    ds_jo_arr_end(j);
    end_delta(a, j, NULL);
}

static void stream_call(struct chat *a, const char *name, size_t n)
{
    struct ds_json_out j;
    a->n_calls++;
    begin_call_delta(a, &j);
    call_head(&j, name, n);
    ds_jo_str(&j, "");
    end_call_delta(a, &j);
}

static void stream_arguments(struct chat *a, const char *text, size_t n)
{
    struct ds_json_out j;
    begin_call_delta(a, &j);
    ds_jo_key(&j, "function");
    ds_jo_obj(&j);
    ds_jo_key(&j, "arguments");
    ds_jo_strn(&j, text, n);
    end_call_delta(a, &j);
}

/* A kept call is written in two parts: the reader tells its name, then its arguments whole. */
static void keep_call(struct chat *a, const char *name, size_t n)
{
    struct ds_json_out j;
    if (a->n_calls++) ds_bytes_puts(&a->calls, ",");
    ds_jo_init(&j, &a->calls, false);
    ds_jo_obj(&j);
    call_head(&j, name, n);
}

static void keep_arguments(struct chat *a, const char *text, size_t n)
{
    struct ds_json_out j;
    ds_jo_init(&j, &a->calls, false);
    ds_jo_strn(&j, text, n);
    ds_bytes_puts(&a->calls, "}}");
}

static void said(void *ctx, enum ds_said kind, const char *text, size_t n)
{
    struct chat *a = ctx;
    if (kind == DS_SAID_CONTENT) tell_text(a, "content", &a->content, text, n);
    if (kind == DS_SAID_REASONING) tell_text(a, "reasoning_content", &a->reasoning, text, n);
    if (kind == DS_SAID_CALL) (a->t.stream ? stream_call : keep_call)(a, text, n);
    if (kind == DS_SAID_ARGUMENTS) (a->t.stream ? stream_arguments : keep_arguments)(a, text, n);
}

/* --- probabilities --------------------------------------------------------------------------------------- */

static void token(const struct chat *a, int32_t id, float logprob, struct ds_json_out *j)
{
    const char *p;
    size_t n = ds_token_bytes(a->t.g, id, &p);
    ds_jo_key(j, "token");
    ds_jo_strn(j, p, n);
    ds_jo_key(j, "logprob");
    ds_jo_num(j, logprob);
    ds_jo_key(j, "bytes");
    ds_jo_arr(j);
    for (size_t i = 0; i < n; i++) ds_jo_int(j, (unsigned char)p[i]);
    ds_jo_arr_end(j);
}

static void keep_probs(struct chat *a, const struct ds_piece *p)
{
    struct ds_json_out j;
    struct ds_bytes *to = a->t.stream ? &a->chunk_probs : &a->probs;
    if (to->n) ds_bytes_puts(to, ",");
    ds_jo_init(&j, to, false);
    ds_jo_obj(&j);
    token(a, p->id, p->logprob, &j);
    ds_jo_key(&j, "top_logprobs");
    ds_jo_arr(&j);
    for (int i = 0; i < p->n_top; i++) {
        ds_jo_obj(&j);
        token(a, p->top[i].id, p->top[i].logprob, &j);
        ds_jo_obj_end(&j);
    }
    ds_jo_arr_end(&j);
    ds_jo_obj_end(&j);
}

/* --- events ----------------------------------------------------------------------------------------------- */

static void on_begin(void *ctx, struct ds_bytes *out)
{
    struct chat *a = ctx;
    struct ds_json_out j;
    if (!a->t.stream) return;
    a->out = out;
    begin_delta(a, &j);
    ds_jo_member_str(&j, "role", "assistant");
    ds_jo_member_str(&j, "content", "");
    end_delta(a, &j, NULL);
}

static void on_started(void *ctx, const struct ds_started *s, struct ds_bytes *out)
{
    (void)ctx;
    (void)s;
    (void)out;
}

static void on_progress(void *ctx, const struct ds_prompt_progress *p, struct ds_bytes *out)
{
    struct chat *a = ctx;
    struct ds_json_out j;
    if (!a->t.stream) return;
    a->out = out;
    begin_chunk(a, &j);
    ds_jo_arr_end(&j);
    ds_jo_progress(&j, p);
    end_chunk(a, &j);
}

static void on_piece(void *ctx, const struct ds_piece *p, struct ds_bytes *out)
{
    struct chat *a = ctx;
    a->out = out;
    if (a->logprobs && p->id >= 0) keep_probs(a, p);
    ds_talk_piece(&a->t, p);
}

static bool on_complete(void *ctx, const char *text, size_t n)
{
    struct chat *a = ctx;
    return ds_talk_complete(&a->t, text, n);
}

static void finish_stream(struct chat *a, const struct ds_ending *f)
{
    struct ds_json_out j;
    begin_delta(a, &j);
    end_delta(a, &j, reason(a, f));
    if (a->include_usage) {
        begin_chunk(a, &j);
        ds_jo_arr_end(&j);
        ds_jo_usage(&j, f);
        end_chunk(a, &j);
    }
    ds_bytes_puts(a->out, "data: [DONE]\n\n");
}

static void message(struct chat *a, struct ds_json_out *j)
{
    ds_jo_key(j, "message");
    ds_jo_obj(j);
    ds_jo_member_str(j, "role", "assistant");
    if (a->content.n || !a->calls.n) ds_jo_member_text(j, "content", &a->content);
    else ds_jo_member_str(j, "content", NULL);
    ds_jo_member_str(j, "refusal", NULL);
    if (a->reasoning.n) ds_jo_member_text(j, "reasoning_content", &a->reasoning);
    if (a->calls.n) kept_array(j, "tool_calls", &a->calls);
    ds_jo_obj_end(j);
}

static void finish_json(struct chat *a, const struct ds_ending *f)
{
    struct ds_json_out j;
    ds_jo_init(&j, a->out, false);
    head(a, "chat.completion", &j);
    ds_jo_key(&j, "choices");
    ds_jo_arr(&j);
    ds_jo_obj(&j);
    ds_jo_member_int(&j, "index", 0);
    message(a, &j);
    probs_member(a, &a->probs, &j);
    ds_jo_member_str(&j, "finish_reason", reason(a, f));
    ds_jo_obj_end(&j);
    ds_jo_arr_end(&j);
    ds_jo_usage(&j, f);
    ds_jo_obj_end(&j);
    ds_bytes_puts(a->out, "\n");
}

static void on_finish(void *ctx, const struct ds_ending *f, struct ds_bytes *out)
{
    struct chat *a = ctx;
    a->out = out;
    ds_talk_finish(&a->t, f);
    if (a->t.stream) finish_stream(a, f);
    else finish_json(a, f);
}

static void on_error(void *ctx, int status, const char *sentence, struct ds_bytes *out)
{
    struct chat *a = ctx;
    ds_failure_openai(a->t.stream, status, sentence, out);
}

static void on_keepalive(void *ctx, struct ds_bytes *out)
{
    struct chat *a = ctx;
    ds_bytes_puts(out, a->t.stream ? ": keepalive\n\n" : "\n");
}

static void on_free(void *ctx)
{
    struct chat *a = ctx;
    ds_talk_close(&a->t);
    ds_bytes_free(&a->content);
    ds_bytes_free(&a->reasoning);
    ds_bytes_free(&a->calls);
    ds_bytes_free(&a->probs);
    ds_bytes_free(&a->chunk_probs);
    free(a);
}

static const struct ds_api chat_api = {
    on_begin, on_started, on_progress, on_piece, on_finish, on_error, on_keepalive, on_free, on_complete
};

/* --- request ------------------------------------------------------------------------------------------------ */

static bool read_call(struct chat *a, const json_t *call, const char *where, struct ds_refusal *r)
{
    const json_t *f = json_object_get(call, "function");
    const char *id, *type;
    struct ds_name function = ds_name(where, "function");
    return ds_is_object(call, where, r) && ds_field_text(call, ds_name(where, "id").s, &id, r) &&
           ds_field_word(call, ds_name(where, "type").s, "function", &type, r) && ds_is_object(f, function.s, r) &&
           ds_talk_call(&a->t, f, function.s, "arguments", r);
}

static bool read_calls(struct chat *a, const json_t *m, const char *where, struct ds_refusal *r)
{
    const json_t *calls, *call;
    struct ds_name name = ds_name(where, "tool_calls");
    size_t i;
    if (!ds_field_json(m, name.s, JSON_ARRAY, &calls, r)) return false;
    json_array_foreach((json_t *)(uintptr_t)calls, i, call)
        if (!read_call(a, call, ds_item(name.s, i).s, r)) return false;
    return true;
}

static bool read_assistant(struct chat *a, const json_t *m, const char *where, struct ds_refusal *r)
{
    static const char *const names[] = { "reasoning_content", "reasoning", "refusal" };
    const json_t *text[3];
    for (int i = 0; i < 3; i++)
        if (!ds_field_json(m, ds_name(where, names[i]).s, JSON_STRING, &text[i], r)) return false;
    const json_t *reasoning = text[0] ? text[0] : text[1];
    if (reasoning) ds_dialog_reasoning(a->t.d, json_string_value(reasoning), json_string_length(reasoning));
    if (text[2]) ds_dialog_text(a->t.d, json_string_value(text[2]), json_string_length(text[2]));
    return read_calls(a, m, where, r);
}

static bool read_message(struct chat *a, const json_t *m, const char *where, struct ds_refusal *r)
{
    static const struct ds_rule others[] = {
        { DS_RULE_TEXT, "name", NULL }, { DS_RULE_TEXT, "tool_call_id", NULL }, { DS_RULE_NO_OBJECT, "audio", "only text is read here" },
        { DS_RULE_NO_OBJECT, "function_call", "'tool_calls' took its place" }, { DS_RULE_END, NULL, NULL },
    };
    enum ds_chat_role role;
    if (!ds_is_object(m, where, r) || !ds_talk_role(m, where, "system developer user assistant tool function", &role, r) ||
        !ds_field_rules(m, where, others, r))
        return false;
    ds_dialog_begin(a->t.d, role);
    return ds_talk_content(&a->t, m, ds_name(where, "content").s, "", r) &&
           (role != DS_ROLE_ASSISTANT || read_assistant(a, m, where, r));
}

static bool read_messages(struct chat *a, const json_t *body, struct ds_refusal *r)
{
    const json_t *messages;
    if (!ds_field_items(body, "messages", &messages, r)) return false;
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (!read_message(a, json_array_get(messages, i), ds_item("messages", i).s, r)) return false;
    return true;
}

static bool read_tools(const struct ds_call *c, struct chat *a, const json_t *body, struct ds_refusal *r)
{
    const json_t *tools, *tool;
    size_t i;
    if (!ds_field_json(body, "tools", JSON_ARRAY, &tools, r)) return false;
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool) {
        const char *type = NULL;
        struct ds_name where = ds_item("tools", i), of = ds_name(where.s, "type");
        if (!ds_is_object(tool, where.s, r) || !ds_field_text(tool, of.s, &type, r)) return false;
        if (type && !strcmp(type, "custom"))
            return ds_refuse(r, 400, of.s, "'%s' is 'custom', which is not supported in this API: expected function", of.s);
        if (ds_talk_leaves_out(c, type, "function")) continue;
        if (!ds_talk_tool(&a->t, json_object_get(tool, "function"), ds_name(where.s, "function").s, "parameters", r)) return false;
    }
    return true;
}

/* none: no tools are shown. auto: as it comes. required, or a name: the answer is made to begin with a call. */
static bool read_choice(const struct ds_call *c, struct chat *a, struct ds_refusal *r)
{
    const char *mode = "auto", *name = NULL, *type;
    const json_t *v = json_object_get(c->body, "tool_choice"), *f = json_object_get(v, "function");
    bool parallel = true;
    if (!ds_field_bool(c->body, "parallel_tool_calls", &parallel, r)) return false;
    if (json_is_object(v)) {
        if (!ds_field_word(v, "tool_choice.type", "function", &type, r) || !ds_is_object(f, "tool_choice.function", r) ||
            !ds_field_name(f, "tool_choice.function.name", &name, r))
            return false;
    } else if (!ds_field_word(c->body, "tool_choice", "none auto required", &mode, r)) {
        return false;
    }
    a->t.one_call = !parallel || name;
    if (strcmp(mode, "none") && !read_tools(c, a, c->body, r)) return false;
    if (!read_messages(a, c->body, r)) return false;
    return name || !strcmp(mode, "required") ? ds_talk_force_call(&a->t, name, "tool_choice", r) : true;
}

/* Fields of the API that this server does not read. */
static bool check_others(const json_t *body, struct ds_refusal *r)
{
    static const struct ds_rule rules[] = {
        { DS_RULE_TEXT, "user", NULL }, { DS_RULE_TEXT, "service_tier", NULL }, { DS_RULE_TEXT, "safety_identifier", NULL },
        { DS_RULE_TEXT, "prompt_cache_key", NULL }, { DS_RULE_TEXT, "prompt_cache_retention", NULL }, { DS_RULE_BOOL, "store", NULL },
        { DS_RULE_STRINGS, "metadata", NULL }, { DS_RULE_OBJECT, "prediction", NULL }, { DS_RULE_WORD, "verbosity", "low medium high" },
        { DS_RULE_NO_ARRAY, "functions", "'tools' took its place" }, { DS_RULE_NO_NAME, "function_call", "'tool_choice' took its place" },
        { DS_RULE_NO_OBJECT, "audio", "answers are text" }, { DS_RULE_NO_OBJECT, "web_search_options", "nothing is searched here" },
        { DS_RULE_END, NULL, NULL },
    };
    const json_t *format, *modalities, *m;
    const char *type;
    size_t i;
    if (!ds_field_rules(body, "", rules, r) || !ds_field_json(body, "response_format", JSON_OBJECT, &format, r) ||
        !ds_field_word(format, "response_format.type", "text", &type, r) ||
        !ds_field_json(body, "modalities", JSON_ARRAY, &modalities, r))
        return false;
    json_array_foreach((json_t *)(uintptr_t)modalities, i, m)
        if (!json_is_string(m) || strcmp(json_string_value(m), "text"))
            return ds_refuse(r, 400, "modalities", "'modalities' holds another than \"text\", and answers are text");
    return true;
}

static bool read_shape(const struct ds_call *c, struct chat *a, struct ds_request *q, struct ds_refusal *r)
{
    int64_t n = 1, top = -1, max = -1;
    if (!ds_field_int(c->body, "n", 1, 128, &n, r) || !ds_field_int(c->body, "max_tokens", 0, INT32_MAX, &max, r) ||
        !ds_field_int(c->body, "max_completion_tokens", 0, INT32_MAX, &max, r) || !ds_field_bool(c->body, "logprobs", &a->logprobs, r) ||
        !ds_field_int(c->body, "top_logprobs", 0, DS_LOGPROBS_MAX, &top, r) || !ds_talk_effort(&a->t, c->body, "reasoning_effort", r) ||
        !ds_field_stream_options(c->body, &a->include_usage, r) || !check_others(c->body, r))
        return false;
    if (n != 1) return ds_refuse(r, 400, "n", "'n' is %lld, one answer at a time is given", (long long)n);
    if (top >= 0 && !a->logprobs) return ds_refuse(r, 400, "top_logprobs", "'top_logprobs' needs 'logprobs' to be true");
    q->max_new = max;
    q->logprobs = !a->logprobs ? -1 : top < 0 ? 0 : (int)top;
    return true;
}

static bool fill(const struct ds_call *c, struct chat *a, struct ds_request *q, struct ds_refusal *r)
{
    if (!ds_talk_open(&a->t, c, "chatcmpl-", r) || !read_shape(c, a, q, r) || !ds_talk_common(&a->t, c, q, r) ||
        !ds_field_stops(c->body, "stop", q, r) || !read_choice(c, a, r) || !ds_talk_encode(&a->t, c, q, "messages", r))
        return false;
    return ds_talk_listen(&a->t, said, a) ? true : ds_refuse(r, 503, NULL, "no memory for the request");
}

static void handle(const struct ds_call *c, struct ds_reply *r)
{
    struct chat *a = ds_reply_by_engine(r, &chat_api, sizeof *a, "chat");
    if (!a) return;
    struct ds_bytes *texts[] = { &a->content, &a->reasoning, &a->calls, &a->probs, &a->chunk_probs };
    for (int i = 0; i < 5; i++) ds_bytes_init(texts[i], (size_t)1 << 30);
    fill(c, a, r->request, &r->refusal);
}

const struct ds_route ds_routes_chat[] = {
    { "POST", "/v1/chat/completions", handle, ds_error_openai, false },
    { NULL, NULL, NULL, NULL, false }
};
