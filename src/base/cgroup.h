/* Limits that Linux control groups (v1 and v2) put on this process. Plain file reading; on systems
 * without them nothing is found and nothing is limited. */
#ifndef DS_BASE_CGROUP_H
#define DS_BASE_CGROUP_H

#include <stdint.h>

struct ds_cgroup {
    double cpus;              /* CPU time quota in CPUs; 0: none */
    uint64_t mem_limit;       /* bytes; UINT64_MAX: none */
    uint64_t mem_room;        /* bytes still free under the tightest limit, page cache counted as free; UINT64_MAX: none */
};

/* membership: the file that lists this process's groups (/proc/self/cgroup); root: where the hierarchies are mounted
 * (/sys/fs/cgroup). A limit of any ancestor counts. */
void ds_cgroup_read(struct ds_cgroup *c, const char *membership, const char *root);

#endif
