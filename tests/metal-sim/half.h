/* IEEE half in C++, for compilers that have none: exact conversions, and arithmetic that rounds at each operation.
 * (+, -, *, / in float and one rounding is correctly rounded half arithmetic: 24 >= 2 * 11 + 2.) */
#ifndef DS_TESTS_METAL_SIM_HALF_H
#define DS_TESTS_METAL_SIM_HALF_H

static inline float sim_half_to_float(unsigned short h)
{
    unsigned sign = (unsigned)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023, bits;
    if (e == 31) bits = sign | 0x7f800000u | m << 13;
    else if (e) bits = sign | (e + 112) << 23 | m << 13;
    else {                                     /* subnormal: m * 2^-24 is exact in float */
        float f = (float)m * 5.9604644775390625e-8f;
        __builtin_memcpy(&bits, &f, 4);
        bits |= sign;
    }
    float f;
    __builtin_memcpy(&f, &bits, 4);
    return f;
}

static inline unsigned short sim_float_to_half(float f)
{
    unsigned x, sign;
    __builtin_memcpy(&x, &f, 4);
    sign = x >> 16 & 0x8000;
    x &= 0x7fffffff;
    if (x > 0x7f800000u) return (unsigned short)(sign | 0x7e00);
    if (x >= 0x477ff000u) return (unsigned short)(sign | 0x7c00);      /* 65520 and above round to infinity */
    if (x < 0x38800000u) {                                             /* below 2^-14: a multiple of 2^-24; the addition rounds */
        float a;
        __builtin_memcpy(&a, &x, 4);
        a += 0.5f;
        __builtin_memcpy(&x, &a, 4);
        return (unsigned short)(sign | (x - 0x3f000000u));
    }
    return (unsigned short)(sign | (((x + 0xfff + (x >> 13 & 1)) >> 13) - (112u << 10)));
}

struct half {
    unsigned short bits;
    half() = default;
    explicit half(float f) : bits(sim_float_to_half(f)) {}
    explicit half(int i) : bits(sim_float_to_half((float)i)) {}
    explicit half(unsigned i) : bits(sim_float_to_half((float)i)) {}
    operator float() const { return sim_half_to_float(bits); }
};
static inline half operator+(half a, half b) { return half((float)a + (float)b); }
static inline half operator-(half a, half b) { return half((float)a - (float)b); }
static inline half operator*(half a, half b) { return half((float)a * (float)b); }
static inline half operator/(half a, half b) { return half((float)a / (float)b); }
static inline half operator-(half a) { return half(-(float)a); }

#endif
