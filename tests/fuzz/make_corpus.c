/* Writes the seed files of fuzz_gguf: one per rule of the reader.
 *     make build/release/tests/fuzz/make_corpus && build/release/tests/fuzz/make_corpus tests/fuzz/corpus/gguf */
#include "../gguf_cases.h"

#include <stdio.h>

static int write_case(const char *folder, const struct gguf_case *c)
{
    unsigned char room[GGUF_CASE_MAX];
    char path[4096];
    struct gb b = { room, 0, sizeof room, 0 };
    c->build(&b);
    snprintf(path, sizeof path, "%s/%s", folder, c->name);
    FILE *f = b.full ? NULL : fopen(path, "wb");
    if (!f) return 0;
    size_t n = fwrite(room, 1, b.n, f);
    return fclose(f) == 0 && n == b.n;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: make_corpus FOLDER\n");
        return 2;
    }
    for (int i = 0; i < N_GGUF_CASES; i++)
        if (!write_case(argv[1], &gguf_cases[i])) {
            fprintf(stderr, "cannot write %s/%s\n", argv[1], gguf_cases[i].name);
            return 1;
        }
    return 0;
}
