#include "quant/act.h"

#include "quant/type.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Bits of |x|. Their order as integers is that of the magnitudes, with infinity and then NaN on top. */
static inline int32_t magnitude(float x)
{
    int32_t u;
    memcpy(&u, &x, sizeof u);
    return u & 0x7fffffff;
}

static inline float from_bits(int32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static const int32_t not_finite = 0x7f800000;

/* Half away from zero. The difference is exact, unlike x + 0.5. */
static inline int round_away(float x)
{
    int i = (int)x;
    float rest = x - (float)i;
    return i + (rest >= 0.5f) - (rest <= -0.5f);
}

/* Half to even for |x| < 2^22: adding 1.5 * 2^23 leaves no fraction bits. */
static inline int round_even(float x)
{
    float y = x + 12582912.0f;
    int32_t u;
    memcpy(&u, &y, sizeof u);
    return (u & 0x7fffff) - 0x400000;
}

void ds_act_q8_0(struct ds_block_q8_0 *b, const float *x, size_t n)
{
    for (; n; n -= DS_QK, x += DS_QK, b++) {
        int32_t top = 0;
        for (int i = 0; i < DS_QK; i++) {
            int32_t m = magnitude(x[i]);
            top = m > top ? m : top;
        }
        float d = from_bits(top) / 127;
        if (top >= not_finite || d < FLT_MIN) {
            b->d = ds_f32_to_f16(top >= not_finite ? NAN : d);
            memset(b->q, 0, sizeof b->q);
            continue;
        }
        float inverse = 1 / d;
        b->d = ds_f32_to_f16(d);
        for (int i = 0; i < DS_QK; i++) b->q[i] = (int8_t)round_away(x[i] * inverse);
    }
}

void ds_act_q8_k(struct ds_block_q8_k *b, const float *x, size_t n)
{
    for (; n; n -= DS_QKK, x += DS_QKK, b++) {
        int32_t top = 0;
        for (int i = 0; i < DS_QKK; i++) {
            int32_t m = magnitude(x[i]);
            top = m > top ? m : top;
        }
        if (top >= not_finite || from_bits(top) <= 127 / FLT_MAX) {
            memset(b, 0, sizeof *b);
            b->d = top >= not_finite ? NAN : 0;
            continue;
        }
        int first = 0;
        while (magnitude(x[first]) != top) first++;
        float s = -127 / x[first];
        for (int i = 0; i < DS_QKK; i++) b->q[i] = (int8_t)round_even(s * x[i]);     /* |s x| is 127 and a few ulp at most */
        for (int g = 0; g < 16; g++) {
            int sum = 0;
            for (int i = 0; i < 16; i++) sum += b->q[16 * g + i];
            b->bsums[g] = (int16_t)sum;
        }
        b->d = 1 / s;
    }
}
