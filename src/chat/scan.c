#include "chat/scan.h"

#include "chat/find.h"
#include "chat/value.h"

#include <ctype.h>
#include <stdlib.h>

enum { OPEN, BODY, FUNCTION, STRAY, VALUE, AFTER_FUNCTION, JSON, FUNCTION_JSON, AFTER_JSON };
enum { MAX_NAME = 256, MAX_STRAY = 1024, MAX_TEXT = INT32_MAX };

#define STEP ((enum ds_scan_result)-1)          /* go on with the next state */

enum ds_match ds_match(struct ds_str s, const char *what, bool end)
{
    size_t n = strlen(what);
    if (s.n >= n) return memcmp(s.p, what, n) ? DS_MATCH_NO : DS_MATCH_YES;
    return !end && !memcmp(s.p, what, s.n) ? DS_MATCH_MAYBE : DS_MATCH_NO;
}

void ds_scan_begin(struct ds_scan *s, const struct ds_dialog *d, bool declared_only)
{
    *s = (struct ds_scan){ .d = d, .declared_only = declared_only, .state = OPEN };
    ds_bytes_init(&s->stray, MAX_TEXT);
}

static void drop_call(struct ds_scan_call *c)
{
    free(c->name);
    json_decref(c->arguments);
}

void ds_scan_free(struct ds_scan *s)
{
    for (int i = 0; i < s->n_calls; i++) drop_call(&s->calls[i]);
    free(s->calls);
    free(s->param);
    ds_bytes_free(&s->stray);
    *s = (struct ds_scan){ .n_calls = 0 };
}

static size_t skip_space(struct ds_str text, size_t at)
{
    while (at < text.n && isspace((unsigned char)text.p[at])) at++;
    return at;
}

/* --- calls ---------------------------------------------------------------------------------------- */

static char *copy(const char *p, size_t n)
{
    char *c = malloc(n + 1);
    if (!c) return NULL;
    memcpy(c, p, n);
    c[n] = 0;
    return c;
}

/* Takes the name (from malloc) and the arguments. False: the call does not count. */
static bool add_call(struct ds_scan *s, char *name, json_t *arguments)
{
    const char *declared = name ? ds_dialog_tool_name(s->d, name) : NULL;
    struct ds_scan_call *p = NULL;
    bool counts = name && *name && (declared || !s->declared_only);
    if (counts && declared && strcmp(declared, name)) {
        free(name);
        name = copy(declared, strlen(declared));
    }
    if (counts) p = realloc(s->calls, ((size_t)s->n_calls + 1) * sizeof *p);
    if (p) s->calls = p;
    if (p && name && arguments) {
        s->calls[s->n_calls++] = (struct ds_scan_call){ name, arguments };
        return true;
    }
    s->failed |= counts;
    free(name);
    json_decref(arguments);
    return false;
}

static json_t *arguments_of(const struct ds_scan *s)
{
    return s->calls[s->n_calls - 1].arguments;
}

static const json_t *property(const json_t *schema, const char *name)
{
    return json_object_get(json_object_get(schema, "properties"), name);
}

/* Arguments that came as JSON, each fitted to its schema. Takes them. */
static json_t *fit(const struct ds_scan *s, const char *name, json_t *arguments)
{
    const char *declared = ds_dialog_tool_name(s->d, name);
    const json_t *schema = declared ? ds_dialog_schema(s->d, declared, NULL) : NULL;
    json_t *out = json_object();
    for (void *it = json_object_iter(arguments); it && out; it = json_object_iter_next(arguments, it)) {
        const char *key = json_object_iter_key(it);
        json_object_set_new_nocheck(out, key, ds_value_fit(json_object_iter_value(it), property(schema, key), schema));
    }
    json_decref(arguments);
    return out;
}

/* One call as an object: {"name": ..., "arguments": {...}}, under any of the names that models use. */
static bool add_object(struct ds_scan *s, const json_t *o)
{
    static const char *const keys[] = { "arguments", "parameters", "input" };
    const json_t *inner = json_object_get(o, "function"), *args = NULL;
    if (json_is_object(inner)) o = inner;
    const char *name = json_string_value(json_object_get(o, "name"));
    if (!name) name = json_string_value(inner);
    if (!name) return false;
    for (int i = 0; i < 3 && !args; i++) args = json_object_get(o, keys[i]);
    json_t *a = json_is_string(args) ? json_loadb(json_string_value(args), json_string_length(args), JSON_ALLOW_NUL, NULL)
                : args && !json_is_null(args) ? json_incref((json_t *)args) : json_object();
    if (!json_is_object(a)) {
        json_decref(a);
        return false;
    }
    return add_call(s, copy(name, strlen(name)), fit(s, name, a));
}

static bool add_json(struct ds_scan *s, const json_t *v)
{
    size_t i;
    json_t *item;
    if (!json_is_array(v)) return add_object(s, v);
    json_array_foreach(v, i, item)
        if (!add_object(s, item)) return false;
    return json_array_size(v) > 0;
}

/* --- tags ----------------------------------------------------------------------------------------- */

/* <function=NAME> or <function name="NAME">; a line end serves for the ">". *name from malloc. */
static enum ds_match read_tag(struct ds_scan *s, struct ds_str text, size_t at, const char *tag, bool end, char **name, size_t *len)
{
    struct ds_str rest = ds_after(text, at);
    enum ds_match m = ds_match(rest, tag, end);
    *name = NULL;
    if (m != DS_MATCH_YES) return m;
    size_t from = strlen(tag), to = from;
    if (from == rest.n) return end ? DS_MATCH_NO : DS_MATCH_MAYBE;
    if (rest.p[from] == '=') {
        from++;
    } else {
        if ((m = ds_match(ds_after(rest, from), " name=", end)) != DS_MATCH_YES) return m;
        from += 6;
    }
    for (to = from; to < rest.n && rest.p[to] != '>' && rest.p[to] != '\n'; to++)
        if (to - from > MAX_NAME) return DS_MATCH_NO;
    if (to == rest.n) return end ? DS_MATCH_NO : DS_MATCH_MAYBE;
    *len = to + (rest.p[to] == '>');
    while (from < to && (isspace((unsigned char)rest.p[from]) || rest.p[from] == '"')) from++;
    while (to > from && (isspace((unsigned char)rest.p[to - 1]) || rest.p[to - 1] == '"')) to--;
    if (from == to || memchr(rest.p + from, '<', to - from) || memchr(rest.p + from, 0, to - from)) return DS_MATCH_NO;
    *name = copy(rest.p + from, to - from);
    s->failed |= !*name;
    return *name ? DS_MATCH_YES : DS_MATCH_NO;
}

/* --- states: each reads on from s->at ------------------------------------------------------------- */

static void begin_call(struct ds_scan *s, size_t at)
{
    s->begin = at;
    s->n_good = s->n_calls;
}

static enum ds_scan_result begin_json(struct ds_scan *s, size_t at, int state)
{
    s->state = state;
    s->value = s->at = at;
    if (state == JSON) begin_call(s, at);
    s->depth = 0;
    s->quoted = s->escaped = false;
    return STEP;
}

static enum ds_scan_result begin_function(struct ds_scan *s, struct ds_str text, size_t at, bool end)
{
    char *name;
    size_t len;
    enum ds_match m = read_tag(s, text, at, "<function", end, &name, &len);
    if (m != DS_MATCH_YES) return m == DS_MATCH_MAYBE ? DS_SCAN_WAIT : DS_SCAN_BAD;
    begin_call(s, at);
    s->committed = false;
    if (!add_call(s, name, json_object())) return DS_SCAN_BAD;
    s->state = FUNCTION;
    s->at = at + len;
    return STEP;
}

static enum ds_scan_result at_open(struct ds_scan *s, struct ds_str text, bool end)
{
    enum ds_match m = ds_match(text, DS_TAG_CALL, end);
    if (m == DS_MATCH_MAYBE) return DS_SCAN_WAIT;
    if (m == DS_MATCH_NO) {
        s->declared_only = true;               /* without its wrapping only a declared name makes it a call */
        return begin_function(s, text, 0, end);
    }
    s->at = sizeof DS_TAG_CALL - 1;
    s->state = BODY;
    return STEP;
}

static enum ds_scan_result at_body(struct ds_scan *s, struct ds_str text, bool end)
{
    static const char *const fences[] = { "```json", "```" };
    size_t at = s->at = skip_space(text, s->at);
    for (int i = 0; i < 2; i++) {
        enum ds_match m = ds_match(ds_after(text, at), fences[i], end);
        if (m == DS_MATCH_MAYBE) return DS_SCAN_WAIT;
        if (m == DS_MATCH_YES) at = skip_space(text, at + strlen(fences[i]));
    }
    if (at == text.n) return end ? DS_SCAN_BAD : DS_SCAN_WAIT;
    if (text.p[at] == '{' || text.p[at] == '[') return begin_json(s, at, JSON);
    return begin_function(s, text, at, end);
}

static bool is_new_param(const struct ds_scan *s, const char *name)
{
    const json_t *schema = ds_dialog_schema(s->d, s->calls[s->n_calls - 1].name, NULL);
    return property(schema, name) && strcmp(name, s->param) && !json_object_get(arguments_of(s), name);
}

/* The first tag of a NULL-terminated list that s begins with. */
static enum ds_match match_any(struct ds_str s, const char *const *tags, bool end, int *which)
{
    enum ds_match best = DS_MATCH_NO;
    for (int i = 0; tags[i]; i++) {
        enum ds_match m = ds_match(s, tags[i], end);
        *which = i;
        if (m == DS_MATCH_YES) return m;
        if (m == DS_MATCH_MAYBE) best = m;
    }
    return best;
}

static enum ds_scan_result at_function(struct ds_scan *s, struct ds_str text, bool end)
{
    static const char *const tags[] = { "</parameter>", "</function>", "</tool_call>", DS_TAG_CALL, DS_TAG_FUNCTION, NULL };
    size_t at = skip_space(text, s->at), len;
    struct ds_str rest = ds_after(text, at);
    char *name;
    int which;
    s->at = at;
    if (!rest.n) return end ? DS_SCAN_DONE : DS_SCAN_WAIT;
    enum ds_match m = read_tag(s, text, at, "<parameter", end, &name, &len);
    if (m == DS_MATCH_YES) {
        free(s->param);
        s->param = name;
        s->value = s->at = at + len;
        s->state = VALUE;
        return STEP;
    }
    if (m == DS_MATCH_MAYBE || (m = match_any(rest, tags, end, &which)) == DS_MATCH_MAYBE) return DS_SCAN_WAIT;
    if (m == DS_MATCH_YES) {
        if (which < 2) s->at += strlen(tags[which]);
        if (which) s->state = AFTER_FUNCTION;
        return STEP;
    }
    if (rest.p[0] == '{' && !json_object_size(arguments_of(s))) return begin_json(s, at, FUNCTION_JSON);
    if (!json_object_size(arguments_of(s))) return DS_SCAN_BAD;
    ds_bytes_add(&s->stray, rest.p, 1);
    s->at++;
    s->state = STRAY;
    return STEP;
}

/* Text between parameters, up to the next tag. */
static enum ds_scan_result at_stray(struct ds_scan *s, struct ds_str text, bool end)
{
    while (s->at < text.n && text.p[s->at] != '<') {
        if (s->stray.n >= MAX_STRAY && !s->committed) return DS_SCAN_BAD;
        if (s->stray.n >= MAX_STRAY) {
            s->state = AFTER_FUNCTION;
            return STEP;
        }
        ds_bytes_add(&s->stray, text.p + s->at++, 1);
    }
    if (s->at == text.n && !end) return DS_SCAN_WAIT;
    s->state = FUNCTION;
    return STEP;
}

/* The value as it is given, without the one line end on each side that belongs to the tags. */
static struct ds_str without_line_ends(struct ds_str v)
{
    if (ds_begins(v, "\r\n")) v = ds_after(v, 2);
    else if (ds_begins(v, "\n")) v = ds_after(v, 1);
    if (v.n && v.p[v.n - 1] == '\n') v.n -= v.n > 1 && v.p[v.n - 2] == '\r' ? 2 : 1;
    return v;
}

/* The value ends at `to`; what follows begins at `next`. */
static enum ds_scan_result end_value(struct ds_scan *s, struct ds_str text, size_t to, size_t next)
{
    const struct ds_scan_call *c = &s->calls[s->n_calls - 1];
    const json_t *schema = ds_dialog_schema(s->d, c->name, NULL);
    struct ds_str v = without_line_ends((struct ds_str){ text.p + s->value, to - s->value });
    if (json_object_get(c->arguments, s->param)) {          /* given twice: the first holds, the second is told as text */
        ds_bytes_printf(&s->stray, "<parameter=%s>\n", s->param);
        ds_bytes_add(&s->stray, v.p, v.n);
        ds_bytes_puts(&s->stray, "\n</parameter>");
    } else {
        json_t *value = ds_value_read(v, property(schema, s->param), schema);
        s->failed |= !value || json_object_set_new_nocheck(c->arguments, s->param, value);
    }
    s->at = next;
    s->state = FUNCTION;
    return STEP;
}

/* Past any "</function>" and "</tool_call>" from at on. */
static size_t skip_ends(struct ds_str text, size_t at, bool end, bool *maybe)
{
    static const char *const ends[] = { "</parameter>", "</function>", "</tool_call>", NULL };
    for (int which;;) {
        at = skip_space(text, at);
        enum ds_match m = match_any(ds_after(text, at), ends, end, &which);
        *maybe = m == DS_MATCH_MAYBE;
        if (m != DS_MATCH_YES) return at;
        at += strlen(ends[which]);
    }
}

/* A value may hold anything, tags too. Its "</parameter>" is the one that another tag of the call follows. When that
 * is missing, it ends before the next declared parameter, or before end tags that another call or the end follows. */
static enum ds_scan_result at_tag_in_value(struct ds_scan *s, struct ds_str text, size_t at, bool end)
{
    static const char *const after[] = { "<parameter", "</parameter>", "</function>", "</tool_call>", DS_TAG_CALL, "<function", NULL };
    struct ds_str rest = ds_after(text, at);
    char *name;
    size_t len;
    int which;
    bool maybe = false;
    enum ds_match m = ds_match(rest, "</parameter>", end);
    if (m == DS_MATCH_MAYBE) return DS_SCAN_WAIT;
    if (m == DS_MATCH_YES) {
        size_t next = at + sizeof "</parameter>" - 1, tag = skip_space(text, next);
        if (tag == text.n) return end ? end_value(s, text, at, next) : DS_SCAN_WAIT;
        m = match_any(ds_after(text, tag), after, end, &which);
        return m == DS_MATCH_YES ? end_value(s, text, at, next) : m == DS_MATCH_MAYBE ? DS_SCAN_WAIT : DS_SCAN_BAD;
    }
    if (at > s->value && text.p[at - 1] == '\n') {
        m = read_tag(s, text, at, "<parameter", end, &name, &len);
        bool next = m == DS_MATCH_YES && is_new_param(s, name);
        free(name);
        if (next) return end_value(s, text, at, at);
        if (m == DS_MATCH_MAYBE) return DS_SCAN_WAIT;
    }
    size_t past = skip_ends(text, at, end, &maybe);
    if (maybe) return DS_SCAN_WAIT;
    if (past == at) return DS_SCAN_BAD;
    if (past == text.n) return end ? end_value(s, text, at, at) : DS_SCAN_WAIT;
    m = ds_match(ds_after(text, past), DS_TAG_CALL, end);
    if (m == DS_MATCH_MAYBE) return DS_SCAN_WAIT;
    return m == DS_MATCH_YES ? end_value(s, text, at, at) : DS_SCAN_BAD;
}

static enum ds_scan_result at_value(struct ds_scan *s, struct ds_str text, bool end)
{
    while (s->at < text.n) {
        const char *lt = memchr(text.p + s->at, '<', text.n - s->at);
        s->at = lt ? (size_t)(lt - text.p) : text.n;
        if (!lt) break;
        enum ds_scan_result r = at_tag_in_value(s, text, s->at, end);
        if (r != DS_SCAN_BAD) return r;
        s->at++;                              /* no tag of ours: part of the value */
    }
    return end ? end_value(s, text, text.n, text.n) : DS_SCAN_WAIT;
}

static enum ds_scan_result at_after_function(struct ds_scan *s, struct ds_str text, bool end)
{
    static const char *const tags[] = { "</function>", "</tool_call>", "<function", NULL };
    size_t at = s->at = skip_space(text, s->at);
    struct ds_str rest = ds_after(text, at);
    int which;
    if (!rest.n) return end ? DS_SCAN_DONE : DS_SCAN_WAIT;
    enum ds_match m = match_any(rest, tags, end, &which);
    if (m == DS_MATCH_MAYBE) return DS_SCAN_WAIT;
    if (m == DS_MATCH_NO) return DS_SCAN_DONE;
    if (which < 2) s->at += strlen(tags[which]);
    if (which == 1) return DS_SCAN_DONE;
    if (!which) return STEP;
    enum ds_scan_result r = begin_function(s, text, at, end);
    return r == DS_SCAN_BAD ? DS_SCAN_DONE : r;
}

static bool take_json(struct ds_scan *s, const char *p, size_t n)
{
    json_t *v = json_loadb(p, n, JSON_ALLOW_NUL, NULL);
    bool ok = false;
    if (v && s->state == JSON) ok = add_json(s, v);
    else if (v) {
        struct ds_scan_call *c = &s->calls[s->n_calls - 1];
        json_decref(c->arguments);
        c->arguments = fit(s, c->name, json_incref(v));
        ok = c->arguments != NULL;
        s->failed |= !ok;
    }
    json_decref(v);
    return ok;
}

/* The JSON ended early: closing braces may be all that it lacks. */
static bool take_unclosed(struct ds_scan *s, struct ds_str text, size_t to)
{
    struct ds_bytes b;
    if (s->quoted || s->depth > 8) return false;
    ds_bytes_init(&b, MAX_TEXT);
    ds_bytes_add(&b, text.p + s->value, to - s->value);
    for (int i = 0; i < s->depth; i++) ds_bytes_add(&b, "}", 1);
    bool ok = !b.failed && take_json(s, b.p, b.n);
    ds_bytes_free(&b);
    return ok;
}

static enum ds_scan_result after_json(struct ds_scan *s, size_t at, bool ok)
{
    if (!ok) return DS_SCAN_BAD;
    s->state = s->state == JSON ? AFTER_JSON : FUNCTION;
    s->at = at;
    return STEP;
}

static enum ds_scan_result at_json(struct ds_scan *s, struct ds_str text, bool end)
{
    for (; s->at < text.n; s->at++) {
        char c = text.p[s->at];
        if (c == '<' && (!s->quoted || text.p[s->at - 1] == '\n')) {
            enum ds_match m = ds_match(ds_after(text, s->at), "</tool_call>", end);
            if (m == DS_MATCH_MAYBE) return DS_SCAN_WAIT;
            if (m == DS_MATCH_YES) return after_json(s, s->at, take_unclosed(s, text, s->at));
        }
        if (s->escaped) s->escaped = false;
        else if (c == '\\') s->escaped = s->quoted;
        else if (c == '"') s->quoted = !s->quoted;
        else if (!s->quoted && (c == '{' || c == '[')) s->depth++;
        else if (!s->quoted && (c == '}' || c == ']') && --s->depth == 0)
            return after_json(s, s->at + 1, take_json(s, text.p + s->value, s->at + 1 - s->value));
    }
    return end ? after_json(s, text.n, take_unclosed(s, text, text.n)) : DS_SCAN_WAIT;
}

static enum ds_scan_result at_after_json(struct ds_scan *s, struct ds_str text, bool end)
{
    size_t at = s->at = skip_space(text, s->at);
    enum ds_match m = ds_match(ds_after(text, at), "```", end);
    if (m == DS_MATCH_MAYBE && at < text.n) return DS_SCAN_WAIT;
    if (m == DS_MATCH_YES) at = skip_space(text, at + 3);
    if (at == text.n) return end ? DS_SCAN_DONE : DS_SCAN_WAIT;
    m = ds_match(ds_after(text, at), "</tool_call>", end);
    if (m == DS_MATCH_MAYBE) return DS_SCAN_WAIT;
    if (m == DS_MATCH_YES) {
        s->at = at + sizeof "</tool_call>" - 1;
        return DS_SCAN_DONE;
    }
    return text.p[at] == '{' ? begin_json(s, at, JSON) : DS_SCAN_DONE;
}

enum ds_scan_result ds_scan_go(struct ds_scan *s, struct ds_str text, bool end)
{
    enum ds_scan_result r = STEP;
    while (r == STEP && !s->failed) {
        switch (s->state) {
        case OPEN: r = at_open(s, text, end); break;
        case BODY: r = at_body(s, text, end); break;
        case FUNCTION: r = at_function(s, text, end); break;
        case STRAY: r = at_stray(s, text, end); break;
        case VALUE: r = at_value(s, text, end); break;
        case AFTER_FUNCTION: r = at_after_function(s, text, end); break;
        case AFTER_JSON: r = at_after_json(s, text, end); break;
        default: r = at_json(s, text, end); break;
        }
    }
    if (r != DS_SCAN_BAD || s->failed || !s->n_good) return s->failed ? DS_SCAN_BAD : r;
    while (s->n_calls > s->n_good) drop_call(&s->calls[--s->n_calls]);       /* those before it were whole */
    s->at = s->begin;
    return DS_SCAN_DONE;
}

bool ds_scan_is_whole(const struct ds_scan *s)
{
    return s->state == AFTER_FUNCTION || s->state == AFTER_JSON;
}

int ds_scan_n_whole(const struct ds_scan *s, bool *open)
{
    *open = s->n_calls > s->n_good && (s->state == FUNCTION || s->state == STRAY || s->state == VALUE);
    return s->state == AFTER_FUNCTION ? s->n_calls : s->n_good;
}

bool ds_scan_partial(const struct ds_scan *s, struct ds_str text, const char **param, struct ds_str *value)
{
    if (s->state != VALUE) return false;
    const struct ds_scan_call *c = &s->calls[s->n_calls - 1];
    const json_t *schema = ds_dialog_schema(s->d, c->name, NULL);
    struct ds_str v = { text.p + s->value, s->at - s->value };
    bool line_end_may_come = !v.n || (v.n == 1 && v.p[0] == '\r');
    if (line_end_may_come || json_object_get(c->arguments, s->param) || !ds_value_is_text(property(schema, s->param), schema)) return false;
    *param = s->param;
    *value = without_line_ends(v);
    if (value->n && v.p[v.n - 1] == '\r') value->n--;       /* it may be a line end's */
    return true;
}
