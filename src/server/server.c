#include "server/server.h"

#include "base/socket.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ds_server_log(const ds_server *s, enum ds_log kind, const char *fmt, ...)
{
    char line[640];
    va_list ap;
    if (!s->o.log) return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    ds_one_line(line);
    s->o.log(s->o.log_ctx, kind, line);
}

/* The model by the name that its file has. */
static void name_model(ds_server *s)
{
    const struct ds_model_info *f = ds_engine_info(s->g);
    const char *path = f->path ? f->path : "", *slash = strrchr(path, '/');
    if (s->o.model) snprintf(s->model, sizeof s->model, "%s", s->o.model);
    else snprintf(s->model, sizeof s->model, "%s", slash ? slash + 1 : path);
    size_t n = strlen(s->model);
    if (!s->o.model && n > 5 && !strcmp(s->model + n - 5, ".gguf")) s->model[n - 5] = 0;
}

static ds_status fill_options(ds_server *s, const struct ds_server_options *o, struct ds_err *e)
{
    s->o = *o;
    if (!s->o.host) s->o.host = "127.0.0.1";
    if (!s->o.parallel) s->o.parallel = 4;
    if (!s->o.queue) s->o.queue = 256;
    if (!s->o.max_body) s->o.max_body = (size_t)64 << 20;
    if (!s->o.max_connections) s->o.max_connections = 512;
    if (s->o.api_key && !s->o.api_key[0]) return ds_fail(e, DS_EARG, "the API key is empty");
    if (s->o.parallel < 1 || s->o.parallel > 64)
        return ds_fail(e, DS_EARG, "%d sequences at once: expected 1 to 64", s->o.parallel);
    for (int i = 0; i < s->o.n_origins; i++)
        if (!ds_is_origin(s->o.origins[i])) return ds_fail(e, DS_EARG, "'%s' is no origin of a web page", s->o.origins[i]);
    bool loopback = false;
    ds_status st = ds_host_look_up(s->o.host, &loopback, e);
    if (st) return st;
    if (!loopback && !s->o.api_key)
        return ds_fail(e, DS_EARG, "%s: an address that others can reach needs an API key", s->o.host);
    name_model(s);
    return DS_OK;
}

ds_status ds_server_open(ds_server **out, ds_engine *g, const struct ds_server_options *o, struct ds_err *e)
{
    ds_server *s = *out = calloc(1, sizeof *s);
    if (!s) return ds_fail(e, DS_ENOMEM, "no memory for the server");
    s->g = g;
    s->start_ns = ds_now_ns();
    ds_tally_init(&s->tally);
    ds_engine_plan(g, &s->plan);
    ds_status st = fill_options(s, o, e);
    if (!st) st = ds_sched_open(&s->sched, s, e);
    if (!st) st = ds_intake_open(&s->intake, s, e);
    if (!st) st = ds_http_open(&s->http, s, e);
    if (!st) st = ds_watch_open(&s->watch, s, e);
    if (st) {
        ds_server_close(s, 0);
        *out = NULL;
    }
    return st;
}

int ds_server_port(const ds_server *s) { return ds_http_port(s->http); }

bool ds_server_close(ds_server *s, int limit_ms)
{
    if (!s) return true;
    uint64_t deadline = ds_now_ns() + (uint64_t)limit_ms * 1000000;
    if (s->http) ds_http_quiesce(s->http);
    bool saved = s->sched ? ds_sched_stop(s->sched, deadline) : true;
    if (s->intake) ds_intake_stop(s->intake);
    if (s->watch) ds_watch_close(s->watch);
    if (s->http) ds_http_close(s->http);
    if (s->intake) ds_intake_close(s->intake);
    if (s->sched) ds_sched_close(s->sched);
    pthread_mutex_destroy(&s->tally.lock);
    free(s);
    return saved;
}
