/* Peak probes: twelve independent chains, held in registers by the asm, so that the compiler can
 * neither drop nor reorder them. */
#include "kernels/peaks.h"

#include <immintrin.h>

double ds_probe_f32_avx2(int rounds)
{
    __m256 acc[12], a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
    for (int i = 0; i < 12; i++) acc[i] = _mm256_setzero_ps();
    for (int r = 0; r < rounds; r++) {
#define STEP(i) __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(acc[i]) : "x"(a), "x"(b));
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11)
#undef STEP
    }
    return (double)rounds * 12 * 8 * 2;
}

/* Unsigned by signed bytes to 16 bits, then to 32: what an integer product costs without VNNI. */
double ds_probe_int8_avx2(int rounds)
{
    __m256i acc[6], t, a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5), one = _mm256_set1_epi16(1);
    for (int i = 0; i < 6; i++) acc[i] = _mm256_setzero_si256();
    for (int r = 0; r < rounds; r++) {
#define STEP(i) __asm__ volatile("vpmaddubsw %2, %3, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0" \
                                 : "+x"(acc[i]), "=&x"(t) : "x"(b), "x"(a), "x"(one));
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5)
#undef STEP
    }
    return (double)rounds * 6 * 32 * 2;
}
