/* Peak probe of sdot (see peaks_neon.c). */
#include "kernels/peaks.h"

#include <arm_neon.h>

double ds_probe_int8_dotprod(int rounds)
{
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(5);
    int32x4_t acc[12];
    for (int i = 0; i < 12; i++) acc[i] = vdupq_n_s32(0);
    for (int r = 0; r < rounds; r++) {
#define STEP(i) __asm__ volatile("sdot %0.4s, %1.16b, %2.16b" : "+w"(acc[i]) : "w"(a), "w"(b));
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11)
#undef STEP
    }
    return (double)rounds * 12 * 16 * 2;
}
