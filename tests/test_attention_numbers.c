/* Forward attention is exact in its edge cases, and the same bits on any number of threads. */
#include "support/call_case.h"

static int window[2] = {70, 9};

static bool see_some_rows(void *context, int b, int h, int q, int kv) { /* rows with q % 3 == 0 see nothing */
  (void)context, (void)b, (void)h;
  return q % 3 != 0 && kv <= q;
}

START_TEST(rows_that_see_nothing_give_zero) {
  CALL_FOR_TARGETS(target) {
    call_spec s = {.dim = 16, .value_dim = 33, .target = target, .len_q = 150, .len_kv = 130};
    call_test(&s, see_none, NULL);
    call_test(&s, see_some_rows, NULL);
    s.q_offset = -100;
    call_test(&s, see_causal, NULL);
  }
}
END_TEST

START_TEST(large_scores) { /* the maximum keeps rising and falling by hundreds of powers of two */
  static const float amplitudes[] = {10, 100, 1e4f, 1e15f};
  static const fly_type types[] = {FLY_F32, FLY_BF16};
  CALL_FOR_TARGETS(target)
  for (int t = 0; t < 2; t++) {
    call_spec s = {
        .type = types[t], .dim = 40, .target = target, .len_q = 140, .len_kv = 260, .amplitude = amplitudes[_i]};
    call_test(&s, see_causal, NULL);
    call_test(&s, see_window, window);
  }
}
END_TEST

START_TEST(tiny_and_negative_scale) {
  call_spec s = {.dim = 40, .len_q = 100, .len_kv = 200, .scale = 1e-30f};
  call_test(&s, see_all, NULL);
  s.scale = -0.7f;
  call_test(&s, see_window, window);
}
END_TEST

/* ---- infinities and NaN ---------------------------------------------------------------------------------------- */

typedef struct poison {
  fly_tensor *tensor;
  int64_t row, channel;
  double value;
} poison;

static float payload_nan(void) { /* every bit set: arithmetic keeps the payload */
  uint32_t bits = 0xffffffff;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Runs with and without the poison: what sees it is not a number, the others keep their bits. */
static void check_poison(const call_spec *spec, oracle_predicate *see, void *context, int which, int64_t row,
                         double value, const char *what) {
  call_case t;
  call_init(&t, spec, see, context);
  fly_tensor *all[] = {&t.call.q, &t.call.k, &t.call.v}, *x = all[which];
  call_run(&t);
  size_t row_bytes = t.call.out.stride[2] * fly_type_size(t.call.out.type); /* one batch entry, one head, dense */
  size_t bytes = row_bytes * spec->len_q;
  char *clean = malloc(bytes);
  memcpy(clean, t.call.out.data, bytes);
  call_reset(&t);
  for (int64_t d = 0; d < x->shape[3]; d++) oracle_set(x, 0, 0, row, d, value);
  call_run(&t);
  oracle_check(&t.call, see, context, CALL_UNTOUCHED, what);
  for (int64_t q = 0; q < spec->len_q; q++) {
    bool touched = which == 0 ? q == row : see(context, 0, 0, (int)(q + spec->q_offset), (int)row);
    if (touched) continue;
    const char *now = (const char *)t.call.out.data + q * row_bytes;
    ck_assert_msg(memcmp(now, clean + q * row_bytes, row_bytes) == 0, "%s: row %d changed, and does not see row %d",
                  what, (int)q, (int)row);
  }
  free(clean);
  call_free(&t);
}

START_TEST(nan_and_infinity_reach_only_who_sees_them) {
  static const char *const names[] = {"q", "k", "v"};
  const double values[] = {NAN, INFINITY, -INFINITY, payload_nan()};
  static const fly_type types[] = {FLY_F32, FLY_BF16};
  int shares[] = {4, 60, 128, 250};
  CALL_FOR_TARGETS(target)
  for (int type = 0; type < 2; type++)
    for (int which = 0; which < 3; which++)
      for (int v = 0; v < 4; v++) {
        if (which < 2 && (v == 1 || v == 2)) continue; /* of a sum of infinities of both signs: the next test */
        char what[64];
        snprintf(what, sizeof what, "%s of %s has %g on %s", names[which], fly_type_name(types[type]), values[v],
                 target);
        call_spec s = {.type = types[type],
                       .dim = 20,
                       .value_dim = _i % 2 ? 48 : 20,
                       .target = target,
                       .len_q = 130,
                       .len_kv = 130,
                       .amplitude = _i % 2 ? 200 : 1}; /* with maxima that must rise beside a NaN */
        int64_t row = _i * 40 + 3;
        check_poison(&s, see_causal, NULL, which, row, values[v], what);
        check_poison(&s, see_window, window, which, row, values[v], what);
        check_poison(&s, see_random, &shares[_i], which, row, values[v], what);
      }
}
END_TEST

START_TEST(infinite_scores) { /* +infinity: NaN, as infinity - infinity; -infinity: as if masked */
  CALL_FOR_TARGETS(target)
  for (int type = FLY_F32; type != FLY_TYPE_NONE; type = type == FLY_F32 ? FLY_BF16 : FLY_TYPE_NONE)
    for (int sign = -1; sign <= 1; sign += 2) {
      call_case t;
      call_spec s = {.type = type, .dim = 4, .target = target, .len_q = 70, .len_kv = 100};
      call_init(&t, &s, see_window, window);
      for (int64_t r = 0; r < 70; r++) oracle_set(&t.call.q, 0, 0, r, 1, 1);
      oracle_set(&t.call.k, 0, 0, 50, 1, sign * INFINITY);
      call_run(&t);
      oracle_check(&t.call, see_window, window, CALL_UNTOUCHED, sign < 0 ? "-infinity" : "+infinity");
      call_free(&t);
    }
}
END_TEST

/* ---- threads --------------------------------------------------------------------------------------------------- */

static uint64_t *bits_of(call_case *t, size_t *count) {
  size_t out = t->call.out.shape[0] * t->call.out.stride[0], lse = t->call.lse.shape[0] * t->call.lse.stride[0];
  float *copy = malloc((out + lse) * sizeof *copy);
  memcpy(copy, t->call.out.data, out * sizeof *copy);
  memcpy(copy + out, t->call.lse.data, lse * sizeof *copy);
  *count = (out + lse) * sizeof *copy;
  return (uint64_t *)copy;
}

/* A pool that runs its items last to first. */
static void backwards(void *user, int64_t count, void (*body)(void *context, int64_t i), void *context) {
  for (int64_t i = count; i-- > 0;) body(context, i);
  ++*(int *)user;
}

START_TEST(any_number_of_threads_gives_the_same_bits) {
  call_spec s = {
      .dim = 24, .batch = 2, .heads = 6, .kv_heads = 2, .len_q = 300, .len_kv = 330, .kv_rows = 1, .threads = 1};
  call_case t;
  size_t count;
  int used = 0;
  call_init(&t, &s, see_window, window);
  call_run(&t);
  uint64_t *one = bits_of(&t, &count);
  for (int threads = 2; threads <= 9; threads++) {
    call_reset(&t);
    t.call.threads = threads;
    if (threads > 6) t.call.parallel_for = backwards, t.call.parallel_user = &used;
    call_run(&t);
    uint64_t *more = bits_of(&t, &count);
    ck_assert_msg(memcmp(one, more, count) == 0, "%d threads give other bits than one", threads);
    free(more);
  }
  ck_assert_int_gt(used, 0);
  free(one);
  call_free(&t);
}
END_TEST

START_TEST(rows_do_not_depend_on_their_neighbours) { /* row by row gives the same bits as all at once */
  CALL_FOR_TARGETS(target) {
    call_spec s = {.dim = 24, .target = target, .len_q = 37, .len_kv = 128, .q_offset = 64, .amplitude = 12};
    call_case t;
    call_init(&t, &s, see_all, NULL);
    call_run(&t);
    float *all = malloc(37 * 24 * sizeof *all), *data = t.call.out.data;
    memcpy(all, data, 37 * 24 * sizeof *all);
    for (int64_t r = 0; r < 37; r++) { /* the query alone, through a row map of one row */
      int32_t row = (int32_t)r;
      handmade one;
      fly_attention call = t.call;
      fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), FLY_F32, 24, 0, target};
      call.geometry.len_q = 1, call.geometry.q_rows.rows = &row;
      handmade_init(&one, see_all, NULL, NULL, &desc, &call.geometry, 128, 128, 0);
      call.kernel = one.kernel, call.bound = &one.bound, call.map = &one.map;
      fly_error error;
      ck_fly_ok(fly_attention_forward(&call, &error), error);
      handmade_free(&one);
      ck_assert_msg(memcmp(data + r * 24, all + r * 24, 24 * sizeof *all) == 0, "%s: row %d alone", target, (int)r);
    }
    free(all);
    call_free(&t);
  }
}
END_TEST

START_TEST(workspace_of_the_stated_size_is_enough) {
  for (int threads = 1; threads <= 5; threads += 2) {
    call_spec s = {.type = FLY_F16,
                   .dim = 40,
                   .value_dim = 17,
                   .batch = 2,
                   .heads = 6,
                   .kv_heads = 3,
                   .len_q = 300,
                   .len_kv = 500,
                   .threads = threads};
    call_case t;
    fly_error error;
    size_t bytes;
    call_init(&t, &s, see_causal, NULL);
    ck_fly_ok(fly_attention_workspace(&t.call, &bytes, &error), error);
    t.call.workspace = guard_alloc(bytes, 64, threads == 3);
    t.call.workspace_size = bytes;
    call_run(&t);
    oracle_check(&t.call, see_causal, NULL, CALL_UNTOUCHED, "own workspace");
    guard_free(t.call.workspace);
    call_free(&t);
  }
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("attention_numbers");
  TCase *tests = tcase_create("numbers");
  tcase_add_test(tests, rows_that_see_nothing_give_zero);
  tcase_add_loop_test(tests, large_scores, 0, 4);
  tcase_add_test(tests, tiny_and_negative_scale);
  tcase_add_loop_test(tests, nan_and_infinity_reach_only_who_sees_them, 0, 4);
  tcase_add_test(tests, infinite_scores);
  tcase_add_test(tests, any_number_of_threads_gives_the_same_bits);
  tcase_add_test(tests, rows_do_not_depend_on_their_neighbours);
  tcase_add_test(tests, workspace_of_the_stated_size_is_enough);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
