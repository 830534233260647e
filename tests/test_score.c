/* Score modifiers from their source to code: values and derivatives are those of the same file compiled with double
 * precision and differentiated by central differences; what a modifier must not do is refused; both loaders, caches and
 * images carry them. */
#include <dlfcn.h>
#include <flymask/mask.h>
#include <unistd.h>

#include "call_case.h"
#include "score_case.h"

#define SCORES FLYMASK_SOURCE "/tests/scores/"

/* ---- derivatives ------------------------------------------------------------------------------------------------- */

typedef double native_score(double s, int b, int h, int q, int kv);

/* The modifier in double precision, and where its globals are. */
typedef struct native {
  void *handle;
  native_score *score;
} native;

static native native_open(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/tests/native_score_%s.so", FLYMASK_BUILD, name);
  native n = {.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
  ck_assert_msg(n.handle != NULL, "%s", dlerror());
  *(void **)&n.score = dlsym(n.handle, "score");
  struct fly_mask_context *context = dlsym(n.handle, "fly_mask_context");
  ck_assert(n.score && context);
  *context = (struct fly_mask_context){.len_q = 200, .len_kv = 300};
  return n;
}

/* Whether the derivative exists near s: a step twice as wide gives the same. */
static bool differentiate(native_score *f, double s, int h, int q, int kv, double *slope) {
  double step = 1e-5 * (1 + fabs(s)), wide = 2 * step;
  *slope = (f(s + step, 1, h, q, kv) - f(s - step, 1, h, q, kv)) / (2 * step);
  double other = (f(s + wide, 1, h, q, kv) - f(s - wide, 1, h, q, kv)) / (2 * wide);
  return fabs(*slope - other) <= 1e-6 * (1 + fabs(*slope));
}

/* One block of scores near 0, compared pair by pair. What float rounds is a few units of the largest part: `size`. */
static void compare(const score_case *c, const native *n, int h, double size, const char *what) {
  float s[FLYI_BLOCK * FLYI_BLOCK], slope[FLYI_BLOCK * FLYI_BLOCK], before[FLYI_BLOCK * FLYI_BLOCK];
  test_random random = {11 + (uint64_t)h};
  int left_out = 0;
  for (int i = 0; i < FLYI_BLOCK * FLYI_BLOCK; i++) before[i] = s[i] = (float)(2 * test_normal(&random));
  score_case_run(c, 1, h, 64, 100, FLYI_BLOCK, NULL, s, slope);
  for (int r = 0; r < FLYI_BLOCK; r++)
    for (int j = 0; j < FLYI_BLOCK; j++) {
      int at = r * FLYI_BLOCK + j, q = 64 + r, kv = 100 + j;
      double want = n->score(before[at], 1, h, q, kv), by;
      double tolerance = 3e-6 * (size + fabs(want));
      ck_assert_msg(fabs(s[at] - want) <= tolerance, "%s (%d, %d): score %.9g of %.9g, not %.9g", what, q, kv, s[at],
                    before[at], want);
      if (!differentiate(n->score, before[at], h, q, kv, &by)) {
        left_out++;
        continue;
      }
      ck_assert_msg(fabs(slope[at] - by) <= 2e-5 * (size + fabs(by)), "%s (%d, %d): slope %.9g at %.9g, not %.9g", what,
                    q, kv, slope[at], before[at], by);
    }
  ck_assert_msg(left_out < 200, "%s: %d pairs at kinks", what, left_out);
}

/* For one of the targets: `turn` says which; -1: all. */
static void check_file(const char *name, const fly_arg *values, int count, native *n, double size, int turn) {
  char path[512], what[64];
  int targets = 0, at = 0;
  snprintf(path, sizeof path, SCORES "%s.c", name);
  CALL_FOR_TARGETS(target) targets++;
  CALL_FOR_TARGETS(target) {
    if (turn >= 0 && at++ != turn % targets) continue;
    score_case c = score_case_file(path, target, values, count, NULL);
    for (int h = 0; h < 3; h++) {
      snprintf(what, sizeof what, "%s, %s, head %d", name, target, h);
      compare(&c, n, h, size, what);
    }
    score_case_free(&c);
  }
}

START_TEST(derivatives_are_those_of_central_differences) {
  static const struct {
    const char *name;
    double size;
  } files[] = {{"arithmetic", 4}, {"branches", 20}, {"loops", 60}, {"locals", 40}};
  native n = native_open(files[_i].name);
  check_file(files[_i].name, NULL, 0, &n, files[_i].size, -1);
  dlclose(n.handle);
}
END_TEST

START_TEST(functions_have_their_derivatives) {
  native n = native_open("functions");
  int *which = dlsym(n.handle, "which");
  *which = _i;
  check_file("functions", (fly_arg[]){FLY_INT("which", _i)}, 1, &n, 8, _i);
  dlclose(n.handle);
}
END_TEST

START_TEST(doubles_integers_buffers_and_tokens) {
  int32_t weight[300];
  const int64_t shape[] = {300};
  fly_buffer *buffer;
  fly_error error;
  for (int i = 0; i < 300; i++) weight[i] = i * 7 % 31 - 15;
  ck_fly_ok(fly_buffer_create(FLY_I32, 1, shape, weight, &buffer, &error), error);
  native n = native_open("mixed");
  *(const int32_t **)dlsym(n.handle, "weight") = weight;
  check_file("mixed", (fly_arg[]){FLY_CAPTURE("weight", buffer)}, 1, &n, 2, -1);
  dlclose(n.handle);
  fly_buffer_release(&buffer);
}
END_TEST

/* What score.h says about kinks. */
START_TEST(kinks_have_the_slope_that_is_documented) {
  static const struct {
    const char *body;
    float at, slope;
  } kinks[] = {{"s > 0 ? s : 0", 0, 0},
               {"s >= 0 ? s : 0", 0, 1},
               {"fabsf(s)", 0, 0},
               {"fabsf(s)", -0.f, 0},
               {"fabsf(s)", -2, -1},
               {"fminf(s, 2 - s)", 1, 1},
               {"fmaxf(s, 2 - s)", 1, 1},
               {"fmaxf(2 - s, s)", 1, -1},
               {"fminf(s, NAN)", 3, 1},
               {"fmaxf(NAN, 2 * s)", 3, 2},
               {"floorf(s) + ceilf(s) + rintf(s) + roundf(s) + truncf(s)", 0.25f, 0},
               {"(float)(int)(s * 8)", 0.3f, 0},
               {"powf(s, 0)", 0, 0},
               {"powf(0, s)", 2, 0},
               {"copysignf(3, s)", 1, 0},
               {"copysignf(s, -1)", 2, -1},
               {"5", 1, 0}};
  char source[256];
  for (size_t i = 0; i < sizeof kinks / sizeof *kinks; i++) {
    float s[FLYI_BLOCK] = {kinks[i].at}, slope[FLYI_BLOCK];
    snprintf(source, sizeof source,
             "#include <flymask/score.h>\nfloat score(float s, int b, int h, int q, int kv) { return %s; }\n",
             kinks[i].body);
    score_case c = score_case_from(source, NULL, NULL, 0, NULL);
    score_case_run(&c, 0, 0, 0, 0, 1, NULL, s, slope);
    ck_assert_msg(slope[0] == kinks[i].slope, "%s at %g: slope %g", kinks[i].body, kinks[i].at, slope[0]);
    score_case_free(&c);
  }
}
END_TEST

/* ---- meaning ----------------------------------------------------------------------------------------------------- */

START_TEST(endless_loops_give_nan) {
  static const char source[] = "#include <flymask/score.h>\n"
                               "float score(float s, int b, int h, int q, int kv) {\n"
                               "  while (q > 2) s += 1;\n"
                               "  return s;\n"
                               "}\n";
  float s[4 * FLYI_BLOCK], slope[4 * FLYI_BLOCK];
  for (int i = 0; i < 4 * FLYI_BLOCK; i++) s[i] = (float)i;
  score_case c = score_case_from(source, NULL, NULL, 0, NULL);
  uint64_t bits[4] = {1, ~0ull, 1ull << 20, 1}; /* few pairs: each takes 65,536 rounds */
  score_case_run(&c, 0, 0, 0, 0, 4, bits, s, slope);
  ck_assert(s[0] == 0 && s[FLYI_BLOCK + 63] == FLYI_BLOCK + 63 && slope[FLYI_BLOCK + 63] == 1);
  ck_assert(isnan(s[3 * FLYI_BLOCK]) && !isnan(s[3 * FLYI_BLOCK + 16]));
  score_case_free(&c);
}
END_TEST

START_TEST(indices_are_clamped_and_divisions_defined) {
  static const char source[] = "#include <flymask/score.h>\n"
                               "FLY_BUFFER(float, bias, 1);\n"
                               "FLY_BUFFER(float, none, 1);\n"
                               "float score(float s, int b, int h, int q, int kv) {\n"
                               "  return s + bias[q * 1000 - 500] + (float)(7 / (kv - 3)) + none[q];\n"
                               "}\n";
  const float data[] = {10, 20, 30};
  fly_buffer *bias, *none;
  fly_error error;
  ck_fly_ok(fly_buffer_create(FLY_F32, 1, (int64_t[]){3}, data, &bias, &error), error);
  ck_fly_ok(fly_buffer_create(FLY_F32, 1, (int64_t[]){0}, data, &none, &error), error);
  const fly_arg values[] = {FLY_CAPTURE("bias", bias), FLY_CAPTURE("none", none)};
  score_case c = score_case_from(source, NULL, values, 2, NULL);
  float s[2 * FLYI_BLOCK] = {0}, slope[2 * FLYI_BLOCK];
  score_case_run(&c, 0, 0, 0, 0, 2, NULL, s, slope);
  ck_assert(s[0] == 10 - 2 && s[3] == 10 && s[FLYI_BLOCK + 3] == 30 && s[FLYI_BLOCK + 4] == 37 && slope[5] == 1);
  score_case_free(&c);
  fly_buffer_release(&bias), fly_buffer_release(&none);
}
END_TEST

START_TEST(info_says_what_a_modifier_reads) {
  static const char source[] = "#include <flymask/score.h>\n"
                               "FLY_PARAM(float, cap, 1.5);\n"
                               "FLY_BUFFER(float, table, 2);\n"
                               "float score(float s, int b, int h, int q, int kv) {\n"
                               "  return s * cap + fly_at2(table, h, fly_token_kv(b, h, kv));\n"
                               "}\n";
  fly_score *score = NULL;
  fly_bound *bound;
  fly_error error;
  ck_fly_ok(fly_score_compile(source, "mod.c", NULL, &score, &error), error);
  const fly_mask_info *info = fly_score_get_info(score);
  ck_assert_str_eq(info->name, "mod.c");
  ck_assert(info->reads_h && info->reads_kv && info->reads_token_kv && !info->reads_q && !info->reads_token_q);
  ck_assert(info->parameter_count == 1 && info->parameters[0].value.real == 1.5 && info->buffer_count == 1);
  ck_assert_int_eq(fly_score_bind(score, NULL, 0, &bound, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "table"), "%s", error.message);
  fly_score *same = fly_score_retain(score);
  fly_score_release(&score);
  ck_assert(!score && fly_score_get_info(same) == info);
  fly_score_release(&same);
  ck_assert(!fly_score_get_info(NULL) && !fly_score_retain(NULL));
  ck_assert_int_eq(fly_score_bind(NULL, NULL, 0, &bound, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_score_compile(NULL, NULL, NULL, &score, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_score_compile(source, NULL, NULL, NULL, &error), FLY_ERROR_ARGUMENT);
}
END_TEST

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

START_TEST(what_a_modifier_must_not_do_is_refused) {
  static const struct {
    const char *source;
    int line;
    const char *says;
  } refused[] = {
      {"bool mask(int b, int h, int q, int kv) { return 1; }", 0, "defines no function float score("},
      {"static float score_(float s) { return s; }", 0, "defines no function float score("},
      {"float score(float s, int b, int h, int q, int kv) { static int n; return s + n++; }", 2,
       "a score modifier cannot have variables that live on ('score.n')"},
      {"float score(float s, int b, int h, int q, int kv) { return lgammaf(s); }", 2, "lgammaf"},
      {"float lgammaf(float);\nfloat score(float s, int b, int h, int q, int kv) { return lgammaf(s); }", 3,
       "a score modifier cannot call 'lgammaf', which has no body here: only its own functions, fly_... and the float "
       "functions that <flymask/score.h> declares"},
      {"double exp(double);\nfloat score(float s, int b, int h, int q, int kv) { return exp(s); }", 3, "'exp'"},
      {"float fly_math_expf(float x) { return x; }\n"
       "float score(float s, int b, int h, int q, int kv) { return fly_math_expf(s); }",
       2, "a score modifier cannot define 'fly_math_expf', which is Flymask's own"},
      {"float fly_math_erff(float);\nfloat score(float s, int b, int h, int q, int kv) { return fly_math_erff(s); }", 3,
       "which has no body here"},
      {"float score(float s, int b, int h, int q, int kv) { return __builtin_expf(s); }", 2, "builtin of the compiler"},
      {"float score(float s, int b, int h, int q, int kv) { __asm__(\"nop\"); return s; }", 2, "assembly"},
      {"float score(float s, int b, int h, int q, int kv) { *(volatile float *)&s = 1; return s; }", 2, "volatile"},
      {"float score(float s, int b, int h, int q, int kv) { return score(s - 1, b, h, q, kv); }", 2,
       "a score modifier cannot recurse: 'score' calls itself"},
      {"float (*f)(float) = expf;\nfloat score(float s, int b, int h, int q, int kv) { return f(s); }", 2, ""},
      {"float score(float s, int b, int h, int q, int kv) { float (*f)(float) = h ? expf : logf; return f(s); }", 2,
       "a score modifier cannot take the address of a function"},
      {"float score(float s, int b, int h, int q, int kv) { *(float *)(long)q = s; return s; }", 2,
       "a score modifier cannot convert between pointers and integers"},
      {"FLY_BUFFER(float, t, 1);\nfloat score(float s, int b, int h, int q, int kv) { ((float *)t)[q] = s; return s; }",
       3, "a score modifier"},
      {"__attribute__((constructor)) void f(void) {}\nfloat score(float s, int b, int h, int q, int kv) { return s; }",
       2, "a score modifier cannot have constructors"},
      {"float score(float s, int b, int h, int q, int kv) { long double x = s; return (float)(x * x); }", 2,
       "floating-point type other than float and double"},
      {"float expf(float x) __asm__(\"system\");\nfloat score(float s, int b, int h, int q, int kv) { return expf(s); "
       "}",
       0, ""},
      {"float score(float s, int b, int h, int q, int kv) { __builtin_trap(); }", 2, "a score modifier cannot trap"},
      {"static float f(float s) { return sinf(sinf(sinf(sinf(sinf(sinf(sinf(sinf(sinf(sinf(s)))))))))); }\n"
       "float score(float s, int b, int h, int q, int kv) { return f(f(f(f(f(f(f(f(f(s))))))))); }",
       3, "the score modifier is too large"},
      {"#include <math.h>\nfloat score(float s, int b, int h, int q, int kv) { return s; }", 2, "file not found"},
      {"#include \"/etc/passwd\"\nfloat score(float s, int b, int h, int q, int kv) { return s; }", 2,
       "file not found"},
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    char source[512];
    fly_error error = {0};
    fly_score *score = NULL;
    snprintf(source, sizeof source, "#include <flymask/score.h>\n%s\n", refused[i].source);
    fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = ""};
    fly_status status = fly_score_compile(source, "bad.c", &options, &score, &error);
    ck_assert_msg(status == FLY_ERROR_SOURCE, "%s: %s %s", refused[i].source, fly_status_name(status), error.message);
    ck_assert_msg(!refused[i].line || error.line == refused[i].line, "%s: line %d: %s", refused[i].source, error.line,
                  error.message);
    ck_assert_msg(strstr(error.message, refused[i].says), "%s: %s", refused[i].source, error.message);
    ck_assert_ptr_null(score);
  }
}
END_TEST

START_TEST(a_function_of_ones_own_name_is_ones_own) {
  static const char source[] = "#include <flymask/mask.h>\n"
                               "static float expf(float x) { return x + 1; }\n"
                               "float score(float s, int b, int h, int q, int kv) { return expf(s); }\n";
  float s[FLYI_BLOCK] = {2}, slope[FLYI_BLOCK];
  score_case c = score_case_from(source, NULL, NULL, 0, NULL);
  score_case_run(&c, 0, 0, 0, 0, 1, NULL, s, slope);
  ck_assert(s[0] == 3 && slope[0] == 1);
  score_case_free(&c);
}
END_TEST

/* Masks may not call what modifiers may, and cannot be given in their place. */
START_TEST(masks_and_modifiers_are_told_apart) {
  static const char both[] = "#include <flymask/score.h>\n"
                             "bool mask(int b, int h, int q, int kv) { return kv <= q; }\n"
                             "float score(float s, int b, int h, int q, int kv) { return s * 2; }\n";
  static const char wrong[] = "#include <flymask/score.h>\n"
                              "bool mask(int b, int h, int q, int kv) { return expf((float)q) > 2; }\n";
  fly_mask *mask = NULL;
  fly_score *score = NULL;
  fly_bound *bound = NULL;
  fly_map *map = NULL;
  fly_error error;
  ck_fly_ok(fly_mask_compile(both, "both.c", NULL, &mask, &error), error);
  ck_fly_ok(fly_score_compile(both, "both.c", NULL, &score, &error), error);
  ck_assert(!flyi_hash_equal(mask->image.identity, flyi_of_score(score)->image.identity));
  ck_fly_ok(fly_score_bind(score, NULL, 0, &bound, &error), error);
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = 9, .len_kv = 9};
  ck_assert_int_eq(fly_map_build(bound, &g, NULL, &map, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "score modifier"), "%s", error.message);
  fly_mask_release(&mask);
  ck_assert_int_eq(fly_mask_compile(wrong, "wrong.c", NULL, &mask, &error), FLY_ERROR_SOURCE);
  ck_assert_msg(strstr(error.message, "a mask cannot call 'expf'"), "%s", error.message);
  fly_bound_release(&bound);
  fly_score_release(&score);
}
END_TEST

/* ---- baked values, caches, images -------------------------------------------------------------------------------- */

static const char capped[] = "#include <flymask/score.h>\n"
                             "FLY_PARAM(float, cap, 50);\n"
                             "float score(float s, int b, int h, int q, int kv) { return cap * tanhf(s / cap); }\n";

START_TEST(the_cache_keeps_modifiers) {
  char directory[] = "/tmp/flymask-score.XXXXXX", command[64];
  ck_assert_ptr_nonnull(mkdtemp(directory));
  const fly_arg bake[] = {FLY_REAL("cap", 3)};
  for (int baked = 0; baked < 2; baked++)
    for (int time = 0; time < 2; time++) {
      fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = directory, .bake = bake,
                                     .bake_count = baked};
      fly_score *score = NULL;
      fly_error error;
      ck_fly_ok(fly_score_compile(capped, "cap.c", &options, &score, &error), error);
      ck_assert_int_eq(fly_score_get_info(score)->from_cache, time == 1);
      ck_assert(fly_score_get_info(score)->parameters[0].value.real == (baked ? 3 : 50));
      fly_bound *bound = NULL;
      ck_assert_int_eq(fly_score_bind(score, (fly_arg[]){FLY_REAL("cap", 4)}, 1, &bound, &error),
                       baked ? FLY_ERROR_ARGUMENT : FLY_OK);
      fly_bound_release(&bound);
      fly_score_release(&score);
    }
  snprintf(command, sizeof command, "rm -r %s", directory);
  ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(an_image_carries_the_modifier) {
  fly_mask *mask = NULL;
  fly_score *score = NULL;
  fly_kernel *kernel = NULL, *loaded = NULL;
  fly_error error;
  const void *bytes;
  size_t size;
  ck_fly_ok(fly_mask_compile("#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) { return kv <= q; }\n",
                             "causal.c", NULL, &mask, &error),
            error);
  ck_fly_ok(fly_score_compile(capped, "cap.c", NULL, &score, &error), error);
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_F32, .head_dim = 8, .score = score};
  ck_fly_ok(fly_kernel_create(mask, &desc, &kernel, &error), error);
  ck_assert(fly_kernel_score(kernel) == score && !fly_kernel_score(NULL));
  ck_fly_ok(fly_kernel_image(kernel, &bytes, &size, &error), error);
  ck_fly_ok(fly_kernel_load(bytes, size, &loaded, &error), error);
  ck_assert_ptr_nonnull(fly_kernel_score(loaded));
  ck_assert_str_eq(fly_score_get_info(fly_kernel_score(loaded))->name, "cap.c");
  fly_kernel_release(&loaded);

  /* The image of a modifier is none of a kernel; nor is one whose modifier is a mask. */
  fly_mask *inside = flyi_of_score(score);
  ck_assert_int_eq(fly_kernel_load(inside->bytes, inside->size, &loaded, &error), FLY_ERROR_IMAGE);
  flyi_image image = mask->image;
  flyi_bytes wrong;
  image.kernel = (fly_kernel_desc){FLY_INIT(fly_kernel_desc), .type = FLY_F32, .head_dim = 8, .value_dim = 8};
  image.score = (flyi_section){mask->bytes, mask->size};
  ck_fly_ok(flyi_image_write(&image, &wrong, &error), error);
  ck_assert_int_eq(fly_kernel_load(wrong.data, wrong.size, &loaded, &error), FLY_ERROR_IMAGE);
  flyi_bytes_free(&wrong);
  image = inside->image;
  image.kind = FLYI_MASK; /* its code has no tile function, it has no program */
  ck_fly_ok(flyi_image_write(&image, &wrong, &error), error);
  ck_assert_int_eq(flyi_image_read(wrong.data, wrong.size, &image, &error), FLY_ERROR_IMAGE);
  flyi_bytes_free(&wrong);
  fly_kernel_release(&kernel);
  fly_score_release(&score);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(failing_allocations_are_errors) {
  for (long nth = 1; nth < 400; nth++) {
    fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = ""};
    fly_score *score = NULL;
    fly_error error = {0};
    flyi_fail_allocation(nth);
    fly_status status = fly_score_compile(capped, "cap.c", &options, &score, &error);
    flyi_fail_allocation(0);
    ck_assert(status == FLY_OK ? score != NULL : score == NULL && error.message[0]);
    fly_score_release(&score);
    if (status == FLY_OK) return;
    if (nth > 40) nth += 4; /* each costs a run of clang */
  }
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("score");
  TCase *slopes = tcase_create("derivatives");
  tcase_add_loop_test(slopes, derivatives_are_those_of_central_differences, 0, 4);
  tcase_add_loop_test(slopes, functions_have_their_derivatives, 0, 18);
  tcase_add_test(slopes, doubles_integers_buffers_and_tokens);
  tcase_add_test(slopes, kinks_have_the_slope_that_is_documented);
  suite_add_tcase(suite, slopes);
  TCase *meaning = tcase_create("meaning");
  tcase_add_test(meaning, endless_loops_give_nan);
  tcase_add_test(meaning, indices_are_clamped_and_divisions_defined);
  tcase_add_test(meaning, info_says_what_a_modifier_reads);
  tcase_add_test(meaning, what_a_modifier_must_not_do_is_refused);
  tcase_add_test(meaning, a_function_of_ones_own_name_is_ones_own);
  tcase_add_test(meaning, masks_and_modifiers_are_told_apart);
  suite_add_tcase(suite, meaning);
  TCase *images = tcase_create("images");
  tcase_add_test(images, the_cache_keeps_modifiers);
  tcase_add_test(images, an_image_carries_the_modifier);
  tcase_add_test(images, failing_allocations_are_errors);
  suite_add_tcase(suite, images);
  return suite;
}

FLY_TEST_MAIN(make_suite)
