/* rows_launch.h: launches of the kernels that no mask is joined with (runtime/cuda_rows.c), each by itself, on
 * arguments in which all that they check occurs: for tests that miss a check. */
#ifndef TEST_ROWS_LAUNCH_H
#define TEST_ROWS_LAUNCH_H

#include "runtime/cuda.h"
#include "support.h"

/* Memory of a launch, each piece as large as its tensor. */
enum { ROWS_PIECES = 200 };

typedef struct rows_device {
  fly_cuda *cuda;
  test_random random;
  struct {
    void *memory;
    size_t bytes;
    bool written; /* what counts of a run */
  } all[ROWS_PIECES];
  int count;
} rows_device;

void rows_open(rows_device *d, uint64_t seed);
uint64_t rows_digest(rows_device *d); /* of what was written */
void rows_close(rows_device *d);

/* Ways to launch the kernels of a template, 0 .. ROWS_..._WAYS - 1. The context is current. */
enum { ROWS_MERGE_WAYS = 7, ROWS_GATE_WAYS = 3 + 3 + 3 * 2 * 3 + 2, ROWS_PROJECT_WAYS = 11, ROWS_CHOOSE_WAYS = 7 };
typedef fly_status rows_launch(rows_device *d, int way, fly_error *error);
rows_launch rows_merge;   /* forward, also with the arguments of split calls and of selected blocks; backward */
rows_launch rows_gate;    /* forward, zeros, backward */
rows_launch rows_project; /* products, sums of slices */
rows_launch rows_choose;  /* means of blocks, choice */

#endif
