/* A machine without a CUDA driver: asking for a GPU is an error that says so, and everything else goes on. */
#include <dlfcn.h>

#include "map_case.h"

START_TEST(asking_for_a_gpu_says_that_there_is_no_driver) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver) { /* a machine with a GPU: nothing to see here */
    dlclose(driver);
    return;
  }
  fly_cuda *cuda = (fly_cuda *)&driver;
  fly_error error;
  ck_assert_int_eq(fly_cuda_create(NULL, &cuda, &error), FLY_ERROR_DEVICE);
  ck_assert_ptr_null(cuda);
  ck_assert_msg(strstr(error.message, "libcuda.so.1") != NULL, "%s", error.message);
  ck_assert_int_eq(fly_cuda_create(&(fly_cuda_desc){FLY_INIT(fly_cuda_desc), .primary = true}, &cuda, NULL),
                   FLY_ERROR_DEVICE);
}
END_TEST

START_TEST(the_cpu_goes_on_working) {
  float q[64] = {1}, k[64] = {1}, v[64], out[64];
  for (int i = 0; i < 64; i++) v[i] = (float)i;
  fly_error error;
  fly_cuda *cuda;
  fly_kernel *kernel;
  fly_bound *bound = map_bind("bool mask(int b, int h, int q, int kv) { return kv <= q; }", NULL, 0);
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_F32, .head_dim = 64};
  (void)fly_cuda_create(NULL, &cuda, NULL);
  fly_cuda_release(&cuda);
  fly_mask *mask = map_compile("bool mask(int b, int h, int q, int kv) { return kv <= q; }");
  ck_fly_ok(fly_kernel_create(mask, &desc, &kernel, &error), error);
  fly_mask_release(&mask);
  fly_attention call = {FLY_INIT(fly_attention),
                        .kernel = kernel,
                        .bound = bound,
                        .q = fly_tensor_dense(q, FLY_F32, 1, 1, 1, 64),
                        .k = fly_tensor_dense(k, FLY_F32, 1, 1, 1, 64),
                        .v = fly_tensor_dense(v, FLY_F32, 1, 1, 1, 64),
                        .out = fly_tensor_dense(out, FLY_F32, 1, 1, 1, 64)};
  ck_fly_ok(fly_attention_forward(&call, &error), error);
  for (int i = 0; i < 64; i++) ck_assert(out[i] == v[i]);
  call.stream = &call; /* a stream makes no sense there */
  ck_assert_int_eq(fly_attention_forward(&call, &error), FLY_ERROR_ARGUMENT);
  fly_kernel_release(&kernel);
  fly_bound_release(&bound);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("cuda_absent");
  TCase *tests = tcase_create("absent");
  tcase_add_test(tests, asking_for_a_gpu_says_that_there_is_no_driver);
  tcase_add_test(tests, the_cpu_goes_on_working);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
