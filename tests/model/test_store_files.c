/* The session store and its folder: idle writes, restarts, two processes, full and failing disks, damage. */
#include "store_fixture.h"

#include <signal.h>
#include <sys/resource.h>

static void store_idle_writes_and_restart_reads(void)
{
    static struct script s;
    struct ds_store_stats t;
    if (!open_script(&s, &mini)) return;
    fresh_folder();
    s.o.dir = folder;
    s.o.idle_s = 0.05;
    open_store(&s);
    seed = 10;
    random_ids(&s, 0, 300);
    ask(&s, s.warm.s, 5);
    while (ds_store_tick(s.st)) {}                             /* not idle yet: memory at most */
    ds_store_get_stats(s.st, &t);
    CHECK(t.written == 0 && t.unsaved > 0);
    const uint64_t start = ds_now_ns();
    while (ds_now_ns() - start < 60000000u) ds_cpu_yield();
    while (ds_store_tick(s.st)) {}
    ds_store_get_stats(s.st, &t);
    CHECK(t.written > 0 && t.unsaved == 0 && t.disk_used > 0 && t.files == t.written);
    ds_store_close(s.st);                                      /* without a flush: as if the process had ended */
    ds_session_reset(s.warm.s);
    open_store(&s);
    const struct ds_lookup l = ask(&s, s.warm.s, 5);
    CHECK_MSG(l.reason == DS_REUSE_DISK && l.recompute <= 1, "%s, %d tokens", ds_reuse_names[l.reason], (int)l.recompute);
    ds_store_close(s.st);
    remove_folder();
    close_script(&s);
}

static void store_two_processes_on_one_folder(void)
{
    static struct script s, t;
    struct ds_store_stats n;
    if (!open_script(&s, &mini) || !open_script(&t, &mini)) return;
    fresh_folder();
    s.o.dir = t.o.dir = folder;
    open_store(&s);
    warnings = 0;
    open_store(&t);                                            /* the lock belongs to whoever opened it, not to a process */
    CHECK_MSG(warnings == 1 && strstr(last_warning, "another process"), "%s", last_warning);
    seed = 11;
    random_ids(&t, 0, 100);
    ask(&t, t.warm.s, 2);
    ds_store_flush(t.st, 0);
    ds_store_get_stats(t.st, &n);
    CHECK(n.written == 0 && n.mem_used > 0);
    ds_store_close(s.st);
    ds_store_close(t.st);
    warnings = 0;
    t.o.dir = "/proc/deltascope";                              /* a folder that nobody can make */
    open_store(&t);
    CHECK(warnings == 1 && t.st);
    ds_session_reset(t.warm.s);
    ask(&t, t.warm.s, 2);
    ds_store_close(t.st);
    remove_folder();
    close_script(&s);
    close_script(&t);
}

static void store_disk_limit_and_failing_writes(void)
{
    static struct script s;
    struct ds_store_stats t;
    struct rlimit all, none;
    if (!open_script(&s, &mini)) return;
    fresh_folder();
    s.o.dir = folder;
    s.o.disk = 12 * ds_engine_state_bytes(s.warm.g) + 600 * ds_engine_kv_bytes(s.warm.g);
    open_store(&s);
    seed = 12;
    for (int i = 0; i < 12; i++) {
        random_ids(&s, 0, 60 + dice(200));
        ask(&s, s.warm.s, 1);
        ds_store_flush(s.st, 0);
        ds_store_get_stats(s.st, &t);
        CHECK(t.disk_used <= s.o.disk && t.files > 0);
    }
    CHECK(t.written > t.files);
    warnings = 0;
    getrlimit(RLIMIT_FSIZE, &all);
    none = all;
    none.rlim_cur = 1000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &none);                            /* as when the disk is full */
    random_ids(&s, 0, 100);
    ask(&s, s.warm.s, 1);
    ds_store_flush(s.st, 0);
    setrlimit(RLIMIT_FSIZE, &all);
    CHECK_MSG(warnings == 1 && strstr(last_warning, "cannot be written"), "%s", last_warning);
    CHECK(ask(&s, s.other, 1).start >= 99);
    ds_store_close(s.st);
    remove_folder();
    close_script(&s);
}

static void sum_one(void *ctx, const char *name, uint64_t bytes, int64_t mtime)
{
    uint64_t *sum = ctx;
    (void)mtime;
    if (strcmp(name, "lock")) *sum += bytes;
}

static uint64_t folder_bytes(void)
{
    uint64_t sum = 0;
    ds_dir_each(folder, sum_one, &sum, NULL);
    return sum;
}

/* At once, before anything is written, also where the memory has no room for the list of files or for their index. */
static void store_smaller_limit_after_restart(void)
{
    static const uint64_t memory[] = { 0, 1, 64, 1024 };         /* KiB; 0: as at first */
    static struct script s;
    struct ds_store_stats t;
    if (!open_script(&s, &mini)) return;
    const uint64_t mem = s.o.mem, state = ds_engine_state_bytes(s.warm.g), row = ds_engine_kv_bytes(s.warm.g);
    for (size_t k = 0; k < sizeof memory / sizeof *memory; k++) {
        fresh_folder();
        s.o.mem = mem;
        s.o.disk = 0;
        s.o.dir = folder;
        open_store(&s);
        seed = 21;
        for (int i = 0; i < 8; i++) {
            random_ids(&s, i % 2 ? 40 : 0, 60 + dice(200));
            ask(&s, s.warm.s, 1);
            ds_store_flush(s.st, 0);
        }
        ds_store_close(s.st);
        ds_session_reset(s.warm.s);
        const uint64_t before = folder_bytes();
        if (memory[k]) s.o.mem = memory[k] << 10;
        s.o.disk = 3 * state + 300 * row;
        CHECK(before > 2 * s.o.disk);
        open_store(&s);
        CHECK_MSG(folder_bytes() <= s.o.disk, "%llu KiB: %llu of %llu bytes stay, the limit is %llu", (unsigned long long)memory[k],
                  (unsigned long long)folder_bytes(), (unsigned long long)before, (unsigned long long)s.o.disk);
        CHECK(folder_bytes() > 0);
        ds_store_get_stats(s.st, &t);
        CHECK(t.disk_used <= s.o.disk && (memory[k] || (t.files > 0 && t.disk_used == folder_bytes())));
        random_ids(&s, 0, 100);
        ask(&s, s.warm.s, 1);
        ds_store_flush(s.st, 0);
        CHECK(folder_bytes() <= s.o.disk);
        ds_store_close(s.st);
        ds_session_reset(s.warm.s);
        remove_folder();
    }
    close_script(&s);
}

static unsigned char *slurp(const char *path, size_t *n)
{
    struct ds_map m;
    if (ds_map_open(&m, path, NULL)) return NULL;
    unsigned char *p = malloc(m.size);
    if (p) memcpy(p, m.data, m.size);
    *n = m.size;
    ds_map_close(&m);
    return p;
}

static void spill(const char *path, const unsigned char *p, size_t n)
{
    struct ds_out o;
    CHECK(!ds_out_open(&o, path, false, NULL) && !ds_out_write(&o, p, n, NULL) && !ds_out_place(&o, path, false, NULL));
}

/* The session that a bad file was to be loaded into is as it was. */
static void refused(struct rig *r, const char *path, const void *state, const void *kv, void *now)
{
    struct ds_err e = { 0 };
    const ds_status rc = ds_session_load(r->s, r->g, path, &e);
    CHECK_MSG(rc && e.msg[0] && !strchr(e.msg, '\n'), "loaded, or no sentence: '%s'", e.msg);
    CHECK(ds_session_pos(r->s) == 70 && ds_session_logits(r->s));
    ds_session_get_state(r->s, now);
    CHECK(!memcmp(now, state, ds_engine_state_bytes(r->g)));
    ds_session_get_kv(r->s, 0, 70, now);
    CHECK(!memcmp(now, kv, 70 * ds_engine_kv_bytes(r->g)));
}

static void session_file_damage_is_refused(void)
{
    struct rig a, b;
    int32_t ids[150];
    size_t n = 0;
    if (!rig_open(&a, &mini) || !rig_open(&b, &mini)) return;
    const size_t state = ds_engine_state_bytes(a.g), kv = 70 * ds_engine_kv_bytes(a.g), most = state > kv ? state : kv;
    char *was = malloc(state), *rows = malloc(kv), *now = malloc(most);
    fresh_folder();
    fill_ids(ids, 150, 512, 3);
    struct ds_err e = { 0 };
    CHECK(ds_session_save(a.s, a.g, folder, &e) == DS_EARG);   /* nothing to save */
    rig_prefill(&a, ids, 150);
    rig_prefill(&b, ids + 1, 70);
    ds_session_get_state(b.s, was);
    ds_session_get_kv(b.s, 0, 70, rows);
    CHECK_MSG(!ds_session_save(a.s, a.g, folder, &e), "%s", e.msg);
    unsigned char *p = slurp(folder, &n);
    REQUIRE(p && n);
    seed = 13;
    for (int i = 0; i < 200 && !ds_test_failures; i++) {
        const uint64_t far = (uint64_t)dice(1 << 24) << 20 | (uint64_t)dice(1 << 20);
        const size_t at = i < 100 ? (size_t)i * 8 % 1200 : (size_t)(far % n);
        const unsigned char flip = (unsigned char)(1 + dice(255));
        p[at] ^= flip;
        spill(folder, p, n);
        refused(&b, folder, was, rows, now);
        if (ds_test_failures) printf("  byte %zu ^ %d\n", at, flip);
        p[at] ^= flip;
    }
    for (int i = 0; i < 50; i++) {
        spill(folder, p, i < 10 ? (size_t)i * 12 : n - 1 - (size_t)dice((int)n - 1));
        refused(&b, folder, was, rows, now);
    }
    spill(folder, p, n);
    CHECK_MSG(!ds_session_load(b.s, b.g, folder, &e), "%s", e.msg);
    CHECK(ds_session_pos(b.s) == 150 && state_diff(&a, &b) == 0 && rig_argmax(&a) == rig_argmax(&b));
    CHECK(!ds_session_save(a.s, a.g, folder, &e));              /* one of its own is replaced */
    p[0] ^= 1;
    spill(folder, p, n);                                       /* what is none stays */
    CHECK(ds_session_save(a.s, a.g, folder, &e) == DS_EFORMAT);
    size_t still = 0;
    unsigned char *q = slurp(folder, &still);
    CHECK(q && still == n && !memcmp(p, q, n));
    free(q);
    ds_session_set_skip(a.s, DS_SKIP_GDN);
    CHECK(ds_session_save(a.s, a.g, folder, &e) == DS_EARG && strstr(e.msg, "timing"));
    ds_file_remove(folder);
    free(p);
    free(was);
    free(rows);
    free(now);
    rig_close(&a);
    rig_close(&b);
}

static void damage_one(void *ctx, const char *name, uint64_t bytes, int64_t mtime)
{
    char path[512];
    size_t n;
    (void)ctx, (void)mtime;
    if (!strstr(name, ".dsprefix")) return;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unsigned char *p = slurp(path, &n);
    REQUIRE(p && n == bytes);
    p[dice(2) ? n / 2 : 100] ^= 4;                             /* in the body, or in the head */
    spill(path, p, n);
    free(p);
}

static void store_damaged_folder_costs_a_miss(void)
{
    static struct script s;
    struct ds_store_stats t;
    if (!open_script(&s, &mini)) return;
    fresh_folder();
    s.o.dir = folder;
    for (int i = 0; i < 6; i++) {
        seed = 20u + (uint32_t)i;
        open_store(&s);
        random_ids(&s, 0, 200);
        ask(&s, s.warm.s, 3);
        ds_store_flush(s.st, 0);
        random_ids(&s, s.n, 260);
        ask(&s, s.warm.s, 3);                                  /* a second file, which stands on the first */
        ds_store_flush(s.st, 0);
        ds_store_close(s.st);
        ds_session_reset(s.warm.s);
        ds_session_reset(s.other);
        ds_dir_each(folder, damage_one, NULL, NULL);
        warnings = 0;
        open_store(&s);
        s.n_past = 0;
        request(&s, 2, "damaged");
        ds_store_get_stats(s.st, &t);
        CHECK(warnings > 0 && t.damaged > 0 && t.files == 0 && t.misses == 1);
        ds_store_close(s.st);
        ds_session_reset(s.warm.s);
        ds_session_reset(s.other);
        remove_folder();
    }
    close_script(&s);
}

static char only_file[512];
static void note_one(void *ctx, const char *name, uint64_t bytes, int64_t mtime)
{
    (void)ctx, (void)bytes, (void)mtime;
    if (strstr(name, ".dsprefix")) snprintf(only_file, sizeof only_file, "%s/%s", folder, name);
}

/* One file of a folder, damaged at 200 places and cut at 50: a sentence, a miss, and what is live stays as it was. */
static void store_damage_anywhere_costs_a_miss(void)
{
    static struct script s;
    struct ds_store_stats t;
    size_t n = 0;
    if (!open_script(&s, &mini)) return;
    fresh_folder();
    s.o.dir = folder;
    seed = 31;
    open_store(&s);
    random_ids(&s, 0, 150);
    ask(&s, s.warm.s, 3);
    restart(&s);
    ds_dir_each(folder, note_one, NULL, NULL);
    unsigned char *p = slurp(only_file, &n);
    REQUIRE(p && n);
    const size_t state = ds_engine_state_bytes(s.warm.g);
    char *was = malloc(state), *now = malloc(state);
    ds_store_close(s.st);
    for (int i = 0; i < 250 && !ds_test_failures; i++) {
        const size_t at = i % 2 ? (size_t)dice(900) : (size_t)dice((int)n - 1);
        p[at] ^= 1 + i % 255;
        spill(only_file, p, i < 200 ? n : at);
        p[at] ^= 1 + i % 255;
        warnings = 0;
        open_store(&s);
        int32_t keep[150];
        memcpy(keep, s.ids, sizeof keep);
        fill_ids(s.ids, 90, 512, 4);
        s.n = 90;
        ask(&s, s.other, 2);                                   /* live */
        ds_session_get_state(s.other, was);
        memcpy(s.ids, keep, sizeof keep);
        s.n = 150;
        const struct ds_lookup l = ask(&s, s.warm.s, 2);
        ds_store_get_stats(s.st, &t);
        const bool foreign = at >= 16 && at < 48 && i < 200;   /* layout id and sizes: of another model, which is left alone */
        CHECK_MSG(l.start == 0 && (foreign || (warnings == 1 && t.damaged == 1 && last_warning[0] && !strchr(last_warning, '\n'))),
                  "byte %zu of %zu, %d: starts at %d, %d warnings", at, n, i, (int)l.start, warnings);
        ds_session_get_state(s.other, now);
        CHECK(ds_session_pos(s.other) == 92 && !memcmp(was, now, state));
        ds_store_close(s.st);
        ds_session_reset(s.warm.s);
        ds_session_reset(s.other);
    }
    remove_folder();
    free(p);
    free(was);
    free(now);
    close_script(&s);
}

static const struct ds_test tests[] = {
    { "store_idle_writes_and_restart_reads", store_idle_writes_and_restart_reads },
    { "store_two_processes_on_one_folder", store_two_processes_on_one_folder },
    { "store_disk_limit_and_failing_writes", store_disk_limit_and_failing_writes },
    { "store_smaller_limit_after_restart", store_smaller_limit_after_restart },
    { "session_file_damage_is_refused", session_file_damage_is_refused },
    { "store_damaged_folder_costs_a_miss", store_damaged_folder_costs_a_miss },
    { "store_damage_anywhere_costs_a_miss", store_damage_anywhere_costs_a_miss },
};
DS_TEST_MAIN(tests)
