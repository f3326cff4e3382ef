/* Is this GPU what it seems, and what can it do at most. */
#include "backend/metal/host.h"

#include <string.h>

/* One call as a step of its own. */
static bool run_alone(struct ds_metal *m, struct ds_metal_call *c, uint32_t x, uint32_t threads)
{
    ds_metal_go(m, c, x, 1, 1, threads, 0);
    return !ds_metal_step_end(m, NULL);
}

/* --- the sentinel: GPUs of virtual machines were seen to accept kernels and write zeros --- */

enum { SEED = 12345, PRODUCT_AT = 512, SUMS_AT = 1024, SENTINEL_BYTES = 1536 };

static const char *wrong_answer(const char *p)
{
    uint32_t out[DS_METAL_SENTINEL];
    float product[64], sums[2];
    memcpy(out, p, sizeof out);
    memcpy(product, p + PRODUCT_AT, sizeof product);
    memcpy(sums, p + SUMS_AT, sizeof sums);
    for (uint32_t i = 0; i < DS_METAL_SENTINEL; i++)
        if (out[i] != (i + SEED) * 2654435761u) return "threads that write nothing";
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 8; c++) {
            float want = 0;
            for (int k = 0; k < 8; k++) want += (float)((r - k) * (k + 2 * c));
            if (product[8 * r + c] != want) return "a wrong product of 8x8 matrices";
        }
    if (sums[0] != 496 || sums[1] != 8128) return "wrong sums over threads";
    return NULL;
}

ds_status ds_metal_self_test(struct ds_metal *m, struct ds_err *e)
{
    const struct ds_metal_sentinel a = { .seed = SEED };
    struct ds_mtl_buf *b = ds_metal_alloc(m, SENTINEL_BYTES, "the self-test", e);
    if (!b) return DS_ENOMEM;
    ds_metal_step_start(m);
    struct ds_metal_call *c = ds_metal_call(m, m->fn[DS_MK_SENTINEL], "testing itself", &a, sizeof a);
    ds_metal_bind(c, (struct ds_metal_mem){ b, 0, DS_METAL_SENTINEL * sizeof(uint32_t) });
    ds_metal_bind(c, (struct ds_metal_mem){ b, PRODUCT_AT, 64 * sizeof(float) });
    ds_metal_bind(c, (struct ds_metal_mem){ b, SUMS_AT, 2 * sizeof(float) });
    ds_metal_go(m, c, 1, 1, 1, 128, 0);
    ds_status st = ds_metal_step_end(m, e);
    const char *wrong = st ? NULL : wrong_answer(ds_mtl_buf_ptr(b));
    if (wrong) st = ds_fail(e, DS_EUNSUP, "%s fails its self-test: %s", m->facts.name, wrong);
    ds_metal_release(m, b, SENTINEL_BYTES);
    return st;
}

/* --- peaks --- */

static double ms_of(struct ds_metal *m, enum ds_metal_kernel k, uint32_t count, uint32_t groups, uint32_t threads,
                    const struct ds_metal_mem *mem, int n_mem)
{
    const struct ds_metal_probe a = { .count = count };
    ds_metal_step_start(m);
    struct ds_metal_call *c = ds_metal_call(m, m->fn[k], "measuring", &a, sizeof a);
    for (int i = 0; i < n_mem; i++) ds_metal_bind(c, mem[i]);
    if (!run_alone(m, c, groups, threads)) return 0;
    return (double)(m->calls[0].end_ns - m->calls[0].start_ns) * 1e-6;
}

static void keep_larger(double *a, double b)
{
    if (b > *a) *a = b;
}

/* Doubles the work until it lasts, and returns the best rate: `per` operations or bytes at count 1. */
static double rate(struct ds_metal *m, enum ds_metal_kernel k, uint32_t groups, uint32_t threads, double per, uint32_t most,
                   const struct ds_metal_mem *mem, int n_mem)
{
    double best = 0;
    for (uint32_t count = 1; count <= most; count *= 2) {
        const double ms = ms_of(m, k, count, groups, threads, mem, n_mem);
        if (ms > 0) keep_larger(&best, per * count / ms * 1e-6);
        if (ms > 30) break;
    }
    return best;
}

/* A software device is not worth more than a few groups. */
void ds_metal_peaks(struct ds_backend *be, struct ds_peaks *p)
{
    struct ds_metal *m = ds_metal_of(be);
    const uint32_t groups = m->facts.software ? 2 : 1024, most = m->facts.software ? 2 : 4096;
    const size_t values = (size_t)groups * 256 * (m->facts.software ? 2 : 256), bytes = values * sizeof(float);
    struct ds_mtl_buf *src = ds_metal_alloc(m, bytes, "measuring", NULL), *dst = ds_metal_alloc(m, bytes, "measuring", NULL);
    if (src && dst) {
        const struct ds_metal_mem fma = { dst, 0, (size_t)groups * 256 * sizeof(float) }, mm = { dst, 0, (size_t)groups * 4 * 64 * sizeof(float) };
        keep_larger(&p->f32_gflops, rate(m, DS_MK_PROBE_FMA, groups, 256, 128.0 * groups * 256, most, &fma, 1));
        keep_larger(&p->mm_gflops, rate(m, DS_MK_PROBE_MM, groups, 128, 16.0 * 1024 * groups * 4, most, &mm, 1));
        const uint32_t count = (uint32_t)(values / 256 / groups);
        const struct ds_metal_mem read[2] = { { src, 0, bytes }, { dst, 0, groups * sizeof(float) } };
        const struct ds_metal_mem both[2] = { { src, 0, bytes }, { dst, 0, bytes } };
        for (int i = 0; i < 3; i++) {
            const double r = ms_of(m, DS_MK_PROBE_READ, count, groups, 256, read, 2);
            const double c = ms_of(m, DS_MK_COPY, (uint32_t)values, (uint32_t)((values + 1023) / 1024), 256, both, 2);
            if (r > 0) keep_larger(&p->read_gbs, (double)bytes / r * 1e-6);
            if (c > 0) keep_larger(&p->copy_gbs, 2.0 * (double)bytes / c * 1e-6);
        }
    }
    ds_metal_release(m, src, bytes);
    ds_metal_release(m, dst, bytes);
}
