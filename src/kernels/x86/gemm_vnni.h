/* Inner kernels on vpdpbusd, which adds four products of an unsigned and a signed byte to a 32-bit
 * lane. Weights are the unsigned side (signed ones with the top bit flipped: +128, undone by starting
 * the sums at -128 * sum of the activations), sixteen or eight rows side by side; the four bytes of a
 * token are broadcast. RV vectors of rows times NT tokens of sums are in flight.
 *
 * Included after gemm_vec.h. */

/* s[v][t] += integers of J groups of four, weights at q, activations at x. */
INLINE void dot_groups(int NT, int J, VI (*s)[TOKS], const uint8_t *q, const char *x)
{
    UNROLL for (int j = 0; j < J; j++) {
        VI w[RV];
        UNROLL for (int v = 0; v < RV; v++) w[v] = V_LOAD_I(q + 4 * ROWS * j + 4 * LANES * v);
        UNROLL for (int t = 0; t < NT; t++) {
            VI a = bcast_i(x + 4 * NT * j + 4 * t);
            UNROLL for (int v = 0; v < RV; v++) s[v][t] = V_DPBUSD(s[v][t], w[v], a);
        }
    }
}

/* s[v][t] = start[t], or 0. */
INLINE void sums_start(int NT, VI (*s)[TOKS], const char *start)
{
    UNROLL for (int t = 0; t < NT; t++) {
        VI a = start ? bcast_i(start + 4 * t) : V_ZERO_I();
        UNROLL for (int v = 0; v < RV; v++) s[v][t] = a;
    }
}

/* Types with Q8_0 activations: both scales change every 32. */
INLINE void tile_q8_0(int NT, bool flip, bool mins, const struct panel *p, const char *x, float *acc, int len, bool first)
{
    VF y[RV][TOKS];
    UNROLL for (int v = 0; v < RV; v++)
        UNROLL for (int t = 0; t < NT; t++) y[v][t] = first ? V_ZERO_F() : V_LOAD_F(acc + ROWS * t + LANES * v);
    const uint8_t *q = p->q;
    const float *scale = p->scale, *min = p->min;
    for (int b = 0; b < len / 32; b++) {
        VI s[RV][TOKS];
        sums_start(NT, s, flip ? x + 36 * NT : NULL);
        dot_groups(NT, 8, s, q, x);
        UNROLL for (int v = 0; v < RV; v++) {
            VF dw = V_LOAD_F(scale + LANES * v);
            UNROLL for (int t = 0; t < NT; t++)
                y[v][t] = V_FMA(V_CVT(s[v][t]), V_MUL(dw, bcast_f(x + 32 * NT + 4 * t)), y[v][t]);
        }
        if (mins)      /* the packed sum is -128 times the sum */
            UNROLL for (int t = 0; t < NT; t++) {
                VF sx = V_MUL(V_MUL(V_CVT(bcast_i(x + 36 * NT + 4 * t)), V(set1_ps)(-1.0f / 128)), bcast_f(x + 32 * NT + 4 * t));
                UNROLL for (int v = 0; v < RV; v++) y[v][t] = V_FMA(V_LOAD_F(min + LANES * v), sx, y[v][t]);
            }
        q += 32 * ROWS;
        scale += ROWS;
        min += ROWS;
        x += Q8_0_BYTES * NT;
    }
    UNROLL for (int v = 0; v < RV; v++)
        UNROLL for (int t = 0; t < NT; t++) V_STORE_F(acc + ROWS * t + LANES * v, y[v][t]);
}

/* Types with Q8_K activations: one activation scale per 256, one weight scale per `group`; mgroup: elements per minimum or 0. */
INLINE void tile_q8_k(int NT, int group, int mgroup, bool flip, const struct panel *p, const char *x, float *acc, int len, bool first)
{
    const int start_at = group == 16 ? K_S16 : group == 32 ? K_S32 : K_S256;
    const uint8_t *q = p->q;
    const float *scale = p->scale, *min = p->min;
    const int16_t *m = p->m;
    for (int b = 0; b < len / 256; b++) {
        VF y[RV][TOKS];
        UNROLL for (int v = 0; v < RV; v++)
            UNROLL for (int t = 0; t < NT; t++) y[v][t] = V_ZERO_F();
        VI s[RV][TOKS];
        for (int g = 0; g < 256 / group; g++) {
            sums_start(NT, s, flip ? x + start_at * NT + 4 * NT * g : NULL);
            if (group == 16) dot_groups(NT, 4, s, q, x + 16 * NT * g);
            else if (group == 32) dot_groups(NT, 8, s, q, x + 32 * NT * g);
            else
                for (int i = 0; i < 8; i++) dot_groups(NT, 8, s, q + 32 * ROWS * i, x + 32 * NT * i);
            UNROLL for (int v = 0; v < RV; v++) {
                VF dw = V_LOAD_F(scale + LANES * v);
                UNROLL for (int t = 0; t < NT; t++) y[v][t] = V_FMA(V_CVT(s[v][t]), dw, y[v][t]);
            }
            q += group * ROWS;
            scale += ROWS;
        }
        if (mgroup) {
            const int pairs = 128 / mgroup, sums_at = mgroup == 16 ? K_M16 : K_M32;
            sums_start(NT, s, NULL);
            for (int j = 0; j < pairs; j++, m += 2 * ROWS)
                UNROLL for (int t = 0; t < NT; t++)
                    UNROLL for (int v = 0; v < RV; v++)
                        s[v][t] = V_DPWSSD(s[v][t], V_LOAD_I(m + 2 * LANES * v), bcast_i(x + sums_at * NT + 4 * NT * j + 4 * t));
            UNROLL for (int v = 0; v < RV; v++)
                UNROLL for (int t = 0; t < NT; t++) y[v][t] = V_FMA(V_CVT(s[v][t]), V_LOAD_F(min + LANES * v), y[v][t]);
            min += ROWS;
        }
        UNROLL for (int t = 0; t < NT; t++) {
            VF d = bcast_f(x + K_D * NT + 4 * t);
            UNROLL for (int v = 0; v < RV; v++) {
                float *a = acc + ROWS * t + LANES * v;
                V_STORE_F(a, first && b == 0 ? V_MUL(y[v][t], d) : V_FMA(y[v][t], d, V_LOAD_F(a)));
            }
        }
        x += Q8_K_BYTES * NT;
    }
}

WIDTHS(k_signed_32, tile_q8_0(NT, true, false, p, x, acc, len, first))
WIDTHS(k_min_32, tile_q8_0(NT, false, true, p, x, acc, len, first))
WIDTHS(k_q6_k, tile_q8_k(NT, 16, 0, true, p, x, acc, len, first))
WIDTHS(k_iq4_xs, tile_q8_k(NT, 32, 0, true, p, x, acc, len, first))
WIDTHS(k_q4_k, tile_q8_k(NT, 32, 32, false, p, x, acc, len, first))
WIDTHS(k_q2_k, tile_q8_k(NT, 256, 16, false, p, x, acc, len, first))
WIDTHS(k_q3_k, tile_q8_k(NT, 256, 0, true, p, x, acc, len, first))

static struct product product_of(enum ds_type_id id)
{
    switch (id) {
    case DS_T_F32: return (struct product){ unpack_F32, k_f32 };
    case DS_T_F16: return (struct product){ unpack_F16, k_f32 };
    case DS_T_BF16: return (struct product){ unpack_BF16, k_f32 };
    case DS_T_Q8_0: return (struct product){ unpack_Q8_0, k_signed_32 };
    case DS_T_Q4_0: return (struct product){ unpack_Q4_0, k_signed_32 };
    case DS_T_Q5_0: return (struct product){ unpack_Q5_0, k_signed_32 };
    case DS_T_IQ4_NL: return (struct product){ unpack_IQ4_NL, k_signed_32 };
    case DS_T_MXFP4: return (struct product){ unpack_MXFP4, k_signed_32 };
    case DS_T_Q4_1: return (struct product){ unpack_Q4_1, k_min_32 };
    case DS_T_Q5_1: return (struct product){ unpack_Q5_1, k_min_32 };
    case DS_T_Q2_K: return (struct product){ unpack_Q2_K, k_q2_k };
    case DS_T_Q3_K: return (struct product){ unpack_Q3_K, k_q3_k };
    case DS_T_Q4_K: return (struct product){ unpack_Q4_K, k_q4_k };
    case DS_T_Q5_K: return (struct product){ unpack_Q5_K, k_q4_k };
    case DS_T_Q6_K: return (struct product){ unpack_Q6_K, k_q6_k };
    case DS_T_IQ4_XS: return (struct product){ unpack_IQ4_XS, k_iq4_xs };
    default: return (struct product){ 0 };
    }
}
