/* One element of a stored block. Layouts as in src/quant. */
#ifndef DS_BACKEND_CUDA_QUANT_CUH
#define DS_BACKEND_CUDA_QUANT_CUH

#include "backend/cuda/device.cuh"

extern "C" {
#include "quant/type.h"
}

__constant__ const int8_t iq4_values[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
__constant__ const int8_t fp4_values[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

static __device__ __forceinline__ uint32_t u16_at(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }
static __device__ __forceinline__ float f16_at(const uint8_t *p)
{
    return __half2float(__ushort_as_half((unsigned short)u16_at(p)));
}
static __device__ __forceinline__ int nibble(uint8_t b, int high) { return high ? b >> 4 : b & 15; }

/* Scale and minimum j of the packed 6-bit pairs of Q4_K and Q5_K. */
static __device__ __forceinline__ void k_scale(const uint8_t *s, int j, int *sc, int *m)
{
    if (j < 4) {
        *sc = s[j] & 63;
        *m = s[j + 4] & 63;
    } else {
        *sc = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *m = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    }
}

template <int TYPE> static __device__ __forceinline__ float element(const uint8_t *b, int e)
{
    if constexpr (TYPE == DS_T_F32) {
        return *reinterpret_cast<const float *>(b);
    } else if constexpr (TYPE == DS_T_F16) {
        return f16_at(b);
    } else if constexpr (TYPE == DS_T_BF16) {
        return bf16_bits((uint16_t)u16_at(b));
    } else if constexpr (TYPE == DS_T_Q8_0) {
        return f16_at(b) * (float)(int8_t)b[2 + e];
    } else if constexpr (TYPE == DS_T_Q4_0) {
        return f16_at(b) * (float)(nibble(b[2 + e % 16], e >= 16) - 8);
    } else if constexpr (TYPE == DS_T_Q4_1) {
        return f16_at(b) * (float)nibble(b[4 + e % 16], e >= 16) + f16_at(b + 2);
    } else if constexpr (TYPE == DS_T_Q5_0 || TYPE == DS_T_Q5_1) {
        constexpr int head = TYPE == DS_T_Q5_0 ? 2 : 4;
        const uint32_t qh = u16_at(b + head) | u16_at(b + head + 2) << 16;
        const int q = nibble(b[head + 4 + e % 16], e >= 16) | (int)(qh >> e & 1) << 4;
        return TYPE == DS_T_Q5_0 ? f16_at(b) * (float)(q - 16) : f16_at(b) * (float)q + f16_at(b + 2);
    } else if constexpr (TYPE == DS_T_Q2_K) {
        const int n = e / 128, k = e % 128 / 32, l = e % 32, sc = b[e / 16];
        const int q = b[16 + 32 * n + l] >> 2 * k & 3;
        return f16_at(b + 80) * (float)(sc & 15) * (float)q - f16_at(b + 82) * (float)(sc >> 4);
    } else if constexpr (TYPE == DS_T_Q3_K) {
        const int n = e / 128, k = e % 128 / 32, l = e % 32, j = e / 16;
        const uint8_t *s = b + 96;
        const int q = (b[32 + 32 * n + l] >> 2 * k & 3) - (b[l] >> (4 * n + k) & 1 ? 0 : 4);
        const int sc = (j < 8 ? s[j] & 15 : s[j - 8] >> 4) | (s[8 + j % 4] >> 2 * (j / 4) & 3) << 4;
        return f16_at(b + 108) * (float)(sc - 32) * (float)q;
    } else if constexpr (TYPE == DS_T_Q4_K || TYPE == DS_T_Q5_K) {
        const int j = e / 32, l = e % 32;
        int sc, m, q;
        k_scale(b + 4, j, &sc, &m);
        if constexpr (TYPE == DS_T_Q4_K) q = nibble(b[16 + 32 * (j / 2) + l], j & 1);
        else q = nibble(b[48 + 32 * (j / 2) + l], j & 1) | (b[16 + l] >> j & 1) << 4;
        return f16_at(b) * (float)sc * (float)q - f16_at(b + 2) * (float)m;
    } else if constexpr (TYPE == DS_T_Q6_K) {
        const int n = e / 128, k = e % 128 / 32, l = e % 32;
        const int q = (nibble(b[64 * n + 32 * (k & 1) + l], k >= 2) | (b[128 + 32 * n + l] >> 2 * k & 3) << 4) - 32;
        return f16_at(b + 208) * (float)(int8_t)b[192 + e / 16] * (float)q;
    } else if constexpr (TYPE == DS_T_IQ4_NL) {
        return f16_at(b) * (float)iq4_values[nibble(b[2 + e % 16], e >= 16)];
    } else if constexpr (TYPE == DS_T_IQ4_XS) {
        const int ib = e / 32, j = e % 32;
        const int ls = (b[4 + ib / 2] >> 4 * (ib & 1) & 15) | (int)(u16_at(b + 2) >> 2 * ib & 3) << 4;
        return f16_at(b) * (float)(ls - 32) * (float)iq4_values[nibble(b[8 + 16 * ib + j % 16], j >= 16)];
    } else {
        static_assert(TYPE == DS_T_MXFP4, "a weight type");
        const uint32_t x = b[0];
        return __uint_as_float(x < 2 ? 0x00200000u << x : (x - 1) << 23) * (float)fp4_values[nibble(b[1 + e % 16], e >= 16)];
    }
}

/* Calls F<TYPE>(args...) for the run-time type; an unknown type is an invalid value. */
#define DS_CU_BY_TYPE(type, F, ...)                                        \
    switch (type) {                                                        \
    case DS_T_F32: F<DS_T_F32> __VA_ARGS__; break;                         \
    case DS_T_F16: F<DS_T_F16> __VA_ARGS__; break;                         \
    case DS_T_BF16: F<DS_T_BF16> __VA_ARGS__; break;                       \
    case DS_T_Q4_0: F<DS_T_Q4_0> __VA_ARGS__; break;                       \
    case DS_T_Q4_1: F<DS_T_Q4_1> __VA_ARGS__; break;                       \
    case DS_T_Q5_0: F<DS_T_Q5_0> __VA_ARGS__; break;                       \
    case DS_T_Q5_1: F<DS_T_Q5_1> __VA_ARGS__; break;                       \
    case DS_T_Q8_0: F<DS_T_Q8_0> __VA_ARGS__; break;                       \
    case DS_T_Q2_K: F<DS_T_Q2_K> __VA_ARGS__; break;                       \
    case DS_T_Q3_K: F<DS_T_Q3_K> __VA_ARGS__; break;                       \
    case DS_T_Q4_K: F<DS_T_Q4_K> __VA_ARGS__; break;                       \
    case DS_T_Q5_K: F<DS_T_Q5_K> __VA_ARGS__; break;                       \
    case DS_T_Q6_K: F<DS_T_Q6_K> __VA_ARGS__; break;                       \
    case DS_T_IQ4_NL: F<DS_T_IQ4_NL> __VA_ARGS__; break;                   \
    case DS_T_IQ4_XS: F<DS_T_IQ4_XS> __VA_ARGS__; break;                   \
    case DS_T_MXFP4: F<DS_T_MXFP4> __VA_ARGS__; break;                     \
    default: return cudaErrorInvalidValue;                                 \
    }

#endif
