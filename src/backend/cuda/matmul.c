/* Weight products. Several tokens: the group's matrix, whose results are columns of one wide result. One token: the
 * stored blocks. */
#include "backend/cuda/host.h"

#include <stdio.h>

/* The bf16 copy of one matrix; NULL: there is none. */
static const uint16_t *copy_of(const struct ds_weight *w)
{
    const struct ds_cuda_group *g = w->group;
    return g && g->bf16 ? g->bf16 + (size_t)w->row * (size_t)g->in : NULL;
}

static bool decode(struct ds_cuda *c, uint16_t *dst, const struct ds_weight *w)
{
    const struct ds_type *t = w->t->type;
    return ds_cuda_ok(c,
                      ds_cu_dequant(dst, w->blocks, (int)ds_type_id(t), t->block, t->bytes, (int64_t)w->in * w->out * w->n_expert,
                                    c->stream),
                      "decoding weights");
}

/* bf16 form of a whole matrix, decoded into scratch when no copy is kept. */
static const uint16_t *as_bf16(struct ds_cuda *c, const struct ds_weight *w)
{
    if (copy_of(w)) return copy_of(w);
    if (ds_type_id(w->t->type) == DS_T_BF16) return w->blocks;
    const size_t n = (size_t)w->in * (size_t)w->out * (size_t)w->n_expert;
    if (ds_cuda_room(c, &c->decoded, n * 2, "decoded weights", NULL)) decode(c, c->decoded.p, w);
    return c->decoded.p;
}

const uint16_t *ds_cuda_group_bf16(struct ds_cuda *c, const struct ds_cuda_group *g)
{
    if (g->bf16) return g->bf16;
    if (!ds_cuda_room(c, &c->decoded, (size_t)g->in * (size_t)g->out * 2, "decoded weights", NULL)) return NULL;
    const struct ds_weight *last = g->w[g->n_w - 1];
    const size_t used = ((size_t)last->row + (size_t)last->out) * (size_t)g->in, all = (size_t)g->out * (size_t)g->in;
    if (all > used)
        ds_cuda_ok(c, cudaMemsetAsync((uint16_t *)c->decoded.p + used, 0, (all - used) * 2, c->stream), "decoding weights");
    for (int i = 0; i < g->n_w; i++)
        if (!decode(c, (uint16_t *)c->decoded.p + (size_t)g->w[i]->row * (size_t)g->in, g->w[i])) return NULL;
    return c->decoded.p;
}

/* What decode reads of a matrix: its blocks, unless those are Q8_0 in the file's own arrangement, or moved into a group. */
static bool reads_blocks(const struct ds_weight *w)
{
    return w->blocks && (w->packed || ds_type_id(w->t->type) != DS_T_Q8_0 || !copy_of(w));
}

static void one_token(struct ds_cuda *c, int n_w, struct ds_buf *const *y, const struct ds_weight *const *w,
                      const struct ds_buf *x, bool add)
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
                                .in = { .kind = DS_CU_IN_BF16, .x = x->own } };
        if (!g.packed || !ds_cuda_take(c, x, g.k, &g.in)) ds_cuda_settle(c);
        ds_cuda_stamp_settle(c);
        do {                                               /* neighbours of one type share a launch */
            y[i]->view = NULL;
            g.m[g.n_m++] = (struct ds_cu_gemv_matrix){ y[i]->own, blocks ? w[i]->blocks : as_bf16(c, w[i]), w[i]->out,
                                                       y[i]->kind == DS_BUF_F32 || y[i]->kind == DS_BUF_LOGITS };
            i++;
        } while (i < n_w && g.n_m < DS_CU_GEMV_MAX && (blocks || copy_of(w[i])) && reads_blocks(w[i]) == blocks &&
                 (!blocks || w[i]->t->type == t) && w[i]->packed == g.packed && w[i]->in == g.k);
        ds_cuda_ok(c, ds_cu_gemv(&g, c->stream), "multiplying one token");
    }
}

/* The input of an 8-bit product: as its producer wrote it, or rounded here (attention's output, inputs from the host). */
static bool operands_f8(struct ds_cuda *c, struct ds_cuda_operands *o, const struct ds_cuda_group *g, int row, const struct ds_buf *x, int n)
{
    *o = (struct ds_cuda_operands){ g->f8 + (size_t)row * (size_t)g->in, x->own, g->scale + row, x->scale };
    if (x->f8) return true;
    const size_t values = (size_t)n * (size_t)g->in;
    if (!ds_cuda_room(c, &c->x8, values + (size_t)n * sizeof(float), "8-bit inputs", NULL)) return false;
    float *scale = (float *)(void *)((uint8_t *)c->x8.p + values);
    o->x = c->x8.p;
    o->x_scale = scale;
    return ds_cuda_ok(c, ds_cu_f8_rows(c->x8.p, scale, x->own, n, g->in, c->stream), "rounding inputs to 8 bits");
}

static bool operands(struct ds_cuda *c, struct ds_cuda_operands *o, const struct ds_buf *x, const uint16_t *w)
{
    *o = (struct ds_cuda_operands){ .w = w, .x = x->own };
    if (x->f8 && !c->err.code) ds_fail(&c->err, DS_EARG, "an 8-bit input reached a bf16 product");
    return w && !c->err.code;
}

static void one_matrix(struct ds_cuda *c, struct ds_buf *y, const struct ds_weight *w, const struct ds_buf *x, int n, bool add)
{
    const bool f32 = y->kind == DS_BUF_F32 || y->kind == DS_BUF_LOGITS, f8 = w->group && w->group->form == DS_CUDA_F8;
    struct ds_cuda_operands o;
    y->view = NULL;
    if (f8 ? operands_f8(c, &o, w->group, w->row, x, n) : operands(c, &o, x, as_bf16(c, w)))
        ds_cuda_product(c, y->own, w->out, f32, add, &o, n, w->out, w->in);
}

/* The group of exactly these matrices, results of their own widths; NULL: there is none. */
static const struct ds_cuda_group *group_of(int n_w, struct ds_buf *const *y, const struct ds_weight *const *w)
{
    const struct ds_cuda_group *g = w[0]->group;
    if (!g || g->n_w != n_w) return NULL;
    for (int i = 0; i < n_w; i++)
        if (g->w[i] != w[i] || y[i]->kind != DS_BUF_PROJ || y[i]->dim != (size_t)w[i]->out) return NULL;
    return g;
}

static bool grouped(struct ds_cuda *c, int n_w, struct ds_buf *const *y, const struct ds_weight *const *w, const struct ds_buf *x, int n)
{
    const struct ds_cuda_group *g = group_of(n_w, y, w);
    struct ds_cuda_operands o;
    if (!g || !ds_cuda_room(c, &c->wide[g->kind], (size_t)n * (size_t)g->out * 2, "grouped results", NULL)) return false;
    if (!(g->form == DS_CUDA_F8 ? operands_f8(c, &o, g, 0, x, n) : operands(c, &o, x, ds_cuda_group_bf16(c, g)))) return true;
    uint16_t *at = c->wide[g->kind].p;
    ds_cuda_product(c, at, g->out, false, false, &o, n, g->out, g->in);
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
    if (n == 1) {
        one_token(c, n_w, y, w, x, add);
        return;
    }
    ds_cuda_settle(c);
    ds_cuda_stamp_settle(c);
    if (!add && n_w > 1 && grouped(c, n_w, y, w, x, n)) return;
    for (int i = 0; i < n_w; i++) one_matrix(c, y[i], w[i], x, n, add);
}

void ds_cuda_matmul_experts(struct ds_backend *be, struct ds_buf *y, const struct ds_weight *w, const struct ds_buf *x,
                            const struct ds_buf *route, int n, int k, bool per_slot)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    ds_cuda_stamp_settle(c);
    y->view = NULL;
    ds_cuda_ok(c, ds_cu_gemm_experts(y->own, as_bf16(c, w), x->own, route->own, n * k, k, per_slot, w->out, w->in, c->stream),
               "multiplying with experts");
}

/* Reports keep names longer than a backend lives: they are made once, the same text whoever makes it. */
const char *ds_cuda_kernel_name(struct ds_backend *be, const struct ds_weight *w, int n)
{
    static char names[DS_T_COUNT][2][40];
    const enum ds_type_id t = ds_type_id(w->t->type);
    char *name = names[t][n == 1];
    (void)be;
    if (n > 1 && w->group && w->group->form == DS_CUDA_F8) return "cublasLt fp8";
    if (!*name) snprintf(name, sizeof names[t][0], n == 1 ? "%s gemv" : "%s cublasLt bf16", ds_types[t].name);
    return name;
}
