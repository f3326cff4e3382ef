/* Weight products with the baseline of arm64. */
#define ROWS 16
#define TOKS 6
#define HAS_WIDE 0
#include "kernels/gemm_tile.h"
#include "kernels/arm/gemm_vec_neon.h"
#include "kernels/gemm_float.h"
#include "kernels/arm/gemm_pack_neon.h"

/* smull and smlal: products of 8-bit pairs in 16 bits, two of them at most (2 * 128 * 127 < 2^15), then
 * pairwise into 32 bits. Four rows of eight groups stay in registers while the tokens pass. */
INLINE void dot_groups(int NT, int J, int32x4_t (*s)[TOKS], const int8_t *q, const char *x)
{
    UNROLL for (int v = 0; v < 2; v++) {
        int8x16_t w[8];
        UNROLL for (int j = 0; j < J; j++) w[j] = vld1q_s8(q + 4 * ROWS * j + 16 * v);
        UNROLL for (int t = 0; t < NT; t++) {
            int32x4_t lo = vdupq_n_s32(0), hi = vdupq_n_s32(0);
            UNROLL for (int j = 0; j < J; j += 2) {
                int8x8_t a = vreinterpret_s8_s32(vdup_n_s32(load_i(x + 4 * NT * j + 4 * t)));
                int8x8_t b = vreinterpret_s8_s32(vdup_n_s32(load_i(x + 4 * NT * (j + 1) + 4 * t)));
                lo = vpadalq_s16(lo, vmlal_s8(vmull_s8(vget_low_s8(w[j]), a), vget_low_s8(w[j + 1]), b));
                hi = vpadalq_s16(hi, vmlal_s8(vmull_s8(vget_high_s8(w[j]), a), vget_high_s8(w[j + 1]), b));
            }
            s[v][t] = vaddq_s32(s[v][t], vpaddq_s32(lo, hi));
        }
    }
}

INLINE int32x4_t dot_16(int32x4_t s, int8x16_t w, int8x16_t x)
{
    s = vpadalq_s16(s, vmull_s8(vget_low_s8(w), vget_low_s8(x)));
    return vpadalq_s16(s, vmull_s8(vget_high_s8(w), vget_high_s8(x)));
}

#include "kernels/arm/gemm_rows_neon.h"
#include "kernels/arm/gemv_neon.h"

static const char *name(const struct ds_gemm_kernels *g, const struct ds_type *t, int n, bool decode)
{
    static const char *const names[DS_T_COUNT] = DS_KERNEL_NAMES("neon 16x6");
    (void)g, (void)n, (void)decode;
    return names[ds_type_id(t)];
}

void ds_gemm_neon(struct ds_gemm_kernels *g)
{
    fill_table(g);
    g->gemv = gemv;
    g->name = name;
}
