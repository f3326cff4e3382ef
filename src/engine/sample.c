/* Sampling: logits -> one id.
 *
 *     l_i   <- bias, then penalties: repetition on ids of prompt and answer (divides positive, multiplies negative
 *              logits), presence and frequency on ids of the answer (subtract once, and once for each time)
 *     w_i    = exp((l_i - max l) / temp)
 *     top-k    keeps the k largest; top-p the fewest that hold that share of what top-k kept;
 *              min-p drops w_i < min_p (the largest w is 1)
 *     pick   i with probability w_i / sum w
 *
 * Equal logits rank by id. NaN counts as minus infinity. A whole sort of the vocabulary is never needed. */
#include "engine/engine.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct span { int begin, end; };
struct cand { int32_t id; float w; };        /* w: logit while top-k is gathered, weight afterwards */

struct ds_sampler {
    struct ds_sampling p;
    struct ds_rng rng;
    int n_vocab;
    struct span *spans;                      /* the ids that may be picked, in order */
    int n_spans;
    uint32_t *times;                         /* [n_vocab] 0: not seen; else 1 + how often the answer has it */
    int32_t *seen;                           /* the ids seen so far, each once */
    int n_seen;
    struct ds_bias *bias;                    /* [p.n_bias] */
    float *adjusted;                         /* [n_vocab] logits after bias and penalties; NULL without them */
    struct cand *cand;                       /* [n_vocab] */
};

static bool adjusts(const struct ds_sampling *p)
{
    return (p->repeat_penalty > 0 && p->repeat_penalty != 1) || p->presence_penalty != 0 || p->frequency_penalty != 0 || p->n_bias;
}

static bool copy_bias(ds_sampler *s)
{
    if (!s->p.n_bias) return true;
    s->bias = malloc((size_t)s->p.n_bias * sizeof *s->bias);
    if (s->bias) memcpy(s->bias, s->p.bias, (size_t)s->p.n_bias * sizeof *s->bias);
    return s->bias;
}

static bool may_pick(const ds_engine *g, int32_t id)
{
    return !g->tok || !ds_tokenizer_is_padding(g->tok, id);
}

static bool find_spans(ds_sampler *s, const ds_engine *g)
{
    int n = 0;
    for (int i = 0; i < s->n_vocab; i++) n += may_pick(g, i) && (i == 0 || !may_pick(g, i - 1));
    s->spans = malloc(((size_t)n + 1) * sizeof *s->spans);
    if (!s->spans) return false;
    for (int i = 0; i < s->n_vocab; i++) {
        if (!may_pick(g, i)) continue;
        if (i == 0 || !may_pick(g, i - 1)) s->spans[s->n_spans++].begin = i;
        s->spans[s->n_spans - 1].end = i + 1;
    }
    return true;
}

ds_sampler *ds_sampler_new(const ds_engine *g, const struct ds_sampling *p)
{
    ds_sampler *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->p = *p;
    s->n_vocab = g->info.n_vocab;
    size_t n = (size_t)s->n_vocab;
    ds_rng_seed(&s->rng, p->seed);
    s->times = calloc(n + 1, sizeof *s->times);
    s->seen = malloc((n + 1) * sizeof *s->seen);
    s->cand = malloc((n + 1) * sizeof *s->cand);
    s->adjusted = adjusts(p) ? malloc((n + 1) * sizeof *s->adjusted) : NULL;
    if (!s->times || !s->seen || !s->cand || (adjusts(p) && !s->adjusted) || !copy_bias(s) || !find_spans(s, g)) {
        ds_sampler_free(s);
        return NULL;
    }
    return s;
}

void ds_sampler_free(ds_sampler *s)
{
    if (!s) return;
    free(s->spans);
    free(s->times);
    free(s->bias);
    free(s->seen);
    free(s->adjusted);
    free(s->cand);
    free(s);
}

void ds_sampler_prompt(ds_sampler *s, int32_t id)
{
    if (id < 0 || id >= s->n_vocab || s->times[id]) return;
    s->times[id] = 1;
    s->seen[s->n_seen++] = id;
}

void ds_sampler_accept(ds_sampler *s, int32_t id)
{
    if (id < 0 || id >= s->n_vocab) return;
    ds_sampler_prompt(s, id);
    s->times[id]++;
}

static const float *adjusted(ds_sampler *s, const float *logits)
{
    if (!s->adjusted) return logits;
    memcpy(s->adjusted, logits, (size_t)s->n_vocab * sizeof *logits);
    for (int i = 0; i < s->p.n_bias; i++)
        if (s->bias[i].id >= 0 && s->bias[i].id < s->n_vocab) s->adjusted[s->bias[i].id] += s->bias[i].add;
    float repeat = s->p.repeat_penalty > 0 ? s->p.repeat_penalty : 1;
    for (int i = 0; i < s->n_seen; i++) {
        float *l = &s->adjusted[s->seen[i]];
        uint32_t times = s->times[s->seen[i]] - 1;
        *l = *l > 0 ? *l / repeat : *l * repeat;
        if (times) *l -= s->p.presence_penalty + s->p.frequency_penalty * (float)times;
    }
    return s->adjusted;
}

/* Largest of l[0..n), -INFINITY when there is none. Lanes, so that compilers need no licence to reorder. */
static float max_of(const float *l, int n)
{
    enum { LANES = 16 };
    float m[LANES], best = -INFINITY;
    int i = 0;
    for (int j = 0; j < LANES; j++) m[j] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) m[j] = l[i + j] > m[j] ? l[i + j] : m[j];
    for (; i < n; i++) m[0] = l[i] > m[0] ? l[i] : m[0];
    for (int j = 0; j < LANES; j++) best = m[j] > best ? m[j] : best;
    return best;
}

/* First id that holds the maximum, which goes to *max; the first id of all when every logit is NaN or -INFINITY. */
static int32_t first_maximum(const ds_sampler *s, const float *l, float *max)
{
    int32_t best = s->n_spans ? s->spans[0].begin : -1;
    *max = -INFINITY;
    for (int k = 0; k < s->n_spans; k++) {
        struct span r = s->spans[k];
        float m = max_of(l + r.begin, r.end - r.begin);
        if (!(m > *max)) continue;
        *max = m;
        for (best = r.begin; l[best] != m;) best++;
    }
    return best;
}

/* --- top-k: a heap whose root is the least of the k kept --------------------------------------------- */

static bool before(struct cand a, struct cand b)
{
    return a.w > b.w || (a.w == b.w && a.id < b.id);
}

static void sift_down(struct cand *h, int n, int i)
{
    struct cand x = h[i];
    for (int c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && before(h[c], h[c + 1])) c++;
        if (!before(x, h[c])) break;
        h[i] = h[c];
    }
    h[i] = x;
}

static int gather_top_k(ds_sampler *s, const float *l, int k)
{
    struct cand *h = s->cand;
    int n = 0;
    for (int r = 0; r < s->n_spans; r++) {
        for (int i = s->spans[r].begin; i < s->spans[r].end; i++) {
            if (n == k) {
                if (!(l[i] > h[0].w)) continue;      /* an equal one of higher id ranks behind */
                h[0] = (struct cand){ i, l[i] };
                sift_down(h, k, 0);
            } else if (l[i] > -INFINITY) {
                h[n++] = (struct cand){ i, l[i] };
                if (n == k)
                    for (int j = k / 2 - 1; j >= 0; j--) sift_down(h, k, j);
            }
        }
    }
    return n;
}

/* --- weights ------------------------------------------------------------------------------------------ */

/* What is certain to be dropped need not be gathered: w below min_p; and, when top-p must leave out the
 * share 1 - p, any w below (1 - p) / n, since n of those hold less than that share (the largest w is 1). */
static float weight_floor(const ds_sampler *s, int n)
{
    float floor = s->p.min_p > 0 ? s->p.min_p : 0, tail = (1 - s->p.top_p) / (float)n;
    return fminf(fmaxf(floor, tail), 1);
}

/* Turns candidates into weights, or gathers all ids when there are none; drops those below the floor.
 * Returns how many stay; *mass is the sum before anything is dropped. */
static int weigh(ds_sampler *s, const float *l, float max, int n_top, double *mass)
{
    float floor = weight_floor(s, n_top ? n_top : s->n_vocab), scale = 1 / s->p.temp;
    int n = 0;
    *mass = 0;
    if (n_top) {
        for (int i = 0; i < n_top; i++) {
            float w = expf((s->cand[i].w - max) * scale);
            *mass += w;
            if (w >= floor) s->cand[n++] = (struct cand){ s->cand[i].id, w };
        }
        return n;
    }
    for (int r = 0; r < s->n_spans; r++) {
        for (int i = s->spans[r].begin; i < s->spans[r].end; i++) {
            float w = expf((l[i] - max) * scale);
            if (!(w > 0)) continue;                  /* a NaN too */
            *mass += w;
            if (w >= floor) s->cand[n++] = (struct cand){ i, w };
        }
    }
    return n;
}

static void swap(struct cand *a, struct cand *b)
{
    struct cand t = *a;
    *a = *b;
    *b = t;
}

/* Partitions c[lo..hi) around the median of three; returns where the pivot ends up. */
static int partition(struct cand *c, int lo, int hi)
{
    int mid = lo + (hi - lo) / 2, last = hi - 1;
    if (before(c[mid], c[lo])) swap(&c[mid], &c[lo]);
    if (before(c[last], c[lo])) swap(&c[last], &c[lo]);
    if (before(c[mid], c[last])) swap(&c[mid], &c[last]);     /* the median is last now */
    int at = lo;
    for (int i = lo; i < last; i++)
        if (before(c[i], c[last])) swap(&c[i], &c[at++]);
    swap(&c[at], &c[last]);
    return at;
}

/* Moves to the front the fewest candidates, in rank order, that hold `target`; returns their number (>= 1). */
static int keep_mass(struct cand *c, int n, double target)
{
    int lo = 0, hi = n;
    double held = 0;                                 /* of c[0..lo) */
    while (lo < hi) {
        int at = partition(c, lo, hi);
        double front = 0;                            /* of c[lo..at) */
        for (int i = lo; i < at; i++) front += c[i].w;
        if (at > lo && held + front >= target) {
            hi = at;
        } else {
            held += front + c[at].w;
            lo = at + 1;
            if (held >= target) break;
        }
    }
    return lo;
}

static int32_t draw(ds_sampler *s, int n)
{
    double sum = 0, u = (double)(ds_rng_u64(&s->rng) >> 11) * 0x1p-53;
    for (int i = 0; i < n; i++) sum += s->cand[i].w;
    u *= sum;
    for (int i = 0; i < n; i++) {
        u -= s->cand[i].w;
        if (u < 0) return s->cand[i].id;
    }
    return s->cand[n - 1].id;
}

int32_t ds_sampler_pick(ds_sampler *s, const float *logits)
{
    const float *l = adjusted(s, logits);
    float max;
    int32_t best = first_maximum(s, l, &max);
    if (!(s->p.temp > 0) || !isfinite(max)) return best;

    double mass;
    int n = s->p.top_k > 0 && s->p.top_k < s->n_vocab ? gather_top_k(s, l, s->p.top_k) : 0;
    n = weigh(s, l, max, n, &mass);
    if (s->p.top_p < 1) n = keep_mass(s->cand, n, s->p.top_p * mass);
    return draw(s, n);
}
