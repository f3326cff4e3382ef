/* What the arm64 variants share: float panels and their kernel, minima, small loads. Included after gemm_tile.h. */
#include <arm_neon.h>

enum { LANES = 4 };

INLINE float load_f(const char *p)
{
    float v;
    memcpy(&v, p, 4);
    return v;
}

INLINE int load_i(const char *p)
{
    int v;
    memcpy(&v, p, 4);
    return v;
}

INLINE int load_h(const char *p)
{
    int16_t v;
    memcpy(&v, p, 2);
    return v;
}

/* a[i][j] <-> a[j][i] for 4x4 dwords. */
INLINE void transpose_4x4(int32x4_t a[4])
{
    int32x4_t b0 = vtrn1q_s32(a[0], a[1]), b1 = vtrn2q_s32(a[0], a[1]), b2 = vtrn1q_s32(a[2], a[3]), b3 = vtrn2q_s32(a[2], a[3]);
    a[0] = vreinterpretq_s32_s64(vtrn1q_s64(vreinterpretq_s64_s32(b0), vreinterpretq_s64_s32(b2)));
    a[1] = vreinterpretq_s32_s64(vtrn1q_s64(vreinterpretq_s64_s32(b1), vreinterpretq_s64_s32(b3)));
    a[2] = vreinterpretq_s32_s64(vtrn2q_s64(vreinterpretq_s64_s32(b0), vreinterpretq_s64_s32(b2)));
    a[3] = vreinterpretq_s32_s64(vtrn2q_s64(vreinterpretq_s64_s32(b1), vreinterpretq_s64_s32(b3)));
}

static inline void transpose_dwords(void *to, const void *rows, int stride, int n)
{
    for (int j = 0; j < n; j += 4)
        for (int r = 0; r < ROWS; r += 4) {
            int32x4_t a[4];
            for (int i = 0; i < 4; i++) a[i] = vld1q_s32((const int32_t *)(const void *)((const char *)rows + stride * (r + i) + 4 * j));
            transpose_4x4(a);
            for (int i = 0; i < 4; i++) vst1q_s32((int32_t *)to + ROWS * (j + i) + r, a[i]);
        }
}

static inline void transpose_32_wide(int16_t *q, const int8_t *rows) { (void)q, (void)rows; }   /* no kernel here wants int16 */

/* LANES elements of a row as f32, zeros past `left`. */
static inline void widen(float *dst, enum ds_type_id id, const char *src, int left)
{
    char last[16] = { 0 };
    if (left < LANES) {
        memcpy(last, src, (size_t)left * (id == DS_T_F32 ? 4 : 2));
        src = last;
    }
    uint16_t h[4];
    memcpy(h, src, 8);
    if (id == DS_T_F32) memcpy(dst, src, 16);
    else if (id == DS_T_F16) vst1q_f32(dst, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(h))));
    else vst1q_f32(dst, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(h), 16)));
}

static inline void transpose_f32(float *q, const float *rows)
{
    int32x4_t a[4];
    for (int i = 0; i < 4; i++) a[i] = vld1q_s32((const int32_t *)(const void *)(rows + 4 * i));
    transpose_4x4(a);
    for (int i = 0; i < 4; i++) vst1q_s32((int32_t *)(void *)(q + ROWS * i), a[i]);
}

/* Sixteen rows times NT tokens of f32 chains. */
INLINE void tile_f32(int NT, const struct panel *p, const char *x, float *acc, int len, bool first)
{
    enum { RV = ROWS / 4 };
    float32x4_t y[RV][TOKS];
    UNROLL for (int v = 0; v < RV; v++)
        UNROLL for (int t = 0; t < NT; t++) y[v][t] = vdupq_n_f32(0);
    const float *q = (const float *)p->q;
    for (int i = 0; i < len; i++, q += ROWS, x += 4 * NT) {
        float32x4_t w[RV];
        UNROLL for (int v = 0; v < RV; v++) w[v] = vld1q_f32(q + 4 * v);
        UNROLL for (int t = 0; t < NT; t++) {
            float32x4_t a = vdupq_n_f32(load_f(x + 4 * t));
            UNROLL for (int v = 0; v < RV; v++) y[v][t] = vfmaq_f32(y[v][t], w[v], a);
        }
    }
    UNROLL for (int v = 0; v < RV; v++)
        UNROLL for (int t = 0; t < NT; t++) {
            float *a = acc + ROWS * t + 4 * v;
            vst1q_f32(a, first ? y[v][t] : vaddq_f32(y[v][t], vld1q_f32(a)));
        }
}

/* The integer minima of one block of 256: sum_j m[j][row] * sums[j][token] for four rows. */
INLINE int32x4_t minima_4(int NT, int mgroup, const int16_t *m, const char *x, int t)
{
    const int sums_at = mgroup == 16 ? K_M16 : K_M32;
    int32x4_t s = vdupq_n_s32(0);
    for (int j = 0; j < 128 / mgroup; j++) {
        const char *two = x + sums_at * NT + 4 * NT * j + 4 * t;
        int16x4x2_t pair = vld2_s16(m + 2 * ROWS * j);
        s = vmlal_n_s16(s, pair.val[0], (int16_t)load_h(two));
        s = vmlal_n_s16(s, pair.val[1], (int16_t)load_h(two + 2));
    }
    return s;
}
