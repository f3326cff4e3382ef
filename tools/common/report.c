#include "common/report.h"

#include "common/grid.h"
#include "common/member.h"
#include "common/rig.h"

#include <stdio.h>
#include <string.h>

static bool starts(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

double ds_kernel_peak(const struct ds_peaks *pk, const char *kernel)
{
    bool is_float = starts(kernel, "f32") || strstr(kernel, "f16");     /* f16 and bf16, as the type or as the unit */
    if (!is_float) return pk->int8_gops;
    return pk->mm_gflops > 0 ? pk->mm_gflops : pk->f32_gflops;
}

bool ds_is_plain_kernel(const char *kernel, const char *isa)
{
    const char *ref = strstr(kernel, "ref");
    return ref && (ref == kernel || ref[-1] == ' ') && strcmp(isa, "scalar");
}

double ds_bound_ms(double gflop, double gb, double peak_gflops, double gbs)
{
    double by_flop = peak_gflops > 0 ? gflop / peak_gflops : 0, by_bytes = gbs > 0 ? gb / gbs : 0;
    return 1e3 * (by_flop > by_bytes ? by_flop : by_bytes);
}

static double class_bound(const struct ds_class_time *c, const struct ds_peaks *pk)
{
    return ds_bound_ms(c->gflop, c->gb, ds_kernel_peak(pk, c->kernel), pk->read_gbs);
}

double ds_stage_bound_ms(const struct ds_profile *p, const struct ds_peaks *pk, enum ds_stage st)
{
    double sum = 0;
    if (st != DS_ST_GEMM) return ds_bound_ms(p->stage_gflop[st], p->stage_gb[st], pk->f32_gflops, pk->copy_gbs);
    for (int i = 0; i < p->n_classes; i++) sum += class_bound(&p->classes[i], pk);
    return sum;
}

double ds_peak_share(const struct ds_profile *p, const struct ds_peaks *pk, double wall_ms)
{
    double ms = 0;
    for (int i = 0; i < p->n_classes; i++) ms += ds_bound_ms(p->classes[i].gflop, 0, ds_kernel_peak(pk, p->classes[i].kernel), 0);
    return wall_ms > 0 ? ms / wall_ms : 0;
}

ds_status ds_check_rates(const struct ds_profile *p, ds_engine *g, struct ds_err *e)
{
    const struct ds_peaks *pk = ds_engine_peaks(g);
    double gemm = p->stage_ms[DS_ST_GEMM], least = 0;
    for (int tries = 0; tries < 5; tries++) {
        least = ds_peak_share(p, pk, 1);
        if (least <= gemm) return DS_OK;
        pk = ds_engine_peaks_again(g);
    }
    return ds_fail(e, DS_EIO, "P=%d: the weight products took %.3f ms where this machine's own measured peak needs %.3f ms: "
                   "that is an error of measurement, not a result (did the load or the clock change?)", p->P, gemm, least);
}

void ds_classes_json(struct ds_json_out *j, const struct ds_profile *p, const struct ds_peaks *pk)
{
    ds_jm_arr(j, "gemm_classes");
    for (int i = 0; i < p->n_classes; i++) {
        const struct ds_class_time *c = &p->classes[i];
        ds_jo_obj(j);
        ds_jm_text(j, "class", c->cls);
        ds_jm_text(j, "kernel", c->kernel);
        ds_jm_num(j, "ms", c->ms);
        ds_jm_num(j, "gflop", c->gflop);
        ds_jm_num(j, "gb", c->gb);
        ds_jm_num(j, "bound_ms", ds_bound_ms(c->gflop, c->gb, ds_kernel_peak(pk, c->kernel), pk->read_gbs));
        ds_jo_obj_end(j);
    }
    ds_jo_arr_end(j);
}

/* --- the table ---------------------------------------------------------------------------------- */

struct row { const char *name, *kernel; double ms, gflop, gb, bound; };

static void add_row(struct ds_grid *t, const struct row *r, double wall)
{
    ds_grid_cell(t, "%s", r->name);
    ds_grid_cell(t, "%.2f", r->ms);
    ds_grid_cell(t, "%.1f %%", wall > 0 ? 100 * r->ms / wall : 0);
    ds_grid_cell(t, "%.3f", r->gflop);
    ds_grid_cell(t, "%.4f", r->gb);
    if (r->ms > 0) {
        ds_grid_cell(t, "%.1f", 1e3 * r->gflop / r->ms);
        ds_grid_cell(t, "%.1f", 1e3 * r->gb / r->ms);
    } else {
        ds_grid_cell(t, "-");
        ds_grid_cell(t, "-");
    }
    ds_grid_cell(t, "%.2f", r->bound);
    if (r->bound > 0 && r->ms > 0) ds_grid_cell(t, "%.2f", r->ms / r->bound);
    else ds_grid_cell(t, "-");
    ds_grid_cell(t, "%s", r->kernel ? r->kernel : "");
    ds_grid_end_row(t);
}

static void stage_rows(struct ds_grid *t, const struct ds_profile *p, const struct ds_peaks *pk, const char *isa)
{
    char kernel[96];
    for (int s = 0; s < DS_ST_COUNT; s++) {
        char name[48];
        snprintf(name, sizeof name, "%s%s", s == DS_ST_QKNORM ? "  of which " : "", ds_stage_names[s]);
        struct row r = { name, NULL, p->stage_ms[s], p->stage_gflop[s], p->stage_gb[s], ds_stage_bound_ms(p, pk, s) };
        add_row(t, &r, p->total_ms);
        for (int i = 0; s == DS_ST_GEMM && i < p->n_classes; i++) {
            const struct ds_class_time *c = &p->classes[i];
            snprintf(name, sizeof name, "  %s", c->cls);
            snprintf(kernel, sizeof kernel, "%s%s", c->kernel, ds_is_plain_kernel(c->kernel, isa) ? " (FALLBACK: plain C)" : "");
            add_row(t, &(struct row){ name, kernel, c->ms, c->gflop, c->gb, class_bound(c, pk) }, p->total_ms);
        }
    }
}

void ds_report_profile(struct ds_bytes *b, const struct ds_profile *p, const struct ds_peaks *pk, const ds_engine *g, unsigned skip)
{
    struct ds_grid t;
    static const char *const head[] = { "stage", "ms", "share", "GFLOP", "GB", "GFLOP/s", "GB/s", "bound ms", "x bound", "kernel" };
    double sum = 0;
    if (skip) ds_bytes_printf(b, "TIMING ONLY (%s left out): the output is no model answer\n", ds_skip_words(skip));
    ds_bytes_printf(b, "prefill of %d tokens on %s, placement %s; mode: %s\n", p->P, ds_engine_backend(g), ds_engine_placement(g),
                    p->mode == DS_PROF_DRAIN ? "drain (waits after each stage: no overlap)" : "time stamps at stage borders (no added waiting)");
    ds_grid_init(&t, "lrrrrrrrrl");
    for (size_t i = 0; i < sizeof head / sizeof *head; i++) ds_grid_cell(&t, "%s", head[i]);
    stage_rows(&t, p, pk, ds_engine_isa(g));
    ds_grid_text(b, &t);
    ds_grid_free(&t);
    for (int s = 0; s < DS_ST_COUNT; s++) sum += s == DS_ST_QKNORM ? 0 : p->stage_ms[s];
    ds_bytes_printf(b, "wall %.2f ms, sum of stages %.2f ms (%.1f %%)\n", p->total_ms, sum, p->total_ms > 0 ? 100 * sum / p->total_ms : 0);
    ds_bytes_printf(b, "bound: this machine's measured peaks (int8 %.0f GOP/s, float products %.0f GFLOP/s, f32 %.0f GFLOP/s,\n"
                    "read %.1f GB/s, copy %.1f GB/s); a stage that works in cache can beat its copy bound.\n"
                    "fused: residual adds run inside the products before them (gemm+roundtrip).\n",
                    pk->int8_gops, pk->mm_gflops, pk->f32_gflops, pk->read_gbs, pk->copy_gbs);
}
