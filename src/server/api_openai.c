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

static bool on_piece(void *ctx, const struct ds_piece *p, struct ds_bytes *out)
{
    struct chat *a = ctx;
    a->out = out;
    if (a->logprobs && p->id >= 0) keep_probs(a, p);
    return ds_talk_piece(&a->t, p);
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

static const struct ds_api chat_api = { on_begin, on_started, on_progress, on_piece, on_finish, on_error, on_keepalive, on_free };

/* --- request ------------------------------------------------------------------------------------------------ */

static bool read_role(const json_t *m, const char *where, enum ds_chat_role *role, struct ds_refusal *r)
{
    static const struct { const char *name; enum ds_chat_role role; } roles[] = {
        { "system", DS_ROLE_SYSTEM }, { "developer", DS_ROLE_SYSTEM }, { "user", DS_ROLE_USER }, { "assistant", DS_ROLE_ASSISTANT },
        { "tool", DS_ROLE_TOOL },     { "function", DS_ROLE_TOOL },
    };
    const char *name = json_string_value(json_object_get(m, "role"));
    for (size_t i = 0; name && i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(name, roles[i].name)) continue;
        *role = roles[i].role;
        return true;
    }
    return ds_refuse(r, 400, where, "'%s.role' is '%.40s', expected system, developer, user, assistant or tool", where, name ? name : "");
}

static bool read_calls(struct chat *a, const json_t *m, const char *where, struct ds_refusal *r)
{
    const json_t *calls, *call;
    size_t i;
    if (!ds_talk_member(m, "tool_calls", JSON_ARRAY, &calls, r)) return false;
    json_array_foreach((json_t *)(uintptr_t)calls, i, call) {
        const json_t *f = json_object_get(call, "function");
        const char *name = json_string_value(json_object_get(f, "name"));
        if (!name) return ds_refuse(r, 400, where, "'%s.tool_calls[%zu]' has no function with a name", where, i);
        ds_dialog_call(a->t.d, name, json_object_get(f, "arguments"));
    }
    return true;
}

static bool read_message(struct chat *a, const json_t *m, size_t i, struct ds_refusal *r)
{
    char where[48], content[64];
    enum ds_chat_role role = DS_ROLE_USER;
    const char *reasoning = NULL;
    snprintf(where, sizeof where, "messages[%zu]", i);
    snprintf(content, sizeof content, "%s.content", where);
    if (!json_is_object(m)) return ds_refuse(r, 400, where, "'%s' is not an object", where);
    if (!read_role(m, where, &role, r)) return false;
    ds_dialog_begin(a->t.d, role);
    if (role != DS_ROLE_ASSISTANT) return ds_talk_content(&a->t, json_object_get(m, "content"), content, "", r);
    if (!ds_field_text(m, "reasoning_content", &reasoning, r) || (!reasoning && !ds_field_text(m, "reasoning", &reasoning, r)))
        return false;
    if (reasoning) ds_dialog_reasoning(a->t.d, reasoning, strlen(reasoning));
    return ds_talk_content(&a->t, json_object_get(m, "content"), content, "", r) && read_calls(a, m, where, r);
}

static bool read_messages(struct chat *a, const json_t *body, struct ds_refusal *r)
{
    const json_t *messages;
    if (!ds_talk_member(body, "messages", JSON_ARRAY, &messages, r)) return false;
    if (!json_array_size(messages)) return ds_refuse(r, 400, "messages", "'messages' is missing or empty");
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (!read_message(a, json_array_get(messages, i), i, r)) return false;
    return true;
}

static bool read_tools(const struct ds_call *c, struct chat *a, const json_t *body, struct ds_refusal *r)
{
    const json_t *tools, *tool;
    size_t i;
    if (!ds_talk_member(body, "tools", JSON_ARRAY, &tools, r)) return false;
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool) {
        char where[32], line[160];
        const char *type = json_string_value(json_object_get(tool, "type")), *name;
        const json_t *f = json_object_get(tool, "function");
        snprintf(where, sizeof where, "tools[%zu]", i);
        if (type && strcmp(type, "function")) {
            snprintf(line, sizeof line, "a tool of type '%.40s' is left out: it is not one that the model could call", type);
            c->note(c, line);
            continue;
        }
        name = json_string_value(json_object_get(f, "name"));
        if (!name || !*name) return ds_refuse(r, 400, where, "'%s' has no function with a name", where);
        if (!ds_talk_tool(&a->t, name, json_object_get(f, "description"), json_object_get(f, "parameters"), where, r))
            return false;
    }
    return true;
}

/* none: no tools are shown. auto: as it comes. required, or a name: the answer is made to begin with a call. */
static bool read_choice(const struct ds_call *c, struct chat *a, struct ds_refusal *r)
{
    const json_t *v = json_object_get(c->body, "tool_choice");
    const char *mode = json_string_value(v), *name = json_string_value(json_object_get(json_object_get(v, "function"), "name"));
    bool parallel = true;
    if (!ds_field_bool(c->body, "parallel_tool_calls", &parallel, r)) return false;
    a->t.one_call = !parallel;
    if (mode && !strcmp(mode, "none")) return read_messages(a, c->body, r);
    if (!read_tools(c, a, c->body, r) || !read_messages(a, c->body, r)) return false;
    if (!v || json_is_null(v) || (mode && !strcmp(mode, "auto"))) return true;
    if (mode && !strcmp(mode, "required")) return ds_talk_force_call(&a->t, NULL, "tool_choice", r);
    if (!name)
        return ds_refuse(r, 400, "tool_choice",
                         "'tool_choice' is neither none, auto, required nor {\"type\": \"function\", \"function\": {\"name\": ...}}");
    a->t.one_call = true;
    return ds_talk_force_call(&a->t, name, "tool_choice", r);
}

static bool read_format(const json_t *body, struct ds_refusal *r)
{
    const json_t *f;
    const char *type = "text";
    if (!ds_talk_member(body, "response_format", JSON_OBJECT, &f, r) || !ds_field_text(f, "type", &type, r)) return false;
    if (strcmp(type, "text"))
        return ds_refuse(r, 400, "response_format", "'response_format' is '%.40s': only text is supported", type);
    return true;
}

static bool read_shape(const struct ds_call *c, struct chat *a, struct ds_request *q, struct ds_refusal *r)
{
    int64_t n = 1, top = -1, max = -1;
    const char *effort = NULL;
    const json_t *options;
    if (!ds_field_int(c->body, "n", 1, 128, &n, r) || !ds_field_int(c->body, "max_tokens", 0, INT32_MAX, &max, r) ||
        !ds_field_int(c->body, "max_completion_tokens", 0, INT32_MAX, &max, r) || !ds_field_bool(c->body, "logprobs", &a->logprobs, r) ||
        !ds_field_int(c->body, "top_logprobs", 0, DS_LOGPROBS_MAX, &top, r) || !ds_field_text(c->body, "reasoning_effort", &effort, r) ||
        !ds_talk_member(c->body, "stream_options", JSON_OBJECT, &options, r) ||
        !ds_field_bool(options, "include_usage", &a->include_usage, r) || !read_format(c->body, r))
        return false;
    if (n != 1) return ds_refuse(r, 400, "n", "'n' is %lld, one answer at a time is given", (long long)n);
    if (top >= 0 && !a->logprobs) return ds_refuse(r, 400, "top_logprobs", "'top_logprobs' needs 'logprobs' to be true");
    if (json_object_get(c->body, "functions"))
        return ds_refuse(r, 400, "functions", "'functions' is not supported: 'tools' took its place");
    if (effort) a->t.thinking = strcmp(effort, "none") && strcmp(effort, "minimal");
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
    struct chat *a = calloc(1, sizeof *a);
    struct ds_request *q = malloc(sizeof *q);
    if (!a || !q) {
        ds_refuse(&r->refusal, 503, NULL, "no memory for the request");
        free(a);
        free(q);
        return;
    }
    ds_request_init(q);
    q->label = "chat";
    struct ds_bytes *texts[] = { &a->content, &a->reasoning, &a->calls, &a->probs, &a->chunk_probs };
    for (int i = 0; i < 5; i++) ds_bytes_init(texts[i], (size_t)1 << 30);
    r->request = q;
    r->api = &chat_api;
    r->ctx = a;
    fill(c, a, q, &r->refusal);              /* what a refusal leaves behind is freed by the server */
}

const struct ds_route ds_routes_chat[] = {
    { "POST", "/v1/chat/completions", handle, ds_error_openai, false },
    { NULL, NULL, NULL, NULL, false }
};
