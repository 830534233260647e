/* fly_merge and fly_merge_backward with tensors in a GPU's memory, simulated here: every shape, type and layout by the
 * formula in double precision, as on the CPU. simcuda.merge.fwd|bwd.TYPE: of the merged output. */
#include "cuda_call.h"
#include "merge_case.h"

static fly_cuda *cuda;

static void open_device(void) { cuda = cuda_open(); }
static void close_device(void) { fly_cuda_release(&cuda); }

enum { TENSORS = 4 * MOST + 4 };

/* Pointers to all tensors of a call, its partials' first. */
static int tensors_of(fly_merge_call *c, fly_partial *partials, fly_tensor *all[TENSORS]) {
  int count = 0;
  for (int i = 0; i < c->count; i++) {
    all[count++] = &partials[i].out, all[count++] = &partials[i].lse;
    all[count++] = &partials[i].d_out, all[count++] = &partials[i].d_lse;
  }
  all[count++] = &c->out, all[count++] = &c->lse, all[count++] = &c->d_out, all[count++] = &c->d_lse;
  return count;
}

/* The case's call, done on the device. */
static void run_on_device(merge_case *t, bool backward) {
  fly_partial partials[MOST];
  fly_merge_call call = t->call;
  fly_tensor *host[TENSORS], *device[TENSORS];
  fly_error error;
  memcpy(partials, t->partials, sizeof partials);
  call.partials = partials, call.cuda = cuda;
  int count = tensors_of(&t->call, t->partials, host);
  tensors_of(&call, partials, device);
  for (int i = 0; i < count; i++) *device[i] = cuda_tensor_put(cuda, host[i]);
  cuda_ok(backward ? fly_merge_backward(&call, &error) : fly_merge(&call, &error), &error);
  cuda_ok(fly_cuda_synchronize(cuda, NULL, &error), &error);
  for (int i = 0; i < count; i++) cuda_tensor_get(cuda, device[i], host[i]), cuda_tensor_free(cuda, device[i]);
}

static const fly_type types[] = {FLY_F32, FLY_F16, FLY_BF16};
enum { TYPES = 3, DIMS = 6 };

/* Every count of partials, among them as many as a warp has lanes and more. */
static void run_all(fly_type type, bool backward) {
  static const int dims[DIMS] = {1, 8, 33, 64, 128, 300};
  for (int dim = 0; dim < DIMS; dim++)
    for (int count = 0; count <= MOST; count++) {
      merge_case t;
      merge_spec s = {.count = count, .dim = dims[dim], .batch = 2, .heads = 3, .rows = 1 + 7 * count};
      s.seed = dim * 10 + count, s.row_maps = (dim + count) & 1, s.padded = (dim + count) & 2;
      s.d_lse = dim & 1, s.empty = count;
      for (int i = 0; i < count; i++) s.type[i] = types[(i + dim) % TYPES];
      s.out_type = type;
      merge_init(&t, &s);
      run_on_device(&t, backward);
      if (backward)
        merge_check_backward(&t);
      else
        merge_check_forward(&t);
      merge_finish(&t);
    }
}

START_TEST(merged) { run_all(types[_i % TYPES], _i / TYPES); }
END_TEST

/* More partials than a warp has lanes, each with one of the rows, in double precision. */
START_TEST(more_partials_than_lanes) {
  enum { COUNT = 77, ROWS = 5, DIM = 10 };
  static float out[COUNT][ROWS][DIM], lse[COUNT][ROWS], merged[ROWS][DIM], whole[ROWS];
  static fly_partial partials[COUNT];
  test_random random = {7};
  fly_error error;
  for (int i = 0; i < COUNT; i++) {
    for (int r = 0; r < ROWS; r++) {
      lse[i][r] = (float)(3 * test_normal(&random));
      for (int d = 0; d < DIM; d++) out[i][r][d] = (float)test_normal(&random);
    }
    fly_tensor o = fly_tensor_dense(out[i], FLY_F32, 1, 1, ROWS, DIM),
               l = fly_tensor_dense(lse[i], FLY_F32, 1, 1, ROWS, 1);
    partials[i] = (fly_partial){.out = cuda_tensor_put(cuda, &o), .lse = cuda_tensor_put(cuda, &l)};
  }
  fly_tensor to = fly_tensor_dense(merged, FLY_F32, 1, 1, ROWS, DIM),
             l = fly_tensor_dense(whole, FLY_F32, 1, 1, ROWS, 1);
  fly_merge_call call = {FLY_INIT(fly_merge_call),
                         .partials = partials,
                         .count = COUNT,
                         .cuda = cuda,
                         .out = cuda_tensor_put(cuda, &to),
                         .lse = cuda_tensor_put(cuda, &l)};
  cuda_ok(fly_merge(&call, &error), &error);
  cuda_tensor_get(cuda, &call.out, &to), cuda_tensor_get(cuda, &call.lse, &l);
  for (int r = 0; r < ROWS; r++) {
    double sum = 0;
    for (int i = 0; i < COUNT; i++) sum += exp((double)lse[i][r]);
    ck_assert_double_eq_tol(whole[r], log(sum), 1e-6);
    for (int d = 0; d < DIM; d++) {
      double want = 0;
      for (int i = 0; i < COUNT; i++) want += exp((double)lse[i][r]) / sum * (double)out[i][r][d];
      ck_assert_double_eq_tol(merged[r][d], want, 1e-7);
    }
  }
  for (int i = 0; i < COUNT; i++) cuda_tensor_free(cuda, &partials[i].out), cuda_tensor_free(cuda, &partials[i].lse);
  cuda_tensor_free(cuda, &call.out), cuda_tensor_free(cuda, &call.lse);
}
END_TEST

START_TEST(huge_and_infinite_log_sum_exps) {
  merge_case t;
  merge_spec s = {.count = 2, .dim = 3, .batch = 1, .heads = 1, .rows = 5};
  static const double lse[5][2] = {{3e38, 3e38}, {-3e38, 3e38}, {INFINITY, 0}, {NAN, 0}, {NAN, -INFINITY}};
  merge_init(&t, &s);
  for (int r = 0; r < 5; r++)
    for (int i = 0; i < 2; i++) oracle_set(&t.partials[i].lse, 0, 0, r, 0, lse[r][i]);
  run_on_device(&t, false);
  for (int d = 0; d < 3; d++) {
    double a = oracle_get(&t.partials[0].out, 0, 0, 0, d), b = oracle_get(&t.partials[1].out, 0, 0, 0, d);
    ck_assert_double_eq_tol(oracle_get(&t.call.out, 0, 0, 0, d), (a + b) / 2, 1e-6);
    ck_assert_double_eq(oracle_get(&t.call.out, 0, 0, 1, d), oracle_get(&t.partials[1].out, 0, 0, 1, d));
    for (int r = 2; r < 5; r++) ck_assert(isnan(oracle_get(&t.call.out, 0, 0, r, d)));
  }
  ck_assert_double_eq(oracle_get(&t.call.lse, 0, 0, 1, 0), (double)(float)3e38);
  for (int r = 2; r < 5; r++) ck_assert(isnan(oracle_get(&t.call.lse, 0, 0, r, 0)));
  merge_finish(&t);
}
END_TEST

START_TEST(misuse_is_refused) {
  merge_case t;
  merge_spec s = {.count = 2, .dim = 8, .batch = 1, .heads = 2, .rows = 6};
  fly_error error;
  merge_init(&t, &s);
  t.call.cuda = cuda; /* and tensors of the host */
  ck_assert_int_eq(fly_merge(&t.call, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "out.data is not in device memory"), "%s", error.message);
  t.call.cuda = NULL, t.call.stream = &t;
  ck_assert_int_eq(fly_merge(&t.call, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "cuda is NULL"), "%s", error.message);
  merge_finish(&t);
}
END_TEST

static Suite *make_suite(void) {
  static const char *const names[] = {"merge.fwd.f32", "merge.fwd.f16", "merge.fwd.bf16",
                                      "merge.bwd.f32", "merge.bwd.f16", "merge.bwd.bf16"};
  Suite *suite = suite_create("cuda_merge");
  TCase *rest = tcase_create("merge.rest");
  for (int i = 0; i < 2 * TYPES; i++) {
    TCase *test = tcase_create(names[i]);
    tcase_add_checked_fixture(test, open_device, close_device);
    tcase_add_loop_test(test, merged, i, i + 1);
    suite_add_tcase(suite, test);
  }
  tcase_add_checked_fixture(rest, open_device, close_device);
  tcase_add_test(rest, more_partials_than_lanes);
  tcase_add_test(rest, huge_and_infinite_log_sum_exps);
  tcase_add_test(rest, misuse_is_refused);
  suite_add_tcase(suite, rest);
  return suite;
}

FLY_TEST_MAIN(make_suite)
