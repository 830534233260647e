/* scene.h: what the suites of mechanisms share: compiled masks, and the real inputs with float64 references that
 * FLYMASK_TEST_DATA names. */
#ifndef TEST_SA_SCENE_H
#define TEST_SA_SCENE_H

#include "failing.h"
#include "oracle_backward.h"
#include "scene_tensors.h"

/* masks/NAME.c, or a source, compiled for the best target. Released by the caller. */
fly_mask *scene_mask(const char *name);
fly_mask *scene_source(const char *source);
fly_kernel *scene_kernel(fly_mask *mask, fly_type type, int dim, int value_dim);

/* Selects, and attends to what is selected, forward and backward, with each allocation failing in turn. */
void scene_failing_selection(fly_mask *mask, const fly_moba_desc *desc, const fly_attention *call);

/* DIRECTORY/NAME.npy as a dense f32 tensor of four dimensions (ones in front, or behind for an LSE). */
const char *scene_data(void); /* the directory; NULL: not given, which it says */
fly_tensor scene_load(const char *name);
/* The int32 array of NAME.npy, to be freed. */
int32_t *scene_load_rows(const char *name, int64_t *count);

#endif
