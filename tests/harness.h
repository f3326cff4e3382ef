/* Test programs: a table of named cases, each a function that CHECKs. One program holds the cases of
 * one module. Arguments: names to run (none: all), or --list. The exit code is the result. */
#ifndef DS_TESTS_HARNESS_H
#define DS_TESTS_HARNESS_H

#include <stdio.h>
#include <string.h>
#include <time.h>

struct ds_test { const char *name; void (*fn)(void); };
static int ds_test_failures;   /* of the running case */

#define CHECK(cond)                                                                        \
    do {                                                                                   \
        if (!(cond)) { ds_test_failures++; printf("  %s:%d: %s\n", __FILE__, __LINE__, #cond); } \
    } while (0)
#define CHECK_MSG(cond, ...)                                                               \
    do {                                                                                   \
        if (!(cond)) { ds_test_failures++; printf("  %s:%d: %s: ", __FILE__, __LINE__, #cond); printf(__VA_ARGS__); putchar('\n'); } \
    } while (0)
#define REQUIRE(cond) do { if (!(cond)) { CHECK(cond); return; } } while (0)

static int ds_test_main(const struct ds_test *t, int n, int argc, char **argv)
{
    int failed = 0;
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (int i = 0; i < n; i++) puts(t[i].name);
        return 0;
    }
    for (int i = 0; i < n; i++) {
        int wanted = argc < 2;
        for (int a = 1; a < argc; a++) wanted |= !strcmp(argv[a], t[i].name);
        if (!wanted) continue;
        ds_test_failures = 0;
        time_t start = time(NULL);
        t[i].fn();
        double seconds = difftime(time(NULL), start);
        printf("%s %s", ds_test_failures ? "FAIL" : "ok", t[i].name);
        if (seconds > 1) printf("  %.0f s", seconds);
        putchar('\n');
        fflush(stdout);
        failed += ds_test_failures != 0;
    }
    return failed != 0;
}
#define DS_TEST_MAIN(table) \
    int main(int argc, char **argv) { return ds_test_main(table, (int)(sizeof table / sizeof *table), argc, argv); }

#endif
