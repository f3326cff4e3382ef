/* Everything that asks the operating system for something. One implementation per system
 * (os_posix.c, os_threads.c: Linux and macOS). No other file of the engine includes a system header beyond the
 * C11 standard library. */
#ifndef DS_BASE_OS_H
#define DS_BASE_OS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- files --- */

/* A whole file mapped read-only. data is NULL for an empty file. */
struct ds_map {
    const unsigned char *data;
    size_t size;
    void *handle;  /* the system's own */
};
ds_status ds_map_open(struct ds_map *m, const char *path, struct ds_err *e);
void ds_map_close(struct ds_map *m);             /* accepts a zeroed struct */
/* Tells the system that [off, off+len) will be read soon / will not be needed again. Hints only. */
void ds_map_willneed(const struct ds_map *m, size_t off, size_t len);
void ds_map_dontneed(const struct ds_map *m, size_t off, size_t len);

/* Folder of the running executable, without a trailing slash. False when unknown. */
bool ds_exe_dir(char *dst, size_t n);
bool ds_file_exists(const char *path);
/* What lies at the end of a path, behind symbolic links. */
enum ds_file_kind { DS_FILE_NONE, DS_FILE_REGULAR, DS_FILE_FOLDER, DS_FILE_OTHER };
enum ds_file_kind ds_file_kind(const char *path);
ds_status ds_dir_make(const char *path, struct ds_err *e);    /* one level; an existing folder is fine */
/* The same with the folders above it, with mode 0700 where they are made. */
ds_status ds_dir_make_private(const char *path, struct ds_err *e);
/* Calls fn for every regular file of a folder. mtime: seconds since 1970. */
ds_status ds_dir_each(const char *path, void (*fn)(void *ctx, const char *name, uint64_t bytes, int64_t mtime), void *ctx, struct ds_err *e);
uint64_t ds_disk_free(const char *path);         /* bytes that an ordinary user may still write there; UINT64_MAX when unknown */

enum { DS_PATH_MAX = 4096 };
/* Where a file must be made that is to be `path` afterwards: at the end of its symbolic links, so that renaming another file
 * to *target* leaves the links in place. Nothing or a regular file must be there; devices, pipes and folders are refused. */
ds_status ds_out_target(char target[DS_PATH_MAX], const char *path, struct ds_err *e);
/* A regular file written from its beginning, and renamed once it is whole. A link and whatever is no file are refused. It has one
 * writer at a time, whatever its process, from claim or open to place or drop: another one is refused at once. A writer that was
 * killed holds nothing. */
struct ds_out { int fd; const char *path; bool busy; };     /* path is not copied; busy: refused because of another writer */
/* claim leaves what is in the file, open empties it. Mode of a new one: shared: the umask's, else 0600. */
ds_status ds_out_claim(struct ds_out *o, const char *path, bool shared, struct ds_err *e);
ds_status ds_out_open(struct ds_out *o, const char *path, bool shared, struct ds_err *e);
ds_status ds_out_empty(struct ds_out *o, struct ds_err *e);
ds_status ds_out_write(struct ds_out *o, const void *p, size_t n, struct ds_err *e);
/* Replaces `to` at once (path itself is allowed); sync: file and name are on the disk when this returns. On failure the file is
 * dropped. */
ds_status ds_out_place(struct ds_out *o, const char *to, bool sync, struct ds_err *e);
void ds_out_drop(struct ds_out *o);              /* removes it */
void ds_out_leave(struct ds_out *o);             /* lets go of it, as it is */
void ds_file_remove(const char *path);

/* A lock that one holder at a time has, whatever its process; gone when the process ends. */
struct ds_lock { int fd; };
ds_status ds_lock_take(struct ds_lock *l, const char *path, struct ds_err *e);   /* never waits; the file is made */
void ds_lock_drop(struct ds_lock *l);            /* the file stays */

/* --- memory --- */

size_t ds_page_size(void);
/* Zeroed, 64-byte aligned (page aligned from 1 MiB up), committed on first touch; NULL when refused. */
void *ds_mem_alloc(size_t bytes);
void ds_mem_free(void *p, size_t bytes);         /* bytes as given to ds_mem_alloc */
uint64_t ds_mem_total(void);                     /* physical bytes, or the cgroup's limit if lower */
uint64_t ds_mem_available(void);
void ds_mem_give_back(void);                     /* what the C library holds of freed memory, where it can; takes milliseconds */
uint64_t ds_mem_peak_rss(void);                  /* this process, bytes */

/* --- time --- */

uint64_t ds_now_ns(void);                        /* monotonic */
uint64_t ds_thread_cpu_ns(void);                 /* processor time of the calling thread: stands still while it waits for a processor */
void ds_utc_string(char dst[32]);                /* "2026-01-31T12:00:00Z" */

/* --- processors --- */

int ds_cpu_count(void);                          /* usable: affinity and cgroup quota applied, >= 1 */
void ds_cpu_model(char *dst, size_t n);          /* as the system names it, or "unknown" */
/* Clock or thermal state in words ("2596 MHz", "throttled"); empty when the system does not say. */
void ds_cpu_clock_state(char *dst, size_t n);
bool ds_machine_busy(char *dst, size_t n);       /* other load seen now (load average above threads)? dst says which */
unsigned ds_os_arm_features(void);               /* enum ds_cpu_feature bits that the system reports; 0 on other architectures */

/* --- threads --- */

typedef struct ds_thread ds_thread;
ds_thread *ds_thread_start(void (*fn)(void *), void *arg);   /* NULL on failure */
void ds_thread_join(ds_thread *t);                           /* frees t */
/* For t, which sleeps and is about to be woken: it shall wake on another processor than the caller's, if it may use one. t takes that back
 * when it runs. A virtual machine's kernel takes a processor that halted for one that is not there, puts the sleeper behind its
 * waker and may leave both on one processor for tens of milliseconds. Linux only; nothing elsewhere. */
void ds_thread_wake_apart(ds_thread *t);
void ds_thread_let_go(void);
/* Sleeps while *word == seen (spurious returns allowed) / wakes every sleeper on word. */
void ds_wait_word(_Atomic uint32_t *word, uint32_t seen);
void ds_wake_word(_Atomic uint32_t *word);
void ds_cpu_relax(void);                         /* pause in a spin loop */
void ds_cpu_yield(void);                         /* lets another thread have this processor, if one waits for it */

/* --- terminal and signals --- */

bool ds_is_terminal(int fd);                     /* 0, 1, 2 */
/* For the start of a program: no file opened later takes the place of a standard one that is closed (writing to that one still
 * fails), and a file that grows to the limit of its size is a failed write, not the end of the process. */
void ds_program_start(void);
int ds_terminal_width(int fd);                   /* columns, 80 when unknown */
/* SIGINT, SIGTERM set *flag to the signal's number. Another one ends the process at once, unless it comes within `grace_ms` of the
 * first: whoever signals a process and its group (timeout does, a terminal can) means it once. */
void ds_on_interrupt(_Atomic int *flag, int grace_ms);

#endif
