/* The server: options, one engine, and a wait for the end. */
#include "common/options.h"
#include "common/tool.h"

#include "base/os.h"
#include "base/socket.h"
#include "deltascope_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char prog[] = "deltascope-server";
enum { END_MS = 4500 };                      /* from the signal to the end, one chunk of prefill beside it */

struct request {
    struct ds_common common;
    struct ds_server_options server;
    struct ds_texts origins;
    const char *tools, *key_file;
    char key[4096];
    bool quiet;
};

static void print_line(void *ctx, enum ds_log kind, const char *line)
{
    const struct request *q = ctx;
    char now[32];
    if (q->quiet && kind == DS_LOG_REQUEST) return;
    if (line[0] == '[') {                    /* a profile has its own form, for scripts */
        fprintf(stderr, "%s\n", line);
        return;
    }
    ds_utc_string(now);
    fprintf(stderr, "%s %s\n", now, line);
}

/* One line of a file, into q->key. */
static int read_key_file(struct request *q)
{
    FILE *f = fopen(q->key_file, "rb");
    if (!f) return ds_cli_usage(prog, "--api-key-file %s: %s", q->key_file, strerror(errno));
    size_t n = fread(q->key, 1, sizeof q->key - 1, f);
    bool failed = ferror(f) || n == sizeof q->key - 1;
    fclose(f);
    if (failed) return ds_cli_usage(prog, "--api-key-file %s: it cannot be read, or holds more than a key", q->key_file);
    if (n && q->key[n - 1] == '\n') n--;
    if (n && q->key[n - 1] == '\r') n--;
    q->key[n] = 0;
    if (!n || strlen(q->key) != n || strpbrk(q->key, "\r\n"))
        return ds_cli_usage(prog, "--api-key-file %s: expected one line, the key", q->key_file);
    q->server.api_key = q->key;
    return DS_CLI_GO;
}

/* From the command line, a file, or the environment: others on the machine see command lines. */
static int take_key(struct request *q)
{
    struct ds_server_options *o = &q->server;
    const char *env = getenv("DELTASCOPE_API_KEY");
    if (o->api_key && q->key_file) return ds_cli_usage(prog, "--api-key and --api-key-file exclude each other");
    if (o->api_key) return o->api_key[0] ? DS_CLI_GO : ds_cli_usage(prog, "--api-key '': expected a key");
    if (q->key_file) return read_key_file(q);
    if (env && !env[0]) return ds_cli_usage(prog, "DELTASCOPE_API_KEY is set, but empty: expected a key");
    o->api_key = env;
    return DS_CLI_GO;
}

static int check_host(const struct request *q)
{
    const struct ds_server_options *o = &q->server;
    struct ds_err e;
    bool loopback = false;
    if (ds_host_look_up(o->host, &loopback, &e)) return ds_cli_usage(prog, "--host: %s", e.msg);
    if (!loopback && !o->api_key)
        return ds_cli_usage(prog, "--host %s: an address that others can reach needs --api-key-file or --api-key", o->host);
    return DS_CLI_GO;
}

static int check(struct request *q)
{
    struct ds_server_options *o = &q->server;
    int rc = take_key(q);
    if (rc == DS_CLI_GO) rc = check_host(q);
    if (rc != DS_CLI_GO) return rc;
    if (o->store.every % 64) return ds_cli_usage(prog, "--snapshot-every %d: expected a multiple of 64", o->store.every);
    o->generic_tools = q->tools && !strcmp(q->tools, "generic");
    if (q->tools && !o->generic_tools && strcmp(q->tools, "file"))
        return ds_cli_usage(prog, "--tools-template %s: expected file or generic", q->tools);
    for (int i = 0; i < q->origins.n; i++)
        if (!ds_is_origin(q->origins.v[i]))
            return ds_cli_usage(prog, "--cors-origin '%s': expected an origin as browsers send it, such as https://a.example:8443, or *",
                                q->origins.v[i]);
    if (o->store.mem > ds_mem_total())
        return ds_cli_usage(prog, "--snapshot-mem: %.1f GiB for stored prefixes, but this machine has %.1f GiB of memory",
                            (double)o->store.mem / 0x1p30, (double)ds_mem_total() / 0x1p30);
    if (!o->store.mem) o->store.mem = 1;            /* to the library 0 is the default; no snapshot fits one byte */
    if (!o->store.disk) o->store.dir = NULL;
    return DS_CLI_GO;
}

static void wait_for_signal(void)
{
    struct timespec tenth = { 0, 100000000 };
    ds_on_interrupt(&ds_tool_interrupted, END_MS);
    while (!ds_tool_interrupted) nanosleep(&tenth, NULL);
}

static int serve(struct request *q)
{
    struct ds_server_options *o = &q->server;
    struct ds_options *eo = &q->common.engine;
    struct ds_engine *g = NULL;
    struct ds_server *s = NULL;
    struct ds_err e;
    o->origins = q->origins.v;
    o->n_origins = q->origins.n;
    o->log = print_line;
    o->log_ctx = q;
    o->profile = q->common.profile;
    eo->sessions = o->parallel;
    eo->reserve = o->store.mem;
    o->store.max_cuts = eo->max_cuts = ds_store_cuts(eo->ubatch ? eo->ubatch : 512, o->store.every);
    if (ds_tool_open(&g, eo, &e)) return ds_tool_fail(prog, &e);
    if (ds_server_open(&s, g, o, &e)) {
        ds_engine_close(g);
        return ds_tool_fail(prog, &e);
    }
    bool v6 = strchr(o->host, ':');
    fprintf(stderr, "listening on http://%s%s%s:%d\n", v6 ? "[" : "", o->host, v6 ? "]" : "", ds_server_port(s));
    wait_for_signal();
    bool saved = ds_server_close(s, END_MS);
    ds_engine_close(g);
    return saved ? DS_EXIT_OK : DS_EXIT_FAIL;
}

int main(int argc, char **argv)
{
    struct request q = {
        .server = { .host = "127.0.0.1", .port = 8080, .parallel = 4, .queue = 256,
                    .store = { .mem = (uint64_t)2 << 30, .every = 512, .disk = (uint64_t)8 << 30 } },
    };
    struct ds_server_options *o = &q.server;
    const struct ds_opt opts[] = {
        { "--host", NULL, DS_OPT_TEXT, &o->host, "HOST", 0, 0, "address to listen on (default: 127.0.0.1); others need --api-key" },
        { "--port", NULL, DS_OPT_INT, &o->port, "PORT", 0, 65535, "port (default: 8080); 0: any that is free" },
        { "--api-key", NULL, DS_OPT_TEXT, &o->api_key, "KEY", 0, 0,
          "what clients must send as 'Authorization: Bearer KEY' or 'x-api-key: KEY'; others on this machine can see it: "
          "safer is --api-key-file, or DELTASCOPE_API_KEY in the environment" },
        { "--api-key-file", NULL, DS_OPT_PATH, &q.key_file, "FILE", 0, 0, "a file whose one line is the key" },
        { "--cors-origin", NULL, DS_OPT_TEXTS, &q.origins, "ORIGIN", 0, 0,
          "web pages of this origin may use the server; may be given several times; *: all" },
        { "--alias", NULL, DS_OPT_TEXT, &o->model, "NAME", 0, 0, "name of the model for clients (default: the file's)" },
        { "--parallel", NULL, DS_OPT_INT, &o->parallel, "N", 1, 64, "requests that compute at once (default: 4)" },
        { "--queue", NULL, DS_OPT_INT, &o->queue, "N", 128, 65536, "requests that may wait beside them (default: 256)" },
        { "--tools-template", NULL, DS_OPT_TEXT, &q.tools, "KIND", 0, 0,
          "text that shows tools to the model: its own (file), or one of ours where that is not known (generic; default: file)" },
        { "--keep-nonce", NULL, DS_OPT_FLAG, &o->keep_nonce, NULL, 0, 0,
          "leave the changing x-anthropic-billing-header line in system prompts; by default it is taken out, for the sake of stored prefixes" },
        { "--snapshot-every", NULL, DS_OPT_INT, &o->store.every, "N", 64, 1 << 20, "tokens between snapshots, a multiple of 64 (default: 512)" },
        { "--snapshot-mem", NULL, DS_OPT_SIZE, &o->store.mem, "SIZE", 0, 0, "memory for stored prefixes (default: 2G); 0: none are kept" },
        { "--session-dir", NULL, DS_OPT_PATH, &o->store.dir, "DIR", 0, 0, "folder where prefixes survive a restart (default: none)" },
        { "--session-disk", NULL, DS_OPT_SIZE, &o->store.disk, "SIZE", 0, 0, "room for it (default: 8G); 0: no files" },
        { "--quiet", NULL, DS_OPT_FLAG, &q.quiet, NULL, 0, 0, "no lines about requests on stderr; warnings stay" },
    };
    struct ds_cli cli = {
        .prog = prog,
        .usage = "[-m MODEL] [--host HOST] [--port PORT] [options]",
        .about = "Serves a model over HTTP, in the shapes of the OpenAI and Anthropic APIs. Prompts cost their new tokens only.\n",
        .opts = opts, .n_opts = sizeof opts / sizeof *opts,
        .common = &q.common, .groups = DS_GROUP_MODEL | DS_GROUP_SYNTH | DS_GROUP_ENGINE | DS_GROUP_PROF | DS_GROUP_ANSWER,
    };
    ds_program_start();
    int rc = ds_cli_parse(&cli, argc, argv);
    if (rc == DS_CLI_GO) rc = check(&q);
    return ds_tool_finish(prog, rc == DS_CLI_GO ? serve(&q) : rc);
}
