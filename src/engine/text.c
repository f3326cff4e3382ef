/* Text in and out of an engine: what include/deltascope.h offers on top of src/token. */
#include "engine/engine.h"

#include "base/buf.h"
#include "base/utf8.h"
#include "token/chat.h"

#include <stdlib.h>
#include <string.h>

static ds_status need_tokenizer(const ds_engine *g, struct ds_err *e)
{
    return g->tok ? DS_OK : ds_fail(e, DS_EUNSUP, "%s: the model has no tokenizer", g->info.path);
}

ds_status ds_tokenize(const ds_engine *g, const char *text, size_t n, bool special, struct ds_ids *out, struct ds_err *e)
{
    *out = (struct ds_ids){ NULL, 0 };
    ds_status st = need_tokenizer(g, e);
    return st ? st : ds_tokenizer_encode(g->tok, text, n, special, &out->p, &out->n, e);
}

size_t ds_token_bytes(const ds_engine *g, int32_t id, const char **p)
{
    *p = "";
    return g->tok ? ds_tokenizer_bytes(g->tok, id, p) : 0;
}

const char *ds_token_piece(const ds_engine *g, int32_t id)
{
    return g->tok ? ds_tokenizer_piece(g->tok, id) : NULL;
}

bool ds_token_is_end(const ds_engine *g, int32_t id)
{
    return g->tok && ds_tokenizer_is_end(g->tok, id);
}

/* --- stream ------------------------------------------------------------------------------------------- */

struct sink { char *dst; size_t n, cap; };

static void put(struct sink *k, const char *s, size_t n)
{
    if (k->n + n >= k->cap) return;
    memcpy(k->dst + k->n, s, n);
    k->n += n;
    k->dst[k->n] = 0;
}

static void put_byte(struct ds_stream *st, char byte, struct sink *k)
{
    static const char replacement[] = "\xEF\xBF\xBD";
    for (;;) {
        uint32_t cp;
        st->pend[st->n] = byte;
        int len = ds_utf8_scan((const unsigned char *)st->pend, (size_t)st->n + 1, &cp);
        if (len > 0) {
            put(k, st->pend, (size_t)len);
            st->n = 0;
            return;
        }
        if (len == 0) {
            st->n++;
            return;
        }
        put(k, replacement, 3);
        if (!st->n) return;
        st->n = 0;             /* what was held back is lost; the byte may begin something new */
    }
}

size_t ds_stream_put(struct ds_stream *st, const ds_engine *g, int32_t id, char *dst, size_t cap)
{
    struct sink k = { dst, 0, cap };
    const char *p;
    size_t n = ds_token_bytes(g, id, &p);
    if (cap) dst[0] = 0;
    for (size_t i = 0; i < n; i++) put_byte(st, p[i], &k);
    return k.n;
}

size_t ds_stream_end(struct ds_stream *st, char *dst, size_t cap)
{
    struct sink k = { dst, 0, cap };
    if (cap) dst[0] = 0;
    if (st->n) put(&k, "\xEF\xBF\xBD", 3);
    st->n = 0;
    return k.n;
}

/* --- chat --------------------------------------------------------------------------------------------- */

#define MAX_CHAT ((size_t)INT32_MAX)

static ds_status frame(const ds_engine *g, const struct ds_message *m, int n, bool thinking, ds_chat_emit emit, void *ctx,
                       struct ds_err *e)
{
    ds_status st = need_tokenizer(g, e);
    if (st) return st;
    struct ds_turn *turns = malloc(((size_t)n + 1) * sizeof *turns);
    if (!turns) return ds_fail(e, DS_ENOMEM, "no memory for a chat of %d messages", n);
    for (int i = 0; i < n; i++) turns[i] = (struct ds_turn){ m[i].role, m[i].content };
    st = ds_chat_frame(ds_tokenizer_chat(g->tok), turns, n, thinking, emit, ctx, e);
    free(turns);
    return st;
}

static bool append(void *ctx, const char *s, size_t n, bool is_frame)
{
    struct ds_bytes *b = ctx;
    (void)is_frame;
    ds_bytes_add(b, s, n);
    return !b->failed;
}

ds_status ds_chat_render(const ds_engine *g, const struct ds_message *m, int n, bool thinking, char **text, struct ds_err *e)
{
    struct ds_bytes b;
    ds_bytes_init(&b, MAX_CHAT);
    ds_status st = frame(g, m, n, thinking, append, &b, e);
    if (st) ds_bytes_free(&b);
    *text = b.p;
    return st;
}

/* Neighbours of one kind are encoded together, so that pieces are those of the whole text. */
struct chat_ids {
    const ds_engine *g;
    struct ds_bytes text;
    bool text_is_frame;
    struct ds_ids ids;
};

static bool flush(struct chat_ids *c)
{
    struct ds_ids more;
    if (!c->text.n) return true;
    if (ds_tokenize(c->g, c->text.p, c->text.n, c->text_is_frame, &more, NULL)) return false;
    c->text.n = 0;
    int32_t *p = realloc(c->ids.p, (c->ids.n + more.n + 1) * sizeof *p);
    if (p) {
        if (more.n) memcpy(p + c->ids.n, more.p, more.n * sizeof *p);
        c->ids.p = p;
        c->ids.n += more.n;
    }
    free(more.p);
    return p != NULL;
}

static bool encode(void *ctx, const char *s, size_t n, bool is_frame)
{
    struct chat_ids *c = ctx;
    if (is_frame != c->text_is_frame && !flush(c)) return false;
    c->text_is_frame = is_frame;
    ds_bytes_add(&c->text, s, n);
    return !c->text.failed;
}

ds_status ds_chat_tokenize(const ds_engine *g, const struct ds_message *m, int n, bool thinking, struct ds_ids *out,
                           struct ds_err *e)
{
    struct chat_ids c = { .g = g };
    ds_bytes_init(&c.text, MAX_CHAT);
    ds_status st = frame(g, m, n, thinking, encode, &c, e);
    if (!st && !flush(&c)) st = ds_fail(e, DS_ENOMEM, "no memory for the chat");
    ds_bytes_free(&c.text);
    if (st) {
        free(c.ids.p);
        c.ids = (struct ds_ids){ NULL, 0 };
    }
    *out = c.ids;
    return st;
}

bool ds_chat_thinks(const ds_engine *g)
{
    return g->tok && ds_chat_default(ds_tokenizer_chat(g->tok));
}
