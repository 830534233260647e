/* The gradients are those of the forward pass; infinities and NaNs reach what sees them and nothing else; results are
 * the same for any number of threads, however they run. */
#include "support/backward_case.h"

static int window[2] = {30, 5}, half = 128;

/* ---- gradients of what ------------------------------------------------------------------------------------------- */

/* d loss / d x[b, h, s, d], by the forward oracle. */
static double difference(const fly_attention *c, const fly_tensor *x, int64_t b, int64_t h, int64_t s, int64_t d,
                         oracle_predicate *see, void *context) {
  double at = oracle_get(x, b, h, s, d), low, high, loss_low, loss_high;
  oracle_set(x, b, h, s, d, at + 1e-3);
  high = oracle_get(x, b, h, s, d), loss_high = oracle_loss(c, see, context);
  oracle_set(x, b, h, s, d, at - 1e-3);
  low = oracle_get(x, b, h, s, d), loss_low = oracle_loss(c, see, context);
  oracle_set(x, b, h, s, d, at);
  return (loss_high - loss_low) / (high - low);
}

static void check_differences(const fly_attention *c, const char *name, const fly_tensor *x, const fly_tensor *gradient,
                              oracle_predicate *see, void *context) {
  for (int64_t b = 0; b < x->shape[0]; b++)
    for (int64_t h = 0; h < x->shape[1]; h++)
      for (int64_t s = 0; s < x->shape[2]; s++)
        for (int64_t d = 0; d < x->shape[3]; d++) {
          double want = difference(c, x, b, h, s, d, see, context), got = oracle_get(gradient, b, h, s, d);
          ck_assert_msg(fabs(got - want) <= 2e-5 * (1 + fabs(want)),
                        "%s[%d, %d, %d, %d] is %.9g, the difference quotient %.9g", name, (int)b, (int)h, (int)s,
                        (int)d, got, want);
        }
}

START_TEST(gradients_are_central_differences_of_the_forward_pass) {
  static const struct {
    int q_rows, kv_rows, out_rows;
  } maps[] = {{0, 0, 0}, {1, 1, 0}, {3, 3, 1}, {0, 2, 2}};
  backward_case t;
  backward_spec s = {.call = {.dim = 5,
                              .value_dim = 3,
                              .batch = 2,
                              .heads = 4,
                              .kv_heads = 2,
                              .len_q = 7,
                              .len_kv = 9,
                              .q_rows = maps[_i].q_rows,
                              .kv_rows = maps[_i].kv_rows,
                              .out_rows = maps[_i].out_rows},
                     .d_lse = true};
  backward_init(&t, &s, see_window, window);
  backward_run(&t);
  const fly_attention *c = &t.base.call;
  check_differences(c, "d_q", &c->q, &c->d_q, see_window, window);
  check_differences(c, "d_k", &c->k, &c->d_k, see_window, window);
  check_differences(c, "d_v", &c->v, &c->d_v, see_window, window);
  backward_free(&t);
}
END_TEST

START_TEST(backward_takes_what_forward_gives) {
  backward_case t;
  backward_spec s = {.call = {.dim = 64, .heads = 2, .len_q = 200, .len_kv = 200}};
  backward_init(&t, &s, see_causal, NULL);
  call_reset(&t.base);
  call_run(&t.base);
  backward_run(&t);
  oracle_check_backward(&t.base.call, see_causal, NULL, "after forward");
  backward_free(&t);
}
END_TEST

START_TEST(large_scores_stay_finite) { /* scores in the hundreds: P is one-hot, gradients tiny or exact */
  static const fly_type types[] = {FLY_F32, FLY_F16, FLY_BF16};
  backward_spec s = {.call = {.type = types[_i], .dim = 64, .amplitude = 60, .len_q = 150, .len_kv = 150}};
  backward_test(&s, see_causal, NULL);
}
END_TEST

/* ---- infinities and NaNs ----------------------------------------------------------------------------------------- */

/* A NaN with a payload in its low bits, which the exponential must not take for a number. */
static float payload_nan(void) {
  uint32_t bits = 0x7fc001ff;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static void put(const fly_tensor *t, int64_t h, int64_t row, int64_t d, float x) {
  if (t->type != FLY_F32)
    oracle_set(t, 0, h, row, d, x);
  else
    memcpy((float *)t->data + h * t->stride[1] + row * t->stride[2] + d, &x, sizeof x);
}

START_TEST(
    what_is_not_finite_reaches_only_what_sees_it) { /* in Q, K, V, dO, dLSE; inside partial tiles and full ones */
  const float values[] = {INFINITY, -INFINITY, NAN, payload_nan()};
  CALL_FOR_TARGETS(target)
  for (int type = FLY_F32; type != FLY_TYPE_NONE; type = type == FLY_F32 ? FLY_BF16 : FLY_TYPE_NONE)
    for (int v = 0; v < 4; v++)
      for (int m = 0; m < 3; m++) {
        oracle_predicate *see = m == 0 ? see_causal : m == 1 ? see_window : see_random;
        void *context = m == 1 ? (void *)window : &half;
        for (int rows = 0; rows < 2; rows++) { /* in place and packed */
          backward_case t;
          char what[100];
          backward_spec s = {.call = {.type = type,
                                      .dim = 32,
                                      .target = target,
                                      .heads = 2,
                                      .len_q = 100,
                                      .len_kv = 110,
                                      .q_rows = rows,
                                      .kv_rows = rows,
                                      .seed = v},
                             .d_lse = true};
          if (!call_is_chosen(&s.call)) continue;
          backward_init(&t, &s, see, context);
          fly_attention *c = &t.base.call;
          const fly_tensor *where[] = {&c->q, &c->k, &c->v, &c->d_out, &c->d_lse};
          put(where[_i], 0, 70, 0, values[v]);
          put(where[_i], 1, 99, where[_i]->shape[3] - 1, values[v]);
          oracle_forward(c, see, context);
          backward_run(&t);
          snprintf(what, sizeof what, "%s %s mask %d rows %d: %g in %d", target, fly_type_name(type), m, rows,
                   values[v], _i);
          oracle_check_backward(c, see, context, what);
          backward_free(&t);
        }
      }
}
END_TEST

START_TEST(infinite_products_of_masked_pairs_do_not_count) { /* dO V' overflows where nobody sees it */
  backward_case t;
  backward_spec s = {.call = {.dim = 16, .len_q = 64, .len_kv = 64}};
  backward_init(&t, &s, see_causal, NULL);
  fly_attention *c = &t.base.call;
  for (int d = 0; d < 16; d++) put(&c->v, 0, 63, d, 1e30f), put(&c->d_out, 0, 5, d, 1e30f), put(&c->k, 0, 60, d, 1e30f);
  for (int d = 0; d < 16; d++) put(&c->q, 0, 6, d, 1e30f);
  oracle_forward(c, see_causal, NULL);
  backward_run(&t);
  for (int row = 0; row < 5; row++)
    for (int d = 0; d < 16; d++) ck_assert(isfinite(oracle_get(&c->d_q, 0, 0, row, d)));
  for (int row = 7; row < 60; row++)
    for (int d = 0; d < 16; d++) ck_assert(isfinite(oracle_get(&c->d_q, 0, 0, row, d)));
  for (int row = 7; row < 60; row++)
    for (int d = 0; d < 16; d++) ck_assert(isfinite(oracle_get(&c->d_k, 0, 0, row, d)));
  backward_free(&t);
}
END_TEST

START_TEST(a_row_that_sees_nothing_contributes_nothing) { /* whatever arrives at it */
  backward_case t;
  backward_spec s = {.call = {.dim = 16, .len_q = 130, .len_kv = 130, .q_offset = -70}, .d_lse = true};
  backward_init(&t, &s, see_causal, NULL);
  fly_attention *c = &t.base.call;
  put(&c->d_lse, 0, 3, 0, NAN), put(&c->d_out, 0, 4, 0, NAN), put(&c->q, 0, 5, 0, NAN);
  backward_run(&t);
  oracle_check_backward(c, see_causal, NULL, "empty rows");
  backward_free(&t);
}
END_TEST

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void one_by_one(void *user, int64_t count, void (*body)(void *, int64_t), void *context) {
  (void)user;
  for (int64_t i = 0; i < count; i++) body(context, i);
}

static void backwards(void *user, int64_t count, void (*body)(void *, int64_t), void *context) {
  (void)user;
  for (int64_t i = count - 1; i >= 0; i--) body(context, i);
}

static void two_threads(void *user, int64_t count, void (*body)(void *, int64_t), void *context) {
  (void)user;
#pragma omp parallel for num_threads(2) schedule(dynamic, 1)
  for (int64_t i = 0; i < count; i++) body(context, i);
}

START_TEST(any_number_of_threads_gives_the_same_bits) { /* _i: which rows repeat */
  static const fly_parallel_for pools[] = {NULL, one_by_one, backwards, two_threads};
  static const int threads[] = {2, 3, 8};
  static const struct {
    oracle_predicate *see;
    int heads, kv_heads, dim;
    fly_type type;
  } cases[] = {{see_causal, 1, 1, 16, FLY_F32}, {see_window, 6, 2, 16, FLY_BF16}, {see_random, 2, 2, 100, FLY_F16}};
  for (int k = 0; k < 3; k++) {
    backward_case t;
    backward_spec s = {.call = {.type = cases[k].type,
                                .dim = cases[k].dim,
                                .heads = cases[k].heads,
                                .kv_heads = cases[k].kv_heads,
                                .len_q = 350,
                                .len_kv = 300,
                                .threads = 1,
                                .q_rows = _i & 1 ? 3 : 0,
                                .out_rows = _i & 1,
                                .kv_rows = _i & 2 ? 3 : 0}};
    backward_init(&t, &s, cases[k].see, cases[k].see == see_window ? window : &half);
    backward_run(&t);
    uint64_t want = backward_digest(&t);
    for (int pool = 0; pool < 4; pool++)
      for (int i = 0; i < 3; i++) {
        backward_reset(&t);
        t.base.call.parallel_for = pools[pool], t.base.call.threads = threads[i];
        backward_run(&t);
        ck_assert_msg(backward_digest(&t) == want, "case %d: pool %d, %d threads: other bits", k, pool, threads[i]);
      }
    backward_free(&t);
  }
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("backward_numbers");
  TCase *tests = tcase_create("numbers");
  tcase_add_loop_test(tests, gradients_are_central_differences_of_the_forward_pass, 0, 4);
  tcase_add_test(tests, backward_takes_what_forward_gives);
  tcase_add_loop_test(tests, large_scores_stay_finite, 0, 3);
  tcase_add_loop_test(tests, what_is_not_finite_reaches_only_what_sees_it, 0, 5);
  tcase_add_test(tests, infinite_products_of_masked_pairs_do_not_count);
  tcase_add_test(tests, a_row_that_sees_nothing_contributes_nothing);
  tcase_add_loop_test(tests, any_number_of_threads_gives_the_same_bits, 0, 4);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(suite)
