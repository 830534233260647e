/* cuda_kernel.h: kernels of the CUDA suites: compiled, or, for a machine without a compiler, from images made ahead. */
#ifndef TEST_CUDA_KERNEL_H
#define TEST_CUDA_KERNEL_H

#include "support.h"

/* Sources are texts without their #include; NULL: masks/NAME.c, scores/SCORE.c. score NULL: no modifier. */
typedef struct cuda_kernel_spec {
  const char *name, *source;
  const char *score, *score_source;
  fly_type type;
  int dim, value_dim;
} cuda_kernel_spec;

/* A kernel for sm_80. FLYMASK_GPU_IMAGES in the environment names a folder: a suite without a compiler loads
 * NAME.TYPE.D.DV.image from there (NAME+SCORE with a modifier), one with a compiler writes it there. */
fly_kernel *cuda_kernel_of(const cuda_kernel_spec *spec);
/* Without a modifier. */
fly_kernel *cuda_kernel(const char *name, const char *source, fly_type type, int dim, int value_dim);

/* Whether this run is to write images and nothing else. */
bool cuda_kernel_packing(void);

#endif
