/* One atomic counter holds the iterations that nobody has taken yet.
 *
 * Taking one is a compare-and-swap from k to k-1, and a thread reads the loop's function, context and
 * length only after it succeeded: the loop cannot end before that iteration is done, so they are
 * stable. A worker that wakes late finds the counter at zero, or at a later loop's value, which it may
 * then honestly take from. The caller takes iterations like everybody else until none is left, so
 * that a worker that never gets a processor costs nothing; it waits only for iterations taken. */
#include "base/pool.h"
#include "base/os.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { CACHE_LINE = 64 };
/* How long an idle thread watches for work, or the caller for the end, before it sleeps: gaps between two ops of a forward
 * are shorter, and waking a sleeper costs a system call. It holds its processor only at first; then it offers it to whoever
 * waits there, because on a loaded machine that may be the very thread that it waits for. */
static const uint64_t HOLD_NS = 4000, WATCH_NS = 40000;
/* After such a sleep the kernel's choice of a processor for a worker is not trusted (ds_thread_wake_apart): its processor may have halted. */
static const uint64_t LONG_NS = 1000000;

struct worker { struct ds_pool *pool; ds_thread *thread; int index; _Atomic uint64_t asleep_ns; };

struct ds_pool {
    _Alignas(CACHE_LINE) _Atomic uint32_t left;      /* iterations not taken */
    _Alignas(CACHE_LINE) _Atomic uint32_t done;      /* iterations finished */
    _Atomic uint32_t caller_sleeps;
    _Alignas(CACHE_LINE) _Atomic uint32_t wakeups;   /* the word that idle workers sleep on */
    _Atomic uint32_t sleepers;
    _Atomic uint32_t stop;
    _Alignas(CACHE_LINE) void (*fn)(void *ctx, int i, int thread);
    void *ctx;
    uint32_t n;
    int n_threads;                                   /* the caller included */
    struct worker *workers;                          /* [n_threads - 1] */
};

/* Takes and runs iterations until none is left. True when this thread finished the loop's last one. */
static bool work(struct ds_pool *p, int thread)
{
    uint32_t k = atomic_load_explicit(&p->left, memory_order_relaxed), mine = 0, n = 0;
    while (k) {
        if (!atomic_compare_exchange_weak_explicit(&p->left, &k, k - 1, memory_order_acquire, memory_order_relaxed)) continue;
        n = p->n;
        p->fn(p->ctx, (int)(n - k), thread);
        mine++;
        k = atomic_load_explicit(&p->left, memory_order_relaxed);
    }
    return mine && atomic_fetch_add(&p->done, mine) + mine == n;
}

/* One step of watching that began at t0; false when it is time to sleep. */
static bool watch(uint64_t t0)
{
    uint64_t past = ds_now_ns() - t0;
    if (past > HOLD_NS) ds_cpu_yield();
    return past < WATCH_NS;
}

/* The caller announces its sleep before it looks at `done` for the last time, and the finisher adds to `done` before it
 * looks for the announcement (all sequentially consistent), so one of them sees the other. Same below for sleepers. */
static void wait_done(struct ds_pool *p, uint32_t n)
{
    for (uint64_t t0 = ds_now_ns(); watch(t0);)
        for (int i = 0; i < 16; i++) {
            if (atomic_load(&p->done) == n) return;
            ds_cpu_relax();
        }
    atomic_store(&p->caller_sleeps, 1);
    for (uint32_t d; (d = atomic_load(&p->done)) != n;) ds_wait_word(&p->done, d);
    atomic_store(&p->caller_sleeps, 0);
}

static bool idle(struct ds_pool *p)
{
    return atomic_load(&p->left) == 0 && !atomic_load(&p->stop);
}

static void wait_work(struct ds_pool *p, struct worker *w)
{
    for (uint64_t t0 = ds_now_ns(); watch(t0);)
        for (int i = 0; i < 16; i++) {
            if (!idle(p)) return;
            ds_cpu_relax();
        }
    atomic_store(&w->asleep_ns, ds_now_ns());
    atomic_fetch_add(&p->sleepers, 1);
    uint32_t seen = atomic_load(&p->wakeups);
    if (idle(p)) ds_wait_word(&p->wakeups, seen);
    atomic_fetch_sub(&p->sleepers, 1);
    atomic_store(&w->asleep_ns, 0);
    ds_thread_let_go();
}

static void worker_main(void *arg)
{
    struct worker *w = arg;
    struct ds_pool *p = w->pool;
    while (!atomic_load(&p->stop)) {
        if (work(p, w->index) && atomic_load(&p->caller_sleeps)) ds_wake_word(&p->done);
        wait_work(p, w);
    }
}

static void spread_workers(struct ds_pool *p)
{
    const uint64_t now = ds_now_ns();
    for (int i = 0; i < p->n_threads - 1; i++) {
        const uint64_t since = atomic_load(&p->workers[i].asleep_ns);
        if (since && now > since + LONG_NS) ds_thread_wake_apart(p->workers[i].thread);
    }
}

static void wake_workers(struct ds_pool *p)
{
    atomic_fetch_add(&p->wakeups, 1);
    ds_wake_word(&p->wakeups);
}

void ds_pool_run(ds_pool *p, void (*fn)(void *ctx, int i, int thread), void *ctx, int n)
{
    if (n <= 1 || p->n_threads == 1) {
        for (int i = 0; i < n; i++) fn(ctx, i, 0);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    p->n = (uint32_t)n;
    atomic_store(&p->done, 0);
    atomic_store(&p->left, (uint32_t)n);
    if (atomic_load(&p->sleepers)) {
        spread_workers(p);
        wake_workers(p);
    }
    if (!work(p, 0)) wait_done(p, (uint32_t)n);
}

ds_pool *ds_pool_new(int n_threads)
{
    if (n_threads < 1) return NULL;
    ds_pool *p = ds_mem_alloc(sizeof *p);
    if (!p) return NULL;
    p->n_threads = n_threads;
    p->workers = calloc((size_t)n_threads, sizeof *p->workers);
    bool ok = p->workers != NULL;
    for (int i = 0; ok && i < n_threads - 1; i++) {
        p->workers[i] = (struct worker){ .pool = p, .index = i + 1 };
        p->workers[i].thread = ds_thread_start(worker_main, &p->workers[i]);
        ok = p->workers[i].thread != NULL;
    }
    if (ok) return p;
    ds_pool_free(p);
    return NULL;
}

void ds_pool_free(ds_pool *p)
{
    if (!p) return;
    atomic_store(&p->stop, 1);
    wake_workers(p);
    for (int i = 0; p->workers && i < p->n_threads - 1; i++)
        if (p->workers[i].thread) ds_thread_join(p->workers[i].thread);
    free(p->workers);
    ds_mem_free(p, sizeof *p);
}

int ds_pool_threads(const ds_pool *p)
{
    return p->n_threads;
}
