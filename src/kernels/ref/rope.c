#include "kernels/kernels_variants.h"
#include "quant/type.h"

void ds_rope_ref(float *x, const float *cos, const float *sin, int n_rot)
{
    int half = n_rot / 2;
    for (int j = 0; j < half; j++) {
        float a = x[j], b = x[j + half];
        x[j] = a * cos[j] - b * sin[j];
        x[j + half] = b * cos[j] + a * sin[j];
    }
}

void ds_f32_to_f16_ref(uint16_t *dst, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = ds_f32_to_f16(src[i]);
}

void ds_f16_to_f32_ref(float *dst, const uint16_t *src, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = ds_f16_to_f32(src[i]);
}
