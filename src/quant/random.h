/* Random blocks that decode to something like quantised Gaussian weights.
 *
 * A type draws the index of one of its levels from a table of equally likely entries, filled so that
 * the levels follow a normal distribution, and sets its scales from the table's own deviation. That
 * is several times faster than drawing normal values and encoding them. Private to src/quant. */
#ifndef DS_QUANT_RANDOM_H
#define DS_QUANT_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct ds_draw { uint64_t counter, word; int left; };

static inline void ds_draw_seed(struct ds_draw *r, uint64_t seed) { *r = (struct ds_draw){ .counter = seed * 0xd1342543de82ef95u + 1 }; }

/* splitmix64: a counter through a mixing function. */
static inline uint64_t ds_draw_u64(struct ds_draw *r)
{
    uint64_t z = r->counter += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

enum { DS_LEVEL_BITS = 12 };
struct ds_levels {
    uint8_t index[1 << DS_LEVEL_BITS];
    float mean, sd;                   /* of value[index[.]] */
};

/* Normal(0, sigma) rounded to the nearest of n <= 256 levels, values rising. */
void ds_levels_fill(struct ds_levels *t, const float *values, int n, float sigma);
/* The same for n integers from lo; index 0 is lo. */
void ds_levels_fill_range(struct ds_levels *t, float lo, int n, float sigma);

static inline int ds_levels_draw(const struct ds_levels *t, struct ds_draw *r)
{
    if (r->left == 0) {
        r->word = ds_draw_u64(r);
        r->left = 64 / DS_LEVEL_BITS;
    }
    int i = t->index[r->word & ((1 << DS_LEVEL_BITS) - 1)];
    r->word >>= DS_LEVEL_BITS;
    r->left--;
    return i;
}

/* 2n drawn indices below 16, two to a byte, low nibble first. */
static inline void ds_levels_draw_nibbles(uint8_t *qs, int n, const struct ds_levels *t, struct ds_draw *r)
{
    for (int j = 0; j < n; j++) {
        int lo = ds_levels_draw(t, r);
        qs[j] = (uint8_t)(lo | ds_levels_draw(t, r) << 4);
    }
}

/* Factor 0.9, 0.91 .. 1.1 by which a block's scale departs from the common one, times a sign where both occur. */
float ds_draw_spread(struct ds_draw *r, int either_sign);

/* Continuous normal values for the float types: a piecewise uniform density with equally likely pieces. */
enum { DS_PIECES = 256 };
struct ds_normal { float knot[DS_PIECES + 1]; };
void ds_normal_fill(struct ds_normal *t, float sd);
static inline float ds_normal_draw(const struct ds_normal *t, uint32_t bits)
{
    const float *k = t->knot + (bits >> 24);
    return k[0] + (k[1] - k[0]) * ((float)(bits & 0xffffff) * 0x1p-24f);
}

#endif
