#include "kernels/kernels.h"

#include "base/cpu.h"
#include "kernels/kernels_variants.h"

void ds_kernels_init(struct ds_kernels *k, unsigned isa)
{
    *k = (struct ds_kernels){
        .rms_norm = ds_rms_norm_ref,
        .swiglu = ds_swiglu_ref,
        .gated_norm = ds_gated_norm_ref,
        .conv_silu = ds_conv_silu_ref,
        .l2_norm = ds_l2_norm_ref,
        .gdn_gates = ds_gdn_gates_ref,
        .gdn_seq = ds_gdn_seq_ref,
        .gdn_chunk = ds_gdn_chunk_ref,
        .gdn_scratch = ds_gdn_scratch_ref,
        .rope = ds_rope_ref,
        .f32_to_f16 = ds_f32_to_f16_ref,
        .f16_to_f32 = ds_f16_to_f32_ref,
        .attn = ds_attn_ref,
        .attn_scratch = ds_attn_scratch_ref,
        .attn_tokens = ds_attn_tokens_ref,
        .attn_part = ds_attn_part_ref,
        .gate_mul = ds_gate_mul_ref,
        .axpy = ds_axpy_ref,
    };
#if defined(__x86_64__)
    if (isa & DS_CPU_AVX2) ds_kernels_avx2(k);
    if (isa & DS_CPU_AVX512) ds_kernels_avx512(k);
#elif defined(__aarch64__)
    if (isa & DS_CPU_NEON) ds_kernels_neon(k);
#endif
    (void)isa;
}
