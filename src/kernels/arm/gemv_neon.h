/* One token against weight rows, for decode. The including file has defined dot_16(s, w, x): s plus the
 * products of 16 weights and activations in four lanes, in any order. */

enum { PREFETCH_AHEAD = 2048 };

INLINE const char *gemv_activations(enum ds_type_id id, const struct ds_gemm_call *c) { (void)id; return c->x; }

INLINE void prefetch(const char *p, int bytes)
{
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch(p + PREFETCH_AHEAD + i);
}

INLINE int32x4_t dot_32(const int8_t *w, const char *x)
{
    const int8_t *a = (const int8_t *)x;
    return dot_16(dot_16(vdupq_n_s32(0), vld1q_s8(w), vld1q_s8(a)), vld1q_s8(w + 16), vld1q_s8(a + 16));
}

/* Adds one block's products to acc and its minimum's part to mins. */
INLINE void add_32(enum ds_type_id id, const char *w, const char *x, float32x4_t *acc, float *mins)
{
    const struct ds_gemm_form f = ds_gemm_form_of(id);
    int8_t q[32];
    float scale, min = 0;
    struct ds_chunk c = { q, &scale, &min, NULL };
    ds_unpack_32(id, &c, w);
    const float d = load_f(x + 32);
    *acc = vfmaq_n_f32(*acc, vcvtq_f32_s32(dot_32(q, x)), scale * d);
    if (f.min) *mins += min * (d * (-1.0f / 128) * (float)load_i(x + 36));
}

/* Blocks of 32. Two accumulators keep the additions apart. */
INLINE float row_q8_0(enum ds_type_id id, const char *w, const char *x, int k)
{
    const int bytes = ds_block_bytes(id);
    float32x4_t acc0 = vdupq_n_f32(0), acc1 = acc0;
    float mins = 0;
    int b = k / 32;
    for (; b >= 4; b -= 4, w += 4 * bytes, x += 4 * Q8_0_BYTES) {
        prefetch(w, 4 * bytes);
        add_32(id, w, x, &acc0, &mins);
        add_32(id, w + bytes, x + Q8_0_BYTES, &acc1, &mins);
        add_32(id, w + 2 * bytes, x + 2 * Q8_0_BYTES, &acc0, &mins);
        add_32(id, w + 3 * bytes, x + 3 * Q8_0_BYTES, &acc1, &mins);
    }
    for (; b; b--, w += bytes, x += Q8_0_BYTES) add_32(id, w, x, &acc0, &mins);
    return vaddvq_f32(vaddq_f32(acc0, acc1)) + mins;
}

/* Blocks of 256. */
INLINE float row_q8_k(enum ds_type_id id, const char *w, const char *x, int k)
{
    const struct ds_gemm_form f = ds_gemm_form_of(id);
    const int bytes = ds_block_bytes(id);
    float32x4_t acc = vdupq_n_f32(0);
    for (int b = 0; b < k / 256; b++, w += bytes, x += Q8_K_BYTES) {
        int8_t q[256];
        float scale[16], min = 0;
        int16_t m[16];
        struct ds_chunk c = { q, scale, &min, m };
        ds_unpack_256(id, &c, w);
        prefetch(w, bytes);
        float32x4_t y[2] = { vdupq_n_f32(0), vdupq_n_f32(0) };
        int32x4_t whole = vdupq_n_s32(0);
        UNROLL for (int j = 0; j < 8; j++) {
            if (f.group == 256) whole = vaddq_s32(whole, dot_32(q + 32 * j, x + 32 * j));
            else if (f.group == 32) y[j & 1] = vfmaq_n_f32(y[j & 1], vcvtq_f32_s32(dot_32(q + 32 * j, x + 32 * j)), scale[j]);
            else
                UNROLL for (int h = 0; h < 2; h++) {
                    int at = 32 * j + 16 * h;
                    int32x4_t s = dot_16(vdupq_n_s32(0), vld1q_s8(q + at), vld1q_s8((const int8_t *)x + at));
                    y[h] = vfmaq_n_f32(y[h], vcvtq_f32_s32(s), scale[2 * j + h]);
                }
        }
        if (f.group == 256) y[0] = vmulq_n_f32(vcvtq_f32_s32(whole), scale[0]);
        if (f.mgroup) {
            const char *sums = x + (f.mgroup == 16 ? K_M16 : K_M32);
            int32x4_t s = vdupq_n_s32(0);
            for (int j = 0; j < 256 / f.mgroup; j += 4) s = vmlal_s16(s, vld1_s16(m + j), vld1_s16((const int16_t *)(const void *)(sums + 2 * j)));
            y[1] = vfmaq_n_f32(y[1], vcvtq_f32_s32(s), min);
        }
        acc = vfmaq_n_f32(acc, vaddq_f32(y[0], y[1]), load_f(x + K_D));
    }
    return vaddvq_f32(acc);
}

INLINE float row_float(enum ds_type_id id, const char *w, const float *x, int k)
{
    const int bytes = ds_block_bytes(id);
    float32x4_t acc[4] = { vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0) };
    for (int i = 0; i < k; i += 16, w += 16 * bytes) {
        prefetch(w, 16 * bytes);
        for (int j = 0; j < 4 && i + 4 * j < k; j++) {
            float v[4], last[4] = { 0 };
            const float *a = x + i + 4 * j;
            widen(v, id, w + 4 * bytes * j, k - i - 4 * j);
            if (k - i - 4 * j < 4) a = memcpy(last, a, 4 * (size_t)(k - i - 4 * j));
            acc[j] = vfmaq_f32(acc[j], vld1q_f32(v), vld1q_f32(a));
        }
    }
    return vaddvq_f32(vaddq_f32(vaddq_f32(acc[0], acc[1]), vaddq_f32(acc[2], acc[3])));
}

#include "kernels/gemv_rows.h"
