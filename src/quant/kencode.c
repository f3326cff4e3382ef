/* Encoders of the super-blocks: Q4_K, Q6_K. Each sub-block searches a few steps around the obvious one and
 * takes the scale (and minimum) of least weighted squared error; then the scales are rounded in turn and
 * the codes chosen for the scales as stored. */
#include "quant/blocks.h"
#include "quant/families.h"
#include "quant/type.h"

#include <math.h>
#include <string.h>

static const float too_small = 1e-30f;   /* below this a block is zero; its inverse would overflow */

/* Nearest integer of |x| < 2^22. */
static inline int nearest(float x)
{
    float y = x + 12582912.0f;
    int32_t u;
    memcpy(&u, &y, sizeof u);
    return (u & 0x7fffff) - 0x400000;
}

static inline int clamp(int v, int lo, int hi) { return v < lo ? lo : v > hi ? hi : v; }

void ds_k4_scales_set(uint8_t s[12], const int sc[8], const int m[8])
{
    for (int j = 0; j < 4; j++) {
        s[j] = (uint8_t)(sc[j] | (sc[j + 4] >> 4) << 6);
        s[j + 4] = (uint8_t)(m[j] | (m[j + 4] >> 4) << 6);
        s[j + 8] = (uint8_t)((sc[j + 4] & 15) | (m[j + 4] & 15) << 4);
    }
}

/* --- scale and minimum: x ~ scale q - min, q = 0..15, min >= 0 --- */

struct affine { float scale, min, gain; };   /* gain: weighted sum of squares that the fit takes away */

/* Codes for the step 1 / inverse from lo up, then the best scale and minimum for those codes. */
static struct affine fit_affine(const float x[32], const float w[32], float lo, float inverse)
{
    float sw = 0, sq = 0, sqq = 0, sx = 0, sxq = 0;
    for (int i = 0; i < 32; i++) {
        float v = (x[i] - lo) * inverse + 0.5f, q = (float)(int)(v < 15.5f ? v : 15.0f), wq = w[i] * q;
        sw += w[i];
        sq += wq;
        sqq += wq * q;
        sx += w[i] * x[i];
        sxq += wq * x[i];
    }
    float det = sw * sqq - sq * sq;
    struct affine a = { 0, -1, 0 };
    if (det > 1e-5f * sw * sqq) {                      /* else all codes are equal: the scale alone */
        a.scale = (sw * sxq - sx * sq) / det;
        a.min = (sq * sxq - sqq * sx) / det;
    }
    if (a.min < 0) {
        a.min = 0;
        a.scale = sxq / sqq;
    }
    a.gain = a.scale * sxq - a.min * sx;
    return a;
}

static struct affine search_affine(const float x[32])
{
    float lo = 0, hi = x[0], square = 0, w[32];
    for (int i = 0; i < 32; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
        square += x[i] * x[i];
    }
    struct affine best = { 0, -lo, -1 };
    if (hi - lo <= too_small) return best;
    float rms = sqrtf(square / 32);
    for (int i = 0; i < 32; i++) w[i] = rms + fabsf(x[i]);       /* large weights matter more */
    for (int step = 0; step <= 20; step++) {
        struct affine a = fit_affine(x, w, lo, (14 + 0.1f * (float)step) / (hi - lo));
        if (a.gain > best.gain) best = a;
    }
    return best;
}

void ds_q4_k_encode(void *dst, const float *src, size_t n)
{
    struct ds_block_q4_k *b = dst;
    for (; n; n -= DS_QKK, src += DS_QKK, b++) {
        struct affine a[8];
        float top_scale = 0, top_min = 0;
        for (int j = 0; j < 8; j++) {
            a[j] = search_affine(src + 32 * j);
            top_scale = a[j].scale > top_scale ? a[j].scale : top_scale;
            top_min = a[j].min > top_min ? a[j].min : top_min;
        }
        b->d = ds_f32_to_f16(top_scale / 63);
        b->dmin = ds_f32_to_f16(top_min / 63);
        float d = ds_f16_to_f32(b->d), dmin = ds_f16_to_f32(b->dmin);
        int sc[8], m[8];
        for (int j = 0; j < 8; j++) {
            sc[j] = top_scale > too_small ? nearest(63 * (a[j].scale / top_scale)) : 0;
            m[j] = top_min > too_small ? nearest(63 * (a[j].min / top_min)) : 0;
            sc[j] = sc[j] > 0 ? sc[j] : 0;
        }
        ds_k4_scales_set(b->scales, sc, m);
        memset(b->qs, 0, sizeof b->qs);
        for (int j = 0; j < 8; j++) {
            float scale = d * (float)sc[j], min = dmin * (float)m[j];
            if (scale < too_small) continue;
            for (int l = 0; l < 32; l++) {
                float v = (src[32 * j + l] + min) / scale;
                b->qs[32 * (j / 2) + l] |= (uint8_t)(nearest(v < 0 ? 0 : v > 15 ? 15 : v) << (4 * (j & 1)));
            }
        }
    }
}

/* --- scale alone: x ~ scale q, q = -32..31 --- */

static float search_scale(const float x[16])
{
    float extreme = 0, best = 0, best_gain = 0;
    for (int i = 0; i < 16; i++)
        if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
    if (fabsf(extreme) <= too_small) return 0;
    for (int step = -9; step <= 9; step++) {
        float inverse = -(32 + 0.1f * (float)step) / extreme, sqq = 0, sxq = 0;
        for (int i = 0; i < 16; i++) {
            float q = (float)clamp(nearest(x[i] * inverse), -32, 31), w = x[i] * x[i], wq = w * q;
            sqq += wq * q;
            sxq += wq * x[i];
        }
        if (sqq > 0 && sxq * sxq > best_gain * sqq) {
            best_gain = sxq * sxq / sqq;
            best = sxq / sqq;
        }
    }
    return best;
}

void ds_q6_k_encode(void *dst, const float *src, size_t n)
{
    struct ds_block_q6_k *b = dst;
    for (; n; n -= DS_QKK, src += DS_QKK, b++) {
        float scale[16], top = 0;
        for (int g = 0; g < 16; g++) {
            scale[g] = search_scale(src + 16 * g);
            top = fabsf(scale[g]) > fabsf(top) ? scale[g] : top;
        }
        memset(b, 0, sizeof *b);
        b->d = ds_f32_to_f16(top / -128);
        float d = ds_f16_to_f32(b->d);
        for (int g = 0; g < 16; g++) {
            b->scales[g] = (int8_t)(top != 0 ? clamp(nearest(-128 * (scale[g] / top)), -128, 127) : 0);
            float step = d * (float)b->scales[g], inverse = fabsf(step) > too_small ? 1 / step : 0;
            int half = g / 8, k = g / 2 % 4, l = 16 * (g & 1);
            for (int i = 0; i < 16; i++) {
                float v = src[16 * g + i] * inverse;
                int q = nearest(v < -32 ? -32 : v > 31 ? 31 : v) + 32;
                b->ql[64 * half + 32 * (k & 1) + l + i] |= (uint8_t)((q & 15) << (4 * (k / 2)));
                b->qh[32 * half + l + i] |= (uint8_t)((q >> 4) << (2 * k));
            }
        }
    }
}
