#include "fake.h"
#include "backend/cuda/kernels.h"
#include "quant/type.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

struct ds_fake_cuda ds_fake = { .limit = (size_t)140 << 30 };

/* --- memory: the size stands in front of the block --- */

enum { FRONT = 256 };

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    *p = NULL;
    if (++ds_fake.allocations == ds_fake.fail_at || ds_fake.held + bytes > ds_fake.limit) return cudaErrorMemoryAllocation;
    char *block = aligned_alloc(FRONT, (bytes + 2 * FRONT - 1) / FRONT * FRONT);
    if (!block) return cudaErrorMemoryAllocation;
    memcpy(block, &bytes, sizeof bytes);
    *p = block + FRONT;
    ds_fake.held += bytes;
    if (ds_fake.held > ds_fake.peak) ds_fake.peak = ds_fake.held;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p)
{
    size_t bytes;
    if (!p) return cudaSuccess;
    memcpy(&bytes, (char *)p - FRONT, sizeof bytes);
    ds_fake.held -= bytes;
    free((char *)p - FRONT);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    ds_fake.pinned++;
    return (*p = calloc(1, bytes)) ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void *p)
{
    ds_fake.pinned -= p != NULL;
    free(p);
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
    *left = ds_fake.limit - ds_fake.held;
    *total = ds_fake.limit;
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind, cudaStream_t s)
{
    (void)kind; (void)s;
    memmove(dst, src, n);
    return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dld, const void *src, size_t sld, size_t w, size_t h, enum cudaMemcpyKind kind, cudaStream_t s)
{
    for (size_t i = 0; i < h; i++) cudaMemcpyAsync((char *)dst + i * dld, (const char *)src + i * sld, w, kind, s);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *p, int v, size_t n, cudaStream_t s)
{
    (void)s;
    memset(p, v, n);
    return cudaSuccess;
}

/* --- device, stream, events, graphs --- */

cudaError_t cudaGetDeviceCount(int *n) { *n = 1; return cudaSuccess; }
cudaError_t cudaSetDevice(int i) { (void)i; return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int device)
{
    (void)device;
    *v = a == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t st) { return st == cudaErrorMemoryAllocation ? "out of memory" : "an error"; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    (void)flags;
    ds_fake.streams++;
    *s = (cudaStream_t)malloc(1);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) { ds_fake.streams--; free(s); return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t s) { (void)s; ds_fake.syncs++; return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t *e) { ds_fake.events++; *e = (cudaEvent_t)malloc(1); return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) { (void)flags; return cudaEventCreate(e); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { ds_fake.events--; free(e); return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { (void)e; (void)s; return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t e) { (void)e; return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) { (void)a; (void)b; *ms = 1; return cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) { (void)s; (void)mode; return cudaSuccess; }
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) { (void)s; *g = (cudaGraph_t)malloc(1); return cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags)
{
    (void)g; (void)flags;
    *x = (cudaGraphExec_t)malloc(1);
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) { free(g); return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) { free(x); return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) { (void)x; (void)s; ds_fake.graphs++; return cudaSuccess; }

/* --- the library --- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h) { *h = malloc(1); return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) { free(h); return CUBLAS_STATUS_SUCCESS; }
const char *cublasLtGetStatusString(cublasStatus_t st) { (void)st; return "an error"; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t c, cudaDataType_t t)
{
    (void)c; (void)t;
    *d = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { free(d); return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, const void *v, size_t n)
{
    (void)d; (void)a; (void)v; (void)n;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType t, uint64_t rows, uint64_t cols, int64_t ld)
{
    (void)t; (void)rows; (void)cols; (void)ld;
    *l = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { free(l); return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p) { *p = malloc(1); return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { free(p); return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t a, const void *v, size_t n)
{
    (void)p; (void)a; (void)v; (void)n;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t y, cublasLtMatmulPreference_t p, int most,
                                              cublasLtMatmulHeuristicResult_t r[], int *found)
{
    (void)h; (void)d; (void)a; (void)b; (void)c; (void)y; (void)p;
    memset(r, 0, sizeof *r);
    *found = most > 2 ? 2 : most;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c, cublasLtMatrixLayout_t lc, void *y,
                              cublasLtMatrixLayout_t ly, const cublasLtMatmulAlgo_t *algo, void *ws, size_t ws_bytes, cudaStream_t s)
{
    (void)h; (void)d; (void)alpha; (void)la; (void)lb; (void)beta; (void)c; (void)lc; (void)ly; (void)algo; (void)ws_bytes; (void)s;
    ds_fake.products++;
    return a && b && y && ws ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* --- kernels: nothing runs; shapes that have a fast form say so --- */

#define KERNEL(name, ...) cudaError_t name(__VA_ARGS__) { return cudaSuccess; }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
KERNEL(ds_cu_dequant, uint16_t *dst, const void *src, int type, uint32_t block, uint32_t bytes, int64_t n, cudaStream_t s)
KERNEL(ds_cu_embed, float *x, const void *table, int type, uint32_t block, uint32_t bytes, const int32_t *ids, int n, int dim, cudaStream_t s)
KERNEL(ds_cu_gemv, const struct ds_cu_gemv *c, cudaStream_t s)
KERNEL(ds_cu_pack, void *dst, const void *src, int type, int64_t rows, int k, cudaStream_t s)
KERNEL(ds_cu_gemm_any, void *y, int64_t ldy, bool f32, bool add, const uint16_t *w, const uint16_t *x, int n, int rows, int k, cudaStream_t s)
KERNEL(ds_cu_gemm_any_f8, void *y, int64_t ldy, bool f32, bool add, const void *w, const float *ws, const void *x, const float *xs, int n, int rows,
       int k, cudaStream_t s)
KERNEL(ds_cu_gemm_experts, uint16_t *y, const uint16_t *w, const uint16_t *x, const void *route, int slots, int k_used, bool per_slot, int rows, int k,
       cudaStream_t s)
KERNEL(ds_cu_rms_norm, uint16_t *h, const float *x, const float *gain, int n, int dim, float eps,
       struct ds_cu_stamp t, cudaStream_t s)
KERNEL(ds_cu_swiglu, uint16_t *act, const uint16_t *g, int64_t ldg, const uint16_t *u, int64_t ldu, int rows, int dim,
       struct ds_cu_stamp t, cudaStream_t s)
KERNEL(ds_cu_gated_norm, uint16_t *y, const float *o, const uint16_t *z, int64_t ldz, const float *gain, int n, int n_vh, int dv, float eps,
       struct ds_cu_stamp t, cudaStream_t s)
KERNEL(ds_cu_f8_rows, uint8_t *dst, float *scale, const uint16_t *src, int64_t rows, int k, cudaStream_t s)
KERNEL(ds_cu_rms_norm_f8, uint8_t *h, float *scale, const float *x, const float *gain, int n, int dim, float eps,
       struct ds_cu_stamp t, cudaStream_t s)
KERNEL(ds_cu_swiglu_f8, uint8_t *act, float *scale, const uint16_t *g, int64_t ldg, const uint16_t *u, int64_t ldu, int rows, int dim,
       struct ds_cu_stamp t, cudaStream_t s)
KERNEL(ds_cu_gated_norm_f8, uint8_t *y, float *scale, const float *o, const uint16_t *z, int64_t ldz, const float *gain, int n, int n_vh, float eps,
       struct ds_cu_stamp t, cudaStream_t s)
KERNEL(ds_cu_qk_norm, const struct ds_cu_qk *c, const float *gain_q, const float *gain_k, struct ds_cu_stamp t, cudaStream_t s)
KERNEL(ds_cu_rope_store, const struct ds_cu_qk *c, const struct ds_cu_freq *f, const uint16_t *v, int64_t ldv, void *kc, void *vc, bool f16,
       const int64_t *pos, struct ds_cu_stamp t, cudaStream_t s)
KERNEL(ds_cu_copy_cols, uint16_t *act, struct ds_cu_mat src, int n, int src_dim, int dim, cudaStream_t s)
KERNEL(ds_cu_moe_route, void *route, const uint16_t *logits, int64_t ld, int n, int n_expert, int k, cudaStream_t s)
KERNEL(ds_cu_moe_combine, float *x, const uint16_t *y, const void *route, const uint16_t *shared, int64_t ldsh, const uint16_t *sg, int64_t ldsg, int n,
       int k, int dim, cudaStream_t s)
KERNEL(ds_cu_conv_tail, float *dst, const float *hist, const uint16_t *u, int64_t ldu, int n, int channels, int conv_k, cudaStream_t s)
KERNEL(ds_cu_gdn_prep_seq, float *prep, float *hist, const uint16_t *u, int64_t ldu, const uint16_t *a, int64_t lda, const uint16_t *b, int64_t ldb,
       const float *conv_w, const float *ssm_a, const float *ssm_dt, const struct ds_cu_gdn *g, cudaStream_t s)
KERNEL(ds_cu_gdn_seq, float *o, float *S, const float *prep, const struct ds_cu_gdn *g, int t0, int t1, cudaStream_t s)
KERNEL(ds_cu_gdn_prep_chunk, void *tiles, float *hist, const uint16_t *u, int64_t ldu, const uint16_t *a, int64_t lda, const uint16_t *b, int64_t ldb,
       const float *conv_w, const float *ssm_a, const float *ssm_dt, const struct ds_cu_gdn *g, cudaStream_t s)
KERNEL(ds_cu_gdn_chunk, float *o, float *S, const void *tiles, const struct ds_cu_gdn *g, int t0, int t1, bool follows,
       cudaStream_t s)
KERNEL(ds_cu_attn_any, const struct ds_cu_attn *c, cudaStream_t s)
KERNEL(ds_cu_attn_sm90, const struct ds_cu_attn *c, cudaStream_t s)
KERNEL(ds_cu_stamp_now, unsigned long long *at, cudaStream_t s)
KERNEL(ds_cu_probe_fill, void *p, int64_t bytes, uint32_t seed, cudaStream_t s)
KERNEL(ds_cu_probe_fma, void *out, cudaStream_t s)
KERNEL(ds_cu_probe_read, void *out, const void *p, int64_t bytes, cudaStream_t s)
#pragma GCC diagnostic pop
double ds_cu_probe_fma_flop(void) { return 1; }
bool ds_cu_can_pack(int type, int k) { return (type == DS_T_Q8_0 || type == DS_T_Q4_K) && k % 32 == 0; }
size_t ds_cu_packed_bytes(int type, int64_t rows, int k) { return ds_type_row_bytes(&ds_types[type], (size_t)((rows + 15) / 16 * 16) * (size_t)k); }
bool ds_cu_gdn_chunk_fits(const struct ds_cu_gdn *g, int sm) { return sm == 90 && g->dk == 128 && g->dv == 128 && g->conv_k == 4; }
size_t ds_cu_gdn_chunk_bytes(const struct ds_cu_gdn *g, int n) { return (size_t)(n / 64 + 2) * (size_t)g->n_vh * 65536; }
size_t ds_cu_gdn_chunk_control_bytes(void) { return 64; }
bool ds_cu_gemv_makes(enum ds_cu_input kind, int k, int head) { return kind != DS_CU_IN_BF16 && k % 8 == 0 && head > 0; }
bool ds_cu_rms_norm_f8_fits(int dim) { return dim % 16 == 0; }
bool ds_cu_swiglu_f8_fits(int dim) { return dim % 16 == 0; }
bool ds_cu_gated_norm_f8_fits(int n_vh, int dv) { return dv == 128 && n_vh <= 64; }
bool ds_cu_attn_sm90_fits(const struct ds_cu_attn *c, int sm) { return sm == 90 && c->hd == 256 && c->f16; }
