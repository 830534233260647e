/* What partial attentions need of the attention calls: gradients that add to what is there, outputs in f32 whatever the
 * kernel's type, and a backward pass that reads merged rows several times. */
#include "backward_case.h"

static int window[2] = {30, 5}, half = 128;

/* ---- gradients that add up --------------------------------------------------------------------------------------- */

static size_t rows_of(const fly_tensor *t) { return (size_t)(t->shape[0] * t->shape[1] * t->shape[2]); }

/* All elements in order, as doubles. */
static double *values_of(const fly_tensor *t) {
  double *values = malloc((rows_of(t) * (size_t)t->shape[3] + 1) * sizeof *values), *at = values;
  for (int64_t b = 0; t->data && b < t->shape[0]; b++)
    for (int64_t h = 0; h < t->shape[1]; h++)
      for (int64_t s = 0; s < t->shape[2]; s++)
        for (int64_t d = 0; d < t->shape[3]; d++) *at++ = oracle_get(t, b, h, s, d);
  return values;
}

static void fill(const fly_tensor *t, int seed) {
  test_random random = {(uint64_t)seed + 5};
  for (int64_t b = 0; t->data && b < t->shape[0]; b++)
    for (int64_t h = 0; h < t->shape[1]; h++)
      for (int64_t s = 0; s < t->shape[2]; s++)
        for (int64_t d = 0; d < t->shape[3]; d++) oracle_set(t, b, h, s, d, test_normal(&random));
}

/* What was there and what is added, rounded a few times; and exactly what was there where nothing is added. */
static void check_sum(const fly_tensor *t, const double *alone, const double *was, const char *what) {
  double eps = t->type == FLY_F32 ? 0x1p-21 : t->type == FLY_F16 ? 0x1p-10 : 0x1p-7;
  double *got = values_of(t);
  for (size_t i = 0; t->data && i < rows_of(t) * (size_t)t->shape[3]; i++) {
    double want = was[i] + alone[i], tolerance = alone[i] == 0 ? 0 : eps * (4 + fabs(was[i]) + fabs(alone[i]));
    if (fabs(got[i] - want) > tolerance)
      ck_abort_msg("%s: element %zu is %.9g, not %.9g + %.9g", what, i, got[i], was[i], alone[i]);
  }
  free(got);
}

static void check_added(const backward_spec *spec, oracle_predicate *see, void *context, const char *what) {
  backward_case t;
  backward_init(&t, spec, see, context);
  fly_attention *c = &t.base.call;
  const fly_tensor *gradients[] = {&c->d_q, &c->d_k, &c->d_v};
  double *alone[3], *was[3];
  backward_run(&t);
  for (int i = 0; i < 3; i++) alone[i] = values_of(gradients[i]);
  for (int i = 0; i < 3; i++) fill(gradients[i], i), was[i] = values_of(gradients[i]);
  c->add_gradients = true;
  backward_run(&t);
  for (int i = 0; i < 3; i++) check_sum(gradients[i], alone[i], was[i], what), free(alone[i]), free(was[i]);
  backward_free(&t);
}

START_TEST(
    gradients_add_to_what_is_there) { /* _i: which rows repeat; in place and packed; rows nobody reads; every type */
  static const fly_type types[] = {FLY_F32, FLY_F16, FLY_BF16};
  static const int dims[] = {64, 20};
  CALL_FOR_TARGETS(target)
  for (int type = 0; type < 3; type++)
    for (int dim = 0; dim < 2; dim++)
      for (int mask = 0; mask < 2; mask++) {
        if (target != *fly_cpu_targets() && (type || mask)) continue;
        backward_spec s = {.call = {.type = types[type],
                                    .dim = dims[dim],
                                    .target = target,
                                    .batch = 2,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .len_q = 100,
                                    .len_kv = 90,
                                    .q_rows = _i % 4,
                                    .kv_rows = _i / 4,
                                    .out_rows = _i % 4 > 1,
                                    .q_offset = mask ? 0 : -40,
                                    .threads = 1 + _i % 2},
                           .d_lse = true,
                           .no_d_k = _i == 5,
                           .no_d_q = _i == 10};
        check_added(&s, mask ? see_window : see_causal, window, target);
      }
}
END_TEST

/* ---- outputs in f32 ---------------------------------------------------------------------------------------------- */

START_TEST(narrow_kernels_can_write_f32) { /* within the f32 tolerance of the oracle */
  static const fly_type types[] = {FLY_F16, FLY_BF16};
  CALL_FOR_TARGETS(target)
  for (int rows = 0; rows < 2; rows++) {
    call_case t;
    call_spec s = {.type = types[_i],
                   .dim = 24,
                   .value_dim = 40,
                   .target = target,
                   .batch = 2,
                   .heads = 2,
                   .kv_heads = 1,
                   .len_q = 130,
                   .len_kv = 150,
                   .q_rows = rows,
                   .out_rows = rows};
    call_init(&t, &s, see_random, &half);
    fly_tensor *out = &t.call.out;
    *out = fly_tensor_dense(NULL, FLY_F32, out->shape[0], out->shape[1], out->shape[2], out->shape[3]);
    out->data = guard_alloc((size_t)(out->shape[0] * out->stride[0]) * sizeof(float), sizeof(float), rows);
    call_reset(&t);
    call_run(&t);
    oracle_check(&t.call, see_random, &half, CALL_UNTOUCHED, target);
    guard_free(out->data);
    call_free(&t);
  }
}
END_TEST

START_TEST(wide_kernels_write_their_own_type) {
  call_case t;
  fly_error error;
  call_spec s = {.dim = 16, .len_q = 10, .len_kv = 10};
  call_init(&t, &s, see_causal, NULL);
  t.call.out.type = FLY_F16;
  ck_assert_int_eq(fly_attention_forward(&t.call, &error), FLY_ERROR_ARGUMENT);
  ck_assert_str_eq(error.message, "out.type is f16, wanted f32");
  call_free(&t);
}
END_TEST

START_TEST(the_backward_pass_wants_the_kernels_type) {
  backward_case t;
  fly_error error;
  backward_spec s = {.call = {.type = FLY_F16, .dim = 16, .len_q = 10, .len_kv = 10}};
  backward_init(&t, &s, see_causal, NULL);
  float out[160] = {0};
  t.base.call.out = fly_tensor_dense(out, FLY_F32, 1, 1, 10, 16);
  ck_assert_int_eq(fly_attention_backward(&t.base.call, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "out.type is f32, the kernel's f16") != NULL, "%s", error.message);
  backward_free(&t);
}
END_TEST

/* ---- rows that the backward pass reads several times ------------------------------------------------------------- */

/* Each query is two rows of the call, which see the even and the odd keys; both read the merged row. */
static bool sees_part(void *context, int b, int h, int q, int kv) {
  (void)context, (void)b, (void)h;
  return kv % 2 == q % 2 && kv <= q / 2;
}

static bool sees_whole(void *context, int b, int h, int q, int kv) {
  (void)context, (void)b, (void)h;
  return kv <= q;
}

START_TEST(rows_of_the_merged_output_are_read_several_times) {
  enum { N = 90 };
  backward_case whole;
  handmade parts;
  fly_error error;
  int32_t rows[2 * N];
  for (int i = 0; i < 2 * N; i++) rows[i] = i / 2;
  backward_spec s = {.call = {.dim = 24, .heads = 2, .kv_heads = 1, .len_q = N, .len_kv = N}, .d_lse = true};
  backward_init(&whole, &s, sees_whole, NULL);
  fly_attention c = whole.base.call;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), FLY_F32, 24, 24, NULL};
  c.geometry.len_q = 2 * N, c.geometry.q_rows.rows = rows, c.out_rows.rows = rows;
  handmade_init(&parts, sees_part, NULL, NULL, &desc, &c.geometry, 64, 64, 0);
  c.kernel = parts.kernel, c.bound = &parts.bound, c.map = &parts.map;
  ck_fly_ok(fly_attention_backward(&c, &error), error);
  oracle_check_backward(&whole.base.call, sees_whole, NULL, "two parts");
  ck_assert_int_eq(fly_attention_forward(&c, &error), FLY_ERROR_ARGUMENT); /* which may not write them twice */
  handmade_free(&parts);
  backward_free(&whole);
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("partial");
  TCase *tests = tcase_create("partial");
  tcase_add_loop_test(tests, gradients_add_to_what_is_there, 0, 16);
  tcase_add_loop_test(tests, narrow_kernels_can_write_f32, 0, 2);
  tcase_add_test(tests, wide_kernels_write_their_own_type);
  tcase_add_test(tests, the_backward_pass_wants_the_kernels_type);
  tcase_add_test(tests, rows_of_the_merged_output_are_read_several_times);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(suite)
