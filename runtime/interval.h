/* interval.h: what is known of an integer of w bits (1 to 64): it lies in [lo, hi], read as a signed number; a
 * single bit is 0 or 1, so that its interval is a three-valued truth. Each function below gives the interval of an
 * operation's result from its operands' (a transfer function): it holds every value that the operation can give, and
 * where the operands are single values, exactly one. Results that LLVM leaves undefined (x / 0, a shift by w or
 * more) may be anything.
 *
 * Input and output of every function: intervals within the width. No state. */
#ifndef FLYMASK_INTERVAL_H
#define FLYMASK_INTERVAL_H

#include <stdbool.h>
#include <stdint.h>

__extension__ typedef __int128 flyi_int128;

typedef struct flyi_interval {
  int64_t lo, hi;
} flyi_interval;

static inline int64_t flyi_least(int w) { return w == 1 ? 0 : (int64_t)(~0ull << (w - 1)); }
static inline int64_t flyi_greatest(int w) { return w == 1 ? 1 : (int64_t)(~(~0ull << (w - 1))); }
static inline flyi_interval flyi_top(int w) { return (flyi_interval){flyi_least(w), flyi_greatest(w)}; }
static inline bool flyi_is_point(flyi_interval a) { return a.lo == a.hi; }
static inline bool flyi_fits(int w, flyi_interval a) { return a.lo >= flyi_least(w) && a.hi <= flyi_greatest(w); }
static inline flyi_interval flyi_hull(flyi_interval a, flyi_interval b) {
  return (flyi_interval){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}
/* A value of w bits, sign-extended (one bit: 0 or 1). */
static inline int64_t flyi_sign_extend(int w, uint64_t x) {
  return w == 1 ? (int64_t)(x & 1) : (int64_t)(x << (64 - w)) >> (64 - w);
}

/* Three-valued truth. */
#define FLYI_NO ((flyi_interval){0, 0})
#define FLYI_YES ((flyi_interval){1, 1})
#define FLYI_MAYBE ((flyi_interval){0, 1})
static inline flyi_interval flyi_truth(bool possible, bool certain) { return (flyi_interval){certain, possible}; }
static inline flyi_interval flyi_not(flyi_interval a) { return (flyi_interval){!a.hi, !a.lo}; }

/* Exact results lo .. hi brought back into w bits: unchanged, moved by whole periods, or everything where they wrap. */
flyi_interval flyi_wrap(int w, flyi_int128 lo, flyi_int128 hi);
/* The same for results that 64 bits hold. */
static inline flyi_interval flyi_wrap64(int w, int64_t lo, int64_t hi) {
  flyi_interval r = {lo, hi};
  return flyi_fits(w, r) ? r : flyi_wrap(w, lo, hi);
}

static inline flyi_interval flyi_add(int w, flyi_interval a, flyi_interval b) {
  int64_t lo, hi;
  if (__builtin_add_overflow(a.lo, b.lo, &lo) || __builtin_add_overflow(a.hi, b.hi, &hi))
    return flyi_wrap(w, (flyi_int128)a.lo + b.lo, (flyi_int128)a.hi + b.hi);
  return flyi_wrap64(w, lo, hi);
}
static inline flyi_interval flyi_sub(int w, flyi_interval a, flyi_interval b) {
  int64_t lo, hi;
  if (__builtin_sub_overflow(a.lo, b.hi, &lo) || __builtin_sub_overflow(a.hi, b.lo, &hi))
    return flyi_wrap(w, (flyi_int128)a.lo - b.hi, (flyi_int128)a.hi - b.lo);
  return flyi_wrap64(w, lo, hi);
}
flyi_interval flyi_mul(int w, flyi_interval a, flyi_interval b);
flyi_interval flyi_sdiv(int w, flyi_interval a, flyi_interval b); /* truncates, as C does */
flyi_interval flyi_srem(int w, flyi_interval a, flyi_interval b);
flyi_interval flyi_udiv(int w, flyi_interval a, flyi_interval b);
flyi_interval flyi_urem(int w, flyi_interval a, flyi_interval b);
flyi_interval flyi_shl(int w, flyi_interval a, flyi_interval count);
flyi_interval flyi_lshr(int w, flyi_interval a, flyi_interval count);
flyi_interval flyi_ashr(int w, flyi_interval a, flyi_interval count);
flyi_interval flyi_and(int w, flyi_interval a, flyi_interval b);
flyi_interval flyi_or(int w, flyi_interval a, flyi_interval b);
flyi_interval flyi_xor(int w, flyi_interval a, flyi_interval b);

static inline flyi_interval flyi_smax(flyi_interval a, flyi_interval b) {
  return (flyi_interval){a.lo > b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}
static inline flyi_interval flyi_smin(flyi_interval a, flyi_interval b) {
  return (flyi_interval){a.lo < b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
}
flyi_interval flyi_umax(int w, flyi_interval a, flyi_interval b);
flyi_interval flyi_umin(int w, flyi_interval a, flyi_interval b);
flyi_interval flyi_abs(int w, flyi_interval a);      /* of the least value: itself */
flyi_interval flyi_popcount(int w, flyi_interval a); /* how many bits are set */
flyi_interval flyi_ctlz(int w, flyi_interval a);     /* zero bits from the top; w for 0 */
flyi_interval flyi_cttz(int w, flyi_interval a);     /* zero bits from the bottom; w for 0 */

/* Between widths: `from` is the operand's. */
flyi_interval flyi_zext(int from, flyi_interval a);
static inline flyi_interval flyi_sext(int from, flyi_interval a) {
  return from == 1 ? (flyi_interval){-a.hi, -a.lo} : a;
}
flyi_interval flyi_trunc(int w, flyi_interval a);

/* Comparisons. */
static inline flyi_interval flyi_equal(flyi_interval a, flyi_interval b) {
  return flyi_truth(a.lo <= b.hi && b.lo <= a.hi, a.lo == b.hi && a.hi == b.lo);
}
static inline flyi_interval flyi_less(flyi_interval a, flyi_interval b) { return flyi_truth(a.lo < b.hi, a.hi < b.lo); }
flyi_interval flyi_below(int w, flyi_interval a, flyi_interval b); /* unsigned less */

/* x - x % k, for k > 0. */
static inline flyi_interval flyi_round_down(flyi_interval a, int64_t k) {
  return (flyi_interval){a.lo - a.lo % k, a.hi - a.hi % k};
}

/* What is known of single bits: `one` are 1, `open` may be either, the others are 0. */
typedef struct flyi_bits {
  uint64_t one, open;
} flyi_bits;
flyi_bits flyi_bits_of(flyi_interval a);
/* The interval of values with those bits. */
flyi_interval flyi_from_bits(int w, flyi_bits bits);

#endif
