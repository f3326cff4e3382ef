#include "synth/geometry.h"

#include "deltascope.h"

#include <stddef.h>

static const struct ds_geometry table[] = {
    /* name            arch         hidden layers heads kv  kh  vh   ff     tied   experts used ff shared */
    { "qwen3.5-0.8b", "qwen35", 1024, 24, 8, 2, 16, 16, 3584, true, 0, 0, 0, 0 },
    { "qwen3.5-2b", "qwen35", 2048, 24, 8, 2, 16, 16, 6144, true, 0, 0, 0, 0 },
    { "qwen3.5-4b", "qwen35", 2560, 32, 16, 4, 16, 32, 9216, true, 0, 0, 0, 0 },
    { "qwen3.5-9b", "qwen35", 4096, 32, 16, 4, 16, 32, 12288, false, 0, 0, 0, 0 },
    { "qwen3.5-27b", "qwen35", 5120, 64, 24, 4, 16, 48, 17408, false, 0, 0, 0, 0 },
    { "qwen3.6-27b", "qwen35", 5120, 64, 24, 4, 16, 48, 17408, false, 0, 0, 0, 0 },
    { "qwen3.6-35b-a3b", "qwen35moe", 2048, 40, 16, 2, 16, 32, 0, false, 256, 8, 512, 512 },
};
enum { N_GEOMETRIES = sizeof table / sizeof *table };

static int lower(int c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }

const struct ds_geometry *ds_geometry_find(const char *name)
{
    for (int i = 0; i < N_GEOMETRIES; i++) {
        const char *a = table[i].name, *b = name;
        while (*a && *a == lower((unsigned char)*b)) a++, b++;
        if (!*a && !*b) return &table[i];
    }
    return NULL;
}

const char *const *ds_synth_names(void)
{
    static const char *const names[N_GEOMETRIES + 1] = {
        "qwen3.5-0.8b", "qwen3.5-2b", "qwen3.5-4b", "qwen3.5-9b", "qwen3.5-27b", "qwen3.6-27b", "qwen3.6-35b-a3b",
    };
    return names;
}
