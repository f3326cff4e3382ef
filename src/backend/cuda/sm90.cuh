/* Hopper's own instructions: wgmma, bulk copies, mbarriers, and the 128-byte swizzle that ties them.
 *
 * A tile for wgmma is made of rows of 128 bytes (64 halves). Eight rows are an atom of 1024 bytes, 1024-byte
 * aligned, in which 16-byte unit u of row r lies at unit u ^ (r % 8). */
#ifndef DS_BACKEND_CUDA_SM90_CUH
#define DS_BACKEND_CUDA_SM90_CUH

#include <stdint.h>

static __device__ __forceinline__ uint32_t swizzled(int row, int unit)
{
    return (uint32_t)(row * 128 + ((unit ^ (row & 7)) << 4));
}
static __device__ __forceinline__ uint32_t shared_addr(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
/* Between ordinary stores to device memory and bulk copies that read it, on both sides. */
static __device__ __forceinline__ void copies_see_stores()
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* --- matrix descriptors: start >> 4, leading offset >> 4 at 16, stride offset >> 4 at 32, 128-byte swizzle at 62 --- */

/* Operand contiguous in k: row n of the tile holds 64 values of k. +2 steps 16 values of k. */
static __device__ __forceinline__ uint64_t desc_k_major(uint32_t addr)
{
    return (uint64_t)((addr & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}

/* Operand contiguous in n: row k of the tile holds 64 values of n; the next 64 of n lie `next` bytes further. */
static __device__ __forceinline__ uint64_t desc_n_major(uint32_t addr, uint32_t next)
{
    return (uint64_t)((addr & 0x3ffff) >> 4) | (uint64_t)(next >> 4) << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}

static __device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
static __device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> static __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Registers that a product writes must not be read before its wait, nor written after its start: this
 * keeps the compiler from moving either across. */
template <int N> static __device__ __forceinline__ void wgmma_hold(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

template <int N> static __device__ __forceinline__ void wgmma_hold(uint32_t (&a)[N][4])
{
#pragma unroll
    for (int i = 0; i < 4 * N; i++) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}
/* Moves registers between the warpgroups of a block, which starts with the same number each. */
template <int N> static __device__ __forceinline__ void registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> static __device__ __forceinline__ void registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

#define DS_R4(a, i) "+f"(a[i]), "+f"(a[i + 1]), "+f"(a[i + 2]), "+f"(a[i + 3])
#define DS_R16(a, i) DS_R4(a, i), DS_R4(a, i + 4), DS_R4(a, i + 8), DS_R4(a, i + 12)
#define DS_R32(a, i) DS_R16(a, i), DS_R16(a, i + 16)
#define DS_R64(a, i) DS_R32(a, i), DS_R32(a, i + 32)

#define DS_L32                                                                                                                   \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"
#define DS_W4(a, i) "=f"(a[i]), "=f"(a[i + 1]), "=f"(a[i + 2]), "=f"(a[i + 3])
#define DS_W16(a, i) DS_W4(a, i), DS_W4(a, i + 4), DS_W4(a, i + 8), DS_W4(a, i + 12)
#define DS_W32(a, i) DS_W16(a, i), DS_W16(a, i + 16)

/* d[64 x 64] = or += A (registers) B, B contiguous in k; f16 in, f32 sums. FIRST overwrites d: it is then an output
 * alone, so that nothing that was computed in these registers before ties itself to the product. */
template <bool FIRST> static __device__ __forceinline__ void wgmma_64x64(float (&d)[32], const uint32_t (&a)[4], uint64_t b)
{
    if constexpr (FIRST)
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " DS_L32 ", {%32,%33,%34,%35}, %36, 0, 1, 1, 0;\n"
                     : DS_W32(d, 0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " DS_L32 ", {%32,%33,%34,%35}, %36, 1, 1, 1, 0;\n"
                     : DS_R32(d, 0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* The same with A [64 x 16] in shared memory, contiguous in k. */
template <bool FIRST> static __device__ __forceinline__ void wgmma_64x64_ss(float (&d)[32], uint64_t a, uint64_t b)
{
    if constexpr (FIRST)
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " DS_L32 ", %32, %33, 0, 1, 1, 0, 0;\n"
                     : DS_W32(d, 0)
                     : "l"(a), "l"(b));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " DS_L32 ", %32, %33, 1, 1, 1, 0, 0;\n"
                     : DS_R32(d, 0)
                     : "l"(a), "l"(b));
}

#define DS_L64                                                                                                                   \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"    \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%"  \
    "62,%63"

/* d[64 x 128] += A (registers) B, B contiguous in n. */
static __device__ __forceinline__ void wgmma_64x128_n(float (&d)[64], const uint32_t a[4], uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " DS_L64 "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;\n"
                 : DS_R64(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* d[64 x 256] += A (registers) B, B contiguous in n. */
static __device__ __forceinline__ void wgmma_64x256_n(float (&d)[128], const uint32_t a[4], uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 " DS_L64
                 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%"
                 "91,%92,%93,%94,%95,"
                 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,"
                 "%119,%120,%121,"
                 "%122,%123,%124,%125,%126,%127}, {%128,%129,%130,%131}, %132, 1, 1, 1, 1;\n"
                 : DS_R64(d, 0), DS_R64(d, 64)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* --- barriers in shared memory and copies that complete on them --- */

static __device__ __forceinline__ void barrier_init(uint32_t bar, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
static __device__ __forceinline__ void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
static __device__ __forceinline__ void barrier_expect(uint32_t bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void barrier_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
static __device__ __forceinline__ void barrier_wait(uint32_t bar, uint32_t parity)
{
    asm volatile(
        "{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra done;\nbra again;\ndone:\n}\n" ::
            "r"(bar),
        "r"(parity)
        : "memory");
}
/* A box of a tensor map at (x, y). */
static __device__ __forceinline__ void box_load(uint32_t dst, const void *map, int x, int y, uint32_t bar)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(dst),
        "l"(map), "r"(x), "r"(y), "r"(bar)
        : "memory");
}
/* Ordinary stores to shared memory, by this thread, become visible to wgmma after this and a barrier. */
static __device__ __forceinline__ void stores_to_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/* Contiguous bytes, a multiple of 16. */
static __device__ __forceinline__ void bulk_load(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst), "l"(src),
                 "r"(bytes), "r"(bar)
                 : "memory");
}

static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t r[4], uint32_t addr)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr)
                 : "memory");
}

#endif
#endif
