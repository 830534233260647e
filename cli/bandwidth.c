/* bandwidth.c: how fast this machine only reads memory: the measure that `bench --bandwidth` holds a call against that
 * waits for its keys and values. */
#include <omp.h>

#include "cli.h"

enum { STREAMS = 4, LINE = 8 /* words of 64 bits in 64 bytes */ };

typedef uint64_t line __attribute__((vector_size(64), aligned(8), may_alias));

/* All of it, and nothing else: four sums that do not wait for each other. */
static uint64_t read_all(const uint64_t *data, int64_t lines) {
  line sum[STREAMS] = {0};
  for (int64_t i = 0; i + STREAMS <= lines; i += STREAMS)
    for (int j = 0; j < STREAMS; j++) sum[j] ^= *(const line *)(data + (i + j) * LINE);
  uint64_t total = 0;
  for (int j = 0; j < STREAMS; j++)
    for (int k = 0; k < LINE; k++) total ^= sum[j][k];
  return total;
}

double read_rate(const fly_tensor *const *tensors, int count, int threads) {
  uint64_t total = 0;
  int64_t bytes = 0;
  double start = now_ms();
  for (int t = 0; t < count; t++) {
    const int64_t *s = tensors[t]->shape;
    int64_t words = s[0] * s[1] * s[2] * s[3] * (int64_t)fly_type_size(tensors[t]->type) / 8;
    bytes += words * 8;
#pragma omp parallel num_threads(threads) reduction(^ : total)
    {
      int64_t share = words / LINE / omp_get_num_threads(), first = share * omp_get_thread_num();
      total ^= read_all((const uint64_t *)tensors[t]->data + first * LINE, share);
    }
  }
  double ms = now_ms() - start;
  volatile uint64_t keep = total;
  (void)keep;
  return ms > 0 ? (double)bytes / ms * 1e-6 : 0;
}
