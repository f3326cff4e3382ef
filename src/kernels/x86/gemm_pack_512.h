/* Q8_0 activations of a whole tile with 512-bit vectors: the maxima of sixteen blocks are reduced together and
 * their scales computed in lanes; each token's integers then pass through memory once, and three
 * vectors of two tokens each become a block of the tile. Same numbers as gemm_pack_256.h, which is included before. */

/* Sixteen vectors of magnitudes as bits: lane i gets the largest of a[i]. */
INLINE __m512i tops_16(const __m512i a[16])
{
    __m512i b[8], c[4], d[2];
    for (int i = 0; i < 8; i++) b[i] = _mm512_max_epi32(_mm512_unpacklo_epi32(a[2 * i], a[2 * i + 1]), _mm512_unpackhi_epi32(a[2 * i], a[2 * i + 1]));
    for (int i = 0; i < 4; i++) c[i] = _mm512_max_epi32(_mm512_unpacklo_epi64(b[2 * i], b[2 * i + 1]), _mm512_unpackhi_epi64(b[2 * i], b[2 * i + 1]));
    for (int i = 0; i < 2; i++)
        d[i] = _mm512_max_epi32(_mm512_shuffle_i32x4(c[2 * i], c[2 * i + 1], 0x88), _mm512_shuffle_i32x4(c[2 * i], c[2 * i + 1], 0xdd));
    return _mm512_max_epi32(_mm512_shuffle_i32x4(d[0], d[1], 0x88), _mm512_shuffle_i32x4(d[0], d[1], 0xdd));
}

/* 32 elements times an inverse scale, half away from zero (see quantise_32). */
INLINE void scaled_512(int8_t *q, const float *x, float inverse)
{
    const __m512i sign = _mm512_set1_epi32((int)0x80000000u), half = _mm512_castps_si512(_mm512_set1_ps(0.49999997f));
    for (int i = 0; i < 32; i += 16) {
        __m512 y = _mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(inverse));
        __m512i nudge = _mm512_ternarylogic_epi32(half, _mm512_castps_si512(y), sign, 0xf8);        /* half | (y & sign) */
        __m512i v = _mm512_cvttps_epi32(_mm512_add_ps(y, _mm512_castsi512_ps(nudge)));
        _mm_store_si128((__m128i *)(void *)(q + i), _mm512_cvtsepi32_epi8(v));
    }
}

/* n <= 16 blocks of a token: their integers and scales. */
INLINE void quantise_blocks(int8_t *q, float *d, const float *x, int n)
{
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    __m512i most[16];
    for (int b = 0; b < 16; b++) {
        const float *at = x + 32 * (b < n ? b : n - 1);
        most[b] = _mm512_max_epi32(_mm512_and_si512(mask, _mm512_loadu_si512(at)), _mm512_and_si512(mask, _mm512_loadu_si512(at + 16)));
    }
    const __m512i top = tops_16(most);
    const __m512 exact = _mm512_div_ps(_mm512_castsi512_ps(top), _mm512_set1_ps(127));
    const bool plain = !_mm512_cmp_epi32_mask(top, _mm512_set1_epi32(0x7f800000), _MM_CMPINT_NLT) &&
                       !_mm512_cmp_ps_mask(exact, _mm512_set1_ps(1.17549435e-38f), _CMP_LT_OQ);
    if (!plain) {
        for (int b = 0; b < n; b++) _mm256_store_si256((__m256i *)(void *)(q + 32 * b), quantise_32(x + 32 * b, d + b));
        return;
    }
    _Alignas(64) float inverse[16];
    _mm512_store_ps(inverse, _mm512_div_ps(_mm512_set1_ps(1), exact));
    _mm512_storeu_ps(d, _mm512_cvtph_ps(_mm512_cvtps_ph(exact, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)));
    for (int b = 0; b < n; b++) scaled_512(q + 32 * b, x + 32 * b, inverse[b]);
}

/* One block of six tokens whose integers lie KC apart: dwords of the tokens side by side, and -128 times their sums. */
INLINE void six_side_by_side(char *dst, const int8_t *q)
{
    static const int32_t from01[3][16] = {     /* dword 6 j + t of the block: dword j of token t; tokens 0, 1 | 2, 3 */
        { 0, 8, 16, 24, 0, 0, 1, 9, 17, 25, 0, 0, 2, 10, 18, 26 },
        { 0, 0, 3, 11, 19, 27, 0, 0, 4, 12, 20, 28, 0, 0, 5, 13 },
        { 21, 29, 0, 0, 6, 14, 22, 30, 0, 0, 7, 15, 23, 31, 0, 0 } };
    static const int32_t from2[3][16] = {      /* tokens 4, 5 */
        { 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 1, 9 },
        { 2, 10, 0, 0, 0, 0, 3, 11, 0, 0, 0, 0, 4, 12 },
        { 0, 0, 5, 13, 0, 0, 0, 0, 6, 14, 0, 0, 0, 0, 7, 15 } };
    static const uint16_t is2[3] = { 0x0c30, 0x30c3, 0xc30c };
    __m512i z[3], p[3];
    for (int i = 0; i < 3; i++) z[i] = two_rows(q + 2 * KC * i, KC);
    for (int i = 0; i < 3; i++) {
        __m512i v = _mm512_permutex2var_epi32(z[0], _mm512_loadu_si512(from01[i]), z[1]);
        _mm512_storeu_si512(dst + 64 * i, _mm512_mask_permutexvar_epi32(v, is2[i], _mm512_loadu_si512(from2[i]), z[2]));
        p[i] = _mm512_madd_epi16(_mm512_maddubs_epi16(_mm512_set1_epi8(1), z[i]), _mm512_set1_epi16(1));
    }
    /* per 128 bits: sums of tokens 0, 2, 4 (4) | the same | of 1, 3, 5 (5) | the same; then halves added */
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(p[0], p[1]), _mm512_unpackhi_epi32(p[0], p[1]));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(p[2], p[2]), _mm512_unpackhi_epi32(p[2], p[2]));
    __m512i c = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    c = _mm512_slli_epi32(_mm512_add_epi32(c, _mm512_shuffle_i32x4(c, c, 0xb1)), 7);
    c = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 8, 1, 9, 2, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), c));
    _mm512_mask_storeu_epi32(dst + 36 * TOKS, 0x3f, c);
}

static void pack_six_q8_0(char *dst, const float *const x[8], int len)
{
    _Alignas(64) int8_t q[TOKS][KC];
    _Alignas(64) float d[TOKS][KC / 32];
    const int blocks = len / 32;
    for (int t = 0; t < TOKS; t++)
        for (int b = 0; b < blocks; b += 16) {
            /* two tokens on: rows are longer than what hardware prefetchers follow */
            const char *ahead = (const char *)((t + 2 < TOKS ? x[t + 2] : x[t - 4] + KC) + 32 * b);
            for (int i = 0; i < 16 * 128; i += 64) __builtin_prefetch(ahead + i);
            quantise_blocks(q[t] + 32 * b, d[t] + b, x[t] + 32 * b, min_int(16, blocks - b));
        }
    for (int b = 0; b < blocks; b++, dst += Q8_0_BYTES * TOKS) {
        six_side_by_side(dst, q[0] + 32 * b);
        for (int t = 0; t < TOKS; t++) memcpy(dst + 32 * TOKS + 4 * t, &d[t][b], 4);
    }
}
