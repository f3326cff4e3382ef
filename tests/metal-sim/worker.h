/* State of one host thread that runs threadgroups. Shared by the scheduler (sim.cpp) and the watch on memory (hooks.cpp). */
#ifndef DS_TESTS_METAL_SIM_WORKER_H
#define DS_TESTS_METAL_SIM_WORKER_H

#include "kernel_abi.h"
#include "sim.h"

#include <atomic>
#include <stdint.h>

enum { SIM_STACK = 64 * 1024, SIM_GROUPS = SIM_MAX_THREADS / SIM_SIMD };

enum fiber_state { FIBER_READY, FIBER_IN_SIMD, FIBER_IN_BARRIER, FIBER_ENDED };

struct fiber {
    void *sp;
    fiber_state state;
    int op, line, flags;                       /* of the wait */
    unsigned value, argument;                  /* exchanged: in, then out */
    sim_fragment *d;
    const sim_fragment *a, *b, *c;
    const sim_matrix_access *access;
    bool to_half;
    unsigned long memory;                      /* threadgroup memory declared so far */
    sim_thread thread;
};

struct simdgroup {
    int lanes, at;                             /* at: position in `order` of the lane that runs */
    const uint8_t *order;
    uint32_t epoch;                            /* simdgroup barriers passed that order threadgroup memory */
};

/* Who touched two bytes of threadgroup memory last. A reader or writer is a thread, or a whole simdgroup (a matrix). */
enum { WHO_NONE = 0xffff, WHO_SIMDGROUP = 0x8000, WHO_SEVERAL = 0x4000 };
struct shadow { uint32_t write_epoch, write_sg_epoch, read_epoch, read_sg_epoch; uint16_t writer, reader; };

/* seen: writer and reader of each two bytes of a buffer that the kernel may write, shared by all workers. */
struct range { char *lo, *hi; int index; std::atomic<uint32_t> *seen; };

struct run_state;                              /* of the dispatch */

struct worker {
    char *stacks, *stacks_end;
    char *memory;                              /* threadgroup memory, SIM_THREADGROUP_BYTES */
    shadow *shadows;
    range last;                                /* the buffer of the last access */
    range ranges[SIM_BUFFERS];
    int n_ranges;
    run_state *run;
    void *buffers[SIM_BUFFERS];
    fiber *current;
    simdgroup *current_sg;
    uint32_t epoch, buffer_epoch;              /* threadgroup barriers passed, by kind of memory; never go back */
    uint32_t group_index;
    unsigned long memory_used;
    void *root, *scheduler;                    /* their stack pointers while a fiber runs */
    uint64_t random;
    int n_threads, n_sg;
    bool failed, no_races, rough;
    fiber fibers[SIM_MAX_THREADS];
    simdgroup sg[SIM_GROUPS];
};

extern thread_local worker *sim_worker __attribute__((tls_model("initial-exec")));

/* Records the first fault of the dispatch and leaves the fiber for good. */
[[noreturn]] void sim_fault(worker *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* An access by the current thread, or by its whole simdgroup. */
void sim_access(worker *w, const void *p, unsigned long size, bool write, bool whole_simdgroup);

#endif
