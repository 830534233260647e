/* CUDA calls in which something fails: every driver call and every allocation of the host in turn, memory of the device,
 * kernels. Each is a clear error, nothing is left behind, and the next call is right: the runtime on the simulated
 * driver. */
#include "cuda_setup.h"
#include "map_case.h"
#include "runtime/runtime.h"

static cuda_setup *s;

static void open_all(void) { s = cuda_setup_open(); }
static void close_all(void) { cuda_setup_close(s); }

/* Every driver call of a call fails in turn, with and without a map at hand: a clear error, and what the next call
 * gives is right. Nothing stays on the device but what the failed call could not free. */
START_TEST(any_driver_call_may_fail) {
  bool backward = _i & 1, with_map = _i & 2;
  int failures = 0;
  cuda_setup_push_primary();
  for (uint64_t n = 1;; n++) {
    fly_error error = {0};
    fly_map *map = with_map ? map_build(s->bound, &s->host.geometry, 128) : NULL;
    fly_kernel *fresh = cuda_setup_kernel(s, "sm_80"); /* whose module is not there yet */
    s->t.call.map = map, s->t.call.kernel = fresh;
    cuda_setup_spoil(s, backward);
    uint64_t before = cuda_setup_counts().allocations;
    simcuda_fail_call(n, CUDA_ERROR_NOT_PERMITTED);
    fly_status status = cuda_setup_run(s, backward, &error);
    bool reached = simcuda_calls() >= n;
    bool freeing = strstr(simcuda_report(), "cuMemFreeAsync") != NULL;
    simcuda_fail_call(0, 0);
    if (reached && !freeing) {
      ck_assert_int_eq(status, FLY_ERROR_DEVICE);
      ck_assert_msg(strstr(error.message, "operation not permitted") != NULL, "%s", error.message);
      failures++;
    } else {
      ck_fly_ok(status, error); /* a call that has done its work does not fail for what it could not free */
    }
    cuda_setup_check_works(s, backward);
    fly_map_release(&map);
    fly_kernel_release(&fresh);
    if (!freeing) ck_assert_uint_le(cuda_setup_counts().allocations, before + 1); /* the buffer's copy is kept */
    ck_assert_uint_eq(cuda_setup_counts().modules, 0);
    simcuda_clear();
    if (!reached) break;
    ck_assert_uint_lt(n, 200);
  }
  s->t.call.map = NULL, s->t.call.kernel = s->kernel;
  ck_assert_int_gt(failures, 15);
  cuCtxSetCurrent(NULL);
}
END_TEST

START_TEST(any_host_allocation_may_fail) {
  bool backward = _i & 1, with_map = _i & 2;
  fly_error error;
  fly_map *map = with_map ? map_build(s->bound, &s->host.geometry, 128) : NULL;
  int failures = 0;
  cuda_setup_check_works(s, backward); /* the compiler's own allocations are another matter */
  for (long n = 1;; n++) {
    s->t.call.map = map, s->t.call.threads = 1;
    flyi_fail_allocation(n);
    fly_status status = cuda_setup_run(s, backward, &error);
    flyi_fail_allocation(0);
    if (!status) break;
    ck_assert_int_eq(status, FLY_ERROR_MEMORY);
    failures++;
  }
  cuda_setup_check_result(s, backward);
  ck_assert_int_gt(failures, 0);
  s->t.call.map = NULL;
  fly_map_release(&map);
}
END_TEST

START_TEST(a_full_device_is_out_of_memory_and_usable_afterwards) {
  simcuda_config config, full;
  simcuda_get_config(&config);
  for (int backward = 0; backward < 2; backward++) {
    full = config;
    full.memory = cuda_setup_counts().bytes + 300; /* room for the smallest copy, not for all */
    simcuda_set_config(&full);
    cuda_setup_refuse(s, backward, FLY_ERROR_MEMORY, "out of memory");
    simcuda_set_config(&config);
    cuda_setup_check_works(s, backward);
  }
}
END_TEST

START_TEST(a_kernel_that_fails_shows_when_the_stream_is_waited_for) {
  simcuda_config config, short_time;
  fly_error error;
  simcuda_get_config(&config);
  short_time = config;
  short_time.instructions = 10;
  simcuda_set_config(&short_time);
  ck_fly_ok(cuda_setup_run(s, false, &error), error); /* launched, that is all */
  ck_assert_int_eq(fly_cuda_synchronize(s->cuda, NULL, &error), FLY_ERROR_DEVICE);
  ck_assert_msg(strstr(error.message, "the launch timed out") != NULL, "%s", error.message);
  simcuda_set_config(&config);
  simcuda_clear();
  cuda_setup_check_works(s, false);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("cuda_failures");
  TCase *failures = tcase_create("failures");
  tcase_add_checked_fixture(failures, open_all, close_all);
  tcase_add_loop_test(failures, any_driver_call_may_fail, 0, 4);
  tcase_add_loop_test(failures, any_host_allocation_may_fail, 0, 4);
  tcase_add_test(failures, a_full_device_is_out_of_memory_and_usable_afterwards);
  tcase_add_test(failures, a_kernel_that_fails_shows_when_the_stream_is_waited_for);
  suite_add_tcase(suite, failures);
  return suite;
}

FLY_TEST_MAIN(make_suite)
