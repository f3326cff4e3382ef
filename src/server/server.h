/* The parts of a server, and how they hang together:
 *
 *     http     sockets, by libmicrohttpd: one thread, connections that wait are suspended
 *     intake   bodies -> requests, on a few threads, so that a large body holds up nobody
 *     sched    the engine's thread: queue, sessions, prefill chunks and decode steps in turn
 *     watch    the clock: keepalives, clients that left, requests that never became whole
 *     tally    numbers, for /metrics, /status and the page */
#ifndef DS_SERVER_SERVER_H
#define DS_SERVER_SERVER_H

#include "server/api.h"
#include "server/exchange.h"

#include "base/os.h"

struct ds_http;
struct ds_intake;
struct ds_sched;
struct ds_watch;

/* --- tally ---------------------------------------------------------------------------------------------- */

enum { DS_RECENT = 32, DS_CODES = 600 };

/* A request that is over. */
struct ds_record {
    uint64_t number;
    char label[24];
    int64_t at;                              /* end, Unix seconds */
    int64_t prompt, cached, prefilled, completion;           /* tokens; prefilled: computed of the prompt */
    struct ds_lookup lookup;
    bool looked;                             /* it left the queue; lookup holds */
    double queue_ms, prefill_ms, decode_ms, first_ms;        /* first_ms: from arrival to the first token; 0: none */
    double stage_ms[DS_ST_COUNT], forward_ms;        /* of all its prefill chunks: by stage, and their wall */
    char end[24];                            /* ds_finish_names, "cancelled", "failed", "refused" */
};

struct ds_tally {
    pthread_mutex_t lock;
    struct ds_record recent[DS_RECENT];      /* a ring; n is the number ever written */
    uint64_t n;
    struct {
        uint64_t requests, finished, cancelled, failed;
        uint64_t prompt, cached, prefilled, generated;       /* tokens */
        double queue_s, prefill_s, decode_s, stage_s[DS_ST_COUNT];
        uint64_t reuse[DS_MISS_DAMAGED + 1];
        uint64_t first_bucket[12], first_count;              /* time to the first token */
        double first_s;
    } sum;
    _Atomic uint64_t codes[DS_CODES];        /* responses by status */
    _Atomic uint64_t bytes_in, bytes_out;
};
extern const double ds_first_bounds[11];     /* seconds; the last bucket is everything */
void ds_tally_init(struct ds_tally *t);
void ds_tally_add(struct ds_tally *t, const struct ds_record *r);

/* --- server ---------------------------------------------------------------------------------------------- */

struct ds_server {
    ds_engine *g;
    struct ds_server_options o;              /* as given, with defaults filled in */
    char model[128];
    struct ds_plan plan;
    uint64_t start_ns;
    struct ds_tally tally;
    struct ds_http *http;
    struct ds_intake *intake;
    struct ds_sched *sched;
    struct ds_watch *watch;
};
void ds_server_log(const ds_server *s, enum ds_log kind, const char *fmt, ...) DS_PRINTF(3, 4);

/* --- sched ----------------------------------------------------------------------------------------------- */

ds_status ds_sched_open(struct ds_sched **out, ds_server *s, struct ds_err *e);
/* Queues x and owns a part of it from then on. False: the queue is full or closed, *why says which; x stays the caller's. */
bool ds_sched_submit(struct ds_sched *k, struct ds_exchange *x, const char **why);
void ds_sched_poke(struct ds_sched *k);      /* a request was cancelled */
/* Ends everything: see ds_server_close. True when all was written by deadline_ns. Joins the thread. */
bool ds_sched_stop(struct ds_sched *k, uint64_t deadline_ns);
void ds_sched_close(struct ds_sched *k);
const ds_store *ds_sched_store(const struct ds_sched *k);
/* Calls fn for every request that waits or runs, in order, running ones first; none of them ends meanwhile. */
void ds_sched_each(struct ds_sched *k, void (*fn)(void *ctx, const struct ds_exchange *x, int place), void *ctx);
void ds_sched_load(struct ds_sched *k, int *running, int *waiting);

/* --- http ------------------------------------------------------------------------------------------------- */

/* Beyond the limit of connections, so that somebody can be told of it. */
enum { DS_SPARE_CONNECTIONS = 64 };

struct ds_hit;                               /* one HTTP request */
struct ds_body { const char *path, *rest; const struct ds_route *route; struct ds_bytes *bytes; };

ds_status ds_http_open(struct ds_http **out, ds_server *s, struct ds_err *e);
int ds_http_port(const struct ds_http *h);
int ds_http_connections(const struct ds_http *h);
void ds_http_quiesce(struct ds_http *h);     /* no new connections and requests */
void ds_http_close(struct ds_http *h);       /* what still waits is ended */
void ds_http_watch(struct ds_http *h, uint64_t now_ns);      /* see watch */
/* Intake has read the request: the reply passes to http. */
void ds_http_answer(struct ds_hit *hit, struct ds_reply *r);
struct ds_body ds_http_body(struct ds_hit *hit);

/* --- intake, watch ------------------------------------------------------------------------------------------ */

ds_status ds_intake_open(struct ds_intake **out, ds_server *s, struct ds_err *e);
void ds_intake_put(struct ds_intake *in, struct ds_hit *hit);
void ds_intake_stop(struct ds_intake *in);           /* what waits and what comes is refused */
void ds_intake_close(struct ds_intake *in);
void ds_call_handle(ds_server *s, const struct ds_body *b, struct ds_reply *r);      /* parse, check, handler */
void ds_reply_free(struct ds_reply *r);

ds_status ds_watch_open(struct ds_watch **out, ds_server *s, struct ds_err *e);
void ds_watch_close(struct ds_watch *w);

#endif
