/* The tiled product around the inner kernels of an instruction set.
 *
 * A panel is ROWS weight rows, unpacked KC input elements at a time into L1-sized scratch; a tile is
 * TOKS tokens. For each panel and each stretch of KC, every tile meets the unpacked weights; its sums
 * wait in `acc` (f32, L2) for the next stretch. So weights are unpacked once per call, stay in L1
 * while they are used, and activations stream past them.
 *
 *     panel   q      [k/4][ROWS][4]   integers as bytes, plus the bias that the kernel wants; or [k/2][ROWS][2] as int16
 *             scale  [k/group][ROWS]  min [k/chunk][ROWS]  m [k/mgroup/2][ROWS][2]
 *     acc     [tile][TOKS][ROWS]
 *
 * Packed activations, for each stretch of KC elements, for each tile of w tokens (the last tile is
 * narrower, never padded), for each block:
 *     Q8_0    q [8][w][4]   d [w]   -128 * sum of q [w]                                   32 elements
 *     Q8_K    q [64][w][4]  d [w]   -128 * sums of 256, of 32 [8][w], of 16 [16][w]
 *             sums of 32 [4][w][2], of 16 [8][w][2] as int16
 *             largest sum of magnitudes of 16 [w], on x86 alone                           256 elements
 *     F32     x [k][w]
 *
 * For one (token, row) the order of operations depends on nothing but k. Included by one file per
 * instruction set, which has defined ROWS, TOKS (at most 8) and HAS_WIDE before and the functions declared here after. */
#include "kernels/gemm_unpack.h"
#include "kernels/gemm_variants.h"

#include <math.h>

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { KC = 1024, KC_F32 = 256, FROM_L3 = 3 << 18, MAX_TOKENS = (511 / TOKS + 1) * TOKS };

static inline int min_int(int a, int b) { return a < b ? a : b; }
static inline size_t pad64(size_t n) { return (n + 63) & ~(size_t)63; }

/* --- packed activations -------------------------------------------------------------------------- */

enum { Q8_0_BYTES = 40, Q8_K_BYTES = 412 };     /* of one token, per 32 and per 256 elements */

static inline size_t token_bytes(enum ds_act_fmt f, int len)
{
    return f == DS_AF_F32 ? (size_t)len * 4 : f == DS_AF_Q8_0 ? (size_t)len / 32 * Q8_0_BYTES : (size_t)len / 256 * Q8_K_BYTES;
}

static inline int stretch(enum ds_act_fmt f) { return f == DS_AF_F32 ? KC_F32 : KC; }

/* Where the stretch that starts at element k0 has the tile that starts at token t0. */
static inline char *tile_at(const void *x, enum ds_act_fmt f, int n, int k, int k0, int t0)
{
    int len = min_int(stretch(f), k - k0);
    return (char *)x + token_bytes(f, k0) * (size_t)n + token_bytes(f, len) * (size_t)t0;
}

static size_t act_bytes(enum ds_act_fmt f, int n, int k) { return pad64(token_bytes(f, k) * (size_t)n); }

static enum ds_act_fmt act_fmt(const struct ds_gemm_kernels *g, const struct ds_type *t, int n, bool decode)
{
    (void)g, (void)n, (void)decode;
    return t->act == DS_ACT_NONE ? DS_AF_F32 : t->act == DS_ACT_Q8_K ? DS_AF_Q8_K : DS_AF_Q8_0;
}

/* Byte offsets of the sections of a Q8_K block, per token of the tile. */
enum { K_D = 256, K_S256 = 260, K_S32 = 264, K_S16 = 296, K_M32 = 360, K_M16 = 376, K_A16 = 408 };

/* len elements of a tile's w tokens, token t's at x[t]; x[t] = x[w - 1] for w <= t < 8. */
static void pack_q8_0(char *dst, int w, const float *const x[8], int len);
static void pack_q8_k(char *dst, int w, const float *const x[8], int len);

static void pack_f32(char *dst, int w, const float *const x[8], int len)
{
    for (int i = 0; i < len; i++)
        for (int t = 0; t < w; t++, dst += 4) memcpy(dst, x[t] + i, 4);
}

static void act_pack(const struct ds_gemm_kernels *g, enum ds_act_fmt f, void *dst, const float *x, size_t ldx, const int32_t *rows, int n, int k,
                     int t0, int t1)
{
    (void)g;
    for (int t = t0; t < t1; t += TOKS) {
        const int w = min_int(TOKS, n - t);
        for (int k0 = 0; k0 < k; k0 += stretch(f)) {
            const float *from[8];
            for (int i = 0; i < 8; i++) from[i] = x + (size_t)(rows ? rows[t + min_int(i, w - 1)] : t + min_int(i, w - 1)) * ldx + k0;
            char *to = tile_at(dst, f, n, k, k0, t);
            const int len = min_int(stretch(f), k - k0);
            if (f == DS_AF_F32) pack_f32(to, w, from, len);
            else if (f == DS_AF_Q8_0) pack_q8_0(to, w, from, len);
            else pack_q8_k(to, w, from, len);
        }
    }
}

/* --- weight panels ------------------------------------------------------------------------------- */

struct panel {
    uint8_t *q;
    float *scale, *min;
    int16_t *m;
    int8_t *rows;              /* of one block, row by row, on their way into q, scale and m: [ROWS][256] integers, */
    float *row_scale;          /* [ROWS][16] */
    int16_t *row_m;            /* [ROWS][16] */
    int16_t *x;                /* a tile's integers as int16, for kernels that want them so */
    float *acc;
    const char *ahead;         /* rows that will be unpacked next, to fetch while these are; or NULL */
    bool far;                  /* the call's activations are larger than L2, so that each panel reads them from L3 */
};

enum {
    PANEL_Q = KC * ROWS * (1 + HAS_WIDE) > KC_F32 * ROWS * 4 ? KC * ROWS * (1 + HAS_WIDE) : KC_F32 * ROWS * 4, PANEL_SCALE = KC / 16 * ROWS * 4,
    PANEL_MIN = KC / 32 * ROWS * 4, PANEL_M = KC / 16 * ROWS * 2, PANEL_ROWS = ROWS * (256 + 64 + 32), PANEL_X = HAS_WIDE * KC * TOKS * 2,
    PANEL_ACC = MAX_TOKENS * ROWS * 4
};

static struct panel panel_at(void *scratch)
{
    char *p = scratch;
    struct panel o;
    o.q = (uint8_t *)p;
    o.scale = (float *)(p += PANEL_Q);
    o.min = (float *)(p += PANEL_SCALE);
    o.m = (int16_t *)(p += PANEL_MIN);
    o.rows = (int8_t *)(p += PANEL_M);
    o.row_scale = (float *)(p + ROWS * 256);
    o.row_m = (int16_t *)(p + ROWS * (256 + 64));
    o.x = (int16_t *)(p += PANEL_ROWS);
    o.acc = (float *)(p += PANEL_X);
    o.ahead = NULL;
    o.far = false;
    return o;
}

static size_t scratch_bytes(const struct ds_gemm_kernels *g, const struct ds_type *t, int k)
{
    (void)g, (void)t;
    const size_t panel = PANEL_Q + PANEL_SCALE + PANEL_MIN + PANEL_M + PANEL_ROWS + PANEL_X + PANEL_ACC, decode = (size_t)k / 256 * 640 + 1024;
    return panel > decode ? panel : decode;       /* decode: a token's activations as a kernel may want them */
}

/* How the kernels of an instruction set want the integers of a type. */
struct dot_kind {
    bool wide;                 /* as int16 */
    int bias;                  /* added to make bytes unsigned: a power of two, or 0 for types that are */
    int groups;                /* groups of four whose products a kernel may add in 16 bits */
    bool pairs;                /* Q6_K: sub-scales as pairs of int16 in m, the later first, and the block's scale in min */
};
static inline struct dot_kind kind_of(enum ds_type_id id);

/* q[j][row][4] <- rows[row][4j..4j+3] + bias for 32 elements of ROWS rows that lie 256 apart. */
static inline void transpose_32(uint8_t *q, const int8_t *rows, int bias);
/* q[j][row][2] <- rows[row][2j..2j+1] as int16. */
static inline void transpose_32_wide(int16_t *q, const int8_t *rows);

/* to[j][row] <- rows[row][j] for the first n = 4, 8 or 16 dwords of ROWS rows that lie `stride` bytes apart. */
static inline void transpose_dwords(void *to, const void *rows, int stride, int n);

INLINE void fetch(const char *p, int bytes)
{
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 3);
}

INLINE void scale_pairs(const struct ds_chunk *c, const struct ds_block_q6_k *b)
{
    for (int j = 0; j < 16; j++) c->m[j ^ 1] = b->scales[j];
    c->min[0] = ds_h2f(b->d);
}

/* Unpacks len elements of `rows` rows that lie `stride` bytes apart. */
static inline __attribute__((always_inline)) void unpack_panel(enum ds_type_id id, const struct panel *panel, const char *src, size_t stride, int rows,
                                                               int len)
{
    const struct ds_gemm_form f = ds_gemm_form_of(id);
    const struct panel p = *panel;              /* a copy that stores of bytes cannot change */
    const struct dot_kind kind = kind_of(id);
    const size_t bytes = ds_types[id].bytes;
    for (int i = 0; i < len; i += f.chunk, src += bytes) {
        float *scale = p.scale + i / f.group * ROWS, *min = p.min + i / f.chunk * ROWS;
        for (int r = 0; r < rows; r++) {
            const bool one = f.group == f.chunk;
            struct ds_chunk c = { p.rows + 256 * r, one ? scale + r : p.row_scale + 16 * r, min + r, p.row_m + 16 * r };
            if (f.chunk == 32) ds_unpack_32(id, &c, src + stride * (size_t)r);
            else ds_unpack_256(id, &c, src + stride * (size_t)r);
            if (kind.pairs) scale_pairs(&c, (const void *)(src + stride * (size_t)r));
            if (f.min == DS_MIN_F32) min[r] *= -1.0f / 128;      /* it meets the packed -128 * sum */
            if (p.ahead) fetch(p.ahead + bytes * (size_t)(i / f.chunk) + stride * (size_t)r, (int)bytes);
        }
        for (int j = 0; j < f.chunk; j += 32) {
            if (kind.wide) transpose_32_wide((int16_t *)p.q + (i + j) * ROWS, p.rows + j);
            else transpose_32(p.q + (i + j) * ROWS, p.rows + j, kind.bias);
        }
        if (kind.pairs) transpose_dwords(p.m + i / 16 * ROWS, p.row_m, 32, 8);
        else if (f.group < f.chunk) transpose_dwords(scale, p.row_scale, 64, f.chunk / f.group);
        if (f.min == DS_MIN_INT) transpose_dwords(p.m + i / f.mgroup * ROWS, p.row_m, 32, f.chunk / f.mgroup / 2);
    }
}

typedef void unpack_fn(const struct panel *p, const char *src, size_t stride, int rows, int len);

#define UNPACK(T) \
    static void unpack_##T(const struct panel *p, const char *src, size_t stride, int rows, int len) { unpack_panel(DS_T_##T, p, src, stride, rows, len); }
UNPACK(Q8_0) UNPACK(Q4_0) UNPACK(Q4_1) UNPACK(Q5_0) UNPACK(Q5_1) UNPACK(IQ4_NL) UNPACK(MXFP4)
UNPACK(Q2_K) UNPACK(Q3_K) UNPACK(Q4_K) UNPACK(Q5_K) UNPACK(Q6_K) UNPACK(IQ4_XS)
#undef UNPACK

/* --- the product ---------------------------------------------------------------------------------- */

/* acc [w][ROWS] (+)= panel x tile over len elements; first: acc is not read. One function per tile width. */
typedef void kernel_fn(const struct panel *p, const char *x, float *acc, int len, bool first);

/* The functions of one kernel, by tile width: name[w - 1] runs `call` with NT = w. */
#define WIDTH(name, width, ...) \
    static __attribute__((noinline)) void name##_##width(const struct panel *p, const char *x, float *acc, int len, bool first) \
    { \
        enum { NT = width }; \
        __VA_ARGS__; \
    }
#define WIDTHS(name, ...) \
    WIDTH(name, 1, __VA_ARGS__) WIDTH(name, 2, __VA_ARGS__) WIDTH(name, 3, __VA_ARGS__) \
    WIDTH(name, 4, __VA_ARGS__) WIDTH(name, 5, __VA_ARGS__) WIDTH(name, 6, __VA_ARGS__) \
    static kernel_fn *const name[TOKS] = { name##_1, name##_2, name##_3, name##_4, name##_5, name##_6 };

struct product { unpack_fn *unpack; kernel_fn *const *kernel; };

static struct product product_of(enum ds_type_id id);      /* unpack NULL: not for this instruction set */

/* Rows of one tile's sums to their places in y. */
static inline void store_tile(const struct ds_gemm_call *c, const float *acc, int r, int rows, int t, int width)
{
    for (int i = 0; i < width; i++, acc += ROWS) {
        float *y = c->y + (size_t)(c->yrow ? c->yrow[t + i] : t + i) * c->ldy + r;
        if (c->add)
            for (int j = 0; j < rows; j++) y[j] += acc[j];
        else if (rows == ROWS) memcpy(y, acc, ROWS * sizeof *y);
        else memcpy(y, acc, (size_t)rows * sizeof *y);
    }
}

/* Always inlined, like the next: gcc takes a function that only prefetches for one without effects and drops its calls.
 * The lines of y that store_tile will write, while the tile is computed. */
INLINE void prefetch_tile(const struct ds_gemm_call *c, int r, int rows, int t, int width)
{
    for (int i = 0; i < width; i++) {
        float *y = c->y + (size_t)(c->yrow ? c->yrow[t + i] : t + i) * c->ldy + r;
        for (int j = 0; j < rows; j += 16) __builtin_prefetch(y + j, 1);
    }
}

/* What the next stretch will unpack, fetched a few lines per tile so that it comes from memory while this one computes. */
struct ahead { const char *row, *line; size_t stride; int rows, bytes, per_tile; };
INLINE void prefetch_weights(struct ahead *a)
{
    for (int i = 0; i < a->per_tile && a->rows > 0; i++) {
        __builtin_prefetch(a->line, 0, 3);
        a->line += 64;
        if (a->line < a->row + a->bytes + 63) continue;      /* a row may begin anywhere in a line */
        a->line = a->row += a->stride;
        a->rows--;
    }
}

/* What follows the stretch at k0 of the panel at r: the next stretch, or the next panel's first, or the next call's, or nothing. */
static inline struct ahead weights_ahead(const struct ds_gemm_call *c, size_t stride, int step, int r, int k0, int tiles)
{
    int rows = min_int(ROWS, c->r1 - r);
    if ((k0 += step) >= c->k) {
        k0 = 0;
        r += ROWS;
        rows = min_int(ROWS, c->r1 - r);
        if (rows <= 0 && c->ahead) r = c->ahead, rows = ROWS;
    }
    const char *row = (const char *)c->w + stride * (size_t)r + ds_type_row_bytes(c->type, (size_t)k0);
    const int bytes = (int)ds_type_row_bytes(c->type, (size_t)min_int(step, c->k - k0));
    return (struct ahead){ row, row, stride, rows, bytes, ROWS * (bytes / 64 + 2) / tiles + 1 };
}

/* Tokens t0..t1-1 of the call with the panel of rows r..r+rows-1. */
static void panel_product(const struct ds_gemm_call *c, const struct product *f, struct panel *p, enum ds_act_fmt af, int r, int rows, int t0, int t1)
{
    enum { FEW_TILES = 8 };       /* so few that the tiles take no longer than the unpacking */
    const size_t stride = ds_type_row_bytes(c->type, (size_t)c->k);
    const char *w = (const char *)c->w + stride * (size_t)r;
    const int step = stretch(af), tiles = (t1 - t0 + TOKS - 1) / TOKS;
    for (int k0 = 0; k0 < c->k; k0 += step) {
        const int len = min_int(step, c->k - k0);
        struct ahead next = weights_ahead(c, stride, step, r, k0, tiles);
        p->ahead = tiles <= FEW_TILES && next.rows > 0 ? next.row : NULL;
        f->unpack(p, w + ds_type_row_bytes(c->type, (size_t)k0), stride, rows, len);
        for (int i = 0; i < tiles; i++) {
            const int t = t0 + i * TOKS, width = min_int(TOKS, c->n - t);
            float *acc = p->acc + i * TOKS * ROWS;
            if (!p->ahead) prefetch_weights(&next);
            if (k0 + len == c->k) prefetch_tile(c, r, rows, t, width);
            f->kernel[width - 1](p, tile_at(c->x, af, c->n, c->k, k0, t), acc, len, k0 == 0);
            if (k0 + len == c->k) store_tile(c, acc, r, rows, t, width);
        }
    }
}

static void gemm(const struct ds_gemm_kernels *g, const struct ds_gemm_call *c)
{
    struct product f = product_of(ds_type_id(c->type));
    struct panel p = panel_at(c->scratch);
    enum ds_act_fmt af = act_fmt(g, c->type, c->n, false);
    p.far = token_bytes(af, c->k) * (size_t)(c->t1 - c->t0) > FROM_L3;
    if ((c->r1 - c->r0) % ROWS) memset(p.scale, 0, PANEL_SCALE + PANEL_MIN + PANEL_M + PANEL_ROWS);      /* rows that the last panel lacks */
    for (int r = c->r0; r < c->r1; r += ROWS)
        for (int t = c->t0; t < c->t1; t += MAX_TOKENS)
            panel_product(c, &f, &p, af, r, min_int(ROWS, c->r1 - r), t, min_int(c->t1, t + MAX_TOKENS));
}

/* The entries that every tiled variant has. */
static void fill_table(struct ds_gemm_kernels *g)
{
    g->row_step = ROWS;
    g->tok_step = TOKS;
    g->act_fmt = act_fmt;
    g->act_bytes = act_bytes;
    g->act_pack = act_pack;
    g->scratch_bytes = scratch_bytes;
    g->gemm = gemm;
}
