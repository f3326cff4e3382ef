/* The GPU as the backend sees it: some fifteen calls that only forward.
 *
 * Implementations: mtl_apple.m over Apple's Metal, and a software device for tests (tests/metal-sim). Nothing here decides
 * anything: sizes, offsets, chunking and lifetimes are the caller's, so that the tests exercise them.
 *
 * One queue; command buffers run in the order in which they were ended, dispatches inside one in the order in which they
 * were encoded, each seeing what earlier ones wrote. Calls come from one thread at a time. Strings are the device's own. */
#ifndef DS_BACKEND_METAL_MTL_H
#define DS_BACKEND_METAL_MTL_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ds_mtl;                     /* device, queue and compiled shaders */
struct ds_mtl_buf;
struct ds_mtl_fn;                  /* pipeline */
struct ds_mtl_cmd;                 /* command buffer with one serial compute encoder */

struct ds_mtl_facts {
    char name[64];                 /* "Apple M3 Pro"; the software device says so */
    bool software;                 /* no GPU: results prove code, times prove nothing */
    int family;                    /* Apple GPU family: 7 M1, 8 M2, 9 M3 and M4, 10 M5; 0: none of them */
    size_t page;                   /* base and length of wrapped memory are multiples of this */
    uint64_t max_buffer;           /* bytes of one buffer */
    uint64_t working_set;          /* bytes that the system recommends to use at most */
    int max_threads;               /* of a threadgroup, before any pipeline's own limit */
    int thermal;                   /* 0 nominal, 1 fair, 2 serious, 3 critical; -1 unknown */
    bool low_power;
};
struct ds_mtl_fn_facts { int max_threads, width; size_t static_memory; };

/* How a command buffer ended. */
enum ds_mtl_status { DS_MTL_DONE, DS_MTL_FAILED };
struct ds_mtl_result {
    enum ds_mtl_status status;
    int code;                      /* of the failure: MTLCommandBufferError; 2 timeout, 8 out of memory */
    char reason[160];
    uint64_t start_ns, end_ns;     /* on the GPU, one clock for all buffers; 0: the system gave no times */
};

/* Compiles every shader (language 3.1, safe maths). NULL with a sentence: no device, or one that cannot run this, or the
 * compiler's first message with the shader's name. */
struct ds_mtl *ds_mtl_open(struct ds_err *e);
void ds_mtl_close(struct ds_mtl *d);                       /* NULL allowed; everything made from it is freed before */
void ds_mtl_facts(struct ds_mtl *d, struct ds_mtl_facts *f);

/* Memory that both sides address, zeroed. NULL: refused. */
struct ds_mtl_buf *ds_mtl_buf_new(struct ds_mtl *d, size_t bytes);
/* The same over memory that exists and outlives the buffer, without a copy; read only to the GPU. base and bytes are
 * multiples of the page. NULL: refused. */
struct ds_mtl_buf *ds_mtl_buf_wrap(struct ds_mtl *d, const void *base, size_t bytes);
void ds_mtl_buf_free(struct ds_mtl_buf *b);                /* NULL allowed; no buffer in flight uses it */
void *ds_mtl_buf_ptr(struct ds_mtl_buf *b);                /* valid while no command buffer in flight writes there */

/* A kernel by its name, function constants i = consts[i] (int). NULL: no such kernel, or the compiler refused it. */
struct ds_mtl_fn *ds_mtl_fn_new(struct ds_mtl *d, const char *name, const int32_t *consts, int n_consts, struct ds_err *e);
void ds_mtl_fn_free(struct ds_mtl_fn *f);
void ds_mtl_fn_facts(struct ds_mtl_fn *f, struct ds_mtl_fn_facts *facts);

/* --- a command buffer --- */
struct ds_mtl_cmd *ds_mtl_begin(struct ds_mtl *d);         /* NULL: refused */
void ds_mtl_use(struct ds_mtl_cmd *c, struct ds_mtl_fn *f);
/* Buffer at byte off; the kernel may touch `bytes` from there: Metal does not know the length, the software device holds it to it. */
void ds_mtl_bind(struct ds_mtl_cmd *c, int index, struct ds_mtl_buf *b, size_t off, size_t bytes);
void ds_mtl_bytes(struct ds_mtl_cmd *c, int index, const void *p, size_t n);   /* by value; n <= 4096 */
/* groups x threads. Bindings hold for this dispatch only and are set again for the next. */
void ds_mtl_dispatch(struct ds_mtl_cmd *c, const uint32_t groups[3], const uint32_t threads[3]);
void ds_mtl_end(struct ds_mtl_cmd *c);                     /* hands it to the queue */
/* Waits until it has completed, says how, and frees it. */
void ds_mtl_wait(struct ds_mtl_cmd *c, struct ds_mtl_result *r);

#endif
