/* The functions that score modifiers may call are as exact as score_math.c says, over the whole range of float, with
 * and without fused multiply-adds, and right for special arguments. The reference is the C library in double precision.
 * FLYMASK_EXHAUSTIVE=1: every float, for tanhf. */
#include <dlfcn.h>

#include "support.h"

typedef float function(float x);
typedef double reference(double x);

static const struct {
  const char *name;
  reference *exact;
  double most; /* ulp */
} functions[] = {{"expf", exp, 1.1},   {"exp2f", exp2, 1.2},   {"expm1f", expm1, 1.6}, {"logf", log, 0.9},
                 {"log2f", log2, 2.0}, {"log1pf", log1p, 1.0}, {"sinf", sin, 1.6},     {"cosf", cos, 1.6},
                 {"tanhf", tanh, 2.5}, {"sqrtf", sqrt, 0.5},   {"fabsf", fabs, 0},     {"floorf", floor, 0},
                 {"ceilf", ceil, 0},   {"truncf", trunc, 0},   {"roundf", round, 0},   {"rintf", rint, 0}};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static float from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* The two builds: without and with FMA (where this machine has it). */
static void *open_build(int i) {
  char path[512];
  if (i == 1 && !fly_cpu_targets()[1]) return NULL; /* x86-64 alone */
  snprintf(path, sizeof path, "%s/tests/score_math_%s.so", FLYMASK_BUILD, i ? "fused" : "plain");
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(handle != NULL, "%s", dlerror());
  return handle;
}

static void *symbol(void *handle, const char *name) {
  char full[64];
  snprintf(full, sizeof full, "fly_math_%s", name);
  void *at = dlsym(handle, full);
  ck_assert_msg(at != NULL, "%s", full);
  return at;
}

/* The distance of floats at x. */
static double ulp(double x) {
  x = fabs(x);
  return x < 0x1p-126 ? 0x1p-149 : ldexp(1, ilogb(x) - 23);
}

/* Halfway from the largest float to what would follow it, and what an error of `most` ulp makes of that. */
static bool overflows(double exact, double most) { return fabs(exact) >= 0x1.ffffffp127 - most * 0x1p104; }

static void check(const char *name, float x, float got, double exact, double most) {
  if (isnan(exact)) {
    ck_assert_msg(isnan(got), "%s(%a) is %a, not NaN", name, x, got);
    return;
  }
  if (isinf(exact) || isinf(got)) {
    ck_assert_msg(got == (float)exact || (!isinf(exact) && overflows(exact, most)), "%s(%a) is %a, not %a", name, x,
                  got, exact);
    return;
  }
  ck_assert_msg(fabs(got - exact) <= most * ulp(exact), "%s(%a) is %a, not %a within %g ulp: %g", name, x, got, exact,
                most, fabs(got - exact) / ulp(exact));
  if (exact == 0) ck_assert_msg(!signbit(got) == !signbit(exact), "%s(%a) is %a", name, x, got);
}

static void check_range(int i, uint64_t step) {
  for (int build = 0; build < 2; build++) {
    void *handle = open_build(build);
    if (!handle) continue;
    function *f;
    *(void **)&f = symbol(handle, functions[i].name);
    for (uint64_t bits = 0; bits < 1ull << 32; bits += step) {
      float x = from_bits((uint32_t)bits);
      check(functions[i].name, x, f(x), functions[i].exact(x), functions[i].most);
    }
    dlclose(handle);
  }
}

START_TEST(whole_range) { check_range(_i, 16411); }
END_TEST

START_TEST(special_arguments) {
  static const float at[] = {0,
                             1,
                             0.5f,
                             0x1p-149f,
                             0x1p-126f,
                             0x1.fffffep-127f,
                             0x1.fffffep127f,
                             INFINITY,
                             88.7228f,
                             88.7229f,
                             103.97f,
                             104,
                             127.99999f,
                             128,
                             149,
                             150,
                             0x1p22f,
                             0x1p23f,
                             0x1.000002p23f,
                             8388607.5f,
                             4194303.5f,
                             1.5f,
                             2.5f,
                             0.49999997f,
                             1.57079637f,
                             3.14159274f,
                             0x1p-7f};
  for (int build = 0; build < 2; build++) {
    void *handle = open_build(build);
    if (!handle) continue;
    function *f;
    *(void **)&f = symbol(handle, functions[_i].name);
    for (size_t k = 0; k < 2 * sizeof at / sizeof *at; k++) {
      float x = k % 2 ? -at[k / 2] : at[k / 2];
      check(functions[_i].name, x, f(x), functions[_i].exact(x), functions[_i].most);
    }
    ck_assert(isnan(f(NAN)) && isnan(f(-NAN)) && isnan(f(from_bits(0x7f800001))));
    dlclose(handle);
  }
}
END_TEST

START_TEST(powers) {
  static const float at[] = {0,    1,     2,        3,          0.5f, 0.3f,      0x1p-149f, INFINITY, NAN,
                             1e30, 1e-30, 16777215, 16777217.f, 2.5f, 8388609.f, 3e38f,     33,       0.99999994f};
  enum { AT = sizeof at / sizeof *at };
  test_random random = {5};
  for (int build = 0; build < 2; build++) {
    void *handle = open_build(build);
    if (!handle) continue;
    float (*f)(float x, float y);
    *(void **)&f = symbol(handle, "powf");
    for (int i = 0; i < 2 * AT; i++)
      for (int j = 0; j < 2 * AT; j++) {
        float x = i % 2 ? -at[i / 2] : at[i / 2], y = j % 2 ? -at[j / 2] : at[j / 2];
        check("powf", x, f(x, y), pow(x, y), 0.6);
      }
    for (int i = 0; i < 500000; i++) {
      float x = from_bits((uint32_t)test_next(&random) & 0x7fffffff), y = (float)(4 * test_normal(&random));
      check("powf", x, f(x, y), pow(x, y), 0.6);
    }
    dlclose(handle);
  }
}
END_TEST

START_TEST(two_arguments) {
  static const float at[] = {0, -0.f, 1, -1, 2, INFINITY, -INFINITY, NAN, 0x1p-149f};
  enum { AT = sizeof at / sizeof *at };
  void *handle = open_build(0);
  float (*copy)(float x, float y), (*least)(float x, float y), (*most)(float x, float y);
  *(void **)&copy = symbol(handle, "copysignf");
  *(void **)&least = symbol(handle, "fminf"), *(void **)&most = symbol(handle, "fmaxf");
  for (int i = 0; i < AT; i++)
    for (int j = 0; j < AT; j++) {
      float x = at[i], y = at[j], z = copy(x, y);
      ck_assert((isnan(x) ? isnan(z) : z == copysignf(x, y)) && !signbit(z) == !signbit(y));
      ck_assert(isnan(x) && isnan(y) ? isnan(least(x, y)) : least(x, y) == fminf(x, y));
      ck_assert(isnan(x) && isnan(y) ? isnan(most(x, y)) : most(x, y) == fmaxf(x, y));
    }
  dlclose(handle);
}
END_TEST

START_TEST(every_float) {
  if (getenv("FLYMASK_EXHAUSTIVE")) check_range(8, 1);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("score_math");
  TCase *tests = tcase_create("math");
  tcase_add_loop_test(tests, whole_range, 0, FUNCTIONS);
  tcase_add_loop_test(tests, special_arguments, 0, FUNCTIONS);
  tcase_add_test(tests, powers);
  tcase_add_test(tests, two_arguments);
  suite_add_tcase(suite, tests);
  TCase *exhaustive = tcase_create("exhaustive");
  tcase_add_test(exhaustive, every_float);
  suite_add_tcase(suite, exhaustive);
  return suite;
}

FLY_TEST_MAIN(make_suite)
