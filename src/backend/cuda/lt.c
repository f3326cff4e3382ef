/* Products through cuBLASLt: bf16 or e4m3 operands, f32 sums, one algorithm per shape: for the usual lengths the fastest of the
 * library's candidates, timed at load; for others its first choice. */
#include "backend/cuda/host.h"

#include <stdlib.h>

enum { CANDIDATES = 16, TUNE_RUNS = 3 };

static bool lt_ok(struct ds_cuda *c, cublasStatus_t st, const char *doing)
{
    if (st == CUBLAS_STATUS_SUCCESS) return true;
    if (!c->err.code) ds_fail(&c->err, DS_EIO, "cuBLASLt failed while %s: %s", doing, cublasLtGetStatusString(st));
    return false;
}

ds_status ds_cuda_lt_init(struct ds_cuda *c, struct ds_err *e)
{
    cublasStatus_t st = cublasLtCreate(&c->lt);
    if (st != CUBLAS_STATUS_SUCCESS) return ds_fail(e, DS_EUNSUP, "cuBLASLt does not start: %s", cublasLtGetStatusString(st));
    if (!(c->shapes = calloc(DS_CUDA_SHAPES, sizeof *c->shapes)))
        return ds_fail(e, DS_ENOMEM, "the system refused memory for product shapes");
    return DS_OK;
}

void ds_cuda_lt_free(struct ds_cuda *c)
{
    for (int i = 0; c->shapes && i < DS_CUDA_SHAPES; i++) {
        struct ds_cuda_shape *s = &c->shapes[i];
        if (s->desc) cublasLtMatmulDescDestroy(s->desc);
        if (s->a) cublasLtMatrixLayoutDestroy(s->a);
        if (s->b) cublasLtMatrixLayoutDestroy(s->b);
        if (s->d) cublasLtMatrixLayoutDestroy(s->d);
    }
    free(c->shapes);
    if (c->lt) cublasLtDestroy(c->lt);
}

/* --- shapes and their algorithms --- */

static void point_to_scales(const struct ds_cuda_shape *s, const struct ds_cuda_operands *o)
{
    if (!s->f8) return;
    cublasLtMatmulDescSetAttribute(s->desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &o->w_scale, sizeof o->w_scale);
    cublasLtMatmulDescSetAttribute(s->desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &o->x_scale, sizeof o->x_scale);
}

static cublasStatus_t run_lt(struct ds_cuda *c, const struct ds_cuda_shape *s, const cublasLtMatmulAlgo_t *algo, void *y,
                             const struct ds_cuda_operands *o)
{
    const float one = 1, beta = s->add ? 1 : 0;
    point_to_scales(s, o);
    return cublasLtMatmul(c->lt, s->desc, &one, o->w, s->a, o->x, s->b, &beta, y, s->d, y, s->d, algo, c->workspace.p,
                          c->workspace.bytes, c->stream);
}

/* Milliseconds of one run, the least of a few; negative when the candidate fails. */
static float time_algo(struct ds_cuda *c, const struct ds_cuda_shape *s, const cublasLtMatmulAlgo_t *algo, void *y,
                       const struct ds_cuda_operands *o, cudaEvent_t ev[2])
{
    float best = -1;
    for (int i = 0; i <= TUNE_RUNS; i++) {
        float ms = 0;
        cudaEventRecord(ev[0], c->stream);
        if (run_lt(c, s, algo, y, o) != CUBLAS_STATUS_SUCCESS) return -1;
        cudaEventRecord(ev[1], c->stream);
        if (cudaEventSynchronize(ev[1]) != cudaSuccess || cudaEventElapsedTime(&ms, ev[0], ev[1]) != cudaSuccess) return -1;
        if (i && (best < 0 || ms < best)) best = ms;       /* the first run warms up */
    }
    return best;
}

/* Times every candidate on the real operands, into a result of its own. */
static void tune(struct ds_cuda *c, struct ds_cuda_shape *s, const cublasLtMatmulHeuristicResult_t *r, int n_r,
                 const struct ds_cuda_operands *o)
{
    const size_t bytes = (size_t)s->ldy * (size_t)s->n * (s->f32 ? 4 : 2);
    cudaEvent_t ev[2] = { NULL, NULL };
    void *y = NULL;
    if (ds_cuda_mem_take(c, &y, bytes, "timing products", NULL) && cudaEventCreate(&ev[0]) == cudaSuccess && cudaEventCreate(&ev[1]) == cudaSuccess) {
        float best = -1;
        cudaMemsetAsync(y, 0, bytes, c->stream);
        for (int i = 0; i < n_r; i++) {
            const float ms = time_algo(c, s, &r[i].algo, y, o, ev);
            if (ms < 0 || (best >= 0 && ms >= best)) continue;
            best = ms;
            s->algo = r[i].algo;
        }
    }
    if (ev[0]) cudaEventDestroy(ev[0]);
    if (ev[1]) cudaEventDestroy(ev[1]);
    ds_cuda_mem_give(c, y, y ? bytes : 0);
}

static bool set(struct ds_cuda *c, struct ds_cuda_shape *s, cublasLtMatmulDescAttributes_t what, const void *v, size_t size)
{
    return lt_ok(c, cublasLtMatmulDescSetAttribute(s->desc, what, v, size), "describing a product");
}

static bool layout(struct ds_cuda *c, cublasLtMatrixLayout_t *l, cudaDataType_t type, int rows, int cols, int64_t ld)
{
    return lt_ok(c, cublasLtMatrixLayoutCreate(l, type, (uint64_t)rows, (uint64_t)cols, ld), "describing a product");
}

/* Row-major y [n][rows] = x W^T is, column by column, y = W^T x with W [k][rows] transposed. 8 bit: a scale per row of W and of x,
 * and sums that stay in the tensor core (3e-3 relative error at k = 17408, a tenth of what e4m3 operands cost). */
static bool describe(struct ds_cuda *c, struct ds_cuda_shape *s)
{
    const cublasOperation_t trans = CUBLAS_OP_T;
    const cudaDataType_t in = s->f8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF, out = s->f32 ? CUDA_R_32F : CUDA_R_16BF;
    const int32_t per_row = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const int8_t fast = 1;
    if (!lt_ok(c, cublasLtMatmulDescCreate(&s->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product") ||
        !set(c, s, CUBLASLT_MATMUL_DESC_TRANSA, &trans, sizeof trans))
        return false;
    if (s->f8 && (!set(c, s, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &per_row, sizeof per_row) ||
                  !set(c, s, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &per_row, sizeof per_row) ||
                  !set(c, s, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast)))
        return false;
    return layout(c, &s->a, in, s->k, s->rows, s->k) && layout(c, &s->b, in, s->k, s->n, s->k) &&
           layout(c, &s->d, out, s->rows, s->n, s->ldy);
}

/* Timed only at load: a step neither waits nor takes memory. */
static void choose(struct ds_cuda *c, struct ds_cuda_shape *s, const struct ds_cuda_operands *o)
{
    cublasLtMatmulPreference_t pref = NULL;
    cublasLtMatmulHeuristicResult_t r[CANDIDATES];
    const size_t ws = DS_CUDA_WORKSPACE;
    int found = 0;
    if (!describe(c, s) || !lt_ok(c, cublasLtMatmulPreferenceCreate(&pref), "choosing a product's algorithm")) return;
    point_to_scales(s, o);                 /* without them the library finds no algorithm */
    cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &ws, sizeof ws);
    if (cublasLtMatmulAlgoGetHeuristic(c->lt, s->desc, s->a, s->b, s->d, s->d, pref, CANDIDATES, r, &found) ==
            CUBLAS_STATUS_SUCCESS &&
        found) {
        s->known = true;
        s->algo = r[0].algo;
        if (c->choosing && found > 1) tune(c, s, r, found, o);
    }
    cublasLtMatmulPreferenceDestroy(pref);
}

/* NULL: the table is full; a shape that is not `known` has no algorithm. */
static struct ds_cuda_shape *shape_of(struct ds_cuda *c, const struct ds_cuda_shape *key, const struct ds_cuda_operands *o)
{
    const uint32_t h =
        (uint32_t)key->rows * 2654435761u ^ (uint32_t)key->k * 40503u ^ (uint32_t)key->n * 97u ^ (uint32_t)key->ldy;
    for (uint32_t i = 0; i < DS_CUDA_SHAPES; i++) {
        struct ds_cuda_shape *s = &c->shapes[(h + i) % DS_CUDA_SHAPES];
        if (!s->used) {
            *s = *key;
            s->used = true;
            choose(c, s, o);
            return s;
        }
        if (s->rows == key->rows && s->k == key->k && s->n == key->n && s->ldy == key->ldy && s->f32 == key->f32 &&
            s->add == key->add && s->f8 == key->f8)
            return s;
    }
    return NULL;
}

void ds_cuda_product(struct ds_cuda *c, void *y, int64_t ldy, bool f32, bool add, const struct ds_cuda_operands *o, int n, int rows, int k)
{
    const struct ds_cuda_shape key = { .rows = rows, .k = k, .n = n, .f32 = f32, .add = add, .f8 = o->w_scale != NULL, .ldy = ldy };
    struct ds_cuda_shape *s = rows % (key.f8 ? 16 : 8) || k % 8 || rows < 32 ? NULL : shape_of(c, &key, o);
    if (s && s->known) {
        lt_ok(c, run_lt(c, s, &s->algo, y, o), "multiplying");
    } else if (key.f8) {
        ds_cuda_ok(c, ds_cu_gemm_any_f8(y, ldy, f32, add, o->w, o->w_scale, o->x, o->x_scale, n, rows, k, c->stream), "multiplying");
    } else {
        ds_cuda_ok(c, ds_cu_gemm_any(y, ldy, f32, add, o->w, o->x, n, rows, k, c->stream), "multiplying");
    }
}

/* --- at load --- */

ds_status ds_cuda_choose_algorithms(struct ds_cuda *c, int ubatch, struct ds_err *e)
{
    const int lengths[] = { 256, 512, 1024, 2048, 4096, ubatch };
    int widest = 0;
    void *x = NULL, *scale = NULL;
    for (const struct ds_cuda_group *g = c->groups; g; g = g->next)
        if (g->kind != DS_CUDA_OTHER && g->in > widest) widest = g->in;
    const size_t bytes = (size_t)ubatch * (size_t)widest * 2, scales = (size_t)ubatch * sizeof(float);
    if (!bytes || c->be.plan_only) return DS_OK;
    if (ds_cuda_mem_take(c, &x, bytes, "choosing algorithms", e) && ds_cuda_mem_take(c, &scale, scales, "choosing algorithms", e))
        ds_cuda_ok(c, ds_cu_probe_fill(x, (int64_t)bytes, 1, c->stream), "choosing algorithms");
    c->choosing = true;
    for (size_t i = 0; scale && i < sizeof lengths / sizeof *lengths; i++)
        for (const struct ds_cuda_group *g = c->groups; g && lengths[i] <= ubatch; g = g->next) {
            if (g->kind == DS_CUDA_OTHER || g->out % 8 || g->in % 8 || g->out < 32) continue;
            const bool f8 = g->form == DS_CUDA_F8, add = g->kind >= DS_CUDA_SETS;
            const struct ds_cuda_shape key = { .rows = g->out, .k = g->in, .n = lengths[i], .f32 = add, .add = add, .f8 = f8, .ldy = g->out };
            const struct ds_cuda_operands o = { f8 ? (const void *)g->f8 : ds_cuda_group_bf16(c, g), x, g->scale, f8 ? scale : NULL };
            shape_of(c, &key, &o);
        }
    c->choosing = false;
    ds_cuda_ok(c, cudaStreamSynchronize(c->stream), "choosing algorithms");
    ds_cuda_mem_give(c, x, x ? bytes : 0);
    ds_cuda_mem_give(c, scale, scale ? scales : 0);
    if (c->err.code && e) *e = c->err;
    return c->err.code;
}
