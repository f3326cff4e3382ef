/* The one wrapper through which every op of a step goes: it names the stage, counts operations and
 * bytes, stamps, and calls the backend. Timing lives here and nowhere in the equations.
 *
 * Arguments are those of the same entry in struct ds_ops. With the profile off each call costs one
 * predictable branch; built with DS_NO_PROFILE, none. */
#ifndef DS_BACKEND_OPS_H
#define DS_BACKEND_OPS_H

#include "backend/backend.h"
#include "prof/prof.h"

struct ds_run {
    struct ds_backend *be;
    struct ds_prof *prof;          /* NULL: off */
    uint64_t *ns;                  /* stamps of a step, read back; grown by ds_run_end */
    int ns_cap;
};

/* False when the backend replayed a recorded step: issue no op, go on to ds_run_end. */
bool ds_run_begin(struct ds_run *r, const struct ds_step *s);
ds_status ds_run_end(struct ds_run *r, struct ds_err *e);
void ds_run_free(struct ds_run *r);

struct ds_product { struct ds_buf *y; const struct ds_weight *w; enum ds_class cls; uint64_t in, out, bytes; };

void ds_op_embed(struct ds_run *r, struct ds_buf *x, const struct ds_weight *table);
void ds_op_rms_norm(struct ds_run *r, struct ds_buf *h, const struct ds_buf *x, const struct ds_weight *gain, int row0, int n, int dim, float eps);
/* Products of one input, each with its class. */
void ds_op_matmul(struct ds_run *r, int n_p, const struct ds_product *p, const struct ds_buf *x, int n, bool add);
void ds_op_matmul_experts(struct ds_run *r, const struct ds_product *p, const struct ds_buf *x, const struct ds_buf *route, int n, int k, bool per_slot);
void ds_op_gdn_prep(struct ds_run *r, struct ds_buf *prep, struct ds_buf *conv, const struct ds_buf *u, const struct ds_buf *a, const struct ds_buf *b,
                    const struct ds_weight *conv_w, const struct ds_weight *ssm_a, const struct ds_weight *ssm_dt, const struct ds_gdn_shape *sh, int n);
void ds_op_gdn(struct ds_run *r, struct ds_buf *o, struct ds_buf *S, const struct ds_buf *prep, const struct ds_gdn_shape *sh, int n, int t0, int t1);
void ds_op_gdn_walk(struct ds_run *r, const struct ds_gdn_layer *l, const struct ds_gdn_shape *sh, int n, int t0, int t1);
void ds_op_conv_tail(struct ds_run *r, struct ds_buf *dst, size_t off, const struct ds_buf *conv, const struct ds_buf *u, const struct ds_gdn_shape *sh, int t);
void ds_op_copy(struct ds_run *r, enum ds_stage stage, struct ds_buf *dst, size_t off, const struct ds_buf *src, size_t n);
void ds_op_gated_norm(struct ds_run *r, struct ds_buf *y, const struct ds_buf *o, const struct ds_buf *z, const struct ds_weight *gain,
                      const struct ds_gdn_shape *sh, int n);
void ds_op_qk_norm(struct ds_run *r, struct ds_buf *qg, struct ds_buf *k, const struct ds_weight *gain_q, const struct ds_weight *gain_k,
                   const struct ds_attn_shape *sh, int n);
void ds_op_rope_store(struct ds_run *r, struct ds_buf *qg, struct ds_buf *k, const struct ds_buf *v, struct ds_buf *kcache, struct ds_buf *vcache,
                      const struct ds_attn_shape *sh, int n);
void ds_op_attn(struct ds_run *r, struct ds_buf *y, const struct ds_buf *qg, const struct ds_buf *kcache, const struct ds_buf *vcache,
                const struct ds_attn_shape *sh, int n);
void ds_op_swiglu(struct ds_run *r, struct ds_buf *act, const struct ds_buf *gate, const struct ds_buf *up, int rows, int dim);
void ds_op_moe_route(struct ds_run *r, struct ds_buf *route, const struct ds_buf *logits, int n, int n_expert, int k);
void ds_op_moe_combine(struct ds_run *r, struct ds_buf *x, const struct ds_buf *y, const struct ds_buf *route, const struct ds_buf *shared,
                       const struct ds_buf *sg, int n, int k, int dim);
void ds_op_copy_cols(struct ds_run *r, enum ds_stage stage, struct ds_buf *act, const struct ds_buf *src, int n, int src_dim, int dim);

#endif
