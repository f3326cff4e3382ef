/* The backends that are compiled in: one row each. */
#include "backend/backend.h"
#include "backend/cpu/open.h"
#ifdef DS_HAVE_CUDA
#include "backend/cuda/open.h"
#endif
#ifdef DS_HAVE_METAL
#include "backend/metal/open.h"
#endif

#include <stdio.h>
#include <string.h>

const char *const ds_class_names[DS_C_COUNT] = { "qkv", "z", "gates", "ssm_out", "attention", "mlp", "head" };

static const struct row {
    const char *name;
    struct ds_backend *(*open)(const struct ds_backend_options *o, struct ds_err *e);
    bool by_name;                  /* never chosen by auto: the software device of the tests */
    bool forms;                    /* knows the options gemm and weights */
    bool buffers;                  /* knows the option gpu_work */
} rows[] = {
#ifdef DS_HAVE_CUDA
    { "cuda", ds_cuda_open, false, true, false },
#endif
#ifdef DS_HAVE_METAL
    { "metal", ds_metal_open, DS_METAL_SOFTWARE, false, true },
#endif
    { "cpu", ds_cpu_open, false, false, false },
};

void ds_backend_names(char *dst, size_t n)
{
    size_t at = 0;
    if (n) dst[0] = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && at < n; i++)
        at += (size_t)snprintf(dst + at, n - at, "%s%s", i ? ", " : "", rows[i].name);
}

static struct ds_backend *open_placed(const struct row *r, const char *placement, const struct ds_backend_options *o, struct ds_err *e)
{
    if (!r->forms && (o->gemm || o->weights)) {
        ds_fail(e, DS_EARG, "--gemm and --weights are for a GPU, but the backend is '%s'", r->name);
        return NULL;
    }
    if (!r->buffers && o->gpu_work > 0) {
        ds_fail(e, DS_EARG, "--gpu-work is for Metal, but the backend is '%s'", r->name);
        return NULL;
    }
    struct ds_backend *dev = r->open(o, e);
    if (!dev || !placement || !strcmp(placement, "full")) return dev;
    struct ds_backend *host = ds_cpu_open(o, e);
    if (!host) {
        dev->ops->free(dev);
        return NULL;
    }
    return ds_split_new(host, dev, e);
}

struct ds_backend *ds_backend_open(const char *name, const char *placement, const struct ds_backend_options *o, struct ds_err *e)
{
    const size_t n = sizeof rows / sizeof *rows;
    if (placement && strcmp(placement, "full") && strcmp(placement, "gemm")) {
        ds_fail(e, DS_EARG, "placement '%s' is unknown, expected gemm or full", placement);
        return NULL;
    }
    bool any = !name || !strcmp(name, "auto");
    for (size_t i = 0; i < n; i++) {
        if (any ? rows[i].by_name : strcmp(name, rows[i].name)) continue;
        struct ds_backend *be = open_placed(&rows[i], placement, o, e);
        if (be || !any || i + 1 == n) return be;
    }
    char names[64];
    ds_backend_names(names, sizeof names);
    ds_fail(e, DS_EARG, "backend '%s' is not in this build, which has: %s", name, names);
    return NULL;
}
