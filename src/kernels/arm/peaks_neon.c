/* Peak probes of NEON: independent chains held in registers by the asm. */
#include "kernels/peaks.h"

#include <arm_neon.h>

double ds_probe_f32_neon(int rounds)
{
    float32x4_t acc[12], a = vdupq_n_f32(0.5f), b = vdupq_n_f32(0.25f);
    for (int i = 0; i < 12; i++) acc[i] = vdupq_n_f32(0);
    for (int r = 0; r < rounds; r++) {
#define STEP(i) __asm__ volatile("fmla %0.4s, %1.4s, %2.4s" : "+w"(acc[i]) : "w"(a), "w"(b));
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11)
#undef STEP
    }
    return (double)rounds * 12 * 4 * 2;
}

double ds_probe_int8_neon(int rounds)
{
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(5);
    int16x8_t t;
    int32x4_t acc[6];
    for (int i = 0; i < 6; i++) acc[i] = vdupq_n_s32(0);
    for (int r = 0; r < rounds; r++) {
#define STEP(i) __asm__ volatile("smull %1.8h, %2.8b, %3.8b\n\tsmlal2 %1.8h, %2.16b, %3.16b\n\tsadalp %0.4s, %1.8h" \
                                 : "+w"(acc[i]), "=&w"(t) : "w"(a), "w"(b));
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5)
#undef STEP
    }
    return (double)rounds * 6 * 16 * 2;
}
