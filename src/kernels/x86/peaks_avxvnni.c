/* Peak probe of the VEX form of vpdpbusd (see peaks_avx2.c). */
#include "kernels/peaks.h"

#include <immintrin.h>

double ds_probe_int8_avxvnni(int rounds)
{
    __m256i acc[12], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
    for (int i = 0; i < 12; i++) acc[i] = _mm256_setzero_si256();
    for (int r = 0; r < rounds; r++) {
#define STEP(i) __asm__ volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc[i]) : "x"(a), "x"(b));
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11)
#undef STEP
    }
    return (double)rounds * 12 * 32 * 2;
}
