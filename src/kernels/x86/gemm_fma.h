/* Inner kernel of float weights: LANES rows side by side, a token's element broadcast, one chain of
 * fused multiply-adds per (token, row) over a stretch of KC_F32 elements; the stretches' sums are added
 * to acc. Included after gemm_vec.h. */

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
