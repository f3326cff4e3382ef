/* Threads: start and end, sleeping on a word, and where a sleeper wakes. */
#if defined(__APPLE__)
#define _DARWIN_C_SOURCE
#else
#define _GNU_SOURCE
#endif

#include "base/os.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum steering { FREE, BEING_STEERED, STEERED };

struct ds_thread {
    pthread_t id;
    void (*fn)(void *);
    void *arg;
#if defined(__linux__)
    _Atomic enum steering steering;
    cpu_set_t before;                                /* where it might run before it was steered */
#endif
};

static _Thread_local struct ds_thread *self;

static void *thread_main(void *arg)
{
    struct ds_thread *t = self = arg;
    t->fn(t->arg);
    return NULL;
}

ds_thread *ds_thread_start(void (*fn)(void *), void *arg)
{
    struct ds_thread *t = malloc(sizeof *t);
    pthread_attr_t attr;
    sigset_t all, before;
    if (!t) return NULL;
    *t = (struct ds_thread){ .fn = fn, .arg = arg };
    if (pthread_attr_init(&attr) != 0) {
        free(t);
        return NULL;
    }
    pthread_attr_setstacksize(&attr, (size_t)8 << 20);   /* macOS gives 512 KiB to all but the main thread */
    /* Signals are for the main thread: its blocking calls must see them. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&t->id, &attr, thread_main, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (r == 0) return t;
    free(t);
    return NULL;
}

void ds_thread_join(ds_thread *t)
{
    pthread_join(t->id, NULL);
    free(t);
}

#if defined(__linux__)
/* A thread that has not yet let go of the last time is left as it is. */
void ds_thread_wake_apart(ds_thread *t)
{
    enum steering none = FREE;
    if (!atomic_compare_exchange_strong(&t->steering, &none, BEING_STEERED)) return;
    const int here = sched_getcpu();
    bool apart = here >= 0 && here < CPU_SETSIZE && !pthread_getaffinity_np(t->id, sizeof t->before, &t->before);
    if (apart) {
        cpu_set_t others = t->before;
        CPU_CLR(here, &others);
        apart = CPU_COUNT(&others) && !pthread_setaffinity_np(t->id, sizeof others, &others);
    }
    atomic_store(&t->steering, apart ? STEERED : FREE);
}

void ds_thread_let_go(void)
{
    if (!self || atomic_load(&self->steering) != STEERED) return;
    pthread_setaffinity_np(self->id, sizeof self->before, &self->before);
    atomic_store(&self->steering, FREE);
}
#else
void ds_thread_wake_apart(ds_thread *t) { (void)t; }
void ds_thread_let_go(void) { }
#endif

#if defined(__linux__) && !defined(DS_NO_FUTEX)
void ds_wait_word(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

void ds_wake_word(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}
#else
/* Words share a few condition variables by address; a wake-up meant for another word is spurious and allowed. */
#define BED { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER }
static struct bed { pthread_mutex_t lock; pthread_cond_t cond; } beds[8] = { BED, BED, BED, BED, BED, BED, BED, BED };

static struct bed *bed_of(const void *word)
{
    return &beds[(uintptr_t)word / 64 % 8];
}

void ds_wait_word(_Atomic uint32_t *word, uint32_t seen)
{
    struct bed *b = bed_of((const void *)word);
    pthread_mutex_lock(&b->lock);
    if (atomic_load(word) == seen) pthread_cond_wait(&b->cond, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

void ds_wake_word(_Atomic uint32_t *word)
{
    struct bed *b = bed_of((const void *)word);
    pthread_mutex_lock(&b->lock);
    pthread_cond_broadcast(&b->cond);
    pthread_mutex_unlock(&b->lock);
}
#endif

void ds_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

void ds_cpu_yield(void)
{
    sched_yield();
}
