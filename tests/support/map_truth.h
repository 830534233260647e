/* map_truth.h: block maps against every pair, and random geometries for them. */
#ifndef TEST_MAP_TRUTH_H
#define TEST_MAP_TRUTH_H

#include "interpret.h"

/* Fills see[row * len_kv + kv] of the call's (b, h): what is true. Rows count from 0. */
typedef void truth_fill(void *context, const fly_map *map, int b, int h, int64_t len_q, int64_t len_kv, uint8_t *see);

/* By the map's own compiled code, block by block. context: unused. */
truth_fill truth_compiled;
/* By an ordinary predicate of positions: context is a truth_predicate. */
typedef struct truth_predicate {
  bool (*see)(void *context, int b, int h, int q, int kv);
  void *context;
} truth_predicate;
truth_fill truth_by_predicate;

/* Checks every tile of every (b, h): right, or at least sound where the map is not exact; runs in order and as long
 * as they can be; counts; and the transposed order, lists and visible pairs, which it makes. Returns how many tiles
 * it looked at. */
long check_map(fly_map *map, bool exact, truth_fill *fill, void *context, const char *what);

/* A random geometry with everything that it points to. */
typedef struct random_call {
  fly_geometry geometry;
  int32_t *q_rows, *kv_rows, *cu_q, *cu_kv;
} random_call;
/* Lengths up to `longest`; tokens of row maps up to `tokens`; row maps, offsets and ragged batches now and then. */
void random_call_init(test_random *random, int64_t longest, int64_t tokens, random_call *out);
void random_call_free(random_call *call);
/* Tiles of 1 to 200, often powers of two. */
int random_tile(test_random *random);

#endif
