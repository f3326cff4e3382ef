/* Internals of the CPU backend, shared by its op files: buffers with their packed panels, weights,
 * the pool and per-thread scratch. */
#ifndef DS_BACKEND_CPU_CPU_H
#define DS_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "base/pool.h"
#include "kernels/gemm.h"
#include "kernels/kernels.h"

/* Packed forms of an ACT buffer, one per activation format, made by the first product that needs
 * one and dropped when an op writes the buffer (ds_cpu_touch). Memory for the formats that the bound
 * weights use is taken when the buffer is made (p, cap bytes); n and dim say what a valid panel holds. */
struct ds_cpu_panel { void *p; size_t cap; int n, dim; bool valid; };

struct ds_buf {
    enum ds_buf_kind kind;
    size_t rows, dim;
    void *p;                               /* f32, or f16 for KV when the cache is f16 */
    size_t bytes;                          /* of p */
    struct ds_cpu_panel panel[DS_AF_COUNT];    /* ACT only */
};

struct ds_weight {
    const struct ds_tensor *t;
    float *f32;                            /* 1-D tensors, decoded (owned); NULL for matrices */
    size_t f32_bytes;
};

struct ds_cpu {
    struct ds_backend be;
    ds_pool *pool;
    int threads;
    unsigned isa;
    bool kv_f16;
    bool gdn_auto, gdn_chunk;              /* form of the recurrence in prefill; auto: reserve picks it for the shape */
    struct ds_kernels k;
    struct ds_gemm_kernels g;
    unsigned formats;                      /* bit per enum ds_act_fmt that a bound weight reads */
    size_t gemm_scratch;                   /* largest scratch_bytes of the bound weights */
    int expert_dim;                        /* largest input dim of the bound 3-D weights */
    struct { void *p; size_t cap; } *scratch;   /* [threads] */
    void *shared_matmul; size_t shared_matmul_bytes;   /* for ops_matmul.c */
    uint64_t *stamps; int stamps_cap;
};

static inline struct ds_cpu *ds_cpu_of(struct ds_backend *be) { return (struct ds_cpu *)be; }
static inline float *ds_cpu_f32(const struct ds_buf *b) { return b->p; }

/* Thread-private scratch, 64-byte aligned, contents undefined. `reserve` has sized it for the largest
 * op; asking for more than that is a programming error that aborts. */
void *ds_cpu_scratch(struct ds_cpu *c, int thread, size_t bytes);
/* Scratch bytes per thread that an op file needs for steps of these sizes. */
size_t ds_cpu_scratch_gdn(const struct ds_cpu *c, const struct ds_sizes *sz);      /* ops_gdn_walk.c */
size_t ds_cpu_scratch_attn(const struct ds_cpu *c, const struct ds_sizes *sz);     /* ops_attn.c */
size_t ds_cpu_scratch_moe(const struct ds_cpu *c, const struct ds_sizes *sz);      /* ops_moe.c: routing */
/* Whether the chunkwise form measured faster in prefill for this ISA and shape (docs/notes/cpu-gdn.md). ops_gdn.c */
bool ds_cpu_gdn_prefers_chunk(const struct ds_cpu *c, const struct ds_gdn_shape *sh);
/* Whether there are heads enough to keep the threads busy with a whole one each. ops_gdn_walk.c */
bool ds_cpu_gdn_walks(const struct ds_cpu *c, const struct ds_gdn_shape *sh);
/* Bytes beyond thread scratch that products need (expert gather lists), allocated by reserve. */
size_t ds_cpu_shared_matmul(const struct ds_cpu *c, const struct ds_sizes *sz);    /* ops_matmul.c */

void ds_cpu_touch(struct ds_buf *b);       /* an op wrote b: packed panels are stale */

/* Packing by the op that writes the rows, while they are in cache, for weights that all read one format. An op cuts its n rows into
 * tasks of ds_cpu_pack_tokens (0: leave it to the product), calls ds_cpu_pack for each task's rows and ds_cpu_packed at the end. */
int ds_cpu_pack_tokens(const struct ds_cpu *c, const struct ds_buf *b, int n, int dim);
void ds_cpu_pack(const struct ds_cpu *c, const struct ds_buf *b, int n, int dim, int t0, int t1);
void ds_cpu_packed(const struct ds_cpu *c, struct ds_buf *b, int n, int dim);

/* Ops by file; collected in cpu.c's table. */
void ds_cpu_matmul(struct ds_backend *be, int n_w, struct ds_buf *const *y, const struct ds_weight *const *w, const struct ds_buf *x, int n,
                   bool add);
void ds_cpu_matmul_experts(struct ds_backend *be, struct ds_buf *y, const struct ds_weight *w, const struct ds_buf *x,
                           const struct ds_buf *route, int n, int k, bool per_slot);
const char *ds_cpu_kernel_name(struct ds_backend *be, const struct ds_weight *w, int n);
void ds_cpu_embed(struct ds_backend *be, struct ds_buf *x, const struct ds_weight *table);
void ds_cpu_rms_norm(struct ds_backend *be, struct ds_buf *h, const struct ds_buf *x, const struct ds_weight *gain, int row0, int n, int dim,
                     float eps);
void ds_cpu_gdn_prep(struct ds_backend *be, struct ds_buf *prep, struct ds_buf *conv, const struct ds_buf *u, const struct ds_buf *a,
                     const struct ds_buf *b, const struct ds_weight *conv_w, const struct ds_weight *ssm_a, const struct ds_weight *ssm_dt,
                     const struct ds_gdn_shape *sh, int n);
void ds_cpu_gdn(struct ds_backend *be, struct ds_buf *o, struct ds_buf *S, const struct ds_buf *prep, const struct ds_gdn_shape *sh, int n, int t0, int t1);
void ds_cpu_gdn_walk(struct ds_backend *be, const struct ds_gdn_layer *l, const struct ds_gdn_shape *sh, int n, int t0, int t1);
/* dst = the last `taps` rows of [conv; n rows of u]; dst may be conv. */
void ds_cpu_conv_advance(float *dst, const float *conv, const float *u, size_t channels, size_t taps, size_t n);
void ds_cpu_conv_tail(struct ds_backend *be, struct ds_buf *dst, size_t off, const struct ds_buf *conv, const struct ds_buf *u,
                      const struct ds_gdn_shape *sh, int t);
void ds_cpu_bytes(struct ds_cpu *c, void *dst, const void *src, size_t n);      /* memcpy by all threads */
void ds_cpu_copy(struct ds_backend *be, struct ds_buf *dst, size_t off, const struct ds_buf *src, size_t n);
void ds_cpu_gated_norm(struct ds_backend *be, struct ds_buf *y, const struct ds_buf *o, const struct ds_buf *z, const struct ds_weight *gain,
                       const struct ds_gdn_shape *sh, int n);
void ds_cpu_qk_norm(struct ds_backend *be, struct ds_buf *qg, struct ds_buf *k, const struct ds_weight *gain_q, const struct ds_weight *gain_k,
                    const struct ds_attn_shape *sh, int n);
void ds_cpu_rope_store(struct ds_backend *be, struct ds_buf *qg, struct ds_buf *k, const struct ds_buf *v, struct ds_buf *kcache,
                       struct ds_buf *vcache, const struct ds_attn_shape *sh, int n);
void ds_cpu_attn(struct ds_backend *be, struct ds_buf *y, const struct ds_buf *qg, const struct ds_buf *kcache, const struct ds_buf *vcache,
                 const struct ds_attn_shape *sh, int n);
void ds_cpu_swiglu(struct ds_backend *be, struct ds_buf *act, const struct ds_buf *gate, const struct ds_buf *up, int rows, int dim);
void ds_cpu_moe_route(struct ds_backend *be, struct ds_buf *route, const struct ds_buf *logits, int n, int n_expert, int k);
void ds_cpu_moe_combine(struct ds_backend *be, struct ds_buf *x, const struct ds_buf *y, const struct ds_buf *route,
                        const struct ds_buf *shared, const struct ds_buf *sg, int n, int k, int dim);
void ds_cpu_copy_cols(struct ds_backend *be, struct ds_buf *act, const struct ds_buf *src, int n, int src_dim, int dim);

#endif
