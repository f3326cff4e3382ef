/* Kernels by name, made at start and when the first weight of a type comes; a group that a kernel's pipeline cannot hold is
 * found here, because Metal drops such a dispatch in silence. */
#include "backend/metal/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* _KV stands for the cache's type. */
static const struct { const char *name; int threads; bool kv; } kernels[DS_MK_COUNT] = {
    [DS_MK_ACT_HALF] = { "act_half", 256, false },       [DS_MK_RMS_NORM] = { "rms_norm", 256, false },
    [DS_MK_SWIGLU] = { "swiglu", 256, false },           [DS_MK_COPY_COLS] = { "copy_cols", 256, false },
    [DS_MK_COPY] = { "copy", 256, false },               [DS_MK_CONV_TAIL] = { "conv_tail", 256, false },
    [DS_MK_GDN_PREP] = { "gdn_prep", 128, false },       [DS_MK_GDN_SEQ] = { "gdn_seq", 128, false },
    [DS_MK_GDN_CHUNK] = { "gdn_chunk", 128, false },     [DS_MK_GATED_NORM] = { "gated_norm", 128, false },
    [DS_MK_QK_NORM] = { "qk_norm", 128, false },         [DS_MK_ROPE_STORE] = { "rope_store", 128, true },
    [DS_MK_ATTN_PREFILL] = { "attn_prefill", 128, true }, [DS_MK_ATTN_PART] = { "attn_part", 128, true },
    [DS_MK_ATTN_MERGE] = { "attn_merge", 128, false },   [DS_MK_MOE_ROUTE] = { "moe_route", 128, false },
    [DS_MK_MOE_SORT] = { "moe_sort", 256, false },       [DS_MK_MOE_COMBINE] = { "moe_combine", 256, false },
    [DS_MK_SENTINEL] = { "sentinel", 128, false },       [DS_MK_PROBE_FMA] = { "probe_fma", 256, false },
    [DS_MK_PROBE_MM] = { "probe_mm", 128, false },       [DS_MK_PROBE_READ] = { "probe_read", 256, false },
};

static const struct { const char *name; bool edges; } typed[DS_MT_COUNT] = {
    [DS_MT_GEMM] = { "gemm", false },           [DS_MT_GEMM_EDGES] = { "gemm", true },
    [DS_MT_GEMV] = { "gemv", false },           [DS_MT_GEMM_EXPERTS] = { "gemm_experts", false },
    [DS_MT_GEMV_EXPERTS] = { "gemv_experts", false }, [DS_MT_EMBED] = { "embed", false },
};

static const enum ds_type_id with_kernels[] = { DS_T_Q8_0, DS_T_Q4_0, DS_T_Q4_K, DS_T_Q5_K, DS_T_Q6_K, DS_T_F16, DS_T_BF16, DS_T_F32 };

bool ds_metal_has_type(const struct ds_type *t)
{
    for (size_t i = 0; i < sizeof with_kernels / sizeof *with_kernels; i++)
        if (ds_type_id(t) == with_kernels[i]) return true;
    return false;
}

static ds_status make(struct ds_metal *m, struct ds_mtl_fn **fn, const char *name, int threads, int edges, struct ds_err *e)
{
    const int32_t consts[1] = { edges };
    struct ds_mtl_fn_facts f;
    if (!(*fn = ds_mtl_fn_new(m->dev, name, consts, edges < 0 ? 0 : 1, e))) return DS_EUNSUP;
    ds_mtl_fn_facts(*fn, &f);
    if (f.width != 32)
        return ds_fail(e, DS_EUNSUP, "kernel '%s': %s runs %d threads in step, expected 32", name, m->facts.name, f.width);
    if (f.max_threads < threads)
        return ds_fail(e, DS_EUNSUP, "kernel '%s': %s runs at most %d threads of it in a group, but it needs %d", name, m->facts.name,
                       f.max_threads, threads);
    return DS_OK;
}

ds_status ds_metal_pipelines(struct ds_metal *m, struct ds_err *e)
{
    ds_status st = DS_OK;
    for (int k = 0; k < DS_MK_COUNT && !st; k++) {
        char name[40];
        snprintf(name, sizeof name, "%s%s", kernels[k].name, !kernels[k].kv ? "" : m->kv_f16 ? "_f16" : "_f32");
        st = make(m, &m->fn[k], name, kernels[k].threads, -1, e);
    }
    return st;
}

ds_status ds_metal_typed_pipelines(struct ds_metal *m, const struct ds_type *t, struct ds_err *e)
{
    struct ds_mtl_fn **fn = m->typed[ds_type_id(t)];
    ds_status st = DS_OK;
    for (int k = 0; k < DS_MT_COUNT && !st; k++) {
        char name[40];
        if (fn[k]) continue;
        snprintf(name, sizeof name, "%s_%s", typed[k].name, t->name);
        st = make(m, &fn[k], name, 128, k == DS_MT_GEMM || k == DS_MT_GEMM_EDGES ? typed[k].edges : -1, e);
    }
    return st;
}

void ds_metal_pipelines_free(struct ds_metal *m)
{
    for (int k = 0; k < DS_MK_COUNT; k++)
        if (m->fn[k]) ds_mtl_fn_free(m->fn[k]);
    for (int t = 0; t < DS_T_COUNT; t++)
        for (int k = 0; k < DS_MT_COUNT; k++)
            if (m->typed[t][k]) ds_mtl_fn_free(m->typed[t][k]);
}
