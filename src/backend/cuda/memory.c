/* Buffers on the device. The host side blocks; steps never allocate. */
#include "backend/cuda/host.h"

#include <stdlib.h>
#include <string.h>

size_t ds_cuda_elem_bytes(struct ds_backend *be, enum ds_buf_kind kind)
{
    switch (kind) {
    case DS_BUF_ACT: case DS_BUF_PROJ: return 2;
    case DS_BUF_KV: return ds_cuda_of(be)->kv_f16 ? 2 : 4;
    case DS_BUF_ROUTE: return sizeof(struct ds_route_slot);
    default: return 4;
    }
}

static size_t value_bytes(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim)
{
    return (rows * dim * ds_cuda_elem_bytes(be, kind) + 15) & ~(size_t)15;
}

/* Activations that may hold e4m3 have a scale a row behind the values. */
uint64_t ds_cuda_buf_bytes(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim)
{
    const bool scales = kind == DS_BUF_ACT && ds_cuda_of(be)->f8_kinds;
    return value_bytes(be, kind, rows, dim) + (scales ? rows * sizeof(float) : 0);
}

bool ds_cuda_mem_take(struct ds_cuda *c, void *p, size_t bytes, const char *what, struct ds_err *e)
{
    void **to = p;
    *to = NULL;
    if (!bytes) return true;
    cudaError_t st = c->be.plan_only ? cudaSuccess : cudaMalloc(to, bytes);
    if (st == cudaSuccess) {
        c->held += bytes;
        return true;
    }
    *to = NULL;
    (void)cudaGetLastError();
    ds_fail(e, DS_ENOMEM, "the GPU refused %.1f MiB for %s: %s", (double)bytes / 1048576.0, what, cudaGetErrorString(st));
    return false;
}

void ds_cuda_mem_give(struct ds_cuda *c, void *p, size_t bytes)
{
    if (p) cudaFree(p);
    c->held -= bytes;
}

bool ds_cuda_room(struct ds_cuda *c, struct ds_cuda_room *r, size_t bytes, const char *what, struct ds_err *e)
{
    struct ds_err own = { 0 };
    if (r->bytes >= bytes) return true;
    if (r->p) {
        ds_cuda_ok(c, cudaStreamSynchronize(c->stream), "growing scratch");
        ds_cuda_graphs_drop(c);
    }
    ds_cuda_room_free(c, r);
    if (ds_cuda_mem_take(c, &r->p, bytes, what, e ? e : &own)) {
        r->bytes = bytes;
        return true;
    }
    if (!e && !c->err.code) c->err = own;
    return false;
}

void ds_cuda_room_free(struct ds_cuda *c, struct ds_cuda_room *r)
{
    ds_cuda_mem_give(c, r->p, r->bytes);
    *r = (struct ds_cuda_room){ 0 };
}

struct ds_buf *ds_cuda_buf_new(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim, struct ds_err *e)
{
    struct ds_cuda *c = ds_cuda_of(be);
    struct ds_buf *b = calloc(1, sizeof *b);
    if (!b) {
        ds_fail(e, DS_ENOMEM, "the system refused memory for a buffer");
        return NULL;
    }
    *b = (struct ds_buf){ .kind = kind, .rows = rows, .dim = dim };
    const size_t bytes = (size_t)ds_cuda_buf_bytes(be, kind, rows, dim);
    if (!ds_cuda_mem_take(c, &b->own, bytes, "a buffer", e)) goto fail;
    b->bytes = bytes;
    if (b->own && kind == DS_BUF_ACT && c->f8_kinds) b->scale = (float *)(void *)((char *)b->own + value_bytes(be, kind, rows, dim));
    if (b->own && ds_cuda_check(cudaMemsetAsync(b->own, 0, b->bytes, c->stream), "clearing a buffer", e)) goto fail;
    return b;
fail:
    ds_cuda_buf_free(be, b);
    return NULL;
}

void ds_cuda_buf_free(struct ds_backend *be, struct ds_buf *b)
{
    struct ds_cuda *c = ds_cuda_ready(be);
    if (!b) return;
    if (b->own) cudaStreamSynchronize(c->stream);
    ds_cuda_graphs_drop(c);
    if (c->tiles_of == b) c->tiles_of = NULL;
    ds_cuda_mem_give(c, b->own, b->bytes);
    free(b);
}

/* --- transfers: through pinned staging, piece by piece; while the device fills one piece the host threads empty the other --- */

enum { TASK = 1 << 16 };                                    /* elements of one host task */

/* One piece between staging and the caller's memory. */
struct piece {
    const struct ds_buf *b;
    void *stage, *host;
    size_t n, es;
    bool read, as_f32;
};

static void widen(float *dst, const uint16_t *src, size_t n, bool f16)
{
    if (f16)
        for (size_t i = 0; i < n; i++) dst[i] = ds_f16_to_f32(src[i]);
    else
        for (size_t i = 0; i < n; i++) {
            const uint32_t bits = (uint32_t)src[i] << 16;
            memcpy(&dst[i], &bits, sizeof bits);
        }
}

static void narrow(uint16_t *dst, const float *src, size_t n, bool f16)
{
    if (f16)
        for (size_t i = 0; i < n; i++) dst[i] = ds_f32_to_f16(src[i]);
    else
        for (size_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &src[i], sizeof bits);
            const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, nan = bits >> 16 | 0x40;
            dst[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
        }
}

static void move_task(void *ctx, int task, int thread)
{
    const struct piece *p = ctx;
    const size_t at = (size_t)task * TASK, n = p->n - at < TASK ? p->n - at : TASK;
    const bool f16 = p->b->kind == DS_BUF_KV;
    char *stage = (char *)p->stage + at * p->es;
    (void)thread;
    if (!p->as_f32) {
        char *host = (char *)p->host + at * p->es;
        memcpy(p->read ? host : stage, p->read ? stage : host, n * p->es);
    } else if (p->read) {
        widen((float *)p->host + at, (const uint16_t *)(void *)stage, n, f16);
    } else {
        narrow((uint16_t *)(void *)stage, (const float *)p->host + at, n, f16);
    }
}

static void move(struct ds_cuda *c, struct piece *p) { ds_pool_run(c->pool, move_task, p, (int)((p->n + TASK - 1) / TASK)); }

/* Elements [off, off+n) of b between the device and staging, row by row where the buffer is a view. */
static bool copy_piece(struct ds_cuda *c, const struct ds_buf *b, void *stage, size_t off, size_t n, bool read)
{
    const size_t es = ds_cuda_elem_bytes(&c->be, b->kind);
    const enum cudaMemcpyKind kind = read ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    const char *doing = read ? "reading a buffer" : "writing a buffer";
    if (!b->view) {
        char *dev = (char *)b->own + off * es;
        return ds_cuda_ok(c, cudaMemcpyAsync(read ? stage : dev, read ? dev : stage, n * es, kind, c->stream), doing);
    }
    for (size_t done = 0; done < n;) {
        const size_t at = off + done, col = at % b->dim, left = b->dim - col, m = left < n - done ? left : n - done;
        const size_t rows = m == b->dim ? (n - done) / b->dim : 1, host_ld = m * es, dev_ld = (size_t)b->ld * es;
        char *dev = (char *)(b->view + (int64_t)(at / b->dim) * b->ld + (int64_t)col), *h = (char *)stage + done * es;
        if (!ds_cuda_ok(c,
                        cudaMemcpy2DAsync(read ? h : dev, read ? host_ld : dev_ld, read ? dev : h, read ? dev_ld : host_ld,
                                          m * es, rows, kind, c->stream),
                        doing))
            return false;
        done += m * rows;
    }
    return true;
}

/* host: stored bytes, or f32 of a 16-bit buffer. Read: piece i comes while the threads move piece i-1; write: the other way round. */
static void transfer(struct ds_cuda *c, const struct ds_buf *b, void *host, size_t off, size_t n, bool read, bool as_f32)
{
    const size_t es = ds_cuda_elem_bytes(&c->be, b->kind), step = DS_CUDA_STAGE_BYTES / es, host_es = as_f32 ? sizeof(float) : es;
    const char *doing = read ? "reading a buffer" : "writing a buffer";
    struct ds_err e = { 0 };
    if (ds_cuda_staging(c, &e)) {
        if (!c->err.code) c->err = e;
        return;
    }
    size_t before = 0;                                      /* elements of the piece in the other staging */
    int which = 0;
    for (size_t at = 0; at < n; at += step, which ^= 1) {
        const size_t m = n - at < step ? n - at : step;
        struct piece p = { b, c->staging[which], (char *)host + at * host_es, m, es, read, as_f32 };
        if (!read) {
            if (!ds_cuda_ok(c, cudaEventSynchronize(c->staged[which]), doing)) return;
            move(c, &p);
        }
        if (!copy_piece(c, b, c->staging[which], off + at, m, read) ||
            !ds_cuda_ok(c, cudaEventRecord(c->staged[which], c->stream), doing))
            return;
        if (read && before) {
            struct piece last = { b, c->staging[!which], (char *)host + (at - step) * host_es, before, es, read, as_f32 };
            if (!ds_cuda_ok(c, cudaEventSynchronize(c->staged[!which]), doing)) return;
            move(c, &last);
        }
        before = m;
    }
    if (!ds_cuda_ok(c, cudaStreamSynchronize(c->stream), doing) || !read || !n) return;
    struct piece last = { b, c->staging[!which], (char *)host + (n - before) * host_es, before, es, read, as_f32 };
    move(c, &last);
}

void ds_cuda_buf_get(struct ds_backend *be, void *dst, const struct ds_buf *src, size_t off, size_t n)
{
    transfer(ds_cuda_ready(be), src, dst, off, n, true, false);
}

void ds_cuda_buf_read(struct ds_backend *be, float *dst, const struct ds_buf *src, size_t off, size_t n)
{
    transfer(ds_cuda_ready(be), src, dst, off, n, true, ds_cuda_elem_bytes(be, src->kind) == 2);
}

static void put(struct ds_backend *be, struct ds_buf *dst, size_t off, const void *src, size_t n, bool as_f32)
{
    union { const void *in; void *io; } host = { src };     /* only read in this direction */
    dst->view = NULL;
    dst->f8 = false;
    transfer(ds_cuda_ready(be), dst, host.io, off, n, false, as_f32);
}

void ds_cuda_buf_set(struct ds_backend *be, struct ds_buf *dst, size_t off, const void *src, size_t n)
{
    put(be, dst, off, src, n, false);
}

void ds_cuda_buf_write(struct ds_backend *be, struct ds_buf *dst, size_t off, const float *src, size_t n)
{
    put(be, dst, off, src, n, ds_cuda_elem_bytes(be, dst->kind) == 2);
}

float *ds_cuda_buf_map(struct ds_backend *be, struct ds_buf *b, bool write)
{
    (void)be; (void)b; (void)write;
    return NULL;
}
