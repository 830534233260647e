/* Score modifiers and sinks on a CUDA device, simulated here: every modifier of scores/ forward and backward in each
 * element type, modifiers that try the language's corners, sinks of any size, over shared heads, ragged batches and
 * row maps; against double precision.
 *
 * A case for each modifier of the library, direction and element type, named NAME.fwd.bf16: ctest runs each alone by
 * CK_RUN_CASE. */
#include "backward_case.h"
#include "cuda_case.h"
#include "score_bodies.h"
#include "score_formulas.h"

static const fly_type types[] = {FLY_BF16, FLY_F16, FLY_F32};
enum { TYPES = 3, DIRECTIONS = 2, VARIANTS = TYPES * DIRECTIONS };

static fly_cuda *cuda; /* NULL: images are packed, nothing runs */

static void open_device(void) { cuda = cuda_open_to_run(); }
static void close_device(void) { fly_cuda_release(&cuda); }

/* ---- a case ------------------------------------------------------------------------------------------------------ */

typedef struct device_case {
  backward_case t;
  int sides[2]; /* of the window that the mask is */
  fly_kernel *kernel;
  fly_bound *bound, *score;
  float *sink, *d_sink; /* in guarded memory */
  oracle_scored oracle;
  char what[256];
} device_case;

static void tear_down(device_case *d) {
  fly_kernel_release(&d->kernel);
  fly_bound_release(&d->bound), fly_bound_release(&d->score);
  if (d->sink) guard_free(d->sink), guard_free(d->d_sink);
  backward_free(&d->t);
}

/* A window with the modifier SCORE in `source` (NULL: of scores/), or none. False where images are packed: the kernel's
 * is written, and there is nothing to run or to tear down. */
static bool set_up_with(device_case *d, const backward_spec *spec, int left, int right, const char *score,
                        const char *source, const fly_arg *values, int count) {
  fly_error error;
  memset(d, 0, sizeof *d);
  d->sides[0] = left, d->sides[1] = right;
  backward_init(&d->t, spec, see_window, d->sides);
  fly_attention *c = &d->t.base.call;
  const call_spec *s = &d->t.base.spec;
  fly_arg sides[] = {FLY_INT("left", left), FLY_INT("right", right)};
  d->kernel = cuda_kernel_of(&(cuda_kernel_spec){"window", cuda_window, score, source, s->type, s->dim, s->value_dim});
  if (!cuda) {
    tear_down(d);
    return false;
  }
  ck_fly_ok(fly_mask_bind(fly_kernel_mask(d->kernel), sides, 2, &d->bound, &error), error);
  if (score) ck_fly_ok(fly_score_bind(fly_kernel_score(d->kernel), values, count, &d->score, &error), error);
  c->kernel = d->kernel, c->bound = d->bound, c->score = d->score, c->map = NULL;
  d->oracle = (oracle_scored){
      .call = c, .see = see_window, .see_context = d->sides, .operands = cuda_operands(s->type)};
  cuda_case_describe(d->what, s, left, right, 0);
  return true;
}

/* Without a modifier. */
static bool set_up(device_case *d, const backward_spec *spec, int left, int right) {
  return set_up_with(d, spec, left, right, NULL, NULL, NULL, 0);
}

/* With one of score_bodies.h. */
static bool set_up_body(device_case *d, const backward_spec *spec, int left, int right, int which) {
  char source[512], name[16];
  snprintf(name, sizeof name, "body%d", which);
  snprintf(source, sizeof source, "float score(float s, int b, int h, int q, int kv) {\n  %s\n}\n",
           score_bodies[which].body);
  if (!set_up_with(d, spec, left, right, name, source, NULL, 0)) return false;
  d->oracle.modify = score_bodies[which].formula, d->oracle.modify_context = &d->t.base.call;
  return true;
}

static void add_sink(device_case *d) {
  fly_attention *c = &d->t.base.call;
  int64_t heads = c->geometry.heads;
  d->sink = guard_alloc((size_t)heads * 4, 4, 0), d->d_sink = guard_alloc((size_t)heads * 4, 4, 0);
  for (int64_t h = 0; h < heads; h++) d->sink[h] = (float)(h % 3) * 1.5f - 1, d->d_sink[h] = -77;
  c->sink = fly_tensor_dense(d->sink, FLY_F32, 1, heads, 1, 1);
  c->d_sink = fly_tensor_dense(d->d_sink, FLY_F32, 1, heads, 1, 1);
}

static void check_forward(device_case *d) {
  cuda_forward(cuda, &d->t.base.call, d->kernel);
  oracle_scored_check(&d->oracle, d->what);
}

static void check_backward(device_case *d) {
  oracle_scored_forward(&d->oracle);
  cuda_backward(cuda, &d->t.base.call, d->kernel);
  oracle_scored_check_backward(&d->oracle, d->what);
}

static void test_body(const backward_spec *spec, int left, int right, int which, bool sink) {
  device_case d;
  if (!set_up_body(&d, spec, left, right, which)) return;
  if (sink) add_sink(&d);
  check_forward(&d);
  check_backward(&d);
  tear_down(&d);
}

/* ---- the library ------------------------------------------------------------------------------------------------- */

static double by_formula(void *context, double s, int b, int h, int q, int kv) {
  double slope;
  return ((const score_library *)context)->formula(s, b, h, q, kv, &slope);
}

START_TEST(a_modifier_on_the_device_is_what_its_paper_says) {
  score_library x;
  score_library_open(&x, _i / VARIANTS);
  backward_spec spec = {.call = {.type = types[_i % TYPES],
                                 .dim = 64,
                                 .batch = FORMULA_BATCH,
                                 .heads = FORMULA_HEADS,
                                 .kv_heads = 2,
                                 .len_q = 70,
                                 .len_kv = 150,
                                 .q_offset = FORMULA_OFFSET},
                        .d_lse = true};
  device_case d;
  open_device();
  if (set_up_with(&d, &spec, 60, 100, x.name, NULL, x.values, x.value_count)) {
    d.oracle.modify = by_formula, d.oracle.modify_context = &x;
    if (_i / TYPES % DIRECTIONS)
      check_backward(&d);
    else
      check_forward(&d);
    tear_down(&d);
  }
  score_library_close(&x);
  close_device();
}
END_TEST

/* ---- modifiers of all sorts -------------------------------------------------------------------------------------- */

/* What a modifier gives for pairs that the mask hides, garbage here, is ignored; it may hide pairs itself. */
START_TEST(modifiers_come_before_the_mask) {
  backward_spec spec = {.call = {.type = types[_i], .dim = 64, .heads = 2, .len_q = 150, .len_kv = 150}};
  test_body(&spec, -1, 0, SCORE_WAVE, false);
  test_body(&spec, 70, 9, SCORE_HOLES, true);
}
END_TEST

START_TEST(any_dimension_and_scale) {
  static const int dims[][2] = {{8, 8}, {20, 36}, {128, 128}, {192, 128}, {256, 256}};
  for (int i = 0; i < 5; i++) {
    backward_spec spec = {.call = {.type = types[_i],
                                   .dim = dims[i][0],
                                   .value_dim = dims[i][1],
                                   .len_q = 70,
                                   .len_kv = 90,
                                   .scale = i % 2 ? -0.2f : 0.1f},
                          .d_lse = true};
    test_body(&spec, 60, 5, i % 2 ? SCORE_ALIBI : SCORE_SOFTCAP, i % 2);
  }
}
END_TEST

START_TEST(grouped_heads_ragged_batches_row_maps) {
  static const int32_t cu_q[] = {0, 70, 70, 130}, cu_kv[] = {0, 80, 90, 160};
  static const int bodies[] = {SCORE_TOKENS, SCORE_LOOP, SCORE_ALIBI};
  for (int m = 0; m < 3; m++) {
    backward_spec grouped = {.call = {.type = types[_i],
                                      .dim = 32,
                                      .batch = 2,
                                      .heads = 4,
                                      .kv_heads = 2,
                                      .len_q = 70,
                                      .len_kv = 90,
                                      .q_offset = 30,
                                      .layout = m,
                                      .q_rows = 1 + m % 2,
                                      .kv_rows = 1 + m % 3,
                                      .out_rows = m % 2 ? 2 : 0},
                             .d_lse = true};
    test_body(&grouped, 50, 40, bodies[m], true);
    backward_spec ragged = {
        .call = {.type = types[_i], .dim = 64, .batch = 3, .heads = 2, .cu_q = cu_q, .cu_kv = cu_kv, .q_rows = m % 2}};
    test_body(&ragged, -1, 0, bodies[m], m % 2);
  }
}
END_TEST

/* A NaN that a query sees gives NaN, an infinity too; what others see is not touched. */
START_TEST(nan_reaches_who_sees_it) {
  static const char source[] = "float score(float s, int b, int h, int q, int kv) {\n"
                               "  return kv == 40 && q != 77 ? NAN : kv == 41 ? INFINITY : s;\n"
                               "}\n";
  backward_spec spec = {.call = {.type = types[_i], .dim = 64, .len_q = 150, .len_kv = 150}};
  device_case d;
  if (!set_up_with(&d, &spec, 20, 9, "nan", source, NULL, 0)) return;
  cuda_forward(cuda, &d.t.base.call, d.kernel);
  for (int q = 0; q < 150; q++) {
    bool sees = see_window(d.sides, 0, 0, q, 40) || see_window(d.sides, 0, 0, q, 41);
    ck_assert_msg(isnan(oracle_get(&d.t.base.call.out, 0, 0, q, 5)) == sees, "row %d", q);
  }
  tear_down(&d);
}
END_TEST

/* -infinity from the modifier hides a pair even where V holds an infinity. */
START_TEST(what_a_modifier_hides_stays_hidden) {
  backward_spec spec = {.call = {.type = types[_i], .dim = 64, .len_q = 140, .len_kv = 200}};
  device_case d;
  if (!set_up_body(&d, &spec, 120, 0, SCORE_HOLES)) return;
  fly_attention *c = &d.t.base.call;
  for (int e = 0; e < 64; e++) oracle_set(&c->v, 0, 0, 30, e, INFINITY);
  cuda_forward(cuda, c, d.kernel);
  for (int q = 0; q < 140; q++) {
    bool sees = q >= 30 && (q - 30) % 5 != 2;
    ck_assert_msg(!isfinite(oracle_get(&c->out, 0, 0, q, 3)) == sees, "row %d", q);
  }
  tear_down(&d);
}
END_TEST

/* By score.h floorf has slope 0: nothing arrives at queries and keys, while values get their gradients. A kernel that
 * left the derivative out would fail here. */
START_TEST(the_derivative_is_a_factor) {
  static const char source[] = "float score(float s, int b, int h, int q, int kv) { return floorf(2 * s) / 2; }\n";
  backward_spec spec = {.call = {.type = types[_i], .dim = 64, .len_q = 70, .len_kv = 90}};
  device_case d;
  double values = 0;
  if (!set_up_with(&d, &spec, 60, 9, "steps", source, NULL, 0)) return;
  fly_attention *c = &d.t.base.call;
  cuda_forward(cuda, c, d.kernel);
  cuda_backward(cuda, c, d.kernel);
  for (int e = 0; e < 64; e++) {
    for (int q = 0; q < 70; q++) ck_assert(oracle_get(&c->d_q, 0, 0, q, e) == 0);
    for (int kv = 0; kv < 90; kv++) ck_assert(oracle_get(&c->d_k, 0, 0, kv, e) == 0);
    for (int kv = 0; kv < 70; kv++) values += fabs(oracle_get(&c->d_v, 0, 0, kv, e));
  }
  ck_assert(values > 1);
  tear_down(&d);
}
END_TEST

/* A kernel's image holds the modifier's: loaded, it is bound and called as the kernel was. */
START_TEST(images_hold_the_modifier) {
  backward_spec spec = {.call = {.type = types[_i], .dim = 64, .len_q = 70, .len_kv = 90}};
  fly_error error = {0};
  const void *bytes;
  size_t size;
  fly_kernel *loaded;
  device_case d;
  if (!set_up_body(&d, &spec, 60, 9, SCORE_SOFTCAP)) return;
  ck_fly_ok(fly_kernel_image(d.kernel, &bytes, &size, &error), error);
  ck_fly_ok(fly_kernel_load(bytes, size, &loaded, &error), error);
  fly_kernel_release(&d.kernel), fly_bound_release(&d.score), fly_bound_release(&d.bound);
  ck_fly_ok(fly_score_bind(fly_kernel_score(loaded), NULL, 0, &d.score, &error), error);
  fly_arg sides[] = {FLY_INT("left", 60), FLY_INT("right", 9)};
  ck_fly_ok(fly_mask_bind(fly_kernel_mask(loaded), sides, 2, &d.bound, &error), error);
  fly_attention *c = &d.t.base.call;
  d.kernel = loaded, c->kernel = loaded, c->score = d.score, c->bound = d.bound;
  check_forward(&d);
  check_backward(&d);
  c->score = NULL;
  ck_assert_int_eq(fly_attention_forward(c, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "the kernel has the score modifier"), "%s", error.message);
  tear_down(&d);
}
END_TEST

/* ---- sinks ------------------------------------------------------------------------------------------------------- */

START_TEST(sinks_without_a_modifier) {
  static const int32_t cu_q[] = {0, 70, 70, 130}, cu_kv[] = {0, 80, 90, 160};
  const backward_spec specs[] = {
      {.call = {.type = types[_i], .dim = 64, .batch = 2, .heads = 4, .kv_heads = 2, .len_q = 100, .len_kv = 90},
       .d_lse = true},
      {.call = {.type = types[_i], .dim = 64, .batch = 3, .heads = 2, .cu_q = cu_q, .cu_kv = cu_kv, .q_rows = 1}},
  };
  for (int i = 0; i < 2; i++)
    for (int empty = 0; empty < 2; empty++) {
      device_case d;
      backward_spec spec = specs[i];
      if (empty) spec.call.q_offset = 1000; /* rows without keys; nothing but them */
      if (!set_up(&d, &spec, 20, 0)) return;
      add_sink(&d);
      check_forward(&d);
      check_backward(&d);
      tear_down(&d);
    }
}
END_TEST

/* A sink far above or below the scores, and none at all. (Weights below 2^-126 count as 0 here.) */
START_TEST(sinks_of_any_size) {
  static const float sinks[] = {-INFINITY, -1e4f, -60, 0, 60, 1e4f};
  for (int m = 0; m < 2; m++) {
    backward_spec spec = {.call = {.type = types[_i], .dim = 64, .heads = 6, .len_q = 40, .len_kv = 70}, .d_lse = true};
    device_case d;
    if (m) spec.call.q_offset = 1000; /* no query sees a key */
    if (!set_up(&d, &spec, 30, 0)) return;
    add_sink(&d);
    memcpy(d.sink, sinks, sizeof sinks);
    check_forward(&d);
    for (int h = 0; h < 6 && m; h++) {
      double lse = oracle_get(&d.t.base.call.lse, 0, h, 3, 0);
      ck_assert_msg(lse == sinks[h], "lse of head %d is %g", h, lse);
    }
    check_backward(&d);
    tear_down(&d);
  }
}
END_TEST

START_TEST(sink_gradients_alone_added_and_of_no_queries) {
  backward_spec spec = {.call = {.type = types[_i], .dim = 64, .heads = 3, .len_q = 130, .len_kv = 130},
                        .no_d_q = true,
                        .no_d_k = true,
                        .no_d_v = true};
  device_case d;
  float once[3];
  if (!set_up_body(&d, &spec, -1, 0, SCORE_SOFTCAP)) return;
  add_sink(&d);
  check_backward(&d);
  memcpy(once, d.d_sink, sizeof once);
  d.t.base.call.add_gradients = true;
  cuda_backward(cuda, &d.t.base.call, d.kernel);
  for (int h = 0; h < 3; h++) ck_assert(fabsf(d.d_sink[h] - 2 * once[h]) <= 1e-6f * fabsf(once[h]));
  tear_down(&d);
  spec.call.len_q = 0;
  if (!set_up(&d, &spec, -1, 0)) return;
  add_sink(&d);
  cuda_backward(cuda, &d.t.base.call, d.kernel);
  for (int h = 0; h < 3; h++) ck_assert(d.d_sink[h] == 0);
  tear_down(&d);
}
END_TEST

/* As on the CPU: zeros, or what was there. */
START_TEST(sink_gradients_of_no_batch_entries) {
  backward_spec spec = {.call = {.type = types[_i], .dim = 64, .heads = 3, .len_q = 30, .len_kv = 30}};
  device_case d;
  fly_error error;
  if (!set_up(&d, &spec, -1, 0)) return;
  add_sink(&d);
  cuda_call on_device;
  cuda_call_init(&on_device, cuda, &d.t.base.call, d.kernel);
  fly_attention *c = &on_device.call;
  fly_tensor *all[] = {&c->q, &c->k, &c->v, &c->out, &c->lse, &c->d_out, &c->d_q, &c->d_k, &c->d_v, &c->d_lse};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) all[i]->shape[0] = 0;
  c->geometry.batch = 0;
  for (int add = 1; add >= 0; add--) {
    c->add_gradients = add;
    cuda_ok(fly_attention_backward(c, &error), &error);
    cuda_ok(fly_cuda_synchronize(cuda, NULL, &error), &error);
    cuda_tensor_get(cuda, &c->d_sink, &d.t.base.call.d_sink);
    for (int h = 0; h < 3; h++) ck_assert_msg(d.d_sink[h] == (add ? -77 : 0), "%g", d.d_sink[h]);
  }
  cuda_call_free(&on_device);
  tear_down(&d);
}
END_TEST

static uint64_t digest_of(const device_case *d) {
  uint64_t hash = backward_digest(&d->t);
  for (int h = 0; h < d->t.base.spec.heads; h++) {
    uint32_t bits;
    memcpy(&bits, &d->d_sink[h], sizeof bits);
    hash = (hash ^ bits) * 0x100000001b3;
  }
  return hash;
}

START_TEST(gradients_are_the_same_bits_every_time) {
  backward_spec spec = {
      .call = {.type = types[_i], .dim = 64, .batch = 2, .heads = 4, .kv_heads = 2, .len_q = 100, .len_kv = 150},
      .d_lse = true};
  device_case d;
  if (!set_up_body(&d, &spec, 60, 9, SCORE_SOFTCAP)) return;
  add_sink(&d);
  oracle_scored_forward(&d.oracle);
  cuda_backward(cuda, &d.t.base.call, d.kernel);
  uint64_t first = digest_of(&d);
  for (int i = 0; i < 2; i++) {
    backward_reset(&d.t);
    cuda_backward(cuda, &d.t.base.call, d.kernel);
    ck_assert(digest_of(&d) == first);
  }
  tear_down(&d);
}
END_TEST

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* modifiers.bf16, sinks.bf16, dimensions.bf16 */
static void add_features(Suite *suite, int type) {
  static char names[TYPES][3][24];
  TCase *cases[3];
  static const char *const kinds[] = {"modifiers", "sinks", "dimensions"};
  for (int i = 0; i < 3; i++) {
    snprintf(names[type][i], sizeof names[type][i], "%s.%s", kinds[i], fly_type_name(types[type]));
    cases[i] = tcase_create(names[type][i]);
    tcase_add_checked_fixture(cases[i], open_device, close_device);
    suite_add_tcase(suite, cases[i]);
  }
  tcase_add_loop_test(cases[0], modifiers_come_before_the_mask, type, type + 1);
  tcase_add_loop_test(cases[0], grouped_heads_ragged_batches_row_maps, type, type + 1);
  tcase_add_loop_test(cases[0], nan_reaches_who_sees_it, type, type + 1);
  tcase_add_loop_test(cases[0], what_a_modifier_hides_stays_hidden, type, type + 1);
  tcase_add_loop_test(cases[0], the_derivative_is_a_factor, type, type + 1);
  tcase_add_loop_test(cases[0], images_hold_the_modifier, type, type + 1);
  tcase_add_loop_test(cases[1], sinks_without_a_modifier, type, type + 1);
  tcase_add_loop_test(cases[1], sinks_of_any_size, type, type + 1);
  tcase_add_loop_test(cases[1], sink_gradients_alone_added_and_of_no_queries, type, type + 1);
  tcase_add_loop_test(cases[1], sink_gradients_of_no_batch_entries, type, type + 1);
  tcase_add_loop_test(cases[1], gradients_are_the_same_bits_every_time, type, type + 1);
  tcase_add_loop_test(cases[2], any_dimension_and_scale, type, type + 1);
}

static Suite *cuda_scores_suite(void) {
  enum { MOST = 32 };
  static char names[MOST * VARIANTS][48]; /* Check keeps the pointers */
  Suite *suite = suite_create("cuda_scores");
  const char *name;
  for (int i = 0; (name = score_library_name(i / VARIANTS)); i++) {
    if (i == MOST * VARIANTS) abort(); /* more modifiers than there is room for */
    const char *before = i >= VARIANTS ? names[i - VARIANTS] : "";
    bool again = strncmp(before, name, strlen(name)) == 0 && before[strlen(name)] == '.';
    snprintf(names[i], sizeof names[i], "%s%s.%s.%s", name, again ? "_2" : "", i / TYPES % DIRECTIONS ? "bwd" : "fwd",
             fly_type_name(types[i % TYPES]));
    TCase *tcase = tcase_create(names[i]);
    tcase_add_loop_test(tcase, a_modifier_on_the_device_is_what_its_paper_says, i, i + 1);
    suite_add_tcase(suite, tcase);
  }
  for (int type = 0; type < TYPES; type++) add_features(suite, type);
  return suite;
}

FLY_TEST_MAIN(cuda_scores_suite)
