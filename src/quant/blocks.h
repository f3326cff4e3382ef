/* Byte layouts of the quantised blocks, for C, C++ and CUDA.
 *
 * Source: the GGUF format and ggml's published layouts. The structs are packed, so a pointer into a
 * file at any address may be used. f16 fields hold the bits of an IEEE half, little-endian. Element
 * order inside a block is the order of the matrix row. "lo" and "hi" are bits 0-3 and 4-7 of a byte. */
#ifndef DS_QUANT_BLOCKS_H
#define DS_QUANT_BLOCKS_H

#include <stdint.h>

#define DS_QK 32      /* elements of a small block */
#define DS_QKK 256    /* elements of a K-quant super-block */

#if defined(__cplusplus)
#define DS_BLOCK_SIZE(type, bytes) static_assert(sizeof(struct type) == (bytes), #type)
#else
#define DS_BLOCK_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#endif
#define DS_PACKED __attribute__((packed))

/* y_i = d q_i */
struct DS_PACKED ds_block_q8_0 { uint16_t d; int8_t q[32]; };
DS_BLOCK_SIZE(ds_block_q8_0, 34);

/* y_j = d (lo - 8), y_{j+16} = d (hi - 8), j < 16 */
struct DS_PACKED ds_block_q4_0 { uint16_t d; uint8_t qs[16]; };
DS_BLOCK_SIZE(ds_block_q4_0, 18);

/* y_j = d lo + m, y_{j+16} = d hi + m */
struct DS_PACKED ds_block_q4_1 { uint16_t d, m; uint8_t qs[16]; };
DS_BLOCK_SIZE(ds_block_q4_1, 20);

/* y_e = d (nibble_e + 16 bit_e(qh) - 16), nibbles as in q4_0 */
struct DS_PACKED ds_block_q5_0 { uint16_t d; uint32_t qh; uint8_t qs[16]; };
DS_BLOCK_SIZE(ds_block_q5_0, 22);

/* y_e = d (nibble_e + 16 bit_e(qh)) + m */
struct DS_PACKED ds_block_q5_1 { uint16_t d, m; uint32_t qh; uint8_t qs[16]; };
DS_BLOCK_SIZE(ds_block_q5_1, 24);

/* 16 sub-blocks of 16: y = d (scales & 15) q - dmin (scales >> 4). Element e = 128n + 32k + l: q = (qs[32n + l] >> 2k) & 3 */
struct DS_PACKED ds_block_q2_k { uint8_t scales[16], qs[64]; uint16_t d, dmin; };
DS_BLOCK_SIZE(ds_block_q2_k, 84);

/* 16 sub-blocks of 16: y = d (sc - 32) q; low bits as in q2_k, q is 4 less where bit 4n + k of hmask[l] is clear.
 * sc: low four bits from scales[0..7], high two from scales[8..11]. */
struct DS_PACKED ds_block_q3_k { uint8_t hmask[32], qs[64], scales[12]; uint16_t d; };
DS_BLOCK_SIZE(ds_block_q3_k, 110);

/* 8 sub-blocks of 32: y = d sc q - dmin m. Sub-blocks 2i and 2i+1 are the lo and hi halves of qs[32i..32i+31].
 * scales: eight 6-bit pairs (sc, m), see ds_k4_scale. */
struct DS_PACKED ds_block_q4_k { uint16_t d, dmin; uint8_t scales[12], qs[128]; };
DS_BLOCK_SIZE(ds_block_q4_k, 144);

/* As q4_k; sub-block j's q gains 16 where bit j of qh[l] is set */
struct DS_PACKED ds_block_q5_k { uint16_t d, dmin; uint8_t scales[12], qh[32], qs[128]; };
DS_BLOCK_SIZE(ds_block_q5_k, 176);

/* 16 sub-blocks of 16: y = d scales[e/16] q. Element e = 128n + 32k + l: nibble (k < 2: lo, else hi) of ql[64n + 32(k&1) + l],
 * two more bits from (qh[32n + l] >> 2k) & 3, less 32 */
struct DS_PACKED ds_block_q6_k { uint8_t ql[128], qh[64]; int8_t scales[16]; uint16_t d; };
DS_BLOCK_SIZE(ds_block_q6_k, 210);

/* y_j = d KV[lo], y_{j+16} = d KV[hi], KV = DS_IQ4_VALUES */
struct DS_PACKED ds_block_iq4_nl { uint16_t d; uint8_t qs[16]; };
DS_BLOCK_SIZE(ds_block_iq4_nl, 18);

/* 8 sub-blocks of 32, each as iq4_nl in qs[16i..16i+15] with scale d (ls - 32); ls: four bits from scales_l, two from scales_h */
struct DS_PACKED ds_block_iq4_xs { uint16_t d, scales_h; uint8_t scales_l[4], qs[128]; };
DS_BLOCK_SIZE(ds_block_iq4_xs, 136);

/* y_j = 2^(e-128) KM[lo], y_{j+16} = 2^(e-128) KM[hi], KM = DS_MXFP4_VALUES */
struct DS_PACKED ds_block_mxfp4 { uint8_t e, qs[16]; };
DS_BLOCK_SIZE(ds_block_mxfp4, 17);

/* Activations: q_i of 256, scale in f32, bsums[g] the sum of q[16g..16g+15] */
struct DS_PACKED ds_block_q8_k { float d; int8_t q[256]; int16_t bsums[16]; };
DS_BLOCK_SIZE(ds_block_q8_k, 292);

/* The sixteen levels of IQ4_NL and IQ4_XS, and of MXFP4 (E2M1, doubled). */
#define DS_IQ4_VALUES { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 }
#define DS_MXFP4_VALUES { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 }

/* Scale and minimum of sub-block j = 0..7 from the twelve bytes of q4_k and q5_k. */
static inline void ds_k4_scale(const uint8_t s[12], int j, int *sc, int *m)
{
    if (j < 4) {
        *sc = s[j] & 63;
        *m = s[j + 4] & 63;
    } else {
        *sc = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *m = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    }
}

/* Scale of sub-block j = 0..15 of q3_k, -32..31. */
static inline int ds_q3_scale(const uint8_t s[12], int j)
{
    int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
    return (low | ((s[8 + j % 4] >> (2 * (j / 4))) & 3) << 4) - 32;
}

/* Scale of sub-block j = 0..7 of iq4_xs, -32..31. */
static inline int ds_iq4_xs_scale(const struct ds_block_iq4_xs *b, int j)
{
    return (((b->scales_l[j / 2] >> (4 * (j & 1))) & 15) | ((b->scales_h >> (2 * j)) & 3) << 4) - 32;
}

#endif
