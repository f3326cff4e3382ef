/* Weight products: cuBLASLt on bf16 with f32 sums, one algorithm per shape chosen when the shape is
 * first seen; a group of matrices is one product. One token of decode reads the stored blocks. */
#include "backend/cuda/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CANDIDATES = 16, TUNE_FROM = 128, TUNE_RUNS = 3 };

static bool lt_ok(struct ds_cuda *c, cublasStatus_t st, const char *doing)
{
    if (st == CUBLAS_STATUS_SUCCESS) return true;
    if (!c->err.code) ds_fail(&c->err, DS_EIO, "cuBLASLt failed while %s: %s", doing, cublasLtGetStatusString(st));
    return false;
}

ds_status ds_cuda_matmul_init(struct ds_cuda *c, struct ds_err *e)
{
    cublasStatus_t st = cublasLtCreate(&c->lt);
    if (st != CUBLAS_STATUS_SUCCESS) return ds_fail(e, DS_EUNSUP, "cuBLASLt does not start: %s", cublasLtGetStatusString(st));
    if (!(c->shapes = calloc(DS_CUDA_SHAPES, sizeof *c->shapes)))
        return ds_fail(e, DS_ENOMEM, "the system refused memory for product shapes");
    if (!(c->names = calloc(DS_T_COUNT, sizeof *c->names)))
        return ds_fail(e, DS_ENOMEM, "the system refused memory for kernel names");
    if (!(c->workspace = ds_cuda_alloc(DS_CUDA_WORKSPACE, "the library's workspace", e))) return DS_ENOMEM;
    c->own += DS_CUDA_WORKSPACE;
    for (int t = 0; t < DS_T_COUNT; t++) {
        snprintf(c->names[t][0], sizeof c->names[t][0], "%s cublasLt bf16", ds_types[t].name);
        snprintf(c->names[t][1], sizeof c->names[t][1], "%s gemv", ds_types[t].name);
    }
    return DS_OK;
}

void ds_cuda_matmul_free(struct ds_cuda *c)
{
    for (int i = 0; c->shapes && i < DS_CUDA_SHAPES; i++) {
        struct ds_cuda_shape *s = &c->shapes[i];
        if (s->desc) cublasLtMatmulDescDestroy(s->desc);
        if (s->a) cublasLtMatrixLayoutDestroy(s->a);
        if (s->b) cublasLtMatrixLayoutDestroy(s->b);
        if (s->d) cublasLtMatrixLayoutDestroy(s->d);
    }
    free(c->shapes);
    free(c->names);
    while (c->wides) {
        struct ds_cuda_wide *w = c->wides;
        c->wides = w->next;
        cudaFree(w->p);
        free(w);
    }
    cudaFree(c->workspace);
    if (c->lt) cublasLtDestroy(c->lt);
}

/* --- shapes and their algorithms --- */

static cublasStatus_t run_lt(struct ds_cuda *c, const struct ds_cuda_shape *s, const cublasLtMatmulAlgo_t *algo, void *y,
                             const uint16_t *w, const uint16_t *x)
{
    const float one = 1, beta = s->add ? 1 : 0;
    return cublasLtMatmul(c->lt, s->desc, &one, w, s->a, x, s->b, &beta, y, s->d, y, s->d, algo, c->workspace, DS_CUDA_WORKSPACE,
                          c->stream);
}

/* Milliseconds of one run, the least of a few; negative when the candidate fails. */
static float time_algo(struct ds_cuda *c, const struct ds_cuda_shape *s, const cublasLtMatmulAlgo_t *algo, void *y,
                       const uint16_t *w, const uint16_t *x, cudaEvent_t ev[2])
{
    float best = -1;
    for (int i = 0; i <= TUNE_RUNS; i++) {
        float ms = 0;
        cudaEventRecord(ev[0], c->stream);
        if (run_lt(c, s, algo, y, w, x) != CUBLAS_STATUS_SUCCESS) return -1;
        cudaEventRecord(ev[1], c->stream);
        if (cudaEventSynchronize(ev[1]) != cudaSuccess || cudaEventElapsedTime(&ms, ev[0], ev[1]) != cudaSuccess) return -1;
        if (i && (best < 0 || ms < best)) best = ms;       /* the first run warms up */
    }
    return best;
}

/* Times every candidate on the real operands, into a result of its own. */
static void tune(struct ds_cuda *c, struct ds_cuda_shape *s, const cublasLtMatmulHeuristicResult_t *r, int n_r, const uint16_t *w,
                 const uint16_t *x)
{
    cudaEvent_t ev[2] = { NULL, NULL };
    void *y = ds_cuda_alloc((size_t)s->ldy * (size_t)s->n * (s->f32 ? 4 : 2), "timing products", NULL);
    if (y && cudaEventCreate(&ev[0]) == cudaSuccess && cudaEventCreate(&ev[1]) == cudaSuccess) {
        float best = -1;
        cudaMemsetAsync(y, 0, (size_t)s->ldy * (size_t)s->n * (s->f32 ? 4 : 2), c->stream);
        for (int i = 0; i < n_r; i++) {
            const float ms = time_algo(c, s, &r[i].algo, y, w, x, ev);
            if (ms < 0 || (best >= 0 && ms >= best)) continue;
            best = ms;
            s->algo = r[i].algo;
        }
    }
    if (ev[0]) cudaEventDestroy(ev[0]);
    if (ev[1]) cudaEventDestroy(ev[1]);
    cudaFree(y);
}

/* Row-major y [n][rows] = x W^T is, column by column, y = W^T x with W [k][rows] transposed. */
static bool describe(struct ds_cuda *c, struct ds_cuda_shape *s)
{
    const cublasOperation_t trans = CUBLAS_OP_T;
    const cudaDataType_t out = s->f32 ? CUDA_R_32F : CUDA_R_16BF;
    return lt_ok(c, cublasLtMatmulDescCreate(&s->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product") &&
           lt_ok(c, cublasLtMatmulDescSetAttribute(s->desc, CUBLASLT_MATMUL_DESC_TRANSA, &trans, sizeof trans),
                 "describing a product") &&
           lt_ok(c, cublasLtMatrixLayoutCreate(&s->a, CUDA_R_16BF, (uint64_t)s->k, (uint64_t)s->rows, s->k),
                 "describing a product") &&
           lt_ok(c, cublasLtMatrixLayoutCreate(&s->b, CUDA_R_16BF, (uint64_t)s->k, (uint64_t)s->n, s->k),
                 "describing a product") &&
           lt_ok(c, cublasLtMatrixLayoutCreate(&s->d, out, (uint64_t)s->rows, (uint64_t)s->n, s->ldy), "describing a product");
}

static void choose(struct ds_cuda *c, struct ds_cuda_shape *s, const uint16_t *w, const uint16_t *x)
{
    cublasLtMatmulPreference_t pref = NULL;
    cublasLtMatmulHeuristicResult_t r[CANDIDATES];
    const size_t ws = DS_CUDA_WORKSPACE;
    int found = 0;
    if (!describe(c, s) || !lt_ok(c, cublasLtMatmulPreferenceCreate(&pref), "choosing a product's algorithm")) return;
    cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &ws, sizeof ws);
    if (cublasLtMatmulAlgoGetHeuristic(c->lt, s->desc, s->a, s->b, s->d, s->d, pref, CANDIDATES, r, &found) ==
            CUBLAS_STATUS_SUCCESS &&
        found) {
        s->known = true;
        s->algo = r[0].algo;
        if (found > 1 && s->n >= TUNE_FROM && s->n % 64 == 0) tune(c, s, r, found, w, x);
    }
    cublasLtMatmulPreferenceDestroy(pref);
}

/* NULL: the table is full; a shape that is not `known` has no algorithm. */
static struct ds_cuda_shape *shape_of(struct ds_cuda *c, const struct ds_cuda_shape *key, const uint16_t *w, const uint16_t *x)
{
    const uint32_t h =
        (uint32_t)key->rows * 2654435761u ^ (uint32_t)key->k * 40503u ^ (uint32_t)key->n * 97u ^ (uint32_t)key->ldy;
    for (uint32_t i = 0; i < DS_CUDA_SHAPES; i++) {
        struct ds_cuda_shape *s = &c->shapes[(h + i) % DS_CUDA_SHAPES];
        if (!s->used) {
            *s = *key;
            s->used = true;
            choose(c, s, w, x);
            return s;
        }
        if (s->rows == key->rows && s->k == key->k && s->n == key->n && s->ldy == key->ldy && s->f32 == key->f32 &&
            s->add == key->add)
            return s;
    }
    return NULL;
}

static void product(struct ds_cuda *c, void *y, int64_t ldy, bool f32, bool add, const uint16_t *w, const uint16_t *x, int n,
                    int rows, int k)
{
    const struct ds_cuda_shape key = { .rows = rows, .k = k, .n = n, .f32 = f32, .add = add, .ldy = ldy };
    struct ds_cuda_shape *s = rows % 8 || k % 8 || rows < 32 ? NULL : shape_of(c, &key, w, x);
    if (s && s->known) lt_ok(c, run_lt(c, s, &s->algo, y, w, x), "multiplying");
    else ds_cuda_ok(c, ds_cu_gemm_any(y, ldy, f32, add, w, x, n, rows, k, c->stream), "multiplying");
}

/* --- at load --- */

/* Names of matrices that the model multiplies together, in its order. */
static const char *const SETS[][4] = {
    { "attn_qkv", "attn_gate", "ssm_beta", "ssm_alpha" }, { "attn_q", "attn_k", "attn_v" }, { "ffn_gate", "ffn_up" },
};
/* Those that add into the residual. */
static const char *const ADDED[] = { "ssm_out", "attn_output", "ffn_down" };

/* Whether t is PREFIX name ".weight"; prefix_n characters of prefix. */
static bool is_named(const struct ds_tensor *t, const char *prefix, size_t prefix_n, const char *name)
{
    const size_t n = strlen(name);
    return !strncmp(t->name, prefix, prefix_n) && !strncmp(t->name + prefix_n, name, n) &&
           !strcmp(t->name + prefix_n + n, ".weight");
}

static const struct ds_weight *find_matrix(const struct ds_cuda *c, const char *prefix, size_t prefix_n, const char *name)
{
    for (const struct ds_weight *w = c->matrices; w; w = w->next)
        if (is_named(w->t, prefix, prefix_n, name)) return w;
    return NULL;
}

/* "blk.12." of "blk.12.ffn_up.weight": its length. */
static size_t layer_prefix(const struct ds_tensor *t)
{
    const char *dot = strchr(t->name, '.'), *second = dot ? strchr(dot + 1, '.') : NULL;
    return second ? (size_t)(second + 1 - t->name) : 0;
}

static void form_groups(struct ds_cuda *c)
{
    for (const struct ds_weight *w = c->matrices; w; w = w->next)
        for (size_t s = 0; s < sizeof SETS / sizeof *SETS; s++) {
            const size_t prefix = layer_prefix(w->t);
            const struct ds_weight *all[4] = { w };
            int n = 1;
            if (!prefix || !is_named(w->t, w->t->name, prefix, SETS[s][0])) continue;
            while (n < 4 && SETS[s][n] && (all[n] = find_matrix(c, w->t->name, prefix, SETS[s][n]))) n++;
            if (n == 4 || !SETS[s][n]) ds_cuda_group_of(c, n, all);
        }
}

/* One of the shapes' keys for a step of n tokens; false: not a product of prefill. */
static bool prefill_shape(const struct ds_weight *w, int n, struct ds_cuda_shape *key, const uint16_t **matrix)
{
    *key = (struct ds_cuda_shape){ .rows = w->group ? w->group->out : w->out, .k = w->in, .n = n };
    key->ldy = key->rows;
    *matrix = w->group ? w->group->bf16 : w->bf16;
    if (w->group) return w->group->w[0] == w;
    for (size_t i = 0; i < sizeof ADDED / sizeof *ADDED; i++)
        if (is_named(w->t, w->t->name, layer_prefix(w->t), ADDED[i])) key->f32 = key->add = true;
    return key->add && *matrix && key->rows % 8 == 0 && key->k % 8 == 0 && key->rows >= 32;
}

ds_status ds_cuda_prepare_products(struct ds_cuda *c, int ubatch, struct ds_err *e)
{
    const int lengths[] = { 256, 512, 1024, 2048, 4096, ubatch };
    int widest = 0;
    form_groups(c);
    for (const struct ds_weight *w = c->matrices; w; w = w->next)
        if (w->in > widest) widest = w->in;
    const size_t bytes = (size_t)ubatch * (size_t)widest * 2;
    uint16_t *x = bytes ? ds_cuda_alloc(bytes, "choosing algorithms", e) : NULL;
    if (!x) return bytes ? DS_ENOMEM : DS_OK;
    ds_cuda_ok(c, ds_cu_probe_fill(x, (int64_t)bytes, 1, c->stream), "choosing algorithms");
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (const struct ds_weight *w = c->matrices; w && lengths[i] <= ubatch; w = w->next) {
            struct ds_cuda_shape key;
            const uint16_t *matrix;
            if (prefill_shape(w, lengths[i], &key, &matrix)) shape_of(c, &key, matrix, x);
        }
    ds_cuda_ok(c, cudaStreamSynchronize(c->stream), "choosing algorithms");
    cudaFree(x);
    if (c->err.code && e) *e = c->err;
    return c->err.code;
}

/* --- ops --- */

/* bf16 form of a whole matrix, decoded into scratch when no copy is kept. */
static const uint16_t *as_bf16(struct ds_cuda *c, const struct ds_weight *w)
{
    if (w->bf16) return w->bf16;
    const struct ds_type *t = w->t->type;
    ds_cuda_ok(c,
               ds_cu_dequant(c->decoded, w->blocks, (int)ds_type_id(t), t->block, t->bytes, (int64_t)w->in * w->out * w->n_expert,
                             c->stream),
               "decoding weights");
    return c->decoded;
}

/* What decode reads of a matrix: its blocks, unless those are Q8_0 in the file's own arrangement, or moved into a group. */
static bool reads_blocks(const struct ds_weight *w)
{
    return w->blocks && (w->packed || ds_type_id(w->t->type) != DS_T_Q8_0);
}

static void one_token(struct ds_cuda *c, int n_w, struct ds_buf *const *y, const struct ds_weight *const *w, const uint16_t *x,
                      bool add)
{
    for (int i = 0; i < n_w;) {
        const bool blocks = reads_blocks(w[i]);
        const struct ds_type *t = blocks ? w[i]->t->type : &ds_types[DS_T_BF16];
        struct ds_cu_gemv g = { .k = w[i]->in,
                                .type = (int)ds_type_id(t),
                                .block = t->block,
                                .block_bytes = t->bytes,
                                .packed = blocks && w[i]->packed,
                                .add = add,
                                .x = x };
        do {                                               /* neighbours of one type share a launch */
            y[i]->view = NULL;
            g.m[g.n_m++] = (struct ds_cu_gemv_matrix){ y[i]->own, blocks ? w[i]->blocks : as_bf16(c, w[i]), w[i]->out,
                                                       y[i]->kind == DS_BUF_F32 || y[i]->kind == DS_BUF_LOGITS };
            i++;
        } while (i < n_w && g.n_m < DS_CU_GEMV_MAX && (blocks || w[i]->bf16) && reads_blocks(w[i]) == blocks &&
                 (!blocks || w[i]->t->type == t) && w[i]->packed == g.packed && w[i]->in == g.k);
        ds_cuda_ok(c, ds_cu_gemv(&g, c->stream), "multiplying one token");
    }
}

static void one_matrix(struct ds_cuda *c, struct ds_buf *y, const struct ds_weight *w, const uint16_t *x, int n, bool add)
{
    const bool f32 = y->kind == DS_BUF_F32 || y->kind == DS_BUF_LOGITS;
    y->view = NULL;
    product(c, y->own, w->out, f32, add, as_bf16(c, w), x, n, w->out, w->in);
}

/* The wide result for these destinations, made on first sight for the largest step. */
static struct ds_cuda_wide *wide_of(struct ds_cuda *c, int n_y, struct ds_buf *const *y, const struct ds_cuda_group *g, int n)
{
    struct ds_cuda_wide *w;
    for (w = c->wides; w; w = w->next) {
        bool same = w->n_y == n_y && w->out == g->out;
        for (int i = 0; same && i < n_y; i++) same = w->y[i] == y[i];
        if (same) return w;
    }
    if (!(w = calloc(1, sizeof *w))) return NULL;
    const size_t rows = n > c->ubatch ? (size_t)n : (size_t)c->ubatch;
    if (!(w->p = ds_cuda_alloc(rows * (size_t)g->out * 2, "grouped results", NULL))) {
        free(w);
        return NULL;
    }
    c->own += rows * (size_t)g->out * 2;
    w->n_y = n_y;
    w->out = g->out;
    w->rows = (int)rows;
    memcpy(w->y, y, (size_t)n_y * sizeof *y);
    w->next = c->wides;
    c->wides = w;
    return w;
}

static bool grouped(struct ds_cuda *c, int n_w, struct ds_buf *const *y, const struct ds_weight *const *w, const uint16_t *x,
                    int n)
{
    for (int i = 0; i < n_w; i++)
        if (y[i]->kind != DS_BUF_PROJ || y[i]->dim != (size_t)w[i]->out) return false;
    struct ds_cuda_group *g = ds_cuda_group_of(c, n_w, w);
    struct ds_cuda_wide *wide = g ? wide_of(c, n_w, y, g, n) : NULL;
    if (!wide || wide->rows < n) return false;
    product(c, wide->p, g->out, false, false, g->bf16, x, n, g->out, w[0]->in);
    uint16_t *at = wide->p;
    for (int i = 0; i < n_w; i++) {
        y[i]->view = at;
        y[i]->ld = g->out;
        at += w[i]->out;
    }
    return true;
}

void ds_cuda_matmul(struct ds_backend *be, int n_w, struct ds_buf *const *y, const struct ds_weight *const *w,
                    const struct ds_buf *x, int n, bool add)
{
    struct ds_cuda *c = ds_cuda_of(be);
    const uint16_t *xp = x->own;
    if (n > 1 && !add && n_w > 1 && grouped(c, n_w, y, w, xp, n)) return;
    if (n == 1) {
        one_token(c, n_w, y, w, xp, add);
        return;
    }
    for (int i = 0; i < n_w; i++) one_matrix(c, y[i], w[i], xp, n, add);
}

void ds_cuda_matmul_experts(struct ds_backend *be, struct ds_buf *y, const struct ds_weight *w, const struct ds_buf *x,
                            const struct ds_buf *route, int n, int k, bool per_slot)
{
    struct ds_cuda *c = ds_cuda_of(be);
    y->view = NULL;
    ds_cuda_ok(c, ds_cu_gemm_experts(y->own, as_bf16(c, w), x->own, route->own, n * k, k, per_slot, w->out, w->in, c->stream),
               "multiplying with experts");
}

const char *ds_cuda_kernel_name(struct ds_backend *be, const struct ds_weight *w, int n)
{
    return ds_cuda_of(be)->names[ds_type_id(w->t->type)][n == 1];
}
