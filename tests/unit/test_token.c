#include "base/json.h"
#include "base/rng.h"
#include "token/pretok.h"
#include "token/token.h"
#include "token/unicode.h"

#include "../harness.h"
#include "vocab.h"

static struct ds_gguf *tales_file;
static struct ds_tokenizer *tales;

static bool load_tales(void)
{
    struct ds_err e;
    if (tales) return true;
    if (!ds_gguf_open(&tales_file, "models/tales-q8_0.gguf", &e) && !ds_tokenizer_new(&tales, tales_file, &e))
        return tales != NULL;
    printf("  %s\n", e.msg);
    return false;
}

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *p = f ? malloc(1 << 20) : NULL;
    *n = p ? fread(p, 1, 1 << 20, f) : 0;
    if (f) fclose(f);
    return p;
}

/* --- the oracle's cases ------------------------------------------------------------------------------- */

static void token_fixture_ids(void)
{
    size_t n;
    REQUIRE(load_tales());
    char *text = read_file("tests/fixtures/tokenizer-cases.json", &n);
    REQUIRE(text);
    struct ds_json *cases = ds_json_parse(text, n, NULL);
    free(text);
    REQUIRE(cases && cases->kind == DS_JARR && cases->n >= 10);
    for (size_t i = 0; i < cases->n; i++) {
        const struct ds_json *t = ds_json_get(&cases->items[i], "text"), *want = ds_json_get(&cases->items[i], "ids");
        int32_t *ids;
        size_t n_ids;
        REQUIRE(t && want);
        CHECK(ds_tokenizer_encode(tales, t->str, t->n, true, &ids, &n_ids, NULL) == DS_OK);
        CHECK_MSG(n_ids == want->n, "case %zu '%s': %zu ids, expected %zu", i, t->str, n_ids, want->n);
        for (size_t k = 0; k < n_ids && k < want->n; k++)
            CHECK_MSG(ids[k] == (int32_t)want->items[k].num, "case %zu '%s' id %zu: %d, expected %g", i, t->str, k, (int)ids[k],
                      want->items[k].num);
        free(ids);
    }
    ds_json_free(cases);
}

/* --- pre-tokenizer ------------------------------------------------------------------------------------ */

/* Pieces of s, a '|' between them. */
static const char *split(const char *flavour, const char *s, size_t n)
{
    static char out[512];
    const struct ds_pretok *p = ds_pretok_find(flavour, strlen(flavour));
    size_t w = 0;
    for (size_t i = 0; i < n;) {
        size_t len = ds_pretok_next(p, s + i, n - i);
        if (!len || len > n - i) return "a piece of no length, or past the end";
        if (i) out[w++] = '|';
        memcpy(out + w, s + i, len);
        w += len;
        i += len;
    }
    out[w] = 0;
    return out;
}

static void token_split_pieces(void)
{
    static const struct { const char *text, *want; } t[] = {
        { "I'm 42, ok?", "I|'m| |4|2|,| ok|?" },
        { "  two  spaces", " | two| | spaces" },
        { "a\n\n  b", "a|\n\n| | b" },
        { "foo(bar);\n\n}", "foo|(bar|);\n\n|}" },
        { "\tif x:\n", "\tif| x|:\n" },
        { "don't DON'T", "don|'t| DON|'T" },
        { "\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e", "\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e" },
        { "tail   ", "tail|   " },
        { "x'sabc'REst'lly'VE'd'", "x|'s|abc|'RE|st|'ll|y|'VE|'d|'" },
        { "x'\u017fabc", "x|'\u017f|abc" },
        { "'l 've", "'l| '|ve" },
        { " \r\n \t\n  x", " \r\n \t\n| | x" },
        { "\r\n", "\r\n" },
        { "!\r\n\n x", "!\r\n\n| x" },
        { "a\u00a0b\u3000\u3000c", "a|\u00a0b|\u3000|\u3000c" },
        { "\u0301a !\u0301", "\u0301a| !|\u0301" },
        { " \u0301", " \u0301" },
        { "\u00bd\u0664\u2167x", "\u00bd|\u0664|\u2167|x" },
        { "a\x1c" "b", "a|\x1c" "b" },
        { "\x85" "a", "\x85" "a" },
        { "\xc2\x85 a", "\xc2\x85| a" },
        { "", "" },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        const char *got = split("qwen35", t[i].text, strlen(t[i].text));
        CHECK_MSG(!strcmp(got, t[i].want), "'%s' gives '%s', expected '%s'", t[i].text, got, t[i].want);
    }
}

static void token_split_qwen2_marks(void)
{
    static const struct { const char *text, *want; } t[] = {
        { "\u0e01\u0e23\u0e38\u0e07", "\u0e01\u0e23|\u0e38\u0e07" },
        { "e\u0301 e", "e|\u0301| e" },
        { "!\u0301\n", "!\u0301\n" },
        { "\u0301\u0301a", "\u0301\u0301|a" },
        { " \u0301", " \u0301" },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        const char *got = split("qwen2", t[i].text, strlen(t[i].text));
        CHECK_MSG(!strcmp(got, t[i].want), "'%s' gives '%s', expected '%s'", t[i].text, got, t[i].want);
    }
    CHECK(!ds_pretok_find("llama3", 6) && !ds_pretok_find("qwen", 4));
}

/* Counts of Unicode 16.0; a newer library may know more. */
static void token_char_classes(void)
{
    int n[5] = { 0 };
    for (uint32_t cp = 0; cp < 0x110000; cp++) n[ds_char_class(cp)] += cp < 0xD800 || cp > 0xDFFF;
    CHECK_MSG(n[DS_CHAR_LETTER] + n[DS_CHAR_MARK] >= 143529 && n[DS_CHAR_NUMBER] >= 1911, "%d %d %d", n[1], n[2], n[3]);
    CHECK(n[DS_CHAR_SPACE] == 25);
    CHECK(ds_char_class(0x1C) == DS_CHAR_OTHER && ds_char_class(0x180E) != DS_CHAR_SPACE &&
          ds_char_class(0x200B) == DS_CHAR_OTHER);
    CHECK(ds_char_class(0x897) == DS_CHAR_MARK && ds_char_class(0x2EE5D) == DS_CHAR_LETTER &&
          ds_char_class(0x2EE5E) == DS_CHAR_OTHER);
    CHECK(ds_char_class(0x113D0) == DS_CHAR_MARK && ds_char_class(0x113D1) == DS_CHAR_LETTER &&
          ds_char_class(0x16130) == DS_CHAR_NUMBER);
}

/* --- bytes ---------------------------------------------------------------------------------------------- */

static void token_byte_alphabet(void)
{
    unsigned char seen[0x200] = { 0 };
    for (int b = 0; b < 256; b++) {
        char s[4], back[4];
        uint32_t cp = ds_byte_symbol((unsigned char)b);
        REQUIRE(cp < 0x200 && !seen[cp]);
        seen[cp] = 1;
        size_t n = ds_utf8_put(s, cp);
        CHECK(ds_bytes_unspell(back, s, n) == 1 && (unsigned char)back[0] == b);
    }
    CHECK(ds_byte_symbol(' ') == 0x120 && ds_byte_symbol('\n') == 0x10A && ds_byte_symbol('a') == 'a' &&
          ds_byte_symbol(0xAD) == 0x143);
    char out[16];
    CHECK(ds_bytes_unspell(out, "\u4e2d \xff", 5) == 5 && !memcmp(out, "\u4e2d \xff", 5));      /* outside the alphabet */
}

/* decode(encode(x)) == x */
static bool round_trip(const struct ds_tokenizer *t, const char *text, size_t n, bool special)
{
    int32_t *ids;
    size_t n_ids, at = 0;
    if (ds_tokenizer_encode(t, text, n, special, &ids, &n_ids, NULL)) return false;
    bool same = true;
    for (size_t i = 0; i < n_ids && same; i++) {
        const char *p;
        size_t len = ds_tokenizer_bytes(t, ids[i], &p);
        same = len && len <= n - at && !memcmp(p, text + at, len);
        at += len;
    }
    free(ids);
    return same && at == n;
}

static void token_round_trip_any_bytes(void)
{
    static const char *const odd[] = {
        "\xc0\x80",
        "\xe0\x80\x80",
        "\xf0\x80\x80\x80",
        "\xed\xa0\x80\xed\xb0\x80",
        "\xf4\x90\x80\x80",
        "\xf8\x88\x80\x80\x80",
        "\x80\x80",
        "\xff\xfe",
        "a\xcc",
        "\xe4\xb8",
        "\xf0\x9f\x98",
        "it\xff's",
        "\xff\xff\n\n x",
        " \xff",
        "<|im_start|",
        "<|im_start|>\xff<|im_end|>",
    };
    static const char parts[][8] = { "a", " ", "\n", "'s",   "\xcc\x81",     "\xff", "\xf0\x9f", "the",
                                     "1", "!", "<",  "<|im", "\xe4\xb8\xad", "\r",   "",         "\t" };
    struct ds_rng r;
    ds_rng_seed(&r, 1);
    REQUIRE(load_tales());
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        for (int special = 0; special < 2; special++)
            CHECK_MSG(round_trip(tales, odd[i], strlen(odd[i]), special), "case %zu", i);
    for (int i = 0; i < 3000; i++) {
        char s[256];
        size_t n = 0;
        for (size_t k = ds_rng_u64(&r) % 24; k; k--) {
            const char *p = parts[ds_rng_u64(&r) % (sizeof parts / sizeof *parts)];
            size_t len = *p ? strlen(p) : 1;          /* the empty one is a NUL */
            memcpy(s + n, p, len);
            n += len;
            if (!(ds_rng_u64(&r) % 4)) s[n++] = (char)ds_rng_u64(&r);
        }
        CHECK(round_trip(tales, s, n, i & 1));
    }
}

struct patience { long asked, until; };
static int is_over(void *ctx)
{
    struct patience *p = ctx;
    return ++p->asked > p->until;
}

/* Words and one long word alike are asked about all the way, and given up at once. */
static void token_long_texts_can_be_stopped(void)
{
    enum { N = 1 << 20 };
    static char text[N];
    int32_t *ids;
    size_t n;
    struct ds_err e = { 0 };
    REQUIRE(load_tales());
    for (int words = 0; words < 2; words++) {
        for (int i = 0; i < N; i++) text[i] = words && i % 6 == 5 ? ' ' : "thecat"[i % 6];
        struct patience all = { 0, 1L << 40 };
        CHECK(!ds_tokenizer_encode_until(tales, text, N, false, is_over, &all, &ids, &n, &e) && n > 0);
        free(ids);
        CHECK_MSG(all.asked >= 96, "%ld times in %d bytes", all.asked, N);
        for (int part = 0; part < 4; part++) {
            struct patience some = { 0, all.asked * part / 4 };
            CHECK(ds_tokenizer_encode_until(tales, text, N, false, is_over, &some, &ids, &n, &e) == DS_ECANCEL && !ids && !n);
            CHECK(some.asked <= some.until + 2 && strstr(e.msg, "interrupted"));
        }
    }
}

/* --- special tokens ------------------------------------------------------------------------------------- */

static void token_special_switch(void)
{
    static const char text[] = "<|im_start|>a<think>";
    int32_t *ids;
    size_t n;
    REQUIRE(load_tales());
    CHECK(!ds_tokenizer_encode(tales, text, sizeof text - 1, true, &ids, &n, NULL));
    CHECK(n == 3 && ids[0] == 4088 && ids[2] == 4090);
    free(ids);
    CHECK(!ds_tokenizer_encode(tales, text, sizeof text - 1, false, &ids, &n, NULL));
    CHECK(n > 10);
    for (size_t i = 0; i < n; i++) CHECK(ids[i] < 4087);
    free(ids);
}

static void token_special_longest(void)
{
    static struct vocab v;
    struct ds_tokenizer *t = NULL;
    int32_t *ids;
    size_t n;
    vocab_init(&v);
    int ab = vocab_token(&v, "<ab", 3), abc = vocab_token(&v, "<abcd>", 4), b = vocab_token(&v, "b", 5);
    vocab_token(&v, "", 3);
    struct ds_gguf *g = vocab_gguf(&v);
    REQUIRE(g && !ds_tokenizer_new(&t, g, NULL));
    CHECK(!ds_tokenizer_encode(t, "x<abcd<abcd><a", 14, true, &ids, &n, NULL));
    const int32_t want[] = { 'x', ab, 'c', 'd', abc, '<', 'a' };
    CHECK(n == 7 && !memcmp(ids, want, sizeof want));
    free(ids);
    CHECK(ds_tokenizer_is_padding(t, b) && !ds_tokenizer_is_padding(t, 'b') && ds_tokenizer_is_padding(t, v.n) &&
          ds_tokenizer_is_padding(t, -1));
    ds_tokenizer_free(t);
    ds_gguf_close(g);
}

static void token_lookups(void)
{
    const char *p;
    REQUIRE(load_tales());
    CHECK(ds_tokenizer_n(tales) == 4096);
    CHECK(!strcmp(ds_tokenizer_piece(tales, 220), "\u0120") && ds_tokenizer_bytes(tales, 220, &p) == 1 && *p == ' ');
    CHECK(!strcmp(ds_tokenizer_piece(tales, 4088), "<|im_start|>") && ds_tokenizer_bytes(tales, 4088, &p) == 12);
    CHECK(!ds_tokenizer_piece(tales, 4096) && !ds_tokenizer_piece(tales, -1) && ds_tokenizer_bytes(tales, 4096, &p) == 0);
    CHECK(ds_tokenizer_find(tales, "\u0120the") >= 0 && ds_tokenizer_find(tales, "no such piece") == -1);
    CHECK(ds_tokenizer_is_end(tales, 4089) && ds_tokenizer_is_end(tales, 4087) && !ds_tokenizer_is_end(tales, 4088) &&
          !ds_tokenizer_is_end(tales, 4096));
    for (int32_t id = 0; id < 4096; id++) CHECK(ds_tokenizer_find(tales, ds_tokenizer_piece(tales, id)) == id);
}

static const struct ds_test tests[] = {
    { "token_fixture_ids", token_fixture_ids },
    { "token_long_texts_can_be_stopped", token_long_texts_can_be_stopped },
    { "token_split_pieces", token_split_pieces },
    { "token_split_qwen2_marks", token_split_qwen2_marks },
    { "token_char_classes", token_char_classes },
    { "token_byte_alphabet", token_byte_alphabet },
    { "token_round_trip_any_bytes", token_round_trip_any_bytes },
    { "token_special_switch", token_special_switch },
    { "token_special_longest", token_special_longest },
    { "token_lookups", token_lookups },
};
DS_TEST_MAIN(tests)
