/* Where a number comes from: machine, engine, model, command, date, clocks, other load. Every result
 * that leaves a tool carries this. */
#ifndef DS_TOOLS_COMMON_RECORD_H
#define DS_TOOLS_COMMON_RECORD_H

#include "deltascope.h"

#include "base/json.h"

struct ds_provenance {
    char cpu[128], gpu[128];            /* gpu empty: none took part */
    int cores, threads;
    char isa[32], backend[16], placement[16], kv[8], gdn[8];
    char commit[64];
    char model[512], hash[24], arch[32], type[16];
    char command[1024];
    char date[32];
    char clock_before[64], clock_after[64];   /* as the system tells; empty when it does not */
    struct ds_peaks peaks;              /* of this machine, as far as measured; the caller's to set */
    bool busy;                          /* other work was seen before or after */
    char busy_why[128];
};

/* No control character is among the n bytes at s. */
bool ds_text_is_plain(const char *s, size_t n);

const char *ds_commit(void);            /* commit of the build */

/* The command as it would be typed: prog, then argv[1..], with quotes where a shell needs them. */
void ds_command_line(char *dst, size_t n, const char *prog, int argc, char **argv);
/* Fills everything that is known before measuring. */
void ds_provenance_begin(struct ds_provenance *p, const ds_engine *g, const char *command);
/* The same for a measurement without an engine or a model: their fields stay empty. */
void ds_provenance_bare(struct ds_provenance *p, int threads, const char *isa, const char *command);
/* Clock state and other load once more. */
void ds_provenance_end(struct ds_provenance *p);

/* "machine" {...} alone. */
void ds_machine_json(struct ds_json_out *j, const struct ds_provenance *p);
/* The fields as members of the object being written: "machine" {...}, "backend", "placement", ... */
void ds_provenance_json(struct ds_json_out *j, const struct ds_provenance *p);
/* One line for people: "AMD EPYC, 2 threads, avx512vnni, cpu/full, commit 1a2b3c4". */
void ds_provenance_line(const struct ds_provenance *p, char *dst, size_t n);

#endif
