/* Buffers: memory that CPU and GPU share, so the host copies without a transfer, once the GPU is done with it. */
#include "backend/metal/host.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 256 };                  /* of parts inside one buffer */

static size_t aligned(size_t n) { return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1); }

/* --- the plan --- */

ds_status ds_metal_room(const struct ds_metal *m, uint64_t bytes, const char *what, struct ds_err *e)
{
    if (m->used + bytes <= m->facts.working_set) return DS_OK;
    return ds_fail(e, DS_ENOMEM,
                   "%s needs %.1f MiB beside %.1f MiB in use, but this GPU should use at most %.1f MiB "
                   "(sudo sysctl iogpu.wired_limit_mb=N raises it until the next start)",
                   what, (double)bytes * 0x1p-20, (double)m->used * 0x1p-20, (double)m->facts.working_set * 0x1p-20);
}

struct ds_mtl_buf *ds_metal_alloc(struct ds_metal *m, size_t bytes, const char *what, struct ds_err *e)
{
    if (bytes > m->facts.max_buffer) {
        ds_fail(e, DS_ENOMEM, "%s needs %.1f MiB in one piece, but this GPU takes at most %.1f MiB", what, (double)bytes * 0x1p-20,
                (double)m->facts.max_buffer * 0x1p-20);
        return NULL;
    }
    if (ds_metal_room(m, bytes, what, e)) return NULL;
    struct ds_mtl_buf *b = ds_mtl_buf_new(m->dev, bytes);
    if (b) m->used += bytes;
    else ds_fail(e, DS_ENOMEM, "the GPU refused %.1f MiB for %s", (double)bytes * 0x1p-20, what);
    return b;
}

void ds_metal_release(struct ds_metal *m, struct ds_mtl_buf *b, size_t bytes)
{
    if (!b) return;
    ds_mtl_buf_free(b);
    m->used -= bytes;
}

uint64_t ds_metal_mem_available(struct ds_backend *be, const struct ds_sizes *sz)
{
    (void)sz;
    const struct ds_metal *m = ds_metal_of(be);
    return m->used < m->facts.working_set ? m->facts.working_set - m->used : 0;
}

/* --- buffers --- */

size_t ds_metal_elem_bytes(struct ds_backend *be, enum ds_buf_kind kind)
{
    if (kind == DS_BUF_KV) return ds_metal_of(be)->kv_f16 ? 2 : 4;
    return kind == DS_BUF_ROUTE ? sizeof(struct ds_route_slot) : 4;
}

static int tiles_of(const struct ds_metal *m, size_t slots) { return (int)(slots / DS_METAL_TILE_TOKENS) + m->n_expert; }

/* Where the parts of a buffer lie. */
static void lay_out(const struct ds_metal *m, struct ds_buf *b)
{
    const size_t n = b->rows * b->dim;
    b->bytes = n * ds_metal_elem_bytes((struct ds_backend *)(uintptr_t)&m->be, b->kind);
    b->total = aligned(b->bytes ? b->bytes : 1);
    if (b->kind == DS_BUF_STATE) {
        b->total *= 2;
    } else if (b->kind == DS_BUF_ACT) {
        b->half_at = b->total;
        b->scale_at = b->half_at + aligned(2 * n);
        b->total = b->scale_at + aligned(b->rows * sizeof(float));
    } else if (b->kind == DS_BUF_ROUTE) {
        b->order_at = b->total;
        b->tiles_at = b->order_at + aligned(n * sizeof(uint32_t));
        b->total = b->tiles_at + aligned((size_t)tiles_of(m, n) * sizeof(struct ds_metal_tile));
    }
}

uint64_t ds_metal_buf_bytes(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim)
{
    struct ds_buf b = { .kind = kind, .rows = rows, .dim = dim };
    lay_out(ds_metal_of(be), &b);
    return b.total;
}

struct ds_buf *ds_metal_buf_new(struct ds_backend *be, enum ds_buf_kind kind, size_t rows, size_t dim, struct ds_err *e)
{
    struct ds_metal *m = ds_metal_of(be);
    struct ds_buf *b = calloc(1, sizeof *b);
    if (!b) {
        ds_fail(e, DS_ENOMEM, "the system refused memory for a buffer");
        return NULL;
    }
    b->kind = kind;
    b->rows = rows;
    b->dim = dim;
    lay_out(m, b);
    if ((b->mem = ds_metal_alloc(m, b->total, "a buffer", e))) return b;
    free(b);
    return NULL;
}

void ds_metal_buf_free(struct ds_backend *be, struct ds_buf *b)
{
    struct ds_metal *m = ds_metal_of(be);
    if (!b) return;
    ds_metal_sync(m);
    if (m->n_calls) m->once = true;    /* the list may name it */
    ds_metal_release(m, b->mem, b->total);
    free(b);
}

/* --- what ops touch --- */

static size_t version_at(const struct ds_metal *m, const struct ds_buf *b)
{
    const int v = b->version ^ (b->kind == DS_BUF_STATE && b->advanced == m->step);
    return v ? b->total / 2 : 0;
}

static struct ds_metal_mem part(struct ds_metal *m, const struct ds_buf *b, size_t off, size_t n)
{
    const size_t es = ds_metal_elem_bytes(&m->be, b->kind);
    return (struct ds_metal_mem){ b->mem, version_at(m, b) + off * es, n ? n * es : b->bytes - off * es };
}

struct ds_metal_mem ds_metal_in(struct ds_metal *m, const struct ds_buf *b, size_t off, size_t n) { return part(m, b, off, n); }

struct ds_metal_mem ds_metal_out(struct ds_metal *m, struct ds_buf *b, size_t off, size_t n)
{
    b->derived = 0;
    if (b->kind != DS_BUF_STATE) {
        b->born = m->origin;
    } else {
        m->in_place = true;            /* the list stays until the versions change */
        if (b->advanced != m->step) {
            b->advanced = m->step;
            b->next_written = m->written;
            m->written = b;
        }
    }
    return part(m, b, off, n);
}

struct ds_metal_mem ds_metal_inout(struct ds_metal *m, struct ds_buf *b, size_t off, size_t n)
{
    b->derived = 0;
    m->in_place = true;
    if (b->born != m->origin) m->once = true;      /* what it held before cannot be had again */
    return part(m, b, off, n);
}

/* --- the host's side --- */

static unsigned char *at(struct ds_metal *m, const struct ds_buf *b, size_t off)
{
    unsigned char *p = ds_mtl_buf_ptr(b->mem);
    return p + version_at(m, b) + off * ds_metal_elem_bytes(&m->be, b->kind);
}

/* Waits; after it the host may write. */
static void host_writes(struct ds_metal *m, struct ds_buf *b)
{
    ds_metal_sync(m);
    if (m->n_calls) m->once = true;
    b->derived = 0;
}

void ds_metal_buf_get(struct ds_backend *be, void *dst, const struct ds_buf *src, size_t off, size_t n)
{
    struct ds_metal *m = ds_metal_of(be);
    ds_metal_sync(m);
    memcpy(dst, at(m, src, off), n * ds_metal_elem_bytes(be, src->kind));
}

void ds_metal_buf_set(struct ds_backend *be, struct ds_buf *dst, size_t off, const void *src, size_t n)
{
    struct ds_metal *m = ds_metal_of(be);
    host_writes(m, dst);
    memcpy(at(m, dst, off), src, n * ds_metal_elem_bytes(be, dst->kind));
}

static bool is_f16(struct ds_backend *be, const struct ds_buf *b) { return b->kind == DS_BUF_KV && ds_metal_of(be)->kv_f16; }

void ds_metal_buf_read(struct ds_backend *be, float *dst, const struct ds_buf *src, size_t off, size_t n)
{
    if (!is_f16(be, src)) {
        ds_metal_buf_get(be, dst, src, off, n);
        return;
    }
    ds_metal_sync(ds_metal_of(be));
    const uint16_t *p = (const uint16_t *)(void *)at(ds_metal_of(be), src, off);
    for (size_t i = 0; i < n; i++) dst[i] = ds_f16_to_f32(p[i]);
}

void ds_metal_buf_write(struct ds_backend *be, struct ds_buf *dst, size_t off, const float *src, size_t n)
{
    if (!is_f16(be, dst)) {
        ds_metal_buf_set(be, dst, off, src, n);
        return;
    }
    host_writes(ds_metal_of(be), dst);
    uint16_t *p = (uint16_t *)(void *)at(ds_metal_of(be), dst, off);
    for (size_t i = 0; i < n; i++) p[i] = ds_f32_to_f16(src[i]);
}

float *ds_metal_buf_map(struct ds_backend *be, struct ds_buf *b, bool write)
{
    struct ds_metal *m = ds_metal_of(be);
    if (is_f16(be, b) || b->kind == DS_BUF_ROUTE) return NULL;
    if (write) host_writes(m, b);
    else ds_metal_sync(m);
    return (float *)(void *)at(m, b, 0);
}
