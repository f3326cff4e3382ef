#include "base/hash.h"

#define P1 0x9e3779b185ebca87u
#define P2 0xc2b2ae3d27d4eb4fu
#define P3 0x165667b19e3779f9u
#define P4 0x85ebca77c2b2ae63u
#define P5 0x27d4eb2f165667c5u

static uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

/* Little-endian loads, at any address. */
static uint64_t load64(const unsigned char *p)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static uint64_t load32(const unsigned char *p)
{
    return (uint64_t)p[3] << 24 | (uint64_t)p[2] << 16 | (uint64_t)p[1] << 8 | p[0];
}

static uint64_t round64(uint64_t acc, uint64_t lane) { return rotl(acc + lane * P2, 31) * P1; }
static uint64_t merge(uint64_t h, uint64_t acc) { return (h ^ round64(0, acc)) * P1 + P4; }

uint64_t ds_hash64(const void *data, size_t n, uint64_t seed)
{
    const unsigned char *p = data;
    uint64_t h = seed + P5, len = n;
    if (n >= 32) {
        uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
        for (; n >= 32; n -= 32, p += 32) {
            a = round64(a, load64(p));
            b = round64(b, load64(p + 8));
            c = round64(c, load64(p + 16));
            d = round64(d, load64(p + 24));
        }
        h = rotl(a, 1) + rotl(b, 7) + rotl(c, 12) + rotl(d, 18);
        h = merge(merge(merge(merge(h, a), b), c), d);
    }
    h += len;
    for (; n >= 8; n -= 8, p += 8) h = rotl(h ^ round64(0, load64(p)), 27) * P1 + P4;
    if (n >= 4) {
        h = rotl(h ^ load32(p) * P1, 23) * P2 + P3;
        n -= 4;
        p += 4;
    }
    for (; n; n--, p++) h = rotl(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}
