/* Q4_K and Q5_K in the decode product, four blocks at a time: their headers lie in one vector, a block in each
 * 128 bits, and scales and minima are taken apart there together. Included by gemv_512vnni.h. */

/* Activations of four blocks; what a last group lacks is zero. */
struct x_k4 {
    struct { int8_t x[4][64]; } block[4];    /* in the order of the units */
    int16_t sums[4][8];                      /* of 32 elements each */
    float d[4][2], pad[8];                   /* d, -d: for the products with d and dmin */
};

INLINE void prepare_k4(struct x_k4 *o, enum ds_type_id id, const char *x, int k)
{
    const struct order order = order_of(id);
    memset(o, 0, (size_t)(k / 256 + 3) / 4 * sizeof *o);
    for (int b = 0; b < k / 256; b++, x += Q8_K_BYTES) {
        struct x_k4 *g = o + b / 4;
        for (int i = 0; i < 16; i++) memcpy(&g->block[b % 4].x[i / 4][i % 4 * 16], x + 16 * order.unit[i / 4][i % 4], 16);
        memcpy(g->sums[b % 4], x + K_M32, 16);
        g->d[b % 4][0] = load_f(x + K_D);
        g->d[b % 4][1] = -g->d[b % 4][0];
    }
}

/* The first 16 bytes of n <= 4 blocks: d, dmin and 12 bytes of scales and minima. */
INLINE __m512i k4_headers(const char *w, int bytes, int n)
{
    __m512i h = _mm512_zextsi128_si512(LOAD128(w));
    if (n > 1) h = _mm512_inserti32x4(h, LOAD128(w + bytes), 1);
    if (n > 2) h = _mm512_inserti32x4(h, LOAD128(w + 2 * bytes), 2);
    if (n > 3) h = _mm512_inserti32x4(h, LOAD128(w + 3 * bytes), 3);
    return h;
}

/* Per block eight scales and eight minima as bytes. */
INLINE __m512i k4_scales(__m512i header)
{
    const __m512i by1 = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 2, 0, 2)), by2 = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0, 0, 4));
    const __m512i mask1 = _mm512_broadcast_i32x4(_mm_setr_epi32(0x3f3f3f3f, 0x30303030, 0x3f3f3f3f, 0x30303030));
    const __m512i mask2 = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x0f0f0f0f, 0, 0x0f0f0f0f));
    __m512i v = _mm512_srlv_epi32(_mm512_shuffle_epi32(header, 0xa5), by1);             /* bytes 0-3, 0-3, 4-7, 4-7 */
    __m512i last = _mm512_srlv_epi32(_mm512_shuffle_epi32(header, 0xff), by2);
    return _mm512_ternarylogic_epi32(_mm512_and_si512(v, mask1), last, mask2, 0xf8);
}

/* A load that happens once; gcc would rather load again than keep a vector. */
INLINE __m512i once(const uint8_t *p)
{
    __m512i v = LOAD512(p);
    __asm__("" : "+v"(v));
    return v;
}

/* A block's integers as four units. */
INLINE void k4_units(enum ds_type_id id, __m512i u[4], const char *w)
{
    const __m512i low = _mm512_set1_epi8(15), sixteen = _mm512_set1_epi8(16);
    const uint8_t *qs = id == DS_T_Q4_K ? ((const struct ds_block_q4_k *)w)->qs : ((const struct ds_block_q5_k *)w)->qs;
    for (int i = 0; i < 2; i++) {
        const __m512i v = once(qs + 64 * i);
        u[2 * i] = _mm512_and_si512(v, low);
        u[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
    }
    if (id == DS_T_Q4_K) return;
    /* bits j and j + 2 of qh for the two halves of a unit */
    const __m512i h = _mm512_srlv_epi64(_mm512_broadcast_i64x4(LOAD256(((const struct ds_block_q5_k *)w)->qh)), _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2));
    const __m512i bit[4] = { _mm512_slli_epi16(h, 4), _mm512_slli_epi16(h, 3), h, _mm512_srli_epi16(h, 1) };
    for (int i = 0; i < 4; i++) u[i] = _mm512_ternarylogic_epi32(u[i], bit[i], sixteen, 0xf8);
}

/* Sums of both sub-blocks that share a unit's bytes, in the halves of each lane: at most 4 * 31 * 127. */
INLINE __m512i k4_pair(__m512i even, __m512i odd, const int8_t x[2][64])
{
    const __m512i zero = _mm512_setzero_si512();
    const __m512i a = _mm512_dpbusd_epi32(zero, even, LOAD512(x[0])), b = _mm512_dpbusd_epi32(zero, odd, LOAD512(x[1]));
    return _mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_slli_epi32(b, 16));
}

/* Dwords i and i + 1 of a vector, one in each half. */
INLINE __m512i k4_halves(__m512i v, int i)
{
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(i, i, i, i, i, i, i, i, i + 1, i + 1, i + 1, i + 1, i + 1, i + 1, i + 1, i + 1), v);
}

/* Adds the products of n <= 4 blocks to acc and those of their minima to mins. */
INLINE void add_k4(enum ds_type_id id, const char *w, const struct x_k4 *x, int n, __m512 *acc, __m512 *mins)
{
    const int bytes = ds_block_bytes(id);
    const __m512i header = k4_headers(w, bytes, n), scales = k4_scales(header), zero = _mm512_setzero_si512();
    const __m512i sc = _mm512_unpacklo_epi8(scales, zero), m = _mm512_unpackhi_epi8(scales, zero);
    const __m512i halves = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), header);
    const __m256 dm = _mm256_mul_ps(_mm256_cvtph_ps(_mm512_castsi512_si128(halves)), _mm256_loadu_ps(x->d[0]));
    _Alignas(32) float d[8];
    _mm256_store_ps(d, dm);
    __asm__("" : "+m"(d));                   /* read back one by one: a broadcast from memory costs no shuffle */
    prefetch(w, n * bytes);
    _mm_prefetch(w + 4 * PREFETCH_AHEAD, _MM_HINT_T1);      /* four pages on, so that the walk to the page is done early */
    *mins = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_madd_epi16(m, LOAD512(x->sums))),
                            _mm512_permutexvar_ps(_mm512_setr_epi32(1, 1, 1, 1, 3, 3, 3, 3, 5, 5, 5, 5, 7, 7, 7, 7), _mm512_castps256_ps512(dm)), *mins);
    for (int b = 0; b < n; b++) {
        __m512i u[4], sum = zero;
        k4_units(id, u, w + b * bytes);
        for (int i = 0; i < 2; i++)
            sum = _mm512_dpwssd_epi32(sum, k4_pair(u[2 * i], u[2 * i + 1], &x->block[b].x[2 * i]), k4_halves(sc, 4 * b + 2 * i));
        *acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(d[2 * b]), *acc);
    }
}

INLINE float row_k4(enum ds_type_id id, const char *w, const char *prepared, int k)
{
    const struct x_k4 *x = (const struct x_k4 *)(const void *)prepared;
    __m512 acc = _mm512_setzero_ps(), mins = acc;
    int left = k / 256;
    for (; left >= 4; left -= 4, w += 4 * ds_block_bytes(id), x++) add_k4(id, w, x, 4, &acc, &mins);
    if (left == 3) add_k4(id, w, x, 3, &acc, &mins);
    else if (left == 2) add_k4(id, w, x, 2, &acc, &mins);
    else if (left == 1) add_k4(id, w, x, 1, &acc, &mins);
    return _mm512_reduce_add_ps(_mm512_add_ps(acc, mins));
}
