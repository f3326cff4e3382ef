/* Inner kernel of float weights: LANES rows side by side, a token's element broadcast, one chain of
 * fused multiply-adds per (token, row) over a stretch of KC_F32 elements; the stretches' sums are added
 * to acc. F16 and BF16 weights become f32 as the panel is filled. Included after gemm_vec.h. */

INLINE void unpack_float(enum ds_type_id id, const struct panel *p, const char *src, size_t stride, int rows, int len)
{
    float *q = (float *)p->q, *linear = (float *)p->rows;
    const int bytes = id == DS_T_F32 ? 4 : 2;
    for (int i = 0; i < len; i += LANES)
        for (int r = 0; r < rows; r += LANES) {
            for (int l = 0; l < LANES; l++) {
                if (r + l < rows) widen(linear + l * LANES, id, src + stride * (size_t)(r + l) + (size_t)i * (size_t)bytes, len - i);
                else memset(linear + l * LANES, 0, LANES * 4);
            }
            transpose_f32(q + i * ROWS + r, linear);
        }
}

static void unpack_F32(const struct panel *p, const char *src, size_t stride, int rows, int len) { unpack_float(DS_T_F32, p, src, stride, rows, len); }
static void unpack_F16(const struct panel *p, const char *src, size_t stride, int rows, int len) { unpack_float(DS_T_F16, p, src, stride, rows, len); }
static void unpack_BF16(const struct panel *p, const char *src, size_t stride, int rows, int len) { unpack_float(DS_T_BF16, p, src, stride, rows, len); }

INLINE void tile_f32(int NT, const struct panel *p, const char *x, float *acc, int len, bool first)
{
    VF y[RV][TOKS];
    UNROLL for (int v = 0; v < RV; v++)
        UNROLL for (int t = 0; t < NT; t++) y[v][t] = V_ZERO_F();
    const float *q = (const float *)p->q;
    for (int i = 0; i < len; i++, q += ROWS, x += 4 * NT) {
        VF w[RV];
        UNROLL for (int v = 0; v < RV; v++) w[v] = V_LOAD_F(q + LANES * v);
        UNROLL for (int t = 0; t < NT; t++) {
            VF a = bcast_f(x + 4 * t);
            UNROLL for (int v = 0; v < RV; v++) y[v][t] = V_FMA(w[v], a, y[v][t]);
        }
    }
    UNROLL for (int v = 0; v < RV; v++)
        UNROLL for (int t = 0; t < NT; t++) {
            float *a = acc + ROWS * t + LANES * v;
            V_STORE_F(a, first ? y[v][t] : V_ADD(y[v][t], V_LOAD_F(a)));
        }
}

WIDTHS(k_f32, tile_f32(NT, p, x, acc, len, first))
