#include "backend/cpu/split.h"

#include <math.h>
#include <string.h>

/* --- RoPE and the cache --- */

struct rope_ctx {
    struct ds_cpu *c;
    float *qg, *k;
    const float *v;
    void *kcache, *vcache;
    const struct ds_attn_shape *sh;
    int64_t pos;
    size_t n;
    int pieces;
};

/* cos and sin of pos * base^(-2j/n_rot). The angle reaches 2^18 and is reduced in double: an angle in f32
 * would be off by a hundredth there. */
static void rope_table(float *cosines, float *sines, int64_t pos, const double *freq, size_t half)
{
    for (size_t j = 0; j < half; j++) {
        double angle = (double)pos * freq[j];
        cosines[j] = (float)cos(angle);
        sines[j] = (float)sin(angle);
    }
}

static void store_row(const struct ds_cpu *c, void *cache, int64_t p, const float *row, size_t dim)
{
    if (c->kv_f16)
        c->k.f32_to_f16((uint16_t *)cache + (size_t)p * dim, row, dim);
    else
        memcpy((float *)cache + (size_t)p * dim, row, dim * sizeof *row);
}

static void rope_tokens(void *ctx, int i, int thread)
{
    const struct rope_ctx *r = ctx;
    const struct ds_attn_shape *sh = r->sh;
    size_t hd = (size_t)sh->hd, nq = (size_t)sh->n_head, nkv = (size_t)sh->n_kv, half = (size_t)sh->n_rot / 2;
    double *freq = ds_cpu_scratch(r->c, thread, half * (sizeof *freq + 2 * sizeof(float)));
    float *cosines = (float *)(freq + half), *sines = cosines + half;
    for (size_t j = 0; j < half; j++) freq[j] = pow((double)sh->rope_base, -2.0 * (double)j / (double)sh->n_rot);
    for (size_t t = ds_cpu_begin(r->n, r->pieces, i); t < ds_cpu_begin(r->n, r->pieces, i + 1); t++) {
        int64_t p = r->pos + (int64_t)t;
        rope_table(cosines, sines, p, freq, half);
        for (size_t a = 0; a < nq; a++) r->c->k.rope(r->qg + (t * nq + a) * 2 * hd, cosines, sines, sh->n_rot);
        for (size_t b = 0; b < nkv; b++) r->c->k.rope(r->k + (t * nkv + b) * hd, cosines, sines, sh->n_rot);
        store_row(r->c, r->kcache, p, r->k + t * nkv * hd, nkv * hd);
        store_row(r->c, r->vcache, p, r->v + t * nkv * hd, nkv * hd);
    }
}

void ds_cpu_rope_store(struct ds_backend *be, struct ds_buf *qg, struct ds_buf *k, const struct ds_buf *v, struct ds_buf *kcache,
                       struct ds_buf *vcache, const struct ds_attn_shape *sh, int n)
{
    struct ds_cpu *c = ds_cpu_of(be);
    struct rope_ctx r = { c, ds_cpu_f32(qg), ds_cpu_f32(k), ds_cpu_f32(v), kcache->p, vcache->p, sh, be->step.pos, (size_t)n, 0 };
    r.pieces = ds_cpu_pieces(c, r.n, (size_t)sh->n_head * (size_t)sh->n_rot + 2 * (size_t)sh->n_kv * (size_t)sh->hd);
    ds_pool_run(c->pool, rope_tokens, &r, r.pieces);
}

/* --- prefill: tasks (token block, kv head), the longest rows first --- */

struct attn_ctx {
    struct ds_cpu *c;
    struct ds_attn_args a;     /* of kv head 0; y, q, K, V move on by head */
    int n, n_kv, block;
    /* decode */
    float *part;               /* [parts][n_kv]: m [heads], l [heads], acc [heads][hd] */
    int64_t span;
    int parts, heads_cut;      /* spans; cuts of the kv heads of each */
};

static struct ds_attn_args attn_head(const struct attn_ctx *x, int b)
{
    struct ds_attn_args a = x->a;
    size_t off = (size_t)b * (size_t)a.hd, bytes = a.kv_f16 ? 2 : 4;
    a.y += (size_t)a.heads * off;
    a.q += 2 * (size_t)a.heads * off;
    a.K = (const unsigned char *)a.K + off * bytes;
    a.V = (const unsigned char *)a.V + off * bytes;
    return a;
}

static void attn_task(void *ctx, int i, int thread)
{
    const struct attn_ctx *x = ctx;
    struct ds_attn_args a = attn_head(x, i % x->n_kv);
    a.t1 = x->n - i / x->n_kv * x->block;
    a.t0 = a.t1 > x->block ? a.t1 - x->block : 0;
    a.scratch = ds_cpu_scratch(x->c, thread, x->c->k.attn_scratch(a.hd, a.heads));
    x->c->k.attn(&a);
}

/* --- decode: one token over a long cache --- */

/* The positions are cut into spans by the length alone, so that the result does not depend on the number of threads. A
 * task walks its span in blocks through all kv heads, since their rows lie side by side in memory; where that leaves
 * threads without a task, it takes one head. */
enum { MAX_PARTS = 64, MIN_SPAN = 128 };

static float *part_of(const struct attn_ctx *x, int b, int s)
{
    return x->part + ((size_t)s * (size_t)x->n_kv + (size_t)b) * (size_t)x->a.heads * ((size_t)x->a.hd + 2);
}

static void part_task(void *ctx, int i, int thread)
{
    const struct attn_ctx *x = ctx;
    int heads = x->a.heads, s = i / x->heads_cut, b0 = i % x->heads_cut, b1 = x->heads_cut > 1 ? b0 + 1 : x->n_kv;
    int64_t p0 = s * x->span, end = p0 + x->span <= x->a.pos + 1 ? p0 + x->span : x->a.pos + 1;
    (void)thread;
    for (int b = b0; b < b1; b++) {
        float *m = part_of(x, b, s);
        for (int h = 0; h < heads; h++) m[h] = -INFINITY;
        memset(m + heads, 0, (size_t)heads * ((size_t)x->a.hd + 1) * sizeof *m);
    }
    for (int64_t p = p0; p < end; p += DS_ATTN_BLOCK) {
        for (int b = b0; b < b1; b++) {
            struct ds_attn_args a = attn_head(x, b);
            float *m = part_of(x, b, s);
            x->c->k.attn_part(m, m + heads, m + 2 * heads, &a, p, p + DS_ATTN_BLOCK < end ? p + DS_ATTN_BLOCK : end);
        }
    }
}

static void merge_task(void *ctx, int i, int thread)
{
    const struct attn_ctx *x = ctx;
    int heads = x->a.heads, b = i / heads, h = i % heads;
    struct ds_attn_args a = attn_head(x, b);
    size_t hd = (size_t)a.hd;
    float *y = a.y + (size_t)h * hd, top = -INFINITY, l = 0;
    (void)thread;
    for (int s = 0; s < x->parts; s++) top = fmaxf(top, part_of(x, b, s)[h]);
    memset(y, 0, hd * sizeof *y);
    for (int s = 0; s < x->parts; s++) l += expf(part_of(x, b, s)[h] - top) * part_of(x, b, s)[heads + h];
    for (int s = 0; s < x->parts; s++) {
        const float *m = part_of(x, b, s);
        x->c->k.axpy(y, expf(m[h] - top) / l, m + 2 * heads + (size_t)h * hd, a.hd);
    }
    x->c->k.gate_mul(y, a.q + (size_t)h * a.q_step + hd, a.hd);
}

static void attn_decode(struct attn_ctx *x)
{
    int64_t len = x->a.pos + 1;
    x->span = (len + MAX_PARTS - 1) / MAX_PARTS;
    x->span = x->span < MIN_SPAN ? MIN_SPAN : (x->span + DS_ATTN_BLOCK - 1) / DS_ATTN_BLOCK * DS_ATTN_BLOCK;
    x->parts = (int)((len + x->span - 1) / x->span);
    /* Tasks take no scratch of their own, so thread 0's holds the parts of all. */
    size_t floats = (size_t)x->n_kv * (size_t)x->parts * (size_t)x->a.heads * ((size_t)x->a.hd + 2);
    x->part = ds_cpu_scratch(x->c, 0, floats * sizeof(float));
    x->heads_cut = x->parts < 2 * x->c->threads ? x->n_kv : 1;
    ds_pool_run(x->c->pool, part_task, x, x->parts * x->heads_cut);
    ds_pool_run(x->c->pool, merge_task, x, x->n_kv * x->a.heads);
}

void ds_cpu_attn(struct ds_backend *be, struct ds_buf *y, const struct ds_buf *qg, const struct ds_buf *kcache,
                 const struct ds_buf *vcache, const struct ds_attn_shape *sh, int n)
{
    struct ds_cpu *c = ds_cpu_of(be);
    size_t hd = (size_t)sh->hd, nq = (size_t)sh->n_head;
    struct attn_ctx x = { .c = c, .n = n, .n_kv = sh->n_kv };
    x.a = (struct ds_attn_args){ .y = ds_cpu_f32(y), .ldy = nq * hd, .q = ds_cpu_f32(qg), .ldq = 2 * nq * hd, .q_step = 2 * hd,
                                 .K = kcache->p, .V = vcache->p, .ldkv = (size_t)sh->n_kv * hd, .kv_f16 = c->kv_f16,
                                 .heads = sh->n_head / sh->n_kv, .hd = sh->hd, .scale = 1.0f / sqrtf((float)sh->hd),
                                 .pos = be->step.pos };
    if (be->step.decode && n == 1) {
        attn_decode(&x);
    } else {
        x.block = c->k.attn_tokens(x.a.heads);
        ds_pool_run(c->pool, attn_task, &x, (n + x.block - 1) / x.block * x.n_kv);
    }
    ds_cpu_touch(y);
}

size_t ds_cpu_scratch_attn(const struct ds_cpu *c, const struct ds_sizes *sz)
{
    const struct ds_attn_shape *sh = &sz->attn;
    size_t prefill = c->k.attn_scratch(sh->hd, sh->n_head / sh->n_kv), table = (size_t)sh->n_rot * 2 * sizeof(float);
    size_t decode = MAX_PARTS * (size_t)sh->n_head * ((size_t)sh->hd + 2) * sizeof(float);
    size_t most = prefill > decode ? prefill : decode;
    return most > table ? most : table;
}
