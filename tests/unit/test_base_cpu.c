#include "base/cpu.h"
#include "../harness.h"

#include <stdbool.h>
#include <stdlib.h>

static void cpu_auto_is_everything(void)
{
    unsigned a = 0, b = 1;
    CHECK(ds_cpu_mask(NULL, &a, NULL) == DS_OK && ds_cpu_mask("auto", &b, NULL) == DS_OK);
    CHECK(a == b && a == ds_cpu_detect());
    if (a & DS_CPU_AVX512VNNI) CHECK((a & (DS_CPU_AVX512 | DS_CPU_AVX2)) == (DS_CPU_AVX512 | DS_CPU_AVX2));
    if (a & DS_CPU_I8MM) CHECK(a & DS_CPU_NEON);
}

#if defined(__linux__)
static bool kernel_says(const char *text, const char *flag)
{
    size_t n = strlen(flag);
    for (const char *p = text; (p = strstr(p, flag)); p += n)
        if ((p[-1] == ' ' || p[-1] == '\t') && (p[n] == ' ' || p[n] == '\n' || p[n] == 0)) return true;
    return false;
}

/* The kernel's own list of what this machine and this system can do. An emulator of another processor shows the
 * host's list: check-all says so by DS_EMULATED. */
static void cpu_agrees_with_the_kernel(void)
{
    if (getenv("DS_EMULATED")) return;
    static const struct { unsigned bit; const char *flags[6]; } v[] = {
        { DS_CPU_AVX2, { "avx2", "fma", "f16c" } },
        { DS_CPU_AVXVNNI, { "avx_vnni", "avx2", "fma", "f16c" } },
        { DS_CPU_AVX512, { "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd", "avx2" } },
        { DS_CPU_AVX512VNNI, { "avx512_vnni", "avx512bw", "avx512vl" } },
        { DS_CPU_AVX512BF16, { "avx512_bf16", "avx512bw", "avx512vl" } },
        { DS_CPU_AVX512VBMI, { "avx512vbmi", "avx512bw", "avx512vl" } },
        { DS_CPU_NEON, { "asimd" } },
        { DS_CPU_DOTPROD, { "asimddp" } },
        { DS_CPU_I8MM, { "i8mm" } },
    };
    static char line[16384];
    FILE *f = fopen("/proc/cpuinfo", "r");
    REQUIRE(f != NULL);
    while (fgets(line, sizeof line, f) && strncmp(line, "flags", 5) && strncmp(line, "Features", 8)) line[0] = 0;
    fclose(f);
    REQUIRE(line[0] != 0);
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        bool all = true;
        for (int k = 0; k < 6 && v[i].flags[k]; k++) all = all && kernel_says(line, v[i].flags[k]);
        CHECK_MSG(all == ((ds_cpu_detect() & v[i].bit) != 0), "%s: the kernel says %d", v[i].flags[0], all);
    }
}
#endif

/* Every level listed works, masks grow with the levels, and a mask's name is the level that was asked for. */
static void cpu_levels_nest(void)
{
    const char *names[16];
    unsigned before = 0;
    int n = ds_cpu_levels(names, 16);
    CHECK(n >= 1 && !strcmp(names[0], "scalar"));
    for (int i = 0; i < n; i++) {
        unsigned m = ~0u;
        CHECK(ds_cpu_mask(names[i], &m, NULL) == DS_OK);
        CHECK((m & ~ds_cpu_detect()) == 0 && (before & ~m) == 0);
        CHECK(!strcmp(ds_cpu_level_name(m), names[i]));
        before = m;
    }
    CHECK(ds_cpu_levels(names, 1) == 1);
}

static void cpu_level_forbids_what_is_above(void)
{
    unsigned m = 0, has = ds_cpu_detect();
    CHECK(ds_cpu_mask("scalar", &m, NULL) == DS_OK && m == 0);
    if (has & DS_CPU_AVX2) CHECK(ds_cpu_mask("avx2", &m, NULL) == DS_OK && m == DS_CPU_AVX2);
    if (has & DS_CPU_AVX512) {
        CHECK(ds_cpu_mask("avx512", &m, NULL) == DS_OK);
        CHECK(m == (has & (DS_CPU_AVX2 | DS_CPU_AVXVNNI | DS_CPU_AVX512)));
    }
    if (has & DS_CPU_DOTPROD) CHECK(ds_cpu_mask("neon", &m, NULL) == DS_OK && m == DS_CPU_NEON);
}

/* A level that this machine lacks is an error with the name of the feature asked for, never a silent lower level. */
static void cpu_missing_feature_is_named(void)
{
    static const struct { const char *level; unsigned bit; const char *word;
    } v[] = {
        { "avx2", DS_CPU_AVX2, "AVX2" },
        { "avxvnni", DS_CPU_AVXVNNI, "AVX-VNNI" },
        { "avx512", DS_CPU_AVX512, "AVX-512 F" },
        { "avx512vnni", DS_CPU_AVX512VNNI, "AVX-512 VNNI" },
        { "avx512bf16", DS_CPU_AVX512BF16, "AVX-512 BF16" },
        { "neon", DS_CPU_NEON, "NEON" },
        { "dotprod", DS_CPU_DOTPROD, "dot-product" },
        { "i8mm", DS_CPU_I8MM, "int8 matrix" },
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct ds_err e = { 0 };
        unsigned m = 0;
        ds_status s = ds_cpu_mask(v[i].level, &m, &e);
        if (ds_cpu_detect() & v[i].bit) CHECK(s == DS_OK && (m & v[i].bit));
        else CHECK_MSG(s == DS_EUNSUP && strstr(e.msg, v[i].word) && strstr(e.msg, "scalar"), "%s", e.msg);
    }
}

static void cpu_unknown_level(void)
{
    static const char *const bad[] = { "", "AVX2", "avx", "avx512vnni2", "native" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ds_err e = { 0 };
        unsigned m = 0;
        CHECK(ds_cpu_mask(bad[i], &m, &e) == DS_EARG && strstr(e.msg, "unknown"));
    }
}

static const struct ds_test tests[] = {
    { "cpu_auto_is_everything", cpu_auto_is_everything },
#if defined(__linux__)
    { "cpu_agrees_with_the_kernel", cpu_agrees_with_the_kernel },
#endif
    { "cpu_levels_nest", cpu_levels_nest },
    { "cpu_level_forbids_what_is_above", cpu_level_forbids_what_is_above },
    { "cpu_missing_feature_is_named", cpu_missing_feature_is_named },
    { "cpu_unknown_level", cpu_unknown_level },
};
DS_TEST_MAIN(tests)
