/* Internals of the CUDA backend's host side. Device code is behind kernels.h.
 *
 * Formats: F32 and LOGITS f32, ACT and PROJ bf16, KV f16 or f32. A weight matrix lies on the device in
 * the file's blocks (decode reads them) and, where memory allows, as a bf16 copy for the tensor
 * cores; without the copy it is decoded into scratch before each product. */
#ifndef DS_BACKEND_CUDA_HOST_H
#define DS_BACKEND_CUDA_HOST_H

#include "backend/backend.h"
#include "backend/cuda/kernels.h"
#include "base/pool.h"

#include <cublasLt.h>

/* A PROJ buffer can be a view: columns of the wide result of one product of several matrices. */
struct ds_buf {
    enum ds_buf_kind kind;
    size_t rows, dim, bytes;
    void *own;                         /* [rows][dim] */
    uint16_t *view; int64_t ld;        /* PROJ: where the last product put its rows; NULL: own, dense */
    void *aux; size_t aux_bytes;       /* F32: chunk tiles of gdn_prep */
};

struct ds_weight {
    const struct ds_tensor *t;
    int in, out, n_expert;
    float *f32;                        /* DS_USE_VECTOR */
    void *blocks; bool packed;         /* rearranged for decode (ds_cu_pack) */
    uint16_t *bf16;                    /* [n_expert][out][in]; may lie inside a group's */
    struct ds_cuda_group *group;       /* NULL: alone */
    uint64_t bytes;
    struct ds_weight *next, **prev;    /* matrices used in products are listed */
};

/* Matrices that are always multiplied together: their bf16 copies are one matrix. */
struct ds_cuda_group {
    int n_w, out;
    const struct ds_weight *w[8];
    uint16_t *bf16;
    struct ds_cuda_group *next;
};

/* The wide result of a group's product, for one set of destination buffers. */
struct ds_cuda_wide { int n_y, out, rows; struct ds_buf *y[8]; uint16_t *p; struct ds_cuda_wide *next; };

/* A product shape with its chosen algorithm. */
struct ds_cuda_shape {
    int rows, k, n;
    bool f32, add, used, known;
    int64_t ldy;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
};

/* Rows of split attention: splits x tokens of one call. */
enum {
    DS_CUDA_WORKSPACE = 64 << 20,
    DS_CUDA_STAGE_BYTES = 32 << 20,
    DS_CUDA_SHAPES = 1024,
    DS_CUDA_STAGING = 2,
    DS_CUDA_SPLIT_ROWS = 4096
};

struct ds_cuda {
    struct ds_backend be;
    int sm;                            /* 90 for an H200 */
    bool kv_f16, gdn_chunk;
    cudaStream_t stream;
    ds_pool *pool;                     /* host threads for copies and conversions */
    cublasLtHandle_t lt;
    void *workspace;
    struct ds_cuda_shape *shapes;      /* [DS_CUDA_SHAPES], open addressing */
    struct ds_weight *matrices;
    struct ds_cuda_group *groups;
    struct ds_cuda_wide *wides;
    uint16_t *decoded; size_t decoded_n;   /* scratch for matrices without a bf16 copy */
    void *staging[DS_CUDA_STAGING];    /* pinned */
    cudaEvent_t staged[DS_CUDA_STAGING];
    int32_t *ids, *ids_host; int ids_cap;
    float *part; size_t part_n;        /* of split attention */
    int ubatch;
    uint64_t own;
    cudaEvent_t *stamps; int n_stamps;
    struct ds_err err;                 /* first failure of this step */
    char (*names)[2][40];              /* [DS_T_COUNT] kernel names: prefill, decode */
};

static inline struct ds_cuda *ds_cuda_of(struct ds_backend *be) { return (struct ds_cuda *)be; }

/* Latches the first failure; `doing` completes "while ...". True when st is success. */
bool ds_cuda_ok(struct ds_cuda *c, cudaError_t st, const char *doing);
/* The same outside of steps: fills e. */
ds_status ds_cuda_check(cudaError_t st, const char *doing, struct ds_err *e);
void *ds_cuda_alloc(size_t bytes, const char *what, struct ds_err *e);

static inline uint16_t *ds_cuda_proj(const struct ds_buf *b) { return b->view ? b->view : (uint16_t *)b->own; }
static inline int64_t ds_cuda_ld(const struct ds_buf *b, size_t dim) { return b->view ? b->ld : (int64_t)dim; }

/* memory.c */
struct ds_buf *ds_cuda_buf_new(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim, struct ds_err *e);
void ds_cuda_buf_free(struct ds_backend *be, struct ds_buf *b);
uint64_t ds_cuda_buf_bytes(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim);
void ds_cuda_buf_read(struct ds_backend *be, float *dst, const struct ds_buf *src, size_t off, size_t n);
void ds_cuda_buf_write(struct ds_backend *be, struct ds_buf *dst, size_t off, const float *src, size_t n);
void ds_cuda_buf_get(struct ds_backend *be, void *dst, const struct ds_buf *src, size_t off, size_t n);
void ds_cuda_buf_set(struct ds_backend *be, struct ds_buf *dst, size_t off, const void *src, size_t n);
float *ds_cuda_buf_map(struct ds_backend *be, struct ds_buf *b, bool write);
size_t ds_cuda_elem_bytes(struct ds_backend *be, enum ds_buf_kind kind);

/* weight.c */
ds_status ds_cuda_staging(struct ds_cuda *c, struct ds_err *e);      /* pinned memory, taken on first use */
struct ds_weight *ds_cuda_weight_new(struct ds_backend *be, const struct ds_tensor *t, unsigned use, struct ds_err *e);
void ds_cuda_weight_free(struct ds_backend *be, struct ds_weight *w);
uint64_t ds_cuda_weight_extra_bytes(struct ds_backend *be, const struct ds_weight *w);
/* The group of exactly these matrices, formed on first sight; NULL when they cannot be one. */
struct ds_cuda_group *ds_cuda_group_of(struct ds_cuda *c, int n_w, const struct ds_weight *const *w);
void ds_cuda_groups_free(struct ds_cuda *c);

/* matmul.c */
void ds_cuda_matmul(struct ds_backend *be, int n_w, struct ds_buf *const *y, const struct ds_weight *const *w,
                    const struct ds_buf *x, int n, bool add);
void ds_cuda_matmul_experts(struct ds_backend *be, struct ds_buf *y, const struct ds_weight *w, const struct ds_buf *x,
                            const struct ds_buf *route, int n, int k, bool per_slot);
const char *ds_cuda_kernel_name(struct ds_backend *be, const struct ds_weight *w, int n);
/* Groups the matrices of each layer that share an input, and chooses the algorithms of their products for the usual step
 * lengths up to `ubatch`: at load, so that no prefill pays for it. */
ds_status ds_cuda_prepare_products(struct ds_cuda *c, int ubatch, struct ds_err *e);
ds_status ds_cuda_matmul_init(struct ds_cuda *c, struct ds_err *e);
void ds_cuda_matmul_free(struct ds_cuda *c);

/* peaks.c */
void ds_cuda_peaks(struct ds_backend *be, struct ds_peaks *out);
uint64_t ds_cuda_mem_available(struct ds_backend *be);

/* ops.c */
extern const struct ds_ops ds_cuda_ops;

/* context.c */
void ds_cuda_free(struct ds_backend *be);
ds_status ds_cuda_reserve(struct ds_backend *be, const struct ds_sizes *sz, struct ds_err *e);
uint64_t ds_cuda_own_bytes(struct ds_backend *be);
bool ds_cuda_begin(struct ds_backend *be, const struct ds_step *s);
ds_status ds_cuda_end(struct ds_backend *be, struct ds_err *e);
void ds_cuda_stamp(struct ds_backend *be, int i);
uint64_t ds_cuda_stamp_ns(struct ds_backend *be, int i);
void ds_cuda_drain(struct ds_backend *be);

#endif
