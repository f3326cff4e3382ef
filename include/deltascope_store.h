/* deltascope session store: prefixes that were computed once, kept by their tokens.
 *
 * A hybrid model's recurrent state is valid only at the position where it was taken, so a prompt can go on only
 * from a *snapshot*: the GDN state after p tokens, with the KV rows of positions 0..p-1. The store keeps prefixes
 * as a radix tree over token ids. A node stands for a range of tokens, may hold the KV rows of the range and, at
 * its end, a snapshot; no node crosses a multiple of 64 positions. KV rows that an attached session still holds
 * are not copied until that session is about to lose them.
 *
 * Snapshots are taken at: message boundaries given by the caller (rounded down to multiples of 64), every
 * `every` tokens, one token before the end of a prompt, and wherever a request ends. Those of a prefill come
 * through ds_session_set_cuts, so that its chunks stay whole. At a multiple of 64 a restored session goes on bit
 * for bit like an uninterrupted prefill, as long as what was stored came from one (ds_lookup.exact).
 *
 * Threads: one thread, the engine's, calls everything here; ds_store_get_stats alone may be called from any thread
 * at any time (every number is read atomically, one after another). Nothing prints or exits. A store never makes a request fail:
 * where memory, disk or a file are wanting it keeps less and says so through `warn`. */
#ifndef DELTASCOPE_STORE_H
#define DELTASCOPE_STORE_H

#include "deltascope.h"

typedef struct ds_store ds_store;

struct ds_store_options {
    uint64_t mem;                   /* most bytes held: KV rows, states, logits, tree; 0: 2 GiB */
    int every;                      /* tokens between snapshots, a multiple of 64; 0: 512 */
    int max_cuts;                   /* the engine's ds_options.max_cuts: snapshots per chunk; see ds_store_cuts */
    const char *dir;                /* folder for files, made with mode 0700; NULL: RAM only */
    uint64_t disk;                  /* most bytes in files; 0: 8 GiB */
    double recent_s;                /* a larger prefix used within so many seconds is never evicted for a smaller one; 0: 600 */
    double idle_s;                  /* ds_store_tick writes after so many seconds without work; 0: 1; at most 4 */
    void (*warn)(void *ctx, const char *sentence);    /* something is kept less than asked for; may be NULL */
    void *warn_ctx;
};

/* What to give an engine as max_cuts, so that a chunk of ubatch tokens can keep an interval's snapshots, two
 * message boundaries and the end. Each costs ds_engine_state_bytes of scratch. */
int ds_store_cuts(int ubatch, int every);

/* A folder that cannot be used (not writable, held by another process) is a warning, and the store works
 * in RAM. Errors: DS_EARG, DS_ENOMEM. dir is copied. */
ds_status ds_store_open(ds_store **out, ds_engine *g, const struct ds_store_options *o, struct ds_err *e);
/* Writes nothing (see ds_store_flush). Attached sessions stay the caller's. NULL allowed. */
void ds_store_close(ds_store *st);

/* --- a request ------------------------------------------------------------------------------------
 *
 *     ds_store_begin(st, s, ids, n, bounds, n_bounds, &l, &e);     s now stands at l.start
 *     while (at < n) ds_store_prefill(st, s, ids + at, m, ...);    in any pieces; none when l.recompute is 0
 *     ds_session_logits(s), ds_session_decode(s, ...) ...
 *     ds_store_end(st, s);                                         finished, cancelled, or the client left
 *
 * A session that goes through the store is *attached* from its first begin until ds_store_detach. While attached, it
 * changes only by these calls and by appending (decode, prefill). Several requests may be under way at
 * once, each on its own session. */

enum ds_reuse {
    DS_REUSE_LIVE,                  /* the session itself stood at a prefix of the prompt */
    DS_REUSE_SNAPSHOT,              /* a snapshot in RAM */
    DS_REUSE_DISK,                  /* a snapshot in files */
    DS_MISS_EMPTY,                  /* nothing is stored */
    DS_MISS_NO_PREFIX,              /* nothing stored begins with the prompt's first token */
    DS_MISS_NO_SNAPSHOT,            /* there is a common prefix, but no snapshot within it */
    DS_MISS_DAMAGED                 /* the files that held it were refused (warned about) */
};
extern const char *const ds_reuse_names[];      /* "live", "snapshot", "disk", "empty", "no-prefix", "no-snapshot", "damaged" */

struct ds_lookup {
    enum ds_reuse reason;
    int64_t prompt;                 /* tokens of the prompt */
    int64_t common;                 /* of these, the longest prefix that anything stored or attached shares */
    int64_t snapshot;               /* position of the snapshot used; -1: none */
    int64_t start;                  /* where the session stands: the tokens not computed again */
    int64_t recompute;              /* prompt - start; 0 only with the last logits in place */
    bool exact;                     /* the session's bits are those of an uninterrupted prefill of `start` tokens */
    double ms;                      /* time of the lookup and restore */
};
/* One machine-readable line without newline:
 * "prefix reason=snapshot prompt=9000 common=8700 snapshot=8640 start=8640 recompute=360 exact=1 ms=0.4" */
void ds_lookup_line(const struct ds_lookup *l, char *dst, size_t n);

/* Which of n idle sessions a prompt should take: the one with the longest prefix to go on from, else one that holds
 * nothing, else the one used longest ago. */
int ds_store_pick(const ds_store *st, ds_session *const *idle, int n, const int32_t *ids, int64_t n_ids);
/* The tokens that a begin would not compute again, on some idle session; changes nothing. For queueing. */
int64_t ds_store_peek(ds_store *st, const int32_t *ids, int64_t n_ids);

/* Finds the best start for the prompt, restores it into s, and keeps what s held and is about to lose. bounds: message
 * boundaries as token counts, ascending, any position in (0, n]; copied; may be NULL with 0. Fails, without any change, when n is
 * beyond the window (both numbers in the sentence), 0, or an id is out of range. */
ds_status ds_store_begin(ds_store *st, ds_session *s, const int32_t *ids, int64_t n, const int64_t *bounds, int n_bounds,
                         struct ds_lookup *l, struct ds_err *e);
/* ds_session_prefill, with snapshots of the begun prompt taken on the way. rows: DS_ROWS_NONE for a piece
 * that is not the last. Pieces should be multiples of the engine's ubatch. */
ds_status ds_store_prefill(ds_store *st, ds_session *s, const int32_t *ids, int n, enum ds_rows rows, ds_tick tick,
                           void *tick_ctx, struct ds_err *e);
/* The request is over: a snapshot is taken where s stands, and the path is no longer in use. */
void ds_store_end(ds_store *st, ds_session *s);
/* After a prefill or decode that failed (any status but DS_ECANCEL and DS_EARG): resets s and stores nothing of it. */
void ds_store_forget(ds_store *st, ds_session *s);
/* Keeps what s holds, then knows it no more. Needed before ds_session_free. */
void ds_store_detach(ds_store *st, ds_session *s);

/* --- files -----------------------------------------------------------------------------------------
 *
 * One process at a time uses a folder. A file is written under a temporary name, synced and renamed; it holds
 * a range of a prefix with the tokens before it, its KV rows and snapshots, the engine's layout id, and checksums (XXH64)
 * over every byte. It is validated whole before anything in it is used. */

/* To be called now and then, from at least once a second when idle. Makes memory ready for the next snapshots, and writes prefixes
 * that are not in files yet once the store was idle for idle_s: a piece of either a call, so that a new request waits for no more.
 * Returns true while there is more to do. */
bool ds_store_tick(ds_store *st);
/* Writes everything now (shutdown), or until deadline_ns (ds_now_ns; 0: none). */
void ds_store_flush(ds_store *st, uint64_t deadline_ns);
/* Why files are not written for the moment (a full disk, say), a sentence of the store's; NULL: they are. */
const char *ds_store_write_failure(const ds_store *st);

/* One session in one file of the same format; g: the session's engine. Refused: a timing-only or empty session, and on load
 * another model, KV type or version, and any damage; s is then as before. Loading ends with s standing where it was saved.
 * Saving replaces a whole session of this engine, or nothing; names of a store's files are refused. Until it is whole the
 * file is PATH.tmp, and one process at a time has it: another is refused. */
ds_status ds_session_save(const ds_session *s, const ds_engine *g, const char *path, struct ds_err *e);
ds_status ds_session_load(ds_session *s, const ds_engine *g, const char *path, struct ds_err *e);
/* The same place held from before it is loaded and what is to be saved is computed, so that nobody's work is lost: open says what
 * saving would say about the path, and keeps PATH.tmp. Save, once, lets go of it; close (NULL allowed) without a save removes it. */
typedef struct ds_session_file ds_session_file;
ds_status ds_session_file_open(ds_session_file **f, const ds_engine *g, const char *path, struct ds_err *e);
ds_status ds_session_file_save(ds_session_file *f, const ds_session *s, struct ds_err *e);
void ds_session_file_close(ds_session_file *f);

/* --- numbers ----------------------------------------------------------------------------------------- */

struct ds_store_stats {
    uint64_t mem_limit, mem_used;           /* bytes; used <= limit always, as the engine's thread sees it */
    uint64_t mem_kv, mem_states, mem_logits, mem_tree;      /* these add up to mem_used */
    uint64_t disk_limit, disk_used;         /* 0 without a folder */
    uint64_t nodes, snapshots, files;       /* snapshots: in RAM */
    uint64_t hits_live, hits_snapshot, hits_disk, misses;
    uint64_t tokens_reused, tokens_recomputed;
    uint64_t taken, evicted, refused;       /* snapshots: stored, dropped for room, not admitted */
    uint64_t written, loaded, damaged;      /* files */
    uint64_t unsaved;                       /* prefixes that are not in files yet */
};
void ds_store_get_stats(const ds_store *st, struct ds_store_stats *out);

#endif
