/* The Metal backend against the oracle files, prompts of at most 129 tokens, both placements: logits of the last position, argmax
 * from position 16 on, 32 greedy tokens for prompts of 64 and more, and every cache that the file holds, relative to its norm.
 * What was reached is printed. Limits: half operands in products, f32 everywhere else. */
#include "../model/model_fixture.h"

#include "gguf/gguf.h"

enum { LONGEST = 129, GREEDY = 32 };

struct limits { double cosine, argmax, cache; };
struct reached { double cosine, argmax, cache; int greedy; };

static const float *tensor(const struct ds_gguf *o, const char *what, int layer, int n, size_t *elems)
{
    char name[64];
    if (layer < 0) snprintf(name, sizeof name, "%s.%d", what, n);
    else snprintf(name, sizeof name, "%s_L%d.%d", what, layer, n);
    const struct ds_tensor *t = ds_gguf_find(o, name);
    if (t && elems) *elems = (size_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
    return t ? t->data : NULL;
}

static void worse(double *worst, double d)
{
    if (!(d <= *worst)) *worst = d;
}

static double caches(const struct rig *r, const struct ds_gguf *o, int n)
{
    double worst = 0;
    for (int i = 0; i < ds_engine_info(r->g)->n_layer; i++) {
        const bool attn = ds_engine_layer_is_attn(r->g, i);
        size_t na, nb, total;
        const float *a = tensor(o, attn ? "keys" : "conv", i, n, &na), *b = tensor(o, attn ? "values" : "recurrent", i, n, &nb);
        if (!a || !b) continue;
        float *got = layer_state(r, i, &total);
        worse(&worst, total == na + nb ? rel_norm(got, a, na) : INFINITY);
        worse(&worst, total == na + nb ? rel_norm(got + na, b, nb) : INFINITY);
        free(got);
    }
    return worst;
}

static int argmax(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static void prompt(struct rig *r, const struct ds_gguf *o, int n, struct reached *got)
{
    const int vocab = ds_engine_info(r->g)->n_vocab, first = n > 16 ? 16 : 0;
    const int32_t *ids = (const int32_t *)(const void *)tensor(o, "ids", -1, n, NULL);
    const int32_t *best = (const int32_t *)(const void *)tensor(o, "argmax", -1, n, NULL);
    const int32_t *greedy = (const int32_t *)(const void *)tensor(o, "greedy", -1, n, NULL);
    struct ds_err e = { 0 };
    int agree = 0;
    int32_t out[GREEDY];
    ds_session_reset(r->s);
    const bool ok = ids && best && greedy && !ds_session_prefill(r->s, ids, n, DS_ROWS_ALL, NULL, NULL, &e);
    CHECK_MSG(ok, "%d tokens: %s", n, e.msg);
    if (!ok) return;
    for (int i = first; i < n; i++) agree += argmax(ds_session_logits_row(r->s, i), vocab) == best[i];
    got->argmax = (double)agree / (n - first);
    got->cosine = rig_cosine(ds_session_logits(r->s), tensor(o, "logits", -1, n, NULL), (size_t)vocab);
    got->cache = caches(r, o, n);
    got->greedy = 0;
    if (!rig_greedy(r, out, GREEDY)) return;
    while (got->greedy < GREEDY && out[got->greedy] == greedy[got->greedy]) got->greedy++;
}

static void against(const char *model, const char *oracle, const char *placement, const struct limits *l)
{
    static const int lengths[] = { 1, 2, 3, 5, 64, 65, 128, LONGEST };
    const struct ds_options options = { .model = model, .backend = "metal", .placement = placement, .kv = "f32", .ctx = 256 };
    struct ds_gguf *o;
    struct ds_err e = { 0 };
    struct rig r;
    int cases = 0;
    if (ds_gguf_open(&o, oracle, &e)) {
        CHECK_MSG(false, "%s", e.msg);
        return;
    }
    if (rig_open(&r, &options))
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            const int n = lengths[i];
            struct reached got = { 0 };
            if (!tensor(o, "ids", -1, n, NULL)) continue;
            cases++;
            prompt(&r, o, n, &got);
            fflush(stdout);
            printf("  %s, %s, %d tokens: cosine %.9f, argmax %.4f, greedy %d, caches %.2e\n", model, placement, n, got.cosine, got.argmax,
                   got.greedy, got.cache);
            CHECK(got.cosine >= l->cosine && got.cache <= l->cache);
            CHECK(n < 64 || (got.greedy == GREEDY && got.argmax >= l->argmax));
        }
    CHECK(cases >= 5);
    rig_close(&r);
    ds_gguf_close(o);
}

/* Unquantised weights: nothing is rounded but sums. */
static const struct limits exact = { .cosine = 0.999999, .argmax = 1, .cache = 1e-4 };
/* 8-bit weights against vectors of the unquantised model: their own rounding shows. */
static const struct limits q8_0 = { .cosine = 0.9995, .argmax = 0.99, .cache = 3e-2 };

#define MINI(name, placement) against(FIXTURES name ".gguf", FIXTURES name ".oracle.gguf", placement, &exact)
#define TALES(placement) against("models/tales-q8_0.gguf", FIXTURES "tales.oracle.gguf", placement, &q8_0)
static void mini_dense_full(void) { MINI("mini-dense", "full"); }
static void mini_dense_gemm(void) { MINI("mini-dense", "gemm"); }
static void mini_equalheads_full(void) { MINI("mini-equalheads-tied", "full"); }
static void mini_equalheads_gemm(void) { MINI("mini-equalheads-tied", "gemm"); }
static void mini_moe_full(void) { MINI("mini-moe", "full"); }
static void mini_moe_gemm(void) { MINI("mini-moe", "gemm"); }
static void tales_full(void) { TALES("full"); }
static void tales_gemm(void) { TALES("gemm"); }

static const struct ds_test tests[] = {
    { "metal_mini_dense_full", mini_dense_full }, { "metal_mini_dense_gemm", mini_dense_gemm },
    { "metal_mini_equalheads_full", mini_equalheads_full }, { "metal_mini_equalheads_gemm", mini_equalheads_gemm },
    { "metal_mini_moe_full", mini_moe_full }, { "metal_mini_moe_gemm", mini_moe_gemm },
    { "metal_tales_full", tales_full }, { "metal_tales_gemm", tales_gemm },
};
DS_TEST_MAIN(tests)
