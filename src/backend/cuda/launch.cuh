/* Kernels that follow one another without a gap (programmatic dependent launch, Hopper's own code only).
 *
 * A kernel launched by launch() may start while the one before it still runs: until prior_done() it
 * touches only what no kernel of a step writes (weights). Every such kernel calls prior_done() in every
 * thread, so that what was done before its predecessor is done too; next_may_start() lets the following kernel come. */
#ifndef DS_BACKEND_CUDA_LAUNCH_CUH
#define DS_BACKEND_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

static __device__ __forceinline__ void prior_done()
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
static __device__ __forceinline__ void next_may_start()
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Whether the device runs the code that has the two instructions. */
static inline bool can_overlap()
{
    static const bool yes = [] {
        int device = 0, major = 0, minor = 0;
        return cudaGetDevice(&device) == cudaSuccess &&
               cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
               cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess && major == 9 && minor == 0;
    }();
    return yes;
}

template <typename... P, typename... A>
static cudaError_t launch(void (*kernel)(P...), dim3 grid, unsigned threads, size_t shared, cudaStream_t s, A... args)
{
    cudaLaunchAttribute a[2] = {};
    a[0].id = cudaLaunchAttributePreferredSharedMemoryCarveout;      /* an SM holds kernels of one division at a time */
    a[0].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
    a[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    a[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = grid;
    c.blockDim = dim3(threads);
    c.dynamicSmemBytes = shared;
    c.stream = s;
    c.attrs = a;
    c.numAttrs = can_overlap() ? 2 : 0;
    return cudaLaunchKernelEx(&c, kernel, P(args)...);
}

#endif
