/* merge_case.h: calls of fly_merge with random partials, and the formula in double precision that they must meet. */
#ifndef TEST_MERGE_CASE_H
#define TEST_MERGE_CASE_H

#include "call_case.h"

enum { MOST = 5 };

typedef struct merge_spec {
  fly_type type[MOST], out_type; /* 0: f32 */
  int count, dim;
  int64_t batch, heads, rows;
  bool row_maps, padded, d_lse;
  int empty; /* so many of 8 partial rows are empty */
  int seed, threads;
} merge_spec;

typedef struct merge_case {
  merge_spec spec;
  fly_partial partials[MOST];
  fly_merge_call call;
  void *memory[8 * MOST + 8];
  int used;
} merge_case;

void merge_init(merge_case *t, const merge_spec *spec);
void merge_finish(merge_case *t);
/* The weights of a row's partials, and its LSE. */
double merge_weigh(const merge_case *t, int64_t b, int64_t h, int64_t r, double *weight);
/* What the call wrote, against the formula: one rounding of the result, and a little of double precision. */
void merge_check_forward(const merge_case *t);
void merge_check_backward(const merge_case *t); /* rows that nothing reads keep their gradients */

#endif
