/* Experts on the executor: choice, order, products of chosen experts, sum. And the probes. */
#include "shader.h"

static struct ds_rng rng;

/* --- routing --- */

static void test_moe_route(void)
{
    const int shape[][3] = { { 5, 256, 8 }, { 1, 4, 2 }, { 4, 3, 3 }, { 9, 33, 1 } };
    for (int i = 0; i < 4; i++) {
        const int n = shape[i][0], ne = shape[i][1], k = shape[i][2];
        float *logits = normals(&rng, (size_t)(n * ne), 2);
        struct ds_metal_slot *route = poisoned_bytes((size_t)(n * k) * sizeof *route);
        for (int e = 0; e < ne; e++) logits[e] = (float)(e % 3);               /* token 0: ties, the lower index first */
        const struct ds_metal_route a = { .n = n, .n_expert = ne, .k = k };
        struct call c = call_of("moe_route", &a, sizeof a);
        bind(&c, 1, logits, (size_t)(n * ne) * 4), bind(&c, 2, route, (size_t)(n * k) * sizeof *route);
        run(&c, up(n, 4), 1, 1, 128);
        for (int t = 0; t < n; t++) {
            char taken[512] = { 0 };
            double w[16], sum = 0;
            int chosen[16];
            for (int j = 0; j < k; j++) {
                int best = -1;
                for (int e = 0; e < ne; e++)
                    if (!taken[e] && (best < 0 || logits[t * ne + e] > logits[t * ne + best])) best = e;
                taken[best] = 1, chosen[j] = best, w[j] = exp(logits[t * ne + best] - (double)logits[t * ne + chosen[0]]), sum += w[j];
            }
            for (int j = 0; j < k; j++)
                CHECK_MSG(route[t * k + j].expert == chosen[j] && fabs(route[t * k + j].weight - w[j] / sum) < 1e-6,
                          "token %d choice %d: expert %d weight %g, expected %d %g", t, j, route[t * k + j].expert, (double)route[t * k + j].weight,
                          chosen[j], w[j] / sum);
        }
        free(logits), free(route);
    }
}

struct sorted { struct ds_metal_slot *route; uint32_t *order; struct ds_metal_tile *tiles; int slots, n_tiles; };
static struct sorted sort(int n, int k, int ne, bool one_expert)
{
    struct sorted s = { .slots = n * k, .n_tiles = n * k / 32 + ne };
    s.route = poisoned_bytes((size_t)s.slots * sizeof *s.route), s.order = poisoned_bytes((size_t)s.slots * 4);
    s.tiles = poisoned_bytes((size_t)s.n_tiles * sizeof *s.tiles);
    for (int i = 0; i < s.slots; i++) s.route[i] = (struct ds_metal_slot){ one_expert ? ne - 1 : (int)(ds_rng_u64(&rng) % (uint64_t)ne), 0.5f };
    const struct ds_metal_route a = { .n = n, .n_expert = ne, .k = k, .n_tiles = s.n_tiles };
    struct call c = call_of("moe_sort", &a, sizeof a);
    bind(&c, 1, s.route, (size_t)s.slots * sizeof *s.route), bind(&c, 2, s.order, (size_t)s.slots * 4);
    bind(&c, 3, s.tiles, (size_t)s.n_tiles * sizeof *s.tiles);
    run(&c, 1, 1, 1, 256);
    return s;
}
static void free_sorted(struct sorted *s) { free(s->route), free(s->order), free(s->tiles); }

static void test_moe_sort(void)
{
    const int shape[][4] = { { 1, 1, 1, 0 }, { 50, 8, 256, 0 }, { 33, 2, 3, 0 }, { 65, 1, 300, 1 }, { 40, 4, 600, 0 } };
    for (int i = 0; i < 5; i++) {
        struct sorted s = sort(shape[i][0], shape[i][1], shape[i][2], shape[i][3]);
        int next = 0, bad = 0, expert = -1;
        for (int j = 0; j < s.n_tiles; j++) {
            const struct ds_metal_tile *t = s.tiles + j;
            if (t->count == 0) continue;
            bad += t->first != next || t->count > 32 || t->expert < expert;
            for (int x = 0; x < t->count && next + x < s.slots; x++) {
                bad += s.route[s.order[next + x]].expert != t->expert;
                bad += x > 0 && s.order[next + x] <= s.order[next + x - 1];
            }
            expert = t->expert, next += t->count;
        }
        CHECK_MSG(bad == 0 && next == s.slots, "case %d: %d wrong, %d of %d slots", i, bad, next, s.slots);
        free_sorted(&s);
    }
}

/* --- products --- */

static void experts_case(enum ds_type_id id, const char *type, int n, int k, int ne, int in, int out, bool per_slot)
{
    const struct ds_type *ty = &ds_types[id];
    const size_t nw = (size_t)ne * (size_t)in * (size_t)out, wb = ds_type_row_bytes(ty, nw);
    struct sorted s = sort(n, k, ne, false);
    const int nx = per_slot ? s.slots : n, per_x = per_slot ? 1 : k;
    const bool halved = ty->act != DS_ACT_NONE;
    unsigned char *w = poisoned_bytes(wb);
    float *f = poisoned(nw), *x = normals(&rng, (size_t)(nx * in), 1), *scale = poisoned((size_t)nx), *y = poisoned((size_t)(s.slots * out));
    uint16_t *xh = poisoned_bytes((size_t)(nx * in) * 2);
    double *want = malloc(sizeof *want * (size_t)(s.slots * out));
    char name[40];
    ty->random(w, nw, 0.05f, 3), ty->decode(f, w, nw);
    for (int i = 0; i < s.slots; i++) {
        for (int r = 0; r < out; r++) {
            const float *row = f + ((size_t)s.route[i].expert * (size_t)out + (size_t)r) * (size_t)in;
            double sum = 0;
            for (int j = 0; j < in; j++) sum += (double)row[j] * x[i / per_x * in + j];
            want[i * out + r] = sum;
        }
    }
    const struct ds_metal_rows ra = { .n = nx, .dim = in };
    struct call c = call_of("act_half", &ra, sizeof ra);
    bind(&c, 1, x, (size_t)(nx * in) * 4), bind(&c, 2, xh, (size_t)(nx * in) * 2), bind(&c, 3, scale, (size_t)nx * 4);
    run(&c, nx, 1, 1, 256);
    /* In two pieces, as for a tensor that exceeds a buffer: each writes its own experts' slots. */
    for (int piece = 0; piece < 2; piece++) {
        const int e0 = piece ? ne / 2 : 0, n_e = piece ? ne - ne / 2 : ne / 2;
        if (n_e == 0) continue;
        const struct ds_metal_experts a = { .slots = s.slots, .in = in, .out = out, .per_x = per_x, .e0 = e0, .n_e = n_e, .n_tiles = s.n_tiles };
        snprintf(name, sizeof name, "gemm_experts_%s", type);
        c = call_of(name, &a, sizeof a);
        int b = 1;
        bind(&c, b++, w + wb / (size_t)ne * (size_t)e0, wb / (size_t)ne * (size_t)n_e);
        if (halved) bind(&c, b++, xh, (size_t)(nx * in) * 2), bind(&c, b++, scale, (size_t)nx * 4);
        else bind(&c, b++, x, (size_t)(nx * in) * 4);
        bind(&c, b++, s.order, (size_t)s.slots * 4), bind(&c, b++, s.tiles, (size_t)s.n_tiles * sizeof *s.tiles);
        bind(&c, b++, y, (size_t)(s.slots * out) * 4);
        run(&c, s.n_tiles, up(out, 64), 1, 128);
    }
    double e = nmse(y, want, (size_t)(s.slots * out));
    const double limit = halved ? 4e-7 : 1e-12;                               /* as gemm */
    CHECK_MSG(e <= limit, "%s n %d k %d of %d, in %d out %d per slot %d: nmse %.2e (limit %.0e)", name, n, k, ne, in, out, per_slot, e, limit);
    for (int i = 0; i < s.slots * out; i++) y[i] = NAN;
    const struct ds_metal_experts a = { .slots = s.slots, .in = in, .out = out, .per_x = per_x, .e0 = 0, .n_e = ne };
    snprintf(name, sizeof name, "gemv_experts_%s", type);
    c = call_of(name, &a, sizeof a);
    bind(&c, 1, w, wb), bind(&c, 2, x, (size_t)(nx * in) * 4), bind(&c, 3, s.route, (size_t)s.slots * sizeof *s.route);
    bind(&c, 4, y, (size_t)(s.slots * out) * 4);
    run(&c, up(out, 8), s.slots, 1, 128);
    e = nmse(y, want, (size_t)(s.slots * out));
    CHECK_MSG(e <= 1e-12, "%s: nmse %.2e (limit 1e-12, as gemv)", name, e);
    free(w), free(f), free(x), free(scale), free(y), free(xh), free(want), free_sorted(&s);
}
static void test_moe_experts(void)
{
    static const struct { enum ds_type_id id; const char *name; } types[] = {
        { DS_T_Q8_0, "q8_0" }, { DS_T_Q4_0, "q4_0" }, { DS_T_Q4_K, "q4_k" }, { DS_T_Q5_K, "q5_k" }, { DS_T_Q6_K, "q6_k" },
        { DS_T_F16, "f16" }, { DS_T_BF16, "bf16" }, { DS_T_F32, "f32" },
    };
    for (int i = 0; i < 8; i++) experts_case(types[i].id, types[i].name, 20, 2, 3, ds_types[types[i].id].block == 1 ? 45 : 256, 70, i & 1);
}

static void test_moe_combine(void)
{
    const int n = 3, k = 2, dim = 300;
    for (int form = 0; form < 3; form++) {
        float *x = normals(&rng, 900, 1), *y = normals(&rng, 1800, 1), *shared = normals(&rng, 900, 1), *sg = normals(&rng, 3, 2);
        struct ds_metal_slot route[6];
        double want[900];
        for (int i = 0; i < 6; i++) route[i] = (struct ds_metal_slot){ 0, ds_rng_uniform(&rng) };
        for (int i = 0; i < n * dim; i++) {
            const int t = i / dim;
            want[i] = x[i] + (form ? (form == 2 ? 1 / (1 + exp(-(double)sg[t])) : 1) * shared[i] : 0);
            for (int j = 0; j < k; j++) want[i] += (double)route[t * k + j].weight * y[(t * k + j) * dim + i % dim];
        }
        const struct ds_metal_combine a = { .n = n, .k = k, .dim = dim, .has_shared = form > 0, .has_sg = form > 1 };
        struct call c = call_of("moe_combine", &a, sizeof a);
        bind(&c, 1, x, 3600), bind(&c, 2, y, 7200), bind(&c, 3, route, sizeof route);
        bind(&c, 4, shared, form ? 3600 : 4), bind(&c, 5, sg, form > 1 ? 12 : 4);
        run(&c, up(dim, 256), n, 1, 256);
        double e = nmse(x, want, 900);
        CHECK_MSG(e <= 1e-13, "form %d: nmse %.2e", form, e);
        free(x), free(y), free(shared), free(sg);
    }
}

/* --- embedding and probes --- */

static void test_embed(void)
{
    const int n = 6, dim = 512, vocab = 10;
    const int32_t ids[6] = { 9, 0, 3, 3, 100, -1 };
    static const enum ds_type_id types[] = { DS_T_Q8_0, DS_T_Q4_0, DS_T_Q4_K, DS_T_Q5_K, DS_T_Q6_K, DS_T_F16, DS_T_BF16, DS_T_F32 };
    for (int i = 0; i < 8; i++) {
        const struct ds_type *ty = &ds_types[types[i]];
        const size_t wb = ds_type_row_bytes(ty, (size_t)(dim * vocab));
        unsigned char *w = poisoned_bytes(wb);
        float *f = poisoned((size_t)(dim * vocab)), *x = poisoned((size_t)(n * dim));
        char name[24];
        ty->random(w, (size_t)(dim * vocab), 0.05f, 3), ty->decode(f, w, (size_t)(dim * vocab));
        snprintf(name, sizeof name, "embed_%s", ty->name);
        for (int piece = 0; piece < 2; piece++) {                              /* the table in two buffers */
            const int row0 = 4 * piece, rows = piece ? 6 : 4;
            const struct ds_metal_embed a = { .n = n, .dim = dim, .row0 = row0, .n_rows = rows };
            struct call c = call_of(name, &a, sizeof a);
            bind(&c, 1, w + wb / 10 * (size_t)row0, wb / 10 * (size_t)rows), bind(&c, 2, ids, sizeof ids), bind(&c, 3, x, (size_t)(n * dim) * 4);
            run(&c, n, 1, 1, 128);
        }
        int bad = 0;
        for (int j = 0; j < n * dim; j++)
            bad += ids[j / dim] >= 0 && ids[j / dim] < vocab ? fabsf(x[j] - f[ids[j / dim] * dim + j % dim]) > 1e-6f : !isnan(x[j]);
        CHECK_MSG(bad == 0, "%s: %d wrong", name, bad);
        free(w), free(f), free(x);
    }
}

static void test_sentinel(void)
{
    uint32_t out[128];
    float product[64], sums[2];
    const struct ds_metal_sentinel a = { .seed = 77 };
    struct call c = call_of("sentinel", &a, sizeof a);
    bind(&c, 1, out, sizeof out), bind(&c, 2, product, sizeof product), bind(&c, 3, sums, sizeof sums);
    run(&c, 1, 1, 1, 128);
    int bad = 0;
    for (uint32_t i = 0; i < 128; i++) bad += out[i] != (i + 77) * 2654435761u;
    for (int r = 0; r < 8; r++) {
        for (int col = 0; col < 8; col++) {
            int s = 0;
            for (int j = 0; j < 8; j++) s += (r - j) * (j + 2 * col);
            bad += product[8 * r + col] != (float)s;
        }
    }
    CHECK_MSG(bad == 0 && sums[0] == 496 && sums[1] == 8128, "%d wrong, sums %g %g", bad, (double)sums[0], (double)sums[1]);
}

static void test_probes(void)
{
    float out[512], mm[8 * 64], *src = normals(&rng, 2 * 256 * 3, 1), read[2];
    const struct ds_metal_probe a = { .count = 3 };
    struct call c = call_of("probe_fma", &a, sizeof a);
    bind(&c, 1, out, sizeof out);
    run(&c, 2, 1, 1, 256);
    CHECK(isfinite(out[0]) && isfinite(out[511]));
    c = call_of("probe_mm", &a, sizeof a);
    bind(&c, 1, mm, sizeof mm);
    run(&c, 2, 1, 1, 128);
    for (int i = 0; i < 8 * 64; i++) CHECK(mm[i] == 3 * 16);                   /* 48 products of 0.25 * 0.5 * 8 */
    c = call_of("probe_read", &a, sizeof a);
    bind(&c, 1, src, 2 * 256 * 3 * 4), bind(&c, 2, read, sizeof read);
    run(&c, 2, 1, 1, 256);
    double want = 0;
    for (int i = 0; i < 768; i++) want += src[768 + i];
    CHECK(fabs(read[1] - want) < 1e-4);
    free(src);
}

static const struct ds_test tests[] = {
    { "metal_moe_route", test_moe_route }, { "metal_moe_sort", test_moe_sort }, { "metal_moe_experts", test_moe_experts },
    { "metal_moe_combine", test_moe_combine }, { "metal_embed", test_embed }, { "metal_sentinel", test_sentinel }, { "metal_probes", test_probes },
};
int main(int argc, char **argv)
{
    ds_rng_seed(&rng, 9);
    return ds_test_main(tests, (int)(sizeof tests / sizeof *tests), argc, argv);
}
