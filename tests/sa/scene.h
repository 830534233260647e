/* scene.h: what the suites of mechanisms share: compiled masks, tensors, and the real inputs with float64 references
 * that FLYMASK_TEST_DATA names. */
#ifndef TEST_SA_SCENE_H
#define TEST_SA_SCENE_H

#include "call_case.h"
#include "failing.h"
#include "oracle_backward.h"

/* masks/NAME.c, or a source, compiled for the best target. Released by the caller. */
fly_mask *scene_mask(const char *name);
fly_mask *scene_source(const char *source);
fly_kernel *scene_kernel(fly_mask *mask, fly_type type, int dim, int value_dim);

/* A dense tensor of normal numbers in guarded memory; seed < 0: of CALL_UNTOUCHED. Freed by scene_free. */
fly_tensor scene_tensor(fly_type type, int64_t batch, int64_t heads, int64_t rows, int64_t dim, int seed);
fly_tensor scene_like(const fly_tensor *like, int seed); /* dense */
void scene_free(fly_tensor *tensor);
bool scene_equal(const fly_tensor *a, const fly_tensor *b); /* bit by bit; dense */
void scene_copy(const fly_tensor *to, const fly_tensor *from);

/* Makes all tensors of a call that are not there yet: out, lse, d_out, d_lse, d_q, d_k, d_v like q, k and v. */
void scene_outputs(fly_attention *call, int seed);
void scene_free_call(fly_attention *call); /* all tensors */

/* Selects, and attends to what is selected, forward and backward, with each allocation failing in turn. */
void scene_failing_selection(fly_mask *mask, const fly_moba_desc *desc, const fly_attention *call);

/* DIRECTORY/NAME.npy as a dense f32 tensor of four dimensions (ones in front, or behind for an LSE). */
const char *scene_data(void); /* the directory; NULL: not given, which it says */
fly_tensor scene_load(const char *name);
/* The int32 array of NAME.npy, to be freed. */
int32_t *scene_load_rows(const char *name, int64_t *count);

/* The largest difference, and the relative Frobenius norm of the differences. */
typedef struct scene_difference {
  double worst, frobenius, largest; /* largest: of the reference */
} scene_difference;
scene_difference scene_compare(const fly_tensor *got, const fly_tensor *want);

#endif
