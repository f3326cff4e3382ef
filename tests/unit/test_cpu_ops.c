/* The CPU backend's ops that are not weight products: acceptance vectors, state that is carried from step to
 * step, the head maps, and independence of splits and of the number of threads. */
#include "../harness.h"
#include "backend/backend.h"
#include "base/cpu.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

/* --- a backend and buffers filled from arrays --- */

static const struct ds_sizes SIZES = { .ubatch = 256, .ctx = 2048, .hidden = 64, .n_expert = 8, .n_expert_used = 4,
                                       .gdn = { 2, 6, 32, 24, 4, 1e-6f }, .attn = { 6, 2, 32, 16, 1e7f, 1e-6f } };

static struct ds_backend *open_with(int threads, const char *kv, const char *gdn)
{
    struct ds_backend_options o = { .threads = threads, .kv = kv, .gdn = gdn };
    struct ds_err e = { 0 };
    struct ds_backend *be = NULL;
    if (!ds_cpu_mask(NULL, &o.isa, &e)) be = ds_backend_open("cpu", "full", &o, &e);
    if (!be || be->ops->reserve(be, &SIZES, &e)) {
        printf("  %s\n", e.msg);
        exit(1);
    }
    return be;
}

static struct ds_buf *buf(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim, const float *x)
{
    struct ds_buf *b = be->ops->buf_new(be, kind, rows, dim, NULL);
    if (!b) { puts("  no memory"); exit(1); }
    if (x) be->ops->buf_write(be, b, 0, x, rows * dim);
    return b;
}

static struct ds_weight *weight(struct ds_backend *be, struct ds_tensor *t, const float *x, size_t n)
{
    *t = (struct ds_tensor){
        .name = "w", .n_dims = 1, .ne = { n, 1, 1, 1 }, .type = &ds_types[DS_T_F32], .data = x, .bytes = n * sizeof *x
    };
    struct ds_weight *w = be->ops->weight_new(be, t, DS_USE_VECTOR, NULL);
    if (!w) { puts("  no memory"); exit(1); }
    return w;
}

static void begin(struct ds_backend *be, int n, int64_t pos, bool decode, const int32_t *ids)
{
    struct ds_step s = { .n = n, .pos = pos, .decode = decode, .ids = ids };
    be->ops->begin(be, &s);
}

static float *floats(size_t n)
{
    float *p = malloc(n * sizeof *p);
    if (!p) { puts("  no memory"); exit(1); }
    return p;
}

static float *random_floats(struct ds_rng *r, size_t n, float sd)
{
    float *p = floats(n);
    for (size_t i = 0; i < n; i++) p[i] = sd * ds_rng_normal(r);
    return p;
}

static bool near(double got, double want, double tol) { return fabs(got - want) <= tol; }

/* --- experts --- */

static void test_route(void)
{
    struct ds_backend *be = open_with(2, "f32", "seq");
    const float logits[] = {
        1, 2, 3, 0, /* ties: lower index first */ 5, 7, 7, 7, /* a NaN still routes to experts that exist */ 1, NAN, 3, 0
    };
    struct ds_buf *l = buf(be, DS_BUF_PROJ, 3, 4, logits), *route = buf(be, DS_BUF_ROUTE, 3, 2, NULL);
    struct ds_route_slot s[6];
    begin(be, 3, 0, false, NULL);
    be->ops->moe_route(be, route, l, 3, 4, 2);
    be->ops->buf_get(be, s, route, 0, 6);
    CHECK(s[0].expert == 2 && near(s[0].weight, 0.7310585786, 1e-6) && s[1].expert == 1 && near(s[1].weight, 0.2689414214, 1e-6));
    CHECK(s[2].expert == 1 && s[3].expert == 2 && near(s[2].weight, 0.5, 1e-6));
    for (int i = 4; i < 6; i++) CHECK(s[i].expert >= 0 && s[i].expert < 4);
    CHECK(s[4].expert != s[5].expert);

    const float x0[4] = { 1, 2, 3, 4 }, y[8] = { 1, 0, 0, 0, 0, 1, 0, 0 }, shared[4] = { 0, 0, 0, 8 }, gate[1] = { 0 };
    struct ds_buf *x = buf(be, DS_BUF_F32, 1, 4, x0), *yb = buf(be, DS_BUF_PROJ, 2, 4, y),
                  *sh = buf(be, DS_BUF_PROJ, 1, 4, shared);
    struct ds_buf *sg = buf(be, DS_BUF_PROJ, 1, 1, gate);
    float got[4];
    be->ops->moe_combine(be, x, yb, route, sh, sg, 1, 2, 4);
    be->ops->moe_combine(be, x, yb, route, NULL, NULL, 1, 2, 4);
    be->ops->buf_read(be, got, x, 0, 4);
    CHECK(near(got[0], 1 + 2 * 0.7310585786, 1e-6) && near(got[1], 2 + 2 * 0.2689414214, 1e-6) && got[2] == 3 &&
          near(got[3], 8, 1e-6));
    be->ops->buf_free(be, l), be->ops->buf_free(be, route), be->ops->buf_free(be, x), be->ops->buf_free(be, yb);
    be->ops->buf_free(be, sh), be->ops->buf_free(be, sg), be->ops->free(be);
}

/* --- embedding, copy --- */

static void test_embed(void)
{
    enum { DIM = 64, VOCAB = 9, N = 5 };
    struct ds_backend *be = open_with(2, "f32", "seq");
    struct ds_rng rng;
    ds_rng_seed(&rng, 1);
    float *table = random_floats(&rng, DIM * VOCAB, 1), row[DIM], got[N * DIM];
    const struct ds_type *types[] = { &ds_types[DS_T_F32], &ds_types[DS_T_Q8_0] };
    const int32_t ids[N] = { 8, 0, 3, 3, 7 };
    for (int i = 0; i < 2; i++) {
        size_t row_bytes = ds_type_row_bytes(types[i], DIM);
        unsigned char *data = malloc(row_bytes * VOCAB);
        REQUIRE(data);
        types[i]->encode(data, table, DIM * VOCAB);
        struct ds_tensor t = {
            .name = "t", .n_dims = 2, .ne = { DIM, VOCAB, 1, 1 }, .type = types[i], .data = data, .bytes = row_bytes * VOCAB
        };
        struct ds_weight *w = be->ops->weight_new(be, &t, DS_USE_EMBED, NULL);
        struct ds_buf *x = buf(be, DS_BUF_F32, N, DIM, NULL);
        begin(be, N, 0, false, ids);
        be->ops->embed(be, x, w);
        be->ops->buf_read(be, got, x, 0, N * DIM);
        for (int k = 0; k < N; k++) {
            types[i]->decode(row, data + row_bytes * (size_t)ids[k], DIM);
            CHECK(!memcmp(row, got + k * DIM, sizeof row));
        }
        be->ops->buf_free(be, x), be->ops->weight_free(be, w), free(data);
    }
    struct ds_buf *src = buf(be, DS_BUF_PROJ, 2, 3, table), *act = buf(be, DS_BUF_ACT, 2, 8, NULL);
    be->ops->copy_cols(be, act, src, 2, 3, 8);
    be->ops->buf_read(be, got, act, 0, 16);
    for (int k = 0; k < 16; k++) CHECK(got[k] == table[k / 8 * 3 + k % 8 % 3]);
    be->ops->buf_free(be, src), be->ops->buf_free(be, act), be->ops->free(be);
    free(table);
}

/* --- RoPE and cache --- */

static void test_rope(void)
{
    struct ds_backend *be = open_with(1, "f32", "seq");
    struct ds_attn_shape sh = { 1, 1, 256, 64, 1e7f, 1e-6f };
    static const struct { int pos; double cos0, sin0, cos1, sin1; } cases[] = {
        { 0, 1, 0, 1, 0 },
        { 1, 0.5403023059, 0.8414709848, 0.8229020806, 0.5681832150 },
        { 1000, 0.5623790763, 0.8268795405, 0.4441233465, 0.8959656539 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float q[512], k[256], v[256], got[512];
        for (int j = 0; j < 512; j++) q[j] = j < 2 ? 1 : j >= 32 && j < 34 ? 0 : 7;
        for (int j = 0; j < 256; j++) k[j] = j < 2 ? 0 : j >= 32 && j < 34 ? 1 : 5, v[j] = (float)j;
        struct ds_buf *qb = buf(be, DS_BUF_PROJ, 1, 512, q), *kb = buf(be, DS_BUF_PROJ, 1, 256, k),
                      *vb = buf(be, DS_BUF_PROJ, 1, 256, v);
        struct ds_buf *kc = buf(be, DS_BUF_KV, 1001, 256, NULL), *vc = buf(be, DS_BUF_KV, 1001, 256, NULL);
        begin(be, 1, cases[i].pos, false, NULL);
        be->ops->rope_store(be, qb, kb, vb, kc, vc, &sh, 1);
        be->ops->buf_read(be, got, qb, 0, 512);
        CHECK(near(got[0], cases[i].cos0, 1e-6) && near(got[32], cases[i].sin0, 1e-6));
        CHECK_MSG(near(got[1], cases[i].cos1, 1e-6) && near(got[33], cases[i].sin1, 1e-6), "pos %d: %.9g %.9g", cases[i].pos,
                  (double)got[1], (double)got[33]);
        for (int j = 64; j < 512; j++) CHECK(got[j] == 7);
        be->ops->buf_read(be, got, kc, (size_t)cases[i].pos * 256, 256);
        CHECK(near(got[0], -cases[i].sin0, 1e-6) && near(got[32], cases[i].cos0, 1e-6));
        for (int j = 64; j < 256; j++) CHECK(got[j] == 5);
        be->ops->buf_read(be, got, vc, (size_t)cases[i].pos * 256, 256);
        for (int j = 0; j < 256; j++) CHECK(got[j] == v[j]);
        if (cases[i].pos) {
            be->ops->buf_read(be, got, vc, (size_t)(cases[i].pos - 1) * 256, 256);
            for (int j = 0; j < 256; j++) CHECK(got[j] == 0);
        }
        be->ops->buf_free(be, qb), be->ops->buf_free(be, kb), be->ops->buf_free(be, vb), be->ops->buf_free(be, kc),
            be->ops->buf_free(be, vc);
    }
    be->ops->free(be);
}

static void test_qk_norm(void)
{
    struct ds_backend *be = open_with(1, "f32", "seq");
    struct ds_attn_shape sh = { 2, 1, 4, 2, 1e7f, 1e-6f };
    const float gain_q[4] = { 1, 1.5f, 0.5f, 2 }, gain_k[4] = { 1, 1, 1, 1 },
                want[4] = { 0.3651483473f, 1.0954450420f, 0.5477225210f, 2.9211867786f };
    float qg[16], k[4] = { 1, 2, 3, 4 };
    for (int i = 0; i < 16; i++) qg[i] = i % 8 < 4 ? (float)(i % 4 + 1) * (i < 8 ? 1 : 100) : -9;
    struct ds_tensor tq, tk;
    struct ds_weight *wq = weight(be, &tq, gain_q, 4), *wk = weight(be, &tk, gain_k, 4);
    struct ds_buf *qb = buf(be, DS_BUF_PROJ, 1, 16, qg), *kb = buf(be, DS_BUF_PROJ, 1, 4, k);
    begin(be, 1, 0, false, NULL);
    be->ops->qk_norm(be, qb, kb, wq, wk, &sh, 1);
    be->ops->buf_read(be, qg, qb, 0, 16);
    be->ops->buf_read(be, k, kb, 0, 4);
    for (int i = 0; i < 4; i++) {
        CHECK(near(qg[i], want[i], 1e-6) && near(qg[8 + i], want[i], 1e-6) && qg[4 + i] == -9 && qg[12 + i] == -9);
        CHECK(near(k[i], 0.3651483473 * (i + 1), 1e-6));
    }
    be->ops->buf_free(be, qb), be->ops->buf_free(be, kb), be->ops->weight_free(be, wq), be->ops->weight_free(be, wk),
        be->ops->free(be);
}

/* --- GDN: preparation and recurrence over steps --- */

enum { N = 200 };

struct gdn_data { struct ds_gdn_shape sh; size_t channels, nv; float *u, *a, *b, *w, *A, *dt, *z; };

static struct gdn_data gdn_data_new(int n_kh, int n_vh, uint64_t seed)
{
    struct gdn_data d = { .sh = { n_kh, n_vh, 32, 24, 4, 1e-6f } };
    struct ds_rng rng;
    ds_rng_seed(&rng, seed);
    d.channels = 2 * (size_t)n_kh * 32 + (size_t)n_vh * 24, d.nv = (size_t)n_vh;
    d.u = random_floats(&rng, N * d.channels, 1), d.a = random_floats(&rng, N * d.nv, 1), d.b = random_floats(&rng, N * d.nv, 1);
    d.w = random_floats(&rng, 4 * d.channels, 0.5f), d.A = random_floats(&rng, d.nv, 1), d.dt = random_floats(&rng, d.nv, 1);
    for (size_t i = 0; i < d.nv; i++) d.A[i] = -fabsf(d.A[i]);
    d.z = random_floats(&rng, N * d.nv * 24, 1);
    return d;
}

static void gdn_data_free(struct gdn_data *d) { free(d->u), free(d->a), free(d->b), free(d->w), free(d->A), free(d->dt), free(d->z); }

/* What comes out: o of the rule, or y of the layer by three ops or by one walk. */
enum gdn_how { RULE, LAYER, WALK };

/* The N tokens in steps of `step` (0: 1, 2, 3, ... tokens) from position 0: outputs, state and conv state into one array.
 * The recurrence of a step runs in calls of `call` tokens. */
static float *gdn_run(const struct gdn_data *d, int threads, const char *form, int step, int call, enum gdn_how how)
{
    struct ds_backend *be = open_with(threads, "f32", form);
    struct ds_tensor tw, ta, td;
    struct ds_weight *w = weight(be, &tw, d->w, 4 * d->channels), *A = weight(be, &ta, d->A, d->nv),
                     *dt = weight(be, &td, d->dt, d->nv);
    float *gain_of = floats(24);
    for (int i = 0; i < 24; i++) gain_of[i] = 1 + 0.01f * (float)i;
    struct ds_tensor tg;
    struct ds_weight *gain = weight(be, &tg, gain_of, 24);
    size_t no = d->nv * 24, ns = d->nv * 32 * 24, nc = 3 * d->channels;
    struct ds_buf *conv = buf(be, DS_BUF_STATE, 3, d->channels, NULL), *S = buf(be, DS_BUF_STATE, d->nv, 32 * 24, NULL);
    float *out = floats(N * no + ns + nc);
    for (int t = 0, m, turn = 1; t < N; t += m, turn++) {
        m = step ? step : turn;
        if (m > N - t) m = N - t;
        struct ds_buf *u = buf(be, DS_BUF_PROJ, (size_t)m, d->channels, d->u + (size_t)t * d->channels);
        struct ds_buf *a = buf(be, DS_BUF_PROJ, (size_t)m, d->nv, d->a + (size_t)t * d->nv),
                      *b = buf(be, DS_BUF_PROJ, (size_t)m, d->nv, d->b + (size_t)t * d->nv);
        struct ds_buf *prep = buf(be, DS_BUF_F32, 1, ds_gdn_prep_elems(&d->sh, m), NULL),
                      *o = buf(be, DS_BUF_F32, (size_t)m, no, NULL);
        struct ds_buf *z = buf(be, DS_BUF_PROJ, (size_t)m, no, d->z + (size_t)t * no), *y = buf(be, DS_BUF_ACT, (size_t)m, no, NULL);
        const struct ds_gdn_layer io = { y, S, conv, u, z, a, b, w, A, dt, gain };
        begin(be, m, t, false, NULL);
        if (how != WALK) be->ops->gdn_prep(be, prep, conv, u, a, b, w, A, dt, &d->sh, m);
        for (int c = 0; c < m; c += call) {
            int end = c + call < m ? c + call : m;
            if (how == WALK) be->ops->gdn_walk(be, &io, &d->sh, m, c, end);
            else be->ops->gdn(be, o, S, prep, &d->sh, m, c, end);
        }
        if (how == LAYER) be->ops->gated_norm(be, y, o, z, gain, &d->sh, m);
        be->ops->buf_read(be, out + (size_t)t * no, how == RULE ? o : y, 0, (size_t)m * no);
        be->ops->buf_free(be, z), be->ops->buf_free(be, y);
        be->ops->buf_free(be, u), be->ops->buf_free(be, a), be->ops->buf_free(be, b), be->ops->buf_free(be, prep),
            be->ops->buf_free(be, o);
    }
    be->ops->buf_read(be, out + N * no, S, 0, ns);
    be->ops->buf_read(be, out + N * no + ns, conv, 0, nc);
    CHECK(!memcmp(out + N * no + ns, d->u + (N - 3) * d->channels, nc * sizeof *out));
    be->ops->buf_free(be, conv), be->ops->buf_free(be, S), be->ops->weight_free(be, w), be->ops->weight_free(be, A),
        be->ops->weight_free(be, dt), be->ops->weight_free(be, gain);
    be->ops->free(be);
    free(gain_of);
    return out;
}

static size_t gdn_floats(const struct gdn_data *d) { return N * d->nv * 24 + d->nv * 32 * 24 + 3 * d->channels; }

/* Steps of 1, 2, 3 tokens are shorter than the conv kernel; the sequential form has the same bits for all, the
 * chunkwise one for steps of 64. */
static void test_gdn_steps(void)
{
    struct gdn_data d = gdn_data_new(2, 6, 1);
    size_t n = gdn_floats(&d) * sizeof(float);
    static const int steps[] = { 0, 1, 2, 3, 4, 5, 33, 64, 128, 199 };
    float *seq = gdn_run(&d, 1, "seq", N, N, RULE), *chunk = gdn_run(&d, 1, "chunk", N, N, RULE);
    double num = 0, den = 0;
    for (size_t i = 0; i < gdn_floats(&d); i++)
        num += (seq[i] - chunk[i]) * (double)(seq[i] - chunk[i]), den += (double)seq[i] * seq[i];
    CHECK_MSG(num <= 1e-12 * den, "the two forms differ by %.1e", sqrt(num / den));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        float *part = gdn_run(&d, 2, "seq", steps[i], 1 + steps[i] / 3, RULE);
        CHECK_MSG(!memcmp(part, seq, n), "seq, steps of %d", steps[i]);
        free(part);
        if (steps[i] == 0 || steps[i] % 64) continue;
        part = gdn_run(&d, 2, "chunk", steps[i], 64, RULE);
        CHECK_MSG(!memcmp(part, chunk, n), "chunk, steps of %d", steps[i]);
        free(part);
    }
    free(seq), free(chunk), gdn_data_free(&d);
}

static void test_gdn_threads(void)
{
    struct gdn_data d = gdn_data_new(2, 6, 2);
    for (int form = 0; form < 2; form++) {
        float *one = gdn_run(&d, 1, form ? "chunk" : "seq", 77, N, RULE);
        for (int threads = 2; threads <= 13; threads += 4) {
            float *many = gdn_run(&d, threads, form ? "chunk" : "seq", 77, N, RULE);
            CHECK_MSG(!memcmp(one, many, gdn_floats(&d) * sizeof(float)), "%s, %d threads", form ? "chunk" : "seq", threads);
            free(many);
        }
        free(one);
    }
    gdn_data_free(&d);
}

/* One walk has the bits of the three ops, however a step is cut: conv reaches back across steps and calls of 1, 2 and 3 tokens, a
 * call may begin anywhere in a chunk, and key heads may have one value head or more. */
static void test_gdn_walk(void)
{
    static const int steps[] = { 0, 1, 2, 3, 4, 33, 64, 65, 130, N }, calls[] = { 1, 2, 3, 5, 16, 63, 64, 65, N };
    for (int n_kh = 2; n_kh <= 6; n_kh += 4) {
        struct gdn_data d = gdn_data_new(n_kh, 6, 4);
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            for (size_t j = 0; j < sizeof calls / sizeof *calls; j++) {
                const char *form = (i + j) % 2 ? "chunk" : "seq";
                float *three = gdn_run(&d, 2, form, steps[i], calls[j], LAYER), *walk = gdn_run(&d, 2, form, steps[i], calls[j], WALK);
                CHECK_MSG(!memcmp(three, walk, gdn_floats(&d) * sizeof(float)), "%s, %d key heads, steps of %d in calls of %d", form, n_kh,
                          steps[i], calls[j]);
                free(three), free(walk);
            }
        }
        gdn_data_free(&d);
    }
}

/* Stored value head p uses key head p mod n_kh: the same as six key heads that repeat the two. */
static void test_gdn_heads(void)
{
    struct gdn_data d = gdn_data_new(2, 6, 3), e = gdn_data_new(6, 6, 3);
    for (size_t t = 0; t < N + 4; t++) {                        /* rows of u, then the taps [channel][4] as "rows" of w */
        for (size_t part = 0; part < 2; part++) {
            for (size_t h = 0; h < 6; h++) {
                if (t < N)
                    memcpy(e.u + t * e.channels + (part * 6 + h) * 32, d.u + t * d.channels + (part * 2 + h % 2) * 32,
                           32 * sizeof(float));
                else if (t == N) memcpy(e.w + (part * 6 + h) * 128, d.w + (part * 2 + h % 2) * 128, 128 * sizeof(float));
            }
        }
        if (t < N) memcpy(e.u + t * e.channels + 12 * 32, d.u + t * d.channels + 4 * 32, 6 * 24 * sizeof(float));
    }
    memcpy(e.w + 12 * 128, d.w + 4 * 128, 6 * 24 * 4 * sizeof(float));
    memcpy(e.a, d.a, N * 6 * sizeof(float)), memcpy(e.b, d.b, N * 6 * sizeof(float));
    memcpy(e.A, d.A, 6 * sizeof(float)), memcpy(e.dt, d.dt, 6 * sizeof(float));
    for (int form = 0; form < 2; form++) {
        float *x = gdn_run(&d, 2, form ? "chunk" : "seq", N, N, RULE), *y = gdn_run(&e, 2, form ? "chunk" : "seq", N, N, RULE);
        CHECK_MSG(!memcmp(x, y, (N * 6 * 24 + 6 * 32 * 24) * sizeof(float)), "%s", form ? "chunk" : "seq");
        free(x), free(y);
    }
    gdn_data_free(&d), gdn_data_free(&e);
}

/* --- attention: decode against prefill, threads --- */

static void attn_last(float *y, int threads, const char *kv, int64_t pos, bool decode)
{
    struct ds_backend *be = open_with(threads, kv, "seq");
    const struct ds_attn_shape *sh = &SIZES.attn;
    size_t q = (size_t)(2 * sh->n_head * sh->hd), row = (size_t)(sh->n_kv * sh->hd);
    struct ds_rng rng;
    ds_rng_seed(&rng, 7);
    float *k = random_floats(&rng, 2048 * row, 2), *v = random_floats(&rng, 2048 * row, 1), *x = random_floats(&rng, q, 2);
    struct ds_buf *kc = buf(be, DS_BUF_KV, 2048, row, k), *vc = buf(be, DS_BUF_KV, 2048, row, v),
                  *qb = buf(be, DS_BUF_PROJ, 1, q, x);
    struct ds_buf *yb = buf(be, DS_BUF_ACT, 1, q / 2, NULL);
    begin(be, 1, pos, decode, NULL);
    be->ops->attn(be, yb, qb, kc, vc, sh, 1);
    be->ops->buf_read(be, y, yb, 0, q / 2);
    be->ops->buf_free(be, kc), be->ops->buf_free(be, vc), be->ops->buf_free(be, qb), be->ops->buf_free(be, yb), be->ops->free(be);
    free(k), free(v), free(x);
}

static void test_attn_decode(void)
{
    enum { Y = 6 * 32 };
    static const int64_t at[] = { 0, 1, 63, 64, 255, 256, 700, 2047 };
    float prefill[Y], one[Y], many[Y];
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        for (int f16 = 0; f16 < 2; f16++) {
            double num = 0, den = 0;
            attn_last(prefill, 1, f16 ? "f16" : "f32", at[i], false);
            attn_last(one, 1, f16 ? "f16" : "f32", at[i], true);
            attn_last(many, 3, f16 ? "f16" : "f32", at[i], true);
            for (int j = 0; j < Y; j++) num += pow((double)prefill[j] - one[j], 2), den += (double)prefill[j] * prefill[j];
            CHECK_MSG(num <= 1e-11 * den, "position %d: decode differs by %.1e", (int)at[i], sqrt(num / den));
            CHECK_MSG(!memcmp(one, many, sizeof one), "position %d: threads change the result", (int)at[i]);
        }
    }
}

static const struct ds_test tests[] = {
    { "ops.route", test_route },         { "ops.embed", test_embed },           { "ops.rope", test_rope },
    { "ops.qk_norm", test_qk_norm },     { "ops.gdn_steps", test_gdn_steps },   { "ops.gdn_threads", test_gdn_threads },
    { "ops.gdn_walk", test_gdn_walk },   { "ops.gdn_heads", test_gdn_heads }, { "ops.attn_decode", test_attn_decode },
};
DS_TEST_MAIN(tests)
