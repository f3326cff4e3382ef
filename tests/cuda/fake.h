/* A CUDA device without a device: memory that is counted and limited, copies that copy, kernels that do nothing. Programs in
 * this folder are linked with it in place of the runtime, cuBLASLt and the kernels. */
#ifndef DS_TESTS_CUDA_FAKE_H
#define DS_TESTS_CUDA_FAKE_H

#include <stddef.h>

struct ds_fake_cuda {
    size_t limit;                  /* bytes of the device */
    size_t held, peak;             /* bytes taken now, at most */
    long allocations;              /* so far */
    long fail_at;                  /* the allocation of this number is refused; 0: none */
    size_t pinned;                 /* host blocks taken now */
    long products, graphs, syncs;  /* cublasLtMatmul calls, graph launches, waits for the stream */
    int events, streams;           /* alive */
};
extern struct ds_fake_cuda ds_fake;

#endif
