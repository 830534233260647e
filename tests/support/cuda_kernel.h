/* cuda_kernel.h: kernels of the CUDA suites: compiled, or, for a machine without a compiler, from images made ahead. */
#ifndef TEST_CUDA_KERNEL_H
#define TEST_CUDA_KERNEL_H

#include "support.h"

/* A kernel for sm_80 of the mask in `source` (NULL: masks/NAME.c). FLYMASK_GPU_IMAGES in the environment names a
 * folder: a suite without a compiler loads NAME.TYPE.D.DV.image from there, one with a compiler writes it there. */
fly_kernel *cuda_kernel(const char *name, const char *source, fly_type type, int dim, int value_dim);

/* Whether this run is to write images and nothing else. */
bool cuda_kernel_packing(void);

#endif
