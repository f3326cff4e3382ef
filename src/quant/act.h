/* Activation quantisers of the integer products: the reference that packed formats are checked against.
 *
 * Q8_0, per 32:  d = max|x| / 127, q_i = round half away from zero of x_i / d with the unrounded d; d is
 * stored as f16.
 * Q8_K, per 256: mx = the first element of largest magnitude, s = -127 / mx, q_i = round half to even
 * of s x_i, d = 1 / s in f32 (negative when mx is positive), bsums[g] = sum of q[16g..16g+15].
 *
 * A block whose scale cannot be inverted in f32 becomes zero. A block with a NaN or an infinity gets
 * d = NaN and q = 0, so that the fault shows in every product. n is a multiple of the block. */
#ifndef DS_QUANT_ACT_H
#define DS_QUANT_ACT_H

#include "quant/blocks.h"

#include <stddef.h>

void ds_act_q8_0(struct ds_block_q8_0 *dst, const float *x, size_t n);
void ds_act_q8_k(struct ds_block_q8_k *dst, const float *x, size_t n);

#endif
