#include "token/special.h"

#include <stdlib.h>
#include <string.h>

ds_status ds_special_init(struct ds_special *s, const struct ds_vocab *v, const char *path, struct ds_err *e)
{
    size_t nodes = 1;
    for (int32_t id = 0; id < v->n; id++) {
        if (!ds_vocab_is_special(v, id)) continue;
        size_t len = ds_vocab_spell_len(v, id);
        if (len > DS_SPECIAL_MAX)
            return ds_fail(e, DS_EFORMAT, "%s: special token %d is %zu bytes long, expected at most %d", path, (int)id, len,
                           DS_SPECIAL_MAX);
        nodes += len;
    }
    s->id = malloc(nodes * sizeof *s->id);
    if (!s->id || !ds_map64_init(&s->edges, nodes, v->seed)) return ds_fail(e, DS_ENOMEM, "no memory for the special tokens");

    uint64_t used = 1;
    s->id[0] = -1;
    for (int32_t id = 0; id < v->n; id++) {
        if (!ds_vocab_is_special(v, id)) continue;
        const char *p = v->spell + v->spell_at[id];
        size_t len = ds_vocab_spell_len(v, id);
        uint64_t node = 0;
        for (size_t i = 0; i < len; i++) {
            uint64_t key = node << 8 | (unsigned char)p[i];
            const uint64_t *to = ds_map64_get(&s->edges, key);
            if (to) {
                node = *to;
            } else {
                ds_map64_add(&s->edges, key, used);
                s->id[used] = -1;
                node = used++;
            }
        }
        if (len) {
            s->id[node] = id;
            s->first[(unsigned char)p[0]] = true;
        }
    }
    return DS_OK;
}

void ds_special_free(struct ds_special *s)
{
    ds_map64_free(&s->edges);
    free(s->id);
    s->id = NULL;
}

static int32_t longest_at(const struct ds_special *s, const char *text, size_t n, size_t *len)
{
    int32_t best = -1;
    uint64_t node = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t *to = ds_map64_get(&s->edges, node << 8 | (unsigned char)text[i]);
        if (!to) break;
        node = *to;
        if (s->id[node] >= 0) {
            best = s->id[node];
            *len = i + 1;
        }
    }
    return best;
}

size_t ds_special_find(const struct ds_special *s, const char *text, size_t n, size_t from, int32_t *id, size_t *len)
{
    for (size_t i = from; i < n; i++)
        if (s->first[(unsigned char)text[i]] && (*id = longest_at(s, text + i, n - i, len)) >= 0) return i;
    return n;
}
