#include "common/bench.h"

#include "base/os.h"
#include "common/member.h"
#include "common/record.h"
#include "common/report.h"
#include "common/rig.h"
#include "common/stats.h"
#include "common/grid.h"
#include "common/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUTPUT_MAX (64u << 20)
enum { MAX_FLAGS = 9 };

struct decode_result { int depth, steps, n; double *ms, gb; };

struct bench {
    const struct ds_bench_spec *s;
    struct ds_rig rig;
    struct ds_provenance prov;
    struct ds_plan plan;
    struct ds_cell cells[DS_INTS_MAX];
    int n_cells;
    int warm_up;                    /* tokens */
    uint64_t peak_rss;              /* before the peaks are measured, whose buffers are not the engine's */
    struct decode_result decode;
};

/* --- measuring ---------------------------------------------------------------------------------- */

static int longest(const struct ds_ints *v)
{
    int m = 0;
    for (int i = 0; i < v->n; i++) m = v->v[i] > m ? v->v[i] : m;
    return m;
}

/* Tokens of window that the whole run needs. */
static int tokens_needed(const struct ds_bench_spec *s)
{
    int prefill = s->depth + longest(&s->prefill), decode = s->decode ? s->depth + DS_WARM_UP_MIN + s->decode : 0;
    return prefill > decode ? prefill : decode;
}

static ds_status open_rig(struct bench *b, struct ds_err *e)
{
    ds_status st = ds_rig_open(&b->rig, &b->s->common.engine, tokens_needed(b->s), e);
    b->rig.mode = b->s->bare ? DS_PROF_OFF : b->s->common.profile == DS_PROF_OFF ? DS_PROF_STAMP : b->s->common.profile;
    b->rig.lines = b->s->common.profile != DS_PROF_OFF;
    return st;
}

/* A cold repetition: nothing but loading came before. The page cache is as the system keeps it. */
static ds_status cold_repetition(struct bench *b, struct ds_cell *c, struct ds_err *e)
{
    struct ds_progress bar = b->rig.bar;
    ds_rig_close(&b->rig);
    ds_status st = open_rig(b, e);
    b->rig.bar = bar;
    return st ? st : ds_cell_run(c, &b->rig, e);
}

static ds_status measure_prefill(struct bench *b, struct ds_err *e)
{
    const struct ds_bench_spec *s = b->s;
    ds_status st = DS_OK;
    double work = 0;
    for (int i = 0; i < s->prefill.n && !st; i++) {
        b->cells[i] = (struct ds_cell){ .P = s->prefill.v[i], .depth = s->depth, .skip = s->common.skip, .cold = s->cold };
        st = ds_cell_init(&b->cells[i], s->reps, e);
        b->n_cells = i + 1;
        work += (double)s->reps * (s->depth + s->prefill.v[i]);
    }
    if (!st && !s->cold) st = ds_rig_warm_up(&b->rig, longest(&s->prefill), &b->warm_up, e);
    ds_progress_start(&b->rig.bar, "prefill", DS_PROGRESS_TOKENS);
    ds_progress_plan(&b->rig.bar, work);
    for (int r = 0; r < s->reps && !st; r++)       /* lengths alternate, so that drift spreads over all of them */
        for (int i = 0; i < b->n_cells && !st; i++)
            st = s->cold ? cold_repetition(b, &b->cells[i], e) : ds_cell_run(&b->cells[i], &b->rig, e);
    ds_progress_end(&b->rig.bar);
    return st;
}

static ds_status measure_decode(struct bench *b, struct ds_err *e)
{
    const struct ds_bench_spec *s = b->s;
    struct decode_result *d = &b->decode;
    if (!s->decode) return DS_OK;
    d->depth = s->depth > 0 ? s->depth : DS_WARM_UP_MIN;
    d->steps = s->decode;
    d->ms = calloc((size_t)s->decode_reps, sizeof *d->ms);
    if (!d->ms) return ds_fail(e, DS_ENOMEM, "%d decode repetitions: no memory", s->decode_reps);
    ds_progress_start(&b->rig.bar, "decode", DS_PROGRESS_TOKENS);
    ds_progress_plan(&b->rig.bar, (double)s->decode_reps * (d->depth + d->steps) + d->depth + 1);
    ds_status st = ds_rig_decode_gb(&b->rig, d->depth, &d->gb, e);
    for (int r = 0; r < s->decode_reps && !st; r++) {
        st = ds_rig_decode(&b->rig, d->depth, d->steps, &d->ms[d->n], e);
        if (!st) d->n++;
    }
    ds_progress_end(&b->rig.bar);
    return st;
}

static ds_status measure(struct bench *b, struct ds_err *e)
{
    ds_status st = open_rig(b, e);
    if (st) return st;
    ds_provenance_begin(&b->prov, b->rig.g, b->s->command);
    ds_engine_plan(b->rig.g, &b->plan);
    st = measure_prefill(b, e);
    if (!st) st = measure_decode(b, e);
    if (st) return st;
    ds_provenance_end(&b->prov);
    b->peak_rss = ds_mem_peak_rss();
    for (int i = 0; i < b->n_cells && !st; i++) st = ds_check_rates(&b->cells[i].prof[ds_cell_median(&b->cells[i])], b->rig.g, e);
    b->prov.peaks = *ds_engine_peaks(b->rig.g);
    return st;
}

/* --- derived ------------------------------------------------------------------------------------- */

static uint64_t plan_total(const struct ds_plan *p) { return p->weights + p->weights_extra + p->kv + p->state + p->snapshots + p->scratch; }

static double decode_ms(const struct decode_result *d) { return d->ms[ds_median_index(d->ms, d->n)] / d->steps; }

/* Share of the memory bandwidth that decoding reached; 0 where it cannot be told: bytes that stay in cache
 * between steps do not come from memory, and then the share passes 1. */
static double bandwidth_share(const struct bench *b)
{
    double ms = decode_ms(&b->decode), share = b->prov.peaks.read_gbs > 0 && ms > 0 ? b->decode.gb / (ms * 1e-3) / b->prov.peaks.read_gbs : 0;
    return share <= 1 ? share : 0;
}

static bool has_fallback(const struct bench *b, const struct ds_profile *p)
{
    for (int i = 0; i < p->n_classes; i++)
        if (ds_is_plain_kernel(p->classes[i].kernel, b->prov.isa)) return true;
    return false;
}

static int flags_of(const struct bench *b, const struct ds_cell *c, const char *flags[MAX_FLAGS])
{
    int n = 0;
    if (c->skip) flags[n++] = "TIMING ONLY";
    if (c->skip & DS_SKIP_GDN) flags[n++] = "no gdn";
    if (c->skip & DS_SKIP_ATTN) flags[n++] = "no attn";
    if (c->P < DS_RATE_MIN) flags[n++] = "latency";
    if (c->cold) flags[n++] = "cold";
    if (b->rig.mode == DS_PROF_DRAIN) flags[n++] = "drain";
    if (b->s->bare) flags[n++] = "no profile";
    else if (!c->prof[ds_cell_median(c)].n_classes) flags[n++] = "no profile in this build";
    if (has_fallback(b, &c->prof[ds_cell_median(c)])) flags[n++] = "fallback: plain kernel";
    if (b->prov.busy) flags[n++] = "busy";
    return n;
}

/* --- JSON ---------------------------------------------------------------------------------------- */

static void json_cell(struct ds_json_out *j, const struct bench *b, const struct ds_cell *c)
{
    int m = ds_cell_median(c);
    const struct ds_profile *p = &c->prof[m];
    const char *flags[MAX_FLAGS];
    ds_jo_obj(j);
    ds_jm_int(j, "P", c->P);
    ds_jm_int(j, "depth", c->depth);
    ds_jm_int(j, "ubatch", c->ubatch);
    ds_jm_nums(j, "ms", c->ms, c->n);
    ds_jm_num(j, "median_ms", c->ms[m]);
    ds_jm_positive(j, "tok_s", c->P >= DS_RATE_MIN ? 1e3 * c->P / c->ms[m] : 0);
    ds_jm_bool(j, "cold", c->cold);
    ds_jm_obj(j, "stages_ms");
    for (int s = 0; s < DS_ST_COUNT; s++) ds_jm_num(j, ds_stage_names[s], p->stage_ms[s]);
    ds_jo_obj_end(j);
    ds_classes_json(j, p, &b->prov.peaks);
    ds_jm_positive(j, "peak_share", ds_peak_share(p, &b->prov.peaks, c->ms[m]));
    ds_jm_arr(j, "flags");
    for (int i = 0, n = flags_of(b, c, flags); i < n; i++) ds_jo_str(j, flags[i]);
    ds_jo_arr_end(j);
    ds_jo_obj_end(j);
}

static void json_model(struct ds_json_out *j, const struct bench *b, const struct ds_model_info *m)
{
    ds_jm_obj(j, "model");
    ds_jm_text(j, "path", m->path);
    ds_jm_text(j, "hash", b->prov.hash);
    ds_jm_text(j, "arch", m->arch);
    ds_jm_text(j, "type", m->type);
    ds_jm_int(j, "params", (int64_t)m->params);
    ds_jm_int(j, "file_bytes", (int64_t)m->file_bytes);
    ds_jo_obj_end(j);
}

static void json_decode(struct ds_json_out *j, const struct bench *b)
{
    const struct decode_result *d = &b->decode;
    ds_jo_key(j, "decode");
    if (!d->n) {
        ds_jo_null(j);
        return;
    }
    ds_jo_obj(j);
    ds_jm_int(j, "depth", d->depth);
    ds_jm_int(j, "steps", d->steps);
    ds_jm_nums(j, "ms", d->ms, d->n);
    ds_jm_num(j, "ms_per_token", decode_ms(d));
    ds_jm_num(j, "tok_s", 1e3 / decode_ms(d));
    ds_jm_num(j, "gb_per_token", d->gb);
    ds_jm_positive(j, "bandwidth_share", bandwidth_share(b));
    ds_jo_obj_end(j);
}

static void write_json(struct ds_bytes *out, const struct bench *b)
{
    const struct ds_provenance *p = &b->prov;
    const struct ds_model_info *m = ds_engine_info(b->rig.g);
    struct ds_json_out j;
    ds_jo_init(&j, out, true);
    ds_jo_obj(&j);
    ds_machine_json(&j, &b->prov);
    json_model(&j, b, m);
    ds_jm_text(&j, "backend", p->backend);
    ds_jm_text(&j, "placement", p->placement);
    ds_jm_text(&j, "kv", p->kv);
    ds_jm_text(&j, "gdn", p->gdn);
    ds_jm_text(&j, "commit", p->commit);
    ds_jm_text(&j, "date", p->date);
    ds_jm_text(&j, "command", p->command);
    ds_jm_text(&j, "profile", b->rig.mode == DS_PROF_DRAIN ? "drain" : b->rig.mode == DS_PROF_OFF ? "off" : "stamp");
    ds_jm_text(&j, "clock_before", p->clock_before);
    ds_jm_text(&j, "clock_after", p->clock_after);
    ds_jm_bool(&j, "busy", p->busy);
    ds_jm_text(&j, "busy_why", p->busy_why);
    ds_jm_int(&j, "warm_up_tokens", b->warm_up);
    ds_jm_num(&j, "load_ms", m->load_ms);
    ds_jm_int(&j, "peak_rss_bytes", (int64_t)b->peak_rss);
    ds_jm_int(&j, "plan_bytes", (int64_t)plan_total(&b->plan));
    ds_jm_arr(&j, "prefill");
    for (int i = 0; i < b->n_cells; i++) json_cell(&j, b, &b->cells[i]);
    ds_jo_arr_end(&j);
    json_decode(&j, b);
    if (b->s->ids) {
        ds_jm_arr(&j, "ids");
        for (int i = 0; i < b->rig.n_ids; i++) ds_jo_int(&j, b->rig.ids[i]);
        ds_jo_arr_end(&j);
    }
    ds_jo_obj_end(&j);
    ds_bytes_puts(out, "\n");
}

/* --- text ---------------------------------------------------------------------------------------- */

static void write_head(struct ds_bytes *out, const struct bench *b)
{
    const struct ds_model_info *m = ds_engine_info(b->rig.g);
    const struct ds_provenance *p = &b->prov;
    char size[16], params[16], rss[16], plan[16], line[512];
    ds_human_bytes(size, (double)m->file_bytes);
    ds_human_count(params, (double)m->params);
    ds_human_bytes(rss, (double)b->peak_rss);
    ds_human_bytes(plan, (double)plan_total(&b->plan));
    ds_provenance_line(p, line, sizeof line);
    ds_bytes_printf(out, "model    %s %s, %s parameters, %s (%s, hash %s)\n", m->arch, m->type, params, size, m->path ? m->path : m->name, p->hash);
    ds_bytes_printf(out, "machine  %s\n", line);
    ds_bytes_printf(out, "peaks    int8 %.0f GOP/s, float products %.0f GFLOP/s, f32 %.0f GFLOP/s, read %.1f GB/s, copy %.1f GB/s, as measured here\n",
                    b->prov.peaks.int8_gops, b->prov.peaks.mm_gflops, b->prov.peaks.f32_gflops, b->prov.peaks.read_gbs, b->prov.peaks.copy_gbs);
    if (ds_engine_weight_forms(b->rig.g)) ds_bytes_printf(out, "weights  %s\n", ds_engine_weight_forms(b->rig.g));
    ds_bytes_printf(out, "engine   ubatch %d, kv %s, gdn %s; loaded in %.0f ms, plan %s, peak RSS %s\n", ds_engine_ubatch(b->rig.g), p->kv, p->gdn,
                    m->load_ms, plan, rss);
    if (b->s->cold) ds_bytes_puts(out, "state    cold: each repetition is the first prefill of a fresh engine (page cache as it was)\n");
    else ds_bytes_printf(out, "state    warm: %d tokens ran before\n", b->warm_up);
    if (*p->clock_before) ds_bytes_printf(out, "clock    %s before, %s after\n", p->clock_before, *p->clock_after ? p->clock_after : "unknown");
    if (p->busy) ds_bytes_printf(out, "BUSY     other work shares this machine: %s\n", p->busy_why);
}

static void write_cells(struct ds_bytes *out, const struct bench *b)
{
    struct ds_grid t;
    static const char *const head[] = { "P", "depth", "median ms", "min", "max", "reps", "tok/s", "of peak", "notes" };
    ds_grid_init(&t, "rrrrrrrrl");
    for (size_t i = 0; i < sizeof head / sizeof *head; i++) ds_grid_cell(&t, "%s", head[i]);
    for (int i = 0; i < b->n_cells; i++) {
        const struct ds_cell *c = &b->cells[i];
        const char *flags[MAX_FLAGS];
        char notes[128] = "";
        int m = ds_cell_median(c), n = flags_of(b, c, flags);
        for (int k = 0; k < n; k++) snprintf(notes + strlen(notes), sizeof notes - strlen(notes), "%s%s", k ? ", " : "", flags[k]);
        ds_grid_cell(&t, "%d", c->P);
        ds_grid_cell(&t, "%d", c->depth);
        ds_grid_cell(&t, "%.2f", c->ms[m]);
        ds_grid_cell(&t, "%.2f", ds_min(c->ms, c->n));
        ds_grid_cell(&t, "%.2f", ds_max(c->ms, c->n));
        ds_grid_cell(&t, "%d", c->n);
        if (c->P >= DS_RATE_MIN) ds_grid_cell(&t, "%.1f", 1e3 * c->P / c->ms[m]);
        else ds_grid_cell(&t, "-");
        if (c->prof[m].n_classes) ds_grid_cell(&t, "%.1f %%", 100 * ds_peak_share(&c->prof[m], &b->prov.peaks, c->ms[m]));
        else ds_grid_cell(&t, "-");
        ds_grid_cell(&t, "%s", notes);
        ds_grid_end_row(&t);
    }
    ds_bytes_puts(out, "\n");
    ds_grid_text(out, &t);
    ds_grid_free(&t);
}

static void write_decode(struct ds_bytes *out, const struct bench *b)
{
    const struct decode_result *d = &b->decode;
    if (!d->n) return;
    ds_bytes_printf(out, "\ndecode   %d steps from depth %d: %.3f ms per token, %.1f tok/s (min %.3f, max %.3f over %d)", d->steps, d->depth,
                    decode_ms(d), 1e3 / decode_ms(d), ds_min(d->ms, d->n) / d->steps, ds_max(d->ms, d->n) / d->steps, d->n);
    if (bandwidth_share(b) > 0) ds_bytes_printf(out, ", %.0f %% of the read bandwidth\n", 100 * bandwidth_share(b));
    else ds_bytes_puts(out, "; bandwidth share not told: the bytes of a step stay in cache\n");
}

static void write_text(struct ds_bytes *out, const struct bench *b)
{
    write_head(out, b);
    write_cells(out, b);
    write_decode(out, b);
}

/* --- the run ------------------------------------------------------------------------------------- */

/* One stage table per length. */
static void print_profiles(const struct bench *b, FILE *to)
{
    struct ds_bytes t;
    ds_bytes_init(&t, OUTPUT_MAX);
    for (int i = 0; i < b->n_cells; i++) {
        ds_bytes_puts(&t, "\n");
        ds_report_profile(&t, &b->cells[i].prof[ds_cell_median(&b->cells[i])], &b->prov.peaks, b->rig.g, b->s->common.skip);
    }
    if (!t.failed) fputs(t.p, to);
    ds_bytes_free(&t);
}

static void release(struct bench *b)
{
    for (int i = 0; i < b->n_cells; i++) ds_cell_free(&b->cells[i]);
    free(b->decode.ms);
    ds_rig_close(&b->rig);
}

int ds_bench_run(const struct ds_bench_spec *s)
{
    struct bench b = { .s = s };
    struct ds_bytes out;
    struct ds_err e;
    ds_tool_catch_interrupt();
    ds_say_timing_only(s->prog, s->common.skip);
    ds_bytes_init(&out, OUTPUT_MAX);
    ds_status st = measure(&b, &e);
    if (!st) {
        if (s->common.profile != DS_PROF_OFF) print_profiles(&b, s->json ? stderr : stdout);
        (s->json ? write_json : write_text)(&out, &b);
        st = ds_tool_write(&out, NULL, &e);
    }
    ds_progress_end(&b.rig.bar);
    int rc = st ? ds_tool_fail(s->prog, &e) : DS_EXIT_OK;
    ds_bytes_free(&out);
    release(&b);
    return rc;
}
