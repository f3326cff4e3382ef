/* Bodies of chat requests, for all APIs, as the server reads them; what is accepted gets an answer, and that must be JSON.
 * Byte 0: the API and how the answer ends. The rest is the body; what follows a NUL in it is the answer. */
#include "../chat_engine.h"

static void note(const struct ds_call *c, const char *sentence) { (void)c, (void)sentence; }

/* Every event and every answer is one JSON text. */
static void check_out(const struct ds_bytes *out, bool stream)
{
    for (size_t at = 0; at < out->n;) {
        const char *line = out->p + at, *end = memchr(line, '\n', out->n - at);
        size_t n = end ? (size_t)(end - line) : out->n - at;
        bool data = n > 6 && !memcmp(line, "data: {", 7);
        at += n + 1;
        if (!n || (stream && !data)) continue;
        json_t *v = data ? json_loadb(line + 6, n - 6, JSON_ALLOW_NUL, NULL) : json_loadb(line, n, JSON_ALLOW_NUL, NULL);
        if (!v) abort();
        json_decref(v);
    }
}

static void answer(struct ds_reply *r, const char *text, size_t n, enum ds_finish why)
{
    struct ds_bytes out;
    struct ds_started started = { .prompt = (int64_t)r->request->prompt.n };
    struct ds_piece piece = { .text = text, .n = n, .id = 'a', .has_logprob = true };
    struct ds_ending ending = { .reason = why, .stop = "x", .prompt = started.prompt, .completion = 1 };
    for (int i = 1; i < r->request->n_bounds; i++)
        if (r->request->bounds[i] < r->request->bounds[i - 1] || r->request->bounds[i] > started.prompt) abort();
    ds_bytes_init(&out, 256 << 20);
    r->api->begin(r->ctx, &out);
    r->api->started(r->ctx, &started, &out);
    r->api->piece(r->ctx, &piece, &out);
    if (r->api->complete(r->ctx, text, n)) ending.reason = DS_FINISH_ENOUGH;
    r->api->finish(r->ctx, &ending, &out);
    if (out.failed) abort();
    check_out(&out, r->request->stream);
    ds_bytes_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct ds_route *const routes[] = { ds_routes_chat, ds_routes_messages, ds_routes_responses, ds_routes_messages + 1 };
    static const struct ds_server_options options = { .generic_tools = true };
    static struct ds_engine g;
    struct ds_reply r;
    if (!g.tok && !chat_engine(&g, STAND_IN_QWEN36, 4096)) abort();
    if (n < 2) return 0;
    const char *body = (const char *)data + 1, *nul = memchr(body, 0, n - 1);
    size_t len = nul ? (size_t)(nul - body) : n - 1;
    chat_call(&r, &g, &options, routes[data[0] & 3], body, len, note);
    if (r.refusal.status) {
        struct ds_bytes out;
        ds_bytes_init(&out, 1 << 20);
        if (r.refusal.status < 400 || r.refusal.status > 499 || strchr(r.refusal.msg, '\n')) abort();
        routes[data[0] & 3]->shape(&r.refusal, &out);
        check_out(&out, false);
        ds_bytes_free(&out);
    } else if (r.request) {
        answer(&r, nul ? nul + 1 : "", nul ? n - 2 - len : 0, data[0] & 4 ? DS_FINISH_LENGTH : DS_FINISH_END);
    }
    chat_reply_free(&r);
    return 0;
}
