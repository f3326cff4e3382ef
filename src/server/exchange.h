/* One request under way: what connects a client's socket with the engine.
 *
 * The engine's side pushes events and never waits; the socket's side takes them, has the adapter write bytes, and
 * wakes up through a function of its own. Two owners, each drops its part; the last one frees it. */
#ifndef DS_SERVER_EXCHANGE_H
#define DS_SERVER_EXCHANGE_H

#include "server/request.h"

#include <pthread.h>
#include <stdatomic.h>

enum ds_phase { DS_PHASE_QUEUED, DS_PHASE_PREFILL, DS_PHASE_DECODE, DS_PHASE_OVER };
extern const char *const ds_phase_names[];

/* Bytes of events that a client may lag behind; one that lags more is let go. */
#define DS_LAG_MAX ((size_t)8 << 20)

struct ds_event;

struct ds_exchange {
    _Atomic int owners;
    uint64_t number;                         /* of the request, for logs and status */
    struct ds_request *q;
    const struct ds_api *api;
    void *ctx;
    uint64_t queued_ns;

    /* What status shows; written by the engine's thread. */
    _Atomic int phase;
    _Atomic int64_t cached, processed, made;
    _Atomic uint64_t started_ns, first_ns;

    _Atomic bool cancelled;                  /* the client left, or lags too far behind: the engine stops */

    pthread_mutex_t lock;                    /* of what follows */
    struct ds_event *head, *tail;
    size_t lag;                              /* bytes of events not taken yet */
    bool closed;                             /* nobody takes events any more */
    bool keepalive;                          /* one is due */
    void (*wake)(void *ctx);                 /* called with the lock held; must not wait */
    void *wake_ctx;

    /* The socket's side alone. */
    struct ds_bytes out;
    size_t sent;
    bool begun, over;
    _Atomic bool failed;                     /* the transfer must not look complete */
    _Atomic uint64_t wrote_ns;
};

/* Takes over q and ctx, also when it fails (NULL: no memory). Two owners. */
struct ds_exchange *ds_exchange_new(struct ds_request *q, const struct ds_api *api, void *ctx);
void ds_exchange_drop(struct ds_exchange *x);

/* --- the engine's side: any of these may come after the client left --- */
void ds_push_started(struct ds_exchange *x, const struct ds_started *s);
void ds_push_progress(struct ds_exchange *x, const struct ds_prompt_progress *p);
void ds_push_step(struct ds_exchange *x, const struct ds_token_step *s, bool has_logprob);
void ds_push_finish(struct ds_exchange *x, const struct ds_ending *f);
void ds_push_error(struct ds_exchange *x, int status, const char *sentence);

/* --- the socket's side --- */
/* Next bytes to send, up to max; 0: none now (x->over tells whether that is the end). Runs the adapter. With the
 * lock held, `park` runs when nothing is there: it must arrange for wake to bring the caller back. */
size_t ds_exchange_take(struct ds_exchange *x, char *dst, size_t max, void (*park)(void *ctx), void *park_ctx);
void ds_exchange_leave(struct ds_exchange *x);       /* the connection is gone */
void ds_exchange_abort(struct ds_exchange *x);       /* any thread: the transfer ends unfinished, and the engine stops */
void ds_exchange_tick(struct ds_exchange *x, uint64_t now_ns);      /* any thread: a keepalive where one is due */

#endif
