/* The Metal standard library as far as our shaders use it, for the executor. What Metal refuses is refused here too where the
 * type system can do it: no conversion between vector types, no mixed min/max, no implicit float to half.
 *
 * Source of names and meanings: the Metal Shading Language specification. */
#ifndef DS_TESTS_METAL_SIM_MSL_EXEC_H
#define DS_TESTS_METAL_SIM_MSL_EXEC_H
#pragma GCC system_header

#include "kernel_abi.h"
#include "half.h"

#define __METAL_VERSION__ 310

/* Address spaces mean nothing here; msl_spaces.h checks them. wrap.py turns declarations of threadgroup variables into
 * SIM_THREADGROUP. */
#define kernel
#define device
#define constant const
#define threadgroup
#define thread
#define SIM_THREADGROUP(T, name, dims) \
    T(&name) dims = *static_cast<T(*) dims>(sim_threadgroup_memory(sizeof(T dims), 16))
#define SIM_FUNCTION_CONSTANT(name, index) static struct { operator int() const { return sim_constant(index); } } name

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

namespace metal {

/* --- vectors --- */

template <class T, int N> struct vec;
template <class T> struct alignas(2 * sizeof(T)) vec<T, 2> {
    T x, y;
    vec() = default;
    explicit vec(T a) : x(a), y(a) {}
    T &operator[](int i) { return (&x)[i]; }
    const T &operator[](int i) const { return (&x)[i]; }
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 3> {
    T x, y, z;
    vec() = default;
    explicit vec(T a) : x(a), y(a), z(a) {}
    T &operator[](int i) { return (&x)[i]; }
    const T &operator[](int i) const { return (&x)[i]; }
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 4> {
    T x, y, z, w;
    vec() = default;
    explicit vec(T a) : x(a), y(a), z(a), w(a) {}
    T &operator[](int i) { return (&x)[i]; }
    const T &operator[](int i) const { return (&x)[i]; }
};

#define SIM_VECTOR_OP(op) \
    template <class T, int N> inline vec<T, N> operator op(vec<T, N> a, vec<T, N> b) { for (int i = 0; i < N; i++) a[i] = a[i] op b[i]; return a; } \
    template <class T, int N> inline vec<T, N> operator op(vec<T, N> a, T b) { for (int i = 0; i < N; i++) a[i] = a[i] op b; return a; } \
    template <class T, int N> inline vec<T, N> operator op(T b, vec<T, N> a) { for (int i = 0; i < N; i++) a[i] = b op a[i]; return a; } \
    template <class T, int N> inline vec<T, N> &operator op##=(vec<T, N> &a, vec<T, N> b) { return a = a op b; } \
    template <class T, int N> inline vec<T, N> &operator op##=(vec<T, N> &a, T b) { return a = a op b; }
SIM_VECTOR_OP(+)
SIM_VECTOR_OP(-)
SIM_VECTOR_OP(*)
SIM_VECTOR_OP(/)
SIM_VECTOR_OP(&)
SIM_VECTOR_OP(|)
SIM_VECTOR_OP(>>)
SIM_VECTOR_OP(<<)
#undef SIM_VECTOR_OP
template <class T, int N> inline T dot(vec<T, N> a, vec<T, N> b)
{
    T s = a[0] * b[0];
    for (int i = 1; i < N; i++) s = s + a[i] * b[i];
    return s;
}

/* --- numbers --- */

#define SIM_MINMAX(T) \
    inline T min(T a, T b) { return b < a ? b : a; } \
    inline T max(T a, T b) { return a < b ? b : a; } \
    inline T clamp(T x, T lo, T hi) { return min(max(x, lo), hi); }
SIM_MINMAX(int)
SIM_MINMAX(uint)
SIM_MINMAX(long)
SIM_MINMAX(ulong)
SIM_MINMAX(short)
SIM_MINMAX(ushort)
#undef SIM_MINMAX
/* A number wins over NaN, as on the device. */
inline float min(float a, float b) { return __builtin_fminf(a, b); }
inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
inline float clamp(float x, float lo, float hi) { return min(max(x, lo), hi); }

inline int abs(int x) { return x < 0 ? -x : x; }
inline float fabs(float x) { return __builtin_fabsf(x); }
inline float abs(float x) { return __builtin_fabsf(x); }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float rint(float x) { return __builtin_rintf(x); }
inline float ldexp(float x, int e) { return __builtin_ldexpf(x, e); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
inline uint popcount(uint x) { return (uint)__builtin_popcount(x); }
template <class T> inline T select(T a, T b, bool c) { return c ? b : a; }
template <class To, class From> inline To as_type(From f)
{
    static_assert(sizeof(To) == sizeof(From), "as_type changes no size");
    To t;
    __builtin_memcpy(&t, &f, sizeof t);
    return t;
}

namespace precise {
inline float exp(float x) { return sim_rough(__builtin_expf(x)); }
inline float log(float x) { return sim_rough(__builtin_logf(x)); }
inline float sqrt(float x) { return sim_rough(__builtin_sqrtf(x)); }
inline float rsqrt(float x) { return sim_rough(1.0f / __builtin_sqrtf(x)); }
}
using precise::sqrt;
using precise::rsqrt;

/* --- lanes --- */

template <class T> inline uint sim_bits(T v) { static_assert(sizeof(T) == 4, "lanes exchange 32 bits"); return as_type<uint>(v); }
#define SIM_REDUCTION(name, op_f, op_i, op_u) \
    inline float name(float v, int line = __builtin_LINE()) { return as_type<float>(sim_exchange(op_f, sim_bits(v), 0, line)); } \
    inline int name(int v, int line = __builtin_LINE()) { return (int)sim_exchange(op_i, (uint)v, 0, line); } \
    inline uint name(uint v, int line = __builtin_LINE()) { return sim_exchange(op_u, v, 0, line); }
SIM_REDUCTION(simd_sum, SIM_SUM_F32, SIM_SUM_I32, SIM_SUM_I32)
SIM_REDUCTION(simd_max, SIM_MAX_F32, SIM_MAX_I32, SIM_MAX_U32)
SIM_REDUCTION(simd_min, SIM_MIN_F32, SIM_MIN_I32, SIM_MIN_U32)
SIM_REDUCTION(simd_prefix_inclusive_sum, SIM_PREFIX_INCLUSIVE_F32, SIM_PREFIX_INCLUSIVE_I32, SIM_PREFIX_INCLUSIVE_I32)
SIM_REDUCTION(simd_prefix_exclusive_sum, SIM_PREFIX_EXCLUSIVE_F32, SIM_PREFIX_EXCLUSIVE_I32, SIM_PREFIX_EXCLUSIVE_I32)
#undef SIM_REDUCTION
inline uint simd_and(uint v, int line = __builtin_LINE()) { return sim_exchange(SIM_AND, v, 0, line); }
inline uint simd_or(uint v, int line = __builtin_LINE()) { return sim_exchange(SIM_OR, v, 0, line); }
#define SIM_LANES(name, op) \
    template <class T> inline T name(T v, ushort n, int line = __builtin_LINE()) { return as_type<T>(sim_exchange(op, sim_bits(v), n, line)); }
SIM_LANES(simd_shuffle, SIM_SHUFFLE)
SIM_LANES(simd_shuffle_xor, SIM_SHUFFLE_XOR)
SIM_LANES(simd_shuffle_up, SIM_SHUFFLE_UP)
SIM_LANES(simd_shuffle_down, SIM_SHUFFLE_DOWN)
SIM_LANES(simd_broadcast, SIM_BROADCAST)
#undef SIM_LANES

/* --- barriers --- */

enum class mem_flags { mem_none = SIM_MEM_NONE, mem_device = SIM_MEM_DEVICE, mem_threadgroup = SIM_MEM_THREADGROUP };
inline mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((int)a | (int)b); }
inline void threadgroup_barrier(mem_flags f, int line = __builtin_LINE()) { sim_barrier(SIM_THREADGROUP_BARRIER, (int)f, line); }
inline void simdgroup_barrier(mem_flags f, int line = __builtin_LINE()) { sim_barrier(SIM_SIMDGROUP_BARRIER, (int)f, line); }

/* --- 8x8 matrices --- */

template <class T> struct sim_is_half { enum { value = 0 }; };
template <> struct sim_is_half<half> { enum { value = 1 }; };
template <class T, int R, int C> struct simdgroup_matrix {
    static_assert(R == 8 && C == 8, "Metal has 8x8 only");
    sim_fragment f;
    simdgroup_matrix() { f.e[0] = f.e[1] = __builtin_nanf(""); }
    explicit simdgroup_matrix(T v) { sim_matrix_diagonal(&f, (float)v); }   /* v on the diagonal, not everywhere */
};
template <class T, int R, int C> inline simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T v)
{
    simdgroup_matrix<T, R, C> m;
    m.f.e[0] = m.f.e[1] = (float)v;
    return m;
}
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;

template <class T> inline void simdgroup_load(simdgroup_matrix<T, 8, 8> &d, const T *p, ulong stride = 8, vec<ulong, 2> origin = vec<ulong, 2>(0ul),
                                              bool transpose = false, int line = __builtin_LINE())
{
    sim_matrix_access m = { const_cast<T *>(p), stride, origin.x, origin.y, transpose, sim_is_half<T>::value };
    sim_matrix(SIM_MATRIX_LOAD, &d.f, 0, 0, 0, &m, false, line);
}
template <class T> inline void simdgroup_store(const simdgroup_matrix<T, 8, 8> &a, T *p, ulong stride = 8,
                                               vec<ulong, 2> origin = vec<ulong, 2>(0ul), bool transpose = false, int line = __builtin_LINE())
{
    sim_matrix_access m = { p, stride, origin.x, origin.y, transpose, sim_is_half<T>::value };
    sim_matrix(SIM_MATRIX_STORE, 0, &a.f, 0, 0, &m, false, line);
}
template <class D, class A, class B>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a, const simdgroup_matrix<B, 8, 8> &b,
                                          const simdgroup_matrix<D, 8, 8> &c, int line = __builtin_LINE())
{
    sim_matrix(SIM_MATRIX_MULTIPLY, &d.f, &a.f, &b.f, &c.f, 0, sim_is_half<D>::value, line);
}

typedef vec<float, 2> float2;
typedef vec<float, 3> float3;
typedef vec<float, 4> float4;
typedef vec<half, 2> half2;
typedef vec<half, 4> half4;
typedef vec<int, 2> int2;
typedef vec<int, 4> int4;
typedef vec<uint, 2> uint2;
typedef vec<uint, 3> uint3;
typedef vec<uint, 4> uint4;
typedef vec<ushort, 2> ushort2;
typedef vec<ushort, 4> ushort4;
typedef vec<char, 2> char2;
typedef vec<char, 4> char4;
typedef vec<uchar, 4> uchar4;
typedef vec<ulong, 2> ulong2;

}

#endif
