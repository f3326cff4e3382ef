/* Storage types: one row per type, nothing else knows their names.
 *
 * Source of layouts and arithmetic: the GGUF format and ggml's published block layouts. */
#ifndef DS_QUANT_TYPE_H
#define DS_QUANT_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Row index in ds_types[], and the name used in code. */
enum ds_type_id {
    DS_T_F32, DS_T_F16, DS_T_BF16,
    DS_T_Q4_0, DS_T_Q4_1, DS_T_Q5_0, DS_T_Q5_1, DS_T_Q8_0,
    DS_T_Q2_K, DS_T_Q3_K, DS_T_Q4_K, DS_T_Q5_K, DS_T_Q6_K,
    DS_T_IQ4_NL, DS_T_IQ4_XS, DS_T_MXFP4,
    DS_T_I8, DS_T_I16, DS_T_I32, DS_T_I64, DS_T_F64,       /* stored, never a weight */
    DS_T_COUNT
};

/* How activations are quantised before an integer product with this type (model of ggml's CPU path). */
enum ds_act_kind {
    DS_ACT_NONE,   /* float product on decoded weights */
    DS_ACT_Q8_0,   /* per 32: d = amax/127 kept as f16, q = round half away(x/d) */
    DS_ACT_Q8_1,   /* Q8_0 plus the block's sum; same q and d */
    DS_ACT_Q8_K    /* per 256: extreme element becomes -127, d in f32 */
};

struct ds_type {
    const char *name;                 /* as users write it: "q8_0" */
    uint32_t gguf_id;                 /* value in the file */
    uint16_t block, bytes;            /* elements per block, bytes per block */
    enum ds_act_kind act;
    void (*decode)(float *dst, const void *src, size_t n);   /* n elements: a multiple of block; src unaligned; NULL: not a weight type */
    void (*encode)(void *dst, const float *src, size_t n);   /* finite values; dst unaligned; NULL: read-only type */
    /* Fills n elements (multiple of block) with valid random blocks whose decoded values look like rounded
     * normal weights: mean about 0, standard deviation sd. Far faster than encoding; every weight type has it. */
    void (*random)(void *dst, size_t n, float sd, uint64_t seed);
};
extern const struct ds_type ds_types[DS_T_COUNT];

const struct ds_type *ds_type_by_gguf(uint32_t gguf_id);      /* NULL: unknown or not supported here */
const struct ds_type *ds_type_by_name(const char *name);      /* case-insensitive */
/* Name of any GGUF type id, supported or not ("iq2_xxs"), or NULL when no such id exists. */
const char *ds_type_gguf_name(uint32_t gguf_id);
static inline enum ds_type_id ds_type_id(const struct ds_type *t) { return (enum ds_type_id)(t - ds_types); }
static inline size_t ds_type_row_bytes(const struct ds_type *t, size_t n) { return n / t->block * t->bytes; }

/* IEEE half and bfloat16, scalar. Round to nearest even; NaN stays NaN (quiet). */
float ds_f16_to_f32(uint16_t h);
uint16_t ds_f32_to_f16(float f);
float ds_bf16_to_f32(uint16_t h);
uint16_t ds_f32_to_bf16(float f);

#endif
