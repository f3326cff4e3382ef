/* Internals of the session store. tree: what is kept; evict: what goes when room is short; disk: the folder of
 * files; store: requests. */
#ifndef DS_STORE_STORE_H
#define DS_STORE_STORE_H

#include "base/os.h"
#include "deltascope_store.h"
#include "store/file.h"
#include "store/tree.h"

/* An attached session. Its own rows hold the path from the root to tip. */
struct ds_live {
    ds_session *s;
    struct ds_node *tip;           /* pinned; NULL: none */
    bool busy;                     /* between begin and end */
    int64_t start, n;              /* of the request: where it began to compute, its prompt's tokens */
    int64_t *bounds; int n_bounds;
    int64_t exact_to;              /* rows below are bits of an uninterrupted prefill; the state too, where it is the position */
    bool piece_exact;              /* the prefill under way computes such bits */
    uint64_t used;
};

struct ds_seg {                    /* a file of the folder */
    char name[48];
    uint64_t bytes, used;
    struct ds_node *tip;           /* the node at its end, pinned; NULL: of another model */
    bool dead;                     /* to be dropped: see bury */
    bool old;                      /* dead, for the room that it takes */
    bool spare;                    /* dead, but its file stays where it is */
    bool keep;                     /* may not be dropped now */
};

struct ds_disk {
    char *dir;                     /* NULL: none */
    struct ds_lock lock;
    uint64_t limit;
    _Atomic uint64_t used, files;
    struct ds_seg **seg; int n, cap;     /* room for all is counted from the start */
    uint64_t retry_ns;             /* no writing before, after a failure */
    char why[512];                 /* that failure */
    bool keep;                     /* files may not be dropped now: one of them is about to be read */
};

struct ds_counts {
    _Atomic uint64_t hits_live, hits_snapshot, hits_disk, misses, reused, recomputed, taken, evicted, refused, written, loaded,
            damaged, unsaved;
};

struct ds_store {
    ds_engine *g;
    struct ds_tree t;
    struct ds_disk disk;
    struct ds_counts count;
    uint64_t mem, recent_ns, idle_ns;
    int every, max_cuts, ubatch;
    int64_t ctx;
    struct ds_live **live; int n_live, cap_live;
    const struct ds_live *leaving; /* its rows are about to be lost: they do not make others superfluous */
    uint64_t clock, epoch;         /* requests begun; marks of ds_node.cover */
    uint64_t last_ns;              /* of the last work */
    void (*warn)(void *ctx, const char *sentence);
    void *warn_ctx;
};

void ds_store_warn(const ds_store *st, const struct ds_err *e, const char *after);
struct ds_shape ds_store_shape(const ds_engine *g);

/* Marks, on every node, the sessions whose own rows hold it; `except` does not count. */
void ds_store_mark(ds_store *st, const struct ds_live *except);
/* After a mark: can the rows of n be had? */
static inline const struct ds_live *ds_store_cover(const ds_store *st, const struct ds_node *n)
{
    return n->cover_epoch == st->epoch ? n->cover : NULL;
}
static inline bool ds_store_has_rows(const ds_store *st, const struct ds_node *n) { return n->kv || n->seg || ds_store_cover(st,
        n); }
/* Drops every state in RAM whose rows cannot be had any more, and what then stands for nothing. */
void ds_store_sweep(ds_store *st, const struct ds_live *except);

/* --- attached sessions --- */

struct ds_live *ds_live_of(const ds_store *st, const ds_session *s);       /* NULL: not attached */
void ds_live_set_tip(ds_store *st, struct ds_live *L, struct ds_node *n);
/* Tokens at the head of ids whose rows the session has. */
int64_t ds_common_with(const ds_session *s, const int32_t *ids, int64_t n);

/* --- start.c --- */

struct ds_start {
    struct ds_node *node;          /* NULL: the session itself, or nothing */
    int64_t pos, common;
    bool live, disk;
    enum ds_reuse reason;
};
/* L may be NULL: for any idle session. Marks must be those of all but L. */
struct ds_start ds_start_find(const ds_store *st, const struct ds_live *L, const int32_t *ids, int64_t n);
/* On failure the session may hold anything: begin again, or at nothing (which cannot fail). */
ds_status ds_start_restore(ds_store *st, struct ds_live *L, const struct ds_start *f, const int32_t *ids, int64_t n);

/* --- evict.c --- */

/* Room is asked for in the name of a prefix of `size` tokens. What is worth more than `score` stays, and so does all that
 * belongs to a longer prefix in use or used lately. INFINITY: for rows without which a whole prefix is lost; negative: only
 * room that is free. */
struct ds_claim { int64_t size; double score; bool state; };      /* state: a state is among the bytes, so that a spare one counts */
bool ds_store_room(ds_store *st, uint64_t bytes, const struct ds_claim *c);
/* What a snapshot at `end` is worth, by byte: tokens that it saves, weighed by the chance that they are asked for. */
double ds_store_worth(const struct ds_store *st, const struct ds_node *n, enum ds_snap_kind kind);
/* Bytes that no claim of that size can have. */
uint64_t ds_store_fixed(ds_store *st, int64_t size);

/* --- disk.c --- */

void ds_disk_open(ds_store *st, const char *dir, uint64_t limit);    /* failures are warnings */
void ds_disk_close(ds_store *st);
bool ds_disk_may_write(const ds_store *st);
/* Writes the path to n from where files end. False: not written (warned about). */
bool ds_disk_write(ds_store *st, struct ds_node *n);
/* The node whose path is to be written next; NULL: all is in files. Counts what is not. */
struct ds_node *ds_disk_unsaved(ds_store *st);
/* Maps and validates a file whole. On failure it is dropped from folder and tree, with all that needs it. */
ds_status ds_disk_read(ds_store *st, struct ds_seg *seg, struct ds_map *m, struct ds_file *f);

#endif
