/* A store, a session that goes through it and one that never does: what the tests of the session store share. */
#ifndef DS_TESTS_STORE_FIXTURE_H
#define DS_TESTS_STORE_FIXTURE_H

#include "model_fixture.h"

#include "base/os.h"
#include "deltascope_store.h"

#include <stdint.h>

#define WINDOW 512
#define EVERY 64

static uint32_t seed;
static inline int dice(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)n);
}

/* --- a folder of its own --- */

static char folder[128];
static inline void remove_one(void *ctx, const char *name, uint64_t bytes, int64_t mtime)
{
    char path[512];
    (void)bytes, (void)mtime;
    snprintf(path, sizeof path, "%s/%s", (const char *)ctx, name);
    ds_file_remove(path);
}
static inline void fresh_folder(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/deltascope-store-%llx", tmp ? tmp : "/tmp", (unsigned long long)ds_now_ns());
}
static inline void remove_folder(void)
{
    ds_dir_each(folder, remove_one, folder, NULL);
    remove(folder);
}

static int warnings;
static char last_warning[640];
static inline void warned(void *ctx, const char *sentence)
{
    (void)ctx;
    warnings++;
    snprintf(last_warning, sizeof last_warning, "%s", sentence);
}

/* --- scripts --- */

struct script {
    struct rig warm;               /* its session and one more take the requests */
    struct rig cold;
    ds_session *other;
    ds_store *st;
    struct ds_store_options o;
    int32_t ids[WINDOW];
    int n;
    int32_t past[64][WINDOW];      /* what was computed so far */
    int past_n[64], n_past;
    bool spread;                   /* nothing was evicted: the bound on recomputed tokens holds */
    bool loose;                    /* a model whose near ties rounding may decide: tokens are not compared */
    int exact, hits;
};

static inline void open_store(struct script *s)
{
    struct ds_err e = { 0 };
    const ds_status rc = ds_store_open(&s->st, s->warm.g, &s->o, &e);
    CHECK_MSG(!rc, "%s", e.msg);
}

static inline bool open_script(struct script *s, const struct ds_options *o)
{
    memset(s, 0, sizeof *s);
    if (!rig_open(&s->warm, o) || !rig_open(&s->cold, o)) return false;
    if (ds_session_new(&s->other, s->warm.g, NULL)) return false;
    s->o = (struct ds_store_options){ .every = EVERY, .max_cuts = o->max_cuts, .warn = warned };
    return true;
}

static inline void close_script(struct script *s)
{
    ds_session_free(s->other);
    rig_close(&s->warm);
    rig_close(&s->cold);
}

static inline void no_cut(void *ctx, ds_session *s, int64_t pos, int slot) { (void)ctx, (void)s, (void)pos, (void)slot; }

/* One prefill of the whole prompt, divided where the store takes its snapshot before the end. */
static inline void run_cold(struct script *s)
{
    const int64_t cut = s->n - 1;
    ds_session_reset(s->cold.s);
    if (cut > 0) ds_session_set_cuts(s->cold.s, &cut, 1, no_cut, NULL, NULL);
    rig_prefill(&s->cold, s->ids, s->n);
}

static inline int longest_common(const struct script *s)
{
    int best = 0;
    for (int i = 0; i < s->n_past; i++) {
        int c = 0;
        while (c < s->n && c < s->past_n[i] && s->past[i][c] == s->ids[c]) c++;
        if (c > best) best = c;
    }
    return best;
}

static inline void remember(struct script *s, const ds_session *from)
{
    const int slot = s->n_past % 64, n = (int)ds_session_pos(from);
    memcpy(s->past[slot], ds_session_tokens(from), (size_t)n * sizeof(int32_t));
    s->past_n[slot] = n;
    s->n_past++;
}

/* The prompt, through the store, on a session that it picks; then `answer` tokens of an answer. */
static inline void request(struct script *s, int answer, const char *what)
{
    struct ds_err e = { 0 };
    struct ds_lookup l;
    int64_t bounds[2] = { s->n / 3 + 1, s->n / 2 + 1 };
    ds_session *both[2] = { s->warm.s, s->other };
    struct rig r = { s->warm.g, both[ds_store_pick(s->st, both, 2, s->ids, s->n)] };
    ds_status rc = ds_store_begin(s->st, r.s, s->ids, s->n, bounds, 2, &l, &e);
    CHECK_MSG(!rc && ds_session_pos(r.s) == l.start && l.start + l.recompute == s->n, "%s: %s", what, e.msg);
    if (rc) return;
    const int common = longest_common(s);
    if (s->spread && common) {
        const int again = what[0] == 'r' && what[2] != 's';      /* repeat, regenerate */
        const int at = again ? s->n - 1 : (common < s->n ? common : s->n - 1) / EVERY * EVERY;
        CHECK_MSG(l.start >= at, "%s: %d of %d tokens are known, but it starts at %d (%s)", what, common, s->n, (int)l.start,
                  ds_reuse_names[l.reason]);
    }
    for (int at = (int)l.start; at < s->n && !rc;) {
        const int left = s->n - at, m = dice(2) && left > 128 ? 128 : left;
        rc = ds_store_prefill(s->st, r.s, s->ids + at, m, at + m == s->n ? DS_ROWS_LAST : DS_ROWS_NONE, NULL, NULL, &e);
        at += m;
    }
    CHECK_MSG(!rc && ds_session_logits(r.s), "%s: %s", what, e.msg);
    if (rc || !ds_session_logits(r.s)) return;
    run_cold(s);
    const size_t bytes = (size_t)ds_engine_info(r.g)->n_vocab * sizeof(float);
    const double d = state_diff(&r, &s->cold);
    if (l.exact && l.start) {
        CHECK_MSG(d == 0 && !memcmp(ds_session_logits(r.s), ds_session_logits(s->cold.s), bytes),
                "%s: from %d on %d: not the same bits (%g)", what,
                  (int)l.start, s->n, d);
        s->exact++;
    }
    CHECK_MSG(d < (s->loose ? 2e-2 : 1e-4), "%s: from %d on %d: state differs by %g", what, (int)l.start, s->n, d);
    s->hits += l.start > 0;
    int32_t a[64], b[64];
    if (rig_greedy(&r, a, answer + 1) && rig_greedy(&s->cold, b, answer + 1) && !s->loose)
        CHECK_MSG(!memcmp(a, b, (size_t)(answer + 1) * sizeof *a), "%s", what);
    remember(s, r.s);
    ds_store_end(s->st, r.s);
    struct ds_store_stats t;
    ds_store_get_stats(s->st, &t);
    CHECK_MSG(t.mem_used <= t.mem_limit, "%s: %llu bytes of %llu", what, (unsigned long long)t.mem_used,
            (unsigned long long)t.mem_limit);
}

static inline void random_ids(struct script *s, int from, int n)
{
    const int vocab = ds_engine_info(s->warm.g)->n_vocab;
    for (int i = from; i < n; i++) s->ids[i] = dice(vocab);
    s->n = n;
}

static inline void restart(struct script *s)
{
    ds_store_flush(s->st, 0);
    ds_store_close(s->st);
    ds_session_reset(s->warm.s);
    ds_session_reset(s->other);
    open_store(s);
}

static const struct ds_options mini = { .model = FIXTURES "mini-dense.gguf", .ctx = WINDOW, .ubatch = 128, .max_cuts = 8,
        .kv = "f32", .threads = 1 };

static inline struct ds_lookup ask(struct script *s, ds_session *on, int answer)
{
    struct ds_lookup l = { 0 };
    struct ds_err e = { 0 };
    struct rig r = { s->warm.g, on };
    int32_t out[32];
    ds_status rc = ds_store_begin(s->st, on, s->ids, s->n, NULL, 0, &l, &e);
    if (!rc && l.recompute) rc = ds_store_prefill(s->st, on, s->ids + l.start, (int)l.recompute, DS_ROWS_LAST, NULL, NULL, &e);
    CHECK_MSG(!rc, "%s", e.msg);
    if (!rc) rig_greedy(&r, out, answer + 1);
    ds_store_end(s->st, on);
    return l;
}

#endif
