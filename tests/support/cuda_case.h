/* cuda_case.h: host calls of the CUDA suites bound to a kernel for a device: a window, or a mask with its two
 * parameters. */
#ifndef TEST_CUDA_CASE_H
#define TEST_CUDA_CASE_H

#include "call_case.h"
#include "cuda_call.h"
#include "cuda_kernel.h"

/* What P and dS are rounded by, of a type. */
double cuda_operands(fly_type type);

/* The handle of device 0; NULL where images are packed, and nothing runs. */
fly_cuda *cuda_open_to_run(void);

/* see_window of call_case.h as a mask: parameters left and right. */
extern const char cuda_window[];

typedef struct cuda_case {
  fly_kernel *kernel;
  fly_bound *bound;
  fly_map *map;
} cuda_case;

/* Of the call that s describes, with the mask NAME in `source`, which has int parameters left and right, and a map of
 * square tiles (0: none); sets kernel, bound and map of the call. */
void cuda_case_open(cuda_case *d, fly_attention *call, const call_spec *s, const char *name, const char *source,
                    int left, int right, int tile);
void cuda_case_open_window(cuda_case *d, fly_attention *call, const call_spec *s, int left, int right, int tile);
void cuda_case_close(cuda_case *d);

/* In a message. */
void cuda_case_describe(char what[256], const call_spec *s, int left, int right, int tile);

#endif
