/* Weight products in plain C: the oracle of every other variant.
 *
 * A weight row is unpacked whole, then meets one token after another: exact integer sums per scale
 * group, scaled and added in f32 in rising order of the input dim. Float weights are decoded to f32; in the exact table all are.
 * Packed activations are rows of ds_block_q8_0, ds_block_q8_k or f32, one after another. */
#include "kernels/gemm_unpack.h"
#include "kernels/gemm_variants.h"
#include "quant/act.h"

static size_t pad64(size_t n) { return (n + 63) & ~(size_t)63; }

static size_t token_bytes(enum ds_act_fmt f, size_t k)
{
    if (f == DS_AF_F32) return 4 * k;
    return f == DS_AF_Q8_0 ? k / 32 * sizeof(struct ds_block_q8_0) : k / 256 * sizeof(struct ds_block_q8_k);
}

static size_t act_bytes(enum ds_act_fmt f, int n, int k) { return pad64(token_bytes(f, (size_t)k) * (size_t)n); }

static enum ds_act_fmt act_fmt(const struct ds_gemm_kernels *g, const struct ds_type *t, int n, bool decode)
{
    (void)g, (void)n, (void)decode;
    return t->act == DS_ACT_NONE ? DS_AF_F32 : t->act == DS_ACT_Q8_K ? DS_AF_Q8_K : DS_AF_Q8_0;
}

static enum ds_act_fmt act_fmt_exact(const struct ds_gemm_kernels *g, const struct ds_type *t, int n, bool decode)
{
    (void)g, (void)t, (void)n, (void)decode;
    return DS_AF_F32;
}

static void act_pack(const struct ds_gemm_kernels *g, enum ds_act_fmt f, void *dst, const float *x, size_t ldx, const int32_t *rows, int n, int k,
                     int t0, int t1)
{
    (void)g, (void)n;
    for (int t = t0; t < t1; t++) {
        const float *src = x + (size_t)(rows ? rows[t] : t) * ldx;
        void *o = (char *)dst + token_bytes(f, (size_t)k) * (size_t)t;
        if (f == DS_AF_F32) memcpy(o, src, 4 * (size_t)k);
        else if (f == DS_AF_Q8_0) ds_act_q8_0(o, src, (size_t)k);
        else ds_act_q8_k(o, src, (size_t)k);
    }
}

/* An unpacked weight row in scratch: k integers, then scales, minima and their integers. */
struct row { int8_t *q; float *scale, *min; int16_t *m; };

static struct row row_at(void *scratch, size_t k)
{
    char *p = scratch;
    float *scale = (float *)(p + pad64(k)), *min = scale + k / 16;
    return (struct row){ (int8_t *)p, scale, min, (int16_t *)(min + k / 32) };
}

static size_t scratch_bytes(const struct ds_gemm_kernels *g, const struct ds_type *t, int k)
{
    size_t n = (size_t)k;
    return pad64(g->act_fmt(g, t, 1, false) == DS_AF_F32 ? 4 * n : pad64(n) + 4 * (n / 16) + 4 * (n / 32) + 2 * (n / 16));
}

static void row_unpack(const struct row *r, const struct ds_type *type, const struct ds_gemm_form *f, const char *src, int k)
{
    for (int i = 0; i < k; i += f->chunk, src += type->bytes) {
        struct ds_chunk c = { r->q + i, r->scale + i / f->group, r->min + i / f->chunk, r->m + (f->mgroup ? i / f->mgroup : 0) };
        if (f->chunk == 32) ds_unpack_32(ds_type_id(type), &c, src);
        else ds_unpack_256(ds_type_id(type), &c, src);
    }
}

static inline int32_t dot(const int8_t *w, const int8_t *x, int n)
{
    int32_t s = 0;
    for (int i = 0; i < n; i++) s += w[i] * x[i];
    return s;
}

/* 32 elements share both scales; Q4_1 and Q5_1 add min * sum of the activations. */
static float dot_q8_0(const struct row *r, const struct ds_gemm_form *f, const struct ds_block_q8_0 *x, int k)
{
    float acc = 0;
    for (int b = 0; b < k / 32; b++) {
        float d = ds_f16_to_f32(x[b].d);
        acc += (float)dot(r->q + 32 * b, x[b].q, 32) * (r->scale[b] * d);
        if (f->min != DS_MIN_F32) continue;
        int32_t sum = 0;
        for (int i = 0; i < 32; i++) sum += x[b].q[i];
        acc += (float)sum * (r->min[b] * d);
    }
    return acc;
}

/* Groups of 16, 32 or 256 under one activation scale; minima are summed as integers. */
static float dot_q8_k(const struct row *r, const struct ds_gemm_form *f, const struct ds_block_q8_k *x, int k)
{
    float acc = 0;
    for (int b = 0; b < k / 256; b++) {
        float block = 0;
        for (int i = 0; i < 256; i += f->group)
            block += (float)dot(r->q + 256 * b + i, x[b].q + i, f->group) * r->scale[(256 * b + i) / f->group];
        if (f->min == DS_MIN_INT) {
            int32_t sum = 0;
            for (int j = 0; j < 16; j++) sum += r->m[(256 * b + 16 * j) / f->mgroup] * x[b].bsums[j];
            block += (float)sum * r->min[b];
        }
        acc += block * x[b].d;
    }
    return acc;
}

/* Sixteen running sums, so that compilers may use vectors, added pairwise at the end. */
static float dot_f32(const float *w, const float *x, int k)
{
    float s[16] = { 0 };
    int i = 0;
    for (; i + 16 <= k; i += 16)
        for (int j = 0; j < 16; j++) s[j] += w[i + j] * x[i + j];
    for (int j = 0; i < k; i++, j++) s[j] += w[i] * x[i];
    for (int h = 8; h; h /= 2)
        for (int j = 0; j < h; j++) s[j] += s[j + h];
    return s[0];
}

static void gemm(const struct ds_gemm_kernels *g, const struct ds_gemm_call *c)
{
    size_t k = (size_t)c->k;
    struct ds_gemm_form f = ds_gemm_form_of(ds_type_id(c->type));
    enum ds_act_fmt af = g->act_fmt(g, c->type, c->n, false);
    struct row row = row_at(c->scratch, k);
    for (int r = c->r0; r < c->r1; r++) {
        const char *src = (const char *)c->w + ds_type_row_bytes(c->type, k) * (size_t)r;
        if (af == DS_AF_F32) c->type->decode(c->scratch, src, k);
        else row_unpack(&row, c->type, &f, src, c->k);
        for (int t = c->t0; t < c->t1; t++) {
            const void *x = (const char *)c->x + token_bytes(af, k) * (size_t)t;
            float v = af == DS_AF_F32 ? dot_f32(c->scratch, x, c->k) : af == DS_AF_Q8_0 ? dot_q8_0(&row, &f, x, c->k) : dot_q8_k(&row, &f, x, c->k);
            float *y = c->y + (size_t)(c->yrow ? c->yrow[t] : t) * c->ldy + r;
            *y = c->add ? *y + v : v;
        }
    }
}

static const char *name(const struct ds_gemm_kernels *g, const struct ds_type *t, int n, bool decode)
{
    static const char *const names[DS_T_COUNT] = DS_KERNEL_NAMES("ref");
    (void)g, (void)n, (void)decode;
    return names[ds_type_id(t)];
}

void ds_gemm_ref(struct ds_gemm_kernels *g)
{
    g->row_step = g->tok_step = 1;
    g->act_fmt = act_fmt;
    g->act_bytes = act_bytes;
    g->act_pack = act_pack;
    g->scratch_bytes = scratch_bytes;
    g->gemm = gemm;
    g->gemv = gemm;
    g->name = name;
}

void ds_gemm_exact(struct ds_gemm_kernels *g)
{
    ds_gemm_ref(g);
    g->act_fmt = act_fmt_exact;
}
