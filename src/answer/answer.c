#include "answer/stops.h"
#include "deltascope_answer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const ds_finish_names[] = { "length", "end", "stop", "window", "enough", "interrupted" };

#define MAX_STEP ((size_t)64 << 20)          /* bytes of one step's text */

struct ds_answer {
    const ds_engine *g;
    ds_sampler *sampler;
    struct ds_stream stream;
    struct ds_stops stops;
    char **strings; int n_strings;
    int64_t max_new, made, window;
    int logprobs, n_vocab;
    struct ds_bytes text;                    /* of the step under way */
    char *piece; size_t piece_cap;           /* room for the text of one id */
};

/* --- start and end ---------------------------------------------------------------------------------- */

static bool copy_strings(ds_answer *a, const struct ds_answer_options *o)
{
    a->strings = calloc((size_t)o->n_stops + 1, sizeof *a->strings);
    if (!a->strings) return false;
    for (int i = 0; i < o->n_stops; i++) {
        size_t n = strlen(o->stops[i]) + 1;
        if (!(a->strings[i] = malloc(n))) return false;
        memcpy(a->strings[i], o->stops[i], n);
        a->n_strings++;
    }
    ds_stops_init(&a->stops, (const char *const *)a->strings, a->n_strings);
    return true;
}

/* End tokens that are never picked are a bias more. */
static ds_sampler *sampler_without_ends(const ds_engine *g, const struct ds_sampling *p)
{
    int n_vocab = ds_engine_info(g)->n_vocab, n = 0;
    for (int32_t i = 0; i < n_vocab; i++) n += ds_token_is_end(g, i);
    struct ds_bias *b = malloc((size_t)(p->n_bias + n + 1) * sizeof *b);
    if (!b) return NULL;
    if (p->n_bias) memcpy(b, p->bias, (size_t)p->n_bias * sizeof *b);
    struct ds_sampling with = *p;
    for (int32_t i = 0; i < n_vocab; i++)
        if (ds_token_is_end(g, i)) b[with.n_bias++] = (struct ds_bias){ i, -INFINITY };
    with.bias = b;
    ds_sampler *s = ds_sampler_new(g, &with);
    free(b);
    return s;
}

ds_answer *ds_answer_new(const ds_engine *g, const struct ds_answer_options *o)
{
    ds_answer *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    a->g = g;
    a->max_new = o->max_new;
    a->logprobs = o->logprobs;
    a->window = ds_engine_info(g)->ctx;
    a->n_vocab = ds_engine_info(g)->n_vocab;
    ds_bytes_init(&a->text, MAX_STEP);
    a->sampler = o->ignore_end ? sampler_without_ends(g, &o->sampling) : ds_sampler_new(g, &o->sampling);
    if (!a->sampler || !copy_strings(a, o)) {
        ds_answer_free(a);
        return NULL;
    }
    return a;
}

void ds_answer_free(ds_answer *a)
{
    if (!a) return;
    for (int i = 0; i < a->n_strings; i++) free(a->strings[i]);
    free(a->strings);
    ds_stops_free(&a->stops);
    ds_sampler_free(a->sampler);
    ds_bytes_free(&a->text);
    free(a->piece);
    free(a);
}

void ds_answer_prompt(ds_answer *a, const int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) ds_sampler_prompt(a->sampler, ids[i]);
}

/* --- probabilities -------------------------------------------------------------------------------------- */

static double log_sum(const float *l, int n)
{
    float max = -INFINITY;
    double sum = 0;
    for (int i = 0; i < n; i++) max = l[i] > max ? l[i] : max;
    for (int i = 0; i < n; i++) sum += exp((double)l[i] - max);
    return max + log(sum);
}

/* The likeliest tokens, in order; equal ones by id. */
static void likeliest(struct ds_token_step *out, const float *l, int n, int want, double norm)
{
    struct ds_logprob *t = out->top;
    for (int32_t i = 0; i < n && want; i++) {
        float v = (float)(l[i] - norm);
        if (out->n_top == want && !(v > t[want - 1].logprob)) continue;
        int at = out->n_top < want ? out->n_top++ : want - 1;
        for (; at > 0 && t[at - 1].logprob < v; at--) t[at] = t[at - 1];
        t[at] = (struct ds_logprob){ i, v };
    }
}

static void tell_probabilities(const ds_answer *a, const float *logits, struct ds_token_step *out)
{
    if (a->logprobs < 0 || out->id < 0) return;
    double norm = log_sum(logits, a->n_vocab);
    out->logprob = (float)(logits[out->id] - norm);
    likeliest(out, logits, a->n_vocab, a->logprobs < DS_LOGPROBS_MAX ? a->logprobs : DS_LOGPROBS_MAX, norm);
}

/* --- a step -------------------------------------------------------------------------------------------- */

static ds_status take_text(ds_answer *a, struct ds_token_step *out, struct ds_err *e)
{
    const char *bytes;
    size_t cap = 3 * ds_token_bytes(a->g, out->id, &bytes) + 16;
    if (cap > a->piece_cap) {
        char *p = realloc(a->piece, cap);
        if (!p) return ds_fail(e, DS_ENOMEM, "no memory for the answer");
        a->piece = p;
        a->piece_cap = cap;
    }
    size_t n = ds_stream_put(&a->stream, a->g, out->id, a->piece, a->piece_cap);
    out->stop = ds_stops_put(&a->stops, a->piece, n, &a->text);
    return DS_OK;
}

static void hold_nothing(ds_answer *a)
{
    char rest[16];
    size_t n = ds_stream_end(&a->stream, rest, sizeof rest);
    if (!ds_stops_put(&a->stops, rest, n, &a->text)) ds_stops_end(&a->stops, &a->text);
}

static void over(ds_answer *a, enum ds_finish why, struct ds_token_step *out)
{
    out->over = true;
    out->finish = why;
    if (why != DS_FINISH_STOP) hold_nothing(a);
}

static ds_status hand_out(ds_answer *a, struct ds_token_step *out, struct ds_err *e)
{
    if (a->text.failed || a->stops.held.failed) return ds_fail(e, DS_ENOMEM, "no memory for the answer");
    out->text = a->text.p ? a->text.p : "";
    out->n = a->text.n;
    return DS_OK;
}

ds_status ds_answer_step(ds_answer *a, const ds_session *s, struct ds_token_step *out, struct ds_err *e)
{
    const float *logits = ds_session_logits(s);
    *out = (struct ds_token_step){ .id = -1 };
    a->text.n = 0;
    if (a->max_new >= 0 && a->made >= a->max_new) {
        over(a, DS_FINISH_LENGTH, out);
        return hand_out(a, out, e);
    }
    if (ds_session_pos(s) >= a->window) {
        over(a, DS_FINISH_WINDOW, out);
        return hand_out(a, out, e);
    }
    int32_t id = ds_sampler_pick(a->sampler, logits);
    if (id < 0 || ds_token_is_end(a->g, id)) {
        over(a, DS_FINISH_END, out);
        return hand_out(a, out, e);
    }
    out->id = id;
    a->made++;
    ds_sampler_accept(a->sampler, id);
    tell_probabilities(a, logits, out);
    ds_status st = take_text(a, out, e);
    if (st) return st;
    if (out->stop) over(a, DS_FINISH_STOP, out);
    else if (a->made == a->max_new) over(a, DS_FINISH_LENGTH, out);
    else if (ds_session_pos(s) + 1 >= a->window) over(a, DS_FINISH_WINDOW, out);
    return hand_out(a, out, e);
}

void ds_answer_end(ds_answer *a, enum ds_finish why, struct ds_token_step *out)
{
    *out = (struct ds_token_step){ .id = -1 };
    a->text.n = 0;
    over(a, why, out);
    if (hand_out(a, out, NULL)) out->text = "";
}
