/* Super-blocks of 256, decoded and drawn: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K. Encoders: kencode.c. */
#include "quant/blocks.h"
#include "quant/families.h"
#include "quant/random.h"
#include "quant/type.h"

#include <string.h>

/* --- decode --- */

void ds_q2_k_decode(float *dst, const void *src, size_t n)
{
    const struct ds_block_q2_k *b = src;
    for (; n; n -= DS_QKK, dst += DS_QKK, b++) {
        float d = ds_f16_to_f32(b->d), dmin = ds_f16_to_f32(b->dmin);
        for (int g = 0; g < 16; g++) {                     /* sub-block of 16: half n, bit pair k, first l */
            int at = 32 * (g / 8) + 16 * (g & 1), shift = 2 * (g / 2 % 4);
            float scale = d * (float)(b->scales[g] & 15), min = dmin * (float)(b->scales[g] >> 4);
            for (int i = 0; i < 16; i++) dst[16 * g + i] = scale * (float)((b->qs[at + i] >> shift) & 3) - min;
        }
    }
}

void ds_q3_k_decode(float *dst, const void *src, size_t n)
{
    const struct ds_block_q3_k *b = src;
    for (; n; n -= DS_QKK, dst += DS_QKK, b++) {
        float d = ds_f16_to_f32(b->d);
        for (int g = 0; g < 16; g++) {
            int l = 16 * (g & 1), at = 32 * (g / 8) + l, shift = 2 * (g / 2 % 4), bit = g / 2;
            float scale = d * (float)ds_q3_scale(b->scales, g);
            for (int i = 0; i < 16; i++) {
                int q = ((b->qs[at + i] >> shift) & 3) - 4 + (((b->hmask[l + i] >> bit) & 1) << 2);
                dst[16 * g + i] = scale * (float)q;
            }
        }
    }
}

void ds_q4_k_decode(float *dst, const void *src, size_t n)
{
    const struct ds_block_q4_k *b = src;
    for (; n; n -= DS_QKK, dst += DS_QKK, b++) {
        float d = ds_f16_to_f32(b->d), dmin = ds_f16_to_f32(b->dmin);
        for (int j = 0; j < 8; j++) {
            int sc, m, shift = 4 * (j & 1);
            ds_k4_scale(b->scales, j, &sc, &m);
            const uint8_t *q = b->qs + 32 * (j / 2);
            float scale = d * (float)sc, min = dmin * (float)m;
            for (int l = 0; l < 32; l++) dst[32 * j + l] = scale * (float)((q[l] >> shift) & 15) - min;
        }
    }
}

void ds_q5_k_decode(float *dst, const void *src, size_t n)
{
    const struct ds_block_q5_k *b = src;
    for (; n; n -= DS_QKK, dst += DS_QKK, b++) {
        float d = ds_f16_to_f32(b->d), dmin = ds_f16_to_f32(b->dmin);
        for (int j = 0; j < 8; j++) {
            int sc, m, shift = 4 * (j & 1);
            ds_k4_scale(b->scales, j, &sc, &m);
            const uint8_t *q = b->qs + 32 * (j / 2);
            float scale = d * (float)sc, min = dmin * (float)m;
            for (int l = 0; l < 32; l++) {
                int v = ((q[l] >> shift) & 15) | ((b->qh[l] >> j) & 1) << 4;
                dst[32 * j + l] = scale * (float)v - min;
            }
        }
    }
}

void ds_q6_k_decode(float *dst, const void *src, size_t n)
{
    const struct ds_block_q6_k *b = src;
    for (; n; n -= DS_QKK, dst += DS_QKK, b++) {
        float d = ds_f16_to_f32(b->d);
        for (int g = 0; g < 16; g++) {
            int half = g / 8, k = g / 2 % 4, l = 16 * (g & 1);
            const uint8_t *ql = b->ql + 64 * half + 32 * (k & 1) + l, *qh = b->qh + 32 * half + l;
            float scale = d * (float)b->scales[g];
            for (int i = 0; i < 16; i++) {
                int v = ((ql[i] >> (4 * (k / 2))) & 15) | ((qh[i] >> (2 * k)) & 3) << 4;
                dst[16 * g + i] = scale * (float)(v - 32);
            }
        }
    }
}

/* --- random --- */

/* Eight scales sc = 52..59 with minima of the same number, so that dmin = centre * d makes the mean 0. */
static const float k4_scale_rms = 55.55f;
static void draw_k4_scales(uint8_t s[12], struct ds_draw *r)
{
    uint64_t u = ds_draw_u64(r);
    int sc[8];
    for (int j = 0; j < 8; j++, u >>= 3) sc[j] = 52 + (int)(u & 7);
    ds_k4_scales_set(s, sc, sc);
}

void ds_q2_k_random(void *dst, size_t n, float sd, uint64_t seed)
{
    struct ds_levels t;
    struct ds_draw r;
    ds_levels_fill_range(&t, -1.5f, 4, 1.0f);
    ds_draw_seed(&r, seed);
    struct ds_block_q2_k *b = dst;
    for (; n; n -= DS_QKK, b++) {
        float d = sd / (t.sd * 13.55f) * ds_draw_spread(&r, 0);       /* scales 12..15 have rms 13.55 */
        b->d = ds_f32_to_f16(d);
        b->dmin = ds_f32_to_f16(1.5f * d);
        uint64_t u = ds_draw_u64(&r);
        for (int g = 0; g < 16; g++, u >>= 2) b->scales[g] = (uint8_t)(17 * (12 + (u & 3)));
        for (int i = 0; i < 64; i++) {
            b->qs[i] = 0;
            for (int k = 0; k < 4; k++) b->qs[i] |= (uint8_t)(ds_levels_draw(&t, &r) << (2 * k));
        }
    }
}

void ds_q3_k_random(void *dst, size_t n, float sd, uint64_t seed)
{
    struct ds_levels t;
    struct ds_draw r;
    ds_levels_fill_range(&t, -4, 8, 1.8f);
    ds_draw_seed(&r, seed);
    struct ds_block_q3_k *b = dst;
    for (; n; n -= DS_QKK, b++) {
        /* Scales 25..31 (25 twice as often) have rms 27.71; either sign, because the levels reach one further down. */
        b->d = ds_f32_to_f16(sd / (t.sd * 27.71f) * ds_draw_spread(&r, 0));
        uint64_t u = ds_draw_u64(&r);
        memset(b->scales, 0, sizeof b->scales);
        for (int g = 0; g < 16; g++, u >>= 4) {
            int size = 25 + (int)(u & 7) % 7, code = (u & 8 ? -size : size) + 32;
            b->scales[g % 8] |= (uint8_t)((code & 15) << (4 * (g / 8)));
            b->scales[8 + g % 4] |= (uint8_t)((code >> 4) << (2 * (g / 4)));
        }
        memset(b->hmask, 0, sizeof b->hmask);
        for (int i = 0; i < 64; i++) {
            b->qs[i] = 0;
            for (int k = 0; k < 4; k++) {
                int q = ds_levels_draw(&t, &r);
                b->qs[i] |= (uint8_t)((q & 3) << (2 * k));
                b->hmask[i % 32] |= (uint8_t)((q >> 2) << (4 * (i / 32) + k));
            }
        }
    }
}

void ds_q4_k_random(void *dst, size_t n, float sd, uint64_t seed)
{
    struct ds_levels t;
    struct ds_draw r;
    ds_levels_fill_range(&t, -7.5f, 16, 3.6f);
    ds_draw_seed(&r, seed);
    struct ds_block_q4_k *b = dst;
    for (; n; n -= DS_QKK, b++) {
        float d = sd / (t.sd * k4_scale_rms) * ds_draw_spread(&r, 0);
        b->d = ds_f32_to_f16(d);
        b->dmin = ds_f32_to_f16(7.5f * d);
        draw_k4_scales(b->scales, &r);
        ds_levels_draw_nibbles(b->qs, 128, &t, &r);
    }
}

void ds_q5_k_random(void *dst, size_t n, float sd, uint64_t seed)
{
    struct ds_levels t;
    struct ds_draw r;
    ds_levels_fill_range(&t, -15.5f, 32, 7.5f);
    ds_draw_seed(&r, seed);
    struct ds_block_q5_k *b = dst;
    for (; n; n -= DS_QKK, b++) {
        float d = sd / (t.sd * k4_scale_rms) * ds_draw_spread(&r, 0);
        b->d = ds_f32_to_f16(d);
        b->dmin = ds_f32_to_f16(15.5f * d);
        draw_k4_scales(b->scales, &r);
        memset(b->qh, 0, sizeof b->qh);
        for (int i = 0; i < 128; i++) {
            int lo = ds_levels_draw(&t, &r), hi = ds_levels_draw(&t, &r), j = i / 32 * 2;
            b->qs[i] = (uint8_t)((lo & 15) | (hi & 15) << 4);
            b->qh[i % 32] |= (uint8_t)((lo >> 4) << j | (hi >> 4) << (j + 1));
        }
    }
}

void ds_q6_k_random(void *dst, size_t n, float sd, uint64_t seed)
{
    struct ds_levels t;
    struct ds_draw r;
    ds_levels_fill_range(&t, -32, 64, 13);
    ds_draw_seed(&r, seed);
    struct ds_block_q6_k *b = dst;
    for (; n; n -= DS_QKK, b++) {
        b->d = ds_f32_to_f16(sd / (t.sd * 104.9f) * ds_draw_spread(&r, 0));   /* 89..120, either sign: rms 104.9 */
        for (int g = 0; g < 16; g++) {
            uint64_t u = ds_draw_u64(&r);
            int size = 89 + (int)(u & 31);
            b->scales[g] = (int8_t)(u & 32 ? -size : size);
        }
        uint8_t q[DS_QKK];
        for (int e = 0; e < DS_QKK; e++) q[e] = (uint8_t)ds_levels_draw(&t, &r);
        for (int half = 0; half < 2; half++) {
            const uint8_t *v = q + 128 * half;
            for (int l = 0; l < 64; l++) b->ql[64 * half + l] = (uint8_t)((v[l] & 15) | (v[l + 64] & 15) << 4);
            for (int l = 0; l < 32; l++)
                b->qh[32 * half + l] = (uint8_t)(v[l] >> 4 | v[l + 32] >> 4 << 2 | v[l + 64] >> 4 << 4 | v[l + 96] >> 4 << 6);
        }
    }
}
