/* What a mask's author is told: golden texts, brute force in 64-bit arithmetic, and silence about the library. */
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
  snprintf(
      shell, sizeof shell, /* int32 [200]: documents of 50 */
      "printf '\\223NUMPY\\1\\0\\166\\0%%-117s\\n' \"{'descr': '<i4', 'fortran_order': False, 'shape': (200,), }\" > "
      "%s/doc.npy; for d in 0 1 2 3; do for i in $(seq 50); do printf \"\\\\$d\\0\\0\\0\"; done; done >> %s/doc.npy",
      dir, dir);
  ck_assert_int_eq(system(shell), 0);
  snprintf(arguments, sizeof arguments, "check tests/findings/careless.c doc=%s/doc.npy --lengths 30000,300", dir);
  command_check_golden("findings_careless", 1, arguments);
  strcat(arguments, " --json");
  command_check_golden("findings_careless_json", 1, arguments);
  command_check_golden("findings_headwise", 1, "check tests/findings/headwise.c --lengths 100 --heads 4");
  command_remove_directory();
}
END_TEST

/* ---- brute force ------------------------------------------------------------------------------------------------- */

typedef struct subject {
  int64_t a, b, c, len_q, len_kv, q_offset, elements;
} subject;

static const char arithmetic[] = "#include <flymask/mask.h>\n"
                                 "FLY_PARAM(int, a, 1);\n"
                                 "FLY_PARAM(int, b, 1);\n"
                                 "FLY_PARAM(int, c, 1);\n"
                                 "FLY_BUFFER(int32_t, data, 1);\n"
                                 "bool mask(int e, int h, int q, int kv) {\n"
                                 "  (void)e, (void)h;\n"
                                 "  if (kv % 3 == 1) return true;\n"
                                 "  int product = a * q;\n"             /* line 9 */
                                 "  int sum = product + kv;\n"          /* line 10, if line 9 does not wrap */
                                 "  int rest = (q - kv) % (kv + c);\n"  /* line 11 */
                                 "  int read = data[q + b - 2 * kv];\n" /* line 12 */
                                 "  return sum + rest > read;\n"
                                 "}\n";

/* What line `line` does at (q, kv), in 64 bits: whether the finding is there. */
static bool happens(const subject *s, fly_finding_kind kind, int64_t q, int64_t kv, int64_t *value) {
  if (kv % 3 == 1) return false;
  int64_t product = s->a * q, divisor = kv + s->c, x = q - kv;
  *value = q + s->b - 2 * kv;
  switch (kind) {
  case FLY_FINDING_OVERFLOW:
    return product < INT32_MIN || product > INT32_MAX;
  case FLY_FINDING_DIVISION_BY_ZERO:
    return divisor == 0;
  case FLY_FINDING_NEGATIVE_OPERAND: /* floor and truncation differ */
    return divisor != 0 && x % divisor != 0 && (x < 0) != (divisor < 0);
  default:
    return *value < 0 || *value >= s->elements;
  }
}

static void expect_finding(const subject *s, const fly_findings *findings, fly_finding_kind kind, int line) {
  bool any = false;
  int64_t low = INT64_MAX, high = INT64_MIN, value;
  for (int64_t q = s->q_offset; q < s->q_offset + s->len_q; q++)
    for (int64_t kv = 0; kv < s->len_kv; kv++) {
      any |= happens(s, kind, q, kv, &value);
      if (kv % 3 == 1) continue;
      low = value < low ? value : low, high = value > high ? value : high;
    }
  const fly_finding *f = finding_of(findings, kind, line);
  ck_assert_msg((f != NULL) == any, "%s of line %d: a %d, b %d, c %d, lengths %d, %d, offset %d: %d",
                fly_finding_name(kind), line, (int)s->a, (int)s->b, (int)s->c, (int)s->len_q, (int)s->len_kv,
                (int)s->q_offset, any);
  if (!f) return;
  ck_assert_msg(happens(s, kind, f->q, f->kv, &value), "%s", f->message);
  ck_assert(f->b == 0 && f->h == 0 && f->kv >= 0 && f->kv < s->len_kv);
  ck_assert(f->q >= s->q_offset && f->q < s->q_offset + s->len_q);
  if (kind != FLY_FINDING_INDEX) return;
  ck_assert_msg(f->low == low && f->high == high, "%s: it is %d to %d", f->message, (int)low, (int)high);
}

START_TEST(findings_are_those_of_64_bit_arithmetic_over_every_pair) {
  test_random random = {.state = 4};
  for (int k = 0; k < 10; k++) {
    subject s = {test_range(&random, 0, 1) ? test_range(&random, -9, 9) : test_range(&random, -40000000, 40000000),
                 test_range(&random, -100, 300),
                 test_range(&random, -9, 9),
                 test_range(&random, 1, 200),
                 test_range(&random, 1, 150),
                 test_range(&random, -50, 50),
                 test_range(&random, 1, 600)};
    int32_t *data = calloc((size_t)s.elements, sizeof *data);
    fly_buffer *buffer;
    fly_findings findings;
    ck_fly_ok(fly_buffer_create(FLY_I32, 1, &s.elements, data, &buffer, &error), error);
    fly_arg args[] = {FLY_INT("a", s.a), FLY_INT("b", s.b), FLY_INT("c", s.c), FLY_CAPTURE("data", buffer)};
    fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1,         .heads = 2,
                      .len_q = s.len_q,       .len_kv = s.len_kv, .q_offset = s.q_offset};
    ck_fly_ok(fly_mask_check(arithmetic, "arithmetic.c", NULL, args, 4, &g, &findings, &error), error);
    expect_finding(&s, &findings, FLY_FINDING_OVERFLOW, 9);
    expect_finding(&s, &findings, FLY_FINDING_DIVISION_BY_ZERO, 11);
    expect_finding(&s, &findings, FLY_FINDING_NEGATIVE_OPERAND, 11);
    expect_finding(&s, &findings, FLY_FINDING_INDEX, 12);
    ck_assert_ptr_null(finding_of(&findings, FLY_FINDING_NEGATIVE_OPERAND, 8));
    fly_findings_free(&findings);
    fly_buffer_release(&buffer);
    free(data);
  }
}
END_TEST

/* ---- single findings --------------------------------------------------------------------------------------------- */

static fly_findings check_body(const char *body, const fly_geometry *g) {
  char source[1024];
  fly_findings findings;
  snprintf(source, sizeof source, "#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) {\n%s\n}\n", body);
  ck_fly_ok(fly_mask_check(source, "body.c", NULL, NULL, 0, g, &findings, &error), error);
  return findings;
}

/* The findings as "line:kind line:kind". */
static void expect_kinds(const char *body, int64_t len_q, int64_t len_kv, const char *expected) {
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 2, .heads = 2, .len_q = len_q, .len_kv = len_kv};
  fly_findings findings = check_body(body, &g);
  char text[1024] = "";
  for (int i = 0; i < findings.count; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d:%s", i ? " " : "", findings.finding[i].line,
             fly_finding_name(findings.finding[i].kind));
  ck_assert_msg(strcmp(text, expected) == 0, "%s: '%s', not '%s'", body, text, expected);
  fly_findings_free(&findings);
}

START_TEST(each_kind_is_found_where_it_is_and_nowhere_else) {
  expect_kinds("return kv <= q;", 100, 100, "");
  expect_kinds("return kv <= q && q < kv;", 100, 100, "2:blind-rows 3:always-false");
  expect_kinds("return kv < q;", 100, 100, "2:blind-rows");
  expect_kinds("return kv <= q || kv == 0;", 0, 0, "");
  expect_kinds("return q % 4 < 4 && kv <= q;", 70, 70, "3:always-true");
  expect_kinds("return (unsigned)q >= 0u && kv <= q;", 70, 70, "3:always-true");
  expect_kinds("if (q < kv) return kv == 0;\nreturn q >= kv;", 70, 70, "4:always-true");
  expect_kinds("return kv <= q || kv - q > 2000000000;", 70, 70, "3:always-false");
  expect_kinds("return kv <= q + 2147483647;", 70, 70, "2:blind-rows 3:overflow");
  expect_kinds("return kv <= q + 2147483647u % 5;", 70, 70, "");
  expect_kinds("return (q - 2147483647 - 1) / (kv == 5 ? -1 : 1) > kv || kv == 0;", 70, 70, "3:overflow");
  expect_kinds("return (q - 2147483647) / (kv == 5 ? -1 : 1) > kv || kv == 0;", 70, 70, "");
  expect_kinds("return (q - INT64_MAX - 1) / (kv == 5 ? -1 : 1) > kv || kv == 0;", 70, 70, "3:overflow");
  expect_kinds("return fly_abs(q - 2147483647 - 1) > 2147483600 || kv == 0;", 70, 70, "3:overflow");
  expect_kinds("return fly_abs(q - 2147483647) > 2147483600 || kv == 0;", 70, 70, "");
  expect_kinds("return __builtin_abs(q - 2147483647 - 1) > 2147483600 || kv == 0;", 70, 70, "3:overflow");
  expect_kinds("return __builtin_labs(q - INT64_MAX - 1) > INT64_MAX - 40 || kv == 0;", 70, 70, "3:overflow");
  expect_kinds("return (long)q * 3000000000000000000L >= kv || kv == 0;", 70, 70, "3:overflow");
  expect_kinds("unsigned x = q * 4000000000u;\nreturn x % 7 < 5 || kv == 0;", 70, 70, "");
  expect_kinds("return (kv << (q - 3)) >= 0;", 40, 40, "3:shift");
  expect_kinds("return (kv << (q & 31)) >= 0 || kv < 9;", 40, 40, "");
  expect_kinds("return h > 0 ? kv <= q : kv >= q;", 40, 40, "");
  expect_kinds("return b < h;", 40, 40, "2:blind-rows 2:reads-nothing");
  expect_kinds("return true;", 40, 40, "");
  expect_kinds("return 7u / (q - 20u) < 3 || kv == 0;", 40, 40, "3:division-by-zero");
  expect_kinds("return q == 20 || 7u / (q - 20u) < 3 || kv == 0;", 40, 40, "");
  expect_kinds("for (int i = 0; i < 3; i++)\n  if (kv + i == q) return true;\nreturn kv == 0;", 40, 40, "");
  expect_kinds("static const int t[3] = {1, 2, 3};\nreturn t[q / 16] > kv;", 49, 49, "4:index");
  expect_kinds("static const int t[3] = {1, 2, 3};\nreturn t[q / 16] > kv;", 48, 48, "");
}
END_TEST

/* Other data would decide them otherwise. */
START_TEST(conditions_on_captured_data_are_not_blamed) {
  static const char source[] = "#include <flymask/mask.h>\nFLY_BUFFER(int32_t, doc, 1);\n"
                               "bool mask(int b, int h, int q, int kv) {\n"
                               "  (void)b, (void)h;\n"
                               "  return doc[q] >= 0 && q < fly_dim(doc, 0) && kv < q + 100;\n}\n";
  static const int32_t zeros[64];
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = 64, .len_kv = 64};
  fly_buffer *doc;
  fly_findings f;
  ck_fly_ok(fly_buffer_create(FLY_I32, 1, (int64_t[]){64}, zeros, &doc, &error), error);
  ck_fly_ok(fly_mask_check(source, "data.c", NULL, &FLY_CAPTURE("doc", doc), 1, &g, &f, &error), error);
  ck_assert_msg(f.count == 0 && f.undecided == 0, "%s", f.count ? f.finding[0].message : "undecided");
  fly_findings_free(&f);
  fly_buffer_release(&doc);
}
END_TEST

START_TEST(a_finding_names_the_batch_entry_and_head_that_shows_it) {
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 3, .heads = 4, .len_q = 20, .len_kv = 20};
  fly_findings f = check_body("return 5 / (b * 10 + h - 12) < 7;", &g);
  ck_assert_int_eq(f.count, 2); /* and negative divisors */
  ck_assert_int_eq(f.finding[0].kind, FLY_FINDING_DIVISION_BY_ZERO);
  ck_assert_int_eq(f.finding[0].b, 1);
  ck_assert_int_eq(f.finding[0].h, 2);
  fly_findings_free(&f);
  f = check_body("return kv <= q && (b != 2 || h != 3 || q < 5 || (q >= 9 && q != 15));", &g);
  ck_assert_int_eq(f.count, 1);
  ck_assert_int_eq(f.finding[0].kind, FLY_FINDING_BLIND_ROWS);
  ck_assert(f.finding[0].b == 2 && f.finding[0].h == 3 && f.finding[0].low == 5 && f.finding[0].high == 8);
  ck_assert_ptr_nonnull(strstr(f.finding[0].message, "rows 5 to 8 and 1 more of b = 2, h = 3 see no key"));
  fly_findings_free(&f);
}
END_TEST

START_TEST(errors_are_those_of_compiling_binding_and_mapping) {
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = 8, .len_kv = 8};
  fly_findings findings;
  ck_assert_int_eq(fly_mask_check("bool", "x.c", NULL, NULL, 0, &g, &findings, &error), FLY_ERROR_SOURCE);
  ck_assert_int_eq(findings.count, 0);
  ck_assert_int_eq(fly_mask_check(arithmetic, "x.c", NULL, NULL, 0, &g, &findings, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_mask_check(arithmetic, "x.c", NULL, NULL, 0, NULL, &findings, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_mask_check(NULL, "x.c", NULL, NULL, 0, &g, &findings, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_mask_check(arithmetic, "x.c", NULL, NULL, 0, &g, NULL, &error), FLY_ERROR_ARGUMENT);
  ck_assert_str_eq(fly_finding_name((fly_finding_kind)99), "unknown");
  fly_findings_free(NULL);
}
END_TEST

START_TEST(running_out_of_memory_is_an_error) {
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = 70, .len_kv = 70};
  static const char source[] =
      "#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) {\n"
      "  static const int t[2] = {1, 2};\n  return q >= kv && t[q / 64] > 0 && q / (kv - 9) < 7;\n}\n";
  fly_findings findings;
  int failures = 0;
  ck_fly_ok(fly_mask_check(source, "memory.c", NULL, NULL, 0, &g, &findings, &error), error);
  int all = findings.count;
  fly_findings_free(&findings);
  ck_assert_int_gt(all, 1);
  for (long n = 1; n < 2000; n += n / 4 + 1) { /* some of them only miss the cache: nothing is lost then */
    flyi_fail_allocation(n);
    fly_status status = fly_mask_check(source, "memory.c", NULL, NULL, 0, &g, &findings, &error);
    flyi_fail_allocation(0);
    ck_assert(status == FLY_OK || status == FLY_ERROR_MEMORY);
    ck_assert_int_eq(findings.count, status == FLY_OK ? all : 0);
    failures += status != FLY_OK;
    fly_findings_free(&findings);
  }
  ck_assert_int_gt(failures, 15);
}
END_TEST

/* ---- the library ------------------------------------------------------------------------------------------------- */

/* The examples of masks/README.md, as the script that draws its pictures lists them. One example's data hides all keys
 * from some queries. */
START_TEST(the_masks_of_the_library_with_their_examples_are_not_blamed) {
  char *script = command_read_file(FLYMASK_SOURCE "/scripts/mask_pictures.sh"), line[512], shell[1500];
  char *at = strstr(script, "<<'EXAMPLES'\n"), *end = at ? strstr(at, "\nEXAMPLES\n") : NULL;
  ck_assert_ptr_nonnull(end);
  const char *dir = command_make_directory();
  snprintf(shell, sizeof shell, "cc -O1 -o %s/examples %s/scripts/mask_examples.c && %s/examples %s", dir,
           FLYMASK_SOURCE, dir, dir);
  ck_assert_int_eq(system(shell), 0);
  int masks = 0;
  for (at = strchr(at, '\n') + 1; at < end; at = strchr(at, '\n') + 1) {
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    if (*line == '#') continue;
    char *plane = strstr(line, " --at ");
    if (plane) *plane = 0; /* the plane that is drawn */
    command_result r = command_run(dir, "check %s%s", line, strstr(line, "--lengths") ? "" : " --lengths 256,256");
    bool selected = strncmp(line, "selected_tiles ", 15) == 0;
    ck_assert_msg(r.code == selected && !*r.err, "%s: %s%s", line, r.out, r.err);
    if (selected) ck_assert_ptr_nonnull(strstr(r.out, "see no key"));
    ck_assert_ptr_null(strstr(r.out + (selected ? strcspn(r.out, "\n") : 0), "warning"));
    command_free(&r);
    masks++;
  }
  ck_assert_int_ge(masks, 45);
  free(script);
  command_remove_directory();
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("diagnose");
  TCase *c = tcase_create("diagnose");
  tcase_add_test(c, findings_are_the_golden_texts);
  tcase_add_test(c, findings_are_those_of_64_bit_arithmetic_over_every_pair);
  tcase_add_test(c, each_kind_is_found_where_it_is_and_nowhere_else);
  tcase_add_test(c, conditions_on_captured_data_are_not_blamed);
  tcase_add_test(c, a_finding_names_the_batch_entry_and_head_that_shows_it);
  tcase_add_test(c, errors_are_those_of_compiling_binding_and_mapping);
  tcase_add_test(c, running_out_of_memory_is_an_error);
  tcase_add_test(c, the_masks_of_the_library_with_their_examples_are_not_blamed);
  suite_add_tcase(s, c);
  return s;
}

FLY_TEST_MAIN(suite)
