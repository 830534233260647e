/* test_int.c: integer instructions against arithmetic in 128 bits, bit by bit where the ISA says it so. */
#include <stdio.h>

#include "op.h"

__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 uwide;

static operands in;
static uint64_t out[OP_MOST];

/* Check's assertions are slow: one only where something differs. */
#define SAME(got, want)                                                                                                \
  do {                                                                                                                 \
    if ((got) != (want))                                                                                               \
      ck_abort_msg("line %d: operand set %d (%#lx, %#lx, %#lx): %#lx", __LINE__, i, in.a[i], in.b[i], in.c[i],         \
                   out[i]);                                                                                            \
  } while (0)

static uint64_t low(wide v, int bits) { return (uint64_t)((uwide)v & (((uwide)1 << bits) - 1)); }
static wide value(uint64_t v, int bits, bool is_signed) {
  wide x = (wide)low(v, bits);
  return is_signed && x >> (bits - 1) ? x - ((wide)1 << bits) : x;
}
static wide most(int bits, bool is_signed) { return ((wide)1 << (bits - is_signed)) - 1; }

typedef struct type {
  const char *name;
  int bits;
  bool is_signed;
} type;
static const type types[] = {{"u16", 16, false}, {"s16", 16, true},  {"u32", 32, false},
                             {"s32", 32, true},  {"u64", 64, false}, {"s64", 64, true}};
static char letter(int bits) { return bits == 16 ? 'h' : bits == 32 ? 'r' : 'l'; }

/* d, a, b, c: bits of each; formula: the exact value */
typedef wide formula(wide a, wide b, wide c, const type *t);
static void check(const char *pattern, const type *t, int d_bits, int c_bits, formula *f, bool skip_zero) {
  char text[100], letters[5] = {letter(d_bits), letter(t->bits), letter(t->bits), letter(c_bits), 0};
  snprintf(text, sizeof text, pattern, t->name);
  if (!strstr(text, "%c")) letters[3] = 0;
  if (!strstr(text, "%b")) letters[2] = 0;
  op_run(text, letters, &in, out);
  for (int i = 0; i < in.count; i++) {
    wide a = value(in.a[i], t->bits, t->is_signed), b = value(in.b[i], t->bits, t->is_signed),
         c = value(in.c[i], c_bits, t->is_signed);
    if (skip_zero && (b == 0 || (t->is_signed && b == -1 && a == -most(t->bits, true) - 1))) continue;
    uint64_t want = low(f(a, b, c, t), d_bits);
    if (out[i] != want)
      ck_abort_msg("%s of %#lx, %#lx, %#lx: %#lx, not %#lx", text, in.a[i], in.b[i], in.c[i], out[i], want);
  }
}

static wide f_add(wide a, wide b, wide c, const type *t) { return (void)c, (void)t, a + b; }
static wide f_sub(wide a, wide b, wide c, const type *t) { return (void)c, (void)t, a - b; }
static wide f_mul(wide a, wide b, wide c, const type *t) { return (void)c, (void)t, (wide)((uwide)a * (uwide)b); }
static wide f_mulhi(wide a, wide b, wide c, const type *t) {
  return (void)c, t->is_signed ? a * b >> t->bits : (wide)((uwide)a * (uwide)b >> t->bits);
}
static wide f_mad(wide a, wide b, wide c, const type *t) { return (void)t, (wide)((uwide)a * (uwide)b + (uwide)c); }
static wide f_madhi(wide a, wide b, wide c, const type *t) { return f_mulhi(a, b, 0, t) + c; }
static wide f_min(wide a, wide b, wide c, const type *t) { return (void)c, (void)t, a < b ? a : b; }
static wide f_max(wide a, wide b, wide c, const type *t) { return (void)c, (void)t, a > b ? a : b; }
static wide f_div(wide a, wide b, wide c, const type *t) { return (void)c, (void)t, a / b; }
static wide f_rem(wide a, wide b, wide c, const type *t) { return (void)c, (void)t, a % b; }
static wide f_sad(wide a, wide b, wide c, const type *t) { return (void)t, c + (a < b ? b - a : a - b); }
static wide f_abs(wide a, wide b, wide c, const type *t) { return (void)b, (void)c, (void)t, a < 0 ? -a : a; }
static wide f_neg(wide a, wide b, wide c, const type *t) { return (void)b, (void)c, (void)t, -a; }
static wide saturate(wide v) { return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v; }
static wide f_add_sat(wide a, wide b, wide c, const type *t) { return (void)c, (void)t, saturate(a + b); }
static wide f_sub_sat(wide a, wide b, wide c, const type *t) { return (void)c, (void)t, saturate(a - b); }

START_TEST(arithmetic_wraps_in_every_type) { /* _i: type */
  const type *t = &types[_i];
  operands_int(&in, 11 + (uint64_t)_i);
  check("add.%s %%d, %%a, %%b;", t, t->bits, t->bits, f_add, false);
  check("sub.%s %%d, %%a, %%b;", t, t->bits, t->bits, f_sub, false);
  check("mul.lo.%s %%d, %%a, %%b;", t, t->bits, t->bits, f_mul, false);
  check("mul.hi.%s %%d, %%a, %%b;", t, t->bits, t->bits, f_mulhi, false);
  check("mad.lo.%s %%d, %%a, %%b, %%c;", t, t->bits, t->bits, f_mad, false);
  check("min.%s %%d, %%a, %%b;", t, t->bits, t->bits, f_min, false);
  check("max.%s %%d, %%a, %%b;", t, t->bits, t->bits, f_max, false);
  check("div.%s %%d, %%a, %%b;", t, t->bits, t->bits, f_div, true);
  check("rem.%s %%d, %%a, %%b;", t, t->bits, t->bits, f_rem, true);
  check("sad.%s %%d, %%a, %%b, %%c;", t, t->bits, t->bits, f_sad, false);
  if (t->bits > 16) check("mad.hi.%s %%d, %%a, %%b, %%c;", t, t->bits, t->bits, f_madhi, false);
  if (t->bits < 64) {
    check("mul.wide.%s %%d, %%a, %%b;", t, 2 * t->bits, t->bits, f_mul, false);
    check("mad.wide.%s %%d, %%a, %%b, %%c;", t, 2 * t->bits, 2 * t->bits, f_mad, false);
  }
  if (t->is_signed) {
    check("abs.%s %%d, %%a;", t, t->bits, t->bits, f_abs, false);
    check("neg.%s %%d, %%a;", t, t->bits, t->bits, f_neg, false);
  }
  if (t->is_signed && t->bits == 32) {
    check("add.sat.%s %%d, %%a, %%b;", t, 32, 32, f_add_sat, false);
    check("sub.sat.%s %%d, %%a, %%b;", t, 32, 32, f_sub_sat, false);
  }
}
END_TEST

START_TEST(carries_chain_to_wider_sums_and_products) {
  operands_int(&in, 21);
  op_run("{.reg .b32 al, ah, bl, bh, cl, ch; mov.b64 {al, ah}, %a; mov.b64 {bl, bh}, %b; add.cc.u32 cl, al, bl; "
         "addc.u32 ch, ah, bh; mov.b64 %d, {cl, ch};}",
         "lll", &in, out);
  for (int i = 0; i < in.count; i++) SAME(out[i], in.a[i] + in.b[i]);
  op_run("{.reg .b32 al, ah, bl, bh, cl, ch; mov.b64 {al, ah}, %a; mov.b64 {bl, bh}, %b; sub.cc.u32 cl, al, bl; "
         "subc.u32 ch, ah, bh; mov.b64 %d, {cl, ch};}",
         "lll", &in, out);
  for (int i = 0; i < in.count; i++) SAME(out[i], in.a[i] - in.b[i]);
  /* the high half of 64 x 64 + 64 */
  op_run("{.reg .b64 t; mad.lo.cc.u64 t, %a, %b, %c; madc.hi.u64 %d, %a, %b, 0;}", "llll", &in, out);
  for (int i = 0; i < in.count; i++) SAME(out[i], (uint64_t)(((uwide)in.a[i] * in.b[i] + in.c[i]) >> 64));
}
END_TEST

/* --- bits, one at a time ------------------------------------------------------------------------- */
static bool bit(uint64_t v, long n) { return n >= 0 && n < 64 && v >> n & 1; }

START_TEST(logic_and_shifts) {
  operands_int(&in, 31);
  static const struct {
    const char *width;
    int bits;
  } w[] = {{"b16", 16}, {"b32", 32}, {"b64", 64}};
  for (int k = 0; k < 3; k++) {
    static const char ops[][4] = {"and", "or", "xor", "not"};
    int bits = w[k].bits;
    char text[80], l[5] = {letter(bits), letter(bits), letter(bits), 0};
    for (int op = 0; op < 4; op++) {
      snprintf(text, sizeof text, op < 3 ? "%s.%s %%d, %%a, %%b;" : "%s.%s %%d, %%a;", ops[op], w[k].width);
      op_run(text, l, &in, out);
      for (int i = 0; i < in.count; i++)
        for (int n = 0; n < 64; n++) {
          bool a = bit(in.a[i], n), b = bit(in.b[i], n),
               want = op == 0   ? a && b
                      : op == 1 ? a || b
                      : op == 2 ? a != b
                                : !a;
          SAME(bit(out[i], n), n < bits && want);
        }
    }
    for (int op = 0; op < 3; op++) { /* shl, logical and arithmetic shr: counts are not taken modulo the width */
      snprintf(text, sizeof text,
               op == 0   ? "shl.b%d %%d, %%a, %%b;"
               : op == 1 ? "shr.u%d %%d, %%a, %%b;"
                         : "shr.s%d %%d, %%a, %%b;",
               bits);
      l[2] = 'r';
      op_run(text, l, &in, out);
      for (int i = 0; i < in.count; i++) {
        long count = (long)(in.b[i] & 0xffffffff);
        for (int n = 0; n < bits; n++) {
          long from = op == 0 ? n - count : n + count;
          bool want = op == 2 && from >= bits ? bit(in.a[i], bits - 1) : from < bits && bit(in.a[i], from);
          SAME(bit(out[i], n), want);
        }
      }
    }
  }
}
END_TEST

START_TEST(lop3_follows_its_table) {
  static const int tables[] = {0x00, 0xff, 0x80, 0xfe, 0x96, 0xe8, 0xca, 0x6a, 0x1b};
  operands_int(&in, 41);
  for (int t = 0; t < 9; t++) {
    char text[80];
    snprintf(text, sizeof text, "lop3.b32 %%d, %%a, %%b, %%c, %d;", tables[t]);
    op_run(text, "rrrr", &in, out);
    for (int i = 0; i < in.count; i++)
      for (int n = 0; n < 32; n++)
        SAME(bit(out[i], n), tables[t] >> (4 * bit(in.a[i], n) + 2 * bit(in.b[i], n) + bit(in.c[i], n)) & 1);
  }
}
END_TEST

START_TEST(bit_fields_and_counts) {
  operands_int(&in, 51);
  for (int k = 0; k < 4; k++) { /* bfe of four types */
    int bits = k < 2 ? 32 : 64;
    bool is_signed = k & 1;
    char text[60], l[5] = {letter(bits), letter(bits), 'r', 'r', 0};
    snprintf(text, sizeof text, "bfe.%c%d %%d, %%a, %%b, %%c;", is_signed ? 's' : 'u', bits);
    op_run(text, l, &in, out);
    for (int i = 0; i < in.count; i++) {
      int pos = in.b[i] & 0xff, len = in.c[i] & 0xff, msb = bits - 1;
      bool sign = is_signed && len && bit(in.a[i], pos + len - 1 < msb ? pos + len - 1 : msb);
      for (int n = 0; n <= msb; n++) {
        bool want = n < len && pos + n <= msb ? bit(in.a[i], pos + n) : sign; /* the ISA's own loop */
        SAME(bit(out[i], n), want);
      }
    }
  }
  op_run("bfi.b32 %d, %a, %b, 5, 9;", "rrr", &in, out);
  for (int i = 0; i < in.count; i++) SAME(out[i], (in.b[i] & 0xffffc01f) | (in.a[i] & 0x1ff) << 5);
  op_run("{.reg .b32 p, n; mov.b64 {p, n}, %c; bfi.b64 %d, %a, %b, p, n;}", "llll", &in, out);
  for (int i = 0; i < in.count; i++) {
    int pos = in.c[i] & 0xff, len = in.c[i] >> 32 & 0xff;
    for (int n = 0; n < 64; n++)
      SAME(bit(out[i], n), n >= pos && n < pos + len ? bit(in.a[i], n - pos) : bit(in.b[i], n));
  }
  op_run("popc.b64 %d, %a;", "rl", &in, out);
  for (int i = 0; i < in.count; i++) {
    unsigned n = 0;
    for (int k = 0; k < 64; k++) n += bit(in.a[i], k);
    SAME(out[i], n);
  }
  for (int wide_ = 0; wide_ < 2; wide_++) {
    int bits = wide_ ? 64 : 32;
    char l[3] = {'r', letter(bits), 0};
    op_run(wide_ ? "clz.b64 %d, %a;" : "clz.b32 %d, %a;", l, &in, out);
    for (int i = 0; i < in.count; i++) {
      int n = 0;
      while (n < bits && !bit(in.a[i], bits - 1 - n)) n++;
      SAME((int)out[i], n);
    }
    for (int s = 0; s < 2; s++) {
      op_run(wide_ ? (s ? "bfind.s64 %d, %a;" : "bfind.u64 %d, %a;")
             : s   ? "bfind.s32 %d, %a;"
                   : "bfind.u32 %d, %a;",
             l, &in, out);
      for (int i = 0; i < in.count; i++) {
        int at = -1;
        for (int k = 0; k < bits; k++)
          if (bit(in.a[i], k) != (s && bit(in.a[i], bits - 1))) at = k;
        SAME((int32_t)out[i], at);
      }
    }
    l[0] = l[1];
    op_run(wide_ ? "brev.b64 %d, %a;" : "brev.b32 %d, %a;", l, &in, out);
    for (int i = 0; i < in.count; i++)
      for (int k = 0; k < bits; k++) SAME(bit(out[i], k), bit(in.a[i], bits - 1 - k));
  }
}
END_TEST

static unsigned byte_of(uint64_t a, uint64_t b, int n) { return (n < 4 ? a >> (8 * n) : b >> (8 * (n - 4))) & 0xff; }

START_TEST(permutations_of_bytes) {
  operands_int(&in, 61);
  op_run("prmt.b32 %d, %a, %b, %c;", "rrrr", &in, out);
  for (int i = 0; i < in.count; i++)
    for (int k = 0; k < 4; k++) {
      unsigned s = in.c[i] >> (4 * k) & 15, v = byte_of(in.a[i], in.b[i], s & 7);
      if (s & 8) v = v & 0x80 ? 0xff : 0;
      SAME(out[i] >> (8 * k) & 0xff, v);
    }
  static const struct {
    const char *mode;
    char bytes[4][5]; /* selector 0 .. 3: sources of byte 3, 2, 1, 0, as the ISA's table prints them */
  } modes[] = {{"f4e", {"3210", "4321", "5432", "6543"}}, {"b4e", {"5670", "6701", "7012", "0123"}},
               {"rc8", {"0000", "1111", "2222", "3333"}}, {"ecl", {"3210", "3211", "3222", "3333"}},
               {"ecr", {"0000", "1110", "2210", "3210"}}, {"rc16", {"1010", "3232", "1010", "3232"}}};
  for (int m = 0; m < 6; m++) {
    char text[60];
    snprintf(text, sizeof text, "prmt.b32.%s %%d, %%a, %%b, %%c;", modes[m].mode);
    op_run(text, "rrrr", &in, out);
    for (int i = 0; i < in.count; i++)
      for (int k = 0; k < 4; k++)
        SAME(out[i] >> (8 * k) & 0xff, byte_of(in.a[i], in.b[i], modes[m].bytes[in.c[i] & 3][3 - k] - '0'));
  }
}
END_TEST

START_TEST(funnel_shifts_and_masks) {
  operands_int(&in, 71);
  static const char *const forms[] = {"l.wrap", "r.wrap", "l.clamp", "r.clamp"};
  for (int f = 0; f < 4; f++) {
    char text[60];
    snprintf(text, sizeof text, "shf.%s.b32 %%d, %%a, %%b, %%c;", forms[f]);
    op_run(text, "rrrr", &in, out);
    for (int i = 0; i < in.count; i++) {
      uint64_t c = in.c[i] & 0xffffffff, both = (in.b[i] & 0xffffffff) << 32 | (in.a[i] & 0xffffffff);
      int n = f < 2 ? (int)(c & 31) : c > 32 ? 32 : (int)c;
      for (int k = 0; k < 32; k++) SAME(bit(out[i], k), f & 1 ? bit(both, k + n) : bit(both, 32 + k - n));
    }
  }
  op_run("bmsk.clamp.b32 %d, %a, %b;", "rrr", &in, out);
  for (int i = 0; i < in.count; i++) {
    uint64_t a = in.a[i] & 0xffffffff, b = in.b[i] & 0xffffffff;
    for (int k = 0; k < 32; k++) SAME(bit(out[i], k), (uint64_t)k >= a && (uint64_t)k - a < b);
  }
  op_run("dp4a.s32.u32 %d, %a, %b, %c;", "rrrr", &in, out);
  for (int i = 0; i < in.count; i++) {
    int64_t sum = (int64_t)(in.c[i] & 0xffffffff);
    for (int k = 0; k < 4; k++) sum += (int64_t)(int8_t)(in.a[i] >> (8 * k)) * (uint8_t)(in.b[i] >> (8 * k));
    SAME(out[i], (uint32_t)sum);
  }
}
END_TEST

START_TEST(comparisons_and_selections) {
  static const char *const names[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  operands_int(&in, 81);
  for (int t = 0; t < 6; t++)
    for (int c = 0; c < 6; c++) {
      char text[80], l[4] = {'p', letter(types[t].bits), letter(types[t].bits), 0};
      snprintf(text, sizeof text, "setp.%s.%s %%d, %%a, %%b;", names[c], types[t].name);
      op_run(text, l, &in, out);
      for (int i = 0; i < in.count; i++) {
        wide a = value(in.a[i], types[t].bits, types[t].is_signed),
             b = value(in.b[i], types[t].bits, types[t].is_signed);
        bool want[] = {a == b, a != b, a<b, a <= b, a> b, a >= b};
        if (out[i] != want[c]) ck_abort_msg("%s of %#lx, %#lx", text, in.a[i], in.b[i]);
      }
    }
  /* with a predicate, its negation, and two results */
  op_run("setp.lt.and.s32 %d, %a, %b, %c;", "prrp", &in, out);
  for (int i = 0; i < in.count; i++) SAME(out[i], (int32_t)in.a[i] < (int32_t)in.b[i] && (in.c[i] & 1));
  op_run("setp.lt.xor.s32 %d, %a, %b, !%c;", "prrp", &in, out);
  for (int i = 0; i < in.count; i++) SAME(out[i], ((int32_t)in.a[i] < (int32_t)in.b[i]) != !(in.c[i] & 1));
  op_run("{.reg .pred s; setp.hi.or.u32 s|%d, %a, %b, %c;}", "prrp", &in, out);
  for (int i = 0; i < in.count; i++) SAME(out[i], !((uint32_t)in.a[i] > (uint32_t)in.b[i]) || (in.c[i] & 1));
  op_run("selp.b64 %d, %a, %b, %c;", "lllp", &in, out);
  for (int i = 0; i < in.count; i++) SAME(out[i], in.c[i] & 1 ? in.a[i] : in.b[i]);
  op_run("slct.b32.s32 %d, %a, %b, %c;", "rrrr", &in, out);
  for (int i = 0; i < in.count; i++) SAME(out[i], (uint32_t)((int32_t)in.c[i] >= 0 ? in.a[i] : in.b[i]));
  op_run("set.ge.u32.s32 %d, %a, %b;", "rrr", &in, out);
  for (int i = 0; i < in.count; i++) SAME(out[i], (int32_t)in.a[i] >= (int32_t)in.b[i] ? 0xffffffff : 0);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("simcuda.int");
  TCase *c = tcase_create("integer");
  tcase_add_checked_fixture(c, gpu_start, gpu_stop);
  tcase_add_loop_test(c, arithmetic_wraps_in_every_type, 0, 6);
  tcase_add_test(c, carries_chain_to_wider_sums_and_products);
  tcase_add_test(c, logic_and_shifts);
  tcase_add_test(c, lop3_follows_its_table);
  tcase_add_test(c, bit_fields_and_counts);
  tcase_add_test(c, permutations_of_bytes);
  tcase_add_test(c, funnel_shifts_and_masks);
  tcase_add_test(c, comparisons_and_selections);
  suite_add_tcase(s, c);
  return s;
}
GPU_TEST_MAIN(suite)
