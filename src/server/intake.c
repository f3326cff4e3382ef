/* Bodies -> requests, on a few threads of their own: a body of many megabytes takes seconds to read and tokenise. */
#include "server/server.h"

#include <stdlib.h>
#include <string.h>

enum { N_THREADS = 3, DEPTH_MAX = 128, VALUES_MAX = 8 << 20 };

struct ds_intake {
    ds_server *server;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct ds_hit **waiting; int n, cap;     /* first come, first served */
    _Atomic bool stop;
    ds_thread *threads[N_THREADS];
};

/* --- JSON ----------------------------------------------------------------------------------------------------- */

static int hex4(const char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int c = p[i], d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* p[i] is the backslash of an escape in a string; returns where the escape ends. */
static size_t mend_escape(char *p, size_t i, size_t n)
{
    if (i + 6 > n || p[i + 1] != 'u') return i + 2;
    int v = hex4(p + i + 2);
    if (v < 0xD800 || v > 0xDFFF) return i + 6;
    if (v < 0xDC00 && i + 12 <= n && p[i + 6] == '\\' && p[i + 7] == 'u') {
        int low = hex4(p + i + 8);
        if (low >= 0xDC00 && low <= 0xDFFF) return i + 12;
    }
    memcpy(p + i + 2, "fffd", 4);
    return i + 6;
}

bool ds_json_prepare(char *p, size_t n, struct ds_refusal *r)
{
    int depth = 0;
    size_t values = 1;
    bool in_string = false;
    for (size_t i = 0; i < n;) {
        char c = p[i];
        if (in_string && c == '\\') {
            i = mend_escape(p, i, n);
            continue;
        }
        if (c == '"') in_string = !in_string;
        else if (!in_string && (c == '[' || c == '{')) depth++;
        else if (!in_string && (c == ']' || c == '}')) depth--;
        else if (!in_string && (c == ',' || c == ':')) values++;
        if (depth > DEPTH_MAX) return ds_refuse(r, 400, NULL, "the JSON is nested deeper than %d levels", DEPTH_MAX);
        if (values > VALUES_MAX) return ds_refuse(r, 400, NULL, "the JSON holds more than %d values", VALUES_MAX);
        i++;
    }
    return true;
}

static json_t *parse(struct ds_bytes *b, struct ds_refusal *r)
{
    json_error_t err;
    if (!b->n) return ds_refuse(r, 400, NULL, "the body is empty, expected a JSON object"), NULL;
    if (!ds_json_prepare(b->p, b->n, r)) return NULL;
    json_t *v = json_loadb(b->p, b->n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &err);
    if (!v) return ds_refuse(r, 400, NULL, "the body is not JSON: %s (line %d, column %d)", err.text, err.line, err.column), NULL;
    if (json_is_object(v)) return v;
    json_decref(v);
    return ds_refuse(r, 400, NULL, "the body is not a JSON object"), NULL;
}

/* --- a call ----------------------------------------------------------------------------------------------------- */

static void note(const struct ds_call *c, const char *sentence) { ds_server_log(c->server, "%s", sentence); }

void ds_call_handle(ds_server *s, const struct ds_body *b, struct ds_reply *r)
{
    struct ds_call c = {
        .server = s, .g = s->g, .model = s->model, .path = b->path, .rest = b->rest, .options = &s->o, .note = note
    };
    json_t *body = NULL;
    *r = (struct ds_reply){ .status = 200, .type = "application/json" };
    ds_bytes_init(&r->body, (size_t)1 << 31);
    if (!strcmp(b->route->method, "POST") && !(body = parse(b->bytes, &r->refusal))) return;
    ds_bytes_free(b->bytes);                 /* the tree holds all of it */
    c.body = body;
    b->route->handle(&c, r);
    json_decref(body);
}

void ds_reply_free(struct ds_reply *r)
{
    ds_bytes_free(&r->body);
    if (!r->request) return;
    r->api->free(r->ctx);
    ds_request_free(r->request);
    free(r->request);
    r->request = NULL;
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

static void refuse(struct ds_hit *hit)
{
    struct ds_reply r = { .status = 503 };
    ds_refuse(&r.refusal, 503, NULL, "the server is shutting down");
    ds_http_answer(hit, &r);
}

void ds_intake_put(struct ds_intake *in, struct ds_hit *hit)
{
    pthread_mutex_lock(&in->lock);
    bool ok = !in->stop && in->n < in->cap;
    if (ok) {
        in->waiting[in->n++] = hit;
        pthread_cond_signal(&in->wake);
    }
    pthread_mutex_unlock(&in->lock);
    if (!ok) refuse(hit);
}

static struct ds_hit *next(struct ds_intake *in)
{
    struct ds_hit *hit = NULL;
    pthread_mutex_lock(&in->lock);
    while (!in->n && !in->stop) pthread_cond_wait(&in->wake, &in->lock);
    if (in->n) {
        hit = in->waiting[0];
        memmove(in->waiting, in->waiting + 1, (size_t)--in->n * sizeof(struct ds_hit *));
    }
    pthread_mutex_unlock(&in->lock);
    return hit;
}

static void loop(void *ctx)
{
    struct ds_intake *in = ctx;
    for (struct ds_hit *hit; (hit = next(in));) {
        struct ds_reply r;
        struct ds_body b = ds_http_body(hit);
        if (in->stop) {
            refuse(hit);
            continue;
        }
        ds_call_handle(in->server, &b, &r);
        ds_http_answer(hit, &r);
    }
}

ds_status ds_intake_open(struct ds_intake **out, ds_server *s, struct ds_err *e)
{
    struct ds_intake *in = *out = calloc(1, sizeof *in);
    if (!in) return ds_fail(e, DS_ENOMEM, "no memory for the server");
    in->server = s;
    in->cap = s->o.max_connections + 8;
    pthread_mutex_init(&in->lock, NULL);
    pthread_cond_init(&in->wake, NULL);
    in->waiting = calloc((size_t)in->cap, sizeof(struct ds_hit *));
    if (!in->waiting) return ds_fail(e, DS_ENOMEM, "no memory for the server");
    for (int i = 0; i < N_THREADS; i++)
        if (!(in->threads[i] = ds_thread_start(loop, in))) return ds_fail(e, DS_ENOMEM, "a thread for requests could not be started");
    return DS_OK;
}

void ds_intake_stop(struct ds_intake *in)
{
    pthread_mutex_lock(&in->lock);
    in->stop = true;
    pthread_cond_broadcast(&in->wake);
    pthread_mutex_unlock(&in->lock);
    for (int i = 0; i < N_THREADS; i++)
        if (in->threads[i]) ds_thread_join(in->threads[i]);
}

void ds_intake_close(struct ds_intake *in)
{
    free(in->waiting);
    pthread_cond_destroy(&in->wake);
    pthread_mutex_destroy(&in->lock);
    free(in);
}
