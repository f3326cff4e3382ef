/* Small things that every API writes: events, errors, identifiers. */
#include "server/api.h"

#include "base/json.h"
#include "base/os.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void ds_one_line(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7F) *s = '?';
}

bool ds_refuse(struct ds_refusal *r, int status, const char *param, const char *fmt, ...)
{
    va_list ap;
    r->status = status;
    r->code = NULL;
    snprintf(r->param, sizeof r->param, "%s", param ? param : "");
    va_start(ap, fmt);
    vsnprintf(r->msg, sizeof r->msg, fmt, ap);
    va_end(ap);
    ds_one_line(r->msg);
    return false;
}

static const char *error_type(int status)
{
    switch (status) {
        case 401: return "authentication_error";
        case 403: return "permission_error";
        case 404: return "not_found_error";
        case 429: return "rate_limit_error";
        default: return status < 500 ? "invalid_request_error" : "server_error";
    }
}

void ds_error_openai(const struct ds_refusal *r, struct ds_bytes *out)
{
    struct ds_json_out j;
    ds_jo_init(&j, out, false);
    ds_jo_obj(&j);
    ds_jo_key(&j, "error");
    ds_jo_obj(&j);
    ds_jo_member_str(&j, "message", r->msg);
    ds_jo_member_str(&j, "type", error_type(r->status));
    ds_jo_member_str(&j, "param", r->param[0] ? r->param : NULL);
    ds_jo_member_str(&j, "code", r->code);
    ds_jo_obj_end(&j);
    ds_jo_obj_end(&j);
}

void ds_failure_openai(bool stream, int status, const char *sentence, struct ds_bytes *out)
{
    struct ds_refusal r;
    ds_refuse(&r, status, NULL, "%s", sentence);
    if (stream) ds_sse_begin(out, NULL);
    ds_error_openai(&r, out);
    if (stream) ds_sse_end(out);
}

void ds_sse_begin(struct ds_bytes *out, const char *event)
{
    if (event) {
        ds_bytes_puts(out, "event: ");
        ds_bytes_puts(out, event);
        ds_bytes_puts(out, "\n");
    }
    ds_bytes_puts(out, "data: ");
}

void ds_sse_end(struct ds_bytes *out) { ds_bytes_puts(out, "\n\n"); }

void ds_make_id(char dst[48], const char *prefix)
{
    static _Atomic uint64_t count;
    uint64_t n = ++count;
    snprintf(dst, 48, "%s%08llx%016llx", prefix, (unsigned long long)(ds_now_ns() & 0xFFFFFFFF),
             (unsigned long long)((uint64_t)ds_unix_seconds() << 24 | (n & 0xFFFFFF)));
}

int64_t ds_unix_seconds(void) { return (int64_t)time(NULL); }

/* --- request ------------------------------------------------------------------------------------------ */

void ds_request_init(struct ds_request *q)
{
    *q = (struct ds_request){ .label = "", .sampling = DS_SAMPLING_GREEDY, .max_new = -1, .logprobs = -1 };
}

void ds_request_free(struct ds_request *q)
{
    free(q->prompt.p);
    free(q->bounds);
    free((void *)(uintptr_t)q->sampling.bias);
    for (int i = 0; i < q->n_stops; i++) free(q->stops[i]);
    free(q->stops);
    ds_request_init(q);
}

void *ds_reply_by_engine(struct ds_reply *r, const struct ds_api *api, size_t size, const char *label)
{
    struct ds_request *q = malloc(sizeof *q);
    void *ctx = calloc(1, size);
    if (!q || !ctx) {
        free(q);
        free(ctx);
        return ds_refuse(&r->refusal, 503, NULL, "no memory for the request"), NULL;
    }
    ds_request_init(q);
    q->label = label;
    r->request = q;
    r->api = api;
    return r->ctx = ctx;
}

/* --- members ------------------------------------------------------------------------------------------- */

void ds_jo_member_str(struct ds_json_out *j, const char *key, const char *v)
{
    ds_jo_key(j, key);
    ds_jo_str(j, v);
}

void ds_jo_member_int(struct ds_json_out *j, const char *key, int64_t v)
{
    ds_jo_key(j, key);
    ds_jo_int(j, v);
}

void ds_jo_member_ms(struct ds_json_out *j, const char *key, double v)
{
    ds_jo_key(j, key);
    ds_jo_num(j, (double)(int64_t)(v * 1000 + 0.5) / 1000);
}

void ds_jo_member_text(struct ds_json_out *j, const char *key, const struct ds_bytes *b)
{
    ds_jo_key(j, key);
    ds_jo_strn(j, b->p, b->n);
}

void ds_jo_progress(struct ds_json_out *j, const struct ds_prompt_progress *p)
{
    ds_jo_key(j, "prompt_progress");
    ds_jo_obj(j);
    ds_jo_member_int(j, "total", p->total);
    ds_jo_member_int(j, "cache", p->cache);
    ds_jo_member_int(j, "processed", p->processed);
    ds_jo_member_ms(j, "time_ms", p->time_ms);
    ds_jo_obj_end(j);
}

void ds_jo_usage(struct ds_json_out *j, const struct ds_ending *f)
{
    ds_jo_key(j, "usage");
    ds_jo_obj(j);
    ds_jo_member_int(j, "prompt_tokens", f->prompt);
    ds_jo_member_int(j, "completion_tokens", f->completion);
    ds_jo_member_int(j, "total_tokens", f->prompt + f->completion);
    ds_jo_key(j, "prompt_tokens_details");
    ds_jo_obj(j);
    ds_jo_member_int(j, "cached_tokens", f->cached);
    ds_jo_obj_end(j);
    ds_jo_obj_end(j);
    ds_jo_key(j, "timings");
    ds_jo_obj(j);
    ds_jo_member_ms(j, "queue_ms", f->queue_ms);
    ds_jo_member_ms(j, "prefill_ms", f->prefill_ms);
    ds_jo_member_ms(j, "decode_ms", f->decode_ms);
    ds_jo_obj_end(j);
}
