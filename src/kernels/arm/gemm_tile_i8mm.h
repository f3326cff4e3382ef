/* Inner kernels on smmla. A vector of weights is two rows of eight elements, one of activations two tokens
 * of eight, a sum the four products: [r0 t0, r0 t1, r1 t0, r1 t1]. Eight rows at a time (RP pairs), up to
 * six tokens (three pairs; of an odd tile's last pair one half is not used).
 *
 *     q  [k/8][ROWS][8] */

enum { RP = 4, TP = TOKS / 2 };

static inline struct dot_kind kind_of(enum ds_type_id id)
{
    (void)id;
    return (struct dot_kind){ 0 };
}

static inline void transpose_32(uint8_t *q, const int8_t *rows, int bias)
{
    (void)bias;
    for (int j = 0; j < 4; j++)
        for (int r = 0; r < ROWS; r++) memcpy(q + 8 * ROWS * j + 8 * r, rows + 256 * r + 8 * j, 8);
}

/* Tokens t and t + 1 of two groups of four that lie `step` apart: [t first, t second, t+1 first, t+1 second]. */
INLINE int8x16_t two_tokens(const char *x, int step)
{
    int32x2_t a, b;
    memcpy(&a, x, 8);
    memcpy(&b, x + step, 8);
    return vreinterpretq_s8_s32(vcombine_s32(vzip1_s32(a, b), vzip2_s32(a, b)));
}

/* s[r][t] += products of J groups of four (J even), rows in pairs at q, tokens in pairs at x. */
INLINE void dot_pairs(int NT, int J, int32x4_t (*s)[TP], const int8_t *q, const char *x)
{
    UNROLL for (int j = 0; j < J; j += 2) {
        int8x16_t w[RP];
        UNROLL for (int r = 0; r < RP; r++) w[r] = vld1q_s8(q + 4 * ROWS * j + 16 * r);
        UNROLL for (int t = 0; t < (NT + 1) / 2; t++) {
            int8x16_t a = two_tokens(x + 4 * NT * j + 8 * t, 4 * NT);
            UNROLL for (int r = 0; r < RP; r++) s[r][t] = vmmlaq_s32(s[r][t], w[r], a);
        }
    }
}

INLINE void sums_zero(int NT, int32x4_t (*s)[TP])
{
    UNROLL for (int r = 0; r < RP; r++)
        UNROLL for (int t = 0; t < (NT + 1) / 2; t++) s[r][t] = vdupq_n_s32(0);
}

/* The scales of four rows for their two pairs: [d0 d0 d1 d1], [d2 d2 d3 d3]. */
INLINE void pair_scales(float32x4_t d[RP], const float *scale)
{
    UNROLL for (int r = 0; r < RP; r += 2) {
        float32x4_t four = vld1q_f32(scale + 2 * r);
        d[r] = vzip1q_f32(four, four);
        d[r + 1] = vzip2q_f32(four, four);
    }
}

/* y[r][t] in 2x2 blocks <-> token t's rows: out[v][t], v: four rows. */
INLINE void rows_of_blocks(int NT, float32x4_t (*out)[TOKS], float32x4_t (*y)[TP])
{
    UNROLL for (int v = 0; v < RP / 2; v++)
        UNROLL for (int t = 0; t < NT; t++)
            out[v][t] = t & 1 ? vuzp2q_f32(y[2 * v][t / 2], y[2 * v + 1][t / 2]) : vuzp1q_f32(y[2 * v][t / 2], y[2 * v + 1][t / 2]);
}

INLINE void tile_q8_0(int NT, struct dot_kind kind, bool mins, const struct panel *p, const char *x0, float *acc, int len, bool first)
{
    (void)kind;
    for (int h = 0; h < ROWS; h += 2 * RP) {
        float32x4_t y[RP][TP], out[RP / 2][TOKS], part[RP / 2][TOKS];      /* part: what the minima add */
        UNROLL for (int r = 0; r < RP; r++)
            UNROLL for (int t = 0; t < (NT + 1) / 2; t++) y[r][t] = vdupq_n_f32(0);
        UNROLL for (int v = 0; v < RP / 2; v++)
            UNROLL for (int t = 0; t < NT; t++) part[v][t] = vdupq_n_f32(0);
        const int8_t *q = (const int8_t *)p->q + 8 * h;
        const float *scale = p->scale + h, *min = p->min + h;
        const char *x = x0;
        for (int b = 0; b < len / 32; b++, q += 32 * ROWS, scale += ROWS, min += ROWS, x += Q8_0_BYTES * NT) {
            int32x4_t s[RP][TP];
            float32x4_t dw[RP];
            sums_zero(NT, s);
            dot_pairs(NT, 8, s, q, x);
            pair_scales(dw, scale);
            UNROLL for (int t = 0; t < (NT + 1) / 2; t++) {
                float32x2_t two;
                memcpy(&two, x + 32 * NT + 8 * t, 8);
                float32x4_t dx = vcombine_f32(two, two);
                UNROLL for (int r = 0; r < RP; r++) y[r][t] = vfmaq_f32(y[r][t], vcvtq_f32_s32(s[r][t]), vmulq_f32(dw[r], dx));
            }
            if (mins)
                UNROLL for (int t = 0; t < NT; t++) {
                    float sx = (float)load_i(x + 36 * NT + 4 * t) * load_f(x + 32 * NT + 4 * t);
                    UNROLL for (int v = 0; v < RP / 2; v++) part[v][t] = vfmaq_n_f32(part[v][t], vld1q_f32(min + 4 * v), sx);
                }
        }
        rows_of_blocks(NT, out, y);
        UNROLL for (int v = 0; v < RP / 2; v++)
            UNROLL for (int t = 0; t < NT; t++) {
                float *a = acc + ROWS * t + h + 4 * v;
                float32x4_t sum = mins ? vaddq_f32(out[v][t], part[v][t]) : out[v][t];
                vst1q_f32(a, first ? sum : vaddq_f32(vld1q_f32(a), sum));
            }
    }
}

INLINE void tile_q8_k(int NT, struct dot_kind kind, int group, int mgroup, const struct panel *p, const char *x0, float *acc, int len, bool first)
{
    (void)kind;
    for (int h = 0; h < ROWS; h += 2 * RP) {
        const int8_t *q = (const int8_t *)p->q + 8 * h;
        const float *scale = p->scale + h, *min = p->min + h;
        const int16_t *m = p->m + 2 * h;
        const char *x = x0;
        for (int b = 0; b < len / 256; b++, x += Q8_K_BYTES * NT) {
            float32x4_t y[RP][TP], out[RP / 2][TOKS];
            UNROLL for (int r = 0; r < RP; r++)
                UNROLL for (int t = 0; t < (NT + 1) / 2; t++) y[r][t] = vdupq_n_f32(0);
            for (int g = 0; g < 256 / group; g++, q += group * ROWS, scale += ROWS) {
                int32x4_t s[RP][TP];
                float32x4_t dw[RP];
                sums_zero(NT, s);
                if (group == 16) dot_pairs(NT, 4, s, q, x + 16 * NT * g);
                else if (group == 32) dot_pairs(NT, 8, s, q, x + 32 * NT * g);
                else
                    for (int i = 0; i < 8; i++) dot_pairs(NT, 8, s, q + 32 * ROWS * i, x + 32 * NT * i);
                pair_scales(dw, scale);
                UNROLL for (int t = 0; t < (NT + 1) / 2; t++)
                    UNROLL for (int r = 0; r < RP; r++) y[r][t] = vfmaq_f32(y[r][t], vcvtq_f32_s32(s[r][t]), dw[r]);
            }
            rows_of_blocks(NT, out, y);
            UNROLL for (int v = 0; v < RP / 2; v++)
                UNROLL for (int t = 0; t < NT; t++) {
                    float *a = acc + ROWS * t + h + 4 * v, d = load_f(x + K_D * NT + 4 * t);
                    if (mgroup) out[v][t] = vfmaq_f32(out[v][t], vcvtq_f32_s32(minima_4(NT, mgroup, m + 8 * v, x, t)), vld1q_f32(min + 4 * v));
                    vst1q_f32(a, first && b == 0 ? vmulq_n_f32(out[v][t], d) : vfmaq_n_f32(vld1q_f32(a), out[v][t], d));
                }
            if (mgroup) {
                m += 256 / mgroup * ROWS;
                min += ROWS;
            }
        }
    }
}

#include "kernels/gemm_products.h"
