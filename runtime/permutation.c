/* permutation.c: reproducible uniform permutations, and what row maps need: inverse and validation.
 *
 * The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3, SC
 * 2011): a bijection of a 128-bit counter under a 64-bit key. The key is the seed; the counter is (block, layer,
 * step, head), so that streams of different layers, steps and heads never overlap. Only integers are used: the
 * result is the same everywhere. */
#include <inttypes.h>
#include <stdlib.h>

#include "permutation.h"
#include "runtime.h"

void flyi_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3], k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53 * x0, p1 = (uint64_t)0xCD9E8D57 * x2;
    x0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
    x1 = (uint32_t)p1;
    x2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
    x3 = (uint32_t)p0;
    k0 += 0x9E3779B9; /* the golden ratio and sqrt(3) - 1, the Weyl sequence of the key */
    k1 += 0xBB67AE85;
  }
  out[0] = x0, out[1] = x1, out[2] = x2, out[3] = x3;
}

typedef struct stream {
  uint32_t key[2], counter[4], words[4];
  int used;
} stream;

static uint32_t next_word(stream *s) {
  if (s->used == 4) {
    flyi_philox(s->counter, s->key, s->words);
    s->counter[0]++;
    s->used = 0;
  }
  return s->words[s->used++];
}

/* Uniform in [0, bound): Lemire, Fast random integer generation in an interval, ACM TOMACS 2019. Unbiased. */
static uint32_t below(stream *s, uint32_t bound) {
  uint64_t product = (uint64_t)next_word(s) * bound;
  if ((uint32_t)product < bound) {
    uint32_t threshold = -bound % bound;
    while ((uint32_t)product < threshold) product = (uint64_t)next_word(s) * bound;
  }
  return (uint32_t)(product >> 32);
}

fly_status fly_permutation(int64_t n, uint64_t seed, uint32_t layer, uint32_t step, uint32_t head, int32_t *rows,
                           fly_error *error) {
  if (n < 0 || n > INT32_MAX)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "a permutation of %" PRId64 " rows: at most 2^31 - 1", n);
  if (n && !rows) return flyi_fail(error, FLY_ERROR_ARGUMENT, "rows is NULL");
  stream s = {.key = {(uint32_t)seed, (uint32_t)(seed >> 32)}, .counter = {0, layer, step, head}, .used = 4};
  for (int32_t i = 0; i < n; i++) rows[i] = i;
  for (int32_t i = (int32_t)n - 1; i > 0; i--) {
    uint32_t j = below(&s, (uint32_t)i + 1);
    int32_t held = rows[i];
    rows[i] = rows[j];
    rows[j] = held;
  }
  return FLY_OK;
}

fly_status fly_permutation_inverse(int64_t n, const int32_t *rows, int32_t *inverse, fly_error *error) {
  if (n < 0 || n > INT32_MAX)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "a permutation of %" PRId64 " rows: at most 2^31 - 1", n);
  if (n && (!rows || !inverse))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s is NULL", rows ? "inverse" : "rows");
  for (int64_t i = 0; i < n; i++) inverse[i] = -1;
  for (int64_t p = 0; p < n; p++) {
    if (rows[p] < 0 || rows[p] >= n)
      return flyi_fail(error, FLY_ERROR_ARGUMENT, "rows[%" PRId64 "] is %d, outside 0 .. %" PRId64, p, rows[p], n - 1);
    if (inverse[rows[p]] >= 0)
      return flyi_fail(error, FLY_ERROR_ARGUMENT, "rows[%d] and rows[%" PRId64 "] are both %d: not a permutation",
                       inverse[rows[p]], p, rows[p]);
    inverse[rows[p]] = (int32_t)p;
  }
  return FLY_OK;
}

fly_status fly_permutation_check(int64_t n, const int32_t *rows, fly_error *error) {
  if (n < 0 || n > INT32_MAX)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "a permutation of %" PRId64 " rows: at most 2^31 - 1", n);
  int32_t *inverse = flyi_alloc(n, sizeof *inverse);
  if (!inverse) return flyi_no_memory(error);
  fly_status status = fly_permutation_inverse(n, rows, inverse, error);
  free(inverse);
  return status;
}
