/* POST /v1/completions: text (or token ids) in, its continuation out. OpenAI's shapes, with ids, progress and timings added. */
#include "server/api.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

struct completion {
    const ds_engine *g;
    char id[48];
    int64_t created;
    char *model;                    /* as the client named it */
    bool echo, logprobs, stream, include_usage;
    char *prompt; size_t n_prompt;  /* for echo; NULL otherwise */
    struct ds_bytes text;           /* whole answer: JSON delivery only */
    struct ds_bytes probs[4];       /* JSON delivery: the four arrays of "logprobs", without brackets */
    int64_t offset;                 /* text offset of the next token */
};

/* --- writing -------------------------------------------------------------------------------------------- */

static void head(const struct completion *a, struct ds_json_out *j)
{
    ds_jo_obj(j);
    ds_jo_member_str(j, "id", a->id);
    ds_jo_member_str(j, "object", "text_completion");
    ds_jo_member_int(j, "created", a->created);
    ds_jo_member_str(j, "model", a->model);
}

static const char *reason(enum ds_finish f)
{
    return f == DS_FINISH_LENGTH || f == DS_FINISH_WINDOW ? "length" : "stop";
}

static void token_text(const struct completion *a, int32_t id, struct ds_json_out *j)
{
    const char *p;
    size_t n = ds_token_bytes(a->g, id, &p);
    ds_jo_strn(j, p, n);
}

static void top_probs(const struct completion *a, const struct ds_piece *p, struct ds_json_out *j)
{
    ds_jo_obj(j);
    for (int i = 0; i < p->n_top; i++) {
        const char *s;
        char key[256];
        size_t n = ds_token_bytes(a->g, p->top[i].id, &s);
        if (n >= sizeof key) n = sizeof key - 1;
        memcpy(key, s, n);
        key[n] = 0;
        ds_jo_key(j, key);
        ds_jo_num(j, p->top[i].logprob);
    }
    ds_jo_obj_end(j);
}

/* The i-th of the arrays that "logprobs" consists of, for one token. */
static const char *const prob_names[4] = { "tokens", "token_logprobs", "top_logprobs", "text_offset" };
static void prob_item(const struct completion *a, int i, const struct ds_piece *p, struct ds_json_out *j)
{
    if (i == 0) token_text(a, p->id, j);
    else if (i == 1) ds_jo_num(j, p->logprob);
    else if (i == 2) top_probs(a, p, j);
    else ds_jo_int(j, a->offset);
}

static void token_probs(const struct completion *a, const struct ds_piece *p, struct ds_json_out *j)
{
    ds_jo_key(j, "logprobs");
    if (!a->logprobs || p->id < 0) {
        ds_jo_null(j);
        return;
    }
    ds_jo_obj(j);
    for (int i = 0; i < 4; i++) {
        ds_jo_key(j, prob_names[i]);
        ds_jo_arr(j);
        prob_item(a, i, p, j);
        ds_jo_arr_end(j);
    }
    ds_jo_obj_end(j);
}

/* An event: up to its choices, and its end. */
static void begin_event(const struct completion *a, struct ds_json_out *j, struct ds_bytes *out)
{
    ds_sse_begin(out, NULL);
    ds_jo_init(j, out, false);
    head(a, j);
    ds_jo_key(j, "choices");
    ds_jo_arr(j);
}

static void end_event(struct ds_json_out *j, struct ds_bytes *out)
{
    ds_jo_obj_end(j);
    ds_sse_end(out);
}

/* The one choice of a streamed event; finish NULL: there is more to come. */
static void chunk(struct completion *a, const struct ds_piece *p, const char *finish, struct ds_bytes *out)
{
    struct ds_json_out j;
    begin_event(a, &j, out);
    ds_jo_obj(&j);
    ds_jo_key(&j, "index");
    ds_jo_int(&j, 0);
    ds_jo_key(&j, "text");
    ds_jo_strn(&j, p->text, p->n);
    token_probs(a, p, &j);
    ds_jo_key(&j, "finish_reason");
    ds_jo_str(&j, finish);
    ds_jo_obj_end(&j);
    ds_jo_arr_end(&j);
    end_event(&j, out);
}

static void echo_chunk(struct completion *a, struct ds_bytes *out)
{
    struct ds_piece p = { .text = a->prompt, .n = a->n_prompt, .id = -1 };
    if (a->stream) chunk(a, &p, NULL, out);
    else ds_bytes_add(&a->text, a->prompt, a->n_prompt);
    a->offset += (int64_t)a->n_prompt;
}

/* --- events ----------------------------------------------------------------------------------------------- */

static void on_begin(void *ctx, struct ds_bytes *out)
{
    struct completion *a = ctx;
    if (a->echo) echo_chunk(a, out);
}

static void on_started(void *ctx, const struct ds_started *s, struct ds_bytes *out)
{
    (void)ctx;
    (void)s;
    (void)out;
}

static void on_progress(void *ctx, const struct ds_prompt_progress *p, struct ds_bytes *out)
{
    struct completion *a = ctx;
    struct ds_json_out j;
    if (!a->stream) return;
    begin_event(a, &j, out);
    ds_jo_arr_end(&j);
    ds_jo_progress(&j, p);
    end_event(&j, out);
}

static void keep_probs(struct completion *a, const struct ds_piece *p)
{
    for (int i = 0; i < 4; i++) {
        struct ds_json_out j;
        if (a->probs[i].n) ds_bytes_puts(&a->probs[i], ",");
        ds_jo_init(&j, &a->probs[i], false);
        prob_item(a, i, p, &j);
    }
}

static void on_piece(void *ctx, const struct ds_piece *p, struct ds_bytes *out)
{
    struct completion *a = ctx;
    bool probs = a->logprobs && p->id >= 0;
    if (!a->stream) {
        ds_bytes_add(&a->text, p->text, p->n);
        if (probs) keep_probs(a, p);
    } else if (p->n || probs) {
        chunk(a, p, NULL, out);
    }
    if (p->id >= 0) {
        const char *bytes;
        a->offset += (int64_t)ds_token_bytes(a->g, p->id, &bytes);
    }
}

static void finish_stream(struct completion *a, const struct ds_ending *f, struct ds_bytes *out)
{
    struct ds_piece none = { .text = "", .id = -1 };
    chunk(a, &none, reason(f->reason), out);
    if (a->include_usage) {
        struct ds_json_out j;
        begin_event(a, &j, out);
        ds_jo_arr_end(&j);
        ds_jo_usage(&j, f);
        end_event(&j, out);
    }
    ds_bytes_puts(out, "data: [DONE]\n\n");
}

static void kept_probs(struct completion *a, struct ds_json_out *j)
{
    ds_jo_key(j, "logprobs");
    if (!a->logprobs) {
        ds_jo_null(j);
        return;
    }
    ds_jo_obj(j);
    for (int i = 0; i < 4; i++) {
        ds_jo_key(j, prob_names[i]);
        ds_jo_arr(j);
        ds_bytes_add(j->b, a->probs[i].p, a->probs[i].n);
        ds_jo_arr_end(j);
    }
    ds_jo_obj_end(j);
}

static void finish_json(struct completion *a, const struct ds_ending *f, struct ds_bytes *out)
{
    struct ds_json_out j;
    ds_jo_init(&j, out, false);
    head(a, &j);
    ds_jo_key(&j, "choices");
    ds_jo_arr(&j);
    ds_jo_obj(&j);
    ds_jo_key(&j, "index");
    ds_jo_int(&j, 0);
    ds_jo_key(&j, "text");
    ds_jo_strn(&j, a->text.p ? a->text.p : "", a->text.n);
    kept_probs(a, &j);
    ds_jo_key(&j, "finish_reason");
    ds_jo_str(&j, reason(f->reason));
    ds_jo_obj_end(&j);
    ds_jo_arr_end(&j);
    ds_jo_usage(&j, f);
    ds_jo_obj_end(&j);
    ds_bytes_puts(out, "\n");
}

static void on_finish(void *ctx, const struct ds_ending *f, struct ds_bytes *out)
{
    struct completion *a = ctx;
    if (a->stream) finish_stream(a, f, out);
    else finish_json(a, f, out);
}

static void on_error(void *ctx, int status, const char *sentence, struct ds_bytes *out)
{
    struct completion *a = ctx;
    ds_failure_openai(a->stream, status, sentence, out);
}

static void on_keepalive(void *ctx, struct ds_bytes *out)
{
    struct completion *a = ctx;
    ds_bytes_puts(out, a->stream ? ": keepalive\n\n" : "\n");
}

static void on_free(void *ctx)
{
    struct completion *a = ctx;
    ds_bytes_free(&a->text);
    for (int i = 0; i < 4; i++) ds_bytes_free(&a->probs[i]);
    free(a->prompt);
    free(a->model);
    free(a);
}

static const struct ds_api completions_api = {
    on_begin, on_started, on_progress, on_piece, on_finish, on_error, on_keepalive, on_free, NULL
};

/* --- request ------------------------------------------------------------------------------------------------ */

static bool ids_prompt(const struct ds_call *c, const json_t *v, struct ds_request *q, struct ds_refusal *r)
{
    size_t n = json_array_size(v);
    int32_t *p = malloc((n + 1) * sizeof *p);
    if (!p) return ds_refuse(r, 503, NULL, "no memory for the request");
    q->prompt = (struct ds_ids){ p, n };
    for (size_t i = 0; i < n; i++) {
        const json_t *f = json_array_get(v, i);
        json_int_t id = json_is_integer(f) ? json_integer_value(f) : -1;
        if (id < 0 || id >= ds_engine_info(c->g)->n_vocab)
            return ds_refuse(r, 400, "prompt", "'prompt[%zu]' is no token id of this vocabulary (0 to %d)", i,
                             ds_engine_info(c->g)->n_vocab - 1);
        p[i] = (int32_t)id;
    }
    return true;
}

static bool keep_text(struct completion *a, const char *s, size_t n, struct ds_refusal *r)
{
    if (!a->echo) return true;
    if (!(a->prompt = malloc(n + 1))) return ds_refuse(r, 503, NULL, "no memory for the request");
    memcpy(a->prompt, s, n);
    a->n_prompt = n;
    return true;
}

static bool echo_of_ids(struct completion *a, const struct ds_request *q, struct ds_refusal *r)
{
    struct ds_bytes b;
    if (!a->echo) return true;
    ds_bytes_init(&b, (size_t)1 << 30);
    for (size_t i = 0; i < q->prompt.n; i++) {
        const char *p;
        size_t n = ds_token_bytes(a->g, q->prompt.p[i], &p);
        ds_bytes_add(&b, p, n);
    }
    bool ok = keep_text(a, b.p ? b.p : "", b.n, r);
    ds_bytes_free(&b);
    return ok;
}

static bool read_prompt(const struct ds_call *c, struct completion *a, struct ds_request *q, struct ds_refusal *r)
{
    const json_t *v = json_object_get(c->body, "prompt");
    struct ds_err e;
    bool special = false;
    if (!ds_field_bool(c->body, "special", &special, r)) return false;
    if (json_is_array(v) && json_array_size(v) == 1 && !json_is_number(json_array_get(v, 0))) v = json_array_get(v, 0);
    if (json_is_array(v) && json_array_size(v) && !json_is_number(json_array_get(v, 0)))
        return ds_refuse(r, 400, "prompt", "'prompt' holds %zu prompts, one at a time is taken", json_array_size(v));
    if (json_is_array(v)) return ids_prompt(c, v, q, r) && echo_of_ids(a, q, r);
    if (!v || json_is_null(v)) return ds_refuse(r, 400, "prompt", "'prompt' is missing");
    if (!json_is_string(v))
        return ds_refuse(r, 400, "prompt", "'prompt' is %s, expected a string or an array of token ids", ds_json_type(v));
    if (ds_tokenize(c->g, json_string_value(v), json_string_length(v), special, &q->prompt, &e))
        return ds_refuse(r, 400, "prompt", "%s", e.msg);
    return keep_text(a, json_string_value(v), json_string_length(v), r);
}

static bool read_shape(const struct ds_call *c, struct completion *a, struct ds_request *q, struct ds_refusal *r)
{
    static const struct ds_rule others[] = { { DS_RULE_TEXT, "user", NULL }, { DS_RULE_END, NULL, NULL } };
    int64_t n = 1, best_of = 1, logprobs = -1;
    const char *suffix = "", *model = c->model;
    q->max_new = 16;                                     /* the API's own default */
    if (!ds_field_int(c->body, "n", 1, 128, &n, r) || !ds_field_int(c->body, "best_of", 1, 128, &best_of, r) ||
        !ds_field_int(c->body, "max_tokens", 0, INT32_MAX, &q->max_new, r) || !ds_field_bool(c->body, "echo", &a->echo, r) ||
        !ds_field_int(c->body, "logprobs", 0, DS_LOGPROBS_MAX, &logprobs, r) || !ds_field_text(c->body, "suffix", &suffix, r) ||
        !ds_field_model(c->body, &model, r) || !ds_field_rules(c->body, "", others, r))
        return false;
    if (n != 1) return ds_refuse(r, 400, "n", "'n' is %lld, one answer at a time is given", (long long)n);
    if (best_of != 1) return ds_refuse(r, 400, "best_of", "'best_of' is %lld, one answer at a time is given", (long long)best_of);
    if (suffix[0]) return ds_refuse(r, 400, "suffix", "'suffix' is not supported: these models continue a text at its end only");
    if (a->echo && logprobs >= 0)
        return ds_refuse(r, 400, "logprobs", "'logprobs' is not supported with 'echo': the prompt's own probabilities are not computed");
    q->logprobs = (int)logprobs;
    a->logprobs = logprobs >= 0;
    a->model = malloc(strlen(model) + 1);
    if (!a->model) return ds_refuse(r, 503, NULL, "no memory for the request");
    strcpy(a->model, model);
    return true;
}

static bool fill(const struct ds_call *c, struct completion *a, struct ds_request *q, struct ds_refusal *r)
{
    if (!read_shape(c, a, q, r) || !ds_field_delivery(c->body, q, r) || !ds_field_sampling(c->body, c, q, r) ||
        !ds_field_stops(c->body, "stop", q, r) || !ds_field_stream_options(c->body, &a->include_usage, r) || !read_prompt(c, a, q, r) ||
        !ds_request_fits(c, q, "prompt", r))
        return false;
    a->stream = q->stream;
    return true;
}

static void handle(const struct ds_call *c, struct ds_reply *r)
{
    struct completion *a = ds_reply_by_engine(r, &completions_api, sizeof *a, "completions");
    if (!a) return;
    a->g = c->g;
    a->created = ds_unix_seconds();
    ds_make_id(a->id, "cmpl-");
    ds_bytes_init(&a->text, (size_t)1 << 30);
    for (int i = 0; i < 4; i++) ds_bytes_init(&a->probs[i], (size_t)1 << 30);
    fill(c, a, r->request, &r->refusal);
}

const struct ds_route ds_routes_completions[] = {
    { "POST", "/v1/completions", handle, ds_error_openai, false },
    { NULL, NULL, NULL, NULL, false }
};
