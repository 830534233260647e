/* exact.h: sums of floating-point numbers without any rounding, and the rounding of such a sum to a format, step by
 * step as IEEE 754 words it. The reference of the conformance tests: integers only, no floating-point arithmetic. */
#ifndef SIMCUDA_TEST_EXACT_H
#define SIMCUDA_TEST_EXACT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum { EXACT_WORDS = 12, EXACT_POINT = 330 }; /* bit k weighs 2^(k - EXACT_POINT) */
typedef struct exact {
  bool minus;
  uint64_t w[EXACT_WORDS]; /* magnitude */
} exact;

static inline int exact_compare(const exact *a, const exact *b) {
  for (int k = EXACT_WORDS - 1; k >= 0; k--)
    if (a->w[k] != b->w[k]) return a->w[k] < b->w[k] ? -1 : 1;
  return 0;
}

static inline exact exact_of(double x) { /* |x| < 2^420 and a multiple of 2^-330 */
  exact r = {.minus = signbit(x)};
  int e;
  uint64_t m = (uint64_t)ldexp(frexp(fabs(x), &e), 53);
  int at = e - 53 + EXACT_POINT;
  while (m && at < 0) m >>= 1, at++; /* only zeros leave */
  if (!m) return r;
  r.w[at / 64] = m << (at % 64);
  if (at % 64) r.w[at / 64 + 1] = m >> (64 - at % 64);
  return r;
}

static inline exact exact_add(exact a, exact b) {
  if (a.minus != b.minus && exact_compare(&a, &b) < 0) {
    exact t = a;
    a = b;
    b = t;
  }
  uint64_t carry = 0;
  for (int k = 0; k < EXACT_WORDS; k++) {
    uint64_t before = a.w[k];
    if (a.minus == b.minus) {
      a.w[k] = before + b.w[k] + carry;
      carry = carry ? a.w[k] <= before : a.w[k] < before;
    } else {
      a.w[k] = before - b.w[k] - carry;
      carry = carry ? a.w[k] >= before : a.w[k] > before;
    }
  }
  return a;
}

static inline bool exact_bit(const exact *a, int k) { return k >= 0 && a->w[k / 64] >> (k % 64) & 1; }
static inline int exact_top(const exact *a) { /* -1: zero */
  for (int k = EXACT_WORDS * 64 - 1; k >= 0; k--)
    if (exact_bit(a, k)) return k;
  return -1;
}

/* To `precision` bits (the leading one included) with exponents down to `least`, largest finite value `top`. mode: n
 * nearest even, a nearest away, z, m, p. A zero gets the sign of the sum. */
static inline double exact_round(const exact *v, int precision, int least, double top_value, char mode) {
  int top = exact_top(v), quantum = top - precision + 1;
  if (quantum < least - precision + 1 + EXACT_POINT) quantum = least - precision + 1 + EXACT_POINT;
  double n = 0;
  for (int k = top; k >= quantum; k--) n = 2 * n + exact_bit(v, k); /* at most 53 bits: exact */
  bool half = exact_bit(v, quantum - 1), more = false;
  for (int k = 0; k < quantum - 1; k++) more |= exact_bit(v, k);
  bool up = false;
  if (mode == 'n') up = half && (more || exact_bit(v, quantum));
  if (mode == 'a') up = half;
  if (mode == 'm') up = (half || more) && v->minus;
  if (mode == 'p') up = (half || more) && !v->minus;
  double r = ldexp(n + up, quantum - EXACT_POINT);
  if (r > top_value)
    r = mode == 'n' || mode == 'a' || (mode == 'm' && v->minus) || (mode == 'p' && !v->minus) ? INFINITY : top_value;
  return v->minus ? -r : r;
}

static inline double exact_f32(const exact *v, char mode) { return exact_round(v, 24, -126, 0x1.fffffep127, mode); }
static inline double exact_f16(const exact *v, char mode) { return exact_round(v, 11, -14, 65504, mode); }
static inline double exact_bf16(const exact *v, char mode) { return exact_round(v, 8, -126, 0x1.fep127, mode); }

/* 16-bit formats as values */
static inline double value_f16(uint64_t h) {
  int e = h >> 10 & 31, m = h & 1023;
  double x = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
  return h & 0x8000 ? -x : x;
}
static inline double value_bf16(uint64_t h) {
  int e = h >> 7 & 255, m = h & 127;
  double x = e == 255 ? (m ? NAN : INFINITY) : e ? ldexp(128 + m, e - 134) : ldexp(m, -133);
  return h & 0x8000 ? -x : x;
}
/* Equal, with equal signs of zeros; any NaN equals any. */
static inline bool same_value(double a, double b) { return (a != a && b != b) || (a == b && signbit(a) == signbit(b)); }

#endif
