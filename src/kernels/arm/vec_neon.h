/* The vector words of x86/vec_avx512.h, for arm64 NEON. */
#ifndef DS_KERNELS_ARM_VEC_NEON_H
#define DS_KERNELS_ARM_VEC_NEON_H

#include <arm_neon.h>
#include <stdint.h>

typedef float32x4_t vf;
enum { VL = 4, TILE_ROWS = 4, TILE_VECS = 4, SEQ_VECS = 4 };

static inline vf v_zero(void) { return vdupq_n_f32(0); }
static inline vf v_set1(float x) { return vdupq_n_f32(x); }
static inline vf v_load(const float *p) { return vld1q_f32(p); }
static inline vf v_load_n(const float *p, int n)
{
    float t[4] = { 0 };
    for (int i = 0; i < n; i++) t[i] = p[i];
    return vld1q_f32(t);
}
static inline void v_store(float *p, vf x) { vst1q_f32(p, x); }
static inline void v_store_n(float *p, vf x, int n)
{
    float t[4];
    vst1q_f32(t, x);
    for (int i = 0; i < n; i++) p[i] = t[i];
}
static inline vf v_add(vf a, vf b) { return vaddq_f32(a, b); }
static inline vf v_sub(vf a, vf b) { return vsubq_f32(a, b); }
static inline vf v_mul(vf a, vf b) { return vmulq_f32(a, b); }
static inline vf v_div(vf a, vf b) { return vdivq_f32(a, b); }
static inline vf v_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
static inline vf v_fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }
static inline vf v_max(vf a, vf x) { return vmaxq_f32(a, x); }
static inline vf v_abs(vf x) { return vabsq_f32(x); }
static inline vf v_round(vf x) { return vrndnq_f32(x); }
/* In two factors: 2^n itself may be below the smallest normal. */
static inline vf v_ldexp(vf p, vf n)
{
    int32x4_t e = vcvtq_s32_f32(n), h = vshrq_n_s32(e, 1), bias = vdupq_n_s32(127);
    float32x4_t a = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(h, bias), 23));
    float32x4_t b = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vsubq_s32(e, h), bias), 23));
    return vmulq_f32(vmulq_f32(p, a), b);
}
static inline vf v_if_neg(vf x, vf a, vf b) { return vbslq_f32(vcltzq_f32(x), a, b); }
static inline vf v_first(int n, vf a, vf b)
{
    static const int32_t lane[4] = { 0, 1, 2, 3 };
    return vbslq_f32(vcgtq_s32(vdupq_n_s32(n), vld1q_s32(lane)), a, b);
}
static inline float v_sum(vf x) { return vaddvq_f32(x); }
static inline vf v_sums(const vf a[4]) { return vpaddq_f32(vpaddq_f32(a[0], a[1]), vpaddq_f32(a[2], a[3])); }
static inline void v_load4(const float *p, vf x[4])
{
    float32x4x4_t t = vld4q_f32(p);
    for (int j = 0; j < 4; j++) x[j] = t.val[j];
}
static inline void v_transpose(vf x[4])
{
    const float32x4x2_t a = vzipq_f32(x[0], x[2]), b = vzipq_f32(x[1], x[3]);
    const float32x4x2_t lo = vzipq_f32(a.val[0], b.val[0]), hi = vzipq_f32(a.val[1], b.val[1]);
    x[0] = lo.val[0];
    x[1] = lo.val[1];
    x[2] = hi.val[0];
    x[3] = hi.val[1];
}
static inline vf v_load_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
static inline void v_store_f16(uint16_t *p, vf x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }

#endif
