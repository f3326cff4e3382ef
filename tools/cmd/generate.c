#include "cmd/generate.h"

#include "base/os.h"
#include "common/progress.h"
#include "common/tool.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static ds_status keep_id(struct ds_generation *r, int32_t id, struct ds_err *e)
{
    int32_t *ids = realloc(r->ids.p, (r->ids.n + 1) * sizeof *ids);
    if (!ids) return ds_fail(e, DS_ENOMEM, "no memory for the answer");
    r->ids.p = ids;
    r->ids.p[r->ids.n++] = id;
    return owe(r, &id, 1, e);
}

static ds_status show(struct ds_generation *r, const struct ds_token_step *step, struct ds_err *e)
{
    ds_bytes_add(&r->text, step->text, step->n);
    if (r->text.failed) return ds_fail(e, DS_ENOMEM, "the answer passes %zu bytes", r->text.max);
    return r->print && step->n ? ds_tool_print(step->text, step->n, e) : DS_OK;
}

static ds_status generate(struct ds_generation *r, ds_answer *a, struct ds_err *e)
{
    for (;;) {
        struct ds_token_step step;
        ds_status st = DS_OK;
        if (ds_tool_interrupted) ds_answer_end(a, DS_FINISH_INTERRUPTED, &step);
        else st = ds_answer_step(a, r->s, &step, e);
        if (!st && step.id >= 0) st = keep_id(r, step.id, e);
        if (!st) st = show(r, &step, e);
        if (st || step.over) return r->finish = step.finish, st;
        if ((st = ds_session_decode(r->s, step.id, e))) return st;
        settle(r, 1);
    }
}

static ds_status answer(struct ds_generation *r, struct ds_err *e)
{
    struct ds_answer_options o = {
        .sampling = r->sampling, .stops = r->stops.v, .n_stops = r->stops.n, .max_new = r->max_new, .logprobs = -1
    };
    ds_answer *a = ds_answer_new(r->g, &o);
    if (!a) return ds_fail(e, DS_ENOMEM, "no memory for the sampler");
    r->sampling.seed++;
    ds_answer_prompt(a, ds_session_tokens(r->s), ds_session_pos(r->s));
    ds_answer_prompt(a, r->owed.p, (int64_t)r->owed.n);
    uint64_t start = ds_now_ns();
    ds_status st = generate(r, a, e);
    r->decode_ms = (double)(ds_now_ns() - start) * 1e-6;
    ds_answer_free(a);
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
