/* Peak probes of 512-bit vectors (see peaks_avx2.c). */
#include "kernels/peaks.h"

#include <immintrin.h>

double ds_probe_f32_avx512(int rounds)
{
    __m512 acc[12], a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
    for (int i = 0; i < 12; i++) acc[i] = _mm512_setzero_ps();
    for (int r = 0; r < rounds; r++) {
#define STEP(i) __asm__ volatile("vfmadd231ps %2, %1, %0" : "+v"(acc[i]) : "v"(a), "v"(b));
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11)
#undef STEP
    }
    return (double)rounds * 12 * 16 * 2;
}

double ds_probe_int8_avx512(int rounds)
{
    __m512i acc[6], t, a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5), one = _mm512_set1_epi16(1);
    for (int i = 0; i < 6; i++) acc[i] = _mm512_setzero_si512();
    for (int r = 0; r < rounds; r++) {
#define STEP(i) __asm__ volatile("vpmaddubsw %2, %3, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0" \
                                 : "+v"(acc[i]), "=&v"(t) : "v"(b), "v"(a), "v"(one));
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5)
#undef STEP
    }
    return (double)rounds * 6 * 64 * 2;
}
