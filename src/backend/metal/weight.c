/* Weights where the file lies: each tensor is a buffer without a copy over the pages that hold it, or several where it is
 * larger than a buffer may be. Types without a kernel are decoded once, and the report names them. */
#include "backend/metal/host.h"
#include "base/os.h"

#include <stdlib.h>
#include <string.h>

static ds_status refused(const struct ds_tensor *t, struct ds_err *e)
{
    return ds_fail(e, DS_ENOMEM, "tensor '%s': the system refused memory for it", t->name);
}

/* --- vectors: f32 --- */

static ds_status new_vector(struct ds_metal *m, struct ds_weight *w, struct ds_err *e)
{
    const struct ds_tensor *t = w->t;
    const size_t n = (size_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
    w->vec_bytes = n * sizeof(float);
    if (!(w->vec = ds_metal_alloc(m, w->vec_bytes, t->name, e))) return DS_ENOMEM;
    t->type->decode(ds_mtl_buf_ptr(w->vec), t->data, n);
    return DS_OK;
}

/* --- matrices --- */

/* Types without a kernel. A table of embeddings becomes f32, which holds every type's values exactly; a matrix f16. */
static ds_status decode(struct ds_weight *w, unsigned use, struct ds_err *e)
{
    const struct ds_tensor *t = w->t;
    const size_t row = (size_t)w->in, rows = (size_t)w->out * (size_t)w->n_expert;
    w->type = &ds_types[use & DS_USE_EMBED ? DS_T_F32 : DS_T_F16];
    w->copy_bytes = row * rows * w->type->bytes;
    float *line = malloc(row * sizeof *line);
    w->copy = ds_mem_alloc(w->copy_bytes);
    if (!line || !w->copy) {
        free(line);
        return refused(t, e);
    }
    const size_t from = ds_type_row_bytes(t->type, row), to = row * w->type->bytes;
    for (size_t r = 0; r < rows; r++) {
        t->type->decode(line, (const char *)t->data + r * from, row);
        w->type->encode((char *)w->copy + r * to, line, row);
    }
    free(line);
    return DS_OK;
}

/* A buffer over the pages that hold [p, p + bytes). A copy stands in where the system refuses and the plan has room. */
static ds_status wrap(struct ds_metal *m, struct ds_metal_piece *piece, const char *p, size_t bytes, const char *name, struct ds_err *e)
{
    const size_t page = m->facts.page, skip = (uintptr_t)p % page, held = (skip + bytes + page - 1) / page * page;
    piece->bytes = bytes;
    if (ds_metal_room(m, held, name, e)) return DS_ENOMEM;
    if ((piece->b = ds_mtl_buf_wrap(m->dev, p - skip, held))) {
        piece->off = skip;
        piece->held = held;
        m->used += held;
        return DS_OK;
    }
    if (!(piece->b = ds_metal_alloc(m, bytes, name, e))) return DS_ENOMEM;
    piece->held = bytes;
    memcpy(ds_mtl_buf_ptr(piece->b), p, bytes);
    return DS_OK;
}

/* Cut between experts, or between rows at multiples of a product's tile. */
static ds_status new_pieces(struct ds_metal *m, struct ds_weight *w, const char *data, struct ds_err *e)
{
    const bool experts = w->n_expert > 1;
    const size_t row = ds_type_row_bytes(w->type, (size_t)w->in), unit = experts ? row * (size_t)w->out : row * DS_METAL_TILE_ROWS;
    const int units = experts ? w->n_expert : (w->out + DS_METAL_TILE_ROWS - 1) / DS_METAL_TILE_ROWS;
    const size_t most = m->facts.max_buffer > 2 * m->facts.page ? (size_t)m->facts.max_buffer - 2 * m->facts.page : 0;
    const int per = most / unit < (size_t)units ? (int)(most / unit) : units;
    if (!per)
        return ds_fail(e, DS_ENOMEM, "tensor '%s': %.1f MiB of it must lie in one piece, but this GPU takes at most %.1f MiB", w->t->name,
                       (double)unit * 0x1p-20, (double)m->facts.max_buffer * 0x1p-20);
    const int n = (units + per - 1) / per, total = experts ? w->n_expert : w->out, step = experts ? per : per * DS_METAL_TILE_ROWS;
    if (!(w->pieces = calloc((size_t)n, sizeof *w->pieces))) return refused(w->t, e);
    for (; w->n_pieces < n; w->n_pieces++) {
        struct ds_metal_piece *p = &w->pieces[w->n_pieces];
        p->first = w->n_pieces * step;
        p->n = total - p->first < step ? total - p->first : step;
        const size_t one = experts ? unit : row;
        ds_status st = wrap(m, p, data + (size_t)p->first * one, (size_t)p->n * one, w->t->name, e);
        if (st) return st;
    }
    return DS_OK;
}

static ds_status new_matrix(struct ds_metal *m, struct ds_weight *w, unsigned use, struct ds_err *e)
{
    ds_status st = DS_OK;
    w->type = w->t->type;
    if (!ds_metal_has_type(w->type)) st = decode(w, use, e);
    if (!st) st = ds_metal_typed_pipelines(m, w->type, e);
    return st ? st : new_pieces(m, w, w->copy ? w->copy : w->t->data, e);
}

struct ds_weight *ds_metal_weight_new(struct ds_backend *be, const struct ds_tensor *t, unsigned use, struct ds_err *e)
{
    struct ds_weight *w = calloc(1, sizeof *w);
    if (!w) {
        refused(t, e);
        return NULL;
    }
    *w = (struct ds_weight){ .t = t, .in = (int)t->ne[0], .out = (int)t->ne[1], .n_expert = (int)t->ne[2] };
    ds_status st = DS_OK;
    if (use & DS_USE_VECTOR) st = new_vector(ds_metal_of(be), w, e);
    if (!st && use & (DS_USE_GEMM | DS_USE_EMBED)) st = new_matrix(ds_metal_of(be), w, use, e);
    if (!st) return w;
    ds_metal_weight_free(be, w);
    return NULL;
}

void ds_metal_weight_free(struct ds_backend *be, struct ds_weight *w)
{
    struct ds_metal *m = ds_metal_of(be);
    if (!w) return;
    ds_metal_sync(m);
    for (int i = 0; i < w->n_pieces; i++) ds_metal_release(m, w->pieces[i].b, w->pieces[i].held);
    ds_metal_release(m, w->vec, w->vec_bytes);
    ds_mem_free(w->copy, w->copy_bytes);
    free(w->pieces);
    free(w);
}

uint64_t ds_metal_weight_extra_bytes(struct ds_backend *be, const struct ds_weight *w)
{
    uint64_t n = w->vec_bytes + w->copy_bytes;
    (void)be;
    for (int i = 0; i < w->n_pieces; i++)
        if (w->pieces[i].held == w->pieces[i].bytes) n += w->pieces[i].held;       /* a copy stands in */
    return n;
}
