/* Dot products without VNNI.
 *
 * Narrow types (integers that fit six unsigned bits with a bias): vpmaddubsw multiplies unsigned by
 * signed bytes and adds pairs in 16 bits with saturation; as many groups as cannot reach it are added in
 * 16 bits before vpmaddwd widens them. Wide types (eight bits): int16 on both sides and vpmaddwd, exact,
 * at half the rate. Included after gemm_vec.h. */

static inline struct dot_kind kind_of(enum ds_type_id id)
{
    switch (id) {                                       /* groups * max * 2 * 127 < 32768 */
    case DS_T_Q4_0: return (struct dot_kind){ .bias = 8, .groups = 8 };
    case DS_T_Q4_1: case DS_T_Q4_K: return (struct dot_kind){ .groups = 8 };
    case DS_T_Q5_0: case DS_T_MXFP4: return (struct dot_kind){ .bias = 16, .groups = 4 };
    case DS_T_Q5_1: case DS_T_Q5_K: return (struct dot_kind){ .groups = 4 };
    case DS_T_Q2_K: return (struct dot_kind){ .groups = 2 };
    case DS_T_Q6_K: return (struct dot_kind){ .bias = 32, .groups = 2 };
    default: return (struct dot_kind){ .wide = true };
    }
}

/* Compilers regroup long sums of integers as trees and start all products first, which needs more
 * registers than there are; with sixteen of them the order is held, too. */
#if VECTOR_BITS == 512
#define IN_ORDER(v) __asm__("" : "+v"(v))
#else
#define IN_ORDER(v) __asm__ volatile("" : "+x"(v))
#endif

#define V_DPWSSD(s, a, b) V(add_epi32)(s, V(madd_epi16)(a, b))

INLINE void sums_start(int NT, struct dot_kind kind, VI (*s)[TOKS], const char *minus)
{
    (void)kind, (void)minus;
    UNROLL for (int t = 0; t < NT; t++)
        UNROLL for (int v = 0; v < RV; v++) s[v][t] = V_ZERO_I();
}

/* -128 sum becomes -bias sum by a shift. */
INLINE void sums_end(int NT, struct dot_kind kind, VI (*s)[TOKS], const char *minus)
{
    const int shift = kind.bias == 8 ? 4 : kind.bias == 16 ? 3 : 2;
    if (kind.bias)
        UNROLL for (int t = 0; t < NT; t++) {
            VI a = V(srai_epi32)(bcast_i(minus + 4 * t), shift);
            UNROLL for (int v = 0; v < RV; v++) s[v][t] = V(add_epi32)(s[v][t], a);
        }
}

INLINE void dot_narrow(int NT, int J, int groups, VI (*s)[TOKS], const uint8_t *q, const char *x)
{
    const VI ones = V(set1_epi16)(1);
    UNROLL for (int i = 0; i < J; i += groups) {
        VI h[RV][TOKS];
        UNROLL for (int j = i; j < i + groups; j++) {
            VI w[RV];
            UNROLL for (int v = 0; v < RV; v++) w[v] = V_LOAD_I(q + 4 * ROWS * j + 4 * LANES * v);
            UNROLL for (int t = 0; t < NT; t++) {
                VI a = bcast_i(x + 4 * NT * j + 4 * t);
                UNROLL for (int v = 0; v < RV; v++) {
                    VI product = V(maddubs_epi16)(w[v], a);
                    h[v][t] = j == i ? product : V(add_epi16)(h[v][t], product);
                    IN_ORDER(h[v][t]);
                }
            }
        }
        UNROLL for (int v = 0; v < RV; v++)
            UNROLL for (int t = 0; t < NT; t++) {
                s[v][t] = V(add_epi32)(s[v][t], V(madd_epi16)(h[v][t], ones));
                IN_ORDER(s[v][t]);
            }
    }
}

INLINE void dot_wide(int NT, int J, VI (*s)[TOKS], const uint8_t *q, const char *x)
{
    UNROLL for (int j = 0; j < 2 * J; j++) {            /* pairs; a token's group of four is eight bytes */
        VI w[RV];
        UNROLL for (int v = 0; v < RV; v++) w[v] = V_LOAD_I(q + 4 * ROWS * j + 4 * LANES * v);
        UNROLL for (int t = 0; t < NT; t++) {
            VI a = bcast_i(x + 8 * NT * (j / 2) + 8 * t + 4 * (j % 2));
            UNROLL for (int v = 0; v < RV; v++) {
                s[v][t] = V(add_epi32)(s[v][t], V(madd_epi16)(w[v], a));
                IN_ORDER(s[v][t]);
            }
        }
    }
}

INLINE void dot_groups(int NT, int J, struct dot_kind kind, VI (*s)[TOKS], const uint8_t *q, const char *x)
{
    if (kind.wide) dot_wide(NT, J, s, q, x);
    else dot_narrow(NT, J, kind.groups, s, q, x);
}

#include "kernels/x86/gemm_int.h"

WIDTHS(k_f32, tile_f32(NT, p, x, acc, len, first))
WIDTHS(k_q8_0, tile_q8_0(NT, kind_of(DS_T_Q8_0), false, p, x, acc, len, first))
WIDTHS(k_q4_0, tile_q8_0(NT, kind_of(DS_T_Q4_0), false, p, x, acc, len, first))
WIDTHS(k_q5_0, tile_q8_0(NT, kind_of(DS_T_Q5_0), false, p, x, acc, len, first))
WIDTHS(k_q4_1, tile_q8_0(NT, kind_of(DS_T_Q4_1), true, p, x, acc, len, first))
WIDTHS(k_q5_1, tile_q8_0(NT, kind_of(DS_T_Q5_1), true, p, x, acc, len, first))
WIDTHS(k_q2_k, tile_q8_k(NT, kind_of(DS_T_Q2_K), 256, 16, p, x, acc, len, first))
WIDTHS(k_q3_k, tile_q8_k(NT, kind_of(DS_T_Q3_K), 256, 0, p, x, acc, len, first))
WIDTHS(k_q4_k, tile_q8_k(NT, kind_of(DS_T_Q4_K), 32, 32, p, x, acc, len, first))
WIDTHS(k_q5_k, tile_q8_k(NT, kind_of(DS_T_Q5_K), 32, 32, p, x, acc, len, first))
WIDTHS(k_q6_k, tile_q8_k(NT, kind_of(DS_T_Q6_K), 16, 0, p, x, acc, len, first))
WIDTHS(k_iq4_xs, tile_q8_k(NT, kind_of(DS_T_IQ4_XS), 32, 0, p, x, acc, len, first))

static struct product product_of(enum ds_type_id id)
{
    switch (id) {
    case DS_T_F32: return (struct product){ unpack_F32, k_f32 };
    case DS_T_F16: return (struct product){ unpack_F16, k_f32 };
    case DS_T_BF16: return (struct product){ unpack_BF16, k_f32 };
    case DS_T_Q8_0: return (struct product){ unpack_Q8_0, k_q8_0 };
    case DS_T_IQ4_NL: return (struct product){ unpack_IQ4_NL, k_q8_0 };
    case DS_T_Q4_0: return (struct product){ unpack_Q4_0, k_q4_0 };
    case DS_T_Q5_0: return (struct product){ unpack_Q5_0, k_q5_0 };
    case DS_T_MXFP4: return (struct product){ unpack_MXFP4, k_q5_0 };
    case DS_T_Q4_1: return (struct product){ unpack_Q4_1, k_q4_1 };
    case DS_T_Q5_1: return (struct product){ unpack_Q5_1, k_q5_1 };
    case DS_T_Q2_K: return (struct product){ unpack_Q2_K, k_q2_k };
    case DS_T_Q3_K: return (struct product){ unpack_Q3_K, k_q3_k };
    case DS_T_Q4_K: return (struct product){ unpack_Q4_K, k_q4_k };
    case DS_T_Q5_K: return (struct product){ unpack_Q5_K, k_q5_k };
    case DS_T_Q6_K: return (struct product){ unpack_Q6_K, k_q6_k };
    case DS_T_IQ4_XS: return (struct product){ unpack_IQ4_XS, k_iq4_xs };
    default: return (struct product){ 0 };
    }
}
