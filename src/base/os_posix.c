#if defined(__APPLE__)
#define _DARWIN_C_SOURCE
#else
#define _GNU_SOURCE
#endif

#include "base/os.h"
#include "base/cgroup.h"
#include "base/cpu.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#if defined(__APPLE__)
#include <mach-o/dyld.h>
#include <mach/mach.h>
#include <notify.h>
#include <sys/sysctl.h>
#else
#include <sys/syscall.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif
#endif

/* --- files --- */

ds_status ds_map_open(struct ds_map *m, const char *path, struct ds_err *e)
{
    struct stat st;
    *m = (struct ds_map){ 0 };
    /* Non-blocking, so that a named pipe is refused below instead of waiting for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return ds_fail(e, DS_EIO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0) {
        int err = errno;
        close(fd);
        return ds_fail(e, DS_EIO, "%s: cannot read its size: %s", path, strerror(err));
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return ds_fail(e, DS_EIO, "%s: is %s, expected a file", path, S_ISDIR(st.st_mode) ? "a folder" : "not a regular file");
    }
    if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        int err = errno;
        if (p == MAP_FAILED) {
            close(fd);
            return ds_fail(e, DS_EIO, "%s: cannot map %lld bytes: %s", path, (long long)st.st_size, strerror(err));
        }
        m->data = p;
        m->handle = p;
        m->size = (size_t)st.st_size;
    }
    close(fd);
    return DS_OK;
}

void ds_map_close(struct ds_map *m)
{
    if (m->handle) munmap(m->handle, m->size);
    *m = (struct ds_map){ 0 };
}

/* Advice applies to whole pages. `inner` keeps the range inside [off, off+len), for advice that drops pages. */
static void advise(const struct ds_map *m, size_t off, size_t len, int advice, bool inner)
{
    size_t page = ds_page_size();
    if (!m->handle || off >= m->size) return;
    if (len > m->size - off) len = m->size - off;
    size_t lo = off, hi = off + len;
    if (inner) {
        lo = (lo + page - 1) / page * page;
        hi = hi == m->size ? hi : hi / page * page;
    } else {
        lo = lo / page * page;
    }
    if (lo < hi) madvise((char *)m->handle + lo, hi - lo, advice);
}

void ds_map_willneed(const struct ds_map *m, size_t off, size_t len)
{
    advise(m, off, len, MADV_WILLNEED, false);
}

void ds_map_dontneed(const struct ds_map *m, size_t off, size_t len)
{
    advise(m, off, len, MADV_DONTNEED, true);
}

bool ds_exe_dir(char *dst, size_t n)
{
    char path[4096];
#if defined(__APPLE__)
    char raw[4096];
    uint32_t size = sizeof raw;
    if (_NSGetExecutablePath(raw, &size) != 0 || !realpath(raw, path)) return false;
#else
    ssize_t got = readlink("/proc/self/exe", path, sizeof path - 1);
    if (got <= 0) return false;
    path[got] = 0;
#endif
    char *slash = strrchr(path, '/');
    if (!slash) return false;
    *slash = 0;
    return (size_t)snprintf(dst, n, "%s", path) < n;
}

bool ds_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

enum ds_file_kind ds_file_kind(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) return DS_FILE_NONE;
    return S_ISREG(st.st_mode) ? DS_FILE_REGULAR : S_ISDIR(st.st_mode) ? DS_FILE_FOLDER : DS_FILE_OTHER;
}

static ds_status make_dir(const char *path, mode_t mode, struct ds_err *e)
{
    struct stat st;
    if (!mkdir(path, mode) || (errno == EEXIST && !stat(path, &st) && S_ISDIR(st.st_mode))) return DS_OK;
    return ds_fail(e, DS_EIO, "%s: the folder cannot be made: %s", path, strerror(errno));
}

ds_status ds_dir_make(const char *path, struct ds_err *e) { return make_dir(path, 0777, e); }

ds_status ds_dir_make_private(const char *path, struct ds_err *e)
{
    char above[4096];
    snprintf(above, sizeof above, "%s", path);
    for (char *p = strchr(above + (above[0] == '/'), '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        mkdir(above, 0700);                    /* what went wrong shows below */
        *p = '/';
    }
    return make_dir(path, 0700, e);
}

ds_status ds_dir_each(const char *path, void (*fn)(void *ctx, const char *name, uint64_t bytes, int64_t mtime), void *ctx, struct ds_err *e)
{
    DIR *d = opendir(path);
    if (!d) return ds_fail(e, DS_EIO, "%s: the folder cannot be read: %s", path, strerror(errno));
    for (struct dirent *f; (f = readdir(d));) {
        struct stat st;
        if (fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode)) continue;
        fn(ctx, f->d_name, (uint64_t)st.st_size, (int64_t)st.st_mtime);
    }
    closedir(d);
    return DS_OK;
}

uint64_t ds_disk_free(const char *path)
{
    struct statvfs v;
    return statvfs(path, &v) == 0 ? (uint64_t)v.f_bavail * v.f_frsize : UINT64_MAX;
}

/* One step along a link that lies at path: path becomes what the link says, seen from the link's folder. */
static bool follow(char path[DS_PATH_MAX], ssize_t n, const char *to)
{
    char *slash = strrchr(path, '/');
    const size_t folder = *to == '/' || !slash ? 0 : (size_t)(slash + 1 - path);
    if (folder + (size_t)n >= DS_PATH_MAX) return false;
    memcpy(path + folder, to, (size_t)n);
    path[folder + (size_t)n] = 0;
    return true;
}

ds_status ds_out_target(char target[DS_PATH_MAX], const char *path, struct ds_err *e)
{
    char to[DS_PATH_MAX];
    ssize_t n = 0;
    if (strlen(path) >= DS_PATH_MAX) return ds_fail(e, DS_EARG, "%.400s...: the path is too long", path);
    memcpy(target, path, strlen(path) + 1);
    for (int links = 0; (n = readlink(target, to, sizeof to - 1)) >= 0; links++) {
        to[n] = 0;
        if (links == 40 || !follow(target, n, to)) return ds_fail(e, DS_EIO, "%s: its symbolic links lead nowhere", path);
    }
    const enum ds_file_kind kind = ds_file_kind(target);
    if (kind <= DS_FILE_REGULAR) return DS_OK;
    return ds_fail(e, DS_EIO, "%s: is %s, expected a file or nothing there", path,
                   kind == DS_FILE_FOLDER ? "a folder" : "a device, a pipe or a socket");
}

/* 0, or why the lock was not had. It belongs to the open file, so it ends with the process. */
static int lock(int fd) { return flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno; }

/* A file that was renamed or removed after it was opened here belongs to nobody who opens the path now. */
static bool is_at(int fd, const char *path)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && lstat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static ds_status refuse(struct ds_out *o, struct ds_err *e, const char *what, int why)
{
    if (o->fd >= 0) close(o->fd);
    o->fd = -1;
    return ds_fail(e, DS_EIO, "%s: %s: %s", o->path, what, strerror(why));
}

ds_status ds_out_claim(struct ds_out *o, const char *path, bool shared, struct ds_err *e)
{
    struct stat st;
    *o = (struct ds_out){ .fd = -1, .path = path };
    for (int turn = 0; turn < 100; turn++) {
        /* Non-blocking, so that a named pipe does not make this wait for a reader. */
        o->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, shared ? 0666 : 0600);
        if (o->fd < 0) return refuse(o, e, "cannot be created", errno);
        if (fstat(o->fd, &st) != 0 || !S_ISREG(st.st_mode)) return refuse(o, e, "cannot be created", EEXIST);
        const int why = lock(o->fd);
        if (why == EWOULDBLOCK) break;
        /* Where a file system knows no locks, writing goes on without one. */
        if (why && why != ENOLCK && why != ENOSYS && why != EOPNOTSUPP && why != ENOTSUP) return refuse(o, e, "cannot be locked", why);
        if (is_at(o->fd, path)) return DS_OK;
        close(o->fd);           /* its writer was done with it in between */
        o->fd = -1;
    }
    ds_out_leave(o);
    o->busy = true;
    return ds_fail(e, DS_EIO, "%s: another process is writing it", path);
}

ds_status ds_out_empty(struct ds_out *o, struct ds_err *e)
{
    if (ftruncate(o->fd, 0) == 0) return DS_OK;
    return ds_fail(e, DS_EIO, "%s: cannot be emptied: %s", o->path, strerror(errno));
}

ds_status ds_out_open(struct ds_out *o, const char *path, bool shared, struct ds_err *e)
{
    ds_status st = ds_out_claim(o, path, shared, e);
    if (st) return st;
    if ((st = ds_out_empty(o, e))) ds_out_leave(o);
    return st;
}

ds_status ds_out_write(struct ds_out *o, const void *p, size_t n, struct ds_err *e)
{
    for (const char *at = p; n;) {
        const ssize_t done = write(o->fd, at, n > (size_t)1 << 30 ? (size_t)1 << 30 : n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return ds_fail(e, DS_EIO, "%s: cannot be written: %s", o->path, strerror(errno));
        at += done;
        n -= (size_t)done;
    }
    return DS_OK;
}

/* Renames, and syncs the folder where the file system allows that: the file itself is whole all the same. */
static ds_status rename_to(const char *from, const char *to, bool sync, struct ds_err *e)
{
    char folder[4096];
    if (rename(from, to) != 0) return ds_fail(e, DS_EIO, "%s: cannot be renamed to %s: %s", from, to, strerror(errno));
    const char *slash = strrchr(to, '/');
    if (!sync) return DS_OK;
    if (!slash) snprintf(folder, sizeof folder, ".");
    else if (snprintf(folder, sizeof folder, "%.*s", slash == to ? 1 : (int)(slash - to), to) >= (int)sizeof folder) return DS_OK;
    const int fd = open(folder, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return DS_OK;
    fsync(fd);
    close(fd);
    return DS_OK;
}

/* What closing would say of writes put off (NFS does), while the lock stays. */
static int settle(int fd)
{
    const int second = dup(fd);
    return second >= 0 && close(second) != 0 ? errno : 0;
}

ds_status ds_out_place(struct ds_out *o, const char *to, bool sync, struct ds_err *e)
{
    const int bad = sync && fsync(o->fd) != 0 ? errno : settle(o->fd);
    const ds_status st = bad ? ds_fail(e, DS_EIO, "%s: cannot be written: %s", o->path, strerror(bad))
                             : rename_to(o->path, to, sync, e);
    if (st) ds_out_drop(o);
    else ds_out_leave(o);           /* after the rename: until then the name is this writer's */
    return st;
}

void ds_out_drop(struct ds_out *o)
{
    unlink(o->path);                /* before the lock goes: then the name may be another writer's */
    ds_out_leave(o);
}

void ds_out_leave(struct ds_out *o)
{
    if (o->fd >= 0) close(o->fd);
    o->fd = -1;
}

void ds_file_remove(const char *path) { unlink(path); }

ds_status ds_lock_take(struct ds_lock *l, const char *path, struct ds_err *e)
{
    l->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (l->fd < 0) return ds_fail(e, DS_EIO, "%s: cannot be created: %s", path, strerror(errno));
    const int err = lock(l->fd);
    if (!err) return DS_OK;
    close(l->fd);
    l->fd = -1;
    if (err == EWOULDBLOCK) return ds_fail(e, DS_EIO, "%s: another process holds the lock", path);
    return ds_fail(e, DS_EIO, "%s: cannot be locked: %s", path, strerror(err));
}

void ds_lock_drop(struct ds_lock *l)
{
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
}

/* --- memory --- */

/* Large blocks are matrices that are read from end to end, where misses in the page tables show: with 2 MiB pages (Linux gives
 * them on request) a decode step on 90 MB of weights took 6.4 instead of 9 ms of a processor's time. Smaller blocks would waste
 * a part of such a page. */
enum { MAP_FROM = 1 << 20, HUGE_FROM = 4 << 20 };

size_t ds_page_size(void)
{
    long n = sysconf(_SC_PAGESIZE);
    return n > 0 ? (size_t)n : 4096;
}

void *ds_mem_alloc(size_t bytes)
{
    if (bytes < MAP_FROM) {
        size_t rounded = (bytes + 63) / 64 * 64;
        void *p = aligned_alloc(64, rounded ? rounded : 64);
        return p ? memset(p, 0, rounded) : NULL;
    }
    if (bytes > PTRDIFF_MAX) return NULL;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (p == MAP_FAILED) return NULL;
#if defined(MADV_HUGEPAGE)
    if (bytes >= HUGE_FROM) madvise(p, bytes, MADV_HUGEPAGE);
#endif
    return p;
}

void ds_mem_free(void *p, size_t bytes)
{
    if (!p) return;
    if (bytes < MAP_FROM) free(p);
    else munmap(p, bytes);
}

#if !defined(__APPLE__)
/* Number after `key` in a file of "key: value" lines, or 0. */
static uint64_t proc_number(const char *path, const char *key)
{
    char line[256];
    unsigned long long v = 0;
    size_t n = strlen(key);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, n)) continue;
        sscanf(line + n, " %llu", &v);
        break;
    }
    fclose(f);
    return v;
}

static struct ds_cgroup limits(void)
{
    struct ds_cgroup c;
    ds_cgroup_read(&c, "/proc/self/cgroup", "/sys/fs/cgroup");
    return c;
}
#endif

void ds_mem_give_back(void)
{
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

uint64_t ds_mem_total(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    uint64_t bytes = pages > 0 ? (uint64_t)pages * ds_page_size() : 0;
#if !defined(__APPLE__)
    uint64_t limit = limits().mem_limit;
    if (limit < bytes) bytes = limit;
#endif
    return bytes;
}

uint64_t ds_mem_available(void)
{
#if defined(__APPLE__)
    vm_statistics64_data_t vm;
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    mach_port_t host = mach_host_self();
    kern_return_t r = host_statistics64(host, HOST_VM_INFO64, (host_info64_t)&vm, &count);
    mach_port_deallocate(mach_task_self(), host);
    if (r != KERN_SUCCESS) return ds_mem_total();
    /* Free pages, and file pages that go without writing. */
    return ((uint64_t)vm.free_count + vm.external_page_count + vm.purgeable_count) * ds_page_size();
#else
    uint64_t bytes = proc_number("/proc/meminfo", "MemAvailable:") * 1024, room = limits().mem_room;
    if (!bytes) bytes = ds_mem_total();
    return room < bytes ? room : bytes;
#endif
}

uint64_t ds_mem_peak_rss(void)
{
    struct rusage ru;
#if !defined(__APPLE__)
    /* ru_maxrss survives exec, so it may tell the parent's size. */
    uint64_t kb = proc_number("/proc/self/status", "VmHWM:");
    if (kb) return kb * 1024;
#endif
    if (getrusage(RUSAGE_SELF, &ru) != 0) return 0;
#if defined(__APPLE__)
    return (uint64_t)ru.ru_maxrss;
#else
    return (uint64_t)ru.ru_maxrss * 1024;
#endif
}

/* --- time --- */

uint64_t ds_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t ds_thread_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void ds_utc_string(char dst[32])
{
    time_t now = time(NULL);
    struct tm tm;
    if (!gmtime_r(&now, &tm) || !strftime(dst, 32, "%Y-%m-%dT%H:%M:%SZ", &tm)) dst[0] = 0;
}

/* --- processors --- */

int ds_cpu_count(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
#if !defined(__APPLE__)
    /* The kernel refuses a set smaller than its own, so the set grows until it fits. */
    for (int max = 1024; max <= 1 << 20; max *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)max);
        size_t size = CPU_ALLOC_SIZE((size_t)max);
        if (!set) break;
        int r = sched_getaffinity(0, size, set), err = errno;
        if (r == 0) n = CPU_COUNT_S(size, set);
        CPU_FREE(set);
        if (r == 0 || err != EINVAL) break;
    }
    double quota = limits().cpus;
    if (quota > 0 && quota < (double)n) {
        long whole = (long)quota;
        n = whole + ((double)whole < quota);
    }
#endif
    return n < 1 ? 1 : n > 4096 ? 4096 : (int)n;
}

void ds_cpu_model(char *dst, size_t n)
{
    snprintf(dst, n, "unknown");
#if defined(__APPLE__)
    size_t len = n;
    if (sysctlbyname("machdep.cpu.brand_string", dst, &len, NULL, 0) != 0) snprintf(dst, n, "unknown");
#else
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "model name", 10) && strncmp(line, "Model", 5)) continue;
        char *v = strchr(line, ':');
        if (!v) continue;
        v += strspn(v, ": \t");
        v[strcspn(v, "\n")] = 0;
        snprintf(dst, n, "%s", v);
        break;
    }
    fclose(f);
#endif
}

void ds_cpu_clock_state(char *dst, size_t n)
{
    dst[0] = 0;
#if defined(__APPLE__)
    static const char *const words[] = { "thermal pressure nominal", "thermal pressure moderate", "thermal pressure heavy",
                                         "thermal pressure trapping", "thermal pressure sleeping" };
    int token;
    uint64_t level = 0;
    if (notify_register_check("com.apple.system.thermalpressurelevel", &token) != NOTIFY_STATUS_OK) return;
    if (notify_get_state(token, &level) == NOTIFY_STATUS_OK && level < 5) snprintf(dst, n, "%s", words[level]);
    notify_cancel(token);
#else
    char line[256];
    double mhz = 0;
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "r");
    if (f) {
        if (fscanf(f, "%lf", &mhz) == 1) mhz /= 1000;
        fclose(f);
    } else if ((f = fopen("/proc/cpuinfo", "r"))) {
        while (mhz == 0 && fgets(line, sizeof line, f))
            if (!strncmp(line, "cpu MHz", 7)) sscanf(line, "cpu MHz : %lf", &mhz);
        fclose(f);
    }
    if (mhz > 0) snprintf(dst, n, "%.0f MHz", mhz);
#endif
}

bool ds_machine_busy(char *dst, size_t n)
{
    double load = 0;
    int cpus = ds_cpu_count();
    dst[0] = 0;
#if defined(__APPLE__)
    if (getloadavg(&load, 1) != 1) return false;
    int others = 0;
#else
    int running = 1;
    FILE *f = fopen("/proc/loadavg", "r");
    if (!f) return false;
    int got = fscanf(f, "%lf %*f %*f %d", &load, &running);
    fclose(f);
    if (got != 2) return false;
    int others = running - 1;   /* this thread is one of them */
#endif
    /* The one-minute average holds this process's own threads too, hence the limit at all processors and a half. */
    if (load <= cpus + 0.5 && others < cpus) return false;
    snprintf(dst, n, "load average %.2f, %d other threads running, %d processors", load, others, cpus);
    return true;
}

unsigned ds_os_arm_features(void)
{
#if defined(__aarch64__) && defined(__APPLE__)
    unsigned has = DS_CPU_NEON;
    int v = 0;
    size_t len = sizeof v;
    if (sysctlbyname("hw.optional.arm.FEAT_DotProd", &v, &len, NULL, 0) == 0 && v) has |= DS_CPU_DOTPROD;
    v = 0;
    len = sizeof v;
    if (sysctlbyname("hw.optional.arm.FEAT_I8MM", &v, &len, NULL, 0) == 0 && v) has |= DS_CPU_I8MM;
    return has;
#elif defined(__aarch64__)
    enum { ASIMD = 1 << 1, ASIMDDP = 1 << 20, I8MM = 1 << 13 };   /* the kernel's HWCAP bits; I8MM is in HWCAP2 */
    unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);
    return (cap & ASIMD ? DS_CPU_NEON : 0u) | (cap & ASIMDDP ? DS_CPU_DOTPROD : 0u) | (cap2 & I8MM ? DS_CPU_I8MM : 0u);
#else
    return 0;
#endif
}

/* --- terminal and signals --- */

bool ds_is_terminal(int fd)
{
    return isatty(fd) == 1;
}

void ds_program_start(void)
{
    signal(SIGXFSZ, SIG_IGN);
    for (int fd = 0; fd < 3; fd++)      /* the lowest free number is what open gives; with the wrong direction, use fails */
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0) return;
}

int ds_terminal_width(int fd)
{
    struct winsize w;
    return ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

static _Atomic int *interrupt_flag;
static _Atomic uint64_t interrupt_until;      /* ns; up to then repeats are the same signal */
static uint64_t interrupt_grace;

static void on_signal(int sig)
{
    const uint64_t now = ds_now_ns();         /* clock_gettime, which a handler may call */
    if (atomic_load(interrupt_flag)) {
        if (now < atomic_load(&interrupt_until)) return;
        signal(sig, SIG_DFL);
        raise(sig);   /* delivered when this handler returns */
        return;
    }
    atomic_store(&interrupt_until, now + interrupt_grace);
    atomic_store(interrupt_flag, sig);
}

void ds_on_interrupt(_Atomic int *flag, int grace_ms)
{
    struct sigaction sa = { 0 };
    interrupt_flag = flag;
    interrupt_grace = (uint64_t)grace_ms * 1000000u;
    sa.sa_handler = on_signal;   /* without SA_RESTART: a read that waits for input returns */
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
}
