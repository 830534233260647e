/* `flymask compare` as a user runs it: what it writes, what its figures say against a double-precision reference, and
 * what is left behind when it is stopped. */
#include <ctype.h>
#include <dirent.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/npy.h"
#include "command.h"
#include "support.h"

static const char *directory;

static void make_directory(void) { directory = command_make_directory(); }

static char *read_in(const char *name) {
  char *path, *text;
  ck_assert_int_ge(asprintf(&path, "%s/%s", directory, name), 0);
  text = command_read_file(path);
  free(path);
  return text;
}

static bool exists(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return access(path, F_OK) == 0;
}

static int entries(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  struct dirent **all;
  int count = scandir(path, &all, NULL, NULL);
  for (int i = 0; i < count; i++) free(all[i]);
  free(all);
  return count - 2; /* . and .. */
}

static void expect_ok(command_result *r) {
  ck_assert_msg(r->code == 0, "%d: %s", r->code, r->err);
  command_free(r);
}

static json_t *report_of(const char *name) {
  json_error_t error;
  char path[512];
  snprintf(path, sizeof path, "%s/report.json", name);
  char *text = read_in(path);
  json_t *report = json_loads(text, JSON_REJECT_DUPLICATES, &error);
  ck_assert_msg(report != NULL, "%s", error.text);
  free(text);
  return report;
}

/* ---- what is written --------------------------------------------------------------------------------------------- */

/* A PNG with a size, and an SVG, both of which are whole. */
static void expect_pictures(const char *report, const char *name) {
  char path[512];
  struct stat info;
  uint8_t head[24];
  snprintf(path, sizeof path, "%s/%s/%s.png", directory, report, name);
  ck_assert_msg(stat(path, &info) == 0 && info.st_size > 5000, "%s", path);
  FILE *file = fopen(path, "rb");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_eq(fread(head, 1, sizeof head, file), sizeof head);
  fclose(file);
  ck_assert_mem_eq(head, "\x89PNG\r\n\x1a\n", 8);
  ck_assert_int_ge(head[18] * 256 + head[19], 1000); /* points across */
  snprintf(path, sizeof path, "%s/%s.svg", report, name);
  char *text = read_in(path);
  ck_assert_ptr_nonnull(strstr(text, "<svg"));
  ck_assert_ptr_nonnull(strstr(text, "</svg>"));
  free(text);
}

/* Nothing is loaded from elsewhere: every source is data in the page; links are for readers to click on. */
static void expect_self_contained(const char *html) {
  int pictures = 0;
  for (const char *at = html; (at = strstr(at, "src=\"")); at += 5, pictures++)
    ck_assert_msg(strncmp(at + 5, "data:image/", 11) == 0, "%.60s", at);
  ck_assert_int_eq(pictures, 5);
  ck_assert_ptr_null(strstr(html, "<script"));
  ck_assert_ptr_null(strstr(html, "<link"));
  ck_assert_ptr_null(strstr(html, "@import"));
  ck_assert_ptr_null(strstr(html, "url("));
}

static int lines_of(const char *text) {
  int count = 0;
  for (; *text; text++) count += *text == '\n';
  return count;
}

START_TEST(all_sections_come_with_tables_and_pictures) {
  static const struct {
    const char *section, *picture, *tables[2];
  } sections[] = {{"cost", "cost", {"cost"}},
                  {"coverage", "coverage", {"coverage", "depth"}},
                  {"small-world", "small_world", {"small_world"}},
                  {"picture", "picture", {"picture"}},
                  {"quality", "quality", {"quality_by_touched", "quality_by_visible"}}};
  command_result r = command_run(directory, "compare --random 1,2,96,16 --lengths 64,128 --width 32 --widths 16,32 "
                                            "--coverage 64,8 --seeds 2 --threads 1 -o report");
  expect_ok(&r);
  json_t *report = report_of("report");
  for (int i = 0; i < 5; i++) {
    expect_pictures("report", sections[i].picture);
    for (int j = 0; j < 2 && sections[i].tables[j]; j++) {
      char path[64];
      snprintf(path, sizeof path, "report/%s.csv", sections[i].tables[j]);
      json_t *rows = json_object_get(json_object_get(report, sections[i].section), sections[i].tables[j]);
      char *csv = read_in(path);
      ck_assert_uint_gt(json_array_size(rows), 0);
      ck_assert_uint_eq((size_t)lines_of(csv), json_array_size(rows) + 1);
      free(csv);
    }
  }
  char *html = read_in("report/report.html");
  expect_self_contained(html);
  free(html);
  json_decref(report);
  ck_assert_int_eq(entries("."), 1); /* nothing beside the report */
}
END_TEST

START_TEST(sections_and_methods_can_be_chosen) {
  command_result r = command_run(directory, "compare --random 1,1,64,8 --sections picture --methods swa,sa -o report");
  expect_ok(&r);
  json_t *report = report_of("report"), *rows = json_object_get(json_object_get(report, "picture"), "picture");
  ck_assert_uint_eq(json_object_size(report), 2); /* about, and the section */
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const char *name = json_string_value(json_object_get(json_array_get(rows, i), "method"));
    ck_assert(strcmp(name, "SWA") == 0 || strcmp(name, "SA") == 0);
  }
  json_decref(report);
  ck_assert(!exists("report/cost.csv"));
}
END_TEST

/* A report on full attention alone has no pictures to draw of others. */
START_TEST(sections_without_a_method_to_compare_say_so) {
  command_result r = command_run(directory, "compare --random 1,1,64,8 --sections small-world,quality,coverage "
                                            "--coverage 64,8 --methods full -o report");
  expect_ok(&r);
  char *html = read_in("report/report.html");
  ck_assert_ptr_nonnull(strstr(html, "None of the methods here"));
  ck_assert_ptr_nonnull(strstr(html, "No method was chosen that could be held against full attention"));
  free(html);
  json_t *report = report_of("report"), *depths = json_object_get(json_object_get(report, "coverage"), "depth");
  ck_assert_uint_eq(json_array_size(depths), 1);
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(depths, 0), "depth_complete")), "1");
  json_decref(report);
  ck_assert(exists("report/coverage.png"));
  ck_assert(!exists("report/quality.png"));
}
END_TEST

START_TEST(a_report_goes_into_a_directory_that_holds_other_things) {
  char path[512];
  snprintf(path, sizeof path, "%s/there", directory);
  ck_assert_int_eq(mkdir(path, 0755), 0);
  snprintf(path, sizeof path, "%s/there/mine.txt", directory);
  FILE *file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  fputs("keep me", file);
  fclose(file);
  for (int i = 0; i < 2; i++) { /* and over an earlier report */
    command_result r = command_run(directory, "compare --random 1,1,64,8 --sections picture -o there/");
    expect_ok(&r);
    char *text = read_in("there/mine.txt");
    ck_assert_str_eq(text, "keep me");
    free(text);
    ck_assert(exists("there/report.html"));
    ck_assert_int_eq(entries("."), 1);
  }
}
END_TEST

/* ---- the attention picture --------------------------------------------------------------------------------------- */

START_TEST(weights_of_every_query_sum_to_1) {
  command_result r = command_run(directory, "compare --random 1,1,64,8 --sections picture -o report");
  expect_ok(&r);
  json_t *report = report_of("report"), *rows = json_object_get(json_object_get(report, "picture"), "picture");
  static const char *const names[] = {"full causal", "SWA", "SA", "SA + SWA", "MoBA"};
  for (int m = 0; m < 5; m++) {
    double sums[64] = {0};
    for (size_t i = 0; i < json_array_size(rows); i++) {
      json_t *row = json_array_get(rows, i);
      if (strcmp(json_string_value(json_object_get(row, "method")), names[m]) != 0) continue;
      json_int_t query = json_integer_value(json_object_get(row, "query"));
      ck_assert_int_le(json_integer_value(json_object_get(row, "key")), query);
      sums[query] += json_real_value(json_object_get(row, "weight"));
    }
    for (int q = 0; q < 64; q++) ck_assert_double_eq_tol(sums[q], 1, 64e-4); /* weights are drawn as 1e-4 or more */
  }
  json_decref(report);
}
END_TEST

/* ---- quality, against a reference in double precision ------------------------------------------------------------ */

enum { N = 96, D = 8, HEADS = 4, KV_HEADS = 2, BUDGET = 16, SEED = 1 };

typedef struct scene {
  float q[HEADS][N][D], k[KV_HEADS][N][D], v[KV_HEADS][N][D];
  int32_t position[N];
  double full[HEADS][N][D], full_sum[HEADS][N];
} scene;

static void write_scene(scene *s) {
  test_random random = {77};
  const int64_t q[] = {1, HEADS, N, D}, k[] = {1, KV_HEADS, N, D};
  int32_t rows[N];
  char path[512];
  fly_error error;
  float *all[] = {&s->q[0][0][0], &s->k[0][0][0], &s->v[0][0][0]};
  for (int t = 0; t < 3; t++) {
    for (int i = 0; i < (t ? KV_HEADS : HEADS) * N * D; i++) all[t][i] = (float)(1.5 * test_normal(&random));
    snprintf(path, sizeof path, "%s/%s.npy", directory, (const char *[]){"q", "k", "v&<"}[t]);
    ck_fly_ok(npy_write(path, FLY_F32, 4, t ? k : q, all[t], &error), error);
  }
  ck_fly_ok(fly_permutation(N, SEED, 0, 0, 0, rows, &error), error);
  for (int i = 0; i < N; i++) s->position[rows[i]] = i;
}

typedef struct window {
  int window, reach; /* of tokens, of positions; 0 and -1: none */
} window;

static bool sees(const scene *s, window w, int q, int kv) {
  if (kv > q) return false;
  return q - kv < w.window || abs(s->position[q] - s->position[kv]) <= w.reach;
}

/* Attention of one query; the result is the sum of exponentials. */
static double attend(const scene *s, window w, int h, int q, double *out) {
  double sum = 0;
  memset(out, 0, D * sizeof *out);
  for (int kv = 0; kv <= q; kv++) {
    if (!sees(s, w, q, kv)) continue;
    double score = 0;
    for (int d = 0; d < D; d++) score += (double)s->q[h][q][d] * s->k[h / 2][kv][d];
    double e = exp(score / sqrt(D));
    sum += e;
    for (int d = 0; d < D; d++) out[d] += e * s->v[h / 2][kv][d];
  }
  for (int d = 0; d < D; d++) out[d] /= sum;
  return sum;
}

typedef struct expected {
  double error, cosine, mass, visible;
} expected;

/* The mean of the outputs through two windows (or one twice), and the mass that either keeps. */
static expected expect(scene *s, window a, window b) {
  expected e = {0};
  double apart = 0, norm = 0;
  window either = {a.window > b.window ? a.window : b.window, a.reach > b.reach ? a.reach : b.reach};
  for (int h = 0; h < HEADS; h++)
    for (int q = 0; q < N; q++) {
      double full[D], one[D], two[D], ignored[D], ff = 0, fo = 0, oo = 0;
      double sum = attend(s, (window){N, -1}, h, q, full);
      attend(s, a, h, q, one);
      attend(s, b, h, q, two);
      e.mass += attend(s, either, h, q, ignored) / sum / (HEADS * N);
      for (int d = 0; d < D; d++) {
        double o = 0.5 * (one[d] + two[d]);
        ff += full[d] * full[d], fo += full[d] * o, oo += o * o;
        apart += (full[d] - o) * (full[d] - o);
      }
      norm += ff;
      e.cosine += fo / sqrt(ff * oo) / (HEADS * N);
      for (int kv = 0; kv <= q; kv++) e.visible += sees(s, either, q, kv) / (double)(HEADS * N);
    }
  e.error = sqrt(apart / norm);
  return e;
}

/* The mean weight of full attention on token 0. */
static double first_share(const scene *s) {
  double share = 0, ignored[D];
  for (int h = 0; h < HEADS; h++)
    for (int q = 0; q < N; q++) {
      double score = 0;
      for (int d = 0; d < D; d++) score += (double)s->q[h][q][d] * s->k[h / 2][0][d];
      share += exp(score / sqrt(D)) / attend(s, (window){N, -1}, h, q, ignored) / (HEADS * N);
    }
  return share;
}

static void expect_row(json_t *rows, const char *method, expected e) {
  for (size_t i = 0; i < json_array_size(rows); i++) {
    json_t *row = json_array_get(rows, i);
    if (strcmp(json_string_value(json_object_get(row, "method")), method) != 0) continue;
    ck_assert_double_eq_tol(json_real_value(json_object_get(row, "relative_l2")), e.error, 2e-6);
    ck_assert_double_eq_tol(json_real_value(json_object_get(row, "cosine")), e.cosine, 2e-6);
    ck_assert_double_eq_tol(json_real_value(json_object_get(row, "mass")), e.mass, 2e-6);
    ck_assert_double_eq_tol(json_real_value(json_object_get(row, "visible_keys")), e.visible, 1e-6);
    return;
  }
  ck_abort_msg("no row of %s", method);
}

START_TEST(quality_is_that_of_a_double_precision_reference) {
  scene *s = calloc(1, sizeof *s);
  ck_assert_ptr_nonnull(s);
  write_scene(s);
  command_result r = command_run(directory,
                                 "compare --q q.npy --k k.npy --v 'v&<.npy' --sections quality --widths %d --seeds 1 "
                                 "-o report",
                                 BUDGET);
  expect_ok(&r);
  char *html = read_in("report/report.html");
  ck_assert_ptr_nonnull(strstr(html, "(q.npy, k.npy, v&amp;&lt;.npy)"));
  free(html);
  json_t *report = report_of("report"), *quality = json_object_get(report, "quality");
  ck_assert_double_eq_tol(json_real_value(json_object_get(quality, "weight_on_first_token")), first_share(s), 2e-6);
  json_t *touched = json_object_get(quality, "quality_by_touched"),
         *visible = json_object_get(quality, "quality_by_visible");
  window swa = {BUDGET, -1}, sa = {0, BUDGET / 2}, wide = {0, BUDGET}, half = {BUDGET / 2, -1},
         quarter = {0, BUDGET / 4};
  window both = {BUDGET / 2, BUDGET / 4}, both_wide = {BUDGET / 2, BUDGET / 2};
  expect_row(touched, "SWA", expect(s, swa, swa));
  expect_row(touched, "SA", expect(s, sa, sa));
  expect_row(touched, "SA + SWA", expect(s, half, quarter));
  expect_row(touched, "SA + SWA, one softmax", expect(s, both, both));
  expect_row(visible, "SWA", expect(s, swa, swa));
  expect_row(visible, "SA", expect(s, wide, wide));
  expect_row(visible, "SA + SWA", expect(s, half, (window){0, BUDGET / 2}));
  expect_row(visible, "SA + SWA, one softmax", expect(s, both_wide, both_wide));
  json_decref(report);
  free(s);
}
END_TEST

START_TEST(a_budget_of_everything_is_full_attention) {
  command_result r = command_run(directory,
                                 "compare --random 1,2,80,16 --sections quality --widths 320 --seeds 2 -o report");
  expect_ok(&r);
  json_t *report = report_of("report"), *quality = json_object_get(report, "quality");
  json_t *rows = json_object_get(quality, "quality_by_visible");
  ck_assert_uint_eq(json_array_size(rows), 5);
  for (size_t i = 0; i < json_array_size(rows); i++) {
    json_t *row = json_array_get(rows, i);
    ck_assert_double_lt(json_real_value(json_object_get(row, "relative_l2_high")), 1e-5);
    ck_assert_double_eq_tol(json_real_value(json_object_get(row, "mass")), 1, 1e-5);
    ck_assert_double_eq_tol(json_real_value(json_object_get(row, "cosine")), 1, 1e-5);
    ck_assert_double_eq_tol(json_real_value(json_object_get(row, "visible_keys")), 40.5, 1e-6);
  }
  json_decref(report);
}
END_TEST

/* ---- what goes wrong --------------------------------------------------------------------------------------------- */

START_TEST(wrong_usage_says_what_to_do) {
  static const struct {
    const char *arguments, *says;
  } cases[] = {{"", "-o DIR is missing"},
               {"-o ''", "-o DIR is missing"},
               {"-o r --q q.npy", "--q F, --k F and --v F go together"},
               {"-o r --random 1,1,64", "--random wants B,H,N,D"},
               {"-o r --random 1,1,64,8 --q a --k b --v c", "exclude each other"},
               {"-o r --methods swa,nsa", "--methods knows full swa sa sa+swa moba; not 'nsa'"},
               {"-o r --sections cost,", "--sections knows cost coverage"},
               {"-o r --widths 32,x", "--widths wants integers of 4 to"},
               {"-o r --lengths 8192,-1", "--lengths wants integers of 64 to"},
               {"-o r --coverage 2048", "--coverage wants N,W"},
               {"-o r --seeds 0", "--seeds wants integers of 1 to 100"},
               {"-o r --sections small-world --target sm_80", "--target T is none of x86-64"},
               {"-o r more", "unexpected argument 'more'"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    command_result r = command_run(directory, "compare %s", cases[i].arguments);
    ck_assert_int_eq(r.code, 2);
    ck_assert_msg(strstr(r.err, cases[i].says) != NULL, "%s: %s", cases[i].arguments, r.err);
    command_free(&r);
  }
}
END_TEST

START_TEST(inputs_that_do_not_fit_are_refused_and_leave_nothing) {
  fly_error error;
  char path[512];
  static const float zeros[1024];
  const int64_t fine[] = {1, 2, 16, 8}, short_one[] = {1, 2, 15, 8}, three[] = {1, 3, 16, 8}, flat[] = {16, 8};
  const struct {
    int rank;
    const int64_t *shape;
    const char *says;
  } keys[] = {{4, short_one, "same batch, length and head_dim"},
              {4, three, "keys and values differ"},
              {2, flat, "has 2 dimensions"}};
  for (int i = 0; i < 3; i++) {
    snprintf(path, sizeof path, "%s/q.npy", directory);
    ck_fly_ok(npy_write(path, FLY_F32, 4, fine, zeros, &error), error);
    snprintf(path, sizeof path, "%s/k.npy", directory);
    ck_fly_ok(npy_write(path, FLY_F32, keys[i].rank, keys[i].shape, zeros, &error), error);
    command_result r = command_run(directory, "compare --q q.npy --k k.npy --v q.npy -o report");
    ck_assert_int_eq(r.code, 1);
    ck_assert_msg(strstr(r.err, keys[i].says) != NULL, "%s", r.err);
    command_free(&r);
    ck_assert_int_eq(entries("."), 2);
  }
}
END_TEST

/* Named for what they are, not by a chart that cannot be drawn. */
START_TEST(inputs_that_are_not_finite_are_refused) {
  static const struct {
    float value;
    const char *says;
  } cases[] = {{NAN, "k.npy: holds nan"}, {-INFINITY, "k.npy: holds -inf"}, {3e38f, "overflow f32"}};
  fly_error error;
  char path[512];
  static float numbers[256];
  for (int i = 0; i < 256; i++) numbers[i] = 4;
  snprintf(path, sizeof path, "%s/q.npy", directory);
  ck_fly_ok(npy_write(path, FLY_F32, 4, (int64_t[]){1, 1, 32, 8}, numbers, &error), error);
  for (int i = 0; i < 3; i++) {
    for (int j = 0; j < 8; j++) numbers[j] = cases[i].value;
    snprintf(path, sizeof path, "%s/k.npy", directory);
    ck_fly_ok(npy_write(path, FLY_F32, 4, (int64_t[]){1, 1, 32, 8}, numbers, &error), error);
    command_result r = command_run(directory,
                                   "compare --sections quality --widths 8 --q q.npy --k k.npy --v q.npy -o report");
    ck_assert_int_eq(r.code, 1);
    ck_assert_msg(strstr(r.err, cases[i].says) != NULL, "%s", r.err);
    command_free(&r);
    ck_assert_int_eq(entries("."), 2);
  }
}
END_TEST

/* At once, not after minutes of work. */
START_TEST(a_file_in_the_place_of_the_report_is_refused) {
  fly_error error;
  char path[512];
  static const float zero;
  snprintf(path, sizeof path, "%s/report", directory);
  ck_fly_ok(npy_write(path, FLY_F32, 1, (int64_t[]){1}, &zero, &error), error);
  command_result r = command_run(directory, "compare --random 1,1,64,8 --sections cost --lengths 64 -o report");
  ck_assert_int_eq(r.code, 1);
  ck_assert_msg(strstr(r.err, "report: is not a directory") != NULL, "%s", r.err);
  command_free(&r);
  ck_assert_int_eq(entries("."), 1);
}
END_TEST

START_TEST(without_gnuplot_the_error_names_the_package) {
  ck_assert_int_eq(setenv("PATH", "/nowhere", 1), 0); /* of this test's own process */
  command_result r = command_run(directory, "compare --random 1,1,64,8 -o second");
  ck_assert_int_eq(r.code, 1);
  ck_assert_msg(strstr(r.err, "install gnuplot-nox") != NULL, "%s", r.err);
  ck_assert(!exists("second"));
  command_free(&r);
}
END_TEST

START_TEST(a_stopped_run_leaves_what_was_there) { /* nothing, or an earlier report */
  static const char *const signals[] = {"INT", "TERM", "HUP"};
  for (int i = 0; i < 3; i++) {
    if (i == 1) {
      command_result first = command_run(directory, "compare --random 1,1,64,8 --sections cost --lengths 64 -o report");
      expect_ok(&first);
    }
    char *before = i > 0 ? read_in("report/report.html") : NULL;
    command_result r = command_run(directory,
                                   "--version; '%s/flymask' compare --sections cost,coverage --threads 1 -o report & "
                                   "for i in $(seq 600); do ls -d report.* && break; sleep 0.1; done; "
                                   "kill -%s $!; wait $!; exit $?",
                                   FLYMASK_BUILD, signals[i]);
    ck_assert_int_gt(r.code, 128);
    ck_assert_msg(strstr(r.err, "stopped by a signal; nothing was written") != NULL, "%s", r.err);
    command_free(&r);
    ck_assert_int_eq(entries("."), i > 0);
    if (!before) continue;
    char *after = read_in("report/report.html");
    ck_assert_str_eq(after, before);
    free(after), free(before);
  }
}
END_TEST

static Suite *make(void) {
  Suite *suite = suite_create("compare");
  TCase *tcase = tcase_create("compare");
  tcase_add_checked_fixture(tcase, make_directory, command_remove_directory);
  tcase_add_test(tcase, all_sections_come_with_tables_and_pictures);
  tcase_add_test(tcase, sections_and_methods_can_be_chosen);
  tcase_add_test(tcase, sections_without_a_method_to_compare_say_so);
  tcase_add_test(tcase, a_report_goes_into_a_directory_that_holds_other_things);
  tcase_add_test(tcase, weights_of_every_query_sum_to_1);
  tcase_add_test(tcase, quality_is_that_of_a_double_precision_reference);
  tcase_add_test(tcase, a_budget_of_everything_is_full_attention);
  tcase_add_test(tcase, wrong_usage_says_what_to_do);
  tcase_add_test(tcase, inputs_that_do_not_fit_are_refused_and_leave_nothing);
  tcase_add_test(tcase, inputs_that_are_not_finite_are_refused);
  tcase_add_test(tcase, a_file_in_the_place_of_the_report_is_refused);
  tcase_add_test(tcase, without_gnuplot_the_error_names_the_package);
  tcase_add_test(tcase, a_stopped_run_leaves_what_was_there);
  suite_add_tcase(suite, tcase);
  return suite;
}

FLY_TEST_MAIN(make)
