#include "prof/prof.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ds_stage_names[DS_ST_COUNT] = { "gemm+roundtrip", "gdn-recurrence", "full-attn", "qk-norm", "norm+act", "other" };

void ds_prof_free(struct ds_prof *p)
{
    free(p->marks);
    p->marks = NULL;
    p->cap = p->n = 0;
}

void ds_prof_start(struct ds_prof *p, int P)
{
    memset(&p->sum, 0, sizeof p->sum);
    p->sum.mode = p->mode;
    p->sum.P = P;
    p->failed = false;
}

void ds_prof_step(struct ds_prof *p) { p->n = 0; }

static bool same_label(const struct ds_label *a, const struct ds_label *b)
{
    return a->stage == b->stage && a->cls == b->cls && a->kernel == b->kernel;
}

int ds_prof_mark(struct ds_prof *p, const struct ds_label *l, double flop, double bytes)
{
    struct ds_mark *last = p->n ? &p->marks[p->n - 1] : NULL;
    if (last && same_label(&last->label, l)) {
        last->flop += flop;
        last->bytes += bytes;
        return -1;
    }
    if (p->n == p->cap) {
        int cap = p->cap ? 2 * p->cap : 512;
        struct ds_mark *m = realloc(p->marks, (size_t)cap * sizeof *m);
        if (!m) {
            p->failed = true;
            return -1;
        }
        p->marks = m;
        p->cap = cap;
    }
    p->marks[p->n] = (struct ds_mark){ *l, flop, bytes };
    return p->n++;
}

static struct ds_class_time *class_row(struct ds_profile *s, const struct ds_label *l)
{
    const int max = (int)(sizeof s->classes / sizeof *s->classes);
    for (int i = 0; i < s->n_classes; i++)
        if (s->classes[i].cls == l->cls_name && s->classes[i].kernel == l->kernel) return &s->classes[i];
    if (s->n_classes == max) return &s->classes[max - 1];   /* more kinds than rows: the last row collects the rest */
    s->classes[s->n_classes] = (struct ds_class_time){ .cls = l->cls_name, .kernel = l->kernel };
    return &s->classes[s->n_classes++];
}

void ds_prof_collect(struct ds_prof *p, const uint64_t *ns)
{
    struct ds_profile *s = &p->sum;
    for (int i = 0; i < p->n; i++) {
        const struct ds_mark *m = &p->marks[i];
        const double ms = (double)(ns[i + 1] - ns[i]) / 1e6;
        s->stage_ms[m->label.stage] += ms;
        s->stage_gflop[m->label.stage] += m->flop / 1e9;
        s->stage_gb[m->label.stage] += m->bytes / 1e9;
        if (m->label.cls >= 0) {
            struct ds_class_time *c = class_row(s, &m->label);
            c->ms += ms;
            c->gflop += m->flop / 1e9;
            c->gb += m->bytes / 1e9;
        }
    }
}

void ds_prof_finish(struct ds_prof *p, uint64_t wall_ns)
{
    struct ds_profile *s = &p->sum;
    /* qk-norm is a part of full-attn, shown beside it */
    s->stage_ms[DS_ST_ATTN] += s->stage_ms[DS_ST_QKNORM];
    s->stage_gflop[DS_ST_ATTN] += s->stage_gflop[DS_ST_QKNORM];
    s->stage_gb[DS_ST_ATTN] += s->stage_gb[DS_ST_QKNORM];
    s->total_ms = (double)wall_ns / 1e6;
    double claimed = s->stage_ms[DS_ST_GEMM] + s->stage_ms[DS_ST_GDN] + s->stage_ms[DS_ST_ATTN] + s->stage_ms[DS_ST_NORM_ACT];
    s->stage_ms[DS_ST_OTHER] = s->total_ms - claimed;
}

void ds_profile_line(const struct ds_profile *p, const char *backend, char *dst, size_t n)
{
    snprintf(dst, n, "[%sprof-hybrid P=%d] total=%.1f  gemm+roundtrip=%.1f  gdn-recurrence=%.1f  full-attn=%.1f  qk-norm=%.1f  norm+act=%.1f ms",
             backend, p->P, p->total_ms, p->stage_ms[DS_ST_GEMM], p->stage_ms[DS_ST_GDN], p->stage_ms[DS_ST_ATTN], p->stage_ms[DS_ST_QKNORM],
             p->stage_ms[DS_ST_NORM_ACT]);
}
