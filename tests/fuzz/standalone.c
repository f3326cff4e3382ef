/* A main for fuzz targets without libFuzzer: fuzz_NAME runs the files of tests/fuzz/corpus/NAME, as a test program with one
 * case, or the files that it is given. Each input is an allocation of its exact size, so that sanitizers see the end. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
/* Weak: a target that has its own replaces it. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv) { (void)argc, (void)argv; return 0; }

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    long size = -1;
    if (f && fseek(f, 0, SEEK_END) == 0) size = ftell(f);
    uint8_t *p = size < 0 ? NULL : malloc(size ? (size_t)size : 1);
    int ok = p && fseek(f, 0, SEEK_SET) == 0 && fread(p, 1, (size_t)size, f) == (size_t)size;
    if (ok) LLVMFuzzerTestOneInput(p, (size_t)size);
    else printf("  cannot read %s\n", path);
    free(p);
    if (f) fclose(f);
    return ok;
}

static int run_folder(const char *folder)
{
    char path[4096];
    int files = 0, ok = 1;
    DIR *d = opendir(folder);
    if (!d) {
        printf("  cannot open %s\n", folder);
        return 0;
    }
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        ok &= run_file(path);
        files++;
    }
    closedir(d);
    return ok && files > 0;
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
    char one[256], folder[256];
    int ok = 1;
    snprintf(one, sizeof one, "%s_corpus", name);
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        puts(one);
        return 0;
    }
    LLVMFuzzerInitialize(&argc, &argv);
    if (argc > 1 && strcmp(argv[1], one)) {
        for (int i = 1; i < argc; i++) ok &= run_file(argv[i]);
        return !ok;
    }
    snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", strncmp(name, "fuzz_", 5) ? name : name + 5);
    ok = run_folder(folder);
    printf("%s %s\n", ok ? "ok" : "FAIL", one);
    return !ok;
}
