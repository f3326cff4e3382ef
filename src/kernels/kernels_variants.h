/* Plain C kernels, one per entry of struct ds_kernels: the oracle of every vector variant, and what
 * runs at --isa scalar. Contracts in kernels.h. */
#ifndef DS_KERNELS_KERNELS_VARIANTS_H
#define DS_KERNELS_KERNELS_VARIANTS_H

#include "kernels/kernels.h"

void ds_rms_norm_ref(float *y, const float *x, const float *gain, int n, float eps);
void ds_gated_norm_ref(float *y, const float *x, const float *z, const float *gain, int n, float eps);
void ds_l2_norm_ref(float *x, int n, float eps, float scale);

void ds_swiglu_ref(float *act, const float *gate, const float *up, int n);
void ds_gate_mul_ref(float *y, const float *gate, int n);
void ds_axpy_ref(float *y, float a, const float *x, int n);
void ds_gdn_gates_ref(float *g, float *beta, const float *a, const float *b, const float *A, const float *dt, int n);

void ds_conv_silu_ref(float *f, size_t ldf, const float *u, size_t ldu, const float *hist, size_t ldh, const float *w, int K,
                      int n, int c0, int c1);

void ds_gdn_seq_ref(const struct ds_gdn_args *a);
void ds_gdn_chunk_ref(const struct ds_gdn_args *a);
size_t ds_gdn_scratch_ref(int dk, int dv);

void ds_rope_ref(float *x, const float *cos, const float *sin, int n_rot);
void ds_f32_to_f16_ref(uint16_t *dst, const float *src, size_t n);
void ds_f16_to_f32_ref(float *dst, const uint16_t *src, size_t n);

void ds_attn_ref(const struct ds_attn_args *a);
size_t ds_attn_scratch_ref(int hd, int heads);
int ds_attn_tokens_ref(int heads);
void ds_attn_part_ref(float *m, float *l, float *acc, const struct ds_attn_args *a, int64_t p0, int64_t p1);

/* Each replaces the entries that it has. */
void ds_kernels_avx2(struct ds_kernels *k);
void ds_kernels_avx512(struct ds_kernels *k);
void ds_kernels_neon(struct ds_kernels *k);

/* Scalar functions, in the forms that form only exponentials of non-positive numbers. */
float ds_sigmoid(float x);
float ds_silu(float x);
float ds_softplus(float x);

#endif
