/* XXH64 (Yann Collet's published specification), streaming over whole buffers. */
#ifndef DS_BASE_HASH_H
#define DS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t ds_hash64(const void *data, size_t n, uint64_t seed);   /* chain buffers by passing the last hash as seed */

#endif
