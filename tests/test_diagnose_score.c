/* What the author of a score modifier is told: golden texts, brute force in 64-bit arithmetic over the pairs that a
 * mask sees, and silence about the library. */
#include <math.h>
#include <unistd.h>

#include "command.h"
#include "findings.h"
#include "runtime/runtime.h"
#include "support.h"

static fly_error error;

/* ---- golden texts ------------------------------------------------------------------------------------------------ */

START_TEST(findings_are_the_golden_texts) {
  const char *dir = command_make_directory();
  char arguments[600], shell[600];
  snprintf(shell, sizeof shell, /* float [60]: zeros */
           "{ printf '\\223NUMPY\\1\\0\\166\\0%%-117s\\n' \"{'descr': '<f4', 'fortran_order': False, 'shape': (60,), "
           "}\"; head -c 240 /dev/zero; } > %s/bias.npy",
           dir);
  ck_assert_int_eq(system(shell), 0);
  snprintf(arguments, sizeof arguments,
           "check masks/causal.c --score tests/findings/careless_score.c score.bias=%s/bias.npy --lengths 30000,300",
           dir);
  command_check_golden("findings_careless_score", 1, arguments);
  strcat(arguments, " --json");
  command_check_golden("findings_careless_score_json", 1, arguments);
  command_check_golden("findings_deaf_score", 1,
                       "check masks/causal.c --score tests/findings/deaf_score.c --lengths 100");
  command_remove_directory();
}
END_TEST

/* ---- brute force ------------------------------------------------------------------------------------------------- */

typedef struct subject {
  int64_t a, b, c, window, len_q, len_kv, q_offset, elements; /* window below 0: all pairs are seen */
} subject;

static const char arithmetic[] = "#include <flymask/score.h>\n"
                                 "FLY_PARAM(int, a, 1);\n"
                                 "FLY_PARAM(int, b, 1);\n"
                                 "FLY_PARAM(int, c, 1);\n"
                                 "FLY_BUFFER(float, data, 1);\n"
                                 "float score(float s, int e, int h, int q, int kv) {\n"
                                 "  (void)e, (void)h;\n"
                                 "  int product = a * q;\n"                /* line 8 */
                                 "  int rest = (q - kv) % (kv + c);\n"     /* line 9 */
                                 "  float read = data[q + b - 2 * kv];\n"  /* line 10 */
                                 "  float root = sqrtf((float)(q - b));\n" /* line 11: NaN, reported at line 6 */
                                 "  return s + root + read + (float)(product ^ rest);\n"
                                 "}\n";
static const char band[] = "#include <flymask/mask.h>\n"
                           "FLY_PARAM(int, window, 1);\n"
                           "bool mask(int b, int h, int q, int kv) {\n"
                           "  (void)b, (void)h;\n"
                           "  return kv <= q && (q - kv) % 5 != 1 && q - kv <= window;\n"
                           "}\n";

static bool is_seen(const subject *s, int64_t q, int64_t kv) {
  int64_t back = q - kv;
  return s->window < 0 || (back >= 0 && back <= s->window && back % 5 != 1);
}

static bool happens(const subject *s, fly_finding_kind kind, int64_t q, int64_t kv) {
  int64_t product = s->a * q, divisor = kv + s->c, x = q - kv, index = q + s->b - 2 * kv;
  switch (kind) {
  case FLY_FINDING_OVERFLOW:
    return product < INT32_MIN || product > INT32_MAX;
  case FLY_FINDING_DIVISION_BY_ZERO:
    return divisor == 0;
  case FLY_FINDING_NEGATIVE_OPERAND: /* floor and truncation differ */
    return divisor != 0 && x % divisor != 0 && (x < 0) != (divisor < 0);
  case FLY_FINDING_NOT_FINITE:
    return q < s->b;
  default:
    return index < 0 || index >= s->elements;
  }
}

static int expect_finding(const subject *s, const fly_findings *findings, fly_finding_kind kind, int line) {
  bool any = false;
  int64_t low = INT64_MAX, high = INT64_MIN;
  for (int64_t q = s->q_offset; q < s->q_offset + s->len_q; q++)
    for (int64_t kv = 0; kv < s->len_kv; kv++) {
      int64_t index = q + s->b - 2 * kv;
      if (!is_seen(s, q, kv)) continue;
      any |= happens(s, kind, q, kv);
      low = index < low ? index : low, high = index > high ? index : high;
    }
  const fly_finding *f = finding_of(findings, kind, line);
  ck_assert_msg((f != NULL) == any, "%s of line %d: a %d, b %d, c %d, window %d, lengths %d, %d, offset %d: %d",
                fly_finding_name(kind), line, (int)s->a, (int)s->b, (int)s->c, (int)s->window, (int)s->len_q,
                (int)s->len_kv, (int)s->q_offset, any);
  if (!f) return 0;
  ck_assert_msg(happens(s, kind, f->q, f->kv) && is_seen(s, f->q, f->kv), "%s", f->message);
  ck_assert(f->b == 0 && f->h == 0 && f->kv >= 0 && f->kv < s->len_kv);
  ck_assert(f->q >= s->q_offset && f->q < s->q_offset + s->len_q);
  if (kind != FLY_FINDING_INDEX) return 1;
  ck_assert_msg(f->low == low && f->high == high && !f->open && isnan(f->s), "%s: it is %d to %d", f->message, (int)low,
                (int)high);
  return 1;
}

START_TEST(findings_are_those_of_64_bit_arithmetic_over_the_pairs_that_the_mask_sees) {
  test_random random = {.state = 11};
  fly_mask *mask;
  int found = 0;
  ck_fly_ok(fly_mask_compile(band, "band.c", NULL, &mask, &error), error);
  for (int k = 0; k < 6; k++) {
    subject s = {test_range(&random, 0, 1) ? test_range(&random, -9, 9) : test_range(&random, -40000000, 40000000),
                 test_range(&random, -60, 60),
                 test_range(&random, -9, 9),
                 test_range(&random, 0, 2) ? test_range(&random, 0, 150) : -1,
                 test_range(&random, 1, 200),
                 test_range(&random, 1, 150),
                 test_range(&random, 0, 50),
                 test_range(&random, 1, 300)};
    float *data = calloc((size_t)s.elements, sizeof *data);
    fly_buffer *buffer;
    fly_bound *seen = NULL;
    fly_findings findings;
    ck_fly_ok(fly_buffer_create(FLY_F32, 1, &s.elements, data, &buffer, &error), error);
    if (s.window >= 0) ck_fly_ok(fly_mask_bind(mask, &FLY_INT("window", s.window), 1, &seen, &error), error);
    fly_arg args[] = {FLY_INT("a", s.a), FLY_INT("b", s.b), FLY_INT("c", s.c), FLY_CAPTURE("data", buffer)};
    fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1,         .heads = 2,
                      .len_q = s.len_q,       .len_kv = s.len_kv, .q_offset = s.q_offset};
    ck_fly_ok(fly_score_check(arithmetic, "arithmetic.c", NULL, args, 4, seen, &g, &findings, &error), error);
    found += expect_finding(&s, &findings, FLY_FINDING_OVERFLOW, 8);
    found += expect_finding(&s, &findings, FLY_FINDING_DIVISION_BY_ZERO, 9);
    found += expect_finding(&s, &findings, FLY_FINDING_NEGATIVE_OPERAND, 9);
    found += expect_finding(&s, &findings, FLY_FINDING_INDEX, 10);
    found += expect_finding(&s, &findings, FLY_FINDING_NOT_FINITE, 6);
    ck_assert_int_eq(findings.undecided, 0);
    fly_findings_free(&findings);
    fly_bound_release(&seen);
    fly_buffer_release(&buffer);
    free(data);
  }
  ck_assert_int_gt(found, 7);
  ck_assert_int_lt(found, 23);
  fly_mask_release(&mask);
}
END_TEST

/* ---- single findings --------------------------------------------------------------------------------------------- */

/* The findings as "line:kind line:kind". */
static void expect_kinds(const char *body, const char *expected) {
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 2, .heads = 2, .len_q = 70, .len_kv = 70};
  char source[1024], text[1024] = "";
  fly_findings f;
  snprintf(source, sizeof source,
           "#include <flymask/score.h>\nfloat score(float s, int b, int h, int q, int kv) {\n%s\n}\n", body);
  ck_fly_ok(fly_score_check(source, "body.c", NULL, NULL, 0, NULL, &g, &f, &error), error);
  for (int i = 0; i < f.count; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d:%s", i ? " " : "", f.finding[i].line,
             fly_finding_name(f.finding[i].kind));
  ck_assert_msg(strcmp(text, expected) == 0, "%s: '%s', not '%s'", body, text, expected);
  fly_findings_free(&f);
}

START_TEST(each_kind_is_found_where_it_is_and_nowhere_else) {
  expect_kinds("return s;", "");
  expect_kinds("return 0;", "");
  expect_kinds("return s - (float)h * (float)fly_abs(q - kv);", "");
  expect_kinds("return (float)(q - kv);", "2:reads-no-score");
  expect_kinds("float t = s;\nreturn t * 0 == 0 ? (float)h : s;", "");
  expect_kinds("return kv > q ? -INFINITY : s;", "");
  expect_kinds("return kv > q ? INFINITY : s;", "2:not-finite");
  expect_kinds("return s / (float)(q - kv);", "2:not-finite");
  expect_kinds("return q == kv ? s : s / (float)(q - kv);", "");
  expect_kinds("return logf(s + 30);", ""); /* -infinity hides */
  expect_kinds("return logf(s + 29);", "2:not-finite");
  expect_kinds("return s > 29 ? NAN : s;", "2:not-finite");
  expect_kinds("return s > 40 ? NAN : s;", ""); /* no such score is tried */
  expect_kinds("for (int i = 0; i < (q > 60 ? 1 << 20 : 4); i++)\n  s += (float)(i & q);\nreturn s;", "2:not-finite");
  expect_kinds("return s > 1000 && q > 3 ? 0 : s;", "");
  expect_kinds("return s + (float)q > -1000 ? s : 0;", ""); /* not of all scores */
  expect_kinds("return s * (float)(7 / ((int)s - 1));", "3:division-by-zero 3:negative-operand");
  expect_kinds("static const float t[3] = {1, 2, 3};\nreturn s * t[(q + kv) / 64];", "");
  expect_kinds("static const float t[2] = {1, 2};\nreturn s * t[(q + kv) / 64];", "4:index");
  expect_kinds("return q % 4 < 4 ? s : 0;", "3:always-true");
  expect_kinds("return s * (float)((kv << q) & 1);", "3:shift");
}
END_TEST

START_TEST(a_finding_names_the_pair_and_where_it_matters_the_score) {
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 3, .heads = 4, .len_q = 20, .len_kv = 20};
  fly_findings f;
  static const char source[] = "#include <flymask/score.h>\nfloat score(float s, int b, int h, int q, int kv) {\n"
                               "  int x = 5 / (b * 10 + h - 12);\n"
                               "  return (int)s == 30 && q == 7 && kv == 9 && h == 1 ? NAN : s + (float)x;\n}\n";
  ck_fly_ok(fly_score_check(source, "x.c", NULL, NULL, 0, NULL, &g, &f, &error), error);
  const fly_finding *zero = finding_of(&f, FLY_FINDING_DIVISION_BY_ZERO, 3), *nan = finding_of(&f, FLY_FINDING_NOT_FINITE, 2);
  ck_assert(zero && zero->b == 1 && zero->h == 2 && isnan(zero->s) && zero->column == 13);
  ck_assert(nan && nan->b == 0 && nan->h == 1 && nan->q == 7 && nan->kv == 9 && nan->s == 30);
  ck_assert_ptr_nonnull(strstr(nan->message, "h = 1, q = 7, kv = 9, s = 30"));
  fly_findings_free(&f);
}
END_TEST

START_TEST(errors_are_those_of_compiling_and_binding) {
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = 8, .len_kv = 8};
  fly_findings f;
  fly_score *score;
  fly_bound *bound;
  static const char plain[] = "#include <flymask/score.h>\n"
                              "float score(float s, int b, int h, int q, int kv) { return s + b + h + q + kv; }\n";
  ck_assert_int_eq(fly_score_check("float", "x.c", NULL, NULL, 0, NULL, &g, &f, &error), FLY_ERROR_SOURCE);
  ck_assert_int_eq(fly_score_check(band, "x.c", NULL, NULL, 0, NULL, &g, &f, &error), FLY_ERROR_SOURCE);
  ck_assert_int_eq(fly_score_check(arithmetic, "x.c", NULL, NULL, 0, NULL, &g, &f, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_score_check(plain, "x.c", NULL, NULL, 0, NULL, NULL, &f, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_score_check(NULL, "x.c", NULL, NULL, 0, NULL, &g, &f, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_score_check(plain, "x.c", NULL, NULL, 0, NULL, &g, NULL, NULL), FLY_ERROR_ARGUMENT);
  ck_fly_ok(fly_score_compile(plain, "x.c", NULL, &score, &error), error);
  ck_fly_ok(fly_score_bind(score, NULL, 0, &bound, &error), error);
  ck_assert_int_eq(fly_score_check(plain, "x.c", NULL, NULL, 0, bound, &g, &f, &error), FLY_ERROR_ARGUMENT);
  fly_bound_release(&bound);
  fly_score_release(&score);
}
END_TEST

START_TEST(running_out_of_memory_is_an_error) {
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = 70, .len_kv = 70};
  static const char source[] =
      "#include <flymask/score.h>\nfloat score(float s, int b, int h, int q, int kv) {\n"
      "  static const float t[2] = {1, 2};\n  return s * t[q / 32] / (float)(7 / (kv - 9) + (int)s);\n}\n";
  fly_mask *mask;
  fly_bound *seen;
  fly_findings findings;
  int failures = 0;
  ck_fly_ok(fly_mask_compile(band, "band.c", NULL, &mask, &error), error);
  ck_fly_ok(fly_mask_bind(mask, &FLY_INT("window", 60), 1, &seen, &error), error);
  ck_fly_ok(fly_score_check(source, "memory.c", NULL, NULL, 0, seen, &g, &findings, &error), error);
  int all = findings.count;
  fly_findings_free(&findings);
  ck_assert_int_gt(all, 2);
  for (long n = 1; n < 3000; n += n / 3 + 1) { /* some of them only miss the cache: nothing is lost then */
    flyi_fail_allocation(n);
    fly_status status = fly_score_check(source, "memory.c", NULL, NULL, 0, seen, &g, &findings, &error);
    flyi_fail_allocation(0);
    ck_assert(status == FLY_OK || status == FLY_ERROR_MEMORY);
    ck_assert_int_eq(findings.count, status == FLY_OK ? all : 0);
    failures += status != FLY_OK;
    fly_findings_free(&findings);
  }
  ck_assert_int_gt(failures, 12);
  fly_bound_release(&seen);
  fly_mask_release(&mask);
}
END_TEST

/* ---- the library ------------------------------------------------------------------------------------------------- */

enum { HEADS = 4, LENGTH = 200, DIM = 8 };

START_TEST(the_modifiers_of_the_library_are_not_blamed) {
  static const int64_t shapes[][4] = {
      {HEADS}, {HEADS, 101}, {LENGTH, LENGTH}, {32, HEADS}, {1, HEADS, LENGTH, DIM}, {1, LENGTH, DIM}};
  static const struct {
    const char *name;
    struct {
      const char *name;
      fly_type type;
      int rank, shape;
    } buffers[2];
  } library[] = {{"alibi", {{0}}},
                 {"alibi_slopes", {{"slopes", FLY_F32, 1, 0}}},
                 {"graph_distance", {{"hops", FLY_I16, 2, 2}, {"bias", FLY_F32, 2, 1}}},
                 {"kerple", {{"r1", FLY_F32, 1, 0}, {"r2", FLY_F32, 1, 0}}},
                 {"relative_bias", {{"bias", FLY_F32, 2, 1}}},
                 {"rope_scores", {{"q_rope", FLY_F32, 4, 4}, {"k_rope", FLY_F32, 3, 5}}},
                 {"sandwich", {{"waves", FLY_F32, 1, 0}}},
                 {"softcap", {{0}}},
                 {"t5_bias", {{"bias", FLY_F32, 2, 3}}},
                 {"temperature", {{0}}}};
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1, .heads = HEADS, .len_q = LENGTH, .len_kv = LENGTH};
  for (size_t i = 0; i < sizeof library / sizeof *library; i++) {
    char path[512];
    fly_arg args[2];
    fly_findings f;
    int count = 0;
    for (; count < 2 && library[i].buffers[count].name; count++) {
      int16_t *zeros = calloc((size_t)LENGTH * LENGTH, sizeof(float));
      fly_buffer *buffer;
      ck_fly_ok(fly_buffer_create(library[i].buffers[count].type, library[i].buffers[count].rank,
                                  shapes[library[i].buffers[count].shape], zeros, &buffer, &error),
                error);
      args[count] = FLY_CAPTURE(library[i].buffers[count].name, buffer);
      free(zeros);
    }
    snprintf(path, sizeof path, "%s/scores/%s.c", FLYMASK_SOURCE, library[i].name);
    char *source = command_read_file(path);
    ck_fly_ok(fly_score_check(source, path, NULL, args, count, NULL, &g, &f, &error), error);
    ck_assert_msg(f.count == 0 && f.undecided == 0, "%s:%d: %s", path, f.count ? f.finding[0].line : 0,
                  f.count ? f.finding[0].message : "undecided");
    fly_findings_free(&f);
    while (count > 0) fly_buffer_release(&args[--count].buffer);
    free(source);
  }
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("diagnose_score");
  TCase *c = tcase_create("diagnose_score");
  tcase_add_test(c, findings_are_the_golden_texts);
  tcase_add_test(c, findings_are_those_of_64_bit_arithmetic_over_the_pairs_that_the_mask_sees);
  tcase_add_test(c, each_kind_is_found_where_it_is_and_nowhere_else);
  tcase_add_test(c, a_finding_names_the_pair_and_where_it_matters_the_score);
  tcase_add_test(c, errors_are_those_of_compiling_and_binding);
  tcase_add_test(c, running_out_of_memory_is_an_error);
  tcase_add_test(c, the_modifiers_of_the_library_are_not_blamed);
  suite_add_tcase(s, c);
  return s;
}

FLY_TEST_MAIN(suite)
