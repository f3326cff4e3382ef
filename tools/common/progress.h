/* A one-line bar on stderr for whatever takes more than two seconds. Silent unless stderr is a terminal;
 * leaves no trace behind. */
#ifndef DS_TOOLS_COMMON_PROGRESS_H
#define DS_TOOLS_COMMON_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

enum ds_progress_unit { DS_PROGRESS_TOKENS, DS_PROGRESS_BYTES, DS_PROGRESS_STEPS };

struct ds_progress {
    char label[48];
    enum ds_progress_unit unit;
    bool active, drawn;
    uint64_t start_ns, last_ns;
    double done, total, base;       /* base: work of finished parts, for a bar over several prefills */
};

void ds_progress_start(struct ds_progress *p, const char *label, enum ds_progress_unit unit);
void ds_progress_set(struct ds_progress *p, double done, double total);
/* A bar over several parts: the total of all, and one part finished. */
void ds_progress_plan(struct ds_progress *p, double total);
void ds_progress_part_done(struct ds_progress *p, double amount);
/* ds_tick: moves the bar of a struct ds_progress (ctx, NULL allowed) and stops on an interrupt. */
int ds_progress_tick(void *ctx, int done, int total);
/* Progress of loading or writing, done and total in bytes: the same for a bar of bytes. */
int ds_progress_bytes(void *ctx, uint64_t done, uint64_t total);
/* Clears the line; call before printing anything else on the terminal. */
void ds_progress_clear(struct ds_progress *p);
void ds_progress_end(struct ds_progress *p);

#endif
