/* Sampling: what may come out, and how often. */
#include "engine/engine.h"

#include "base/rng.h"

#include "../harness.h"
#include "vocab.h"

#include <math.h>
#include <time.h>

static struct ds_engine engine_of(int n_vocab)
{
    return (struct ds_engine){ .info.n_vocab = n_vocab };
}

static int32_t pick_once(const struct ds_engine *g, struct ds_sampling p, const float *l)
{
    ds_sampler *s = ds_sampler_new(g, &p);
    int32_t id = s ? ds_sampler_pick(s, l) : -2;
    ds_sampler_free(s);
    return id;
}

/* Share of each id over `draws` picks. */
static bool shares(const struct ds_engine *g, struct ds_sampling p, const float *l, int draws, double *share)
{
    ds_sampler *s = ds_sampler_new(g, &p);
    if (!s) return false;
    for (int i = 0; i < g->info.n_vocab; i++) share[i] = 0;
    for (int i = 0; i < draws; i++) {
        int32_t id = ds_sampler_pick(s, l);
        if (id >= 0 && id < g->info.n_vocab) share[id] += 1.0 / draws;
    }
    ds_sampler_free(s);
    return true;
}

static void sample_greedy_first_maximum(void)
{
    float l[100];
    struct ds_engine g = engine_of(100);
    for (int at = 0; at < 100; at++) {
        for (int i = 0; i < 100; i++) l[i] = i >= at && i % 3 == at % 3 ? 2.5f : -1.0f;
        CHECK(pick_once(&g, DS_SAMPLING_GREEDY, l) == at);
    }
    for (int i = 0; i < 100; i++) l[i] = -INFINITY;
    CHECK(pick_once(&g, DS_SAMPLING_GREEDY, l) == 0);
    l[70] = -1e30f;
    CHECK(pick_once(&g, DS_SAMPLING_GREEDY, l) == 70);
}

static void sample_nan_is_never_picked(void)
{
    struct ds_sampling warm = { .temp = 1, .top_p = 1, .repeat_penalty = 1 };
    struct ds_engine g = engine_of(64);
    float l[64];
    for (int i = 0; i < 64; i++) l[i] = i % 2 ? NAN : 0.01f * (float)i;
    CHECK(pick_once(&g, DS_SAMPLING_GREEDY, l) == 62);
    for (int k = 0; k < 4; k++) {
        struct ds_sampling p = warm;
        p.top_k = k == 1 ? 40 : 0;
        p.top_p = k == 2 ? 0.9f : 1;
        p.min_p = k == 3 ? 0.1f : 0;
        for (p.seed = 0; p.seed < 200; p.seed++) CHECK(pick_once(&g, p, l) % 2 == 0);
    }
    for (int i = 0; i < 64; i++) l[i] = NAN;
    CHECK(pick_once(&g, warm, l) == 0);
    l[9] = INFINITY;
    CHECK(pick_once(&g, warm, l) == 9);
}

/* Probabilities 8:4:2:1:1 by temperature 1. */
static const float five[5] = { 0.0f, 2.0794415f, 0.0f, 1.3862944f, 0.6931472f };

static void sample_shares_follow_weights(void)
{
    struct ds_engine g = engine_of(5);
    struct ds_sampling p = { .temp = 1, .top_p = 1, .repeat_penalty = 1, .seed = 3 };
    double s[5];
    const double want[5] = { 1 / 16.0, 8 / 16.0, 1 / 16.0, 4 / 16.0, 2 / 16.0 };
    REQUIRE(shares(&g, p, five, 40000, s));
    for (int i = 0; i < 5; i++) CHECK_MSG(fabs(s[i] - want[i]) < 0.01, "id %d: %.4f, expected %.4f", i, s[i], want[i]);
    p.temp = 0.5f;                                       /* squares: 64:16:4:1:1 of 86 */
    REQUIRE(shares(&g, p, five, 40000, s));
    CHECK_MSG(fabs(s[1] - 64 / 86.0) < 0.01 && fabs(s[3] - 16 / 86.0) < 0.01, "%.4f %.4f", s[1], s[3]);
}

static void sample_truncations_keep_the_right_ids(void)
{
    struct ds_engine g = engine_of(5);
    struct ds_sampling all = { .temp = 1, .top_p = 1, .repeat_penalty = 1, .seed = 5 };
    static const struct { int top_k; float top_p, min_p; unsigned kept; } t[] = {
        { 1, 1, 0, 1 << 1 },
        { 2, 1, 0, 1 << 1 | 1 << 3 },
        { 4, 1, 0, 1 << 1 | 1 << 3 | 1 << 4 | 1 << 0 },
        { 5, 1, 0, 31 },
        { 9, 1, 0, 31 },
        { 0, 0.49f, 0, 1 << 1 },
        { 0, 0.6f, 0, 1 << 1 | 1 << 3 },
        { 0, 0.8f, 0, 1 << 1 | 1 << 3 | 1 << 4 },
        { 0, 0, 0, 1 << 1 },
        { 0, 0.9f, 0, 1 << 1 | 1 << 3 | 1 << 4 | 1 << 0 },                  /* 0 before 2: equal logits rank by id */
        { 2, 0.7f, 0, 1 << 1 | 1 << 3 },
        { 2, 0.6f, 0, 1 << 1 },            /* top-p counts what top-k kept: 8 of 12 */
        { 0, 1, 0.3f, 1 << 1 | 1 << 3 },
        { 0, 1, 1, 1 << 1 },
        { 0, 0.6f, 0.1f, 1 << 1 | 1 << 3 },
        { 3, 1, 0.3f, 1 << 1 | 1 << 3 },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct ds_sampling p = all;
        double s[5];
        unsigned kept = 0;
        p.top_k = t[i].top_k;
        p.top_p = t[i].top_p;
        p.min_p = t[i].min_p;
        REQUIRE(shares(&g, p, five, 4000, s));
        for (int k = 0; k < 5; k++) kept |= (unsigned)(s[k] > 0) << k;
        CHECK_MSG(kept == t[i].kept, "case %zu keeps %#x, expected %#x", i, kept, t[i].kept);
    }
}

/* The set that a whole sort would keep, on a large vocabulary with many equal logits. */
static int by_rank(const void *a, const void *b, const float *l)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return l[x] > l[y] ? -1 : l[x] < l[y] ? 1 : x < y ? -1 : 1;
}
static const float *sort_by;
static int compare(const void *a, const void *b) { return by_rank(a, b, sort_by); }

static void sample_large_vocabulary_equals_sort(void)
{
    enum { N = 5000 };
    static float l[N];
    static int32_t order[N];
    static unsigned char in_set[N];
    struct ds_engine g = engine_of(N);
    struct ds_rng r;
    ds_rng_seed(&r, 11);
    for (int round = 0; round < 24; round++) {
        struct ds_sampling p = { .temp = 1, .top_p = 1, .repeat_penalty = 1 };
        for (int i = 0; i < N; i++) {
            l[i] = 2 * ds_rng_normal(&r);
            if (round % 3 == 0) l[i] = roundf(l[i] * 2) / 2;
            order[i] = i;
        }
        if (round % 2) p.top_p = 0.05f + 0.9f * ds_rng_uniform(&r);
        else p.top_k = 1 + (int)(ds_rng_u64(&r) % 60);
        sort_by = l;
        qsort(order, N, sizeof *order, compare);
        double total = 0, mass = 0;
        for (int i = 0; i < N; i++) total += exp(l[order[i]]);
        memset(in_set, 0, sizeof in_set);
        int kept = 0;
        for (; kept < N && (p.top_k ? kept < p.top_k : mass < p.top_p * total); kept++) {
            mass += exp(l[order[kept]]);
            in_set[order[kept]] = 1;
        }
        ds_sampler *s = ds_sampler_new(&g, &p);
        REQUIRE(s);
        int outside = 0, distinct = 0;
        for (int i = 0; i < 3000; i++) {
            int32_t id = ds_sampler_pick(s, l);
            outside += !in_set[id];
            distinct += in_set[id] == 1;
            if (in_set[id]) in_set[id] = 2;
        }
        /* The id at the border may differ by rounding of the sums. */
        CHECK_MSG(outside <= (p.top_k ? 0 : 3), "round %d: %d picks outside of the %d kept", round, outside, kept);
        CHECK_MSG(kept > 60 || distinct > kept * 2 / 3 - 1, "round %d: %d of %d kept ids were seen", round, distinct, kept);
        ds_sampler_free(s);
    }
}

static void sample_seed_decides(void)
{
    struct ds_engine g = engine_of(5);
    struct ds_sampling p = { .temp = 1, .top_p = 0.99f, .repeat_penalty = 1, .seed = 42 };
    ds_sampler *a = ds_sampler_new(&g, &p), *b = ds_sampler_new(&g, &p);
    p.seed = 43;
    ds_sampler *c = ds_sampler_new(&g, &p);
    int differ = 0;
    REQUIRE(a && b && c);
    for (int i = 0; i < 200; i++) {
        int32_t x = ds_sampler_pick(a, five);
        CHECK(x == ds_sampler_pick(b, five));
        differ += x != ds_sampler_pick(c, five);
    }
    CHECK(differ > 50);
    ds_sampler_free(a);
    ds_sampler_free(b);
    ds_sampler_free(c);
}

static void sample_penalties(void)
{
    struct ds_engine g = engine_of(4);
    struct ds_sampling p = DS_SAMPLING_GREEDY;
    const float l[4] = { 2.0f, 1.5f, -1.0f, -1.1f }, below[4] = { -9, -9, -1.0f, -1.1f };
    p.repeat_penalty = 1.5f;
    ds_sampler *s = ds_sampler_new(&g, &p);
    REQUIRE(s);
    CHECK(ds_sampler_pick(s, l) == 0);
    ds_sampler_accept(s, 0);
    ds_sampler_accept(s, 0);                             /* once or twice is the same: 2 / 1.5 */
    ds_sampler_accept(s, 4);
    ds_sampler_accept(s, -1);
    CHECK(ds_sampler_pick(s, l) == 1);
    ds_sampler_accept(s, 2);
    CHECK(ds_sampler_pick(s, below) == 3);               /* a negative logit gets lower: -1.5 */
    ds_sampler_free(s);
    p = DS_SAMPLING_GREEDY;
    p.presence_penalty = 0.6f;
    s = ds_sampler_new(&g, &p);
    REQUIRE(s);
    ds_sampler_accept(s, 0);
    CHECK(ds_sampler_pick(s, l) == 1);
    ds_sampler_accept(s, 1);
    CHECK(ds_sampler_pick(s, l) == 0);
    ds_sampler_free(s);
}

static void sample_frequency_and_prompt(void)
{
    struct ds_engine g = engine_of(3);
    struct ds_sampling p = DS_SAMPLING_GREEDY;
    const float l[3] = { 2.0f, 1.5f, -1.0f };
    p.frequency_penalty = 0.3f;
    ds_sampler *s = ds_sampler_new(&g, &p);
    REQUIRE(s);
    for (int i = 0; i < 9; i++) ds_sampler_prompt(s, 0);
    CHECK(ds_sampler_pick(s, l) == 0);                   /* the prompt's tokens do not count here */
    ds_sampler_accept(s, 0);
    CHECK(ds_sampler_pick(s, l) == 0);                   /* 1.7 */
    ds_sampler_accept(s, 0);
    CHECK(ds_sampler_pick(s, l) == 1);                   /* 1.4 */
    ds_sampler_free(s);
    p = DS_SAMPLING_GREEDY;
    p.repeat_penalty = 1.5f;
    s = ds_sampler_new(&g, &p);
    REQUIRE(s);
    ds_sampler_prompt(s, 0);
    CHECK(ds_sampler_pick(s, l) == 1);                   /* but here they do */
    ds_sampler_free(s);
}

static void sample_bias(void)
{
    struct ds_engine g = engine_of(3);
    struct ds_sampling p = DS_SAMPLING_GREEDY;
    const float l[3] = { 2.0f, 1.5f, -1.0f };
    struct ds_bias b[] = { { 0, -INFINITY }, { 2, 2.0f }, { 7, 9 }, { -1, 9 } };
    p.bias = b;
    p.n_bias = 1;
    ds_sampler *s = ds_sampler_new(&g, &p);
    REQUIRE(s);
    CHECK(ds_sampler_pick(s, l) == 1);
    ds_sampler_free(s);
    p.n_bias = 4;
    p.temp = 1;
    p.repeat_penalty = 1;
    s = ds_sampler_new(&g, &p);
    REQUIRE(s);
    b[0].add = 0;                                        /* it was copied */
    for (int i = 0; i < 200; i++) CHECK(ds_sampler_pick(s, l) != 0);
    ds_sampler_free(s);
}

static void sample_padding_is_never_picked(void)
{
    static struct vocab v;
    struct ds_engine g = engine_of(0);
    float l[300];
    vocab_init(&v);
    for (int i = 0; i < 3; i++) vocab_token(&v, "[PAD]", 5);
    vocab_token(&v, "<x>", 3);
    vocab_token(&v, "<y>", 4);
    for (int i = 0; i < 15; i++) vocab_token(&v, "[PAD]", 5);
    struct ds_gguf *file = vocab_gguf(&v);
    REQUIRE(file && !ds_tokenizer_new(&g.tok, file, NULL));
    g.info.n_vocab = 280;                                /* four rows more than the vocabulary has tokens */
    for (int i = 0; i < 280; i++) l[i] = i < 256 ? 0 : 50;
    CHECK(pick_once(&g, DS_SAMPLING_GREEDY, l) == 259);
    l[7] = l[8] = 50;
    CHECK(pick_once(&g, DS_SAMPLING_GREEDY, l) == 7);    /* the first of equals on both sides of the gap */
    l[7] = l[8] = 0;
    struct ds_sampling p = { .temp = 1, .top_p = 1, .repeat_penalty = 1 };
    for (p.seed = 0; p.seed < 300; p.seed++) {
        p.top_k = p.seed % 2 ? 20 : 0;
        int32_t id = pick_once(&g, p, l);
        CHECK(id == 259 || id == 260);
    }
    ds_tokenizer_free(g.tok);
    ds_gguf_close(file);
}

/* 248,320 rows: a pick must stay far below the time of a decode step. The limit is generous for sanitizers. */
static void sample_large_vocabulary_is_fast(void)
{
    enum { N = 248320, R = 5 };
    float *l = malloc(N * sizeof *l);
    struct ds_engine g = engine_of(N);
    struct ds_rng r;
    ds_rng_seed(&r, 2);
    REQUIRE(l);
    for (int i = 0; i < N; i++) l[i] = 3 * ds_rng_normal(&r);
    for (int k = 0; k < 4; k++) {
        struct ds_sampling p = {
            .temp = k ? 1 : 0, .top_p = k == 2 ? 0.95f : 1, .top_k = k == 1 ? 20 : 0, .repeat_penalty = k == 3 ? 1.1f : 1
        };
        ds_sampler *s = ds_sampler_new(&g, &p);
        REQUIRE(s);
        clock_t start = clock();                         /* processor time: other work does not count */
        for (int i = 0; i < R; i++) ds_sampler_pick(s, l);
        double ms = 1e3 * (double)(clock() - start) / CLOCKS_PER_SEC / R;
        CHECK_MSG(ms < 100, "kind %d: %.2f ms", k, ms);
        ds_sampler_free(s);
    }
    free(l);
}

static const struct ds_test tests[] = {
    { "sample_greedy_first_maximum", sample_greedy_first_maximum },
    { "sample_nan_is_never_picked", sample_nan_is_never_picked },
    { "sample_shares_follow_weights", sample_shares_follow_weights },
    { "sample_truncations_keep_the_right_ids", sample_truncations_keep_the_right_ids },
    { "sample_large_vocabulary_equals_sort", sample_large_vocabulary_equals_sort },
    { "sample_seed_decides", sample_seed_decides },
    { "sample_penalties", sample_penalties },
    { "sample_frequency_and_prompt", sample_frequency_and_prompt },
    { "sample_bias", sample_bias },
    { "sample_padding_is_never_picked", sample_padding_is_never_picked },
    { "sample_large_vocabulary_is_fast", sample_large_vocabulary_is_fast },
};
DS_TEST_MAIN(tests)
