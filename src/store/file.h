/* The session file: a range [from, to) of a prefix with the tokens before it.
 *
 *     words      u64 little-endian: magic "DSPREFIX", version, layout id, bytes of one position's KV rows, of a state, of
 *                logits, from, to, number of snapshots, exact_to, bytes of the whole file
 *     snapshots  (position, flags) as u64, ascending, the last at `to`
 *     tokens     [to] i32, then zeros up to a multiple of 8
 *     checksum   XXH64 of everything above
 *     body       KV rows of [from, to) in pieces that end at multiples of DS_BLOCK positions, each [planes][positions];
 *                then per snapshot its state, and its logits where the flags say so
 *     checksum   of the body, chained over its pieces, states and logits
 *
 * Rows below exact_to are bits of an uninterrupted prefill. */
#ifndef DS_STORE_FILE_H
#define DS_STORE_FILE_H

#include "base/err.h"
#include "base/os.h"
#include "store/tree.h"

#define DS_FILE_SUFFIX ".dsprefix"      /* of the names in a store's folder */

enum { DS_FILE_LOGITS = 1, DS_FILE_EXACT = 2, DS_FILE_KIND_SHIFT = 2 };      /* flags of a snapshot */
struct ds_file_snap { int64_t pos; uint64_t flags; };

/* A file's head, checked; points into its bytes. */
struct ds_file {
    const struct ds_shape *sh;
    const unsigned char *data;
    const int32_t *ids;            /* [to] */
    int64_t from, to, exact_to;
    int n_snaps;
    size_t body, size;             /* offset of the body, bytes in all */
};
/* name: of the file, for sentences. A file of another layout: DS_EUNSUP; anything else that is off: DS_EFORMAT. */
ds_status ds_file_head(struct ds_file *f, const char *name, const void *data, size_t n, const struct ds_shape *sh,
        struct ds_err *e);
/* Whether the first n bytes of a file, or the few that there are, could be those of a session file that was begun. */
bool ds_file_begun(const void *data, size_t n);
/* The body's checksum. Nothing in the body may be used before. */
ds_status ds_file_body(const struct ds_file *f, const char *name, struct ds_err *e);
struct ds_file_snap ds_file_snap(const struct ds_file *f, int i);
const void *ds_file_state(const struct ds_file *f, int i, const float **logits);     /* *logits NULL: none */
/* The piece of rows that holds position t: [*a, *b) at the result. */
const void *ds_file_rows(const struct ds_file *f, int64_t t, int64_t *a, int64_t *b);

uint64_t ds_file_bytes(const struct ds_shape *sh, int64_t from, int64_t to, const struct ds_file_snap *snaps, int n);

/* Writing to an open, empty file: begin, put the body's pieces, states and logits one by one in order, end, which drops the file
 * when it fails. After a failure of the others the caller drops it. */
struct ds_file_out { struct ds_out out; uint64_t hash; };
ds_status ds_file_begin(struct ds_file_out *w, const struct ds_shape *sh, const int32_t *ids, int64_t from, int64_t to,
        int64_t exact_to, const struct ds_file_snap *snaps, int n, struct ds_err *e);
ds_status ds_file_put(struct ds_file_out *w, const void *p, size_t n, struct ds_err *e);
ds_status ds_file_end(struct ds_file_out *w, const char *target, struct ds_err *e);      /* on the disk, and named so */

#endif
