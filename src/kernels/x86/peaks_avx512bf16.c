/* Peak probe of the bf16 dot product (see peaks_avx2.c). */
#include "kernels/peaks.h"

#include <immintrin.h>

double ds_probe_bf16_avx512bf16(int rounds)
{
    __m512 acc[12], a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
    for (int i = 0; i < 12; i++) acc[i] = _mm512_setzero_ps();
    for (int r = 0; r < rounds; r++) {
#define STEP(i) __asm__ volatile("vdpbf16ps %2, %1, %0" : "+v"(acc[i]) : "v"(a), "v"(b));
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11)
#undef STEP
    }
    return (double)rounds * 12 * 32 * 2;
}
