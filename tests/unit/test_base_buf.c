#include "base/buf.h"
#include "base/utf8.h"
#include "../harness.h"

#include <stdint.h>

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
    ds_bytes_printf(&b, "%s", "");
    ds_bytes_add(&b, NULL, 0);
    CHECK(!b.failed && b.n == 4);
    ds_bytes_puts(&b, "e");
    CHECK(b.failed && b.n == 4 && !strcmp(b.p, "abcd"));
    ds_bytes_printf(&b, "%s", "");
    CHECK(b.failed && b.n == 4);
    ds_bytes_free(&b);
    CHECK(!b.failed && b.max == 4);
    ds_bytes_puts(&b, "too long");
    ds_bytes_puts(&b, "ok");
    CHECK(b.failed && b.n == 0);
    ds_bytes_free(&b);
}

/* Appends whose lengths meet every capacity on the way, and a maximum between two of them. */
static void buf_grows_to_its_maximum(void)
{
    for (size_t max = 60; max < 140; max++) {
        struct ds_bytes b;
        ds_bytes_init(&b, max);
        for (size_t i = 0; i < max; i++) ds_bytes_add(&b, "z", 1);
        CHECK(!b.failed && b.n == max && b.p[max] == 0 && b.cap > b.n);
        ds_bytes_add(&b, "z", 1);
        CHECK(b.failed && b.n == max);
        ds_bytes_free(&b);
        ds_bytes_init(&b, max);
        ds_bytes_add(&b, "zzz", 3);
        ds_bytes_add(&b, "z", SIZE_MAX - 2);      /* refused before it is read: the sum wraps */
        CHECK(b.failed && b.n == 3);
        ds_bytes_free(&b);
    }
}

static bool well_formed(const unsigned char *s, size_t n)
{
    return ds_utf8_len((const char *)s, n) == n;
}

/* Every character is one sequence and back; and no other sequence is accepted, because there are as many as characters. */
static void utf8_is_exactly_unicode(void)
{
    size_t bad = 0, count[4] = { 0 };
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        char s[4];
        uint32_t back = UINT32_MAX;
        if (c >= 0xd800 && c <= 0xdfff) continue;
        size_t n = ds_utf8_put(s, c);
        bad += ds_utf8_scan((const unsigned char *)s, n, &back) != (int)n || back != c;
        for (size_t cut = 1; cut < n; cut++) bad += ds_utf8_scan((const unsigned char *)s, cut, &back) != 0;
    }
    CHECK(bad == 0);
    for (unsigned a = 0; a < 256; a++) {
        unsigned char s[4] = { (unsigned char)a };
        count[0] += well_formed(s, 1);
        for (unsigned b = 0; b < 256; b++) {
            s[1] = (unsigned char)b;
            count[1] += well_formed(s, 2);
            for (unsigned c = 0; a >= 0xe0 && c < 256; c++) {
                s[2] = (unsigned char)c;
                count[2] += well_formed(s, 3);
                for (unsigned d = 0; a >= 0xf0 && d < 256; d += 0x3f) {   /* 00 3f 7e bd fc: one of them may follow */
                    s[3] = (unsigned char)d;
                    count[3] += well_formed(s, 4);
                }
            }
        }
    }
    CHECK(count[0] == 128 && count[1] == 1920 && count[2] == 61440 && count[3] == 1048576 / 64);
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
    { "buf_grows_to_its_maximum", buf_grows_to_its_maximum },
    { "utf8_lengths", utf8_lengths },
    { "utf8_is_exactly_unicode", utf8_is_exactly_unicode },
};
DS_TEST_MAIN(tests)
