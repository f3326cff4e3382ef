/* Rows to columns with 512-bit shuffles. */

/* Sixteen rows of eight dwords, two rows to a vector (rows i and i + 4, so that an 8x8 transpose in four
 * lanes ends as rows 0-3 | 4-7 | 8-11 | 12-15): q[step j + 4 row] = dword j < n of a row, n = 4 or 8. */
static inline void transpose_16x8(uint8_t *q, int step, const __m512i *a, int n)
{
    __m512i b[8], c[8];
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        c[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
        c[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
        c[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
        c[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    for (int j = 0; j < 4; j++) {
        _mm512_store_si512(q + step * j, _mm512_shuffle_i32x4(c[j], c[j + 4], 0x88));
        if (n == 8) _mm512_store_si512(q + step * (j + 4), _mm512_shuffle_i32x4(c[j], c[j + 4], 0xdd));
    }
}

/* 32 bytes at p and at p + apart. */
static inline __m512i two_rows(const void *p, int apart)
{
    const char *b = p;
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_load_si256((const __m256i *)(const void *)b)),
                              _mm256_load_si256((const __m256i *)(const void *)(b + apart)), 1);
}

static inline void transpose_dwords(void *to, const void *rows, int stride, int n)
{
    for (int j = 0; j < n; j += 8)
        for (int r = 0; r < ROWS; r += 16) {
            __m512i a[8];
            for (int i = 0; i < 8; i++) a[i] = two_rows((const char *)rows + stride * (r + (i < 4 ? i : i + 4)) + 4 * j, 4 * stride);
            transpose_16x8((uint8_t *)to + 4 * (ROWS * j + r), 4 * ROWS, a, n < 8 ? n : 8);
        }
}

static inline void transpose_32(uint8_t *q, const int8_t *rows, int bias)
{
    for (int r = 0; r < ROWS; r += 16) {
        __m512i a[8];
        for (int i = 0; i < 8; i++) a[i] = _mm512_add_epi8(two_rows(rows + 256 * (r + (i < 4 ? i : i + 4)), 4 * 256), _mm512_set1_epi8((char)bias));
        transpose_16x8(q + 4 * r, 4 * ROWS, a, 8);
    }
}

static inline void transpose_32_wide(int16_t *q, const int8_t *rows)
{
    for (int h = 0; h < 2; h++)
        for (int r = 0; r < ROWS; r += 16) {
            __m512i a[8];
            for (int i = 0; i < 8; i++) {
                const int8_t *at = rows + 256 * (r + (i < 4 ? i : i + 4)) + 16 * h;
                __m128i lo = _mm_load_si128((const __m128i *)at), hi = _mm_load_si128((const __m128i *)(at + 4 * 256));
                a[i] = _mm512_cvtepi8_epi16(_mm256_inserti128_si256(_mm256_castsi128_si256(lo), hi, 1));
            }
            transpose_16x8((uint8_t *)(q + 16 * h * ROWS + 2 * r), 4 * ROWS, a, 8);
        }
}

/* LANES elements of a row as f32, zeros past `left`. */
static inline void widen(float *dst, enum ds_type_id id, const char *src, int left)
{
    __mmask16 m = left >= 16 ? 0xffff : (__mmask16)((1u << left) - 1);
    if (id == DS_T_F32) _mm512_store_ps(dst, _mm512_maskz_loadu_ps(m, src));
    else {
        __m256i h = _mm256_maskz_loadu_epi16(m, src);
        _mm512_store_ps(dst, id == DS_T_F16 ? _mm512_cvtph_ps(h) : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)));
    }
}

/* q[i * ROWS + row] = rows[row * 16 + i]. */
static inline void transpose_f32(float *q, const float *rows)
{
    __m512 a[16], b[16];
    for (int i = 0; i < 16; i++) a[i] = _mm512_load_ps(rows + 16 * i);
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)        /* a[i+j]: column j of each four, rows i..i+3 */
        for (int j = 0; j < 2; j++) {
            __m512d lo = _mm512_castps_pd(b[i + j]), hi = _mm512_castps_pd(b[i + 2 + j]);
            a[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(lo, hi));
            a[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(lo, hi));
        }
    for (int j = 0; j < 4; j++) {
        __m512 lo02 = _mm512_shuffle_f32x4(a[j], a[4 + j], 0x88), lo13 = _mm512_shuffle_f32x4(a[j], a[4 + j], 0xdd);
        __m512 hi02 = _mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0x88), hi13 = _mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0xdd);
        _mm512_store_ps(q + ROWS * j, _mm512_shuffle_f32x4(lo02, hi02, 0x88));
        _mm512_store_ps(q + ROWS * (4 + j), _mm512_shuffle_f32x4(lo13, hi13, 0x88));
        _mm512_store_ps(q + ROWS * (8 + j), _mm512_shuffle_f32x4(lo02, hi02, 0xdd));
        _mm512_store_ps(q + ROWS * (12 + j), _mm512_shuffle_f32x4(lo13, hi13, 0xdd));
    }
}
