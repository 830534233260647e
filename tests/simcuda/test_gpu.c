/* test_gpu.c: the helpers of gpu.h. */
#include "gpu.h"

#include <stdio.h>

void gpu_start(void) {
  static simcuda_config first;
  static bool known;
  CUcontext context;
  if (!known) {
    simcuda_get_config(&first);
    known = true;
  }
  simcuda_set_config(&first);
  simcuda_fail_call(0, 0);
  ck_cu(cuInit(0));
  ck_cu(cuDevicePrimaryCtxRetain(&context, 0));
  ck_cu(cuCtxSetCurrent(context));
  simcuda_clear();
}

void gpu_stop(void) {
  simcuda_counts counts;
  simcuda_clear();
  simcuda_get_counts(&counts);
  ck_assert_uint_eq(counts.allocations, 0);
  ck_assert_uint_eq(counts.modules, 0);
  ck_assert_uint_eq(counts.streams, 0);
  ck_assert_uint_eq(counts.events, 0);
  ck_cu(cuDevicePrimaryCtxRelease_v2(0));
}

CUdeviceptr gpu_new(const void *data, size_t bytes) {
  CUdeviceptr p = 0;
  ck_cu(cuMemAlloc_v2(&p, bytes));
  if (data) ck_cu(cuMemcpyHtoD_v2(p, data, bytes));
  return p;
}

void gpu_read(void *to, CUdeviceptr from, size_t bytes) { ck_cu(cuMemcpyDtoH_v2(to, from, bytes)); }
void gpu_free(CUdeviceptr pointer) { ck_cu(cuMemFree_v2(pointer)); }

CUresult gpu_launch2(const char *ptx, const char *kernel, unsigned gx, unsigned gy, unsigned block, unsigned shared,
                     void **params) {
  CUmodule module;
  CUfunction function;
  CUresult result = cuModuleLoadData(&module, ptx);
  if (result) return result;
  result = cuModuleGetFunction(&function, module, kernel);
  if (!result && shared > 48 << 10)
    result = cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared);
  if (!result) result = cuLaunchKernel(function, gx, gy, 1, block, 1, 1, shared, NULL, params, NULL);
  if (!result) result = cuCtxSynchronize();
  char report[1000];
  snprintf(report, sizeof report, "%s", simcuda_report());
  if (result) { /* a broken context unloads nothing: mend it and go on */
    simcuda_clear();
    cuModuleUnload(module);
    snprintf((char *)(uintptr_t)simcuda_report(), 900, "%.890s", report);
    return result;
  }
  return cuModuleUnload(module);
}

CUresult gpu_launch(const char *ptx, const char *kernel, unsigned grid, unsigned block, unsigned shared,
                    void **params) {
  return gpu_launch2(ptx, kernel, grid, 1, block, shared, params);
}

char *gpu_file(const char *name) {
  char path[1000];
  snprintf(path, sizeof path, "%s/%s", SIMCUDA_DATA, name);
  FILE *f = fopen(path, "rb");
  ck_assert_msg(f != NULL, "cannot open %s", path);
  ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
  long n = ftell(f);
  rewind(f);
  char *text = calloc(1, (size_t)n + 1);
  ck_assert(text && fread(text, 1, (size_t)n, f) == (size_t)n);
  fclose(f);
  return text;
}

char *gpu_replace(const char *text, const char *from, const char *to, int n) {
  const char *at = strstr(text, from);
  while (at && n--) at = strstr(at + strlen(from), from);
  ck_assert_msg(at != NULL, "no '%s' in the text", from);
  size_t before = (size_t)(at - text), length = strlen(text) - strlen(from) + strlen(to) + 1;
  char *copy = malloc(length);
  ck_assert(copy != NULL);
  memcpy(copy, text, before);
  strcpy(copy + before, to);
  strcat(copy + before, at + strlen(from));
  return copy;
}

uint64_t gpu_random(uint64_t *state) { /* xorshift64* */
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 0x2545f4914f6cdd1du;
}
