/* A GDN layer between its products in one walk: a task is a key head and its value heads, from u, z, a, b to y, chunk after
 * chunk of at most DS_GDN_CHUNK tokens whose q, k, v and o never leave L2. Kernels and their order are those of the three
 * ops that it replaces, so the bits are too. */
#include "backend/cpu/cpu.h"

#include <math.h>
#include <string.h>

struct walk {
    struct ds_cpu *c;
    void (*form)(const struct ds_gdn_args *);
    const struct ds_gdn_shape *sh;
    const float *u, *z, *a, *b, *conv, *w, *A, *dt, *gain;
    float *y, *S;
    size_t channels;
    int n, t0, t1;             /* tokens of the step; those that run */
    int64_t pos;
};

/* One chunk's rows in thread scratch: T = DS_GDN_CHUNK tokens. */
struct chunk {
    float *q, *k;              /* [T][dk] */
    float *v, *o;              /* [R][T][dv] */
    float *g, *beta;           /* [R][T] */
    float *lane;               /* [4][T]: a, b, A, dt of one head */
    float *hist;               /* [conv_k - 1][dk or dv] */
    void *form;
};

enum { T = DS_GDN_CHUNK };

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

static size_t chunk_place(struct chunk *x, float *p, const struct ds_gdn_shape *sh)
{
    const size_t R = (size_t)(sh->n_vh / sh->n_kh), key = T * (size_t)sh->dk, value = R * T * (size_t)sh->dv;
    const size_t hist = (size_t)sh->conv_k * max_size((size_t)sh->dk, (size_t)sh->dv);
    float *at = p;
    x->q = at, at += key;
    x->k = at, at += key;
    x->v = at, at += value;
    x->o = at, at += value;
    x->g = at, at += R * T;
    x->beta = at, at += R * T;
    x->lane = at, at += 4 * T;
    x->hist = at, at += (hist + 15) / 16 * 16;
    x->form = at;
    return (size_t)(at - p) * sizeof *p;
}

size_t ds_cpu_scratch_gdn(const struct ds_cpu *c, const struct ds_sizes *sz)
{
    struct chunk x;
    return chunk_place(&x, (float *)64, &sz->gdn) + c->k.gdn_scratch(sz->gdn.dk, sz->gdn.dv);
}

/* --- what goes into the recurrence --- */

/* conv and SiLU of tokens t..end-1, channels [c0, c0 + dim). */
static void conv_rows(const struct walk *x, float *dst, float *own, int t, int end, size_t c0, size_t dim)
{
    const int taps = x->sh->conv_k - 1;
    const float *u = x->u + (size_t)t * x->channels + c0, *hist = own;
    size_t ldh = dim;
    if (t >= taps) {
        hist = u - (size_t)taps * x->channels;
        ldh = x->channels;
    } else {                                      /* the step begins among the rows that the first token sees */
        for (int i = 0; i < taps; i++) {
            const float *row = t + i < taps ? x->conv + (size_t)(t + i) * x->channels : x->u + (size_t)(t + i - taps) * x->channels;
            memcpy(own + (size_t)i * dim, row + c0, dim * sizeof *own);
        }
    }
    x->c->k.conv_silu(dst, dim, u, x->channels, hist, ldh, x->w + c0 * (size_t)x->sh->conv_k, x->sh->conv_k, end - t, 0, (int)dim);
}

static void unit_rows(const struct walk *x, float *rows, int n, float scale)
{
    for (int i = 0; i < n; i++) x->c->k.l2_norm(rows + (size_t)i * (size_t)x->sh->dk, x->sh->dk, x->sh->eps, scale);
}

/* Gates of value head h: a lane is a token. */
static void gates(const struct walk *x, const struct chunk *k, size_t r, size_t h, int t, int n)
{
    const size_t nv = (size_t)x->sh->n_vh;
    float *a = k->lane, *b = a + T, *A = b + T, *dt = A + T;
    for (int i = 0; i < n; i++) {
        const size_t at = (size_t)(t + i) * nv + h;
        a[i] = x->a[at], b[i] = x->b[at], A[i] = x->A[h], dt[i] = x->dt[h];
    }
    x->c->k.gdn_gates(k->g + r * T, k->beta + r * T, a, b, A, dt, n);
}

static size_t value_channel(const struct ds_gdn_shape *sh, size_t h) { return 2 * (size_t)sh->n_kh * (size_t)sh->dk + h * (size_t)sh->dv; }

static void prepare(const struct walk *x, const struct chunk *k, size_t key, int t, int end)
{
    const struct ds_gdn_shape *sh = x->sh;
    const size_t dk = (size_t)sh->dk, dv = (size_t)sh->dv, nk = (size_t)sh->n_kh, R = (size_t)sh->n_vh / nk;
    conv_rows(x, k->q, k->hist, t, end, key * dk, dk);
    conv_rows(x, k->k, k->hist, t, end, (nk + key) * dk, dk);
    unit_rows(x, k->q, end - t, 1.0f / sqrtf((float)sh->dk));
    unit_rows(x, k->k, end - t, 1.0f);
    for (size_t r = 0; r < R; r++) {
        const size_t h = key + r * nk;
        conv_rows(x, k->v + r * T * dv, k->hist, t, end, value_channel(sh, h), dv);
        gates(x, k, r, h, t, end - t);
    }
}

/* --- the walk --- */

/* One head's row of z and its place in y: both come from afar, in strides that no hardware prefetcher foresees. */
static inline __attribute__((always_inline)) void ask_row(const struct walk *x, size_t at)
{
    for (size_t j = 0; j < (size_t)x->sh->dv; j += 16) {
        __builtin_prefetch(x->z + at + j, 0);
        __builtin_prefetch(x->y + at + j, 1);
    }
}

static void walk_chunk(const struct walk *x, const struct chunk *k, size_t key, int t, int end)
{
    const struct ds_gdn_shape *sh = x->sh;
    const size_t dk = (size_t)sh->dk, dv = (size_t)sh->dv, nk = (size_t)sh->n_kh, nv = (size_t)sh->n_vh, R = nv / nk;
    const size_t row = nv * dv, at = (size_t)t * row + key * dv;
    const int n = end - t;
    prepare(x, k, key, t, end);
    struct ds_gdn_args a = {
        .o = k->o, .ldo = dv, .o_step = T * dv, .S = x->S + key * dk * dv, .S_step = nk * dk * dv,
        .q = k->q, .k = k->k, .ldk = dk, .v = k->v, .ldv = dv, .v_step = T * dv,
        .g = k->g, .beta = k->beta, .ldg = 1, .g_step = T, .n = n, .dk = sh->dk, .dv = sh->dv, .R = (int)R,
        .phase = (int)((x->pos + t) % DS_GDN_CHUNK), .j0 = 0, .j1 = sh->dv, .scratch = k->form,
    };
    x->form(&a);
    for (size_t r = 0; r < R; r++) {
        for (size_t i = 0; i < (size_t)n; i++) {
            const size_t to = at + i * row + r * nk * dv;
            if (i + 4 < (size_t)n) ask_row(x, to + 4 * row);
            x->c->k.gated_norm(x->y + to, k->o + (r * T + i) * dv, x->z + to, x->gain, sh->dv, sh->eps);
        }
    }
}

static void walk_task(void *ctx, int i, int thread)
{
    const struct walk *x = ctx;
    struct chunk k;
    float *scratch = ds_cpu_scratch(x->c, thread, 0);
    ds_cpu_scratch(x->c, thread, chunk_place(&k, scratch, x->sh) + x->c->k.gdn_scratch(x->sh->dk, x->sh->dv));
    for (int t = x->t0, end; t < x->t1; t = end) {
        end = t + T - (int)((x->pos + t) % T);
        if (end > x->t1) end = x->t1;
        walk_chunk(x, &k, (size_t)i, t, end);
    }
}

void ds_cpu_gdn_walk(struct ds_backend *be, const struct ds_gdn_layer *l, const struct ds_gdn_shape *sh, int n, int t0, int t1)
{
    struct ds_cpu *c = ds_cpu_of(be);
    struct walk x = { .c = c, .form = c->gdn_chunk ? c->k.gdn_chunk : c->k.gdn_seq, .sh = sh, .u = ds_cpu_f32(l->u), .z = ds_cpu_f32(l->z),
                      .a = ds_cpu_f32(l->a), .b = ds_cpu_f32(l->b), .conv = ds_cpu_f32(l->conv), .w = l->conv_w->f32, .A = l->ssm_a->f32,
                      .dt = l->ssm_dt->f32, .gain = l->gain->f32, .y = ds_cpu_f32(l->y), .S = ds_cpu_f32(l->S),
                      .channels = value_channel(sh, (size_t)sh->n_vh), .n = n, .t0 = t0, .t1 = t1, .pos = be->step.pos };
    ds_pool_run(c->pool, walk_task, &x, sh->n_kh);
    if (t1 == n) ds_cpu_conv_advance(ds_cpu_f32(l->conv), x.conv, x.u, x.channels, (size_t)sh->conv_k - 1, (size_t)n);
    ds_cpu_touch(l->y);
}

/* A task cannot be cut by columns, since the norm at its end is over whole heads. With fewer heads a thread the last ones
 * would keep the others waiting for longer than the three ops lose. */
bool ds_cpu_gdn_walks(const struct ds_cpu *c, const struct ds_gdn_shape *sh)
{
    return sh->n_vh && (c->threads == 1 || sh->n_kh >= 3 * c->threads);
}
