#include "kernels/peaks.h"

#include "base/cpu.h"
#include "base/os.h"

#include <stdlib.h>
#include <string.h>

/* --- arithmetic --- */

/* Plain C: the compiler's own vectors of the baseline. The volatile sink keeps the loops. */
double ds_probe_f32_ref(int rounds)
{
    float a[64];
    volatile float sink;
    for (int i = 0; i < 64; i++) a[i] = (float)i;
    for (int r = 0; r < rounds; r++)
        for (int k = 0; k < 16; k++)
            for (int i = 0; i < 64; i++) a[i] = a[i] * 0.999f + 0.001f;
    float s = 0;
    for (int i = 0; i < 64; i++) s += a[i];
    sink = s;
    (void)sink;
    return (double)rounds * 16 * 64 * 2;
}

double ds_probe_int8_ref(int rounds)
{
    int8_t a[1024], b[1024];
    volatile int32_t sink;
    int32_t s = 0;
    for (int i = 0; i < 1024; i++) a[i] = (int8_t)(i % 127), b[i] = (int8_t)(i % 113);
    for (int r = 0; r < rounds; r++) {
        a[r & 1023] ^= 1;
        for (int i = 0; i < 1024; i++) s += a[i] * b[i];
    }
    sink = s;
    (void)sink;
    return (double)rounds * 1024 * 2;
}

struct probe { unsigned needs; ds_probe_fn *fn; };

static const struct probe int8_probes[] = {
#if defined(__x86_64__)
    { DS_CPU_AVX512VNNI, ds_probe_int8_avx512vnni }, { DS_CPU_AVXVNNI, ds_probe_int8_avxvnni }, { DS_CPU_AVX512, ds_probe_int8_avx512 },
    { DS_CPU_AVX2, ds_probe_int8_avx2 },
#elif defined(__aarch64__)
    { DS_CPU_I8MM, ds_probe_int8_i8mm }, { DS_CPU_DOTPROD, ds_probe_int8_dotprod }, { DS_CPU_NEON, ds_probe_int8_neon },
#endif
    { 0, ds_probe_int8_ref }
};
static const struct probe f32_probes[] = {
#if defined(__x86_64__)
    { DS_CPU_AVX512, ds_probe_f32_avx512 }, { DS_CPU_AVX2, ds_probe_f32_avx2 },
#elif defined(__aarch64__)
    { DS_CPU_NEON, ds_probe_f32_neon },
#endif
    { 0, ds_probe_f32_ref }
};
static const struct probe mm_probes[] = {   /* products of 16-bit float weights */
#if defined(__x86_64__)
    { DS_CPU_AVX512BF16, ds_probe_bf16_avx512bf16 },
#endif
    { 0, NULL }
};

static ds_probe_fn *best(const struct probe *p, unsigned isa)
{
    while (p->needs && !(isa & p->needs)) p++;
    return p->fn;
}

/* A run of one probe: one iteration per thread, each with its own operations per nanosecond. */
struct rate_job { ds_probe_fn *fn; int rounds; double *rate; };

static void rate_task(void *ctx, int i, int thread)
{
    struct rate_job *j = ctx;
    (void)thread;
    const uint64_t t0 = ds_thread_cpu_ns();
    const double ops = j->fn(j->rounds);
    const uint64_t ns = ds_thread_cpu_ns() - t0;
    if (ns && ops / (double)ns > j->rate[i]) j->rate[i] = ops / (double)ns;
}

/* 1e9 operations per second over all threads: the sum of each iteration's best. */
static double rate(ds_pool *pool, ds_probe_fn *fn)
{
    const int n = ds_pool_threads(pool);
    struct rate_job j = { .fn = fn, .rounds = 64, .rate = calloc((size_t)n, sizeof(double)) };
    double sum = 0;
    if (!j.rate) return 0;
    for (uint64_t ns = 0; ns < 3000000 && j.rounds < 1 << 28; j.rounds *= 2) {   /* runs of at least 3 ms */
        const uint64_t t0 = ds_thread_cpu_ns();
        fn(j.rounds);
        ns = ds_thread_cpu_ns() - t0;
    }
    for (int run = 0; run < 8; run++) ds_pool_run(pool, rate_task, &j, n);
    for (int i = 0; i < n; i++) sum += j.rate[i];
    free(j.rate);
    return sum;
}

/* --- memory --- */

#define PIECE (1u << 20)           /* bytes per task */
struct mem_job { char *a, *b; uint64_t sum[64]; };

static void read_task(void *ctx, int i, int thread)
{
    struct mem_job *j = ctx;
    const uint64_t *p = (const uint64_t *)(const void *)(j->a + (size_t)i * PIECE);
    uint64_t s[8] = { 0 };
    for (size_t k = 0; k < PIECE / 8; k += 8)
        for (int l = 0; l < 8; l++) s[l] += p[k + (size_t)l];
    for (int l = 0; l < 8; l++) j->sum[thread % 64] += s[l];   /* used below, so that the loop stays */
}

static void copy_task(void *ctx, int i, int thread)
{
    struct mem_job *j = ctx;
    (void)thread;
    memcpy(j->b + (size_t)i * PIECE, j->a + (size_t)i * PIECE, PIECE);
}

static double bandwidth(ds_pool *pool, struct mem_job *j, void (*task)(void *, int, int), int pieces, double bytes_per_piece)
{
    double top = 0;
    for (int run = 0; run < 6; run++) {
        const uint64_t t0 = ds_now_ns();
        ds_pool_run(pool, task, j, pieces);
        const uint64_t ns = ds_now_ns() - t0;
        if (ns && pieces * bytes_per_piece / (double)ns > top) top = pieces * bytes_per_piece / (double)ns;
    }
    return top;
}

static void keep(double *peak, double measured)
{
    if (measured > *peak) *peak = measured;
}

static void measure_memory(ds_pool *pool, struct ds_peaks *out)
{
    const int pieces = 96;         /* 96 MiB each: well past the last-level caches of desktop machines */
    struct mem_job *j = ds_mem_alloc(sizeof *j);
    const size_t bytes = (size_t)pieces * PIECE;
    if (!j) return;
    j->a = ds_mem_alloc(bytes);
    j->b = ds_mem_alloc(bytes);
    if (j->a && j->b) {
        memset(j->a, 1, bytes);
        memset(j->b, 2, bytes);
        keep(&out->read_gbs, bandwidth(pool, j, read_task, pieces, PIECE));
        keep(&out->copy_gbs, bandwidth(pool, j, copy_task, pieces, 2.0 * PIECE));
        if (j->sum[0] == 1) out->read_gbs = 0;   /* never: keeps the sums alive */
    }
    ds_mem_free(j->a, bytes);
    ds_mem_free(j->b, bytes);
    ds_mem_free(j, sizeof *j);
}

void ds_measure_peaks(ds_pool *pool, unsigned isa, struct ds_peaks *out)
{
    ds_probe_fn *mm = best(mm_probes, isa);
    keep(&out->int8_gops, rate(pool, best(int8_probes, isa)));
    keep(&out->f32_gflops, rate(pool, best(f32_probes, isa)));
    keep(&out->mm_gflops, mm ? rate(pool, mm) : out->f32_gflops);
    measure_memory(pool, out);
}
