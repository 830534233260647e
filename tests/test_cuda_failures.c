/* CUDA calls in which something fails: every driver call and every allocation of the host in turn, memory of the
 * device, kernels. Each is a clear error, nothing is left behind, and the next call is right: the runtime on the
 * simulated driver. */
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

/* A gated sum with a projected gate: the setup's call is its one part. */
enum { WIDTH = 8, GATES = 6 };

typedef struct gated {
  fly_gated_part part;
  fly_gated_call call;
  void *out, *memory[GATES];
} gated;

static fly_tensor on_device(gated *g, int i, int64_t rows, int64_t width, test_random *random) {
  float values[SETUP_N * WIDTH];
  fly_error error;
  const size_t bytes = (size_t)(rows * width) * sizeof *values;
  for (int64_t k = 0; k < rows * width; k++) values[k] = (float)test_normal(random);
  ck_fly_ok(fly_cuda_alloc(s->cuda, bytes, &g->memory[i], &error), error);
  ck_fly_ok(fly_cuda_write(s->cuda, g->memory[i], values, bytes, NULL, &error), error);
  return fly_tensor_dense(g->memory[i], FLY_F32, 1, 1, rows, width);
}

static void open_gated(gated *g) {
  const fly_attention *t = &s->t.call;
  test_random random = {5};
  fly_error error;
  *g = (gated){.call = {FLY_INIT(fly_gated_call), .parts = &g->part, .count = 1}};
  g->call.q = t->q, g->call.k = t->k, g->call.v = t->v, g->call.out = t->out, g->call.d_out = t->d_out;
  g->call.d_q = t->d_q, g->call.d_k = t->d_k, g->call.d_v = t->d_v;
  g->part.attention = (fly_attention){FLY_INIT(fly_attention), .kernel = s->kernel, .bound = s->bound, .lse = t->lse};
  g->part.attention.geometry = s->host.geometry;
  ck_fly_ok(fly_cuda_alloc(s->cuda, sizeof s->out, &g->out, &error), error);
  g->part.attention.out = fly_tensor_dense(g->out, FLY_BF16, 1, 1, SETUP_N, SETUP_D);
  g->call.x = on_device(g, 0, SETUP_N, WIDTH, &random), g->call.d_x = on_device(g, 1, SETUP_N, WIDTH, &random);
  g->part.gate.weight = on_device(g, 2, 1, WIDTH, &random), g->part.gate.d_weight = on_device(g, 3, 1, WIDTH, &random);
  g->part.gate.bias = on_device(g, 4, 1, 1, &random), g->part.gate.d_bias = on_device(g, 5, 1, 1, &random);
}

static void close_gated(gated *g) {
  for (int i = 0; i < GATES; i++) fly_cuda_free(s->cuda, &g->memory[i]);
  fly_cuda_free(s->cuda, &g->out);
}

static fly_status run_gated(const gated *g, bool backward, fly_error *error) {
  return backward ? fly_gated_backward(&g->call, error) : fly_gated_forward(&g->call, error);
}

/* What the call writes, bit by bit, when it runs undisturbed. */
static flyi_hash digest_gated(const gated *g, bool backward) {
  static uint8_t bytes[4 * SETUP_N * SETUP_D * 2 + 3 * SETUP_N * WIDTH * 4];
  const fly_gated_call *c = &g->call;
  const fly_tensor *forward[] = {&c->out},
                   *gradients[] = {&c->d_q, &c->d_k, &c->d_v, &c->d_x, &g->part.gate.d_weight, &g->part.gate.d_bias};
  size_t used = 0;
  fly_error error;
  cuda_ok(run_gated(g, backward, &error), &error);
  for (int i = 0; i < (backward ? 6 : 1); i++) {
    const fly_tensor *x = backward ? gradients[i] : forward[i];
    size_t size = (size_t)(x->shape[2] * x->shape[3]) * fly_type_size(x->type);
    ck_fly_ok(fly_cuda_read(g->call.cuda, bytes + used, x->data, size, NULL, &error), error);
    used += size;
  }
  return flyi_hash_bytes(bytes, used);
}

/* With a handle of its own each time, which has no code loaded yet. */
START_TEST(any_driver_call_of_a_gated_sum_may_fail) {
  const bool backward = _i;
  int failures = 0;
  gated g;
  flyi_hash want = {0};
  open_gated(&g);
  cuda_setup_push_primary();
  const uint64_t modules = cuda_setup_counts().modules;
  for (uint64_t n = 0;; n++) { /* 0: none fails */
    const uint64_t before = cuda_setup_counts().allocations;
    fly_error error = {0};
    g.call.cuda = cuda_open();
    if (backward && n == 0) cuda_ok(fly_gated_forward(&g.call, &error), &error);
    simcuda_fail_call(n, CUDA_ERROR_NOT_PERMITTED);
    fly_status status = run_gated(&g, backward, &error);
    bool reached = n > 0 && simcuda_calls() >= n, freeing = strstr(simcuda_report(), "cuMemFreeAsync") != NULL;
    simcuda_fail_call(0, 0);
    ck_assert_int_eq(status, reached && !freeing ? FLY_ERROR_DEVICE : FLY_OK);
    if (status) ck_assert_msg(strstr(error.message, "operation not permitted") != NULL, "%s", error.message);
    failures += status != FLY_OK;
    flyi_hash got = digest_gated(&g, backward);
    if (n == 0) want = got;
    ck_assert_msg(flyi_hash_equal(got, want), "call %d", (int)n);
    fly_cuda_release(&g.call.cuda);
    if (!freeing) ck_assert_uint_eq(cuda_setup_counts().allocations, before);
    ck_assert_uint_eq(cuda_setup_counts().modules, modules);
    simcuda_clear();
    if (n > 0 && !reached) break;
    ck_assert_uint_lt(n, 400);
  }
  ck_assert_int_gt(failures, 20);
  cuCtxSetCurrent(NULL);
  close_gated(&g);
}
END_TEST

START_TEST(any_driver_call_of_a_choice_may_fail) {
  fly_moba_desc d = {FLY_INIT(fly_moba_desc), .block = 16, .top = 3, .q = s->t.call.q, .k = s->t.call.k};
  fly_selection *selection;
  fly_error error;
  fly_mask *mask;
  int failures = 0;
  ck_fly_ok(fly_mask_compile_file(FLYMASK_SOURCE "/masks/selected_tiles.c", NULL, &mask, &error), error);
  cuda_setup_push_primary();
  for (uint64_t n = 1;; n++) {
    const uint64_t before = cuda_setup_counts().allocations;
    d.cuda = cuda_open(); /* whose code is not loaded yet */
    simcuda_fail_call(n, CUDA_ERROR_NOT_PERMITTED);
    fly_status status = fly_moba_select(mask, &d, &selection, &error);
    bool reached = simcuda_calls() >= n, freeing = strstr(simcuda_report(), "cuMemFreeAsync") != NULL;
    simcuda_fail_call(0, 0);
    ck_assert_int_eq(status, reached && !freeing ? FLY_ERROR_DEVICE : FLY_OK);
    ck_assert((selection == NULL) == (status != FLY_OK));
    failures += status != FLY_OK;
    fly_selection_release(&selection);
    cuda_ok(fly_moba_select(mask, &d, &selection, &error), &error);
    fly_selection_release(&selection);
    fly_cuda_release(&d.cuda);
    if (!freeing) ck_assert_uint_eq(cuda_setup_counts().allocations, before);
    simcuda_clear();
    if (!reached) break;
    ck_assert_uint_lt(n, 100);
  }
  ck_assert_int_gt(failures, 8);
  cuCtxSetCurrent(NULL);
  fly_mask_release(&mask);
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
  tcase_add_loop_test(failures, any_driver_call_of_a_gated_sum_may_fail, 0, 2);
  tcase_add_test(failures, any_driver_call_of_a_choice_may_fail);
  tcase_add_loop_test(failures, any_host_allocation_may_fail, 0, 4);
  tcase_add_test(failures, a_full_device_is_out_of_memory_and_usable_afterwards);
  tcase_add_test(failures, a_kernel_that_fails_shows_when_the_stream_is_waited_for);
  suite_add_tcase(suite, failures);
  return suite;
}

FLY_TEST_MAIN(make_suite)
