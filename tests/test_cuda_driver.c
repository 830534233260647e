/* Handles of CUDA contexts on the simulated driver: which contexts and devices are taken, device memory, what is
 * left behind. */
#include "cuda_call.h"
#include "simcuda/driver.h"
#include "simcuda/simcuda.h"

static simcuda_counts counts(void) {
  simcuda_counts c;
  simcuda_get_counts(&c);
  return c;
}

static void check_nothing_left(void) {
  simcuda_counts c = counts();
  ck_assert_uint_eq(c.allocations + c.host_allocations, 0);
  ck_assert_uint_eq(c.modules + c.events + c.streams, 0);
  ck_assert_uint_eq(c.primary_retains, 0);
}

static void set_arch(int arch) {
  simcuda_config config;
  simcuda_get_config(&config);
  config.arch = arch;
  simcuda_set_config(&config);
}

static void refuse(const fly_cuda_desc *desc, fly_status status, const char *words) {
  fly_cuda *cuda = (fly_cuda *)&status;
  fly_error error;
  ck_assert_int_eq(fly_cuda_create(desc, &cuda, &error), status);
  ck_assert_ptr_null(cuda);
  ck_assert_msg(strstr(error.message, words) != NULL, "%s", error.message);
  ck_assert_int_eq(error.status, status);
}

static void set_pools(bool there) {
  simcuda_config config;
  simcuda_get_config(&config);
  config.no_pools = !there;
  simcuda_set_config(&config);
}

static const fly_cuda_desc primary = {FLY_INIT(fly_cuda_desc), .primary = true};

START_TEST(a_primary_context_is_retained_and_released) {
  fly_cuda *cuda = cuda_open(), *again = fly_cuda_retain(cuda);
  CUcontext current = NULL;
  ck_assert_uint_eq(counts().primary_retains, 1);
  cuCtxGetCurrent(&current);
  ck_assert_ptr_null(current); /* the thread's contexts are left as they were */
  fly_cuda_release(&cuda);
  ck_assert_ptr_null(cuda);
  ck_assert_uint_eq(counts().primary_retains, 1);
  fly_cuda_release(&again);
  check_nothing_left();
}
END_TEST

START_TEST(the_current_context_is_taken_and_a_primary_one_kept_alive) {
  CUcontext context;
  fly_cuda *cuda;
  fly_error error;
  cuInit(0);
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxPushCurrent_v2(context);
  ck_fly_ok(fly_cuda_create(NULL, &cuda, &error), error);
  ck_assert_uint_eq(counts().primary_retains, 2);
  fly_cuda_release(&cuda);
  ck_assert_uint_eq(counts().primary_retains, 1);
  CUcontext own; /* made by the caller, beside the primary one */
  ck_assert_int_eq(cuCtxCreate_v4(&own, NULL, 0, 0), 0);
  ck_fly_ok(fly_cuda_create(NULL, &cuda, &error), error);
  ck_assert_uint_eq(counts().primary_retains, 1);
  fly_cuda_release(&cuda);
  cuCtxDestroy_v2(own);
  cuDevicePrimaryCtxRelease_v2(0);
  check_nothing_left();
}
END_TEST

START_TEST(what_cannot_be_taken_is_refused_in_clear_words) {
  refuse(NULL, FLY_ERROR_ARGUMENT, "no CUDA context is current");
  refuse(&(fly_cuda_desc){FLY_INIT(fly_cuda_desc), .primary = true, .device = 1}, FLY_ERROR_ARGUMENT,
         "desc.device is 1");
  refuse(&(fly_cuda_desc){FLY_INIT(fly_cuda_desc), .primary = true, .device = -1}, FLY_ERROR_ARGUMENT,
         "desc.device is -1");
  refuse(&(fly_cuda_desc){.size = 1}, FLY_ERROR_ARGUMENT, "FLY_INIT(fly_cuda_desc)");
  set_arch(75);
  refuse(&primary, FLY_ERROR_UNSUPPORTED, "sm_75: kernels need sm_80");
  set_arch(80);
  set_pools(false);
  refuse(&primary, FLY_ERROR_UNSUPPORTED, "simulated sm_80, has no memory pools (cuMemAllocAsync)");
  set_pools(true);
  check_nothing_left();
  ck_assert_int_eq(fly_cuda_create(&primary, NULL, NULL), FLY_ERROR_ARGUMENT);
  fly_cuda *cuda = cuda_open(); /* and then it works */
  fly_cuda_release(&cuda);
}
END_TEST

START_TEST(a_machine_without_a_device_says_so) {
  setenv("SIMCUDA_DEVICES", "0", 1); /* read by the driver's first call, which is to come */
  refuse(&primary, FLY_ERROR_DEVICE, "no CUDA-capable device is detected (CUDA_ERROR_NO_DEVICE");
}
END_TEST

START_TEST(info_says_what_the_device_is) {
  fly_cuda_info info;
  set_arch(86);
  fly_cuda *cuda = cuda_open();
  fly_cuda_get_info(cuda, &info);
  ck_assert_str_eq(info.target, "sm_86");
  ck_assert_str_eq(info.name, "simulated sm_86");
  ck_assert_int_eq(info.device, 0);
  ck_assert_int_gt(info.multiprocessors, 0);
  ck_assert_int_gt(info.shared_memory, 48 << 10);
  ck_assert_int_eq(info.driver_version, 13000);
  ck_assert_uint_gt(info.memory, 0);
  ck_assert_uint_eq(info.resident, 0);
  fly_cuda_release(&cuda);
  fly_cuda_get_info(NULL, &info);
  ck_assert_uint_eq(info.memory, 0);
}
END_TEST

START_TEST(device_memory_is_written_and_read_back) {
  fly_cuda *cuda = cuda_open();
  fly_error error;
  void *memory, *none;
  char in[1000], out[1000] = {0};
  for (int i = 0; i < 1000; i++) in[i] = (char)i;
  ck_fly_ok(fly_cuda_alloc(cuda, 1000, &memory, &error), error);
  ck_fly_ok(fly_cuda_alloc(cuda, 0, &none, &error), error);
  ck_assert_uint_eq((uintptr_t)memory % 256, 0);
  ck_fly_ok(fly_cuda_write(cuda, memory, in, 1000, NULL, &error), error);
  ck_fly_ok(fly_cuda_read(cuda, out, (char *)memory + 10, 990, NULL, &error), error);
  ck_assert_mem_eq(out, in + 10, 990);
  ck_fly_ok(fly_cuda_synchronize(cuda, NULL, &error), error);
  ck_assert_int_eq(fly_cuda_read(cuda, out, (char *)memory + 10, 991, NULL, &error), FLY_ERROR_DEVICE);
  ck_assert_msg(strstr(error.message, "CUDA_ERROR_INVALID_VALUE") != NULL, "%s", error.message);
  ck_assert_int_eq(fly_cuda_write(cuda, NULL, in, 1, NULL, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_cuda_write(NULL, memory, in, 1, NULL, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_cuda_alloc(NULL, 1, &none, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_null(none);
  ck_assert_int_eq(fly_cuda_synchronize(NULL, NULL, &error), FLY_ERROR_ARGUMENT);
  fly_cuda_free(cuda, &memory);
  ck_assert_ptr_null(memory);
  fly_cuda_free(cuda, &memory);
  fly_cuda_free(NULL, NULL);
  fly_cuda_release(&cuda);
  fly_cuda_release(&cuda);
  fly_cuda_release(NULL);
  ck_assert_ptr_null(fly_cuda_retain(NULL));
}
END_TEST

START_TEST(a_full_device_is_out_of_memory_and_usable_afterwards) {
  simcuda_config config;
  simcuda_get_config(&config);
  config.memory = 1000;
  simcuda_set_config(&config);
  fly_cuda *cuda = cuda_open();
  fly_error error;
  void *memory;
  ck_assert_int_eq(fly_cuda_alloc(cuda, 1001, &memory, &error), FLY_ERROR_MEMORY);
  ck_assert_msg(strstr(error.message, "1001 bytes of device memory: out of memory") != NULL, "%s", error.message);
  ck_assert_ptr_null(memory);
  ck_fly_ok(fly_cuda_alloc(cuda, 1000, &memory, &error), error);
  fly_cuda_free(cuda, &memory);
  fly_cuda_release(&cuda);
  check_nothing_left();
}
END_TEST

START_TEST(a_destroyed_context_is_an_error_and_its_end_harmless) {
  CUcontext own, other;
  fly_cuda *cuda;
  fly_error error;
  void *memory;
  cuInit(0);
  ck_assert_int_eq(cuCtxCreate_v4(&own, NULL, 0, 0), 0);
  ck_fly_ok(fly_cuda_create(NULL, &cuda, &error), error);
  ck_assert_int_eq(cuCtxCreate_v4(&other, NULL, 0, 0), 0); /* calls use the handle's context, whatever is current */
  ck_fly_ok(fly_cuda_alloc(cuda, 10, &memory, &error), error);
  CUcontext current, of_memory;
  cuCtxGetCurrent(&current);
  ck_assert_ptr_eq(current, other);
  cuPointerGetAttribute(&of_memory, CU_POINTER_ATTRIBUTE_CONTEXT, (uintptr_t)memory);
  ck_assert_ptr_eq(of_memory, own);
  cuCtxDestroy_v2(own);
  ck_assert_int_eq(fly_cuda_alloc(cuda, 10, &memory, &error), FLY_ERROR_DEVICE);
  ck_assert_msg(strstr(error.message, "was it destroyed?") != NULL, "%s", error.message);
  fly_cuda_release(&cuda);
  cuCtxDestroy_v2(other);
  check_nothing_left();
}
END_TEST

/* Which driver calls a fly_cuda_create makes is its own matter: each of them in turn fails. */
START_TEST(any_call_that_fails_while_creating_leaves_nothing) {
  bool own = _i;
  CUcontext context;
  cuInit(0);
  if (own) cuCtxCreate_v4(&context, NULL, 0, 0);
  int failures = 0;
  for (uint64_t n = 1;; n++, failures++) {
    fly_cuda *cuda;
    fly_error error = {0};
    simcuda_fail_call(n, CUDA_ERROR_NOT_PERMITTED);
    fly_status status = fly_cuda_create(own ? NULL : &primary, &cuda, &error);
    bool reached = simcuda_calls() >= n;
    simcuda_fail_call(0, 0);
    if (!reached) {
      ck_fly_ok(status, error);
      fly_cuda_release(&cuda);
      break;
    }
    ck_assert_int_eq(status, FLY_ERROR_DEVICE);
    ck_assert_msg(strstr(error.message, "operation not permitted") != NULL, "%s", error.message);
    ck_assert_ptr_null(cuda);
    ck_assert_uint_eq(counts().primary_retains, 0);
  }
  ck_assert_int_ge(failures, 8);
  if (own) cuCtxDestroy_v2(context);
  check_nothing_left();
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("cuda_driver");
  TCase *tests = tcase_create("handles");
  tcase_add_test(tests, a_primary_context_is_retained_and_released);
  tcase_add_test(tests, the_current_context_is_taken_and_a_primary_one_kept_alive);
  tcase_add_test(tests, what_cannot_be_taken_is_refused_in_clear_words);
  tcase_add_test(tests, a_machine_without_a_device_says_so);
  tcase_add_test(tests, info_says_what_the_device_is);
  tcase_add_test(tests, device_memory_is_written_and_read_back);
  tcase_add_test(tests, a_full_device_is_out_of_memory_and_usable_afterwards);
  tcase_add_test(tests, a_destroyed_context_is_an_error_and_its_end_harmless);
  tcase_add_loop_test(tests, any_call_that_fails_while_creating_leaves_nothing, 0, 2);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
