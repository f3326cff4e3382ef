#include "quant/type.h"

#include "quant/families.h"

#define STORED(name, id, bytes) { name, id, 1, bytes, DS_ACT_NONE, NULL, NULL, NULL }

const struct ds_type ds_types[DS_T_COUNT] = {
    [DS_T_F32] = { "f32", 0, 1, 4, DS_ACT_NONE, ds_f32_decode, ds_f32_encode, ds_f32_random },
    [DS_T_F16] = { "f16", 1, 1, 2, DS_ACT_NONE, ds_f16_decode, ds_f16_encode, ds_f16_random },
    [DS_T_BF16] = { "bf16", 30, 1, 2, DS_ACT_NONE, ds_bf16_decode, ds_bf16_encode, ds_bf16_random },
    [DS_T_Q4_0] = { "q4_0", 2, 32, 18, DS_ACT_Q8_0, ds_q4_0_decode, ds_q4_0_encode, ds_q4_0_random },
    [DS_T_Q4_1] = { "q4_1", 3, 32, 20, DS_ACT_Q8_1, ds_q4_1_decode, NULL, ds_q4_1_random },
    [DS_T_Q5_0] = { "q5_0", 6, 32, 22, DS_ACT_Q8_0, ds_q5_0_decode, NULL, ds_q5_0_random },
    [DS_T_Q5_1] = { "q5_1", 7, 32, 24, DS_ACT_Q8_1, ds_q5_1_decode, NULL, ds_q5_1_random },
    [DS_T_Q8_0] = { "q8_0", 8, 32, 34, DS_ACT_Q8_0, ds_q8_0_decode, ds_q8_0_encode, ds_q8_0_random },
    [DS_T_Q2_K] = { "q2_k", 10, 256, 84, DS_ACT_Q8_K, ds_q2_k_decode, NULL, ds_q2_k_random },
    [DS_T_Q3_K] = { "q3_k", 11, 256, 110, DS_ACT_Q8_K, ds_q3_k_decode, NULL, ds_q3_k_random },
    [DS_T_Q4_K] = { "q4_k", 12, 256, 144, DS_ACT_Q8_K, ds_q4_k_decode, ds_q4_k_encode, ds_q4_k_random },
    [DS_T_Q5_K] = { "q5_k", 13, 256, 176, DS_ACT_Q8_K, ds_q5_k_decode, NULL, ds_q5_k_random },
    [DS_T_Q6_K] = { "q6_k", 14, 256, 210, DS_ACT_Q8_K, ds_q6_k_decode, ds_q6_k_encode, ds_q6_k_random },
    [DS_T_IQ4_NL] = { "iq4_nl", 20, 32, 18, DS_ACT_Q8_0, ds_iq4_nl_decode, NULL, ds_iq4_nl_random },
    [DS_T_IQ4_XS] = { "iq4_xs", 23, 256, 136, DS_ACT_Q8_K, ds_iq4_xs_decode, NULL, ds_iq4_xs_random },
    [DS_T_MXFP4] = { "mxfp4", 39, 32, 17, DS_ACT_Q8_0, ds_mxfp4_decode, NULL, ds_mxfp4_random },
    [DS_T_I8] = STORED("i8", 24, 1),
    [DS_T_I16] = STORED("i16", 25, 2),
    [DS_T_I32] = STORED("i32", 26, 4),
    [DS_T_I64] = STORED("i64", 27, 8),
    [DS_T_F64] = STORED("f64", 28, 8),
};

/* Every id of the format; ids that were withdrawn have no name. */
static const char *const gguf_names[] = {
    [0] = "f32", [1] = "f16", [2] = "q4_0", [3] = "q4_1", [6] = "q5_0", [7] = "q5_1", [8] = "q8_0", [9] = "q8_1",
    [10] = "q2_k", [11] = "q3_k", [12] = "q4_k", [13] = "q5_k", [14] = "q6_k", [15] = "q8_k", [16] = "iq2_xxs", [17] = "iq2_xs",
    [18] = "iq3_xxs", [19] = "iq1_s", [20] = "iq4_nl", [21] = "iq3_s", [22] = "iq2_s", [23] = "iq4_xs", [24] = "i8", [25] = "i16",
    [26] = "i32", [27] = "i64", [28] = "f64", [29] = "iq1_m", [30] = "bf16", [34] = "tq1_0", [35] = "tq2_0", [39] = "mxfp4",
    [40] = "nvfp4", [41] = "q1_0", [42] = "q2_0",
};

const struct ds_type *ds_type_by_gguf(uint32_t gguf_id)
{
    for (int i = 0; i < DS_T_COUNT; i++)
        if (ds_types[i].gguf_id == gguf_id) return &ds_types[i];
    return NULL;
}

static int lower(int c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }

const struct ds_type *ds_type_by_name(const char *name)
{
    for (int i = 0; i < DS_T_COUNT; i++) {
        const char *a = ds_types[i].name, *b = name;
        while (*a && *a == lower((unsigned char)*b)) a++, b++;
        if (!*a && !*b) return &ds_types[i];
    }
    return NULL;
}

const char *ds_type_gguf_name(uint32_t gguf_id)
{
    return gguf_id < sizeof gguf_names / sizeof *gguf_names ? gguf_names[gguf_id] : NULL;
}
