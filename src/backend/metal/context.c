/* Life of the backend: device, what it takes before the first step, steps. */
#include "backend/metal/host.h"
#include "backend/metal/open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Work of one command buffer: some 60 ms at the 3.5 TFLOP/s that products reach on an M3 Pro. The display waits no longer
 * than that, so the system does not end the buffer. */
static const double BUDGET = 200e9;

/* --- steps --- */

static bool need_ids(struct ds_metal *m, size_t n, struct ds_err *e)
{
    if (n <= m->ids_cap) return true;
    ds_metal_release(m, m->ids, m->ids_cap * sizeof(int32_t));
    m->ids_cap = 0;
    if (!(m->ids = ds_metal_alloc(m, n * sizeof(int32_t), "token ids", e))) return false;
    m->ids_cap = n;
    return true;
}

bool ds_metal_begin(struct ds_backend *be, const struct ds_step *s)
{
    struct ds_metal *m = ds_metal_of(be);
    be->step = *s;
    ds_metal_step_start(m);
    if (s->ids && need_ids(m, (size_t)s->n, &m->err)) memcpy(ds_mtl_buf_ptr(m->ids), s->ids, (size_t)s->n * sizeof *s->ids);
    return true;
}

ds_status ds_metal_end(struct ds_backend *be, struct ds_err *e) { return ds_metal_step_end(ds_metal_of(be), e); }

void ds_metal_drain(struct ds_backend *be) { ds_metal_sync(ds_metal_of(be)); }

/* --- life --- */

ds_status ds_metal_reserve(struct ds_backend *be, const struct ds_sizes *sz, struct ds_err *e)
{
    struct ds_metal *m = ds_metal_of(be);
    const uint64_t before = m->used;
    m->n_expert = sz->n_expert;
    if (!need_ids(m, (size_t)sz->ubatch, e)) return DS_ENOMEM;
    if (sz->attn.n_head) {
        m->turn_cap = (size_t)sz->ubatch * (size_t)(sz->attn.n_rot / 2) * 2;
        if (!(m->turn = ds_metal_alloc(m, m->turn_cap * sizeof(float), "rotations", e))) return DS_ENOMEM;
        m->part_bytes = (size_t)DS_METAL_PART_ROWS * (size_t)sz->attn.n_head * (size_t)(sz->attn.hd + 2) * sizeof(float);
        if (!(m->part = ds_metal_alloc(m, m->part_bytes, "split attention", e))) return DS_ENOMEM;
    }
    if (sz->attn.hd > DS_METAL_MAX_HD || sz->gdn.dk > DS_METAL_MAX_DK)
        return ds_fail(e, DS_EUNSUP, "the Metal kernels take attention heads of up to %d and GDN keys of up to %d, the model has %d and %d",
                       DS_METAL_MAX_HD, DS_METAL_MAX_DK, sz->attn.hd, sz->gdn.dk);
    m->own += m->used - before;
    return DS_OK;
}

uint64_t ds_metal_own_bytes(struct ds_backend *be) { return ds_metal_of(be)->own; }

void ds_metal_free(struct ds_backend *be)
{
    struct ds_metal *m = ds_metal_of(be);
    ds_metal_step_free(m);
    ds_metal_release(m, m->ids, m->ids_cap * sizeof(int32_t));
    ds_metal_release(m, m->turn, m->turn_cap * sizeof(float));
    ds_metal_release(m, m->part, m->part_bytes);
    ds_metal_pipelines_free(m);
    ds_mtl_close(m->dev);
    free(m->names);
    free(m);
}

static ds_status start(struct ds_metal *m, struct ds_err *e)
{
    ds_status st;
    if (!(m->dev = ds_mtl_open(e))) return DS_EUNSUP;
    ds_mtl_facts(m->dev, &m->facts);
    if (m->facts.family < 7)
        return ds_fail(e, DS_EUNSUP, "%s is of GPU family Apple%d, the Metal backend needs Apple7 (M1) or later", m->facts.name, m->facts.family);
    if ((st = ds_metal_pipelines(m, e))) return st;
    return ds_metal_self_test(m, e);
}

struct ds_backend *ds_metal_open(const struct ds_backend_options *o, struct ds_err *e)
{
    struct ds_metal *m = calloc(1, sizeof *m);
    if (m) m->names = calloc(DS_T_COUNT, sizeof *m->names);
    if (!m || !m->names) {
        free(m);
        ds_fail(e, DS_ENOMEM, "the system refused memory for the Metal backend");
        return NULL;
    }
    m->be.ops = &ds_metal_ops;
    m->be.name = "metal";
    m->be.placement = "full";
    m->be.cosine_limit = 0.9999;               /* half operands in tiles */
    m->be.cache_limit = 1e-2;
    m->be.product_limit = 2e-3;                /* weights and activations rounded to half: 2^-12 rms each, and six times that where sums cancel */
    m->be.op_limit = 2e-4;                     /* all else is f32; the chunked recurrence on nearly collinear keys may lose most */
    m->budget = o->gpu_work > 0 ? o->gpu_work * 1e9 : BUDGET;
    m->kv_f16 = !o->kv || strcmp(o->kv, "f32") != 0;
    m->gdn_chunk = !o->gdn || strcmp(o->gdn, "seq") != 0;
    m->be.gdn_form = m->gdn_chunk ? "chunk" : "seq";
    if (start(m, e)) {
        ds_metal_free(&m->be);
        return NULL;
    }
    m->be.device = m->facts.name;
    return &m->be;
}
