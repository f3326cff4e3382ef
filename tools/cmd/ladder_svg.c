/* The ladder as a picture: per machine a panel, per length a bar of stacked stages in ms per token, with
 * the floor (rung 3) drawn across it. */
#include "cmd/ladder.h"
#include "common/rig.h"
#include "common/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define INK   "#1f2933"
#define FAINT "#7b8794"
#define GRID  "#e4e7eb"

static const struct { enum ds_stage stage; const char *fill, *ink; } stack[] = {      /* from the bottom up */
    { DS_ST_GEMM,     "#3b6ea5", "#ffffff" },
    { DS_ST_GDN,      "#e08a2c", "#1f2933" },
    { DS_ST_ATTN,     "#4f9d69", "#ffffff" },
    { DS_ST_NORM_ACT, "#a05d8e", "#ffffff" },
    { DS_ST_OTHER,    "#b8bfc6", "#1f2933" },
};
enum { N_STACK = sizeof stack / sizeof *stack };

enum { WIDTH = 860, PANEL = 372, HEAD = 46, PLOT_X = 70, PLOT_W = 560, PLOT_H = 244, LEGEND_X = 664 };

struct panel {
    const struct ds_view *v;
    const struct ds_ladder *l;
    int section;
    double y0;                      /* of the plot's base line */
    double top;                     /* ms per token at the plot's upper edge */
};

static double height(const struct panel *p, double ms_per_token) { return p->top > 0 ? PLOT_H * ms_per_token / p->top : 0; }

/* A number at or above v whose quarters are round. */
static double round_up(double v)
{
    static const double steps[] = { 1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8 };
    double base = pow(10, floor(log10(v)));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (v <= steps[i] * base * 1.0000001) return steps[i] * base;
    return 10 * base;
}

static const char *short_number(char dst[32], double v)
{
    snprintf(dst, 32, v >= 100 ? "%.0f" : v >= 10 ? "%.1f" : "%.2f", v);
    return dst;
}

static double tallest(const struct ds_ladder *l, int section, const struct ds_ints *P)
{
    double m = 0;
    for (int i = 0; i < P->n; i++) {
        const struct ds_record *r = ds_ladder_find(l, section, 0, P->v[i], 0);
        if (r && r->median_ms / r->P > m) m = r->median_ms / r->P;
    }
    return m;
}

static void axis(struct ds_bytes *b, const struct panel *p)
{
    for (int i = 0; i <= 4; i++) {
        double v = p->top * i / 4, y = p->y0 - PLOT_H * i / 4.0;
        ds_svg_line(b, PLOT_X, y, PLOT_X + PLOT_W, y, i ? GRID : FAINT, 1, "");
        if (p->top > 0) ds_svg_text(b, PLOT_X - 8, y + 4, "end", 11, FAINT, "%.4g", v);
    }
    ds_svg_text(b, PLOT_X - 8, p->y0 - PLOT_H - 14, "end", 11, FAINT, "ms/token");
}

static void bar_label(struct ds_bytes *b, const struct ds_record *r, double x, double y)
{
    char s[32];
    bool rate = r->P >= DS_RATE_MIN;
    ds_svg_text(b, x, y - (rate ? 21 : 7), "middle", 12, INK, "%s ms", short_number(s, r->median_ms));
    if (rate) ds_svg_text(b, x, y - 7, "middle", 11, FAINT, "%s tok/s", short_number(s, 1e3 * r->P / r->median_ms));
}

/* The share of a stage, in the larger part of its segment [y, y+h) that the floor line at fy leaves free. */
static void share_label(struct ds_bytes *b, double x, double y, double h, double fy, double share, const char *ink)
{
    if (fy > y && fy < y + h) {
        double above = fy - y, below = y + h - fy;
        if (below > above) y = fy;
        h = above > below ? above : below;
    }
    if (h >= 16) ds_svg_text(b, x, y + h / 2 + 4, "middle", 11, ink, "%.0f %%", 100 * share);
}

/* One stacked bar centred on x. */
static void bar(struct ds_bytes *b, const struct panel *p, int P, double x, double w)
{
    const struct ds_record *r = ds_ladder_find(p->l, p->section, 0, P, 0), *floor_of = ds_ladder_find(p->l, p->section, 3, P, 0);
    double y = p->y0, fy = floor_of ? y - height(p, floor_of->median_ms / P) : 0;
    if (!r) {
        ds_svg_text(b, x, y - 10, "middle", 11, FAINT, "not measured");
        return;
    }
    for (int i = 0; i < N_STACK; i++) {
        double ms = fmax(r->stages[stack[i].stage], 0), h = height(p, ms / P);
        y -= h;
        ds_svg_rect(b, x - w / 2, y, w, h, stack[i].fill);
        share_label(b, x, y, h, fy, ms / r->median_ms, stack[i].ink);
    }
    bar_label(b, r, x, fmin(p->y0 - height(p, r->median_ms / P), floor_of ? fy : p->y0));
    if (floor_of) {
        ds_svg_line(b, x - w / 2 - 9, fy, x + w / 2 + 9, fy, "#ffffff", 4, "");
        ds_svg_line(b, x - w / 2 - 9, fy, x + w / 2 + 9, fy, "#c0392b", 2, "6 3");
    }
}

static void legend(struct ds_bytes *b, const struct panel *p)
{
    double y = p->y0 - PLOT_H + 4;
    for (int i = N_STACK - 1; i >= 0; i--, y += 22) {
        ds_svg_rect(b, LEGEND_X, y, 13, 13, stack[i].fill);
        ds_svg_text(b, LEGEND_X + 21, y + 11, "start", 12, INK, "%s", ds_stage_names[stack[i].stage]);
    }
    ds_svg_line(b, LEGEND_X - 3, y + 7, LEGEND_X + 16, y + 7, "#c0392b", 2, "6 3");
    ds_svg_text(b, LEGEND_X + 21, y + 11, "start", 12, INK, "floor (rung 3)");
}

/* Bars of one length: one, or before and after as a pair. */
static void group(struct ds_bytes *b, struct panel *p, int i)
{
    const struct ds_view *v = p->v;
    double slot = (double)PLOT_W / v->P.n, x = PLOT_X + slot * (i + 0.5);
    if (v->before) {
        double w = fmin(70, slot * 0.34);
        struct panel old = *p;
        old.l = v->before;
        old.section = v->before_section;
        bar(b, &old, v->P.v[i], x - w * 0.75, w);
        bar(b, p, v->P.v[i], x + w * 0.75, w);
        ds_svg_text(b, x - w * 0.75, p->y0 + 16, "middle", 11, FAINT, "before");
        ds_svg_text(b, x + w * 0.75, p->y0 + 16, "middle", 11, FAINT, "after");
    } else {
        bar(b, p, v->P.v[i], x, fmin(110, slot * 0.56));
    }
    ds_svg_text(b, x, p->y0 + (v->before ? 34 : 20), "middle", 12, INK, "P=%d", v->P.v[i]);
}

static void panel(struct ds_bytes *b, const struct ds_view *v, int section, double y)
{
    struct panel p = { .v = v, .l = v->l, .section = section, .y0 = y + HEAD + PLOT_H + 20 };
    double most = tallest(v->l, section, &v->P);
    if (v->before) most = fmax(most, tallest(v->before, v->before_section, &v->P));
    p.top = most > 0 ? round_up(1.12 * most) : 0;      /* with room for the labels */
    const char *title = v->l->sections[section].title, *then = v->before ? v->before->sections[v->before_section].title : title;
    if (strcmp(title, then)) ds_svg_text(b, 24, y + 24, "start", 14, INK, "%s; before: %s", title, then);
    else ds_svg_text(b, 24, y + 24, "start", 14, INK, "%s", title);
    axis(b, &p);
    for (int i = 0; i < v->P.n; i++) group(b, &p, i);
    legend(b, &p);
}

void ds_ladder_svg(struct ds_bytes *out, const struct ds_view *v)
{
    int panels = v->before ? 1 : v->l->n_sections, h = 72 + PANEL * panels;
    ds_svg_open(out, WIDTH, h, "Prefill ladder");
    ds_svg_text(out, 24, 32, "start", 18, INK, "Prefill, stage by stage");
    for (int s = 0; s < panels; s++) panel(out, v, s, 44 + PANEL * s);
    if (*v->l->hash) ds_svg_text(out, 24, h - 12, "start", 11, FAINT, "%s, hash %s; wall of the median repetition", v->l->model, v->l->hash);
    ds_svg_close(out);
}
