/* Inner kernels of integer weights with four rows to a vector: eight rows at a time, NT tokens. The
 * including file has defined dot_groups(NT, J, s, q, x): s[v][t] += products of J groups of four, whose
 * weights lie 4 * ROWS bytes and whose activations lie 4 * NT bytes apart. */

enum { RV = 2 };

static inline struct dot_kind kind_of(enum ds_type_id id)
{
    (void)id;
    return (struct dot_kind){ 0 };
}

/* q[j][row][4]. */
static inline void transpose_32(uint8_t *q, const int8_t *rows, int bias)
{
    (void)bias;
    for (int r = 0; r < ROWS; r += 4)
        for (int h = 0; h < 2; h++) {
            int32x4_t a[4];
            for (int i = 0; i < 4; i++) a[i] = vreinterpretq_s32_s8(vld1q_s8(rows + 256 * (r + i) + 16 * h));
            transpose_4x4(a);
            for (int j = 0; j < 4; j++) vst1q_s8((int8_t *)q + 4 * ROWS * (4 * h + j) + 4 * r, vreinterpretq_s8_s32(a[j]));
        }
}

INLINE void sums_zero(int NT, int32x4_t (*s)[TOKS])
{
    UNROLL for (int v = 0; v < RV; v++)
        UNROLL for (int t = 0; t < NT; t++) s[v][t] = vdupq_n_s32(0);
}

INLINE void tile_q8_0(int NT, struct dot_kind kind, bool mins, const struct panel *p, const char *x0, float *acc, int len, bool first)
{
    (void)kind;
    for (int h = 0; h < ROWS; h += 4 * RV) {
        float32x4_t y[RV][TOKS];
        UNROLL for (int v = 0; v < RV; v++)
            UNROLL for (int t = 0; t < NT; t++) y[v][t] = first ? vdupq_n_f32(0) : vld1q_f32(acc + ROWS * t + h + 4 * v);
        const int8_t *q = (const int8_t *)p->q + 4 * h;
        const float *scale = p->scale + h, *min = p->min + h;
        const char *x = x0;
        for (int b = 0; b < len / 32; b++, q += 32 * ROWS, scale += ROWS, min += ROWS, x += Q8_0_BYTES * NT) {
            int32x4_t s[RV][TOKS];
            sums_zero(NT, s);
            dot_groups(NT, 8, s, q, x);
            UNROLL for (int v = 0; v < RV; v++) {
                float32x4_t dw = vld1q_f32(scale + 4 * v);
                UNROLL for (int t = 0; t < NT; t++)
                    y[v][t] = vfmaq_f32(y[v][t], vcvtq_f32_s32(s[v][t]), vmulq_n_f32(dw, load_f(x + 32 * NT + 4 * t)));
            }
            if (mins)
                UNROLL for (int t = 0; t < NT; t++) {
                    float sx = (float)load_i(x + 36 * NT + 4 * t) * load_f(x + 32 * NT + 4 * t);
                    UNROLL for (int v = 0; v < RV; v++) y[v][t] = vfmaq_n_f32(y[v][t], vld1q_f32(min + 4 * v), sx);
                }
        }
        UNROLL for (int v = 0; v < RV; v++)
            UNROLL for (int t = 0; t < NT; t++) vst1q_f32(acc + ROWS * t + h + 4 * v, y[v][t]);
    }
}

INLINE void tile_q8_k(int NT, struct dot_kind kind, int group, int mgroup, const struct panel *p, const char *x0, float *acc, int len, bool first)
{
    (void)kind;
    for (int h = 0; h < ROWS; h += 4 * RV) {
        const int8_t *q = (const int8_t *)p->q + 4 * h;
        const float *scale = p->scale + h, *min = p->min + h;
        const int16_t *m = p->m + 2 * h;
        const char *x = x0;
        for (int b = 0; b < len / 256; b++, x += Q8_K_BYTES * NT) {
            float32x4_t y[RV][TOKS];
            UNROLL for (int v = 0; v < RV; v++)
                UNROLL for (int t = 0; t < NT; t++) y[v][t] = vdupq_n_f32(0);
            for (int g = 0; g < 256 / group; g++, q += group * ROWS, scale += ROWS) {
                int32x4_t s[RV][TOKS];
                sums_zero(NT, s);
                if (group == 16) dot_groups(NT, 4, s, q, x + 16 * NT * g);
                else if (group == 32) dot_groups(NT, 8, s, q, x + 32 * NT * g);
                else
                    for (int i = 0; i < 8; i++) dot_groups(NT, 8, s, q + 32 * ROWS * i, x + 32 * NT * i);
                UNROLL for (int v = 0; v < RV; v++) {
                    float32x4_t dw = vld1q_f32(scale + 4 * v);
                    UNROLL for (int t = 0; t < NT; t++) y[v][t] = vfmaq_f32(y[v][t], vcvtq_f32_s32(s[v][t]), dw);
                }
            }
            if (mgroup) {
                UNROLL for (int v = 0; v < RV; v++)
                    UNROLL for (int t = 0; t < NT; t++)
                        y[v][t] = vfmaq_f32(y[v][t], vcvtq_f32_s32(minima_4(NT, mgroup, m + 8 * v, x, t)), vld1q_f32(min + 4 * v));
                m += 256 / mgroup * ROWS;
                min += ROWS;
            }
            UNROLL for (int v = 0; v < RV; v++)
                UNROLL for (int t = 0; t < NT; t++) {
                    float *a = acc + ROWS * t + h + 4 * v, d = load_f(x + K_D * NT + 4 * t);
                    vst1q_f32(a, first && b == 0 ? vmulq_n_f32(y[v][t], d) : vfmaq_n_f32(vld1q_f32(a), y[v][t], d));
                }
        }
    }
}

#include "kernels/gemm_products.h"
