/* Inner kernels of integer weights, around the dot product of an instruction set: LANES rows side by
 * side in a vector, four elements of a row in a lane, a token's four elements broadcast. RV vectors of
 * rows times NT tokens of sums are in flight; their scales are applied in f32.
 *
 * The including file has defined, on s[RV][TOKS] 32-bit sums,
 *     sums_start(NT, kind, s, minus)       s = 0
 *     dot_groups(NT, J, kind, s, q, x)     s += products of J groups of four
 *     sums_end(NT, kind, s, minus)         one of the two undoes the bias; minus: -128 * sum of each token's elements
 *     V_DPWSSD                             products of pairs of int16 added to 32 bits */

/* The integers of a tile as int16, in the same order: `blocks` stretches of n bytes that lie `step` apart. */
INLINE const char *widen_tile(const struct panel *p, const char *x, int n, int step, int blocks)
{
    int16_t *to = p->x;
    for (int b = 0; b < blocks; b++, x += step)
        for (int i = 0; i < n; i += 16, to += 16)
            _mm256_store_si256((__m256i *)to, _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(x + i))));
    return (const char *)p->x;
}

/* The share i of n of a block's activations FAR bytes on: a thousand ticks, which is what L3 takes when others use it too. */
enum { FAR = 4096 };
INLINE void fetch_far(const struct panel *p, const char *x, int bytes, int i, int n)
{
    if (!p->far) return;
    for (int j = 0; j < (bytes / n + 63) / 64; j++) __builtin_prefetch(x + FAR + i * (bytes / n) + 64 * j, 0, 3);
}

/* Types with Q8_0 activations: both scales change every 32. */
INLINE void tile_q8_0(int NT, struct dot_kind kind, bool mins, const struct panel *p, const char *x, float *acc, int len, bool first)
{
    VF y[RV][TOKS];
    UNROLL for (int v = 0; v < RV; v++)
        UNROLL for (int t = 0; t < NT; t++) y[v][t] = first ? V_ZERO_F() : V_LOAD_F(acc + ROWS * t + LANES * v);
    const int width = kind.wide ? 2 : 1;
    const char *xi = kind.wide ? widen_tile(p, x, 32 * NT, Q8_0_BYTES * NT, len / 32) : x;
    const uint8_t *q = p->q;
    const float *scale = p->scale, *min = p->min;
    for (int b = 0; b < len / 32; b++) {
        VI s[RV][TOKS];
        fetch_far(p, x, Q8_0_BYTES * NT, 0, 1);
        sums_start(NT, kind, s, x + 36 * NT);
        dot_groups(NT, 8, kind, s, q, xi);
        sums_end(NT, kind, s, x + 36 * NT);
        UNROLL for (int v = 0; v < RV; v++) {
            VF dw = V_LOAD_F(scale + LANES * v);
            UNROLL for (int t = 0; t < NT; t++) {
                VF dx = bcast_f(x + 32 * NT + 4 * t);
                if (mins) {
                    VF m = V_MUL(V_LOAD_F(min + LANES * v), V_CVT(bcast_i(x + 36 * NT + 4 * t)));
                    y[v][t] = V_FMA(V_FMA(V_CVT(s[v][t]), dw, m), dx, y[v][t]);
                } else y[v][t] = V_FMA(V_CVT(s[v][t]), V_MUL(dw, dx), y[v][t]);
            }
        }
        q += 32 * ROWS * width;
        xi += kind.wide ? 64 * NT : Q8_0_BYTES * NT;
        x += Q8_0_BYTES * NT;
        scale += ROWS;
        min += ROWS;
    }
    UNROLL for (int v = 0; v < RV; v++)
        UNROLL for (int t = 0; t < NT; t++) V_STORE_F(acc + ROWS * t + LANES * v, y[v][t]);
}

/* Types with Q8_K activations: one activation scale per 256, one weight scale per `group`; mgroup: elements per minimum or 0. */
INLINE void tile_q8_k(int NT, struct dot_kind kind, int group, int mgroup, const struct panel *p, const char *x, float *acc, int len, bool first)
{
    const int sums_at = group == 16 ? K_S16 : group == 32 ? K_S32 : K_S256;
    const int width = kind.wide ? 2 : 1;
    const char *xi = kind.wide ? widen_tile(p, x, 256 * NT, Q8_K_BYTES * NT, len / 256) : x;
    const uint8_t *q = p->q;
    const float *scale = p->scale, *min = p->min;
    const int16_t *m = p->m;
    for (int b = 0; b < len / 256; b++) {
        VF y[RV][TOKS];
        UNROLL for (int v = 0; v < RV; v++)
            UNROLL for (int t = 0; t < NT; t++) y[v][t] = V_ZERO_F();
        VI s[RV][TOKS];
        for (int g = 0; g < 256 / group; g++) {
            sums_start(NT, kind, s, x + sums_at * NT + 4 * NT * g);
            if (group < 256) fetch_far(p, x, Q8_K_BYTES * NT, g, 256 / group);
            if (group == 16) dot_groups(NT, 4, kind, s, q, xi + 16 * NT * width * g);
            else if (group == 32) dot_groups(NT, 8, kind, s, q, xi + 32 * NT * width * g);
            else
                for (int i = 0; i < 8; i++) {
                    fetch_far(p, x, Q8_K_BYTES * NT, i, 8);
                    dot_groups(NT, 8, kind, s, q + 32 * ROWS * width * i, xi + 32 * NT * width * i);
                }
            sums_end(NT, kind, s, x + sums_at * NT + 4 * NT * g);
            UNROLL for (int v = 0; v < RV; v++) {
                VF dw = V_LOAD_F(scale + LANES * v);
                UNROLL for (int t = 0; t < NT; t++) y[v][t] = V_FMA(V_CVT(s[v][t]), dw, y[v][t]);
            }
            q += group * ROWS * width;
            scale += ROWS;
        }
        if (mgroup) {
            const int pairs = 128 / mgroup, m_sums_at = mgroup == 16 ? K_M16 : K_M32;
            UNROLL for (int v = 0; v < RV; v++)
                UNROLL for (int t = 0; t < NT; t++) s[v][t] = V_ZERO_I();
            for (int j = 0; j < pairs; j++, m += 2 * ROWS)
                UNROLL for (int t = 0; t < NT; t++)
                    UNROLL for (int v = 0; v < RV; v++)
                        s[v][t] = V_DPWSSD(s[v][t], V_LOAD_I(m + 2 * LANES * v), bcast_i(x + m_sums_at * NT + 4 * NT * j + 4 * t));
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
        xi += kind.wide ? 512 * NT : Q8_K_BYTES * NT;
    }
}
