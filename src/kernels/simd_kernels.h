/* Every vector kernel, compiled once per instruction set: a variant is a file that includes its vec_*.h and
 * then this. All functions are static; the variant exports one that fills the table. */
#ifndef DS_KERNELS_SIMD_KERNELS_H
#define DS_KERNELS_SIMD_KERNELS_H

#include "kernels/simd_math.h"
#include "kernels/simd_tile.h"
#include "kernels/simd_row.h"
#include "kernels/simd_gdn_seq.h"
#include "kernels/simd_gdn_chunk.h"
#include "kernels/simd_attn.h"

static void simd_kernels(struct ds_kernels *k)
{
    k->rms_norm = rms_norm;
    k->swiglu = swiglu;
    k->gated_norm = gated_norm;
    k->conv_silu = conv_silu;
    k->l2_norm = l2_norm;
    k->gdn_gates = gdn_gates;
    k->gdn_seq = gdn_seq;
    k->gdn_chunk = gdn_chunk;
    k->gdn_scratch = gdn_scratch;
    k->rope = rope;
    k->f32_to_f16 = f32_to_f16;
    k->f16_to_f32 = f16_to_f32;
    k->attn = attn;
    k->attn_scratch = attn_scratch;
    k->attn_tokens = attn_tokens;
    k->attn_part = attn_part;
    k->gate_mul = gate_mul;
    k->axpy = axpy;
}

#endif
