/* Sources that mean harm: each is refused in clear words, in time, or it is harmless: then the mask sees what the plain
 * one sees. refusals/ has one file for each thing that a mask cannot do; here is what wants to pass by other ways. */
#include <time.h>

#include "map_case.h"

#define SEES                                                                                                           \
  "bool mask(int b, int h, int q, int kv) { (void)b, (void)h; return (kv * 7 + q * 3) % 11 < 5 && kv <= q; }\n"

enum { REFUSED, HARMLESS, EITHER /* as the version of clang will have it */ };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool sees(int q, int kv) { return (kv * 7 + q * 3) % 11 < 5 && kv <= q; }

static void expect_plain(fly_mask *mask, const char *what) {
  fly_bound *bound;
  fly_error error;
  ck_fly_ok(fly_mask_bind(mask, NULL, 0, &bound, &error), error);
  fly_geometry g = map_square(1, 1, 90);
  fly_map *map = map_build(bound, &g, 32);
  for (int q = 0; q < 90; q++)
    for (int kv = 0; kv < 90; kv++)
      ck_assert_msg(fly_map_visible(map, 0, 0, q, kv) == sees(q, kv), "%s: (%d, %d)", what, q, kv);
  fly_map_release(&map), fly_bound_release(&bound);
}

static void check_source(const char *source, int expected, const char *what) {
  fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = ""};
  fly_mask *mask;
  fly_error error = {0};
  double start = now();
  fly_status status = fly_mask_compile(source, "hostile.c", &options, &mask, &error);
  ck_assert_msg(now() - start < 60, "%s took %.1f s", what, now() - start);
  ck_assert_msg((expected != REFUSED && status == FLY_OK) ||
                    (expected != HARMLESS && (status == FLY_ERROR_SOURCE || status == FLY_ERROR_TOOL)),
                "%s: %s: %s", what, fly_status_name(status), error.message);
  if (status == FLY_OK)
    expect_plain(mask, what);
  else
    ck_assert_msg(strlen(error.message) > 10, "%s: '%s'", what, error.message);
  fly_mask_release(&mask);
}

START_TEST(pragmas_do_not_reach_the_backend) {
  static const struct {
    const char *before; /* of the mask */
    int expected;
  } cases[] = {
      {"#pragma clang attribute push(__attribute__((constructor)), apply_to = function)\n", REFUSED},
      {"#pragma clang attribute push(__attribute__((section(\".init\"))), apply_to = function)\n", REFUSED},
      {"#pragma clang attribute push(__attribute__((target(\"avx512f\"))), apply_to = function)\n", EITHER},
      {"#pragma clang attribute push(__attribute__((naked)), apply_to = function)\n", REFUSED},
      {"#pragma clang attribute push(__attribute__((alias(\"main\"))), apply_to = function)\n", REFUSED},
      {"#pragma clang section text=\".init\"\n", REFUSED},
      {"#pragma weak mask\n", EITHER},
      {"#pragma redefine_extname mask system\n", REFUSED},
      {"#pragma GCC visibility push(hidden)\n", EITHER},
      {"#pragma pack(1)\n", EITHER},
      {"#pragma STDC FENV_ACCESS ON\n", EITHER},
      {"#pragma STDC FP_CONTRACT ON\n", EITHER},
      {"#pragma clang fp reassociate(on)\n", EITHER},
      {"#pragma clang optimize off\n", EITHER},
      {"#pragma clang diagnostic ignored \"-Wreturn-type\"\n", EITHER},
      {"#pragma clang __debug overflow_stack\n", REFUSED},
      {"#pragma omp declare simd\n", EITHER},
      {"#pragma init_seg(\".CRT\")\n", EITHER},
      {"_Pragma(\"clang section text=\\\".fini\\\"\")\n", REFUSED},
  };
  char source[2048];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    bool push = strstr(cases[i].before, "attribute push") != NULL;
    snprintf(source, sizeof source, "#include <flymask/mask.h>\n%s%s%s", cases[i].before, SEES,
             push ? "#pragma clang attribute pop\n" : "");
    check_source(source, cases[i].expected, cases[i].before);
  }
}
END_TEST

START_TEST(attributes_do_not_reach_the_backend) {
  static const struct {
    const char *attribute;
    int expected;
  } cases[] = {{"constructor", REFUSED},
               {"destructor(101)", REFUSED},
               {"section(\".text.x\")", REFUSED},
               {"naked", REFUSED},
               {"ifunc(\"f\")", REFUSED},
               {"weak", EITHER},
               {"noinline", EITHER},
               {"optnone, noinline", EITHER},
               {"cold", EITHER},
               {"no_sanitize(\"all\")", EITHER},
               {"target(\"sse4a\")", EITHER},
               {"pure", EITHER},
               {"vectorcall", EITHER},
               {"no_stack_protector", EITHER},
               {"annotate(\"x\")", REFUSED},
               {"patchable_function_entry(2)", EITHER},
               {"interrupt", REFUSED}};
  char source[2048];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    snprintf(source, sizeof source,
             "#include <flymask/mask.h>\n__attribute__((%s)) static bool f(int q, int kv) {\n"
             "  return (kv * 7 + q * 3) %% 11 < 5;\n}\n"
             "bool mask(int b, int h, int q, int kv) { (void)b, (void)h; return f(q, kv) && kv <= q; }\n",
             cases[i].attribute);
    check_source(source, cases[i].expected, cases[i].attribute);
  }
}
END_TEST

START_TEST(headers_and_macros_that_never_end_are_stopped) {
  check_source("#include <flymask/mask.h>\n#include __FILE__\n" SEES, REFUSED, "a source that includes itself");
  check_source("#include __FILE__\n" SEES, REFUSED, "the same, first");
  check_source("#if __INCLUDE_LEVEL__ < 100000\n#include \"hostile.c\"\n#endif\n" SEES, REFUSED, "levels of includes");
  check_source("#include <flymask/mask.h>\n#define f f\n#define g(x) g(x) g(x)\nint y = f + g(g(g(1)));\n" SEES,
               REFUSED, "macros that name themselves");
  char bomb[8192] = "#include <flymask/mask.h>\n#define M0(x) x x x x x x x x x x\n";
  for (int i = 1; i < 12; i++)
    snprintf(bomb + strlen(bomb), sizeof bomb - strlen(bomb), "#define M%d(x) M%d(M%d(x))\n", i, i - 1, i - 1);
  strcat(bomb, "int t = 0 M11(+1);\n" SEES);
  check_source(bomb, REFUSED, "a macro that grows without end");
}
END_TEST

/* As many lines as a source may have bytes. */
START_TEST(a_million_lines_are_read_in_time) {
  const size_t most = 1 << 20;
  char *source = malloc(most + 1), *at = stpcpy(source, "#include <flymask/mask.h>\n");
  memset(at, '\n', 1000000);
  stpcpy(at + 1000000, SEES);
  check_source(source, HARMLESS, "a million empty lines");
  at = stpcpy(source, "#include <flymask/mask.h>\n");
  for (int i = 0; i < 60000; i++) at += sprintf(at, "enum{A%d};\n", i);
  stpcpy(at, SEES);
  check_source(source, HARMLESS, "60,000 declarations");
  at = stpcpy(source, "#include <flymask/mask.h>\n");
  for (int i = 0; i < 80000; i++) at = stpcpy(at, "#if 1\n");
  stpcpy(at, SEES);
  check_source(source, REFUSED, "80,000 conditions that do not end");
  free(source);
}
END_TEST

/* `part` so many times in the mask's body. */
static void check_repeated(const char *head, const char *part, int times, const char *tail, const char *what) {
  static const char start[] = "#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) {\n";
  char *source = malloc(sizeof start + strlen(head) + strlen(tail) + (size_t)times * strlen(part) + 100);
  char *at = stpcpy(stpcpy(source, start), head);
  for (int i = 0; i < times; i++) at = stpcpy(at, part);
  stpcpy(stpcpy(at, tail), "\n  return (kv * 7 + q * 3) % 11 < 5 && kv <= q;\n}\n");
  check_source(source, REFUSED, what);
  free(source);
}

/* Small sources on which LLVM's passes, which nothing can stop, would be for minutes or days. */
START_TEST(what_llvm_would_take_too_long_for_is_refused) {
  check_repeated("", "for (long i = q; i < (long)kv + q; i += 3) { if (i & 1) q += i; else kv -= i; }\n", 24, "",
                 "loops whose ends depend on those before");
  check_repeated("", "for (int i = 0; i < 2 + q; i++) { q += i; if (q & 1) { q = q * 3 + kv; kv ^= q; } }\n", 24, "",
                 "loops that change their bounds");
  check_repeated("for (long i = q; i < (long)kv + q; i += 3) { if (i & 1) q += i; else kv -= i; }\n",
                 "for (int i = 0; i < 9; i++) { if (i >= q) break; if (i & 1) q += i; else kv -= i; }\n", 60, "",
                 "short loops behind one without a bound");
  check_repeated("", "for (long i = 0; i < 1100; i++) { if (i >= (long)kv + q) break; if (i & 1) q += i; }\n",
                 60, "", "loops with constant bounds, together beyond what a mask may take");
  check_repeated("", "for (int i = 0; i < 2; i++) ", 600, "q++;", "600 loops within each other");
  check_repeated("switch (q) { default:\n", "case __COUNTER__ * 9:\n", 40000, "kv = 3; }", "40,000 cases");
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("hostile");
  TCase *c = tcase_create("hostile");
  tcase_add_test(c, pragmas_do_not_reach_the_backend);
  tcase_add_test(c, attributes_do_not_reach_the_backend);
  tcase_add_test(c, headers_and_macros_that_never_end_are_stopped);
  tcase_add_test(c, a_million_lines_are_read_in_time);
  tcase_add_test(c, what_llvm_would_take_too_long_for_is_refused);
  suite_add_tcase(s, c);
  return s;
}

FLY_TEST_MAIN(suite)
