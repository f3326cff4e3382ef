/* Two host backends in step: the path under test and the plain one, op by op on the same inputs.
 *
 * Before each op the plain side receives the path's inputs; then both run it, and their outputs are
 * compared. The forward goes on with the path's. So a difference stays with the op that made it: a
 * last-bit difference that turns over one rounding of an activation does not become another prompt for
 * all that follows, and a wrong kernel is named. State (conv, recurrent, KV) is never copied: each side
 * keeps its own, so errors that build up over tokens show. Both backends must map their buffers.
 *
 * How far an output is from the plain one: |path - plain| / |plain| in 2-norms over all of it, and over each row a quarter of
 * that, because few rows of many leave no mark on the whole. A row's norm counts as at least a tenth of the rows' mean. */
#ifndef DS_BACKEND_TANDEM_H
#define DS_BACKEND_TANDEM_H

#include "backend/backend.h"

struct ds_backend *ds_tandem_new(struct ds_backend *path, struct ds_backend *plain, struct ds_err *e);   /* owns both */

struct ds_tandem_report {
    double worst, limit;           /* the difference that is largest in parts of its limit (product_limit, op_limit of the path) */
    char worst_op[80];             /* "gdn", "matmul blk.3.ffn_down.weight" */
    int rows, rows_agree;          /* logit rows, and those with equal argmax: ties agree (ds_tandem_tied) */
    double cosine, max_abs;        /* of the last logit row */
};

/* Whether token i is as good an answer as the largest of the plain logits, as far as the path's limits can tell: the two differ
 * by at most four of the differences that its last product may have, in the logits' root mean square. */
bool ds_tandem_tied(struct ds_backend *be, const float *logits, size_t vocab, int i);

void ds_tandem_reset(struct ds_backend *be);
const struct ds_tandem_report *ds_tandem_read(struct ds_backend *be);

/* Both sides' stored values of a buffer as f32: the first n elements. */
struct ds_tandem_diff { double max_abs, num, den; };
void ds_tandem_compare(struct ds_backend *be, const struct ds_buf *b, size_t n, struct ds_tandem_diff *d);

#endif
