/* Sources that are too slow to be looked at: checks end in time, and say what they could not decide. */
#include <time.h>

#include "command.h"
#include "findings.h"
#include "runtime/runtime.h"
#include "support.h"

static fly_error error;

static double seconds_since(const struct timespec *start) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)(now.tv_sec - start->tv_sec) + 1e-9 * (double)(now.tv_nsec - start->tv_nsec);
}

/* A number that takes 3,000 rounds for each pair, and that the analysis does not know: between 0 and 1. */
#define SLOW                                                                                                           \
  "static float slow(int q, int kv) {\n"                                                                               \
  "  float x = (float)((q * 31 + kv * 17) % 101) / 101;\n"                                                             \
  "  for (int i = 0; i < 3000; i++) x = 3.9f * x * (1 - x);\n"                                                        \
  "  return x;\n"                                                                                                      \
  "}\n"

static fly_status check(const char *source, bool score, int64_t length, double seconds, fly_findings *out) {
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = length, .len_kv = length};
  fly_compile_options how = {FLY_INIT(fly_compile_options), .check_seconds = seconds};
  return score ? fly_score_check(source, "slow.c", &how, NULL, 0, NULL, &g, out, &error)
               : fly_mask_check(source, "slow.c", &how, NULL, 0, &g, out, &error);
}

/* Nothing is found, and something not decided, long before the pairs have all been looked at. */
static void check_in_time(const char *source, bool score) {
  struct timespec start;
  fly_findings f;
  clock_gettime(CLOCK_MONOTONIC, &start);
  ck_fly_ok(check(source, score, 8192, 1, &f), error);
  ck_assert_int_eq(f.count, 0);
  ck_assert_int_ge(f.undecided, 1);
  ck_assert_msg(seconds_since(&start) < 60, "%g s", seconds_since(&start));
  fly_findings_free(&f);
}

START_TEST(a_mask_that_is_too_slow_for_its_rows_is_undecided_in_time) {
  static const char source[] = "#include <flymask/mask.h>\n" SLOW "bool mask(int b, int h, int q, int kv) {\n"
                               "  (void)b, (void)h;\n  return slow(q, kv) > 2.f;\n}\n";
  fly_findings f;
  check_in_time(source, false);
  ck_fly_ok(check(source, false, 64, 600, &f), error); /* where there is time, it is found */
  ck_assert(f.count == 2 && f.finding[0].kind == FLY_FINDING_BLIND_ROWS && f.finding[0].high == 63);
  ck_assert_int_eq(f.finding[1].kind, FLY_FINDING_ALWAYS_FALSE);
  ck_assert_int_eq(f.undecided, 0);
  fly_findings_free(&f);
}
END_TEST

/* The index is 0 to 9, and once 57, in the last block. */
START_TEST(a_range_that_is_not_known_in_time_is_said_to_go_on) {
  static const char source[] =
      "#include <flymask/mask.h>\n" SLOW "bool mask(int b, int h, int q, int kv) {\n"
      "  static const int table[4] = {1, 2, 3, 4};\n"
      "  (void)b, (void)h;\n"
      "  return table[q == fly_len_q(b) - 1 && kv == q ? 57 : (int)(10 * slow(q, kv))] > 0;\n}\n";
  fly_findings f;
  ck_fly_ok(check(source, false, 128, 600, &f), error);
  const fly_finding *index = finding_of(&f, FLY_FINDING_INDEX, 0);
  ck_assert(index && index->low == 0 && index->high == 57 && !index->open);
  ck_assert_ptr_null(strstr(index->message, "or more"));
  fly_findings_free(&f);
  ck_fly_ok(check(source, false, 8192, 12, &f), error);
  index = finding_of(&f, FLY_FINDING_INDEX, 0);
  ck_assert(index && index->open && index->high < 57 && index->high >= 4);
  ck_assert_msg(strstr(index->message, "or more") && strstr(index->message, "as far as was found in time"), "%s",
                index->message);
  fly_findings_free(&f);
}
END_TEST

START_TEST(a_modifier_that_is_too_slow_is_undecided_in_time) {
  static const char source[] = "#include <flymask/score.h>\n" SLOW
                               "float score(float s, int b, int h, int q, int kv) {\n"
                               "  (void)b, (void)h;\n  return s + (float)(100 / (int)(slow(q, kv) + 7));\n}\n";
  check_in_time(source, true);
}
END_TEST

/* One block takes minutes: only the command can end that, itself. */
START_TEST(the_command_ends_where_even_one_block_does_not) {
  const char *dir = command_make_directory();
  char path[512];
  snprintf(path, sizeof path, "%s/hang.c", dir);
  FILE *file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  fputs("#include <flymask/mask.h>\n"
        "bool mask(int b, int h, int q, int kv) {\n"
        "  float x = (float)(q * 31 + kv + b + h);\n"
        "  for (int i = 0; i < 65000; i++) {\n",
        file);
  for (int i = 0; i < 200; i++) fprintf(file, "    x = (x + %d.5f) / (x * x + %d);\n", i, i + 1);
  fputs("  }\n  return x > 2;\n}\n", file);
  fclose(file);
  struct timespec start;
  clock_gettime(CLOCK_MONOTONIC, &start);
  command_result r = command_run(FLYMASK_SOURCE, "check %s --lengths 64 --seconds 5", path);
  ck_assert_msg(r.code == 1 && strstr(r.err, "the source takes too long"), "%d: %s%s", r.code, r.out, r.err);
  ck_assert_msg(seconds_since(&start) < 90, "%g s", seconds_since(&start));
  command_free(&r);
  command_remove_directory();
}
END_TEST

START_TEST(the_command_says_what_was_not_decided) {
  const char *dir = command_make_directory();
  char path[512];
  snprintf(path, sizeof path, "%s/slow.c", dir);
  FILE *file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  fputs("#include <flymask/mask.h>\n" SLOW "bool mask(int b, int h, int q, int kv) {\n"
        "  (void)b, (void)h;\n  return slow(q, kv) > 2.f;\n}\n",
        file);
  fclose(file);
  command_result r = command_run(FLYMASK_SOURCE, "check %s --lengths 8192 --seconds 1", path);
  ck_assert_msg(r.code == 0 && strstr(r.out, "not decided: each has 0.0333333 seconds"), "%d: %s%s", r.code, r.out,
                r.err);
  command_free(&r);
  r = command_run(FLYMASK_SOURCE, "check %s --lengths 8192 --seconds 0", path);
  ck_assert_msg(r.code == 2 && strstr(r.err, "--seconds wants a number above 0"), "%d: %s", r.code, r.err);
  command_free(&r);
  command_remove_directory();
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("diagnose_limits");
  TCase *c = tcase_create("diagnose_limits");
  tcase_add_test(c, a_mask_that_is_too_slow_for_its_rows_is_undecided_in_time);
  tcase_add_test(c, a_range_that_is_not_known_in_time_is_said_to_go_on);
  tcase_add_test(c, a_modifier_that_is_too_slow_is_undecided_in_time);
  tcase_add_test(c, the_command_ends_where_even_one_block_does_not);
  tcase_add_test(c, the_command_says_what_was_not_decided);
  suite_add_tcase(s, c);
  return s;
}

FLY_TEST_MAIN(suite)
