/* Dot products on vpdpbusd, which adds four products of an unsigned and a signed byte to a 32-bit
 * lane. Weights are the unsigned side: signed ones gain 128, undone by starting the sums at -128 times
 * the sum of the activations. Included after gemm_vec.h with V_DPBUSD and V_DPWSSD. */

static inline struct dot_kind kind_of(enum ds_type_id id)
{
    return (struct dot_kind){ .bias = ds_gemm_form_of(id).nonneg ? 0 : 128, .groups = 8 };
}

/* s[v][t] += integers of J groups of four, weights at q, activations at x. */
INLINE void dot_groups(int NT, int J, struct dot_kind kind, VI (*s)[TOKS], const uint8_t *q, const char *x)
{
    (void)kind;
    UNROLL for (int j = 0; j < J; j++) {
        VI w[RV];
        UNROLL for (int v = 0; v < RV; v++) w[v] = V_LOAD_I(q + 4 * ROWS * j + 4 * LANES * v);
        UNROLL for (int t = 0; t < NT; t++) {
            VI a = bcast_i(x + 4 * NT * j + 4 * t);
            UNROLL for (int v = 0; v < RV; v++) s[v][t] = V_DPBUSD(s[v][t], w[v], a);
        }
    }
}

INLINE void sums_start(int NT, struct dot_kind kind, VI (*s)[TOKS], const char *minus)
{
    UNROLL for (int t = 0; t < NT; t++) {
        VI a = kind.bias ? bcast_i(minus + 4 * t) : V_ZERO_I();
        UNROLL for (int v = 0; v < RV; v++) s[v][t] = a;
    }
}

INLINE void sums_end(int NT, struct dot_kind kind, VI (*s)[TOKS], const char *minus) { (void)NT, (void)kind, (void)s, (void)minus; }

#include "kernels/x86/gemm_int.h"

WIDTHS(k_signed_32, tile_q8_0(NT, kind_of(DS_T_Q8_0), false, p, x, acc, len, first))
WIDTHS(k_min_32, tile_q8_0(NT, kind_of(DS_T_Q4_1), true, p, x, acc, len, first))
WIDTHS(k_q6_k, tile_q8_k(NT, kind_of(DS_T_Q6_K), 16, 0, p, x, acc, len, first))
WIDTHS(k_iq4_xs, tile_q8_k(NT, kind_of(DS_T_IQ4_XS), 32, 0, p, x, acc, len, first))
WIDTHS(k_q4_k, tile_q8_k(NT, kind_of(DS_T_Q4_K), 32, 32, p, x, acc, len, first))
WIDTHS(k_q2_k, tile_q8_k(NT, kind_of(DS_T_Q2_K), 256, 16, p, x, acc, len, first))
WIDTHS(k_q3_k, tile_q8_k(NT, kind_of(DS_T_Q3_K), 256, 0, p, x, acc, len, first))

static struct product product_of(enum ds_type_id id)
{
    switch (id) {
    case DS_T_F32: return (struct product){ unpack_F32, k_f32 };
    case DS_T_F16: return (struct product){ unpack_F16, k_f32 };
    case DS_T_BF16: return (struct product){ unpack_BF16, k_f32 };
    case DS_T_Q8_0: return (struct product){ unpack_Q8_0, k_signed_32 };
    case DS_T_Q4_0: return (struct product){ unpack_Q4_0, k_signed_32 };
    case DS_T_Q5_0: return (struct product){ unpack_Q5_0, k_signed_32 };
    case DS_T_IQ4_NL: return (struct product){ unpack_IQ4_NL, k_signed_32 };
    case DS_T_MXFP4: return (struct product){ unpack_MXFP4, k_signed_32 };
    case DS_T_Q4_1: return (struct product){ unpack_Q4_1, k_min_32 };
    case DS_T_Q5_1: return (struct product){ unpack_Q5_1, k_min_32 };
    case DS_T_Q2_K: return (struct product){ unpack_Q2_K, k_q2_k };
    case DS_T_Q3_K: return (struct product){ unpack_Q3_K, k_q3_k };
    case DS_T_Q4_K: return (struct product){ unpack_Q4_K, k_q4_k };
    case DS_T_Q5_K: return (struct product){ unpack_Q5_K, k_q4_k };
    case DS_T_Q6_K: return (struct product){ unpack_Q6_K, k_q6_k };
    case DS_T_IQ4_XS: return (struct product){ unpack_IQ4_XS, k_iq4_xs };
    default: return (struct product){ 0 };
    }
}
