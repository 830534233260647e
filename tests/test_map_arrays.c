/* Maps and FlexAttention's arrays, and maps as text. */
#include "map_case.h"

static fly_error error;

static const char mixed[] = "bool mask(int b, int h, int q, int kv) {"
                            "  return kv <= q && (q - kv < 90 || kv < 20) && (h == 0 || (kv / 32 + b) % 3 != 1); }";

static fly_map *build_mixed(int64_t len_q, int64_t len_kv, int tile_q, int tile_kv) {
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 2, .heads = 2, .len_q = len_q, .len_kv = len_kv};
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = tile_q, .tile_kv = tile_kv};
  fly_bound *bound = map_bind(mixed, NULL, 0);
  fly_map *map;
  ck_fly_ok(fly_map_build(bound, &g, &options, &map, &error), error);
  fly_bound_release(&bound);
  return map;
}

static fly_map_options tiles_of(const fly_map *map) {
  return (fly_map_options){FLY_INIT(fly_map_options), .tile_q = (int)map->info.tile_q,
                           .tile_kv = (int)map->info.tile_kv};
}

/* A stable sort of the columns, those that the dense row lists first: what create_block_mask does. */
static void expect_sorted(const uint8_t *dense, int64_t columns, int32_t num, const int32_t *index) {
  int32_t listed = 0;
  int64_t at = 0;
  for (int pass = 1; pass >= 0; pass--)
    for (int64_t c = 0; c < columns; c++)
      if (dense[c] == pass) {
        ck_assert_int_eq(index[at++], c);
        listed += pass;
      }
  ck_assert_int_eq(listed, num);
}

START_TEST(arrays_are_those_of_create_block_mask) {
  static const int shapes[][4] = {{300, 300, 32, 32}, {100, 257, 16, 64}, {257, 100, 64, 16}, {5, 5, 64, 64}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    fly_map *map = build_mixed(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
    ck_fly_ok(fly_map_transpose(map, &error), error);
    for (int order = FLY_BY_QUERY; order <= FLY_BY_KEY; order++) {
      fly_map_arrays a;
      ck_fly_ok(fly_map_to_arrays(map, (fly_order)order, &a, &error), error);
      ck_assert_int_eq(a.batch, map->info.batch);
      ck_assert_int_eq(a.heads, map->info.heads);
      ck_assert_int_eq(a.rows, order == FLY_BY_QUERY ? map->info.tiles_q : map->info.tiles_kv);
      ck_assert_int_eq(a.columns, order == FLY_BY_QUERY ? map->info.tiles_kv : map->info.tiles_q);
      for (int64_t r = 0; r < a.batch * a.heads * a.rows; r++) {
        uint8_t *dense[2] = {calloc((size_t)a.columns, 1), calloc((size_t)a.columns, 1)};
        const fly_run *runs;
        int64_t count = fly_map_row(map, (fly_order)order, r / a.rows / a.heads, r / a.rows % a.heads, r % a.rows,
                                    &runs);
        for (int64_t k = 0; k < count; k++)
          memset(dense[runs[k].kind == FLY_FULL] + runs[k].first, 1, (size_t)runs[k].count);
        expect_sorted(dense[0], a.columns, a.num[r], a.index + r * a.columns);
        expect_sorted(dense[1], a.columns, a.full_num[r], a.full_index + r * a.columns);
        free(dense[0]), free(dense[1]);
      }
      fly_map_arrays_free(&a);
      ck_assert_ptr_null(a.num);
    }
    fly_map_release(&map);
  }
}
END_TEST

/* The lists of each row in another order. */
static void shuffle(test_random *random, int64_t lists, int64_t columns, const int32_t *num, int32_t *index) {
  for (int64_t r = 0; r < lists; r++)
    for (int32_t i = num[r] - 1; i > 0; i--) {
      int32_t *a = &index[r * columns + i], *b = &index[r * columns + test_range(random, 0, i)], c = *a;
      *a = *b, *b = c;
    }
}

START_TEST(arrays_come_back_as_the_same_map_whatever_their_order) {
  test_random random = {.state = 9};
  fly_map *map = build_mixed(300, 270, 32, 16), *back;
  fly_map_options options = tiles_of(map);
  fly_map_arrays a;
  ck_fly_ok(fly_map_to_arrays(map, FLY_BY_QUERY, &a, &error), error);
  int64_t lists = a.batch * a.heads * a.rows;
  shuffle(&random, lists, a.columns, a.num, a.index), shuffle(&random, lists, a.columns, a.full_num, a.full_index);
  for (int64_t r = 0; r < lists; r++)
    for (int64_t i = a.num[r]; i < a.columns; i++) a.index[r * a.columns + i] = -7; /* padding is not read */
  ck_fly_ok(fly_map_from_arrays(&a, &map->geometry, &options, &back, &error), error);
  ck_assert(fly_map_equal(map, back));
  fly_map *ready;
  ck_fly_ok(fly_map_bind(back, map->bound, &ready, &error), error);
  check_map(ready, true, truth_compiled, NULL, "arrays with their mask");
  fly_map_release(&ready), fly_map_release(&back), fly_map_release(&map);
  fly_map_arrays_free(&a);
}
END_TEST

START_TEST(what_no_mask_decides_is_said_to_be_so) {
  fly_geometry g = map_square(1, 1, 100);
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = 64, .tile_kv = 64};
  int32_t num[] = {1, 1}, index[] = {0, 9, 1, 9}, full_num[] = {0, 1}, full_index[] = {9, 9, 0, 9};
  fly_map_arrays a = {FLY_INIT(fly_map_arrays), 1, 1, 2, 2, num, index, full_num, full_index};
  fly_map *map, *other, *both, *mine, *cut;
  int64_t pairs;
  ck_fly_ok(fly_map_from_arrays(&a, &g, &options, &map, &error), error);
  ck_assert_int_eq(fly_map_visible(map, 0, 0, 70, 3), 1);
  ck_assert_int_eq(fly_map_visible(map, 0, 0, 3, 70), 0);
  ck_assert_int_eq(fly_map_visible(map, 0, 0, 3, 3), -1);
  ck_assert_int_eq(fly_map_visible_pairs(map, &pairs, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.message, "fly_map_bind"));
  fly_bound *bound = map_bind("bool mask(int b, int h, int q, int kv) { return kv <= q; }", NULL, 0);
  ck_fly_ok(fly_map_build(bound, &g, &options, &other, &error), error);
  ck_assert(fly_map_equal(map, other));
  ck_fly_ok(fly_map_combine(FLY_AND, map, other, &both, &error), error);
  ck_assert(fly_map_equal(both, other)); /* what is open stays partial */
  ck_assert_int_eq(fly_map_visible(both, 0, 0, 3, 3), -1);
  ck_fly_ok(fly_map_crop(map, 30, 90, &cut, &error), error);
  ck_assert_int_eq(cut->info.tiles_partial, 1);
  fly_map_release(&cut);
  ck_fly_ok(fly_map_bind(map, bound, &mine, &error), error);
  ck_assert_int_eq(fly_map_visible(mine, 0, 0, 3, 3), 1);
  ck_fly_ok(fly_map_visible_pairs(mine, &pairs, &error), error);
  ck_assert_int_eq(pairs, 100 * 101 / 2);
  fly_map_release(&map), fly_map_release(&other), fly_map_release(&both), fly_map_release(&mine);
  fly_bound_release(&bound);
}
END_TEST

START_TEST(arrays_that_are_wrong_are_refused_with_the_place) {
  fly_geometry g = map_square(2, 1, 100);
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = 64, .tile_kv = 64};
  int32_t num[4], index[8], full_num[4], full_index[8];
  const struct {
    int32_t *at, value;
    const char *message;
  } faults[] = {{&num[1], 3, "num[1] is 3"},
                {&num[2], -1, "num[2] is -1"},
                {&full_num[3], 3, "full_num[3] is 3"},
                {&index[2], 2, "index[2] is 2"},
                {&index[4], -1, "index[4] is -1"},
                {&full_index[6], 1, "full_index[6]: row 3 lists column 1 twice"},
                {&full_index[6], 5, "full_index[6] is 5"}};
  fly_map_arrays a = {FLY_INIT(fly_map_arrays), 2, 1, 2, 2, num, index, full_num, full_index};
  fly_map *map;
  for (int i = -1; i < (int)(sizeof faults / sizeof *faults); i++) {
    for (int r = 0; r < 4; r++) num[r] = 1, index[2 * r] = 1, full_num[r] = 1, full_index[2 * r] = 0;
    if (i >= 0) *faults[i].at = faults[i].value;
    fly_status status = fly_map_from_arrays(&a, &g, &options, &map, &error);
    if (i < 0) {
      ck_fly_ok(status, error);
      fly_map_release(&map);
      continue;
    }
    ck_assert_int_eq(status, FLY_ERROR_ARGUMENT);
    ck_assert_ptr_null(map);
    ck_assert_msg(strstr(error.message, faults[i].message), "'%s' is not in '%s'", faults[i].message, error.message);
  }
  a.rows = 3;
  ck_assert_int_eq(fly_map_from_arrays(&a, &g, &options, &map, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.message, "3 x 2 tiles: lengths 100, 100 are 2 x 2"));
  a.rows = 2, a.batch = 3;
  ck_assert_int_eq(fly_map_from_arrays(&a, &g, &options, &map, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.message, "batch 3"));
  a.batch = 2, a.full_index = NULL;
  ck_assert_int_eq(fly_map_from_arrays(&a, &g, &options, &map, &error), FLY_ERROR_ARGUMENT);
  a.num = NULL;
  ck_assert_int_eq(fly_map_from_arrays(&a, &g, &options, &map, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_map_from_arrays(NULL, &g, &options, &map, &error), FLY_ERROR_ARGUMENT);
  a.size = 3;
  ck_assert_int_eq(fly_map_from_arrays(&a, &g, &options, &map, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_map_to_arrays(NULL, FLY_BY_QUERY, &a, &error), FLY_ERROR_ARGUMENT);
  const fly_run *runs;
  fly_map_lists lists;
  map = build_mixed(150, 150, 32, 32);
  ck_assert_int_eq(fly_map_to_arrays(map, (fly_order)9, &a, &error), FLY_ERROR_ARGUMENT);
  ck_assert_str_eq(error.message, "order is 9: it must be FLY_BY_QUERY or FLY_BY_KEY");
  ck_assert_int_eq(fly_map_expand(map, (fly_order)9, &lists, &error), FLY_ERROR_ARGUMENT);
  ck_assert_str_eq(error.message, "order is 9: it must be FLY_BY_QUERY or FLY_BY_KEY");
  ck_assert_int_eq(fly_map_row(map, (fly_order)9, 0, 0, 0, &runs), -1);
  ck_assert_int_eq(fly_map_to_arrays(map, FLY_BY_KEY, &a, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.message, "has not been transposed"));
  fly_map_release(&map);
  fly_map_arrays_free(NULL);
}
END_TEST

START_TEST(a_map_is_read_as_text) {
  fly_map *map = build_mixed(260, 260, 32, 32);
  char *text;
  ck_fly_ok(fly_map_text(map, 0, 0, 0, &text, &error), error);
  ck_assert_str_eq(text, "+........\n"
                         "#+.......\n"
                         "##+......\n"
                         "++#+.....\n"
                         "+++#+....\n"
                         "+.++#+...\n"
                         "+..++#+..\n"
                         "+...++#+.\n"
                         "+....+##+\n");
  free(text);
  ck_fly_ok(fly_map_text(map, 1, 1, 5, &text, &error), error);
  ck_assert_str_eq(text, "+....\n"
                         "++...\n"
                         "+++..\n"
                         "..++.\n"
                         "..+++\n");
  free(text);
  ck_assert_int_eq(fly_map_text(map, 2, 0, 0, &text, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_null(text);
  ck_assert_int_eq(fly_map_text(map, 0, 0, -1, &text, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_map_text(NULL, 0, 0, 0, &text, &error), FLY_ERROR_ARGUMENT);
  fly_map_release(&map);
}
END_TEST

START_TEST(arrays_report_every_allocation_that_fails) {
  fly_map *map = build_mixed(150, 150, 32, 32), *out;
  fly_map_options options = tiles_of(map);
  fly_map_arrays a = {0};
  char *text;
  for (int what = 0; what < 3; what++) {
    fly_status status = FLY_ERROR_MEMORY;
    for (long n = 1; status != FLY_OK; n++) {
      flyi_fail_allocation(n);
      status = what == 0   ? fly_map_to_arrays(map, FLY_BY_QUERY, &a, &error)
               : what == 1 ? fly_map_from_arrays(&a, &map->geometry, &options, &out, &error)
                           : fly_map_text(map, 0, 0, 0, &text, &error);
      flyi_fail_allocation(0);
      ck_assert(status == FLY_OK || status == FLY_ERROR_MEMORY);
      if (what == 1) fly_map_release(&out);
    }
  }
  free(text);
  fly_map_arrays_free(&a);
  fly_map_release(&map);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("map_arrays");
  TCase *c = tcase_create("map_arrays");
  tcase_add_test(c, arrays_are_those_of_create_block_mask);
  tcase_add_test(c, arrays_come_back_as_the_same_map_whatever_their_order);
  tcase_add_test(c, what_no_mask_decides_is_said_to_be_so);
  tcase_add_test(c, arrays_that_are_wrong_are_refused_with_the_place);
  tcase_add_test(c, a_map_is_read_as_text);
  tcase_add_test(c, arrays_report_every_allocation_that_fails);
  suite_add_tcase(s, c);
  return s;
}

FLY_TEST_MAIN(suite)
