/* The file's own blocks, decoded sixteen elements at a time. Layouts: src/quant/blocks.h.
 *
 * Each type says how many elements and bytes a block has, what the product's tiles are made of, and how elements
 * 16*sub .. 16*sub+15 of the block at p become floats. Blocks have odd sizes (34, 18, 210 bytes), so p is only known to be
 * even: scales are read as half and quants as bytes or ushort, never wider.
 *
 * Tiles of half carry every quantised value: rounding a level times a scale to half adds at most 2^-11 of the value, rms some
 * 2^-12, to an error of the quantisation that is ten times as large or more. Float weights have float tiles. */
#ifndef DS_METAL_QUANT_H
#define DS_METAL_QUANT_H

#include "common.h"

struct w_q8_0 {
    typedef half tile;
    enum { block = 32, bytes = 34 };
    static void decode(device const uchar *p, uint sub, thread float (&v)[16])
    {
        const float d = float(*(device const half *)p);
        device const ushort *q = (device const ushort *)(p + 2 + 16 * sub);
        UNROLL
        for (uint i = 0; i < 8; i++) {
            const char2 two = as_type<char2>(q[i]);
            v[2 * i] = d * float(two.x);
            v[2 * i + 1] = d * float(two.y);
        }
    }
};

/* Element j < 16 is a low nibble of byte j, element j + 16 the high one: sub picks the nibble. */
struct w_q4_0 {
    typedef half tile;
    enum { block = 32, bytes = 18 };
    static void decode(device const uchar *p, uint sub, thread float (&v)[16])
    {
        const float d = float(*(device const half *)p);
        device const ushort *q = (device const ushort *)(p + 2);
        UNROLL
        for (uint i = 0; i < 8; i++) {
            const uint two = uint(q[i]) >> (4 * sub);
            v[2 * i] = d * float(int(two & 15) - 8);
            v[2 * i + 1] = d * float(int((two >> 8) & 15) - 8);
        }
    }
};

/* Scale (x) and minimum (y) of sub-block j = 0..7 of the K types with twelve bytes of 6-bit pairs. */
static inline float2 k4_scale(device const uchar *s, uint j)
{
    uint sc, m;
    if (j < 4) {
        sc = uint(s[j]) & 63;
        m = uint(s[j + 4]) & 63;
    } else {
        sc = (uint(s[j + 4]) & 15) | ((uint(s[j - 4]) >> 6) << 4);
        m = (uint(s[j + 4]) >> 4) | ((uint(s[j]) >> 6) << 4);
    }
    float2 r;
    r.x = float(sc);
    r.y = float(m);
    return r;
}

/* Sub-blocks 2i and 2i+1 are the low and high nibbles of bytes 32i .. 32i+31. */
struct w_q4_k {
    typedef half tile;
    enum { block = 256, bytes = 144 };
    static void decode(device const uchar *p, uint sub, thread float (&v)[16])
    {
        const uint j = sub / 2;
        const float2 sm = k4_scale(p + 4, j);
        const float d = float(*(device const half *)p) * sm.x, m = float(*(device const half *)(p + 2)) * sm.y;
        device const ushort *q = (device const ushort *)(p + 16 + 32 * (j / 2) + 16 * (sub & 1));
        UNROLL
        for (uint i = 0; i < 8; i++) {
            const uint two = uint(q[i]) >> (4 * (j & 1));
            v[2 * i] = d * float(two & 15) - m;
            v[2 * i + 1] = d * float((two >> 8) & 15) - m;
        }
    }
};

/* As q4_k; bit j of byte l of qh adds 16 to element l of sub-block j. */
struct w_q5_k {
    typedef half tile;
    enum { block = 256, bytes = 176 };
    static void decode(device const uchar *p, uint sub, thread float (&v)[16])
    {
        const uint j = sub / 2;
        const float2 sm = k4_scale(p + 4, j);
        const float d = float(*(device const half *)p) * sm.x, m = float(*(device const half *)(p + 2)) * sm.y;
        device const ushort *q = (device const ushort *)(p + 48 + 32 * (j / 2) + 16 * (sub & 1));
        device const ushort *high = (device const ushort *)(p + 16 + 16 * (sub & 1));
        UNROLL
        for (uint i = 0; i < 8; i++) {
            const uint two = uint(q[i]) >> (4 * (j & 1)), h = uint(high[i]) >> j;
            v[2 * i] = d * float((two & 15) | ((h & 1) << 4)) - m;
            v[2 * i + 1] = d * float(((two >> 8) & 15) | (((h >> 8) & 1) << 4)) - m;
        }
    }
};

/* Element 128n + 32k + l: a nibble of ql[64n + 32(k&1) + l], low for k < 2, and bits 2k of qh[32n + l]. One scale per sub. */
struct w_q6_k {
    typedef half tile;
    enum { block = 256, bytes = 210 };
    static void decode(device const uchar *p, uint sub, thread float (&v)[16])
    {
        const uint n = sub / 8, k = (sub / 2) & 3, l = 16 * (sub & 1);
        const float d = float(*(device const half *)(p + 208)) * float(((device const char *)(p + 192))[sub]);
        device const ushort *low = (device const ushort *)(p + 64 * n + 32 * (k & 1) + l);
        device const ushort *high = (device const ushort *)(p + 128 + 32 * n + l);
        UNROLL
        for (uint i = 0; i < 8; i++) {
            const uint two = uint(low[i]) >> (4 * (k / 2)), h = uint(high[i]) >> (2 * k);
            v[2 * i] = d * float(int((two & 15) | ((h & 3) << 4)) - 32);
            v[2 * i + 1] = d * float(int(((two >> 8) & 15) | (((h >> 8) & 3) << 4)) - 32);
        }
    }
};

/* Floats come in any number: a "block" is one element, and a row may end inside of sixteen. Where rows are whole fours, they are
 * read in fours. */
struct w_f16 {
    typedef float tile;
    enum { block = 1, bytes = 2 };
    static float one(device const uchar *row, ulong i) { return float(((device const half *)row)[i]); }
    static float4 four(device const uchar *row, ulong i) { return widen(*(device const half4 *)(row + 2 * i)); }
};
struct w_bf16 {
    typedef float tile;
    enum { block = 1, bytes = 2 };
    static float bits(ushort b) { return as_type<float>(uint(b) << 16); }
    static float one(device const uchar *row, ulong i) { return bits(((device const ushort *)row)[i]); }
    static float4 four(device const uchar *row, ulong i)
    {
        const ushort4 b = *(device const ushort4 *)(row + 2 * i);
        float4 f;
        f.x = bits(b.x);
        f.y = bits(b.y);
        f.z = bits(b.z);
        f.w = bits(b.w);
        return f;
    }
};
struct w_f32 {
    typedef float tile;
    enum { block = 1, bytes = 4 };
    static float one(device const uchar *row, ulong i) { return ((device const float *)row)[i]; }
    static float4 four(device const uchar *row, ulong i) { return *(device const float4 *)(row + 4 * i); }
};

/* Elements k .. k+15 of a row, k a multiple of 16; past the row's end zeros. Types with blocks fill their rows. */
template <typename W, int BLOCK> struct row_reader {
    static void read(device const uchar *row, uint k, uint, thread float (&v)[16])
    {
        W::decode(row + ulong(k / BLOCK) * W::bytes, k % BLOCK / 16, v);
    }
};
template <typename W> struct row_reader<W, 1> {
    static void read(device const uchar *row, uint k, uint in, thread float (&v)[16])
    {
        if (in % 4 == 0 && k + 16 <= in)
            UNROLL
            for (uint i = 0; i < 4; i++) {
                const float4 f = W::four(row, k + 4 * i);
                v[4 * i] = f.x;
                v[4 * i + 1] = f.y;
                v[4 * i + 2] = f.z;
                v[4 * i + 3] = f.w;
            }
        else
            UNROLL
            for (uint i = 0; i < 16; i++) v[i] = k + i < in ? W::one(row, k + i) : 0.0f;
    }
};

template <typename W> static inline ulong row_bytes(uint in) { return ulong(in / W::block) * W::bytes; }
template <typename W> static inline void read16(device const uchar *row, uint k, uint in, thread float (&v)[16])
{
    row_reader<W, W::block>::read(row, k, in, v);
}

#endif
