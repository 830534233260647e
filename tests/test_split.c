/* Forward calls of few queries and many keys: split over ranges of keys, each read once for all heads of a group. */
#include "support/call_case.h"

static const fly_type types[] = {FLY_F32, FLY_F16, FLY_BF16};
static int window[2] = {700, 3}, half = 128, few = 2;

START_TEST(every_length) { /* around blocks of 64 and ranges of 2048 */
  static const int lengths[] = {512, 513, 575, 2047, 2048, 2049, 2112, 4097};
  CALL_FOR_TARGETS(target)
  for (int t = 0; t < 3; t++) {
    call_spec s = {.type = types[t],
                   .dim = 64,
                   .target = target,
                   .heads = 4,
                   .kv_heads = 2,
                   .len_q = 1 + t,
                   .len_kv = lengths[_i],
                   .q_offset = lengths[_i] - 2,
                   .seed = t};
    oracle_predicate *see[] = {see_all, see_causal, see_window};
    call_test(&s, see[(_i + t) % 3], window);
  }
}
END_TEST

START_TEST(every_head_dim) { /* whole register blocks are read where they are, others packed */
  static const int dims[] = {1, 7, 16, 17, 32, 48, 63, 64, 65, 96, 100, 128, 129, 192, 255, 256};
  CALL_FOR_TARGETS(target)
  for (int i = 0; i < 16; i++) {
    call_spec s = {.type = types[_i],
                   .dim = dims[i],
                   .value_dim = dims[(i * 7 + 3) % 16],
                   .target = target,
                   .heads = 3,
                   .kv_heads = 1,
                   .len_q = 2,
                   .len_kv = 700,
                   .q_offset = 600,
                   .layout = i % LAYOUTS};
    call_test(&s, see_causal, NULL);
    call_test(&s, see_random, &half); /* another mask for every head */
  }
}
END_TEST

START_TEST(every_group) { /* rows of a group: 1 to 16 */
  static const struct {
    int heads, kv_heads, len_q;
  } cases[] = {{1, 1, 1}, {4, 1, 1}, {8, 2, 3}, {16, 1, 1}, {2, 2, 16}, {5, 1, 3}, {6, 3, 7}};
  CALL_FOR_TARGETS(target)
  for (int t = 0; t < 3; t++) {
    call_spec s = {.type = types[t],
                   .dim = 40,
                   .value_dim = 128,
                   .target = target,
                   .batch = 2,
                   .heads = cases[_i].heads,
                   .kv_heads = cases[_i].kv_heads,
                   .len_q = cases[_i].len_q,
                   .len_kv = 640,
                   .q_offset = 630,
                   .amplitude = 6};
    call_test(&s, see_random, &few); /* rows that see little, blocks that nobody sees */
    call_test(&s, see_none, NULL);
  }
}
END_TEST

START_TEST(paged_caches_and_row_maps) { /* _i: kind of map, with repeated rows at 3 */
  CALL_FOR_TARGETS(target)
  for (int t = 0; t < 3; t++) {
    call_spec s = {.type = types[t],
                   .dim = 64,
                   .target = target,
                   .batch = 2,
                   .heads = 2,
                   .kv_heads = 1,
                   .len_q = 2,
                   .len_kv = 2120,
                   .q_offset = 2110,
                   .q_rows = 1,
                   .kv_rows = _i,
                   .out_rows = _i == 3 ? 2 : 0};
    call_test(&s, t == 1 ? see_window : see_causal, window);
  }
}
END_TEST

START_TEST(batches_of_ragged_lengths) { /* each entry its own length, some without queries or keys */
  static const int32_t cu_q[] = {0, 1, 3, 3, 7}, cu_kv[] = {0, 700, 701, 1300, 1300};
  CALL_FOR_TARGETS(target)
  for (int rows = 0; rows < 2; rows++) {
    call_spec s = {.type = types[_i],
                   .dim = 64,
                   .target = target,
                   .batch = 4,
                   .heads = 4,
                   .kv_heads = 2,
                   .cu_q = cu_q,
                   .cu_kv = cu_kv,
                   .kv_rows = rows,
                   .q_offset = 500};
    call_test(&s, see_causal, NULL);
    call_test(&s, see_all, NULL);
  }
}
END_TEST

START_TEST(nan_and_infinity_reach_only_who_sees_them) { /* _i: in Q, K or V */
  const double values[] = {NAN, INFINITY};
  int sides[2] = {300, 0};
  CALL_FOR_TARGETS(target)
  for (int t = 0; t < 3; t += 2)
    for (int v = 0; v < 2; v++) {
      call_spec s = {
          .type = types[t], .dim = 64, .target = target, .heads = 2, .kv_heads = 1, .len_q = 3, .len_kv = 4200};
      call_case c;
      char what[64];
      s.q_offset = 4100;
      if (_i < 2 && v == 1) continue; /* of a sum of infinities of both signs */
      call_init(&c, &s, see_window, sides);
      const fly_tensor *all[] = {&c.call.q, &c.call.k, &c.call.v};
      for (int d = 0; d < 64; d++)
        oracle_set(all[_i], 0, 0, _i ? 3801 : 1, d, values[v]); /* the first two queries' last key */
      oracle_set(all[_i], 0, 0, _i ? 5 : 1, 3, values[v]);      /* nobody's key */
      call_run(&c);
      snprintf(what, sizeof what, "%s %s %g in %d", target, fly_type_name(types[t]), values[v], _i);
      oracle_check(&c.call, see_window, sides, CALL_UNTOUCHED, what);
      call_free(&c);
    }
}
END_TEST

START_TEST(large_scores) {
  static const float amplitudes[] = {30, 1e4f, 1e15f};
  CALL_FOR_TARGETS(target)
  for (int t = 0; t < 3; t += 2) {
    call_spec s = {
        .type = types[t], .dim = 40, .target = target, .len_q = 2, .len_kv = 2100, .amplitude = amplitudes[_i]};
    call_test(&s, see_all, NULL);
  }
}
END_TEST

START_TEST(any_number_of_threads_gives_the_same_bits) {
  call_spec s = {.dim = 64, .batch = 2, .heads = 8, .kv_heads = 2, .len_q = 2, .len_kv = 7000, .threads = 1};
  call_case t;
  call_init(&t, &s, see_all, NULL);
  call_run(&t);
  size_t bytes = 2 * 8 * 2 * 64 * sizeof(float);
  float *one = malloc(bytes);
  memcpy(one, t.call.out.data, bytes);
  for (int threads = 2; threads <= 8; threads += 3) {
    call_reset(&t);
    t.call.threads = threads;
    call_run(&t);
    ck_assert_msg(memcmp(one, t.call.out.data, bytes) == 0, "%d threads give other bits than one", threads);
  }
  free(one);
  call_free(&t);
}
END_TEST

START_TEST(workspace_of_the_stated_size_is_enough) {
  for (int threads = 1; threads <= 5; threads += 2) {
    call_spec s = {.type = types[threads / 2],
                   .dim = 40,
                   .value_dim = 17,
                   .batch = 2,
                   .heads = 6,
                   .kv_heads = 3,
                   .len_q = 4,
                   .len_kv = 4500,
                   .threads = threads};
    call_case t;
    fly_error error;
    size_t bytes;
    call_init(&t, &s, see_all, NULL);
    ck_fly_ok(fly_attention_workspace(&t.call, &bytes, &error), error);
    ck_assert_uint_lt(bytes, 1 << 20); /* no copy of the keys and values */
    t.call.workspace = guard_alloc(bytes, 64, threads == 3);
    t.call.workspace_size = bytes;
    call_run(&t);
    oracle_check(&t.call, see_all, NULL, CALL_UNTOUCHED, "own workspace");
    guard_free(t.call.workspace);
    call_free(&t);
  }
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("split");
  TCase *tests = tcase_create("split");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, every_length, 0, 8);
  tcase_add_loop_test(tests, every_head_dim, 0, 3);
  tcase_add_loop_test(tests, every_group, 0, 7);
  tcase_add_loop_test(tests, paged_caches_and_row_maps, 1, 4);
  tcase_add_loop_test(tests, batches_of_ragged_lengths, 0, 3);
  tcase_add_loop_test(tests, nan_and_infinity_reach_only_who_sees_them, 0, 3);
  tcase_add_loop_test(tests, large_scores, 0, 3);
  tcase_add_test(tests, any_number_of_threads_gives_the_same_bits);
  tcase_add_test(tests, workspace_of_the_stated_size_is_enough);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
