/* score_tile.c: the template that applies a score modifier to a block of 64 x 64 scores. Input: the differentiated
 * modifier, joined with it. Output: fly_score_tile and fly_score_slope_tile (launch.h).
 *
 * Built to unoptimised bitcode, as mask_tile.c. divide.c divides the modifier into fly_row (what depends on the query
 * alone: ALiBi's slope of a head, a buffer's row), fly_column (on the key alone, and is worth keeping) and fly_pair
 * (what needs the score, or both). The forward function does not use the slope, so that nothing of it is left there. */
#include <stdbool.h>
#include <stdint.h>

#include "tokens.h"

/* Pairs that the inner loop takes: one vector of any of the vector units, or a few. */
enum { LANES = 16 };

typedef float floats16 __attribute__((ext_vector_type(LANES)));
typedef floats16 floats16_memory __attribute__((aligned(4), may_alias));

#define WHOLE_VECTORS _Pragma("clang loop vectorize(enable) vectorize_width(LANES) interleave_count(1) unroll(disable)")

/* Defined by divide.c. */
void fly_row(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q, flyi_row *row);
void fly_column(const flyi_mask_args *args, int32_t b, int32_t h, int32_t kv, flyi_columns *columns, int32_t j);
float fly_pair(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q, int32_t kv, const flyi_row *row,
               const flyi_columns *columns, int32_t j, float s, float *slope);

/* The loop works on arrays of its own, so that no store can meet a buffer that the modifier reads. */
static inline void run(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q0, int32_t kv0, int32_t rows,
                       const uint64_t *bits, float *s, float *slope) {
  flyi_columns columns;
  flyi_row row;
  for (int32_t j = 0; j < FLYI_BLOCK; j++) fly_column(args, b, h, kv0 + j, &columns, j);
  for (int32_t r = 0; r < rows; r++) {
    int32_t q = q0 + r;
    uint64_t seen = bits ? bits[r] : ~(uint64_t)0;
    fly_row(args, b, h, q, &row); /* of hidden rows too: so that what all rows share moves out of the loop */
    for (int32_t c = 0; c < FLYI_BLOCK; c += LANES) {
      float in[LANES] __attribute__((aligned(64))), out[LANES] __attribute__((aligned(64)));
      float by[LANES] __attribute__((aligned(64)));
      if (!(seen >> c & ((1u << LANES) - 1))) continue;
      *(floats16 *)in = *(floats16_memory *)(s + r * FLYI_BLOCK + c);
      WHOLE_VECTORS
      for (int32_t j = 0; j < LANES; j++)
        out[j] = fly_pair(args, b, h, q, kv0 + c + j, &row, &columns, c + j, in[j], &by[j]);
      *(floats16_memory *)(s + r * FLYI_BLOCK + c) = *(floats16 *)out;
      if (slope) *(floats16_memory *)(slope + r * FLYI_BLOCK + c) = *(floats16 *)by;
    }
  }
}

void fly_score_tile(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q0, int32_t kv0, int32_t rows,
                    const uint64_t *bits, float *s) {
  run(args, b, h, q0, kv0, rows, bits, s, 0);
}

void fly_score_slope_tile(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q0, int32_t kv0, int32_t rows,
                          const uint64_t *bits, float *s, float *slope) {
  run(args, b, h, q0, kv0, rows, bits, s, slope);
}
