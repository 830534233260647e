/* permutation.h: the generator behind fly_permutation, for its test vectors. */
#ifndef FLYMASK_PERMUTATION_H
#define FLYMASK_PERMUTATION_H

#include <stdint.h>

/* One block of Philox4x32-10. */
void flyi_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
