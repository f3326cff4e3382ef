/* A profile set against what the machine can do: bounds, shares, the stage table. */
#ifndef DS_TOOLS_COMMON_REPORT_H
#define DS_TOOLS_COMMON_REPORT_H

#include "deltascope.h"

#include "base/json.h"

/* Peak rate (G operations/s) that bounds a product by `kernel`: the integer peak for quantised kernels,
 * the matrix peak for float ones. */
double ds_kernel_peak(const struct ds_peaks *pk, const char *kernel);
/* True for the plain C kernel where the ISA promises more: a fallback, which every output names. */
bool ds_is_plain_kernel(const char *kernel, const char *isa);
/* max(gflop / peak, gb / bandwidth), in ms; terms whose rate is unknown (0) count nothing. */
double ds_bound_ms(double gflop, double gb, double peak_gflops, double gbs);
/* Bound of a stage; the one of the GEMM is the sum over its classes. */
double ds_stage_bound_ms(const struct ds_profile *p, const struct ds_peaks *pk, enum ds_stage st);
/* Time that the weight products alone would take at their peak rates, over `wall_ms`. */
double ds_peak_share(const struct ds_profile *p, const struct ds_peaks *pk, double wall_ms);
/* Fails when the products ran faster than the machine's own measured peak: a clock, a counter or the peak is
 * wrong. A peak can only come out too low, under other load, so it is measured again before that is said. */
ds_status ds_check_rates(const struct ds_profile *p, ds_engine *g, struct ds_err *e);

/* "gemm_classes": the products by class, each with kernel, time, operations, bytes and bound. */
void ds_classes_json(struct ds_json_out *j, const struct ds_profile *p, const struct ds_peaks *pk);

/* The stage table of one prefill. skip: what was left out (marks the table TIMING ONLY). */
void ds_report_profile(struct ds_bytes *b, const struct ds_profile *p, const struct ds_peaks *pk, const ds_engine *g, unsigned skip);

#endif
