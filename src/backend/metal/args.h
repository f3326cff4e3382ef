/* What the host and the shaders agree on: argument structs, buffer indices, grid shapes. Valid in C11, C++14 and MSL 3.1.
 *
 * Every kernel takes its struct as `constant S &a [[buffer(0)]]` (sent by value) and the buffers of its row below at 1, 2, ...
 * in the order given. A buffer is bound at its first element in use: kernels know nothing of offsets. Matrices are row-major;
 * "f" means float, "h" half; everything that products write is float. Threadgroup memory is declared in the kernels.
 * Row and byte offsets inside a kernel are 64-bit. Kernels write nothing outside the elements named here.
 *
 * T is a weight type: q8_0 q4_0 q4_k q5_k q6_k f16 bf16 f32 (DS_METAL_TYPES). KV is f16 or f32. Grids count threadgroups,
 * groups count threads; up(a, b) = (a + b - 1) / b.
 *
 *   kernel            struct      buffers 1..                                                     grid; group
 *   act_half          rows        x f[n][dim], xh h[n][dim], scale f[n]                           n; 256
 *                                   scale = power of two that brings the row's largest magnitude into [512, 1024), 1 for a
 *                                   row of zeros, infinities or NaN; xh = x * scale
 *   gemm_T            gemm        w T[out][in], xh h[n][in], scale f[n], y f[n][ldy]              up(n,32), up(out,64); 128
 *                                   y[t][r] (+)= (w[r] . xh[t]) / scale[t]. Function constant 0 (int): 1 when n, out or in is
 *                                   not a multiple of the tile, so that edges must be looked at.
 *                                   T f16 bf16 f32: x f[n][in] in the place of xh and scale
 *   gemv_T            gemm        w T[out][in], x f[n][in], y f[n][ldy]                           up(out,8), n; 128
 *   gemm_experts_T    experts     w T[n_e][out][in], xh h[][in], scale f[], order u32[slots],
 *                                   tiles tile[n_tiles], y f[slots][out]                          n_tiles, up(out,64); 128
 *                                   as gemm_T with edges, slots of one tile: row of y = slot, row of xh or x = slot / per_x.
 *                                   Tiles whose expert lies outside e0..e0+n_e-1 or whose count is 0 do nothing
 *   gemv_experts_T    experts     w T[n_e][out][in], x f[][in], route slot[slots], y f[slots][out]   up(out,8), slots; 128
 *   embed_T           embed       table T[n_rows][dim], ids i32[n], x f[n][dim]                   n; 128
 *                                   ids outside row0..row0+n_rows-1 do nothing
 *   rms_norm          rows        x f[n][dim], gain f[dim], h f[n][dim]                           n; 256
 *   swiglu            count       gate f[count], up f[count], act f[count]                        up(count,1024); 256
 *   copy_cols         cols        src f[n][src_dim], act f[n][dim]                                up(dim,256), n; 256
 *   copy              count       src f[count], dst f[count]                                      up(count,1024); 256
 *   conv_tail         gdn         conv f[conv_k-1][C], u f[n][C], dst f[conv_k-1][C]              up(C,256); 256
 *                                   the last conv_k-1 rows of [conv; u[0..n)]; C = 2*n_kh*dk + n_vh*dv. dst is not conv
 *   gdn_prep          gdn         conv f[conv_k-1][C], u f[n][C], a f[n][n_vh], b f[n][n_vh], conv_w f[C][conv_k],
 *                                   ssm_a f[n_vh], ssm_dt f[n_vh], q f[n][n_kh][dk], k f[n][n_kh][dk], v f[n][n_vh][dv],
 *                                   g f[n][n_vh], beta f[n][n_vh]                                 2*n_kh+n_vh, n; 128
 *   gdn_seq           gdn         q, k, v, g, beta as above, s_in f[n_vh][dk][dv], s_out (same shape, may be s_in),
 *                                   o f[n][n_vh*dv]                                               up(dv,32), n_vh; 128
 *                                   tokens t0..t1-1; any dk <= 256, any dv
 *   gdn_chunk         gdn         as gdn_seq                                                      dv/32, n_vh; 128
 *                                   dk 128, dv a multiple of 32; chunks end at absolute multiples of 32
 *   gated_norm        gdn         o f[n][n_vh*dv], z f[n][n_vh*dv], gain f[dv], y f[n][n_vh*dv]   n_vh, n; 128
 *   qk_norm           attn        qg f[n][n_head][2*hd], k f[n][n_kv][hd], gain_q f[hd], gain_k f[hd]   n_head+n_kv, n; 128
 *   rope_store_KV     attn        qg, k as above, v f[n][n_kv][hd], turn f[n][n_rot/2][2] (cos, sin),
 *                                   kcache KV[n][n_kv*hd], vcache KV[n][n_kv*hd] (bound at row pos)   n_head+2*n_kv, n; 128
 *   attn_prefill_KV   attn        qg, kcache KV[pos+n][n_kv*hd], vcache, y f[n][n_head*hd]        up(n,8), n_head; 128
 *                                   hd 256; token t sees rows 0..pos+t; y = sigmoid(gate) * softmax(scale q.K) V
 *   attn_part_KV      attn        qg, kcache, vcache, part f[n][n_head][n_split][hd+2]            n_split, n_head, n; 128
 *                                   any hd <= 256. Split s takes rows s*per_split.. below min((s+1)*per_split, pos+t+1):
 *                                   hd unnormalised sums of exp(s - m) v, then m, then l; of no rows: zeros, m = -3e38, l = 0
 *   attn_merge        attn        qg, part, y f[n][n_head*hd]                                     n_head, n; 128
 *   moe_route         route       logits f[n][n_expert], route slot[n][k]                         up(n,4); 128
 *   moe_sort          route       route slot[n][k], order u32[n*k], tiles tile[n_tiles]           1; 256
 *                                   slots by expert, rising; tiles of at most 32, unused ones count 0.
 *                                   n_tiles = n*k/32 + n_expert
 *   moe_combine       combine     x f[n][dim], y f[n*k][dim], route slot[n][k], shared f[n][dim], sg f[n]   up(dim,256), n; 256
 *   sentinel          sentinel    out u32[128], product f[64], sums f[2]                          1; 128
 *                                   out[i] = (i + seed) * 2654435761; product = A B of 8x8 simdgroup matrices of half with
 *                                   A[r][c] = r - c, B[r][c] = r + 2c; sums = simd_sum of the lane indices of simdgroup 0,
 *                                   and of the thread indices of the group by way of threadgroup memory
 *   probe_fma         probe       out f[threads]        groups; 256: count * 64 fused multiply-adds a thread
 *   probe_mm          probe       out f[groups*4][64]   groups; 128: count * 16 8x8x8 half products with f32 sums a simdgroup
 *   probe_read        probe       src f[groups*256*count], out f[groups]   groups; 256: sums of count values a thread */
#ifndef DS_BACKEND_METAL_ARGS_H
#define DS_BACKEND_METAL_ARGS_H

#ifdef __METAL_VERSION__
typedef int ds_i32;
typedef uint ds_u32;
#else
#include <stdint.h>
typedef int32_t ds_i32;
typedef uint32_t ds_u32;
#endif

/* Tile and group shapes that grids depend on. */
enum {
    DS_METAL_TILE_ROWS = 64,       /* weight rows of a product's group */
    DS_METAL_TILE_TOKENS = 32,
    DS_METAL_TILE_IN = 32,
    DS_METAL_GEMV_ROWS = 8,
    DS_METAL_GDN_COLS = 32,
    DS_METAL_GDN_CHUNK = 32,
    DS_METAL_ATTN_TOKENS = 8,
    DS_METAL_MAX_DK = 256,
    DS_METAL_MAX_HD = 256,
    DS_METAL_SENTINEL = 128
};

struct ds_metal_rows { ds_i32 n, dim; float eps; ds_i32 pad; };
struct ds_metal_count { ds_u32 count; ds_u32 pad[3]; };
struct ds_metal_cols { ds_i32 n, src_dim, dim, pad; };
struct ds_metal_embed { ds_i32 n, dim, row0, n_rows; };
struct ds_metal_gemm { ds_i32 n, in, out, ldy, add; ds_i32 pad[3]; };
struct ds_metal_experts { ds_i32 slots, in, out, per_x, e0, n_e, n_tiles, pad; };
struct ds_metal_slot { ds_i32 expert; float weight; };                       /* = struct ds_route_slot */
struct ds_metal_tile { ds_i32 expert, first, count, pad; };                  /* order[first..first+count) */
/* phase: absolute position of token 0 modulo 64 */
struct ds_metal_gdn { ds_i32 n, n_kh, n_vh, dk, dv, conv_k, t0, t1, phase; float eps; ds_i32 pad[2]; };
struct ds_metal_attn { ds_i32 n, n_head, n_kv, hd, n_rot, pos, n_split, per_split; float scale, eps; ds_i32 pad[2]; };
struct ds_metal_route { ds_i32 n, n_expert, k, n_tiles; };
struct ds_metal_combine { ds_i32 n, k, dim, has_shared, has_sg; ds_i32 pad[3]; };
struct ds_metal_sentinel { ds_u32 seed; ds_u32 pad[3]; };
struct ds_metal_probe { ds_u32 count; ds_u32 pad[3]; };

#if defined(__cplusplus) || defined(__METAL_VERSION__)
#define DS_METAL_SIZE(type, bytes) static_assert(sizeof(type) == (bytes), "size of " #type)
#else
#define DS_METAL_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "size of " #type)
#endif
DS_METAL_SIZE(struct ds_metal_rows, 16);
DS_METAL_SIZE(struct ds_metal_count, 16);
DS_METAL_SIZE(struct ds_metal_cols, 16);
DS_METAL_SIZE(struct ds_metal_embed, 16);
DS_METAL_SIZE(struct ds_metal_gemm, 32);
DS_METAL_SIZE(struct ds_metal_experts, 32);
DS_METAL_SIZE(struct ds_metal_slot, 8);
DS_METAL_SIZE(struct ds_metal_tile, 16);
DS_METAL_SIZE(struct ds_metal_gdn, 48);
DS_METAL_SIZE(struct ds_metal_attn, 48);
DS_METAL_SIZE(struct ds_metal_route, 16);
DS_METAL_SIZE(struct ds_metal_combine, 32);
DS_METAL_SIZE(struct ds_metal_sentinel, 16);
DS_METAL_SIZE(struct ds_metal_probe, 16);

#endif
