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
    ds_jo_key(&j, "message");
    ds_jo_str(&j, r->msg);
    ds_jo_key(&j, "type");
    ds_jo_str(&j, error_type(r->status));
    ds_jo_key(&j, "param");
    ds_jo_str(&j, r->param[0] ? r->param : NULL);
    ds_jo_key(&j, "code");
    ds_jo_int(&j, r->status);
    ds_jo_obj_end(&j);
    ds_jo_obj_end(&j);
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
