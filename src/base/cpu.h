/* CPU features and ISA levels.
 *
 * A level is what --isa names. `auto` allows everything that the CPU *and the operating system*
 * support; any other name forbids every feature above it. Levels of one architecture are ordered;
 * the mask holds one bit per feature, so kernels test features, not levels. */
#ifndef DS_BASE_CPU_H
#define DS_BASE_CPU_H

#include "base/err.h"

enum ds_cpu_feature {
    DS_CPU_AVX2       = 1u << 0,   /* with FMA and F16C */
    DS_CPU_AVXVNNI    = 1u << 1,   /* 256-bit vpdpbusd, VEX */
    DS_CPU_AVX512     = 1u << 2,   /* F, BW, DQ, VL, CD */
    DS_CPU_AVX512VNNI = 1u << 3,
    DS_CPU_AVX512BF16 = 1u << 4,
    DS_CPU_AVX512VBMI = 1u << 5,
    DS_CPU_NEON       = 1u << 8,
    DS_CPU_DOTPROD    = 1u << 9,
    DS_CPU_I8MM       = 1u << 10
};

unsigned ds_cpu_detect(void);                       /* features usable here */
/* Mask of a level: `name` as in --isa (NULL or "auto": all). Fails, naming the missing feature and
 * the levels that this machine has, when the machine lacks it or the name is unknown. */
ds_status ds_cpu_mask(const char *name, unsigned *mask, struct ds_err *e);
const char *ds_cpu_level_name(unsigned mask);       /* highest level whose features are all in mask */
/* Level names usable here, lowest first ("scalar" always among them); returns their number. */
int ds_cpu_levels(const char *names[], int max);

#endif
