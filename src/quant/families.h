/* What each family file gives to the table in type.c. Private to src/quant. */
#ifndef DS_QUANT_FAMILIES_H
#define DS_QUANT_FAMILIES_H

#include <stddef.h>
#include <stdint.h>

void ds_f32_decode(float *dst, const void *src, size_t n);
void ds_f32_encode(void *dst, const float *src, size_t n);
void ds_f32_random(void *dst, size_t n, float sd, uint64_t seed);
void ds_f16_decode(float *dst, const void *src, size_t n);
void ds_f16_encode(void *dst, const float *src, size_t n);
void ds_f16_random(void *dst, size_t n, float sd, uint64_t seed);
void ds_bf16_decode(float *dst, const void *src, size_t n);
void ds_bf16_encode(void *dst, const float *src, size_t n);
void ds_bf16_random(void *dst, size_t n, float sd, uint64_t seed);
void ds_q8_0_decode(float *dst, const void *src, size_t n);
void ds_q8_0_encode(void *dst, const float *src, size_t n);
void ds_q8_0_random(void *dst, size_t n, float sd, uint64_t seed);
void ds_q4_0_decode(float *dst, const void *src, size_t n);
void ds_q4_0_encode(void *dst, const float *src, size_t n);
void ds_q4_0_random(void *dst, size_t n, float sd, uint64_t seed);
void ds_q4_1_decode(float *dst, const void *src, size_t n);
void ds_q4_1_random(void *dst, size_t n, float sd, uint64_t seed);
void ds_q5_0_decode(float *dst, const void *src, size_t n);
void ds_q5_0_random(void *dst, size_t n, float sd, uint64_t seed);
void ds_q5_1_decode(float *dst, const void *src, size_t n);
void ds_q5_1_random(void *dst, size_t n, float sd, uint64_t seed);
void ds_q2_k_decode(float *dst, const void *src, size_t n);
void ds_q2_k_random(void *dst, size_t n, float sd, uint64_t seed);
void ds_q3_k_decode(float *dst, const void *src, size_t n);
void ds_q3_k_random(void *dst, size_t n, float sd, uint64_t seed);
void ds_q4_k_decode(float *dst, const void *src, size_t n);
void ds_q4_k_encode(void *dst, const float *src, size_t n);
void ds_q4_k_random(void *dst, size_t n, float sd, uint64_t seed);
void ds_q5_k_decode(float *dst, const void *src, size_t n);
void ds_q5_k_random(void *dst, size_t n, float sd, uint64_t seed);
void ds_q6_k_decode(float *dst, const void *src, size_t n);
void ds_q6_k_encode(void *dst, const float *src, size_t n);
void ds_q6_k_random(void *dst, size_t n, float sd, uint64_t seed);
void ds_iq4_nl_decode(float *dst, const void *src, size_t n);
void ds_iq4_nl_random(void *dst, size_t n, float sd, uint64_t seed);
void ds_iq4_xs_decode(float *dst, const void *src, size_t n);
void ds_iq4_xs_random(void *dst, size_t n, float sd, uint64_t seed);
void ds_mxfp4_decode(float *dst, const void *src, size_t n);
void ds_mxfp4_random(void *dst, size_t n, float sd, uint64_t seed);

/* Packs eight 6-bit scales and minima, the inverse of ds_k4_scale. */
void ds_k4_scales_set(uint8_t s[12], const int sc[8], const int m[8]);

#endif
