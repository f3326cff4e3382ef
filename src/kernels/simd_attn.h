/* Causal attention with an online softmax. Included after a vec_*.h, simd_math.h and simd_tile.h.
 *
 * Prefill keeps one query of one head per vector lane: scores lie as [key][lane], outputs as [dim][lane].
 * Then both products are tiles whose broadcast operand is a row of K or a column of V as it lies in the
 * cache (converted to f32 once per block of keys for up to ATTN_LANES queries), and maximum, exponential
 * and sum run down the keys without a horizontal step. A lane never sees its neighbours: keys that only
 * they may see get weight exp(-inf) = 0, and adding 0 v changes no bit. That is why any split of a prompt gives
 * the same bits.
 *
 * Decode has a handful of queries and would leave most lanes empty, so attn_part runs lanes along the head
 * dimension instead, straight from the cache's own type. */
#ifndef DS_KERNELS_SIMD_ATTN_H
#define DS_KERNELS_SIMD_ATTN_H

#include "kernels/kernels_variants.h"

#include <math.h>

enum { ATTN_LANES = 128, ATTN_PANELS = ATTN_LANES / TILE_COLS, DECODE_VECS = VL >= 16 ? 4 : TILE_VECS };

/* Rows of K and V in scratch lie hd + 16 apart, so that a column does not fall into few cache sets. A panel has room for whole vectors
 * of dims. */
static size_t attn_dims(int hd) { return ((size_t)hd + 15) / 16 * 16; }
static size_t attn_ld(int hd) { return attn_dims(hd) + 16; }

struct attn_work {
    float s[DS_ATTN_BLOCK][TILE_COLS];         /* scores, then weights, of one panel */
    float m[ATTN_LANES], l[ATTN_LANES];        /* running maximum and sum */
    float last[ATTN_LANES];                    /* last visible position, relative to the block in hand */
    float rest[];                              /* q [panel][attn_dims][TILE_COLS], o likewise, K [block][ld], V [block][ld] */
};

static size_t attn_scratch(int hd, int heads)
{
    (void)heads;
    return sizeof(struct attn_work) + (2 * attn_dims(hd) * ATTN_LANES + 2 * DS_ATTN_BLOCK * attn_ld(hd)) * sizeof(float);
}

static int attn_tokens(int heads) { return heads < ATTN_LANES ? ATTN_LANES / heads : 1; }

/* n rows of K or V from position p on, as f32. */
static void kv_rows(float *dst, size_t ld, const struct ds_attn_args *a, const void *rows, int64_t p, int n)
{
    for (int j = 0; j < n; j++) {
        size_t at = ((size_t)p + (size_t)j) * a->ldkv;
        if (a->kv_f16) f16_to_f32(dst + (size_t)j * ld, (const uint16_t *)rows + at, (size_t)a->hd);
        else memcpy(dst + (size_t)j * ld, (const float *)rows + at, (size_t)a->hd * sizeof *dst);
    }
}

/* Softmax step of one panel over the n keys of the block: scores become weights relative to the new
 * maximum; keep[c] is the factor for what was summed so far. */
static void panel_weights(struct attn_work *w, int lane, int n, bool masked, vf keep[TILE_VECS])
{
    for (int c = 0; c < TILE_VECS; c++) {
        float *m = w->m + lane + c * VL, *l = w->l + lane + c * VL;
        vf top = v_load(m), sum = v_zero(), last = v_load(w->last + lane + c * VL);
        for (int j = 0; j < n; j++) {
            vf s = v_load(w->s[j] + c * VL);
            if (masked) {
                s = v_if_neg(v_sub(last, v_set1((float)j)), v_set1(-INFINITY), s);
                v_store(w->s[j] + c * VL, s);
            }
            top = v_max(top, s);
        }
        keep[c] = v_exp(v_sub(v_load(m), top));
        for (int j = 0; j < n; j++) {
            vf p = v_exp(v_sub(v_load(w->s[j] + c * VL), top));
            v_store(w->s[j] + c * VL, p);
            sum = v_add(sum, p);
        }
        v_store(m, top);
        v_store(l, v_fma(v_load(l), keep[c], sum));
    }
}

/* o[i][lane] = keep[lane] o[i][lane] + sum_j V[j][i] p[j][lane] for `rows` dims. */
INLINE void fold_rows(float *o, const vf keep[TILE_VECS], int rows, const float *V, size_t ld, const float *p, int n)
{
    vf acc[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int c = 0; c < TILE_VECS; c++) acc[r][c] = v_mul(keep[c], v_load(o + r * TILE_COLS + c * VL));
    tile_fma(acc, rows, V, 1, ld, p, TILE_COLS, n);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int c = 0; c < TILE_VECS; c++) v_store(o + r * TILE_COLS + c * VL, acc[r][c]);
}

/* Folds n keys of a block into one panel of queries. */
static void panel_block(struct attn_work *w, int lane, const float *q, float *o, const float *K, const float *V, size_t ld,
                        int hd, int n, bool masked)
{
    vf keep[TILE_VECS];
    int i = 0;
    tile_panel(w->s[0], TILE_COLS, NULL, 0, n, K, ld, 1, q, TILE_COLS, hd);
    panel_weights(w, lane, n, masked, keep);
    for (; i + TILE_ROWS <= hd; i += TILE_ROWS) fold_rows(o + (size_t)i * TILE_COLS, keep, TILE_ROWS, V + i, ld, w->s[0], n);
    for (; i < hd; i++) fold_rows(o + (size_t)i * TILE_COLS, keep, 1, V + i, ld, w->s[0], n);
}

/* Lanes [lane, lane + VL) of the panels from and to rows r0 + lane.. of the call, VL x VL numbers at a time: scaled queries in; */
static void lanes_in(float *q, const struct ds_attn_args *a, int r0, int lane, int rows)
{
    const float *src[VL];
    const vf scale = v_set1(a->scale);
    for (int j = 0; j < VL; j++) {
        int r = r0 + (lane + j < rows ? lane + j : rows - 1);            /* lanes past the last repeat it, and nobody reads them */
        src[j] = a->q + (size_t)(a->t0 + r / a->heads) * a->ldq + (size_t)(r % a->heads) * a->q_step;
    }
    for (int i = 0; i < a->hd; i += VL) {
        vf x[VL];
        int m = a->hd - i < VL ? a->hd - i : VL;
#pragma GCC unroll 16
        for (int j = 0; j < VL; j++) x[j] = m == VL ? v_load(src[j] + i) : v_load_n(src[j] + i, m);
        v_transpose(x);
#pragma GCC unroll 16
        for (int j = 0; j < VL; j++)
            if (j < m) v_store(q + (size_t)(i + j) * TILE_COLS, v_mul(x[j], scale));
    }
}

/* outputs, divided by their sums and gated, out. A row's gate and its place in y are asked for two rows early: both come from far. */
static void lanes_out(float *o, const float *sum, const struct ds_attn_args *a, int r0, int lane, int rows)
{
    const vf inv = v_div(v_set1(1.0f), v_load(sum));
    for (int i = 0; i < a->hd; i += VL) {                                   /* row j's dims i.. to where row i + j had lanes.. */
        vf x[VL];
#pragma GCC unroll 16
        for (int j = 0; j < VL; j++) x[j] = i + j < a->hd ? v_mul(v_load(o + (size_t)(i + j) * TILE_COLS), inv) : v_zero();
        v_transpose(x);
#pragma GCC unroll 16
        for (int j = 0; j < VL; j++) v_store(o + (size_t)(i + j) * TILE_COLS, x[j]);
    }
    for (int j = 0; j < VL && lane + j < rows; j++) {
        int r = r0 + lane + j, ahead = lane + j + 2 < rows ? r + 2 : r;
        size_t hd = (size_t)a->hd, far = (size_t)(a->t0 + ahead / a->heads), h = (size_t)(r % a->heads), hf = (size_t)(ahead % a->heads);
        const float *gate = a->q + (size_t)(a->t0 + r / a->heads) * a->ldq + h * a->q_step + hd, *g2 = a->q + far * a->ldq + hf * a->q_step + hd;
        float *y = a->y + (size_t)(a->t0 + r / a->heads) * a->ldy + h * hd, *y2 = a->y + far * a->ldy + hf * hd;
        for (int i = 0; i < a->hd; i += VL) {
            vf x = v_load(o + (size_t)(i + j) * TILE_COLS);
            __builtin_prefetch(g2 + i);
            __builtin_prefetch(y2 + i, 1);
            if (a->hd - i >= VL) v_store(y + i, v_mul(x, v_sigmoid(v_load(gate + i))));
            else v_store_n(y + i, v_mul(x, v_sigmoid(v_load_n(gate + i, a->hd - i))), a->hd - i);
        }
    }
}

/* Row r of the call is head r % heads of token t0 + r / heads. This handles rows [r0, r0 + rows). */
static void attn_group(const struct ds_attn_args *a, int r0, int rows)
{
    struct attn_work *w = a->scratch;
    size_t panel = attn_dims(a->hd) * TILE_COLS, ld = attn_ld(a->hd);
    float *q = w->rest, *o = q + ATTN_PANELS * panel, *K = o + ATTN_PANELS * panel, *V = K + DS_ATTN_BLOCK * ld;
    int panels = (rows + TILE_COLS - 1) / TILE_COLS;
    int64_t last = a->pos + a->t0 + (r0 + rows - 1) / a->heads;      /* the last row sees most */

    memset(o, 0, (size_t)panels * panel * sizeof *o);
    for (int r = 0; r < panels * TILE_COLS; r++) w->m[r] = -INFINITY, w->l[r] = 0;
    for (int r = 0; r < panels * TILE_COLS; r += VL) lanes_in(q + (size_t)(r / TILE_COLS) * panel + r % TILE_COLS, a, r0, r, rows);
    for (int64_t p = 0; p <= last; p += DS_ATTN_BLOCK) {
        int n = last - p < DS_ATTN_BLOCK ? (int)(last - p) + 1 : DS_ATTN_BLOCK;
        kv_rows(K, ld, a, a->K, p, n);
        kv_rows(V, ld, a, a->V, p, n);
        for (int b = 0; b < panels; b++) {
            int lane = b * TILE_COLS, end = rows < lane + TILE_COLS ? rows : lane + TILE_COLS;
            int64_t first = a->pos + a->t0 + (r0 + lane) / a->heads - p, most = a->pos + a->t0 + (r0 + end - 1) / a->heads - p;
            if (most < 0) continue;
            for (int r = lane; r < lane + TILE_COLS; r++) {
                int64_t sees = a->pos + a->t0 + (r0 + (r < end ? r : end - 1)) / a->heads - p;
                w->last[r] = sees < DS_ATTN_BLOCK ? (float)sees : (float)DS_ATTN_BLOCK;
            }
            panel_block(w, lane, q + (size_t)b * panel, o + (size_t)b * panel, K, V, ld, a->hd, most < n ? (int)most + 1 : n,
                        first < n - 1);
        }
    }
    for (int r = 0; r < rows; r += VL)
        lanes_out(o + (size_t)(r / TILE_COLS) * panel + r % TILE_COLS, w->l + r, a, r0, r, rows);
}

static void attn(const struct ds_attn_args *a)
{
    int rows = (a->t1 - a->t0) * a->heads;
    for (int r = 0; r < rows; r += ATTN_LANES) attn_group(a, r, rows - r < ATTN_LANES ? rows - r : ATTN_LANES);
}

/* --- decode --- */

enum { DECODE_HEADS = 8 };      /* heads that share one pass over a block of V */

/* acc[h][i] = keep[h] acc[h][i] + sum_j p[h][j] V[j][i] for `heads` heads (a constant) and `vecs` vectors of dims. */
INLINE void decode_fold(float *acc, size_t hd, const float *keep, int heads, int vecs, float p[][DS_ATTN_BLOCK], const void *V,
                        size_t ldkv, bool f16, int n)
{
    vf x[DECODE_HEADS][DECODE_VECS];
#pragma GCC unroll 8
    for (int h = 0; h < heads; h++)
#pragma GCC unroll 8
        for (int c = 0; c < vecs; c++) x[h][c] = v_mul(v_set1(keep[h]), v_load(acc + (size_t)h * hd + c * VL));
    for (int j = 0; j < n; j++) {
        vf v[DECODE_VECS];
#pragma GCC unroll 8
        for (int c = 0; c < vecs; c++)
            v[c] = f16 ? v_load_f16((const uint16_t *)V + (size_t)j * ldkv + c * VL)
                       : v_load((const float *)V + (size_t)j * ldkv + c * VL);
#pragma GCC unroll 8
        for (int h = 0; h < heads; h++) {
            vf w = v_set1(p[h][j]);
#pragma GCC unroll 8
            for (int c = 0; c < vecs; c++) x[h][c] = v_fma(w, v[c], x[h][c]);
        }
    }
#pragma GCC unroll 8
    for (int h = 0; h < heads; h++)
#pragma GCC unroll 8
        for (int c = 0; c < vecs; c++) v_store(acc + (size_t)h * hd + c * VL, x[h][c]);
}

/* The same for all hd dims. */
INLINE void decode_values(float *acc, const float *keep, int heads, float p[][DS_ATTN_BLOCK], const struct ds_attn_args *a,
                          int64_t p0, int n, bool f16)
{
    size_t es = f16 ? 2 : 4, hd = (size_t)a->hd, i = 0;
    const unsigned char *V = (const unsigned char *)a->V + (size_t)p0 * a->ldkv * es;
    for (; i + DECODE_VECS * VL <= hd; i += DECODE_VECS * VL)
        decode_fold(acc + i, hd, keep, heads, DECODE_VECS, p, V + i * es, a->ldkv, f16, n);
    for (; i + VL <= hd; i += VL) decode_fold(acc + i, hd, keep, heads, 1, p, V + i * es, a->ldkv, f16, n);
    for (; i < hd; i++) {
        for (int h = 0; h < heads; h++) {
            float s = keep[h] * acc[(size_t)h * hd + i];
            for (int j = 0; j < n; j++) {
                size_t at = (size_t)j * a->ldkv + i;
                s += p[h][j] *
                     (f16 ? ds_f16_to_f32(((const uint16_t *)(const void *)V)[at]) : ((const float *)(const void *)V)[at]);
            }
            acc[(size_t)h * hd + i] = s;
        }
    }
}

/* Asks for the rows of K and V of n positions from p on, as far as they exist. A row is a few lines in a stride of
 * kilobytes, too short for the hardware to foresee the next. */
static void decode_prefetch(const struct ds_attn_args *a, int64_t p, int n)
{
    size_t es = a->kv_f16 ? 2 : 4;
    for (int64_t r = p; r < p + n && r <= a->pos; r++) {
        const char *k = (const char *)a->K + (size_t)r * a->ldkv * es, *v = (const char *)a->V + (size_t)r * a->ldkv * es;
        for (size_t i = 0; i < (size_t)a->hd * es; i += 64) {
            __builtin_prefetch(k + i, 0, 2);
            __builtin_prefetch(v + i, 0, 2);
        }
    }
}

/* Scores of n keys from p0 on for heads h0.., scaled; s has a row for each head. */
INLINE void decode_scores(float s[][DS_ATTN_BLOCK], const struct ds_attn_args *a, int h0, int heads, int64_t p0, int n, bool f16)
{
    const float *q[DOTS_ROWS];
    const void *k[DOTS_COLS];
    for (int g = 0; g < heads; g += DOTS_ROWS) {
        for (int r = 0; r < DOTS_ROWS; r++)
            q[r] = a->q + (size_t)a->t0 * a->ldq + (size_t)(h0 + (g + r < heads ? g + r : heads - 1)) * a->q_step;
        for (int j = 0; j < n; j += DOTS_COLS) {
            for (int c = 0; c < DOTS_COLS; c++)
                k[c] = (const unsigned char *)a->K + (size_t)(p0 + (j + c < n ? j + c : n - 1)) * a->ldkv * (f16 ? 2 : 4);
            if (!h0 && !g) decode_prefetch(a, p0 + DS_ATTN_BLOCK + j, DOTS_COLS);
            tile_dots(s[g] + j, DS_ATTN_BLOCK, q, k, f16, a->hd);
        }
    }
    for (int h = 0; h < heads; h++)
        for (int j = 0; j < DS_ATTN_BLOCK; j++) s[h][j] = j < n ? s[h][j] * a->scale : -INFINITY;
}

/* n <= DS_ATTN_BLOCK keys from p0 on, for `heads` <= DECODE_HEADS heads from h0 on. */
INLINE void decode_block(float *m, float *l, float *acc, const struct ds_attn_args *a, int h0, int heads, int64_t p0, int n,
                         bool f16)
{
    float s[DECODE_HEADS][DS_ATTN_BLOCK], keep[DECODE_HEADS];
    decode_scores(s, a, h0, heads, p0, n, f16);
    for (int h = 0; h < heads; h++) {
        float top = m[h0 + h];
        vf sum = v_zero();
        for (int j = 0; j < n; j++) top = s[h][j] > top ? s[h][j] : top;
        for (int j = 0; j < n; j += VL) {
            vf p = v_exp(v_sub(v_load(s[h] + j), v_set1(top)));
            v_store(s[h] + j, p);
            sum = v_add(sum, p);
        }
        keep[h] = expf(m[h0 + h] - top);
        l[h0 + h] = l[h0 + h] * keep[h] + v_sum(sum);
        m[h0 + h] = top;
    }
    acc += (size_t)h0 * (size_t)a->hd;
    int h = 0;
    if (heads - h >= 6) decode_values(acc, keep, 6, s, a, p0, n, f16), h = 6;
    if (heads - h >= 4) decode_values(acc + (size_t)h * (size_t)a->hd, keep + h, 4, s + h, a, p0, n, f16), h += 4;
    if (heads - h >= 2) decode_values(acc + (size_t)h * (size_t)a->hd, keep + h, 2, s + h, a, p0, n, f16), h += 2;
    if (heads - h >= 1) decode_values(acc + (size_t)h * (size_t)a->hd, keep + h, 1, s + h, a, p0, n, f16);
}

static void attn_part(float *m, float *l, float *acc, const struct ds_attn_args *a, int64_t p0, int64_t p1)
{
    for (int64_t p = p0; p < p1; p += DS_ATTN_BLOCK) {
        int n = p1 - p < DS_ATTN_BLOCK ? (int)(p1 - p) : DS_ATTN_BLOCK;
        for (int h = 0; h < a->heads; h += DECODE_HEADS) {
            int heads = a->heads - h < DECODE_HEADS ? a->heads - h : DECODE_HEADS;
            if (a->kv_f16) decode_block(m, l, acc, a, h, heads, p, n, true);
            else decode_block(m, l, acc, a, h, heads, p, n, false);
        }
    }
}

#endif
