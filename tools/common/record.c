#include "common/record.h"

#include "base/os.h"
#include "common/member.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#ifndef DS_COMMIT
#define DS_COMMIT "unknown"
#endif

const char *ds_commit(void) { return DS_COMMIT; }

bool ds_text_is_plain(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f) return false;
    return true;
}

/* A record holds plain text: what else a name or a command has in it is shown as '?'. */
static void copy(char *dst, size_t n, const char *src)
{
    snprintf(dst, n, "%s", src ? src : "");
    for (char *p = dst; *p; p++)
        if (!ds_text_is_plain(p, 1)) *p = '?';
}

void ds_command_line(char *dst, size_t n, const char *prog, int argc, char **argv)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./,:+@%";
    size_t used = (size_t)snprintf(dst, n, "%s", prog);
    for (int i = 1; i < argc && used + 1 < n; i++) {
        bool quote = !*argv[i] || argv[i][strspn(argv[i], plain)];
        int w = snprintf(dst + used, n - used, quote ? " '%s'" : " %s", argv[i]);
        used += w > 0 ? (size_t)w : 0;
    }
}

static void see_load(struct ds_provenance *p)
{
    char why[128];
    if (ds_machine_busy(why, sizeof why)) {
        p->busy = true;
        copy(p->busy_why, sizeof p->busy_why, why);
    }
}

/* Folders say nothing about a model; its hash does. */
static const char *file_name(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path;
}

void ds_provenance_bare(struct ds_provenance *p, int threads, const char *isa, const char *command)
{
    memset(p, 0, sizeof *p);
    ds_cpu_model(p->cpu, sizeof p->cpu);
    p->cores = ds_cpu_count();
    p->threads = threads;
    copy(p->isa, sizeof p->isa, isa);
    copy(p->commit, sizeof p->commit, ds_commit());
    copy(p->command, sizeof p->command, command);
    ds_utc_string(p->date);
    ds_cpu_clock_state(p->clock_before, sizeof p->clock_before);
    see_load(p);
}

void ds_provenance_begin(struct ds_provenance *p, const ds_engine *g, const char *command)
{
    const struct ds_model_info *m = ds_engine_info(g);
    ds_provenance_bare(p, ds_engine_threads(g), ds_engine_isa(g), command);
    copy(p->gpu, sizeof p->gpu, ds_engine_device(g));
    copy(p->backend, sizeof p->backend, ds_engine_backend(g));
    copy(p->placement, sizeof p->placement, ds_engine_placement(g));
    copy(p->kv, sizeof p->kv, ds_engine_kv_type(g));
    copy(p->gdn, sizeof p->gdn, ds_engine_gdn_form(g));
    copy(p->model, sizeof p->model, file_name(m->path));
    copy(p->arch, sizeof p->arch, m->arch);
    copy(p->type, sizeof p->type, m->type);
    snprintf(p->hash, sizeof p->hash, "%016" PRIx64, m->hash);
}

void ds_provenance_end(struct ds_provenance *p)
{
    ds_cpu_clock_state(p->clock_after, sizeof p->clock_after);
    see_load(p);
}

void ds_machine_json(struct ds_json_out *j, const struct ds_provenance *p)
{
    ds_jm_obj(j, "machine");
    ds_jm_text(j, "cpu", p->cpu);
    ds_jm_int(j, "cores", p->cores);
    ds_jm_int(j, "threads", p->threads);
    ds_jm_text(j, "isa", p->isa);
    ds_jm_text(j, "gpu", p->gpu);
    ds_jm_num(j, "peak_int8_gops", p->peaks.int8_gops);
    ds_jm_num(j, "peak_f32_gflops", p->peaks.f32_gflops);
    ds_jm_num(j, "peak_float_product_gflops", p->peaks.mm_gflops);
    ds_jm_num(j, "read_gbs", p->peaks.read_gbs);
    ds_jm_num(j, "copy_gbs", p->peaks.copy_gbs);
    ds_jo_obj_end(j);
}

void ds_provenance_json(struct ds_json_out *j, const struct ds_provenance *p)
{
    ds_machine_json(j, p);
    ds_jm_text(j, "backend", p->backend);
    ds_jm_text(j, "placement", p->placement);
    ds_jm_text(j, "kv", p->kv);
    ds_jm_text(j, "gdn", p->gdn);
    ds_jm_text(j, "commit", p->commit);
    ds_jm_text(j, "model", p->model);
    ds_jm_text(j, "model_hash", p->hash);
    ds_jm_text(j, "command", p->command);
    ds_jm_text(j, "date", p->date);
    ds_jm_obj(j, "clock");
    ds_jm_text(j, "before", p->clock_before);
    ds_jm_text(j, "after", p->clock_after);
    ds_jo_obj_end(j);
    ds_jm_bool(j, "busy", p->busy);
    ds_jm_text(j, "busy_why", p->busy_why);
}

void ds_provenance_line(const struct ds_provenance *p, char *dst, size_t n)
{
    snprintf(dst, n, "%s%s%s, %d thread%s, %s, %s/%s, commit %s", p->cpu, *p->gpu ? " + " : "", p->gpu, p->threads,
             p->threads == 1 ? "" : "s", p->isa, p->backend, p->placement, p->commit);
}
