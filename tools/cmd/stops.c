#include "cmd/stops.h"

#include <stdint.h>
#include <string.h>

void ds_stops_init(struct ds_stops *s, const struct ds_texts *strings)
{
    s->strings = *strings;
    ds_bytes_init(&s->held, SIZE_MAX / 4);
}

void ds_stops_free(struct ds_stops *s)
{
    ds_bytes_free(&s->held);
}

static void release(struct ds_stops *s, size_t n, struct ds_bytes *out)
{
    if (!n) return;
    ds_bytes_add(out, s->held.p, n);
    memmove(s->held.p, s->held.p + n, s->held.n - n);
    s->held.n -= n;
}

enum reach { NOTHING, BEGINNING, COMPLETE };

/* How far the text held from i on follows a stop string. */
static enum reach reach_at(const struct ds_stops *s, size_t i)
{
    size_t left = s->held.n - i;
    enum reach r = NOTHING;
    for (int k = 0; k < s->strings.n; k++) {
        size_t len = strlen(s->strings.v[k]);
        if (memcmp(s->held.p + i, s->strings.v[k], len < left ? len : left)) continue;
        if (len <= left) return COMPLETE;
        r = BEGINNING;
    }
    return r;
}

bool ds_stops_put(struct ds_stops *s, const char *text, size_t n, struct ds_bytes *out)
{
    ds_bytes_add(&s->held, text, n);
    size_t safe = s->held.n;
    for (size_t i = 0; i < s->held.n; i++) {
        enum reach r = reach_at(s, i);
        if (r == COMPLETE) {
            release(s, i, out);
            s->held.n = 0;
            return true;
        }
        if (r == BEGINNING && i < safe) safe = i;
    }
    release(s, safe, out);
    return false;
}

void ds_stops_end(struct ds_stops *s, struct ds_bytes *out)
{
    release(s, s->held.n, out);
}
