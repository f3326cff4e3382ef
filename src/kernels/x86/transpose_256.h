/* An 8x8 transpose of dwords in registers: lane i of a[j] and lane j of a[i] change places. */
static inline __attribute__((always_inline)) void transpose_8x8(__m256i a[8])
{
    __m256i b[8], c[8];
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        c[i] = _mm256_unpacklo_epi64(b[i], b[i + 2]);
        c[i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 2]);
        c[i + 2] = _mm256_unpacklo_epi64(b[i + 1], b[i + 3]);
        c[i + 3] = _mm256_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    for (int j = 0; j < 4; j++) {
        a[j] = _mm256_permute2x128_si256(c[j], c[j + 4], 0x20);
        a[j + 4] = _mm256_permute2x128_si256(c[j], c[j + 4], 0x31);
    }
}
