/* Stored prefixes as a radix tree over token ids, every byte counted.
 *
 * A node covers positions [from, from + n). None crosses a multiple of DS_BLOCK, so that splitting one moves few rows. A
 * node may hold the KV rows of its range and, at its end, a snapshot: GDN state, perhaps the logits there. Rows and
 * snapshots may also lie in a file (seg). The tree allocates only what its caller made room for. */
#ifndef DS_STORE_TREE_H
#define DS_STORE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DS_BLOCK 64

enum ds_snap_kind { DS_SNAP_INTERVAL, DS_SNAP_BOUNDARY, DS_SNAP_END };

struct ds_shape {                  /* bytes, from the engine */
    uint64_t layout;
    size_t kv;                     /* rows of one position */
    int planes;                    /* kv lies as [planes][positions] rows of kv / planes bytes */
    size_t state, logits;
    int n_vocab;
};

struct ds_seg;                     /* a file (disk.h) */
struct ds_live;                    /* an attached session (store.h) */

struct ds_node {
    struct ds_node *parent, **child;   /* ascending by first token */
    int n_child, cap_child;
    int64_t from;
    int n;                         /* 1..DS_BLOCK; 0 only for the root */
    int32_t ids[DS_BLOCK];
    int pins;                      /* tips of sessions, and whoever holds the node for a moment */
    int ram;                       /* states in RAM, here and below */
    void *kv;                      /* [planes][n] rows; NULL: not in RAM */
    void *state;                   /* NULL: no snapshot in RAM */
    float *logits;                 /* NULL: not kept */
    uint8_t kind;                  /* enum ds_snap_kind */
    bool kv_exact, exact;          /* rows, state: bits of an uninterrupted prefill */
    bool hold;                     /* the state may not go now */
    struct ds_seg *seg;            /* the file that holds the rows; NULL: none. Ancestors have one too */
    uint8_t on_disk;               /* enum ds_on_disk bits of the snapshot there */
    bool no_save;                  /* no file can hold it */
    uint64_t used, used_ns;        /* requests counted, clock; used_ns 0: no longer of use to anyone known */
    int64_t deep;                  /* end of the longest prefix through here that is in use or was lately; scratch of evict.c */
    struct ds_live *cover;         /* a session whose own rows hold the range; valid where cover_epoch is the current one */
    uint64_t cover_epoch;
};
enum ds_on_disk { DS_ON_DISK = 1, DS_ON_DISK_LOGITS = 2, DS_ON_DISK_EXACT = 4 };

enum { DS_SPARE_STATES = 12 };

struct ds_tree {
    struct ds_shape sh;
    struct ds_node *root;
    _Atomic uint64_t kv, states, logits, tree;       /* bytes */
    _Atomic uint64_t nodes, snapshots;
    /* Memory for states to come, counted in `states`: a fresh page costs the system more than the copy into it, so pages are made
     * when there is time, and those of a state that goes are kept for the next. */
    void *spare[DS_SPARE_STATES];
    int n_spare;
    void *growing; size_t grown;                     /* the next spare, and how much of it has pages */
};

static inline int64_t ds_node_end(const struct ds_node *n) { return n->from + n->n; }
uint64_t ds_tree_cost(size_t bytes);                 /* what an allocation of so many bytes is counted as */
uint64_t ds_tree_used(const struct ds_tree *t);

bool ds_tree_init(struct ds_tree *t, const struct ds_shape *sh);
void ds_tree_free(struct ds_tree *t);

/* The deepest node that ids[0..n) runs through whole; *common: tokens matched, those inside a further node included;
 * *part, may be NULL: that further node, or NULL. */
struct ds_node *ds_tree_find(const struct ds_tree *t, const int32_t *ids, int64_t n, int64_t *common, struct ds_node **part);
/* Bytes that ds_tree_grow may take for these ids, at most. */
uint64_t ds_tree_grow_cost(const struct ds_tree *t, const int32_t *ids, int64_t n);
/* The node that ends at n, made where it is not there. NULL: the system refused memory. */
struct ds_node *ds_tree_grow(struct ds_tree *t, const int32_t *ids, int64_t n);

bool ds_node_new_kv(struct ds_tree *t, struct ds_node *n);       /* room for rows, not filled */
bool ds_tree_grow_spare(struct ds_tree *t);          /* a few milliseconds' worth; false: enough of them, or the system refused memory */
bool ds_tree_drop_spare(struct ds_tree *t, int keep);    /* one more than `keep`; false: there is none */
bool ds_node_new_state(struct ds_tree *t, struct ds_node *n);
bool ds_node_new_logits(struct ds_tree *t, struct ds_node *n);
void ds_node_drop_kv(struct ds_tree *t, struct ds_node *n);
/* And logits. The memory becomes a spare when there is none. */
void ds_node_drop_state(struct ds_tree *t, struct ds_node *n);
/* Frees, from n upwards, rows that no snapshot in RAM needs, and nodes that stand for nothing. Returns the first that stays. */
struct ds_node *ds_tree_trim(struct ds_tree *t, struct ds_node *n);

/* Depth-first, parents first. below false: leaves out what is under n. NULL: no more. */
struct ds_node *ds_tree_next(struct ds_node *n, bool below);

/* Copies rows [a, b) out of those of [from, from + n) at src, layout [planes][n], to dst, layout [planes][b - a]. */
void ds_rows_cut(const struct ds_shape *sh, void *dst, const void *src, int64_t from, int64_t n, int64_t a, int64_t b);
/* Copies all rows of [a, b) at src into those of [from, from + n) at dst. */
void ds_rows_put(const struct ds_shape *sh, void *dst, int64_t from, int64_t n, const void *src, int64_t a, int64_t b);

#endif
