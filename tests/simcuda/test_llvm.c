/* test_llvm.c: C functions that clang and LLVM compiled to PTX give what the same functions give natively. */
#include <stdio.h>

#include "data/portable.h"
#include "gpu.h"

typedef struct arguments {
  CUdeviceptr a, b, out;
  int n;
} arguments;

static char *read_ptx(void) {
  FILE *f = fopen(SIMCUDA_PORTABLE_PTX, "rb");
  ck_assert_msg(f != NULL, "cannot open %s", SIMCUDA_PORTABLE_PTX);
  char *text = calloc(1, 1 << 20);
  ck_assert(text && fread(text, 1, (1 << 20) - 1, f) > 0);
  fclose(f);
  return text;
}

START_TEST(compiled_functions_agree_with_native_ones) {
  enum { N = 5000 };
  static u32 a[N], b[N];
  static u64 out[N];
  uint64_t seed = 42;
  char *ptx = read_ptx();
  for (int i = 0; i < N; i++) a[i] = (u32)(gpu_random(&seed) >> 32), b[i] = (u32)(gpu_random(&seed) >> 32);
  arguments x = {gpu_new(a, sizeof a), gpu_new(b, sizeof b), gpu_new(NULL, sizeof out), N};
  void *params[] = {&x};
  ck_cu(gpu_launch(ptx, "all_functions", (N + 127) / 128, 128, 0, params));
  gpu_read(out, x.out, sizeof out);
  for (int i = 0; i < N; i++)
    if (out[i] != everything(a[i], b[i]))
      ck_abort_msg("of %#x, %#x: %#llx, not %#llx", a[i], b[i], out[i], everything(a[i], b[i]));
  gpu_free(x.a);
  gpu_free(x.b);
  gpu_free(x.out);
  free(ptx);
}
END_TEST

START_TEST(a_block_works_together) {
  u32 a[256];
  u64 out[256], sum = 0;
  char *ptx = read_ptx();
  for (u32 i = 0; i < 256; i++) a[i] = i * i % 97;
  arguments x = {gpu_new(a, sizeof a), 0, gpu_new(NULL, sizeof out), 256};
  void *params[] = {&x};
  ck_cu(gpu_launch(ptx, "running_sums", 1, 256, 0, params));
  gpu_read(out, x.out, sizeof out);
  for (int i = 0; i < 256; i++) ck_assert_uint_eq(out[i], sum += a[i]);
  gpu_free(x.a);
  gpu_free(x.out);
  free(ptx);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("simcuda.llvm");
  TCase *c = tcase_create("llvm");
  tcase_add_checked_fixture(c, gpu_start, gpu_stop);
  tcase_add_test(c, compiled_functions_agree_with_native_ones);
  tcase_add_test(c, a_block_works_together);
  suite_add_tcase(s, c);
  return s;
}
GPU_TEST_MAIN(suite)
