/* Measures the rungs of the ladder and writes them as records. */
#include "cmd/ladder.h"
#include "common/member.h"
#include "common/record.h"
#include "common/report.h"
#include "common/rig.h"
#include "common/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ds_rung_names[DS_RUNGS] = { "baseline", "no-gdn", "no-attn", "floor", "qk-norm", "chunk-sizing" };
const int ds_rung5_ubatch[4] = { 256, 512, 1024, 2048 };
enum { N_UBATCH = sizeof ds_rung5_ubatch / sizeof *ds_rung5_ubatch };

unsigned ds_rung_skip(int rung)
{
    static const unsigned skip[DS_RUNGS] = { 0, DS_SKIP_GDN, DS_SKIP_ATTN, DS_SKIP_GDN | DS_SKIP_ATTN, 0, 0 };
    return skip[rung];
}

struct measuring {
    const struct ds_ladder_spec *s;
    struct ds_rig rig;
    struct ds_provenance prov;
    int warm_up, base_ubatch;
    struct ds_cell rung[4][DS_INTS_MAX];            /* rungs 0 to 3 */
    struct ds_cell chunk[N_UBATCH][DS_INTS_MAX];    /* rung 5; unused where the ubatch is the baseline's */
};

static int longest(const struct ds_ints *v)
{
    int m = 0;
    for (int i = 0; i < v->n; i++) m = v->v[i] > m ? v->v[i] : m;
    return m;
}

static double tokens(const struct ds_ladder_spec *s)
{
    double sum = 0;
    for (int i = 0; i < s->prefill.n; i++) sum += s->prefill.v[i];
    return sum * s->reps;
}

/* --- runs ---------------------------------------------------------------------------------------- */

static ds_status open_rig(struct measuring *m, int ubatch, struct ds_err *e)
{
    struct ds_options o = m->s->common.engine;
    if (ubatch) o.ubatch = ubatch;
    ds_status st = ds_rig_open(&m->rig, &o, longest(&m->s->prefill), e);
    m->rig.mode = m->s->common.profile == DS_PROF_OFF ? DS_PROF_STAMP : m->s->common.profile;
    m->rig.lines = m->s->common.profile != DS_PROF_OFF;
    return st ? st : ds_rig_warm_up(&m->rig, longest(&m->s->prefill), &m->warm_up, e);
}

static ds_status new_cells(struct ds_cell *row, const struct ds_ladder_spec *s, unsigned skip, struct ds_err *e)
{
    ds_status st = DS_OK;
    for (int i = 0; i < s->prefill.n && !st; i++) {
        row[i] = (struct ds_cell){ .P = s->prefill.v[i], .skip = skip };
        st = ds_cell_init(&row[i], s->reps, e);
    }
    return st;
}

static double larger(double a, double b) { return a > b ? a : b; }

/* Asked before anything is timed: records without peaks are worth nothing. */
static ds_status has_peaks(struct measuring *m, struct ds_err *e)
{
    const struct ds_peaks *p = ds_engine_peaks(m->rig.g);
    if (p->int8_gops > 0 && p->f32_gflops > 0 && p->read_gbs > 0 && p->copy_gbs > 0) return DS_OK;
    return ds_fail(e, DS_EIO, "the peaks of %s could not be measured here, so no time could be checked against them", ds_engine_backend(m->rig.g));
}

/* Every repetition against the peaks of the machine; the largest figures that any engine measured are the record's. */
static ds_status check_row(struct measuring *m, const struct ds_cell *row, struct ds_err *e)
{
    ds_status st = DS_OK;
    for (int i = 0; i < m->s->prefill.n; i++)
        for (int r = 0; r < row[i].n && !st; r++) st = ds_check_rates(&row[i].prof[r], m->rig.g, e);
    const struct ds_peaks *now = ds_engine_peaks(m->rig.g);
    struct ds_peaks *p = &m->prov.peaks;
    *p = (struct ds_peaks){ larger(p->int8_gops, now->int8_gops), larger(p->f32_gflops, now->f32_gflops), larger(p->mm_gflops, now->mm_gflops),
                            larger(p->read_gbs, now->read_gbs), larger(p->copy_gbs, now->copy_gbs) };
    return st;
}

/* Rungs 0 to 3, alternating, so that a drift of the machine falls on all of them alike. */
static ds_status run_skips(struct measuring *m, struct ds_err *e)
{
    const struct ds_ladder_spec *s = m->s;
    ds_status st = DS_OK;
    for (int k = 0; k < 4 && !st; k++) st = new_cells(m->rung[k], s, ds_rung_skip(k), e);
    ds_progress_start(&m->rig.bar, "rungs 0 to 3", DS_PROGRESS_TOKENS);
    ds_progress_plan(&m->rig.bar, 4 * tokens(s));
    for (int r = 0; r < s->reps && !st; r++)
        for (int i = 0; i < s->prefill.n && !st; i++)
            for (int k = 0; k < 4 && !st; k++) st = ds_cell_run(&m->rung[k][i], &m->rig, e);
    ds_progress_end(&m->rig.bar);
    for (int k = 0; k < 4 && !st; k++) st = check_row(m, m->rung[k], e);
    return st;
}

static ds_status run_chunks(struct measuring *m, int u, struct ds_err *e)
{
    const struct ds_ladder_spec *s = m->s;
    char label[48];
    ds_rig_close(&m->rig);
    ds_status st = open_rig(m, ds_rung5_ubatch[u], e);
    if (!st) st = new_cells(m->chunk[u], s, 0, e);
    snprintf(label, sizeof label, "rung 5, ubatch %d", ds_rung5_ubatch[u]);
    ds_progress_start(&m->rig.bar, label, DS_PROGRESS_TOKENS);
    ds_progress_plan(&m->rig.bar, tokens(s));
    for (int r = 0; r < s->reps && !st; r++)
        for (int i = 0; i < s->prefill.n && !st; i++) st = ds_cell_run(&m->chunk[u][i], &m->rig, e);
    ds_progress_end(&m->rig.bar);
    return st ? st : check_row(m, m->chunk[u], e);
}

/* The baseline's stage table per length on stderr, when a profile was asked for. */
static void show_profiles(struct measuring *m)
{
    struct ds_bytes t;
    if (m->s->common.profile == DS_PROF_OFF) return;
    ds_bytes_init(&t, DS_LADDER_MAX);
    for (int i = 0; i < m->s->prefill.n; i++) {
        const struct ds_cell *c = &m->rung[0][i];
        ds_bytes_puts(&t, "\n");
        ds_report_profile(&t, &c->prof[ds_cell_median(c)], ds_engine_peaks(m->rig.g), m->rig.g, 0);
    }
    if (t.n && !t.failed) fputs(t.p, stderr);
    ds_bytes_free(&t);
}

/* --- records ------------------------------------------------------------------------------------- */

static void write_record(struct ds_json_out *j, const struct measuring *m, int rung, const struct ds_cell *c, const char *flag)
{
    int mid = ds_cell_median(c);
    ds_jo_obj(j);
    ds_jm_int(j, "rung", rung);
    ds_jm_text(j, "name", ds_rung_names[rung]);
    ds_jm_text(j, "phase", "prefill");
    ds_jm_int(j, "P", c->P);
    ds_jm_int(j, "ubatch", c->ubatch);
    ds_jm_nums(j, "ms", c->ms, c->n);
    ds_jm_num(j, "median_ms", c->ms[mid]);
    ds_jm_obj(j, "stages_ms");
    for (int s = 0; s < DS_ST_COUNT; s++) ds_jm_num(j, ds_stage_names[s], c->prof[mid].stage_ms[s]);
    ds_jo_obj_end(j);
    ds_classes_json(j, &c->prof[mid], &m->prov.peaks);
    ds_jm_text(j, "skip", ds_skip_words(c->skip));
    ds_jm_text(j, "profile", m->rig.mode == DS_PROF_DRAIN ? "drain" : "stamp");
    ds_jo_key(j, "runs_of_rung");
    if (rung == 4 || (rung == 5 && c->ubatch == m->base_ubatch)) ds_jo_int(j, 0);
    else ds_jo_int(j, rung);
    ds_jm_int(j, "warm_up_tokens", m->warm_up);
    ds_jm_arr(j, "flags");
    if (c->skip) ds_jo_str(j, "TIMING ONLY");
    if (m->prov.busy) ds_jo_str(j, "busy");
    if (flag) ds_jo_str(j, flag);
    ds_jo_arr_end(j);
    ds_provenance_json(j, &m->prov);
    ds_jo_obj_end(j);
}

static double per_token(const struct ds_cell *c)
{
    int mid = ds_cell_median(c);
    const double *st = c->prof[mid].stage_ms;
    return (c->ms[mid] - (st[DS_ST_ATTN] - st[DS_ST_QKNORM])) / c->P;
}

static void write_chunk_records(struct ds_json_out *j, const struct measuring *m, int u)
{
    const struct ds_cell *row = ds_rung5_ubatch[u] == m->base_ubatch ? m->rung[0] : m->chunk[u];
    double least = per_token(&row[0]);
    for (int i = 1; i < m->s->prefill.n; i++) least = per_token(&row[i]) < least ? per_token(&row[i]) : least;
    for (int i = 0; i < m->s->prefill.n; i++) {
        char flag[64];
        double over = per_token(&row[i]) / least - 1;
        snprintf(flag, sizeof flag, "diverges by %.1f %%", 100 * over);
        write_record(j, m, 5, &row[i], over > DS_DIVERGENCE ? flag : NULL);
    }
}

static void write_records(struct ds_bytes *out, const struct measuring *m)
{
    struct ds_json_out j;
    ds_jo_init(&j, out, true);
    ds_jo_obj(&j);
    ds_jm_text(&j, "kind", DS_LADDER_KIND);
    ds_jm_arr(&j, "records");
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < m->s->prefill.n; i++) write_record(&j, m, k, &m->rung[k][i], NULL);
    for (int i = 0; i < m->s->prefill.n; i++) write_record(&j, m, 4, &m->rung[0][i], NULL);
    for (int u = 0; u < N_UBATCH; u++) write_chunk_records(&j, m, u);
    ds_jo_arr_end(&j);
    ds_jo_obj_end(&j);
    ds_bytes_puts(out, "\n");
}

static void release(struct measuring *m)
{
    for (int i = 0; i < DS_INTS_MAX; i++) {
        for (int k = 0; k < 4; k++) ds_cell_free(&m->rung[k][i]);
        for (int u = 0; u < N_UBATCH; u++) ds_cell_free(&m->chunk[u][i]);
    }
    ds_progress_end(&m->rig.bar);
    ds_rig_close(&m->rig);
    free(m);
}

ds_status ds_ladder_measure(struct ds_bytes *out, const struct ds_ladder_spec *s, struct ds_err *e)
{
    struct measuring *m = calloc(1, sizeof *m);
    if (!m) return ds_fail(e, DS_ENOMEM, "no memory for the ladder");
    m->s = s;
    ds_status st = open_rig(m, 0, e);
    if (!st) {
        ds_provenance_begin(&m->prov, m->rig.g, s->command);
        m->base_ubatch = ds_engine_ubatch(m->rig.g);
        st = has_peaks(m, e);
        if (!st) st = run_skips(m, e);
    }
    if (!st) show_profiles(m);
    for (int u = 0; u < N_UBATCH && !st; u++)
        if (ds_rung5_ubatch[u] != m->base_ubatch) st = run_chunks(m, u, e);
    if (!st) {
        ds_provenance_end(&m->prov);
        write_records(out, m);
    }
    release(m);
    return st;
}
