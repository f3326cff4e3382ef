/* Launchers of the CUDA kernels: the border between the host side (C, *.c) and device code (*.cu).
 *
 * Pointers are device pointers, row-major. `bf16` and `f16` values travel as uint16_t. ld* is the
 * distance of two rows in elements. Every launcher returns the launch's status; arithmetic is f32
 * unless said otherwise. Shapes and equations are those of backend.h. */
#ifndef DS_BACKEND_CUDA_KERNELS_H
#define DS_BACKEND_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where a kernel writes when it started and ended, in ns of the device's clock; the largest value stays at end. NULL: nowhere. */
struct ds_cu_stamp { unsigned long long *start, *end; };
/* A stamp alone: between kernels that write none. */
cudaError_t ds_cu_stamp_now(unsigned long long *at, cudaStream_t s);

/* A value read by a kernel in bf16 or in f32. */
struct ds_cu_mat { const void *p; int64_t ld; bool f32; };

/* --- quant.cu: stored blocks. type: enum ds_type_id. --- */

/* dst (bf16) = n decoded elements of src; n a multiple of the block. */
cudaError_t ds_cu_dequant(uint16_t *dst, const void *src, int type, uint32_t block, uint32_t block_bytes, int64_t n,
                          cudaStream_t s);
/* x[t][0..dim) = row ids[t] of the table (blocks). */
cudaError_t ds_cu_embed(float *x, const void *table, int type, uint32_t block, uint32_t block_bytes, const int32_t *ids, int n,
                        int dim, cudaStream_t s);

/* --- gemv.cu, gemv_packed.cu: one token times several matrices of one storage type. y[r] (+)= sum_i W[r][i] x[i], x bf16. --- */
enum { DS_CU_GEMV_MAX = 8 };
/* The input of a packed product: k values in bf16, or what they are made from by each block on its own:
 *   NORM    x f32, gain [k]                   rms(x) gain
 *   SWIGLU  x and gate bf16                   silu(x) gate
 *   GATED   x f32, gate bf16, gain [head]     rms(x) per head, gain, silu(gate)
 * What is made is stored in `made` too, in bf16. */
enum ds_cu_input { DS_CU_IN_BF16, DS_CU_IN_NORM, DS_CU_IN_SWIGLU, DS_CU_IN_GATED };
struct ds_cu_gemv_input {
    enum ds_cu_input kind;
    const void *x;
    const uint16_t *gate;
    const float *gain;
    float eps;
    uint16_t *made;
};
/* Whether the packed product makes that input of k values (heads of `head`); all pointers 16-byte aligned. */
bool ds_cu_gemv_makes(enum ds_cu_input kind, int k, int head);
struct ds_cu_gemv {
    int n_m, k, type;
    uint32_t block, block_bytes;
    bool packed;                   /* every matrix as ds_cu_pack made it */
    bool add;
    struct ds_cu_gemv_matrix { void *y; const void *w; int rows; bool y_f32; } m[DS_CU_GEMV_MAX];     /* y bf16 or f32 */
    struct ds_cu_gemv_input in;    /* bf16 unless packed */
};
cudaError_t ds_cu_gemv(const struct ds_cu_gemv *c, cudaStream_t s);
cudaError_t ds_cu_gemv_packed(const struct ds_cu_gemv *c, cudaStream_t s);
/* The arrangement that decode reads fastest, of as many bytes as the file's when rows % 16 == 0 and k % 256 == 0. */
bool ds_cu_can_pack(int type, int k);
size_t ds_cu_packed_bytes(int type, int64_t rows, int k);
cudaError_t ds_cu_pack(void *dst, const void *src, int type, int64_t rows, int k, cudaStream_t s);

/* --- gemm.cu: products of any shape, slow; for those that the library declines and for experts. --- */
cudaError_t ds_cu_gemm_any(void *y, int64_t ldy, bool y_f32, bool add, const uint16_t *w, const uint16_t *x, int n, int rows,
                           int k, cudaStream_t s);
/* y[slot] = W[expert of slot] x[per_slot ? slot : slot / k_used]; w bf16 [expert][rows][k], route as struct ds_route_slot. */
cudaError_t ds_cu_gemm_experts(uint16_t *y, const uint16_t *w, const uint16_t *x, const void *route, int slots, int k_used,
                               bool per_slot, int rows, int k, cudaStream_t s);

/* --- pointwise.cu --- */
cudaError_t ds_cu_rms_norm(uint16_t *h, const float *x, const float *gain, int n, int dim, float eps,
                           struct ds_cu_stamp t, cudaStream_t s);
cudaError_t ds_cu_swiglu(uint16_t *act, const uint16_t *gate, int64_t ldg, const uint16_t *up, int64_t ldu, int rows, int dim,
                         struct ds_cu_stamp t, cudaStream_t s);
cudaError_t ds_cu_gated_norm(uint16_t *y, const float *o, const uint16_t *z, int64_t ldz, const float *gain, int n, int n_vh,
                             int dv, float eps, struct ds_cu_stamp t, cudaStream_t s);
struct ds_cu_qk {                  /* queries (then gates) and keys of a step, bf16 */
    uint16_t *qg; int64_t ldq;
    uint16_t *k; int64_t ldk;
    int n, n_head, n_kv, hd, n_rot;
    float eps;
};
enum { DS_CU_MAX_PAIRS = 64 };
struct ds_cu_freq { double f[DS_CU_MAX_PAIRS]; };      /* angle per position of each pair */
/* Per head rms in place. */
cudaError_t ds_cu_qk_norm(const struct ds_cu_qk *c, const float *gain_q, const float *gain_k,
                          struct ds_cu_stamp t, cudaStream_t s);
/* RoPE in place on queries and keys; keys and values to rows *pos .. (device memory) of caches of f16 or f32. */
cudaError_t ds_cu_rope_store(const struct ds_cu_qk *c, const struct ds_cu_freq *freq, const uint16_t *v, int64_t ldv,
                             void *kcache, void *vcache, bool f16, const int64_t *pos, struct ds_cu_stamp t, cudaStream_t s);
cudaError_t ds_cu_copy_cols(uint16_t *act, struct ds_cu_mat src, int n, int src_dim, int dim, cudaStream_t s);

/* --- f8.cu: e4m3 values with one f32 scale a row, value = e4m3 * scale. The producers' equations are those of pointwise.cu;
 * fits: which shapes have the 8-bit form. --- */
cudaError_t ds_cu_f8_rows(uint8_t *dst, float *scale, const uint16_t *src, int64_t rows, int k, cudaStream_t s);    /* k % 8 == 0 */
/* A product of any shape, slow: ds_cu_gemm_any on these operands. */
cudaError_t ds_cu_gemm_any_f8(void *y, int64_t ldy, bool y_f32, bool add, const void *w, const float *w_scale, const void *x,
                              const float *x_scale, int n, int rows, int k, cudaStream_t s);
bool ds_cu_rms_norm_f8_fits(int dim);
cudaError_t ds_cu_rms_norm_f8(uint8_t *h, float *scale, const float *x, const float *gain, int n, int dim, float eps,
                              struct ds_cu_stamp t, cudaStream_t s);
bool ds_cu_swiglu_f8_fits(int dim);        /* gate, up: 16-byte aligned, row distances multiples of 8 */
cudaError_t ds_cu_swiglu_f8(uint8_t *act, float *scale, const uint16_t *gate, int64_t ldg, const uint16_t *up, int64_t ldu, int rows,
                            int dim, struct ds_cu_stamp t, cudaStream_t s);
bool ds_cu_gated_norm_f8_fits(int n_vh, int dv);
cudaError_t ds_cu_gated_norm_f8(uint8_t *y, float *scale, const float *o, const uint16_t *z, int64_t ldz, const float *gain, int n,
                                int n_vh, float eps, struct ds_cu_stamp t, cudaStream_t s);

/* --- moe.cu --- */
cudaError_t ds_cu_moe_route(void *route, const uint16_t *logits, int64_t ld, int n, int n_expert, int k, cudaStream_t s);
cudaError_t ds_cu_moe_combine(float *x, const uint16_t *y, const void *route, const uint16_t *shared, int64_t ldsh,
                              const uint16_t *sg, int64_t ldsg, int n, int k, int dim, cudaStream_t s);

/* --- gdn.cu --- */
struct ds_cu_gdn {
    int n, n_kh, n_vh, dk, dv, conv_k;
    float eps;
    int first;                     /* tokens of the first chunk: 64 - pos % 64, or n if less */
};
/* dst <- last conv_k-1 rows of [hist; u[0..n)]. dst may be hist; then it runs after the kernels that read hist. */
cudaError_t ds_cu_conv_tail(float *dst, const float *hist, const uint16_t *u, int64_t ldu, int n, int channels, int conv_k,
                            cudaStream_t s);
/* f32 rows for the token-by-token form: q [n][n_kh*dk], k alike, v [n][n_vh*dv], g [n][n_vh], beta [n][n_vh]. Advances hist too. */
cudaError_t ds_cu_gdn_prep_seq(float *prep, float *hist, const uint16_t *u, int64_t ldu, const uint16_t *a, int64_t lda,
                               const uint16_t *b, int64_t ldb, const float *conv_w, const float *ssm_a, const float *ssm_dt,
                               const struct ds_cu_gdn *g, cudaStream_t s);
/* Tokens t0 .. t1-1 of the n that prep holds. */
cudaError_t ds_cu_gdn_seq(float *o, float *S, const float *prep, const struct ds_cu_gdn *g, int t0, int t1, cudaStream_t s);

/* --- gdn_prep.cu, gdn_chunk.cu: heads of 128, sm_90a. Tiles of one chunk and head are contiguous in device memory
 * and already swizzled as the scan wants them in shared memory. --- */
bool ds_cu_gdn_chunk_fits(const struct ds_cu_gdn *g, int sm);
size_t ds_cu_gdn_chunk_bytes(const struct ds_cu_gdn *g, int n);      /* for any n tokens at any offset */
size_t ds_cu_gdn_chunk_control_bytes(void);                          /* of them at the front: zero when new, then left alone */
int ds_cu_gdn_prep_blocks(void);
/* Advances hist too. */
cudaError_t ds_cu_gdn_prep_chunk(void *tiles, float *hist, const uint16_t *u, int64_t ldu, const uint16_t *a, int64_t lda,
                                 const uint16_t *b, int64_t ldb, const float *conv_w, const float *ssm_a, const float *ssm_dt,
                                 const struct ds_cu_gdn *g, cudaStream_t s);
/* follows: the stream's last launch was the prep of these tiles; then both run together. */
cudaError_t ds_cu_gdn_chunk(float *o, float *S, const void *tiles, const struct ds_cu_gdn *g, int t0, int t1, bool follows,
                            cudaStream_t s);

/* --- attn.cu, attn_sm90.cu --- */
struct ds_cu_attn {
    uint16_t *y;                   /* bf16 [n][n_head*hd] */
    const uint16_t *qg; int64_t ldq;    /* bf16, query then gate per head */
    const void *k, *v; bool f16;   /* caches [ctx][n_kv*hd] */
    int n, n_head, n_kv, hd;
    int64_t pos;
    const int64_t *at;             /* the same in device memory, which ds_cu_attn_any reads: a recorded launch serves every position */
    float *part; int splits;       /* scratch of the short form: [splits][n][n_head][hd + 2] */
};
/* Any shape with hd <= 256; keys are divided over `splits` blocks per query. */
cudaError_t ds_cu_attn_any(const struct ds_cu_attn *c, cudaStream_t s);
/* hd 256, f16 caches, sm_90a. */
bool ds_cu_attn_sm90_fits(const struct ds_cu_attn *c, int sm);
cudaError_t ds_cu_attn_sm90(const struct ds_cu_attn *c, cudaStream_t s);

/* --- probe.cu: random bits that are sane bf16 numbers; plain FMA; a read of everything --- */
cudaError_t ds_cu_probe_fill(void *p, int64_t bytes, uint32_t seed, cudaStream_t s);
cudaError_t ds_cu_probe_fma(void *out, cudaStream_t s);
double ds_cu_probe_fma_flop(void);         /* operations of one ds_cu_probe_fma */
cudaError_t ds_cu_probe_read(void *out, const void *p, int64_t bytes, cudaStream_t s);

#ifdef __cplusplus
}
#endif
#endif
