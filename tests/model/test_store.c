/* The session store: restored equals cold, whatever was edited or evicted; memory is a promise. */
#include "store_fixture.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
#include <malloc.h>
#endif

static void step(struct script *s)
{
    const ds_session *any = s->warm.s;
    const int most = WINDOW - 32;
    switch (dice(s->o.dir ? 8 : 6)) {
    case 0:                                                    /* append to the prompt and its answer */
        if (ds_session_pos(any) > 0 && ds_session_pos(any) < most - 40) {
            s->n = (int)ds_session_pos(any);
            memcpy(s->ids, ds_session_tokens(any), (size_t)s->n * sizeof(int32_t));
        }
        random_ids(s, s->n, s->n + 1 + dice(s->n + 100 < most ? 100 : most - s->n > 1 ? most - s->n : 1));
        if (s->n > most) s->n = most;
        request(s, dice(8), "append");
        break;
    case 1:
        s->n = 1 + dice(s->n);
        request(s, dice(4), "cut");
        break;
    case 2: {
        const int at = s->n * (1 + dice(99)) / 100;
        s->ids[at] = (s->ids[at] + 1) % ds_engine_info(s->warm.g)->n_vocab;
        request(s, dice(4), "edit");
        break;
    }
    case 3:
        request(s, 0, "repeat");
        break;
    case 4:
        request(s, 4 + dice(8), "regenerate");
        break;
    case 5: {                                                  /* somebody else's prompt */
        int32_t keep[WINDOW];
        const int n = s->n;
        memcpy(keep, s->ids, sizeof keep);
        random_ids(s, 0, 1 + dice(200));
        request(s, 2, "side");
        memcpy(s->ids, keep, sizeof keep);
        s->n = n;
        request(s, 2, "after a side request");
        break;
    }
    case 6:
        restart(s);
        request(s, dice(4), "restart");
        break;
    case 7:
        ds_store_flush(s->st, 0);
        ds_store_detach(s->st, s->warm.s);
        ds_session_reset(s->warm.s);
        request(s, dice(4), "save-load");
        break;
    }
}

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || HAS_FEATURE(address_sanitizer) || \
    HAS_FEATURE(thread_sanitizer)
#define SLOWER 8                   /* a sanitizer looks at memory, which a part of the scripts uses as well */
#else
#define SLOWER 1
#endif

static void run_scripts(struct script *s, int scripts, int steps)
{
    scripts = (scripts + SLOWER - 1) / SLOWER;
    for (int i = 0; i < scripts && !ds_test_failures; i++) {
        seed = 77u + 1000u * (uint32_t)i;
        s->n_past = 0;
        open_store(s);
        random_ids(s, 0, 1 + dice(300));
        request(s, dice(4), "first");
        for (int k = 0; k < steps && !ds_test_failures; k++) step(s);
        if (ds_test_failures) printf("  script %d\n", i);
        ds_store_close(s->st);
        ds_session_reset(s->warm.s);
        ds_session_reset(s->other);
        if (s->o.dir) remove_folder();
    }
    CHECK(s->exact > scripts / 4 && s->hits > scripts);
}

static void store_scripts_in_memory(void)
{
    static struct script s;
    if (!open_script(&s, &mini)) return;
    s.spread = true;
    run_scripts(&s, 100, 6);
    close_script(&s);
}

static void store_scripts_with_files(void)
{
    static struct script s;
    if (!open_script(&s, &mini)) return;
    fresh_folder();
    s.o.dir = folder;
    s.spread = true;
    run_scripts(&s, 100, 6);
    close_script(&s);
}

static void store_scripts_under_pressure(void)
{
    static struct script s;
    if (!open_script(&s, &mini)) return;
    s.o.mem = 6 * ds_engine_state_bytes(s.warm.g) + 300 * ds_engine_kv_bytes(s.warm.g);
    s.o.recent_s = 1e-9;
    run_scripts(&s, 60, 6);
    fresh_folder();
    s.o.dir = folder;
    run_scripts(&s, 40, 6);
    close_script(&s);
}


/* The model that ships, whose state is larger and whose KV is f16. */
static void store_scripts_on_tales(void)
{
    static struct script s;
    const struct ds_options o = { .model = "models/tales-q8_0.gguf", .ctx = WINDOW, .ubatch = 256, .max_cuts = 8, .threads = 1 };
    if (!open_script(&s, &o)) return;
    fresh_folder();
    s.o.dir = folder;
    s.o.mem = 24u << 20;
    s.o.recent_s = 1e-9;
    s.loose = true;
    run_scripts(&s, 6, 5);
    close_script(&s);
}

/* --- one case each --- */

static void store_repeat_append_and_empty_suffix(void)
{
    static struct script s;
    char line[256];
    if (!open_script(&s, &mini)) return;
    open_store(&s);
    seed = 5;
    random_ids(&s, 0, 200);
    CHECK(ask(&s, s.warm.s, 6).reason == DS_MISS_EMPTY);
    struct ds_lookup l = ask(&s, s.warm.s, 6);                 /* again, on a session that went on */
    CHECK(l.start == 199 && l.recompute == 1 && l.reason == DS_REUSE_SNAPSHOT);
    l = ask(&s, s.other, 6);                                   /* again, on another session */
    CHECK(l.start == 199 && l.recompute == 1);
    s.n = (int)ds_session_pos(s.warm.s);
    memcpy(s.ids, ds_session_tokens(s.warm.s), (size_t)s.n * sizeof(int32_t));
    random_ids(&s, s.n, s.n + 20);
    l = ask(&s, s.warm.s, 3);
    CHECK(l.reason == DS_REUSE_LIVE && l.recompute == 20 && l.snapshot == -1);
    s.n = (int)ds_session_pos(s.warm.s);                       /* a prompt that ends where a prefix with logits ends */
    memcpy(s.ids, ds_session_tokens(s.warm.s), (size_t)s.n * sizeof(int32_t));
    l = ask(&s, s.other, 0);
    CHECK(l.recompute == 0 && l.start == s.n && ds_session_logits(s.other));
    CHECK(!memcmp(ds_session_logits(s.other), ds_session_logits(s.warm.s),
            (size_t)ds_engine_info(s.warm.g)->n_vocab * sizeof(float)));
    s.ids[0] ^= 1;
    l = ask(&s, s.other, 0);
    CHECK(l.reason == DS_MISS_NO_PREFIX && l.common == 0);
    s.ids[0] ^= 1;
    s.ids[40] ^= 1;
    l = ask(&s, s.other, 0);
    CHECK(l.reason == DS_MISS_NO_SNAPSHOT && l.common == 40 && l.recompute == s.n);
    ds_lookup_line(&l, line, sizeof line);
    CHECK_MSG(strstr(line, "prefix reason=no-snapshot prompt=") && strstr(line, " common=40 snapshot=-1 start=0 "), "%s", line);
    struct ds_err e = { 0 };
    CHECK(ds_store_begin(s.st, s.warm.s, s.ids, WINDOW + 1, NULL, 0, &l, &e) == DS_EARG && strstr(e.msg, "513") && strstr(e.msg,
            "512"));
    ds_store_close(s.st);
    close_script(&s);
}

/* A conversation through the store, live and restored in turn, and the same calls on a session that no store knows: the same bits, whatever
 * kernels computed them. So what parts a warm answer of rounded weights from a cold one is rounding. */
static void store_changes_no_bit(void)
{
    static struct script s;
    const struct ds_options o = { .model = "models/tales-q8_0.gguf", .ctx = WINDOW, .ubatch = 256, .max_cuts = 8, .threads = 1 };
    if (!open_script(&s, &o)) return;
    open_store(&s);
    seed = 25;
    const size_t bytes = (size_t)ds_engine_info(s.warm.g)->n_vocab * sizeof(float);
    for (int turn = 0; turn < 6; turn++) {
        struct rig r = { s.warm.g, turn / 2 % 2 ? s.other : s.warm.s };
        const int had = (int)ds_session_pos(s.cold.s);
        int32_t said[12], said_alone[12];
        if (had) memcpy(s.ids, ds_session_tokens(s.cold.s), (size_t)had * sizeof *s.ids);
        random_ids(&s, had, had + 20 + dice(45));
        const int64_t cut = s.n - 1;                           /* where the store takes its last snapshot */
        ds_session_set_cuts(s.cold.s, &cut, 1, no_cut, NULL, NULL);
        rig_prefill(&s.cold, s.ids + had, s.n - had);
        rig_greedy(&s.cold, said_alone, 12);
        struct ds_lookup l = { 0 };
        struct ds_err e = { 0 };
        ds_status rc = ds_store_begin(s.st, r.s, s.ids, s.n, NULL, 0, &l, &e);
        CHECK_MSG(!rc && l.start == had && l.reason == (turn % 2 ? DS_REUSE_LIVE : turn ? DS_REUSE_SNAPSHOT : DS_MISS_EMPTY),
                  "turn %d starts at %d of %d: %s", turn, (int)l.start, had, ds_reuse_names[l.reason]);
        if (!rc) rc = ds_store_prefill(s.st, r.s, s.ids + l.start, (int)l.recompute, DS_ROWS_LAST, NULL, NULL, &e);
        CHECK_MSG(!rc, "%s", e.msg);
        if (rc || !rig_greedy(&r, said, 12)) break;
        CHECK_MSG(!memcmp(said, said_alone, sizeof said) && state_diff(&r, &s.cold) == 0 &&
                  !memcmp(ds_session_logits(r.s), ds_session_logits(s.cold.s), bytes), "turn %d: other bits", turn);
        ds_store_end(s.st, r.s);
    }
    ds_store_close(s.st);
    close_script(&s);
}

/* A prompt that ends where a chunk of the recurrence ends was divided one token before: going on from there is close, not
 * exact. */
static void store_claims_bits_only_where_they_are_equal(void)
{
    static struct script s;
    struct ds_options o = mini;
    o.gdn = "chunk";
    if (!open_script(&s, &o)) return;
    open_store(&s);
    seed = 15;
    for (int n = 64; n <= 256; n += 64) {
        random_ids(&s, 0, n);
        request(&s, 0, "ends at a chunk");
        random_ids(&s, n, n + 70);
        request(&s, 0, "goes on from there");
        random_ids(&s, n + 10, n + 90);
        request(&s, 64 - 26, "edit, and an answer up to a chunk's end");
    }
    ds_store_close(s.st);
    close_script(&s);
}

static int stop_at_first(void *ctx, int done, int total)
{
    (void)ctx, (void)total;
    return done > 0;
}

static void store_cancelled_prefill_is_kept(void)
{
    static struct script s;
    struct ds_lookup l;
    if (!open_script(&s, &mini)) return;
    open_store(&s);
    seed = 6;
    random_ids(&s, 0, 400);
    CHECK(!ds_store_begin(s.st, s.warm.s, s.ids, s.n, NULL, 0, &l, NULL));
    CHECK(ds_store_prefill(s.st, s.warm.s, s.ids, s.n, DS_ROWS_LAST, stop_at_first, NULL, NULL) == DS_ECANCEL);
    ds_store_end(s.st, s.warm.s);
    l = ask(&s, s.other, 0);
    CHECK(l.start == 128 && l.exact);
    ds_store_forget(s.st, s.other);                            /* what others hold stays */
    CHECK(ds_session_pos(s.other) == 0);
    CHECK(ask(&s, s.other, 0).start >= 128);
    ds_store_detach(s.st, s.warm.s);
    ds_store_detach(s.st, s.other);
    ds_session_reset(s.warm.s);
    ds_session_reset(s.other);
    l = ask(&s, s.warm.s, 0);
    CHECK_MSG(l.start == 400 && l.recompute == 0, "%s, starts at %d", ds_reuse_names[l.reason], (int)l.start);
    ds_store_close(s.st);
    close_script(&s);
}

/* A session that held an edited prompt goes to a start on the branch before the edit: the edited one keeps its rows. */
static void store_branch_is_kept_when_another_is_resumed(void)
{
    static struct script s;
    struct ds_lookup l;
    if (!open_script(&s, &mini)) return;
    open_store(&s);
    for (int edit = 0; edit < 200; edit += 66) {
        seed = 7 + (uint32_t)edit;
        random_ids(&s, 0, 247);
        ask(&s, s.warm.s, 4);
        const int32_t was = s.ids[edit];
        s.ids[edit] = (was + 1) % ds_engine_info(s.warm.g)->n_vocab;
        ask(&s, s.warm.s, 4);
        s.ids[edit] = was;
        s.n = 220;
        l = ask(&s, s.warm.s, 4);
        CHECK_MSG(l.start == 192, "edit at %d: starts at %d", edit, (int)l.start);
        s.ids[edit] = (was + 1) % ds_engine_info(s.warm.g)->n_vocab;
        s.n = 247;
        l = ask(&s, s.warm.s, 4);
        CHECK_MSG(l.start == 246, "edit at %d: %s, starts at %d", edit, ds_reuse_names[l.reason], (int)l.start);
    }
    ds_store_close(s.st);
    close_script(&s);
}

/* Side requests beyond what memory holds: the main conversation, larger and used lately, goes on where it was. */
static void store_side_requests_evict_nothing_larger(void)
{
    static struct script s;
    if (!open_script(&s, &mini)) return;
    s.o.mem = 8 * (ds_engine_state_bytes(s.warm.g) + 4096) + 420 * ds_engine_kv_bytes(s.warm.g);
    open_store(&s);
    seed = 7;
    random_ids(&s, 0, 400);
    int32_t main_ids[WINDOW];
    memcpy(main_ids, s.ids, sizeof main_ids);
    ask(&s, s.warm.s, 0);
    for (int i = 0; i < 40; i++) {                             /* both sessions are taken over */
        random_ids(&s, 0, 30 + dice(170));
        ask(&s, i % 2 ? s.other : s.warm.s, 2);
    }
    struct ds_store_stats t;
    ds_store_get_stats(s.st, &t);
    CHECK(t.evicted + t.refused > 20);
    memcpy(s.ids, main_ids, sizeof main_ids);
    s.n = 400;
    const struct ds_lookup l = ask(&s, s.other, 0);
    CHECK_MSG(l.start >= 399, "starts at %d", (int)l.start);
    ds_store_close(s.st);
    close_script(&s);
}

/* Thinned under pressure, the snapshots of one prompt still spread over it. */
static void store_eviction_keeps_the_spread(void)
{
    static struct script s;
    if (!open_script(&s, &mini)) return;
    s.o.mem = 5 * (ds_engine_state_bytes(s.warm.g) + 4096) + 16 * 1024;
    open_store(&s);
    seed = 8;
    random_ids(&s, 0, 480);
    ask(&s, s.warm.s, 0);
    int worst = 0, before = 0;
    for (int at = 40; at < 480; at += 40) {
        const int start = (int)ds_store_peek(s.st, s.ids, at);
        if (start - before > worst) worst = start - before;
        before = start;
    }
    CHECK_MSG(worst <= 192 && before >= 320, "a gap of %d, the last at %d", worst, before);
    ds_store_close(s.st);
    close_script(&s);
}

static void store_memory_is_a_promise(void)
{
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
    static struct script s;
    if (!open_script(&s, &mini)) return;
    s.o.mem = 10 * ds_engine_state_bytes(s.warm.g) + 300 * ds_engine_kv_bytes(s.warm.g);
    s.o.recent_s = 1e-9;
    seed = 9;
    random_ids(&s, 0, 480);
    rig_prefill(&s.warm, s.ids, 480);                          /* what sessions allocate as they grow */
    ds_session_reset(s.warm.s);
    const struct mallinfo2 a = mallinfo2();
    open_store(&s);
    size_t most = 0;
    for (int i = 0; i < 120; i++) {
        random_ids(&s, dice(s.n), 1 + dice(480));
        ask(&s, s.warm.s, dice(4));
        const struct mallinfo2 b = mallinfo2();
        const size_t now = b.uordblks + b.hblkhd - a.uordblks - a.hblkhd;
        if (now > most) most = now;
    }
    struct ds_store_stats t;
    ds_store_get_stats(s.st, &t);
    CHECK_MSG(most <= s.o.mem + 8192 && most > s.o.mem / 2, "%zu bytes of %llu", most, (unsigned long long)s.o.mem);
    CHECK(t.evicted > 50);
    ds_store_close(s.st);
    const struct mallinfo2 c = mallinfo2();
    CHECK(c.uordblks + c.hblkhd <= a.uordblks + a.hblkhd + 4096);
    close_script(&s);
#endif
}

/* Memory that is made ready beforehand is within the limit, and what was computed has it when it needs it. */
static void store_spare_memory_gives_way(void)
{
    static struct script s;
    struct ds_store_stats t;
    uint64_t snapshots[2];
    for (int ready = 0; ready < 2; ready++) {
        if (!open_script(&s, &mini)) return;
        s.o.mem = 9 * (ds_engine_state_bytes(s.warm.g) + 4096) + 600 * ds_engine_kv_bytes(s.warm.g);
        open_store(&s);
        while (ready && ds_store_tick(s.st)) {}
        ds_store_get_stats(s.st, &t);
        CHECK(ready == (t.mem_states > 0) && t.mem_states <= s.o.mem / 4 && t.snapshots == 0);
        for (int i = 0; i < 6; i++) {
            seed = 70 + i;
            random_ids(&s, 0, 250);
            ask(&s, s.warm.s, 3);
            ds_store_get_stats(s.st, &t);
            CHECK_MSG(t.mem_used <= t.mem_limit, "%llu of %llu bytes", (unsigned long long)t.mem_used, (unsigned long long)t.mem_limit);
            while (ready && ds_store_tick(s.st)) {}
        }
        snapshots[ready] = t.snapshots;
        ds_store_close(s.st);
        close_script(&s);
    }
    CHECK_MSG(snapshots[0] > 2 && snapshots[1] >= snapshots[0] - 1, "%d and %d", (int)snapshots[0], (int)snapshots[1]);
}

/* --- numbers from another thread --- */

struct watch { ds_store *st; _Atomic int stop; uint64_t seen; };

static void watch_stats(void *arg)
{
    struct watch *w = arg;
    while (!w->stop) {
        struct ds_store_stats t;
        ds_store_get_stats(w->st, &t);
        w->seen += t.taken + t.mem_used;
    }
}

static void store_numbers_from_another_thread(void)
{
    static struct script s;
    if (!open_script(&s, &mini)) return;
    open_store(&s);
    struct watch w = { .st = s.st };
    ds_thread *th = ds_thread_start(watch_stats, &w);
    REQUIRE(th);
    seed = 14;
    random_ids(&s, 0, 50);
    for (int i = 0; i < 10; i++) {
        random_ids(&s, dice(50), 50 + dice(100));
        ask(&s, s.warm.s, 2);
    }
    w.stop = 1;
    ds_thread_join(th);
    CHECK(w.seen > 0);
    ds_store_close(s.st);
    close_script(&s);
}

static const struct ds_test tests[] = {
    { "store_scripts_in_memory", store_scripts_in_memory },
    { "store_scripts_with_files", store_scripts_with_files },
    { "store_scripts_under_pressure", store_scripts_under_pressure },
    { "store_scripts_on_tales", store_scripts_on_tales },
    { "store_repeat_append_and_empty_suffix", store_repeat_append_and_empty_suffix },
    { "store_changes_no_bit", store_changes_no_bit },
    { "store_claims_bits_only_where_they_are_equal", store_claims_bits_only_where_they_are_equal },
    { "store_cancelled_prefill_is_kept", store_cancelled_prefill_is_kept },
    { "store_branch_is_kept_when_another_is_resumed", store_branch_is_kept_when_another_is_resumed },
    { "store_side_requests_evict_nothing_larger", store_side_requests_evict_nothing_larger },
    { "store_eviction_keeps_the_spread", store_eviction_keeps_the_spread },
    { "store_memory_is_a_promise", store_memory_is_a_promise },
    { "store_spare_memory_gives_way", store_spare_memory_gives_way },
    { "store_numbers_from_another_thread", store_numbers_from_another_thread },
};
DS_TEST_MAIN(tests)
