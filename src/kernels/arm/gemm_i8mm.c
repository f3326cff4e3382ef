/* Weight products with smmla: two rows by two tokens by eight elements. */
#define ROWS 16
#define TOKS 6
#define HAS_WIDE 0
#include "kernels/gemm_tile.h"
#include "kernels/arm/gemm_vec_neon.h"
#include "kernels/gemm_float.h"
#include "kernels/arm/gemm_pack_neon.h"

#include "kernels/arm/gemm_tile_i8mm.h"

INLINE int32x4_t dot_16(int32x4_t s, int8x16_t w, int8x16_t x) { return vdotq_s32(s, w, x); }

#include "kernels/arm/gemv_neon.h"

static const char *name(const struct ds_gemm_kernels *g, const struct ds_type *t, int n, bool decode)
{
    static const char *const names[DS_T_COUNT] = DS_KERNEL_NAMES("i8mm 16x6");
    (void)g, (void)n, (void)decode;
    return names[ds_type_id(t)];
}

void ds_gemm_i8mm(struct ds_gemm_kernels *g)
{
    fill_table(g);
    g->gemv = gemv;
    g->name = name;
}
