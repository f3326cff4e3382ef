#include "base/buf.h"
#include "base/utf8.h"
#include "../harness.h"

static void buf_appends_and_terminates(void)
{
    struct ds_bytes b;
    ds_bytes_init(&b, 1000);
    ds_bytes_puts(&b, "ab");
    ds_bytes_add(&b, "\0c", 2);
    ds_bytes_printf(&b, "%d-%s", 42, "x");
    CHECK(!b.failed && b.n == 8 && !memcmp(b.p, "ab\0c42-x", 9));
    for (int i = 0; i < 100; i++) ds_bytes_printf(&b, "%05d", i);
    CHECK(!b.failed && b.n == 508 && !strcmp(b.p + 503, "00099"));
    ds_bytes_free(&b);
    CHECK(!b.p && !b.n);
}

static void buf_maximum_is_sticky(void)
{
    struct ds_bytes b;
    ds_bytes_init(&b, 4);
    ds_bytes_puts(&b, "abcd");
    CHECK(!b.failed && b.n == 4);
    ds_bytes_puts(&b, "");
    CHECK(!b.failed);
    ds_bytes_puts(&b, "e");
    CHECK(b.failed && b.n == 4 && !strcmp(b.p, "abcd"));
    ds_bytes_printf(&b, "%s", "");
    CHECK(b.failed && b.n == 4);
    ds_bytes_free(&b);
}

static void utf8_lengths(void)
{
    static const struct { const char *s; size_t n, want; } v[] = {
        { "", 0, 0 },             { "a", 1, 1 },            { "\0", 1, 1 },         { "\xc3\xa9", 2, 2 },
        { "\xc3", 1, 0 },         { "\xc0\x80", 2, 0 },     { "\xc1\xbf", 2, 0 },   { "\xe2\x82\xac", 3, 3 },
        { "\xe0\x9f\xbf", 3, 0 }, { "\xed\x9f\xbf", 3, 3 }, { "\xed\xa0\x80", 3, 0 }, { "\xf0\x9f\x98\x80", 4, 4 },
        { "\xf0\x8f\xbf\xbf", 4, 0 }, { "\xf4\x8f\xbf\xbf", 4, 4 }, { "\xf4\x90\x80\x80", 4, 0 }, { "\xf5\x80\x80\x80", 4, 0 },
        { "\x80", 1, 0 },         { "\xff", 1, 0 },         { "\xe2\x28\xa1", 3, 0 }, { "\xe2\x82", 2, 0 },
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) CHECK_MSG(ds_utf8_len(v[i].s, v[i].n) == v[i].want, "case %zu", i);
    CHECK(ds_utf8_valid("a\xc3\xa9z", 4) && !ds_utf8_valid("a\xc3", 2) && ds_utf8_valid("", 0));
}

static const struct ds_test tests[] = {
    { "buf_appends_and_terminates", buf_appends_and_terminates },
    { "buf_maximum_is_sticky", buf_maximum_is_sticky },
    { "utf8_lengths", utf8_lengths },
};
DS_TEST_MAIN(tests)
