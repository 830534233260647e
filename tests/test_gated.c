/* Gated sums: SA + SWA and others. Outputs against the double-precision oracle; gradients against central differences
 * of it, and against the calls that they are made of. test_gated_project.c has more of projected gates. */
#include "sa/gated_case.h"

/* ---- the reference ----------------------------------------------------------------------------------------------- */

/* Part i, by position in its own order. */
typedef struct part_context {
  const gated_case *t;
  int i;
} part_context;

static bool sees(void *context, int b, int h, int q, int kv) {
  const part_context *x = context;
  if (x->i % 2) return kv <= q && q - kv <= 6;
  const fly_row_map *map = &x->t->parts[x->i].attention.geometry.q_rows;
  const int32_t *rows = map->rows + b * map->stride_batch + h * map->stride_head;
  return q - kv <= 5 + x->i && kv - q <= 4 && rows[kv] <= rows[q];
}

/* The part as a complete attention call. */
static fly_attention part_call(const gated_case *t, int i) {
  fly_attention a = t->parts[i].attention;
  a.q = t->call.q, a.k = t->call.k, a.v = t->call.v;
  a.geometry.size = sizeof a.geometry;
  a.geometry.batch = t->spec.batch, a.geometry.heads = t->spec.heads, a.geometry.len_q = a.geometry.len_kv = t->spec.n;
  return a;
}

static int64_t token_of(const fly_attention *a, int64_t b, int64_t h, int64_t row) {
  const fly_row_map *map = &a->geometry.q_rows;
  return map->rows ? map->rows[b * map->stride_batch + h * map->stride_head + row] : row;
}

/* want and tolerance: [batch][heads][n][value_dim] */
static void reference(const gated_case *t, double *want, double *tolerance) {
  const gated_spec *s = &t->spec;
  double eps = s->type == FLY_F32 ? 0x1p-23 : s->type == FLY_F16 ? 0x1p-10 : 0x1p-7;
  memset(want, 0, sizeof *want * (size_t)(s->batch * s->heads * s->n * s->value_dim));
  memset(tolerance, 0, sizeof *tolerance * (size_t)(s->batch * s->heads * s->n * s->value_dim));
  for (int i = 0; i < s->parts; i++) {
    part_context context = {t, i};
    fly_attention a = part_call(t, i);
    oracle_row row;
    for (int64_t p = 0; p < s->batch * s->heads * s->n; p++) {
      int64_t b = p / s->n / s->heads, h = p / s->n % s->heads, r = p % s->n, token = token_of(&a, b, h, r);
      oracle_attend(&a, sees, &context, b, h, r, &row);
      for (int d = 0; d < s->value_dim; d++) {
        double g = sigmoid(gated_case_logit(t, i, b, h, token, d));
        int64_t at = ((b * s->heads + h) * s->n + token) * s->value_dim + d;
        want[at] += g * row.out[d];
        tolerance[at] += g * row.tolerance + 2 * eps * g * fabs(row.out[d]) + 1e-5 * fabs(row.out[d]);
        tolerance[at] += g * oracle_rounding_of_p(&a) * row.size[d];
      }
    }
  }
}

static size_t size_of(const gated_case *t) {
  return (size_t)(t->spec.batch * t->spec.heads * t->spec.n * t->spec.value_dim);
}

static void check_forward(const gated_case *t, const char *what) {
  double *want = calloc(size_of(t), sizeof *want), *tolerance = calloc(size_of(t), sizeof *tolerance);
  reference(t, want, tolerance);
  const fly_tensor *out = &t->call.out;
  for (size_t i = 0; i < size_of(t); i++) {
    int64_t d = i % t->spec.value_dim, row = i / t->spec.value_dim;
    double got = oracle_get(out, row / t->spec.n / t->spec.heads, row / t->spec.n % t->spec.heads, row % t->spec.n, d);
    if (!(fabs(got - want[i]) <= tolerance[i])) ck_abort_msg("%s: element %zu is %g, not %g", what, i, got, want[i]);
  }
  free(want), free(tolerance);
}

static double loss(const gated_case *t) {
  double *want = calloc(size_of(t), sizeof *want), *tolerance = calloc(size_of(t), sizeof *tolerance), sum = 0;
  reference(t, want, tolerance);
  for (size_t i = 0; i < size_of(t); i++) sum += want[i] * ((float *)t->call.d_out.data)[i];
  free(want), free(tolerance);
  return sum;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

START_TEST(outputs_follow_the_formula) { /* _i: the kind of gate */
  static const fly_type types[] = {FLY_F32, FLY_F16, FLY_BF16};
  for (int type = 0; type < 3; type++)
    for (int by_channel = 0; by_channel < 2; by_channel++)
      for (int parts = 1; parts <= PARTS; parts++) {
        gated_case t;
        gated_spec s = {.type = types[type],
                        .gate_type = types[(type + parts) % 3],
                        .batch = 2,
                        .heads = 4,
                        .kv_heads = 2,
                        .n = 70 + 61 * type,
                        .width = 10 + 50 * by_channel,
                        .dim = 16,
                        .value_dim = 24,
                        .parts = parts,
                        .kind = _i,
                        .by_channel = by_channel,
                        .forget = parts == 2};
        gated_case_init(&t, &s);
        gated_case_forward(&t);
        check_forward(&t, fly_type_name(s.type));
        gated_case_free(&t);
      }
}
END_TEST

static void check_difference(const gated_case *t, const char *name, const fly_tensor *x, const fly_tensor *g) {
  for (int64_t b = 0; x->data && b < x->shape[0]; b++)
    for (int64_t h = 0; h < x->shape[1]; h++)
      for (int64_t s = 0; s < x->shape[2]; s++)
        for (int64_t d = 0; d < x->shape[3]; d++) {
          double at = oracle_get(x, b, h, s, d), high, low, up, down;
          oracle_set(x, b, h, s, d, at + 1e-3), high = oracle_get(x, b, h, s, d), up = loss(t);
          oracle_set(x, b, h, s, d, at - 1e-3), low = oracle_get(x, b, h, s, d), down = loss(t);
          oracle_set(x, b, h, s, d, at);
          double want = (up - down) / (high - low), got = oracle_get(g, b, h, s, d);
          ck_assert_msg(fabs(got - want) <= 3e-5 * (1 + fabs(want)),
                        "%s[%d, %d, %d, %d] is %.9g, the difference quotient %.9g", name, (int)b, (int)h, (int)s,
                        (int)d, got, want);
        }
}

START_TEST(gradients_are_central_differences) { /* _i: the kind of gate, and whether by channel */
  gated_case t;
  gated_spec s = {.batch = 2,
                  .heads = 2,
                  .kv_heads = 1,
                  .n = 9,
                  .width = 3,
                  .dim = 3,
                  .value_dim = 2,
                  .parts = 3,
                  .kind = _i % GATE_KINDS,
                  .by_channel = _i / GATE_KINDS};
  gated_case_init(&t, &s);
  gated_case_forward(&t);
  gated_case_backward(&t);
  check_difference(&t, "q", &t.call.q, &t.call.d_q);
  check_difference(&t, "k", &t.call.k, &t.call.d_k);
  check_difference(&t, "v", &t.call.v, &t.call.d_v);
  check_difference(&t, "x", &t.call.x, &t.call.d_x);
  for (int i = 0; i < s.parts; i++) {
    check_difference(&t, "logits", &t.parts[i].gate.logits, &t.parts[i].gate.d_logits);
    check_difference(&t, "weight", &t.parts[i].gate.weight, &t.parts[i].gate.d_weight);
    check_difference(&t, "bias", &t.parts[i].gate.bias, &t.parts[i].gate.d_bias);
  }
  gated_case_free(&t);
}
END_TEST

/* Sums of other calls: d_q of all parts, each with its share of d_out as f32. */
static void sum_of_parts(const gated_case *t, fly_tensor sums[3]) {
  fly_error error;
  const gated_spec *s = &t->spec;
  for (int i = 0; i < s->parts; i++) {
    fly_attention a = part_call(t, i);
    a.d_out = scene_like(&t->call.d_out, -1);
    for (int64_t p = 0; p < s->batch * s->heads * s->n; p++)
      for (int d = 0; d < s->value_dim; d++) {
        int64_t b = p / s->n / s->heads, h = p / s->n % s->heads, r = p % s->n;
        oracle_set(&a.d_out, b, h, r, d,
                   sigmoid(gated_case_logit(t, i, b, h, r, d)) * oracle_get(&t->call.d_out, b, h, r, d));
      }
    a.d_q = scene_like(&sums[0], -1), a.d_k = scene_like(&sums[1], -1), a.d_v = scene_like(&sums[2], -1);
    ck_fly_ok(fly_attention_backward(&a, &error), error);
    const fly_tensor *from[] = {&a.d_q, &a.d_k, &a.d_v};
    for (int k = 0; k < 3; k++) {
      float *x = sums[k].data, *y = from[k]->data;
      for (int64_t j = 0; j < sums[k].shape[0] * sums[k].stride[0]; j++) x[j] = i ? x[j] + y[j] : y[j];
    }
    scene_free(&a.d_out), scene_free(&a.d_q), scene_free(&a.d_k), scene_free(&a.d_v);
  }
}

START_TEST(gradients_are_the_sum_of_the_parts) { /* larger, with whole blocks in place */
  gated_case t;
  gated_spec s = {.batch = 1,
                  .heads = 4,
                  .kv_heads = 2,
                  .n = 330,
                  .width = 70,
                  .dim = 64,
                  .value_dim = 64,
                  .kind = _i,
                  .by_channel = true};
  gated_case_init(&t, &s);
  gated_case_forward(&t);
  gated_case_backward(&t);
  fly_tensor sums[] = {scene_like(&t.call.q, -1), scene_like(&t.call.k, -1), scene_like(&t.call.v, -1)};
  const fly_tensor *got[] = {&t.call.d_q, &t.call.d_k, &t.call.d_v};
  sum_of_parts(&t, sums);
  for (int k = 0; k < 3; k++) {
    scene_difference d = scene_compare(got[k], &sums[k]);
    ck_assert_double_lt(d.worst, 2e-6 * (1 + d.largest));
    scene_free(&sums[k]);
  }
  gated_case_free(&t);
}
END_TEST

START_TEST(parts_that_are_not_kept_give_the_same_bits) {
  gated_case t, u;
  gated_spec s = {.batch = 1, .heads = 2, .kv_heads = 2, .n = 200, .dim = 64, .value_dim = 64, .parts = 3};
  gated_case_init(&t, &s);
  s.forget = true;
  gated_case_init(&u, &s);
  gated_case_forward(&t), gated_case_forward(&u);
  ck_assert(scene_equal(&t.call.out, &u.call.out));
  gated_case_free(&t), gated_case_free(&u);
}
END_TEST

START_TEST(gates_reach_0_and_1_without_nans) {
  gated_case t;
  gated_spec s = {.batch = 1, .heads = 1, .kv_heads = 1, .n = 12, .dim = 16, .value_dim = 16};
  static const double logits[] = {0, 1000, -1000, INFINITY, -INFINITY, 3e38};
  gated_case_init(&t, &s);
  for (int r = 0; r < 6; r++)
    oracle_set(&t.parts[0].gate.logits, 0, 0, r, 0, logits[r]), oracle_set(&t.parts[1].gate.logits, 0, 0, r, 0, -90);
  gated_case_forward(&t), gated_case_backward(&t);
  for (int r = 0; r < 6; r++)
    for (int d = 0; d < 16; d++) {
      double x = oracle_get(&t.parts[0].attention.out, 0, 0, r, d), y = oracle_get(&t.call.out, 0, 0, r, d);
      ck_assert_double_eq_tol(y, sigmoid(logits[r]) * x, 1e-6);
      ck_assert(isfinite(oracle_get(&t.parts[0].gate.d_logits, 0, 0, r, 0)));
    }
  ck_assert(oracle_get(&t.parts[0].gate.d_logits, 0, 0, 0, 0) != 0);
  ck_assert_double_eq_tol(oracle_get(&t.parts[0].gate.d_logits, 0, 0, 1, 0), 0, 1e-30);
  gated_case_free(&t);
}
END_TEST

START_TEST(only_what_is_wanted_is_made) { /* and gates alone need no attention */
  gated_case t, u;
  gated_spec s = {
      .batch = 1, .heads = 2, .kv_heads = 1, .n = 60, .width = 9, .dim = 8, .value_dim = 8, .kind = PROJECTED};
  gated_case_init(&t, &s), gated_case_init(&u, &s);
  gated_case_forward(&t), gated_case_backward(&t), gated_case_forward(&u);
  fly_tensor keep[] = {u.call.d_q, u.call.d_k, u.call.d_v, u.call.d_x};
  u.call.d_q.data = u.call.d_k.data = u.call.d_v.data = u.call.d_x.data = NULL;
  gated_case_backward(&u);
  ck_assert(scene_equal(&t.parts[1].gate.d_weight, &u.parts[1].gate.d_weight));
  u.call.d_k.data = keep[1].data;
  gated_case_backward(&u);
  ck_assert(scene_equal(&t.call.d_k, &u.call.d_k));
  ck_assert_double_eq(oracle_get(&keep[0], 0, 0, 0, 0), CALL_UNTOUCHED);
  ck_assert_double_eq(oracle_get(&keep[3], 0, 0, 0, 0), CALL_UNTOUCHED);
  u.call.d_q = keep[0], u.call.d_v = keep[2], u.call.d_x = keep[3];
  gated_case_free(&t), gated_case_free(&u);
}
END_TEST

START_TEST(misuse_is_refused) {
  gated_case t;
  gated_spec s = {.batch = 1, .heads = 2, .kv_heads = 1, .n = 20, .width = 9, .dim = 8, .value_dim = 8};
  fly_error error;
#define REFUSED(what, back, text, change)                                                                              \
  do {                                                                                                                 \
    s.kind = what;                                                                                                     \
    gated_case_init(&t, &s);                                                                                           \
    fly_gated_call c = t.call;                                                                                         \
    fly_gated_part p[2] = {t.parts[0], t.parts[1]};                                                                    \
    c.parts = p;                                                                                                       \
    change;                                                                                                            \
    ck_assert_int_eq(back ? fly_gated_backward(&c, &error) : fly_gated_forward(&c, &error), FLY_ERROR_ARGUMENT);       \
    ck_assert_msg(strstr(error.message, text) != NULL, "%s", error.message);                                           \
    gated_case_free(&t);                                                                                               \
  } while (0)
  REFUSED(GIVEN, false, "FLY_INIT(fly_gated_call)", c.size = 2);
  REFUSED(GIVEN, false, "count is 0", c.count = 0);
  REFUSED(GIVEN, false, "threads is -1", c.threads = -1);
  REFUSED(GIVEN, false, "parts[1].attention.size is 0", p[1].attention.size = 0);
  REFUSED(GIVEN, false, "kernel is NULL", p[1].attention.kernel = NULL);
  REFUSED(GIVEN, false, "parts[0].gate has neither logits nor weight", p[0].gate.logits.data = NULL);
  REFUSED(GIVEN, false, "both logits and weight", p[0].gate.weight = p[0].gate.logits);
  REFUSED(GIVEN, false, "parts[0].gate.logits has gates for 3 channels", p[0].gate.logits.shape[3] = 3);
  REFUSED(GIVEN, false, "parts[1].gate.logits.shape[2] is 19, wanted 20", p[1].gate.logits.shape[2] = 19);
  REFUSED(GIVEN, false, "parts[1].gate.logits.type is i32", p[1].gate.logits.type = FLY_I32);
  REFUSED(GIVEN, false, "out and q share memory", c.out.data = c.q.data);
  REFUSED(GIVEN, false, "out of parts[0] and parts[1] share memory", p[1].attention.out = p[0].attention.out);
  REFUSED(GIVEN, false, "parts[1].attention.out.shape[1] is 1", p[1].attention.out.shape[1] = 1);
  REFUSED(PROJECTED, false, "x.data is NULL", c.x.data = NULL);
  REFUSED(PROJECTED, false, "parts[0].gate.weight.shape[3] is 8, wanted 9", p[0].gate.weight.shape[3] = 8);
  REFUSED(PROJECTED, false, "parts[0].gate.bias.shape[1] is 1, wanted 2", p[0].gate.bias.shape[1] = 1);
  REFUSED(GIVEN, true, "parts[0].attention.lse.data is NULL", p[0].attention.lse.data = NULL);
  REFUSED(GIVEN, true, "parts[1].attention.out.data is NULL", p[1].attention.out.data = NULL);
  REFUSED(GIVEN, true, "d_out.data is NULL", c.d_out.data = NULL);
  REFUSED(GIVEN, true, "d_q and d_k share memory", c.d_k.data = c.d_q.data);
  REFUSED(GIVEN, true, "d_logits.type", p[0].gate.d_logits.type = FLY_F16);
  REFUSED(PROJECTED, true, "d_x.shape[2] is 19", c.d_x.shape[2] = 19);
  REFUSED(GIVEN, true, "d_out.shape is 2147483648 x 2147483648 x 20 x 8: more elements than",
          c.d_out.shape[0] = c.d_out.shape[1] = INT64_C(1) << 31;
          c.d_out.stride[0] = c.d_out.stride[1] = 0);
  REFUSED(GIVEN, false, "x 2 x 0 x 8: more elements than", c.out.shape[0] = INT64_C(1) << 62; c.out.shape[2] = 0);
#undef REFUSED
  ck_assert_int_eq(fly_gated_forward(NULL, &error), FLY_ERROR_ARGUMENT);
}
END_TEST

static fly_status gated_forward(void *call) {
  fly_error error;
  return fly_gated_forward(call, &error);
}

static fly_status gated_backward(void *call) {
  fly_error error;
  return fly_gated_backward(call, &error);
}

START_TEST(failing_allocations_are_reported) {
  gated_case t;
  gated_spec s = {.batch = 1,
                  .heads = 2,
                  .kv_heads = 1,
                  .n = 20,
                  .width = 9,
                  .dim = 8,
                  .value_dim = 8,
                  .kind = PROJECTED,
                  .threads = 1};
  gated_case_init(&t, &s);
  ck_assert_int_gt(test_failing_allocations(gated_forward, &t.call), 5);
  ck_assert_int_gt(test_failing_allocations(gated_backward, &t.call), 5);
  gated_case_free(&t);
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("gated");
  TCase *tests = tcase_create("gated");
  tcase_add_loop_test(tests, outputs_follow_the_formula, 0, GATE_KINDS);
  tcase_add_loop_test(tests, gradients_are_central_differences, 0, 2 * GATE_KINDS);
  tcase_add_loop_test(tests, gradients_are_the_sum_of_the_parts, 0, 2);
  tcase_add_test(tests, parts_that_are_not_kept_give_the_same_bits);
  tcase_add_test(tests, gates_reach_0_and_1_without_nans);
  tcase_add_test(tests, only_what_is_wanted_is_made);
  tcase_add_test(tests, misuse_is_refused);
  tcase_add_test(tests, failing_allocations_are_reported);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(suite)
