/* gpu.h: what the suites of the simulated driver share: a context, buffers, modules from text, launches whose failure
 * is seen at once. */
#ifndef SIMCUDA_TEST_GPU_H
#define SIMCUDA_TEST_GPU_H

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "simcuda.h"

#define ck_cu(call)                                                                                                    \
  do {                                                                                                                 \
    CUresult result_ = (call);                                                                                         \
    ck_assert_msg(result_ == CUDA_SUCCESS, "%s: %d: %s", #call, result_, simcuda_report());                            \
  } while (0)

void gpu_start(
    void); /* a context becomes current; the configuration is the default one, report and errors are cleared */
void gpu_stop(void); /* everything must have been given back */

CUdeviceptr gpu_new(const void *data, size_t bytes); /* data NULL: not initialised */
void gpu_read(void *to, CUdeviceptr from, size_t bytes);
void gpu_free(CUdeviceptr pointer);

/* Loads, launches, waits, unloads. The error is that of whichever failed first. */
CUresult gpu_launch(const char *ptx, const char *kernel, unsigned grid, unsigned block, unsigned shared, void **params);
/* The same with a grid of two dimensions. */
CUresult gpu_launch2(const char *ptx, const char *kernel, unsigned gx, unsigned gy, unsigned block, unsigned shared,
                     void **params);

/* A file of data/, 0-terminated; to be freed. */
char *gpu_file(const char *name);
/* A copy of `text` with the n-th (from 0) occurrence of `from` replaced by `to`; fails the test where there is
 * none. */
char *gpu_replace(const char *text, const char *from, const char *to, int n);
uint64_t gpu_random(uint64_t *state);

/* int main() of a suite. Its tests run in their own processes unless CK_FORK=no. */
#define GPU_TEST_MAIN(make)                                                                                            \
  int main(void) {                                                                                                     \
    SRunner *runner = srunner_create(make());                                                                          \
    srunner_run_all(runner, CK_ENV);                                                                                   \
    int failed = srunner_ntests_failed(runner);                                                                        \
    srunner_free(runner);                                                                                              \
    return failed != 0;                                                                                                \
  }

#endif
