/* deltascope over HTTP: one engine, many connections.
 *
 * Threads: one for the engine, one for all sockets, a few that read requests, one that watches the clock. Whoever
 * opens the server waits, and closes it. Nothing prints or exits; sentences go through `log`. */
#ifndef DELTASCOPE_SERVER_H
#define DELTASCOPE_SERVER_H

#include "deltascope_store.h"

typedef struct ds_server ds_server;

/* A line about a request; or something that is less than was asked for, such as session files that cannot be used. */
enum ds_log { DS_LOG_REQUEST, DS_LOG_WARNING };

struct ds_server_options {
    const char *host;               /* address to listen on; NULL: 127.0.0.1. Without a key clients must name it, or a loopback name, in Host */
    int port;                       /* 0: any that is free, see ds_server_port */
    const char *api_key;            /* NULL: none is asked for; needed unless host is a loopback address */
    const char *const *origins; int n_origins;       /* web pages that may use it (CORS): "https://a.example"; "*": all */
    const char *model;              /* name to show; NULL: the file's, without folder and ending */
    int parallel;                   /* requests that compute at once, each on a session of its own; 0: 4 */
    int queue;                      /* requests that may wait beside them; 0: 256 */
    size_t max_body;                /* bytes; 0: 64 MiB */
    int max_connections;            /* 0: 512; beyond it the one that was idle for longest goes */
    bool generic_tools;             /* chats with tools: a text of ours where the model's template has none that is known */
    bool keep_nonce;                /* a changing first line of a system prompt stays (docs/chat.md, "The nonce") */
    struct ds_store_options store;  /* mem, every, dir, disk, max_cuts; its warnings go to log */
    enum ds_prof_mode profile;      /* stage times of each prefill go to log; DS_PROF_OFF: they are taken all the same, by stamps */
    void (*log)(void *ctx, enum ds_log kind, const char *line);      /* any thread; one line without newline; may be NULL */
    void *log_ctx;
};

/* The engine serves this server alone until ds_server_close. Options' texts must stay. Errors: DS_EARG (host without a key),
 * DS_EIO (the address is taken), DS_ENOMEM. */
ds_status ds_server_open(ds_server **out, ds_engine *g, const struct ds_server_options *o, struct ds_err *e);
int ds_server_port(const ds_server *s);
/* Takes no more requests, lets running answers end for a moment, stops the rest (what they computed is kept), writes
 * sessions to their folder, and frees everything. All that within limit_ms, unless one chunk of prefill takes longer; false:
 * not every prefix could be written, and a warning in the log says why. */
bool ds_server_close(ds_server *s, int limit_ms);

#endif
