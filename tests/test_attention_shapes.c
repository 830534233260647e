/* Forward attention has the oracle's result for every shape, type and target. */
#include "support/call_case.h"

/* What sits around the sizes that kernels work in: blocks of 64 and map tiles of 128. */
static const int lengths[] = {1, 2, 63, 64, 65, 127, 128, 129, 259};
enum { LENGTHS = sizeof lengths / sizeof lengths[0] };
static const int dims[] = {1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 100, 127, 128, 129, 192, 255, 256};
enum { DIMS = sizeof dims / sizeof dims[0] };
static const fly_type types[] = {FLY_F32, FLY_F16, FLY_BF16};
static int window[2] = {70, 9};
static int half = 128;

START_TEST(every_pair_of_boundary_lengths) {
  CALL_FOR_TARGETS(target)
  for (int j = 0; j < LENGTHS; j++) {
    call_spec s = {.dim = 20,
                   .target = target,
                   .len_q = lengths[_i],
                   .len_kv = lengths[j],
                   .heads = 2,
                   .kv_heads = 1,
                   .seed = _i * LENGTHS + j};
    call_test(&s, see_all, NULL);
    call_test(&s, see_causal, NULL);
    call_test(&s, see_window, window);
    call_test(&s, see_random, &half);
  }
}
END_TEST

START_TEST(every_length_from_1_to_300) {
  for (int n = 1; n <= 300; n++) {
    call_spec s = {.type = types[n % 3], .dim = 8, .len_q = n, .len_kv = n, .seed = n};
    call_test(&s, see_causal, NULL);
    s.len_kv = 301 - n;
    call_test(&s, see_window, window);
  }
}
END_TEST

START_TEST(every_head_dim) {
  CALL_FOR_TARGETS(target)
  for (int t = 0; t < 3; t++) {
    call_spec s = {.type = types[t], .dim = dims[_i], .target = target, .len_q = 70, .len_kv = 131, .q_offset = 61};
    call_test(&s, see_causal, NULL);
    s.layout = LAYOUT_PADDED;
    call_test(&s, see_window, window);
  }
}
END_TEST

START_TEST(every_head_dim_from_1_to_256) {
  for (int d = 1; d <= 256; d++) {
    call_spec s = {.type = types[d % 3], .dim = d, .value_dim = 257 - d, .len_q = 10, .len_kv = 66, .q_offset = 56};
    call_test(&s, see_causal, NULL);
  }
}
END_TEST

START_TEST(head_dims_up_to_512) {
  static const int large[][2] = {{128, 512}, {512, 128}, {257, 300}, {320, 257}, {384, 511}, {511, 1}, {512, 512}};
  CALL_FOR_TARGETS(target)
  for (int t = 0; t < 3; t++) {
    call_spec s = {.type = types[t], .dim = large[_i][0], .value_dim = large[_i][1], .target = target, .heads = 2};
    s.kv_heads = 1, s.len_q = 9, s.len_kv = 130, s.q_offset = 121;
    call_test(&s, see_causal, NULL);
    s.len_kv = 530, s.q_offset = 520, s.layout = LAYOUT_PADDED;
    s.len_q = 5; /* few queries and many keys */
    call_test(&s, see_causal, NULL);
  }
}
END_TEST

START_TEST(value_dim_differs_from_head_dim) {
  CALL_FOR_TARGETS(target)
  for (int j = 0; j < DIMS; j++) {
    call_spec s = {.type = types[j % 3],
                   .dim = dims[_i],
                   .value_dim = dims[j],
                   .target = target,
                   .len_q = 9,
                   .len_kv = 66,
                   .q_offset = 56};
    call_test(&s, see_causal, NULL);
  }
}
END_TEST

START_TEST(groups_of_query_heads) {
  static const int groups[] = {1, 2, 3, 8};
  CALL_FOR_TARGETS(target)
  for (int kv_heads = 1; kv_heads <= 3; kv_heads++) {
    call_spec s = {.type = types[_i % 3],
                   .dim = 24,
                   .target = target,
                   .batch = 2,
                   .heads = kv_heads * groups[_i],
                   .kv_heads = kv_heads,
                   .len_q = 67,
                   .len_kv = 90,
                   .seed = kv_heads};
    call_test(&s, see_causal, NULL);
    call_test(&s, see_random, &half); /* another mask for every batch entry and head */
  }
}
END_TEST

START_TEST(every_map_tile) {
  static const int tiles[][2] = {{64, 64}, {64, 128}, {128, 64}, {192, 64}, {256, 512}, {64, 320}};
  int few = 3;
  for (int demote = 0; demote <= 256; demote += 128) {
    call_spec s = {
        .dim = 16, .len_q = 300, .len_kv = 413, .tile_q = tiles[_i][0], .tile_kv = tiles[_i][1], .demote = demote};
    call_test(&s, see_causal, NULL);
    call_test(&s, see_window, window);
    call_test(&s, see_random, &few);
  }
}
END_TEST

START_TEST(nothing_to_do) {
  call_spec s = {.dim = 16, .len_q = 0, .len_kv = 5};
  call_test(&s, see_all, NULL);
  s = (call_spec){.dim = 16, .len_q = 70, .len_kv = 0}; /* queries without keys: zeros, and -infinity */
  call_test(&s, see_all, NULL);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("attention_shapes");
  TCase *tests = tcase_create("shapes");
  tcase_add_loop_test(tests, every_pair_of_boundary_lengths, 0, LENGTHS);
  tcase_add_test(tests, every_length_from_1_to_300);
  tcase_add_loop_test(tests, every_head_dim, 0, DIMS);
  tcase_add_test(tests, every_head_dim_from_1_to_256);
  tcase_add_loop_test(tests, head_dims_up_to_512, 0, 7);
  tcase_add_loop_test(tests, value_dim_differs_from_head_dim, 0, DIMS);
  tcase_add_loop_test(tests, groups_of_query_heads, 0, 4);
  tcase_add_loop_test(tests, every_map_tile, 0, 6);
  tcase_add_test(tests, nothing_to_do);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
