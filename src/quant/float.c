/* F32, F16, BF16. The conversions work bit by bit, with the results of the F16C and AVX512-BF16
 * instructions, except that bfloat16 denormals are kept. */
#include "quant/families.h"
#include "quant/random.h"
#include "quant/type.h"

#include <string.h>

static inline uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

float ds_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = (h >> 10) & 31, man = h & 0x3ff;
    if (exp == 31) return float_of(sign | 0x7f800000 | man << 13 | (man ? 0x400000 : 0));
    if (exp) return float_of(sign | (exp + 112) << 23 | man << 13);
    float tiny = (float)man * 0x1p-24f;                   /* exact: zero and denormals */
    return float_of(sign | bits_of(tiny));
}

uint16_t ds_f32_to_f16(float f)
{
    uint32_t u = bits_of(f), a = u & 0x7fffffff;
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000) return sign | 0x7c00;            /* 65520 and above round to infinity */
    if (a < 0x38800000) {
        /* Below 2^-14 the unit is 2^-24. Adding 0.5 puts that unit in the last place of the sum, so
         * the addition rounds as wanted. */
        float shifted = float_of(a) + 0.5f;
        return (uint16_t)(sign | (bits_of(shifted) - 0x3f000000));
    }
    uint32_t round = 0xfff + (a >> 13 & 1);
    return (uint16_t)(sign | ((a + round - 0x38000000) >> 13));
}

float ds_bf16_to_f32(uint16_t h) { return float_of((uint32_t)h << 16); }

uint16_t ds_f32_to_bf16(float f)
{
    uint32_t u = bits_of(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

void ds_f32_decode(float *dst, const void *src, size_t n) { memcpy(dst, src, n * sizeof *dst); }
void ds_f32_encode(void *dst, const float *src, size_t n) { memcpy(dst, src, n * sizeof *src); }

void ds_f16_decode(float *dst, const void *src, size_t n)
{
    const unsigned char *p = src;
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, sizeof h);
        dst[i] = ds_f16_to_f32(h);
    }
}

void ds_f16_encode(void *dst, const float *src, size_t n)
{
    unsigned char *p = dst;
    for (size_t i = 0; i < n; i++) {
        uint16_t h = ds_f32_to_f16(src[i]);
        memcpy(p + 2 * i, &h, sizeof h);
    }
}

void ds_bf16_decode(float *dst, const void *src, size_t n)
{
    const unsigned char *p = src;
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, sizeof h);
        dst[i] = ds_bf16_to_f32(h);
    }
}

void ds_bf16_encode(void *dst, const float *src, size_t n)
{
    unsigned char *p = dst;
    for (size_t i = 0; i < n; i++) {
        uint16_t h = ds_f32_to_bf16(src[i]);
        memcpy(p + 2 * i, &h, sizeof h);
    }
}

/* Draws n normal values and stores them with encode, a cache-sized piece at a time. */
static void random_floats(void *dst, size_t n, float sd, uint64_t seed, size_t bytes, void (*encode)(void *, const float *, size_t))
{
    struct ds_normal t;
    struct ds_draw r;
    float v[512];
    ds_normal_fill(&t, sd);
    ds_draw_seed(&r, seed);
    for (size_t at = 0; at < n;) {
        size_t m = n - at < 512 ? n - at : 512;
        for (size_t i = 0; i < 512; i += 2) {
            uint64_t u = ds_draw_u64(&r);
            v[i] = ds_normal_draw(&t, (uint32_t)u);
            v[i + 1] = ds_normal_draw(&t, (uint32_t)(u >> 32));
        }
        encode((char *)dst + at * bytes, v, m);
        at += m;
    }
}

void ds_f32_random(void *dst, size_t n, float sd, uint64_t seed) { random_floats(dst, n, sd, seed, 4, ds_f32_encode); }
void ds_f16_random(void *dst, size_t n, float sd, uint64_t seed) { random_floats(dst, n, sd, seed, 2, ds_f16_encode); }
void ds_bf16_random(void *dst, size_t n, float sd, uint64_t seed) { random_floats(dst, n, sd, seed, 2, ds_bf16_encode); }
