/* Two host backends in step: the path under test and the plain one, op by op on the same inputs.
 *
 * Before each op the plain side receives the path's inputs; then both run it, and their outputs are
 * compared. The forward goes on with the path's. So a difference stays with the op that made it: a
 * last-bit difference that turns over one rounding of an activation does not become another prompt for
 * all that follows, and a wrong kernel is named. State (conv, recurrent, KV) is never copied: each side
 * keeps its own, so errors that build up over tokens show. Both backends must map their buffers. */
#ifndef DS_BACKEND_TANDEM_H
#define DS_BACKEND_TANDEM_H

#include "backend/backend.h"

struct ds_backend *ds_tandem_new(struct ds_backend *path, struct ds_backend *plain, struct ds_err *e);   /* owns both */

struct ds_tandem_report {
    double worst;                  /* largest |path - plain| / |plain| of an op's output, 2-norms over the output */
    char worst_op[48];             /* "gdn", "matmul blk.3.ffn_down.weight" */
    int rows, rows_agree;          /* logit rows, and those with equal argmax */
    double cosine, max_abs;        /* of the last logit row */
};
void ds_tandem_reset(struct ds_backend *be);
const struct ds_tandem_report *ds_tandem_read(struct ds_backend *be);

/* Both sides' stored values of a buffer as f32: the first n elements. */
struct ds_tandem_diff { double max_abs, num, den; };
void ds_tandem_compare(struct ds_backend *be, const struct ds_buf *b, size_t n, struct ds_tandem_diff *d);

#endif
