/* Rows to columns with 256-bit shuffles. */

/* Eight rows of eight dwords: q[step j + 4 row] = dword j < n of a row. */
static inline void store_transposed(uint8_t *q, int step, __m256i *a, int n)
{
    transpose_8x8(a);
    for (int j = 0; j < n; j++) _mm256_store_si256((__m256i *)(q + step * j), a[j]);
}

static inline void transpose_dwords(void *to, const void *rows, int stride, int n)
{
    for (int j = 0; j < n; j += 8)
        for (int r = 0; r < ROWS; r += 8) {
            __m256i a[8];
            for (int i = 0; i < 8; i++) a[i] = _mm256_load_si256((const __m256i *)(const void *)((const char *)rows + stride * (r + i) + 4 * j));
            store_transposed((uint8_t *)to + 4 * (ROWS * j + r), 4 * ROWS, a, n < 8 ? n : 8);
        }
}

static inline void transpose_32(uint8_t *q, const int8_t *rows, int bias)
{
    for (int r = 0; r < ROWS; r += 8) {
        __m256i a[8];
        for (int i = 0; i < 8; i++) a[i] = _mm256_add_epi8(_mm256_load_si256((const __m256i *)(rows + 256 * (r + i))), _mm256_set1_epi8((char)bias));
        store_transposed(q + 4 * r, 4 * ROWS, a, 8);
    }
}

static inline void transpose_32_wide(int16_t *q, const int8_t *rows)
{
    for (int h = 0; h < 2; h++)
        for (int r = 0; r < ROWS; r += 8) {
            __m256i a[8];
            for (int i = 0; i < 8; i++) a[i] = _mm256_cvtepi8_epi16(_mm_load_si128((const __m128i *)(rows + 256 * (r + i) + 16 * h)));
            store_transposed((uint8_t *)(q + 16 * h * ROWS + 2 * r), 4 * ROWS, a, 8);
        }
}

/* LANES elements of a row as f32, zeros past `left`. */
static inline void widen(float *dst, enum ds_type_id id, const char *src, int left)
{
    _Alignas(32) char last[32] = { 0 };
    if (left < LANES) {
        memcpy(last, src, (size_t)left * (id == DS_T_F32 ? 4 : 2));
        src = last;
    }
    if (id == DS_T_F32) memcpy(dst, src, 32);
    else {
        __m128i h = _mm_loadu_si128((const __m128i *)(const void *)src);
        _mm256_store_ps(dst, id == DS_T_F16 ? _mm256_cvtph_ps(h) : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)));
    }
}

/* q[i * ROWS + row] = rows[row * 8 + i]. */
static inline void transpose_f32(float *q, const float *rows)
{
    __m256i a[8];
    for (int i = 0; i < 8; i++) a[i] = _mm256_load_si256((const __m256i *)(const void *)(rows + 8 * i));
    store_transposed((uint8_t *)q, 4 * ROWS, a, 8);
}
