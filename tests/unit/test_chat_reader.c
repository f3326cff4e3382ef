/* What is read out of a model's words, for every way in which they may be split. */
#include "chat/reader.h"

#include "base/buf.h"
#include "../harness.h"

#include <stdlib.h>

/* Events in one line: content as it is, [reasoning], {name arguments}. Texts of one kind run together. */
struct log { struct ds_bytes b; enum ds_said last; int n_parts; };        /* n_parts: of arguments */

static void note(void *ctx, enum ds_said kind, const char *text, size_t n)
{
    struct log *l = ctx;
    bool was = l->last == DS_SAID_REASONING, is = kind == DS_SAID_REASONING;
    if (was && !is) ds_bytes_puts(&l->b, "]");
    if (is && !was) ds_bytes_puts(&l->b, "[");
    if (kind == DS_SAID_CALL) ds_bytes_puts(&l->b, "{");
    if (kind == DS_SAID_ARGUMENTS && l->last != kind) ds_bytes_puts(&l->b, " ");
    if (kind == DS_SAID_ARGUMENTS) l->n_parts++;
    ds_bytes_add(&l->b, text, n);
    if (kind == DS_SAID_CALL_END) ds_bytes_puts(&l->b, "}");
    l->last = kind;
}

static struct ds_dialog *made_dialog(const struct ds_chat_template *t, bool tools)
{
    static const struct { const char *name, *schema; } all[] = {
        { "get", "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}, \"days\": {\"type\": \"integer\"},"
                 " \"at\": {\"type\": \"object\"}}}" },
        { "write_file", "{\"type\": \"object\", \"properties\": {\"path\": {\"type\": \"string\"}, \"text\": {\"type\": \"string\"}}}" },
        { "now", NULL },
    };
    struct ds_dialog *d = ds_dialog_new(t);
    for (int i = 0; tools && i < 3; i++) {
        json_t *schema = all[i].schema ? json_loads(all[i].schema, 0, NULL) : NULL, *declared = json_object();
        ds_dialog_tool(d, all[i].name, declared, schema);
        json_decref(declared);
        json_decref(schema);
    }
    return d;
}

/* The prompt opened a think block; a limit cut the answer; no tools are declared; the prefix is not the client's; calls are told in
 * parts, or not (neither: both are tried). */
enum { THINKS = 1, CUT = 2, BARE = 4, UNSEEN = 8, LIVE = 16, WHOLE = 32 };

static void read_in_pieces(struct log *l, const char *prefix, const char *text, size_t first, size_t step, int how)
{
    struct ds_chat_template t = { .family = DS_CHAT_QWEN36 };
    struct ds_chat_tail tail = { .in_think = how & THINKS, .prefix = { prefix, strlen(prefix) }, .unseen = how & UNSEEN };
    struct ds_dialog *d = made_dialog(&t, !(how & BARE));
    struct ds_reader *r = ds_reader_new(d, &tail, how & LIVE, note, l);
    size_t n = strlen(text);
    for (size_t at = 0, len = first; at < n; at += len, len = step) {
        len = len < n - at ? len : n - at;
        ds_reader_feed(r, text + at, len);
    }
    ds_reader_finish(r, how & CUT);
    CHECK(!ds_reader_failed(r));
    if (l->last == DS_SAID_REASONING) ds_bytes_puts(&l->b, "]");
    ds_reader_free(r);
    ds_dialog_free(d);
}

struct reading { const char *text, *want; int how; const char *prefix; };

/* One piece, then cut in two at every place, then in equal pieces of 1 to 9. */
static void check_splits(const struct reading *c, size_t index, int how)
{
    size_t n = strlen(c->text);
    for (size_t k = 0; k < n + 9; k++) {
        struct log l = { .last = DS_SAID_CONTENT };
        ds_bytes_init(&l.b, 1 << 20);
        size_t first = k < n ? n - k : k - n + 1, step = k < n ? n : first;
        read_in_pieces(&l, c->prefix ? c->prefix : "", c->text, first, step, how);
        bool same = !strcmp(l.b.n ? l.b.p : "", c->want);
        CHECK_MSG(same, "case %zu (%d), first piece %zu, then %zu:\n%s\n--- gave\n%s\n--- expected\n%s", index, how, first, step, c->text,
                  l.b.n ? l.b.p : "", c->want);
        ds_bytes_free(&l.b);
        if (!same) return;
    }
}
static void check_reading(const struct reading *c, size_t index)
{
    if (!(c->how & LIVE)) check_splits(c, index, c->how);
    if (!(c->how & WHOLE)) check_splits(c, index, c->how | LIVE);
}
#define CHECK_READINGS(t) for (size_t i = 0; i < sizeof t / sizeof *t; i++) check_reading(&t[i], i)

#define F(name) "<function=" name ">\n"
#define P(name, value) "<parameter=" name ">\n" value "\n</parameter>\n"
#define END "</function>\n</tool_call>"
#define CALL(name, params) "<tool_call>\n" F(name) params END

static void reader_plain_text(void)
{
    static const struct reading t[] = {
        { "", "", 0, 0 },
        { "Hello.", "Hello.", 0, 0 },
        { " \n a < b <t \n\n", " \n a < b <t \n\n", 0, 0 },
        { " \n a < b <t \n\n", " \n a < b <t \n\n", BARE, 0 },
        { CALL("get", ""), CALL("get", ""), BARE, 0 },             /* without tools a call is a text */
        { "caf\u00e9 \u4e2d <", "caf\u00e9 \u4e2d <", 0, 0 },
        { "</think> x", "</think> x", 0, 0 },
        { "a <think> b", "a <think> b", 0, 0 },
    };
    CHECK_READINGS(t);
}

static void reader_reasoning(void)
{
    static const struct reading t[] = {
        { "hm\n</think>\n\nLima", "[hm]Lima", THINKS, 0 },
        { "\n h m \n\n</think>Lima\n", "[h m]Lima\n", THINKS, 0 },
        { "</think>\n\nLima", "Lima", THINKS, 0 },
        { "<think>\nhm</think>Lima", "[hm]Lima", THINKS, 0 },
        { "<think>\nhm</think>Lima", "[hm]Lima", BARE, 0 },
        { "\n<think>\nhm</think>Lima", "[hm]Lima", 0, 0 },
        { "a </thin <b> c", "[a </thin <b> c]", THINKS, 0 },
        { "never ends\n", "[never ends\n]", THINKS | CUT, 0 },
        { "hm</think>a</think>b", "[hm]a</think>b", THINKS, 0 },
    };
    CHECK_READINGS(t);
}

static void reader_calls(void)
{
    static const struct reading t[] = {
        { CALL("get", P("city", "Lima") P("days", "3")), "{get {\"city\": \"Lima\", \"days\": 3}}", 0, 0 },
        { CALL("get", P("days", "3") P("city", "Lima")), "{get {\"days\": 3, \"city\": \"Lima\"}}", 0, 0 },
        { "Let me see.\n\n" CALL("now", "") "\n", "Let me see.{now {}}", 0, 0 },
        { "hm\n</think>\n\n" CALL("now", ""), "[hm]{now {}}", THINKS, 0 },
        { CALL("now", "") "\n" CALL("get", P("city", "a")) "\nand more", "{now {}}{get {\"city\": \"a\"}}and more", 0, 0 },
        { "<tool_call>" F("now") "</function>" F("now") "</function></tool_call>", "{now {}}{now {}}", 0, 0 },
        { "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\": \"L}<i\", \"days\": \"3\"}}\n</tool_call>",
          "{get {\"city\": \"L}<i\", \"days\": 3}}", 0, 0 },
        { "<tool_call>[{\"name\": \"now\"}, {\"name\": \"now\", \"arguments\": \"{}\"}]</tool_call>", "{now {}}{now {}}", 0, 0 },
        { "<tool_call>```json\n{\"function\": {\"name\": \"now\", \"parameters\": {}}}\n```\n</tool_call> x", "{now {}}x", 0, 0 },
        { "<tool_call>{\"name\": \"now\"}\n{\"name\": \"get\", \"input\": {\"city\": \"\\n\"}}</tool_call>",
          "{now {}}{get {\"city\": \"\\n\"}}", 0, 0 },
    };
    CHECK_READINGS(t);
}

/* needs.md, need 3: what models get wrong, and values that look like tags. */
static void reader_tolerance(void)
{
    static const struct reading t[] = {
        /* a call while thinking ends the thinking; a text about a call does not */
        { "I must look\n" CALL("now", "") "\n</think>\n\n", "[I must look]{now {}}", THINKS, 0 },
        { CALL("now", "") "x</think>", "{now {}}x</think>", THINKS, 0 },
        { "the form is " CALL("example", "") " so", "[the form is " CALL("example", "") " so]", THINKS, 0 },
        /* names that nobody declared are told, for the client to answer; case alone is mended */
        { CALL("nothing_such", P("a", "1") P("b", "x")), "{nothing_such {\"a\": 1, \"b\": \"x\"}}", 0, 0 },
        { CALL("GET", P("zip", "07")), "{get {\"zip\": \"07\"}}", 0, 0 },
        /* values with lines, brackets and tags of the call itself */
        { CALL("write_file", P("path", "a.xml") P("text", "<a>\n  </parameter> <b/>\n</function>\n\n</a>\n")),
          "{write_file {\"path\": \"a.xml\", \"text\": \"<a>\\n  </parameter> <b/>\\n</function>\\n\\n</a>\\n\"}}", 0, 0 },
        { CALL("write_file", P("text", "<tool_call>\n" F("now") "</tool_call>\nx")),
          "{write_file {\"text\": \"<tool_call>\\n<function=now>\\n</tool_call>\\nx\"}}", 0, 0 },
        { CALL("write_file", "<parameter=text>one line</parameter><parameter=path>\r\nb\r\n</parameter>"),
          "{write_file {\"text\": \"one line\", \"path\": \"b\"}}", 0, 0 },
        { CALL("write_file", P("text", "")), "{write_file {\"text\": \"\"}}", 0, 0 },
        { CALL("write_file", P("text", "a\r\r")), "{write_file {\"text\": \"a\\r\"}}", 0, 0 },
        { CALL("write_file", P("text", "\r\r\n\n\r\r")), "{write_file {\"text\": \"\\r\\r\\n\\n\\r\"}}", 0, 0 },
        { CALL("write_file", "<parameter=text>\r\n\r\r\n</parameter>"), "{write_file {\"text\": \"\\r\"}}", 0, 0 },
        /* tags left out */
        { F("get") P("city", "Lima") END, "{get {\"city\": \"Lima\"}}", 0, 0 },
        { "Well.\n\n" F("get") P("city", "Lima") "</function>", "Well.{get {\"city\": \"Lima\"}}", 0, 0 },
        { "<tool_call>\n" F("get") P("city", "Lima"), "{get {\"city\": \"Lima\"}}", 0, 0 },
        { "<tool_call>\n" F("get") P("city", "Lima") "</tool_call>\nx", "{get {\"city\": \"Lima\"}}x", 0, 0 },
        { "<tool_call>\n" F("get") "<parameter=city>\nLima", "{get {\"city\": \"Lima\"}}", 0, 0 },
        { CALL("get", "<parameter=city>\nLima\n"), "{get {\"city\": \"Lima\"}}", 0, 0 },
        { CALL("get", "<parameter=city>\nLima\n") "\n" CALL("now", ""), "{get {\"city\": \"Lima\"}}{now {}}", 0, 0 },
        { CALL("get", "<parameter=city>\nLima\n<parameter=days>\n3\n</parameter>\n"), "{get {\"city\": \"Lima\", \"days\": 3}}", 0, 0 },
        { "<tool_call>\n" F("get") P("city", "a") CALL("now", ""), "{get {\"city\": \"a\"}}{now {}}", 0, 0 },
        { "<tool_call>{\"name\": \"get\", \"arguments\": {\"city\": \"a\"}</tool_call>", "{get {\"city\": \"a\"}}", 0, 0 },
        { "<tool_call>{\"name\": \"get\", \"arguments\": {\"city\": \"a\"}}", "{get {\"city\": \"a\"}}", 0, 0 },
        /* other spellings */
        { "<tool_call><function name=\"get\"><parameter name=\"days\">3</parameter></function></tool_call>", "{get {\"days\": 3}}", 0, 0 },
        { "<function=get>{\"city\": \"a\", \"days\": \"4\"}</function>", "{get {\"city\": \"a\", \"days\": 4}}", 0, 0 },
        { "<tool_call>\n<function=get\n" P("city", "a") END, "{get {\"city\": \"a\"}}", 0, 0 },
        /* what does not belong is told after the call; the first of two values holds */
        { "<function=get>{\"city\": \"a\"} oh <b>\n" P("days", "3") END "!", "{get {\"city\": \"a\", \"days\": 3}}oh <b>\n!", 0, 0 },
        { CALL("get", P("city", "a") "oh <b>\n" P("days", "3")), "{get {\"city\": \"a\\n</parameter>\\noh <b>\", \"days\": 3}}", 0, 0 },
        { CALL("get", P("city", "a") P("city", "b")), "{get {\"city\": \"a\"}}<parameter=city>\nb\n</parameter>", 0, 0 },
        { CALL("get", P("city", "a") "</parameter>\n"), "{get {\"city\": \"a\"}}", 0, 0 },
        { CALL("get", P("days", "three")), "{get {\"days\": \"three\"}}", 0, 0 },
    };
    CHECK_READINGS(t);
}

/* A call that cannot be read is content, every byte of it, and what follows is read again. */
static void reader_malformed(void)
{
    static const struct reading t[] = {
        { "a\n\n<tool_call> oh no", "a\n\n<tool_call> oh no", 0, 0 },
        { "<tool_call>", "<tool_call>", 0, 0 },
        { "<tool_call>\n<function=>\n</function>", "<tool_call>\n<function=>\n</function>", 0, 0 },
        { "<tool_call>\n<function=get>\nprose\n" CALL("now", ""), "<tool_call>\n<function=get>\nprose{now {}}", 0, 0 },
        { "<tool_call>{\"nam\": 1}</tool_call>", "<tool_call>{\"nam\": 1}</tool_call>", 0, 0 },
        { "<tool_call>{\"name\": \"get\", \"arguments\": [1]}</tool_call> x", "<tool_call>{\"name\": \"get\", \"arguments\": [1]}</tool_call> x", 0, 0 },
        { "<tool_call>{\"name\": \"get\n</tool_call>\n" CALL("now", ""), "<tool_call>{\"name\": \"get\n</tool_call>{now {}}", 0, 0 },
        { "<tool_call>{\"name\": \"now\"}{bad}</tool_call>", "{now {}}{bad}</tool_call>", 0, 0 },
        { "<tool_call>" F("now") "</function>" F("get") "prose</tool_call>", "{now {}}<function=get>\nprose</tool_call>", 0, 0 },
        { F("get") F("now") "prose", "{get {}}<function=now>\nprose", 0, 0 },
        { "write <function=unknown> so", "write <function=unknown> so", 0, 0 },
    };
    CHECK_READINGS(t);
}

/* A limit that cuts a call makes it a text: half a call is never carried out. */
static void reader_cut_calls(void)
{
    static const struct reading t[] = {
        { "a\n" "<tool_call>\n" F("write_file") "<parameter=text>\nhalf", "a\n<tool_call>\n" F("write_file") "<parameter=text>\nhalf", CUT | WHOLE, 0 },
        { "<tool_call>\n" F("get") P("city", "Lima"), "<tool_call>\n" F("get") P("city", "Lima"), CUT | WHOLE, 0 },
        { "<tool_call>\n" F("get") "<parameter=days>\n3", "<tool_call>\n" F("get") "<parameter=days>\n3", CUT, 0 },
        { "<tool_call>" F("now") "</function>\n" F("get") "<par", "{now {}}" F("get") "<par", CUT, 0 },
        { "<tool_call>\n" F("get") P("city", "Lima") "</function>\n", "{get {\"city\": \"Lima\"}}", CUT, 0 },
        { "<tool_call>{\"name\": \"now\"}", "{now {}}", CUT, 0 },
        { "<tool_call>{\"name\": \"no", "<tool_call>{\"name\": \"no", CUT, 0 },
        { "a <tool_c", "a <tool_c", CUT, 0 },
    };
    CHECK_READINGS(t);
}

/* Told in parts: what is no JSON yet stays so, for nobody to carry out. */
static void reader_cut_in_parts(void)
{
    static const struct reading t[] = {
        { "a\n" "<tool_call>\n" F("write_file") "<parameter=text>\nhalf", "a{write_file {\"text\": \"half", CUT | LIVE, 0 },
        { "<tool_call>\n" F("write_file") P("path", "a\"") "<parameter=text>\n1\n2\r\n\n</para", "{write_file {\"path\": \"a\\\"\", \"text\": \"1\\n2\\r\\n",
          CUT | LIVE, 0 },
        { "<tool_call>\n" F("get") P("days", "3") "<parameter=at>\n{\"a\":", "{get {\"days\": 3", CUT | LIVE, 0 },
        { "<tool_call>" F("now") "</function>\n" F("get") P("city", "x"), "{now {}}{get {\"city\": \"x", CUT | LIVE, 0 },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct log l = { .last = DS_SAID_CONTENT };
        ds_bytes_init(&l.b, 1 << 20);
        read_in_pieces(&l, "", t[i].text, 1, 1, t[i].how);
        CHECK_MSG(!strcmp(l.b.p, t[i].want) || !strncmp(l.b.p, t[i].want, strlen(t[i].want)), "%s\n--- expected\n%s", l.b.p, t[i].want);
        CHECK(l.last == DS_SAID_ARGUMENTS);
        ds_bytes_free(&l.b);
    }
}

/* A text of a thousand lines comes as it is written, and what follows a call that was begun cannot take it back. */
static void reader_texts_in_parts(void)
{
    struct ds_bytes text, want;
    ds_bytes_init(&text, 1 << 20);
    ds_bytes_init(&want, 1 << 20);
    ds_bytes_puts(&text, "<tool_call>\n" F("write_file") "<parameter=text>\n");
    ds_bytes_puts(&want, "{write_file {\"text\": \"");
    for (int i = 0; i < 1000; i++) {
        ds_bytes_puts(&text, "a <b> \"c\"\n");
        ds_bytes_puts(&want, i < 999 ? "a <b> \\\"c\\\"\\n" : "a <b> \\\"c\\\"");
    }
    ds_bytes_puts(&text, "</parameter>\n</parameter>\n");
    ds_bytes_puts(&want, "\"}}");
    for (int i = 0; i < 300; i++) ds_bytes_puts(&text, "prose ");
    for (int i = 0; i < 300; i++) ds_bytes_puts(&want, "prose ");
    struct log l = { .last = DS_SAID_CONTENT };
    ds_bytes_init(&l.b, 1 << 20);
    read_in_pieces(&l, "", text.p, 4, 4, LIVE);
    CHECK_MSG(!strcmp(l.b.p, want.p), "%s", l.b.p);
    CHECK_MSG(l.n_parts > 1000, "%d parts", l.n_parts);
    ds_bytes_free(&l.b);
    ds_bytes_free(&text);
    ds_bytes_free(&want);
}

/* The prompt held the beginning of the answer: its text is not told again, its calls are. */
static void reader_goes_on_from_prefix(void)
{
    static const struct reading t[] = {
        { "and on", "and on", 0, "Lima " },
        { "x", "x", 0, "Lima \n" },
        { P("city", "a") END, "{get {\"city\": \"a\"}}", 0, "<tool_call>\n" F("get") },
        { "ma\n</parameter>\n" END "!", "{get {\"city\": \"Lima\"}}!", 0, "Well\n\n<tool_call>\n" F("get") "<parameter=city>\nLi" },
        { "", "{now {}}", 0, CALL("now", "") },
        { "x", "{now {}}x", 0, CALL("now", "") },
        { " prose", " prose", 0, "<tool_call>\n" },
        { "ool_call>\n" F("now") END, "{now {}}", 0, "a <t" },
        { "x", "x", 0, "a <t" },
    };
    CHECK_READINGS(t);
}

/* Megabytes of what could be tags take a moment, not minutes. */
static void reader_linear_time(void)
{
    static const char *const units[] = { "<", "<tool_call>", "<tool_call>{", "<tool_call>{\"", "<function=get>\n<parameter=city>\n<", "</parameter> ",
                                         " \n", "<tool_call>\n<function=get>\n<parameter=city>\n</parameter>\n" };
    size_t n = 1 << 20;
    char *text = malloc(n + 64);
    REQUIRE(text);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        for (int how = 0; how < 4; how++) {
            struct log l = { .last = DS_SAID_CONTENT };
            size_t len = strlen(units[i]), at = 0;
            time_t start = time(NULL);
            for (; at < n; at += len) memcpy(text + at, units[i], len);
            text[at] = 0;
            ds_bytes_init(&l.b, 64 << 20);
            read_in_pieces(&l, "", text, 4096, 4096, (how & 1 ? THINKS : 0) | (how & 2 ? LIVE : 0));
            CHECK_MSG(difftime(time(NULL), start) < 10, "%s: %.0f s", units[i], difftime(time(NULL), start));
            ds_bytes_free(&l.b);
        }
    }
    free(text);
}

static const struct ds_test tests[] = {
    { "reader_plain_text", reader_plain_text },
    { "reader_reasoning", reader_reasoning },
    { "reader_calls", reader_calls },
    { "reader_tolerance", reader_tolerance },
    { "reader_malformed", reader_malformed },
    { "reader_cut_calls", reader_cut_calls },
    { "reader_cut_in_parts", reader_cut_in_parts },
    { "reader_texts_in_parts", reader_texts_in_parts },
    { "reader_goes_on_from_prefix", reader_goes_on_from_prefix },
    { "reader_linear_time", reader_linear_time },
};
DS_TEST_MAIN(tests)
