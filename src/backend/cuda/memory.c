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

uint64_t ds_cuda_buf_bytes(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim)
{
    return (uint64_t)rows * dim * ds_cuda_elem_bytes(be, kind);
}

void *ds_cuda_alloc(size_t bytes, const char *what, struct ds_err *e)
{
    void *p = NULL;
    cudaError_t st = cudaMalloc(&p, bytes ? bytes : 1);
    if (st == cudaSuccess) return p;
    (void)cudaGetLastError();
    ds_fail(e, DS_ENOMEM, "the GPU refused %.1f MiB for %s: %s", (double)bytes / 1048576.0, what, cudaGetErrorString(st));
    return NULL;
}

struct ds_buf *ds_cuda_buf_new(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim, struct ds_err *e)
{
    struct ds_cuda *c = ds_cuda_of(be);
    struct ds_buf *b = calloc(1, sizeof *b);
    if (!b) {
        ds_fail(e, DS_ENOMEM, "the system refused memory for a buffer");
        return NULL;
    }
    b->kind = kind;
    b->rows = rows;
    b->dim = dim;
    b->bytes = (size_t)ds_cuda_buf_bytes(be, kind, rows, dim);
    if (!(b->own = ds_cuda_alloc(b->bytes, "a buffer", e))) goto fail;
    if (ds_cuda_check(cudaMemsetAsync(b->own, 0, b->bytes, c->stream), "clearing a buffer", e)) goto fail;
    return b;
fail:
    ds_cuda_buf_free(be, b);
    return NULL;
}

void ds_cuda_buf_free(struct ds_backend *be, struct ds_buf *b)
{
    struct ds_cuda *c = ds_cuda_of(be);
    if (!b) return;
    cudaStreamSynchronize(c->stream);
    for (struct ds_cuda_wide **p = &c->wides; *p;) {       /* results that involve this buffer go with it */
        struct ds_cuda_wide *w = *p;
        bool mine = false;
        for (int i = 0; i < w->n_y; i++) mine |= w->y[i] == b;
        if (!mine) {
            p = &w->next;
            continue;
        }
        for (int i = 0; i < w->n_y; i++)
            if (w->y[i] != b) w->y[i]->view = NULL;
        *p = w->next;
        cudaFree(w->p);
        free(w);
    }
    cudaFree(b->own);
    cudaFree(b->aux);
    free(b);
}

/* Stored bytes of elements [off, off+n) to or from dst, row by row where the buffer is a view. */
static void transfer(struct ds_cuda *c, const struct ds_buf *b, void *host, size_t off, size_t n, bool read)
{
    const size_t es = ds_cuda_elem_bytes(&c->be, b->kind);
    const enum cudaMemcpyKind kind = read ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    const char *doing = read ? "reading a buffer" : "writing a buffer";
    if (!n) return;
    if (!b->view) {
        char *dev = (char *)b->own + off * es;
        ds_cuda_ok(c, cudaMemcpyAsync(read ? host : dev, read ? dev : host, n * es, kind, c->stream), doing);
    } else {
        for (size_t done = 0; done < n;) {
            const size_t at = off + done, row = at / b->dim, col = at % b->dim, left = b->dim - col,
                         m = left < n - done ? left : n - done;
            char *dev = (char *)(b->view + (int64_t)row * b->ld + (int64_t)col), *h = (char *)host + done * es;
            const size_t rows = col == 0 && m == b->dim ? (n - done) / b->dim : 1;
            ds_cuda_ok(c, cudaMemcpy2DAsync(read ? (void *)h : dev, read ? m * es : (size_t)b->ld * es, read ? dev : h,
                                            read ? (size_t)b->ld * es : m * es, m * es, rows, kind, c->stream), doing);
            done += m * rows;
        }
    }
    ds_cuda_ok(c, cudaStreamSynchronize(c->stream), doing);
}

void ds_cuda_buf_get(struct ds_backend *be, void *dst, const struct ds_buf *src, size_t off, size_t n)
{
    transfer(ds_cuda_of(be), src, dst, off, n, true);
}

void ds_cuda_buf_set(struct ds_backend *be, struct ds_buf *dst, size_t off, const void *src, size_t n)
{
    union { const void *in; void *io; } host = { src };     /* transfer only reads it in this direction */
    dst->view = NULL;
    transfer(ds_cuda_of(be), dst, host.io, off, n, false);
}

static bool is_16bit(struct ds_backend *be, const struct ds_buf *b) { return ds_cuda_elem_bytes(be, b->kind) == 2; }

void ds_cuda_buf_read(struct ds_backend *be, float *dst, const struct ds_buf *src, size_t off, size_t n)
{
    ds_cuda_buf_get(be, dst, src, off, n);
    if (!is_16bit(be, src)) return;
    const uint16_t *h = (const uint16_t *)dst;
    for (size_t i = n; i--;) {                              /* widening in place, from the end */
        uint16_t v;
        memcpy(&v, h + i, sizeof v);
        dst[i] = src->kind == DS_BUF_KV ? ds_f16_to_f32(v) : ds_bf16_to_f32(v);
    }
}

void ds_cuda_buf_write(struct ds_backend *be, struct ds_buf *dst, size_t off, const float *src, size_t n)
{
    if (!is_16bit(be, dst)) {
        ds_cuda_buf_set(be, dst, off, src, n);
        return;
    }
    uint16_t *h = malloc((n ? n : 1) * sizeof *h);
    if (!h) {
        ds_cuda_ok(ds_cuda_of(be), cudaErrorMemoryAllocation, "writing a buffer");
        return;
    }
    for (size_t i = 0; i < n; i++) h[i] = dst->kind == DS_BUF_KV ? ds_f32_to_f16(src[i]) : ds_f32_to_bf16(src[i]);
    ds_cuda_buf_set(be, dst, off, h, n);
    free(h);
}

float *ds_cuda_buf_map(struct ds_backend *be, struct ds_buf *b, bool write)
{
    (void)be; (void)b; (void)write;
    return NULL;
}
