/* The chat APIs without HTTP and without a model: what a request becomes as a prompt, and what each API makes of an answer that
 * is made up here. The answers that a model really gives are tested through the official clients (tests/server/clients.py). */
#ifndef DS_TESTS_CHAT_API_H
#define DS_TESTS_CHAT_API_H

#include "chat_engine.h"
#include "harness.h"

#include <ctype.h>

static struct ds_engine g;
static char noted[256];

static inline void note(const struct ds_call *c, const char *sentence)
{
    (void)c;
    snprintf(noted, sizeof noted, "%s", sentence);
}

static inline void expect(int line, const char *got, const char *want)
{
    CHECK_MSG(!strcmp(got, want), "line %d:\n%s\n--- expected\n%s", line, got, want);
}
#define EXPECT(got, want) expect(__LINE__, got, want)

static inline void call(struct ds_reply *r, const struct ds_route *route, const char *body)
{
    static const struct ds_server_options options = { .port = 0 };
    noted[0] = 0;
    chat_call(r, &g, &options, route, body, strlen(body), note);
}

/* The prompt's text, or the refusal. */
static inline const char *prompt_of(const struct ds_route *route, const char *body)
{
    static char text[8192];
    struct ds_reply r;
    size_t n = 0;
    call(&r, route, body);
    if (!r.request || r.refusal.status) snprintf(text, sizeof text, "%d %s: %s", r.refusal.status, r.refusal.param, r.refusal.msg);
    for (size_t i = 0; r.request && !r.refusal.status && i < r.request->prompt.n; i++) {
        const char *p;
        size_t len = ds_token_bytes(&g, r.request->prompt.p[i], &p);
        if (n + len + 1 > sizeof text) break;
        memcpy(text + n, p, len);
        text[n += len] = 0;
    }
    chat_reply_free(&r);
    return text;
}

/* What the client gets for an answer that comes in pieces, split at "|"; ids of our own making become ID. */
static inline const char *answer_to(const struct ds_route *route, const char *body, const char *pieces, enum ds_finish why)
{
    static char text[16384];
    struct ds_reply r;
    struct ds_bytes out;
    call(&r, route, body);
    ds_bytes_init(&out, 1 << 20);
    text[0] = 0;
    if (r.refusal.status || !r.request) {
        snprintf(text, sizeof text, "%s", r.refusal.msg);
        chat_reply_free(&r);
        return text;
    }
    struct ds_started started = { .prompt = 10, .cached = 4 };
    r.api->begin(r.ctx, &out);
    r.api->started(r.ctx, &started, &out);
    for (const char *p = pieces; *p;) {
        size_t n = strcspn(p, "|");
        struct ds_piece piece = { .text = p, .n = n, .id = 'a' };
        r.api->piece(r.ctx, &piece, &out);
        p += n + (p[n] == '|');
        if (r.api->complete(r.ctx, piece.text, n)) {
            why = DS_FINISH_ENOUGH;
            break;
        }
    }
    struct ds_ending ending = { .reason = why, .stop = why == DS_FINISH_STOP ? "END" : NULL, .prompt = 10, .cached = 4, .completion = 5 };
    r.api->finish(r.ctx, &ending, &out);
    size_t n = 0;
    for (size_t i = 0; i < out.n && n + 8 < sizeof text;) {
        size_t digits = 0;
        while (i + digits < out.n && isxdigit((unsigned char)out.p[i + digits])) digits++;
        if (digits < 10) {
            text[n++] = out.p[i++];
            continue;
        }
        text[n++] = '#';
        i += digits;
    }
    text[n] = 0;
    ds_bytes_free(&out);
    chat_reply_free(&r);
    return text;
}

/* Is each of the texts there, one after the other? */
static inline void expect_in_order(int line, const char *got, const char *const *want)
{
    const char *at = got;
    for (; *want; want++) {
        const char *found = strstr(at, *want);
        CHECK_MSG(found, "line %d: no %s from here on:\n%s\n--- in\n%s", line, *want, at, got);
        if (!found) return;
        at = found + strlen(*want);
    }
}
#define EXPECT_IN_ORDER(got, ...) expect_in_order(__LINE__, got, (const char *const[]){ __VA_ARGS__, NULL })

#define SYSTEM "<|im_start|>system\n"
#define USER "<|im_start|>user\n"
#define ASSISTANT "<|im_start|>assistant\n"
#define END "<|im_end|>\n"
#define CLOSED "<think>\n\n</think>\n\n"
#define TOOLS STAND_IN_HEAD "\n{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", "      \
              "\"properties\": {\"a\": {\"type\": \"integer\"}}}}}\n</tools>" STAND_IN_TAIL
#define SCHEMA "{'type': 'object', 'properties': {'a': {'type': 'integer'}}}"
#define CALL "<tool_call>\n<function=f>\n<parameter=a>\n3\n</parameter>\n</function>\n</tool_call>"

/* The smallest requests, and parts of larger ones. */
#define CHAT(more) prompt_of(ds_routes_chat, q("{'messages': [{'role': 'user', 'content': 'q'}]" more "}"))
#define MESSAGES(more) prompt_of(ds_routes_messages, q("{'max_tokens': 9, 'messages': [{'role': 'user', 'content': 'q'}]" more "}"))
#define RESPONSES(more) prompt_of(ds_routes_responses, q("{'input': 'q'" more "}"))
#define TOOL "'tools': [{'type': 'function', 'function': {'name': 'f', 'parameters': " SCHEMA "}}]"
#define NONCE "x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli; cch=eb6c6;"
#define C ds_routes_chat
#define M ds_routes_messages
#define R ds_routes_responses

/* JSON with ' for ". */
static inline const char *q(const char *s)
{
    static char out[4][4096];
    static int k;
    char *d = out[k = (k + 1) % 4];
    snprintf(d, sizeof out[0], "%s", s);
    for (char *p = d; *p; p++) if (*p == '\'') *p = '"';
    return d;
}

static inline int chat_api_main(const struct ds_test *tests, int n, int argc, char **argv)
{
    if (!chat_engine(&g, STAND_IN_QWEN36, 4096)) return 1;
    int code = ds_test_main(tests, n, argc, argv);
    chat_engine_drop(&g);
    return code;
}

#endif
