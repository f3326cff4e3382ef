/* Products of stored weight rows with many activation rows.
 *
 *   y[t][r] (+)= sum_i W[r][i] x[t][i]        r: weight rows, t: tokens, i: input dim
 *
 * Activations are packed once into the format that the weight's type wants and shared by every product
 * that reads them. Weight rows stay in the file's blocks and are unpacked tile by tile into
 * thread-private scratch. No threads, no malloc here; the caller splits rows and tokens.
 *
 * Formats. Quantised weights meet activations quantised as Q8_0 or Q8_K, integer products are exact.
 * F32, F16 and BF16 weights meet f32 activations; in the exact table every type does.
 *
 * Bits. For one (token, row) the result does not depend on how many tokens or rows the call has, nor
 * on their place in it; so any split of a prompt gives the same numbers. The decode path (gemv) may
 * sum in another order. Packed activations of one table are not valid for another. */
#ifndef DS_KERNELS_GEMM_H
#define DS_KERNELS_GEMM_H

#include "quant/type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Packed activation formats. */
enum ds_act_fmt { DS_AF_F32, DS_AF_Q8_0, DS_AF_Q8_K, DS_AF_COUNT };

struct ds_gemm_call {
    float *y; size_t ldy;              /* y[row(t)*ldy + r], r from 0 = first row of the matrix */
    const int32_t *yrow;               /* row(t) = yrow[t]; NULL: t */
    const void *w;                     /* first row of the matrix, any alignment */
    const struct ds_type *type;
    const void *x;                     /* packed activations */
    int n, k;                          /* tokens packed in x; input dim, a multiple of the type's block */
    int t0, t1;                        /* tokens of this call; t0 a multiple of tok_step */
    int r0, r1;                        /* rows of this call */
    int ahead;                         /* first row of this thread's next call, as far as the caller can tell, to fetch its weights early; 0: none */
    bool add;                          /* y += instead of y = */
    void *scratch;                     /* scratch_bytes(type, k), 64-byte aligned, thread-private */
};

struct ds_gemm_kernels {
    unsigned isa;
    int row_step, tok_step;            /* what a task's bounds should be multiples of (the last may end anywhere) */
    enum ds_act_fmt (*act_fmt)(const struct ds_gemm_kernels *g, const struct ds_type *t, int n, bool decode);
    size_t (*act_bytes)(enum ds_act_fmt f, int n, int k);        /* grows with n; 64-byte aligned memory */
    /* Packs tokens t0..t1-1 of n, t0 a multiple of tok_step; x rows lie ldx apart; row t is x + (rows ? rows[t] : t) * ldx. */
    void (*act_pack)(const struct ds_gemm_kernels *g, enum ds_act_fmt f, void *dst, const float *x, size_t ldx, const int32_t *rows, int n, int k,
                     int t0, int t1);
    size_t (*scratch_bytes)(const struct ds_gemm_kernels *g, const struct ds_type *t, int k);
    void (*gemm)(const struct ds_gemm_kernels *g, const struct ds_gemm_call *c);
    void (*gemv)(const struct ds_gemm_kernels *g, const struct ds_gemm_call *c);    /* decode: n == 1 */
    const char *(*name)(const struct ds_gemm_kernels *g, const struct ds_type *t, int n, bool decode);   /* "q8_0 avx512vnni 16x12" */
};

void ds_gemm_kernels_init(struct ds_gemm_kernels *g, unsigned isa);   /* reference first, then the best of the mask */
void ds_gemm_kernels_exact(struct ds_gemm_kernels *g);                /* plain C on decoded weights; no activation is rounded */

#endif
