/* Q6_K with its sub-scales as integers: two sums of sixteen products share a 32-bit lane as int16 and meet both sub-scales in one vpdpwssd,
 * instead of a multiply-add in f32 each. The first sum is moved up by 16 bits and the second is added onto it by vpdpbusd, biased so
 * that it borrows nothing. Shift, bias and the exclusive or that undoes it leave the ports of the products alone.
 *
 * A sum fits int16 where the magnitudes of a token's sixteen integers add up to less than 2^15 / 32. Blocks where that is not so for a
 * token of the tile take the other way to the same integers. Included after gemm_int.h. */

enum { MOST_MAGNITUDES = 32767 / 32 };

/* Two groups of sixteen: y += both sums times their sub-scales m; q and x at the first, minus and minus + 4 NT: -128 * the sums of x. */
INLINE void two_groups(int NT, struct dot_kind kind, bool fit, VI (*y)[TOKS], const uint8_t *q, const char *x, const char *minus, const int16_t *m)
{
    VI s[RV][TOKS];
    sums_start(NT, kind, s, minus);
    dot_groups(NT, 4, kind, s, q, x);
    UNROLL for (int t = 0; t < NT; t++) {
        const VI start = bcast_i(minus + 4 * NT + 4 * t), biased = _mm512_add_epi32(start, _mm512_set1_epi32(0x8000));
        UNROLL for (int v = 0; v < RV; v++) {
            if (fit) s[v][t] = _mm512_add_epi32(_mm512_slli_epi32(s[v][t], 16), biased);
            else {
                const VI first = _mm512_srai_epi32(V_LOAD_I(m + 2 * LANES * v), 16);
                y[v][t] = _mm512_add_epi32(y[v][t], _mm512_mullo_epi32(s[v][t], first));
                s[v][t] = start;
            }
        }
    }
    dot_groups(NT, 4, kind, s, q + 16 * ROWS, x + 16 * NT);
    UNROLL for (int v = 0; v < RV; v++) {
        const VI both = V_LOAD_I(m + 2 * LANES * v), second = _mm512_srai_epi32(_mm512_slli_epi32(both, 16), 16);
        UNROLL for (int t = 0; t < NT; t++) {
            if (fit) y[v][t] = V_DPWSSD(y[v][t], _mm512_xor_si512(s[v][t], _mm512_set1_epi32(0x8000)), both);
            else y[v][t] = _mm512_add_epi32(y[v][t], _mm512_mullo_epi32(s[v][t], second));
        }
    }
}

/* One block of 256: its integers into y. */
INLINE void block_q6_k(int NT, struct dot_kind kind, bool fit, const struct panel *p, const char *x, float *acc, bool first)
{
    const uint8_t *q = p->q;
    const int16_t *m = p->m;
    VI y[RV][TOKS];
    UNROLL for (int v = 0; v < RV; v++)
        UNROLL for (int t = 0; t < NT; t++) y[v][t] = V_ZERO_I();
    for (int g = 0; g < 16; g += 2, q += 32 * ROWS, m += 2 * ROWS) {
        fetch_far(p, x, Q8_K_BYTES * NT, g / 2, 8);
        two_groups(NT, kind, fit, y, q, x + 16 * NT * g, x + K_S16 * NT + 4 * NT * g, m);
    }
    UNROLL for (int t = 0; t < NT; t++) {
        const VF dx = bcast_f(x + K_D * NT + 4 * t);
        UNROLL for (int v = 0; v < RV; v++) {
            float *a = acc + ROWS * t + LANES * v;
            const VF z = V_MUL(V_CVT(y[v][t]), V_LOAD_F(p->min + LANES * v));
            V_STORE_F(a, first ? V_MUL(z, dx) : V_FMA(z, dx, V_LOAD_F(a)));
        }
    }
}

/* A block whose sums need not fit, in a function of its own: beside the other it would cost that one its registers. */
WIDTHS(q6_k_wide, (void)len; block_q6_k(NT, kind_of(DS_T_Q6_K), false, p, x, acc, first))

INLINE void tile_q6_k(int NT, struct dot_kind kind, const struct panel *p, const char *x, float *acc, int len, bool first)
{
    struct panel at = *p;
    for (int b = 0; b < len / 256; b++, x += Q8_K_BYTES * NT) {
        bool fit = true;
        for (int t = 0; t < NT; t++) fit = fit && load_i(x + K_A16 * NT + 4 * t) <= MOST_MAGNITUDES;
        if (fit) block_q6_k(NT, kind, true, &at, x, acc, first && b == 0);
        else q6_k_wide[NT - 1](&at, x, acc, 256, first && b == 0);
        at.q += 256 * ROWS;
        at.m += 16 * ROWS;
        at.min += ROWS;
    }
}
