/* Numbers of what the server did. One place adds them up, so that every page of them says the same. */
#include "server/server.h"

#include <string.h>

const double ds_first_bounds[11] = { 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 900 };

void ds_tally_init(struct ds_tally *t)
{
    memset(t, 0, sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
}

static void add_first(struct ds_tally *t, double seconds)
{
    int b = 0;
    if (!(seconds > 0)) return;
    while (b < 11 && seconds > ds_first_bounds[b]) b++;
    t->sum.first_bucket[b]++;
    t->sum.first_count++;
    t->sum.first_s += seconds;
}

void ds_tally_add(struct ds_tally *t, const struct ds_record *r)
{
    pthread_mutex_lock(&t->lock);
    t->recent[t->n++ % DS_RECENT] = *r;
    t->sum.requests++;
    if (!strcmp(r->end, "cancelled")) t->sum.cancelled++;
    else if (!strcmp(r->end, "failed") || !strcmp(r->end, "refused")) t->sum.failed++;
    else t->sum.finished++;
    t->sum.queue_s += r->queue_ms * 1e-3;
    if (r->looked) {
        t->sum.prompt += (uint64_t)r->prompt;
        t->sum.cached += (uint64_t)r->cached;
        t->sum.prefilled += (uint64_t)r->prefilled;
        t->sum.generated += (uint64_t)r->completion;
        t->sum.prefill_s += r->prefill_ms * 1e-3;
        t->sum.decode_s += r->decode_ms * 1e-3;
        for (int i = 0; i < DS_ST_COUNT; i++) t->sum.stage_s[i] += r->stage_ms[i] * 1e-3;
        t->sum.reuse[r->lookup.reason]++;
    }
    add_first(t, r->first_ms * 1e-3);
    pthread_mutex_unlock(&t->lock);
}
