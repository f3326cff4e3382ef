#include "server/exchange.h"

#include "base/os.h"

#include <stdlib.h>
#include <string.h>

const char *const ds_phase_names[] = { "queued", "prefill", "decode", "over" };

#define KEEPALIVE_NS ((uint64_t)5000000000)
#define JSON_BATCH ((size_t)64 << 10)        /* an answer in one JSON text wakes its connection this rarely */
#define MAX_OUT ((size_t)1 << 31)

enum kind { STARTED, PROGRESS, PIECE, FINISH, ERROR };
struct ds_event {
    struct ds_event *next;
    size_t bytes;
    enum kind kind;
    union {
        struct ds_started started;
        struct ds_prompt_progress progress;
        struct ds_ending ending;
        struct { int32_t id; bool has_logprob; float logprob; int n_top; size_t n; } piece;  /* then the likeliest, the text */
        struct { int status; } error;                                                         /* then the sentence */
    };
};

struct ds_exchange *ds_exchange_new(struct ds_request *q, const struct ds_api *api, void *ctx)
{
    static _Atomic uint64_t count;
    struct ds_exchange *x = calloc(1, sizeof *x);
    if (!x) {
        api->free(ctx);
        ds_request_free(q);
        free(q);
        return NULL;
    }
    x->owners = 2;
    x->number = ++count;
    x->q = q;
    x->api = api;
    x->ctx = ctx;
    x->queued_ns = ds_now_ns();
    x->wrote_ns = x->queued_ns;
    pthread_mutex_init(&x->lock, NULL);
    ds_bytes_init(&x->out, MAX_OUT);
    return x;
}

static void free_events(struct ds_event *ev)
{
    for (struct ds_event *next; ev; ev = next) {
        next = ev->next;
        free(ev);
    }
}

void ds_exchange_drop(struct ds_exchange *x)
{
    if (!x || --x->owners) return;
    free_events(x->head);
    x->api->free(x->ctx);
    ds_request_free(x->q);
    free(x->q);
    ds_bytes_free(&x->out);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

/* --- the engine's side ------------------------------------------------------------------------------------ */

static struct ds_event *event(enum kind kind, size_t extra)
{
    struct ds_event *ev = malloc(sizeof *ev + extra);
    if (ev) *ev = (struct ds_event){ .kind = kind, .bytes = sizeof *ev + extra };
    return ev;
}

/* Without memory for an event the client is let go: a gap in an answer would be worse. */
static void push(struct ds_exchange *x, struct ds_event *ev)
{
    pthread_mutex_lock(&x->lock);
    if (!ev || (x->lag > DS_LAG_MAX && ev->kind == PIECE)) {
        x->cancelled = true;
        x->failed = true;
        if (x->wake) x->wake(x->wake_ctx);
        free(ev);
    } else if (x->closed) {
        free(ev);
    } else {
        if (x->tail) x->tail->next = ev;
        else x->head = ev;
        x->tail = ev;
        x->lag += ev->bytes;
        bool last = ev->kind == FINISH || ev->kind == ERROR;
        if (x->wake && (x->q->stream || last || x->lag > JSON_BATCH)) x->wake(x->wake_ctx);
    }
    pthread_mutex_unlock(&x->lock);
}

void ds_push_started(struct ds_exchange *x, const struct ds_started *s)
{
    struct ds_event *ev = event(STARTED, 0);
    if (ev) ev->started = *s;
    push(x, ev);
}

void ds_push_progress(struct ds_exchange *x, const struct ds_prompt_progress *p)
{
    struct ds_event *ev = event(PROGRESS, 0);
    if (ev) ev->progress = *p;
    push(x, ev);
}

void ds_push_step(struct ds_exchange *x, const struct ds_token_step *s, bool has_logprob)
{
    size_t top = (size_t)s->n_top * sizeof *s->top;
    struct ds_event *ev = event(PIECE, top + s->n);
    if (ev) {
        ev->piece.id = s->id;
        ev->piece.has_logprob = has_logprob && s->id >= 0;
        ev->piece.logprob = s->logprob;
        ev->piece.n_top = s->n_top;
        ev->piece.n = s->n;
        memcpy(ev + 1, s->top, top);
        memcpy((char *)(ev + 1) + top, s->text, s->n);
    }
    push(x, ev);
}

void ds_push_finish(struct ds_exchange *x, const struct ds_ending *f)
{
    struct ds_event *ev = event(FINISH, 0);
    if (ev) ev->ending = *f;
    push(x, ev);
}

void ds_push_error(struct ds_exchange *x, int status, const char *sentence)
{
    size_t n = strlen(sentence) + 1;
    struct ds_event *ev = event(ERROR, n);
    if (ev) {
        ev->error.status = status;
        memcpy(ev + 1, sentence, n);
    }
    push(x, ev);
}

/* --- the socket's side ----------------------------------------------------------------------------------------- */

static void piece(struct ds_exchange *x, const struct ds_event *ev)
{
    const struct ds_logprob *top = (const void *)(ev + 1);
    struct ds_piece p = {
        .text = (const char *)(top + ev->piece.n_top), .n = ev->piece.n, .id = ev->piece.id,
        .has_logprob = ev->piece.has_logprob, .logprob = ev->piece.logprob, .top = top, .n_top = ev->piece.n_top,
    };
    x->api->piece(x->ctx, &p, &x->out);
}

static void render(struct ds_exchange *x, const struct ds_event *ev)
{
    if (x->over) return;
    switch (ev->kind) {
        case STARTED: x->api->started(x->ctx, &ev->started, &x->out); break;
        case PROGRESS: x->api->progress(x->ctx, &ev->progress, &x->out); break;
        case PIECE: piece(x, ev); break;
        case FINISH:
            x->api->finish(x->ctx, &ev->ending, &x->out);
            x->over = true;
            break;
        case ERROR:
            x->api->error(x->ctx, ev->error.status, (const char *)(ev + 1), &x->out);
            x->over = true;
            x->failed = true;
            break;
    }
}

/* All events that wait, as bytes. False, with the caller parked, when there is nothing. */
static bool refill(struct ds_exchange *x, void (*park)(void *ctx), void *park_ctx)
{
    pthread_mutex_lock(&x->lock);
    struct ds_event *ev = x->head;
    bool keepalive = x->keepalive, idle = !ev && !keepalive && x->begun && !x->over && !x->failed;
    x->head = x->tail = NULL;
    x->lag = 0;
    x->keepalive = false;
    if (idle) park(park_ctx);
    pthread_mutex_unlock(&x->lock);
    if (idle) return false;
    x->out.n = x->sent = 0;
    if (!x->begun) x->api->begin(x->ctx, &x->out);
    x->begun = true;
    for (const struct ds_event *p = ev; p; p = p->next) render(x, p);
    free_events(ev);
    if (!x->out.n && keepalive && !x->over) x->api->keepalive(x->ctx, &x->out);
    if (x->out.failed) x->failed = x->over = true;
    return true;
}

size_t ds_exchange_take(struct ds_exchange *x, char *dst, size_t max, void (*park)(void *ctx), void *park_ctx)
{
    while (x->sent == x->out.n) {
        if (x->over || (x->failed && x->begun)) {
            x->over = true;
            return 0;
        }
        if (!refill(x, park, park_ctx)) return 0;
    }
    size_t n = x->out.n - x->sent < max ? x->out.n - x->sent : max;
    memcpy(dst, x->out.p + x->sent, n);
    x->sent += n;
    x->wrote_ns = ds_now_ns();
    return n;
}

void ds_exchange_leave(struct ds_exchange *x)
{
    x->cancelled = true;
    pthread_mutex_lock(&x->lock);
    x->closed = true;
    x->wake = NULL;
    free_events(x->head);
    x->head = x->tail = NULL;
    pthread_mutex_unlock(&x->lock);
}

void ds_exchange_abort(struct ds_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->cancelled = true;
    x->failed = true;
    if (x->wake) x->wake(x->wake_ctx);
    pthread_mutex_unlock(&x->lock);
}

void ds_exchange_tick(struct ds_exchange *x, uint64_t now_ns)
{
    if (now_ns < x->wrote_ns + KEEPALIVE_NS) return;
    pthread_mutex_lock(&x->lock);
    x->keepalive = true;
    if (x->wake) x->wake(x->wake_ctx);
    pthread_mutex_unlock(&x->lock);
}
