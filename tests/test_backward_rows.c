/* Gradients reach the right rows through strides, row maps, offsets and ragged batches; rows that are read several
 * times get sums, rows that are not read get 0 (backward_test compares every row of every tensor). */
#include "support/backward_case.h"

static int window[2] = {40, 12};
static int half = 128;
static const fly_type types[] = {FLY_F32, FLY_F16, FLY_BF16};

START_TEST(any_layout) {
  for (int layout = 0; layout < LAYOUTS; layout++) {
    backward_spec s = {.call = {.type = types[_i],
                                .dim = 32,
                                .value_dim = 16,
                                .batch = 2,
                                .heads = 4,
                                .kv_heads = 2,
                                .len_q = 130,
                                .len_kv = 133,
                                .layout = layout,
                                .seed = layout}};
    backward_test(&s, see_window, window);
    backward_test(&s, see_random, &half);
  }
}
END_TEST

START_TEST(row_maps_gather_and_scatter) { /* _i: kinds of the three maps, base 4 */
  int q = _i % 4, kv = _i / 4 % 4, out = _i / 16, t = _i % 3;
  if (q == 3 && out == 0) return; /* duplicates need out_rows */
  backward_spec s = {.call = {.type = types[t],
                              .dim = 24,
                              .batch = 2,
                              .heads = 4,
                              .kv_heads = _i % 5 == 2 ? 4 : 2,
                              .len_q = 75,
                              .len_kv = 140,
                              .q_rows = q,
                              .kv_rows = kv,
                              .out_rows = out,
                              .layout = _i / 3 % 3,
                              .seed = _i},
                     .d_lse = _i & 1};
  backward_test(&s, see_window, window);
  backward_test(&s, see_random, &half);
}
END_TEST

START_TEST(every_head_with_rows_of_its_own) { /* and one head for all: the sums of a plane come from several heads */
  for (int kv_heads = 1; kv_heads <= 6; kv_heads++) {
    if (6 % kv_heads) continue;
    backward_spec s = {.call = {.dim = 16,
                                .batch = 2,
                                .heads = 6,
                                .kv_heads = kv_heads,
                                .len_q = 70,
                                .len_kv = 100,
                                .kv_rows = 2,
                                .q_rows = 2}};
    backward_test(&s, see_causal, NULL);
    s.call.kv_rows = 3;
    backward_test(&s, see_causal, NULL);
  }
}
END_TEST

START_TEST(query_offset_shifts_what_the_mask_sees) {
  static const int offsets[] = {0, 1, 63, 65, 150, -70, 1000};
  backward_spec s = {.call = {.dim = 16, .len_q = 80, .len_kv = 230, .q_offset = offsets[_i]}};
  backward_test(&s, see_causal, NULL);
  backward_test(&s, see_window, window);
}
END_TEST

START_TEST(ragged_batches) { /* _i: which maps; in one plane the map of keys repeats rows over sequences */
  static const int32_t cu_q[] = {0, 70, 70, 71, 200, 328, 391}, cu_kv[] = {0, 65, 130, 130, 131, 300, 500};
  for (int layout = 0; layout < LAYOUT_BROADCAST; layout++) {
    backward_spec s = {.call = {.dim = 16,
                                .batch = 6,
                                .heads = 4,
                                .kv_heads = 2,
                                .cu_q = cu_q,
                                .cu_kv = cu_kv,
                                .layout = layout,
                                .q_rows = _i & 1 ? 2 : 0,
                                .kv_rows = _i & 2 ? 3 : 0,
                                .out_rows = _i & 4 ? 1 : 0,
                                .seed = _i}};
    backward_test(&s, see_causal, NULL);
    backward_test(&s, see_random, &half);
  }
}
END_TEST

/* Shortens the call: its lengths are no longer the tensors'. */
static void shorten(backward_spec *s, int64_t len_q, int64_t len_kv) {
  backward_case t;
  backward_init(&t, s, see_window, window);
  handmade_free(&t.base.made);
  fly_attention *c = &t.base.call;
  c->geometry.len_q = len_q, c->geometry.len_kv = len_kv;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), c->q.type, s->call.dim, s->call.dim, NULL};
  handmade_init(&t.base.made, see_window, window, NULL, &desc, &c->geometry, 128, 128, 0);
  c->kernel = t.base.made.kernel;
  oracle_forward(c, see_window, window);
  backward_run(&t);
  oracle_check_backward(c, see_window, window, "shortened");
  backward_free(&t);
}

START_TEST(rows_beyond_the_call_get_zero) {
  for (int type = 0; type < 3; type++)
    for (int maps = 0; maps < 2; maps++) {
      backward_spec s = {.call = {.type = types[type],
                                  .dim = 20,
                                  .batch = 2,
                                  .heads = 2,
                                  .len_q = 300,
                                  .len_kv = 400,
                                  .q_rows = maps,
                                  .kv_rows = maps,
                                  .layout = type}};
      shorten(&s, 77, 130);
      shorten(&s, 300, 1);
      shorten(&s, 1, 400);
    }
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("backward_rows");
  TCase *tests = tcase_create("rows");
  tcase_add_loop_test(tests, any_layout, 0, 3);
  tcase_add_loop_test(tests, row_maps_gather_and_scatter, 0, 48);
  tcase_add_test(tests, every_head_with_rows_of_its_own);
  tcase_add_loop_test(tests, query_offset_shifts_what_the_mask_sees, 0, 7);
  tcase_add_loop_test(tests, ragged_batches, 0, 8);
  tcase_add_test(tests, rows_beyond_the_call_get_zero);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(suite)
