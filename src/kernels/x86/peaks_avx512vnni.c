/* Peak probe of the 512-bit vpdpbusd (see peaks_avx2.c). */
#include "kernels/peaks.h"

#include <immintrin.h>

double ds_probe_int8_avx512vnni(int rounds)
{
    __m512i acc[12], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
    for (int i = 0; i < 12; i++) acc[i] = _mm512_setzero_si512();
    for (int r = 0; r < rounds; r++) {
#define STEP(i) __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(acc[i]) : "v"(a), "v"(b));
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11)
#undef STEP
    }
    return (double)rounds * 12 * 64 * 2;
}
