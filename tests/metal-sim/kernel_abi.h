/* Between the generated wrappers (wrap.py), the stand-in of the Metal library (msl_exec.h) and the executor (sim.cpp). */
#ifndef DS_TESTS_METAL_SIM_KERNEL_ABI_H
#define DS_TESTS_METAL_SIM_KERNEL_ABI_H

struct sim_uint3 { unsigned x, y, z; };

/* One thread's view of a dispatch. */
struct sim_thread {
    void *const *buffer;
    sim_uint3 threads_per_threadgroup, threadgroups_per_grid, threadgroup_position_in_grid, thread_position_in_threadgroup;
    unsigned thread_index_in_threadgroup, thread_index_in_simdgroup, simdgroup_index_in_threadgroup, simdgroups_per_threadgroup;
};

/* size: bytes that a reference argument needs; 0 for a pointer. */
struct sim_param { int index; unsigned long size; bool written; };

struct sim_kernel {
    const char *name;
    void (*run)(const sim_thread &t);
    const sim_param *params;
    int n_params;
    unsigned max_threads;                      /* of the attribute; 0: none */
    sim_kernel *next;
};
struct sim_register { explicit sim_register(sim_kernel *k); };

/* What lanes exchange. The value of a lane travels as 32 bits. */
enum sim_op {
    SIM_SUM_F32, SIM_MAX_F32, SIM_MIN_F32, SIM_SUM_I32, SIM_MAX_I32, SIM_MIN_I32, SIM_MAX_U32, SIM_MIN_U32, SIM_AND, SIM_OR,
    SIM_PREFIX_INCLUSIVE_F32, SIM_PREFIX_EXCLUSIVE_F32, SIM_PREFIX_INCLUSIVE_I32, SIM_PREFIX_EXCLUSIVE_I32,
    SIM_SHUFFLE, SIM_SHUFFLE_XOR, SIM_SHUFFLE_UP, SIM_SHUFFLE_DOWN, SIM_BROADCAST,
    SIM_SIMDGROUP_BARRIER, SIM_THREADGROUP_BARRIER,
    SIM_MATRIX_LOAD, SIM_MATRIX_STORE, SIM_MATRIX_MULTIPLY
};

/* An 8x8 matrix is two elements in each lane; which two is the executor's secret. */
struct sim_matrix_access { void *p; unsigned long stride, column, row; bool transpose, half; };
struct sim_fragment { float e[2]; };

extern "C" {
unsigned sim_exchange(int op, unsigned value, unsigned argument, int line);
void sim_barrier(int op, int flags, int line);
void sim_matrix(int op, sim_fragment *d, const sim_fragment *a, const sim_fragment *b, const sim_fragment *c, const sim_matrix_access *m,
                bool round_to_half, int line);
void sim_matrix_diagonal(sim_fragment *d, float v);
void *sim_threadgroup_memory(unsigned long size, unsigned long align);
float sim_rough(float exact);                  /* what a function of the device may return instead */
int sim_constant(int index);                   /* [[function_constant(index)]] */
}

enum { SIM_MEM_NONE = 0, SIM_MEM_DEVICE = 1, SIM_MEM_THREADGROUP = 2 };

#endif
