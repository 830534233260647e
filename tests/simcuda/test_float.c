/* test_float.c: f32, f64 and 16-bit arithmetic. Sums and products are compared with exact integers rounded by the
 * letter (exact.h), approximations with the C library in double under the ISA's error bounds. */
#include <stdio.h>

#include "exact.h"
#include "op.h"

static operands in;
static uint64_t out[OP_MOST];

static double flushed(double x, bool ftz) { return ftz && fabs(x) < 0x1p-126 ? copysign(0, x) : x; }

/* op: + - * f. The zero that an exact cancellation leaves is -0 only when rounding down. */
static double reference(char op, double a, double b, double c, char mode, bool ftz) {
  a = flushed(a, ftz), b = flushed(b, ftz), c = flushed(c, ftz);
  double x = op == '*' || op == 'f' ? a * b : a, y = op == '-' ? -b : op == '+' ? b : op == 'f' ? c : copysign(0, x);
  if (!isfinite(x) || !isfinite(y)) return x + y; /* infinities and NaN as in C */
  exact sum = exact_add(exact_of(x), exact_of(y));
  if (exact_top(&sum) < 0) sum.minus = signbit(x) == signbit(y) ? signbit(x) : mode == 'm';
  return flushed(exact_f32(&sum, mode), ftz);
}

START_TEST(f32_sums_and_products_round_as_ieee_says) { /* _i: operation */
  static const char *const names[] = {"add", "sub", "mul", "fma"};
  static const char ops[] = "+-*f", modes[] = "nzmp";
  operands_f32(&in, 100 + (uint64_t)_i);
  for (int m = 0; m < 4; m++)
    for (int ftz = 0; ftz < 2; ftz++) {
      char text[80];
      snprintf(text, sizeof text, _i == 3 ? "%s.r%c%s.f32 %%d, %%a, %%b, %%c;" : "%s.r%c%s.f32 %%d, %%a, %%b;",
               names[_i], modes[m], ftz ? ".ftz" : "");
      op_run(text, _i == 3 ? "ffff" : "fff", &in, out);
      for (int i = 0; i < in.count; i++) {
        double want = reference(ops[_i], f32_of(in.a[i]), f32_of(in.b[i]), f32_of(in.c[i]), modes[m], ftz);
        if (!same_value(f32_of(out[i]), want))
          ck_abort_msg("%s of %a, %a, %a: %a, not %a", text, f32_of(in.a[i]), f32_of(in.b[i]), f32_of(in.c[i]),
                       f32_of(out[i]), want);
        if (want != want) ck_assert_uint_eq(out[i], 0x7fffffff); /* the canonical NaN */
      }
    }
}
END_TEST

START_TEST(saturation_clamps_to_zero_and_one) {
  operands_f32(&in, 200);
  op_run("fma.rn.sat.f32 %d, %a, %b, %c;", "ffff", &in, out);
  for (int i = 0; i < in.count; i++) {
    double v = reference('f', f32_of(in.a[i]), f32_of(in.b[i]), f32_of(in.c[i]), 'n', false),
           want = v > 0 ? fmin(v, 1) : 0;
    if (!same_value(f32_of(out[i]), want))
      ck_abort_msg("%a, %a, %a: %a, not %a", f32_of(in.a[i]), f32_of(in.b[i]), f32_of(in.c[i]), f32_of(out[i]), want);
  }
}
END_TEST

/* 754's minimumNumber with -0 below +0 */
static double lesser(double a, double b, bool greater) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return (signbit(a) != 0) != greater ? a : b;
  return (a < b) != greater ? a : b;
}

START_TEST(minimum_maximum_and_signs) {
  operands_f32(&in, 300);
  for (int k = 0; k < 4; k++) {
    bool max = k & 1, nan = k & 2;
    char text[60];
    snprintf(text, sizeof text, "%s%s.f32 %%d, %%a, %%b;", max ? "max" : "min", nan ? ".NaN" : "");
    op_run(text, "fff", &in, out);
    for (int i = 0; i < in.count; i++) {
      double a = f32_of(in.a[i]), b = f32_of(in.b[i]), want = nan && (a != a || b != b) ? NAN : lesser(a, b, max);
      if (!same_value(f32_of(out[i]), want)) ck_abort_msg("%s of %a, %a: %a", text, a, b, f32_of(out[i]));
    }
  }
  op_run("abs.f32 %d, %a;", "ff", &in, out);
  for (int i = 0; i < in.count; i++)
    ck_assert(same_value(f32_of(out[i]), fabs(f32_of(in.a[i]))) || f32_of(in.a[i]) != f32_of(in.a[i]));
  op_run("neg.ftz.f32 %d, %a;", "ff", &in, out);
  for (int i = 0; i < in.count; i++) ck_assert(same_value(f32_of(out[i]), -flushed(f32_of(in.a[i]), true)));
  op_run("copysign.f32 %d, %a, %b;", "fff", &in, out);
  for (int i = 0; i < in.count; i++)
    ck_assert_uint_eq(out[i], (in.a[i] & 0x80000000) | (in.b[i] & 0x7fffffff)); /* a's sign, b's value */
}
END_TEST

START_TEST(float_comparisons_and_unordered_ones) {
  static const char *const names[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                      "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
  for (int f64 = 0; f64 < 2; f64++) {
    if (f64)
      operands_f64(&in, 400);
    else
      operands_f32(&in, 401);
    for (int k = 0; k < 14; k++) {
      char text[60];
      snprintf(text, sizeof text, "setp.%s.f%d %%d, %%a, %%b;", names[k], f64 ? 64 : 32);
      op_run(text, f64 ? "pgg" : "pff", &in, out);
      for (int i = 0; i < in.count; i++) {
        double a = f64 ? f64_of(in.a[i]) : f32_of(in.a[i]), b = f64 ? f64_of(in.b[i]) : f32_of(in.b[i]);
        bool un = a != a || b != b, base[] = {a == b, a != b && !un, a<b, a <= b, a> b, a >= b},
             want = k < 6     ? base[k]
                    : k < 12  ? base[k - 6] || un
                    : k == 12 ? !un
                              : un;
        if (out[i] != want) ck_abort_msg("%s of %a, %a", text, a, b);
      }
    }
  }
}
END_TEST

START_TEST(division_and_roots_are_correctly_rounded) {
  operands_f32(&in, 500);
  op_run("div.rn.f32 %d, %a, %b;", "fff", &in, out);
  for (int i = 0; i < in.count; i++) { /* 53 bits are enough to round twice, subnormal results aside */
    double q = (double)f32_of(in.a[i]) / f32_of(in.b[i]);
    if (fabs(q) > 0x1p-126 || q == 0 || q != q) ck_assert(same_value(f32_of(out[i]), (float)q));
  }
  op_run("sqrt.rn.f32 %d, %a;", "ff", &in, out);
  for (int i = 0; i < in.count; i++) ck_assert(same_value(f32_of(out[i]), (float)sqrt(f32_of(in.a[i]))));
  op_run("rcp.rn.f32 %d, %a;", "ff", &in, out);
  for (int i = 0; i < in.count; i++) {
    double q = 1 / (double)f32_of(in.a[i]);
    if (fabs(q) > 0x1p-126 || q == 0 || q != q) ck_assert(same_value(f32_of(out[i]), (float)q));
  }
  operands_f64(&in, 501);
  static const char *const texts[] = {"add.rn.f64 %d, %a, %b;", "mul.rn.f64 %d, %a, %b;", "div.rn.f64 %d, %a, %b;",
                                      "fma.rn.f64 %d, %a, %b, %c;", "sqrt.rn.f64 %d, %a;"};
  for (int k = 0; k < 5; k++) {
    op_run(texts[k], k == 3 ? "gggg" : k == 4 ? "gg" : "ggg", &in, out);
    for (int i = 0; i < in.count; i++) {
      volatile double a = f64_of(in.a[i]), b = f64_of(in.b[i]), c = f64_of(in.c[i]);
      double want[] = {a + b, a * b, a / b, fma(a, b, c), sqrt(a)};
      ck_assert_msg(same_value(f64_of(out[i]), want[k]), "%s of %a, %a", texts[k], a, b);
    }
  }
}
END_TEST

/* The ISA's bounds, in ulps of the result or as an absolute error. */
START_TEST(approximations_stay_within_the_bounds_of_the_isa) {
  static const struct {
    const char *text;
    double (*f)(double);
    double relative, absolute;
  } table[] = {
      {"ex2.approx.ftz.f32 %d, %a;", exp2, 0x1p-22, 0}, {"lg2.approx.ftz.f32 %d, %a;", log2, 0x1p-22, 0x1p-22},
      {"sin.approx.f32 %d, %a;", sin, 0, 0x1p-20},      {"cos.approx.f32 %d, %a;", cos, 0, 0x1p-20},
      {"sqrt.approx.f32 %d, %a;", sqrt, 0x1p-23, 0},    {"tanh.approx.f32 %d, %a;", tanh, 0x1p-11, 0},
  };
  operands_f32(&in, 600);
  for (int k = 0; k < 6; k++) {
    op_run(table[k].text, "ff", &in, out);
    for (int i = 0; i < in.count; i++) {
      bool ftz = strstr(table[k].text, "ftz") != NULL;
      double x = flushed(f32_of(in.a[i]), ftz), want = table[k].f(x), got = f32_of(out[i]);
      if ((k == 2 || k == 3) && !(fabs(x) <= 3.14159)) continue;
      want = flushed(fabs(want) > 0x1.fffffep127 ? copysign(INFINITY, want) : want, ftz);
      if (isfinite(want) ? !(fabs(got - want) <= fabs(want) * table[k].relative + table[k].absolute + 0x1p-149)
                         : !same_value(got, want))
        ck_abort_msg("%s of %a: %a, not %a", table[k].text, x, got, want);
    }
  }
  op_run("rcp.approx.ftz.f32 %d, %a;", "ff", &in, out);
  for (int i = 0; i < in.count; i++) {
    double x = flushed(f32_of(in.a[i]), true), want = flushed(1 / x, true);
    ck_assert(isfinite(want) && fabs(want) < 0x1p128 ? fabs(f32_of(out[i]) - want) <= fabs(want) * 0x1p-23
                                                     : same_value(f32_of(out[i]), (float)want));
  }
  op_run("rsqrt.approx.f32 %d, %a;", "ff", &in, out);
  for (int i = 0; i < in.count; i++) {
    double want = 1 / sqrt(f32_of(in.a[i]));
    ck_assert(isfinite(want) ? fabs(f32_of(out[i]) - want) <= want * 0x1p-22 : same_value(f32_of(out[i]), want));
  }
}
END_TEST

/* --- 16 bits ------------------------------------------------------------------------------------- */
static double value_16(uint64_t h, bool bf16) { return bf16 ? value_bf16(h) : value_f16(h); }
static double reference_16(char op, double a, double b, double c, bool bf16) {
  double x = op == '*' || op == 'f' ? a * b : a, y = op == '-' ? -b : op == '+' ? b : op == 'f' ? c : copysign(0, x);
  if (!isfinite(x) || !isfinite(y)) return x + y;
  exact sum = exact_add(exact_of(x), exact_of(y));
  if (exact_top(&sum) < 0) sum.minus = signbit(x) && signbit(y);
  return bf16 ? exact_bf16(&sum, 'n') : exact_f16(&sum, 'n');
}

START_TEST(half_precision_rounds_once) { /* _i: 0 f16, 1 bf16 (sm_90), their pairs too */
  static const char *const names[] = {"add", "sub", "mul", "fma"};
  const char *type = _i ? "bf16" : "f16";
  operands_16(&in, 700 + (uint64_t)_i, _i);
  for (int op = 0; op < 4; op++) {
    char text[100];
    snprintf(text, sizeof text, op == 3 ? "%s.rn.%s %%d, %%a, %%b, %%c;" : "%s.rn.%s %%d, %%a, %%b;", names[op], type);
    simcuda_config config;
    simcuda_get_config(&config);
    config.arch = 90;
    simcuda_set_config(&config);
    ck_cu(op_try(text, op == 3 ? "hhhh" : "hhh", &in, out, 90));
    for (int i = 0; i < in.count; i++) {
      double a = value_16(in.a[i] & 0xffff, _i), b = value_16(in.b[i] & 0xffff, _i), c = value_16(in.c[i] & 0xffff, _i),
             want = reference_16("+-*f"[op], a, b, c, _i);
      if (!same_value(value_16(out[i], _i), want))
        ck_abort_msg("%s of %a, %a, %a: %a, not %a", text, a, b, c, value_16(out[i], _i), want);
    }
    if (op != 3) continue;
    operands pair = in; /* the halves of a packed operand do not touch each other */
    for (int i = 0; i < in.count; i++) {
      pair.a[i] = (in.a[i] & 0xffff) | (in.b[i] & 0xffff) << 16;
      pair.b[i] = (in.b[i] & 0xffff) | (in.c[i] & 0xffff) << 16;
      pair.c[i] = (in.c[i] & 0xffff) | (in.a[i] & 0xffff) << 16;
    }
    snprintf(text, sizeof text, "fma.rn.relu.%sx2 %%d, %%a, %%b, %%c;", type);
    op_run(text, "rrrr", &pair, out);
    for (int i = 0; i < in.count; i++)
      for (int h = 0; h < 32; h += 16) {
        double want = reference_16('f', value_16(pair.a[i] >> h & 0xffff, _i), value_16(pair.b[i] >> h & 0xffff, _i),
                                   value_16(pair.c[i] >> h & 0xffff, _i), _i);
        if (want <= 0) want = 0;
        if (!same_value(value_16(out[i] >> h & 0xffff, _i), want)) ck_abort_msg("%s: %#lx", text, out[i]);
      }
  }
}
END_TEST

START_TEST(half_precision_selects_and_compares) {
  operands_16(&in, 800, false);
  op_run("max.f16 %d, %a, %b;", "hhh", &in, out);
  for (int i = 0; i < in.count; i++)
    ck_assert(same_value(value_f16(out[i]), lesser(value_f16(in.a[i] & 0xffff), value_f16(in.b[i] & 0xffff), true)));
  op_run("setp.le.f16 %d, %a, %b;", "phh", &in, out);
  for (int i = 0; i < in.count; i++)
    ck_assert_uint_eq(out[i], value_f16(in.a[i] & 0xffff) <= value_f16(in.b[i] & 0xffff));
  op_run("neg.f16x2 %d, %a;", "rr", &in, out);
  for (int i = 0; i < in.count; i++) ck_assert_uint_eq(out[i], ((in.a[i] & 0xffffffff) ^ 0x80008000));
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("simcuda.float");
  TCase *c = tcase_create("float");
  tcase_add_checked_fixture(c, gpu_start, gpu_stop);
  tcase_add_loop_test(c, f32_sums_and_products_round_as_ieee_says, 0, 4);
  tcase_add_test(c, saturation_clamps_to_zero_and_one);
  tcase_add_test(c, minimum_maximum_and_signs);
  tcase_add_test(c, float_comparisons_and_unordered_ones);
  tcase_add_test(c, division_and_roots_are_correctly_rounded);
  tcase_add_test(c, approximations_stay_within_the_bounds_of_the_isa);
  tcase_add_loop_test(c, half_precision_rounds_once, 0, 2);
  tcase_add_test(c, half_precision_selects_and_compares);
  suite_add_tcase(s, c);
  return s;
}
GPU_TEST_MAIN(suite)
