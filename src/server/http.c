/* Sockets, by libmicrohttpd: one thread for all of them. A connection that waits (for intake, or for the engine) is
 * suspended, and resumed when there is something to send; nobody else ever touches a socket. Locks: a hit's state is
 * its thread's own; h->lock guards the lists; an exchange's lock may be taken inside h->lock, never the other way. */
#include "server/access.h"
#include "server/server.h"

#include "base/socket.h"

#include <inttypes.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS ((uint64_t)1000000000)
enum { STALE_S = 30, SLOW_BODY_BPS = 16 << 10, LINGER_MS = 400 };
#define BODIES_MAX ((uint64_t)1 << 30)       /* bytes of all bodies that are being received or read */

struct conn {                                /* a socket */
    struct conn *prev, *next;
    int fd;
    uint64_t since_ns;                       /* when it was opened, or its last request ended */
    bool busy;                               /* a request's headers are whole */
    bool shut;                               /* it was told to go */
};

enum state { RECEIVING, READING, ANSWERED, STREAMING };

struct ds_hit {
    struct ds_hit *prev, *next;
    struct ds_http *h;
    struct MHD_Connection *c;
    struct conn *conn;
    const struct ds_route *route;            /* NULL: none */
    char *path; const char *rest;
    char allow[64];                          /* of a 405 */
    _Atomic int state;
    uint64_t since_ns;
    _Atomic uint64_t received;
    uint64_t held;                           /* of h->bodies */
    struct ds_bytes body;
    struct ds_reply reply;
    struct ds_exchange *x;
    bool parked;                             /* guarded by x->lock */
    bool preflight;
    bool last;                               /* nothing more is read from its connection */
    _Atomic bool left;
};

struct ds_http {
    ds_server *server;
    struct MHD_Daemon *daemon;
    int port;
    pthread_mutex_t lock;
    struct conn conns;                       /* ring heads */
    struct ds_hit hits;
    _Atomic int n_conns, n_shut;             /* n_shut: of them, those that were told to go */
    _Atomic uint64_t bodies;
    _Atomic bool quiet, closing;
};

int ds_http_port(const struct ds_http *h) { return h->port; }
int ds_http_connections(const struct ds_http *h) { return h->n_conns; }

/* --- responses ----------------------------------------------------------------------------------------------- */

static const char *header(const struct ds_hit *hit, const char *name)
{
    return MHD_lookup_connection_value(hit->c, MHD_HEADER_KIND, name);
}

static struct ds_visitor visitor(const struct ds_hit *hit)
{
    return (struct ds_visitor){ .host = header(hit, "Host"), .origin = header(hit, "Origin"),
                                .authorization = header(hit, "Authorization"), .x_api_key = header(hit, "X-Api-Key") };
}

static void add(struct MHD_Response *r, const char *name, const char *value) { MHD_add_response_header(r, name, value); }

static void add_origin(const struct ds_hit *hit, struct MHD_Response *r)
{
    const struct ds_server_options *o = &hit->h->server->o;
    const char *origin = header(hit, "Origin");
    if (o->n_origins) add(r, "Vary", "Origin");
    if (!ds_access_reads(o, origin)) return;
    add(r, "Access-Control-Allow-Origin", origin);
    if (!hit->preflight) return;
    add(r, "Access-Control-Allow-Methods", "GET, POST");
    add(r, "Access-Control-Allow-Headers", "*, Authorization, Content-Type, X-Api-Key, Anthropic-Version, Anthropic-Beta");
    add(r, "Access-Control-Max-Age", "600");
}

static enum MHD_Result queue(struct ds_hit *hit, int status, const char *type, struct MHD_Response *r)
{
    if (!r) return MHD_NO;
    if (type) add(r, "Content-Type", type);
    if (hit->allow[0]) add(r, "Allow", hit->allow);
    if (status == 401) add(r, "WWW-Authenticate", "Bearer");
    if (status == 503) add(r, "Retry-After", "1");
    if (hit->last) add(r, "Connection", "close");
    add(r, "Cache-Control", "no-store");
    add_origin(hit, r);
    hit->h->server->tally.codes[status < DS_CODES ? status : 0]++;
    enum MHD_Result ok = MHD_queue_response(hit->c, (unsigned)status, r);
    MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result send_bytes(struct ds_hit *hit, int status, const char *type, struct ds_bytes *b)
{
    if (b->failed) return MHD_NO;
    hit->h->server->tally.bytes_out += b->n;
    struct MHD_Response *r = MHD_create_response_from_buffer(b->n, b->p, MHD_RESPMEM_MUST_FREE);
    if (r) *b = (struct ds_bytes){ .max = b->max };          /* the text is the response's now */
    return queue(hit, status, type, r);
}

/* Whoever speaks Anthropic's API hears its errors from every path. */
static ds_error_shape shape_for(const struct ds_hit *hit)
{
    static const char family[] = "/v1/messages/";
    if (header(hit, "Anthropic-Version") || !strncmp(hit->path, family, sizeof family - 1)) return ds_error_anthropic;
    return hit->route ? hit->route->shape : ds_error_openai;
}

static enum MHD_Result send_refusal(struct ds_hit *hit)
{
    struct ds_bytes b;
    ds_bytes_init(&b, 1 << 20);
    shape_for(hit)(&hit->reply.refusal, &b);
    ds_bytes_puts(&b, "\n");
    enum MHD_Result ok = send_bytes(hit, hit->reply.refusal.status, "application/json", &b);
    ds_bytes_free(&b);
    return ok;
}

/* --- streams ---------------------------------------------------------------------------------------------------- */

/* Both with the exchange's lock held. */
static void park(void *ctx)
{
    struct ds_hit *hit = ctx;
    if (hit->h->closing) return;
    hit->parked = true;
    MHD_suspend_connection(hit->c);
}
static void wake(void *ctx)
{
    struct ds_hit *hit = ctx;
    if (!hit->parked) return;
    hit->parked = false;
    MHD_resume_connection(hit->c);
}

static ssize_t next_bytes(void *ctx, uint64_t pos, char *dst, size_t max)
{
    struct ds_hit *hit = ctx;
    (void)pos;
    if (hit->h->closing) return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = ds_exchange_take(hit->x, dst, max, park, hit);
    hit->h->server->tally.bytes_out += n;
    if (n || !hit->x->over) return (ssize_t)n;
    return hit->x->failed ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
}

static enum MHD_Result send_stream(struct ds_hit *hit)
{
    bool events = hit->x->q->stream;
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10, next_bytes, hit, NULL);
    hit->state = STREAMING;
    if (r) add(r, "X-Accel-Buffering", "no");                /* a proxy in between passes events on at once */
    return queue(hit, 200, events ? "text/event-stream" : "application/json", r);
}

static enum MHD_Result send_answer(struct ds_hit *hit)
{
    if (hit->left) return MHD_NO;
    if (hit->reply.refusal.status) return send_refusal(hit);
    if (hit->x) return send_stream(hit);
    return send_bytes(hit, hit->reply.status, hit->reply.type, &hit->reply.body);
}

/* --- a request ---------------------------------------------------------------------------------------------------- */

static bool path_fits(const struct ds_route *t, const char *path, const char **rest)
{
    size_t n = strlen(t->path);
    *rest = "";
    if (n && t->path[n - 1] == '*' && !strncmp(t->path, path, n - 1) && path[n - 1]) return *rest = path + n - 1, true;
    return !strcmp(t->path, path);
}

static int hex(char c)
{
    int low = c | 32;
    return c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

/* The %XX of a path, in place: all but %00, which stays as it is, so that no path ends before its end. */
static size_t unescape(void *ctx, struct MHD_Connection *c, char *s)
{
    char *to = s;
    (void)ctx;
    (void)c;
    for (const char *p = s; *p;) {
        int high = *p == '%' ? hex(p[1]) : -1, low = high >= 0 ? hex(p[2]) : -1;
        bool escape = low >= 0 && (high || low);
        *to++ = escape ? (char)(high * 16 + low) : *p;
        p += escape ? 3 : 1;
    }
    *to = 0;
    return (size_t)(to - s);
}

/* Sets route and rest, or the refusal: 404, or 405 with what is allowed. */
static void find_route(struct ds_hit *hit, const char *method)
{
    const char *want = strcmp(method, "HEAD") ? method : "GET", *rest;
    struct ds_refusal *r = &hit->reply.refusal;
    for (const struct ds_route *const *table = ds_route_tables; *table; table++)
        for (const struct ds_route *t = *table; t->method; t++) {
            if (!path_fits(t, hit->path, &rest)) continue;
            hit->route = t;
            hit->rest = rest;
            if (!strcmp(t->method, want)) {
                hit->allow[0] = 0;
                return;
            }
            size_t n = strlen(hit->allow);
            snprintf(hit->allow + n, sizeof hit->allow - n, "%s%s", n ? ", " : "", t->method);
        }
    if (hit->route) ds_refuse(r, 405, NULL, "%s %s: expected %s", method, hit->path, hit->allow);
    else ds_refuse(r, 404, NULL, "%s: there is no such path", hit->path);
}

static enum MHD_Result answer_preflight(struct ds_hit *hit)
{
    hit->preflight = true;
    const struct ds_visitor v = visitor(hit);
    if (!ds_access_posts(&hit->h->server->o, &v, &hit->reply.refusal)) return send_refusal(hit);
    return queue(hit, 204, NULL, MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
}

static void check_length(struct ds_hit *hit, uint64_t n)
{
    size_t max = hit->h->server->o.max_body;
    if (n > max) ds_refuse(&hit->reply.refusal, 413, NULL, "the body passes %zu bytes", max);
}

/* A body that is too large is taken and dropped, so that a client that only reads after it has sent all sees why; but not
 * one without end, as in an unknown coding (501), or of a client that asks first. */
static bool refuse_now(const struct ds_hit *hit, uint64_t n)
{
    int status = hit->reply.refusal.status;
    return status && (status == 501 || header(hit, "Expect") || n / 4 > hit->h->server->o.max_body);
}

static struct ds_hit *new_hit(struct ds_http *h, struct MHD_Connection *c, const char *path)
{
    struct ds_hit *hit = calloc(1, sizeof *hit);
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (!hit || !(hit->path = malloc(strlen(path) + 1))) {
        free(hit);
        return NULL;
    }
    strcpy(hit->path, path);
    hit->h = h;
    hit->c = c;
    hit->rest = "";
    hit->conn = info ? info->socket_context : NULL;
    hit->since_ns = ds_now_ns();
    ds_bytes_init(&hit->body, h->server->o.max_body);
    pthread_mutex_lock(&h->lock);
    if (hit->conn) hit->conn->busy = true;
    hit->next = &h->hits;
    hit->prev = h->hits.prev;
    hit->prev->next = hit->next->prev = hit;
    pthread_mutex_unlock(&h->lock);
    return hit;
}

/* Past the limit only those are answered who ask how the server is. */
static bool crowded(const struct ds_http *h, const struct ds_hit *hit)
{
    return h->n_conns - h->n_shut > h->server->o.max_connections && !(hit->route && hit->route->open);
}

struct tally { const char *key; int n; };

static enum MHD_Result count(void *ctx, enum MHD_ValueKind kind, const char *key, const char *value)
{
    struct tally *t = ctx;
    (void)kind;
    (void)value;
    t->n += ds_access_same_word(key, t->key);
    return MHD_YES;
}

static int headers(const struct ds_hit *hit, const char *key)
{
    struct tally t = { .key = key };
    MHD_get_connection_values(hit->c, MHD_HEADER_KIND, count, &t);
    return t.n;
}

/* RFC 9112, 3.2: a request of HTTP/1.1 says once which host it means. */
static bool says_host(const struct ds_hit *hit, const char *version, struct ds_refusal *r)
{
    int n = headers(hit, "Host");
    if (n == 1 || (!n && strcmp(version, "HTTP/1.1"))) return true;
    return ds_refuse(r, 400, NULL, "the request has %s Host header, expected one", n ? "more than one" : "no");
}

/* RFC 9112, 6.3 and 11.2: where a body ends is said once, or a proxy before this server may see another end than it does. What
 * then follows on the connection is no request. */
static bool says_one_end(struct ds_hit *hit, struct ds_refusal *r)
{
    int lengths = headers(hit, "Content-Length"), codings = headers(hit, "Transfer-Encoding");
    if (lengths + codings <= 1) return true;
    hit->last = true;
    return ds_refuse(r, 400, NULL, "the request has %s, expected one header that tells where its body ends",
                     !codings ? "more than one Content-Length" : !lengths ? "more than one Transfer-Encoding"
                                                                          : "both Content-Length and Transfer-Encoding");
}

/* Bodies are read as they are, in one piece or chunked; other codings are refused before they come. */
static bool reads_coding(const struct ds_hit *hit, struct ds_refusal *r)
{
    const char *content = header(hit, "Content-Encoding"), *transfer = header(hit, "Transfer-Encoding");
    if (content && *content && !ds_access_same_word(content, "identity"))
        return ds_refuse(r, 415, NULL, "the Content-Encoding '%.40s' is not read here, expected none", content);
    if (transfer && !ds_access_same_word(transfer, "chunked"))
        return ds_refuse(r, 501, NULL, "the Transfer-Encoding '%.40s' is not read here, expected chunked", transfer);
    return true;
}

/* Refuses who may not ask. Health and the page are for everybody who means this server. */
static bool may_ask(const struct ds_hit *hit, const char *method, struct ds_refusal *r)
{
    const struct ds_server_options *o = &hit->h->server->o;
    const struct ds_visitor v = visitor(hit);
    bool open = hit->route && hit->route->open, posts = strcmp(method, "GET") && strcmp(method, "HEAD");
    return ds_access_by_host(o, &v, r) && (open || ds_access_by_key(o, &v, r)) && (!posts || ds_access_posts(o, &v, r));
}

static enum MHD_Result first_call(struct ds_http *h, struct MHD_Connection *c, const char *path, const char *method,
                                  const char *version, void **state)
{
    struct ds_hit *hit = *state = new_hit(h, c, path);
    if (!hit) return MHD_NO;
    const char *length = header(hit, "Content-Length");
    uint64_t n = length ? strtoull(length, NULL, 10) : 0;
    bool preflight = !strcmp(method, "OPTIONS") && header(hit, "Access-Control-Request-Method");
    struct ds_refusal *r = &hit->reply.refusal;
    if (!preflight) find_route(hit, method);
    if (!says_one_end(hit, r)) return send_refusal(hit);
    if (preflight) return answer_preflight(hit);
    bool may = says_host(hit, version, r) && may_ask(hit, method, r) && reads_coding(hit, r);
    if (may && crowded(h, hit)) ds_refuse(r, 503, NULL, "the server has no connection left, all %d are in use", h->server->o.max_connections);
    if (!r->status) check_length(hit, n);
    if (!r->status && h->bodies + n > BODIES_MAX) ds_refuse(r, 503, NULL, "the server is busy with other large requests");
    if (!r->status && h->quiet && !strcmp(method, "POST")) ds_refuse(r, 503, NULL, "the server is shutting down");
    return refuse_now(hit, n) ? send_refusal(hit) : MHD_YES;
}

static enum MHD_Result take_body(struct ds_hit *hit, const char *p, size_t n)
{
    struct ds_http *h = hit->h;
    hit->received += n;
    h->server->tally.bytes_in += n;
    if (!hit->reply.refusal.status) check_length(hit, hit->received);
    if (hit->reply.refusal.status) {
        h->bodies -= hit->held;
        hit->held = 0;
        ds_bytes_free(&hit->body);
        return hit->received / 4 > h->server->o.max_body ? MHD_NO : MHD_YES;
    }
    ds_bytes_add(&hit->body, p, n);
    h->bodies += n;
    hit->held += n;
    return hit->body.failed ? MHD_NO : MHD_YES;
}

struct ds_body ds_http_body(struct ds_hit *hit)
{
    return (struct ds_body){ .path = hit->path, .rest = hit->rest, .route = hit->route, .bytes = &hit->body };
}

/* The request is whole. */
static enum MHD_Result act(struct ds_hit *hit)
{
    if (hit->reply.refusal.status) return send_refusal(hit);
    if (!strcmp(hit->route->method, "POST")) {
        hit->state = READING;
        MHD_suspend_connection(hit->c);
        ds_intake_put(hit->h->server->intake, hit);
        return MHD_YES;
    }
    struct ds_body b = ds_http_body(hit);
    ds_call_handle(hit->h->server, &b, &hit->reply);
    hit->state = ANSWERED;
    return send_answer(hit);
}

static void submit(struct ds_hit *hit)
{
    struct ds_reply *r = &hit->reply;
    const char *why;
    struct ds_exchange *x = ds_exchange_new(r->request, r->api, r->ctx);
    r->request = NULL;
    if (!x) {
        ds_refuse(&r->refusal, 503, NULL, "no memory for the request");
        return;
    }
    x->wake = wake;
    x->wake_ctx = hit;
    if (ds_sched_submit(hit->h->server->sched, x, &why)) {
        hit->x = x;
        return;
    }
    ds_refuse(&r->refusal, 503, NULL, "%s", why);
    ds_exchange_drop(x);
    ds_exchange_drop(x);
}

void ds_http_answer(struct ds_hit *hit, struct ds_reply *r)
{
    hit->reply = *r;
    if (r->request && !r->refusal.status && !hit->left) submit(hit);
    hit->state = ANSWERED;
    MHD_resume_connection(hit->c);
}

static enum MHD_Result on_call(void *ctx, struct MHD_Connection *c, const char *path, const char *method, const char *version,
                               const char *data, size_t *n, void **state)
{
    struct ds_hit *hit = *state;
    if (!hit) return first_call(ctx, c, path, method, version, state);
    if (*n) {
        size_t got = *n;
        *n = 0;
        return take_body(hit, data, got);
    }
    if (hit->state == RECEIVING) return act(hit);
    return hit->state == ANSWERED ? send_answer(hit) : MHD_YES;
}

static void on_completed(void *ctx, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode code)
{
    struct ds_http *h = ctx;
    struct ds_hit *hit = *state;
    (void)c;
    (void)code;
    if (!hit) return;
    *state = NULL;
    pthread_mutex_lock(&h->lock);
    hit->prev->next = hit->next;
    hit->next->prev = hit->prev;
    if (hit->conn) hit->conn->busy = false, hit->conn->since_ns = ds_now_ns();
    pthread_mutex_unlock(&h->lock);
    if (hit->x) {
        bool poke = !hit->x->over;
        ds_exchange_leave(hit->x);
        if (poke) ds_sched_poke(h->server->sched);
        ds_exchange_drop(hit->x);
    }
    h->bodies -= hit->held;
    ds_bytes_free(&hit->body);
    ds_reply_free(&hit->reply);
    free(hit->path);
    free(hit);
}

/* --- sockets ------------------------------------------------------------------------------------------------------ */

/* Past the limit a connection that asks for nothing makes room: the one that has been silent for longest. With h->lock held. */
static void make_room(struct ds_http *h)
{
    struct conn *oldest = NULL;
    if (h->n_conns - h->n_shut <= h->server->o.max_connections) return;
    for (struct conn *k = h->conns.next; k != &h->conns; k = k->next)
        if (!k->busy && !k->shut && (!oldest || k->since_ns < oldest->since_ns)) oldest = k;
    if (!oldest) return;
    oldest->shut = true;
    h->n_shut++;
    ds_socket_shut(oldest->fd);
}

static void open_connection(struct ds_http *h, struct MHD_Connection *c, struct conn *k)
{
    k->fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    k->since_ns = ds_now_ns();
    pthread_mutex_lock(&h->lock);
    h->n_conns++;
    make_room(h);                            /* not for the price of itself */
    k->next = &h->conns;
    k->prev = h->conns.prev;
    k->prev->next = k->next->prev = k;
    pthread_mutex_unlock(&h->lock);
}

static void on_connection(void *ctx, struct MHD_Connection *c, void **own, enum MHD_ConnectionNotificationCode code)
{
    struct ds_http *h = ctx;
    struct conn *k = *own;
    if (code == MHD_CONNECTION_NOTIFY_STARTED && (k = calloc(1, sizeof *k))) {
        *own = k;
        open_connection(h, c, k);
    } else if (code == MHD_CONNECTION_NOTIFY_CLOSED && k) {
        *own = NULL;
        pthread_mutex_lock(&h->lock);
        k->prev->next = k->next;
        k->next->prev = k->prev;
        h->n_conns--;
        h->n_shut -= k->shut;
        pthread_mutex_unlock(&h->lock);
        free(k);
    }
}

/* A request whose end does not come: nothing for 30 s is the library's own limit; this is for bytes that trickle. */
static bool trickles(const struct ds_hit *hit, uint64_t now_ns)
{
    return hit->state == RECEIVING && now_ns > hit->since_ns + STALE_S * SECOND_NS + hit->received / SLOW_BODY_BPS * SECOND_NS;
}

void ds_http_watch(struct ds_http *h, uint64_t now_ns)
{
    bool poke = false;
    pthread_mutex_lock(&h->lock);
    for (struct conn *k = h->conns.next; k != &h->conns; k = k->next)
        if (!k->busy && now_ns > k->since_ns + STALE_S * SECOND_NS) ds_socket_shut(k->fd);
    for (struct ds_hit *hit = h->hits.next; hit != &h->hits; hit = hit->next) {
        if (!hit->conn) continue;
        if (trickles(hit, now_ns)) ds_socket_shut(hit->conn->fd);
        if (hit->state == RECEIVING) continue;
        bool left = hit->left || ds_socket_left(hit->conn->fd);
        if (left && !hit->left) {
            hit->left = true;
            poke = true;
        }
        if (hit->state != STREAMING) continue;
        if (left) ds_exchange_abort(hit->x);
        else ds_exchange_tick(hit->x, now_ns);
    }
    pthread_mutex_unlock(&h->lock);
    if (poke) ds_sched_poke(h->server->sched);
}

/* --- open and close -------------------------------------------------------------------------------------------------- */

ds_status ds_http_open(struct ds_http **out, ds_server *s, struct ds_err *e)
{
    struct ds_http *h = *out = calloc(1, sizeof *h);
    int fd;
    if (!h) return ds_fail(e, DS_ENOMEM, "no memory for the server");
    h->server = s;
    h->conns.prev = h->conns.next = &h->conns;
    h->hits.prev = h->hits.next = &h->hits;
    h->port = s->o.port;
    pthread_mutex_init(&h->lock, NULL);
    ds_status st = ds_socket_listen(s->o.host, &h->port, &fd, e);
    if (st) return st;
    ds_files_raise(s->o.max_connections + DS_SPARE_CONNECTIONS + 64);
    h->daemon = MHD_start_daemon(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_call, h,
                                 MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
                                 MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)s->o.max_connections + DS_SPARE_CONNECTIONS,
                                 MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)STALE_S,
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)64 << 10, MHD_OPTION_END);
    if (h->daemon) return DS_OK;
    ds_socket_close(fd);
    return ds_fail(e, DS_EIO, "%s port %d: the HTTP library could not be started", s->o.host, h->port);
}

void ds_http_quiesce(struct ds_http *h)
{
    h->quiet = true;
    if (!h->daemon) return;
    int fd = MHD_quiesce_daemon(h->daemon);
    if (fd >= 0) ds_socket_close(fd);
}

static bool any_hit(struct ds_http *h)
{
    pthread_mutex_lock(&h->lock);
    bool any = h->hits.next != &h->hits;
    pthread_mutex_unlock(&h->lock);
    return any;
}

void ds_http_close(struct ds_http *h)
{
    struct timespec ten_ms = { 0, 10000000 };
    for (int i = 0; i < LINGER_MS / 10 && any_hit(h); i++) nanosleep(&ten_ms, NULL);       /* last words go out */
    h->closing = true;
    pthread_mutex_lock(&h->lock);
    for (struct ds_hit *hit = h->hits.next; hit != &h->hits; hit = hit->next)
        if (hit->x) ds_exchange_abort(hit->x);
    pthread_mutex_unlock(&h->lock);
    if (h->daemon) MHD_stop_daemon(h->daemon);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
