/* The ladder as Markdown: one table per machine, blank where nothing was measured. */
#include "cmd/ladder.h"
#include "common/rig.h"
#include "common/grid.h"

#include <stdio.h>
#include <string.h>

#define BLANK "not measured"

enum row_kind { ROW_WALL, ROW_RATE, ROW_STAGE, ROW_SAVED, ROW_FLOOR, ROW_QKNORM, ROW_PER_TOKEN };
struct row { int rung; enum row_kind kind; int arg; const char *label; };   /* arg: a stage, or an ubatch */

static const struct row rows[] = {
    { 0, ROW_WALL, 0, "baseline, ms" },
    { 0, ROW_RATE, 0, "tok/s" },
    { 0, ROW_STAGE, DS_ST_GEMM, "gemm+roundtrip, ms" },
    { 0, ROW_STAGE, DS_ST_GDN, "gdn-recurrence, ms" },
    { 0, ROW_STAGE, DS_ST_ATTN, "full-attn, ms" },
    { 0, ROW_STAGE, DS_ST_NORM_ACT, "norm+act, ms" },
    { 0, ROW_STAGE, DS_ST_OTHER, "other, ms" },
    { 1, ROW_WALL, 0, "no GDN, ms (TIMING ONLY)" },
    { 1, ROW_SAVED, 0, "which saves, ms" },
    { 2, ROW_WALL, 0, "no attention, ms (TIMING ONLY)" },
    { 2, ROW_SAVED, 0, "which saves, ms" },
    { 3, ROW_WALL, 0, "neither: the matmul-only floor, ms (TIMING ONLY)" },
    { 3, ROW_FLOOR, 0, "baseline above the floor, ms" },
    { 4, ROW_QKNORM, 0, "qk-norm timer, ms" },
    { 5, ROW_PER_TOKEN, 256, "ubatch 256, ms per token without the attention term" },
    { 5, ROW_PER_TOKEN, 512, "ubatch 512, the same" },
    { 5, ROW_PER_TOKEN, 1024, "ubatch 1024, the same" },
    { 5, ROW_PER_TOKEN, 2048, "ubatch 2048, the same" },
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* --- one cell ------------------------------------------------------------------------------------- */

struct source { const struct ds_ladder *l; int section; };

static const struct ds_record *record_of(const struct source *s, const struct row *r, int P)
{
    return ds_ladder_find(s->l, s->section, r->rung, P, r->kind == ROW_PER_TOKEN ? r->arg : 0);
}

/* The number of a cell. False: it, or the baseline that it is set against, was not measured. */
static bool cell_value(const struct source *s, const struct row *r, int P, double *v)
{
    const struct ds_record *rec = record_of(s, r, P), *base = ds_ladder_find(s->l, s->section, 0, P, 0);
    if (!rec) return false;
    switch (r->kind) {
    case ROW_WALL:      *v = rec->median_ms; return true;
    case ROW_RATE:      *v = 1e3 * P / rec->median_ms; return P >= DS_RATE_MIN;
    case ROW_STAGE:     *v = rec->stages[r->arg]; return true;
    case ROW_QKNORM:    *v = rec->stages[DS_ST_QKNORM]; return true;
    case ROW_PER_TOKEN: *v = ds_record_per_token(rec); return true;
    case ROW_SAVED:
    case ROW_FLOOR:     if (base) *v = base->median_ms - rec->median_ms; return base != NULL;
    }
    return false;
}

static void number(char *dst, size_t n, double v)
{
    double a = v < 0 ? -v : v;
    snprintf(dst, n, a >= 100 ? "%.1f" : a >= 10 ? "%.2f" : a >= 0.1 ? "%.3f" : "%.4f", v);
}

/* How far the cell lies above the least of its row, when that is more than rung 5 lets pass; else 0. */
static double divergence(const struct ds_view *view, const struct source *s, const struct row *r, double v)
{
    double least = v, x;
    for (int i = 0; i < view->P.n; i++)
        if (cell_value(s, r, view->P.v[i], &x) && x < least) least = x;
    return least > 0 && v / least - 1 > DS_DIVERGENCE ? v / least - 1 : 0;
}

static void write_cell(struct ds_grid *t, const struct ds_view *view, const struct source *s, const struct row *r, int P)
{
    const struct ds_record *rec = record_of(s, r, P), *base = ds_ladder_find(s->l, s->section, 0, P, 0);
    char a[32], lo[32], hi[32];
    double v;
    if (r->kind == ROW_RATE && rec && P < DS_RATE_MIN) {
        ds_grid_cell(t, "latency only");
        return;
    }
    if (!cell_value(s, r, P, &v)) {
        ds_grid_cell(t, BLANK);
        return;
    }
    number(a, sizeof a, v);
    if (r->kind == ROW_WALL) {
        number(lo, sizeof lo, rec->min_ms);
        number(hi, sizeof hi, rec->max_ms);
        ds_grid_cell(t, "%s (%s-%s)", a, lo, hi);
    } else if (r->kind == ROW_PER_TOKEN) {
        double over = divergence(view, s, r, v);
        const double spread = rec->max_ms / rec->min_ms - 1;       /* a divergence inside it may be noise: the reader is told */
        if (over > 0 && spread > over) ds_grid_cell(t, "%s (diverges, +%.1f %%; runs spread by %.0f %%)", a, 100 * over, 100 * spread);
        else if (over > 0) ds_grid_cell(t, "%s (diverges, +%.1f %%)", a, 100 * over);
        else ds_grid_cell(t, "%s", a);
    } else if (r->kind == ROW_RATE) {
        ds_grid_cell(t, "%s", a);
    } else {
        ds_grid_cell(t, "%s (%.1f %%)", a, base ? 100 * v / base->median_ms : 0);
    }
}

/* --- one machine ----------------------------------------------------------------------------------- */

static void row_label(struct ds_grid *t, int i)
{
    bool first = i == 0 || rows[i].rung != rows[i - 1].rung;
    if (first) ds_grid_cell(t, "%d", rows[i].rung);
    else ds_grid_cell(t, "%s", "");
    ds_grid_cell(t, "%s", rows[i].label);
}

static void write_section_table(struct ds_bytes *out, const struct ds_view *v, int section)
{
    static const char align[] = "llrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr";
    struct source s = { v->l, section };
    struct ds_grid t;
    char cols[DS_INTS_MAX + 3];
    snprintf(cols, sizeof cols, "%.*s", v->P.n + 2, align);
    ds_grid_init(&t, cols);
    ds_grid_cell(&t, "rung");
    ds_grid_cell(&t, "what");
    for (int i = 0; i < v->P.n; i++) ds_grid_cell(&t, "P=%d", v->P.v[i]);
    for (int i = 0; i < N_ROWS; i++) {
        row_label(&t, i);
        for (int k = 0; k < v->P.n; k++) write_cell(&t, v, &s, &rows[i], v->P.v[k]);
    }
    ds_grid_markdown(out, &t);
    ds_grid_free(&t);
}

/* Differences and leftovers are too small a part of what was measured for a ratio to mean anything. */
static bool has_ratio(const struct row *r)
{
    return r->kind != ROW_SAVED && r->kind != ROW_FLOOR && !(r->kind == ROW_STAGE && r->arg == DS_ST_OTHER);
}

/* Medians side by side, with their ratio. */
static void write_compared_table(struct ds_bytes *out, const struct ds_view *v)
{
    struct source before = { v->before, v->before_section }, after = { v->l, 0 };
    struct ds_grid t;
    char cols[3 * DS_INTS_MAX + 3] = "ll";
    for (int i = 0; i < v->P.n; i++) memcpy(cols + 2 + 3 * i, "rrr", 4);
    ds_grid_init(&t, cols);
    ds_grid_cell(&t, "rung");
    ds_grid_cell(&t, "what");
    for (int i = 0; i < v->P.n; i++) {
        ds_grid_cell(&t, "P=%d before", v->P.v[i]);
        ds_grid_cell(&t, "after");
        ds_grid_cell(&t, "after/before");
    }
    for (int i = 0; i < N_ROWS; i++) {
        row_label(&t, i);
        for (int k = 0; k < v->P.n; k++) {
            double a, b;
            bool has_b = cell_value(&before, &rows[i], v->P.v[k], &b), has_a = cell_value(&after, &rows[i], v->P.v[k], &a);
            char s[32];
            number(s, sizeof s, has_b ? b : 0);
            ds_grid_cell(&t, "%s", has_b ? s : BLANK);
            number(s, sizeof s, has_a ? a : 0);
            ds_grid_cell(&t, "%s", has_a ? s : BLANK);
            if (has_a && has_b && b > 0 && has_ratio(&rows[i])) ds_grid_cell(&t, "%.3f", a / b);
            else ds_grid_cell(&t, "%s", "");
        }
    }
    ds_grid_markdown(out, &t);
    ds_grid_free(&t);
}

/* --- where the numbers come from ------------------------------------------------------------------- */

static bool first_of_command(const struct ds_ladder *l, int i)
{
    for (int k = 0; k < i; k++)
        if (l->rec[k].section == l->rec[i].section && !strcmp(l->rec[k].command, l->rec[i].command) && !strcmp(l->rec[k].date, l->rec[i].date))
            return false;
    return true;
}

static void write_origin(struct ds_bytes *out, const struct ds_ladder *l, int section)
{
    int found = 0, repeated = 0;
    for (int i = 0; i < l->n; i++) {
        const struct ds_record *r = &l->rec[i];
        if (r->section != section) continue;
        found++;
        repeated += ds_ladder_find(l, section, r->rung, r->P, r->ubatch) != r;
        if (!first_of_command(l, i)) continue;
        ds_bytes_printf(out, "- %s: `%s`, commit %s, %d repetition%s, clock: %s%s\n", r->date, r->command, r->commit, r->reps,
                        r->reps == 1 ? "" : "s", r->clock ? r->clock : "the system does not say",
                        r->busy ? ", BUSY: other work held the machine" : "");
    }
    if (!found) ds_bytes_puts(out, "- Nothing was measured on this machine yet.\n");
    if (repeated) ds_bytes_printf(out, "- %d record(s) of cells that were measured again later; the latest is shown.\n", repeated);
}

/* Above the table, for who reads no further than the numbers. */
static void warn_busy(struct ds_bytes *out, const struct ds_ladder *l, int section)
{
    int n = 0, busy = 0;
    for (int i = 0; i < l->n; i++)
        if (l->rec[i].section == section) n++, busy += l->rec[i].busy;
    if (busy) ds_bytes_printf(out, "BUSY: other work held the machine during %d of %d records, so their times are no result; measure again.\n\n", busy, n);
}

static void write_notes(struct ds_bytes *out, bool compared)
{
    ds_bytes_printf(out,
        "\n%s Shares are of the baseline's wall. Rungs 1 to 3 leave stages out and run every matrix\n"
        "product at full cost: they are TIMING ONLY, and what leaving a stage out saves is its true cost where a timer can misattribute overlap.\n"
        "Rung 4 reads the baseline's own runs. Rung 5 takes the measured full-attn stage, less its qk-norm pass, out of the wall%s\n"
        "%d %%. A cell is a measurement on the machine named, or it is blank.\n",
        compared ? "Cells are medians." : "Cells are medians (min-max of the repetitions).", "; lengths may differ by",
        (int)(100 * DS_DIVERGENCE));
}

void ds_ladder_markdown(struct ds_bytes *out, const struct ds_view *v)
{
    const struct ds_ladder *l = v->l;
    ds_bytes_puts(out, "# Prefill ladder\n");
    if (*l->hash) ds_bytes_printf(out, "\nmodel %s, hash %s\n", l->model, l->hash);
    if (v->before) {
        ds_bytes_printf(out, "\n## before: %s\n", v->before->sections[v->before_section].title);
        ds_bytes_printf(out, "## after: %s\n\n", l->sections[0].title);
        warn_busy(out, v->before, v->before_section);
        warn_busy(out, l, 0);
        write_compared_table(out, v);
        ds_bytes_puts(out, "\nbefore\n");
        write_origin(out, v->before, v->before_section);
        ds_bytes_puts(out, "\nafter\n");
        write_origin(out, l, 0);
    }
    for (int s = 0; s < l->n_sections && !v->before; s++) {
        ds_bytes_printf(out, "\n## %s\n\n", l->sections[s].title);
        warn_busy(out, l, s);
        write_section_table(out, v, s);
        ds_bytes_puts(out, "\n");
        write_origin(out, l, s);
    }
    write_notes(out, v->before != NULL);
}
