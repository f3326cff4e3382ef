/* Internals of the CUDA backend's host side. Device code is behind kernels.h.
 *
 * Formats: F32 and LOGITS f32, ACT bf16 or e4m3 with a scale a row, PROJ bf16, KV f16 or f32. A weight matrix
 * lies on the device in the file's blocks (decode reads them, rearranged where that is faster). For products of
 * several tokens, reserve() makes groups of the matrices that share an input, and a copy of each group in bf16 or
 * e4m3; a group without one is decoded into scratch before each product.
 *
 * All device memory is taken and given back through ds_cuda_mem_take and ds_cuda_mem_give, so that `held` is what a plan
 * must say. A backend that only plans runs the same code and takes nothing. */
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
    float *scale;                      /* ACT, where 8-bit products are on: [rows] behind the values */
    bool f8;                           /* ACT: holds e4m3 */
};

struct ds_weight {
    const struct ds_tensor *t;
    int in, out, n_expert;
    unsigned use;
    float *f32;                        /* DS_USE_VECTOR */
    bool f8_gain;                      /* a norm's gain whose result goes to 8-bit products */
    void *blocks; bool packed;         /* rearranged for decode (ds_cu_pack); NULL: moved into the group */
    struct ds_cuda_group *group;       /* NULL until reserve(), and for vectors */
    int row;                           /* first row within the group */
    uint64_t bytes;                    /* of f32 and blocks */
    struct ds_weight *next, **prev;
};

/* What --gemm and --weights name: the products of a layer. */
enum ds_cuda_kind {
    DS_CUDA_GDN_IN, DS_CUDA_ATTN_IN, DS_CUDA_FFN_IN,       /* several matrices of one input */
    DS_CUDA_GDN_OUT, DS_CUDA_ATTN_OUT, DS_CUDA_FFN_DOWN,   /* added into the residual */
    DS_CUDA_OTHER,
    DS_CUDA_KINDS,
    DS_CUDA_SETS = DS_CUDA_GDN_OUT
};
/* How a product of several tokens reads its matrix. */
enum ds_cuda_form { DS_CUDA_BLOCKS, DS_CUDA_BF16, DS_CUDA_F8 };

/* Matrices that are always multiplied together, or one alone: one matrix for products of several tokens. */
struct ds_cuda_group {
    int n_w, live, in, out;
    enum ds_cuda_kind kind;
    enum ds_cuda_form form;
    bool made;
    struct ds_weight *w[4];
    uint16_t *bf16;                    /* [out][in], of experts [n_expert][out][in]; may be the one matrix's own blocks */
    uint8_t *f8; float *scale;         /* [out][in], [out] behind it */
    uint64_t bytes;                    /* of the copy; 0: none, or the blocks themselves */
    struct ds_cuda_group *next;
};

/* Scratch that grows to the largest need; at reserve(), so that steps find it large enough. */
struct ds_cuda_room { void *p; size_t bytes; };

/* A product shape with its chosen algorithm. */
struct ds_cuda_shape {
    int rows, k, n;
    bool f32, add, f8, used, known;
    int64_t ldy;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
};

/* A recorded step; exec NULL: not yet. */
struct ds_cuda_graph {
    const void *timeline;              /* NULL: unused */
    int n, splits, seen;
    int64_t pos;                       /* 0 for one token: any position that divides the keys alike */
    unsigned skip;
    bool logits;
    uint64_t used;                     /* count of replays when it was last wanted */
    cudaGraphExec_t exec;
};

/* An op of one token that waits for the product behind it (later.c). */
struct ds_cuda_later {
    struct ds_buf *out;                /* NULL: nothing waits */
    struct ds_cu_gemv_input in;
    int k, head;
};

/* Rows of split attention: splits x tokens of one call. */
enum {
    DS_CUDA_WORKSPACE = 64 << 20,
    DS_CUDA_STAGE_BYTES = 32 << 20,
    DS_CUDA_SHAPES = 1024,
    DS_CUDA_STAGING = 2,
    DS_CUDA_GRAPHS = 16,
    DS_CUDA_SPLIT_ROWS = 4096
};

struct ds_cuda {
    struct ds_backend be;
    int sm;                            /* 90 for an H200 */
    bool kv_f16, gdn_chunk;
    unsigned f8_kinds;                 /* bits of enum ds_cuda_kind: --gemm */
    bool f8_down;                      /* every FFN_DOWN product is an 8-bit one: SwiGLU writes e4m3 */
    enum ds_cuda_copies { DS_CUDA_AUTO, DS_CUDA_NO_COPIES, DS_CUDA_ALL_COPIES } copies;     /* --weights */
    cudaStream_t stream;
    ds_pool *pool;                     /* host threads for copies and conversions */
    cublasLtHandle_t lt;
    struct ds_cuda_shape *shapes;      /* [DS_CUDA_SHAPES], open addressing */
    struct ds_weight *weights;
    struct ds_cuda_group *groups;
    void *staging[DS_CUDA_STAGING];    /* pinned */
    cudaEvent_t staged[DS_CUDA_STAGING];
    int64_t *head;                     /* pinned: what ids.p holds: the step's position, then its ids */
    int head_ids;                      /* how many ids it has room for */
    struct ds_cuda_room workspace, ids, part, tiles, decoded, x8;   /* the library's; ids; split attention; chunk tiles; matrices without a
                                                                     * copy; 8-bit inputs that came in bf16: values, then scales */
    struct ds_cuda_graph graphs[DS_CUDA_GRAPHS], *recording;
    uint64_t replays;
    struct ds_attn_shape attn;         /* of the model, n_head 0: none reserved */
    const struct ds_buf *tiles_of;     /* whose prepared inputs the tiles hold */
    struct ds_cuda_room wide[DS_CUDA_SETS];        /* results of one layer's groups: views of the next layer's replace them */
    struct ds_cuda_later later;
    const struct ds_buf *prepared;     /* the last launch prepared the recurrence in it */
    size_t tiles_zeroed;               /* size of the tiles whose control part was cleared */
    int ubatch;
    bool choosing;                     /* algorithms are being timed */
    uint64_t held;                     /* device bytes taken through ds_cuda_mem_take */
    struct ds_cuda_room slots;         /* times that kernels write, ns */
    unsigned long long *slots_host;
    int *stamp_slot, cap_stamps, n_slots;      /* which slot is stamp i's */
    int slot_waits, slot_ended;        /* of the next kernel's start; of the last one's end. -1: none */
    bool stamping;                     /* the step is profiled */
    struct ds_err err;                 /* first failure of this step */
};

static inline struct ds_cuda *ds_cuda_of(struct ds_backend *be) { return (struct ds_cuda *)be; }

/* Latches the first failure; `doing` completes "while ...". True when st is success. */
bool ds_cuda_ok(struct ds_cuda *c, cudaError_t st, const char *doing);
/* The same outside of steps: fills e. */
ds_status ds_cuda_check(cudaError_t st, const char *doing, struct ds_err *e);
/* Device memory for what the sentence of a failure names; *p is NULL when only planning. */
bool ds_cuda_mem_take(struct ds_cuda *c, void *p, size_t bytes, const char *what, struct ds_err *e);    /* p: address of a pointer */
void ds_cuda_mem_give(struct ds_cuda *c, void *p, size_t bytes);                                        /* bytes: as taken; 0: nothing was */
/* At least `bytes`; what it held is lost when it grows. Within a step (e NULL) failures are latched. */
bool ds_cuda_room(struct ds_cuda *c, struct ds_cuda_room *r, size_t bytes, const char *what, struct ds_err *e);
void ds_cuda_room_free(struct ds_cuda *c, struct ds_cuda_room *r);

static inline uint16_t *ds_cuda_proj(const struct ds_buf *b) { return b->view ? b->view : (uint16_t *)b->own; }
static inline int64_t ds_cuda_ld(const struct ds_buf *b, size_t dim) { return b->view ? b->ld : (int64_t)dim; }

/* later.c. Every op starts with ds_cuda_ready, or takes what waits. */
bool ds_cuda_later(struct ds_cuda *c, struct ds_buf *out, const struct ds_cu_gemv_input *in, int k, int head);
/* What waits makes the k values of x: the caller's product does it from here. */
bool ds_cuda_take(struct ds_cuda *c, const struct ds_buf *x, int k, struct ds_cu_gemv_input *in);
void ds_cuda_settle(struct ds_cuda *c);
static inline struct ds_cuda *ds_cuda_ready(struct ds_backend *be)
{
    struct ds_cuda *c = ds_cuda_of(be);
    ds_cuda_settle(c);
    return c;
}

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

/* weight.c: blocks and vectors on the device */
ds_status ds_cuda_staging(struct ds_cuda *c, struct ds_err *e);      /* pinned memory, taken on first use */
struct ds_weight *ds_cuda_weight_new(struct ds_backend *be, const struct ds_tensor *t, unsigned use, struct ds_err *e);
void ds_cuda_weight_free(struct ds_backend *be, struct ds_weight *w);
uint64_t ds_cuda_weight_extra_bytes(struct ds_backend *be, const struct ds_weight *w);

/* group.c: which matrices form one product, and of what kind. Puts every matrix that has none into a group. */
ds_status ds_cuda_group_all(struct ds_cuda *c, struct ds_err *e);
void ds_cuda_group_leave(struct ds_cuda *c, struct ds_weight *w);    /* the last one frees it */
bool ds_cuda_wants_f8(const struct ds_cuda *c, const struct ds_cuda_group *g);
/* "bf16", "fp8" or "fp8:NAME,...", "auto", "blocks" or "bf16". */
ds_status ds_cuda_parse_gemm(struct ds_cuda *c, const char *text, struct ds_err *e);
ds_status ds_cuda_parse_weights(struct ds_cuda *c, const char *text, struct ds_err *e);

/* plan.c */
/* Decides the forms of groups that have no copy yet. Returns the bytes that their copies and the scratch of steps take. */
uint64_t ds_cuda_plan(struct ds_cuda *c, const struct ds_sizes *sz);
uint64_t ds_cuda_copy_bytes(const struct ds_cuda_group *g);
uint64_t ds_cuda_mem_available(struct ds_backend *be, const struct ds_sizes *sz);
ds_status ds_cuda_take_scratch(struct ds_cuda *c, const struct ds_sizes *sz, struct ds_err *e);

/* copies.c: makes the groups' copies, then packs their blocks for decode. */
ds_status ds_cuda_make_copies(struct ds_cuda *c, struct ds_err *e);

/* lt.c: products through cuBLASLt */
ds_status ds_cuda_lt_init(struct ds_cuda *c, struct ds_err *e);
void ds_cuda_lt_free(struct ds_cuda *c);
/* Both bf16, or both e4m3 with scales of their rows. */
struct ds_cuda_operands { const void *w, *x; const float *w_scale, *x_scale; };
/* y [n][rows], row distance ldy (+)= x [n][k] times w [rows][k]. */
void ds_cuda_product(struct ds_cuda *c, void *y, int64_t ldy, bool f32, bool add, const struct ds_cuda_operands *o, int n, int rows, int k);
/* Chooses the algorithms for the usual step lengths up to `ubatch`: at load, so that no prefill pays for it. */
ds_status ds_cuda_choose_algorithms(struct ds_cuda *c, int ubatch, struct ds_err *e);

/* matmul.c */
/* The group's matrix in bf16: its copy, or decoded into scratch. */
const uint16_t *ds_cuda_group_bf16(struct ds_cuda *c, const struct ds_cuda_group *g);
void ds_cuda_matmul(struct ds_backend *be, int n_w, struct ds_buf *const *y, const struct ds_weight *const *w,
                    const struct ds_buf *x, int n, bool add);
void ds_cuda_matmul_experts(struct ds_backend *be, struct ds_buf *y, const struct ds_weight *w, const struct ds_buf *x,
                            const struct ds_buf *route, int n, int k, bool per_slot);
const char *ds_cuda_kernel_name(struct ds_backend *be, const struct ds_weight *w, int n);

/* graph.c: steps are recorded on their second sight and replayed from the third on. */
/* True: the step was replayed, no op follows. */
bool ds_cuda_replay(struct ds_cuda *c);
void ds_cuda_record_end(struct ds_cuda *c);
/* Recorded steps name buffers, weights and scratch: when any of these goes, so do they. */
void ds_cuda_graphs_drop(struct ds_cuda *c);

/* stamp.c. Every op asks ds_cuda_stamp_next for each kernel that writes its times, or ds_cuda_stamp_settle before one that does not. */
void ds_cuda_stamp(struct ds_backend *be, int i);
uint64_t ds_cuda_stamp_ns(struct ds_backend *be, int i);
struct ds_cu_stamp ds_cuda_stamp_next(struct ds_cuda *c);
void ds_cuda_stamp_settle(struct ds_cuda *c);
void ds_cuda_stamps_read(struct ds_cuda *c);
size_t ds_cuda_stamp_bytes(void);

/* peaks.c */
void ds_cuda_peaks(struct ds_backend *be, struct ds_peaks *out);

/* ops.c */
int ds_cuda_splits(const struct ds_cuda *c, const struct ds_attn_shape *sh, int n, int64_t pos);
static inline const int32_t *ds_cuda_ids(const struct ds_cuda *c) { return (const int32_t *)c->ids.p + 2; }
extern const struct ds_ops ds_cuda_ops;

/* context.c */
void ds_cuda_free(struct ds_backend *be);
ds_status ds_cuda_reserve(struct ds_backend *be, const struct ds_sizes *sz, struct ds_err *e);
uint64_t ds_cuda_own_bytes(struct ds_backend *be);
bool ds_cuda_begin(struct ds_backend *be, const struct ds_step *s);
ds_status ds_cuda_end(struct ds_backend *be, struct ds_err *e);
void ds_cuda_drain(struct ds_backend *be);

#endif
