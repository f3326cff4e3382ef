/* What a machine can do at most, as measured on it: the denominators of every "share of peak". */
#ifndef DS_BASE_PEAKS_H
#define DS_BASE_PEAKS_H

struct ds_peaks {
    double int8_gops;              /* 8-bit integer dot products, operations (2 per multiply-add) */
    double f32_gflops;             /* f32 multiply-adds outside matrix units */
    double mm_gflops;              /* products of float weights: the matrix unit where there is one, else f32_gflops */
    double read_gbs, copy_gbs;     /* memory: reading, copying (bytes read plus written) */
};

#endif
