/* support.c: random numbers and 16-bit floats for tests. */
#include "support.h"

uint64_t test_next(test_random *random) {
  uint64_t x = random->state ? random->state : 0x9E3779B97F4A7C15;
  x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
  random->state = x;
  return x * 0x2545F4914F6CDD1D;
}

int64_t test_range(test_random *random, int64_t lo, int64_t hi) {
  return lo + (int64_t)(test_next(random) % ((uint64_t)(hi - lo) + 1));
}

double test_normal(test_random *random) { /* Box and Muller */
  double u = ((test_next(random) >> 11) + 1) * 0x1p-53, v = (test_next(random) >> 11) * 0x1p-53;
  return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* Rounds to `bits` significant bits with least exponent `low` (of the unit of a subnormal's last place). */
static double round_to(double x, int bits, int low) {
  int exponent;
  frexp(x, &exponent);
  int unit = exponent - bits > low ? exponent - bits : low;
  return ldexp(nearbyint(ldexp(x, -unit)), unit);
}

static uint16_t encode(double x, int fraction, int bias) {
  int width = 15 - fraction;
  uint16_t sign = signbit(x) ? 0x8000 : 0, infinity = (uint16_t)(((1 << width) - 1) << fraction);
  if (isnan(x)) return sign | infinity | (uint16_t)(1 << (fraction - 1));
  double y = fabs(round_to(x, fraction + 1, 1 - bias - fraction));
  if (y >= ldexp(1, bias + 1)) return sign | infinity;
  if (y < ldexp(1, 1 - bias)) return sign | (uint16_t)ldexp(y, bias - 1 + fraction);
  int exponent;
  double m = frexp(y, &exponent); /* y = m 2^exponent, m in [0.5, 1) */
  return sign | (uint16_t)((exponent - 1 + bias) << fraction) | (uint16_t)ldexp(2 * m - 1, fraction);
}

static double decode(uint16_t x, int fraction, int bias) {
  int exponent = (x & 0x7fff) >> fraction, mantissa = x & ((1 << fraction) - 1), top = (1 << (15 - fraction)) - 1;
  double y = exponent == top   ? mantissa ? NAN : INFINITY
             : exponent == 0 ? ldexp(mantissa, 1 - bias - fraction)
                             : ldexp(mantissa + (1 << fraction), exponent - bias - fraction);
  return x & 0x8000 ? -y : y;
}

uint16_t test_to_f16(double x) { return encode(x, 10, 15); }
double test_from_f16(uint16_t x) { return decode(x, 10, 15); }
uint16_t test_to_bf16(double x) { return encode(x, 7, 127); }
double test_from_bf16(uint16_t x) { return decode(x, 7, 127); }
