/* An engine that has a tokenizer and a chat template of the family, and nothing else: what the chat APIs need to
 * read a request, and to tell an answer that a test makes up. Its ids are bytes and the markers. */
#ifndef DS_TESTS_CHAT_ENGINE_H
#define DS_TESTS_CHAT_ENGINE_H

#include "engine/engine.h"
#include "server/talk.h"

#include "chat_cases.h"
#include "unit/vocab.h"

extern const struct ds_route ds_routes_chat[], ds_routes_completions[], ds_routes_messages[], ds_routes_responses[];

static struct vocab chat_vocab;

static inline bool chat_engine(struct ds_engine *g, const char *template_text, int64_t ctx)
{
    static const char *const markers[] = { "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>",
                                           "<tool_response>", "</tool_response>" };
    vocab_init(&chat_vocab);
    for (int i = 0; i < 8; i++) vocab_token(&chat_vocab, markers[i], i < 2 ? 3 : 4);
    chat_vocab.chat = template_text;
    *g = (struct ds_engine){ .info = { .n_vocab = chat_vocab.n, .path = "made", .ctx = ctx }, .gguf = vocab_gguf(&chat_vocab) };
    return g->gguf && !ds_tokenizer_new(&g->tok, g->gguf, NULL);
}

static inline void chat_engine_drop(struct ds_engine *g)
{
    ds_tokenizer_free(g->tok);
    ds_gguf_close(g->gguf);
}

/* One request, as the server's intake would hand it on. */
static inline void chat_call(struct ds_reply *r, const ds_engine *g, const struct ds_server_options *o, const struct ds_route *route,
                             const char *body, size_t n, void (*note)(const struct ds_call *c, const char *sentence))
{
    struct ds_bytes b;
    struct ds_call c = { .g = g, .model = "made", .path = route->path, .rest = "", .options = o, .note = note };
    *r = (struct ds_reply){ .status = 200 };
    ds_bytes_init(&r->body, 64 << 20);
    ds_bytes_init(&b, 64 << 20);
    ds_bytes_add(&b, body, n);
    json_t *v = ds_body_parse(&b, &r->refusal);
    ds_bytes_free(&b);
    c.body = v;
    if (v) route->handle(&c, r);
    json_decref(v);
}

static inline void chat_reply_free(struct ds_reply *r)
{
    ds_bytes_free(&r->body);
    if (!r->request) return;
    r->api->free(r->ctx);
    ds_request_free(r->request);
    free(r->request);
}

#endif
