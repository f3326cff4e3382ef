/* Every CPU op that is not a weight product, alone, through the backend and all its threads: GDN in both
 * forms, its preparation and gated norm, attention at depth, norms and activations.
 *
 * Each op is checked in the same call: a few tokens of the same inputs through the plain C kernels. On a machine that
 * others use, the f32 peak moves from second to second, so it is probed before and after each repetition,
 * and the share is the median of ratios of neighbours. GDN counts the usual 7 operations per element of
 * state and token; the chunkwise form does fewer, so its share may pass 100 %. One thread is timed by its processor
 * time, which waiting for a busy processor does not lengthen; several by the clock on the wall.
 *
 *     make bench-mix && build/release/bench/kernels_mix --like 27b --tokens 512 --depth 4096 */
#include "backend/cpu/cpu.h"
#include "base/buf.h"
#include "base/cpu.h"
#include "base/os.h"
#include "base/rng.h"
#include "common/member.h"
#include "common/options.h"
#include "common/record.h"
#include "common/stats.h"
#include "kernels/peaks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct options {
    const char *like, *isa, *only;
    int threads, reps, tokens, depth;
    bool json;
};

struct shape { const char *name; struct ds_gdn_shape gdn; struct ds_attn_shape attn; int hidden, ffn; };
static const struct shape shapes[] = {
    { "0.8b", { 16, 16, 128, 128, 4, 1e-6f }, { 8, 2, 256, 64, 1e7f, 1e-6f }, 1024, 3584 },
    { "4b", { 16, 32, 128, 128, 4, 1e-6f }, { 16, 4, 256, 64, 1e7f, 1e-6f }, 2560, 9216 },
    { "27b", { 16, 48, 128, 128, 4, 1e-6f }, { 24, 4, 256, 64, 1e7f, 1e-6f }, 5120, 17408 },
    { "heads64", { 8, 16, 64, 64, 4, 1e-6f }, { 8, 2, 64, 32, 1e7f, 1e-6f }, 512, 1536 },
    { "heads32", { 8, 16, 32, 32, 4, 1e-6f }, { 8, 2, 32, 16, 1e7f, 1e-6f }, 256, 768 },
    { "heads16", { 8, 16, 16, 16, 4, 1e-6f }, { 8, 2, 32, 16, 1e7f, 1e-6f }, 128, 384 },
    { "tales", { 2, 6, 128, 128, 4, 1e-6f }, { 2, 1, 256, 64, 1e7f, 1e-6f }, 256, 768 },
};

/* --- two backends with the same inputs: the one to time and the reference --- */

enum { U, A, B, CONV, PREP, O, S, Z, Y, QG, K, V, KC, VC, ATT, GATE, UP, ACT, X, H, N_BUFS };
enum { CONV_W, SSM_A, SSM_DT, GAIN_DV, GAIN_HD, GAIN_HIDDEN, N_WEIGHTS };

struct rig {
    struct ds_backend *be;
    struct ds_buf *b[N_BUFS];
    struct ds_tensor t[N_WEIGHTS];
    struct ds_weight *w[N_WEIGHTS];
    const struct shape *sh;
    int n, depth;
};

static void rig_free(struct rig *r)
{
    if (!r->be) return;
    for (int i = 0; i < N_BUFS; i++) r->be->ops->buf_free(r->be, r->b[i]);
    for (int i = 0; i < N_WEIGHTS; i++) {
        r->be->ops->weight_free(r->be, r->w[i]);
        free((void *)r->t[i].data);
    }
    r->be->ops->free(r->be);
}

static bool add_weight(struct rig *r, int i, struct ds_rng *rng, size_t n, float mean, float sd, struct ds_err *e)
{
    float *p = malloc(n * sizeof *p);
    if (!p) return false;
    for (size_t j = 0; j < n; j++) p[j] = mean + sd * ds_rng_normal(rng);
    r->t[i] = (struct ds_tensor){
        .name = "w", .n_dims = 1, .ne = { n, 1, 1, 1 }, .type = &ds_types[DS_T_F32], .data = p, .bytes = n * sizeof *p
    };
    return (r->w[i] = r->be->ops->weight_new(r->be, &r->t[i], DS_USE_VECTOR, e)) != NULL;
}

static bool add_buf(struct rig *r, int i, struct ds_rng *rng, enum ds_buf_kind kind, size_t rows, size_t dim, float sd,
                    struct ds_err *e)
{
    float row[32768];
    if (dim > sizeof row / sizeof *row || !(r->b[i] = r->be->ops->buf_new(r->be, kind, rows, dim, e))) return false;
    for (size_t t = 0; sd > 0 && t < rows; t++) {
        for (size_t j = 0; j < dim; j++) row[j] = sd * ds_rng_normal(rng);
        r->be->ops->buf_write(r->be, r->b[i], t * dim, row, dim);
    }
    return true;
}

static ds_status rig_new(struct rig *r, const struct shape *sh, unsigned isa, int threads, int n, int depth, struct ds_err *e)
{
    struct ds_backend_options bo = { .threads = threads, .isa = isa, .kv = "f16", .gdn = "seq" };
    *r = (struct rig){ .be = ds_backend_open("cpu", "full", &bo, e), .sh = sh, .n = n, .depth = depth };
    if (!r->be) return DS_ENOMEM;
    const struct ds_gdn_shape *g = &sh->gdn;
    const struct ds_attn_shape *a = &sh->attn;
    size_t nn = (size_t)n, nk = (size_t)g->n_kh * (size_t)g->dk, nv = (size_t)g->n_vh * (size_t)g->dv, ch = 2 * nk + nv,
           vh = (size_t)g->n_vh;
    size_t hd = (size_t)a->hd, q = (size_t)a->n_head * hd, kv = (size_t)a->n_kv * hd, ffn = (size_t)sh->ffn,
           hidden = (size_t)sh->hidden;
    struct ds_rng rng;
    ds_rng_seed(&rng, 1);
    /* The inputs of one op are drawn alike whatever n is, so that the check's few tokens are the first of the many. */
    bool ok = add_weight(r, CONV_W, &rng, 4 * ch, 0, 0.5f, e) && add_weight(r, SSM_A, &rng, vh, -1, 0.1f, e) &&
              add_weight(r, SSM_DT, &rng, vh, -3, 1, e) && add_weight(r, GAIN_DV, &rng, (size_t)g->dv, 1, 0.1f, e) &&
              add_weight(r, GAIN_HD, &rng, hd, 1, 0.1f, e) && add_weight(r, GAIN_HIDDEN, &rng, hidden, 1, 0.1f, e) &&
              add_buf(r, KC, &rng, DS_BUF_KV, (size_t)depth + nn, kv, 1, e) &&
              add_buf(r, VC, &rng, DS_BUF_KV, (size_t)depth + nn, kv, 1, e) && add_buf(r, CONV, &rng, DS_BUF_F32, 3, ch, 1, e) &&
              add_buf(r, S, &rng, DS_BUF_F32, nv, (size_t)g->dk, 0.1f, e) && add_buf(r, U, &rng, DS_BUF_PROJ, nn, ch, 1, e) &&
              add_buf(r, A, &rng, DS_BUF_PROJ, nn, vh, 1, e) && add_buf(r, B, &rng, DS_BUF_PROJ, nn, vh, 1, e) &&
              add_buf(r, Z, &rng, DS_BUF_PROJ, nn, nv, 1, e) && add_buf(r, QG, &rng, DS_BUF_PROJ, nn, 2 * q, 1, e) &&
              add_buf(r, K, &rng, DS_BUF_PROJ, nn, kv, 1, e) && add_buf(r, V, &rng, DS_BUF_PROJ, nn, kv, 1, e) &&
              add_buf(r, GATE, &rng, DS_BUF_PROJ, nn, ffn, 1, e) && add_buf(r, UP, &rng, DS_BUF_PROJ, nn, ffn, 1, e) &&
              add_buf(r, X, &rng, DS_BUF_F32, nn, hidden, 1, e) && add_buf(r, PREP, &rng, DS_BUF_F32, 1, 1, 0, e) &&
              add_buf(r, O, &rng, DS_BUF_F32, nn, nv, 0, e) && add_buf(r, Y, &rng, DS_BUF_ACT, nn, nv, 0, e) &&
              add_buf(r, ATT, &rng, DS_BUF_ACT, nn, q, 0, e) && add_buf(r, ACT, &rng, DS_BUF_ACT, nn, ffn, 0, e) &&
              add_buf(r, H, &rng, DS_BUF_ACT, nn, hidden, 0, e);
    if (ok) {
        r->be->ops->buf_free(r->be, r->b[PREP]);
        ok = (r->b[PREP] = r->be->ops->buf_new(r->be, DS_BUF_F32, 1, ds_gdn_prep_elems(g, n), e)) != NULL;
    }
    if (!ok) return e->code ? e->code : DS_ENOMEM;
    struct ds_sizes sz = { .ubatch = n, .ctx = depth + n, .hidden = sh->hidden, .gdn = *g, .attn = *a };
    return r->be->ops->reserve(r->be, &sz, e);
}

/* --- the ops --- */

static void begin(struct rig *r, bool decode)
{
    struct ds_step s = { .n = decode ? 1 : r->n, .pos = r->depth, .decode = decode };
    r->be->ops->begin(r->be, &s);
}
static void prep(struct rig *r)
{
    begin(r, false);
    r->be->ops->gdn_prep(r->be, r->b[PREP], r->b[CONV], r->b[U], r->b[A], r->b[B], r->w[CONV_W], r->w[SSM_A], r->w[SSM_DT],
                         &r->sh->gdn, r->n);
}
static void gdn(struct rig *r, bool chunk)
{
    begin(r, false);
    ds_cpu_of(r->be)->gdn_chunk = chunk;
    r->be->ops->gdn(r->be, r->b[O], r->b[S], r->b[PREP], &r->sh->gdn, r->n, 0, r->n);
}
static void gdn_seq(struct rig *r) { gdn(r, false); }
static void gdn_chunk(struct rig *r) { gdn(r, true); }
static void gdn_decode(struct rig *r)
{
    begin(r, true);
    r->be->ops->gdn(r->be, r->b[O], r->b[S], r->b[PREP], &r->sh->gdn, r->n, 0, 1);
}
static void gated(struct rig *r)
{
    begin(r, false);
    r->be->ops->gated_norm(r->be, r->b[Y], r->b[O], r->b[Z], r->w[GAIN_DV], &r->sh->gdn, r->n);
}
static void walk(struct rig *r)
{
    const struct ds_gdn_layer io = { r->b[Y], r->b[S], r->b[CONV], r->b[U], r->b[Z], r->b[A], r->b[B],
                                     r->w[CONV_W], r->w[SSM_A], r->w[SSM_DT], r->w[GAIN_DV] };
    begin(r, false);
    ds_cpu_of(r->be)->gdn_chunk = ds_cpu_gdn_prefers_chunk(ds_cpu_of(r->be), &r->sh->gdn);
    r->be->ops->gdn_walk(r->be, &io, &r->sh->gdn, r->n, 0, r->n);
}
static void qk(struct rig *r)
{
    begin(r, false);
    r->be->ops->qk_norm(r->be, r->b[QG], r->b[K], r->w[GAIN_HD], r->w[GAIN_HD], &r->sh->attn, r->n);
}
static void rope(struct rig *r)
{
    begin(r, false);
    r->be->ops->rope_store(r->be, r->b[QG], r->b[K], r->b[V], r->b[KC], r->b[VC], &r->sh->attn, r->n);
}
static void attn(struct rig *r)
{
    begin(r, false);
    r->be->ops->attn(r->be, r->b[ATT], r->b[QG], r->b[KC], r->b[VC], &r->sh->attn, r->n);
}
static void attn_decode(struct rig *r)
{
    begin(r, true);
    r->be->ops->attn(r->be, r->b[ATT], r->b[QG], r->b[KC], r->b[VC], &r->sh->attn, 1);
}
static void swiglu(struct rig *r)
{
    begin(r, false);
    r->be->ops->swiglu(r->be, r->b[ACT], r->b[GATE], r->b[UP], r->n, r->sh->ffn);
}
static void rms(struct rig *r)
{
    begin(r, false);
    r->be->ops->rms_norm(r->be, r->b[H], r->b[X], r->w[GAIN_HIDDEN], 0, r->n, r->sh->hidden, 1e-6f);
}

static double gdn_flop(const struct rig *r) { return 7.0 * r->sh->gdn.dk * r->sh->gdn.dv * r->sh->gdn.n_vh * r->n; }
static double gdn_bytes(const struct rig *r)
{
    return 4.0 * (double)ds_gdn_prep_elems(&r->sh->gdn, r->n) + 4.0 * r->sh->gdn.n_vh * r->sh->gdn.dv * r->n;
}
static double gdn_decode_flop(const struct rig *r) { return gdn_flop(r) / r->n; }
static double gdn_decode_bytes(const struct rig *r) { return 8.0 * r->sh->gdn.n_vh * r->sh->gdn.dk * r->sh->gdn.dv; }
static double channels(const struct rig *r)
{
    return 2.0 * r->sh->gdn.n_kh * r->sh->gdn.dk + (double)r->sh->gdn.n_vh * r->sh->gdn.dv;
}
static double prep_bytes(const struct rig *r) { return 8.0 * channels(r) * r->n; }
static double gated_bytes(const struct rig *r) { return 12.0 * r->sh->gdn.n_vh * r->sh->gdn.dv * r->n; }
static double walk_bytes(const struct rig *r)
{
    return 4.0 * channels(r) * r->n + 8.0 * r->sh->gdn.n_vh * r->sh->gdn.dv * r->n;
}
static double qk_bytes(const struct rig *r) { return 8.0 * (r->sh->attn.n_head + r->sh->attn.n_kv) * r->sh->attn.hd * r->n; }
static double attn_flop(const struct rig *r)
{
    return 4.0 * r->sh->attn.n_head * r->sh->attn.hd * r->n * (r->depth + 0.5 * (r->n + 1));
}
static double kv_bytes(const struct rig *r) { return 4.0 * r->sh->attn.n_kv * r->sh->attn.hd * (r->depth + 1.0); }
static double attn_decode_flop(const struct rig *r) { return 4.0 * r->sh->attn.n_head * r->sh->attn.hd * (r->depth + 1.0); }
static double swiglu_bytes(const struct rig *r) { return 12.0 * r->sh->ffn * r->n; }
static double rms_bytes(const struct rig *r) { return 8.0 * r->sh->hidden * r->n; }

struct op {
    const char *name;
    void (*run)(struct rig *);
    int out;                                         /* buffer to check, first `rows` = n of it (1 for decode) */
    double (*flop)(const struct rig *), (*bytes)(const struct rig *);   /* NULL: not what bounds it */
};
static const struct op ops[] = {
    { "gdn_prep", prep, PREP, NULL, prep_bytes },
    { "gdn seq", gdn_seq, O, gdn_flop, gdn_bytes },
    { "gdn chunk", gdn_chunk, O, gdn_flop, gdn_bytes },
    { "gdn decode", gdn_decode, O, gdn_decode_flop, gdn_decode_bytes },
    { "gated_norm", gated, Y, NULL, gated_bytes },
    { "gdn walk", walk, Y, gdn_flop, walk_bytes },
    { "qk_norm", qk, QG, NULL, qk_bytes },
    { "rope_store", rope, QG, NULL, qk_bytes },
    { "attn", attn, ATT, attn_flop, NULL },
    { "attn decode", attn_decode, ATT, attn_decode_flop, kv_bytes },
    { "swiglu", swiglu, ACT, NULL, swiglu_bytes },
    { "rms_norm", rms, H, NULL, rms_bytes },
};

/* --- check and time --- */

/* All ops in order through both backends on a few tokens; error[i] is the relative error of op i's output. */
static ds_status check(const struct shape *sh, unsigned isa, int threads, int depth, double *error, struct ds_err *e)
{
    enum { TOKENS = 70 };
    struct rig got, want = { 0 };
    ds_status st = rig_new(&got, sh, isa, threads, TOKENS, depth, e);
    if (!st) st = rig_new(&want, sh, 0, threads, TOKENS, depth, e);
    for (size_t i = 0; !st && i < sizeof ops / sizeof *ops; i++) {
        ops[i].run(&got);
        ops[i].run(&want);
        size_t n = got.b[ops[i].out]->rows * got.b[ops[i].out]->dim;
        const float *x = ds_cpu_f32(got.b[ops[i].out]), *y = ds_cpu_f32(want.b[ops[i].out]);
        double num = 0, den = 0;
        for (size_t j = 0; j < n; j++) num += ((double)x[j] - y[j]) * ((double)x[j] - y[j]), den += (double)y[j] * y[j];
        error[i] = sqrt(num / den);
    }
    rig_free(&got);
    rig_free(&want);
    return st;
}

static ds_probe_fn *probe_of(unsigned isa)
{
#if defined(__x86_64__)
    if (isa & DS_CPU_AVX512) return ds_probe_f32_avx512;
    if (isa & DS_CPU_AVX2) return ds_probe_f32_avx2;
#elif defined(__aarch64__)
    if (isa & DS_CPU_NEON) return ds_probe_f32_neon;
#endif
    (void)isa;
    return ds_probe_f32_ref;
}

struct probe { ds_probe_fn *fn; int rounds; double ops[1024]; };
static void probe_task(void *ctx, int i, int thread)
{
    struct probe *p = ctx;
    (void)thread;
    p->ops[i] = p->fn(p->rounds);
}

static double now_ns(const struct ds_cpu *c)
{
    return c->threads == 1 ? (double)clock() * (1e9 / CLOCKS_PER_SEC) : (double)ds_now_ns();
}

/* GFLOP/s of all threads over about two milliseconds. */
static double peak_now(struct ds_cpu *c, struct probe *p)
{
    double total = 0;
    double t0 = now_ns(c), ns;
    ds_pool_run(c->pool, probe_task, p, c->threads);
    ns = now_ns(c) - t0;
    for (int i = 0; i < c->threads; i++) total += p->ops[i];
    return total / ns;
}

static void measure(struct rig *r, const struct op *op, struct probe *p, int reps, double error, struct ds_json_out *j)
{
    double ms[64], share[64];
    struct ds_cpu *c = ds_cpu_of(r->be);
    op->run(r);
    for (int i = 0; i < reps; i++) {
        int times = 0;
        double before = peak_now(c, p);
        double t0 = now_ns(c), t1;
        do op->run(r), times++, t1 = now_ns(c);
        while (t1 - t0 < 3e6);
        double after = peak_now(c, p);
        ms[i] = (t1 - t0) * 1e-6 / times;
        share[i] = op->flop ? op->flop(r) / ms[i] * 1e-6 / (0.5 * (before + after)) : 0;
    }
    double mid = ms[ds_median_index(ms, reps)];
    const double gflops = op->flop ? op->flop(r) / mid * 1e-6 : 0, gbs = op->bytes ? op->bytes(r) / mid * 1e-6 : 0;
    if (j) {
        ds_jo_obj(j);
        ds_jm_text(j, "op", op->name);
        ds_jm_nums(j, "ms", ms, reps);
        ds_jm_num(j, "median_ms", mid);
        ds_jm_positive(j, "gflops", gflops);
        ds_jm_positive(j, "share_of_peak", share[ds_median_index(share, reps)]);
        ds_jm_positive(j, "gbs", gbs);
        ds_jm_num(j, "error", error);
        ds_jo_obj_end(j);
        return;
    }
    printf("%-12s %10.3f %10.3f %10.3f ", op->name, mid, ds_min(ms, reps), ds_max(ms, reps));
    if (op->flop) printf("%9.1f %6.1f%% ", gflops, 100 * share[ds_median_index(share, reps)]);
    else printf("%9s %7s ", "", "");
    if (op->bytes) printf("%8.1f ", gbs);
    else printf("%8s ", "");
    printf(" %.1e\n", error);
    fflush(stdout);
}

/* 1 when an op's error is above its limit. */
static int measure_all(const struct options *o, struct rig *r, struct probe *p, const double *error, struct ds_json_out *j)
{
    int bad = 0;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        bad |= !(error[i] <= 1e-5);
        if (!o->only || strstr(ops[i].name, o->only)) measure(r, &ops[i], p, o->reps, error[i], j);
    }
    return bad;
}

static int record(const struct options *o, struct rig *r, struct probe *p, const double *error, const char *isa, const char *command)
{
    struct ds_provenance from;
    struct ds_bytes b;
    struct ds_json_out j;
    ds_provenance_bare(&from, o->threads, isa, command);
    r->be->ops->peaks(r->be, &from.peaks);
    ds_bytes_init(&b, 1u << 24);
    ds_jo_init(&j, &b, true);
    ds_jo_obj(&j);
    ds_jm_text(&j, "kind", "kernels_mix");
    ds_jm_text(&j, "shape", o->like);
    ds_jm_int(&j, "tokens", o->tokens);
    ds_jm_int(&j, "depth", o->depth);
    ds_jm_arr(&j, "ops");
    const int bad = measure_all(o, r, p, error, &j);
    ds_jo_arr_end(&j);
    ds_provenance_end(&from);
    ds_provenance_json(&j, &from);
    ds_jo_obj_end(&j);
    puts(b.p);
    ds_bytes_free(&b);
    return bad;
}

int main(int argc, char **argv)
{
    struct options o = { .like = "27b", .threads = ds_cpu_count(), .reps = 9, .tokens = 512, .depth = 2048 };
    const struct ds_opt opts[] = {
        { "--like", NULL, DS_OPT_CHOICE, &o.like, "0.8b|4b|27b|heads64|heads32|heads16|tales", 0, 0,
          "shapes of this model; headsN: of a small one with GDN heads of N" },
        { "--tokens", "-n", DS_OPT_INT, &o.tokens, "N", 1, 65536, "tokens of a step" },
        { "--depth", NULL, DS_OPT_INT, &o.depth, "N", 0, 1 << 20, "positions before the step" },
        { "--only", NULL, DS_OPT_TEXT, &o.only, "WORD", 0, 0, "time the ops whose name contains this; check all" },
        { "--isa", NULL, DS_OPT_TEXT, &o.isa, "LEVEL", 0, 0, "instruction set" },
        { "--threads", NULL, DS_OPT_INT, &o.threads, "N", 1, 1024, "threads" },
        { "--reps", NULL, DS_OPT_INT, &o.reps, "R", 1, 64, "repetitions; medians count" },
        { "--json", NULL, DS_OPT_FLAG, &o.json, NULL, 0, 0, "a record on stdout" },
    };
    struct ds_cli cli = { .prog = "kernels_mix",
                          .usage = "[options]",
                          .about = "Times the CPU ops that are not weight products.\n",
                          .opts = opts,
                          .n_opts = sizeof opts / sizeof *opts };
    int rc = ds_cli_parse(&cli, argc, argv);
    if (rc != DS_CLI_GO) return rc;

    unsigned isa;
    struct ds_err e = { 0 };
    double error[sizeof ops / sizeof *ops];
    const struct shape *sh = shapes;
    struct rig r = { 0 };
    while (strcmp(sh->name, o.like)) sh++;
    if (ds_cpu_mask(o.isa, &isa, &e) || check(sh, isa, o.threads, o.depth, error, &e) ||
        rig_new(&r, sh, isa, o.threads, o.tokens, o.depth, &e)) {
        fprintf(stderr, "kernels_mix: %s\n", e.msg);
        rig_free(&r);
        return DS_EXIT_FAIL;
    }
    struct probe p = { .fn = probe_of(isa), .rounds = 1000 };
    uint64_t t0 = ds_now_ns();
    while (p.fn(p.rounds), ds_now_ns() - t0 < 2000000) p.rounds *= 2, t0 = ds_now_ns();
    int bad;
    prep(&r);
    if (o.json) {
        char command[512];
        ds_command_line(command, sizeof command, "kernels_mix", argc, argv);
        bad = record(&o, &r, &p, error, ds_cpu_level_name(isa), command);
    } else {
        printf("%s, %s, %d threads, %d tokens at %d; f32 peak %.1f GFLOP/s now\n", sh->name, ds_cpu_level_name(isa), o.threads, o.tokens, o.depth,
               peak_now(ds_cpu_of(r.be), &p));
        printf("op            median ms        min        max   GFLOP/s   share     GB/s   error\n");
        bad = measure_all(&o, &r, &p, error, NULL);
    }
    rig_free(&r);
    if (bad) fprintf(stderr, "kernels_mix: an error above 1e-5: these times are no result\n");
    return bad ? DS_EXIT_FAIL : DS_EXIT_OK;
}
