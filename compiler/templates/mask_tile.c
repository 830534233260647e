/* mask_tile.c: the template that turns a mask into bits. Input: the verified mask, joined with it. Output:
 * fly_tile_bits (launch.h), which fills a block of 64 x 64 pairs.
 *
 * Built twice. With FLYI_JOIN to unoptimised bitcode, which specialize.c joins with masks at run time: divide.c
 * divides a mask into fly_row (what depends on the query alone), fly_column (on the key alone, and is worth keeping)
 * and fly_pair (the rest), so that a buffer is read once a row or column, and the inner loop has little but
 * compares. And natively, around a mask that was compiled as ordinary C, for tests under the sanitizers, which do
 * not see code compiled at run time. */
#include <stdbool.h>
#include <stdint.h>

#include "launch.h"

/* The inner loop runs over as many pairs as make one vector of any of the vector units; the vectoriser takes it
 * whole. */
enum { LANES = 16 };

typedef uint8_t bytes16 __attribute__((ext_vector_type(LANES)));
typedef bool bits16 __attribute__((ext_vector_type(LANES)));

#ifdef FLYI_JOIN

#define WHOLE_VECTORS _Pragma("clang loop vectorize(enable) vectorize_width(LANES) interleave_count(1) unroll(disable)")

/* Defined by divide.c. */
void fly_row(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q, flyi_row *row);
void fly_column(const flyi_mask_args *args, int32_t b, int32_t h, int32_t kv, flyi_columns *columns, int32_t j);
bool fly_pair(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q, int32_t kv, const flyi_row *row,
              const flyi_columns *columns, int32_t j);
/* Whether two rows have the same bits, whatever the columns. */
bool fly_row_repeats(const flyi_row *row, const flyi_row *before);

#else

bool mask(int b, int h, int q, int kv);

#define WHOLE_VECTORS
#define fly_row(args, b, h, q, row) (void)(args), (void)(row)
#define fly_column(args, b, h, kv, columns, j) (void)(columns)
#define fly_pair(args, b, h, q, kv, row, columns, j) mask(b, h, q, kv)
#define fly_row_repeats(row, before) ((void)(before), false)

#endif

void fly_tile_bits(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q0, int32_t kv0,
                   uint64_t bits[FLYI_BLOCK]) {
  flyi_columns columns;
  flyi_row row, before;
  for (int32_t j = 0; j < FLYI_BLOCK; j++) fly_column(args, b, h, kv0 + j, &columns, j);
  for (int32_t r = 0; r < FLYI_BLOCK; r++) {
    int32_t q = q0 + r;
    before = row;
    fly_row(args, b, h, q, &row);
    if (r && fly_row_repeats(&row, &before)) {
      bits[r] = bits[r - 1];
      continue;
    }
    uint64_t word = 0;
    for (int32_t c = 0; c < FLYI_BLOCK; c += LANES) {
      uint8_t seen[LANES] __attribute__((aligned(LANES)));
      WHOLE_VECTORS
      for (int32_t j = 0; j < LANES; j++) seen[j] = fly_pair(args, b, h, q, kv0 + c + j, &row, &columns, c + j);
      bytes16 v = *(const bytes16 *)seen;
      word |= (uint64_t)__builtin_bit_cast(uint16_t, __builtin_convertvector(v, bits16)) << c;
    }
    bits[r] = word;
  }
}

#ifdef FLYI_JOIN

/* What fly_len_..., fly_token_... in the mask become. */

static inline int64_t clamp(int64_t x, int64_t count) { return x < 0 ? 0 : x >= count ? count - 1 : x; }

int32_t flyi_len_q(const flyi_mask_args *a, int32_t b) {
  int64_t e = clamp(b, a->batch);
  return a->cu_q ? a->cu_q[e + 1] - a->cu_q[e] : (int32_t)a->len_q;
}

int32_t flyi_len_kv(const flyi_mask_args *a, int32_t b) {
  int64_t e = clamp(b, a->batch);
  return a->cu_kv ? a->cu_kv[e + 1] - a->cu_kv[e] : (int32_t)a->len_kv;
}

/* The token behind row `row` of (b, h): the row map's entry, counted from the start of the sequence. */
static inline int32_t token(const flyi_mask_args *a, const int32_t *rows, int64_t stride_b, int64_t stride_h,
                            const int32_t *cu, int32_t length, int32_t b, int32_t h, int64_t row) {
  int64_t e = clamp(b, a->batch), start = cu ? cu[e] : 0;
  if (length == 0) return 0;
  return rows[e * stride_b + clamp(h, a->heads) * stride_h + start + clamp(row, length)] - (int32_t)start;
}

int32_t flyi_token_q(const flyi_mask_args *a, int32_t b, int32_t h, int32_t q) {
  return token(a, a->q_rows, a->q_stride_b, a->q_stride_h, a->cu_q, flyi_len_q(a, b), b, h, q - a->q_offset) +
         (int32_t)a->q_offset;
}

int32_t flyi_token_kv(const flyi_mask_args *a, int32_t b, int32_t h, int32_t kv) {
  return token(a, a->kv_rows, a->kv_stride_b, a->kv_stride_h, a->cu_kv, flyi_len_kv(a, b), b, h, kv);
}

#endif
