#include "base/json.h"
#include "../harness.h"

#include <math.h>
#include <stdlib.h>

static void json_writer_compact(void)
{
    struct ds_bytes b;
    struct ds_json_out j;
    ds_bytes_init(&b, 4096);
    ds_jo_init(&j, &b, false);
    ds_jo_obj(&j);
    ds_jo_key(&j, "a\"b");
    ds_jo_arr(&j);
    ds_jo_int(&j, -9007199254740993);
    ds_jo_num(&j, 0.1);
    ds_jo_num(&j, NAN);
    ds_jo_num(&j, -INFINITY);
    ds_jo_bool(&j, true);
    ds_jo_str(&j, NULL);
    ds_jo_arr(&j);
    ds_jo_arr_end(&j);
    ds_jo_arr_end(&j);
    ds_jo_key(&j, "s");
    ds_jo_strn(&j, "\0\x1f\n\t\\\x7f\xff\xc3\xa9\xed\xa0\x80", 12);
    ds_jo_obj_end(&j);
    CHECK(!b.failed && j.depth == 0);
    const char *want = "{\"a\\\"b\":[-9007199254740993,0.1,null,null,true,null,[]],"
                       "\"s\":\"\\u0000\\u001f\\n\\t\\\\\x7f\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"}";
    CHECK_MSG(!strcmp(b.p, want), "%s", b.p);
    ds_bytes_free(&b);
}

static void json_writer_pretty(void)
{
    struct ds_bytes b;
    struct ds_json_out j;
    ds_bytes_init(&b, 4096);
    ds_jo_init(&j, &b, true);
    ds_jo_obj(&j);
    ds_jo_key(&j, "ms");
    ds_jo_arr(&j);
    for (int i = 1; i <= 3; i++) ds_jo_num(&j, i + 0.5);
    ds_jo_arr_end(&j);
    ds_jo_key(&j, "list");
    ds_jo_arr(&j);
    ds_jo_obj(&j);
    ds_jo_obj_end(&j);
    ds_jo_arr_end(&j);
    ds_jo_obj_end(&j);
    CHECK_MSG(!b.failed && !strcmp(b.p, "{\n  \"ms\": [1.5, 2.5, 3.5],\n  \"list\": [\n    {}\n  ]\n}"), "%s", b.p);
    ds_bytes_free(&b);
}

/* Long runs of numbers break into lines and stay valid. */
static void json_writer_wraps_numbers(void)
{
    struct ds_bytes b;
    struct ds_json_out j;
    size_t longest = 0, line = 0;
    ds_bytes_init(&b, 100000);
    ds_jo_init(&j, &b, true);
    ds_jo_arr(&j);
    for (int i = 0; i < 1000; i++) ds_jo_int(&j, i);
    ds_jo_arr_end(&j);
    for (size_t i = 0; i < b.n; i++) {
        line = b.p[i] == '\n' ? 0 : line + 1;
        if (line > longest) longest = line;
    }
    CHECK_MSG(longest > 80 && longest < 110, "%zu columns", longest);
    struct ds_json *v = ds_json_parse(b.p, b.n, NULL);
    CHECK(v && v->n == 1000 && v->items[999].num == 999);
    ds_json_free(v);
    ds_bytes_free(&b);
}

static void json_writer_refuses_bad_sequences(void)
{
    for (int c = 0; c < 8; c++) {
        struct ds_bytes b;
        struct ds_json_out j;
        ds_bytes_init(&b, 4096);
        ds_jo_init(&j, &b, false);
        switch (c) {
        case 0: ds_jo_obj(&j); ds_jo_int(&j, 1); break;
        case 1: ds_jo_obj(&j); ds_jo_key(&j, "a"); ds_jo_obj_end(&j); break;
        case 2: ds_jo_obj(&j); ds_jo_key(&j, "a"); ds_jo_key(&j, "b"); break;
        case 3: ds_jo_arr(&j); ds_jo_obj_end(&j); break;
        case 4: ds_jo_int(&j, 1); ds_jo_int(&j, 2); break;
        case 5: ds_jo_arr(&j); ds_jo_key(&j, "a"); break;
        case 6: ds_jo_arr_end(&j); break;
        case 7: for (int i = 0; i < 65; i++) ds_jo_arr(&j); break;
        }
        CHECK_MSG(b.failed, "case %d", c);
        ds_bytes_free(&b);
    }
}

/* Every double comes back as it was, and no longer than needed for the easy ones. */
static void json_numbers_round_trip(void)
{
    static const double v[] = { 0,       -0.0, 1, 0.1, 1.0 / 3, 1e15, 1e300, 5e-324, 123456789.123456789, 0x1.fffffffffffffp1023,
                                -2.5e-10 };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct ds_bytes b;
        struct ds_json_out j;
        ds_bytes_init(&b, 100);
        ds_jo_init(&j, &b, false);
        ds_jo_num(&j, v[i]);
        struct ds_json *r = ds_json_parse(b.p, b.n, NULL);
        CHECK_MSG(r && r->kind == DS_JNUM && r->num == v[i] && signbit(r->num) == signbit(v[i]), "%s", b.p);
        ds_json_free(r);
        ds_bytes_free(&b);
    }
}

static void json_reader_tree(void)
{
    const char *t = " { \"a\" : [1, -2.5e1 ,\"x y\\u00e9\\ud83d\\ude00\\ud800\\n\", true,false,null, {}], \"b\":{\"c\":[]} } \n";
    struct ds_err e = { 0 };
    struct ds_json *v = ds_json_parse(t, strlen(t), &e);
    REQUIRE(v != NULL);
    const struct ds_json *a = ds_json_get(v, "a");
    CHECK(v->kind == DS_JOBJ && v->n == 2 && !strcmp(v->keys[1], "b"));
    REQUIRE(a && a->kind == DS_JARR && a->n == 7);
    CHECK(a->items[0].num == 1 && a->items[1].num == -25);
    CHECK(a->items[2].n == 13 && !strcmp(a->items[2].str, "x y\xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbd\n"));
    CHECK(a->items[3].kind == DS_JBOOL && a->items[3].num == 1 && a->items[4].num == 0 && a->items[5].kind == DS_JNULL);
    CHECK(ds_json_get(ds_json_get(v, "b"), "c")->n == 0);
    CHECK(!ds_json_get(v, "z") && !ds_json_get(a, "a") && !ds_json_get(NULL, "a"));
    struct ds_bytes b;
    struct ds_json_out j;
    ds_bytes_init(&b, 1000);
    ds_jo_init(&j, &b, false);
    ds_jo_copy(&j, v);
    CHECK(!strcmp(b.p, "{\"a\":[1,-25,\"x y\xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbd\\n\",true,false,null,{}],\"b\":{\"c\":[]}}"));
    ds_bytes_free(&b);
    ds_json_free(v);
}

static void json_reader_refuses(void)
{
    static const struct { const char *t, *word;
    } v[] = {
        { "", "ends where" },
        { "[1,", "ends where" },
        { "[1", "']'" },
        { "{\"a\" 1}", "':'" },
        { "{a:1}", "quotes" },
        { "[1,]", "value" },
        { "{\"a\":1,}", "quotes" },
        { "\"abc", "no end" },
        { "\"\\", "no end" },
        { "\"\\x\"", "escape" },
        { "\"\\u12g4\"", "hexadecimal" },
        { "\"\\u123\"  ", "hexadecimal" },
        { "\"\\u12\"", "hexadecimal" },
        { "\"\n\"", "control" },
        { "\"\xff\"", "UTF-8" },
        { "01", "goes on" },
        { "-", "value" },
        { "1.", "digit" },
        { "1e", "digit" },
        { "1e999", "range" },
        { "nul", "value" },
        { "tru", "value" },
        { "1 2", "goes on" },
        { "{\"a\\u0000\":1}", "NUL" },
        { "+1", "value" },
        { ".5", "value" },
        { "NaN", "value" },
        { "[\n1,\n  x]", "line 3 column 3" },
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct ds_err e = { 0 };
        struct ds_json *r = ds_json_parse(v[i].t, strlen(v[i].t), &e);
        CHECK_MSG(!r && e.code == DS_EFORMAT && strstr(e.msg, v[i].word), "'%s': %s", v[i].t, e.msg);
        ds_json_free(r);
    }
}

/* Escapes of surrogates: pairs join, whatever is alone becomes U+FFFD and swallows nothing. */
static void json_reader_surrogates(void)
{
    static const struct { const char *t, *want; } v[] = {
        { "\"\\ud7ff\\uE000\"", "\xed\x9f\xbf\xee\x80\x80" },
        { "\"\\ud800\\udc00\"", "\xf0\x90\x80\x80" },
        { "\"\\uDBFF\\uDFFF\"", "\xf4\x8f\xbf\xbf" },
        { "\"\\udbff\"", "\xef\xbf\xbd" },
        { "\"\\udc00\\udc00\"", "\xef\xbf\xbd\xef\xbf\xbd" },
        { "\"\\udfff\"", "\xef\xbf\xbd" },
        { "\"\\ud800\\ud800\\udc00\"", "\xef\xbf\xbd\xf0\x90\x80\x80" },
        { "\"\\ud800\\u0041\"", "\xef\xbf\xbd" "A" },
        { "\"\\ud800\\ue000\"", "\xef\xbf\xbd\xee\x80\x80" },
        { "\"\\ud800\\ndc00\"", "\xef\xbf\xbd\ndc00" },
        { "\"\\ud800xudc00\"", "\xef\xbf\xbdxudc00" },
        { "\"\\u0000\\u007f\\u0080\\u07FF\\u0800\"", "" },
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct ds_json *r = ds_json_parse(v[i].t, strlen(v[i].t), NULL);
        CHECK_MSG(r && r->kind == DS_JSTR && !strcmp(r->str, v[i].want), "%s", v[i].t);
        if (r && i + 1 == sizeof v / sizeof *v) CHECK(r->n == 9 && !memcmp(r->str, "\0\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80", 9));
        ds_json_free(r);
    }
}

static void json_reader_numbers(void)
{
    char digits[600];
    struct ds_err e = { 0 };
    static const struct {
        const char *t;
        double want;
    } v[] = { { "1E2", 100 }, { "-0", 0 }, { "1e-2", 0.01 }, { "2.50E+1", 25 } };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct ds_json *r = ds_json_parse(v[i].t, strlen(v[i].t), NULL);
        CHECK_MSG(r && r->num == v[i].want, "%s", v[i].t);
        ds_json_free(r);
    }
    memset(digits, '1', sizeof digits);
    memcpy(digits, "0.", 2);
    struct ds_json *r = ds_json_parse(digits, 511, &e);
    CHECK(r && r->num > 0.11 && r->num < 0.112);
    ds_json_free(r);
    CHECK(!ds_json_parse(digits, 512, &e) && strstr(e.msg, "511 characters"));
}

static void json_reader_depth(void)
{
    char t[20001];
    struct ds_err e = { 0 };
    memset(t, '[', 10000);
    memset(t + 10000, ']', 10000);
    CHECK(!ds_json_parse(t, 20000, &e) && strstr(e.msg, "64"));
    struct ds_json *v = ds_json_parse(t + 10000 - 64, 128, &e);
    CHECK(v != NULL);
    ds_json_free(v);
    CHECK(!ds_json_parse(t + 10000 - 65, 130, &e));
}

/* Every cut of a valid text is refused, and reads nothing past its end. */
static void json_reader_truncation(void)
{
    const char *t = "{\"a\":[1.5e3,\"\\u00e9\\ud83d\\ude00\xc3\xa9\"],\"b\":{\"c\":null,\"d\":true}}";
    for (size_t n = 0; n < strlen(t); n++) {
        char *cut = malloc(n ? n : 1);
        memcpy(cut, t, n);
        struct ds_json *v = ds_json_parse(cut, n, NULL);
        CHECK_MSG(!v, "%zu", n);
        ds_json_free(v);
        free(cut);
    }
}

static const struct ds_test tests[] = {
    { "json_writer_compact", json_writer_compact },
    { "json_writer_pretty", json_writer_pretty },
    { "json_writer_wraps_numbers", json_writer_wraps_numbers },
    { "json_writer_refuses_bad_sequences", json_writer_refuses_bad_sequences },
    { "json_numbers_round_trip", json_numbers_round_trip },
    { "json_reader_tree", json_reader_tree },
    { "json_reader_refuses", json_reader_refuses },
    { "json_reader_surrogates", json_reader_surrogates },
    { "json_reader_numbers", json_reader_numbers },
    { "json_reader_depth", json_reader_depth },
    { "json_reader_truncation", json_reader_truncation },
};
DS_TEST_MAIN(tests)
