/* Sixteen uneven levels: IQ4_NL (32 with one scale), IQ4_XS (256 with eight 6-bit scales). */
#include "quant/blocks.h"
#include "quant/families.h"
#include "quant/random.h"
#include "quant/type.h"

static const int8_t levels[16] = DS_IQ4_VALUES;

static inline void decode_32(float *dst, const uint8_t qs[16], float d)
{
    for (int j = 0; j < 16; j++) {
        dst[j] = d * (float)levels[qs[j] & 15];
        dst[j + 16] = d * (float)levels[qs[j] >> 4];
    }
}

void ds_iq4_nl_decode(float *dst, const void *src, size_t n)
{
    const struct ds_block_iq4_nl *b = src;
    for (; n; n -= DS_QK, dst += DS_QK, b++) decode_32(dst, b->qs, ds_f16_to_f32(b->d));
}

void ds_iq4_xs_decode(float *dst, const void *src, size_t n)
{
    const struct ds_block_iq4_xs *b = src;
    for (; n; n -= DS_QKK, dst += DS_QKK, b++) {
        float d = ds_f16_to_f32(b->d);
        for (int j = 0; j < 8; j++) decode_32(dst + 32 * j, b->qs + 16 * j, d * (float)ds_iq4_xs_scale(b, j));
    }
}

/* The levels are not symmetric, so either sign of the scale is drawn: the mean is 0 over many blocks. */
static void levels_fill(struct ds_levels *t)
{
    float v[16];
    for (int i = 0; i < 16; i++) v[i] = levels[i];
    ds_levels_fill(t, v, 16, 55);
}

void ds_iq4_nl_random(void *dst, size_t n, float sd, uint64_t seed)
{
    struct ds_levels t;
    struct ds_draw r;
    levels_fill(&t);
    ds_draw_seed(&r, seed);
    struct ds_block_iq4_nl *b = dst;
    for (; n; n -= DS_QK, b++) {
        b->d = ds_f32_to_f16(sd / t.sd * ds_draw_spread(&r, 1));
        ds_levels_draw_nibbles(b->qs, 16, &t, &r);
    }
}

void ds_iq4_xs_random(void *dst, size_t n, float sd, uint64_t seed)
{
    struct ds_levels t;
    struct ds_draw r;
    levels_fill(&t);
    ds_draw_seed(&r, seed);
    struct ds_block_iq4_xs *b = dst;
    for (; n; n -= DS_QKK, b++) {
        /* Sub-block scales -28..-24 and 24..28: rms 26.04. */
        b->d = ds_f32_to_f16(sd / (t.sd * 26.04f) * ds_draw_spread(&r, 0));
        uint64_t u = ds_draw_u64(&r);
        b->scales_h = 0;
        for (int j = 0; j < 8; j++, u >>= 8) {
            int ls = 24 + (int)((u & 127) % 5), code = (u & 128 ? -ls : ls) + 32;
            if (j & 1) b->scales_l[j / 2] |= (uint8_t)((code & 15) << 4);
            else b->scales_l[j / 2] = (uint8_t)(code & 15);
            b->scales_h |= (uint16_t)((code >> 4) << (2 * j));
        }
        ds_levels_draw_nibbles(b->qs, 128, &t, &r);
    }
}
