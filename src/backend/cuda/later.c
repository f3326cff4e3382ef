/* Small ops of one token that the product behind them can do itself. The op is noted and nothing is launched: a
 * product of packed matrices whose input it makes takes it over, and whatever comes instead has it launched first. */
#include "backend/cuda/host.h"

static bool aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

bool ds_cuda_later(struct ds_cuda *c, struct ds_buf *out, const struct ds_cu_gemv_input *in, int k, int head)
{
    if (!ds_cu_gemv_makes(in->kind, k, head) || !aligned(in->x) || !aligned(in->gate) || !aligned(in->gain) || !aligned(in->made))
        return false;
    c->later = (struct ds_cuda_later){ .out = out, .in = *in, .k = k, .head = head };
    return true;
}

bool ds_cuda_take(struct ds_cuda *c, const struct ds_buf *x, int k, struct ds_cu_gemv_input *in)
{
    if (!c->later.out || c->later.out != x || c->later.k != k) return false;
    *in = c->later.in;
    c->prepared = NULL;
    c->later.out = NULL;
    return true;
}

void ds_cuda_settle(struct ds_cuda *c)
{
    const struct ds_cuda_later *l = &c->later;
    const struct ds_cu_gemv_input *in = &l->in;
    c->prepared = NULL;
    if (!l->out) return;
    c->later.out = NULL;
    const struct ds_cu_stamp t = ds_cuda_stamp_next(c);
    cudaError_t st = cudaSuccess;
    if (in->kind == DS_CU_IN_NORM) st = ds_cu_rms_norm(in->made, in->x, in->gain, 1, l->k, in->eps, t, c->stream);
    if (in->kind == DS_CU_IN_SWIGLU) st = ds_cu_swiglu(in->made, in->x, l->k, in->gate, l->k, 1, l->k, t, c->stream);
    if (in->kind == DS_CU_IN_GATED)
        st = ds_cu_gated_norm(in->made, in->x, in->gate, l->k, in->gain, 1, l->k / l->head, l->head, in->eps, t, c->stream);
    ds_cuda_ok(c, st, "preparing a product's input");
}
