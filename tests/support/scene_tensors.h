/* scene_tensors.h: dense tensors of the suites of mechanisms, and how far two of them are apart. */
#ifndef TEST_SCENE_TENSORS_H
#define TEST_SCENE_TENSORS_H

#include "call_case.h"

/* A dense tensor of normal numbers in guarded memory; seed < 0: of CALL_UNTOUCHED. Freed by scene_free. */
fly_tensor scene_tensor(fly_type type, int64_t batch, int64_t heads, int64_t rows, int64_t dim, int seed);
fly_tensor scene_like(const fly_tensor *like, int seed); /* dense */
void scene_free(fly_tensor *tensor);
bool scene_equal(const fly_tensor *a, const fly_tensor *b); /* bit by bit; dense */
void scene_copy(const fly_tensor *to, const fly_tensor *from);

/* Makes all tensors of a call that are not there yet: out, lse, d_out, d_lse, d_q, d_k, d_v like q, k and v. */
void scene_outputs(fly_attention *call, int seed);
void scene_free_call(fly_attention *call); /* all tensors */

/* The largest difference, and the relative Frobenius norm of the differences. */
typedef struct scene_difference {
  double worst, frobenius, largest; /* largest: of the reference */
} scene_difference;
scene_difference scene_compare(const fly_tensor *got, const fly_tensor *want);

#endif
