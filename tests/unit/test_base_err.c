#include "base/err.h"
#include "../harness.h"

static void err_code_and_sentence(void)
{
    struct ds_err e;
    CHECK(ds_fail(&e, DS_EFORMAT, "%s: key '%s' is %d", "a.gguf", "k", 3) == DS_EFORMAT);
    CHECK(e.code == DS_EFORMAT && !strcmp(e.msg, "a.gguf: key 'k' is 3"));
    CHECK(ds_fail(NULL, DS_EIO, "nobody listens") == DS_EIO);
}

/* A fuzzed key with a line break in its name made a message of two lines, which is two errors to whoever reads them by line. */
static void err_is_one_line(void)
{
    struct ds_err e;
    ds_fail(&e, DS_EFORMAT, "key '%s'", "a\nb\x1b[31m\x7f\xc3\xa9");
    CHECK_MSG(!strcmp(e.msg, "key 'a?b?[31m?\xc3\xa9'"), "%s", e.msg);
}

static void err_long_sentence_is_cut(void)
{
    struct ds_err e;
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    ds_fail(&e, DS_EFORMAT, "%s", text);
    CHECK(strlen(e.msg) == sizeof e.msg - 1);
}

static const struct ds_test tests[] = {
    { "err_code_and_sentence", err_code_and_sentence },
    { "err_is_one_line", err_is_one_line },
    { "err_long_sentence_is_cut", err_long_sentence_is_cut },
};
DS_TEST_MAIN(tests)
