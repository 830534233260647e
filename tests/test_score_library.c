/* The library of score modifiers, compiled, against formulations of their own from the papers, in double precision: the
 * score and its derivative, on every target. */
#include <dirent.h>

#include "call_case.h"
#include "score_case.h"
#include "score_formulas.h"

static void compare(const score_case *c, const score_library *x, int which, const char *target) {
  float s[FLYI_BLOCK * FLYI_BLOCK], slope[FLYI_BLOCK * FLYI_BLOCK], before[FLYI_BLOCK * FLYI_BLOCK];
  test_random random = {1 + (uint64_t)which};
  for (int b = 0; b < 2; b++)
    for (int h = 0; h < FORMULA_HEADS; h++) {
      int q0 = FORMULA_OFFSET + 64 * (h & 1), kv0 = h < 2 ? 0 : 230;
      for (int i = 0; i < FLYI_BLOCK * FLYI_BLOCK; i++) before[i] = s[i] = (float)(3 * test_normal(&random));
      score_case_run(c, b, h, q0, kv0, FLYI_BLOCK, NULL, s, slope);
      for (int i = 0; i < FLYI_BLOCK * FLYI_BLOCK; i++) {
        int q = q0 + i / FLYI_BLOCK, kv = kv0 + i % FLYI_BLOCK;
        double by, want = x->formula(before[i], b, h, q, kv, &by), most = x->tolerance;
        ck_assert_msg(fabs(s[i] - want) <= most * (1 + fabs(want)),
                      "%s, %s: score(%g, %d, %d, %d, %d) is %.9g, not %.9g", x->name, target, before[i], b,
                      h, q, kv, s[i], want);
        ck_assert_msg(fabs(slope[i] - by) <= 2e-6 * (1 + fabs(by)), "%s, %s: the slope at %g is %.9g, not %.9g",
                      x->name, target, before[i], slope[i], by);
      }
    }
}

START_TEST(each_is_what_its_paper_says) {
  score_library x;
  char path[512];
  score_library_open(&x, _i);
  snprintf(path, sizeof path, FLYMASK_SOURCE "/scores/%s.c", x.name);
  CALL_FOR_TARGETS(target) {
    score_case c = score_case_file(path, target, x.values, x.value_count, NULL);
    compare(&c, &x, _i, target);
    score_case_free(&c);
  }
  score_library_close(&x);
}
END_TEST

START_TEST(every_file_is_tested) {
  DIR *directory = opendir(FLYMASK_SOURCE "/scores");
  ck_assert_ptr_nonnull(directory);
  for (struct dirent *entry; (entry = readdir(directory));) {
    size_t length = strlen(entry->d_name);
    if (length < 3 || strcmp(entry->d_name + length - 2, ".c") != 0) continue;
    bool found = false;
    const char *name;
    for (int i = 0; (name = score_library_name(i)); i++)
      found |= strlen(name) == length - 2 && strncmp(name, entry->d_name, length - 2) == 0;
    ck_assert_msg(found, "%s has no formula here", entry->d_name);
  }
  closedir(directory);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("score_library");
  TCase *tests = tcase_create("library");
  int count = 0;
  while (score_library_name(count)) count++;
  tcase_add_loop_test(tests, each_is_what_its_paper_says, 0, count);
  tcase_add_test(tests, every_file_is_tested);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
