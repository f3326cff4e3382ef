#include "quant/blocks.h"
#include "quant/families.h"
#include "quant/random.h"
#include "quant/type.h"

#include <math.h>
#include <string.h>

static const int8_t levels[16] = DS_MXFP4_VALUES;

/* 2^(e-128); the two smallest are denormal floats. */
static float scale_of(uint8_t e)
{
    uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
    float s;
    memcpy(&s, &bits, sizeof s);
    return s;
}

void ds_mxfp4_decode(float *dst, const void *src, size_t n)
{
    const struct ds_block_mxfp4 *b = src;
    for (; n; n -= DS_QK, dst += DS_QK, b++) {
        float s = scale_of(b->e);
        for (int j = 0; j < 16; j++) {
            dst[j] = s * (float)levels[b->qs[j] & 15];
            dst[j + 16] = s * (float)levels[b->qs[j] >> 4];
        }
    }
}

/* Scales are powers of two, so the deviation is met by the levels' own spread: scale s with
 * sd/s in [3.5, 7), and sigma raised until the rounded and clipped draw has it. */
void ds_mxfp4_random(void *dst, size_t n, float sd, uint64_t seed)
{
    static const float rising[15] = { -12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12 };
    static const uint8_t code[15] = { 15, 14, 13, 12, 11, 10, 9, 0, 1, 2, 3, 4, 5, 6, 7 };
    struct ds_levels t;
    struct ds_draw r;
    int exponent = -127;
    float want = 1;
    if (sd > 0) {
        frexpf(sd / 3.5f, &exponent);
        exponent--;
        want = ldexpf(sd, -exponent);
    }
    float sigma = want;
    for (int i = 0; i < 12; i++) {
        ds_levels_fill(&t, rising, 15, sigma);
        sigma *= want / t.sd;
    }
    int e = exponent + 128;
    ds_draw_seed(&r, seed);
    struct ds_block_mxfp4 *b = dst;
    for (; n; n -= DS_QK, b++) {
        b->e = (uint8_t)(e < 0 ? 0 : e > 254 ? 254 : e);
        for (int j = 0; j < 16; j++) {
            int lo = ds_levels_draw(&t, &r);
            b->qs[j] = (uint8_t)(code[lo] | code[ds_levels_draw(&t, &r)] << 4);
        }
    }
}
