#include "quant/act.h"
#include "quant/blocks.h"
#include "quant/families.h"
#include "quant/random.h"
#include "quant/type.h"

void ds_q8_0_decode(float *dst, const void *src, size_t n)
{
    const struct ds_block_q8_0 *b = src;
    for (; n; n -= DS_QK, dst += DS_QK, b++) {
        float d = ds_f16_to_f32(b->d);
        for (int i = 0; i < DS_QK; i++) dst[i] = d * (float)b->q[i];
    }
}

void ds_q8_0_encode(void *dst, const float *src, size_t n) { ds_act_q8_0(dst, src, n); }

void ds_q8_0_random(void *dst, size_t n, float sd, uint64_t seed)
{
    struct ds_levels t;
    struct ds_draw r;
    ds_levels_fill_range(&t, -127, 255, 42);
    ds_draw_seed(&r, seed);
    struct ds_block_q8_0 *b = dst;
    for (; n; n -= DS_QK, b++) {
        b->d = ds_f32_to_f16(sd / t.sd * ds_draw_spread(&r, 0));
        for (int i = 0; i < DS_QK; i++) b->q[i] = (int8_t)(ds_levels_draw(&t, &r) - 127);
    }
}
