/* The whole default run of `flymask compare`: its figures are those that others found. */
#include <jansson.h>

#include "command.h"
#include "support.h"

static json_t *report;

static void make_report(void) {
  const char *directory = command_make_directory();
  char path[300];
  command_result r = command_run(directory, "compare -o report");
  ck_assert_msg(r.code == 0, "%s", r.err);
  command_free(&r);
  snprintf(path, sizeof path, "%s/report/report.json", directory);
  char *text = command_read_file(path);
  report = json_loads(text, 0, NULL);
  ck_assert_ptr_nonnull(report);
  free(text);
}

static void free_report(void) {
  json_decref(report);
  command_remove_directory();
}

/* Column `column` of the row of a table that has `name` under `key`, and `number` under `also` if that is not NULL. */
static double value_of(const char *section, const char *rows, const char *key, const char *name, const char *also,
                       json_int_t number, const char *column) {
  json_t *all = json_object_get(json_object_get(report, section), rows);
  for (size_t i = 0; i < json_array_size(all); i++) {
    json_t *row = json_array_get(all, i);
    if (strcmp(json_string_value(json_object_get(row, key)), name) != 0) continue;
    if (also && json_integer_value(json_object_get(row, also)) != number) continue;
    return json_number_value(json_object_get(row, column));
  }
  ck_abort_msg("%s/%s has no row of %s", section, rows, name);
  return 0;
}

START_TEST(the_default_report_holds_what_others_found) {
  static const struct {
    const char *method;
    double mean[4];
  } coverage[] = {{"SWA", {.080, .138, .187, .231}},
                  {"SA, not causal", {.016, .414, 1, 1}},
                  {"SA", {.020, .143, .485, .678}},
                  {"SA + SWA, w each", {.095, .726, 1, 1}}};
  for (int i = 0; i < 4; i++)
    for (int l = 0; l < (i == 3 ? 3 : 4); l++) /* the last one is complete with three */
      for (int k = 0; k < 3; k++) {
        static const char *const columns[] = {"mean", "least_mean", "most_mean"};
        double got = value_of("coverage", "coverage", "method", coverage[i].method, "layers", l + 1, columns[k]);
        ck_assert_double_eq_tol(got, coverage[i].mean[l], .01);
      }
  ck_assert_double_eq_tol(value_of("small-world", "small_world", "graph", "SWA", NULL, 0, "clustering"), .742, .01);
  ck_assert_double_eq_tol(value_of("small-world", "small_world", "graph", "SWA", NULL, 0, "path"), 22.52, .01);
  ck_assert_double_eq_tol(value_of("small-world", "small_world", "graph", "SA + SWA", NULL, 0, "clustering"), .420,
                          .01);
  ck_assert_double_eq_tol(value_of("small-world", "small_world", "graph", "SA + SWA", NULL, 0, "path"), 2.09, .01);
  ck_assert_double_eq_tol(value_of("small-world", "small_world", "graph", "SWA", NULL, 0, "sigma_expected"), 2.43, .02);
  ck_assert_double_eq_tol(value_of("small-world", "small_world", "graph", "SA + SWA", NULL, 0, "sigma_expected"), 9.17,
                          .05);
  double full = value_of("cost", "cost", "method", "full causal", "tokens", 32768, "forward_ms");
  double sa = value_of("cost", "cost", "method", "SA", "tokens", 32768, "forward_ms");
  ck_assert_double_gt(full, 10 * sa); /* 128 times the pairs */
}
END_TEST

static Suite *make(void) {
  Suite *suite = suite_create("compare_default");
  TCase *tcase = tcase_create("default");
  tcase_add_checked_fixture(tcase, make_report, free_report);
  tcase_add_test(tcase, the_default_report_holds_what_others_found);
  suite_add_tcase(suite, tcase);
  return suite;
}

FLY_TEST_MAIN(make)
