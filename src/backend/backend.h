/* What a backend is: memory, weights, some twenty ops, begin/end, time stamps.
 *
 * The model (src/model) is written once on these ops. The CPU backend implements all of them and is
 * the reference; a device backend implements the same table; `split` composes two backends (weight
 * products on one, the rest on the other). To add a backend: implement the table in a folder here,
 * add one row to registry.c, and run build/release/tests/kernels/check_backend --backend NAME.
 *
 * Shapes. n is the number of tokens of the step. Every activation buffer is row-major [n][dim] from
 * its first element. "Row" always means one token. Value heads are in stored (tiled) order: value
 * head h uses key head h % n_kh.
 *
 * Errors. Ops cannot fail on their own; a device latches its first failure and `end` reports it with
 * what was being done. All memory is taken in buf_new/weight_new, never inside a step. */
#ifndef DS_BACKEND_BACKEND_H
#define DS_BACKEND_BACKEND_H

#include "base/err.h"
#include "base/peaks.h"
#include "gguf/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ds_backend;                 /* first member of every backend's own struct */
struct ds_buf;                     /* each backend's own */
struct ds_weight;                  /* each backend's own */

enum ds_buf_kind {
    DS_BUF_F32,                    /* f32 everywhere: residual stream, readout, kept states */
    DS_BUF_STATE,                  /* f32: what a step reads and leaves changed for the next one. A backend may keep two versions, so that a
                                    * step that fails leaves the old one */
    DS_BUF_ACT,                    /* input of weight products; the backend picks its format (CPU: f32 + packed panels made on first use) */
    DS_BUF_PROJ,                   /* output of weight products, read only by this backend's ops (CPU: f32; a device may use 16 bits) */
    DS_BUF_LOGITS,                 /* output of the head: f32, read by the host */
    DS_BUF_KV,                     /* cache rows in the backend's KV type */
    DS_BUF_ROUTE                   /* struct ds_route_slot per (token, choice) */
};
struct ds_route_slot { int32_t expert; float weight; };   /* slot t*k + j */

/* Classes of weight products, for the profile. */
enum ds_class { DS_C_QKV, DS_C_Z, DS_C_GATES, DS_C_SSM_OUT, DS_C_ATTN, DS_C_MLP, DS_C_HEAD, DS_C_COUNT };
extern const char *const ds_class_names[DS_C_COUNT];   /* qkv z gates ssm_out attention mlp head */

enum ds_use { DS_USE_VECTOR = 1, DS_USE_GEMM = 2, DS_USE_EMBED = 4 };

struct ds_step {
    int n;                         /* tokens in this step, >= 1 */
    int64_t pos;                   /* absolute position of the first */
    const int32_t *ids;            /* [n]; NULL: a step of the head alone, on rows row0.. of the residual */
    int row0;
    bool decode;                   /* one token of generation: a faster product with another summation order is allowed */
    bool logits;                   /* the head runs */
    int n_cuts;                    /* states kept within the step: a step with any is never replayed */
    unsigned skip;                 /* stages left out */
    const void *timeline;          /* identifies the state buffers; NULL: never replayed. Two steps equal in all but pos and ids' values
                                    * issue the same ops on the same buffers, so a backend may replay a recorded submission */
};

struct ds_gdn_shape { int n_kh, n_vh, dk, dv, conv_k; float eps; };   /* channels = 2*n_kh*dk + n_vh*dv */
struct ds_attn_shape { int n_head, n_kv, hd, n_rot; float rope_base, eps; };

/* What a GDN layer reads and writes between its products. */
struct ds_gdn_layer {
    struct ds_buf *y, *S, *conv;                           /* ACT; STATE */
    const struct ds_buf *u, *z, *a, *b;                    /* PROJ */
    const struct ds_weight *conv_w, *ssm_a, *ssm_dt, *gain;
};

/* The largest step that will come. */
struct ds_sizes {
    int ubatch;                    /* tokens */
    int64_t ctx;                   /* positions of one timeline */
    int hidden, n_expert, n_expert_used;
    struct ds_gdn_shape gdn;       /* n_vh 0: no such layer */
    struct ds_attn_shape attn;     /* n_head 0: no such layer */
    uint64_t buffers;              /* bytes that the caller's buffers take beside: activations, one timeline */
};

struct ds_ops {
    /* --- life --- */
    void (*free)(struct ds_backend *be);
    void (*peaks)(struct ds_backend *be, struct ds_peaks *p);   /* measures (0.3 s); keeps the larger of *p and that */
    /* Bytes that buffers may still take, beside what reserve(sz) will. sz NULL: before anything is known of it. */
    uint64_t (*mem_available)(struct ds_backend *be, const struct ds_sizes *sz);

    /* Takes all memory that steps of these sizes need beyond buffers and weights (thread scratch, library
     * workspaces, forms of the weights for products). Called after the weights and before the first step; a backend
     * that says `prepares` also after later weights. */
    ds_status (*reserve)(struct ds_backend *be, const struct ds_sizes *sz, struct ds_err *e);
    uint64_t (*own_bytes)(struct ds_backend *be);                                                         /* what reserve took */

    /* --- memory. Buffers are [rows][dim]; off and n count elements. Blocking. --- */
    struct ds_buf *(*buf_new)(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim, struct ds_err *e);   /* zeroed */
    void (*buf_free)(struct ds_backend *be, struct ds_buf *b);                                            /* NULL allowed */
    uint64_t (*buf_bytes)(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim);         /* what buf_new would take */
    void (*buf_read)(struct ds_backend *be, float *dst, const struct ds_buf *src, size_t off, size_t n);   /* as f32 */
    void (*buf_write)(struct ds_backend *be, struct ds_buf *dst, size_t off, const float *src, size_t n);
    void (*buf_get)(struct ds_backend *be, void *dst, const struct ds_buf *src, size_t off, size_t n);     /* stored bytes, for snapshots */
    void (*buf_set)(struct ds_backend *be, struct ds_buf *dst, size_t off, const void *src, size_t n);
    /* The f32 elements themselves where the host can address them, else NULL. `write`: packed forms become stale. */
    float *(*buf_map)(struct ds_backend *be, struct ds_buf *b, bool write);
    size_t (*elem_bytes)(struct ds_backend *be, enum ds_buf_kind kind);

    /* --- weights. The tensor outlives the weight. use: how the model reads it (a tied table has two
     * uses). DS_USE_VECTOR tensors (norms, gates, conv taps) are decoded to f32. --- */
    struct ds_weight *(*weight_new)(struct ds_backend *be, const struct ds_tensor *t, unsigned use, struct ds_err *e);
    void (*weight_free)(struct ds_backend *be, struct ds_weight *w);
    uint64_t (*weight_extra_bytes)(struct ds_backend *be, const struct ds_weight *w);   /* copies beyond the map */
    const char *(*kernel_name)(struct ds_backend *be, const struct ds_weight *w, int n);   /* for n tokens; static string */

    /* --- a step. begin returns false when a recorded submission of the same shape was replayed: the
     * caller then issues no op. end waits and reports. --- */
    bool (*begin)(struct ds_backend *be, const struct ds_step *s);
    ds_status (*end)(struct ds_backend *be, struct ds_err *e);
    void (*stamp)(struct ds_backend *be, int i);               /* records "now" in stream order as stamp i */
    uint64_t (*stamp_ns)(struct ds_backend *be, int i);        /* after end; one clock for all stamps */
    void (*drain)(struct ds_backend *be);                      /* waits for everything issued so far */

    /* --- ops, in the order of the forward pass --- */

    /* x[t] = table[ids[t]], f32. table: weight [dim][vocab]. */
    void (*embed)(struct ds_backend *be, struct ds_buf *x, const struct ds_weight *table);

    /* h[t] = x[t] / sqrt(mean(x[t]^2) + eps) * gain.  x F32, h ACT. Rows row0..row0+n-1 of x go to rows 0.. of h. */
    void (*rms_norm)(struct ds_backend *be, struct ds_buf *h, const struct ds_buf *x, const struct ds_weight *gain, int row0, int n,
                     int dim, float eps);

    /* For each i: y[i] (+)= x W[i]^T, W[i] [in][out]. All share x [n][in] (ACT). `add` accumulates into y
     * (F32 residual); otherwise y is PROJ or LOGITS and is overwritten. Unless the backend says `grouped`
     * or `groups_decode`, ops.c calls it with one product at a time. */
    void (*matmul)(struct ds_backend *be, int n_w, struct ds_buf *const *y, const struct ds_weight *const *w, const struct ds_buf *x,
                   int n, bool add);

    /* Expert products. W [in][out][n_expert]. For slot s = t*k + j of token t with expert e = route(t, j):
     * y[s] = W[e] x[per_slot ? s : t].  y PROJ [n*k][out], x ACT. */
    void (*matmul_experts)(struct ds_backend *be, struct ds_buf *y, const struct ds_weight *w, const struct ds_buf *x,
                           const struct ds_buf *route, int n, int k, bool per_slot);

    /* GDN inputs from u = W_qkv h (PROJ [n][channels]), a, b (PROJ [n][n_vh]):
     *   f = silu(causal depthwise conv over [conv; u]);  q, k, v split from f; conv <- last conv_k-1 rows of u
     *   q <- q / max(|q|, eps) / sqrt(dk);  k <- k / max(|k|, eps);  beta = sigmoid(b);  g = ssm_a * softplus(a + dt)
     * Results stay in `prep` (F32 buffer of ds_gdn_prep_elems(shape, n) elements, layout private to the backend).
     * conv: STATE [conv_k-1][channels], oldest first, updated. conv_w: weight [conv_k][channels] (tap conv_k-1 is the newest). */
    void (*gdn_prep)(struct ds_backend *be, struct ds_buf *prep, struct ds_buf *conv, const struct ds_buf *u, const struct ds_buf *a,
                     const struct ds_buf *b, const struct ds_weight *conv_w, const struct ds_weight *ssm_a,
                     const struct ds_weight *ssm_dt, const struct ds_gdn_shape *sh, int n);

    /* Gated delta rule over the prepared inputs: for each token and value head h with key head h % n_kh
     *   S <- exp(g) S;  d = beta (v - S'k);  S <- S + k d';  o = S'q
     * S STATE [n_vh][dk][dv], read and written. o F32 [n][n_vh*dv]. prep holds n tokens, of which t0..t1-1 run now (a step may walk
     * its tokens in several calls, to keep the state between them). Chunkwise forms cut at absolute multiples of 64. */
    void (*gdn)(struct ds_backend *be, struct ds_buf *o, struct ds_buf *S, const struct ds_buf *prep, const struct ds_gdn_shape *sh, int n, int t0,
                int t1);

    /* What conv would hold after t tokens of this step: dst (F32, from element off) = the last conv_k-1 rows of [conv; u[0..t)].
     * Comes before gdn_prep, which advances conv. */
    void (*conv_tail)(struct ds_backend *be, struct ds_buf *dst, size_t off, const struct ds_buf *conv, const struct ds_buf *u,
                      const struct ds_gdn_shape *sh, int t);
    /* dst[off..off+n) = src[0..n), F32 from F32 or STATE, in stream order. */
    void (*copy)(struct ds_backend *be, struct ds_buf *dst, size_t off, const struct ds_buf *src, size_t n);

    /* y[t][h] = rms(o[t][h], gain) * silu(z[t][h]), per head of dv.  o F32, z PROJ, y ACT. */
    void (*gated_norm)(struct ds_backend *be, struct ds_buf *y, const struct ds_buf *o, const struct ds_buf *z, const struct ds_weight *gain,
                       const struct ds_gdn_shape *sh, int n);

    /* gdn_prep, gdn and gated_norm of tokens t0..t1-1 in one walk, to the same bits, without prep and o. Calls follow each other
     * through the n tokens of a step; the one that ends at n advances conv. Only where the backend says `gdn_walks`. */
    void (*gdn_walk)(struct ds_backend *be, const struct ds_gdn_layer *l, const struct ds_gdn_shape *sh, int n, int t0, int t1);

    /* In place: per head rms of the query halves of qg (PROJ [n][n_head][2*hd]: query then gate) and of k (PROJ [n][n_kv*hd]). */
    void (*qk_norm)(struct ds_backend *be, struct ds_buf *qg, struct ds_buf *k, const struct ds_weight *gain_q, const struct ds_weight *gain_k,
                    const struct ds_attn_shape *sh, int n);

    /* In place on the query halves and on k: RoPE on the first n_rot dims, pairs (j, j + n_rot/2). Then appends k and v
     * rows to the caches (KV [ctx][n_kv*hd]) at positions pos..pos+n-1. */
    void (*rope_store)(struct ds_backend *be, struct ds_buf *qg, struct ds_buf *k, const struct ds_buf *v, struct ds_buf *kcache,
                       struct ds_buf *vcache, const struct ds_attn_shape *sh, int n);

    /* y[t][a] = sigmoid(gate) * sum_p softmax(q.k_p / sqrt(hd)) v_p over p <= pos+t; head a reads kv head a / (n_head/n_kv). y ACT. */
    void (*attn)(struct ds_backend *be, struct ds_buf *y, const struct ds_buf *qg, const struct ds_buf *kcache, const struct ds_buf *vcache,
                 const struct ds_attn_shape *sh, int n);

    /* act[r] = silu(gate[r]) * up[r], `rows` rows of dim.  gate, up PROJ; act ACT. */
    void (*swiglu)(struct ds_backend *be, struct ds_buf *act, const struct ds_buf *gate, const struct ds_buf *up, int rows, int dim);

    /* route[t] = the k experts of largest softmax(logits[t]) (lower index first on ties), weights renormalised to sum 1. */
    void (*moe_route)(struct ds_backend *be, struct ds_buf *route, const struct ds_buf *logits, int n, int n_expert, int k);

    /* x[t] += sum_j w(t,j) y[t*k+j] + sigmoid(sg[t]) * shared[t].  shared and sg may be NULL. x F32, others PROJ. */
    void (*moe_combine)(struct ds_backend *be, struct ds_buf *x, const struct ds_buf *y, const struct ds_buf *route,
                        const struct ds_buf *shared, const struct ds_buf *sg, int n, int k, int dim);

    /* Stands in for a skipped stage: act[t][0..dim) = src[t][j mod src_dim], so that the next product sees real values. */
    void (*copy_cols)(struct ds_backend *be, struct ds_buf *act, const struct ds_buf *src, int n, int src_dim, int dim);
};

/* f32 elements that gdn_prep may use for n tokens: q, k, v, g, beta (the CPU's layout; enough for every backend). */
static inline size_t ds_gdn_prep_elems(const struct ds_gdn_shape *s, int n)
{
    return (size_t)n * (2 * (size_t)s->n_kh * s->dk + (size_t)s->n_vh * s->dv + 2 * (size_t)s->n_vh);
}

struct ds_backend {
    const struct ds_ops *ops;
    const char *name;              /* "cpu", "cuda", "metal" */
    const char *placement;         /* "full", or "gemm" for a split */
    const char *device;            /* the accelerator by its own name; NULL: none */
    const char *gdn_form;          /* "seq" or "chunk": how prefill runs the recurrence */
    bool gdn_walks;                /* steps other than decode should use gdn_walk; set by reserve */
    bool grouped;                  /* matmul takes whole groups */
    bool groups_decode;            /* it takes them in decode steps, whose products nobody times one by one */
    bool plans;                    /* weight_new takes matrices without data, for engines that only plan */
    bool plan_only;                /* set by such an engine before the weights: memory is counted and not taken, no step will run */
    const char *forms;             /* how products of several tokens read the matrices, once reserved; NULL: from the file's blocks */
    bool prepares;                 /* reserve makes forms of the weights */
    bool owns_weights;             /* weight_extra_bytes counts all that a weight takes; nothing stays in the map */
    int ubatch;                    /* tokens of a chunk that suit it; 0: no wish */
    double cosine_limit;           /* least cosine of logits against the template for float weights */
    double cache_limit;            /* largest |difference| of caches relative to their norm */
    /* Largest |difference| of one op's output relative to its norm, on equal inputs, in step with the plain CPU path: products of
     * quantised weights, everything else. 0: the backend cannot be run so (its buffers are not mapped). */
    double product_limit, op_limit;
    struct ds_step step;           /* of the step in progress; set by begin */
};

struct ds_backend_options {
    int threads;                   /* >= 1 */
    unsigned isa;                  /* feature mask */
    const char *kv;                /* "f16" or "f32" */
    const char *gdn;               /* "auto", "seq", "chunk" */
    const char *gemm, *weights;    /* as in ds_options; NULL: the backend's own choice. Refused by backends without them */
    bool exact;                    /* CPU: products of decoded weights with unrounded activations, whatever their type */
    double gpu_work;               /* most operations of one submission, in 1e9; 0: the backend's choice */
};

/* registry.c: one row per backend compiled in. placement "gemm" wraps the device in a split over the CPU. */
struct ds_backend *ds_backend_open(const char *name, const char *placement, const struct ds_backend_options *o, struct ds_err *e);
void ds_backend_names(char *dst, size_t n);          /* "cpu, cuda" */

/* split.c: host does everything but matmul and matmul_experts. Owns both. */
struct ds_backend *ds_split_new(struct ds_backend *host, struct ds_backend *device, struct ds_err *e);

#endif
