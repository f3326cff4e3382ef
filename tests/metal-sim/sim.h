/* The executor: runs kernels of src/backend/metal/shaders on a CPU and watches what they do.
 *
 * The .metal files are compiled as C++ (metal_stdlib here stands in for Apple's) with the compiler's thread sanitizer
 * instrumentation, but not its runtime: every load and store of a kernel calls a function of ours (hooks.cpp), which knows the
 * bound buffers and the threadgroup memory to the byte. So shaders use plain pointers, as Metal compiles them, and still:
 *
 *   - an access outside of the bound buffers, by one byte, is an error;
 *   - two threads of a group that touch one threadgroup location, one of them writing, with no barrier of the right flags
 *     between, are an error, whatever order they happened to run in;
 *   - two threadgroups of a dispatch that touch one location of a buffer, one of them writing, are an error;
 *   - threads of a group that wait at different barriers or simd functions, or ended early, are an error;
 *   - threadgroup memory begins as NaN patterns, and so do uninitialised locals;
 *   - threads, simdgroups and threadgroups run in an order shuffled by `seed`, and simd_sum adds in a shuffled order.
 *
 * Threads of a group are fibers: they switch only where one waits for others. */
#ifndef DS_TESTS_METAL_SIM_H
#define DS_TESTS_METAL_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SIM_BUFFERS = 31, SIM_SIMD = 32, SIM_MAX_THREADS = 1024, SIM_THREADGROUP_BYTES = 32768 };

/* What a kernel may touch by one [[buffer(n)]]: bytes [p, p + size). p NULL: unbound. */
struct sim_binding { void *p; size_t size; bool read_only; };   /* read_only: the GPU may not write there (a mapped file) */

struct sim_dispatch {
    const char *kernel;                        /* its name in the shaders */
    struct sim_binding buffer[SIM_BUFFERS];
    uint32_t groups[3], threads[3];            /* threadgroups in the grid, threads in each */
    int32_t constants[4];                      /* [[function_constant(i)]], all int */
};

struct sim_options {
    uint64_t seed;                             /* of every order that Metal leaves open; 0: the same one in every threadgroup */
    int host_threads;                          /* workers that run threadgroups; 0: one */
    uint32_t max_threads;                      /* per threadgroup, for every pipeline; 0: SIM_MAX_THREADS */
    bool no_races;                             /* leave out race detection (faster) */
    bool rough;                                /* arithmetic as a device may have it: subnormal floats are zero, functions err by 2 ulp */
};

enum sim_result {
    SIM_OK,
    SIM_DROPPED,                               /* more threads than the pipeline takes: nothing ran. The real device says nothing here */
    SIM_FAULT                                  /* the kernel did something wrong; outputs are void */
};

/* Runs a dispatch to its end. Otherwise `err` (n bytes) gets one sentence: kernel, threadgroup, thread, what and where. */
enum sim_result sim_run(const struct sim_dispatch *d, const struct sim_options *o, char *err, size_t n);

bool sim_has_kernel(const char *name);
uint32_t sim_kernel_max_threads(const char *name, const struct sim_options *o);     /* 0: no such kernel */
/* Names of all kernels, for reports: sim_kernel_name(0), ... NULL. */
const char *sim_kernel_name(int i);

#ifdef __cplusplus
}
#endif
#endif
