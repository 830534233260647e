/* Partial attentions merge to the attention over all keys; gradients are those of the formula. The reference is the
 * formula in double precision, and the attention oracle over all keys. */
#include <float.h>

#include "support/failing.h"
#include "support/merge_case.h"

static void run(const merge_spec *spec) {
  merge_case t;
  fly_error error;
  merge_init(&t, spec);
  ck_fly_ok(fly_merge(&t.call, &error), error);
  merge_check_forward(&t);
  ck_fly_ok(fly_merge_backward(&t.call, &error), error);
  merge_check_backward(&t);
  merge_finish(&t);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

enum { LEVELS = FLYI_ISA_LAST == FLYI_AARCH64 ? 1 : 3 };

START_TEST(every_shape_type_and_layout_follows_the_formula) { /* _i: the vector units */
  static const int dims[] = {1, 3, 8, 17, 64, 100, 128, 256, 300};
  static const fly_type types[] = {FLY_F32, FLY_F16, FLY_BF16};
  setenv("FLYMASK_ISA", flyi_isa_name((flyi_isa)(FLYI_ISA_FIRST + _i)), 1);
  for (int dim = 0; dim < 9; dim++)
    for (int count = 0; count <= MOST; count++) {
      merge_spec s = {.count = count,
                      .dim = dims[dim],
                      .batch = 2,
                      .heads = 3,
                      .rows = 1 + 20 * count,
                      .seed = dim * 10 + count,
                      .row_maps = (dim + count) & 1,
                      .padded = (dim + count) & 2,
                      .d_lse = dim & 1,
                      .empty = count};
      for (int i = 0; i < count; i++) s.type[i] = types[(i + dim) % 3];
      s.out_type = types[(dim + count) % 3];
      run(&s);
    }
}
END_TEST

START_TEST(an_empty_call_is_all_right) {
  merge_spec s = {.count = 2, .dim = 4, .batch = 1, .heads = 2, .rows = 3};
  for (int what = 0; what < 3; what++) {
    merge_case t;
    fly_error error;
    merge_init(&t, &s);
    fly_tensor *all[] = {&t.call.out,          &t.call.lse,          &t.call.d_out,       &t.partials[0].out,
                         &t.partials[0].lse,   &t.partials[1].out,   &t.partials[1].lse,  &t.partials[0].d_out,
                         &t.partials[0].d_lse, &t.partials[1].d_out, &t.partials[1].d_lse};
    for (int i = 0; i < 11; i++) all[i]->shape[what] = 0;
    ck_fly_ok(fly_merge(&t.call, &error), error);
    ck_fly_ok(fly_merge_backward(&t.call, &error), error);
    merge_finish(&t);
  }
}
END_TEST

START_TEST(parts_of_an_attention_merge_to_the_whole) { /* keys split at 100 and 170: attention over each, by q_offset */
  static const int64_t start[] = {0, 100, 170, 300};
  call_case whole, part[3];
  call_spec s = {.dim = 64, .heads = 4, .kv_heads = 2, .len_q = 90, .len_kv = 300, .q_offset = 130};
  fly_partial partials[3] = {0};
  fly_error error;
  call_init(&whole, &s, see_causal, NULL);
  for (int i = 0; i < 3; i++) {
    s.len_kv = start[i + 1] - start[i], s.q_offset = 130 - start[i];
    call_init(&part[i], &s, see_causal, NULL);
    fly_attention *c = &part[i].call;
    c->q = whole.call.q, c->k = whole.call.k, c->v = whole.call.v;
    c->k.data = (float *)c->k.data + start[i] * c->k.stride[2],
    c->v.data = (float *)c->v.data + start[i] * c->v.stride[2];
    c->k.shape[2] = c->v.shape[2] = s.len_kv;
    call_run(&part[i]);
    partials[i] = (fly_partial){.out = c->out, .lse = c->lse};
  }
  fly_merge_call merge = {FLY_INIT(fly_merge_call), .partials = partials, .count = 3, .out = whole.call.out,
                          .lse = whole.call.lse};
  ck_fly_ok(fly_merge(&merge, &error), error);
  oracle_check(&whole.call, see_causal, NULL, CALL_UNTOUCHED, "merged");
  for (int i = 0; i < 3; i++) call_free(&part[i]);
  call_free(&whole);
}
END_TEST

/* sum <g, out> + <g_lse, lse> of the merged rows. */
static double loss(merge_case *t) {
  double weight[MOST], sum = 0;
  for (int64_t r = 0; r < t->spec.rows; r++) {
    sum += oracle_get(&t->call.d_lse, 0, 0, r, 0) * merge_weigh(t, 0, 0, r, weight);
    for (int i = 0; i < t->spec.count; i++)
      for (int d = 0; d < t->spec.dim; d++)
        sum += weight[i] * oracle_get(&t->call.d_out, 0, 0, r, d) * oracle_get(&t->partials[i].out, 0, 0, r, d);
  }
  return sum;
}

START_TEST(gradients_are_central_differences) {
  merge_case t;
  merge_spec s = {.count = 3, .dim = 4, .batch = 1, .heads = 1, .rows = 5, .d_lse = true};
  fly_error error;
  merge_init(&t, &s);
  ck_fly_ok(fly_merge_backward(&t.call, &error), error);
  for (int i = 0; i < s.count; i++)
    for (int64_t r = 0; r < s.rows; r++)
      for (int d = -1; d < s.dim; d++) {
        const fly_tensor *x = d < 0 ? &t.partials[i].lse : &t.partials[i].out;
        const fly_tensor *g = d < 0 ? &t.partials[i].d_lse : &t.partials[i].d_out;
        int64_t at = d < 0 ? 0 : d;
        double was = oracle_get(x, 0, 0, r, at), high, low, up, down;
        oracle_set(x, 0, 0, r, at, was + 1e-3), high = oracle_get(x, 0, 0, r, at), up = loss(&t);
        oracle_set(x, 0, 0, r, at, was - 1e-3), low = oracle_get(x, 0, 0, r, at), down = loss(&t);
        oracle_set(x, 0, 0, r, at, was);
        double want = (up - down) / (high - low), got = oracle_get(g, 0, 0, r, at);
        ck_assert_msg(fabs(got - want) < 1e-5 * (1 + fabs(want)), "partial %d row %d channel %d: %g, not %g", i, (int)r,
                      d, got, want);
      }
  merge_finish(&t);
}
END_TEST

START_TEST(merging_in_place_gives_the_same_bits) {
  merge_case t, u;
  merge_spec s = {.count = 3, .dim = 70, .batch = 2, .heads = 2, .rows = 150, .empty = 2};
  fly_error error;
  merge_init(&t, &s), merge_init(&u, &s);
  ck_fly_ok(fly_merge(&t.call, &error), error);
  u.call.out = u.partials[1].out, u.call.lse = u.partials[1].lse;
  ck_fly_ok(fly_merge(&u.call, &error), error);
  ck_assert_mem_eq(t.call.out.data, u.call.out.data, sizeof(float) * 70 * 2 * 2 * 150);
  ck_assert_mem_eq(t.call.lse.data, u.call.lse.data, sizeof(float) * 2 * 2 * 150);
  merge_finish(&t), merge_finish(&u);
}
END_TEST

START_TEST(any_number_of_threads_gives_the_same_bits) {
  merge_case t, u;
  merge_spec s = {.count = 4, .dim = 33, .batch = 2, .heads = 3, .rows = 700, .threads = 1, .d_lse = true};
  fly_error error;
  merge_init(&t, &s);
  ck_fly_ok(fly_merge(&t.call, &error), error);
  ck_fly_ok(fly_merge_backward(&t.call, &error), error);
  for (s.threads = 2; s.threads < 6; s.threads++) {
    merge_init(&u, &s);
    ck_fly_ok(fly_merge(&u.call, &error), error);
    ck_fly_ok(fly_merge_backward(&u.call, &error), error);
    ck_assert_mem_eq(t.call.out.data, u.call.out.data, sizeof(float) * 33 * 2 * 3 * 700);
    for (int i = 0; i < 4; i++)
      ck_assert_mem_eq(t.partials[i].d_out.data, u.partials[i].d_out.data, sizeof(float) * 33 * 2 * 3 * 700);
    merge_finish(&u);
  }
  merge_finish(&t);
}
END_TEST

START_TEST(huge_and_infinite_log_sum_exps) {
  merge_case t;
  merge_spec s = {.count = 2, .dim = 3, .batch = 1, .heads = 1, .rows = 5};
  fly_error error;
  merge_init(&t, &s);
  static const double lse[5][2] = {{3e38, 3e38}, {-3e38, 3e38}, {INFINITY, 0}, {NAN, 0}, {NAN, -INFINITY}};
  for (int r = 0; r < 5; r++)
    for (int i = 0; i < 2; i++) oracle_set(&t.partials[i].lse, 0, 0, r, 0, lse[r][i]);
  ck_fly_ok(fly_merge(&t.call, &error), error);
  for (int d = 0; d < 3; d++) {
    double a = oracle_get(&t.partials[0].out, 0, 0, 0, d), b = oracle_get(&t.partials[1].out, 0, 0, 0, d);
    ck_assert_double_eq_tol(oracle_get(&t.call.out, 0, 0, 0, d), (a + b) / 2, 1e-6);
    ck_assert_double_eq(oracle_get(&t.call.out, 0, 0, 1, d), oracle_get(&t.partials[1].out, 0, 0, 1, d));
    for (int r = 2; r < 5; r++) ck_assert(isnan(oracle_get(&t.call.out, 0, 0, r, d)));
  }
  ck_assert_double_eq(oracle_get(&t.call.lse, 0, 0, 1, 0), (float)3e38);
  for (int r = 2; r < 5; r++) ck_assert(isnan(oracle_get(&t.call.lse, 0, 0, r, 0)));
  merge_finish(&t);
}
END_TEST

static fly_status status_of(merge_case *t, bool backward, fly_error *error) {
  memset(error, 0, sizeof *error);
  return backward ? fly_merge_backward(&t->call, error) : fly_merge(&t->call, error);
}

START_TEST(misuse_is_refused) {
  merge_case t;
  merge_spec s = {.count = 2, .dim = 8, .batch = 1, .heads = 2, .rows = 6, .row_maps = true};
  fly_error error;
#define REFUSED(change, backward, text)                                                                                \
  do {                                                                                                                 \
    merge_init(&t, &s);                                                                                                \
    change;                                                                                                            \
    ck_assert_int_eq(status_of(&t, backward, &error), FLY_ERROR_ARGUMENT);                                             \
    ck_assert_msg(strstr(error.message, text) != NULL, "%s", error.message);                                           \
    merge_finish(&t);                                                                                                  \
  } while (0)
  REFUSED(t.call.size = 1, false, "FLY_INIT(fly_merge_call)");
  REFUSED(t.call.count = -1, false, "count -1");
  REFUSED(t.call.partials = NULL, false, "partials is NULL");
  REFUSED(t.call.threads = -2, false, "threads is -2");
  REFUSED(t.call.out.type = FLY_I32, false, "out.type is i32");
  REFUSED(t.call.lse.type = FLY_F16, false, "lse.type is f16");
  REFUSED(t.partials[1].out.shape[3] = 7, false, "partials[1].out.shape[3] is 7, wanted 8");
  REFUSED(t.partials[1].lse.shape[2] = 5, false, "partials[1].lse.shape[2] is 5");
  REFUSED(t.partials[1].out.shape[1] = 1, false, "partials[1].out.shape[1] is 1, out.shape[1] 2");
  REFUSED(t.partials[1].out.data = NULL, false, "partials[1].out.data is NULL");
  REFUSED(((int32_t *)t.partials[0].rows.rows)[7] = 15, false, "partials[0].rows: row 1 of (batch 0, head 1) is 15");
  REFUSED(((int32_t *)t.partials[0].rows.rows)[7] = -2, false, "is -2");
  REFUSED(memset((int32_t *)t.partials[0].rows.rows, 0, 8), true, "is 0 for the second time");
  REFUSED(t.call.out = t.partials[0].out; t.call.out.shape[2] = 6, false, "out and partials[0] share memory");
  REFUSED(t.call.lse.data = t.call.out.data, false, "out and lse share memory");
  REFUSED(t.partials[1].d_out = t.partials[1].out, true, "partials[1]");
  REFUSED(t.partials[1].d_out.data = t.call.d_out.data, true, "share memory");
  REFUSED(t.call.d_out.shape[0] = t.call.d_out.shape[1] = INT64_C(1) << 31;
          t.call.d_out.stride[0] = t.call.d_out.stride[1] = 0, true,
          "d_out.shape is 2147483648 x 2147483648 x 6 x 8: more elements than");
  REFUSED(t.call.out.shape[0] = INT64_C(1) << 62; t.call.out.shape[2] = 0, false, "x 2 x 0 x 8: more elements than");
#undef REFUSED
  ck_assert_int_eq(fly_merge(NULL, &error), FLY_ERROR_ARGUMENT);
}
END_TEST

static fly_status merge_backward(void *context) {
  fly_error error;
  return fly_merge_backward(&((merge_case *)context)->call, &error);
}

START_TEST(failing_allocations_are_reported) {
  merge_case t;
  merge_spec s = {.count = 2, .dim = 8, .batch = 1, .heads = 1, .rows = 6, .row_maps = true};
  merge_init(&t, &s);
  ck_assert_int_eq(test_failing_allocations(merge_backward, &t), 3);
  merge_finish(&t);
}
END_TEST

START_TEST(a_vector_level_that_does_not_exist_is_an_error) {
  fly_error error;
  merge_spec s = {.count = 1, .dim = 8, .batch = 1, .heads = 1, .rows = 3, .type = {FLY_F32}, .out_type = FLY_F32};
  merge_case t;
  merge_init(&t, &s);
  setenv("FLYMASK_ISA", "x86-64-v9", 1);
  ck_assert_int_eq(fly_merge(&t.call, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.message, "FLYMASK_ISA is x86-64-v9"));
  unsetenv("FLYMASK_ISA");
  merge_finish(&t);
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("merge");
  TCase *tests = tcase_create("merge");
  tcase_add_loop_test(tests, every_shape_type_and_layout_follows_the_formula, 0, LEVELS);
  tcase_add_test(tests, an_empty_call_is_all_right);
  tcase_add_test(tests, parts_of_an_attention_merge_to_the_whole);
  tcase_add_test(tests, gradients_are_central_differences);
  tcase_add_test(tests, merging_in_place_gives_the_same_bits);
  tcase_add_test(tests, any_number_of_threads_gives_the_same_bits);
  tcase_add_test(tests, huge_and_infinite_log_sum_exps);
  tcase_add_test(tests, misuse_is_refused);
  tcase_add_test(tests, failing_allocations_are_reported);
  tcase_add_test(tests, a_vector_level_that_does_not_exist_is_an_error);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(suite)
