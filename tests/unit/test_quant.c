/* Storage types: decoded values of known blocks, half floats, encoders, random blocks, activation quantisers. */
#include "quant/act.h"
#include "quant/blocks.h"
#include "quant/type.h"
#include "../harness.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* Not base/rng.h: these tests stand on src/quant alone. Sum of twelve uniform numbers. */
static uint64_t state = 1;
static float uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) * 0x1p-24f;
}
static float normal(void)
{
    float s = -6;
    for (int i = 0; i < 12; i++) s += uniform();
    return s;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static bool is_weight(const struct ds_type *t) { return t->decode != NULL; }
static bool is_block(const struct ds_type *t) { return t->block > 1; }

/* --- decode: byte i of a block is 7i + 3 mod 256, then its scales are overwritten --- */

struct known { int i; double y; };
struct vector {
    const char *type;
    int d, m, e;                     /* offsets of d = 0.0625, m or dmin = 0.03125, e = 124; -1: none */
    double sum;
    struct known y[12];              /* ends at the first repeated index 0 */
};
static const struct vector vectors[] = {
    { "q4_0", 0, -1, -1, -4.625, { { 0, -0.4375 }, { 1, 0 }, { 15, 0.125 }, { 16, -0.4375 }, { 31, -0.0625 } } },
    { "q4_1", 0, 2, -1, 13.25, { { 0, 0.96875 }, { 1, 0.40625 }, { 15, 0.53125 }, { 16, 0.09375 }, { 31, 0.53125 } } },
    { "q5_0", 0, -1, -1, -6.875, { { 0, 0.8125 }, { 1, -0.75 }, { 15, -0.625 }, { 16, 0.125 }, { 31, -0.4375 } } },
    { "q5_1", 0, 2, -1, 30.0, { { 0, 1.71875 }, { 1, 1.15625 }, { 15, 0.28125 }, { 16, 1.21875 }, { 31, 0.65625 } } },
    { "q8_0", 0, -1, -1, -5.0, { { 0, 1.0625 }, { 1, 1.5 }, { 15, 7.625 }, { 16, -7.9375 }, { 31, -1.375 } } },
    { "q2_k", 80, 82, -1, 161.75,
      { { 0, 0.5625 }, { 1, 0.375 }, { 16, 1.875 }, { 32, -0.03125 }, { 64, 2.78125 }, { 100, 1.5625 }, { 128, 1.96875 }, { 255, -0.1875 } } },
    { "q3_k", 108, -1, -1, -132.0,
      { { 0, 3.5625 }, { 1, -2.375 }, { 15, -4.75 }, { 16, 1.875 }, { 64, -1.875 }, { 100, 2.4375 }, { 128, 0.375 }, { 255, 3.625 } } },
    { "q4_k", 0, 2, -1, 3022.0,
      { { 0, 3.96875 }, { 1, 17.53125 }, { 15, 21.40625 }, { 32, 16.5625 }, { 47, 30.8125 }, { 64, 8.15625 }, { 100, 19 }, { 128, 1.15625 },
        { 170, 5.46875 }, { 255, 9.8125 } } },
    { "q5_k", 0, 2, -1, 6312.0,
      { { 0, 34.96875 }, { 1, 17.53125 }, { 32, 49.8125 }, { 47, 26.0625 }, { 64, 8.15625 }, { 100, 64.5 }, { 128, 8.15625 },
        { 170, 17.71875 }, { 255, 8.3125 } } },
    { "q6_k", 208, -1, -1, -1944.0,
      { { 0, 79.5625 }, { 1, 41.875 }, { 15, -83.75 }, { 16, 87.875 }, { 32, -146.8125 }, { 64, -190 }, { 100, 102.1875 },
        { 128, 146.0625 }, { 255, 131.25 } } },
    { "iq4_nl", 0, -1, -1, -60.5625, { { 0, -6.5 }, { 1, 0.0625 }, { 15, 1.5625 }, { 16, -6.5 }, { 31, -0.625 } } },
    { "iq4_xs", 0, -1, -1, 264.1875,
      { { 0, -2.375 }, { 1, 5.1875 }, { 15, 3.0625 }, { 16, 4.0625 }, { 32, -73.625 }, { 47, 94.9375 }, { 100, 18.75 }, { 128, -45.125 },
        { 255, -68.875 } } },
    { "mxfp4", -1, -1, 0, 4.1875, { { 0, -0.125 }, { 1, 0.0625 }, { 15, 0.1875 }, { 16, 0 }, { 31, 0.75 } } },
};
enum { N_VECTORS = sizeof vectors / sizeof *vectors };

static void fill_known(unsigned char *p, const struct vector *v, int bytes)
{
    for (int i = 0; i < bytes; i++) p[i] = (unsigned char)(7 * i + 3);
    if (v->d >= 0) p[v->d] = 0x00, p[v->d + 1] = 0x2c;
    if (v->m >= 0) p[v->m] = 0x00, p[v->m + 1] = 0x28;
    if (v->e >= 0) p[v->e] = 124;
}

static void decode_known_blocks(void)
{
    for (int k = 0; k < N_VECTORS; k++) {
        const struct vector *v = &vectors[k];
        const struct ds_type *t = ds_type_by_name(v->type);
        REQUIRE(t && t->decode);
        /* Two blocks, one byte off any alignment, in a buffer of exactly that size. */
        unsigned char *p = malloc(2u * t->bytes + 1);
        float y[512];
        REQUIRE(p);
        fill_known(p + 1, v, t->bytes);
        fill_known(p + 1 + t->bytes, v, t->bytes);
        t->decode(y, p + 1, 2u * t->block);
        double sum = 0;
        for (int i = 0; i < t->block; i++) sum += y[i];
        CHECK_MSG(sum == v->sum, "%s sum %.9g, expected %.9g", v->type, sum, v->sum);
        for (int j = 0; j < 12 && (j == 0 || v->y[j].i); j++)
            CHECK_MSG(y[v->y[j].i] == v->y[j].y, "%s y[%d] %.9g, expected %.9g", v->type, v->y[j].i, y[v->y[j].i], v->y[j].y);
        CHECK_MSG(!memcmp(y, y + t->block, t->block * sizeof *y), "%s: second block differs", v->type);
        t->decode(y, p + 1, 0);
        free(p);
    }
}

static void mxfp4_scales(void)
{
    struct ds_block_mxfp4 b;
    float y[32];
    memset(&b, 0x11, sizeof b);                            /* every level 1 */
    for (int e = 0; e < 255; e++) {
        b.e = (uint8_t)e;
        ds_types[DS_T_MXFP4].decode(y, &b, 32);
        CHECK_MSG(y[0] == ldexp(1, e - 128) && y[31] == y[0], "e %d: %g", e, y[0]);
    }
}

/* --- the table --- */

static void type_table(void)
{
    for (int i = 0; i < DS_T_COUNT; i++) {
        const struct ds_type *t = &ds_types[i];
        REQUIRE(t->name);
        CHECK(ds_type_by_gguf(t->gguf_id) == t);
        CHECK(ds_type_by_name(t->name) == t);
        CHECK(ds_type_id(t) == (enum ds_type_id)i);
        CHECK_MSG(!strcmp(ds_type_gguf_name(t->gguf_id), t->name), "%s", t->name);
        CHECK(ds_type_row_bytes(t, 512) == 512u / t->block * t->bytes);
        CHECK(!t->decode == !t->random);
    }
    CHECK(ds_type_by_name("Q4_K") == &ds_types[DS_T_Q4_K]);
    CHECK(ds_type_by_name("bF16") == &ds_types[DS_T_BF16]);
    CHECK(!ds_type_by_name("q4_") && !ds_type_by_name("q4_kk") && !ds_type_by_name(""));
    CHECK(!ds_type_by_gguf(16) && !strcmp(ds_type_gguf_name(16), "iq2_xxs"));
    CHECK(!ds_type_by_gguf(4) && !ds_type_gguf_name(4));
    CHECK(!ds_type_by_gguf(43) && !ds_type_gguf_name(43) && !ds_type_gguf_name(UINT32_MAX));
    CHECK(!strcmp(ds_type_gguf_name(42), "q2_0"));
}

/* --- half precision --- */

static double f16_value(uint16_t h)
{
    int exp = h >> 10 & 31, man = h & 0x3ff;
    double v = exp == 31 ? (man ? NAN : INFINITY) : exp ? ldexp(1 + man / 1024.0, exp - 15) : ldexp(man, -24);
    return h & 0x8000 ? -v : v;
}

static void f16_every_pattern(void)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float f = ds_f16_to_f32((uint16_t)h);
        double v = f16_value((uint16_t)h);
        if (isnan(v)) {
            CHECK(isnan(f) && bits_of(f) & 0x400000);
            CHECK(bits_of(f) >> 31 == h >> 15);
            CHECK(ds_f32_to_f16(f) == (h | 0x200));
        } else {
            CHECK_MSG((double)f == v && bits_of(f) >> 31 == h >> 15, "%04x -> %g", (unsigned)h, f);
            CHECK_MSG(ds_f32_to_f16(f) == h, "%04x -> %g -> %04x", (unsigned)h, f, ds_f32_to_f16(f));
        }
    }
}

/* Between two neighbours: below the middle, the middle itself, above it. */
static void f16_rounding(void)
{
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float lo = ds_f16_to_f32((uint16_t)h), hi = h == 0x7bff ? 65536.0f : ds_f16_to_f32((uint16_t)(h + 1));
        float mid = lo + (hi - lo) / 2;                    /* exact: 12 bits */
        uint16_t even = (uint16_t)(h & 1 ? h + 1 : h);
        CHECK_MSG(ds_f32_to_f16(mid) == even, "middle above %04x", (unsigned)h);
        CHECK(ds_f32_to_f16(-mid) == (even | 0x8000));
        CHECK(ds_f32_to_f16(nextafterf(mid, 0)) == h);
        CHECK(ds_f32_to_f16(nextafterf(mid, INFINITY)) == h + 1);
    }
    CHECK(ds_f32_to_f16(INFINITY) == 0x7c00 && ds_f32_to_f16(-INFINITY) == 0xfc00);
    CHECK(ds_f32_to_f16(FLT_MAX) == 0x7c00 && ds_f32_to_f16(FLT_TRUE_MIN) == 0 && ds_f32_to_f16(-FLT_TRUE_MIN) == 0x8000);
    CHECK(ds_f32_to_f16(float_of(0x7f800001)) == 0x7e00);
}

static void bf16_every_pattern(void)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float f = ds_bf16_to_f32((uint16_t)h);
        CHECK(bits_of(f) == h << 16);
        bool nan = (h & 0x7fff) > 0x7f80;
        CHECK_MSG(ds_f32_to_bf16(f) == (nan ? h | 0x40 : h), "%04x", (unsigned)h);
        if (nan || (h & 0x7fff) == 0x7f80) continue;
        uint32_t u = h << 16;
        CHECK(ds_f32_to_bf16(float_of(u | 0x7fff)) == h);
        CHECK(ds_f32_to_bf16(float_of(u | 0x8000)) == (h & 1 ? h + 1 : h));
        CHECK(ds_f32_to_bf16(float_of(u | 0x8001)) == h + 1);
    }
    CHECK(isnan(ds_bf16_to_f32(ds_f32_to_bf16(float_of(0x7f800001)))));
    CHECK(isnan(ds_bf16_to_f32(ds_f32_to_bf16(float_of(0xffffffff)))));
}

/* --- encoders --- */

enum { N_ENC = 256 * 64 };

static double relative_error(const float *y, const float *x, int n)
{
    double num = 0, den = 0;
    for (int i = 0; i < n; i++) {
        num += ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
        den += (double)x[i] * x[i];
    }
    return sqrt(num / den);
}

static double round_trip(const struct ds_type *t, const float *x, float *y, int n)
{
    unsigned char *p = malloc(ds_type_row_bytes(t, (size_t)n) + 1);
    if (!p) return INFINITY;
    t->encode(p + 1, x, (size_t)n);
    t->decode(y, p + 1, (size_t)n);
    free(p);
    return relative_error(y, x, n);
}

/* Relative rms error on normal weights. Limits just above what these encoders reach; ggml's come to the same within half a percent. */
static void encode_error(void)
{
    static const struct { enum ds_type_id id; double limit; } cases[] = {
        { DS_T_F32, 0 }, { DS_T_F16, 2.5e-4 }, { DS_T_BF16, 2e-3 }, { DS_T_Q8_0, 0.0055 }, { DS_T_Q4_0, 0.097 }, { DS_T_Q4_K, 0.0715 },
        { DS_T_Q6_K, 0.0178 },
    };
    float *x = malloc(N_ENC * sizeof *x), *y = malloc(N_ENC * sizeof *y);
    REQUIRE(x && y);
    for (int i = 0; i < N_ENC; i++) x[i] = 0.02f * normal();
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct ds_type *t = &ds_types[cases[c].id];
        double e = round_trip(t, x, y, N_ENC);
        CHECK_MSG(e <= cases[c].limit, "%s: %.5f", t->name, e);
        CHECK_MSG(cases[c].id == DS_T_F32 || e > cases[c].limit / 2, "%s: %.5f is too good to be true", t->name, e);
    }
    free(x);
    free(y);
}

/* Decoded values are a fixed point: encoding them again moves them by far less than the first time. */
static void encode_again(void)
{
    float *x = malloc(N_ENC * sizeof *x), *y = malloc(N_ENC * sizeof *y), *z = malloc(N_ENC * sizeof *z);
    REQUIRE(x && y && z);
    for (int i = 0; i < N_ENC; i++) x[i] = normal();
    for (int i = 0; i < DS_T_COUNT; i++) {
        const struct ds_type *t = &ds_types[i];
        if (!t->encode) continue;
        double first = round_trip(t, x, y, N_ENC), second = round_trip(t, y, z, N_ENC);
        CHECK_MSG(second <= 0.35 * first, "%s: %.5f then %.5f", t->name, first, second);
    }
    free(x);
    free(y);
    free(z);
}

static void encode_extremes(void)
{
    float x[256], y[256];
    for (int i = 0; i < DS_T_COUNT; i++) {
        const struct ds_type *t = &ds_types[i];
        if (!t->encode) continue;
        memset(x, 0, sizeof x);
        round_trip(t, x, y, 256);
        for (int k = 0; k < 256; k++) CHECK_MSG(y[k] == 0, "%s: zero becomes %g", t->name, y[k]);
        for (int sign = -1; sign <= 1; sign += 2) {
            for (int k = 0; k < 256; k++) x[k] = 3.0f * (float)sign;
            double e = round_trip(t, x, y, 256);
            CHECK_MSG(e < 0.01, "%s: constant %g, error %g", t->name, x[0], e);
            memset(x, 0, sizeof x);
            x[77] = 5.0f * (float)sign;
            e = round_trip(t, x, y, 256);
            CHECK_MSG(e < 0.13, "%s: one hot %g, error %g", t->name, x[77], e);
        }
        for (int k = 0; k < 256; k++) x[k] = 1e-38f * (float)(k - 128);
        round_trip(t, x, y, 256);
        for (int k = 0; k < 256; k++) CHECK_MSG(isfinite(y[k]), "%s: tiny values give %g", t->name, y[k]);
        for (int k = 0; k < 256; k++) x[k] = 60000.0f * (k & 1 ? -1.0f : 1.0f);
        CHECK_MSG(round_trip(t, x, y, 256) < 0.13, "%s: large values", t->name);
    }
}

/* --- random blocks --- */

struct moments { double mean, sd, kurtosis; };
static struct moments moments_of(const float *y, int n)
{
    double s1 = 0, s2 = 0, s4 = 0;
    for (int i = 0; i < n; i++) s1 += y[i];
    double mean = s1 / n;
    for (int i = 0; i < n; i++) {
        double d = y[i] - mean, d2 = d * d;
        s2 += d2;
        s4 += d2 * d2;
    }
    return (struct moments){ mean, sqrt(s2 / n), s4 * n / (s2 * s2) };
}

static void random_statistics(void)
{
    enum { N = 1 << 20 };
    float *y = malloc(N * sizeof *y);
    REQUIRE(y);
    static const float sds[] = { 0.02f, 1.0f, 0.003f };
    for (int i = 0; i < DS_T_COUNT; i++) {
        const struct ds_type *t = &ds_types[i];
        if (!is_weight(t)) continue;
        unsigned char *p = malloc(ds_type_row_bytes(t, N) + 1), *q = malloc(ds_type_row_bytes(t, N) + 1);
        REQUIRE(p && q);
        for (int k = 0; k < 3; k++) {
            t->random(p + 1, N, sds[k], 1234);
            t->decode(y, p + 1, N);
            struct moments m = moments_of(y, N);
            CHECK_MSG(fabs(m.mean) < 0.006 * sds[k], "%s sd %g: mean/sd %g", t->name, sds[k], m.mean / sds[k]);
            CHECK_MSG(fabs(m.sd / sds[k] - 1) < 0.02, "%s: sd %g, asked for %g", t->name, m.sd, sds[k]);
            CHECK_MSG(m.kurtosis > (t->bytes * 8 / t->block < 3 ? 2.0 : 2.4) && m.kurtosis < 3.2, "%s: kurtosis %g", t->name, m.kurtosis);
        }
        t->random(q + 1, N, sds[2], 1234);
        CHECK_MSG(!memcmp(p + 1, q + 1, ds_type_row_bytes(t, N)), "%s: same seed, other bytes", t->name);
        t->random(q + 1, N, sds[2], 1235);
        t->decode(y, p + 1, N);
        float *z = malloc(N * sizeof *z);
        REQUIRE(z);
        t->decode(z, q + 1, N);
        double dot = 0;
        for (int e = 0; e < N; e++) dot += (double)y[e] * z[e];
        CHECK_MSG(fabs(dot) < 0.006 * N * sds[2] * sds[2], "%s: neighbouring seeds correlate", t->name);
        const int lags[] = { 1, 16, 32, 128, t->block };
        for (int k = 0; k < 5; k++) {
            dot = 0;
            for (int e = 0; e + lags[k] < N; e++) dot += (double)y[e] * y[e + lags[k]];
            CHECK_MSG(fabs(dot) < 0.006 * N * sds[2] * sds[2], "%s: elements %d apart correlate", t->name, lags[k]);
        }
        free(z);
        t->random(p + 1, 256, 0, 9);
        t->decode(y, p + 1, 256);
        for (int e = 0; e < 256; e++) CHECK_MSG(fabsf(y[e]) < 1e-30f, "%s: sd 0 gives %g", t->name, y[e]);
        free(p);
        free(q);
    }
    free(y);
}

/* No block is constant or far from the others. */
static void random_blocks_are_ordinary(void)
{
    float *y = malloc(N_ENC * sizeof *y);
    REQUIRE(y);
    for (int i = 0; i < DS_T_COUNT; i++) {
        const struct ds_type *t = &ds_types[i];
        if (!is_weight(t) || !is_block(t)) continue;
        unsigned char *p = malloc(ds_type_row_bytes(t, N_ENC));
        REQUIRE(p);
        t->random(p, N_ENC, 0.02f, 7);
        t->decode(y, p, N_ENC);
        for (int b = 0; b < N_ENC; b += t->block) {
            struct moments m = moments_of(y + b, t->block);
            CHECK_MSG(m.sd > 0.008 && m.sd < 0.04, "%s: block %d has sd %g", t->name, b / t->block, m.sd);
        }
        free(p);
    }
    free(y);
}

/* Where a format has signed scales, kernels meet both signs. */
static void random_scales_have_both_signs(void)
{
    struct ds_block_q3_k q3;
    struct ds_block_q6_k q6;
    struct ds_block_iq4_xs xs;
    struct ds_block_q4_0 q4[16];
    int n3 = 0, n6 = 0, nx = 0, n4 = 0;
    ds_types[DS_T_Q3_K].random(&q3, 256, 1, 3);
    ds_types[DS_T_Q6_K].random(&q6, 256, 1, 3);
    ds_types[DS_T_IQ4_XS].random(&xs, 256, 1, 3);
    ds_types[DS_T_Q4_0].random(q4, 512, 1, 3);
    for (int j = 0; j < 16; j++) {
        n3 += ds_q3_scale(q3.scales, j) < 0;
        n6 += q6.scales[j] < 0;
        n4 += q4[j].d >> 15;
        nx += j < 8 && ds_iq4_xs_scale(&xs, j) < 0;
    }
    CHECK(n3 > 0 && n3 < 16 && n6 > 0 && n6 < 16 && nx > 0 && nx < 8 && n4 > 0 && n4 < 16);
}

/* --- activations --- */

static void act_q8_0_vector(void)
{
    static const int8_t expect[32] = { -127, -119, -111, -103, -95, 3, -79, -71, -64, -56, -48, -40, -32, -24, -16, -8,
                                       0, 8, 16, 24, 32, 40, 48, 56, 64, 71, 79, 87, 95, 103, 111, 119 };
    struct ds_block_q8_0 b;
    float x[32];
    for (int i = 0; i < 32; i++) x[i] = 0.75f * (float)(i - 16);
    x[5] = 0.3f;
    ds_act_q8_0(&b, x, 32);
    CHECK_MSG(b.d == 0x2e0c, "%04x", b.d);
    CHECK(!memcmp(b.q, expect, sizeof expect));
}

static void act_q8_0_rounds_half_away(void)
{
    struct ds_block_q8_0 b;
    float x[32] = { 127, 0.5f, -0.5f, 1.5f, 2.5f, -2.5f, 0.49999997f, -0.49999997f, 126.5f };
    ds_act_q8_0(&b, x, 32);
    static const int8_t expect[9] = { 127, 1, -1, 2, 3, -3, 0, 0, 127 };
    CHECK(!memcmp(b.q, expect, sizeof expect));
}

static void act_q8_k_rules(void)
{
    struct ds_block_q8_k b;
    float x[256] = { 0 };
    x[40] = 1.0f;
    x[41] = -1.0f;                                         /* a tie: the first one counts */
    x[42] = 0.5f;
    ds_act_q8_k(&b, x, 256);
    CHECK(b.q[40] == -127 && b.q[41] == 127 && b.q[42] == -64 && b.q[0] == 0);
    CHECK_MSG(b.d == 1 / -127.0f, "%g", b.d);
    CHECK(b.bsums[2] == -64 && b.bsums[0] == 0 && b.bsums[15] == 0);
    memset(x, 0, sizeof x);
    x[40] = -1.0f;
    x[255] = 0.25f;
    ds_act_q8_k(&b, x, 256);
    CHECK(b.q[40] == -127 && b.q[255] == 32 && b.d == 1 / 127.0f);
    x[255] = 127.0f;
    x[0] = 0.5f, x[1] = 1.5f, x[2] = 2.5f;                 /* s = -1: half to even */
    ds_act_q8_k(&b, x, 256);
    CHECK(b.q[0] == 0 && b.q[1] == -2 && b.q[2] == -2 && b.q[255] == -127 && b.bsums[0] == -4);
}

static void act_error_and_sums(void)
{
    struct ds_block_q8_0 a[64];
    struct ds_block_q8_k k[8];
    float x[2048], y[2048];
    for (int i = 0; i < 2048; i++) x[i] = normal();
    ds_act_q8_0(a, x, 2048);
    ds_types[DS_T_Q8_0].decode(y, a, 2048);
    double e = relative_error(y, x, 2048);
    CHECK_MSG(e > 0.003 && e < 0.007, "%g", e);
    ds_act_q8_k(k, x, 2048);
    for (int b = 0; b < 8; b++)
        for (int i = 0; i < 256; i++) y[256 * b + i] = k[b].d * (float)k[b].q[i];
    e = relative_error(y, x, 2048);
    CHECK_MSG(e > 0.004 && e < 0.009, "%g", e);
    for (int b = 0; b < 8; b++)
        for (int g = 0; g < 16; g++) {
            int sum = 0;
            for (int i = 0; i < 16; i++) sum += k[b].q[16 * g + i];
            CHECK(sum == k[b].bsums[g]);
        }
}

/* A fault must not be rounded away; a scale without an inverse must not make one. */
static void act_extremes(void)
{
    struct ds_block_q8_0 a[8];
    struct ds_block_q8_k k;
    float x[256];
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 256; j++) x[j] = (float)j;
        x[100] = bad[i];
        ds_act_q8_0(a, x, 256);
        ds_act_q8_k(&k, x, 256);
        CHECK(isnan(ds_f16_to_f32(a[3].d)) && isnan(k.d));
        CHECK(isfinite(ds_f16_to_f32(a[2].d)) && a[3].q[0] == 0 && k.q[255] == 0);
    }
    static const float small[] = { 0, FLT_TRUE_MIN, 1e-38f, 3e-37f, 1e-30f };
    for (int i = 0; i < 5; i++) {
        for (int j = 0; j < 256; j++) x[j] = j & 1 ? small[i] : -small[i];
        ds_act_q8_0(a, x, 256);
        ds_act_q8_k(&k, x, 256);
        CHECK(isfinite(ds_f16_to_f32(a[7].d)) && isfinite(k.d));
        for (int j = 0; j < 256; j++) CHECK(fabsf(k.d * (float)k.q[j] - x[j]) <= 0.01f * small[i] + 4e-37f);
    }
}

static const struct ds_test tests[] = {
    { "decode_known_blocks", decode_known_blocks },
    { "mxfp4_scales", mxfp4_scales },
    { "type_table", type_table },
    { "f16_every_pattern", f16_every_pattern },
    { "f16_rounding", f16_rounding },
    { "bf16_every_pattern", bf16_every_pattern },
    { "encode_error", encode_error },
    { "encode_again", encode_again },
    { "encode_extremes", encode_extremes },
    { "random_statistics", random_statistics },
    { "random_blocks_are_ordinary", random_blocks_are_ordinary },
    { "random_scales_have_both_signs", random_scales_have_both_signs },
    { "act_q8_0_vector", act_q8_0_vector },
    { "act_q8_0_rounds_half_away", act_q8_0_rounds_half_away },
    { "act_q8_k_rules", act_q8_k_rules },
    { "act_error_and_sums", act_error_and_sums },
    { "act_extremes", act_extremes },
};
DS_TEST_MAIN(tests)
