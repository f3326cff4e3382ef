/* Measured peaks of this machine: what the roofline divides by.
 *
 * Arithmetic: loops of independent instructions of the best kind that the mask allows, every thread at
 * once, timed by each thread's processor time, so that other load does not lower them. Memory: a sum
 * over, and a copy of, arrays far larger than the caches, by the wall. The best of several short runs
 * each (a peak is a maximum). About 0.3 s. */
#ifndef DS_KERNELS_PEAKS_H
#define DS_KERNELS_PEAKS_H

#include "base/peaks.h"
#include "base/pool.h"

/* Keeps the larger of what *out holds and what this run measures. */
void ds_measure_peaks(ds_pool *pool, unsigned isa, struct ds_peaks *out);

/* One probe per instruction set: runs `rounds` rounds and returns the operations done (2 per multiply-add). */
typedef double ds_probe_fn(int rounds);
ds_probe_fn ds_probe_int8_ref, ds_probe_f32_ref;
#if defined(__x86_64__)
ds_probe_fn ds_probe_int8_avx2, ds_probe_f32_avx2, ds_probe_int8_avxvnni, ds_probe_f32_avx512, ds_probe_int8_avx512, ds_probe_int8_avx512vnni,
    ds_probe_bf16_avx512bf16;
#elif defined(__aarch64__)
ds_probe_fn ds_probe_int8_neon, ds_probe_f32_neon, ds_probe_int8_dotprod, ds_probe_int8_i8mm;
#endif

#endif
