#ifndef DS_BACKEND_CUDA_OPEN_H
#define DS_BACKEND_CUDA_OPEN_H

#include "backend/backend.h"

/* The first CUDA device. Fails with one sentence when there is none, or it is older than sm_80. */
struct ds_backend *ds_cuda_open(const struct ds_backend_options *o, struct ds_err *e);

#endif
