#if defined(__linux__)
#define _GNU_SOURCE
#include <sched.h>
#endif
#include "base/os.h"
#include "base/pool.h"
#include "../harness.h"

#include <stdatomic.h>
#include <stdlib.h>

struct tally { int *hits; int *threads; int n; };

static void count(void *ctx, int i, int thread)
{
    struct tally *t = ctx;
    t->hits[i]++;            /* plain memory: a lost or doubled iteration, or a missing fence, shows */
    t->threads[thread]++;
}

static void pool_runs_each_iteration_once(void)
{
    static int hits[1000], threads[8];
    for (int nt = 1; nt <= 6; nt++) {
        ds_pool *p = ds_pool_new(nt);
        REQUIRE(p != NULL && ds_pool_threads(p) == nt);
        for (int n = 0; n <= 1000; n += n < 10 ? 1 : 99) {
            struct tally t = { hits, threads, n };
            memset(hits, 0, sizeof hits);
            memset(threads, 0, sizeof threads);
            ds_pool_run(p, count, &t, n);
            int sum = 0;
            for (int i = 0; i < 1000; i++) CHECK(hits[i] == (i < n));
            for (int i = 0; i < 8; i++) sum += threads[i];
            CHECK(sum == n && threads[nt] == 0);
        }
        ds_pool_free(p);
    }
}

/* Many short loops with changing lengths: a worker that is late for one loop must not disturb the next. */
static void pool_back_to_back(void)
{
    static int hits[64], threads[8];
    ds_pool *p = ds_pool_new(4);
    struct tally t = { hits, threads, 0 };
    long want = 0, got = 0;
    REQUIRE(p != NULL);
    for (int r = 0; r < 20000; r++) {
        int n = r % 7;
        ds_pool_run(p, count, &t, n);
        want += n;
    }
    for (int i = 0; i < 64; i++) got += hits[i];
    CHECK(got == want);
    ds_pool_free(p);
}

static void pool_wakes_after_sleep(void)
{
    static int hits[64], threads[8];
    ds_pool *p = ds_pool_new(3);
    struct tally t = { hits, threads, 0 };
    REQUIRE(p != NULL);
    for (int r = 0; r < 200; r++) {
        uint64_t until = ds_now_ns() + (r % 2 ? 45000 : 200000);   /* around and beyond the spin */
        while (ds_now_ns() < until) ds_cpu_relax();
        ds_pool_run(p, count, &t, 8);
    }
    for (int i = 0; i < 8; i++) CHECK(hits[i] == 200);
    ds_pool_free(p);
}

struct meet { _Atomic int inside; _Atomic int most; };

static void stay(void *ctx, int i, int thread)
{
    struct meet *m = ctx;
    (void)i, (void)thread;
    int now = atomic_fetch_add(&m->inside, 1) + 1, most = atomic_load(&m->most);
    while (now > most && !atomic_compare_exchange_weak(&m->most, &most, now)) { }
    uint64_t until = ds_now_ns() + 20000000;
    while (ds_now_ns() < until) ds_cpu_relax();
    atomic_fetch_sub(&m->inside, 1);
}

static void pool_is_parallel(void)
{
    ds_pool *p = ds_pool_new(4);
    REQUIRE(p != NULL);
    for (int asleep = 0; asleep < 2; asleep++) {
        struct meet m = { 0 };
        uint64_t until = ds_now_ns() + (asleep ? 20000000 : 0);
        while (ds_now_ns() < until) ds_cpu_yield();
        ds_pool_run(p, stay, &m, 16);
        CHECK_MSG(m.most >= 2 && m.most <= 4, "%d at once", m.most);
    }
    ds_pool_free(p);
}

#if defined(__linux__)
struct sleeper { _Atomic uint32_t word, ready; cpu_set_t at_start, woken, after; };

static void sleep_and_look(void *arg)
{
    struct sleeper *s = arg;
    sched_getaffinity(0, sizeof s->at_start, &s->at_start);
    atomic_store(&s->ready, 1);
    while (!atomic_load(&s->word)) ds_wait_word(&s->word, 0);
    sched_getaffinity(0, sizeof s->woken, &s->woken);
    ds_thread_let_go();
    sched_getaffinity(0, sizeof s->after, &s->after);
}

/* A woken thread has every processor but its waker's, then all that it had; twice in a row is once. */
static void sleepers_wake_apart(void)
{
    for (int times = 0; times < 3; times++) {
        struct sleeper s = { 0 };
        ds_thread *t = ds_thread_start(sleep_and_look, &s);
        REQUIRE(t != NULL);
        while (!atomic_load(&s.ready)) ds_cpu_yield();
        for (int i = 0; i < times; i++) ds_thread_wake_apart(t);
        atomic_store(&s.word, 1);
        ds_wake_word(&s.word);
        ds_thread_join(t);
        const int all = CPU_COUNT(&s.at_start), some = CPU_COUNT(&s.woken);
        CHECK_MSG(some == (times && all > 1 ? all - 1 : all), "%d of %d processors after %d calls", some, all, times);
        CHECK(CPU_EQUAL(&s.at_start, &s.after));
    }
}

static void keep_affinity(void *ctx, int i, int thread)
{
    cpu_set_t *all = ctx;
    uint64_t until = ds_now_ns() + 1000000;
    (void)i;
    while (ds_now_ns() < until) ds_cpu_relax();
    sched_getaffinity(0, sizeof all[thread], &all[thread]);
}

/* A loop after a long sleep leaves every worker free to run anywhere. */
static void pool_pins_nobody(void)
{
    cpu_set_t all[3] = { 0 };
    ds_pool *p = ds_pool_new(3);
    REQUIRE(p != NULL);
    for (int r = 0; r < 20; r++) {
        uint64_t until = ds_now_ns() + 3000000;
        while (ds_now_ns() < until) ds_cpu_yield();
        ds_pool_run(p, keep_affinity, all, 12);
        for (int t = 1; t < 3; t++) CHECK(!CPU_COUNT(&all[t]) || CPU_EQUAL(&all[t], &all[0]));
    }
    ds_pool_free(p);
}
#endif

static void pool_start_and_stop(void)
{
    for (int i = 0; i < 200; i++) {
        ds_pool *p = ds_pool_new(1 + i % 4);
        REQUIRE(p != NULL);
        ds_pool_free(p);
    }
    ds_pool_free(NULL);
    CHECK(ds_pool_new(0) == NULL && ds_pool_new(-1) == NULL);
}

static const struct ds_test tests[] = {
    { "pool_runs_each_iteration_once", pool_runs_each_iteration_once },
    { "pool_back_to_back", pool_back_to_back },
    { "pool_wakes_after_sleep", pool_wakes_after_sleep },
    { "pool_is_parallel", pool_is_parallel },
#if defined(__linux__)
    { "sleepers_wake_apart", sleepers_wake_apart },
    { "pool_pins_nobody", pool_pins_nobody },
#endif
    { "pool_start_and_stop", pool_start_and_stop },
};
DS_TEST_MAIN(tests)
