/* Weight products: pack the activations once, then hand out blocks of weight rows to the pool. */
#include "backend/cpu/cpu.h"

#include <string.h>

static int min_int(int a, int b) { return a < b ? a : b; }
static int ceil_div(int a, int b) { return (a + b - 1) / b; }
static int round_up(int a, int step) { return ceil_div(a, step) * step; }

/* --- packed activations ------------------------------------------------------------------------ */

struct pack_job {
    const struct ds_gemm_kernels *g;
    enum ds_act_fmt fmt;
    void *dst;
    const float *x;
    int n, k, step;
};

static void pack_task(void *ctx, int i, int thread)
{
    (void)thread;
    const struct pack_job *j = ctx;
    j->g->act_pack(j->g, j->fmt, j->dst, j->x, (size_t)j->k, NULL, j->n, j->k, i * j->step, min_int(j->n, (i + 1) * j->step));
}

/* The panel of x in the format that `type` reads, packed on first use. */
static const void *panel_of(struct ds_cpu *c, const struct ds_buf *x, const struct ds_type *type, int n, int k)
{
    enum ds_act_fmt fmt = c->g.act_fmt(&c->g, type, n, c->be.step.decode);
    struct ds_cpu_panel *p = (struct ds_cpu_panel *)&x->panel[fmt];   /* a cache inside a buffer that is otherwise only read */
    if (p->valid && p->n == n && p->dim == k) return p->p;
    struct pack_job j = { &c->g, fmt, p->p, x->p, n, k, round_up(ceil_div(n, 4 * c->threads), c->g.tok_step) };
    ds_pool_run(c->pool, pack_task, &j, ceil_div(n, j.step));
    *p = (struct ds_cpu_panel){ p->p, p->cap, n, k, true };
    return p->p;
}

/* The format that all weights read; -1: there are several. */
static int only_format(const struct ds_cpu *c)
{
    for (int f = 0; f < DS_AF_COUNT; f++)
        if (c->formats == 1u << f) return f;
    return -1;
}

int ds_cpu_pack_tokens(const struct ds_cpu *c, const struct ds_buf *b, int n, int dim)
{
    const int fmt = only_format(c), step = c->g.tok_step;
    if (fmt < 0 || b->kind != DS_BUF_ACT || n < 8 * step || b->panel[fmt].cap < c->g.act_bytes((enum ds_act_fmt)fmt, n, dim)) return 0;
    return round_up(ceil_div(32768, dim), step);                /* rows of a task: 128 KiB */
}

void ds_cpu_pack(const struct ds_cpu *c, const struct ds_buf *b, int n, int dim, int t0, int t1)
{
    const int fmt = only_format(c);
    c->g.act_pack(&c->g, (enum ds_act_fmt)fmt, b->panel[fmt].p, b->p, (size_t)dim, NULL, n, dim, t0, t1);
}

void ds_cpu_packed(const struct ds_cpu *c, struct ds_buf *b, int n, int dim)
{
    struct ds_cpu_panel *p = &b->panel[only_format(c)];
    p->n = n;
    p->dim = dim;
    p->valid = true;
}

/* --- products ------------------------------------------------------------------------------------ */

/* One product cut into row blocks; a matrix with too few of them for the threads is cut by tokens too. */
struct part { struct ds_gemm_call call; int rows, row_block, tok_block, first, tasks; };

enum { MAX_PARTS = 8 };

struct product_job {
    struct ds_cpu *c;
    struct part *parts;
    int n_parts;
    bool decode;
};

static void product_task(void *ctx, int i, int thread)
{
    const struct product_job *j = ctx;
    const struct ds_gemm_kernels *g = &j->c->g;
    const struct part *p = j->parts;
    while (i >= p->first + p->tasks) p++;
    i -= p->first;
    struct ds_gemm_call call = p->call;
    int blocks = ceil_div(p->rows, p->row_block), rb = i % blocks, tb = i / blocks;
    call.r0 = rb * p->row_block;
    call.r1 = min_int(p->rows, call.r0 + p->row_block);
    call.t0 = tb * p->tok_block;
    call.t1 = min_int(call.n, call.t0 + p->tok_block);
    const int next = call.r0 + j->c->threads * p->row_block;       /* tasks are taken in order, so threads take turns */
    call.ahead = next + g->row_step <= p->rows ? next : 0;
    call.scratch = ds_cpu_scratch(j->c, thread, g->scratch_bytes(g, call.type, call.k));
    (j->decode ? g->gemv : g->gemm)(g, &call);
}

/* Tasks of at least some ten microseconds: as many as that gives, because whoever takes the last one keeps the others waiting. A
 * decode task reads its rows as one stream, so there it is a few per thread. */
static void cut(struct part *p, const struct ds_cpu *c, bool decode, int first)
{
    const double work = (double)p->rows * p->call.k * p->call.n;
    const int few = c->threads == 1 ? 1 : (decode ? 2 : 6) * c->threads, worth = (int)(work / (decode ? 65536 : 4e6)) + 1;
    const int want = c->threads == 1 || decode ? min_int(few, worth) : worth;
    p->row_block = round_up(ceil_div(p->rows, min_int(want, p->rows)), c->g.row_step);
    const int blocks = ceil_div(p->rows, p->row_block), tok_cuts = decode ? 1 : min_int(min_int(few, want) / blocks, ceil_div(p->call.n, 64));
    p->tok_block = tok_cuts > 1 ? round_up(ceil_div(p->call.n, tok_cuts), c->g.tok_step) : p->call.n;
    p->first = first;
    p->tasks = blocks * ceil_div(p->call.n, p->tok_block);
}

void ds_cpu_matmul(struct ds_backend *be, int n_w, struct ds_buf *const *y, const struct ds_weight *const *w, const struct ds_buf *x, int n,
                   bool add)
{
    struct ds_cpu *c = ds_cpu_of(be);
    bool decode = be->step.decode && n == 1;
    for (int i0 = 0; i0 < n_w; i0 += MAX_PARTS) {
        struct part parts[MAX_PARTS];
        struct product_job job = { c, parts, min_int(MAX_PARTS, n_w - i0), decode };
        int tasks = 0;
        for (int i = 0; i < job.n_parts; i++) {
            const struct ds_tensor *t = w[i0 + i]->t;
            int k = (int)t->ne[0], rows = (int)t->ne[1];
            parts[i].call = (struct ds_gemm_call){ .y = y[i0 + i]->p, .ldy = (size_t)rows, .w = t->data, .type = t->type,
                                                   .x = panel_of(c, x, t->type, n, k), .n = n, .k = k, .add = add };
            parts[i].rows = rows;
            cut(&parts[i], c, decode, tasks);
            tasks += parts[i].tasks;
        }
        ds_pool_run(c->pool, product_task, &job, tasks);
    }
    for (int i = 0; i < n_w; i++) ds_cpu_touch(y[i]);
}

/* --- experts ------------------------------------------------------------------------------------- */

/* Slots sorted by expert, in shared_matmul: for each expert in use its slots (rows of y), the rows of x
 * that they read, and their packed activations. */
struct group { int expert, first, n; size_t packed; };

struct gather {
    struct group *groups; int n_groups;
    int32_t *slot, *xrow;               /* [n*k] */
    char *packed;
};

static size_t align64(size_t n) { return (n + 63) & ~(size_t)63; }

static size_t gather_place(struct gather *g, void *base, size_t slots, size_t n_expert)
{
    size_t groups = align64(n_expert * sizeof(struct group)), list = align64(slots * sizeof(int32_t));
    char *p = base;
    *g = (struct gather){ (struct group *)p, 0, (int32_t *)(p + groups), (int32_t *)(p + groups + list), p + groups + 2 * list };
    return groups + 2 * list;
}

size_t ds_cpu_shared_matmul(const struct ds_cpu *c, const struct ds_sizes *sz)
{
    if (!sz->n_expert) return 0;
    struct gather g;
    size_t slots = (size_t)sz->ubatch * (size_t)sz->n_expert_used, most = 0;
    for (int f = 0; f < DS_AF_COUNT; f++) {
        size_t b = c->formats & 1u << f ? c->g.act_bytes((enum ds_act_fmt)f, 1, c->expert_dim) : 0;
        most = b > most ? b : most;
    }
    return gather_place(&g, (void *)64, slots, (size_t)sz->n_expert) + slots * most;
}

/* Counting sort of the slots by expert. A group's n is its count, then its fill. */
static void gather_slots(struct gather *g, const struct ds_cpu *c, const struct ds_route_slot *route, int slots, int n_expert, int per_x,
                         enum ds_act_fmt fmt, int k)
{
    struct group *e = g->groups;
    for (int i = 0; i < n_expert; i++) e[i] = (struct group){ .expert = i };
    for (int s = 0; s < slots; s++) e[route[s].expert].n++;
    size_t at = 0;
    for (int i = 0, first = 0; i < n_expert; i++) {
        e[i].first = first;
        e[i].packed = at;
        first += e[i].n;
        at += e[i].n ? c->g.act_bytes(fmt, e[i].n, k) : 0;
        e[i].n = 0;
    }
    for (int s = 0; s < slots; s++) {
        struct group *to = &e[route[s].expert];
        g->slot[to->first + to->n] = s;
        g->xrow[to->first + to->n++] = s / per_x;
    }
    for (int i = 0; i < n_expert; i++)
        if (e[i].n) e[g->n_groups++] = e[i];
}

struct expert_job {
    struct ds_cpu *c;
    struct gather g;
    enum ds_act_fmt fmt;
    const float *x;
    struct ds_gemm_call call;          /* common to all experts */
    size_t expert_bytes;
    int rows, row_block;
    bool decode;
};

static void expert_pack_task(void *ctx, int i, int thread)
{
    (void)thread;
    const struct expert_job *j = ctx;
    const struct group *e = &j->g.groups[i];
    j->c->g.act_pack(&j->c->g, j->fmt, j->g.packed + e->packed, j->x, (size_t)j->call.k, j->g.xrow + e->first, e->n, j->call.k, 0, e->n);
}

static void expert_task(void *ctx, int i, int thread)
{
    const struct expert_job *j = ctx;
    const struct ds_gemm_kernels *g = &j->c->g;
    int blocks = ceil_div(j->rows, j->row_block);
    const struct group *e = &j->g.groups[i / blocks];
    struct ds_gemm_call call = j->call;
    call.w = (const char *)call.w + j->expert_bytes * (size_t)e->expert;
    call.x = j->g.packed + e->packed;
    call.yrow = j->g.slot + e->first;
    call.n = call.t1 = e->n;
    call.r0 = i % blocks * j->row_block;
    call.r1 = min_int(j->rows, call.r0 + j->row_block);
    call.scratch = ds_cpu_scratch(j->c, thread, g->scratch_bytes(g, call.type, call.k));
    (j->decode ? g->gemv : g->gemm)(g, &call);
}

void ds_cpu_matmul_experts(struct ds_backend *be, struct ds_buf *y, const struct ds_weight *w, const struct ds_buf *x,
                           const struct ds_buf *route, int n, int k, bool per_slot)
{
    struct ds_cpu *c = ds_cpu_of(be);
    const struct ds_tensor *t = w->t;
    int dim = (int)t->ne[0], rows = (int)t->ne[1], n_expert = (int)t->ne[2];
    struct expert_job j = { .c = c, .x = x->p, .rows = rows, .decode = be->step.decode && n == 1 };
    j.fmt = c->g.act_fmt(&c->g, t->type, n, j.decode);
    j.call = (struct ds_gemm_call){ .y = y->p, .ldy = (size_t)rows, .w = t->data, .type = t->type, .k = dim };
    j.expert_bytes = ds_type_row_bytes(t->type, (size_t)dim) * (size_t)rows;
    gather_place(&j.g, c->shared_matmul, (size_t)n * (size_t)k, (size_t)n_expert);
    gather_slots(&j.g, c, route->p, n * k, n_expert, per_slot ? 1 : k, j.fmt, dim);
    ds_pool_run(c->pool, expert_pack_task, &j, j.g.n_groups);
    j.row_block = round_up(ceil_div(rows, min_int(8, ceil_div(6 * c->threads, j.g.n_groups))), c->g.row_step);
    ds_pool_run(c->pool, expert_task, &j, j.g.n_groups * ceil_div(rows, j.row_block));
    ds_cpu_touch(y);
}

const char *ds_cpu_kernel_name(struct ds_backend *be, const struct ds_weight *w, int n)
{
    struct ds_cpu *c = ds_cpu_of(be);
    return c->g.name(&c->g, w->t->type, n, n == 1);
}
