/* Runs a check of the kernel table at every ISA level of this machine, and compares with the reference. */
#ifndef DS_TESTS_KERNELS_LEVELS_H
#define DS_TESTS_KERNELS_LEVELS_H

#include "../harness.h"
#include "base/cpu.h"
#include "base/os.h"
#include "base/rng.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* fn(table of the level, reference table, level's name), lowest level first. */
static void for_each_level(void (*fn)(const struct ds_kernels *k, const struct ds_kernels *ref, const char *level))
{
    const char *names[16];
    int n = ds_cpu_levels(names, 16);
    struct ds_kernels ref, k;
    ds_kernels_init(&ref, 0);
    for (int i = 0; i < n; i++) {
        unsigned mask = 0;
        REQUIRE(ds_cpu_mask(names[i], &mask, NULL) == DS_OK);
        ds_kernels_init(&k, mask);
        fn(&k, &ref, names[i]);
    }
}

/* |got - want|^2 / |want|^2; infinite when a value of either is not finite. */
static inline double nmse(const float *got, const float *want, size_t n)
{
    double num = 0, den = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - want[i];
        if (!isfinite(got[i]) || !isfinite(want[i])) return INFINITY;
        num += d * d;
        den += (double)want[i] * want[i];
    }
    return num == 0 ? 0 : num / den;
}

static inline bool near(double got, double want, double rel) { return fabs(got - want) <= rel * (fabs(want) + 1e-30); }

/* n floats that read as NaN until written. 64-byte aligned; freed with ds_mem_free(p, n * 4). */
static inline float *poisoned(size_t n)
{
    float *p = ds_mem_alloc(n * sizeof *p + 64);
    if (!p) { puts("no memory"); exit(1); }
    for (size_t i = 0; i < n; i++) p[i] = NAN;
    return p;
}
static inline void drop(float *p, size_t n) { ds_mem_free(p, n * sizeof *p + 64); }

static inline float *normals(struct ds_rng *r, size_t n, float sd)
{
    float *p = poisoned(n);
    for (size_t i = 0; i < n; i++) p[i] = sd * ds_rng_normal(r);
    return p;
}

#endif
