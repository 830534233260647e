/* Stochastic Attention that is refused, runs out of memory, or has nothing to do: a clear error or nothing, no leak. */
#include "sa/scene.h"

START_TEST(empty_calls_are_all_right) {
  fly_mask *mask = scene_mask("stochastic");
  for (int what = 0; what < 3; what++) {
    fly_sa *sa;
    fly_error error;
    fly_sa_desc d = {FLY_INIT(fly_sa_desc), .left = 3, .batch = what != 0, .heads = what != 1,
                     .length = what != 2 ? 5 : 0};
    ck_fly_ok(fly_sa_create(mask, &d, &sa, &error), error);
    fly_sa_release(&sa);
  }
  fly_mask_release(&mask);
}
END_TEST

START_TEST(misuse_is_refused) {
  fly_mask *mask = scene_mask("stochastic"), *other = scene_mask("causal");
  fly_sa *sa;
  fly_error error;
  const int32_t twice[] = {0, 1, 1, 3}, far[] = {0, 1, 4, 3}, falling[] = {0, 3, 2}, leaking[] = {0, 2, 1, 3},
                documents[] = {0, 2, 4};
#define REFUSED(mask_, text, ...)                                                                                      \
  do {                                                                                                                 \
    fly_sa_desc d = {FLY_INIT(fly_sa_desc), .left = 1, .right = 1, .batch = 2, .heads = 2, .length = 4, __VA_ARGS__};  \
    ck_assert_int_eq(fly_sa_create(mask_, &d, &sa, &error), FLY_ERROR_ARGUMENT);                                       \
    ck_assert_ptr_null(sa);                                                                                            \
    ck_assert_msg(strstr(error.message, text) != NULL, "%s", error.message);                                           \
  } while (0)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
  REFUSED(NULL, "mask is NULL", .seed = 1);
  REFUSED(other, "has no parameter left", .seed = 1);
  REFUSED(mask, "left is -2", .left = -2);
  REFUSED(mask, "causal is 4", .causal = 4);
  REFUSED(mask, "threads is -1", .threads = -1);
  REFUSED(mask, "lengths -1", .length = -1);
  REFUSED(mask, "descends", .cu_seqlens = falling);
  REFUSED(mask, "rows[1] and rows[2] are both 1", .rows = {.rows = twice});
  REFUSED(mask, "is 4, outside 0 .. 3", .rows = {.rows = far});
  REFUSED(mask, "is 2, outside 0 .. 1", .rows = {.rows = leaking}, .cu_seqlens = documents);
  REFUSED(mask, "negative", .rows = {.rows = far, .stride_head = -1});
  REFUSED(mask, "FLY_INIT(fly_sa_desc)", .size = 3);
#pragma GCC diagnostic pop
#undef REFUSED
  ck_assert_int_eq(fly_sa_create(mask, NULL, &sa, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_sa_apply(NULL, NULL, &error), FLY_ERROR_ARGUMENT);
  fly_mask_release(&mask), fly_mask_release(&other);
}
END_TEST

typedef struct creation {
  fly_mask *mask;
  const fly_sa_desc *desc;
  fly_sa *sa;
} creation;

static fly_status create(void *context) {
  creation *c = context;
  fly_error error;
  return fly_sa_create(c->mask, c->desc, &c->sa, &error);
}

START_TEST(failing_allocations_are_reported) {
  fly_mask *mask = scene_mask("stochastic");
  int32_t rows[130];
  ck_assert_int_eq(fly_permutation(130, 1, 0, 0, 0, rows, NULL), FLY_OK);
  fly_sa_desc d = {FLY_INIT(fly_sa_desc),  .left = 3,   .batch = 2, .heads = 2, .length = 130,
                   .rows = {.rows = rows}, .threads = 1};
  creation c = {mask, &d, NULL};
  ck_assert_int_gt(test_failing_allocations(create, &c), 5);
  fly_sa_release(&c.sa);
  fly_mask_release(&mask);
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("stochastic_errors");
  TCase *tests = tcase_create("errors");
  tcase_add_test(tests, empty_calls_are_all_right);
  tcase_add_test(tests, misuse_is_refused);
  tcase_add_test(tests, failing_allocations_are_reported);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(suite)
