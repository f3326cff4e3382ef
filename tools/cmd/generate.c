#include "cmd/generate.h"

#include "base/os.h"
#include "common/progress.h"
#include "common/tool.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ds_finish_names[] = { "length", "end", "stop", "window", "interrupted" };

#define MAX_ANSWER ((size_t)1 << 30)         /* bytes */

void ds_generation_free(struct ds_generation *r)
{
    free(r->ids.p);
    free(r->owed.p);
    ds_bytes_free(&r->text);
    r->ids = r->owed = (struct ds_ids){ NULL, 0 };
}

/* --- prompt ------------------------------------------------------------------------------------------- */

static ds_status owe(struct ds_generation *r, const int32_t *ids, size_t n, struct ds_err *e)
{
    int32_t *p = realloc(r->owed.p, (r->owed.n + n + 1) * sizeof *p);
    if (!p) return ds_fail(e, DS_ENOMEM, "no memory for %zu ids", n);
    if (n) memcpy(p + r->owed.n, ids, n * sizeof *p);
    r->owed.p = p;
    r->owed.n += n;
    return DS_OK;
}

/* The session holds the first n of what was owed. */
static void settle(struct ds_generation *r, size_t n)
{
    for (size_t i = 0; i < n; i++) ds_sampler_accept(r->sampler, r->owed.p[i]);
    r->owed.n -= n;
    memmove(r->owed.p, r->owed.p + n, r->owed.n * sizeof *r->owed.p);
}

static void print_profile(const struct ds_generation *r)
{
    char line[256];
    const struct ds_profile *p = ds_session_profile(r->s);
    if (!p) return;
    ds_profile_line(p, ds_engine_backend(r->g), line, sizeof line);
    fprintf(stderr, "%s\n", line);
}

static ds_status prefill(struct ds_generation *r, struct ds_err *e)
{
    struct ds_progress bar;
    int64_t from = ds_session_pos(r->s);
    if (!r->owed.n && ds_session_logits(r->s)) return DS_OK;
    int n = r->owed.n > INT_MAX ? INT_MAX : (int)r->owed.n;      /* too many for any window */
    ds_progress_start(&bar, "prefill", DS_PROGRESS_TOKENS);
    uint64_t start = ds_now_ns();
    ds_status st = ds_session_prefill(r->s, r->owed.p, n, DS_ROWS_LAST, ds_progress_tick, &bar, e);
    r->prefill_ms = (double)(ds_now_ns() - start) * 1e-6;
    ds_progress_end(&bar);
    if (st && st != DS_ECANCEL) return st;
    settle(r, (size_t)(ds_session_pos(r->s) - from));
    if (st) r->finish = DS_FINISH_INTERRUPTED;
    else print_profile(r);
    return DS_OK;
}

/* --- answer ------------------------------------------------------------------------------------------- */

struct answer {
    struct ds_generation *r;
    struct ds_stream stream;
    struct ds_stops stops;
    char *piece;               /* room for the text of one id */
    size_t piece_cap, shown;   /* shown: bytes of r->text that are printed */
};

static ds_status show(struct answer *a, struct ds_err *e)
{
    struct ds_bytes *t = &a->r->text;
    size_t n = t->n - a->shown;
    if (t->failed || a->stops.held.failed) return ds_fail(e, DS_ENOMEM, "the answer passes %zu bytes", t->max);
    if (!a->r->print || !n) return DS_OK;
    a->shown = t->n;
    return ds_tool_print(t->p + t->n - n, n, e);
}

/* Text of one id, through the stop strings, to the user. *stop: one of them is complete. */
static ds_status take(struct answer *a, int32_t id, bool *stop, struct ds_err *e)
{
    struct ds_generation *r = a->r;
    const char *bytes;
    size_t cap = 3 * ds_token_bytes(r->g, id, &bytes) + 16;
    int32_t *ids = realloc(r->ids.p, (r->ids.n + 1) * sizeof *ids);
    if (ids) r->ids.p = ids;
    char *piece = cap > a->piece_cap ? realloc(a->piece, cap) : a->piece;
    if (piece) a->piece = piece;
    if (!ids || !piece) return ds_fail(e, DS_ENOMEM, "no memory for the answer");
    if (cap > a->piece_cap) a->piece_cap = cap;
    r->ids.p[r->ids.n++] = id;
    size_t n = ds_stream_put(&a->stream, r->g, id, a->piece, a->piece_cap);
    *stop = ds_stops_put(&a->stops, a->piece, n, &r->text);
    return show(a, e);
}

static ds_status generate(struct answer *a, struct ds_err *e)
{
    struct ds_generation *r = a->r;
    int64_t window = ds_engine_info(r->g)->ctx;
    for (int made = 0;; ) {
        bool stop = false;
        ds_status st;
        if (r->max_new >= 0 && made >= r->max_new) return r->finish = DS_FINISH_LENGTH, DS_OK;
        if (ds_tool_interrupted) return r->finish = DS_FINISH_INTERRUPTED, DS_OK;
        int32_t id = ds_sampler_pick(r->sampler, ds_session_logits(r->s));
        if (id < 0 || ds_token_is_end(r->g, id)) return r->finish = DS_FINISH_END, DS_OK;
        if ((st = take(a, id, &stop, e)) || (st = owe(r, &id, 1, e))) return st;
        made++;
        if (stop) return r->finish = DS_FINISH_STOP, DS_OK;
        if (made == r->max_new) return r->finish = DS_FINISH_LENGTH, DS_OK;
        if (ds_session_pos(r->s) >= window) return r->finish = DS_FINISH_WINDOW, DS_OK;
        if ((st = ds_session_decode(r->s, id, e))) return st;
        settle(r, 1);
    }
}

static ds_status answer(struct ds_generation *r, struct ds_err *e)
{
    struct answer a = { .r = r };
    ds_stops_init(&a.stops, &r->stops);
    uint64_t start = ds_now_ns();
    ds_status st = generate(&a, e);
    r->decode_ms = (double)(ds_now_ns() - start) * 1e-6;
    if (!st && r->finish != DS_FINISH_STOP) {
        char rest[16];
        size_t n = ds_stream_end(&a.stream, rest, sizeof rest);
        if (!ds_stops_put(&a.stops, rest, n, &r->text)) ds_stops_end(&a.stops, &r->text);
        st = show(&a, e);
    }
    ds_stops_free(&a.stops);
    free(a.piece);
    return st;
}

ds_status ds_generate(struct ds_generation *r, const int32_t *prompt, size_t n, struct ds_err *e)
{
    free(r->ids.p);
    r->ids = (struct ds_ids){ NULL, 0 };
    ds_bytes_free(&r->text);
    ds_bytes_init(&r->text, MAX_ANSWER);
    r->finish = DS_FINISH_LENGTH;
    r->decode_ms = 0;

    ds_status st = owe(r, prompt, n, e);
    if (!st) st = prefill(r, e);
    if (st || r->finish == DS_FINISH_INTERRUPTED) return st;
    return answer(r, e);
}

ds_status ds_generation_settle(struct ds_generation *r, struct ds_err *e)
{
    int64_t room = ds_engine_info(r->g)->ctx - ds_session_pos(r->s);
    int n = r->owed.n > (size_t)room ? (int)room : (int)r->owed.n;
    ds_status st = n ? ds_session_prefill(r->s, r->owed.p, n, DS_ROWS_LAST, NULL, NULL, e) : DS_OK;
    if (!st) settle(r, (size_t)n);
    return st;
}
