/* Copies of matrices for products of several tokens, made on the device from their blocks. */
#include "backend/cuda/host.h"

static size_t elements(const struct ds_weight *w) { return (size_t)w->in * (size_t)w->out * (size_t)w->n_expert; }

static ds_status decode(struct ds_cuda *c, uint16_t *dst, const struct ds_weight *w, struct ds_err *e)
{
    const struct ds_type *t = w->t->type;
    return ds_cuda_check(ds_cu_dequant(dst, w->blocks, (int)ds_type_id(t), t->block, t->bytes, (int64_t)elements(w), c->stream), "decoding weights", e);
}

/* The blocks of a bf16 file lie in the group from now on. */
static ds_status drop_blocks(struct ds_cuda *c, struct ds_weight *w, struct ds_err *e)
{
    ds_status st = c->be.plan_only ? DS_OK : ds_cuda_check(cudaStreamSynchronize(c->stream), "grouping weights", e);
    ds_cuda_mem_give(c, w->blocks, (size_t)w->t->bytes);
    w->blocks = NULL;
    w->bytes -= w->t->bytes;
    return st;
}

/* Nothing but decode reads the blocks any more: in its own arrangement. */
static ds_status pack(struct ds_cuda *c, struct ds_weight *w, struct ds_err *e)
{
    const int type = (int)ds_type_id(w->t->type);
    const size_t bytes = ds_cu_packed_bytes(type, w->out, w->in);
    void *packed;
    if (!ds_cuda_mem_take(c, &packed, bytes, w->t->name, e)) return DS_ENOMEM;
    ds_status st = DS_OK;
    if (!c->be.plan_only) {
        st = ds_cuda_check(ds_cu_pack(packed, w->blocks, type, w->out, w->in, c->stream), "arranging weights", e);
        if (!st) st = ds_cuda_check(cudaStreamSynchronize(c->stream), "arranging weights", e);
    }
    ds_cuda_mem_give(c, w->blocks, (size_t)w->t->bytes);
    w->blocks = packed;
    w->packed = true;
    w->bytes += bytes - w->t->bytes;
    return st;
}

static ds_status fill_bf16(struct ds_cuda *c, struct ds_cuda_group *g, struct ds_err *e)
{
    ds_status st = DS_OK;
    for (int i = 0; i < g->n_w && !st; i++) {
        uint16_t *dst = c->be.plan_only ? NULL : g->bf16 + (size_t)g->w[i]->row * (size_t)g->in;
        if (!c->be.plan_only) st = decode(c, dst, g->w[i], e);
        if (!st && ds_type_id(g->w[i]->t->type) == DS_T_BF16 && !(g->w[i]->use & DS_USE_EMBED)) st = drop_blocks(c, g->w[i], e);
    }
    return st;
}

/* Through bf16, which holds every stored value to more bits than e4m3. */
static ds_status fill_f8(struct ds_cuda *c, struct ds_cuda_group *g, struct ds_cuda_room *through, struct ds_err *e)
{
    ds_status st = DS_OK;
    for (int i = 0; i < g->n_w && !st && !c->be.plan_only; i++) {
        const struct ds_weight *w = g->w[i];
        if (!ds_cuda_room(c, through, elements(w) * 2, "decoding weights", e)) return DS_ENOMEM;
        if ((st = decode(c, through->p, w, e))) return st;
        st = ds_cuda_check(ds_cu_f8_rows(g->f8 + (size_t)w->row * (size_t)g->in, g->scale + w->row, through->p, w->out, w->in, c->stream),
                           "rounding weights to 8 bits", e);
    }
    return st;
}

static ds_status make(struct ds_cuda *c, struct ds_cuda_group *g, struct ds_cuda_room *through, struct ds_err *e)
{
    const size_t bytes = (size_t)ds_cuda_copy_bytes(g);
    void *copy = NULL;
    ds_status st = DS_OK;
    g->made = true;
    if (g->form == DS_CUDA_BLOCKS) return DS_OK;
    if (!bytes) {
        g->bf16 = g->w[0]->blocks;
        return DS_OK;
    }
    if (!ds_cuda_mem_take(c, &copy, bytes, "copies of the weights; --weights blocks takes less", e)) return DS_ENOMEM;
    g->bytes = bytes;
    if (copy && (st = ds_cuda_check(cudaMemsetAsync(copy, 0, bytes, c->stream), "copying weights", e))) return st;
    if (g->form == DS_CUDA_BF16) {
        g->bf16 = copy;
        st = fill_bf16(c, g, e);
    } else {
        g->f8 = copy;
        g->scale = copy ? (float *)(void *)(g->f8 + (size_t)g->in * (size_t)g->out) : NULL;
        st = fill_f8(c, g, through, e);
    }
    for (int i = 0; i < g->n_w && !st; i++) {
        struct ds_weight *w = g->w[i];
        if (w->n_expert == 1 && !(w->use & DS_USE_EMBED) && ds_cu_can_pack((int)ds_type_id(w->t->type), w->in)) st = pack(c, w, e);
    }
    return st;
}

/* One sentence on what the products read. */
static void say_forms(struct ds_cuda *c)
{
    static const char *const said[8] = {
        NULL, "blocks, decoded before each product", "bf16 copies", "bf16 copies of a part, the rest decoded before each product",
        "e4m3 copies", "e4m3 copies, the rest decoded before each product", "e4m3 and bf16 copies",
        "e4m3 and bf16 copies of a part, the rest decoded before each product",
    };
    unsigned seen = 0;
    for (const struct ds_cuda_group *g = c->groups; g; g = g->next)
        if (g->kind != DS_CUDA_OTHER) seen |= 1u << g->form;
    c->be.forms = said[seen];
}

ds_status ds_cuda_make_copies(struct ds_cuda *c, struct ds_err *e)
{
    struct ds_cuda_room through = { 0 };
    ds_status st = DS_OK;
    bool downs = false, all = true;
    for (struct ds_cuda_group *g = c->groups; g && !st; g = g->next)
        if (!g->made) st = make(c, g, &through, e);
    for (const struct ds_cuda_group *g = c->groups; g; g = g->next)
        if (g->kind == DS_CUDA_FFN_DOWN) downs = true, all = all && g->form == DS_CUDA_F8;
    c->f8_down = downs && all;
    say_forms(c);
    ds_cuda_room_free(c, &through);
    return st;
}
