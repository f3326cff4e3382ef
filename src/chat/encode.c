/* Prompts as ids, and what include/deltascope.h offers on top of them. */
#include "chat/chat.h"

#include "base/buf.h"
#include "chat/find.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TEXT ((size_t)INT32_MAX)

/* The template's markers. Those from `own` on count in the model's words too. */
static const char *const markers[] = { "<|im_start|>", "<|im_end|>", "<tool_response>", "</tool_response>",
                                       "<think>", "</think>", "<tool_call>", "</tool_call>" };
enum { N_MARKERS = 8, OWN = 4 };

struct encoder {
    const ds_engine *g;
    int32_t id[N_MARKERS];     /* -1: the vocabulary has no such token, and it is ordinary text */
    struct ds_bytes run;       /* text since the last special token */
    struct ds_ids ids;
    size_t ids_cap;
    int64_t *bounds;
    int n_bounds, bounds_cap;
};

static bool find_markers(struct encoder *c)
{
    for (int i = 0; i < N_MARKERS; i++) {
        struct ds_ids ids;
        if (ds_tokenize(c->g, markers[i], strlen(markers[i]), true, &ids, NULL)) return false;
        c->id[i] = ids.n == 1 ? ids.p[0] : -1;
        free(ids.p);
    }
    return true;
}

static bool push(struct encoder *c, const int32_t *ids, size_t n)
{
    if (c->ids.n + n > c->ids_cap) {
        size_t cap = 2 * (c->ids.n + n) + 64;
        int32_t *p = realloc(c->ids.p, cap * sizeof *p);
        if (!p) return false;
        c->ids.p = p;
        c->ids_cap = cap;
    }
    if (n) memcpy(c->ids.p + c->ids.n, ids, n * sizeof *ids);
    c->ids.n += n;
    return true;
}

static bool flush(struct encoder *c)
{
    struct ds_ids more;
    if (c->run.failed || ds_tokenize(c->g, c->run.n ? c->run.p : "", c->run.n, false, &more, NULL)) return false;
    bool ok = push(c, more.p, more.n);
    free(more.p);
    c->run.n = 0;
    return ok;
}

static bool bound(struct encoder *c)
{
    if (!flush(c)) return false;
    if (c->n_bounds == c->bounds_cap) {
        int cap = 2 * c->bounds_cap + 16;
        int64_t *p = realloc(c->bounds, (size_t)cap * sizeof *p);
        if (!p) return false;
        c->bounds = p;
        c->bounds_cap = cap;
    }
    c->bounds[c->n_bounds++] = (int64_t)c->ids.n;
    return true;
}

/* The marker that stands at the head of s, counting from `first`; -1: none. */
static int marker_at(const struct encoder *c, struct ds_str s, int first)
{
    for (int i = first; i < N_MARKERS; i++)
        if (c->id[i] >= 0 && ds_begins(s, markers[i])) return i;
    return -1;
}

static bool encode(void *ctx, enum ds_chat_piece kind, const char *p, size_t n)
{
    struct encoder *c = ctx;
    struct ds_str s = { p, n };
    if (kind == DS_PIECE_BOUND) return bound(c);
    while (kind != DS_PIECE_WORDS && s.n) {
        const char *lt = memchr(s.p, '<', s.n);
        if (!lt) break;
        size_t before = (size_t)(lt - s.p);
        int m = marker_at(c, ds_after(s, before), kind == DS_PIECE_OWN ? OWN : 0);
        ds_bytes_add(&c->run, s.p, m < 0 ? before + 1 : before);
        s = ds_after(s, m < 0 ? before + 1 : before + strlen(markers[m]));
        if (m >= 0 && !(flush(c) && push(c, &c->id[m], 1))) return false;
    }
    ds_bytes_add(&c->run, s.p, s.n);
    return !c->run.failed;
}

ds_status ds_chat_encode(const ds_engine *g, const struct ds_chat_template *t, const struct ds_chat *chat, struct ds_chat_prompt *out,
                         struct ds_err *e)
{
    struct encoder c = { .g = g };
    *out = (struct ds_chat_prompt){ .n_bounds = 0 };
    ds_bytes_init(&c.run, MAX_TEXT);
    ds_status st = find_markers(&c) ? ds_chat_frame(t, chat, encode, &c, &out->tail, e)
                                    : ds_fail(e, DS_EUNSUP, "the model has no tokenizer");
    if (!st && !flush(&c)) st = ds_fail(e, DS_ENOMEM, "no memory for the chat");
    ds_bytes_free(&c.run);
    out->ids = c.ids;
    out->bounds = c.bounds;
    out->n_bounds = c.n_bounds;
    if (st) ds_chat_prompt_free(out);
    return st;
}

void ds_chat_prompt_free(struct ds_chat_prompt *p)
{
    free(p->ids.p);
    free(p->bounds);
    *p = (struct ds_chat_prompt){ .n_bounds = 0 };
}
