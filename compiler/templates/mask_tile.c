/* mask_tile.c: the template that turns a mask into bits. Input: the verified mask, joined with it. Output:
 * fly_tile_bits (launch.h), which fills a block of 64 x 64 pairs.
 *
 * Built twice. With FLYI_JOIN to unoptimised bitcode, which specialize.c joins with masks at run time: divide.c
 * divides a mask into fly_row (what depends on the query alone), fly_column (on the key alone, and is worth keeping)
 * and fly_pair (the rest), so that a buffer is read once a row or column, and the inner loop has little but
 * compares; of those ranges.c takes the ones that order keys, for fly_range. And natively, around a mask that was
 * compiled as ordinary C, for tests under the sanitizers, which do not see code compiled at run time. */
#include <stdbool.h>
#include <stdint.h>

#include "launch.h"

/* The inner loop runs over as many pairs as make one vector of any of the vector units; the vectoriser takes it
 * whole. */
enum { LANES = 16 };

typedef uint8_t bytes16 __attribute__((ext_vector_type(LANES)));
typedef bool bits16 __attribute__((ext_vector_type(LANES)));

#ifdef FLYI_JOIN

#include "tokens.h"

#define WHOLE_VECTORS _Pragma("clang loop vectorize(enable) vectorize_width(LANES) interleave_count(1) unroll(disable)")

/* Defined by divide.c. */
void fly_row(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q, flyi_row *row);
void fly_column(const flyi_mask_args *args, int32_t b, int32_t h, int32_t kv, flyi_columns *columns, int32_t j);
bool fly_pair(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q, int32_t kv, const flyi_row *row,
              const flyi_columns *columns, int32_t j);
/* Whether two rows have the same bits, whatever the columns. */
bool fly_row_repeats(const flyi_row *row, const flyi_row *before);
/* Whether the mask asks for tokens. */
bool fly_reads_tokens(void);
/* Defined by ranges.c: a row's bits as far as comparisons say that order keys. fly_pair has the others. */
uint64_t fly_range(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q, int32_t kv0, const flyi_row *row);

#else

bool mask(int b, int h, int q, int kv);

#define WHOLE_VECTORS
#define fly_row(args, b, h, q, row) (void)(args), (void)(row)
#define fly_column(args, b, h, kv, columns, j) (void)(columns)
#define fly_pair(args, b, h, q, kv, row, columns, j) mask(b, h, q, kv)
#define fly_row_repeats(row, before) ((void)(before), false)
#define fly_reads_tokens() false
#define fly_range(args, b, h, q, kv0, row) (~(uint64_t)0)

#endif

/* What depends on keys alone. Where they are all there, no index needs to be kept within the length, and tokens are
 * read side by side: worth a loop of its own for a mask that asks for tokens, and for no other. */
static inline void fill_columns(const flyi_mask_args *args, int32_t b, int32_t h, int32_t kv0, flyi_columns *columns) {
  int32_t length = (int32_t)args->len_kv;
  if (fly_reads_tokens() && !args->cu_kv && kv0 >= 0 && kv0 <= length - FLYI_BLOCK) {
    for (int32_t j = 0; j < FLYI_BLOCK; j++) {
      int64_t kv = kv0 + j;
      __builtin_assume(kv >= 0 && kv < length && length != 0);
      fly_column(args, b, h, kv0 + j, columns, j);
    }
    return;
  }
  for (int32_t j = 0; j < FLYI_BLOCK; j++) fly_column(args, b, h, kv0 + j, columns, j);
}

/* The pairs of a row, as fly_pair has them. */
static inline uint64_t row_of_pairs(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q, int32_t kv0,
                                    const flyi_row *row, const flyi_columns *columns) {
  uint64_t word = 0;
  for (int32_t c = 0; c < FLYI_BLOCK; c += LANES) {
    uint8_t seen[LANES] __attribute__((aligned(LANES)));
    WHOLE_VECTORS
    for (int32_t j = 0; j < LANES; j++) seen[j] = fly_pair(args, b, h, q, kv0 + c + j, row, columns, c + j);
    bytes16 v = *(const bytes16 *)seen;
    word |= (uint64_t)__builtin_bit_cast(uint16_t, __builtin_convertvector(v, bits16)) << c;
  }
  return word;
}

/* bits &= the pairs. inside: all queries are there, as above. */
static inline void mask_pairs(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q0, int32_t kv0,
                              const flyi_columns *columns, uint64_t bits[restrict FLYI_BLOCK], bool inside) {
  flyi_row row, before;
  uint64_t pairs = 0;
  int32_t length = (int32_t)args->len_q;
  for (int32_t r = 0; r < FLYI_BLOCK; r++) {
    int64_t position = q0 + r - args->q_offset;
    if (inside) __builtin_assume(position >= 0 && position < length && length != 0);
    before = row;
    fly_row(args, b, h, q0 + r, &row);
    if (!r || !fly_row_repeats(&row, &before)) pairs = row_of_pairs(args, b, h, q0 + r, kv0, &row, columns);
    bits[r] &= pairs;
  }
}

/* Ranges have a loop of their own, which becomes vectors of rows. bits are apart from all that a mask reads: what rows
 * have in common is read once. */
void fly_tile_bits(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q0, int32_t kv0,
                   uint64_t bits[restrict FLYI_BLOCK]) {
  flyi_columns columns;
  flyi_row row;
  uint64_t some = 0;
  for (int32_t r = 0; r < FLYI_BLOCK; r++) {
    fly_row(args, b, h, q0 + r, &row);
    bits[r] = fly_range(args, b, h, q0 + r, kv0, &row);
    some |= bits[r];
  }
  if (!some) return;
  fill_columns(args, b, h, kv0, &columns);
  int64_t first = q0 - args->q_offset;
  if (fly_reads_tokens() && !args->cu_q && first >= 0 && first + FLYI_BLOCK <= (int32_t)args->len_q)
    mask_pairs(args, b, h, q0, kv0, &columns, bits, true);
  else
    mask_pairs(args, b, h, q0, kv0, &columns, bits, false);
}
