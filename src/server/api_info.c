/* What a client asks about the server and its model: health, models, tokens of a text and back. */
#include "server/server.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

static void health(const struct ds_call *c, struct ds_reply *r)
{
    (void)c;
    ds_bytes_puts(&r->body, "{\"status\":\"ok\"}\n");
}

/* --- models ---------------------------------------------------------------------------------------------------- */

static void model(const struct ds_call *c, struct ds_json_out *j)
{
    const struct ds_model_info *f = ds_engine_info(c->g);
    ds_jo_obj(j);
    ds_jo_key(j, "id");
    ds_jo_str(j, c->model);
    ds_jo_key(j, "object");
    ds_jo_str(j, "model");
    ds_jo_key(j, "type");
    ds_jo_str(j, "model");
    ds_jo_key(j, "display_name");
    ds_jo_str(j, f->name && f->name[0] ? f->name : c->model);
    ds_jo_key(j, "created");
    ds_jo_int(j, 0);
    ds_jo_key(j, "created_at");
    ds_jo_str(j, "1970-01-01T00:00:00Z");
    ds_jo_key(j, "owned_by");
    ds_jo_str(j, "deltascope");
    ds_jo_key(j, "context_window");
    ds_jo_int(j, f->ctx);
    ds_jo_key(j, "max_model_len");
    ds_jo_int(j, f->ctx);
    ds_jo_key(j, "model_window");
    ds_jo_int(j, f->ctx_model);
    ds_jo_obj_end(j);
}

static void models(const struct ds_call *c, struct ds_reply *r)
{
    struct ds_json_out j;
    ds_jo_init(&j, &r->body, false);
    ds_jo_obj(&j);
    ds_jo_key(&j, "object");
    ds_jo_str(&j, "list");
    ds_jo_key(&j, "data");
    ds_jo_arr(&j);
    model(c, &j);
    ds_jo_arr_end(&j);
    ds_jo_key(&j, "has_more");
    ds_jo_bool(&j, false);
    ds_jo_key(&j, "first_id");
    ds_jo_str(&j, c->model);
    ds_jo_key(&j, "last_id");
    ds_jo_str(&j, c->model);
    ds_jo_obj_end(&j);
    ds_bytes_puts(&r->body, "\n");
}

static void one_model(const struct ds_call *c, struct ds_reply *r)
{
    struct ds_json_out j;
    if (strcmp(c->rest, c->model)) {
        ds_refuse(&r->refusal, 404, "model", "the model '%s' is not served here, but '%s' is", c->rest, c->model);
        return;
    }
    ds_jo_init(&j, &r->body, false);
    model(c, &j);
    ds_bytes_puts(&r->body, "\n");
}

/* --- tokens ---------------------------------------------------------------------------------------------------- */

static void tokenize(const struct ds_call *c, struct ds_reply *r)
{
    const json_t *text;
    bool special = false, pieces = false;
    struct ds_ids ids;
    struct ds_err e;
    struct ds_json_out j;
    if (!ds_field_json(c->body, "content", JSON_STRING, &text, &r->refusal) || !ds_field_bool(c->body, "special", &special, &r->refusal) ||
        !ds_field_bool(c->body, "pieces", &pieces, &r->refusal))
        return;
    if (!text) {
        ds_refuse(&r->refusal, 400, "content", "'content' is missing");
        return;
    }
    if (ds_tokenize(c->g, json_string_value(text), json_string_length(text), special, &ids, &e)) {
        ds_refuse(&r->refusal, 400, "content", "%s", e.msg);
        return;
    }
    ds_jo_init(&j, &r->body, false);
    ds_jo_obj(&j);
    ds_jo_key(&j, "count");
    ds_jo_int(&j, (int64_t)ids.n);
    ds_jo_key(&j, "tokens");
    ds_jo_arr(&j);
    for (size_t i = 0; i < ids.n; i++) ds_jo_int(&j, ids.p[i]);
    ds_jo_arr_end(&j);
    if (pieces) {
        ds_jo_key(&j, "pieces");
        ds_jo_arr(&j);
        for (size_t i = 0; i < ids.n; i++) ds_jo_str(&j, ds_token_piece(c->g, ids.p[i]));
        ds_jo_arr_end(&j);
    }
    ds_jo_obj_end(&j);
    ds_bytes_puts(&r->body, "\n");
    free(ids.p);
}

static void detokenize(const struct ds_call *c, struct ds_reply *r)
{
    const json_t *ids, *v;
    struct ds_bytes text;
    struct ds_json_out j;
    size_t i;
    if (!ds_field_json(c->body, "tokens", JSON_ARRAY, &ids, &r->refusal)) return;
    if (!ids) {
        ds_refuse(&r->refusal, 400, "tokens", "'tokens' is missing");
        return;
    }
    ds_bytes_init(&text, (size_t)1 << 30);
    json_array_foreach(ids, i, v) {
        const char *p;
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id >= ds_engine_info(c->g)->n_vocab) {
            ds_refuse(&r->refusal, 400, "tokens", "'tokens[%zu]' is no token id of this vocabulary", i);
            break;
        }
        size_t n = ds_token_bytes(c->g, (int32_t)id, &p);
        ds_bytes_add(&text, p, n);
    }
    ds_jo_init(&j, &r->body, false);
    ds_jo_obj(&j);
    ds_jo_key(&j, "content");
    ds_jo_strn(&j, text.p ? text.p : "", text.n);
    ds_jo_obj_end(&j);
    ds_bytes_puts(&r->body, "\n");
    ds_bytes_free(&text);
}

const struct ds_route ds_routes_info[] = {
    { "GET", "/health", health, ds_error_openai, true },
    { "GET", "/v1/models", models, ds_error_openai, false },
    { "GET", "/v1/models/*", one_model, ds_error_openai, false },
    { "POST", "/tokenize", tokenize, ds_error_openai, false },
    { "POST", "/detokenize", detokenize, ds_error_openai, false },
    { NULL, NULL, NULL, NULL, false }
};
