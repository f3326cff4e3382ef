/* Types and kernels of the instruction sets that multiply bytes of every type alike. Included after the
 * tiles: tile_q8_0(NT, kind, minima), tile_q8_k(NT, kind, elements per scale, per minimum), tile_f32(NT). */

WIDTHS(k_f32, tile_f32(NT, p, x, acc, len, first))
WIDTHS(k_signed_32, tile_q8_0(NT, kind_of(DS_T_Q8_0), false, p, x, acc, len, first))
WIDTHS(k_min_32, tile_q8_0(NT, kind_of(DS_T_Q4_1), true, p, x, acc, len, first))
#if HAS_PAIRS
WIDTHS(k_q6_k, tile_q6_k(NT, kind_of(DS_T_Q6_K), p, x, acc, len, first))
#else
WIDTHS(k_q6_k, tile_q8_k(NT, kind_of(DS_T_Q6_K), 16, 0, p, x, acc, len, first))
#endif
WIDTHS(k_iq4_xs, tile_q8_k(NT, kind_of(DS_T_IQ4_XS), 32, 0, p, x, acc, len, first))
WIDTHS(k_q4_k, tile_q8_k(NT, kind_of(DS_T_Q4_K), 32, 32, p, x, acc, len, first))
WIDTHS(k_q2_k, tile_q8_k(NT, kind_of(DS_T_Q2_K), 256, 16, p, x, acc, len, first))
WIDTHS(k_q3_k, tile_q8_k(NT, kind_of(DS_T_Q3_K), 256, 0, p, x, acc, len, first))

static struct product product_of(enum ds_type_id id)
{
    switch (id) {
    case DS_T_F32: return (struct product){ unpack_F32, k_f32 };
    case DS_T_F16: return (struct product){ unpack_F16, k_f32 };
    case DS_T_BF16: return (struct product){ unpack_BF16, k_f32 };
    case DS_T_Q8_0: return (struct product){ unpack_Q8_0, k_signed_32 };
    case DS_T_Q4_0: return (struct product){ unpack_Q4_0, k_signed_32 };
    case DS_T_Q5_0: return (struct product){ unpack_Q5_0, k_signed_32 };
    case DS_T_IQ4_NL: return (struct product){ unpack_IQ4_NL, k_signed_32 };
    case DS_T_MXFP4: return (struct product){ unpack_MXFP4, k_signed_32 };
    case DS_T_Q4_1: return (struct product){ unpack_Q4_1, k_min_32 };
    case DS_T_Q5_1: return (struct product){ unpack_Q5_1, k_min_32 };
    case DS_T_Q2_K: return (struct product){ unpack_Q2_K, k_q2_k };
    case DS_T_Q3_K: return (struct product){ unpack_Q3_K, k_q3_k };
    case DS_T_Q4_K: return (struct product){ unpack_Q4_K, k_q4_k };
    case DS_T_Q5_K: return (struct product){ unpack_Q5_K, k_q4_k };
    case DS_T_Q6_K: return (struct product){ unpack_Q6_K, k_q6_k };
    case DS_T_IQ4_XS: return (struct product){ unpack_IQ4_XS, k_iq4_xs };
    default: return (struct product){ 0 };
    }
}
