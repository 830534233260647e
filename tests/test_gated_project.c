/* Projected gates: the gradients of x, weights and biases, against double precision and against each other. */
#include "sa/gated_case.h"

/* Few gates and many, with rows of x that are whole vectors, and others. */
static const struct {
  int64_t width;
  bool by_channel;
} projections[] = {{130, false}, {128, false}, {130, true}, {320, true}};

/* sum over tokens and parts, in double: what d_x, d_weight and d_bias are made of. */
START_TEST(projections_pass_their_gradients_on) {
  gated_case t;
  gated_spec s = {.batch = 2,
                  .heads = 3,
                  .kv_heads = 3,
                  .n = 201,
                  .width = projections[_i].width,
                  .dim = 16,
                  .value_dim = 20,
                  .kind = PROJECTED,
                  .by_channel = projections[_i].by_channel};
  gated_case_init(&t, &s);
  gated_case_forward(&t);
  gated_case_backward(&t);
  int64_t channels = s.by_channel ? s.value_dim : 1;
  double *d_x = calloc((size_t)(s.batch * s.n * s.width), sizeof *d_x);
  for (int i = 0; i < 2; i++) {
    const fly_gate *g = &t.parts[i].gate;
    double *d_w = calloc((size_t)(s.heads * channels * (s.width + 1)), sizeof *d_w);
    for (int64_t p = 0; p < s.batch * s.heads * s.n; p++)
      for (int64_t c = 0; c < channels; c++) {
        int64_t b = p / s.n / s.heads, h = p / s.n % s.heads, r = p % s.n;
        double open = sigmoid(gated_case_logit(&t, i, b, h, r, c)), d = 0;
        for (int64_t k = 0; k < s.value_dim; k++)
          if (!s.by_channel || k == c)
            d += open * (1 - open) * oracle_get(&t.parts[i].attention.out, b, h, r, k) *
                 oracle_get(&t.call.d_out, b, h, r, k);
        for (int64_t k = 0; k < s.width; k++) {
          d_w[(h * channels + c) * (s.width + 1) + k] += d * oracle_get(&t.call.x, b, 0, r, k);
          d_x[(b * s.n + r) * s.width + k] += d * oracle_get(&g->weight, 0, h, c, k);
        }
        d_w[(h * channels + c) * (s.width + 1) + s.width] += d;
      }
    for (int64_t h = 0; h < s.heads; h++)
      for (int64_t c = 0; c < channels; c++)
        for (int64_t k = 0; k <= s.width; k++) {
          double want = d_w[(h * channels + c) * (s.width + 1) + k];
          double got = k < s.width ? oracle_get(&g->d_weight, 0, h, c, k) : oracle_get(&g->d_bias, 0, h, c, 0);
          ck_assert_msg(fabs(got - want) < 1e-5 * (5 + fabs(want)), "d_weight[%d, %d, %d] is %g, not %g", (int)h,
                        (int)c, (int)k, got, want);
        }
    free(d_w);
  }
  for (int64_t p = 0; p < s.batch * s.n * s.width; p++) {
    double got = oracle_get(&t.call.d_x, p / s.width / s.n, 0, p / s.width % s.n, p % s.width);
    ck_assert_msg(fabs(got - d_x[p]) < 1e-5 * (1 + fabs(d_x[p])), "d_x[%d] is %g, not %g", (int)p, got, d_x[p]);
  }
  free(d_x);
  gated_case_free(&t);
}
END_TEST

START_TEST(any_number_of_threads_gives_the_same_bits) {
  gated_case t, u;
  gated_spec s = {.batch = 2,
                  .heads = 4,
                  .kv_heads = 2,
                  .n = 300,
                  .width = _i ? 130 : 50,
                  .dim = 32,
                  .value_dim = 32,
                  .kind = PROJECTED,
                  .by_channel = _i,
                  .threads = 1};
  gated_case_init(&t, &s);
  gated_case_forward(&t), gated_case_backward(&t);
  for (s.threads = 2; s.threads < 5; s.threads++) {
    gated_case_init(&u, &s);
    gated_case_forward(&u), gated_case_backward(&u);
    ck_assert(scene_equal(&t.call.out, &u.call.out) && scene_equal(&t.call.d_q, &u.call.d_q) &&
              scene_equal(&t.call.d_k, &u.call.d_k));
    ck_assert(scene_equal(&t.call.d_v, &u.call.d_v) && scene_equal(&t.call.d_x, &u.call.d_x));
    for (int i = 0; i < 2; i++) {
      ck_assert(scene_equal(&t.parts[i].gate.d_weight, &u.parts[i].gate.d_weight));
      ck_assert(scene_equal(&t.parts[i].gate.d_bias, &u.parts[i].gate.d_bias));
    }
    gated_case_free(&u);
  }
  gated_case_free(&t);
}
END_TEST

typedef void each_element(const fly_tensor *narrow, const fly_tensor *wide, int64_t b, int64_t h, int64_t s, int64_t d);

static void for_each(const fly_tensor *narrow, const fly_tensor *wide, each_element *visit) {
  for (int64_t b = 0; b < wide->shape[0]; b++)
    for (int64_t h = 0; h < wide->shape[1]; h++)
      for (int64_t s = 0; s < wide->shape[2]; s++)
        for (int64_t d = 0; d < wide->shape[3]; d++) visit(narrow, wide, b, h, s, d);
}

static void copy_element(const fly_tensor *narrow, const fly_tensor *wide, int64_t b, int64_t h, int64_t s, int64_t d) {
  oracle_set(wide, b, h, s, d, oracle_get(narrow, b, h, s, d));
}

static void check_rounded(const fly_tensor *narrow, const fly_tensor *wide, int64_t b, int64_t h, int64_t s,
                          int64_t d) {
  double x = oracle_get(wide, b, h, s, d);
  double want = narrow->type == FLY_F16 ? test_from_f16(test_to_f16(x)) : test_from_bf16(test_to_bf16(x));
  ck_assert_double_eq(oracle_get(narrow, b, h, s, d), want);
}

START_TEST(gradients_of_narrow_projections_are_those_of_f32_rounded) { /* _i: the type, and whether by channel */
  gated_case t, u;
  gated_spec s = {.gate_type = _i % 2 ? FLY_BF16 : FLY_F16,
                  .batch = 2,
                  .heads = 3,
                  .kv_heads = 3,
                  .n = 70,
                  .width = 48,
                  .dim = 8,
                  .value_dim = 8,
                  .kind = PROJECTED,
                  .by_channel = _i / 2};
  gated_case_init(&t, &s);
  s.gate_type = FLY_F32;
  gated_case_init(&u, &s);
  for_each(&t.call.x, &u.call.x, copy_element);
  for (int i = 0; i < 2; i++) {
    for_each(&t.parts[i].gate.weight, &u.parts[i].gate.weight, copy_element);
    for_each(&t.parts[i].gate.bias, &u.parts[i].gate.bias, copy_element);
  }
  gated_case_forward(&t), gated_case_backward(&t), gated_case_forward(&u), gated_case_backward(&u);
  for_each(&t.call.d_x, &u.call.d_x, check_rounded);
  for (int i = 0; i < 2; i++) {
    for_each(&t.parts[i].gate.d_weight, &u.parts[i].gate.d_weight, check_rounded);
    for_each(&t.parts[i].gate.d_bias, &u.parts[i].gate.d_bias, check_rounded);
  }
  gated_case_free(&t), gated_case_free(&u);
}
END_TEST

/* The gates are then open or shut, and their slopes 0. */
START_TEST(an_infinity_in_x_leaves_its_gradient_finite) {
  gated_case t;
  gated_spec s = {.batch = 1, .heads = 3, .kv_heads = 3, .n = 70, .dim = 8, .value_dim = 8, .kind = PROJECTED};
  for (s.width = 31; s.width < 33; s.width++) {
    gated_case_init(&t, &s);
    oracle_set(&t.call.x, 0, 0, 5, 30, INFINITY);
    gated_case_forward(&t), gated_case_backward(&t);
    for (int k = 0; k < s.width; k++) {
      ck_assert(isfinite(oracle_get(&t.call.d_x, 0, 0, 5, k)));
      ck_assert(isfinite(oracle_get(&t.call.d_x, 0, 0, 4, k)));
    }
    gated_case_free(&t);
  }
}
END_TEST

/* A tensor that is nowhere: nothing reads or writes it. */
static fly_tensor nowhere(uint64_t address, int64_t heads, int64_t rows, int64_t dim) {
  return fly_tensor_dense((void *)address, FLY_F32, 1, heads, rows, dim);
}

/* 2^30 gates of 2^30 - 1 weights in each of up to 16 parts: bytes that wrap around, once the backward pass has them
 * twice, and floats that do. */
START_TEST(weights_that_nothing_could_hold_are_refused) {
  enum { HEADS = 1 << 27 };
  gated_case t;
  gated_spec s = {.batch = 1,
                  .heads = 1,
                  .kv_heads = 1,
                  .n = 1,
                  .width = 9,
                  .dim = 8,
                  .value_dim = 8,
                  .kind = PROJECTED_WITHOUT_BIAS,
                  .by_channel = true,
                  .forget = true,
                  .threads = 1};
  fly_error error;
  gated_case_init(&t, &s);
  fly_gated_part parts[16];
  fly_gated_call call = t.call;
  call.parts = parts, call.count = _i;
  call.q = nowhere(UINT64_C(1) << 50, HEADS, 1, 8), call.out = nowhere(UINT64_C(2) << 50, HEADS, 1, 8);
  call.d_out = nowhere(UINT64_C(3) << 50, HEADS, 1, 8), call.x = nowhere(UINT64_C(4) << 50, 1, 1, INT32_MAX / 2);
  call.d_q.data = call.d_x.data = NULL;
  for (int i = 0; i < _i; i++) {
    parts[i] = t.parts[1];
    parts[i].gate.d_weight.data = NULL;
    parts[i].gate.weight = nowhere(UINT64_C(1) << 62, HEADS, 8, INT32_MAX / 2);
  }
  ck_assert_msg(fly_gated_forward(&call, &error) == FLY_ERROR_MEMORY, "%s", error.message);
  for (int i = 0; i < _i; i++) {
    parts[i].attention.out = nowhere(UINT64_C(5) << 50, HEADS, 1, 8);
    parts[i].attention.lse = nowhere(UINT64_C(6) << 50, HEADS, 1, 1);
  }
  ck_assert_msg(fly_gated_backward(&call, &error) == FLY_ERROR_MEMORY, "%s", error.message);
  gated_case_free(&t);
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("gated_project");
  TCase *tests = tcase_create("gated_project");
  tcase_add_loop_test(tests, projections_pass_their_gradients_on, 0, 4);
  tcase_add_loop_test(tests, any_number_of_threads_gives_the_same_bits, 0, 2);
  tcase_add_loop_test(tests, gradients_of_narrow_projections_are_those_of_f32_rounded, 0, 4);
  tcase_add_loop_test(tests, weights_that_nothing_could_hold_are_refused, 1, 17);
  tcase_add_test(tests, an_infinity_in_x_leaves_its_gradient_finite);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(suite)
