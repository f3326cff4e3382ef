/* What this GPU can do at most, measured with random data: products through the library, plain FMA, memory. */
#include "backend/cuda/host.h"

enum { SIDE = 8192, MEMORY = 1 << 30, RUNS = 3 };

struct probe {
    struct ds_cuda *c;
    void *a, *b, *d;                       /* MEMORY bytes each */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t la, lb, ld;
    cublasLtMatmulAlgo_t algo;
    bool int8;
};

static cudaError_t product(struct probe *p)
{
    const float one = 1, zero = 0;
    const int32_t one_i = 1, zero_i = 0;
    const void *alpha = p->int8 ? (const void *)&one_i : &one, *beta = p->int8 ? (const void *)&zero_i : &zero;
    cublasStatus_t st = cublasLtMatmul(p->c->lt, p->desc, alpha, p->a, p->la, p->b, p->lb, beta, p->d, p->ld, p->d, p->ld,
                                       &p->algo, p->c->workspace.p, p->c->workspace.bytes, p->c->stream);
    return st == CUBLAS_STATUS_SUCCESS ? cudaSuccess : cudaErrorUnknown;
}
static cudaError_t fma_loop(struct probe *p) { return ds_cu_probe_fma(p->d, p->c->stream); }
static cudaError_t read_all(struct probe *p) { return ds_cu_probe_read(p->d, p->a, MEMORY, p->c->stream); }
static cudaError_t copy_all(struct probe *p)
{
    return cudaMemcpyAsync(p->b, p->a, MEMORY, cudaMemcpyDeviceToDevice, p->c->stream);
}

/* Least seconds of a few runs after one that warms up; 0: it does not run here. */
static double seconds(struct probe *p, cudaError_t (*fn)(struct probe *))
{
    cudaEvent_t ev[2] = { NULL, NULL };
    double best = 0;
    for (int i = 0; i < 2; i++)
        if (cudaEventCreate(&ev[i]) != cudaSuccess) goto out;
    for (int i = 0; i <= RUNS; i++) {
        float ms = 0;
        cudaEventRecord(ev[0], p->c->stream);
        if (fn(p) != cudaSuccess) break;
        cudaEventRecord(ev[1], p->c->stream);
        if (cudaEventSynchronize(ev[1]) != cudaSuccess || cudaEventElapsedTime(&ms, ev[0], ev[1]) != cudaSuccess) break;
        if (i && ms > 0 && (best == 0 || ms * 1e-3 < best)) best = ms * 1e-3;
    }
out:
    for (int i = 0; i < 2; i++)
        if (ev[i]) cudaEventDestroy(ev[i]);
    (void)cudaGetLastError();
    return best;
}

/* SIDE^3, both operands contiguous in the summed index. */
static double product_gflops(struct probe *p, bool int8)
{
    const cublasOperation_t trans = CUBLAS_OP_T;
    const cudaDataType_t in = int8 ? CUDA_R_8I : CUDA_R_16BF, out = int8 ? CUDA_R_32I : CUDA_R_16BF;
    cublasLtMatmulPreference_t pref = NULL;
    cublasLtMatmulHeuristicResult_t r;
    const size_t ws = DS_CUDA_WORKSPACE;
    int found = 0;
    double s = 0;
    p->int8 = int8;
    p->desc = NULL;
    p->la = p->lb = p->ld = NULL;
    if (cublasLtMatmulDescCreate(&p->desc, int8 ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F, int8 ? CUDA_R_32I : CUDA_R_32F) ==
            CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &trans, sizeof trans) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatrixLayoutCreate(&p->la, in, SIDE, SIDE, SIDE) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatrixLayoutCreate(&p->lb, in, SIDE, SIDE, SIDE) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatrixLayoutCreate(&p->ld, out, SIDE, SIDE, SIDE) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulPreferenceCreate(&pref) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &ws, sizeof ws) ==
            CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulAlgoGetHeuristic(p->c->lt, p->desc, p->la, p->lb, p->ld, p->ld, pref, 1, &r, &found) ==
            CUBLAS_STATUS_SUCCESS &&
        found) {
        p->algo = r.algo;
        s = seconds(p, product);
    }
    if (pref) cublasLtMatmulPreferenceDestroy(pref);
    if (p->ld) cublasLtMatrixLayoutDestroy(p->ld);
    if (p->lb) cublasLtMatrixLayoutDestroy(p->lb);
    if (p->la) cublasLtMatrixLayoutDestroy(p->la);
    if (p->desc) cublasLtMatmulDescDestroy(p->desc);
    return s > 0 ? 2.0 * SIDE * SIDE * SIDE / s * 1e-9 : 0;
}

static void keep_larger(double *a, double b)
{
    if (b > *a) *a = b;
}

void ds_cuda_peaks(struct ds_backend *be, struct ds_peaks *out)
{
    struct probe p = { .c = ds_cuda_of(be) };
    const bool room = ds_cuda_room(p.c, &p.c->workspace, DS_CUDA_WORKSPACE, "measuring", NULL);
    if (room && ds_cuda_mem_take(p.c, &p.a, MEMORY, "measuring", NULL) && ds_cuda_mem_take(p.c, &p.b, MEMORY, "measuring", NULL) &&
        ds_cuda_mem_take(p.c, &p.d, MEMORY, "measuring", NULL) && ds_cu_probe_fill(p.a, MEMORY, 1, p.c->stream) == cudaSuccess &&
        ds_cu_probe_fill(p.b, MEMORY, 2, p.c->stream) == cudaSuccess) {
        double s;
        keep_larger(&out->mm_gflops, product_gflops(&p, false));
        keep_larger(&out->int8_gops, product_gflops(&p, true));
        if ((s = seconds(&p, fma_loop)) > 0) keep_larger(&out->f32_gflops, ds_cu_probe_fma_flop() / s * 1e-9);
        if ((s = seconds(&p, read_all)) > 0) keep_larger(&out->read_gbs, MEMORY / s * 1e-9);
        if ((s = seconds(&p, copy_all)) > 0) keep_larger(&out->copy_gbs, 2.0 * MEMORY / s * 1e-9);
    }
    ds_cuda_mem_give(p.c, p.a, p.a ? MEMORY : 0);
    ds_cuda_mem_give(p.c, p.b, p.b ? MEMORY : 0);
    ds_cuda_mem_give(p.c, p.d, p.d ? MEMORY : 0);
}
