/* Fields of a JSON request, read strictly: the type and range that are stated, or a refusal that names the field. */
#include "server/api.h"

#include "base/os.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ds_json_type(const json_t *v)
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

struct ds_name ds_name(const char *where, const char *key)
{
    struct ds_name n;
    if (snprintf(n.s, sizeof n.s, "%s%s%s", where, *where ? "." : "", key) >= (int)sizeof n.s) strcpy(n.s + sizeof n.s - 4, "...");
    return n;
}

struct ds_name ds_item(const char *where, size_t i)
{
    struct ds_name n;
    if (snprintf(n.s, sizeof n.s, "%s[%zu]", where, i) >= (int)sizeof n.s) strcpy(n.s + sizeof n.s - 4, "...");
    return n;
}

/* NULL: absent or null. */
static const json_t *there(const json_t *o, const char *name)
{
    const char *dot = strrchr(name, '.');
    const json_t *v = json_object_get(o, dot ? dot + 1 : name);
    return !v || json_is_null(v) ? NULL : v;
}

bool ds_field_num(const json_t *o, const char *name, double min, double max, double *v, struct ds_refusal *r)
{
    const json_t *f = there(o, name);
    if (!f) return true;
    if (!json_is_number(f)) return ds_refuse(r, 400, name, "'%s' is %s, expected a number", name, ds_json_type(f));
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
    if (!json_is_number(f)) return ds_refuse(r, 400, name, "'%s' is %s, expected a whole number", name, ds_json_type(f));
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
    if (!json_is_boolean(f)) return ds_refuse(r, 400, name, "'%s' is %s, expected true or false", name, ds_json_type(f));
    *v = json_is_true(f);
    return true;
}

bool ds_field_text(const json_t *o, const char *name, const char **v, struct ds_refusal *r)
{
    const json_t *f = there(o, name);
    if (!f) return true;
    if (!json_is_string(f)) return ds_refuse(r, 400, name, "'%s' is %s, expected a string", name, ds_json_type(f));
    if (strlen(json_string_value(f)) != json_string_length(f)) return ds_refuse(r, 400, name, "'%s' holds a NUL character", name);
    *v = json_string_value(f);
    return true;
}

/* "a, b or c" */
static void list_words(char *dst, size_t size, const char *words)
{
    size_t n = 0;
    for (const char *p = words; *p && n < size;) {
        size_t len = strcspn(p, " ");
        bool last = !p[len], first = p == words;
        n += (size_t)snprintf(dst + n, size - n, "%s%.*s", first ? "" : last ? " or " : ", ", (int)len, p);
        p += len + !last;
    }
}

bool ds_field_word(const json_t *o, const char *name, const char *words, const char **v, struct ds_refusal *r)
{
    const char *word = NULL;
    char list[160];
    if (!ds_field_text(o, name, &word, r)) return false;
    if (!word) return true;
    size_t n = strlen(word);
    for (const char *p = words; *p;) {
        size_t len = strcspn(p, " ");
        if (len == n && !memcmp(p, word, n)) return *v = word, true;
        p += len + (p[len] == ' ');
    }
    list_words(list, sizeof list, words);
    return ds_refuse(r, 400, name, "'%s' is '%.40s', expected %s", name, word, list);
}

bool ds_field_json(const json_t *o, const char *name, json_type type, const json_t **v, struct ds_refusal *r)
{
    static const char *const names[] = { [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a string" };
    const json_t *f = *v = there(o, name);
    if (!f || json_typeof(f) == type) return true;
    return ds_refuse(r, 400, name, "'%s' is %s, expected %s", name, ds_json_type(f), names[type]);
}

bool ds_field_name(const json_t *o, const char *name, const char **v, struct ds_refusal *r)
{
    *v = NULL;
    if (!ds_field_text(o, name, v, r)) return false;
    if (!*v) return ds_refuse(r, 400, name, "'%s' is missing", name);
    return **v ? true : ds_refuse(r, 400, name, "'%s' is empty", name);
}

bool ds_field_items(const json_t *o, const char *name, const json_t **v, struct ds_refusal *r)
{
    if (!ds_field_json(o, name, JSON_ARRAY, v, r)) return false;
    if (!*v) return ds_refuse(r, 400, name, "'%s' is missing", name);
    return json_array_size(*v) ? true : ds_refuse(r, 400, name, "'%s' is empty, expected at least one item", name);
}

bool ds_is_object(const json_t *v, const char *name, struct ds_refusal *r)
{
    return json_is_object(v) ? true : ds_refuse(r, 400, name, "'%s' is %s, expected an object", name, v ? ds_json_type(v) : "missing");
}

bool ds_field_model(const json_t *o, const char **v, struct ds_refusal *r)
{
    if (!ds_field_text(o, "model", v, r)) return false;
    return *v && strlen(*v) > 256 ? ds_refuse(r, 400, "model", "'model' has %zu bytes, at most 256 are possible", strlen(*v)) : true;
}

/* --- fields that are only checked ------------------------------------------------------------------------- */

/* A wish that is not honoured: of its type, and saying nothing. */
static bool asks_nothing(const json_t *o, const char *name, const struct ds_rule *rule, struct ds_refusal *r)
{
    const json_t *v = there(o, name), *it;
    const char *text;
    bool b = false, ok = true;
    switch (rule->kind) {
        case DS_RULE_NO_TEXT: ok = ds_field_text(o, name, &text, r); break;
        case DS_RULE_NO_BOOL: ok = ds_field_bool(o, name, &b, r); break;
        case DS_RULE_NO_OBJECT: ok = ds_field_json(o, name, JSON_OBJECT, &it, r); break;
        case DS_RULE_NO_ARRAY: ok = ds_field_json(o, name, JSON_ARRAY, &it, r); break;
        default:
            if (v && !json_is_string(v) && !json_is_object(v))
                return ds_refuse(r, 400, name, "'%s' is %s, expected a string or an object", name, ds_json_type(v));
    }
    if (!ok || !v || json_is_false(v) || (json_is_array(v) && !json_array_size(v))) return ok;
    return ds_refuse(r, 400, name, "'%s' is not supported: %s", name, rule->words);
}

static bool are_strings(const json_t *o, const char *name, struct ds_refusal *r)
{
    const json_t *f;
    const char *key;
    json_t *v;
    if (!ds_field_json(o, name, JSON_OBJECT, &f, r)) return false;
    json_object_foreach((json_t *)(uintptr_t)f, key, v) {
        struct ds_name at = ds_name(name, key);
        if (!json_is_string(v)) return ds_refuse(r, 400, at.s, "'%s' is %s, expected a string", at.s, ds_json_type(v));
    }
    return true;
}

static bool follows(const json_t *o, const char *name, const struct ds_rule *rule, struct ds_refusal *r)
{
    const json_t *v;
    const char *text;
    int64_t n;
    bool b;
    switch (rule->kind) {
        case DS_RULE_TEXT: return ds_field_text(o, name, &text, r);
        case DS_RULE_BOOL: return ds_field_bool(o, name, &b, r);
        case DS_RULE_COUNT: return ds_field_int(o, name, 0, INT32_MAX, &n, r);
        case DS_RULE_OBJECT: return ds_field_json(o, name, JSON_OBJECT, &v, r);
        case DS_RULE_ARRAY: return ds_field_json(o, name, JSON_ARRAY, &v, r);
        case DS_RULE_STRINGS: return are_strings(o, name, r);
        case DS_RULE_WORD: return ds_field_word(o, name, rule->words, &text, r);
        default: return asks_nothing(o, name, rule, r);
    }
}

bool ds_field_rules(const json_t *o, const char *where, const struct ds_rule *rules, struct ds_refusal *r)
{
    for (; rules->kind != DS_RULE_END; rules++)
        if (!follows(o, ds_name(where, rules->name).s, rules, r)) return false;
    return true;
}

bool ds_field_objects(const json_t *o, const char *name, const char *word, const json_t **v, struct ds_refusal *r)
{
    const json_t *it;
    const char *type;
    size_t i;
    if (!ds_field_json(o, name, JSON_ARRAY, v, r)) return false;
    json_array_foreach((json_t *)(uintptr_t)*v, i, it) {
        struct ds_name at = ds_item(name, i), of = ds_name(at.s, "type");
        if (!ds_is_object(it, at.s, r) || !(word ? ds_field_word(it, of.s, word, &type, r) : ds_field_text(it, of.s, &type, r)))
            return false;
    }
    return true;
}

/* --- groups ------------------------------------------------------------------------------------------- */

/* {"token id": added, ...}; -100 bans, as the API has it. */
static bool read_bias(const json_t *o, const struct ds_call *c, struct ds_request *q, struct ds_refusal *r)
{
    const json_t *f = there(o, "logit_bias");
    const char *key;
    json_t *value;
    if (!f) return true;
    if (!json_is_object(f)) return ds_refuse(r, 400, "logit_bias", "'logit_bias' is %s, expected an object", ds_json_type(f));
    struct ds_bias *b = malloc((json_object_size(f) + 1) * sizeof *b);
    if (!b) return ds_refuse(r, 503, NULL, "no memory for the request");
    q->sampling.bias = b;
    json_object_foreach((json_t *)(uintptr_t)f, key, value) {
        errno = 0;
        long id = strtol(key, NULL, 10);
        bool digits = *key && !key[strspn(key, "0123456789")] && !(key[0] == '0' && key[1]);
        if (errno || !digits || id >= ds_engine_info(c->g)->n_vocab)
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
    if (!json_is_string(f)) return ds_refuse(r, 400, name, "'%s' holds %s, expected strings", name, ds_json_type(f));
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
        return ds_refuse(r, 400, name, "'%s' is %s, expected a string or an array of strings", name, ds_json_type(f));
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

bool ds_field_stream_options(const json_t *o, bool *include_usage, struct ds_refusal *r)
{
    const json_t *f;
    bool obfuscate;
    return ds_field_json(o, "stream_options", JSON_OBJECT, &f, r) && ds_field_bool(f, "stream_options.include_usage", include_usage, r) &&
           ds_field_bool(f, "stream_options.include_obfuscation", &obfuscate, r);
}

bool ds_request_fits(const struct ds_call *c, const struct ds_request *q, const char *param, struct ds_refusal *r)
{
    long long n = (long long)q->prompt.n, window = (long long)ds_engine_info(c->g)->ctx;
    if (!n) return ds_refuse(r, 400, param, "the prompt is empty, expected at least one token");
    /* Agents shorten their context when they read this code (OpenAI's) or these words (Anthropic's). */
    bool answers = q->max_new != 0;
    if (n > window - answers) {
        if (n > window) ds_refuse(r, 400, param, "prompt is too long: %lld tokens > %lld maximum, which is the window", n, window);
        else ds_refuse(r, 400, param, "prompt is too long: %lld tokens > %lld maximum, as an answer needs room in the window", n, window - 1);
        r->code = "context_length_exceeded";
        return false;
    }
    return true;
}
