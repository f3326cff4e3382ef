/* A step as a list of dispatches: encoded as they come, in command buffers of bounded work, and encoded again from the list
 * when a buffer has failed. */
#include "backend/metal/host.h"
#include "base/os.h"

#include <stdlib.h>
#include <string.h>

/* --- the list --- */

struct ds_metal_call *ds_metal_call(struct ds_metal *m, struct ds_mtl_fn *fn, const char *doing, const void *args, size_t n_args)
{
    struct ds_metal_call *c = &m->scrap;
    if (m->n_calls == m->cap_calls) {
        const int cap = m->cap_calls ? 2 * m->cap_calls : 1024;
        struct ds_metal_call *p = realloc(m->calls, (size_t)cap * sizeof *p);
        if (p) {
            m->calls = p;
            m->cap_calls = cap;
        } else if (!m->err.code) {
            ds_fail(&m->err, DS_ENOMEM, "the system refused memory for the list of a step's dispatches");
        }
    }
    if (m->n_calls < m->cap_calls) c = &m->calls[m->n_calls];
    *c = (struct ds_metal_call){ .fn = fn, .doing = doing, .n_args = (int)n_args };
    memcpy(c->args, args, n_args);
    return c;
}

void ds_metal_bind(struct ds_metal_call *c, struct ds_metal_mem mem) { c->bind[c->n_binds++] = mem; }

/* --- command buffers --- */

static void note_failure(struct ds_metal *m, const struct ds_mtl_result *r, const char *doing)
{
    if (m->failed_doing) return;
    m->failure = *r;
    m->failed_doing = doing;
}

static void end_buffer(struct ds_metal *m)
{
    if (!m->cmd) return;
    ds_mtl_end(m->cmd);
    m->flight[m->n_flight++] = (struct ds_metal_flight){ m->cmd, m->cmd_first, m->sent - m->cmd_first };
    m->cmd = NULL;
}

/* Waits for the oldest buffer. */
static void land(struct ds_metal *m)
{
    const struct ds_metal_flight f = m->flight[0];
    struct ds_mtl_result r = { .status = DS_MTL_FAILED };
    memmove(m->flight, m->flight + 1, (size_t)--m->n_flight * sizeof *m->flight);
    ds_mtl_wait(f.cmd, &r);
    m->no_times = !r.end_ns;
    if (!r.end_ns) r.start_ns = r.end_ns = ds_now_ns();
    for (int i = 0; i < f.n; i++) {
        m->calls[f.first + i].start_ns = r.start_ns;
        m->calls[f.first + i].end_ns = r.end_ns;
    }
    m->last_ns = r.end_ns;
    if (r.status != DS_MTL_DONE) note_failure(m, &r, m->calls[f.first + f.n - 1].doing);
}

static bool open_buffer(struct ds_metal *m)
{
    if (m->n_flight == DS_METAL_IN_FLIGHT) land(m);
    if (m->failed_doing) return false;     /* what comes next would read garbage: indices among it */
    if (!(m->cmd = ds_mtl_begin(m->dev))) {
        const struct ds_mtl_result r = { .status = DS_MTL_FAILED, .reason = "the system refused a command buffer" };
        note_failure(m, &r, m->calls[m->sent].doing);
        return false;
    }
    m->cmd_first = m->sent;
    m->cmd_work = 0;
    return true;
}

static void encode(struct ds_metal *m, const struct ds_metal_call *c)
{
    const uint32_t threads[3] = { c->threads, 1, 1 };
    ds_mtl_use(m->cmd, c->fn);
    ds_mtl_bytes(m->cmd, 0, c->args, (size_t)c->n_args);
    for (int i = 0; i < c->n_binds; i++) ds_mtl_bind(m->cmd, i + 1, c->bind[i].b, c->bind[i].off, c->bind[i].bytes);
    ds_mtl_dispatch(m->cmd, c->groups, threads);
}

/* Encodes what the list holds beyond `sent`; after a failure it only waits to be repeated. */
static void send(struct ds_metal *m)
{
    while (m->sent < m->n_calls && !m->failed_doing) {
        const struct ds_metal_call *c = &m->calls[m->sent];
        if (!m->cmd && !open_buffer(m)) return;
        encode(m, c);
        m->sent++;
        if ((m->cmd_work += c->work) >= m->budget) end_buffer(m);
    }
}

void ds_metal_go(struct ds_metal *m, struct ds_metal_call *c, uint32_t x, uint32_t y, uint32_t z, uint32_t threads, double work)
{
    if (c == &m->scrap || !x || !y || !z) return;
    c->groups[0] = x;
    c->groups[1] = y;
    c->groups[2] = z;
    c->threads = threads;
    c->work = work;
    m->n_calls++;
    send(m);
}

static void land_all(struct ds_metal *m)
{
    end_buffer(m);
    while (m->n_flight) land(m);
}

/* --- waiting, repeating --- */

static void give_up(struct ds_metal *m)
{
    const struct ds_mtl_result *r = &m->failure;
    const char *again = m->once ? "" : ", also when the step was repeated in smaller parts";
    if (m->err.code) return;
    ds_fail(&m->err, r->code == 8 ? DS_ENOMEM : DS_EIO, "Metal failed while %s: %s (code %d)%s", m->failed_doing,
            r->reason[0] ? r->reason : "no reason was given", r->code, again);
}

/* From the first dispatch on. Nothing that they read has changed since: see `once` and ds_metal_out. */
static void repeat(struct ds_metal *m)
{
    m->budget /= 2;
    m->failed_doing = NULL;
    m->sent = 0;
    send(m);
    land_all(m);
}

static uint64_t now_of(const struct ds_metal *m, const struct ds_metal_stamp *s)
{
    if (s->call > 0) return m->calls[s->call - 1].end_ns;
    if (m->last_ns && !m->n_calls) return m->last_ns;
    return m->n_calls ? m->calls[0].start_ns : ds_now_ns();
}

bool ds_metal_sync(struct ds_metal *m)
{
    land_all(m);
    for (int i = 1; i < DS_METAL_ATTEMPTS && m->failed_doing && !m->once; i++) repeat(m);
    if (m->failed_doing) give_up(m);
    if (m->err.code) return false;
    for (int i = 0; i < m->n_stamps; i++)
        if (!m->stamps[i].ns && (m->stamps[i].call > 0 || m->n_calls)) m->stamps[i].ns = now_of(m, &m->stamps[i]);
    if (!m->in_place) {                /* all of it is done and can be forgotten: what follows begins from here */
        for (int i = 0; i < m->n_stamps; i++) m->stamps[i].call = 0;
        m->n_calls = m->sent = 0;
        m->origin++;
    }
    return true;
}

void ds_metal_step_start(struct ds_metal *m)
{
    m->step++;
    m->origin++;
    m->n_calls = m->sent = m->n_stamps = 0;
    m->written = NULL;
    m->in_place = m->once = false;
    m->failed_doing = NULL;
    m->err = (struct ds_err){ 0 };
    m->last_ns = 0;
}

/* The new versions of the state become the current ones together, or not at all. */
ds_status ds_metal_step_end(struct ds_metal *m, struct ds_err *e)
{
    const bool ok = ds_metal_sync(m);
    for (struct ds_buf *b = m->written; b; b = b->next_written) {
        if (ok) b->version ^= 1;
        b->advanced = 0;
    }
    m->written = NULL;
    m->n_calls = m->sent = 0;
    if (!ok && e) *e = m->err;
    return m->err.code;
}

void ds_metal_step_free(struct ds_metal *m)
{
    land_all(m);
    free(m->calls);
    free(m->stamps);
}

/* --- stamps: a buffer ends at each, because its end is what the system tells the time of --- */

void ds_metal_stamp(struct ds_backend *be, int i)
{
    struct ds_metal *m = ds_metal_of(be);
    if (i >= m->cap_stamps) {
        const int cap = i < 512 ? 1024 : 2 * i;
        struct ds_metal_stamp *p = realloc(m->stamps, (size_t)cap * sizeof *p);
        if (!p) return;
        m->stamps = p;
        m->cap_stamps = cap;
    }
    end_buffer(m);
    if (m->no_times) ds_metal_sync(m);
    for (; m->n_stamps <= i; m->n_stamps++) m->stamps[m->n_stamps] = (struct ds_metal_stamp){ m->n_calls, 0 };
    if (!m->n_calls && m->last_ns) m->stamps[i].ns = m->last_ns;
}

uint64_t ds_metal_stamp_ns(struct ds_backend *be, int i)
{
    struct ds_metal *m = ds_metal_of(be);
    return i < m->n_stamps ? m->stamps[i].ns : 0;
}
