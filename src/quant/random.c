#include "quant/random.h"

#include <math.h>
#include <string.h>

static double normal_cdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752); }

/* Inverse of normal_cdf for p > 0.5 by Newton's method from a start below the root, where it converges upward. */
static double normal_quantile(double p, double x)
{
    for (int i = 0; i < 6; i++) x += (p - normal_cdf(x)) * 2.5066282746310002 * exp(0.5 * x * x);
    return x;
}

void ds_levels_fill(struct ds_levels *t, const float *values, int n, float sigma)
{
    enum { N = 1 << DS_LEVEL_BITS };
    int at = 0;
    double sum = 0, square = 0;
    for (int i = 0; i < n; i++) {
        double edge = i + 1 < n ? 0.5 * ((double)values[i] + values[i + 1]) : INFINITY;
        int end = i + 1 < n ? (int)lround(N * normal_cdf(edge / sigma)) : N;
        memset(t->index + at, i, (size_t)(end - at));
        sum += (end - at) * (double)values[i];
        square += (end - at) * (double)values[i] * values[i];
        at = end;
    }
    t->mean = (float)(sum / N);
    t->sd = (float)sqrt(square / N - sum / N * (sum / N));
}

void ds_levels_fill_range(struct ds_levels *t, float lo, int n, float sigma)
{
    float values[256];
    for (int i = 0; i < n; i++) values[i] = lo + (float)i;
    ds_levels_fill(t, values, n, sigma);
}

float ds_draw_spread(struct ds_draw *r, int either_sign)
{
    uint64_t u = ds_draw_u64(r);
    float f = 0.9f + 0.01f * (float)(u % 21);
    return either_sign && u >> 63 ? -f : f;
}

void ds_normal_fill(struct ds_normal *t, float sd)
{
    double square = 0, knot[DS_PIECES + 1];
    enum { MID = DS_PIECES / 2 };
    knot[MID] = 0;
    for (int i = 1; i < MID; i++) knot[MID + i] = normal_quantile((double)(MID + i) / DS_PIECES, knot[MID + i - 1]);
    knot[DS_PIECES] = 3.2;                                 /* gives the last piece the second moment of the tail */
    /* Rounded, so that the last bits of the C library's erfc do not show in a model made from a seed. */
    for (int i = 1; i < MID; i++) knot[MID + i] = rint(knot[MID + i] * 0x1p24) * 0x1p-24;
    for (int i = 0; i < MID; i++) knot[i] = -knot[DS_PIECES - i];
    for (int i = 0; i < DS_PIECES; i++)
        square += (knot[i] * knot[i] + knot[i] * knot[i + 1] + knot[i + 1] * knot[i + 1]) / (3.0 * DS_PIECES);
    for (int i = 0; i <= DS_PIECES; i++) t->knot[i] = (float)(knot[i] * sd / sqrt(square));
}
