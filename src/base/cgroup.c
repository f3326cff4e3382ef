#include "base/cgroup.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* First line of dir/name, without its newline. */
static bool read_line(const char *dir, const char *name, char *dst, size_t n)
{
    char path[1400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    bool ok = fgets(dst, (int)n, f) != NULL;
    fclose(f);
    if (ok) dst[strcspn(dst, "\n")] = 0;
    return ok;
}

/* "max" and anything that is not a number mean no limit. */
static bool read_u64(const char *dir, const char *name, uint64_t *v)
{
    char line[64], *end;
    if (!read_line(dir, name, line, sizeof line)) return false;
    *v = strtoull(line, &end, 10);
    return end != line && line[0] != '-';
}

/* Sum of the page cache lines of memory.stat: memory that the kernel gives back under pressure. */
static uint64_t page_cache(const char *dir, const char *prefix)
{
    char path[1400], key[64], want_a[64], want_b[64];
    unsigned long long v;
    uint64_t sum = 0;
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    snprintf(want_a, sizeof want_a, "%sinactive_file", prefix);
    snprintf(want_b, sizeof want_b, "%sactive_file", prefix);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    while (fscanf(f, "%63s %llu", key, &v) == 2)
        if (!strcmp(key, want_a) || !strcmp(key, want_b)) sum += v;
    fclose(f);
    return sum;
}

static void apply_cpus(struct ds_cgroup *c, double quota, double period)
{
    if (quota > 0 && period > 0 && (c->cpus == 0 || quota / period < c->cpus)) c->cpus = quota / period;
}

static void apply_memory(struct ds_cgroup *c, uint64_t limit, uint64_t used, uint64_t cache)
{
    if (limit >= UINT64_MAX / 4) return;   /* v1 writes "no limit" as a number near 2^63 */
    used = used > cache ? used - cache : 0;
    uint64_t room = limit > used ? limit - used : 0;
    if (limit < c->mem_limit) c->mem_limit = limit;
    if (room < c->mem_room) c->mem_room = room;
}

static void group_v2(struct ds_cgroup *c, const char *dir)
{
    char line[64];
    double quota, period;
    uint64_t limit, used;
    if (read_line(dir, "cpu.max", line, sizeof line) && sscanf(line, "%lf %lf", &quota, &period) == 2)
        apply_cpus(c, quota, period);
    if (read_u64(dir, "memory.max", &limit) && read_u64(dir, "memory.current", &used))
        apply_memory(c, limit, used, page_cache(dir, ""));
}

static void group_v1_cpu(struct ds_cgroup *c, const char *dir)
{
    uint64_t quota, period;
    if (read_u64(dir, "cpu.cfs_quota_us", &quota) && read_u64(dir, "cpu.cfs_period_us", &period))
        apply_cpus(c, (double)quota, (double)period);
}

static void group_v1_memory(struct ds_cgroup *c, const char *dir)
{
    uint64_t limit, used;
    if (read_u64(dir, "memory.limit_in_bytes", &limit) && read_u64(dir, "memory.usage_in_bytes", &used))
        apply_memory(c, limit, used, page_cache(dir, "total_"));
}

/* Visits the group and its ancestors. Inside a container the listed path may lie outside what is mounted; then only the
 * root is readable, and it is the container's own group. */
static void walk(struct ds_cgroup *c, const char *mount, const char *group, void (*visit)(struct ds_cgroup *, const char *))
{
    char dir[1200];
    size_t base = strlen(mount), len = strlen(group);
    if (base + len >= sizeof dir) return;
    memcpy(dir, mount, base);
    memcpy(dir + base, group, len + 1);
    for (;;) {
        visit(c, dir);
        char *slash = strrchr(dir + base, '/');
        if (!slash) break;
        *slash = 0;
    }
}

static bool has_controller(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; p; p = strchr(p, ',')) {
        if (*p == ',') p++;
        if (!strncmp(p, name, n) && (p[n] == ',' || p[n] == 0)) return true;
    }
    return false;
}

void ds_cgroup_read(struct ds_cgroup *c, const char *membership, const char *root)
{
    char line[1024], mount[256];
    *c = (struct ds_cgroup){ .mem_limit = UINT64_MAX, .mem_room = UINT64_MAX };
    FILE *f = fopen(membership, "r");
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        *list++ = 0;
        *group++ = 0;
        if (list[0] == 0) {
            walk(c, root, group, group_v2);
            snprintf(mount, sizeof mount, "%s/unified", root);
            walk(c, mount, group, group_v2);
            continue;
        }
        if (snprintf(mount, sizeof mount, "%s/%s", root, list) >= (int)sizeof mount) continue;
        if (has_controller(list, "cpu")) {
            walk(c, mount, group, group_v1_cpu);
            snprintf(mount, sizeof mount, "%s/cpu", root);
            walk(c, mount, group, group_v1_cpu);
        }
        if (has_controller(list, "memory")) walk(c, mount, group, group_v1_memory);
    }
    fclose(f);
}
