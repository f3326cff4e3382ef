#include "answer/stops.h"

#include <stdint.h>
#include <string.h>

void ds_stops_init(struct ds_stops *s, const char *const *strings, int n)
{
    s->strings = strings;
    s->n = n;
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

/* How far the text held from i on follows a stop string; *which: the one that is complete. */
static enum reach reach_at(const struct ds_stops *s, size_t i, const char **which)
{
    size_t left = s->held.n - i;
    enum reach r = NOTHING;
    for (int k = 0; k < s->n; k++) {
        size_t len = strlen(s->strings[k]);
        if (memcmp(s->held.p + i, s->strings[k], len < left ? len : left)) continue;
        *which = s->strings[k];
        if (len <= left) return COMPLETE;
        r = BEGINNING;
    }
    return r;
}

const char *ds_stops_put(struct ds_stops *s, const char *text, size_t n, struct ds_bytes *out)
{
    const char *which = NULL;
    ds_bytes_add(&s->held, text, n);
    size_t safe = s->held.n;
    for (size_t i = 0; i < s->held.n; i++) {
        enum reach r = reach_at(s, i, &which);
        if (r == COMPLETE) {
            release(s, i, out);
            s->held.n = 0;
            return which;
        }
        if (r == BEGINNING && i < safe) safe = i;
    }
    release(s, safe, out);
    return NULL;
}

void ds_stops_end(struct ds_stops *s, struct ds_bytes *out)
{
    release(s, s->held.n, out);
}
