/* The watch on memory: what -fsanitize=thread calls before each access of a kernel, and what -fsanitize=alignment,bounds calls
 * when it finds something. The compiler's own runtimes are not linked. */
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>

/* --- threadgroup memory --- */

/* Whether an access `who` made in (epoch, sg_epoch) may collide with one that thread or simdgroup `me` makes now. */
static bool collides(const worker *w, uint16_t who, uint32_t epoch, uint32_t sg_epoch, uint16_t me)
{
    if (who == WHO_NONE || epoch != w->epoch || who == me) return false;
    if (who == WHO_SEVERAL) return true;
    int a = who & WHO_SIMDGROUP ? who & 0xff : who / SIM_SIMD, b = me & WHO_SIMDGROUP ? me & 0xff : me / SIM_SIMD;
    return a != b || sg_epoch == w->sg[b].epoch;
}

static void name_of(char *dst, size_t n, uint16_t who)
{
    if (who == WHO_SEVERAL) snprintf(dst, n, "several threads");
    else if (who & WHO_SIMDGROUP) snprintf(dst, n, "simdgroup %d", who & 0xff);
    else snprintf(dst, n, "thread %d", who);
}

static void watch_threadgroup(worker *w, unsigned long at, unsigned long size, bool write, bool whole)
{
    if (at + size > w->memory_used) sim_fault(w, "threadgroup byte %lu of %lu declared", at + size - 1, w->memory_used);
    if (w->no_races) return;
    int sg = (int)(w->current - w->fibers) / SIM_SIMD;
    uint16_t me = (uint16_t)(whole ? WHO_SIMDGROUP | sg : w->current - w->fibers);
    uint32_t sg_epoch = w->sg[sg].epoch;
    for (shadow *s = w->shadows + at / 2, *end = w->shadows + (at + size + 1) / 2; s < end; s++) {
        bool after_write = collides(w, s->writer, s->write_epoch, s->write_sg_epoch, me);
        if (after_write || (write && collides(w, s->reader, s->read_epoch, s->read_sg_epoch, me))) {
            char other[32];
            name_of(other, sizeof other, after_write ? s->writer : s->reader);
            sim_fault(w, "race: %s of threadgroup byte %lu, which %s %s with no barrier between", write ? "write" : "read",
                      (unsigned long)(s - w->shadows) * 2, other, after_write ? "wrote" : "read");
        }
        if (write) {
            s->writer = me, s->write_epoch = w->epoch, s->write_sg_epoch = sg_epoch;
        } else {
            /* One reader is kept. A second one makes it "several", unless a barrier has put the first behind. */
            bool other = collides(w, s->reader, s->read_epoch, s->read_sg_epoch, me);
            s->reader = other ? (uint16_t)WHO_SEVERAL : me;
            s->read_epoch = w->epoch, s->read_sg_epoch = sg_epoch;
        }
    }
}

/* --- buffers --- */

static void outside(worker *w, const char *a, unsigned long size, bool write)
{
    const range *near = nullptr;
    unsigned long best = ~0ul;
    for (int i = 0; i < w->n_ranges; i++) {
        const range *r = &w->ranges[i];
        unsigned long far = a < r->lo ? (unsigned long)(r->lo - a) : (unsigned long)(a - r->hi);
        if (far < best) best = far, near = r;
    }
    if (!near) sim_fault(w, "%s of %lu bytes at %p, and no buffer is bound", write ? "write" : "read", size, (const void *)a);
    sim_fault(w, "%s of %lu bytes at %+ld of buffer %d, which has %ld", write ? "write" : "read", size, (long)(a - near->lo), near->index,
              (long)(near->hi - near->lo));
}

/* Within a dispatch no two threads may touch one location of a buffer that one of them writes: nothing orders threadgroups, and
 * no kernel here hands data from thread to thread through a buffer. A location remembers its writer and its reader. */
static void watch_buffer(worker *w, const range *r, const char *a, unsigned long size, bool write, bool whole)
{
    uint32_t tid = (uint32_t)(w->current - w->fibers);
    if (whole) tid -= tid % SIM_SIMD;
    uint32_t me = (w->group_index << 10 | tid) + 1;
    unsigned long first = (unsigned long)(a - r->lo) / 2, last = ((unsigned long)(a - r->lo) + size - 1) / 2;
    for (std::atomic<uint32_t> *s = r->seen + 2 * first, *end = r->seen + 2 * last; s <= end; s += 2) {
        uint32_t writer = s[0].load(std::memory_order_relaxed), reader = s[1].load(std::memory_order_relaxed);
        uint32_t other = writer && writer != me ? writer : write && reader && reader != me ? reader : 0;
        if (other) {
            char who[64] = "several threads";
            if (other != ~0u) snprintf(who, sizeof who, "thread %u of threadgroup %u", (other - 1) & 1023, (other - 1) >> 10);
            sim_fault(w, "race: %s of buffer %d at %ld, which %s %s", write ? "write" : "read", r->index, (long)(s - r->seen), who,
                      other == writer ? "wrote" : "read");
        }
        if (write) s[0].store(me, std::memory_order_relaxed);
        else if (!reader) s[1].store(me, std::memory_order_relaxed);
        else if (reader != me) s[1].store(~0u, std::memory_order_relaxed);
    }
}

extern "C" char __executable_start, end;       /* constants of the shaders lie in the program itself */

void sim_access(worker *w, const void *p, unsigned long size, bool write, bool whole)
{
    char *a = static_cast<char *>(const_cast<void *>(p));
    unsigned long at = (unsigned long)(a - w->memory);
    if (at < SIM_THREADGROUP_BYTES) {
        watch_threadgroup(w, at, size, write, whole);
        return;
    }
    if (a < w->last.lo || a + size > w->last.hi) {
        int i = 0;
        while (i < w->n_ranges && (a < w->ranges[i].lo || a + size > w->ranges[i].hi)) i++;
        if (i == w->n_ranges) {
            if (!write && a >= &__executable_start && a + size <= &end) return;
            outside(w, a, size, write);
        }
        w->last = w->ranges[i];
    }
    if (w->last.seen) watch_buffer(w, &w->last, a, size, write, whole);
}

static inline void touch(const void *p, unsigned long size, bool write)
{
    worker *w = sim_worker;
    const char *a = static_cast<const char *>(p), *own = reinterpret_cast<const char *>(w);
    if (a >= w->stacks && a < w->stacks_end) return;               /* locals */
    if (a >= own && a < own + sizeof *w) return;                   /* positions, on their way from the executor */
    sim_access(w, p, size, write, false);
}

static void misaligned(const void *p, unsigned long size)
{
    worker *w = sim_worker;
    if ((unsigned long)p % size) sim_fault(w, "an access of %lu bytes at an address that is %lu past a multiple", size, (unsigned long)p % size);
}

#define HOOKS(size) \
    void __tsan_read##size(void *p) { misaligned(p, size), touch(p, size, false); } \
    void __tsan_write##size(void *p) { misaligned(p, size), touch(p, size, true); } \
    void __tsan_unaligned_read##size(void *p) { touch(p, size, false); } \
    void __tsan_unaligned_write##size(void *p) { touch(p, size, true); }

extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void *p, unsigned long n) { touch(p, n, false); }
void __tsan_write_range(void *p, unsigned long n) { touch(p, n, true); }
void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
void *__tsan_memcpy(void *d, const void *s, unsigned long n) { touch(s, n, false), touch(d, n, true); return __builtin_memcpy(d, s, n); }
void *__tsan_memset(void *d, int v, unsigned long n) { touch(d, n, true); return __builtin_memset(d, v, n); }
void *__tsan_memmove(void *d, const void *s, unsigned long n) { touch(s, n, false), touch(d, n, true); return __builtin_memmove(d, s, n); }

/* Undefined behaviour that the compiler found at run time. The data begin with file, line, column. */
struct ubsan_location { const char *file; unsigned line, column; };
static void undefined(const void *data, const char *what)
{
    const ubsan_location *at = static_cast<const ubsan_location *>(data);
    if (sim_worker) sim_fault(sim_worker, "line %u: %s", at->line, what);
    abort();
}
void __ubsan_handle_type_mismatch_v1(void *d, unsigned long) { undefined(d, "a pointer that is not aligned to its type"); }
void __ubsan_handle_out_of_bounds(void *d, unsigned long) { undefined(d, "an index outside of its array"); }
void __ubsan_handle_add_overflow(void *d, unsigned long, unsigned long) { undefined(d, "a sum overflows"); }
void __ubsan_handle_sub_overflow(void *d, unsigned long, unsigned long) { undefined(d, "a difference overflows"); }
void __ubsan_handle_mul_overflow(void *d, unsigned long, unsigned long) { undefined(d, "a product overflows"); }
void __ubsan_handle_negate_overflow(void *d, unsigned long) { undefined(d, "a negation overflows"); }
void __ubsan_handle_divrem_overflow(void *d, unsigned long, unsigned long) { undefined(d, "a division by zero or that overflows"); }
void __ubsan_handle_shift_out_of_bounds(void *d, unsigned long, unsigned long) { undefined(d, "a shift by too much"); }
}
