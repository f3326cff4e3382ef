#include "base/cpu.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

/* State that the operating system saves on a task switch (XCR0). */
static unsigned saved_state(void)
{
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
}

unsigned ds_cpu_detect(void)
{
    enum { FMA = 1 << 12, OSXSAVE = 1 << 27, AVX = 1 << 28, F16C = 1 << 29, YMM_STATE = 0x06, ZMM_STATE = 0xe6 };
    unsigned a, b, c, d, has = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    const unsigned base = FMA | OSXSAVE | AVX | F16C;
    if ((c & base) != base || (saved_state() & YMM_STATE) != YMM_STATE) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b >> 5 & 1)) return 0;
    has |= DS_CPU_AVX2;
    unsigned max_sub = a, b7 = b, c7 = c, a71 = 0;
    if (max_sub >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) a71 = a;
    if (a71 >> 4 & 1) has |= DS_CPU_AVXVNNI;
    const unsigned avx512 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;  /* F, DQ, CD, BW, VL */
    if ((b7 & avx512) != avx512 || (saved_state() & ZMM_STATE) != ZMM_STATE) return has;
    has |= DS_CPU_AVX512;
    if (c7 >> 11 & 1) has |= DS_CPU_AVX512VNNI;
    if (a71 >> 5 & 1) has |= DS_CPU_AVX512BF16;
    if (c7 >> 1 & 1) has |= DS_CPU_AVX512VBMI;
    return has;
}
#else
unsigned ds_cpu_detect(void)
{
    return ds_os_arm_features();
}
#endif

/* Lowest first within an architecture. `need` makes the level; `allow` adds what is below it but not on every machine
 * that reaches it: AVX-512 machines without AVX-VNNI exist (Zen 4), and AVX-512 VNNI ones without VBMI. */
static const struct level { const char *name; unsigned need, allow; } levels[] = {
    { "scalar", 0, 0 },
    { "avx2", DS_CPU_AVX2, 0 },
    { "avxvnni", DS_CPU_AVX2 | DS_CPU_AVXVNNI, 0 },
    { "avx512", DS_CPU_AVX2 | DS_CPU_AVX512, DS_CPU_AVXVNNI },
    { "avx512vnni", DS_CPU_AVX2 | DS_CPU_AVX512 | DS_CPU_AVX512VNNI, DS_CPU_AVXVNNI | DS_CPU_AVX512VBMI },
    { "avx512bf16", DS_CPU_AVX2 | DS_CPU_AVX512 | DS_CPU_AVX512VNNI | DS_CPU_AVX512BF16, DS_CPU_AVXVNNI | DS_CPU_AVX512VBMI },
    { "neon", DS_CPU_NEON, 0 },
    { "dotprod", DS_CPU_NEON | DS_CPU_DOTPROD, 0 },
    { "i8mm", DS_CPU_NEON | DS_CPU_DOTPROD | DS_CPU_I8MM, 0 },
};
enum { N_LEVELS = sizeof levels / sizeof *levels };

static const struct { unsigned bit; const char *name; } features[] = {
    { DS_CPU_AVX2, "AVX2 with FMA and F16C" }, { DS_CPU_AVXVNNI, "AVX-VNNI" }, { DS_CPU_AVX512, "AVX-512 F/BW/DQ/VL/CD" },
    { DS_CPU_AVX512VNNI, "AVX-512 VNNI" }, { DS_CPU_AVX512BF16, "AVX-512 BF16" }, { DS_CPU_AVX512VBMI, "AVX-512 VBMI" },
    { DS_CPU_NEON, "NEON" }, { DS_CPU_DOTPROD, "the dot-product instructions" }, { DS_CPU_I8MM, "the int8 matrix instructions" },
};

/* The highest feature in mask: where a level is lacking, the one that gives it its name. */
static const char *last_feature(unsigned mask)
{
    const char *name = "nothing";
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (mask & features[i].bit) name = features[i].name;
    return name;
}

int ds_cpu_levels(const char *names[], int max)
{
    unsigned has = ds_cpu_detect();
    int n = 0;
    for (int i = 0; i < N_LEVELS && n < max; i++)
        if (!(levels[i].need & ~has)) names[n++] = levels[i].name;
    return n;
}

static void list_levels(char *dst, size_t n)
{
    const char *names[N_LEVELS];
    int count = ds_cpu_levels(names, N_LEVELS);
    size_t at = 0;
    dst[0] = 0;
    for (int i = 0; i < count && at < n; i++) at += (size_t)snprintf(dst + at, n - at, "%s%s", i ? ", " : "", names[i]);
}

ds_status ds_cpu_mask(const char *name, unsigned *mask, struct ds_err *e)
{
    unsigned has = ds_cpu_detect();
    char here[160];
    if (!name || !strcmp(name, "auto")) {
        *mask = has;
        return DS_OK;
    }
    list_levels(here, sizeof here);
    for (int i = 0; i < N_LEVELS; i++) {
        if (strcmp(name, levels[i].name)) continue;
        unsigned lacks = levels[i].need & ~has;
        if (lacks)
            return ds_fail(e, DS_EUNSUP, "instruction set '%s': this machine lacks %s; it has %s", name, last_feature(lacks),
                           here);
        *mask = has & (levels[i].need | levels[i].allow);
        return DS_OK;
    }
    return ds_fail(e, DS_EARG, "instruction set '%.40s' is unknown; this machine has auto, %s", name, here);
}

const char *ds_cpu_level_name(unsigned mask)
{
    const char *best = levels[0].name;
    for (int i = 0; i < N_LEVELS; i++)
        if (!(levels[i].need & ~mask)) best = levels[i].name;
    return best;
}
