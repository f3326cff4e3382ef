/* The software device: mtl.h for tests on any host. Command buffers run when they are waited for, on the executor of sim.h;
 * until then nothing that they write is there, and a host that looks too early is caught. What Metal forgives nobody (bounds,
 * races, unbound buffers, oversized arguments) makes this and every later command buffer fail with the reason.
 *
 * DS_METAL_SIM=key=value,... sets what a GPU may do to us:
 *   seed=N         order of threads, simdgroups, threadgroups          workers=N      host threads that run threadgroups
 *   races=0        no race detection (faster)                          threads=N      most threads of a pipeline
 *   rough=1        subnormals flushed, functions off by 2 ulp
 *   fail=N:CODE    command buffer N (from 1) fails, garbage written    fail-from=N:CODE   it and all later ones
 *   max-buffer=B   bytes of one buffer                                 working-set=B  bytes in all
 *   family=N       GPU family                                          times=0        no GPU times
 *   no-copy=0      wrapping memory is refused                          nil=device|library|command|KERNEL   what is refused
 *   zeros=1        kernels are accepted and write nothing              report=PATH    a file that gets the number of command buffers
 *   swap=KERNEL    in what it wrote, the first and the last number change places */
#include "backend/metal/mtl.h"

#include "base/os.h"
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 16384 };

struct options {
    struct sim_options exec;
    uint64_t max_buffer, working_set, fail, fail_from;
    int code, family;
    bool no_times, no_wrap, zeros;
    char nil[40], report[96], swap[40];
};

struct ds_mtl {
    struct options o;
    struct ds_mtl_cmd *queue;              /* ended, not run; in order */
    uint64_t ended, lost;                  /* lost: the last that was under way when one failed */
    char fault[512];                       /* the first; from then on everything fails */
};
struct ds_mtl_buf { struct ds_mtl *d; unsigned char *p; size_t n; bool wrapped; int pending; };
struct ds_mtl_fn { struct ds_mtl *d; char name[40]; int32_t consts[4]; };

struct binding { struct ds_mtl_buf *b; size_t off, bytes; unsigned char *value; bool set; };
struct dispatch { struct ds_mtl_fn *fn; struct binding at[SIM_BUFFERS]; uint32_t groups[3], threads[3]; };
struct ds_mtl_cmd {
    struct ds_mtl *d;
    struct dispatch *list; int n, cap;
    struct dispatch next;                  /* being filled */
    uint64_t number;                       /* 0: not ended */
    bool ran;
    struct ds_mtl_result r;
    struct ds_mtl_cmd *after;
};

/* --- options --- */

static void number_and_code(const char *v, uint64_t *n, int *code)
{
    char *end;
    *n = strtoull(v, &end, 0);
    if (*end == ':') *code = atoi(end + 1);
}

static bool set_option(struct options *o, const char *key, const char *v)
{
    const uint64_t n = strtoull(v, NULL, 0);
    if (!strcmp(key, "seed")) o->exec.seed = n;
    else if (!strcmp(key, "workers")) o->exec.host_threads = (int)n;
    else if (!strcmp(key, "races")) o->exec.no_races = !n;
    else if (!strcmp(key, "rough")) o->exec.rough = n != 0;
    else if (!strcmp(key, "threads")) o->exec.max_threads = (uint32_t)n;
    else if (!strcmp(key, "fail")) number_and_code(v, &o->fail, &o->code);
    else if (!strcmp(key, "fail-from")) number_and_code(v, &o->fail_from, &o->code);
    else if (!strcmp(key, "max-buffer")) o->max_buffer = n;
    else if (!strcmp(key, "working-set")) o->working_set = n;
    else if (!strcmp(key, "family")) o->family = (int)n;
    else if (!strcmp(key, "times")) o->no_times = !n;
    else if (!strcmp(key, "no-copy")) o->no_wrap = !n;
    else if (!strcmp(key, "zeros")) o->zeros = n != 0;
    else if (!strcmp(key, "nil")) snprintf(o->nil, sizeof o->nil, "%s", v);
    else if (!strcmp(key, "report")) snprintf(o->report, sizeof o->report, "%s", v);
    else if (!strcmp(key, "swap")) snprintf(o->swap, sizeof o->swap, "%s", v);
    else return false;
    return true;
}

static bool read_options(struct options *o, struct ds_err *e)
{
    const char *s = getenv("DS_METAL_SIM");
    *o = (struct options){ .exec = { .seed = 1, .host_threads = ds_cpu_count() }, .max_buffer = 8ull << 30, .working_set = 24ull << 30,
                           .code = 1, .family = 9 };
    while (s && *s) {
        char pair[160];
        const size_t n = strcspn(s, ",");
        snprintf(pair, sizeof pair, "%.*s", (int)n, s);
        char *eq = strchr(pair, '=');
        if (eq) *eq++ = 0;
        if (!eq || !set_option(o, pair, eq)) {
            ds_fail(e, DS_EARG, "DS_METAL_SIM: '%.*s' is no option of the software device", (int)n, s);
            return false;
        }
        s += n + (s[n] == ',');
    }
    return true;
}

/* --- device --- */

static void fault(struct ds_mtl *d, const char *why)
{
    if (d->fault[0]) return;
    snprintf(d->fault, sizeof d->fault, "%s", why);
    fprintf(stderr, "software device: %s\n", why);
}

struct ds_mtl *ds_mtl_open(struct ds_err *e)
{
    struct ds_mtl *d = calloc(1, sizeof *d);
    if (!d || !read_options(&d->o, e)) {
        free(d);
        return NULL;
    }
    if (!strcmp(d->o.nil, "device")) ds_fail(e, DS_EUNSUP, "no Metal device: this system names none");
    else if (!strcmp(d->o.nil, "library")) ds_fail(e, DS_EUNSUP, "the shaders do not compile: gemm.metal:1:1: error: planted");
    else return d;
    free(d);
    return NULL;
}

void ds_mtl_close(struct ds_mtl *d)
{
    FILE *f = d && d->o.report[0] ? fopen(d->o.report, "w") : NULL;
    if (f) {
        fprintf(f, "%llu\n", (unsigned long long)d->ended);
        fclose(f);
    }
    free(d);
}

void ds_mtl_facts(struct ds_mtl *d, struct ds_mtl_facts *f)
{
    *f = (struct ds_mtl_facts){ .software = true, .family = d->o.family, .page = PAGE, .max_buffer = d->o.max_buffer,
                                .working_set = d->o.working_set, .max_threads = SIM_MAX_THREADS, .thermal = -1 };
    snprintf(f->name, sizeof f->name, "software device (no GPU)");
}

/* --- buffers --- */

struct ds_mtl_buf *ds_mtl_buf_new(struct ds_mtl *d, size_t bytes)
{
    struct ds_mtl_buf *b = calloc(1, sizeof *b);
    if (b && bytes && bytes <= d->o.max_buffer && (b->p = ds_mem_alloc(bytes))) {
        b->d = d;
        b->n = bytes;
        return b;
    }
    free(b);
    return NULL;
}

struct ds_mtl_buf *ds_mtl_buf_wrap(struct ds_mtl *d, const void *base, size_t bytes)
{
    if (d->o.no_wrap || (uintptr_t)base % PAGE || bytes % PAGE || !bytes || bytes > d->o.max_buffer) return NULL;
    struct ds_mtl_buf *b = calloc(1, sizeof *b);
    if (b) *b = (struct ds_mtl_buf){ .d = d, .p = (unsigned char *)(uintptr_t)base, .n = bytes, .wrapped = true };
    return b;
}

void ds_mtl_buf_free(struct ds_mtl_buf *b)
{
    if (!b) return;
    if (b->pending) {                      /* kept: what is in flight still names it */
        fault(b->d, "a buffer was freed while a command buffer that uses it was in flight");
        return;
    }
    if (!b->wrapped) ds_mem_free(b->p, b->n);
    free(b);
}

void *ds_mtl_buf_ptr(struct ds_mtl_buf *b)
{
    if (b->pending) fault(b->d, "the host looked into a buffer while a command buffer that uses it was in flight");
    return b->p;
}

/* --- kernels --- */

struct ds_mtl_fn *ds_mtl_fn_new(struct ds_mtl *d, const char *name, const int32_t *consts, int n_consts, struct ds_err *e)
{
    struct ds_mtl_fn *f = calloc(1, sizeof *f);
    if (!f || !sim_has_kernel(name) || !strcmp(d->o.nil, name)) {
        ds_fail(e, DS_EUNSUP, "the shaders have no kernel '%s', or it was refused", name);
        free(f);
        return NULL;
    }
    f->d = d;
    snprintf(f->name, sizeof f->name, "%s", name);
    for (int i = 0; i < n_consts && i < 4; i++) f->consts[i] = consts[i];
    return f;
}

void ds_mtl_fn_free(struct ds_mtl_fn *f) { free(f); }

void ds_mtl_fn_facts(struct ds_mtl_fn *f, struct ds_mtl_fn_facts *facts)
{
    *facts = (struct ds_mtl_fn_facts){ .max_threads = (int)sim_kernel_max_threads(f->name, &f->d->o.exec), .width = SIM_SIMD };
}

/* --- command buffers: encoding --- */

struct ds_mtl_cmd *ds_mtl_begin(struct ds_mtl *d)
{
    struct ds_mtl_cmd *c = strcmp(d->o.nil, "command") ? calloc(1, sizeof *c) : NULL;
    if (c) c->d = d;
    return c;
}

void ds_mtl_use(struct ds_mtl_cmd *c, struct ds_mtl_fn *f) { c->next.fn = f; }

void ds_mtl_bind(struct ds_mtl_cmd *c, int index, struct ds_mtl_buf *b, size_t off, size_t bytes)
{
    char why[200];
    if (index < 0 || index >= SIM_BUFFERS || !b || off > b->n || bytes > b->n - off || off % 4) {
        snprintf(why, sizeof why, "%s: buffer %d is bound at %zu for %zu bytes, but it has %zu", c->next.fn->name, index, off, bytes,
                 b ? b->n : (size_t)0);
        fault(c->d, why);
        return;
    }
    c->next.at[index] = (struct binding){ .b = b, .off = off, .bytes = bytes, .set = true };
}

void ds_mtl_bytes(struct ds_mtl_cmd *c, int index, const void *p, size_t n)
{
    unsigned char *value = index >= 0 && index < SIM_BUFFERS && n && n <= 4096 ? malloc(n) : NULL;
    if (!value) {
        fault(c->d, "more than 4096 bytes of arguments, or none");
        return;
    }
    memcpy(value, p, n);
    c->next.at[index] = (struct binding){ .value = value, .bytes = n, .set = true };
}

static void drop_values(struct dispatch *x)
{
    for (int i = 0; i < SIM_BUFFERS; i++) free(x->at[i].value);
}

void ds_mtl_dispatch(struct ds_mtl_cmd *c, const uint32_t groups[3], const uint32_t threads[3])
{
    if (c->n == c->cap) {
        const int cap = c->cap ? 2 * c->cap : 16;
        struct dispatch *p = realloc(c->list, (size_t)cap * sizeof *p);
        if (!p) {
            fault(c->d, "no memory for a command buffer");
            return;
        }
        c->list = p;
        c->cap = cap;
    }
    memcpy(c->next.groups, groups, sizeof c->next.groups);
    memcpy(c->next.threads, threads, sizeof c->next.threads);
    for (int i = 0; i < 3; i++)
        if (!groups[i] || !threads[i]) fault(c->d, "a dispatch of nothing");
    for (int i = 0; i < SIM_BUFFERS; i++)
        if (c->next.at[i].b) c->next.at[i].b->pending++;
    c->list[c->n++] = c->next;
    c->next = (struct dispatch){ .fn = NULL };
}

void ds_mtl_end(struct ds_mtl_cmd *c)
{
    struct ds_mtl_cmd **p = &c->d->queue;
    while (*p) p = &(*p)->after;
    *p = c;
    c->number = ++c->d->ended;
}

/* --- command buffers: running --- */

/* What a failed buffer wrote is garbage: every byte that its dispatches changed. */
static void spoil(const struct dispatch *x, unsigned char **before)
{
    for (int i = 0; i < SIM_BUFFERS; i++) {
        if (!before[i]) continue;
        unsigned char *p = x->at[i].b->p + x->at[i].off;
        for (size_t k = 0; k < x->at[i].bytes; k++)
            if (p[k] != before[i][k]) p[k] = 0xff;
        free(before[i]);
    }
}

static void remember(const struct dispatch *x, unsigned char **before)
{
    for (int i = 0; i < SIM_BUFFERS; i++) {
        const struct binding *b = &x->at[i];
        before[i] = b->b && !b->b->wrapped ? malloc(b->bytes + 1) : NULL;
        if (before[i]) memcpy(before[i], b->b->p + b->off, b->bytes);
    }
}

/* Of the 32-bit words that a dispatch changed in its last output, the first and the last change places: the smallest fault that
 * a kernel may have. A single one becomes its negative. */
static void swap_ends(const struct dispatch *x, unsigned char **before)
{
    for (int i = SIM_BUFFERS - 1; i >= 0; i--) {
        if (!before[i]) continue;
        unsigned char *now = x->at[i].b->p + x->at[i].off, *first = NULL, *last = NULL;
        for (size_t k = 0; k + 4 <= x->at[i].bytes; k += 4) {
            if (!memcmp(now + k, before[i] + k, 4)) continue;
            if (!first) first = now + k;
            last = now + k;
        }
        if (!first) continue;
        uint32_t a, b;
        memcpy(&a, first, 4);
        memcpy(&b, last, 4);
        if (first == last) b ^= 0x80000000u;
        memcpy(last, &a, 4);
        memcpy(first, &b, 4);
        break;
    }
}

static void forget(unsigned char **before)
{
    for (int i = 0; i < SIM_BUFFERS; i++) free(before[i]);
}

static void run_dispatch(struct ds_mtl *d, const struct dispatch *x, uint64_t number)
{
    struct sim_dispatch s = { .kernel = x->fn->name };
    struct sim_options o = d->o.exec;
    char why[400];
    for (int i = 0; i < SIM_BUFFERS; i++) {
        const struct binding *b = &x->at[i];
        if (b->b) s.buffer[i] = (struct sim_binding){ .p = b->b->p + b->off, .size = b->bytes, .read_only = b->b->wrapped };
        else if (b->value) s.buffer[i] = (struct sim_binding){ .p = b->value, .size = b->bytes, .read_only = true };
    }
    memcpy(s.groups, x->groups, sizeof s.groups);
    memcpy(s.threads, x->threads, sizeof s.threads);
    memcpy(s.constants, x->fn->consts, sizeof s.constants);
    if (o.seed) o.seed = o.seed * 1000003u + number;       /* 0: the same order in every buffer, so that equal work gives equal bits */
    const bool swapped = !strcmp(x->fn->name, d->o.swap);
    unsigned char *before[SIM_BUFFERS] = { NULL };
    if (swapped) remember(x, before);
    if (!d->o.zeros && sim_run(&s, &o, why, sizeof why) == SIM_FAULT) fault(d, why);
    if (swapped) swap_ends(x, before);
    forget(before);
}

/* Buffers that were under way when one failed do nothing: what they would read is garbage. */
static void run_list(struct ds_mtl_cmd *c, bool failing)
{
    struct ds_mtl *d = c->d;
    unsigned char *(*before)[SIM_BUFFERS] = failing ? calloc((size_t)c->n + 1, sizeof *before) : NULL;
    for (int i = 0; i < c->n && !d->fault[0] && c->number > d->lost; i++) {
        if (before) remember(&c->list[i], before[i]);
        run_dispatch(d, &c->list[i], c->number);
    }
    for (int i = c->n - 1; i >= 0 && before; i--) spoil(&c->list[i], before[i]);
    free(before);
    if (failing) d->lost = d->ended;
}

static void run(struct ds_mtl_cmd *c)
{
    struct ds_mtl *d = c->d;
    const bool failing = c->number == d->o.fail || (d->o.fail_from && c->number >= d->o.fail_from);
    c->r = (struct ds_mtl_result){ .status = DS_MTL_DONE };
    if (!d->o.no_times) c->r.start_ns = ds_now_ns();
    run_list(c, failing);
    for (int i = 0; i < c->n; i++) {
        for (int k = 0; k < SIM_BUFFERS; k++)
            if (c->list[i].at[k].b) c->list[i].at[k].b->pending--;
        drop_values(&c->list[i]);
    }
    if (!d->o.no_times) c->r.end_ns = ds_now_ns();
    if (failing) {
        c->r.status = DS_MTL_FAILED;
        c->r.code = d->o.code;
        snprintf(c->r.reason, sizeof c->r.reason, "planted failure of command buffer %llu", (unsigned long long)c->number);
    }
    if (d->fault[0]) {
        c->r.status = DS_MTL_FAILED;
        c->r.code = 3;
        snprintf(c->r.reason, sizeof c->r.reason, "%.*s", (int)sizeof c->r.reason - 1, d->fault);
    }
    c->ran = true;
}

void ds_mtl_wait(struct ds_mtl_cmd *c, struct ds_mtl_result *r)
{
    if (!c->number) fault(c->d, "a command buffer was waited for before it was ended");
    while (!c->ran && c->d->queue) {
        struct ds_mtl_cmd *first = c->d->queue;
        c->d->queue = first->after;
        run(first);
    }
    *r = c->r;
    free(c->list);
    free(c);
}
