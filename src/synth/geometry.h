/* Published geometries of the family. */
#ifndef DS_SYNTH_GEOMETRY_H
#define DS_SYNTH_GEOMETRY_H

#include <stdbool.h>

struct ds_geometry {
    const char *name;              /* "qwen3.5-0.8b" */
    const char *arch;              /* "qwen35" or "qwen35moe" */
    int hidden, layers;
    int n_head, n_kv;              /* attention heads */
    int n_kh, n_vh;                /* GDN key and value heads */
    int n_ff;                      /* dense FFN width; 0: mixture of experts */
    bool tied;
    int n_expert, n_expert_used, n_ff_exp, n_ff_shexp;
};

/* The same in every model of the family. */
enum {
    DS_GEO_VOCAB = 248320, DS_GEO_HEAD_DIM = 256, DS_GEO_ROT = 64, DS_GEO_GDN_DIM = 128, DS_GEO_CONV = 4, DS_GEO_INTERVAL = 4,
    DS_GEO_CONTEXT = 262144
};

const struct ds_geometry *ds_geometry_find(const char *name);      /* NULL: unknown. Case-insensitive */

#endif
