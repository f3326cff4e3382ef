/* Fields of a JSON request, read strictly: the type and range that are stated, or a refusal that names the field. */
#include "server/api.h"

#include "base/os.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *type_name(const json_t *v)
{
    switch (json_typeof(v)) {
        case JSON_OBJECT: return "an object";
        case JSON_ARRAY: return "an array";
        case JSON_STRING: return "a string";
        case JSON_INTEGER:
        case JSON_REAL: return "a number";
        case JSON_TRUE:
        case JSON_FALSE: return "a boolean";
        default: return "null";
    }
}

/* NULL: absent or null. */
static const json_t *there(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    return !v || json_is_null(v) ? NULL : v;
}

bool ds_field_num(const json_t *o, const char *name, double min, double max, double *v, struct ds_refusal *r)
{
    const json_t *f = there(o, name);
    if (!f) return true;
    if (!json_is_number(f)) return ds_refuse(r, 400, name, "'%s' is %s, expected a number", name, type_name(f));
    double d = json_number_value(f);
    if (!(d >= min && d <= max)) return ds_refuse(r, 400, name, "'%s' is %g, expected %g to %g", name, d, min, max);
    *v = d;
    return true;
}

bool ds_field_float(const json_t *o, const char *name, double min, double max, float *v, struct ds_refusal *r)
{
    double d = *v;
    if (!ds_field_num(o, name, min, max, &d, r)) return false;
    *v = (float)d;
    return true;
}

bool ds_field_int(const json_t *o, const char *name, int64_t min, int64_t max, int64_t *v, struct ds_refusal *r)
{
    const json_t *f = there(o, name);
    if (!f) return true;
    if (!json_is_number(f)) return ds_refuse(r, 400, name, "'%s' is %s, expected a whole number", name, type_name(f));
    double d = json_number_value(f);
    if (d != floor(d)) return ds_refuse(r, 400, name, "'%s' is %g, expected a whole number", name, d);
    bool inside = json_is_integer(f) ? json_integer_value(f) >= min && json_integer_value(f) <= max
                                     : d >= (double)min && d <= (double)max && fabs(d) < 0x1p62;
    if (!inside)
        return ds_refuse(r, 400, name, "'%s' is %.17g, expected %lld to %lld", name, d, (long long)min, (long long)max);
    *v = json_is_integer(f) ? json_integer_value(f) : (int64_t)d;
    return true;
}

bool ds_field_bool(const json_t *o, const char *name, bool *v, struct ds_refusal *r)
{
    const json_t *f = there(o, name);
    if (!f) return true;
    if (!json_is_boolean(f)) return ds_refuse(r, 400, name, "'%s' is %s, expected true or false", name, type_name(f));
    *v = json_is_true(f);
    return true;
}

bool ds_field_text(const json_t *o, const char *name, const char **v, struct ds_refusal *r)
{
    const json_t *f = there(o, name);
    if (!f) return true;
    if (!json_is_string(f)) return ds_refuse(r, 400, name, "'%s' is %s, expected a string", name, type_name(f));
    if (strlen(json_string_value(f)) != json_string_length(f)) return ds_refuse(r, 400, name, "'%s' holds a NUL character", name);
    *v = json_string_value(f);
    return true;
}

bool ds_field_model(const json_t *o, const char **v, struct ds_refusal *r)
{
    if (!ds_field_text(o, "model", v, r)) return false;
    return *v && strlen(*v) > 256 ? ds_refuse(r, 400, "model", "'model' has %zu bytes, at most 256 are possible", strlen(*v)) : true;
}

/* --- groups ------------------------------------------------------------------------------------------- */

/* {"token id": added, ...}; -100 bans, as the API has it. */
static bool read_bias(const json_t *o, const struct ds_call *c, struct ds_request *q, struct ds_refusal *r)
{
    const json_t *f = there(o, "logit_bias");
    const char *key;
    json_t *value;
    if (!f) return true;
    if (!json_is_object(f)) return ds_refuse(r, 400, "logit_bias", "'logit_bias' is %s, expected an object", type_name(f));
    struct ds_bias *b = malloc((json_object_size(f) + 1) * sizeof *b);
    if (!b) return ds_refuse(r, 503, NULL, "no memory for the request");
    q->sampling.bias = b;
    json_object_foreach((json_t *)(uintptr_t)f, key, value) {
        char *end;
        errno = 0;
        long id = strtol(key, &end, 10);
        if (errno || end == key || *end || id < 0 || id >= ds_engine_info(c->g)->n_vocab)
            return ds_refuse(r, 400, "logit_bias", "'logit_bias' names '%.20s', which is no token id of this vocabulary", key);
        double v = json_is_number(value) ? json_number_value(value) : NAN;
        if (!(v >= -100 && v <= 100))
            return ds_refuse(r, 400, "logit_bias", "'logit_bias' of token %ld: expected a number from -100 to 100", id);
        b[q->sampling.n_bias++] = (struct ds_bias){ (int32_t)id, v <= -100 ? -INFINITY : (float)v };
    }
    return true;
}

bool ds_field_sampling(const json_t *o, const struct ds_call *c, struct ds_request *q, struct ds_refusal *r)
{
    struct ds_sampling *s = &q->sampling;
    int64_t top_k = s->top_k, seed = (int64_t)(ds_now_ns() & 0x7FFFFFFF);
    if (!ds_field_float(o, "temperature", 0, 100, &s->temp, r) || !ds_field_float(o, "top_p", 0, 1, &s->top_p, r) ||
        !ds_field_int(o, "top_k", -1, INT32_MAX, &top_k, r) || !ds_field_float(o, "min_p", 0, 1, &s->min_p, r) ||
        !ds_field_int(o, "seed", INT64_MIN, INT64_MAX, &seed, r) ||
        !ds_field_float(o, "repetition_penalty", 0.01, 100, &s->repeat_penalty, r) ||
        !ds_field_float(o, "presence_penalty", -2, 2, &s->presence_penalty, r) ||
        !ds_field_float(o, "frequency_penalty", -2, 2, &s->frequency_penalty, r))
        return false;
    s->top_k = top_k < 0 ? 0 : (int)top_k;
    s->seed = (uint64_t)seed;
    return read_bias(o, c, q, r);
}

enum { MAX_STOPS = 16 };

static bool add_stop(const json_t *f, const char *name, struct ds_request *q, struct ds_refusal *r)
{
    if (!json_is_string(f)) return ds_refuse(r, 400, name, "'%s' holds %s, expected strings", name, type_name(f));
    size_t n = json_string_length(f);
    if (!n) return ds_refuse(r, 400, name, "'%s' holds an empty string", name);
    if (strlen(json_string_value(f)) != n) return ds_refuse(r, 400, name, "'%s' holds a NUL character", name);
    char *copy = malloc(n + 1);
    if (!copy) return ds_refuse(r, 503, NULL, "no memory for the request");
    memcpy(copy, json_string_value(f), n + 1);
    q->stops[q->n_stops++] = copy;
    return true;
}

bool ds_field_stops(const json_t *o, const char *name, struct ds_request *q, struct ds_refusal *r)
{
    const json_t *f = there(o, name);
    if (!f) return true;
    if (!json_is_string(f) && !json_is_array(f))
        return ds_refuse(r, 400, name, "'%s' is %s, expected a string or an array of strings", name, type_name(f));
    size_t n = json_is_array(f) ? json_array_size(f) : 1;
    if (n > MAX_STOPS) return ds_refuse(r, 400, name, "'%s' holds %zu strings, at most %d are taken", name, n, MAX_STOPS);
    if (!(q->stops = calloc(n + 1, sizeof *q->stops))) return ds_refuse(r, 503, NULL, "no memory for the request");
    for (size_t i = 0; i < n; i++)
        if (!add_stop(json_is_array(f) ? json_array_get(f, i) : f, name, q, r)) return false;
    return true;
}

bool ds_field_delivery(const json_t *o, struct ds_request *q, struct ds_refusal *r)
{
    return ds_field_bool(o, "stream", &q->stream, r) && ds_field_bool(o, "return_progress", &q->return_progress, r) &&
           ds_field_bool(o, "ignore_eos", &q->ignore_end, r);
}

bool ds_request_fits(const struct ds_call *c, const struct ds_request *q, const char *param, struct ds_refusal *r)
{
    long long n = (long long)q->prompt.n, window = (long long)ds_engine_info(c->g)->ctx;
    if (!n) return ds_refuse(r, 400, param, "the prompt is empty, expected at least one token");
    /* Agents shorten their context when they read this code (OpenAI's) or these words (Anthropic's). */
    if (n > window) {
        ds_refuse(r, 400, param, "prompt is too long: %lld tokens > %lld maximum, which is the window", n, window);
        r->code = "context_length_exceeded";
        return false;
    }
    return true;
}
