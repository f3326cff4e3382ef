/* xoshiro256** seeded by splitmix64 (Blackman and Vigna, public domain algorithms). Deterministic on every host. */
#ifndef DS_BASE_RNG_H
#define DS_BASE_RNG_H

#include <stdint.h>

struct ds_rng { uint64_t s[4]; };
void ds_rng_seed(struct ds_rng *r, uint64_t seed);
uint64_t ds_rng_u64(struct ds_rng *r);
float ds_rng_uniform(struct ds_rng *r);          /* [0, 1), 24 bits */
float ds_rng_normal(struct ds_rng *r);           /* mean 0, variance 1 */

#endif
