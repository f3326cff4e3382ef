/* GET /status, /metrics and the page. Both texts come from one copy of the numbers, taken at once. */
#include "server/server.h"

#include "base/json.h"
#include "server/page.h"

#include <stdio.h>
#include <string.h>

struct numbers {
    struct ds_tally *tally;                  /* locked while this is used */
    struct ds_store_stats st;
    int running, waiting, connections;
};

static void take_numbers(const struct ds_call *c, struct numbers *n)
{
    n->tally = &c->server->tally;
    ds_store_get_stats(ds_sched_store(c->server->sched), &n->st);
    ds_sched_load(c->server->sched, &n->running, &n->waiting);
    n->connections = ds_http_connections(c->server->http);
    pthread_mutex_lock(&n->tally->lock);
}

static void drop_numbers(struct numbers *n) { pthread_mutex_unlock(&n->tally->lock); }

/* --- JSON ------------------------------------------------------------------------------------------------------------ */

static void key_int(struct ds_json_out *j, const char *key, int64_t v)
{
    ds_jo_key(j, key);
    ds_jo_int(j, v);
}

static void key_num(struct ds_json_out *j, const char *key, double v)
{
    ds_jo_key(j, key);
    ds_jo_num(j, v);
}

static void key_text(struct ds_json_out *j, const char *key, const char *v)
{
    ds_jo_key(j, key);
    ds_jo_str(j, v);
}

static void key_obj(struct ds_json_out *j, const char *key)
{
    ds_jo_key(j, key);
    ds_jo_obj(j);
}

static double ms3(double v) { return (double)(int64_t)(v * 1000 + 0.5) / 1000; }

static void stages(struct ds_json_out *j, const char *key, const double *v, double scale)
{
    key_obj(j, key);
    for (int i = 0; i < DS_ST_COUNT; i++) key_num(j, ds_stage_names[i], ms3(v[i] * scale));
    ds_jo_obj_end(j);
}

static void put_server(const struct ds_call *c, struct ds_json_out *j)
{
    const struct ds_server *s = c->server;
    const struct ds_model_info *f = ds_engine_info(c->g);
    key_obj(j, "server");
    key_text(j, "version", DS_VERSION);
    key_text(j, "model", c->model);
    key_text(j, "arch", f->arch);
    key_text(j, "type", f->type);
    key_text(j, "backend", ds_engine_backend(c->g));
    key_text(j, "placement", ds_engine_placement(c->g));
    key_text(j, "isa", ds_engine_isa(c->g));
    key_int(j, "threads", ds_engine_threads(c->g));
    key_int(j, "ubatch", ds_engine_ubatch(c->g));
    key_int(j, "window", f->ctx);
    key_int(j, "parallel", s->o.parallel);
    key_int(j, "queue_limit", s->o.queue);
    key_num(j, "uptime_s", ms3((double)(ds_now_ns() - s->start_ns) * 1e-9));
    ds_jo_obj_end(j);
}

static void put_memory(const struct ds_call *c, const struct numbers *n, struct ds_json_out *j)
{
    const struct ds_server *s = c->server;
    uint64_t each = s->plan.kv + s->plan.state;
    key_obj(j, "memory_bytes");
    key_int(j, "weights", (int64_t)(s->plan.weights + s->plan.weights_extra));
    key_int(j, "sessions", (int64_t)(each * (uint64_t)s->o.parallel));
    key_int(j, "scratch", (int64_t)s->plan.scratch);
    key_int(j, "snapshot", (int64_t)n->st.mem_used);
    key_int(j, "snapshot_limit", (int64_t)n->st.mem_limit);
    key_int(j, "planned", (int64_t)(s->plan.weights + s->plan.weights_extra + s->plan.scratch + each * (uint64_t)s->o.parallel +
                                    n->st.mem_limit));
    key_int(j, "peak_rss", (int64_t)ds_mem_peak_rss());
    ds_jo_obj_end(j);
}

static void put_store(const struct ds_call *c, const struct ds_store_stats *t, struct ds_json_out *j)
{
    const char *dir = c->server->o.store.dir;
    const struct { const char *key; uint64_t v; } rows[] = {
        { "mem_limit", t->mem_limit }, { "mem_used", t->mem_used }, { "mem_kv", t->mem_kv }, { "mem_states", t->mem_states },
        { "mem_logits", t->mem_logits }, { "mem_tree", t->mem_tree },
        { "disk_limit", t->disk_limit }, { "disk_used", t->disk_used },
        { "nodes", t->nodes }, { "snapshots", t->snapshots }, { "files", t->files }, { "hits_live", t->hits_live },
        { "hits_snapshot", t->hits_snapshot }, { "hits_disk", t->hits_disk }, { "misses", t->misses },
        { "tokens_reused", t->tokens_reused }, { "tokens_recomputed", t->tokens_recomputed }, { "taken", t->taken },
        { "evicted", t->evicted }, { "refused", t->refused }, { "written", t->written }, { "loaded", t->loaded },
        { "damaged", t->damaged }, { "unsaved", t->unsaved },
    };
    key_obj(j, "store");
    key_text(j, "dir", dir);
    ds_jo_key(j, "dir_open");                /* no: another server has it, or it cannot be written */
    ds_jo_bool(j, dir && t->disk_limit);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) key_int(j, rows[i].key, (int64_t)rows[i].v);
    ds_jo_obj_end(j);
}

static void put_totals(const struct ds_tally *t, struct ds_json_out *j)
{
    key_obj(j, "totals");
    key_int(j, "requests", (int64_t)t->sum.requests);
    key_int(j, "finished", (int64_t)t->sum.finished);
    key_int(j, "cancelled", (int64_t)t->sum.cancelled);
    key_int(j, "failed", (int64_t)t->sum.failed);
    key_int(j, "prompt_tokens", (int64_t)t->sum.prompt);
    key_int(j, "cached_tokens", (int64_t)t->sum.cached);
    key_int(j, "prefill_tokens", (int64_t)t->sum.prefilled);
    key_int(j, "generated_tokens", (int64_t)t->sum.generated);
    key_num(j, "prefill_s", t->sum.prefill_s);
    key_num(j, "decode_s", t->sum.decode_s);
    key_obj(j, "lookups");
    for (int i = 0; i <= DS_MISS_DAMAGED; i++) key_int(j, ds_reuse_names[i], (int64_t)t->sum.reuse[i]);
    ds_jo_obj_end(j);
    stages(j, "stages_ms", t->sum.stage_s, 1e3);
    ds_jo_obj_end(j);
}

static void put_record(const struct ds_record *r, struct ds_json_out *j)
{
    ds_jo_obj(j);
    key_int(j, "id", (int64_t)r->number);
    key_text(j, "api", r->label);
    key_int(j, "ended", r->at);
    key_text(j, "end", r->end);
    key_int(j, "prompt", r->prompt);
    key_int(j, "cached", r->cached);
    key_int(j, "prefilled", r->prefilled);
    key_int(j, "generated", r->completion);
    key_text(j, "lookup", r->looked ? ds_reuse_names[r->lookup.reason] : NULL);
    key_int(j, "common", r->lookup.common);
    key_int(j, "snapshot_at", r->looked ? r->lookup.snapshot : -1);
    key_int(j, "recompute", r->lookup.recompute);
    key_num(j, "queue_ms", ms3(r->queue_ms));
    key_num(j, "prefill_ms", ms3(r->prefill_ms));
    key_num(j, "decode_ms", ms3(r->decode_ms));
    key_num(j, "first_token_ms", ms3(r->first_ms));
    stages(j, "stages_ms", r->stage_ms, 1);
    ds_jo_obj_end(j);
}

static void put_recent(const struct ds_tally *t, struct ds_json_out *j)
{
    ds_jo_key(j, "recent");
    ds_jo_arr(j);
    for (uint64_t i = 0; i < DS_RECENT && i < t->n; i++) put_record(&t->recent[(t->n - 1 - i) % DS_RECENT], j);
    ds_jo_arr_end(j);
}

static void put_live(void *ctx, const struct ds_exchange *x, int place)
{
    struct ds_json_out *j = ctx;
    uint64_t now = ds_now_ns(), started = x->started_ns;
    const int phase = x->phase;              /* not as the index itself: gcc 12 reads an atomic one there like any other */
    ds_jo_obj(j);
    key_int(j, "id", (int64_t)x->number);
    key_text(j, "api", x->q->label);
    key_text(j, "phase", ds_phase_names[phase]);
    if (place) key_int(j, "place", place);
    key_int(j, "prompt", (int64_t)x->q->prompt.n);
    key_int(j, "cached", x->cached);
    key_int(j, "processed", x->processed);
    key_int(j, "generated", x->made);
    key_num(j, "age_ms", ms3((double)(now - x->queued_ns) * 1e-6));
    key_num(j, "running_ms", started ? ms3((double)(now - started) * 1e-6) : 0);
    ds_jo_obj_end(j);
}

static void status(const struct ds_call *c, struct ds_reply *r)
{
    struct numbers n;
    struct ds_json_out j;
    ds_jo_init(&j, &r->body, false);
    ds_jo_obj(&j);
    put_server(c, &j);
    ds_jo_key(&j, "requests");
    ds_jo_arr(&j);
    ds_sched_each(c->server->sched, put_live, &j);
    ds_jo_arr_end(&j);
    take_numbers(c, &n);
    key_obj(&j, "load");
    key_int(&j, "running", n.running);
    key_int(&j, "waiting", n.waiting);
    key_int(&j, "connections", n.connections);
    ds_jo_obj_end(&j);
    put_memory(c, &n, &j);
    put_store(c, &n.st, &j);
    put_totals(n.tally, &j);
    put_recent(n.tally, &j);
    drop_numbers(&n);
    ds_jo_obj_end(&j);
    ds_bytes_puts(&r->body, "\n");
}

/* --- Prometheus text ---------------------------------------------------------------------------------------------------- */

static void family(struct ds_bytes *b, const char *name, const char *type, const char *help)
{
    ds_bytes_printf(b, "# HELP deltascope_%s %s\n# TYPE deltascope_%s %s\n", name, help, name, type);
}

static void counter(struct ds_bytes *b, const char *name, const char *help, uint64_t v)
{
    family(b, name, "counter", help);
    ds_bytes_printf(b, "deltascope_%s %llu\n", name, (unsigned long long)v);
}

static void gauge(struct ds_bytes *b, const char *name, const char *help, uint64_t v)
{
    family(b, name, "gauge", help);
    ds_bytes_printf(b, "deltascope_%s %llu\n", name, (unsigned long long)v);
}

static void seconds(struct ds_bytes *b, const char *name, const char *help, double v)
{
    family(b, name, "counter", help);
    ds_bytes_printf(b, "deltascope_%s %.6f\n", name, v);
}

static void put_requests(const struct ds_tally *t, struct ds_bytes *b)
{
    family(b, "requests_total", "counter", "Requests that are over, by how they ended.");
    ds_bytes_printf(b, "deltascope_requests_total{end=\"finished\"} %llu\n", (unsigned long long)t->sum.finished);
    ds_bytes_printf(b, "deltascope_requests_total{end=\"cancelled\"} %llu\n", (unsigned long long)t->sum.cancelled);
    ds_bytes_printf(b, "deltascope_requests_total{end=\"failed\"} %llu\n", (unsigned long long)t->sum.failed);
    counter(b, "prompt_tokens_total", "Tokens of prompts.", t->sum.prompt);
    counter(b, "cached_tokens_total", "Tokens of prompts that stored prefixes answered for.", t->sum.cached);
    counter(b, "prefill_tokens_total", "Tokens of prompts that were computed.", t->sum.prefilled);
    counter(b, "generated_tokens_total", "New tokens.", t->sum.generated);
    seconds(b, "queue_seconds_total", "Time of requests in the queue.", t->sum.queue_s);
    seconds(b, "prefill_seconds_total", "Time of requests from the queue's end to the end of their prefill.", t->sum.prefill_s);
    seconds(b, "decode_seconds_total", "Time of requests from the end of their prefill to their own.", t->sum.decode_s);
    family(b, "stage_seconds_total", "counter", "Prefill time by stage; qk-norm is a part of full-attn.");
    for (int i = 0; i < DS_ST_COUNT; i++)
        ds_bytes_printf(b, "deltascope_stage_seconds_total{stage=\"%s\"} %.6f\n", ds_stage_names[i], t->sum.stage_s[i]);
    family(b, "prefix_lookups_total", "counter", "Lookups of stored prefixes, by what was found.");
    for (int i = 0; i <= DS_MISS_DAMAGED; i++)
        ds_bytes_printf(b, "deltascope_prefix_lookups_total{reason=\"%s\"} %llu\n", ds_reuse_names[i],
                        (unsigned long long)t->sum.reuse[i]);
}

static void put_first(const struct ds_tally *t, struct ds_bytes *b)
{
    uint64_t n = 0;
    family(b, "first_token_seconds", "histogram", "From the arrival of a request to its first token.");
    for (int i = 0; i < 11; i++) {
        n += t->sum.first_bucket[i];
        ds_bytes_printf(b, "deltascope_first_token_seconds_bucket{le=\"%g\"} %llu\n", ds_first_bounds[i], (unsigned long long)n);
    }
    ds_bytes_printf(b, "deltascope_first_token_seconds_bucket{le=\"+Inf\"} %llu\n", (unsigned long long)t->sum.first_count);
    ds_bytes_printf(b, "deltascope_first_token_seconds_sum %.6f\n", t->sum.first_s);
    ds_bytes_printf(b, "deltascope_first_token_seconds_count %llu\n", (unsigned long long)t->sum.first_count);
}

static void put_sessions(const struct ds_store_stats *t, struct ds_bytes *b)
{
    gauge(b, "snapshot_memory_limit_bytes", "Memory that stored prefixes may take.", t->mem_limit);
    family(b, "snapshot_memory_bytes", "gauge", "Memory that stored prefixes take, by kind.");
    ds_bytes_printf(b, "deltascope_snapshot_memory_bytes{kind=\"kv\"} %llu\n", (unsigned long long)t->mem_kv);
    ds_bytes_printf(b, "deltascope_snapshot_memory_bytes{kind=\"state\"} %llu\n", (unsigned long long)t->mem_states);
    ds_bytes_printf(b, "deltascope_snapshot_memory_bytes{kind=\"logits\"} %llu\n", (unsigned long long)t->mem_logits);
    ds_bytes_printf(b, "deltascope_snapshot_memory_bytes{kind=\"tree\"} %llu\n", (unsigned long long)t->mem_tree);
    gauge(b, "session_disk_limit_bytes", "Bytes that session files may take; 0 without a folder.", t->disk_limit);
    gauge(b, "session_disk_bytes", "Bytes that session files take.", t->disk_used);
    gauge(b, "session_files", "Session files.", t->files);
    gauge(b, "session_unsaved", "Prefixes that are not in files yet.", t->unsaved);
    gauge(b, "snapshots", "Snapshots in memory.", t->snapshots);
    counter(b, "snapshots_taken_total", "Snapshots stored.", t->taken);
    counter(b, "snapshots_evicted_total", "Snapshots dropped for room.", t->evicted);
    counter(b, "snapshots_refused_total", "Snapshots not admitted.", t->refused);
    counter(b, "session_files_written_total", "Session files written.", t->written);
    counter(b, "session_files_loaded_total", "Session files read.", t->loaded);
    counter(b, "session_files_damaged_total", "Session files refused.", t->damaged);
}

static void metrics(const struct ds_call *c, struct ds_reply *r)
{
    struct numbers n;
    struct ds_bytes *b = &r->body;
    r->type = "text/plain; version=0.0.4; charset=utf-8";
    take_numbers(c, &n);
    put_requests(n.tally, b);
    put_first(n.tally, b);
    gauge(b, "requests_running", "Requests that compute.", (uint64_t)n.running);
    gauge(b, "requests_waiting", "Requests in the queue.", (uint64_t)n.waiting);
    gauge(b, "connections", "Open connections.", (uint64_t)n.connections);
    put_sessions(&n.st, b);
    family(b, "http_responses_total", "counter", "Responses by status.");
    for (int i = 0; i < DS_CODES; i++)
        if (n.tally->codes[i])
            ds_bytes_printf(b, "deltascope_http_responses_total{code=\"%d\"} %llu\n", i, (unsigned long long)n.tally->codes[i]);
    counter(b, "http_received_bytes_total", "Bytes of bodies received.", n.tally->bytes_in);
    counter(b, "http_sent_bytes_total", "Bytes of bodies sent.", n.tally->bytes_out);
    gauge(b, "peak_resident_bytes", "Most memory that the process had.", ds_mem_peak_rss());
    seconds(b, "uptime_seconds_total", "Since the start.", (double)(ds_now_ns() - c->server->start_ns) * 1e-9);
    drop_numbers(&n);
}

/* --- page ------------------------------------------------------------------------------------------------------------- */

static void page(const struct ds_call *c, struct ds_reply *r)
{
    (void)c;
    r->type = "text/html; charset=utf-8";
    for (const char *const *line = ds_page_lines; *line; line++) ds_bytes_puts(&r->body, *line);
}

const struct ds_route ds_routes_status[] = {
    { "GET", "/status", status, ds_error_openai, false },
    { "GET", "/metrics", metrics, ds_error_openai, false },
    { "GET", "/", page, ds_error_openai, true },
    { NULL, NULL, NULL, NULL, false }
};
