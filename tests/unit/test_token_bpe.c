/* Merges against a plain reference, time against length, and vocabularies that are broken on purpose. */
#include "base/rng.h"
#include "token/token.h"

#include "../harness.h"
#include "vocab.h"

#include <time.h>

static struct vocab v;

static struct ds_tokenizer *build(struct ds_gguf **g, struct ds_err *e)
{
    struct ds_tokenizer *t = NULL;
    *g = vocab_gguf(&v);
    if (*g) ds_tokenizer_new(&t, *g, e);
    return t;
}

static void drop(struct ds_tokenizer *t, struct ds_gguf *g)
{
    ds_tokenizer_free(t);
    ds_gguf_close(g);
}

/* --- merges --------------------------------------------------------------------------------------------- */

/* All merges of ids in `sym` by the definition: lowest rank first, leftmost of equals. */
static size_t reference(int32_t *sym, size_t n)
{
    for (;;) {
        int best = v.n_merges;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            char pair[128];
            snprintf(pair, sizeof pair, "%s %s", v.tokens[sym[i]], v.tokens[sym[i + 1]]);
            for (int r = 0; r < best; r++)
                if (!strcmp(v.merges[r], pair)) {
                    best = r;
                    at = i;
                }
        }
        if (best == v.n_merges) return n;
        char joined[128];
        snprintf(joined, sizeof joined, "%s%s", v.tokens[sym[at]], v.tokens[sym[at + 1]]);
        int id = 0;
        while (strcmp(v.tokens[id], joined)) id++;
        sym[at] = id;
        memmove(sym + at + 1, sym + at + 2, (n - at - 2) * sizeof *sym);
        n--;
    }
}

/* A random vocabulary over a, b, c: merges in any order, some products reached in two ways. */
static void random_vocab(struct ds_rng *r, char (*text)[64], char (*rule)[64])
{
    int first = 0;
    vocab_init(&v);
    int pool[64] = { 'a', 'b', 'c' }, n_pool = 3;
    while (v.n_merges < 24 && first++ < 200) {
        int a = pool[ds_rng_u64(r) % (unsigned)n_pool], b = pool[ds_rng_u64(r) % (unsigned)n_pool];
        if (strlen(v.tokens[a]) + strlen(v.tokens[b]) > 8) continue;
        snprintf(text[n_pool], 64, "%s%s", v.tokens[a], v.tokens[b]);
        snprintf(rule[v.n_merges], 64, "%s %s", v.tokens[a], v.tokens[b]);
        int have = 0;
        while (have < v.n && strcmp(v.tokens[have], text[n_pool])) have++;
        if (have == v.n) {
            pool[n_pool] = vocab_token(&v, text[n_pool], 1);
            n_pool++;
        }
        vocab_merge(&v, rule[v.n_merges]);
    }
    for (int i = v.n_merges - 1; i > 0; i--) {          /* any rank order */
        int k = (int)(ds_rng_u64(r) % (unsigned)(i + 1));
        const char *m = v.merges[i];
        v.merges[i] = v.merges[k];
        v.merges[k] = m;
    }
}

static void bpe_equals_reference(void)
{
    static char text[64][64], rule[64][64];
    struct ds_rng r;
    ds_rng_seed(&r, 7);
    for (int round = 0; round < 200; round++) {
        struct ds_gguf *g;
        struct ds_err e;
        random_vocab(&r, text, rule);
        struct ds_tokenizer *t = build(&g, &e);
        REQUIRE(t);
        for (int k = 0; k < 20; k++) {
            char s[160];
            int32_t want[160], *ids;
            size_t n = ds_rng_u64(&r) % (k % 4 ? 32 : 160), n_ids;
            for (size_t i = 0; i < n; i++) want[i] = s[i] = (char)('a' + ds_rng_u64(&r) % (round % 2 ? 3 : 2));
            size_t n_want = reference(want, n);
            CHECK(!ds_tokenizer_encode(t, s, n, false, &ids, &n_ids, NULL));
            CHECK_MSG(n_ids == n_want && (!n_ids || !memcmp(ids, want, n_ids * sizeof *ids)), "round %d, '%.*s'", round, (int)n,
                      s);
            free(ids);
        }
        drop(t, g);
    }
}

static void bpe_first_of_equal_merges_counts(void)
{
    struct ds_gguf *g;
    struct ds_err e;
    int32_t *ids;
    size_t n;
    vocab_init(&v);
    int ab = vocab_token(&v, "ab", 1), bc = vocab_token(&v, "bc", 1);
    vocab_merge(&v, "a b");
    vocab_merge(&v, "b c");
    vocab_merge(&v, "a b");
    struct ds_tokenizer *t = build(&g, &e);
    REQUIRE(t);
    CHECK(!ds_tokenizer_encode(t, "abcbc", 5, false, &ids, &n, NULL));
    CHECK(n == 3 && ids[0] == ab && ids[1] == 'c' && ids[2] == bc);
    free(ids);
    drop(t, g);
}

/* --- time ------------------------------------------------------------------------------------------------- */

enum { N_INPUTS = 8 };

static void fill(char *s, size_t n, int kind)
{
    static const char *const unit[N_INPUTS] = {
        "a", "\xcc\x81", " ", "7", "\xff", "\n ", "The quick brown fox, 42 times. \n", "<|im_start"
    };
    size_t len = strlen(unit[kind]);
    for (size_t i = 0; i < n; i++) s[i] = unit[kind][i % len];
}

static double best_ms(const struct ds_tokenizer *t, const char *s, size_t n)
{
    double best = 1e30;
    for (int i = 0; i < 3; i++) {
        int32_t *ids;
        size_t n_ids;
        clock_t start = clock();                         /* processor time: other work does not count */
        if (ds_tokenizer_encode(t, s, n, true, &ids, &n_ids, NULL)) return -1;
        double ms = 1e3 * (double)(clock() - start) / CLOCKS_PER_SEC;
        free(ids);
        if (ms < best) best = ms;
    }
    return best;
}

/* Four times the text may take ten times as long (caches), not sixteen. Doubling merges, so that one letter has
 * something to merge: aa, aaaa, ... */
static void bpe_time_is_linear(void)
{
    enum { N = 1 << 18 };
    static char doubled[7][80], rule[7][80];
    struct ds_gguf *g;
    struct ds_err e;
    vocab_init(&v);
    for (int i = 0; i < 6; i++) {
        memset(doubled[i], 'a', 2u << i);
        snprintf(rule[i], sizeof rule[i], "%.*s %.*s", 1 << i, doubled[i], 1 << i, doubled[i]);
        vocab_token(&v, doubled[i], 1);
        vocab_merge(&v, rule[i]);
    }
    vocab_token(&v, "<|im_start|>", 3);
    struct ds_tokenizer *t = build(&g, &e);
    char *s = malloc(4 * N);
    REQUIRE(t && s);
    for (int kind = 0; kind < N_INPUTS; kind++) {
        fill(s, 4 * N, kind);
        double one = best_ms(t, s, N), four = best_ms(t, s, 4 * N);
        CHECK_MSG(one >= 0 && four < 10 * one + 30, "input %d: %.1f ms for %d bytes, %.1f ms for four times that", kind, one, N,
                  four);
    }
    free(s);
    drop(t, g);
}

/* --- broken vocabularies ------------------------------------------------------------------------------------ */

static void expect_error(const char *what, const char *words)
{
    struct ds_gguf *g;
    struct ds_err e = { 0 };
    struct ds_tokenizer *t = build(&g, &e);
    CHECK_MSG(!t && e.code && strstr(e.msg, words) && !strchr(e.msg, '\n'), "%s: '%s', expected '%s'", what, e.msg, words);
    drop(t, g);
}

static void vocab_broken_is_refused(void)
{
    static char long_one[400];
    memset(long_one, 'x', sizeof long_one - 1);

    vocab_init(&v); v.model = "llama";                     expect_error("model", "'tokenizer.ggml.model' is 'llama'");
    vocab_init(&v); v.model = NULL;                        expect_error("no model", "tokenizer.ggml.model");
    vocab_init(&v); v.pre = "gpt-4o\n\x1b[2J";             expect_error("pre", "'tokenizer.ggml.pre' is 'gpt-4o??[2J'");
    vocab_init(&v); v.pre = NULL;                          expect_error("no pre", "tokenizer.ggml.pre");
    vocab_init(&v); v.n = 0;                               expect_error("no tokens", "is empty");
    vocab_init(&v); v.n = 255;                             expect_error("no byte", "no ordinary token for byte 0xFF");
    vocab_init(&v); v.types[10] = 3;                       expect_error("control byte", "no ordinary token for byte 0x0A");
    vocab_init(&v); v.types[7] = 7;                        expect_error("type", "says 7 for token 7");
    vocab_init(&v); vocab_token(&v, "a", 1);               expect_error("duplicate", "spells tokens 97 and 256 the same");
    vocab_init(&v); v.eos = 256;                           expect_error("eos", "eos_token_id' is 256, expected an id below 256");
    vocab_init(&v); vocab_token(&v, long_one, 3);          expect_error("long special", "special token 256 is 399 bytes long");

    static const struct { const char *merge, *words; } m[] = {
        { "ab", "entry 1 is not two pieces" },
        { "a b c", "entry 1 is not two pieces" },
        { "a ", "entry 1 is not two pieces" },
        { " a", "entry 1 is not two pieces" },
        { "", "entry 1 is not two pieces" },
        { "zz a", "left piece" },
        { "a zz", "right piece" },
        { "b a", "result" },
        { "< x", "result" },
        { "\xff a", "left piece" },
    };
    for (size_t i = 0; i < sizeof m / sizeof *m; i++) {
        vocab_init(&v);
        vocab_token(&v, "ab", 1);
        vocab_token(&v, "<x", 3);
        vocab_merge(&v, "a b");
        vocab_merge(&v, m[i].merge);
        expect_error(m[i].merge, m[i].words);
    }
}

static void vocab_odd_is_accepted(void)
{
    struct ds_gguf *g;
    struct ds_err e;
    const char *p;
    int32_t *ids;
    size_t n;
    vocab_init(&v);
    int pad = vocab_token(&v, "[PAD]", 5), pad2 = vocab_token(&v, "[PAD]", 5), raw = vocab_token(&v, "\xff \u4e2d", 1);
    vocab_token(&v, "", 1);
    vocab_token(&v, "never merged", 1);
    struct ds_tokenizer *t = build(&g, &e);
    REQUIRE(t);
    CHECK(ds_tokenizer_bytes(t, pad, &p) == 0 && ds_tokenizer_bytes(t, pad2, &p) == 0);
    CHECK(ds_tokenizer_bytes(t, raw, &p) == 5 && !memcmp(p, "\xff \u4e2d", 5));
    CHECK(!ds_tokenizer_encode(t, "[PAD]", 5, true, &ids, &n, NULL) && n == 5);
    free(ids);
    CHECK(!ds_tokenizer_encode(t, "", 0, true, &ids, &n, NULL) && n == 0);
    free(ids);
    drop(t, g);

    t = (struct ds_tokenizer *)&v;
    g = ds_gguf_from_writer(ds_gguf_writer_new(), "none", NULL, NULL, NULL);
    REQUIRE(g);
    CHECK(!ds_tokenizer_new(&t, g, &e) && !t);         /* no tokenizer at all is no error */
    ds_gguf_close(g);
}

static void vocab_keys_of_other_kinds_are_refused(void)
{
    static const char *const strs[] = { "a", "b" };
    static const int32_t ints[] = { 1, 2 };
    for (int k = 0; k < 4; k++) {
        struct ds_gguf_writer *w = ds_gguf_writer_new();
        struct ds_tokenizer *t = NULL;
        struct ds_err e = { 0 };
        if (k == 0) ds_gguf_put_u32(w, "tokenizer.ggml.model", 1);
        else ds_gguf_put_str(w, "tokenizer.ggml.model", "gpt2");
        ds_gguf_put_str(w, "tokenizer.ggml.pre", "qwen35");
        if (k == 1) ds_gguf_put_i32s(w, "tokenizer.ggml.tokens", ints, 2);
        else ds_gguf_put_strs(w, "tokenizer.ggml.tokens", strs, 2);
        if (k == 2) ds_gguf_put_strs(w, "tokenizer.ggml.token_type", strs, 2);
        else ds_gguf_put_i32s(w, "tokenizer.ggml.token_type", ints, k == 3 ? 1 : 2);
        struct ds_gguf *g = ds_gguf_from_writer(w, "kinds", NULL, NULL, NULL);
        REQUIRE(g);
        CHECK_MSG(ds_tokenizer_new(&t, g, &e) && !t && e.msg[0], "case %d", k);
        ds_gguf_close(g);
    }
}

static const struct ds_test tests[] = {
    { "bpe_equals_reference", bpe_equals_reference },
    { "bpe_first_of_equal_merges_counts", bpe_first_of_equal_merges_counts },
    { "bpe_time_is_linear", bpe_time_is_linear },
    { "vocab_broken_is_refused", vocab_broken_is_refused },
    { "vocab_odd_is_accepted", vocab_odd_is_accepted },
    { "vocab_keys_of_other_kinds_are_refused", vocab_keys_of_other_kinds_are_refused },
};
DS_TEST_MAIN(tests)
