/* The clock: ten times a second it looks after every connection, whatever the engine is doing. */
#include "server/server.h"

#include <stdlib.h>
#include <time.h>

struct ds_watch {
    ds_server *server;
    _Atomic bool stop;
    ds_thread *thread;
};

static void loop(void *ctx)
{
    struct ds_watch *w = ctx;
    while (!w->stop) {
        struct timespec tenth = { 0, 100000000 };
        ds_http_watch(w->server->http, ds_now_ns());
        nanosleep(&tenth, NULL);
    }
}

ds_status ds_watch_open(struct ds_watch **out, ds_server *s, struct ds_err *e)
{
    struct ds_watch *w = *out = calloc(1, sizeof *w);
    if (!w) return ds_fail(e, DS_ENOMEM, "no memory for the server");
    w->server = s;
    w->thread = ds_thread_start(loop, w);
    return w->thread ? DS_OK : ds_fail(e, DS_ENOMEM, "the thread that watches connections could not be started");
}

void ds_watch_close(struct ds_watch *w)
{
    w->stop = true;
    if (w->thread) ds_thread_join(w->thread);
    free(w);
}
