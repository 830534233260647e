/* Transfer functions: every interval holds every concrete result, and single values give single values.
 *
 * The concrete results are computed by support/interpret.c from C's own operators on unsigned numbers of the width. */
#include "interpret.h"

#include "runtime/interval.h"
#include "runtime/pyramid.h"

/* Two operations that programs do not have. */
enum { OP_ROUND = FLYI_OP_LIMIT, OP_NOT };

static const struct {
  int op;
  const char *name;
} ops[] = {{FLYI_OP_ADD, "add"},   {FLYI_OP_SUB, "sub"},   {FLYI_OP_MUL, "mul"},           {FLYI_OP_UDIV, "udiv"},
           {FLYI_OP_SDIV, "sdiv"}, {FLYI_OP_UREM, "urem"}, {FLYI_OP_SREM, "srem"},         {FLYI_OP_SHL, "shl"},
           {FLYI_OP_LSHR, "lshr"}, {FLYI_OP_ASHR, "ashr"}, {FLYI_OP_AND, "and"},           {FLYI_OP_OR, "or"},
           {FLYI_OP_XOR, "xor"},   {FLYI_OP_SMAX, "smax"}, {FLYI_OP_SMIN, "smin"},         {FLYI_OP_UMAX, "umax"},
           {FLYI_OP_UMIN, "umin"}, {FLYI_OP_ABS, "abs"},   {FLYI_OP_POPCOUNT, "popcount"}, {FLYI_OP_CTLZ, "ctlz"},
           {FLYI_OP_CTTZ, "cttz"}, {FLYI_OP_ZEXT, "zext"}, {FLYI_OP_SEXT, "sext"},         {FLYI_OP_TRUNC, "trunc"},
           {FLYI_OP_EQ, "equal"},  {FLYI_OP_SLT, "less"},  {FLYI_OP_ULT, "below"},         {OP_ROUND, "round"},
           {OP_NOT, "not"}};
enum { OPS = sizeof ops / sizeof *ops };

static bool result(int op, int w, int to, int64_t a, int64_t b, int64_t *out) {
  if (op == OP_ROUND) return *out = a - a % b, true;
  if (op == OP_NOT) return *out = !a, true;
  return concrete((flyi_op)op, to, w, a, b, out);
}

static flyi_interval transfer(int op, int w, int to, flyi_interval a, flyi_interval b) {
  switch (op) {
  case FLYI_OP_ADD:
    return flyi_add(w, a, b);
  case FLYI_OP_SUB:
    return flyi_sub(w, a, b);
  case FLYI_OP_MUL:
    return flyi_mul(w, a, b);
  case FLYI_OP_SDIV:
    return flyi_sdiv(w, a, b);
  case FLYI_OP_SREM:
    return flyi_srem(w, a, b);
  case FLYI_OP_UDIV:
    return flyi_udiv(w, a, b);
  case FLYI_OP_UREM:
    return flyi_urem(w, a, b);
  case FLYI_OP_SHL:
    return flyi_shl(w, a, b);
  case FLYI_OP_LSHR:
    return flyi_lshr(w, a, b);
  case FLYI_OP_ASHR:
    return flyi_ashr(w, a, b);
  case FLYI_OP_AND:
    return flyi_and(w, a, b);
  case FLYI_OP_OR:
    return flyi_or(w, a, b);
  case FLYI_OP_XOR:
    return flyi_xor(w, a, b);
  case FLYI_OP_SMAX:
    return flyi_smax(a, b);
  case FLYI_OP_SMIN:
    return flyi_smin(a, b);
  case FLYI_OP_UMAX:
    return flyi_umax(w, a, b);
  case FLYI_OP_UMIN:
    return flyi_umin(w, a, b);
  case FLYI_OP_ABS:
    return flyi_abs(w, a);
  case FLYI_OP_POPCOUNT:
    return flyi_popcount(w, a);
  case FLYI_OP_CTLZ:
    return flyi_ctlz(w, a);
  case FLYI_OP_CTTZ:
    return flyi_cttz(w, a);
  case FLYI_OP_ZEXT:
    return flyi_zext(w, a);
  case FLYI_OP_SEXT:
    return flyi_sext(w, a);
  case FLYI_OP_TRUNC:
    return flyi_trunc(to, a);
  case FLYI_OP_EQ:
    return flyi_equal(a, b);
  case FLYI_OP_SLT:
    return flyi_less(a, b);
  case FLYI_OP_ULT:
    return flyi_below(w, a, b);
  case OP_ROUND:
    return flyi_round_down(a, b.lo);
  default:
    return flyi_not(a);
  }
}

/* A number of the width, often near 0, a power of two, or an end. */
static int64_t pick(test_random *random, int w) {
  int64_t near = test_range(random, -20, 20);
  switch (test_range(random, 0, 5)) {
  case 0:
    return number_of(w, (uint64_t)near);
  case 1:
    return number_of(w, ((uint64_t)1 << (w - 1)) + (uint64_t)near);
  case 2:
    return number_of(w, ((uint64_t)1 << test_range(random, 0, w - 1)) + (uint64_t)near);
  case 3:
    return number_of(w, test_next(random) >> test_range(random, 0, 63));
  default:
    return number_of(w, (uint64_t)test_range(random, -300, 300));
  }
}

static flyi_interval pick_interval(test_random *random, int w) {
  int64_t a = pick(random, w), b = test_range(random, 0, 3) ? pick(random, w) : a;
  if (test_range(random, 0, 2) == 0) b = number_of(w, (uint64_t)a + (uint64_t)test_range(random, 0, 70));
  return a < b ? (flyi_interval){a, b} : (flyi_interval){b, a};
}

static int64_t pick_inside(test_random *random, flyi_interval x) {
  uint64_t span = (uint64_t)x.hi - (uint64_t)x.lo;
  switch (test_range(random, 0, 3)) {
  case 0:
    return x.lo;
  case 1:
    return x.hi;
  default:
    return (int64_t)((uint64_t)x.lo + (span == UINT64_MAX ? test_next(random) : test_next(random) % (span + 1)));
  }
}

static int width_of(int op, test_random *random, int *to) {
  static const int common[] = {8, 16, 32, 64};
  int w = test_range(random, 0, 2) ? common[test_range(random, 0, 3)] : (int)test_range(random, 2, 64);
  if (op == FLYI_OP_AND || op == FLYI_OP_OR || op == FLYI_OP_XOR || op == FLYI_OP_EQ || op == FLYI_OP_ZEXT ||
      op == FLYI_OP_SEXT)
    if (test_range(random, 0, 5) == 0) w = 1;
  if (op == OP_NOT) w = 1;
  if ((op == FLYI_OP_ZEXT || op == FLYI_OP_SEXT) && w == 64) w = 63;
  *to = op == FLYI_OP_TRUNC                        ? (int)test_range(random, 1, w - 1)
        : op == FLYI_OP_ZEXT || op == FLYI_OP_SEXT ? (int)test_range(random, w + 1, 64)
                                                   : w;
  if (op == FLYI_OP_EQ || op == FLYI_OP_SLT || op == FLYI_OP_ULT || op == OP_NOT) *to = 1;
  return w;
}

START_TEST(transfer_functions_hold_every_concrete_result) {
  test_random random = {.state = 20240607};
  long tried = 0;
  for (long round = 0; round < 1500000; round++) {
    int which = (int)(round % OPS), op = ops[which].op;
    int to, w = width_of(op, &random, &to);
    flyi_interval a = pick_interval(&random, w), b = pick_interval(&random, w);
    if (op == OP_ROUND) b.lo = b.hi = b.hi > 0 ? b.hi : 1;
    if (op >= FLYI_OP_SHL && op <= FLYI_OP_ASHR && test_range(&random, 0, 3)) {
      b.lo = test_range(&random, 0, w - 1 < 127 ? w - 1 : 63), b.hi = test_range(&random, b.lo, w - 1);
      if (b.hi > flyi_greatest(w)) b.lo = b.hi = 0;
    }
    flyi_interval r = transfer(op, w, to, a, b);
    expect(r.lo >= flyi_least(to) && r.hi <= flyi_greatest(to) && r.lo <= r.hi, "%s w%d gives [%lld, %lld]",
           ops[which].name, w, (long long)r.lo, (long long)r.hi);
    for (int k = 0; k < 8; k++) {
      int64_t x = pick_inside(&random, a), y = pick_inside(&random, b), v;
      if (!result(op, w, to, x, y, &v)) continue;
      tried++;
      expect(v >= r.lo && v <= r.hi,
             "%s w%d->%d of [%lld, %lld] [%lld, %lld] is [%lld, %lld], but %lld, %lld give %lld", ops[which].name, w,
             to, (long long)a.lo, (long long)a.hi, (long long)b.lo, (long long)b.hi, (long long)r.lo, (long long)r.hi,
             (long long)x, (long long)y, (long long)v);
    }
  }
  ck_assert_int_gt(tried, 8000000);
}
END_TEST

START_TEST(single_values_give_single_values) {
  test_random random = {.state = 7};
  for (long round = 0; round < 1000000; round++) {
    int which = (int)(round % OPS), op = ops[which].op;
    int to, w = width_of(op, &random, &to);
    int64_t x = pick(&random, w), y = pick(&random, w), v;
    if (op == OP_ROUND && y <= 0) y = 1;
    if (!result(op, w, to, x, y, &v)) continue;
    flyi_interval r = transfer(op, w, to, (flyi_interval){x, x}, (flyi_interval){y, y});
    expect(r.lo == v && r.hi == v, "%s w%d->%d of %lld, %lld is [%lld, %lld], not %lld", ops[which].name, w, to,
           (long long)x, (long long)y, (long long)r.lo, (long long)r.hi, (long long)v);
  }
}
END_TEST

/* All pairs of intervals of 4 bits, all values in them: and nothing is missed that a hull could tell, for the
 * operations from which maps of windows, chunks and documents are made. */
START_TEST(intervals_of_four_bits_are_sound_and_where_it_matters_tight) {
  static const int tight[] = {FLYI_OP_ADD,  FLYI_OP_SUB,  FLYI_OP_MUL,      FLYI_OP_SDIV, FLYI_OP_SMAX, FLYI_OP_SMIN,
                              FLYI_OP_UMAX, FLYI_OP_UMIN, FLYI_OP_EQ,       FLYI_OP_SLT,  FLYI_OP_ULT,  FLYI_OP_ASHR,
                              FLYI_OP_LSHR, FLYI_OP_ABS,  FLYI_OP_POPCOUNT, OP_ROUND};
  for (int which = 0; which < OPS; which++) {
    int op = ops[which].op;
    if (op == OP_NOT) continue;
    int w = 4, to = op == FLYI_OP_ZEXT || op == FLYI_OP_SEXT                     ? 6
                    : op == FLYI_OP_TRUNC                                        ? 3
                    : op == FLYI_OP_EQ || op == FLYI_OP_SLT || op == FLYI_OP_ULT ? 1
                                                                                 : 4;
    bool is_tight = false, wraps;
    for (size_t i = 0; i < sizeof tight / sizeof *tight; i++) is_tight |= tight[i] == op;
    for (int64_t alo = -8; alo < 8; alo++)
      for (int64_t ahi = alo; ahi < 8; ahi++)
        for (int64_t blo = -8; blo < 8; blo++)
          for (int64_t bhi = blo; bhi < 8; bhi++) {
            if (op == OP_ROUND && (blo < 1 || blo != bhi)) continue;
            flyi_interval r = transfer(op, w, to, (flyi_interval){alo, ahi}, (flyi_interval){blo, bhi});
            int64_t least = INT64_MAX, most = INT64_MIN, v;
            wraps = (op == FLYI_OP_LSHR || op == FLYI_OP_UMAX || op == FLYI_OP_UMIN) &&
                    alo < 0; /* unsigned order: a hull of two pieces */
            for (int64_t a = alo; a <= ahi; a++)
              for (int64_t b = blo; b <= bhi; b++) {
                if (!result(op, w, to, a, b, &v)) {
                  wraps = true;
                  continue;
                }
                if (op == FLYI_OP_ADD) wraps |= a + b != v;
                if (op == FLYI_OP_SUB) wraps |= a - b != v;
                if (op == FLYI_OP_MUL) wraps |= a * b != v;
                if (op == FLYI_OP_SDIV) wraps |= b == -1 && a == -8;
                if (op == FLYI_OP_ABS) wraps |= a == -8;
                if ((op == FLYI_OP_UMAX || op == FLYI_OP_UMIN || op == FLYI_OP_ULT) && (b < 0 || a < 0)) wraps = true;
                if (v < least) least = v;
                if (v > most) most = v;
              }
            expect(least > most || (r.lo <= least && r.hi >= most), "%s [%d, %d] [%d, %d]", ops[which].name, (int)alo,
                   (int)ahi, (int)blo, (int)bhi);
            if (is_tight && !wraps)
              expect(r.lo == least && r.hi == most, "%s of [%d, %d] [%d, %d] is [%d, %d], not [%d, %d]",
                     ops[which].name, (int)alo, (int)ahi, (int)blo, (int)bhi, (int)r.lo, (int)r.hi, (int)least,
                     (int)most);
          }
  }
}
END_TEST

/* ---- pyramids ---------------------------------------------------------------------------------------------------- */

static int64_t element(const void *data, int bytes, int64_t i) {
  int64_t x = 0;
  memcpy(&x, (const char *)data + i * bytes, (size_t)bytes);
  return number_of(8 * bytes, (uint64_t)x);
}

START_TEST(ranges_of_an_array_are_exact) {
  test_random random = {.state = 3};
  for (int round = 0; round < 60; round++) {
    int bytes = 1 << (round % 4);
    int64_t count = round < 8 ? round / 4 + 1 : test_range(&random, 1, round % 5 ? 300 : 5000);
    char *data = guard_alloc((size_t)(count * bytes), 8, 0);
    for (int64_t i = 0; i < count * bytes; i++)
      data[i] = round % 3 && test_range(&random, 0, 40) ? 0 : (char)test_next(&random);
    flyi_pyramid *p = flyi_pyramid_create(data, bytes, count);
    ck_assert(p && flyi_pyramid_ranges(p) && flyi_pyramid_prepare_bits(p));
    for (int k = 0; k < 300; k++) {
      int64_t lo = test_range(&random, 0, count - 1),
              hi = test_range(&random, lo, k % 2 ? count - 1 : lo + (count - 1 - lo) / 9);
      int64_t least = INT64_MAX, most = INT64_MIN;
      uint64_t all = ~0ull, any = 0;
      if (k % 5 == 0) lo &= ~63ll; /* where blocks begin and end */
      if (k % 5 == 1 && (hi & ~63ll) >= lo) hi &= ~63ll;
      for (int64_t i = lo; i <= hi; i++) {
        int64_t x = element(data, bytes, i);
        all &= (uint64_t)x, any |= (uint64_t)x;
        if (x < least) least = x;
        if (x > most) most = x;
      }
      if (lo == 0 && k % 3 == 0)
        lo = -test_range(&random, 0, 1000000); /* indices that do not exist count for nothing */
      if (hi == count - 1 && k % 3 == 0) hi += test_range(&random, 0, 1000000);
      flyi_interval r = flyi_pyramid_range(p, (flyi_interval){lo, hi});
      flyi_bits bits = flyi_pyramid_bits(p, (flyi_interval){lo, hi});
      expect(r.lo == least && r.hi == most, "[%d, %d] of %d elements", (int)lo, (int)hi, (int)count);
      expect(bits.one == all && (bits.one | bits.open) == any, "bits of [%d, %d]", (int)lo, (int)hi);
    }
    flyi_pyramid_free(p);
    guard_free(data);
  }
}
END_TEST

START_TEST(boxes_of_a_table_hold_their_elements_and_aligned_ones_are_exact) {
  test_random random = {.state = 4};
  for (int round = 0; round < 40; round++) {
    int bytes = 1 << (round % 4);
    int64_t columns = test_range(&random, 1, 70), rows = test_range(&random, 1, 70), count = rows * columns;
    char *data = guard_alloc((size_t)(count * bytes), 8, 0);
    for (int64_t i = 0; i < count * bytes; i++) data[i] = (char)test_next(&random);
    flyi_pyramid *p = flyi_pyramid_create(data, bytes, count);
    int aspect = (int)test_range(&random, -4, 4); /* cells of level 1 on: 2^(level + a) x 2^(level + b) */
    int a = aspect > 0 ? aspect - 1 : aspect ? -1 : 0, b = aspect < 0 ? -aspect - 1 : aspect ? -1 : 0;
    flyi_mip *mip = flyi_pyramid_mip(p, columns, aspect);
    ck_assert_ptr_nonnull(mip);
    ck_assert_ptr_eq(flyi_pyramid_mip(p, columns, aspect), mip);
    ck_assert(flyi_mip_prepare_bits(mip));
    for (int k = 0; k < 300; k++) {
      int level = (int)test_range(&random, 0, 6);
      bool aligned = k % 2;
      int64_t u0 = test_range(&random, 0, rows - 1), v0 = test_range(&random, 0, columns - 1), u1, v1;
      if (aligned) {
        int tall = level ? level + a : 0, wide = level ? level + b : 0;
        u0 = u0 >> tall << tall, v0 = v0 >> wide << wide;
        u1 = u0 + (1 << tall) - 1, v1 = v0 + (1 << wide) - 1;
        if (u1 > rows - 1) u1 = rows - 1;
        if (v1 > columns - 1) v1 = columns - 1;
      } else {
        u1 = test_range(&random, u0, rows - 1), v1 = test_range(&random, v0, columns - 1);
      }
      int64_t least = INT64_MAX, most = INT64_MIN;
      uint64_t all = ~0ull, any = 0;
      for (int64_t u = u0; u <= u1; u++)
        for (int64_t v = v0; v <= v1; v++) {
          int64_t x = element(data, bytes, u * columns + v);
          all &= (uint64_t)x, any |= (uint64_t)x;
          if (x < least) least = x;
          if (x > most) most = x;
        }
      flyi_interval r = flyi_mip_range(mip, (flyi_interval){u0, u1}, (flyi_interval){v0, v1});
      flyi_bits bits = flyi_mip_bits(mip, (flyi_interval){u0, u1}, (flyi_interval){v0, v1});
      bool exact = r.lo == least && r.hi == most && bits.one == all && (bits.one | bits.open) == any;
      bool sound = r.lo <= least && r.hi >= most && !(bits.one & ~all) && !(any & ~(bits.one | bits.open));
      expect(aligned ? exact : sound, "[%d, %d] x [%d, %d], aspect %d", (int)u0, (int)u1, (int)v0, (int)v1, aspect);
    }
    flyi_pyramid_free(p);
    guard_free(data);
  }
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("interval");
  TCase *c = tcase_create("intervals");
  tcase_add_test(c, transfer_functions_hold_every_concrete_result);
  tcase_add_test(c, single_values_give_single_values);
  tcase_add_test(c, intervals_of_four_bits_are_sound_and_where_it_matters_tight);
  tcase_add_test(c, ranges_of_an_array_are_exact);
  tcase_add_test(c, boxes_of_a_table_hold_their_elements_and_aligned_ones_are_exact);
  suite_add_tcase(s, c);
  return s;
}

FLY_TEST_MAIN(suite)
