/* Vectors of one width for the inner kernels: names for the few operations that they need, so that a
 * kernel is written once. The including file has set VECTOR_BITS and ROWS. */
#include <immintrin.h>

#if VECTOR_BITS == 512
#define VI __m512i
#define VF __m512
#define V(op) _mm512_##op
#define V_LOAD_I(p) _mm512_load_si512(p)
#define V_ZERO_I() _mm512_setzero_si512()
#else
#define VI __m256i
#define VF __m256
#define V(op) _mm256_##op
#define V_LOAD_I(p) _mm256_load_si256((const __m256i *)(p))
#define V_ZERO_I() _mm256_setzero_si256()
#endif
#define V_ZERO_F() V(setzero_ps)()
#define V_LOAD_F(p) V(load_ps)(p)
#define V_STORE_F(p, v) V(store_ps)(p, v)
#define V_CVT(i) V(cvtepi32_ps)(i)
#define V_ADD(a, b) V(add_ps)(a, b)
#define V_MUL(a, b) V(mul_ps)(a, b)
#define V_FMA(a, b, c) V(fmadd_ps)(a, b, c)

enum { LANES = VECTOR_BITS / 32, RV = ROWS / LANES };      /* 32-bit lanes; vectors of rows in a panel */

INLINE float load_f(const char *p)
{
    float v;
    memcpy(&v, p, 4);
    return v;
}

INLINE int load_i(const char *p)
{
    int v;
    memcpy(&v, p, 4);
    return v;
}

INLINE VI bcast_i(const char *p) { return V(set1_epi32)(load_i(p)); }
INLINE VF bcast_f(const char *p) { return V(set1_ps)(load_f(p)); }
