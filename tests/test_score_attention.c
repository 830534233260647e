/* Attention with score modifiers and sinks, forward and backward, against double precision: masks, types, dimensions,
 * grouped heads, ragged batches, row maps; between guard pages; the same for any number of threads. */
#include "backward_case.h"
#include "oracle_score.h"
#include "score_bodies.h"
#include "score_case.h"

enum { NONE = -1 }; /* no modifier */

static fly_score *compile(int which, const char *target) {
  char source[512];
  fly_error error = {0};
  fly_score *score = NULL;
  fly_compile_options options = {FLY_INIT(fly_compile_options), .target = target};
  snprintf(source, sizeof source,
           "#include <flymask/score.h>\nfloat score(float s, int b, int h, int q, int kv) {\n  %s\n}\n",
           score_bodies[which].body);
  ck_fly_ok(fly_score_compile(source, "modifier.c", &options, &score, &error), error);
  return score;
}

/* ---- one case ---------------------------------------------------------------------------------------------------- */

typedef struct scored_case {
  backward_case t;
  fly_score *score;
  fly_bound *bound;
  fly_kernel *kernel;
  float *sink, *d_sink; /* in guarded memory */
  oracle_scored oracle;
} scored_case;

static void set_up(scored_case *s, const backward_spec *spec, oracle_predicate *see, void *context, int modifier,
                   bool sink) {
  fly_error error = {0};
  memset(s, 0, sizeof *s);
  backward_init(&s->t, spec, see, context);
  fly_attention *c = &s->t.base.call;
  int64_t heads = c->geometry.heads;
  if (modifier >= 0) {
    s->score = compile(modifier, spec->call.target);
    ck_fly_ok(fly_score_bind(s->score, NULL, 0, &s->bound, &error), error);
    fly_kernel_desc desc = c->kernel->desc;
    desc.target = spec->call.target, desc.score = s->score;
    ck_fly_ok(fly_kernel_create(fly_kernel_mask(c->kernel), &desc, &s->kernel, &error), error);
    c->kernel = s->kernel, c->score = s->bound;
  }
  if (sink) {
    s->sink = guard_alloc((size_t)heads * 4, 4, 0), s->d_sink = guard_alloc((size_t)heads * 4, 4, 1);
    for (int64_t h = 0; h < heads; h++) s->sink[h] = (float)(h % 3) * 1.5f - 1, s->d_sink[h] = -77;
    c->sink = fly_tensor_dense(s->sink, FLY_F32, 1, heads, 1, 1);
    c->d_sink = fly_tensor_dense(s->d_sink, FLY_F32, 1, heads, 1, 1);
  }
  s->oracle = (oracle_scored){.call = c, .see = see, .see_context = context, .modify_context = c};
  if (modifier >= 0) s->oracle.modify = score_bodies[modifier].formula;
}

static void tear_down(scored_case *s) {
  fly_kernel_release(&s->kernel);
  fly_bound_release(&s->bound);
  fly_score_release(&s->score);
  if (s->sink) guard_free(s->sink), guard_free(s->d_sink);
  backward_free(&s->t);
}

static void run_case(const backward_spec *spec, oracle_predicate *see, void *context, int modifier, bool sink) {
  scored_case s;
  char what[256];
  fly_error error = {0};
  if (!call_is_chosen(&spec->call)) return;
  set_up(&s, spec, see, context, modifier, sink);
  const call_spec *c = &s.t.base.spec;
  snprintf(what, sizeof what, "modifier %d%s, %s %s D %d DV %d batch %d heads %d/%d lengths %d, %d rows %d %d %d",
           modifier, sink ? " sink" : "", c->target ? c->target : "default", fly_type_name(c->type), c->dim,
           c->value_dim, (int)c->batch, (int)c->heads, (int)c->kv_heads, (int)c->len_q, (int)c->len_kv, c->q_rows,
           c->kv_rows, c->out_rows);
  ck_fly_ok(fly_attention_forward(&s.t.base.call, &error), error);
  oracle_scored_check(&s.oracle, what);
  oracle_scored_forward(&s.oracle);
  backward_run(&s.t);
  oracle_scored_check_backward(&s.oracle, what);
  tear_down(&s);
}

/* ---- promises ---------------------------------------------------------------------------------------------------- */

static const fly_type types[] = {FLY_F32, FLY_F16, FLY_BF16};
static int window[2] = {20, 9}, wide[2] = {100, 70}, half = 128;

static const struct {
  oracle_predicate *see;
  void *context;
} masks[] = {{see_causal, NULL}, {see_all, NULL},     {see_window, window},
             {see_window, wide}, {see_random, &half}, {see_none, NULL}};
enum { MASKS = sizeof masks / sizeof *masks };

START_TEST(any_mask_and_modifier) {
  CALL_FOR_TARGETS(target)
  for (int m = 0; m < MASKS; m++) {
    if (_i == SCORE_WAVE && m > 0) break; /* garbage behind the query: causal alone */
    backward_spec s = {.call = {.dim = 24,
                                .value_dim = 40,
                                .target = target,
                                .type = types[(_i + m) % 3],
                                .heads = 2,
                                .len_q = 150,
                                .len_kv = 190,
                                .q_offset = 30},
                       .d_lse = m % 2 == 0};
    run_case(&s, masks[m].see, masks[m].context, _i, m % 2);
  }
}
END_TEST

START_TEST(any_length_and_dimension) {
  static const int lengths[] = {1, 63, 64, 65, 129, 200, 300};
  static const int dims[] = {1, 8, 17, 64, 96, 128, 256, 257, 512};
  enum { DIMS = sizeof dims / sizeof *dims };
  for (int j = 0; j < 7; j++) {
    backward_spec s = {.call = {.dim = dims[(_i + j) % DIMS],
                                .value_dim = dims[(_i + 2 * j + 1) % DIMS],
                                .len_q = lengths[_i],
                                .len_kv = lengths[j],
                                .seed = j}};
    run_case(&s, masks[j % 3].see, masks[j % 3].context, j % 2 ? 1 : 0, j % 3 == 0);
  }
}
END_TEST

/* Where a call without either would split the keys. */
START_TEST(few_queries_and_many_keys) {
  backward_spec s = {.call = {.dim = 64, .heads = 4, .kv_heads = 2, .len_q = 1, .len_kv = 700, .q_offset = 699,
                              .type = types[_i]}};
  run_case(&s, see_causal, NULL, NONE, true);
  run_case(&s, see_causal, NULL, 1, false);
  run_case(&s, see_window, wide, 0, true);
}
END_TEST

START_TEST(grouped_heads_ragged_batches_row_maps) {
  static const int32_t cu_q[] = {0, 70, 70, 200}, cu_kv[] = {0, 80, 90, 260};
  for (int m = 0; m < SCORE_BODIES; m++) {
    if (m == SCORE_WAVE) continue;
    backward_spec grouped = {.call = {.dim = 16,
                                      .batch = 2,
                                      .heads = 6,
                                      .kv_heads = 2,
                                      .len_q = 90,
                                      .len_kv = 140,
                                      .q_offset = 50,
                                      .layout = m % LAYOUTS,
                                      .q_rows = 1 + m % 2,
                                      .kv_rows = 1 + m % 3,
                                      .out_rows = m % 2 ? 2 : 0},
                             .d_lse = true};
    run_case(&grouped, see_window, wide, m, true);
    backward_spec ragged = {.call = {.dim = 32, .batch = 3, .heads = 2, .cu_q = cu_q, .cu_kv = cu_kv, .q_rows = m % 2}};
    run_case(&ragged, see_causal, NULL, m, m % 2);
  }
}
END_TEST

START_TEST(sinks_without_a_modifier) {
  CALL_FOR_TARGETS(target)
  for (int m = 0; m < MASKS; m++) {
    backward_spec s = {.call = {.dim = 16,
                                .target = target,
                                .type = types[_i],
                                .batch = 2,
                                .heads = 4,
                                .kv_heads = 2,
                                .len_q = 100,
                                .len_kv = 130},
                       .d_lse = m % 2 == 0};
    run_case(&s, masks[m].see, masks[m].context, NONE, true);
  }
}
END_TEST

/* A sink far above or below the scores, and none at all. */
START_TEST(sinks_of_any_size) {
  static const float sinks[] = {-INFINITY, -1e4f, -90, 0, 90, 1e4f};
  backward_spec spec = {.call = {.dim = 16, .heads = 6, .len_q = 70, .len_kv = 70}, .d_lse = true};
  for (int m = 0; m < 2; m++) {
    scored_case s;
    fly_error error = {0};
    set_up(&s, &spec, m ? see_none : see_causal, NULL, NONE, true);
    memcpy(s.sink, sinks, sizeof sinks);
    ck_fly_ok(fly_attention_forward(&s.t.base.call, &error), error);
    oracle_scored_check(&s.oracle, "sinks of any size");
    for (int h = 0; h < 6 && m; h++) ck_assert(oracle_get(&s.t.base.call.lse, 0, h, 3, 0) == sinks[h]);
    oracle_scored_forward(&s.oracle);
    backward_run(&s.t);
    oracle_scored_check_backward(&s.oracle, "sinks of any size");
    tear_down(&s);
  }
}
END_TEST

START_TEST(sink_gradients_alone_and_added) {
  backward_spec spec = {
      .call = {.dim = 16, .heads = 3, .len_q = 130, .len_kv = 130}, .no_d_q = true, .no_d_k = true, .no_d_v = true};
  scored_case s;
  float once[3];
  set_up(&s, &spec, see_causal, NULL, 1, true);
  oracle_scored_forward(&s.oracle);
  backward_run(&s.t);
  oracle_scored_check_backward(&s.oracle, "d_sink alone");
  memcpy(once, s.d_sink, sizeof once);
  s.t.base.call.add_gradients = true;
  backward_run(&s.t);
  for (int h = 0; h < 3; h++) ck_assert(fabsf(s.d_sink[h] - 2 * once[h]) <= 1e-6f * fabsf(once[h]));
  tear_down(&s);
}
END_TEST

START_TEST(any_number_of_threads_gives_the_same_bits) {
  backward_spec spec = {.call = {.dim = 32, .batch = 2, .heads = 4, .kv_heads = 2, .len_q = 400, .len_kv = 400},
                        .d_lse = true};
  uint64_t first = 0;
  float sinks[4];
  for (int threads = 1; threads <= 4; threads++) {
    scored_case s;
    fly_error error = {0};
    spec.call.threads = threads;
    set_up(&s, &spec, see_window, wide, 1, true);
    ck_fly_ok(fly_attention_forward(&s.t.base.call, &error), error);
    backward_run(&s.t);
    uint64_t digest = backward_digest(&s.t);
    if (threads == 1) first = digest, memcpy(sinks, s.d_sink, sizeof sinks);
    ck_assert_msg(digest == first && memcmp(sinks, s.d_sink, sizeof sinks) == 0, "%d threads", threads);
    tear_down(&s);
  }
}
END_TEST

/* A NaN that a query sees gives NaN; what others see is not touched. */
START_TEST(nan_reaches_who_sees_it) {
  static const char source[] = "#include <flymask/score.h>\n"
                               "float score(float s, int b, int h, int q, int kv) {\n"
                               "  return kv == 40 && q != 77 ? NAN : kv == 41 ? INFINITY : s;\n"
                               "}\n";
  backward_spec spec = {.call = {.dim = 16, .len_q = 150, .len_kv = 150}};
  CALL_FOR_TARGETS(target) {
    scored_case s;
    fly_error error = {0};
    fly_compile_options options = {FLY_INIT(fly_compile_options), .target = target, .cache = ""};
    spec.call.target = target;
    set_up(&s, &spec, see_window, window, NONE, false);
    fly_attention *c = &s.t.base.call;
    fly_kernel_desc desc = c->kernel->desc;
    ck_fly_ok(fly_score_compile(source, "nan.c", &options, &s.score, &error), error);
    ck_fly_ok(fly_score_bind(s.score, NULL, 0, &s.bound, &error), error);
    desc.target = target, desc.score = s.score;
    ck_fly_ok(fly_kernel_create(fly_kernel_mask(c->kernel), &desc, &s.kernel, &error), error);
    c->kernel = s.kernel, c->score = s.bound;
    ck_fly_ok(fly_attention_forward(c, &error), error);
    for (int q = 0; q < 150; q++) {
      bool sees = see_window(window, 0, 0, q, 40) || see_window(window, 0, 0, q, 41);
      ck_assert_msg(isnan(oracle_get(&c->out, 0, 0, q, 5)) == sees, "%s: row %d", target, q);
    }
    tear_down(&s);
  }
}
END_TEST

/* -infinity from the modifier hides a pair even where V holds an infinity. */
START_TEST(what_a_modifier_hides_stays_hidden) {
  for (int m = 0; m < 2; m++) {
    backward_spec spec = {.call = {.dim = 16, .len_q = 140, .len_kv = 200}};
    scored_case s;
    fly_error error = {0};
    set_up(&s, &spec, m ? see_all : see_causal, NULL, 3, false);
    fly_attention *c = &s.t.base.call;
    for (int d = 0; d < 16; d++) oracle_set(&c->v, 0, 0, 30, d, INFINITY);
    ck_fly_ok(fly_attention_forward(c, &error), error);
    for (int q = 0; q < 140; q++) {
      bool sees = (m || q >= 30) && (q - 30) % 5 != 2;
      ck_assert_msg(!isfinite(oracle_get(&c->out, 0, 0, q, 3)) == sees, "row %d", q);
    }
    tear_down(&s);
  }
}
END_TEST

START_TEST(huge_scores_in_bf16_stay_finite) { /* a public report: causal, 1,025 tokens, a large modifier */
  backward_spec spec = {.call = {.type = FLY_BF16, .dim = 16, .len_q = 1025, .len_kv = 1025, .amplitude = 300}};
  scored_case s;
  fly_error error = {0};
  set_up(&s, &spec, see_causal, NULL, 3, false);
  fly_attention *c = &s.t.base.call;
  ck_fly_ok(fly_attention_forward(c, &error), error);
  backward_run(&s.t);
  for (int q = 0; q < 1025; q++)
    for (int d = 0; d < 16; d++)
      ck_assert(isfinite(oracle_get(&c->out, 0, 0, q, d)) && isfinite(oracle_get(&c->d_q, 0, 0, q, d)) &&
                isfinite(oracle_get(&c->d_k, 0, 0, q, d)) && isfinite(oracle_get(&c->d_v, 0, 0, q, d)));
  tear_down(&s);
}
END_TEST

/* ---- wrong calls ------------------------------------------------------------------------------------------------- */

START_TEST(wrong_calls_are_refused) {
  backward_spec spec = {.call = {.dim = 16, .heads = 2, .len_q = 70, .len_kv = 70}};
  scored_case s, other;
  fly_error error = {0};
  set_up(&s, &spec, see_causal, NULL, 1, true);
  set_up(&other, &spec, see_causal, NULL, 0, false);
  fly_attention good = s.t.base.call, c;
#define REFUSED(text, ...)                                                                                             \
  c = good;                                                                                                            \
  __VA_ARGS__;                                                                                                         \
  ck_assert_int_eq(fly_attention_forward(&c, &error), FLY_ERROR_ARGUMENT);                                             \
  ck_assert_msg(strstr(error.message, text), "%s", error.message);                                                     \
  ck_assert_int_eq(fly_attention_backward(&c, &error), FLY_ERROR_ARGUMENT)
  REFUSED("score is NULL, but the kernel has the score modifier", c.score = NULL);
  REFUSED("score is of modifier.c", c.score = other.bound);
  REFUSED("score is of handmade.c", c.score = good.bound);
  REFUSED("score is given, but the kernel has no", c.kernel = s.t.base.made.kernel);
  REFUSED("bound is of mask", c.bound = s.bound);
  REFUSED("sink is [1, 1, 1, 1]", c.sink.shape[1] = 1);
  REFUSED("sink.type is f16", c.sink.type = FLY_F16);
  REFUSED("out and sink share memory", c.sink.data = c.out.data);
#undef REFUSED
  c = good, c.sink.data = NULL;
  ck_assert_int_eq(fly_attention_backward(&c, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "d_sink is given, but no sink"), "%s", error.message);
  c = good, c.d_sink.data = c.d_v.data;
  ck_assert_int_eq(fly_attention_backward(&c, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "d_v and d_sink share memory"), "%s", error.message);
  tear_down(&s), tear_down(&other);
}
END_TEST

/* The parts of a gated sum may have modifiers and sinks of their own. */
START_TEST(gated_sums_take_modifiers_and_sinks) {
  enum { ROWS = 90, DIM = 16 };
  backward_spec spec = {.call = {.dim = DIM, .len_q = ROWS, .len_kv = ROWS}};
  scored_case s[2];
  fly_error error = {0};
  float logits[2][ROWS], sum[ROWS * DIM], want[ROWS * DIM];
  fly_gated_part parts[2];
  memset(parts, 0, sizeof parts);
  memset(want, 0, sizeof want);
  for (int i = 0; i < 2; i++) {
    set_up(&s[i], &spec, i ? see_all : see_causal, NULL, i, true);
    fly_attention *c = &s[i].t.base.call;
    if (i) c->q = s[0].t.base.call.q, c->k = s[0].t.base.call.k, c->v = s[0].t.base.call.v;
    ck_fly_ok(fly_attention_forward(c, &error), error);
    for (int r = 0; r < ROWS; r++) {
      logits[i][r] = (float)(r % 7) - 3 + (float)i;
      for (int d = 0; d < DIM; d++)
        want[r * DIM + d] += (float)(oracle_get(&c->out, 0, 0, r, d) / (1 + exp(-logits[i][r])));
    }
    parts[i].attention = *c;
    parts[i].attention.d_sink = parts[i].attention.out = parts[i].attention.lse = (fly_tensor){0};
    parts[i].gate.logits = fly_tensor_dense(logits[i], FLY_F32, 1, 1, ROWS, 1);
  }
  fly_gated_call call = {FLY_INIT(fly_gated_call),
                         .parts = parts,
                         .count = 2,
                         .q = parts[0].attention.q,
                         .k = parts[0].attention.k,
                         .v = parts[0].attention.v,
                         .out = fly_tensor_dense(sum, FLY_F32, 1, 1, ROWS, DIM)};
  ck_fly_ok(fly_gated_forward(&call, &error), error);
  for (int i = 0; i < ROWS * DIM; i++) ck_assert_msg(fabsf(sum[i] - want[i]) < 2e-6f, "%d: %g %g", i, sum[i], want[i]);
  parts[1].attention.d_sink = s[1].t.base.call.d_sink;
  ck_assert_int_eq(fly_gated_forward(&call, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "no gradients of sinks"), "%s", error.message);
  parts[1].attention.d_sink.data = NULL;
  parts[1].attention.out = s[1].t.base.call.out; /* so that the part's own check does not see the whole's output */
  parts[1].attention.sink.data = sum + 7;
  ck_assert_int_eq(fly_gated_forward(&call, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "out and a tensor of parts[1] share memory"), "%s", error.message);
  tear_down(&s[0]), tear_down(&s[1]);
}
END_TEST

/* Rows of a selection's grouped call are not positions, and its partial outputs would each count the sink. */
START_TEST(selections_refuse_modifiers_and_sinks) {
  fly_mask *mask = NULL;
  fly_selection *selection = NULL;
  fly_kernel *plain = NULL, *scored = NULL;
  fly_error error = {0};
  static float data[128 * 16], sink[1];
  ck_fly_ok(fly_mask_compile_file(FLYMASK_SOURCE "/masks/selected_tiles.c", NULL, &mask, &error), error);
  fly_tensor t = fly_tensor_dense(data, FLY_F32, 1, 1, 128, 16);
  fly_moba_desc moba = {FLY_INIT(fly_moba_desc), .block = 64, .top = 2, .q = t, .k = t};
  ck_fly_ok(fly_moba_select(mask, &moba, &selection, &error), error);
  fly_score *score = compile(1, NULL);
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_F32, .head_dim = 16};
  ck_fly_ok(fly_kernel_create(mask, &desc, &plain, &error), error);
  desc.score = score;
  ck_fly_ok(fly_kernel_create(mask, &desc, &scored, &error), error);
  fly_attention call = {FLY_INIT(fly_attention), .kernel = scored, .q = t, .k = t, .v = t, .out = t};
  ck_assert_int_eq(fly_selection_forward(selection, &call, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "the kernel has a score modifier"), "%s", error.message);
  call.kernel = plain, call.sink = fly_tensor_dense(sink, FLY_F32, 1, 1, 1, 1);
  ck_assert_int_eq(fly_selection_backward(selection, &call, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "sink is given"), "%s", error.message);
  fly_kernel_release(&plain), fly_kernel_release(&scored);
  fly_score_release(&score);
  fly_selection_release(&selection);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(failing_allocations_are_errors) {
  backward_spec spec = {.call = {.dim = 16, .heads = 2, .len_q = 70, .len_kv = 70}};
  scored_case s;
  set_up(&s, &spec, see_causal, NULL, 4, true);
  for (int backward = 0; backward < 2; backward++)
    for (long nth = 1, done = 0; !done; nth++) {
      fly_error error = {0};
      flyi_fail_allocation(nth);
      fly_status status = backward ? fly_attention_backward(&s.t.base.call, &error)
                                   : fly_attention_forward(&s.t.base.call, &error);
      flyi_fail_allocation(0);
      ck_assert(status == FLY_OK || status == FLY_ERROR_MEMORY);
      done = status == FLY_OK;
    }
  tear_down(&s);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("score_attention");
  TCase *tests = tcase_create("attention");
  tcase_add_loop_test(tests, any_mask_and_modifier, 0, SCORE_BODIES);
  tcase_add_loop_test(tests, any_length_and_dimension, 0, 7);
  tcase_add_loop_test(tests, few_queries_and_many_keys, 0, 3);
  tcase_add_test(tests, grouped_heads_ragged_batches_row_maps);
  tcase_add_loop_test(tests, sinks_without_a_modifier, 0, 3);
  tcase_add_test(tests, sinks_of_any_size);
  tcase_add_test(tests, sink_gradients_alone_and_added);
  tcase_add_test(tests, any_number_of_threads_gives_the_same_bits);
  tcase_add_test(tests, nan_reaches_who_sees_it);
  tcase_add_test(tests, what_a_modifier_hides_stays_hidden);
  tcase_add_test(tests, huge_scores_in_bf16_stay_finite);
  tcase_add_test(tests, wrong_calls_are_refused);
  tcase_add_test(tests, gated_sums_take_modifiers_and_sinks);
  tcase_add_test(tests, selections_refuse_modifiers_and_sinks);
  tcase_add_test(tests, failing_allocations_are_errors);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
