/* The engine's thread. Waiting requests are taken in order of arrival; each runs on a session of its own. Of those that
 * run, the one that has had the least of the engine's time is next, with one chunk of prefill or one decode step: so each
 * gets an equal share of the time, whatever the others do, and no request's result depends on another. */
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FINISH_MS = 1500 };                   /* for running answers, when the server ends */
#define SLOW_MS 500.0                        /* a chunk beyond this can be stopped within */
#define IDLE_NS ((int64_t)250000000)

struct slot {
    struct ds_sched *sched;
    ds_session *s;
    struct ds_exchange *x;                   /* NULL: free */
    ds_answer *a;
    bool decoding;
    int64_t at;                              /* prompt tokens done */
    uint64_t share_ns;                       /* of the engine's time, beside the others */
    uint64_t begun_ns, decode_ns;
    struct ds_record rec;
};

struct ds_sched {
    ds_server *server;
    ds_engine *g;
    ds_store *store;
    int ubatch, n_slots, n_waiting, head;
    struct slot *slots;
    struct ds_exchange **waiting;            /* a ring of o.queue */
    pthread_mutex_t lock;                    /* of waiting, slot.x, the flags below; and the condition */
    pthread_cond_t wake;
    bool poked, stopping, saved;
    uint64_t stop_ns, deadline_ns;
    double token_ms;                         /* of prefill, lately */
    ds_thread *thread;
};

/* --- queue ------------------------------------------------------------------------------------------------- */

bool ds_sched_submit(struct ds_sched *k, struct ds_exchange *x, const char **why)
{
    int max = k->server->o.queue;
    pthread_mutex_lock(&k->lock);
    *why = k->stopping ? "the server is shutting down" : k->n_waiting == max ? "the queue is full; try again later" : NULL;
    if (!*why) {
        k->waiting[(k->head + k->n_waiting++) % max] = x;
        pthread_cond_signal(&k->wake);
    }
    pthread_mutex_unlock(&k->lock);
    return !*why;
}

void ds_sched_poke(struct ds_sched *k)
{
    pthread_mutex_lock(&k->lock);
    k->poked = true;
    pthread_cond_signal(&k->wake);
    pthread_mutex_unlock(&k->lock);
}

/* Removes the i-th that waits; the lock is held. */
static struct ds_exchange *take_waiting(struct ds_sched *k, int i)
{
    int max = k->server->o.queue;
    struct ds_exchange *x = k->waiting[(k->head + i) % max];
    for (; i > 0; i--) k->waiting[(k->head + i) % max] = k->waiting[(k->head + i - 1) % max];
    k->head = (k->head + 1) % max;
    k->n_waiting--;
    return x;
}

/* One that is counted as over may still have its session stored. */
static bool runs(const struct slot *t) { return t->x && t->x->phase != DS_PHASE_OVER; }

void ds_sched_each(struct ds_sched *k, void (*fn)(void *ctx, const struct ds_exchange *x, int place), void *ctx)
{
    pthread_mutex_lock(&k->lock);
    for (int i = 0; i < k->n_slots; i++)
        if (runs(&k->slots[i])) fn(ctx, k->slots[i].x, 0);
    for (int i = 0; i < k->n_waiting; i++) fn(ctx, k->waiting[(k->head + i) % k->server->o.queue], i + 1);
    pthread_mutex_unlock(&k->lock);
}

void ds_sched_load(struct ds_sched *k, int *running, int *waiting)
{
    pthread_mutex_lock(&k->lock);
    *waiting = k->n_waiting;
    *running = 0;
    for (int i = 0; i < k->n_slots; i++) *running += runs(&k->slots[i]);
    pthread_mutex_unlock(&k->lock);
}

const ds_store *ds_sched_store(const struct ds_sched *k) { return k->store; }

/* --- the end of a request ------------------------------------------------------------------------------------ */

static double ms_since(uint64_t ns) { return (double)(ds_now_ns() - ns) * 1e-6; }

/* One that never left the queue. */
static void drop_waiting(struct ds_sched *k, struct ds_exchange *x, const char *end)
{
    struct ds_record r = {
        .number = x->number, .at = ds_unix_seconds(), .prompt = (int64_t)x->q->prompt.n, .queue_ms = ms_since(x->queued_ns)
    };
    snprintf(r.label, sizeof r.label, "%s", x->q->label);
    snprintf(r.end, sizeof r.end, "%s", end);
    ds_tally_add(&k->server->tally, &r);
    ds_exchange_drop(x);
}

/* Before the client sees the end, so that whoever asks then finds it counted. */
static void count(struct ds_sched *k, struct slot *t, const char *end)
{
    struct ds_record *r = &t->rec;
    r->completion = t->x->made;
    r->at = ds_unix_seconds();
    if (t->decoding) r->decode_ms = ms_since(t->decode_ns);
    snprintf(r->end, sizeof r->end, "%s", end);
    ds_tally_add(&k->server->tally, r);
    t->x->phase = DS_PHASE_OVER;
    ds_server_log(k->server, DS_LOG_REQUEST,
                  "request=%llu api=%s end=%s prompt=%lld cached=%lld generated=%lld queue_ms=%.1f prefill_ms=%.1f decode_ms=%.1f",
                  (unsigned long long)r->number, r->label, end, (long long)r->prompt, (long long)r->cached, (long long)r->completion,
                  r->queue_ms, r->prefill_ms, r->decode_ms);
}

/* The slot is free again. good: what the session holds may be kept. */
static void free_slot(struct ds_sched *k, struct slot *t, bool good)
{
    struct ds_exchange *x = t->x;
    if (good) ds_store_end(k->store, t->s);
    else ds_store_forget(k->store, t->s);
    ds_answer_free(t->a);
    t->a = NULL;
    pthread_mutex_lock(&k->lock);
    t->x = NULL;
    pthread_mutex_unlock(&k->lock);
    ds_exchange_drop(x);
}

static void cancel_slot(struct ds_sched *k, struct slot *t)
{
    count(k, t, "cancelled");
    free_slot(k, t, true);
}

static void fail_slot(struct ds_sched *k, struct slot *t, int status, const char *sentence, bool good)
{
    if (!good) ds_server_log(k->server, DS_LOG_REQUEST, "request=%llu failed: %s", (unsigned long long)t->x->number, sentence);
    count(k, t, "failed");
    ds_push_error(t->x, status, sentence);
    free_slot(k, t, good);
}

static int status_of(ds_status st) { return st == DS_EARG ? 400 : st == DS_ENOMEM ? 503 : 500; }

static void finish_slot(struct ds_sched *k, struct slot *t, enum ds_finish why, const char *stop)
{
    struct ds_ending f = {
        .reason = why, .stop = stop, .prompt = t->rec.prompt, .cached = t->rec.cached, .completion = t->x->made,
        .queue_ms = t->rec.queue_ms, .prefill_ms = t->rec.prefill_ms, .decode_ms = ms_since(t->decode_ns),
    };
    for (int i = 0; stop && i < t->x->q->n_stops; i++)       /* the request's own copy lives as long as the event */
        if (!strcmp(t->x->q->stops[i], stop)) f.stop = t->x->q->stops[i];
    count(k, t, ds_finish_names[why]);
    ds_push_finish(t->x, &f);
    free_slot(k, t, true);
}

/* --- the start of a request -------------------------------------------------------------------------------------- */

static void push_progress(const struct slot *t)
{
    struct ds_exchange *x = t->x;
    x->processed = t->at;
    if (!x->q->return_progress) return;
    struct ds_prompt_progress p = { t->rec.prompt, t->rec.cached, t->at, ms_since(t->begun_ns) };
    ds_push_progress(x, &p);
}

static ds_answer *new_answer(const struct ds_sched *k, const struct ds_request *q)
{
    struct ds_answer_options o = {
        .sampling = q->sampling, .stops = (const char *const *)q->stops, .n_stops = q->n_stops, .max_new = q->max_new,
        .logprobs = q->logprobs, .ignore_end = q->ignore_end,
    };
    ds_answer *a = ds_answer_new(k->g, &o);
    if (a) ds_answer_prompt(a, q->prompt.p, (int64_t)q->prompt.n);
    return a;
}

/* A newcomer has as much of its share as the one that has least, so that it neither waits nor takes over. */
static uint64_t least_share(const struct ds_sched *k, const struct slot *but)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < k->n_slots; i++)
        if (k->slots[i].x && &k->slots[i] != but && k->slots[i].share_ns < least) least = k->slots[i].share_ns;
    return least == UINT64_MAX ? 0 : least;
}

static void start(struct ds_sched *k, struct slot *t)
{
    struct ds_exchange *x = t->x;
    const struct ds_request *q = x->q;
    struct ds_err e;
    char line[256];
    t->begun_ns = ds_now_ns();
    t->decoding = false;
    t->share_ns = least_share(k, t);
    t->rec = (struct ds_record){ .number = x->number, .prompt = (int64_t)q->prompt.n, .queue_ms = ms_since(x->queued_ns) };
    snprintf(t->rec.label, sizeof t->rec.label, "%s", q->label);
    if (!(t->a = new_answer(k, q))) {
        fail_slot(k, t, 503, "no memory for the answer", true);
        return;
    }
    ds_status st = ds_store_begin(k->store, t->s, q->prompt.p, (int64_t)q->prompt.n, q->bounds, q->n_bounds, &t->rec.lookup, &e);
    if (st) {
        fail_slot(k, t, status_of(st), e.msg, true);
        return;
    }
    ds_lookup_line(&t->rec.lookup, line, sizeof line);
    ds_server_log(k->server, DS_LOG_REQUEST, "request=%llu %s", (unsigned long long)x->number, line);
    t->rec.looked = true;
    t->rec.cached = t->at = t->rec.lookup.start;
    x->cached = t->rec.cached;
    x->started_ns = t->begun_ns;
    x->phase = DS_PHASE_PREFILL;
    struct ds_started ev = { t->rec.prompt, t->rec.cached, t->rec.lookup.reason };
    ds_push_started(x, &ev);
    push_progress(t);
}

/* --- work ----------------------------------------------------------------------------------------------------------- */

static void begin_decode(struct slot *t)
{
    t->rec.prefill_ms = ms_since(t->begun_ns);
    t->decoding = true;
    t->decode_ns = ds_now_ns();
    t->x->phase = DS_PHASE_DECODE;
}

static void add_stages(struct slot *t)
{
    const struct ds_profile *p = ds_session_profile(t->s);
    for (int i = 0; p && i < DS_ST_COUNT; i++) t->rec.stage_ms[i] += p->stage_ms[i];
    if (p) t->rec.forward_ms += p->total_ms;
}

/* The chunks of one prompt as one prefill, in the line that every program prints. */
static void print_profile(const struct ds_sched *k, const struct slot *t)
{
    struct ds_profile p = { .mode = k->server->o.profile, .P = (int)t->rec.prefilled, .total_ms = t->rec.forward_ms };
    char line[256];
    if (!p.mode || !p.P) return;
    memcpy(p.stage_ms, t->rec.stage_ms, sizeof p.stage_ms);
    ds_profile_line(&p, ds_engine_backend(k->g), line, sizeof line);
    ds_server_log(k->server, DS_LOG_REQUEST, "%s", line);
}

static int to_stop(void *ctx)
{
    const struct slot *t = ctx;
    struct ds_sched *k = t->sched;
    pthread_mutex_lock(&k->lock);
    bool stopping = k->stopping;
    pthread_mutex_unlock(&k->lock);
    return stopping || t->x->cancelled;
}

/* A chunk that takes long is left when nobody wants it any more; the session then stands before it. */
static ds_status timed_prefill(struct ds_sched *k, struct slot *t, const int32_t *ids, int n, enum ds_rows rows, struct ds_err *e)
{
    bool slow = k->token_ms * n > SLOW_MS;
    if (slow && ds_session_set_stop(t->s, to_stop, t, e)) ds_server_log(k->server, DS_LOG_WARNING, "%s", e->msg);
    uint64_t from = ds_now_ns();
    ds_status st = ds_store_prefill(k->store, t->s, ids, n, rows, NULL, NULL, e);
    if (!st) k->token_ms = ms_since(from) / n;
    if (slow) ds_session_set_stop(t->s, NULL, NULL, e);
    return st;
}

static void prefill_chunk(struct ds_sched *k, struct slot *t)
{
    const struct ds_request *q = t->x->q;
    struct ds_err e;
    int64_t left = (int64_t)q->prompt.n - t->at;
    int n = left < k->ubatch ? (int)left : k->ubatch;
    if (n) {
        enum ds_rows rows = n == left ? DS_ROWS_LAST : DS_ROWS_NONE;
        ds_status st = timed_prefill(k, t, q->prompt.p + t->at, n, rows, &e);
        if (st == DS_ECANCEL) return;              /* the loop sees why */
        if (st) {
            fail_slot(k, t, status_of(st), e.msg, false);
            return;
        }
        add_stages(t);
        t->at += n;
        t->rec.prefilled += n;
        t->rec.prefill_ms = ms_since(t->begun_ns);
        push_progress(t);
    }
    if (t->at < (int64_t)q->prompt.n) return;
    print_profile(k, t);
    begin_decode(t);
}

static void decode_step(struct ds_sched *k, struct slot *t)
{
    struct ds_exchange *x = t->x;
    struct ds_token_step step;
    struct ds_err e;
    ds_status st = ds_answer_step(t->a, t->s, &step, &e);
    if (!st && step.id >= 0 && !x->made++) {
        x->first_ns = ds_now_ns();
        t->rec.first_ms = (double)(x->first_ns - x->queued_ns) * 1e-6;
    }
    if (!st && (step.id >= 0 || step.n)) ds_push_step(x, &step, x->q->logprobs >= 0);
    if (!st && step.over) {
        finish_slot(k, t, step.finish, step.stop);
        return;
    }
    if (!st && x->api->complete && x->api->complete(x->ctx, step.text, step.n)) {
        finish_slot(k, t, DS_FINISH_ENOUGH, NULL);
        return;
    }
    if (!st) st = ds_session_decode(t->s, step.id, &e);
    if (st) fail_slot(k, t, status_of(st), e.msg, false);
}

/* The one that has had least; NULL: none runs. */
static struct slot *next_slot(struct ds_sched *k)
{
    struct slot *best = NULL;
    for (int i = 0; i < k->n_slots; i++) {
        struct slot *t = &k->slots[i];
        if (t->x && (!best || t->share_ns < best->share_ns)) best = t;
    }
    return best;
}

static void drop_cancelled(struct ds_sched *k)
{
    for (int i = 0; i < k->n_slots; i++)
        if (k->slots[i].x && k->slots[i].x->cancelled) cancel_slot(k, &k->slots[i]);
    for (int i = 0;;) {
        struct ds_exchange *x = NULL;
        pthread_mutex_lock(&k->lock);
        while (i < k->n_waiting && !k->waiting[(k->head + i) % k->server->o.queue]->cancelled) i++;
        if (i < k->n_waiting) x = take_waiting(k, i);
        pthread_mutex_unlock(&k->lock);
        if (!x) return;
        drop_waiting(k, x, "cancelled");
    }
}

/* The waiting request that is next, into the free session that suits it best. */
static bool admit(struct ds_sched *k)
{
    ds_session *idle[64];
    struct slot *of[64];
    int n = 0;
    for (int i = 0; i < k->n_slots; i++) {
        if (k->slots[i].x) continue;
        idle[n] = k->slots[i].s;
        of[n++] = &k->slots[i];
    }
    if (!n) return false;
    pthread_mutex_lock(&k->lock);
    struct ds_exchange *x = k->n_waiting ? k->waiting[k->head] : NULL;
    pthread_mutex_unlock(&k->lock);
    if (!x) return false;
    struct slot *t = of[ds_store_pick(k->store, idle, n, x->q->prompt.p, (int64_t)x->q->prompt.n)];
    pthread_mutex_lock(&k->lock);
    t->x = take_waiting(k, 0);
    pthread_mutex_unlock(&k->lock);
    start(k, t);
    return true;
}

static void work(struct ds_sched *k, struct slot *t)
{
    uint64_t from = ds_now_ns();
    if (t->decoding) decode_step(k, t);
    else prefill_chunk(k, t);
    t->share_ns += ds_now_ns() - from;
}

/* --- the end of the server ------------------------------------------------------------------------------------------- */

static const char *closing(const struct ds_sched *k)
{
    return k->server->o.store.dir ? "the server is shutting down; what was computed of this request is kept for the next start"
                                  : "the server is shutting down";
}

/* Nobody waits any more, prefills stop, answers may end for a moment. True: all is done. */
static bool wind_down(struct ds_sched *k)
{
    bool late = ds_now_ns() > k->stop_ns + (uint64_t)FINISH_MS * 1000000, any = false;
    for (;;) {
        pthread_mutex_lock(&k->lock);
        struct ds_exchange *x = k->n_waiting ? take_waiting(k, 0) : NULL;
        pthread_mutex_unlock(&k->lock);
        if (!x) break;
        ds_push_error(x, 503, closing(k));
        drop_waiting(k, x, "refused");
    }
    for (int i = 0; i < k->n_slots; i++) {
        struct slot *t = &k->slots[i];
        if (t->x && (late || !t->decoding)) fail_slot(k, t, 503, closing(k), true);
        any |= t->x != NULL;
    }
    return !any;
}

static void save(struct ds_sched *k)
{
    struct ds_store_stats st;
    ds_store_flush(k->store, k->deadline_ns);
    ds_store_get_stats(k->store, &st);
    k->saved = !st.disk_limit || !st.unsaved;
    if (!st.disk_limit) return;
    const char *why = ds_store_write_failure(k->store);
    if (!k->saved) ds_server_log(k->server, DS_LOG_WARNING, "sessions: not every prefix is in a file: %s", why ? why : "the time for it was over");
    ds_server_log(k->server, DS_LOG_REQUEST, "sessions files=%llu bytes=%llu unsaved=%llu", (unsigned long long)st.files,
                  (unsigned long long)st.disk_used, (unsigned long long)st.unsaved);
}

static void wait_for_work(struct ds_sched *k)
{
    struct timespec until;
    timespec_get(&until, TIME_UTC);
    until.tv_nsec += IDLE_NS;
    if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
    pthread_mutex_lock(&k->lock);
    if (!k->n_waiting && !k->poked && !k->stopping) pthread_cond_timedwait(&k->wake, &k->lock, &until);
    pthread_mutex_unlock(&k->lock);
}

static void loop(void *ctx)
{
    struct ds_sched *k = ctx;
    for (;;) {
        pthread_mutex_lock(&k->lock);
        bool stopping = k->stopping;
        k->poked = false;
        pthread_mutex_unlock(&k->lock);
        drop_cancelled(k);
        if (stopping && wind_down(k)) break;
        while (!stopping && admit(k)) continue;
        struct slot *t = next_slot(k);
        if (t) work(k, t);
        else if (!stopping && !ds_store_tick(k->store)) wait_for_work(k);
    }
    save(k);
}

bool ds_sched_stop(struct ds_sched *k, uint64_t deadline_ns)
{
    pthread_mutex_lock(&k->lock);
    k->stopping = true;
    k->stop_ns = ds_now_ns();
    k->deadline_ns = deadline_ns;
    pthread_cond_signal(&k->wake);
    pthread_mutex_unlock(&k->lock);
    if (k->thread) ds_thread_join(k->thread);
    k->thread = NULL;
    return k->saved;
}

/* --- open and close ---------------------------------------------------------------------------------------------------- */

static void warn(void *ctx, const char *sentence)
{
    const struct ds_sched *k = ctx;
    ds_server_log(k->server, DS_LOG_WARNING, "sessions: %s", sentence);
}

static ds_status open_sessions(struct ds_sched *k, struct ds_err *e)
{
    k->slots = calloc((size_t)k->n_slots, sizeof *k->slots);
    k->waiting = calloc((size_t)k->server->o.queue, sizeof(struct ds_exchange *));
    if (!k->slots || !k->waiting) return ds_fail(e, DS_ENOMEM, "no memory for a queue of %d requests", k->server->o.queue);
    for (int i = 0; i < k->n_slots; i++) {
        k->slots[i].sched = k;
        ds_status st = ds_session_new(&k->slots[i].s, k->g, e);
        if (st) return st;
        ds_session_set_profile(k->slots[i].s, k->server->o.profile ? k->server->o.profile : DS_PROF_STAMP);
    }
    return DS_OK;
}

ds_status ds_sched_open(struct ds_sched **out, ds_server *s, struct ds_err *e)
{
    struct ds_sched *k = *out = calloc(1, sizeof *k);
    if (!k) return ds_fail(e, DS_ENOMEM, "no memory for the server");
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->wake, NULL);
    k->server = s;
    k->g = s->g;
    k->ubatch = ds_engine_ubatch(s->g);
    k->n_slots = s->o.parallel;
    k->token_ms = SLOW_MS;                         /* until it is known */
    struct ds_store_options so = s->o.store;
    so.warn = warn;
    so.warn_ctx = k;
    ds_status st = open_sessions(k, e);
    if (!st) st = ds_store_open(&k->store, k->g, &so, e);
    if (!st && !(k->thread = ds_thread_start(loop, k))) st = ds_fail(e, DS_ENOMEM, "the engine's thread could not be started");
    if (st) {
        ds_sched_close(k);
        *out = NULL;
    }
    return st;
}

void ds_sched_close(struct ds_sched *k)
{
    if (!k) return;
    for (int i = 0; k->slots && i < k->n_slots; i++) {
        if (k->store && k->slots[i].s) ds_store_detach(k->store, k->slots[i].s);
        ds_session_free(k->slots[i].s);
    }
    ds_store_close(k->store);
    free(k->slots);
    free(k->waiting);
    pthread_cond_destroy(&k->wake);
    pthread_mutex_destroy(&k->lock);
    free(k);
}
