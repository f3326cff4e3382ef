/* Internals of the Metal backend's host side; portable C over mtl.h, so that all of it runs in tests without a Mac.
 *
 * Formats: every activation is f32; ACT buffers also hold the half copy with row scales that products read. KV f16 or f32.
 * Weights are read where the file lies, through buffers without a copy.
 *
 * A step is a list of dispatches (submit.c). They go out in command buffers of bounded work; when one fails, the step starts
 * again from its list in smaller buffers. For that, state survives until the step has ended: a STATE buffer has two versions,
 * a step reads one and writes the other. */
#ifndef DS_BACKEND_METAL_HOST_H
#define DS_BACKEND_METAL_HOST_H

#include "backend/backend.h"
#include "backend/metal/args.h"
#include "backend/metal/mtl.h"

struct ds_metal_mem { struct ds_mtl_buf *b; size_t off, bytes; };

struct ds_buf {
    enum ds_buf_kind kind;
    size_t rows, dim;
    struct ds_mtl_buf *mem;
    size_t bytes, total;               /* of one version; of mem */
    size_t half_at, scale_at;          /* ACT: half [rows][dim], f32 [rows] */
    size_t order_at, tiles_at;         /* ROUTE: what moe_sort makes */
    int version;                       /* STATE: the one that the last ended step left */
    uint64_t advanced;                 /* STATE: the step that wrote the other version */
    uint64_t born;                     /* the list (ds_metal.origin) that wrote it from nothing */
    uint64_t derived; size_t derived_rows;   /* step that made the half copy or the order, and of how many rows */
    struct ds_buf *next_written;
};

/* Rows, or experts of a 3-D matrix, first..first+n-1. A tensor larger than a buffer may be has several. */
struct ds_metal_piece { struct ds_mtl_buf *b; size_t off, bytes, held; int first, n; };

struct ds_weight {
    const struct ds_tensor *t;
    int in, out, n_expert;
    const struct ds_type *type;        /* as the GPU reads it: the file's, or f16/f32 where no kernel reads that */
    struct ds_metal_piece *pieces; int n_pieces;
    void *copy; size_t copy_bytes;     /* decoded on the host for types without a kernel */
    struct ds_mtl_buf *vec; size_t vec_bytes;   /* DS_USE_VECTOR: f32 */
};

enum ds_metal_kernel {
    DS_MK_ACT_HALF, DS_MK_RMS_NORM, DS_MK_SWIGLU, DS_MK_COPY_COLS, DS_MK_COPY, DS_MK_CONV_TAIL, DS_MK_GDN_PREP, DS_MK_GDN_SEQ,
    DS_MK_GDN_CHUNK, DS_MK_GATED_NORM, DS_MK_QK_NORM, DS_MK_ROPE_STORE, DS_MK_ATTN_PREFILL, DS_MK_ATTN_PART, DS_MK_ATTN_MERGE,
    DS_MK_MOE_ROUTE, DS_MK_MOE_SORT, DS_MK_MOE_COMBINE, DS_MK_SENTINEL, DS_MK_PROBE_FMA, DS_MK_PROBE_MM, DS_MK_PROBE_READ, DS_MK_COUNT
};
/* Kernels of one weight type, made when a weight of it is. */
enum ds_metal_typed { DS_MT_GEMM, DS_MT_GEMM_EDGES, DS_MT_GEMV, DS_MT_GEMM_EXPERTS, DS_MT_GEMV_EXPERTS, DS_MT_EMBED, DS_MT_COUNT };

/* One dispatch. */
enum { DS_METAL_BINDS = 12, DS_METAL_ARGS = 48 };
struct ds_metal_call {
    struct ds_mtl_fn *fn;
    const char *doing;                 /* completes "while ..." */
    uint32_t groups[3], threads;
    int n_args, n_binds;
    unsigned char args[DS_METAL_ARGS];
    struct ds_metal_mem bind[DS_METAL_BINDS];
    double work;                       /* operations, or what takes as long */
    uint64_t start_ns, end_ns;         /* of its command buffer */
};
struct ds_metal_flight { struct ds_mtl_cmd *cmd; int first, n; };
struct ds_metal_stamp { int call; uint64_t ns; };   /* call: how many dispatches came before; ns 0: not known yet */

enum {
    DS_METAL_IN_FLIGHT = 32,           /* command buffers; the queue blocks at 64 */
    DS_METAL_ATTEMPTS = 3,             /* of a step, each with half the work per buffer */
    DS_METAL_GEMV_TOKENS = 4,          /* up to here a product reads the weights once per token */
    DS_METAL_PART_ROWS = 512           /* tokens x splits of attention over split keys */
};

struct ds_metal {
    struct ds_backend be;
    struct ds_mtl *dev;
    struct ds_mtl_facts facts;
    bool kv_f16, gdn_chunk;
    struct ds_mtl_fn *fn[DS_MK_COUNT], *typed[DS_T_COUNT][DS_MT_COUNT];
    char (*names)[2][40];              /* [DS_T_COUNT] of products: prefill, decode */
    uint64_t used;                     /* bytes that the GPU may touch: buffers and wrapped weights */
    uint64_t own;
    double budget;                     /* work per command buffer; halved for good when one failed */
    bool no_times;                     /* the system gives no GPU times: the host's clock, buffer by buffer */

    /* the step */
    uint64_t step, origin;             /* count steps, and beginnings of the list */
    struct ds_metal_call scrap;        /* what an op fills in when the list could not grow */
    struct ds_metal_call *calls; int n_calls, cap_calls, sent;   /* sent: how many are encoded */
    struct ds_mtl_cmd *cmd; int cmd_first; double cmd_work;      /* the open command buffer */
    struct ds_metal_flight flight[DS_METAL_IN_FLIGHT]; int n_flight;
    struct ds_metal_stamp *stamps; int n_stamps, cap_stamps;
    struct ds_buf *written;            /* STATE buffers with a new version */
    uint64_t last_ns;                  /* end of the latest completed buffer */
    bool in_place;                     /* a dispatch changed something that it also read */
    bool once;                         /* the step cannot be repeated */
    struct ds_mtl_result failure; const char *failed_doing;   /* first failed buffer of this attempt; NULL: none */
    struct ds_err err;                 /* why the step fails */

    /* filled by the host before the step's dispatches read them */
    struct ds_mtl_buf *ids; size_t ids_cap;
    struct ds_mtl_buf *turn; size_t turn_cap; uint64_t turn_step;   /* cos and sin per token and pair */
    struct ds_mtl_buf *part; size_t part_bytes;
    int n_expert;
};

static inline struct ds_metal *ds_metal_of(struct ds_backend *be) { return (struct ds_metal *)be; }

/* memory.c. Every buffer goes through these two, which keep the plan: `used` never exceeds the working set. */
struct ds_mtl_buf *ds_metal_alloc(struct ds_metal *m, size_t bytes, const char *what, struct ds_err *e);
void ds_metal_release(struct ds_metal *m, struct ds_mtl_buf *b, size_t bytes);      /* NULL allowed */
ds_status ds_metal_room(const struct ds_metal *m, uint64_t bytes, const char *what, struct ds_err *e);
struct ds_buf *ds_metal_buf_new(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim, struct ds_err *e);
void ds_metal_buf_free(struct ds_backend *be, struct ds_buf *b);
uint64_t ds_metal_buf_bytes(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim);
void ds_metal_buf_read(struct ds_backend *be, float *dst, const struct ds_buf *src, size_t off, size_t n);
void ds_metal_buf_write(struct ds_backend *be, struct ds_buf *dst, size_t off, const float *src, size_t n);
void ds_metal_buf_get(struct ds_backend *be, void *dst, const struct ds_buf *src, size_t off, size_t n);
void ds_metal_buf_set(struct ds_backend *be, struct ds_buf *dst, size_t off, const void *src, size_t n);
float *ds_metal_buf_map(struct ds_backend *be, struct ds_buf *b, bool write);
size_t ds_metal_elem_bytes(struct ds_backend *be, enum ds_buf_kind kind);
uint64_t ds_metal_mem_available(struct ds_backend *be, const struct ds_sizes *sz);

/* What an op reads; what it writes from nothing; what it reads and writes. Elements off.. , n of them (0: all). */
struct ds_metal_mem ds_metal_in(struct ds_metal *m, const struct ds_buf *b, size_t off, size_t n);
struct ds_metal_mem ds_metal_out(struct ds_metal *m, struct ds_buf *b, size_t off, size_t n);
struct ds_metal_mem ds_metal_inout(struct ds_metal *m, struct ds_buf *b, size_t off, size_t n);

/* weight.c */
struct ds_weight *ds_metal_weight_new(struct ds_backend *be, const struct ds_tensor *t, unsigned use, struct ds_err *e);
void ds_metal_weight_free(struct ds_backend *be, struct ds_weight *w);
uint64_t ds_metal_weight_extra_bytes(struct ds_backend *be, const struct ds_weight *w);
static inline struct ds_metal_mem ds_metal_vec(const struct ds_weight *w) { return (struct ds_metal_mem){ w->vec, 0, w->vec_bytes }; }

/* submit.c */
struct ds_metal_call *ds_metal_call(struct ds_metal *m, struct ds_mtl_fn *fn, const char *doing, const void *args, size_t n_args);
void ds_metal_bind(struct ds_metal_call *c, struct ds_metal_mem mem);
/* Sends the call on its way; c becomes invalid. */
void ds_metal_go(struct ds_metal *m, struct ds_metal_call *c, uint32_t x, uint32_t y, uint32_t z, uint32_t threads, double work);
/* Waits for everything; repeats the step when a buffer failed. False: the step has failed (m->err). */
bool ds_metal_sync(struct ds_metal *m);
void ds_metal_step_start(struct ds_metal *m);
ds_status ds_metal_step_end(struct ds_metal *m, struct ds_err *e);
void ds_metal_stamp(struct ds_backend *be, int i);
uint64_t ds_metal_stamp_ns(struct ds_backend *be, int i);
void ds_metal_step_free(struct ds_metal *m);

/* pipeline.c */
ds_status ds_metal_pipelines(struct ds_metal *m, struct ds_err *e);
ds_status ds_metal_typed_pipelines(struct ds_metal *m, const struct ds_type *t, struct ds_err *e);
bool ds_metal_has_type(const struct ds_type *t);
void ds_metal_pipelines_free(struct ds_metal *m);

/* matmul.c */
void ds_metal_matmul(struct ds_backend *be, int n_w, struct ds_buf *const *y, const struct ds_weight *const *w, const struct ds_buf *x,
                     int n, bool add);
void ds_metal_matmul_experts(struct ds_backend *be, struct ds_buf *y, const struct ds_weight *w, const struct ds_buf *x,
                             const struct ds_buf *route, int n, int k, bool per_slot);
const char *ds_metal_kernel_name(struct ds_backend *be, const struct ds_weight *w, int n);

/* ops.c */
extern const struct ds_ops ds_metal_ops;

/* peaks.c */
ds_status ds_metal_self_test(struct ds_metal *m, struct ds_err *e);   /* the sentinel kernel; also learns whether GPU times come */
void ds_metal_peaks(struct ds_backend *be, struct ds_peaks *p);

/* context.c */
void ds_metal_free(struct ds_backend *be);
ds_status ds_metal_reserve(struct ds_backend *be, const struct ds_sizes *sz, struct ds_err *e);
uint64_t ds_metal_own_bytes(struct ds_backend *be);
bool ds_metal_begin(struct ds_backend *be, const struct ds_step *s);
ds_status ds_metal_end(struct ds_backend *be, struct ds_err *e);
void ds_metal_drain(struct ds_backend *be);

#endif
