/* Float weights in the decode product, and what both forms of it share. Included after gemm_vec.h. */

enum { PREFETCH_AHEAD = 4096 };        /* bytes: some 150 ns at 25 GB/s */

INLINE void prefetch(const char *p, int bytes)
{
    for (int i = 0; i < bytes; i += 64) _mm_prefetch(p + PREFETCH_AHEAD + i, _MM_HINT_NTA);
}

INLINE float sum_8(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

INLINE __m256 widen_8(enum ds_type_id id, const char *w)
{
    if (id == DS_T_F32) return _mm256_loadu_ps((const float *)(const void *)w);
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)w);
    return id == DS_T_F16 ? _mm256_cvtph_ps(h) : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

INLINE float row_float(enum ds_type_id id, const char *w, const float *x, int k)
{
    const int bytes = ds_block_bytes(id);
    __m256 acc[4] = { _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps() };
    int i = 0;
    for (; i + 32 <= k; i += 32, w += 32 * bytes) {
        prefetch(w, 32 * bytes);
        for (int j = 0; j < 4; j++) acc[j] = _mm256_fmadd_ps(widen_8(id, w + 8 * bytes * j), _mm256_loadu_ps(x + i + 8 * j), acc[j]);
    }
    float s = sum_8(_mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3])));
    for (; i < k; i++, w += bytes) {
        uint16_t h;
        memcpy(&h, w, 2);
        s += (id == DS_T_F32 ? load_f(w) : id == DS_T_F16 ? ds_h2f(h) : ds_bf16_to_f32(h)) * x[i];
    }
    return s;
}
