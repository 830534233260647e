/* test_cvt.c: conversions against exact arithmetic: every pair of integer types, floats to integers in every rounding
 * and with saturation, integers to floats, and the 16-bit formats and tf32. */
#include <stdio.h>

#include "exact.h"
#include "op.h"

__extension__ typedef __int128 wide;

static operands in;
static uint64_t out[OP_MOST];

typedef struct type {
  const char *name;
  int bits;
  bool is_signed;
} type;
static const type types[] = {{"u8", 8, false},   {"s8", 8, true},   {"u16", 16, false}, {"s16", 16, true},
                             {"u32", 32, false}, {"s32", 32, true}, {"u64", 64, false}, {"s64", 64, true}};
static char letter(int bits) { return bits <= 16 ? 'h' : bits == 32 ? 'r' : 'l'; }
static int reg_bits(int bits) { return bits <= 16 ? 16 : bits; }
static wide low(wide v, int bits) { return v & (((wide)1 << bits) - 1); }
static wide value(uint64_t v, const type *t) {
  wide x = low((wide)v, t->bits);
  return t->is_signed && x >> (t->bits - 1) ? x - ((wide)1 << t->bits) : x;
}
static wide least(const type *t) { return t->is_signed ? -((wide)1 << (t->bits - 1)) : 0; }
static wide most(const type *t) { return ((wide)1 << (t->bits - t->is_signed)) - 1; }
static wide clamp(wide v, const type *t) { return v < least(t) ? least(t) : v > most(t) ? most(t) : v; }

START_TEST(integers_truncate_extend_and_saturate) { /* _i: the source type */
  const type *from = &types[_i];
  operands_int(&in, 1 + (uint64_t)_i);
  for (int t = 0; t < 8; t++)
    for (int sat = 0; sat < 2; sat++) {
      const type *to = &types[t];
      if (sat && least(from) >= least(to) && most(from) <= most(to)) continue; /* nothing to saturate: not allowed */
      char text[60], l[3] = {letter(to->bits), letter(from->bits), 0};
      snprintf(text, sizeof text, "cvt%s.%s.%s %%d, %%a;", sat ? ".sat" : "", to->name, from->name);
      op_run(text, l, &in, out);
      for (int i = 0; i < in.count; i++) {
        wide v = value(in.a[i], from);
        if (sat) v = clamp(v, to);
        /* a narrower result is extended to its register by its sign */
        wide want = low(value((uint64_t)low(v, to->bits), to), reg_bits(to->bits));
        if ((wide)out[i] != want) ck_abort_msg("%s of %#lx: %#lx", text, in.a[i], out[i]);
      }
    }
}
END_TEST

static double round_to_int(double x, char mode) {
  double down = floor(x), rest = x - down;
  switch (mode) {
  case 'z':
    return x < 0 ? -floor(-x) : down;
  case 'm':
    return down;
  case 'p':
    return -floor(-x);
  default:
    return rest > 0.5 || (rest == 0.5 && fmod(down, 2) != 0) ? down + 1 : down;
  }
}

START_TEST(floats_to_integers_round_saturate_and_lose_nan) { /* _i: the integer type from u16 on */
  const type *to = &types[2 + _i];
  static const char modes[] = "nzmp";
  for (int f64 = 0; f64 < 2; f64++) {
    if (f64)
      operands_f64(&in, 31);
    else
      operands_f32(&in, 32);
    for (int m = 0; m < 4; m++) {
      char text[60], l[3] = {letter(to->bits), f64 ? 'g' : 'f', 0};
      snprintf(text, sizeof text, "cvt.r%ci.%s.f%d %%d, %%a;", modes[m], to->name, f64 ? 64 : 32);
      op_run(text, l, &in, out);
      for (int i = 0; i < in.count; i++) {
        double x = round_to_int(f64 ? f64_of(in.a[i]) : f32_of(in.a[i]), modes[m]);
        wide v = x != x ? 0 : x > 0x1p65 ? most(to) : x < -0x1p65 ? least(to) : clamp((wide)x, to);
        if ((wide)out[i] != low(v, to->bits)) ck_abort_msg("%s of %a: %#lx", text, x, out[i]);
      }
    }
  }
}
END_TEST

static exact exact_int(wide v) {
  uint64_t m = (uint64_t)(v < 0 ? -v : v);
  exact high = exact_of(ldexp((double)(m >> 32), 32)), sum = exact_add(high, exact_of((double)(m & 0xffffffff)));
  sum.minus = v < 0;
  return sum;
}

START_TEST(integers_to_floats_round_once) { /* _i: the integer type */
  const type *from = &types[_i];
  static const char modes[] = "nzmp";
  operands_int(&in, 41 + (uint64_t)_i);
  for (int f64 = 0; f64 < 2; f64++)
    for (int m = 0; m < 4; m++) {
      char text[60], l[3] = {f64 ? 'g' : 'f', letter(from->bits), 0};
      snprintf(text, sizeof text, "cvt.r%c.f%d.%s %%d, %%a;", modes[m], f64 ? 64 : 32, from->name);
      op_run(text, l, &in, out);
      for (int i = 0; i < in.count; i++) {
        exact v = exact_int(value(in.a[i], from));
        double want = f64 ? exact_round(&v, 53, -1022, 0x1.fffffffffffffp1023, modes[m]) : exact_f32(&v, modes[m]),
               got = f64 ? f64_of(out[i]) : f32_of(out[i]);
        if (!same_value(got, want)) ck_abort_msg("%s of %#lx: %a, not %a", text, in.a[i], got, want);
      }
    }
}
END_TEST

/* text rounds %a (f32 or f64) to the format that `read` reads and `round` rounds to */
static void narrow(const char *text, const char *letters, double (*round)(const exact *, char),
                   double (*read)(uint64_t), char mode, bool relu, bool finite, double top) {
  op_run(text, letters, &in, out);
  for (int i = 0; i < in.count; i++) {
    double x = letters[1] == 'g' ? f64_of(in.a[i]) : f32_of(in.a[i]), want = x;
    if (isfinite(x)) {
      exact v = exact_of(x);
      want = round(&v, mode);
    }
    if (relu && want <= 0) want = 0;
    if (finite && fabs(want) > top) want = copysign(top, want);
    if (!same_value(read(out[i]), want)) ck_abort_msg("%s of %a: %a, not %a", text, x, read(out[i]), want);
  }
}
static double read_f32(uint64_t bits) { return f32_of(bits); }
static double round_tf32(const exact *v, char mode) { return exact_round(v, 11, -126, 0x1.ffcp127, mode); }

START_TEST(narrower_floats_round_as_their_format_says) {
  operands_f32(&in, 51);
  narrow("cvt.rn.f16.f32 %d, %a;", "hf", exact_f16, value_f16, 'n', false, false, 0);
  narrow("cvt.rz.f16.f32 %d, %a;", "hf", exact_f16, value_f16, 'z', false, false, 0);
  narrow("cvt.rn.bf16.f32 %d, %a;", "hf", exact_bf16, value_bf16, 'n', false, false, 0);
  narrow("cvt.rz.bf16.f32 %d, %a;", "hf", exact_bf16, value_bf16, 'z', false, false, 0);
  narrow("cvt.rn.relu.f16.f32 %d, %a;", "hf", exact_f16, value_f16, 'n', true, false, 0);
  narrow("cvt.rna.tf32.f32 %d, %a;", "rf", round_tf32, read_f32, 'a', false, false, 0);
  operands_f64(&in, 52);
  narrow("cvt.rn.f32.f64 %d, %a;", "fg", exact_f32, read_f32, 'n', false, false, 0);
  narrow("cvt.rz.f32.f64 %d, %a;", "fg", exact_f32, read_f32, 'z', false, false, 0);
  narrow("cvt.rm.f32.f64 %d, %a;", "fg", exact_f32, read_f32, 'm', false, false, 0);
  narrow("cvt.rp.f32.f64 %d, %a;", "fg", exact_f32, read_f32, 'p', false, false, 0);
}
END_TEST

START_TEST(pairs_put_the_first_operand_on_top) { /* _i: 0 f16x2, 1 bf16x2 */
  static const char modes[] = "nz";
  operands_f32(&in, 61);
  for (int m = 0; m < 2; m++)
    for (int relu = 0; relu < 2; relu++) {
      char text[80];
      snprintf(text, sizeof text, "cvt.r%c%s.%sf16x2.f32 %%d, %%a, %%b;", modes[m], relu ? ".relu" : "", _i ? "b" : "");
      op_run(text, "rff", &in, out);
      for (int i = 0; i < in.count; i++)
        for (int h = 0; h < 2; h++) {
          double x = f32_of(h ? in.a[i] : in.b[i]), want = x,
                 got = _i ? value_bf16(out[i] >> (16 * h) & 0xffff) : value_f16(out[i] >> (16 * h) & 0xffff);
          if (isfinite(x)) {
            exact v = exact_of(x);
            want = _i ? exact_bf16(&v, modes[m]) : exact_f16(&v, modes[m]);
          }
          if (relu && want <= 0) want = 0;
          if (!same_value(got, want)) ck_abort_msg("%s, half %d of %a: %a, not %a", text, h, x, got, want);
        }
    }
}
END_TEST

START_TEST(wider_floats_are_exact) {
  operands_int(&in, 71);
  op_run("cvt.f32.f16 %d, %a;", "fh", &in, out);
  for (int i = 0; i < in.count; i++) ck_assert(same_value(f32_of(out[i]), value_f16(in.a[i] & 0xffff)));
  op_run("cvt.f32.bf16 %d, %a;", "fh", &in, out);
  for (int i = 0; i < in.count; i++) ck_assert(same_value(f32_of(out[i]), value_bf16(in.a[i] & 0xffff)));
  operands_f32(&in, 72);
  op_run("cvt.f64.f32 %d, %a;", "gf", &in, out);
  for (int i = 0; i < in.count; i++) ck_assert(same_value(f64_of(out[i]), f32_of(in.a[i])));
  op_run("cvt.rzi.f32.f32 %d, %a;", "ff", &in, out);
  for (int i = 0; i < in.count; i++)
    ck_assert(same_value(f32_of(out[i]), copysign(round_to_int(f32_of(in.a[i]), 'z'), f32_of(in.a[i]))) ||
              f32_of(in.a[i]) != f32_of(in.a[i]));
  op_run("cvt.sat.f32.f32 %d, %a;", "ff", &in, out);
  for (int i = 0; i < in.count; i++)
    ck_assert(same_value(f32_of(out[i]), f32_of(in.a[i]) > 0 ? fmin(f32_of(in.a[i]), 1) : 0));
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("simcuda.cvt");
  TCase *c = tcase_create("cvt");
  tcase_add_checked_fixture(c, gpu_start, gpu_stop);
  tcase_add_loop_test(c, integers_truncate_extend_and_saturate, 0, 8);
  tcase_add_loop_test(c, floats_to_integers_round_saturate_and_lose_nan, 0, 6);
  tcase_add_loop_test(c, integers_to_floats_round_once, 0, 8);
  tcase_add_test(c, narrower_floats_round_as_their_format_says);
  tcase_add_loop_test(c, pairs_put_the_first_operand_on_top, 0, 2);
  tcase_add_test(c, wider_floats_are_exact);
  suite_add_tcase(s, c);
  return s;
}
GPU_TEST_MAIN(suite)
