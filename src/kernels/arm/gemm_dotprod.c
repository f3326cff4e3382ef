/* Weight products with sdot: four signed products into each 32-bit lane. */
#define ROWS 16
#define TOKS 6
#define HAS_WIDE 0
#include "kernels/gemm_tile.h"
#include "kernels/arm/gemm_vec_neon.h"
#include "kernels/gemm_float.h"
#include "kernels/arm/gemm_pack_neon.h"

/* A token's group of four is one lane of a vector of tokens. */
INLINE void dot_groups(int NT, int J, int32x4_t (*s)[TOKS], const int8_t *q, const char *x)
{
    UNROLL for (int j = 0; j < J; j++) {
        const int8_t *a = (const int8_t *)x + 4 * NT * j;
        int8x16_t a4 = NT >= 4 ? vld1q_s8(a) : vdupq_n_s8(0);
        int8x8_t a2 = NT == 6 ? vld1_s8(a + 16) : NT == 2 || NT == 3 ? vld1_s8(a) : vdup_n_s8(0);
        int8x16_t last = NT & 1 ? vreinterpretq_s8_s32(vdupq_n_s32(load_i((const char *)a + 4 * (NT - 1)))) : a4;
        UNROLL for (int v = 0; v < 2; v++) {
            int8x16_t w = vld1q_s8(q + 4 * ROWS * j + 16 * v);
            if (NT >= 4) {
                s[v][0] = vdotq_laneq_s32(s[v][0], w, a4, 0);
                s[v][1] = vdotq_laneq_s32(s[v][1], w, a4, 1);
                s[v][2] = vdotq_laneq_s32(s[v][2], w, a4, 2);
                s[v][3] = vdotq_laneq_s32(s[v][3], w, a4, 3);
            }
            if (NT == 2 || NT == 3 || NT == 6) {
                const int t = NT == 6 ? 4 : 0;
                s[v][t] = vdotq_lane_s32(s[v][t], w, a2, 0);
                s[v][t + 1] = vdotq_lane_s32(s[v][t + 1], w, a2, 1);
            }
            if (NT & 1) s[v][NT - 1] = vdotq_s32(s[v][NT - 1], w, last);
        }
    }
}

INLINE int32x4_t dot_16(int32x4_t s, int8x16_t w, int8x16_t x) { return vdotq_s32(s, w, x); }

#include "kernels/arm/gemm_rows_neon.h"
#include "kernels/arm/gemv_neon.h"

static const char *name(const struct ds_gemm_kernels *g, const struct ds_type *t, int n, bool decode)
{
    static const char *const names[DS_T_COUNT] = DS_KERNEL_NAMES("dotprod 16x6");
    (void)g, (void)n, (void)decode;
    return names[ds_type_id(t)];
}

void ds_gemm_dotprod(struct ds_gemm_kernels *g)
{
    fill_table(g);
    g->gemv = gemv;
    g->name = name;
}
