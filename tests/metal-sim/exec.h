/* One dispatch on the software device: what mtl_sim.c hands over, and what the executor gives back.
 *
 * The executor runs every threadgroup of the grid with its threads as fibres in shuffled order, and stops at the first thing
 * that Metal would not forgive: it never aborts, it reports. */
#ifndef DS_TESTS_METAL_SIM_EXEC_H
#define DS_TESTS_METAL_SIM_EXEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SIM_BUFFERS = 31, SIM_CONSTANTS = 8 };

struct sim_binding { void *p; uint64_t bytes; bool bound, read_only; };

struct sim_dispatch {
    const char *kernel;
    struct sim_binding buf[SIM_BUFFERS];
    int32_t consts[SIM_CONSTANTS]; int n_consts;
    uint32_t groups[3], threads[3];
    uint64_t seed;                 /* order of threads, simdgroups and threadgroups */
};

/* max_threads: of [[max_total_threads_per_threadgroup]], else 1024 */
struct sim_kernel { int max_threads; size_t static_memory; };

bool sim_kernel_find(const char *name, struct sim_kernel *k);   /* false: no such kernel */
const char *sim_kernel_name(int i);                              /* NULL past the last */
/* True: ran. False: what went wrong, where, in one sentence. */
bool sim_run(const struct sim_dispatch *d, char *why, size_t n);

#ifdef __cplusplus
}
#endif

#endif
