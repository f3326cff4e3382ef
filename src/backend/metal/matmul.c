/* Weight products: tiles on the file's blocks, or row by row for a few tokens. Tiles of quantised weights read half
 * activations, those of float weights (f16, bf16, f32) the activations as they are. One dispatch never carries more than a
 * command buffer's work. */
#include "backend/metal/host.h"

#include <stdio.h>

static uint32_t up(int64_t a, int64_t b) { return (uint32_t)((a + b - 1) / b); }

static struct ds_metal_mem half_of(const struct ds_buf *x, int row, int n)
{
    return (struct ds_metal_mem){ x->mem, x->half_at + (size_t)row * x->dim * 2, (size_t)n * x->dim * 2 };
}

static struct ds_metal_mem scale_of(const struct ds_buf *x, int row, int n)
{
    return (struct ds_metal_mem){ x->mem, x->scale_at + (size_t)row * sizeof(float), (size_t)n * sizeof(float) };
}

static bool reads_half(const struct ds_weight *w) { return w->type->act != DS_ACT_NONE; }

/* n rows of x as tiles of w read them. */
static void bind_activations(struct ds_metal *m, struct ds_metal_call *c, const struct ds_weight *w, const struct ds_buf *x, int row, int n)
{
    if (reads_half(w)) {
        ds_metal_bind(c, half_of(x, row, n));
        ds_metal_bind(c, scale_of(x, row, n));
    } else {
        ds_metal_bind(c, ds_metal_in(m, x, (size_t)row * x->dim, (size_t)n * x->dim));
    }
}

/* The half copy of x's first n rows, made once per content. */
static void need_half(struct ds_metal *m, const struct ds_buf *b, int n)
{
    struct ds_buf *x = (struct ds_buf *)(uintptr_t)b;      /* a cache of the content, not content */
    const struct ds_metal_rows a = { .n = n, .dim = (int)x->dim };
    if (x->derived == m->step && x->derived_rows >= (size_t)n) return;
    struct ds_metal_call *c = ds_metal_call(m, m->fn[DS_MK_ACT_HALF], "rounding activations", &a, sizeof a);
    ds_metal_bind(c, ds_metal_in(m, x, 0, (size_t)n * x->dim));
    ds_metal_bind(c, half_of(x, 0, n));
    ds_metal_bind(c, scale_of(x, 0, n));
    ds_metal_go(m, c, (uint32_t)n, 1, 1, 256, 40.0 * n * (double)x->dim);
    x->derived = m->step;
    x->derived_rows = (size_t)n;
}

static struct ds_metal_mem piece_mem(const struct ds_metal_piece *p) { return (struct ds_metal_mem){ p->b, p->off, p->bytes }; }

/* Tokens that one dispatch may take: a multiple of the tile. */
static int tokens_within(const struct ds_metal *m, double work_per_token, int n)
{
    const double fit = m->budget / work_per_token;
    const int tile = DS_METAL_TILE_TOKENS, t = fit < tile ? tile : fit > n ? n : (int)fit / tile * tile;
    return t < 1 ? n : t;
}

struct product { struct ds_buf *y; const struct ds_weight *w; const struct ds_buf *x; bool add; int ldy; };

/* Tokens t0..t0+n-1 by one piece of the matrix. y is bound from the piece's first column on, to the end of the last row's part. */
static void one_piece(struct ds_metal *m, const struct product *p, const struct ds_metal_piece *w, int t0, int n)
{
    const int in = p->w->in, out = w->n;
    const struct ds_metal_gemm a = { .n = n, .in = in, .out = out, .ldy = p->ldy, .add = p->add };
    const size_t off = (size_t)t0 * (size_t)p->ldy + (size_t)w->first, span = (size_t)(n - 1) * (size_t)p->ldy + (size_t)out;
    const bool few = n <= DS_METAL_GEMV_TOKENS;
    const bool edges = n % DS_METAL_TILE_TOKENS || out % DS_METAL_TILE_ROWS || in % DS_METAL_TILE_IN;
    const enum ds_metal_typed k = few ? DS_MT_GEMV : edges ? DS_MT_GEMM_EDGES : DS_MT_GEMM;
    struct ds_metal_call *c = ds_metal_call(m, m->typed[ds_type_id(p->w->type)][k], "multiplying", &a, sizeof a);
    ds_metal_bind(c, piece_mem(w));
    if (few) ds_metal_bind(c, ds_metal_in(m, p->x, (size_t)t0 * p->x->dim, (size_t)n * p->x->dim));
    else bind_activations(m, c, p->w, p->x, t0, n);
    ds_metal_bind(c, p->add ? ds_metal_inout(m, p->y, off, span) : ds_metal_out(m, p->y, off, span));
    const double work = 2.0 * n * in * (double)out + 40.0 * (double)w->bytes;      /* reading a byte takes as long as some 40 operations */
    if (few) ds_metal_go(m, c, up(out, DS_METAL_GEMV_ROWS), (uint32_t)n, 1, 128, work);
    else ds_metal_go(m, c, up(n, DS_METAL_TILE_TOKENS), up(out, DS_METAL_TILE_ROWS), 1, 128, work);
}

void ds_metal_matmul(struct ds_backend *be, int n_w, struct ds_buf *const *y, const struct ds_weight *const *w, const struct ds_buf *x,
                     int n, bool add)
{
    struct ds_metal *m = ds_metal_of(be);
    for (int i = 0; i < n_w; i++) {
        if (n > DS_METAL_GEMV_TOKENS && reads_half(w[i])) need_half(m, x, n);
        const struct product p = { y[i], w[i], x, add, w[i]->out };
        const int step = tokens_within(m, 2.0 * w[i]->in * (double)w[i]->out, n);
        for (int t = 0; t < n;) {
            const int rest = n - t, now = rest < step + DS_METAL_GEMV_TOKENS + 1 ? rest : step;     /* no tail of a few tokens */
            for (int k = 0; k < w[i]->n_pieces; k++) one_piece(m, &p, &w[i]->pieces[k], t, now);
            t += now;
        }
    }
}

/* --- experts --- */

/* Slots by expert, cut into tiles, made once per routing. */
static int need_order(struct ds_metal *m, const struct ds_buf *b, int n, int k, int n_expert)
{
    struct ds_buf *route = (struct ds_buf *)(uintptr_t)b;
    const int slots = n * k;
    const struct ds_metal_route a = { .n = n, .n_expert = n_expert, .k = k, .n_tiles = slots / DS_METAL_TILE_TOKENS + n_expert };
    if (route->derived == m->step && route->derived_rows == (size_t)n) return a.n_tiles;
    struct ds_metal_call *c = ds_metal_call(m, m->fn[DS_MK_MOE_SORT], "sorting tokens by expert", &a, sizeof a);
    ds_metal_bind(c, ds_metal_in(m, route, 0, (size_t)slots));
    ds_metal_bind(c, (struct ds_metal_mem){ route->mem, route->order_at, (size_t)slots * sizeof(uint32_t) });
    ds_metal_bind(c, (struct ds_metal_mem){ route->mem, route->tiles_at, (size_t)a.n_tiles * sizeof(struct ds_metal_tile) });
    ds_metal_go(m, c, 1, 1, 1, 256, 1e6);
    route->derived = m->step;
    route->derived_rows = (size_t)n;
    return a.n_tiles;
}

struct gather { struct ds_buf *y; const struct ds_weight *w; const struct ds_buf *x, *route; int slots, rows, per_x, n_tiles; };

static void one_expert_piece(struct ds_metal *m, const struct gather *g, const struct ds_metal_piece *w)
{
    const struct ds_weight *m3 = g->w;
    const bool few = !g->n_tiles;
    const struct ds_metal_experts a = { .slots = g->slots, .in = m3->in, .out = m3->out, .per_x = g->per_x, .e0 = w->first,
                                        .n_e = w->n, .n_tiles = g->n_tiles };
    struct ds_metal_call *c = ds_metal_call(m, m->typed[ds_type_id(m3->type)][few ? DS_MT_GEMV_EXPERTS : DS_MT_GEMM_EXPERTS],
                                            "multiplying with experts", &a, sizeof a);
    ds_metal_bind(c, piece_mem(w));
    if (few) {
        ds_metal_bind(c, ds_metal_in(m, g->x, 0, (size_t)g->rows * g->x->dim));
        ds_metal_bind(c, ds_metal_in(m, g->route, 0, (size_t)g->slots));
    } else {
        bind_activations(m, c, m3, g->x, 0, g->rows);
        ds_metal_bind(c, (struct ds_metal_mem){ g->route->mem, g->route->order_at, (size_t)g->slots * sizeof(uint32_t) });
        ds_metal_bind(c, (struct ds_metal_mem){ g->route->mem, g->route->tiles_at, (size_t)g->n_tiles * sizeof(struct ds_metal_tile) });
    }
    ds_metal_bind(c, ds_metal_out(m, g->y, 0, (size_t)g->slots * (size_t)m3->out));
    const double work = 2.0 * g->slots * m3->in * (double)m3->out + 40.0 * (double)w->bytes;
    if (few) ds_metal_go(m, c, up(m3->out, DS_METAL_GEMV_ROWS), (uint32_t)g->slots, 1, 128, work);
    else ds_metal_go(m, c, (uint32_t)g->n_tiles, up(m3->out, DS_METAL_TILE_ROWS), 1, 128, work);
}

void ds_metal_matmul_experts(struct ds_backend *be, struct ds_buf *y, const struct ds_weight *w, const struct ds_buf *x,
                             const struct ds_buf *route, int n, int k, bool per_slot)
{
    struct ds_metal *m = ds_metal_of(be);
    struct gather g = { .y = y, .w = w, .x = x, .route = route, .slots = n * k, .rows = per_slot ? n * k : n, .per_x = per_slot ? 1 : k };
    if (w->n_expert > m->n_expert) {
        if (!m->err.code) ds_fail(&m->err, DS_EARG, "%d experts, but memory was taken for %d", w->n_expert, m->n_expert);
        return;
    }
    if (n > DS_METAL_GEMV_TOKENS) {
        if (reads_half(w)) need_half(m, x, g.rows);
        g.n_tiles = need_order(m, route, n, k, w->n_expert);
    }
    for (int i = 0; i < w->n_pieces; i++) one_expert_piece(m, &g, &w->pieces[i]);
}

const char *ds_metal_kernel_name(struct ds_backend *be, const struct ds_weight *w, int n)
{
    struct ds_metal *m = ds_metal_of(be);
    char *name = m->names[ds_type_id(w->t->type)][n <= DS_METAL_GEMV_TOKENS];
    if (!name[0])
        snprintf(name, sizeof m->names[0][0], "%s%s%s metal %s", w->t->type->name, w->type == w->t->type ? "" : " as ",
                 w->type == w->t->type ? "" : w->type->name, n <= DS_METAL_GEMV_TOKENS ? "gemv" : "gemm");
    return name;
}
