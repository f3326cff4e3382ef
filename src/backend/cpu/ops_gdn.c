/* GDN ops: the prepared inputs and the recurrence, split over the pool.
 *
 * `prep` holds each head's rows together, since the recurrence walks one head through all tokens:
 *   q [n_kh][n][dk]   k [n_kh][n][dk]   v [n_vh][n][dv]   g [n][n_vh]   beta [n][n_vh] */
#include "backend/cpu/split.h"
#include "base/cpu.h"

#include <math.h>
#include <string.h>

struct prep { float *q, *k, *v, *g, *beta; };

static struct prep prep_of(float *p, const struct ds_gdn_shape *sh, int n)
{
    size_t key = (size_t)n * (size_t)sh->n_kh * (size_t)sh->dk, value = (size_t)n * (size_t)sh->n_vh * (size_t)sh->dv;
    size_t gates = (size_t)n * (size_t)sh->n_vh;
    return (struct prep){ p, p + key, p + 2 * key, p + 2 * key + value, p + 2 * key + value + gates };
}

/* --- preparation --- */

struct prep_ctx {
    const struct ds_kernels *k;
    struct prep p;
    const struct ds_gdn_shape *sh;
    const float *u, *a, *b, *hist, *w, *A, *dt;
    size_t channels;
    int n, block, slices;      /* tokens a block; a block's heads are cut into slices */
};

/* Heads of one token block: conv and SiLU into the head's rows, then l2 while they are in L1. Heads are
 * numbered through q, k, v, as their channels lie in u. */
static void prep_head(const struct prep_ctx *x, int head, int t0, int t1)
{
    const struct ds_gdn_shape *sh = x->sh;
    int key_heads = 2 * sh->n_kh, dim = head < key_heads ? sh->dk : sh->dv;
    size_t taps = (size_t)sh->conv_k - 1;
    int c0 = head < key_heads ? head * sh->dk : key_heads * sh->dk + (head - key_heads) * sh->dv;
    float *rows = (head < key_heads ? x->p.q + (size_t)head * (size_t)x->n * (size_t)sh->dk      /* k follows q */
                                    : x->p.v + (size_t)(head - key_heads) * (size_t)x->n * (size_t)sh->dv) +
                  (size_t)t0 * (size_t)dim;
    const float *u = x->u + (size_t)t0 * x->channels, *hist = t0 ? u - taps * x->channels : x->hist;

    x->k->conv_silu(rows, (size_t)dim, u, x->channels, hist, x->channels, x->w, sh->conv_k, t1 - t0, c0, c0 + dim);
    if (head >= key_heads) return;
    float scale = head < sh->n_kh ? 1.0f / sqrtf((float)sh->dk) : 1.0f;
    for (int t = t0; t < t1; t++) x->k->l2_norm(rows + (size_t)(t - t0) * (size_t)dim, dim, sh->eps, scale);
}

static void prep_task(void *ctx, int i, int thread)
{
    const struct prep_ctx *x = ctx;
    size_t heads = 2 * (size_t)x->sh->n_kh + (size_t)x->sh->n_vh, nv = (size_t)x->sh->n_vh;
    int slice = i % x->slices, t0 = i / x->slices * x->block, t1 = t0 + x->block < x->n ? t0 + x->block : x->n;
    (void)thread;
    for (size_t h = ds_cpu_begin(heads, x->slices, slice); h < ds_cpu_begin(heads, x->slices, slice + 1); h++)
        prep_head(x, (int)h, t0, t1);
    if (slice) return;
    for (size_t t = (size_t)t0; t < (size_t)t1; t++)
        x->k->gdn_gates(x->p.g + t * nv, x->p.beta + t * nv, x->a + t * nv, x->b + t * nv, x->A, x->dt, (int)nv);
}

/* dst = the last `taps` rows of [conv; n rows of u]; dst may be conv. */
void ds_cpu_conv_advance(float *dst, const float *conv, const float *u, size_t channels, size_t taps, size_t n)
{
    size_t fresh = n < taps ? n : taps;
    memmove(dst, conv + fresh * channels, (taps - fresh) * channels * sizeof *conv);
    memcpy(dst + (taps - fresh) * channels, u + (n - fresh) * channels, fresh * channels * sizeof *conv);
}

void ds_cpu_conv_tail(struct ds_backend *be, struct ds_buf *dst, size_t off, const struct ds_buf *conv, const struct ds_buf *u,
                      const struct ds_gdn_shape *sh, int t)
{
    const size_t channels = 2 * (size_t)sh->n_kh * (size_t)sh->dk + (size_t)sh->n_vh * (size_t)sh->dv;
    (void)be;
    ds_cpu_conv_advance(ds_cpu_f32(dst) + off, ds_cpu_f32(conv), ds_cpu_f32(u), channels, (size_t)sh->conv_k - 1, (size_t)t);
}

void ds_cpu_copy(struct ds_backend *be, struct ds_buf *dst, size_t off, const struct ds_buf *src, size_t n)
{
    ds_cpu_bytes(ds_cpu_of(be), ds_cpu_f32(dst) + off, ds_cpu_f32(src), n * sizeof(float));
}

void ds_cpu_gdn_prep(struct ds_backend *be, struct ds_buf *prep, struct ds_buf *conv, const struct ds_buf *u,
                     const struct ds_buf *a, const struct ds_buf *b, const struct ds_weight *conv_w,
                     const struct ds_weight *ssm_a, const struct ds_weight *ssm_dt, const struct ds_gdn_shape *sh, int n)
{
    struct ds_cpu *c = ds_cpu_of(be);
    struct prep_ctx x = { .k = &c->k, .p = prep_of(ds_cpu_f32(prep), sh, n), .sh = sh, .u = ds_cpu_f32(u), .a = ds_cpu_f32(a),
                          .b = ds_cpu_f32(b), .hist = ds_cpu_f32(conv), .w = conv_w->f32, .A = ssm_a->f32,
                          .dt = ssm_dt->f32, .n = n };
    x.channels = 2 * (size_t)sh->n_kh * (size_t)sh->dk + (size_t)sh->n_vh * (size_t)sh->dv;
    /* Blocks of 32 tokens walk u in whole rows, 32 pages at a time; a block must reach back conv_k - 1 rows. */
    x.block = sh->conv_k > 33 ? sh->conv_k - 1 : 32;
    int blocks = (n + x.block - 1) / x.block, pieces = ds_cpu_pieces(c, (size_t)n * x.channels, 6),
        heads = 2 * sh->n_kh + sh->n_vh;
    x.slices = (pieces + blocks - 1) / blocks;
    if (x.slices > heads) x.slices = heads;
    ds_pool_run(c->pool, prep_task, &x, blocks * x.slices);
    ds_cpu_conv_advance(ds_cpu_f32(conv), ds_cpu_f32(conv), x.u, x.channels, (size_t)sh->conv_k - 1, (size_t)n);
    ds_cpu_touch(prep);
}

/* --- recurrence --- */

struct gdn_ctx {
    struct ds_cpu *c;
    void (*form)(const struct ds_gdn_args *);
    struct prep p;
    float *o, *S;
    const struct ds_gdn_shape *sh;
    int n, t0, t1, phase;      /* tokens of the step; those that run */
    int parts, strips;         /* a key head's value heads in `parts` runs, their columns in `strips` */
};

/* Task (key head, part, strip). Columns never meet, so any cut gives the same bits. */
static void gdn_task(void *ctx, int i, int thread)
{
    const struct gdn_ctx *x = ctx;
    const struct ds_gdn_shape *sh = x->sh;
    size_t dk = (size_t)sh->dk, dv = (size_t)sh->dv, nk = (size_t)sh->n_kh, nv = (size_t)sh->n_vh, n = (size_t)x->n;
    size_t t0 = (size_t)x->t0;
    int strip = i % x->strips, part = i / x->strips % x->parts;
    size_t key = (size_t)(i / x->strips / x->parts), R = nv / nk;
    size_t r0 = ds_cpu_begin(R, x->parts, part), r1 = ds_cpu_begin(R, x->parts, part + 1), h = key + r0 * nk;
    struct ds_gdn_args a = {
        .o = x->o + t0 * nv * dv + h * dv, .ldo = nv * dv, .o_step = nk * dv,
        .S = x->S + h * dk * dv, .S_step = nk * dk * dv,
        .q = x->p.q + (key * n + t0) * dk, .k = x->p.k + (key * n + t0) * dk, .ldk = dk,
        .v = x->p.v + (h * n + t0) * dv, .ldv = dv, .v_step = nk * n * dv,
        .g = x->p.g + t0 * nv + h, .beta = x->p.beta + t0 * nv + h, .ldg = nv, .g_step = nk,
        .n = x->t1 - x->t0, .dk = sh->dk, .dv = sh->dv, .R = (int)(r1 - r0), .phase = x->phase,
        .j0 = (int)ds_cpu_begin(dv / 16, x->strips, strip) * 16,
        .j1 = strip + 1 == x->strips ? sh->dv : (int)ds_cpu_begin(dv / 16, x->strips, strip + 1) * 16,
        .scratch = ds_cpu_scratch(x->c, thread, x->c->k.gdn_scratch(sh->dk, sh->dv)),
    };
    x->form(&a);
}

void ds_cpu_gdn(struct ds_backend *be, struct ds_buf *o, struct ds_buf *S, const struct ds_buf *prep,
                const struct ds_gdn_shape *sh, int n, int t0, int t1)
{
    struct ds_cpu *c = ds_cpu_of(be);
    bool chunk = c->gdn_chunk && !be->step.decode;
    struct gdn_ctx x = { .c = c, .form = chunk ? c->k.gdn_chunk : c->k.gdn_seq, .p = prep_of(ds_cpu_f32(prep), sh, n),
                         .o = ds_cpu_f32(o), .S = ds_cpu_f32(S), .sh = sh, .n = n, .t0 = t0, .t1 = t1,
                         .phase = (int)((be->step.pos + t0) % DS_GDN_CHUNK), .parts = 1, .strips = 1 };
    /* Cut by key head first (its products are shared), then by value head, then by columns, until every
     * thread has a few tasks. */
    int want = c->threads > 1 ? 3 * c->threads : 1, R = sh->n_vh / sh->n_kh;
    if (sh->n_kh < want) x.parts = R < (want + sh->n_kh - 1) / sh->n_kh ? R : (want + sh->n_kh - 1) / sh->n_kh;
    int tasks = sh->n_kh * x.parts, most = sh->dv / 32 > 1 ? sh->dv / 32 : 1;
    if (tasks < want) x.strips = most < (want + tasks - 1) / tasks ? most : (want + tasks - 1) / tasks;
    ds_pool_run(c->pool, gdn_task, &x, tasks * x.strips);
    ds_cpu_touch(o);
}

/* Measured (docs/notes/cpu-gdn.md): the matrix products of the chunkwise form pay from heads of 64 on where registers are
 * many, and on AVX2 from 128 on if value heads share a key head; below that, and in plain C, its preparation costs
 * more than the walk that it saves. The rule may look at the shape alone: a form that changed with the length of a
 * step would give another result for another split of the prompt. */
bool ds_cpu_gdn_prefers_chunk(const struct ds_cpu *c, const struct ds_gdn_shape *sh)
{
    if (c->isa & (DS_CPU_AVX512 | DS_CPU_NEON)) return sh->dk >= 64;
    return c->isa & DS_CPU_AVX2 && sh->dk >= 128 && sh->n_vh > sh->n_kh;
}
