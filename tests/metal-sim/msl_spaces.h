/* The same names as declarations, with clang's address spaces in place: compiled for syntax only, this finds pointers and
 * references in the wrong space, conversions between vector types, and calls that Metal has no overload for. Vectors are
 * clang's own here, as in Metal's compiler, so that they can live in any space. */
#ifndef DS_TESTS_METAL_SIM_MSL_SPACES_H
#define DS_TESTS_METAL_SIM_MSL_SPACES_H
#pragma GCC system_header

#define __METAL_VERSION__ 310
#define kernel
#define device __attribute__((address_space(1)))
#define constant const __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#define thread
#define SIM_THREADGROUP(T, name, dims) static threadgroup T name dims
#define SIM_FUNCTION_CONSTANT(name, index) extern constant int name

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;

namespace metal {

#define SIM_VECTORS(T) \
    typedef T T##2 __attribute__((ext_vector_type(2))); \
    typedef T T##3 __attribute__((ext_vector_type(3))); \
    typedef T T##4 __attribute__((ext_vector_type(4)));
SIM_VECTORS(float)
SIM_VECTORS(half)
SIM_VECTORS(int)
SIM_VECTORS(uint)
SIM_VECTORS(short)
SIM_VECTORS(ushort)
SIM_VECTORS(char)
SIM_VECTORS(uchar)
SIM_VECTORS(ulong)
float dot(float4, float4);
float dot(float2, float2);

#define SIM_MINMAX(T) T min(T, T); T max(T, T); T clamp(T, T, T);
SIM_MINMAX(int)
SIM_MINMAX(uint)
SIM_MINMAX(long)
SIM_MINMAX(ulong)
SIM_MINMAX(short)
SIM_MINMAX(ushort)
SIM_MINMAX(float)
#undef SIM_MINMAX
int abs(int);
float fabs(float), abs(float), fma(float, float, float), rint(float), ldexp(float, int), sqrt(float), rsqrt(float);
bool isfinite(float);
uint popcount(uint);
template <class T> T select(T a, T b, bool c);
template <class To, class From> To as_type(From f);
namespace precise { float exp(float), log(float), sqrt(float), rsqrt(float); }

#define SIM_REDUCTION(name) float name(float); int name(int); uint name(uint);
SIM_REDUCTION(simd_sum)
SIM_REDUCTION(simd_max)
SIM_REDUCTION(simd_min)
SIM_REDUCTION(simd_prefix_inclusive_sum)
SIM_REDUCTION(simd_prefix_exclusive_sum)
#undef SIM_REDUCTION
uint simd_and(uint), simd_or(uint);
template <class T> T simd_shuffle(T, ushort);
template <class T> T simd_shuffle_xor(T, ushort);
template <class T> T simd_shuffle_up(T, ushort);
template <class T> T simd_shuffle_down(T, ushort);
template <class T> T simd_broadcast(T, ushort);

enum class mem_flags { mem_none, mem_device, mem_threadgroup };
mem_flags operator|(mem_flags, mem_flags);
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);

template <class T, int R, int C> struct simdgroup_matrix {
    static_assert(R == 8 && C == 8, "Metal has 8x8 only");
    simdgroup_matrix();
    explicit simdgroup_matrix(T);
};
template <class T, int R, int C> simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T);
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
#define SIM_MATRIX_ACCESS(space) \
    template <class T> void simdgroup_load(simdgroup_matrix<T, 8, 8> &, const space T *, ulong = 8, ulong2 = 0, bool = false); \
    template <class T> void simdgroup_store(simdgroup_matrix<T, 8, 8>, space T *, ulong = 8, ulong2 = 0, bool = false);
SIM_MATRIX_ACCESS(device)
SIM_MATRIX_ACCESS(threadgroup)
#undef SIM_MATRIX_ACCESS
template <class D, class A, class B>
void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> &, simdgroup_matrix<A, 8, 8>, simdgroup_matrix<B, 8, 8>, simdgroup_matrix<D, 8, 8>);

}

#endif
