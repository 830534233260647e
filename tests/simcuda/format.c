/* format.c: conversions to and from the 16-bit floats and tf32, and single operations under another rounding than the
 * nearest. Exact by construction: a value is scaled to an integer part and a fraction in double. */
#include <fenv.h>
#include <math.h>

#include "sim.h"

float from_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
  if (e == 31) return as_f32(sign | 0x7f800000 | m << 13);
  if (e) return as_f32(sign | (e + 112) << 23 | m << 13);
  float x = (float)m * 0x1p-24f;
  return sign ? -x : x;
}

/* |x| to `fraction` bits after the leading one, exponents of `exponent` bits; without the sign. */
static uint32_t narrow(double x, int exponent, int fraction, rounding mode) {
  int least = 2 - (1 << (exponent - 1)), e;
  uint32_t infinity = ((1u << exponent) - 1) << fraction;
  bool minus = signbit(x);
  if (isinf(x)) return infinity;
  if (x == 0) return 0;
  frexp(x, &e);
  e = e - 1 < least ? least : e - 1;
  double q = ldexp(fabs(x), fraction - e), whole = floor(q), rest = q - whole;
  if (q >= 0x1p40) whole = 0x1p40, rest = 0; /* overflows in any case */
  bool up = false;
  switch (mode) {
  case RN:
    up = rest > 0.5 || (rest == 0.5 && fmod(whole, 2) != 0);
    break;
  case RNA:
    up = rest >= 0.5;
    break;
  case RZ:
    break;
  case RM:
    up = rest > 0 && minus;
    break;
  case RP:
    up = rest > 0 && !minus;
    break;
  }
  uint64_t bits = ((uint64_t)(e - least) << fraction) + (uint64_t)whole + up;
  if (bits < infinity) return (uint32_t)bits;
  bool away = mode == RN || mode == RNA || (mode == RM && minus) || (mode == RP && !minus);
  return away ? infinity : infinity - 1;
}

uint16_t to_f16(double x, rounding mode) {
  return isnan(x) ? 0x7fff : (uint16_t)(narrow(x, 5, 10, mode) | (signbit(x) ? 0x8000 : 0));
}

uint16_t to_bf16(double x, rounding mode) {
  return isnan(x) ? 0x7fff : (uint16_t)(narrow(x, 8, 7, mode) | (signbit(x) ? 0x8000 : 0));
}

uint32_t to_tf32(float x, rounding mode) {
  return isnan(x) ? 0x7fffffff : narrow(x, 8, 10, mode) << 13 | (signbit(x) ? 0x80000000 : 0);
}

static int fenv_mode(rounding mode) {
  return mode == RZ ? FE_TOWARDZERO : mode == RM ? FE_DOWNWARD : mode == RP ? FE_UPWARD : FE_TONEAREST;
}

/* volatile keeps the compiler from computing before the mode is set */
float round_f32(char op, float a, float b, float c, rounding mode) {
  volatile float x = a, y = b, z = c, r = 0;
  int before = fegetround();
  fesetround(fenv_mode(mode));
  switch (op) {
  case '+':
    r = x + y;
    break;
  case '-':
    r = x - y;
    break;
  case '*':
    r = x * y;
    break;
  case '/':
    r = x / y;
    break;
  case 's':
    r = sqrtf(x);
    break;
  default:
    r = fmaf(x, y, z);
    break;
  }
  fesetround(before);
  return r;
}

double round_f64(char op, double a, double b, double c, rounding mode) {
  volatile double x = a, y = b, z = c, r = 0;
  int before = fegetround();
  fesetround(fenv_mode(mode));
  switch (op) {
  case '+':
    r = x + y;
    break;
  case '-':
    r = x - y;
    break;
  case '*':
    r = x * y;
    break;
  case '/':
    r = x / y;
    break;
  case 's':
    r = sqrt(x);
    break;
  default:
    r = fma(x, y, z);
    break;
  }
  fesetround(before);
  return r;
}
