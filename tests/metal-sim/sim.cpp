/* Scheduling: grids over workers, threads of a group as fibers, and what lanes do together. */
#include "worker.h"
#include "fiber.h"
#include "half.h"

#include <mutex>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <thread>
#include <vector>

thread_local worker *sim_worker __attribute__((tls_model("initial-exec")));

static sim_kernel *kernels;
sim_register::sim_register(sim_kernel *k) { k->next = kernels, kernels = k; }

static const sim_kernel *find(const char *name)
{
    for (const sim_kernel *k = kernels; k; k = k->next)
        if (!strcmp(k->name, name)) return k;
    return nullptr;
}

struct run_state {
    const sim_dispatch *d;
    const sim_kernel *k;
    const sim_options *o;
    void *buffers[SIM_BUFFERS];
    range ranges[SIM_BUFFERS];
    uint32_t n_groups;
    uint64_t stride;                           /* group i of the shuffled order is i * stride mod n_groups */
    std::atomic<uint32_t> next{0};
    std::atomic<bool> failed{false};
    std::mutex lock;
    char text[400];
};

/* --- order --- */

static uint64_t draw(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

enum { N_ORDERS = 256 };
static uint8_t orders[N_ORDERS][SIM_SIMD];     /* permutations of lanes to pick from */
static void make_orders()
{
    uint64_t s = 1;
    for (auto &p : orders) {
        for (int i = 0; i < SIM_SIMD; i++) p[i] = (uint8_t)i;
        for (int i = SIM_SIMD - 1; i > 0; i--) std::swap(p[i], p[draw(&s) % (uint64_t)(i + 1)]);
    }
}

/* --- faults --- */

void sim_fault(worker *w, const char *format, ...)
{
    char what[300];
    va_list ap;
    va_start(ap, format);
    vsnprintf(what, sizeof what, format, ap);
    va_end(ap);
    run_state *r = w->run;
    {
        std::lock_guard<std::mutex> hold(r->lock);
        if (!r->failed) {
            const fiber *f = w->current ? w->current : w->fibers;
            const sim_uint3 g = f->thread.threadgroup_position_in_grid;
            char who[24] = "";
            if (w->current) snprintf(who, sizeof who, ", thread %u", f->thread.thread_index_in_threadgroup);
            snprintf(r->text, sizeof r->text, "%s, threadgroup (%u, %u, %u)%s: %s", r->k->name, g.x, g.y, g.z, who, what);
        }
        r->failed = true;
    }
    w->failed = true;
    void *gone;
    sim_fiber_switch(&gone, w->root);
    abort();
}

/* --- what a simdgroup does together, once all its lanes have come --- */

static float as_float(unsigned v) { float f; memcpy(&f, &v, 4); return f; }
static unsigned as_bits(float f) { unsigned v; memcpy(&v, &f, 4); return v; }

static void reduce(worker *w, fiber *lane, int n, int op)
{
    const uint8_t *order = orders[draw(&w->random) % N_ORDERS];        /* the device does not say in which order it adds */
    bool first = true;
    unsigned acc = 0;
    for (int i = 0; i < SIM_SIMD; i++) {
        if (order[i] >= n) continue;
        unsigned v = lane[order[i]].value;
        if (first) { acc = v, first = false; continue; }
        switch (op) {
        case SIM_SUM_F32: acc = as_bits(as_float(acc) + as_float(v)); break;
        case SIM_MAX_F32: acc = as_bits(__builtin_fmaxf(as_float(acc), as_float(v))); break;
        case SIM_MIN_F32: acc = as_bits(__builtin_fminf(as_float(acc), as_float(v))); break;
        case SIM_SUM_I32: acc += v; break;
        case SIM_MAX_I32: acc = (int)acc > (int)v ? acc : v; break;
        case SIM_MIN_I32: acc = (int)acc < (int)v ? acc : v; break;
        case SIM_MAX_U32: acc = acc > v ? acc : v; break;
        case SIM_MIN_U32: acc = acc < v ? acc : v; break;
        case SIM_AND: acc &= v; break;
        default: acc |= v; break;
        }
    }
    for (int i = 0; i < n; i++) lane[i].value = acc;
}

static void prefix(fiber *lane, int n, int op)
{
    bool f32 = op == SIM_PREFIX_INCLUSIVE_F32 || op == SIM_PREFIX_EXCLUSIVE_F32;
    bool inclusive = op == SIM_PREFIX_INCLUSIVE_F32 || op == SIM_PREFIX_INCLUSIVE_I32;
    unsigned acc = 0;
    for (int i = 0; i < n; i++) {
        unsigned next = f32 ? as_bits(as_float(acc) + as_float(lane[i].value)) : acc + lane[i].value;
        lane[i].value = inclusive ? next : acc;
        acc = next;
    }
}

static void shuffle(worker *w, fiber *lane, int n, int op)
{
    unsigned in[SIM_SIMD];
    for (int i = 0; i < n; i++) in[i] = lane[i].value;
    for (int i = 0; i < n; i++) {
        int arg = (int)lane[i].argument, from = arg;
        if (op != SIM_SHUFFLE && lane[i].argument != lane[0].argument) {
            w->current = lane + i;
            sim_fault(w, "line %d: lanes give different distances or masks to a simd shuffle", lane[i].line);
        }
        if (op == SIM_SHUFFLE_XOR) from = i ^ arg;
        if (op == SIM_SHUFFLE_UP) from = i - arg;
        if (op == SIM_SHUFFLE_DOWN) from = i + arg;
        if (from < 0 || from >= n) {
            if (op == SIM_SHUFFLE || op == SIM_BROADCAST || op == SIM_SHUFFLE_XOR) {
                w->current = lane + i;
                sim_fault(w, "line %d: a simd shuffle reads lane %d of %d", lane[i].line, from, n);
            }
            lane[i].value = 0xffffffffu;       /* undefined on the device */
        } else {
            lane[i].value = in[from];
        }
    }
}

/* Element e of a matrix lives in lane e / 2: Metal promises no place, so no shader may know. */
static void gather(float m[64], fiber *lane, const sim_fragment *fiber::*which)
{
    for (int i = 0; i < SIM_SIMD; i++) m[2 * i] = (lane[i].*which)->e[0], m[2 * i + 1] = (lane[i].*which)->e[1];
}

static void matrix_multiply(worker *w, fiber *lane)
{
    float a[64], b[64], c[64];
    gather(a, lane, &fiber::a);
    gather(b, lane, &fiber::b);
    gather(c, lane, &fiber::c);
    int start = (int)(draw(&w->random) & 7);   /* the order of the sum is open too */
    for (int i = 0; i < 8; i++) {
        float s[8];
        for (int j = 0; j < 8; j++) s[j] = c[8 * i + j];
        for (int k = start, n = 0; n < 8; n++, k = (k + 1) & 7)
            for (int j = 0; j < 8; j++) s[j] += a[8 * i + k] * b[8 * k + j];
        for (int j = 0; j < 8; j++) c[8 * i + j] = s[j];
    }
    for (int i = 0; i < SIM_SIMD; i++)
        for (int h = 0; h < 2; h++) lane[i].d->e[h] = lane[i].to_half ? (float)half(c[2 * i + h]) : c[2 * i + h];
}

static void matrix_move(worker *w, fiber *lane, bool store)
{
    const sim_matrix_access m = *lane[0].access;
    for (int i = 1; i < SIM_SIMD; i++) {
        const sim_matrix_access *o = lane[i].access;
        if (o->p != m.p || o->stride != m.stride || o->column != m.column || o->row != m.row || o->transpose != m.transpose) {
            w->current = lane + i;
            sim_fault(w, "line %d: lanes give different addresses to a matrix load or store", lane[i].line);
        }
    }
    w->current = lane;
    unsigned long size = m.half ? 2 : 4;
    for (int r = 0; r < 8; r++) {
        char *row = static_cast<char *>(m.p) + size * ((m.row + (unsigned long)r) * m.stride + m.column);
        sim_access(w, row, 8 * size, store, true);
        for (int c = 0; c < 8; c++) {
            int e = m.transpose ? 8 * c + r : 8 * r + c;
            if (store) {
                float v = lane[e / 2].a->e[e & 1];
                if (m.half) { half h = half(v); memcpy(row + 2 * c, &h, 2); }
                else memcpy(row + 4 * c, &v, 4);
            } else if (m.half) {
                half h;
                memcpy(&h, row + 2 * c, 2);
                lane[e / 2].d->e[e & 1] = (float)h;
            } else {
                memcpy(&lane[e / 2].d->e[e & 1], row + 4 * c, 4);
            }
        }
    }
}

static void together(worker *w, simdgroup *g, fiber *lane)
{
    int op = lane->op;
    if (op >= SIM_MATRIX_LOAD && g->lanes != SIM_SIMD) {
        w->current = lane;
        sim_fault(w, "line %d: a matrix function in a simdgroup of %d lanes", lane->line, g->lanes);
    }
    if (op <= SIM_OR) reduce(w, lane, g->lanes, op);
    else if (op <= SIM_PREFIX_EXCLUSIVE_I32) prefix(lane, g->lanes, op);
    else if (op <= SIM_BROADCAST) shuffle(w, lane, g->lanes, op);
    else if (op == SIM_SIMDGROUP_BARRIER) g->epoch += lane->flags & SIM_MEM_THREADGROUP ? 1 : 0;
    else if (op == SIM_MATRIX_MULTIPLY) matrix_multiply(w, lane);
    else matrix_move(w, lane, op == SIM_MATRIX_STORE);
}

/* --- waiting --- */

/* Leaves the running fiber: to the next lane of its simdgroup that can run, else to the scheduler. */
static void leave(worker *w, fiber *f)
{
    simdgroup *g = w->current_sg;
    fiber *lane = w->fibers + (g - w->sg) * SIM_SIMD;
    while (++g->at < SIM_SIMD) {
        int i = g->order[g->at];
        if (i < g->lanes && lane[i].state == FIBER_READY) {
            w->current = lane + i;
            sim_fiber_switch(&f->sp, lane[i].sp);
            return;
        }
    }
    sim_fiber_switch(&f->sp, w->scheduler);
}

static fiber *wait_at(worker *w, fiber_state state, int op, int line)
{
    fiber *f = w->current;
    f->state = state, f->op = op, f->line = line;
    return f;
}

unsigned sim_exchange(int op, unsigned value, unsigned argument, int line)
{
    worker *w = sim_worker;
    fiber *f = wait_at(w, FIBER_IN_SIMD, op, line);
    f->value = value, f->argument = argument;
    leave(w, f);
    return f->value;
}

void sim_barrier(int op, int flags, int line)
{
    worker *w = sim_worker;
    fiber *f = wait_at(w, op == SIM_THREADGROUP_BARRIER ? FIBER_IN_BARRIER : FIBER_IN_SIMD, op, line);
    f->flags = flags;
    leave(w, f);
}

void sim_matrix(int op, sim_fragment *d, const sim_fragment *a, const sim_fragment *b, const sim_fragment *c, const sim_matrix_access *m,
                bool to_half, int line)
{
    worker *w = sim_worker;
    fiber *f = wait_at(w, FIBER_IN_SIMD, op, line);
    f->d = d, f->a = a, f->b = b, f->c = c, f->access = m, f->to_half = to_half;
    leave(w, f);
}

/* Element 9i of a lane's two, 2 * lane and 2 * lane + 1. */
void sim_matrix_diagonal(sim_fragment *d, float v)
{
    const int lane = (int)(sim_worker->current - sim_worker->fibers) % SIM_SIMD;
    for (int h = 0; h < 2; h++) d->e[h] = (2 * lane + h) % 9 == 0 ? v : 0.0f;
}

/* All threads run through the same declarations, so each computes the same address. */
void *sim_threadgroup_memory(unsigned long size, unsigned long align)
{
    worker *w = sim_worker;
    fiber *f = w->current;
    unsigned long at = (f->memory + align - 1) / align * align;
    f->memory = at + size;
    if (f->memory > SIM_THREADGROUP_BYTES)
        sim_fault(w, "%lu bytes of threadgroup memory declared, of %d", f->memory, SIM_THREADGROUP_BYTES);
    if (f->memory > w->memory_used) {
        memset(w->memory + w->memory_used, 0xff, f->memory - w->memory_used);     /* NaN as half and as float */
        w->memory_used = f->memory;
    }
    return w->memory + at;
}

/* --- one threadgroup --- */

static void fiber_main()
{
    worker *w = sim_worker;
    fiber *f = w->current;
    w->run->k->run(f->thread);
    f = w->current;
    f->state = FIBER_ENDED;
    leave(w, f);
    abort();
}

static void start_group(worker *w, uint32_t index)
{
    const sim_dispatch *d = w->run->d;
    const uint32_t *n = d->threads;
    sim_uint3 at = { index % d->groups[0], index / d->groups[0] % d->groups[1], index / d->groups[0] / d->groups[1] };
    w->group_index = index;
    w->epoch++, w->buffer_epoch++;
    w->memory_used = 0;
    w->n_threads = (int)(n[0] * n[1] * n[2]);
    w->n_sg = (w->n_threads + SIM_SIMD - 1) / SIM_SIMD;
    for (int i = 0; i < w->n_threads; i++) {
        fiber *f = w->fibers + i;
        uint32_t u = (uint32_t)i;
        f->state = FIBER_READY;
        f->memory = 0;
        f->sp = fiber_new(w->stacks + (size_t)(i + 1) * SIM_STACK, fiber_main);
        f->thread.buffer = w->buffers;
        f->thread.threads_per_threadgroup = { n[0], n[1], n[2] };
        f->thread.threadgroups_per_grid = { d->groups[0], d->groups[1], d->groups[2] };
        f->thread.threadgroup_position_in_grid = at;
        f->thread.thread_position_in_threadgroup = { u % n[0], u / n[0] % n[1], u / n[0] / n[1] };
        f->thread.thread_index_in_threadgroup = u;
        f->thread.thread_index_in_simdgroup = u % SIM_SIMD;
        f->thread.simdgroup_index_in_threadgroup = u / SIM_SIMD;
        f->thread.simdgroups_per_threadgroup = (unsigned)w->n_sg;
    }
    for (int s = 0; s < w->n_sg; s++) {
        int left = w->n_threads - s * SIM_SIMD;
        w->sg[s] = { left < SIM_SIMD ? left : SIM_SIMD, 0, orders[0], 1 };
    }
}

static const char *state_name(const fiber *f)
{
    static const char *const names[] = { "runs", "waits at a simd function", "waits at a threadgroup barrier", "has ended" };
    return names[f->state];
}

/* Runs what can run in one simdgroup once; afterwards no lane of it is ready. */
static void run_lanes(worker *w, simdgroup *g)
{
    fiber *lane = w->fibers + (g - w->sg) * SIM_SIMD;
    g->order = orders[draw(&w->random) % N_ORDERS];
    g->at = -1;
    while (++g->at < SIM_SIMD) {
        int i = g->order[g->at];
        if (i >= g->lanes || lane[i].state != FIBER_READY) continue;
        w->current_sg = g;
        w->current = lane + i;
        sim_fiber_switch(&w->scheduler, lane[i].sp);
        return;                                /* the lanes passed the turn on among themselves */
    }
}

/* All lanes must wait for the same thing. Returns true when they can go on. */
static bool release_lanes(worker *w, simdgroup *g)
{
    fiber *lane = w->fibers + (g - w->sg) * SIM_SIMD;
    for (int i = 1; i < g->lanes; i++) {
        if (lane[i].state == lane->state && (lane->state == FIBER_ENDED || (lane[i].op == lane->op && lane[i].line == lane->line))) continue;
        w->current = lane + i;
        sim_fault(w, "divergence: it %s (line %d) while thread %d %s (line %d)", state_name(lane + i), lane[i].line, (int)(lane - w->fibers),
                  state_name(lane), lane->line);
    }
    if (lane->state != FIBER_IN_SIMD) return false;
    together(w, g, lane);
    for (int i = 0; i < g->lanes; i++) lane[i].state = FIBER_READY;
    return true;
}

/* Every simdgroup waits at a barrier or has ended. Returns false when the group is done. */
static bool release_barrier(worker *w)
{
    fiber *first = w->fibers;
    for (int s = 1; s < w->n_sg; s++) {
        fiber *f = w->fibers + s * SIM_SIMD;
        if (f->state == first->state && (f->state == FIBER_ENDED || (f->line == first->line && f->flags == first->flags))) continue;
        w->current = f;
        sim_fault(w, "divergence: it %s (line %d) while thread 0 %s (line %d)", state_name(f), f->line, state_name(first), first->line);
    }
    if (first->state == FIBER_ENDED) return false;
    if (first->flags & SIM_MEM_THREADGROUP) w->epoch++;
    if (first->flags & SIM_MEM_DEVICE) w->buffer_epoch++;
    for (int i = 0; i < w->n_threads; i++) w->fibers[i].state = FIBER_READY;
    return true;
}

static void schedule(worker *w)
{
    do {
        int live[SIM_GROUPS], n = 0;
        for (int s = 0; s < w->n_sg; s++) live[n++] = s;
        while (n) {                            /* simdgroups advance in any order until all wait for the whole group */
            int pick = (int)(draw(&w->random) % (uint64_t)n);
            simdgroup *g = w->sg + live[pick];
            int burst = 1 + (int)(draw(&w->random) & 15);
            bool on = true;
            while (on && burst--) {
                run_lanes(w, g);
                on = release_lanes(w, g);
            }
            if (!on) live[pick] = live[--n];
        }
    } while (release_barrier(w));
}

/* On a stack of its own: a fault, wherever it is found, leaves for the worker's. */
static void scheduler_main()
{
    worker *w = sim_worker;
    schedule(w);
    void *gone;
    sim_fiber_switch(&gone, w->root);
    abort();
}

static void run_group(worker *w, uint32_t index)
{
    start_group(w, index);
    w->current = nullptr;
    w->scheduler = fiber_new(w->stacks_end, scheduler_main);
    sim_fiber_switch(&w->root, w->scheduler);
}

/* --- rough arithmetic --- */

/* One to two units in the last place up or down, or nothing; zero, infinities and NaN stay. */
float sim_rough(float exact)
{
    worker *w = sim_worker;
    unsigned bits = as_bits(exact);
    if (!w->rough || !__builtin_isnormal(exact)) return exact;
    bits += (unsigned)(draw(&w->random) % 5) - 2;
    return __builtin_isnormal(as_float(bits)) ? as_float(bits) : exact;
}

/* Subnormal operands and results become zero, or again do not. */
static void flush_subnormals(bool on)
{
#if defined(__x86_64__)
    unsigned bits = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(on ? bits | 0x8040 : bits & ~0x8040u);
#elif defined(__aarch64__)
    uint64_t bits;
    __asm__ volatile("mrs %0, fpcr" : "=r"(bits));
    bits = on ? bits | 1u << 24 : bits & ~(uint64_t)(1u << 24);
    __asm__ volatile("msr fpcr, %0" : : "r"(bits));
#endif
}

/* --- workers --- */

static void *pages(size_t n)
{
    void *p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) abort();
    return p;
}

/* Workers are kept: their stacks stay warm from one dispatch to the next. */
static std::mutex idle_lock;
static std::vector<worker *> idle;

static worker *take_worker()
{
    std::lock_guard<std::mutex> hold(idle_lock);
    if (!idle.empty()) {
        worker *w = idle.back();
        idle.pop_back();
        return w;
    }
    worker *w = static_cast<worker *>(pages(sizeof *w));
    size_t stacks = (size_t)(SIM_MAX_THREADS + 1) * SIM_STACK;
    w->stacks = static_cast<char *>(pages(stacks));
    w->stacks_end = w->stacks + stacks;
    w->memory = static_cast<char *>(pages(SIM_THREADGROUP_BYTES));
    w->shadows = static_cast<shadow *>(pages(SIM_THREADGROUP_BYTES / 2 * sizeof(shadow)));
    return w;
}

static void work(run_state *r)
{
    worker *w = take_worker();
    sim_worker = w;
    w->run = r;
    w->failed = false;
    w->no_races = r->o->no_races;
    w->rough = r->o->rough;
    if (w->rough) flush_subnormals(true);
    w->last = { nullptr, nullptr, -1, nullptr };
    w->n_ranges = r->k->n_params;
    memcpy(w->ranges, r->ranges, sizeof r->ranges);
    memcpy(w->buffers, r->buffers, sizeof r->buffers);
    for (uint32_t i; !r->failed && (i = r->next++) < r->n_groups;) {
        uint32_t index = (uint32_t)((uint64_t)i * r->stride % r->n_groups);
        w->random = r->o->seed ? r->o->seed * 0x9e3779b97f4a7c15u + index : 0;      /* whichever worker runs the group */
        run_group(w, index);
    }
    if (w->rough) flush_subnormals(false);
    sim_worker = nullptr;
    std::lock_guard<std::mutex> hold(idle_lock);
    idle.push_back(w);
}

static uint64_t gcd(uint64_t a, uint64_t b) { return b ? gcd(b, a % b) : a; }

int sim_constant(int index) { return sim_worker->run->d->constants[index]; }

/* --- the interface --- */

bool sim_has_kernel(const char *name) { return find(name) != nullptr; }

const char *sim_kernel_name(int i)
{
    const sim_kernel *k = kernels;
    while (k && i--) k = k->next;
    return k ? k->name : nullptr;
}

uint32_t sim_kernel_max_threads(const char *name, const sim_options *o)
{
    const sim_kernel *k = find(name);
    if (!k) return 0;
    uint32_t most = o->max_threads ? o->max_threads : (uint32_t)SIM_MAX_THREADS;
    return k->max_threads && k->max_threads < most ? k->max_threads : most;
}

/* Buffers that the kernel may write come first: where one memory is bound twice, accesses count as to that one. */
static void make_ranges(run_state *r)
{
    int n = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < r->k->n_params; i++) {
            const sim_param *p = &r->k->params[i];
            if (p->written == (pass == 1)) continue;
            const sim_binding *b = &r->d->buffer[p->index];
            void *seen = p->written && !r->o->no_races ? pages((b->size / 2 + 1) * 8) : nullptr;
            r->ranges[n++] = { static_cast<char *>(b->p), static_cast<char *>(b->p) + b->size, p->index, static_cast<std::atomic<uint32_t> *>(seen) };
        }
    }
}

static void free_ranges(run_state *r)
{
    for (int i = 0; i < r->k->n_params; i++)
        if (r->ranges[i].seen) munmap(r->ranges[i].seen, ((size_t)(r->ranges[i].hi - r->ranges[i].lo) / 2 + 1) * 8);
}

static bool bound(run_state *r)
{
    for (int i = 0; i < r->k->n_params; i++) {
        const sim_param *p = &r->k->params[i];
        const sim_binding *b = &r->d->buffer[p->index];
        if (!b->p) {
            snprintf(r->text, sizeof r->text, "%s: buffer %d is not bound", r->k->name, p->index);
            return false;
        }
        if (b->size < p->size) {
            snprintf(r->text, sizeof r->text, "%s: buffer %d has %zu bytes, its type %lu", r->k->name, p->index, b->size, p->size);
            return false;
        }
        if (p->written && b->read_only) {
            snprintf(r->text, sizeof r->text, "%s: buffer %d is memory that must not be written", r->k->name, p->index);
            return false;
        }
        r->buffers[p->index] = b->p;
    }
    return true;
}

sim_result sim_run(const sim_dispatch *d, const sim_options *o, char *err, size_t n)
{
    static std::once_flag once;
    std::call_once(once, make_orders);
    run_state r;
    r.d = d, r.o = o, r.k = find(d->kernel);
    if (!r.k) {
        snprintf(err, n, "there is no kernel %s", d->kernel);
        return SIM_FAULT;
    }
    const uint32_t *t = d->threads;
    uint64_t threads = (uint64_t)t[0] * t[1] * t[2], groups = (uint64_t)d->groups[0] * d->groups[1] * d->groups[2];
    uint32_t most = sim_kernel_max_threads(d->kernel, o);
    if (threads > most) {
        snprintf(err, n, "%s: %llu threads in a threadgroup, but its pipeline takes %u", d->kernel, (unsigned long long)threads, most);
        return SIM_DROPPED;
    }
    if (threads == 0 || groups == 0 || groups > 0x7fffffff) {
        snprintf(err, n, "%s: %llu threadgroups of %llu threads", d->kernel, (unsigned long long)groups, (unsigned long long)threads);
        return SIM_FAULT;
    }
    r.n_groups = (uint32_t)groups;
    uint64_t s = o->seed;
    do r.stride = 1 + draw(&s) % groups; while (gcd(r.stride, groups) != 1);
    if (bound(&r)) {
        make_ranges(&r);
        std::vector<std::thread> more;
        for (int i = 1; i < o->host_threads && (uint64_t)i < groups; i++) more.emplace_back(work, &r);
        work(&r);
        for (std::thread &m : more) m.join();
        free_ranges(&r);
    } else {
        r.failed = true;
    }
    if (!r.failed) return SIM_OK;
    snprintf(err, n, "%s", r.text);
    return SIM_FAULT;
}
