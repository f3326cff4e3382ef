/* The benchmark behind `deltascope bench` and `modelbench`: one engine, prefill at each length with the
 * repetitions interleaved, then decode. Results as text or JSON. */
#ifndef DS_TOOLS_COMMON_BENCH_H
#define DS_TOOLS_COMMON_BENCH_H

#include "common/options.h"

struct ds_bench_spec {
    const char *prog, *command;     /* program for messages; command line for the record */
    struct ds_common common;
    struct ds_ints prefill;         /* lengths */
    int depth;                      /* tokens held before each timed prefill */
    int reps;
    int decode, decode_reps;        /* steps (0: no decode) */
    bool cold;                      /* no warm-up: every repetition is the first prefill of a fresh engine */
    bool bare;                      /* no stage times */
    bool json;
    bool ids;                       /* the record holds the token ids */
};
int ds_bench_run(const struct ds_bench_spec *s);     /* exit code */

#endif
