/* The ladder: one prefill measured with its stages, then with stages left out, then at several chunk
 * sizes. Measuring writes records; everything shown is made from records, whether they were just measured
 * or read from files, so a merged ladder and a fresh one cannot differ in form.
 *
 *   rung 0  baseline, with the stage split          rung 3  neither GDN nor attention: the matmul-only floor
 *   rung 1  no GDN                                  rung 4  the qk-norm timer
 *   rung 2  no attention                            rung 5  chunk sizing: ms per token without the O(P^2) term
 *
 * Rung 4, and rung 5 at the baseline's ubatch, read the baseline's own runs ("runs_of_rung": 0). */
#ifndef DS_TOOLS_CMD_LADDER_H
#define DS_TOOLS_CMD_LADDER_H

#include "common/options.h"
#include "common/stats.h"

#include "base/json.h"

#define DS_RUNGS 6
#define DS_LADDER_MAX (64u << 20)       /* bytes of a ladder file */
#define DS_LADDER_KIND "prefill-ladder" /* what such a file calls itself */
#define DS_DIVERGENCE 0.05              /* rung 5: lengths that differ by more are flagged */
extern const char *const ds_rung_names[DS_RUNGS];
extern const int ds_rung5_ubatch[4];
unsigned ds_rung_skip(int rung);        /* enum ds_skip bits that a rung leaves out */

/* --- records ----------------------------------------------------------------------------------- */

struct ds_record {                      /* strings belong to the document that it was read from */
    int rung, P, ubatch, reps;
    double median_ms, min_ms, max_ms, stages[DS_ST_COUNT];
    const char *cpu, *gpu, *isa, *backend, *placement, *commit, *model, *model_hash, *command, *date, *clock;
    int threads, cores, section;        /* section: index into ds_ladder.sections */
    bool busy;
    const struct ds_json *json;
};

/* Reads the record r, the index-th of the document that `file` names in messages. Refused: a field of its provenance that is missing or
 * of another type, a rung whose name, skip or flags are those of another one, a decode run, a median that is not that of its
 * repetitions, stages that do not add up to the wall, and a time that beats its own machine's peaks. */
ds_status ds_record_read(struct ds_record *rec, const struct ds_json *r, const char *file, int index, struct ds_err *e);

/* Records of one machine, backend, placement and commit. A template has a title and no record. */
struct ds_section { char title[320]; const struct ds_record *first; };

struct ds_ladder {
    struct ds_json **docs;
    int n_docs;
    struct ds_record *rec;
    int n, cap;
    struct ds_section *sections;
    int n_sections;
    char hash[32], type[32], arch[32], model[512];      /* of the first record */
};
void ds_ladder_free(struct ds_ladder *l);               /* a zeroed one is allowed */
/* Reads the records of a document that `name` names in messages; takes it over. Refuses what ds_record_read refuses,
 * and a record with another model's hash. */
ds_status ds_ladder_add(struct ds_ladder *l, struct ds_json *doc, const char *name, struct ds_err *e);
ds_status ds_ladder_add_file(struct ds_ladder *l, const char *path, struct ds_err *e);
/* A section without records, for a machine that was not measured. */
ds_status ds_ladder_add_template(struct ds_ladder *l, const char *machine, const char *backend, const char *placement, struct ds_err *e);
/* All records as ladder.json. */
void ds_ladder_json(struct ds_bytes *out, const struct ds_ladder *l);

/* The record of a cell; the latest by date when several files have it; NULL: not measured. ubatch 0: any. */
const struct ds_record *ds_ladder_find(const struct ds_ladder *l, int section, int rung, int P, int ubatch);
/* Rung 5: wall without the attention term, per token: (median - (full-attn - qk-norm)) / P. */
double ds_record_per_token(const struct ds_record *r);

/* --- output ------------------------------------------------------------------------------------ */

/* What is shown: sections of l at lengths P; with `before`, its section `before_section` beside section 0 of l. */
struct ds_view {
    const struct ds_ladder *l, *before;
    int before_section;
    struct ds_ints P;
};
void ds_ladder_markdown(struct ds_bytes *out, const struct ds_view *v);
void ds_ladder_svg(struct ds_bytes *out, const struct ds_view *v);

/* --- measuring --------------------------------------------------------------------------------- */

struct ds_ladder_spec {
    const char *prog, *command;
    struct ds_common common;
    struct ds_ints prefill;
    int reps;
};
/* Measures every rung and writes the records as ladder.json into out. Stage tables and profile lines go to
 * stderr when the profile is on. */
ds_status ds_ladder_measure(struct ds_bytes *out, const struct ds_ladder_spec *s, struct ds_err *e);

#endif
