/* Attention with an online softmax over key blocks: running maximum m, sum l, and unnormalised output. */
#include "kernels/kernels_variants.h"
#include "quant/type.h"

#include <math.h>

static float kv_at(const struct ds_attn_args *a, const void *rows, int64_t p, int i)
{
    size_t e = (size_t)p * a->ldkv + (size_t)i;
    return a->kv_f16 ? ds_f16_to_f32(((const uint16_t *)rows)[e]) : ((const float *)rows)[e];
}

/* Folds positions [p0, p1), at most DS_ATTN_BLOCK of them, into (m, l, acc) of one query. */
static void fold_block(float *m, float *l, float *acc, const struct ds_attn_args *a, const float *q, int64_t p0, int64_t p1)
{
    float s[DS_ATTN_BLOCK], top = *m;
    int n = (int)(p1 - p0);
    for (int j = 0; j < n; j++) {
        s[j] = 0;
        for (int i = 0; i < a->hd; i++) s[j] += q[i] * kv_at(a, a->K, p0 + j, i);
        s[j] *= a->scale;
        if (s[j] > top) top = s[j];          /* a NaN score passes by here and reaches l and the output */
    }
    float keep = expf(*m - top);             /* exp(-inf) = 0 in the first block */
    *l *= keep;
    for (int i = 0; i < a->hd; i++) acc[i] *= keep;
    for (int j = 0; j < n; j++) {
        float w = expf(s[j] - top);
        *l += w;
        for (int i = 0; i < a->hd; i++) acc[i] += w * kv_at(a, a->V, p0 + j, i);
    }
    *m = top;
}

static void fold_range(float *m, float *l, float *acc, const struct ds_attn_args *a, const float *q, int64_t p0, int64_t p1)
{
    for (int64_t p = p0, e; p < p1; p = e) {
        e = p - p % DS_ATTN_BLOCK + DS_ATTN_BLOCK;
        if (e > p1) e = p1;
        fold_block(m, l, acc, a, q, p, e);
    }
}

void ds_attn_ref(const struct ds_attn_args *a)
{
    for (int t = a->t0; t < a->t1; t++) {
        for (int h = 0; h < a->heads; h++) {
            const float *q = a->q + (size_t)t * a->ldq + (size_t)h * a->q_step, *gate = q + a->hd;
            float *y = a->y + (size_t)t * a->ldy + (size_t)h * (size_t)a->hd, m = -INFINITY, l = 0;
            for (int i = 0; i < a->hd; i++) y[i] = 0;
            fold_range(&m, &l, y, a, q, 0, a->pos + t + 1);
            for (int i = 0; i < a->hd; i++) y[i] = y[i] / l * ds_sigmoid(gate[i]);
        }
    }
}

void ds_attn_part_ref(float *m, float *l, float *acc, const struct ds_attn_args *a, int64_t p0, int64_t p1)
{
    const float *q = a->q + (size_t)a->t0 * a->ldq;
    for (int h = 0; h < a->heads; h++)
        fold_range(m + h, l + h, acc + (size_t)h * (size_t)a->hd, a, q + (size_t)h * a->q_step, p0, p1);
}

size_t ds_attn_scratch_ref(int hd, int heads)
{
    (void)hd, (void)heads;
    return 0;
}

int ds_attn_tokens_ref(int heads)
{
    (void)heads;
    return 16;
}
