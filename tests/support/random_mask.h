/* random_mask.h: random mask sources, for fuzzing: ordinary compilers find what mask.h defines in their place (with
 * -fwrapv), where C does not. */
#ifndef TEST_RANDOM_MASK_H
#define TEST_RANDOM_MASK_H

#include "support.h"

/* Every source declares the int parameters p0 and p1, and these buffers. */
enum { RANDOM_MASK_WORDS = 96, RANDOM_MASK_BYTES = 64, RANDOM_MASK_ROWS = 8, RANDOM_MASK_COLUMNS = 12,
       RANDOM_MASK_WIDE = 700 };
/*     int32_t words[96], uint8_t bytes[64], int16_t table[8][12], uint8_t wide[700] */

/* Writes a source of at most `size` bytes. */
void random_mask(test_random *random, char *out, size_t size);

#endif
