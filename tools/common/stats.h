/* Order statistics of a handful of repetitions. */
#ifndef DS_TOOLS_COMMON_STATS_H
#define DS_TOOLS_COMMON_STATS_H

/* Index of the median: the middle one by value, the lower middle for even n; the earliest on ties. n >= 1. */
int ds_median_index(const double *v, int n);
double ds_min(const double *v, int n);
double ds_max(const double *v, int n);

#endif
