#include "engine/engine.h"
#include "token/token.h"

#include "../harness.h"
#include "vocab.h"

static struct vocab v;

static void drop(struct ds_engine *g)
{
    ds_tokenizer_free(g->tok);
    ds_gguf_close(g->gguf);
}

/* --- stream --------------------------------------------------------------------------------------------- */

/* Feeds bytes one token each (ids 0..255 of a made vocabulary are the bytes). */
static void stream_splits_no_character(void)
{
    static const struct { const char *in, *out; } t[] = {
        { "a\u00e9\u4e2d\U0001F600z", "a\u00e9\u4e2d\U0001F600z" },
        { "\xff", "\ufffd" },
        { "\xe4\xb8", "\ufffd" },
        { "\xe4\xb8x", "\ufffdx" },
        { "\xf0\x9f\x98\xf0\x9f\x98\x80", "\ufffd\U0001F600" },
        { "\xed\xa0\x80", "\ufffd\ufffd\ufffd" },
        { "\xc0\x80", "\ufffd\ufffd" },
        { "\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd" },
        { "\xe4\xc3\xa9", "\ufffd\u00e9" },
    };
    struct ds_engine g = { .info.n_vocab = 256 };
    char big[32];
    vocab_init(&v);
    vocab_token(&v, "\u00e4\u00b8\u0143\u00ff\u0120", 1);                 /* bytes E4 B8 AD FF 20 */
    g.gguf = vocab_gguf(&v);
    REQUIRE(g.gguf && !ds_tokenizer_new(&g.tok, g.gguf, NULL));
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct ds_stream s = { .n = 0 };
        char got[64] = "", piece[16];
        for (const char *p = t[i].in; *p; p++) {
            size_t n = ds_stream_put(&s, &g, (unsigned char)*p, piece, sizeof piece);
            CHECK(n == strlen(piece));
            strcat(got, piece);
        }
        ds_stream_end(&s, piece, sizeof piece);
        strcat(got, piece);
        CHECK_MSG(!strcmp(got, t[i].out), "case %zu: '%s', expected '%s'", i, got, t[i].out);
    }
    struct ds_stream s = { .n = 0 };
    CHECK(ds_stream_put(&s, &g, 256, big, sizeof big) == 7 && !strcmp(big, "\u4e2d\ufffd "));
    CHECK(ds_stream_put(&s, &g, 256, big, 5) == 4 && !strcmp(big, "\u4e2d ")); /* no room: whole characters are left out */
    CHECK(ds_stream_put(&s, &g, 256, big, 1) == 0 && ds_stream_put(&s, &g, -5, big, sizeof big) == 0 &&
          ds_stream_put(&s, &g, 'a', NULL, 0) == 0);
    drop(&g);
}

static void text_without_tokenizer(void)
{
    struct ds_engine g = { .info = { .n_vocab = 10, .path = "bare.gguf" } };
    struct ds_err e;
    struct ds_ids ids;
    const char *p;
    char *text;
    const struct ds_message m = { "user", "x" };
    CHECK(ds_tokenize(&g, "x", 1, false, &ids, &e) == DS_EUNSUP && !strcmp(e.msg, "bare.gguf: the model has no tokenizer"));
    CHECK(ds_chat_render(&g, &m, 1, true, &text, &e) == DS_EUNSUP && !text);
    CHECK(!ds_token_bytes(&g, 1, &p) && !ds_token_piece(&g, 1) && !ds_token_is_end(&g, 1) && !ds_chat_thinks(&g, -1) && !ds_chat_thinks(&g, 1));
}

static const struct ds_test tests[] = {
    { "stream_splits_no_character", stream_splits_no_character },
    { "text_without_tokenizer", text_without_tokenizer },
};
DS_TEST_MAIN(tests)
