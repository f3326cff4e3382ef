/* The small blocks of 32 with one scale, or a scale and a minimum: Q4_0, Q4_1, Q5_0, Q5_1. */
#include "quant/blocks.h"
#include "quant/families.h"
#include "quant/random.h"
#include "quant/type.h"

/* --- decode --- */

void ds_q4_0_decode(float *dst, const void *src, size_t n)
{
    const struct ds_block_q4_0 *b = src;
    for (; n; n -= DS_QK, dst += DS_QK, b++) {
        float d = ds_f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)((b->qs[j] & 15) - 8);
            dst[j + 16] = d * (float)((b->qs[j] >> 4) - 8);
        }
    }
}

void ds_q4_1_decode(float *dst, const void *src, size_t n)
{
    const struct ds_block_q4_1 *b = src;
    for (; n; n -= DS_QK, dst += DS_QK, b++) {
        float d = ds_f16_to_f32(b->d), m = ds_f16_to_f32(b->m);
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)(b->qs[j] & 15) + m;
            dst[j + 16] = d * (float)(b->qs[j] >> 4) + m;
        }
    }
}

void ds_q5_0_decode(float *dst, const void *src, size_t n)
{
    const struct ds_block_q5_0 *b = src;
    for (; n; n -= DS_QK, dst += DS_QK, b++) {
        float d = ds_f16_to_f32(b->d);
        uint32_t qh = b->qh;
        for (int j = 0; j < 16; j++) {
            int lo = (b->qs[j] & 15) | (int)(qh >> j & 1) << 4, hi = (b->qs[j] >> 4) | (int)(qh >> (j + 16) & 1) << 4;
            dst[j] = d * (float)(lo - 16);
            dst[j + 16] = d * (float)(hi - 16);
        }
    }
}

void ds_q5_1_decode(float *dst, const void *src, size_t n)
{
    const struct ds_block_q5_1 *b = src;
    for (; n; n -= DS_QK, dst += DS_QK, b++) {
        float d = ds_f16_to_f32(b->d), m = ds_f16_to_f32(b->m);
        uint32_t qh = b->qh;
        for (int j = 0; j < 16; j++) {
            int lo = (b->qs[j] & 15) | (int)(qh >> j & 1) << 4, hi = (b->qs[j] >> 4) | (int)(qh >> (j + 16) & 1) << 4;
            dst[j] = d * (float)lo + m;
            dst[j + 16] = d * (float)hi + m;
        }
    }
}

/* --- encode --- */

/* The element of largest magnitude becomes -8, so that all sixteen codes are in use. */
void ds_q4_0_encode(void *dst, const float *src, size_t n)
{
    struct ds_block_q4_0 *b = dst;
    for (; n; n -= DS_QK, src += DS_QK, b++) {
        float lo = 0, hi = 0;
        for (int i = 0; i < DS_QK; i++) {
            lo = src[i] < lo ? src[i] : lo;
            hi = src[i] > hi ? src[i] : hi;
        }
        float d = (hi > -lo ? hi : lo) / -8, inverse = d != 0 ? 1 / d : 0;
        b->d = ds_f32_to_f16(d);
        for (int j = 0; j < 16; j++) {
            int x = (int)(src[j] * inverse + 8.5f), y = (int)(src[j + 16] * inverse + 8.5f);
            b->qs[j] = (uint8_t)((x < 15 ? x : 15) | (y < 15 ? y : 15) << 4);
        }
    }
}

/* --- random --- */

static uint32_t draw_fives(uint8_t qs[16], const struct ds_levels *t, struct ds_draw *r)
{
    uint32_t qh = 0;
    for (int j = 0; j < 16; j++) {
        int lo = ds_levels_draw(t, r), hi = ds_levels_draw(t, r);
        qs[j] = (uint8_t)((lo & 15) | (hi & 15) << 4);
        qh |= (uint32_t)(lo >> 4) << j | (uint32_t)(hi >> 4) << (j + 16);
    }
    return qh;
}

void ds_q4_0_random(void *dst, size_t n, float sd, uint64_t seed)
{
    struct ds_levels t;
    struct ds_draw r;
    ds_levels_fill_range(&t, -8, 16, 3.6f);
    ds_draw_seed(&r, seed);
    struct ds_block_q4_0 *b = dst;
    for (; n; n -= DS_QK, b++) {
        b->d = ds_f32_to_f16(sd / t.sd * ds_draw_spread(&r, 1));
        ds_levels_draw_nibbles(b->qs, 16, &t, &r);
    }
}

void ds_q4_1_random(void *dst, size_t n, float sd, uint64_t seed)
{
    struct ds_levels t;
    struct ds_draw r;
    ds_levels_fill_range(&t, -7.5f, 16, 3.6f);
    ds_draw_seed(&r, seed);
    struct ds_block_q4_1 *b = dst;
    for (; n; n -= DS_QK, b++) {
        float d = sd / t.sd * ds_draw_spread(&r, 0);
        b->d = ds_f32_to_f16(d);
        b->m = ds_f32_to_f16(-7.5f * d);
        ds_levels_draw_nibbles(b->qs, 16, &t, &r);
    }
}

void ds_q5_0_random(void *dst, size_t n, float sd, uint64_t seed)
{
    struct ds_levels t;
    struct ds_draw r;
    ds_levels_fill_range(&t, -16, 32, 7.5f);
    ds_draw_seed(&r, seed);
    struct ds_block_q5_0 *b = dst;
    for (; n; n -= DS_QK, b++) {
        b->d = ds_f32_to_f16(sd / t.sd * ds_draw_spread(&r, 1));
        b->qh = draw_fives(b->qs, &t, &r);
    }
}

void ds_q5_1_random(void *dst, size_t n, float sd, uint64_t seed)
{
    struct ds_levels t;
    struct ds_draw r;
    ds_levels_fill_range(&t, -15.5f, 32, 7.5f);
    ds_draw_seed(&r, seed);
    struct ds_block_q5_1 *b = dst;
    for (; n; n -= DS_QK, b++) {
        float d = sd / t.sd * ds_draw_spread(&r, 0);
        b->d = ds_f32_to_f16(d);
        b->m = ds_f32_to_f16(-15.5f * d);
        b->qh = draw_fives(b->qs, &t, &r);
    }
}
