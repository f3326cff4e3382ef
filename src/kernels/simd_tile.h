/* The small matrix product that the chunkwise delta rule and attention are made of. Included after a vec_*.h.
 *
 *     C[r][j] (+)= sum_p A(r, p) B[p][j]
 *
 * C and B are row-major; A is read one element at a time and broadcast, so it may lie either way:
 * A(r, p) = a[r*ar + p*ap]. Each element of C is one chain of fused multiply-adds in ascending p: its
 * bits depend neither on the tile it falls in nor on the other rows. */
#ifndef DS_KERNELS_SIMD_TILE_H
#define DS_KERNELS_SIMD_TILE_H

#include "quant/type.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
enum { TILE_COLS = TILE_VECS * VL };

/* acc[r][c] += sum_p A(r, p) B[p][c]. `rows` is a constant at every call, so that acc lives in registers. */
INLINE void tile_fma(vf (*acc)[TILE_VECS], int rows, const float *a, size_t ar, size_t ap, const float *b, size_t ldb, int K)
{
    for (int p = 0; p < K; p++, a += ap, b += ldb) {
        vf x[TILE_VECS];
#pragma GCC unroll 8
        for (int c = 0; c < TILE_VECS; c++) x[c] = v_load(b + c * VL);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            vf w = v_set1(a[(size_t)r * ar]);
#pragma GCC unroll 8
            for (int c = 0; c < TILE_VECS; c++) acc[r][c] = v_fma(w, x[c], acc[r][c]);
        }
    }
}

/* C = s C + A B on one panel of TILE_COLS columns, with row r's factor s = scale[r*step]; C = A B when scale is NULL. */
INLINE void tile_rows(float *C, size_t ldc, const float *scale, size_t step, int rows, const float *a, size_t ar, size_t ap,
                      const float *b, size_t ldb, int K)
{
    vf acc[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int c = 0; c < TILE_VECS; c++)
            acc[r][c] = scale ? v_mul(v_load(C + (size_t)r * ldc + c * VL), v_set1(scale[(size_t)r * step])) : v_zero();
    tile_fma(acc, rows, a, ar, ap, b, ldb, K);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int c = 0; c < TILE_VECS; c++) v_store(C + (size_t)r * ldc + c * VL, acc[r][c]);
}

/* The same for any number of rows. */
INLINE void tile_panel(float *C, size_t ldc, const float *scale, size_t step, int rows, const float *a, size_t ar, size_t ap,
                       const float *b, size_t ldb, int K)
{
    int r = 0;
    for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
        tile_rows(C + (size_t)r * ldc, ldc, scale ? scale + (size_t)r * step : NULL, step, TILE_ROWS, a + (size_t)r * ar, ar, ap,
                  b, ldb, K);
    for (; r < rows; r++)
        tile_rows(C + (size_t)r * ldc, ldc, scale ? scale + (size_t)r * step : NULL, step, 1, a + (size_t)r * ar, ar, ap, b, ldb,
                  K);
}

/* out[r][c] = x[r] . y[c] for 4 x VL/4 vectors of n values; y is f16 when y_f16. Lanes run along n, so that
 * neither operand is transposed. */
enum { DOTS_ROWS = 4, DOTS_COLS = VL / 4 };

INLINE void tile_dots(float *out, size_t ldo, const float *const x[DOTS_ROWS], const void *const y[DOTS_COLS], bool y_f16, int n)
{
    vf acc[DOTS_ROWS * DOTS_COLS];
    float sums[VL];
    int d = 0;
#pragma GCC unroll 16
    for (int p = 0; p < VL; p++) acc[p] = v_zero();
    for (; d + VL <= n; d += VL) {
        vf a[DOTS_ROWS], b[DOTS_COLS];
#pragma GCC unroll 4
        for (int r = 0; r < DOTS_ROWS; r++) a[r] = v_load(x[r] + d);
#pragma GCC unroll 4
        for (int c = 0; c < DOTS_COLS; c++)
            b[c] = y_f16 ? v_load_f16((const uint16_t *)y[c] + d) : v_load((const float *)y[c] + d);
#pragma GCC unroll 4
        for (int r = 0; r < DOTS_ROWS; r++)
#pragma GCC unroll 4
            for (int c = 0; c < DOTS_COLS; c++) acc[r * DOTS_COLS + c] = v_fma(a[r], b[c], acc[r * DOTS_COLS + c]);
    }
    v_store(sums, v_sums(acc));
    for (int r = 0; r < DOTS_ROWS; r++) memcpy(out + (size_t)r * ldo, sums + r * DOTS_COLS, DOTS_COLS * sizeof *sums);
    if (d == n) return;
    for (int r = 0; r < DOTS_ROWS; r++) {
        for (int c = 0; c < DOTS_COLS; c++) {
            for (int i = d; i < n; i++)
                out[(size_t)r * ldo + (size_t)c] +=
                    x[r][i] * (y_f16 ? ds_f16_to_f32(((const uint16_t *)y[c])[i]) : ((const float *)y[c])[i]);
        }
    }
}

#endif
