#include "base/rng.h"

#include <math.h>

void ds_rng_seed(struct ds_rng *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        r->s[i] = z ^ (z >> 31);
    }
}

static uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

uint64_t ds_rng_u64(struct ds_rng *r)
{
    uint64_t *s = r->s, out = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return out;
}

float ds_rng_uniform(struct ds_rng *r)
{
    return (float)(ds_rng_u64(r) >> 40) * 0x1p-24f;
}

/* ln x for x in (0, 1]. Written out because the C libraries' logarithms differ in the last bit, and a seed must give the
 * same model everywhere. ln m = 2 atanh((m-1)/(m+1)), |t| <= 0.172, so ten terms reach 1e-16. */
static double natural_log(double x)
{
    int e;
    double m = frexp(x, &e);
    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    double t = (m - 1) / (m + 1), t2 = t * t, sum = 0;
    for (int k = 19; k >= 1; k -= 2) sum = sum * t2 + 1.0 / k;
    return 2 * t * sum + e * 0.69314718055994531;
}

/* Marsaglia's polar method. The second value of the pair is dropped: keeping it would be hidden state. */
float ds_rng_normal(struct ds_rng *r)
{
    for (;;) {
        uint64_t bits = ds_rng_u64(r);
        double u = (double)(int32_t)(bits >> 32) * 0x1p-31, v = (double)(int32_t)(uint32_t)bits * 0x1p-31;
        double s = u * u + v * v;
        if (s > 0 && s < 1) return (float)(u * sqrt(-2 * natural_log(s) / s));
    }
}
