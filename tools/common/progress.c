#include "common/progress.h"

#include "base/os.h"
#include "common/tool.h"

#include <stdio.h>
#include <string.h>

#define SHOW_AFTER_S 2.0     /* work expected to end sooner draws nothing */
#define REDRAW_NS    100000000u

void ds_progress_start(struct ds_progress *p, const char *label, enum ds_progress_unit unit)
{
    memset(p, 0, sizeof *p);
    snprintf(p->label, sizeof p->label, "%s", label);
    p->unit = unit;
    p->active = ds_is_terminal(2);
    p->start_ns = p->last_ns = ds_now_ns();
}

static void amount(char *dst, size_t n, const struct ds_progress *p, double rate)
{
    char a[16], b[16], r[16];
    if (p->unit == DS_PROGRESS_BYTES) {
        ds_human_bytes(a, p->done);
        ds_human_bytes(b, p->total);
        ds_human_bytes(r, rate);
        snprintf(dst, n, "%s of %s, %s/s", a, b, r);
    } else if (p->unit == DS_PROGRESS_TOKENS) {
        snprintf(dst, n, "%.0f of %.0f tokens, %.1f tok/s", p->done, p->total, rate);
    } else {
        snprintf(dst, n, "%.0f of %.0f", p->done, p->total);
    }
}

static void draw(struct ds_progress *p, double elapsed)
{
    char bar[21], what[96], eta[32] = "", line[256];
    double share = p->total > 0 ? p->done / p->total : 0, rate = elapsed > 0 ? p->done / elapsed : 0;
    int fill = share < 0 ? 0 : share > 1 ? 20 : (int)(share * 20);
    for (int i = 0; i < 20; i++) bar[i] = i < fill ? '#' : '.';
    bar[20] = 0;
    amount(what, sizeof what, p, rate);
    if (rate > 0 && p->total > p->done) {
        double left = (p->total - p->done) / rate;
        if (left < 90) snprintf(eta, sizeof eta, ", %.0f s left", left);
        else snprintf(eta, sizeof eta, ", %.0f min left", left / 60);
    }
    int n = snprintf(line, sizeof line, "%s [%s] %s%s", p->label, bar, what, eta), width = ds_terminal_width(2);
    if (n >= width && width > 1) line[width - 1] = 0;
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
    p->drawn = true;
}

static void update(struct ds_progress *p)
{
    uint64_t now = ds_now_ns();
    double elapsed = (double)(now - p->start_ns) * 1e-9;
    if (!p->active || now - p->last_ns < REDRAW_NS) return;
    double expected = p->done > 0 && p->total > 0 ? elapsed * p->total / p->done : elapsed;
    if (!p->drawn && expected < SHOW_AFTER_S) return;
    p->last_ns = now;
    draw(p, elapsed);
}

void ds_progress_set(struct ds_progress *p, double done, double total)
{
    p->done = done;
    p->total = total;
    update(p);
}

void ds_progress_plan(struct ds_progress *p, double total) { p->total = total; }

void ds_progress_part_done(struct ds_progress *p, double n)
{
    p->base += n;
    p->done = p->base;
    update(p);
}

int ds_progress_tick(void *ctx, int done, int total)
{
    struct ds_progress *p = ctx;
    if (p && p->total > total) ds_progress_set(p, p->base + done, p->total);
    else if (p) ds_progress_set(p, done, total);
    return ds_tool_interrupted != 0;
}

int ds_progress_bytes(void *ctx, uint64_t done, uint64_t total)
{
    if (ctx) ds_progress_set(ctx, (double)done, (double)total);
    return ds_tool_interrupted != 0;
}

void ds_progress_clear(struct ds_progress *p)
{
    if (p->drawn) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    p->drawn = false;
}

void ds_progress_end(struct ds_progress *p)
{
    ds_progress_clear(p);
    p->active = false;
}
