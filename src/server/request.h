/* What an API adapter asks of the engine, and what the engine tells it back.
 *
 * A request is filled in by an adapter on an intake thread, then read by the engine's thread; nobody changes it any
 * more. Events come back in this order, and an adapter turns each into bytes of its API:
 *
 *     begin  started  progress*  piece*  finish            or, after any of them,  error
 *
 * with keepalive wherever nothing was written for five seconds. All of an adapter's functions but one run on one thread
 * at a time and never wait. `complete` runs on the engine's thread, beside them. */
#ifndef DS_SERVER_REQUEST_H
#define DS_SERVER_REQUEST_H

#include "base/buf.h"
#include "deltascope_answer.h"
#include "deltascope_store.h"

struct ds_request {
    const char *label;              /* static: the API, for status and metrics: "completions" */
    struct ds_ids prompt;           /* owned; at least one id, at most the window's */
    int64_t *bounds; int n_bounds;  /* owned; message boundaries as token counts, ascending, in (0, prompt.n], or NULL */
    struct ds_sampling sampling;    /* sampling.bias: owned */
    char **stops; int n_stops;      /* owned; none empty */
    int64_t max_new;                /* new tokens; -1: until the model or the window ends */
    int logprobs;                   /* likeliest tokens told beside each new one, up to DS_LOGPROBS_MAX; -1: no probabilities at all */
    bool ignore_end;                /* end tokens are never picked */
    bool stream;                    /* text/event-stream, and each event is written as it comes; else one JSON text */
    bool return_progress;           /* progress events are wanted */
};
void ds_request_init(struct ds_request *q);          /* greedy, no limit, nothing owned */
void ds_request_free(struct ds_request *q);          /* what it owns */

/* --- events --------------------------------------------------------------------------------------- */

/* The prompt has left the queue, and its longest stored prefix is in place. */
struct ds_started {
    int64_t prompt;                 /* tokens of the prompt */
    int64_t cached;                 /* of these, taken from a stored prefix */
    enum ds_reuse reason;
};

/* After every chunk of prefill, once before the first, and only where the request asked. */
struct ds_prompt_progress {
    int64_t total, cache, processed;        /* tokens; processed counts the cached ones */
    double time_ms;                         /* since the prompt left the queue */
};

/* One new token. Text that may yet turn into a stop string, or that does not complete a character, is held back, so
 * `text` may be empty, or hold what earlier tokens left; it is always whole characters. */
struct ds_piece {
    const char *text; size_t n;             /* not NUL-terminated */
    int32_t id;                             /* -1: text that was held back, at the end of an answer */
    bool has_logprob;
    float logprob;                          /* of id, in the model's own distribution (before penalties and temperature) */
    const struct ds_logprob *top; int n_top;
};

struct ds_ending {
    enum ds_finish reason;
    const char *stop;                       /* DS_FINISH_STOP: the string that was met; else NULL */
    int64_t prompt, cached, completion;     /* tokens; cached is a part of prompt, completion what was generated */
    double queue_ms, prefill_ms, decode_ms;
};

/* --- adapter ---------------------------------------------------------------------------------------- */

/* Functions that append to `out` what the client gets. out never fails for want of room within one call. A streaming
 * adapter writes whole events; the other writes nothing (or white space) until finish. None but complete may be NULL. */
struct ds_api {
    void (*begin)(void *ctx, struct ds_bytes *out);                  /* accepted: the headers are out, the queue comes next */
    void (*started)(void *ctx, const struct ds_started *s, struct ds_bytes *out);
    void (*progress)(void *ctx, const struct ds_prompt_progress *p, struct ds_bytes *out);
    void (*piece)(void *ctx, const struct ds_piece *p, struct ds_bytes *out);
    void (*finish)(void *ctx, const struct ds_ending *f, struct ds_bytes *out);
    /* Something failed after begin. status as HTTP would have it. Nothing follows; the connection is closed. */
    void (*error)(void *ctx, int status, const char *sentence, struct ds_bytes *out);
    void (*keepalive)(void *ctx, struct ds_bytes *out);              /* must write something that clients skip */
    void (*free)(void *ctx);
    /* The text of each new token, before the next is computed, so that the length of an answer does not depend on when it is
     * read. True: the answer is complete: DS_FINISH_ENOUGH. NULL: never before the model, a stop string or a limit ends it. */
    bool (*complete)(void *ctx, const char *text, size_t n);
};

#endif
