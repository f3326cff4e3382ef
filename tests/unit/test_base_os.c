#if defined(__linux__)
#define _GNU_SOURCE
#include <sched.h>
#else
#define _XOPEN_SOURCE 700
#endif
#include "base/cgroup.h"
#include "base/os.h"
#include "../harness.h"

#include <ftw.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[256];

static const char *path_of(const char *name)
{
    static char path[4][1024];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof *path, "%s/%s", folder, name);
    return p;
}

/* Writes a file and the folders above it. */
static void put(const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *p = path + strlen(folder) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(path, 0700);
        *p = '/';
    }
    FILE *f = fopen(path, "w");
    CHECK_MSG(f != NULL, "%s", path);
    if (!f) return;
    fputs(text, f);
    fclose(f);
}

/* --- files --- */

static void os_map(void)
{
    struct ds_map m;
    struct ds_err e = { 0 };
    put("map", "0123456789");
    REQUIRE(ds_map_open(&m, path_of("map"), &e) == DS_OK);
    CHECK(m.size == 10 && !memcmp(m.data, "0123456789", 10));
    ds_map_willneed(&m, 0, 10);
    ds_map_willneed(&m, 5, SIZE_MAX);       /* hints past the end are cut, not errors */
    ds_map_dontneed(&m, 3, SIZE_MAX);
    ds_map_dontneed(&m, 99, 1);
    CHECK(m.data[9] == '9');
    ds_map_close(&m);
    CHECK(!m.data && !m.size);
    ds_map_close(&m);
    put("empty", "");
    CHECK(ds_map_open(&m, path_of("empty"), &e) == DS_OK && !m.data && m.size == 0);
    ds_map_willneed(&m, 0, 10);
    ds_map_close(&m);
    CHECK(ds_file_exists(path_of("map")) && !ds_file_exists(path_of("absent")));
}

static void os_map_refusals(void)
{
    struct ds_map m;
    struct ds_err e = { 0 };
    CHECK(ds_map_open(&m, path_of("absent"), &e) == DS_EIO && strstr(e.msg, "absent: cannot open"));
    ds_map_close(&m);
    CHECK(ds_map_open(&m, folder, &e) == DS_EIO && strstr(e.msg, "is a folder"));
    CHECK(mkfifo(path_of("pipe"), 0600) == 0);
    CHECK(ds_map_open(&m, path_of("pipe"), &e) == DS_EIO && strstr(e.msg, "not a regular file"));   /* and does not wait */
}

/* Behind links, also relative ones in other folders, ones to links, and ones to nothing yet. */
static void os_out_target(void)
{
    char target[DS_PATH_MAX];
    struct ds_err e = { 0 };
    put("out/file", "x");
    put("out/below/y", "x");
    CHECK(ds_file_kind(path_of("out/file")) == DS_FILE_REGULAR && ds_file_kind(path_of("out")) == DS_FILE_FOLDER);
    CHECK(mkfifo(path_of("out/pipe"), 0600) == 0 && ds_file_kind(path_of("out/pipe")) == DS_FILE_OTHER);
    CHECK(ds_file_kind(path_of("out/absent")) == DS_FILE_NONE);
    static const struct { const char *link, *to, *end; } v[] = {
        { "out/a", "file", "out/file" }, { "out/below/b", "../a", "out/below/../file" }, { "out/c", "below/b", "out/below/../file" },
        { "out/none", "not/here", "out/not/here" }, { "out/p", "pipe", NULL }, { "out/d", "below", NULL }, { "out/loop", "loop", NULL },
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        CHECK(symlink(v[i].to, path_of(v[i].link)) == 0);
        ds_status s = ds_out_target(target, path_of(v[i].link), &e);
        if (v[i].end) CHECK_MSG(!s && !strcmp(target, path_of(v[i].end)), "%s: %s", v[i].link, target);
        else CHECK_MSG(s == DS_EIO && strstr(e.msg, v[i].link), "%s", e.msg);
    }
    CHECK(symlink(path_of("out/file"), path_of("out/absolute")) == 0 && !ds_out_target(target, path_of("out/absolute"), &e));
    CHECK(!strcmp(target, path_of("out/file")));
    CHECK(!ds_out_target(target, "plain", &e) && !strcmp(target, "plain"));
    char *longest = malloc(DS_PATH_MAX + 1);
    REQUIRE(longest);
    memset(longest, 'x', DS_PATH_MAX);
    longest[DS_PATH_MAX] = 0;
    CHECK(ds_out_target(target, longest, &e) == DS_EARG);
    free(longest);
}

static void os_out_writes_files_only(void)
{
    struct ds_out o;
    struct ds_err e = { 0 };
    struct stat st;
    mode_t mask = umask(022);
    CHECK(!ds_out_open(&o, path_of("private"), false, &e) && !ds_out_place(&o, o.path, false, &e));
    CHECK(stat(path_of("private"), &st) == 0 && (st.st_mode & 0777) == 0600);
    CHECK(!ds_out_open(&o, path_of("shared"), true, &e) && !ds_out_write(&o, "abc", 3, &e) && !ds_out_place(&o, o.path, true, &e));
    CHECK(stat(path_of("shared"), &st) == 0 && (st.st_mode & 0777) == 0644 && st.st_size == 3);
    umask(mask);
    CHECK(mkfifo(path_of("fifo"), 0600) == 0 && ds_out_open(&o, path_of("fifo"), true, &e) == DS_EIO && strstr(e.msg, "cannot be created"));
    CHECK(symlink("shared", path_of("to-shared")) == 0 && ds_out_open(&o, path_of("to-shared"), true, &e) == DS_EIO);
    CHECK(stat(path_of("shared"), &st) == 0 && st.st_size == 3);
    CHECK(ds_out_open(&o, folder, true, &e) == DS_EIO);
}

static void os_out_has_one_writer(void)
{
    struct ds_out a, b;
    struct ds_err e = { 0 };
    struct stat st;
    char part[512];
    int status = 0;
    snprintf(part, sizeof part, "%s", path_of("one.tmp"));
    CHECK(!ds_out_open(&a, part, false, &e) && !ds_out_write(&a, "abc", 3, &e));
    CHECK(ds_out_open(&b, part, false, &e) == DS_EIO && b.busy && b.fd < 0 && strstr(e.msg, "another process is writing it"));
    CHECK(stat(part, &st) == 0 && st.st_size == 3);
    CHECK(!ds_out_place(&a, path_of("one"), true, &e) && a.fd < 0 && stat(part, &st) != 0);
    CHECK(!ds_out_open(&b, part, false, &e) && !b.busy);
    ds_out_drop(&b);
    CHECK(stat(part, &st) != 0 && stat(path_of("one"), &st) == 0 && st.st_size == 3);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        if (!ds_out_open(&a, part, false, NULL) && !ds_out_write(&a, "abcd", 4, NULL)) raise(SIGKILL);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(!ds_out_claim(&a, part, false, &e) && stat(part, &st) == 0 && st.st_size == 4);      /* the dead hold nothing */
    CHECK(!ds_out_empty(&a, &e) && stat(part, &st) == 0 && st.st_size == 0);
    CHECK(ds_out_place(&a, path_of("nowhere/one"), false, NULL) == DS_EIO && stat(part, &st) != 0);
}

enum { RACES = 400, RACE_BYTES = 300000 };

/* Writes files of one letter, over and over. */
static int race(const char *part, const char *target, char letter)
{
    static char bytes[RACE_BYTES];
    struct ds_out o;
    memset(bytes, letter, sizeof bytes);
    for (int done = 0; done < RACES;) {
        if (ds_out_open(&o, part, false, NULL)) {
            if (!o.busy) return 1;
            ds_cpu_yield();
            continue;
        }
        for (size_t at = 0; at < sizeof bytes; at += sizeof bytes / 10)
            if (ds_out_write(&o, bytes + at, sizeof bytes / 10, NULL)) return 2;
        if (++done % 7 == 0) ds_out_drop(&o);
        else if (ds_out_place(&o, target, false, NULL)) return 3;
    }
    return 0;
}

static void os_out_survives_writers_at_once(void)
{
    char part[512], target[512];
    struct ds_out o;
    struct ds_err e = { 0 };
    pid_t child[3];
    int live = 3, torn = 0, seen = 0;
    snprintf(part, sizeof part, "%s", path_of("race.tmp"));
    snprintf(target, sizeof target, "%s", path_of("race"));
    for (int i = 0; i < 3; i++) {
        child[i] = fork();
        REQUIRE(child[i] >= 0);
        if (child[i] == 0) _exit(race(part, target, (char)('a' + i)));
    }
    while (live) {
        struct ds_map m;
        int status = 0;
        const pid_t gone = waitpid(-1, &status, WNOHANG);
        if (gone > 0) {
            live--;
            CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a writer ended with %d", WEXITSTATUS(status));
        }
        if (ds_map_open(&m, target, NULL)) continue;
        bool whole = m.size == RACE_BYTES;
        for (size_t i = 1; i < m.size && whole; i++) whole = m.data[i] == m.data[0];
        torn += !whole;
        seen++;
        ds_map_close(&m);
    }
    CHECK_MSG(!torn && seen, "%d of %d files were torn", torn, seen);
    CHECK(!ds_out_open(&o, part, false, &e));
    ds_out_drop(&o);
}

static void os_exe_dir(void)
{
    char dir[4096], none[2];
    CHECK(ds_exe_dir(dir, sizeof dir) && dir[0] == '/' && strstr(dir, "tests/unit"));
    CHECK(!ds_exe_dir(none, sizeof none));
}

/* --- memory --- */

static void os_memory_is_zero_and_aligned(void)
{
    static const size_t sizes[] = { 0, 1, 63, 64, 65, 4096, (1u << 20) - 1, 1u << 20, (1u << 20) + 1, 5u << 20 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = ds_mem_alloc(sizes[i]);
        REQUIRE(p != NULL);
        size_t align = sizes[i] >= 1u << 20 ? ds_page_size() : 64, nonzero = 0;
        CHECK((uintptr_t)p % align == 0);
        for (size_t k = 0; k < sizes[i]; k++) nonzero += p[k] != 0;
        CHECK(nonzero == 0);
        memset(p, 0xff, sizes[i]);
        ds_mem_free(p, sizes[i]);
    }
    ds_mem_free(NULL, 10);
}

static void os_memory_refusal_is_null(void)
{
    CHECK(ds_mem_alloc(SIZE_MAX) == NULL);
    CHECK(ds_mem_alloc((size_t)1 << 60) == NULL);
}

static void os_memory_sizes(void)
{
    uint64_t total = ds_mem_total(), free_now = ds_mem_available(), before = ds_mem_peak_rss();
    CHECK(total > 64u << 20 && free_now > 0 && free_now <= total);
    CHECK(before > 100000 && before < total);
    size_t n = 64u << 20;
    char *p = ds_mem_alloc(n);
    REQUIRE(p != NULL);
    for (size_t i = 0; i < n; i += 4096) p[i] = 1;
    CHECK(ds_mem_peak_rss() >= n);
    ds_mem_free(p, n);
}

/* --- time, processors --- */

static void os_time(void)
{
    char utc[32];
    uint64_t a = ds_now_ns(), b = ds_now_ns();
    CHECK(b >= a && b - a < 1000000000u);
    ds_utc_string(utc);
    CHECK(strlen(utc) == 20 && utc[4] == '-' && utc[10] == 'T' && utc[19] == 'Z' && !strncmp(utc, "20", 2));
}

static void os_processors(void)
{
    char model[128], clock[128], busy[128];
    CHECK(ds_cpu_count() >= 1);
    ds_cpu_model(model, sizeof model);
    ds_cpu_clock_state(clock, sizeof clock);
    bool loaded = ds_machine_busy(busy, sizeof busy);
    CHECK(model[0] && strlen(clock) < sizeof clock && loaded == (busy[0] != 0));
#if defined(__linux__)
    cpu_set_t all, one;
    REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(ds_cpu_count() == 1);
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
    CHECK(ds_cpu_count() <= CPU_COUNT(&all));
#endif
}

/* --- control groups --- */

static struct ds_cgroup groups(const char *membership)
{
    struct ds_cgroup c;
    put("self", membership);
    ds_cgroup_read(&c, path_of("self"), path_of("fs"));
    return c;
}

/* The tightest limit between the group and the root counts, page cache is free room. */
static void cgroup_v2(void)
{
    put("fs/a/b/c/cpu.max", "max 100000\n");
    put("fs/a/b/cpu.max", "150000 100000\n");
    put("fs/a/cpu.max", "400000 100000\n");
    put("fs/a/b/c/memory.max", "9000000\n");
    put("fs/a/b/c/memory.current", "100000\n");
    put("fs/a/b/memory.max", "1000000\n");
    put("fs/a/b/memory.current", "600000\n");
    put("fs/a/b/memory.stat", "anon 100000\ninactive_file 150000\nactive_file 50000\nslab 7\n");
    put("fs/a/memory.max", "5000000\n");
    put("fs/a/memory.current", "900000\n");
    struct ds_cgroup c = groups("0::/a/b/c\n");
    CHECK(c.cpus == 1.5 && c.mem_limit == 1000000 && c.mem_room == 600000);
    put("fs/a/memory.max", "max\n");
    c = groups("0::/a\n");
    CHECK(c.cpus == 4 && c.mem_limit == UINT64_MAX);
    put("fs/a/memory.max", "700000\n");
    c = groups("0::/a/b\n");
    CHECK(c.mem_limit == 700000 && c.mem_room == 0);
    c = groups("0::/\n");
    CHECK(c.cpus == 0 && c.mem_limit == UINT64_MAX && c.mem_room == UINT64_MAX);
}

static void cgroup_v1(void)
{
    put("fs/cpu,cpuacct/x/cpu.cfs_quota_us", "50000\n");
    put("fs/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
    put("fs/memory/x/memory.limit_in_bytes", "2000000\n");
    put("fs/memory/x/memory.usage_in_bytes", "500000\n");
    put("fs/memory/x/memory.stat", "inactive_file 1\ntotal_inactive_file 100000\n");
    put("fs/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("fs/memory/memory.usage_in_bytes", "5\n");
    struct ds_cgroup c = groups("5:cpu,cpuacct:/x\n4:memory:/x\n1:name=systemd:/x\n0::/\n");
    CHECK(c.cpus == 0.5 && c.mem_limit == 2000000 && c.mem_room == 1600000);
    put("fs/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
    c = groups("5:cpu,cpuacct:/x\n3:cpuset:/x\n4:memory:/\n");
    CHECK(c.cpus == 0 && c.mem_limit == UINT64_MAX && c.mem_room == UINT64_MAX);
}

/* In a container the path that the kernel names may not be mounted; the root is the container's group then. */
static void cgroup_path_outside_the_mount(void)
{
    put("fs/memory/memory.limit_in_bytes", "3000000\n");
    put("fs/memory/memory.usage_in_bytes", "1000000\n");
    struct ds_cgroup c = groups("4:memory:/docker/0123456789\n");
    CHECK(c.mem_limit == 3000000 && c.mem_room == 2000000);
}

static void cgroup_nonsense(void)
{
    char longest[3000];
    memset(longest, 'g', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    memcpy(longest, "0::/", 4);
    static const char *const bad[] = { "", "\n", ":", "::", "0::", "0", "4:memory", "4:memory:", "x\n\n\n" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) groups(bad[i]);
    CHECK(groups(longest).mem_limit == UINT64_MAX);
    struct ds_cgroup c;
    ds_cgroup_read(&c, path_of("absent"), path_of("fs"));
    CHECK(c.cpus == 0 && c.mem_limit == UINT64_MAX && c.mem_room == UINT64_MAX);
}

/* --- threads --- */

struct ping { _Atomic uint32_t word; int rounds; };

static void answer(void *arg)
{
    struct ping *p = arg;
    for (int i = 0; i < p->rounds; i++) {
        for (uint32_t w; (w = atomic_load(&p->word)) % 2 == 0;) ds_wait_word(&p->word, w);
        atomic_fetch_add(&p->word, 1);
        ds_wake_word(&p->word);
    }
}

/* A lost wake-up would hang here. */
static void os_words_wake_sleepers(void)
{
    struct ping p = { 0, 2000 };
    ds_thread *t = ds_thread_start(answer, &p);
    REQUIRE(t != NULL);
    for (int i = 0; i < p.rounds; i++) {
        atomic_fetch_add(&p.word, 1);
        ds_wake_word(&p.word);
        for (uint32_t w; (w = atomic_load(&p.word)) % 2 == 1;) ds_wait_word(&p.word, w);
    }
    ds_thread_join(t);
    CHECK(p.word == 4000);
    ds_wait_word(&p.word, 1);      /* another value: returns at once */
}

static _Atomic int interrupted;

static void os_interrupt(void)
{
    ds_on_interrupt(&interrupted, 60000);
    raise(SIGINT);
    CHECK(interrupted == SIGINT);
    interrupted = 0;
    raise(SIGTERM);
    CHECK(interrupted == SIGTERM);
    raise(SIGINT);                 /* within the grace: the same signal, as from timeout to a process and its group */
    CHECK(interrupted == SIGTERM);
    ds_on_interrupt(&interrupted, 0);
    interrupted = 0;
    raise(SIGTERM);
    pid_t child = fork();          /* with the flag set, the next one ends the process */
    REQUIRE(child >= 0);
    if (child == 0) {
        raise(SIGINT);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    interrupted = 0;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

static void os_terminal(void)
{
    int fd[2];
    REQUIRE(pipe(fd) == 0);
    CHECK(!ds_is_terminal(fd[0]) && ds_terminal_width(fd[0]) == 80 && ds_terminal_width(-1) == 80);
    close(fd[0]);
    close(fd[1]);
}

static void os_private_folder_with_those_above(void)
{
    char path[300];
    struct ds_err e;
    struct stat st;
    snprintf(path, sizeof path, "%s/cache/of/sessions", folder);
    CHECK(!ds_dir_make_private(path, &e) && !stat(path, &st) && S_ISDIR(st.st_mode) && (st.st_mode & 0777) == 0700);
    CHECK(!ds_dir_make_private(path, &e));
    snprintf(path, sizeof path, "%s/cache/file", folder);
    fclose(fopen(path, "w"));
    strcat(path, "/below");
    CHECK(ds_dir_make_private(path, &e) == DS_EIO && strstr(e.msg, "cannot be made"));
}

static const struct ds_test tests[] = {
    { "os_map", os_map },
    { "os_map_refusals", os_map_refusals },
    { "os_out_target", os_out_target },
    { "os_out_writes_files_only", os_out_writes_files_only },
    { "os_out_has_one_writer", os_out_has_one_writer },
    { "os_out_survives_writers_at_once", os_out_survives_writers_at_once },
    { "os_exe_dir", os_exe_dir },
    { "os_memory_is_zero_and_aligned", os_memory_is_zero_and_aligned },
    { "os_memory_refusal_is_null", os_memory_refusal_is_null },
    { "os_memory_sizes", os_memory_sizes },
    { "os_time", os_time },
    { "os_processors", os_processors },
    { "cgroup_v2", cgroup_v2 },
    { "cgroup_v1", cgroup_v1 },
    { "cgroup_path_outside_the_mount", cgroup_path_outside_the_mount },
    { "cgroup_nonsense", cgroup_nonsense },
    { "os_words_wake_sleepers", os_words_wake_sleepers },
    { "os_interrupt", os_interrupt },
    { "os_terminal", os_terminal },
    { "os_private_folder_with_those_above", os_private_folder_with_those_above },
};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

int main(int argc, char **argv)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/ds-os-%ld", tmp ? tmp : "/tmp", (long)getpid());
    if (mkdir(folder, 0700) != 0) {
        perror(folder);
        return 1;
    }
    int r = ds_test_main(tests, (int)(sizeof tests / sizeof *tests), argc, argv);
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return r;
}
