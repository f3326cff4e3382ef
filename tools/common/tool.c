#include "common/tool.h"

#include "base/os.h"
#include "common/progress.h"

#include <stdio.h>
#include <string.h>

_Atomic int ds_tool_interrupted;

void ds_tool_catch_interrupt(void) { ds_on_interrupt(&ds_tool_interrupted, 200); }

int ds_tool_stop(void *ctx)
{
    (void)ctx;
    return ds_tool_interrupted != 0;
}

int ds_tool_fail(const char *prog, const struct ds_err *e)
{
    fprintf(stderr, "%s: %s\n", prog, e->msg);
    if (e->code == DS_ECANCEL) return DS_EXIT_INTERRUPTED;
    return e->code == DS_EARG ? DS_EXIT_USAGE : DS_EXIT_FAIL;
}

ds_status ds_tool_open(ds_engine **g, const struct ds_options *o, struct ds_err *e)
{
    struct ds_progress p;
    struct ds_options with = *o;
    if (!o->model && !o->synth.like)
        return ds_fail(e, DS_EARG, "no model is named, and none lies in ../models beside the program's folder or in ./models");
    ds_tool_catch_interrupt();
    ds_progress_start(&p, o->synth.like ? "making weights" : "loading", DS_PROGRESS_BYTES);
    with.progress = ds_progress_bytes;
    with.progress_ctx = &p;
    ds_status st = ds_engine_open(g, &with, e);
    ds_progress_end(&p);
    return st;
}

static const char lost[] = "standard output: the output could not be written";
static bool stdout_is_lost;          /* and some ds_err says so */

ds_status ds_tool_print(const void *p, size_t n, struct ds_err *e)
{
    if (fwrite(p, 1, n, stdout) == n && !fflush(stdout)) return DS_OK;
    stdout_is_lost = true;
    return ds_fail(e, DS_EIO, "%s", lost);
}

ds_status ds_tool_write(const struct ds_bytes *b, const char *path, struct ds_err *e)
{
    char target[DS_PATH_MAX], tmp[DS_PATH_MAX];
    struct ds_out o;
    if (b->failed) return ds_fail(e, DS_ENOMEM, "the output passes %zu bytes", b->max);
    if (!path) return ds_tool_print(b->p ? b->p : "", b->n, e);
    ds_status st = ds_out_target(target, path, e);
    if (st) return st;
    if (snprintf(tmp, sizeof tmp, "%s.tmp", target) >= (int)sizeof tmp) return ds_fail(e, DS_EARG, "%s: the path is too long", path);
    if ((st = ds_out_open(&o, tmp, true, e))) return st;
    if (!(st = ds_out_write(&o, b->p ? b->p : "", b->n, e))) return ds_out_place(&o, target, false, e);
    ds_out_drop(&o);
    return st;
}

int ds_tool_finish(const char *prog, int rc)
{
    if (!fflush(stdout) && !ferror(stdout)) return rc;
    if (!stdout_is_lost) fprintf(stderr, "%s: %s\n", prog, lost);
    return rc ? rc : DS_EXIT_FAIL;
}

static void human(char dst[16], double v, const char *unit)
{
    static const char *const prefix[] = { "", "k", "M", "G", "T", "P" };
    int i = 0;
    while (v >= 999.95 && i < 5) v /= 1000, i++;
    snprintf(dst, 16, i || v != (int)v ? "%.1f %s%s" : "%.0f %s%s", v, prefix[i], unit);
    size_t n = strlen(dst);
    if (n && dst[n - 1] == ' ') dst[n - 1] = 0;
}

void ds_human_bytes(char dst[16], double bytes) { human(dst, bytes, "B"); }
void ds_human_count(char dst[16], double n) { human(dst, n, ""); }
