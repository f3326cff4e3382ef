/* Bodies -> requests, on a few threads of their own: a body of many megabytes takes seconds to read and tokenise. */
#include "server/server.h"

#include <stdlib.h>
#include <string.h>

enum { N_THREADS = 3 };
#define LARGE_BODY ((size_t)1 << 20)         /* its tree is many times as large, and the C library would keep that */

struct ds_intake {
    ds_server *server;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct ds_hit **waiting; int n, cap;     /* first come, first served */
    _Atomic bool stop;
    ds_thread *threads[N_THREADS];
};

/* --- a call ----------------------------------------------------------------------------------------------------- */

static void note(const struct ds_call *c, const char *sentence) { ds_server_log(c->server, DS_LOG_REQUEST, "%s", sentence); }

void ds_call_handle(ds_server *s, const struct ds_body *b, struct ds_reply *r)
{
    struct ds_call c = {
        .server = s, .g = s->g, .model = s->model, .path = b->path, .rest = b->rest, .options = &s->o, .note = note
    };
    json_t *body = NULL;
    *r = (struct ds_reply){ .status = 200, .type = "application/json" };
    ds_bytes_init(&r->body, (size_t)1 << 31);
    bool ok = strcmp(b->route->method, "POST") || (body = ds_body_parse(b->bytes, &r->refusal));
    ds_bytes_free(b->bytes);                 /* the tree holds all of it */
    c.body = body;
    if (ok) b->route->handle(&c, r);
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
        const bool large = b.bytes->n >= LARGE_BODY;
        ds_call_handle(in->server, &b, &r);
        ds_http_answer(hit, &r);
        if (large) ds_mem_give_back();       /* takes milliseconds: nobody waits for this thread now */
    }
}

ds_status ds_intake_open(struct ds_intake **out, ds_server *s, struct ds_err *e)
{
    struct ds_intake *in = *out = calloc(1, sizeof *in);
    if (!in) return ds_fail(e, DS_ENOMEM, "no memory for the server");
    in->server = s;
    in->cap = s->o.max_connections + DS_SPARE_CONNECTIONS;
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
