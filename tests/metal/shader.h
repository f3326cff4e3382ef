/* Running one kernel on the executor from a test: buffers that end where their data end, arguments by value. */
#ifndef DS_TESTS_METAL_SHADER_H
#define DS_TESTS_METAL_SHADER_H

#include "backend/metal/args.h"
#include "base/rng.h"
#include "harness.h"
#include "metal-sim/sim.h"
#include "quant/type.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Memory that begins as NaN (as float and as half), 32-byte aligned like a tensor in a file. */
static void *poisoned_bytes(size_t n)
{
    void *p = aligned_alloc(32, n / 32 * 32 + 32);
    if (!p) abort();
    memset(p, 0xff, n / 32 * 32 + 32);
    return p;
}
static inline float *poisoned(size_t n) { return poisoned_bytes(4 * n); }
static inline float *normals(struct ds_rng *rng, size_t n, float sd)
{
    float *p = poisoned(n);
    for (size_t i = 0; i < n; i++) p[i] = sd * ds_rng_normal(rng);
    return p;
}

/* Arguments of a call: `bind(&c, 1, p, bytes)`, ... then `run(&c, groups x, y, z, threads)`. */
struct call { struct sim_dispatch d; };
static struct call call_of(const char *kernel, const void *args, size_t size)
{
    struct call c;
    memset(&c, 0, sizeof c);
    c.d.kernel = kernel;
    c.d.buffer[0] = (struct sim_binding){ (void *)(uintptr_t)args, size, true };
    return c;
}
static void bind(struct call *c, int index, const void *p, size_t bytes)
{
    c->d.buffer[index] = (struct sim_binding){ (void *)(uintptr_t)p, bytes, false };
}
static uint64_t run_seed = 1;                  /* another order for every dispatch, */
static bool run_exactly;                       /* and rough arithmetic in every second one unless this is set */
static enum sim_result run_quietly(struct call *c, int gx, int gy, int gz, int threads, char *err, size_t n)
{
    const struct sim_options o = { .seed = run_seed, .host_threads = 2, .rough = !run_exactly && run_seed % 2 };
    run_seed++;
    const uint32_t groups[3] = { (uint32_t)gx, (uint32_t)gy, (uint32_t)gz }, t[3] = { (uint32_t)threads, 1, 1 };
    memcpy(c->d.groups, groups, sizeof groups);
    memcpy(c->d.threads, t, sizeof t);
    return sim_run(&c->d, &o, err, n);
}
static inline void run(struct call *c, int gx, int gy, int gz, int threads)
{
    char err[400] = "";
    enum sim_result r = run_quietly(c, gx, gy, gz, threads, err, sizeof err);
    CHECK_MSG(r == SIM_OK, "%s", err);
}
static inline int up(int a, int b) { return (a + b - 1) / b; }

/* Error of y against `want`, relative to want's size. NaN or infinity in y where want has none: infinite. */
static inline double nmse(const float *y, const double *want, size_t n)
{
    double num = 0, den = 0;
    for (size_t i = 0; i < n; i++) {
        double e = (double)y[i] - want[i];
        num += e * e, den += want[i] * want[i];
    }
    return num == 0 ? 0 : isfinite(num) ? num / (den > 0 ? den : 1e-30) : INFINITY;
}

#endif
