/* POST /v1/messages and /v1/messages/count_tokens: Anthropic's chats. Progress goes into ping events. */
#include "server/talk.h"

#include <stdlib.h>
#include <string.h>

enum block { NO_BLOCK, THINKING, TEXT, TOOL_USE };

struct messages {
    struct ds_talk t;
    struct ds_bytes *out;           /* where the event under way is written */
    struct ds_started started;
    enum block block;               /* the one that is open */
    int n_blocks;                   /* those that were opened */
    struct ds_bytes blocks;         /* JSON delivery: items of "content" */
    struct ds_bytes text;           /* JSON delivery: of the open block */
    char *tool;                     /* the name of the call that is being told */
};

/* --- errors ---------------------------------------------------------------------------------------------- */

static const char *error_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status < 500 ? "invalid_request_error" : "api_error";
    }
}

void ds_error_anthropic(const struct ds_refusal *r, struct ds_bytes *out)
{
    struct ds_json_out j;
    ds_jo_init(&j, out, false);
    ds_jo_obj(&j);
    ds_jo_member_str(&j, "type", "error");
    ds_jo_key(&j, "error");
    ds_jo_obj(&j);
    ds_jo_member_str(&j, "type", error_type(r->status));
    ds_jo_member_str(&j, "message", r->msg);
    ds_jo_obj_end(&j);
    ds_jo_obj_end(&j);
}

/* --- writing --------------------------------------------------------------------------------------------- */

static void begin_event(struct messages *a, struct ds_json_out *j, const char *type)
{
    ds_sse_begin(a->out, type);
    ds_jo_init(j, a->out, false);
    ds_jo_obj(j);
    ds_jo_member_str(j, "type", type);
}

static void end_event(struct messages *a, struct ds_json_out *j)
{
    ds_jo_obj_end(j);
    ds_sse_end(a->out);
}

/* Here the tokens that were not cached are counted apart from those that were. */
static void usage(struct ds_json_out *j, int64_t prompt, int64_t cached, int64_t completion)
{
    ds_jo_key(j, "usage");
    ds_jo_obj(j);
    ds_jo_member_int(j, "input_tokens", prompt - cached);
    ds_jo_member_int(j, "cache_creation_input_tokens", 0);
    ds_jo_member_int(j, "cache_read_input_tokens", cached);
    ds_jo_member_int(j, "output_tokens", completion);
    ds_jo_obj_end(j);
}

static void message_head(const struct messages *a, struct ds_json_out *j)
{
    ds_jo_member_str(j, "id", a->t.id);
    ds_jo_member_str(j, "type", "message");
    ds_jo_member_str(j, "role", "assistant");
    ds_jo_member_str(j, "model", a->t.model);
}

static const char *stop_reason(const struct messages *a, const struct ds_ending *f)
{
    if (ds_talk_is_cut(&a->t, f)) return f->reason == DS_FINISH_WINDOW ? "model_context_window_exceeded" : "max_tokens";
    if (ds_talk_n_calls(&a->t)) return "tool_use";
    return ds_talk_reason(&a->t, f) == DS_FINISH_STOP ? "stop_sequence" : "end_turn";
}

static void stop_members(const struct messages *a, const struct ds_ending *f, struct ds_json_out *j)
{
    ds_jo_member_str(j, "stop_reason", stop_reason(a, f));
    ds_jo_member_str(j, "stop_sequence", ds_talk_reason(&a->t, f) == DS_FINISH_STOP ? f->stop : NULL);
}

/* --- blocks ---------------------------------------------------------------------------------------------- */

static const char *const block_types[] = { "", "thinking", "text", "tool_use" };

/* The members of a block that has no content yet; tool: the name of a call. */
static void block_head(struct ds_json_out *j, enum block kind, const char *tool)
{
    char id[48];
    ds_jo_obj(j);
    ds_jo_member_str(j, "type", block_types[kind]);
    if (kind != TOOL_USE) return;
    ds_make_id(id, "toolu_");
    ds_jo_member_str(j, "id", id);
    ds_jo_member_str(j, "name", tool);
}

static void keep_block(struct messages *a)
{
    struct ds_json_out j;
    if (a->n_blocks > 1) ds_bytes_puts(&a->blocks, ",");
    ds_jo_init(&j, &a->blocks, false);
    block_head(&j, a->block, a->tool);
    if (a->block == TOOL_USE) {
        ds_jo_key(&j, "input");
        ds_bytes_add(&a->blocks, a->text.p, a->text.n);      /* an object's text */
        ds_bytes_puts(&a->blocks, "}");
    } else {
        ds_jo_member_text(&j, block_types[a->block], &a->text);
        if (a->block == THINKING) ds_jo_member_str(&j, "signature", "");
        ds_jo_obj_end(&j);
    }
    a->text.n = 0;
}

/* One delta of the open block. */
static void delta(struct messages *a, const char *type, const char *member, const char *text, size_t n)
{
    struct ds_json_out j;
    begin_event(a, &j, "content_block_delta");
    ds_jo_member_int(&j, "index", a->n_blocks - 1);
    ds_jo_key(&j, "delta");
    ds_jo_obj(&j);
    ds_jo_member_str(&j, "type", type);
    ds_jo_key(&j, member);
    ds_jo_strn(&j, text, n);
    ds_jo_obj_end(&j);
    end_event(a, &j);
}

/* Clients that keep the signature of a thinking block take it from its last delta: here it is empty. */
static void close_block(struct messages *a)
{
    struct ds_json_out j;
    if (a->block == NO_BLOCK) return;
    if (!a->t.stream) {
        keep_block(a);
    } else {
        if (a->block == THINKING) delta(a, "signature_delta", "signature", "", 0);
        begin_event(a, &j, "content_block_stop");
        ds_jo_member_int(&j, "index", a->n_blocks - 1);
        end_event(a, &j);
    }
    a->block = NO_BLOCK;
}

static void open_block(struct messages *a, enum block kind)
{
    struct ds_json_out j;
    if (a->block == kind && kind != TOOL_USE) return;
    close_block(a);
    a->block = kind;
    a->n_blocks++;
    if (!a->t.stream) return;
    begin_event(a, &j, "content_block_start");
    ds_jo_member_int(&j, "index", a->n_blocks - 1);
    ds_jo_key(&j, "content_block");
    block_head(&j, kind, a->tool);
    if (kind == TOOL_USE) {
        ds_jo_key(&j, "input");
        ds_jo_obj(&j);
        ds_jo_obj_end(&j);
    } else {
        ds_jo_member_str(&j, block_types[kind], "");
        if (kind == THINKING) ds_jo_member_str(&j, "signature", "");
    }
    ds_jo_obj_end(&j);
    end_event(a, &j);
}

static void add(struct messages *a, const char *text, size_t n)
{
    static const char *const types[] = { "", "thinking_delta", "text_delta", "input_json_delta" };
    static const char *const members[] = { "", "thinking", "text", "partial_json" };
    if (a->t.stream) delta(a, types[a->block], members[a->block], text, n);
    else ds_bytes_add(&a->text, text, n);
}

static void said(void *ctx, enum ds_said kind, const char *text, size_t n)
{
    static const enum block of[] = { [DS_SAID_CONTENT] = TEXT, [DS_SAID_REASONING] = THINKING, [DS_SAID_CALL] = TOOL_USE };
    struct messages *a = ctx;
    if (kind == DS_SAID_CALL_END) {
        close_block(a);
        return;
    }
    if (kind == DS_SAID_CALL) {
        close_block(a);
        free(a->tool);
        a->tool = malloc(n + 1);
        if (a->tool) {
            memcpy(a->tool, text, n);
            a->tool[n] = 0;
        }
    }
    if (kind != DS_SAID_ARGUMENTS) open_block(a, of[kind]);
    if (kind != DS_SAID_CALL) add(a, text, n);
}

/* --- events ---------------------------------------------------------------------------------------------- */

static void on_begin(void *ctx, struct ds_bytes *out)
{
    struct messages *a = ctx;
    struct ds_json_out j;
    a->out = out;
    if (!a->t.stream) return;
    begin_event(a, &j, "ping");              /* what was cached is not known yet, and message_start tells it */
    end_event(a, &j);
}

static void on_started(void *ctx, const struct ds_started *s, struct ds_bytes *out)
{
    struct messages *a = ctx;
    struct ds_json_out j;
    a->out = out;
    if (!a->t.stream) return;
    begin_event(a, &j, "message_start");
    ds_jo_key(&j, "message");
    ds_jo_obj(&j);
    message_head(a, &j);
    ds_jo_key(&j, "content");
    ds_jo_arr(&j);
    ds_jo_arr_end(&j);
    ds_jo_member_str(&j, "stop_reason", NULL);
    ds_jo_member_str(&j, "stop_sequence", NULL);
    usage(&j, s->prompt, s->cached, 0);
    ds_jo_obj_end(&j);
    end_event(a, &j);
}

static void on_progress(void *ctx, const struct ds_prompt_progress *p, struct ds_bytes *out)
{
    struct messages *a = ctx;
    struct ds_json_out j;
    if (!a->t.stream) return;
    a->out = out;
    begin_event(a, &j, "ping");
    ds_jo_progress(&j, p);
    end_event(a, &j);
}

static void on_piece(void *ctx, const struct ds_piece *p, struct ds_bytes *out)
{
    struct messages *a = ctx;
    a->out = out;
    ds_talk_piece(&a->t, p);
}

static bool on_complete(void *ctx, const char *text, size_t n)
{
    struct messages *a = ctx;
    return ds_talk_complete(&a->t, text, n);
}

static void finish_stream(struct messages *a, const struct ds_ending *f)
{
    struct ds_json_out j;
    begin_event(a, &j, "message_delta");
    ds_jo_key(&j, "delta");
    ds_jo_obj(&j);
    stop_members(a, f, &j);
    ds_jo_obj_end(&j);
    usage(&j, f->prompt, f->cached, f->completion);
    end_event(a, &j);
    begin_event(a, &j, "message_stop");
    end_event(a, &j);
}

static void finish_json(struct messages *a, const struct ds_ending *f)
{
    struct ds_json_out j;
    ds_jo_init(&j, a->out, false);
    ds_jo_obj(&j);
    message_head(a, &j);
    ds_jo_key(&j, "content");
    ds_jo_arr(&j);
    if (a->blocks.n) ds_bytes_add(a->out, a->blocks.p, a->blocks.n);
    ds_jo_arr_end(&j);
    stop_members(a, f, &j);
    usage(&j, f->prompt, f->cached, f->completion);
    ds_jo_obj_end(&j);
    ds_bytes_puts(a->out, "\n");
}

static void on_finish(void *ctx, const struct ds_ending *f, struct ds_bytes *out)
{
    struct messages *a = ctx;
    a->out = out;
    ds_talk_finish(&a->t, f);
    close_block(a);
    if (a->t.stream) finish_stream(a, f);
    else finish_json(a, f);
}

static void on_error(void *ctx, int status, const char *sentence, struct ds_bytes *out)
{
    struct messages *a = ctx;
    struct ds_refusal r;
    ds_refuse(&r, status, NULL, "%s", sentence);
    if (a->t.stream) ds_sse_begin(out, "error");
    ds_error_anthropic(&r, out);
    if (a->t.stream) ds_sse_end(out);
}

static void on_keepalive(void *ctx, struct ds_bytes *out)
{
    struct messages *a = ctx;
    ds_bytes_puts(out, a->t.stream ? "event: ping\ndata: {\"type\": \"ping\"}\n\n" : "\n");
}

static void on_free(void *ctx)
{
    struct messages *a = ctx;
    ds_talk_close(&a->t);
    ds_bytes_free(&a->blocks);
    ds_bytes_free(&a->text);
    free(a->tool);
    free(a);
}

static const struct ds_api messages_api = {
    on_begin, on_started, on_progress, on_piece, on_finish, on_error, on_keepalive, on_free, on_complete
};

/* --- the system prompt ------------------------------------------------------------------------------------ */

/* A coding agent puts a line with a hash of each request at the head of its system prompt, which would make
 * every prompt differ from its second line on. The length of that line with its end; 0: there is none. */
static size_t nonce_line(const char *s)
{
    static const char name[] = "x-anthropic-billing-header:";
    if (strncmp(s, name, sizeof name - 1)) return 0;
    size_t n = strcspn(s, "\n");
    return n + (s[n] == '\n');
}

/* The first text of the system prompt without its nonce; the rest as it is. */
static bool read_system_without(struct messages *a, const json_t *v, const json_t *first, size_t skip, struct ds_refusal *r)
{
    size_t left = json_string_length(first) - skip;
    const json_t *cache;
    if (json_is_array(v) && !ds_field_json(json_array_get(v, 0), "system[0].cache_control", JSON_OBJECT, &cache, r)) return false;
    ds_dialog_text(a->t.d, json_string_value(first) + skip, left);
    for (size_t i = 1; json_is_array(v) && i < json_array_size(v); i++) {
        if (left || i > 1) ds_dialog_text(a->t.d, "\n\n", 2);
        if (!ds_talk_part(&a->t, json_array_get(v, i), ds_item("system", i).s, r)) return false;
    }
    return true;
}

static bool read_system(const struct ds_call *c, struct messages *a, struct ds_refusal *r)
{
    const json_t *v = json_object_get(c->body, "system");
    const json_t *first = json_is_array(v) ? json_object_get(json_array_get(v, 0), "text") : v;
    if (!v || json_is_null(v)) return true;
    ds_dialog_begin(a->t.d, DS_ROLE_SYSTEM);
    size_t skip = json_is_string(first) && !c->options->keep_nonce ? nonce_line(json_string_value(first)) : 0;
    if (!skip) return ds_talk_content(&a->t, c->body, "system", "\n\n", r);
    c->note(c, "nonce: the x-anthropic-billing-header line at the head of the system prompt is taken out");
    return read_system_without(a, v, first, skip, r);
}

/* --- messages --------------------------------------------------------------------------------------------- */

static bool read_type(const json_t *block, const char *where, const char **type, struct ds_refusal *r)
{
    struct ds_name name = ds_name(where, "type");
    if (!ds_is_object(block, where, r) || !ds_field_name(block, name.s, type, r)) return false;
    if (!strcmp(*type, "image") || !strcmp(*type, "document"))
        return ds_refuse(r, 400, name.s, "'%s' is '%s': only text is read here", name.s, *type);
    return true;
}

/* One block of a tool's answer: those that are no text are shown as their JSON. */
static bool read_result_block(struct messages *a, const json_t *b, const char *where, struct ds_refusal *r)
{
    const char *type;
    if (!read_type(b, where, &type, r)) return false;
    if (!strcmp(type, "text")) return ds_talk_part(&a->t, b, where, r);
    ds_talk_json(&a->t, b);
    return true;
}

static bool read_result(struct messages *a, const json_t *block, const char *where, struct ds_refusal *r)
{
    const json_t *content = json_object_get(block, "content"), *b;
    struct ds_name name = ds_name(where, "content");
    const char *id;
    bool failed;
    size_t i;
    if (!ds_field_text(block, ds_name(where, "tool_use_id").s, &id, r) || !ds_field_bool(block, ds_name(where, "is_error").s, &failed, r))
        return false;
    ds_dialog_begin(a->t.d, DS_ROLE_TOOL);
    if (!json_is_array(content)) return ds_talk_content(&a->t, block, name.s, "", r);
    json_array_foreach((json_t *)(uintptr_t)content, i, b) {
        if (i) ds_dialog_text(a->t.d, "\n\n", 2);
        if (!read_result_block(a, b, ds_item(name.s, i).s, r)) return false;
    }
    return true;
}

/* What a turn's blocks have come to: is its message begun, and are there words in it? */
struct turn { enum ds_chat_role role; bool open, words; };

static void begin_in_turn(struct messages *a, struct turn *t)
{
    if (t->open) return;
    ds_dialog_begin(a->t.d, t->role);
    t->open = true;
    t->words = false;
}

static void gap_in_turn(struct messages *a, struct turn *t)
{
    if (t->words) ds_dialog_text(a->t.d, "\n\n", 2);
    t->words = true;
}

static bool read_thinking_block(struct messages *a, const json_t *b, const char *where, struct ds_refusal *r)
{
    const json_t *text;
    const char *signature;
    if (!ds_field_json(b, ds_name(where, "thinking").s, JSON_STRING, &text, r) ||
        !ds_field_text(b, ds_name(where, "signature").s, &signature, r))
        return false;
    if (text) ds_dialog_reasoning(a->t.d, json_string_value(text), json_string_length(text));
    return true;
}

/* One block of a turn. Of an assistant's turn: thinking, text and calls are one message. Of a user's: each answer of a tool
 * is a message, and texts in a row are one. */
static bool read_block(struct messages *a, const json_t *b, struct turn *t, const char *where, struct ds_refusal *r)
{
    const char *type, *id;
    const json_t *cache;
    if (!read_type(b, where, &type, r) || !ds_field_json(b, ds_name(where, "cache_control").s, JSON_OBJECT, &cache, r)) return false;
    if (!strcmp(type, "tool_result")) {
        t->open = false;
        return read_result(a, b, where, r);
    }
    if (!strcmp(type, "redacted_thinking")) return true;
    begin_in_turn(a, t);
    if (!strcmp(type, "thinking")) return read_thinking_block(a, b, where, r);
    if (!strcmp(type, "tool_use") && t->role == DS_ROLE_ASSISTANT)
        return ds_field_text(b, ds_name(where, "id").s, &id, r) && ds_talk_call(&a->t, b, where, "input", r);
    gap_in_turn(a, t);
    if (!strcmp(type, "text")) return ds_talk_part(&a->t, b, where, r);
    ds_talk_json(&a->t, b);                  /* a kind that this server does not know: the model sees what it is */
    return true;
}

static bool read_message(struct messages *a, const json_t *m, const char *where, struct ds_refusal *r)
{
    const json_t *content = json_object_get(m, "content"), *b;
    struct turn t = { .open = false };
    size_t k;
    if (!ds_is_object(m, where, r) || !ds_talk_role(m, where, "user assistant system", &t.role, r)) return false;
    if (!json_is_array(content) || !json_array_size(content)) begin_in_turn(a, &t);
    struct ds_name name = ds_name(where, "content");
    if (!json_is_array(content)) return ds_talk_content(&a->t, m, name.s, "", r);
    json_array_foreach((json_t *)(uintptr_t)content, k, b)
        if (!read_block(a, b, &t, ds_item(name.s, k).s, r)) return false;
    return true;
}

static bool read_messages(struct messages *a, const json_t *body, struct ds_refusal *r)
{
    const json_t *messages;
    if (!ds_field_items(body, "messages", &messages, r)) return false;
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (!read_message(a, json_array_get(messages, i), ds_item("messages", i).s, r)) return false;
    return true;
}

/* --- request ---------------------------------------------------------------------------------------------- */

/* The shell tool that clients run themselves has a type in place of its schema, which is published. Other tools without one are
 * run by the API's owner, or differ from version to version: the model cannot call them. */
static bool add_shell(struct messages *a, const json_t *tool, const char *where, struct ds_refusal *r)
{
    json_t *f = json_copy((json_t *)(uintptr_t)tool);
    json_t *schema = json_pack("{s:s, s:{s:{s:s, s:s}, s:{s:s, s:s}}}", "type", "object", "properties", "command", "type", "string",
                               "description", "What to run in the shell, which stays open between calls.", "restart", "type", "boolean",
                               "description", "True: a new shell is started, and nothing is run.");
    bool ok = f && schema && !json_object_set(f, "input_schema", schema);
    ok = ok ? ds_talk_tool(&a->t, f, where, "input_schema", r) : ds_refuse(r, 503, NULL, "no memory for the request");
    json_decref(schema);
    json_decref(f);
    return ok;
}

static bool read_tools(const struct ds_call *c, struct messages *a, struct ds_refusal *r)
{
    const json_t *tools, *tool;
    size_t i;
    if (!ds_field_json(c->body, "tools", JSON_ARRAY, &tools, r)) return false;
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool) {
        const char *type = NULL;
        const json_t *cache;
        struct ds_name where = ds_item("tools", i);
        if (!ds_is_object(tool, where.s, r) || !ds_field_text(tool, ds_name(where.s, "type").s, &type, r) ||
            !ds_field_json(tool, ds_name(where.s, "cache_control").s, JSON_OBJECT, &cache, r))
            return false;
        bool bare = !json_object_get(tool, "input_schema");
        if (bare && type && !strncmp(type, "bash_", 5)) {
            if (!add_shell(a, tool, where.s, r)) return false;
            continue;
        }
        if (bare && ds_talk_leaves_out(c, type, "custom")) continue;
        if (!ds_talk_tool(&a->t, tool, where.s, "input_schema", r)) return false;
    }
    return true;
}

static bool read_chat(const struct ds_call *c, struct messages *a, struct ds_refusal *r)
{
    const json_t *choice;
    const char *type = "auto", *name = NULL;
    bool no_parallel = false;
    if (!ds_field_json(c->body, "tool_choice", JSON_OBJECT, &choice, r) ||
        !ds_field_word(choice, "tool_choice.type", "auto any tool none", &type, r) ||
        !ds_field_text(choice, "tool_choice.name", &name, r) ||
        !ds_field_bool(choice, "tool_choice.disable_parallel_tool_use", &no_parallel, r))
        return false;
    bool named = !strcmp(type, "tool");
    if (named && !ds_field_name(choice, "tool_choice.name", &name, r)) return false;
    a->t.one_call = no_parallel || named;
    if (strcmp(type, "none") && !read_tools(c, a, r)) return false;
    if (!read_system(c, a, r) || !read_messages(a, c->body, r)) return false;
    return named || !strcmp(type, "any") ? ds_talk_force_call(&a->t, named ? name : NULL, "tool_choice", r) : true;
}

/* Thinking is off in this API unless the request turns it on. */
static bool read_thinking(const struct ds_call *c, struct messages *a, struct ds_refusal *r)
{
    const json_t *o;
    const char *type = "disabled", *display;
    int64_t budget;
    if (!ds_field_json(c->body, "thinking", JSON_OBJECT, &o, r) ||
        !ds_field_word(o, "thinking.type", "enabled adaptive disabled", &type, r) ||
        !ds_field_int(o, "thinking.budget_tokens", 1, INT32_MAX, &budget, r) || !ds_field_text(o, "thinking.display", &display, r))
        return false;
    a->t.thinking = strcmp(type, "disabled") != 0;
    return true;
}

/* Fields of the API that this server does not read. */
static bool check_others(const json_t *body, struct ds_refusal *r)
{
    static const struct ds_rule rules[] = {
        { DS_RULE_OBJECT, "metadata", NULL }, { DS_RULE_TEXT, "service_tier", NULL }, { DS_RULE_TEXT, "inference_geo", NULL },
        { DS_RULE_OBJECT, "context_management", NULL }, { DS_RULE_OBJECT, "cache_control", NULL },
        { DS_RULE_NO_NAME, "container", "nothing is run here" }, { DS_RULE_NO_ARRAY, "mcp_servers", "tools of other servers are not called here" },
        { DS_RULE_NO_OBJECT, "output_format", "answers are held to no schema" }, { DS_RULE_END, NULL, NULL },
    };
    static const struct ds_rule of_output[] = {
        { DS_RULE_WORD, "effort", "low medium high xhigh max" }, { DS_RULE_NO_OBJECT, "format", "answers are held to no schema" },
        { DS_RULE_END, NULL, NULL },
    };
    const json_t *output, *edits, *metadata = json_object_get(body, "metadata"), *context = json_object_get(body, "context_management");
    const char *user;
    return ds_field_rules(body, "", rules, r) && ds_field_text(metadata, "metadata.user_id", &user, r) &&
           ds_field_objects(context, "context_management.edits", NULL, &edits, r) &&
           ds_field_json(body, "output_config", JSON_OBJECT, &output, r) && ds_field_rules(output, "output_config", of_output, r);
}

static bool read_all(const struct ds_call *c, struct messages *a, struct ds_request *q, struct ds_refusal *r)
{
    return ds_talk_open(&a->t, c, "msg_", r) && read_thinking(c, a, r) && check_others(c->body, r) &&
           ds_talk_common(&a->t, c, q, r) && read_chat(c, a, r);
}

static bool fill(const struct ds_call *c, struct messages *a, struct ds_request *q, struct ds_refusal *r)
{
    int64_t max = 0;
    if (!ds_field_int(c->body, "max_tokens", 1, INT32_MAX, &max, r)) return false;
    if (!max) return ds_refuse(r, 400, "max_tokens", "'max_tokens' is missing");
    if (!read_all(c, a, q, r) || !ds_field_stops(c->body, "stop_sequences", q, r) || !ds_talk_encode(&a->t, c, q, "messages", r))
        return false;
    q->max_new = max;
    return ds_talk_listen(&a->t, said, a) ? true : ds_refuse(r, 503, NULL, "no memory for the request");
}

static void handle(const struct ds_call *c, struct ds_reply *r)
{
    struct messages *a = ds_reply_by_engine(r, &messages_api, sizeof *a, "messages");
    if (!a) return;
    ds_bytes_init(&a->blocks, (size_t)1 << 30);
    ds_bytes_init(&a->text, (size_t)1 << 30);
    fill(c, a, r->request, &r->refusal);
}

static void say_nothing(const struct ds_call *c, const char *sentence)
{
    (void)c;
    (void)sentence;
}

/* The same chat, its ids counted. A prompt past the window has a count too. What there is to note, the request itself notes. */
static void count_tokens(const struct ds_call *c, struct ds_reply *r)
{
    struct messages a = { .n_blocks = 0 };
    struct ds_request q;
    struct ds_json_out j;
    struct ds_call silent = *c;
    silent.note = say_nothing;
    ds_request_init(&q);
    if (read_all(&silent, &a, &q, &r->refusal) && (ds_talk_encode(&a.t, c, &q, "messages", &r->refusal) || q.prompt.n)) {
        r->refusal.status = 0;
        ds_jo_init(&j, &r->body, false);
        ds_jo_obj(&j);
        ds_jo_member_int(&j, "input_tokens", (int64_t)q.prompt.n);
        ds_jo_obj_end(&j);
        ds_bytes_puts(&r->body, "\n");
    }
    ds_request_free(&q);
    ds_talk_close(&a.t);
}

const struct ds_route ds_routes_messages[] = {
    { "POST", "/v1/messages", handle, ds_error_anthropic, false },
    { "POST", "/v1/messages/count_tokens", count_tokens, ds_error_anthropic, false },
    { NULL, NULL, NULL, NULL, false }
};
