/* Panels of float weights: [k][ROWS] f32, filled LANES elements at a time. Included after gemm_tile.h. */

/* LANES elements of a row as f32, zeros past `left`. */
static inline void widen(float *dst, enum ds_type_id id, const char *src, int left);
/* q[i * ROWS + row] = rows[row * LANES + i] for LANES x LANES numbers. */
static inline void transpose_f32(float *q, const float *rows);

INLINE void unpack_float(enum ds_type_id id, const struct panel *p, const char *src, size_t stride, int rows, int len)
{
    float *q = (float *)p->q, *linear = (float *)p->rows;
    const int bytes = id == DS_T_F32 ? 4 : 2;
    for (int i = 0; i < len; i += LANES)
        for (int r = 0; r < rows; r += LANES) {
            for (int l = 0; l < LANES; l++) {
                if (r + l < rows) widen(linear + l * LANES, id, src + stride * (size_t)(r + l) + (size_t)i * (size_t)bytes, len - i);
                else memset(linear + l * LANES, 0, LANES * 4);
                if (p->ahead) fetch(p->ahead + stride * (size_t)(r + l) + (size_t)i * (size_t)bytes, LANES * bytes);
            }
            transpose_f32(q + i * ROWS + r, linear);
        }
}

static void unpack_F32(const struct panel *p, const char *src, size_t stride, int rows, int len) { unpack_float(DS_T_F32, p, src, stride, rows, len); }
static void unpack_F16(const struct panel *p, const char *src, size_t stride, int rows, int len) { unpack_float(DS_T_F16, p, src, stride, rows, len); }
static void unpack_BF16(const struct panel *p, const char *src, size_t stride, int rows, int len) { unpack_float(DS_T_BF16, p, src, stride, rows, len); }
