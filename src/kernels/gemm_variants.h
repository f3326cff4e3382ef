/* The variants of the weight products: each fills the entries of the table that it improves. */
#ifndef DS_KERNELS_GEMM_VARIANTS_H
#define DS_KERNELS_GEMM_VARIANTS_H

#include "kernels/gemm.h"

void ds_gemm_ref(struct ds_gemm_kernels *g);
void ds_gemm_exact(struct ds_gemm_kernels *g);
#if defined(__x86_64__) || defined(__i386__)
void ds_gemm_avx2(struct ds_gemm_kernels *g);
void ds_gemm_avxvnni(struct ds_gemm_kernels *g);
void ds_gemm_avx512(struct ds_gemm_kernels *g);
void ds_gemm_avx512vnni(struct ds_gemm_kernels *g);
#elif defined(__aarch64__)
void ds_gemm_neon(struct ds_gemm_kernels *g);
void ds_gemm_dotprod(struct ds_gemm_kernels *g);
void ds_gemm_i8mm(struct ds_gemm_kernels *g);
#endif

#endif
