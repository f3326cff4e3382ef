/* Text in and out of an engine: what include/deltascope.h offers on top of src/token. */
#include "engine/engine.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

static ds_status need_tokenizer(const ds_engine *g, struct ds_err *e)
{
    return g->tok ? DS_OK : ds_fail(e, DS_EUNSUP, "%s: the model has no tokenizer", g->info.path);
}

ds_status ds_tokenize(const ds_engine *g, const char *text, size_t n, bool special, struct ds_ids *out, struct ds_err *e)
{
    return ds_tokenize_until(g, text, n, special, NULL, NULL, out, e);
}

ds_status ds_tokenize_until(const ds_engine *g, const char *text, size_t n, bool special, ds_stop stop, void *ctx,
                            struct ds_ids *out, struct ds_err *e)
{
    *out = (struct ds_ids){ NULL, 0 };
    ds_status st = need_tokenizer(g, e);
    return st ? st : ds_tokenizer_encode_until(g->tok, text, n, special, stop, ctx, &out->p, &out->n, e);
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

const char *ds_engine_chat_template(const ds_engine *g, size_t *n)
{
    struct ds_str text = g->tok ? ds_tokenizer_template(g->tok) : (struct ds_str){ "", 0 };
    *n = text.n;
    return text.p;
}
