#include "chat/value.h"

#include "chat/find.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- writing -------------------------------------------------------------------------------------- */

void ds_value_escape(struct ds_bytes *b, const char *s, size_t n)
{
    static const char *const names[] = { ['"'] = "\\\"", ['\\'] = "\\\\", ['\n'] = "\\n", ['\r'] = "\\r",
                                         ['\t'] = "\\t", ['\b'] = "\\b",  ['\f'] = "\\f" };
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c < sizeof names / sizeof *names && names[c]) ds_bytes_puts(b, names[c]);
        else if (c < 0x20) ds_bytes_printf(b, "\\u%04x", c);
        else ds_bytes_add(b, s + i, 1);
    }
}

static void dump_string(struct ds_bytes *b, const char *s, size_t n)
{
    ds_bytes_add(b, "\"", 1);
    ds_value_escape(b, s, n);
    ds_bytes_add(b, "\"", 1);
}

/* The shortest digits that read back; an exponent below 1e-4 and from 1e16 on, as Python's repr. */
static void dump_real(struct ds_bytes *b, double v)
{
    char buf[40];
    int digits = 1;
    for (; digits < 17; digits++) {
        snprintf(buf, sizeof buf, "%.*e", digits - 1, v);
        if (strtod(buf, NULL) == v) break;
    }
    snprintf(buf, sizeof buf, "%.*e", digits - 1, v);
    int exponent = atoi(strchr(buf, 'e') + 1);
    if (exponent < -4 || exponent >= 16) {
        *strchr(buf, 'e') = 0;
        ds_bytes_printf(b, "%se%c%02d", buf, exponent < 0 ? '-' : '+', abs(exponent));
    } else {
        int places = digits - 1 - exponent;
        ds_bytes_printf(b, "%.*f", places > 1 ? places : 1, v);
    }
}

static void dump_array(struct ds_bytes *b, const json_t *v)
{
    size_t i;
    json_t *item;
    ds_bytes_puts(b, "[");
    json_array_foreach((json_t *)v, i, item) {
        if (i) ds_bytes_puts(b, ", ");
        ds_value_dump(b, item);
    }
    ds_bytes_puts(b, "]");
}

static void dump_object(struct ds_bytes *b, const json_t *v)
{
    bool any = false;
    json_t *o = (json_t *)v;
    ds_bytes_puts(b, "{");
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        const char *key = json_object_iter_key(it);
        if (any) ds_bytes_puts(b, ", ");
        dump_string(b, key, strlen(key));
        ds_bytes_puts(b, ": ");
        ds_value_dump(b, json_object_iter_value(it));
        any = true;
    }
    ds_bytes_puts(b, "}");
}

void ds_value_dump(struct ds_bytes *b, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: dump_object(b, v); break;
    case JSON_ARRAY: dump_array(b, v); break;
    case JSON_STRING: dump_string(b, json_string_value(v), json_string_length(v)); break;
    case JSON_INTEGER: ds_bytes_printf(b, "%" JSON_INTEGER_FORMAT, json_integer_value(v)); break;
    case JSON_REAL: dump_real(b, json_real_value(v)); break;
    case JSON_TRUE: ds_bytes_puts(b, "true"); break;
    case JSON_FALSE: ds_bytes_puts(b, "false"); break;
    case JSON_NULL: ds_bytes_puts(b, "null"); break;
    }
}

void ds_value_text(struct ds_bytes *b, const json_t *v, enum ds_chat_family family)
{
    bool python = family == DS_CHAT_QWEN35;
    if (json_is_string(v)) ds_bytes_add(b, json_string_value(v), json_string_length(v));
    else if (python && json_is_null(v)) ds_bytes_puts(b, "None");
    else if (python && json_is_boolean(v)) ds_bytes_puts(b, json_is_true(v) ? "True" : "False");
    else ds_value_dump(b, v);
}

/* --- reading -------------------------------------------------------------------------------------- */

enum { STRING = 1, INTEGER = 2, NUMBER = 4, BOOLEAN = 8, NUL = 16, ARRAY = 32, OBJECT = 64, ANY = 127, MAX_DEPTH = 8 };

static unsigned type_named(const char *name)
{
    static const struct { const char *name; unsigned type; } t[] = {
        { "string", STRING }, { "integer", INTEGER }, { "number", INTEGER | NUMBER }, { "boolean", BOOLEAN },
        { "null", NUL },      { "array", ARRAY },     { "object", OBJECT },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        if (name && !strcmp(name, t[i].name)) return t[i].type;
    return 0;
}

static unsigned type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return OBJECT;
    case JSON_ARRAY: return ARRAY;
    case JSON_STRING: return STRING;
    case JSON_INTEGER: return INTEGER;
    case JSON_REAL: return NUMBER;
    case JSON_NULL: return NUL;
    default: return BOOLEAN;
    }
}

/* "#/$defs/Name", with keys that hold no slash of their own. */
static const json_t *resolve(const char *ref, const json_t *root)
{
    char key[128];
    if (!ref || ref[0] != '#') return NULL;
    for (ref++; *ref == '/' && root; ref += strlen(key)) {
        size_t n = strcspn(++ref, "/");
        if (n >= sizeof key) return NULL;
        memcpy(key, ref, n);
        key[n] = 0;
        root = json_object_get(root, key);
    }
    return root;
}

/* The types that a schema allows; 0 when it names none. */
static unsigned types_of(const json_t *schema, const json_t *root, int depth)
{
    static const char *const of[] = { "anyOf", "oneOf", "allOf" };
    unsigned mask = 0;
    size_t i;
    json_t *item, *type = json_object_get(schema, "type"), *one = json_object_get(schema, "const");
    if (depth > MAX_DEPTH || !json_is_object(schema)) return 0;
    const json_t *ref = resolve(json_string_value(json_object_get(schema, "$ref")), root);
    if (ref) mask |= types_of(ref, root, depth + 1);
    if (json_is_string(type)) mask |= type_named(json_string_value(type));
    json_array_foreach(type, i, item) mask |= type_named(json_string_value(item));
    for (int k = 0; k < 3; k++)
        json_array_foreach(json_object_get(schema, of[k]), i, item) mask |= types_of(item, root, depth + 1);
    if (mask) return mask | (json_is_true(json_object_get(schema, "nullable")) ? NUL : 0);
    json_array_foreach(json_object_get(schema, "enum"), i, item) mask |= type_of(item);
    return one ? type_of(one) : mask;
}

static bool spells(struct ds_str s, const char *word)
{
    if (s.n != strlen(word)) return false;
    for (size_t i = 0; i < s.n; i++)
        if (tolower((unsigned char)s.p[i]) != word[i]) return false;
    return true;
}

/* JSON, or a scalar as Python writes it. */
static json_t *read_json(struct ds_str s)
{
    json_t *v = json_loadb(s.p, s.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (v) return v;
    if (spells(s, "true")) return json_true();
    if (spells(s, "false")) return json_false();
    if (spells(s, "null") || spells(s, "none")) return json_null();
    return NULL;
}

static struct ds_str trim_ascii(struct ds_str s)
{
    while (s.n && isspace((unsigned char)s.p[0])) s = ds_after(s, 1);
    while (s.n && isspace((unsigned char)s.p[s.n - 1])) s.n--;
    return s;
}

/* v as one of the types, or NULL; v is used up. */
static json_t *as_types(json_t *v, unsigned types)
{
    if (v && json_is_string(v) && !(types & STRING)) {      /* "3" in quotes, where a number is due */
        json_t *inner = read_json(trim_ascii((struct ds_str){ json_string_value(v), json_string_length(v) }));
        json_decref(v);
        v = inner;
    }
    if (!v) return NULL;
    if (json_is_real(v) && !(types & NUMBER) && types & INTEGER && json_real_value(v) >= -9e15 && json_real_value(v) <= 9e15 &&
        json_real_value(v) == (double)(json_int_t)json_real_value(v)) {
        json_t *whole = json_integer((json_int_t)json_real_value(v));
        json_decref(v);
        v = whole;
    }
    /* Where a string is allowed as well, a quoted text is one with quotes in it: the template writes strings bare. */
    bool fits = type_of(v) & types & ~(unsigned)STRING;
    if (fits) return v;
    json_decref(v);
    return NULL;
}

json_t *ds_value_read(struct ds_str text, const json_t *schema, const json_t *root)
{
    unsigned types = types_of(schema, root, 0);
    json_t *v = NULL;
    if (!types) types = ANY;
    if (types != STRING) v = as_types(read_json(trim_ascii(text)), types);
    return v ? v : json_stringn_nocheck(text.p, text.n);
}

bool ds_value_is_text(const json_t *schema, const json_t *root)
{
    return types_of(schema, root, 0) == STRING;
}

json_t *ds_value_fit(json_t *v, const json_t *schema, const json_t *root)
{
    unsigned types = types_of(schema, root, 0);
    if (!types || type_of(v) & types || !json_is_string(v)) return json_incref(v);
    return ds_value_read((struct ds_str){ json_string_value(v), json_string_length(v) }, schema, root);
}
