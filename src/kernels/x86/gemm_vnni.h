/* Dot products on vpdpbusd, which adds four products of an unsigned and a signed byte to a 32-bit
 * lane. Weights are the unsigned side: signed ones gain 128, undone by starting the sums at -128 times
 * the sum of the activations. Included after gemm_vec.h with V_DPBUSD and V_DPWSSD. */

#define HAS_PAIRS (VECTOR_BITS == 512)

static inline struct dot_kind kind_of(enum ds_type_id id)
{
    return (struct dot_kind){ .bias = ds_gemm_form_of(id).nonneg ? 0 : 128, .groups = 8, .pairs = HAS_PAIRS && id == DS_T_Q6_K };
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
#if HAS_PAIRS
#include "kernels/x86/gemm_pairs_512.h"
#endif

#include "kernels/gemm_products.h"
