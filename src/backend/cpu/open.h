/* The CPU backend's constructor, for the registry. */
#ifndef DS_BACKEND_CPU_OPEN_H
#define DS_BACKEND_CPU_OPEN_H

#include "backend/backend.h"

struct ds_backend *ds_cpu_open(const struct ds_backend_options *o, struct ds_err *e);

#endif
