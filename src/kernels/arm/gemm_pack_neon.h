/* Activations into packed tiles, token by token. Same numbers as ds_act_q8_0 and ds_act_q8_k. */

static const int32_t not_finite = 0x7f800000;

/* Largest |x| as bits: as integers they have the order of the magnitudes, with infinity and NaN on top. */
INLINE int32_t top_bits(const float *x, int n)
{
    int32x4_t top = vdupq_n_s32(0);
    for (int i = 0; i < n; i += 4) top = vmaxq_s32(top, vandq_s32(vld1q_s32((const int32_t *)(const void *)(x + i)), vdupq_n_s32(0x7fffffff)));
    return vmaxvq_s32(top);
}

/* Eight integers from eight f32, saturated. */
INLINE int8x8_t narrow_8(int32x4_t a, int32x4_t b) { return vqmovn_s16(vcombine_s16(vqmovn_s32(a), vqmovn_s32(b))); }

/* Q8_0: half away from zero, which is what vcvta does. */
INLINE float quantise_32(int8_t *q, const float *x)
{
    const int32_t top = top_bits(x, 32);
    float amax;
    memcpy(&amax, &top, 4);
    const float d = amax / 127;
    if (top >= not_finite || d < 1.17549435e-38f) {
        memset(q, 0, 32);
        return top >= not_finite ? NAN : ds_round_h(d);
    }
    const float inverse = 1 / d;
    for (int i = 0; i < 32; i += 8)
        vst1_s8(q + i, narrow_8(vcvtaq_s32_f32(vmulq_n_f32(vld1q_f32(x + i), inverse)), vcvtaq_s32_f32(vmulq_n_f32(vld1q_f32(x + i + 4), inverse))));
    return ds_round_h(d);
}

/* Q8_K: the first element of largest magnitude becomes -127; half to even, which is what vcvtn does. */
INLINE float quantise_256(int8_t *q, const float *x)
{
    const int32_t top = top_bits(x, 256);
    float amax;
    memcpy(&amax, &top, 4);
    if (top >= not_finite || amax <= 127 / 3.40282347e+38f) {
        memset(q, 0, 256);
        return top >= not_finite ? NAN : 0;
    }
    int first = 0;
    while (fabsf(x[first]) != amax) first++;
    const float s = -127 / x[first];
    for (int i = 0; i < 256; i += 8)
        vst1_s8(q + i, narrow_8(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i), s)), vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i + 4), s))));
    return 1 / s;
}

INLINE int sum_16(const int8_t *q) { return vaddlvq_s8(vld1q_s8(q)); }

static void pack_q8_0(char *dst, int w, const float *const x[8], int len)
{
    for (int b = 0; b < len / 32; b++, dst += Q8_0_BYTES * w)
        for (int t = 0; t < w; t++) {
            int8_t q[32];
            float d = quantise_32(q, x[t] + 32 * b);
            int32_t s = -128 * (sum_16(q) + sum_16(q + 16));
            for (int j = 0; j < 8; j++) memcpy(dst + 4 * w * j + 4 * t, q + 4 * j, 4);
            memcpy(dst + 32 * w + 4 * t, &d, 4);
            memcpy(dst + 36 * w + 4 * t, &s, 4);
        }
}

static void pack_q8_k(char *dst, int w, const float *const x[8], int len)
{
    for (int b = 0; b < len / 256; b++, dst += Q8_K_BYTES * w)
        for (int t = 0; t < w; t++) {
            int8_t q[256];
            int16_t m[16], m32[8];
            int32_t s[25] = { 0 };                      /* -128 times the sums of 256, 8 of 32, 16 of 16 */
            float d = quantise_256(q, x[t] + 256 * b);
            for (int j = 0; j < 16; j++) {
                m[j] = (int16_t)sum_16(q + 16 * j);
                s[0] += -128 * m[j];
                s[9 + j] = -128 * m[j];
            }
            for (int j = 0; j < 8; j++) {
                m32[j] = (int16_t)(m[2 * j] + m[2 * j + 1]);
                s[1 + j] = -128 * m32[j];
            }
            for (int j = 0; j < 64; j++) memcpy(dst + 4 * w * j + 4 * t, q + 4 * j, 4);
            memcpy(dst + K_D * w + 4 * t, &d, 4);
            for (int j = 0; j < 25; j++) memcpy(dst + K_S256 * w + 4 * w * j + 4 * t, s + j, 4);
            for (int j = 0; j < 4; j++) memcpy(dst + K_M32 * w + 4 * w * j + 4 * t, m32 + 2 * j, 4);
            for (int j = 0; j < 8; j++) memcpy(dst + K_M16 * w + 4 * w * j + 4 * t, m + 2 * j, 4);
        }
}
