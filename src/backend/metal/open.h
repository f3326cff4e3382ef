/* The Metal backend's constructor, for the registry. */
#ifndef DS_BACKEND_METAL_OPEN_H
#define DS_BACKEND_METAL_OPEN_H

#include "backend/backend.h"

/* The system's default GPU. Fails with one sentence when there is none, or it cannot run the shaders. */
struct ds_backend *ds_metal_open(const struct ds_backend_options *o, struct ds_err *e);

#endif
