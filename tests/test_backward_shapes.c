/* Gradients are right for every length, head dimension, type, target, mask and tile, and rows nobody reads get 0. */
#include "support/backward_case.h"

static const fly_type types[] = {FLY_F32, FLY_F16, FLY_BF16};
static int window[2] = {20, 9}, wide[2] = {100, 70}, half = 128, few = 3;

static const struct {
  oracle_predicate *see;
  void *context;
} masks[] = {{see_all, NULL},     {see_causal, NULL}, {see_window, window}, {see_window, wide},
             {see_random, &half}, {see_random, &few}, {see_none, NULL}};
enum { MASKS = sizeof masks / sizeof *masks };

START_TEST(any_length) { /* every pair of lengths with two of the masks in turn */
  static const int lengths[] = {1, 2, 5, 63, 64, 65, 127, 128, 131, 195};
  int turn = _i;
  CALL_FOR_TARGETS(target)
  for (int j = 0; j < 10; j++)
    for (int k = 0; k < 2; k++, turn++) {
      int64_t len_q = lengths[_i], len_kv = lengths[j];
      backward_spec s = {.call = {.dim = 16, .target = target, .len_q = len_q, .len_kv = len_kv, .seed = j}};
      backward_test(&s, masks[turn % MASKS].see, masks[turn % MASKS].context);
    }
}
END_TEST

START_TEST(any_head_dimension) {
  static const int dims[] = {1, 3, 8, 15, 16, 17, 33, 48, 64, 80, 96, 100, 127, 128, 192, 255, 256};
  CALL_FOR_TARGETS(target)
  for (int other = 0; other < 3; other++) {
    int dim = dims[_i], value_dim = other == 0 ? dim : other == 1 ? 24 : 256 - dim + 1;
    backward_spec s = {.call = {.dim = dim,
                                .value_dim = value_dim,
                                .target = target,
                                .type = types[(_i + other) % 3],
                                .len_q = 70,
                                .len_kv = 135,
                                .seed = _i},
                       .d_lse = other};
    backward_test(&s, see_window, wide);
  }
}
END_TEST

START_TEST(every_length_and_head_dimension_up_to_300) {
  for (int n = 1; n <= 300; n++) {
    backward_spec s = {.call = {.type = types[n % 3], .dim = 1 + n % 17, .len_q = n, .len_kv = 301 - n, .seed = n}};
    backward_test(&s, masks[n % MASKS].see, masks[n % MASKS].context);
    if (n > 256) continue;
    s.call = (call_spec){
        .type = types[n % 3], .dim = n, .value_dim = 257 - n, .len_q = 3, .len_kv = 66, .q_offset = 63};
    backward_test(&s, see_causal, NULL);
  }
}
END_TEST

START_TEST(head_dimensions_up_to_512) {
  static const int large[][2] = {{128, 512}, {512, 128}, {257, 511}, {512, 512}};
  CALL_FOR_TARGETS(target)
  for (int t = 0; t < 3; t++) {
    backward_spec s = {.call = {.type = types[t], .dim = large[_i][0], .value_dim = large[_i][1], .target = target}};
    s.call.len_q = 70, s.call.len_kv = 66;
    backward_test(&s, see_causal, NULL);
  }
}
END_TEST

START_TEST(any_type_and_mask) {
  CALL_FOR_TARGETS(target)
  for (int m = 0; m < MASKS; m++) {
    backward_spec s = {.call = {.type = types[_i],
                                .dim = 32,
                                .value_dim = 48,
                                .target = target,
                                .len_q = 150,
                                .len_kv = 200,
                                .q_offset = 50},
                       .d_lse = true};
    backward_test(&s, masks[m].see, masks[m].context);
  }
}
END_TEST

START_TEST(any_tile) { /* of the map; kernels walk blocks of 64 */
  static const int tiles[] = {64, 128, 192, 256};
  for (int k = 0; k < 4; k++)
    for (int m = 1; m < MASKS - 1; m++) {
      backward_spec s = {.call = {.dim = 16,
                                  .len_q = 330,
                                  .len_kv = 450,
                                  .tile_q = tiles[_i],
                                  .tile_kv = tiles[k],
                                  .demote = k * 60,
                                  .q_offset = 100}};
      backward_test(&s, masks[m].see, masks[m].context);
    }
}
END_TEST

START_TEST(heads_in_groups) {
  static const int groups[] = {1, 2, 3, 8};
  for (int m = 0; m < MASKS; m++) {
    backward_spec s = {.call = {.type = types[m % 3],
                                .dim = 16,
                                .batch = 2,
                                .heads = 2 * groups[_i],
                                .kv_heads = 2,
                                .len_q = 67,
                                .len_kv = 130},
                       .d_lse = true};
    backward_test(&s, masks[m].see, masks[m].context);
  }
}
END_TEST

START_TEST(gradients_not_wanted_are_left_out) { /* bits of _i */
  for (int repeats = 0; repeats < 2; repeats++) {
    backward_spec s = {.call = {.dim = 16,
                                .heads = 2,
                                .len_q = 100,
                                .len_kv = 150,
                                .kv_rows = repeats ? 3 : 0,
                                .q_rows = repeats ? 3 : 0,
                                .out_rows = repeats},
                       .no_d_q = _i & 1,
                       .no_d_k = _i & 2,
                       .no_d_v = _i & 4};
    backward_test(&s, see_causal, NULL);
  }
}
END_TEST

START_TEST(gradients_larger_than_the_cache) { /* whole lines of it go past it; in the last case rows are none */
  static const struct {
    fly_type type;
    int dim, rows;
  } cases[] = {{FLY_F32, 256, 0}, {FLY_F32, 256, 1}, {FLY_BF16, 512, 0}, {FLY_BF16, 512, 1}, {FLY_F32, 250, 1}};
  backward_spec s = {.call = {.type = cases[_i].type,
                              .dim = cases[_i].dim,
                              .len_q = 1100,
                              .len_kv = 600,
                              .q_rows = cases[_i].rows,
                              .kv_rows = cases[_i].rows,
                              .threads = 2}};
  backward_test(&s, see_window, window);
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("backward_shapes");
  TCase *tests = tcase_create("shapes");
  tcase_add_loop_test(tests, any_length, 0, 10);
  tcase_add_loop_test(tests, any_head_dimension, 0, 17);
  tcase_add_test(tests, every_length_and_head_dimension_up_to_300);
  tcase_add_loop_test(tests, head_dimensions_up_to_512, 0, 4);
  tcase_add_loop_test(tests, any_type_and_mask, 0, 3);
  tcase_add_loop_test(tests, any_tile, 0, 4);
  tcase_add_loop_test(tests, heads_in_groups, 0, 4);
  tcase_add_loop_test(tests, gradients_not_wanted_are_left_out, 0, 7);
  tcase_add_loop_test(tests, gradients_larger_than_the_cache, 0, 5);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(suite)
