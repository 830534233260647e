/* interval.c: the transfer functions that are not a line each. Input: the operands' intervals. Output: an interval that
 * holds every result (interval.h). */
#include "interval.h"

/* ---- wrap-around, unsigned views --------------------------------------------------------------------------------- */

flyi_interval flyi_wrap(int w, flyi_int128 lo, flyi_int128 hi) {
  flyi_int128 least = flyi_least(w), greatest = flyi_greatest(w), period = (flyi_int128)1 << w;
  flyi_int128 moved = ((lo - least) >> w) * period; /* whole periods that lo lies away; >> rounds down */
  lo -= moved, hi -= moved;
  return hi <= greatest ? (flyi_interval){(int64_t)lo, (int64_t)hi} : flyi_top(w);
}

/* The same values read as unsigned numbers. */
typedef struct range {
  uint64_t lo, hi;
} range;

static uint64_t ones(int w) { return ~0ull >> (64 - w); }

static range to_unsigned(int w, flyi_interval a) {
  if (w == 1 || a.lo >= 0 || a.hi < 0) return (range){(uint64_t)a.lo & ones(w), (uint64_t)a.hi & ones(w)};
  return (range){0, ones(w)};
}

static flyi_interval from_unsigned(int w, range u) {
  bool low = u.hi <= (uint64_t)flyi_greatest(w), high = u.lo > (uint64_t)flyi_greatest(w);
  if (w == 1 || low || high) return (flyi_interval){flyi_sign_extend(w, u.lo), flyi_sign_extend(w, u.hi)};
  return flyi_top(w);
}

/* ---- products and quotients -------------------------------------------------------------------------------------- */

static flyi_interval corners(int w, flyi_int128 a, flyi_int128 b, flyi_int128 c, flyi_int128 d) {
  flyi_int128 lo = a < b ? a : b, hi = a > b ? a : b, lo2 = c < d ? c : d, hi2 = c > d ? c : d;
  return flyi_wrap(w, lo < lo2 ? lo : lo2, hi > hi2 ? hi : hi2);
}

flyi_interval flyi_mul(int w, flyi_interval a, flyi_interval b) {
  if (w <= 32 && flyi_is_point(b)) /* products of 32 bits fit 64 */
    return b.lo >= 0 ? flyi_wrap64(w, a.lo * b.lo, a.hi * b.lo) : flyi_wrap64(w, a.hi * b.lo, a.lo * b.lo);
  return corners(w, (flyi_int128)a.lo * b.lo, (flyi_int128)a.lo * b.hi, (flyi_int128)a.hi * b.lo,
                 (flyi_int128)a.hi * b.hi);
}

/* A quotient is monotone in both operands as long as the divisor keeps its sign. */
static flyi_interval quotients(int w, flyi_interval a, flyi_interval d) {
  return corners(w, (flyi_int128)a.lo / d.lo, (flyi_int128)a.lo / d.hi, (flyi_int128)a.hi / d.lo,
                 (flyi_int128)a.hi / d.hi);
}

flyi_interval flyi_sdiv(int w, flyi_interval a, flyi_interval b) {
  if (b.lo == b.hi && b.lo > 0) return (flyi_interval){a.lo / b.lo, a.hi / b.lo};
  flyi_interval negative = {b.lo, b.hi < -1 ? b.hi : -1}, positive = {b.lo > 1 ? b.lo : 1, b.hi};
  bool below = negative.lo <= negative.hi, above = positive.lo <= positive.hi;
  if (below && above) return flyi_hull(quotients(w, a, negative), quotients(w, a, positive));
  return below ? quotients(w, a, negative) : above ? quotients(w, a, positive) : flyi_top(w);
}

flyi_interval flyi_srem(int w, flyi_interval a, flyi_interval b) {
  if (flyi_is_point(a) && flyi_is_point(b) && b.lo) {
    int64_t r = b.lo == -1 ? 0 : a.lo % b.lo; /* INT64_MIN % -1 would trap */
    return (flyi_interval){r, r};
  }
  if (b.lo == INT64_MIN) return flyi_top(w);
  int64_t bound = (-b.lo > b.hi ? -b.lo : b.hi) - 1; /* |result| <= bound, and has a's sign */
  if (bound < 0) return flyi_top(w);
  if (flyi_is_point(b)) {
    int64_t d = b.lo < 0 ? -b.lo : b.lo;
    if (a.lo / d == a.hi / d) return (flyi_interval){a.lo % d, a.hi % d};
  }
  int64_t least = b.lo > 0 ? b.lo : b.hi < 0 ? -b.hi : 0;
  if (a.hi < least && a.lo > -least) return a;
  return (flyi_interval){a.lo >= 0 ? 0 : a.lo > -bound ? a.lo : -bound, a.hi <= 0 ? 0 : a.hi < bound ? a.hi : bound};
}

flyi_interval flyi_udiv(int w, flyi_interval a, flyi_interval b) {
  range x = to_unsigned(w, a), d = to_unsigned(w, b);
  if (d.hi == 0) return flyi_top(w);
  return from_unsigned(w, (range){x.lo / d.hi, x.hi / (d.lo ? d.lo : 1)});
}

flyi_interval flyi_urem(int w, flyi_interval a, flyi_interval b) {
  range x = to_unsigned(w, a), d = to_unsigned(w, b);
  if (d.hi == 0) return flyi_top(w);
  if (d.lo == d.hi && x.lo / d.lo == x.hi / d.lo) return from_unsigned(w, (range){x.lo % d.lo, x.hi % d.lo});
  if (x.hi < d.lo) return from_unsigned(w, x);
  return from_unsigned(w, (range){0, x.hi < d.hi - 1 ? x.hi : d.hi - 1});
}

/* ---- shifts ------------------------------------------------------------------------------------------------------ */

/* The counts that are defined; false where there is none. */
static bool counts(int w, flyi_interval *count) {
  if (count->lo < 0) count->lo = 0;
  if (count->hi > w - 1) count->hi = w - 1;
  return count->lo <= count->hi;
}

flyi_interval flyi_shl(int w, flyi_interval a, flyi_interval count) {
  if (!counts(w, &count)) return flyi_top(w);
  flyi_int128 least = (flyi_int128)1 << count.lo, most = (flyi_int128)1 << count.hi;
  return corners(w, a.lo * least, a.lo * most, a.hi * least, a.hi * most);
}

flyi_interval flyi_lshr(int w, flyi_interval a, flyi_interval count) {
  if (!counts(w, &count)) return flyi_top(w);
  range x = to_unsigned(w, a);
  return from_unsigned(w, (range){x.lo >> count.hi, x.hi >> count.lo});
}

flyi_interval flyi_ashr(int w, flyi_interval a, flyi_interval count) {
  if (!counts(w, &count)) return flyi_top(w);
  return (flyi_interval){a.lo >> (a.lo < 0 ? count.lo : count.hi), a.hi >> (a.hi < 0 ? count.hi : count.lo)};
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

flyi_bits flyi_bits_of(flyi_interval a) { /* lo and hi share a prefix; what follows is open */
  uint64_t differ = (uint64_t)a.lo ^ (uint64_t)a.hi, open = differ ? ~0ull >> __builtin_clzll(differ) : 0;
  return (flyi_bits){(uint64_t)a.lo & ~open, open};
}

flyi_interval flyi_from_bits(int w, flyi_bits bits) {
  uint64_t sign = bits.open & 1ull << 63; /* open: least where it is 1 */
  int64_t lo = (int64_t)(bits.one | sign), hi = (int64_t)(bits.one | (bits.open & ~sign));
  return (flyi_interval){lo < flyi_least(w) ? flyi_least(w) : lo, hi > flyi_greatest(w) ? flyi_greatest(w) : hi};
}

flyi_interval flyi_and(int w, flyi_interval a, flyi_interval b) {
  if (w == 1) return (flyi_interval){a.lo & b.lo, a.hi & b.hi};
  if (flyi_is_point(a)) {
    flyi_interval t = a;
    a = b, b = t;
  }
  if (flyi_is_point(b)) {
    uint64_t mask = (uint64_t)b.lo;
    bool low_ones = b.lo >= 0 && !(mask & (mask + 1)), high_ones = b.lo < 0 && !(-mask & (-mask - 1));
    if (high_ones || (low_ones && (a.lo & ~b.lo) == (a.hi & ~b.lo)))
      return (flyi_interval){a.lo & b.lo, a.hi & b.lo}; /* rounds down; or stays within one period */
  }
  flyi_bits x = flyi_bits_of(a), y = flyi_bits_of(b);
  uint64_t one = x.one & y.one;
  flyi_interval r = flyi_from_bits(w, (flyi_bits){one, (x.one | x.open) & (y.one | y.open) & ~one});
  if (a.lo >= 0 && r.hi > a.hi) r.hi = a.hi;
  if (b.lo >= 0 && r.hi > b.hi) r.hi = b.hi;
  return r;
}

flyi_interval flyi_or(int w, flyi_interval a, flyi_interval b) {
  if (w == 1) return (flyi_interval){a.lo | b.lo, a.hi | b.hi};
  flyi_bits x = flyi_bits_of(a), y = flyi_bits_of(b);
  uint64_t one = x.one | y.one;
  flyi_interval r = flyi_from_bits(w, (flyi_bits){one, (x.open | y.open) & ~one});
  int64_t more = a.lo > b.lo ? a.lo : b.lo;
  if (a.lo >= 0 && b.lo >= 0 && r.lo < more) r.lo = more;
  return r;
}

flyi_interval flyi_xor(int w, flyi_interval a, flyi_interval b) {
  flyi_bits x = flyi_bits_of(a), y = flyi_bits_of(b);
  uint64_t open = x.open | y.open;
  return flyi_from_bits(w, (flyi_bits){(x.one ^ y.one) & ~open, open});
}

static int set(uint64_t x) { return __builtin_popcountll(x); }

/* Exact over lo .. hi: an extreme shares a prefix with a bound, differs from it in one bit, and is all 0 or all 1
 * below. */
flyi_interval flyi_popcount(int w, flyi_interval a) {
  range u = to_unsigned(w, a);
  int least = set(u.lo) < set(u.hi) ? set(u.lo) : set(u.hi), most = set(u.lo) > set(u.hi) ? set(u.lo) : set(u.hi);
  for (int i = 0; i < w; i++) {
    uint64_t bit = 1ull << i, up = ((u.lo | bit) & ~(bit - 1)), down = ((u.hi & ~bit) | (bit - 1));
    if (!(u.lo & bit) && up <= u.hi && set(up) < least) least = set(up);
    if (u.hi & bit && down >= u.lo && set(down) > most) most = set(down);
  }
  return from_unsigned(w, (range){least, most});
}

static uint64_t leading(int w, uint64_t x) { return x ? __builtin_clzll(x) - (64 - w) : w; }

flyi_interval flyi_ctlz(int w, flyi_interval a) {
  range u = to_unsigned(w, a);
  return from_unsigned(w, (range){leading(w, u.hi), leading(w, u.lo)});
}

flyi_interval flyi_cttz(int w, flyi_interval a) {
  range u = to_unsigned(w, a);
  if (u.lo == u.hi) {
    uint64_t n = u.lo ? __builtin_ctzll(u.lo) : w;
    return from_unsigned(w, (range){n, n});
  }
  return from_unsigned(w, (range){0, u.lo ? w - 1 : w});
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

flyi_interval flyi_umax(int w, flyi_interval a, flyi_interval b) {
  range x = to_unsigned(w, a), y = to_unsigned(w, b);
  return from_unsigned(w, (range){x.lo > y.lo ? x.lo : y.lo, x.hi > y.hi ? x.hi : y.hi});
}

flyi_interval flyi_umin(int w, flyi_interval a, flyi_interval b) {
  range x = to_unsigned(w, a), y = to_unsigned(w, b);
  return from_unsigned(w, (range){x.lo < y.lo ? x.lo : y.lo, x.hi < y.hi ? x.hi : y.hi});
}

flyi_interval flyi_abs(int w, flyi_interval a) {
  if (a.lo >= 0) return a;
  flyi_int128 lo = -(flyi_int128)a.lo, hi = a.hi;
  if (a.hi <= 0) return flyi_wrap(w, -hi, lo);
  return flyi_wrap(w, 0, lo > hi ? lo : hi);
}

flyi_interval flyi_zext(int from, flyi_interval a) {
  if (a.lo >= 0) return a;
  range u = to_unsigned(from, a);
  return (flyi_interval){(int64_t)u.lo, (int64_t)u.hi};
}

flyi_interval flyi_trunc(int w, flyi_interval a) {
  if (w > 1) return flyi_wrap64(w, a.lo, a.hi);
  if (flyi_is_point(a)) return (flyi_interval){a.lo & 1, a.lo & 1};
  return FLYI_MAYBE;
}

/* Below zero, signed order is unsigned order too: the operands are split at the sign. */
flyi_interval flyi_below(int w, flyi_interval a, flyi_interval b) {
  if (flyi_is_point(b) && b.lo >= 0) return flyi_truth(a.lo < b.lo && a.hi >= 0 && b.lo > 0, a.lo >= 0 && a.hi < b.lo);
  bool possible = false, certain = true;
  for (int i = 0; i < 2; i++) {
    for (int j = 0; j < 2; j++) {
      flyi_interval x = i ? (flyi_interval){a.lo, a.hi < -1 ? a.hi : -1} : (flyi_interval){a.lo > 0 ? a.lo : 0, a.hi};
      flyi_interval y = j ? (flyi_interval){b.lo, b.hi < -1 ? b.hi : -1} : (flyi_interval){b.lo > 0 ? b.lo : 0, b.hi};
      if (x.lo > x.hi || y.lo > y.hi) continue;
      range u = to_unsigned(w, x), v = to_unsigned(w, y);
      possible |= u.lo < v.hi, certain &= u.hi < v.lo;
    }
  }
  return flyi_truth(possible, certain);
}
