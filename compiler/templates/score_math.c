/* score_math.c: the functions of <math.h> that score modifiers may call, as fly_math_NAME. Built to bitcode that is
 * joined with modifiers and inlined, so that they become vectors of any width: no branches, no tables but one, no
 * calls. Plain C: a GPU takes it as it is.
 *
 * Errors are in units of the last place of the exact result (ulp), the largest over all finite arguments, with and
 * without fused multiply-adds; tests/test_score_math.c holds each function to it. Special arguments (infinities, NaNs,
 * zeros with their sign, subnormals) follow C's Annex F; exceptions and errno do not exist. A NaN comes out quiet.
 *
 *     exp 1.1   exp2 1.2   expm1 1.6   log 0.9   log2 2.0   log1p 1.0   sin 1.6   cos 1.6   tanh 2.5   pow 0.6
 *     sqrt 0.5; fabs, copysign, fmin, fmax, floor, ceil, trunc, round, rint exact
 *
 * Polynomials are minimax fits of our own (Lawson's algorithm) on the reduced range that each comment names. */
#include <stdbool.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

INLINE uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
INLINE float from_bits(uint32_t x) { return __builtin_bit_cast(float, x); }
INLINE uint64_t bits_of_double(double x) { return __builtin_bit_cast(uint64_t, x); }
INLINE double from_bits_double(uint64_t x) { return __builtin_bit_cast(double, x); }

#define ROUND 12582912.f /* 1.5 * 2^23: x + ROUND has the nearest integer in its low bits, for |x| < 2^22 */
#define ROUND_DOUBLE 6755399441055744.0 /* 1.5 * 2^52 */

/* ln 2 in two parts: n times the first is exact for |n| < 2^14. */
#define LN2_HIGH 0.693359375f
#define LN2_LOW -2.12194440e-4f

/* ---- exact functions --------------------------------------------------------------------------------------------- */

float fly_math_fabsf(float x) { return from_bits(bits_of(x) & 0x7fffffff); }

float fly_math_copysignf(float x, float y) { return from_bits((bits_of(x) & 0x7fffffff) | (bits_of(y) & 0x80000000)); }

float fly_math_sqrtf(float x) { return __builtin_sqrtf(x); }

/* A NaN gives the other one. */
float fly_math_fminf(float x, float y) { return x <= y || y != y ? x : y; }
float fly_math_fmaxf(float x, float y) { return x >= y || y != y ? x : y; }

/* From 2^23 on all are integers. */
INLINE float nearest(float x) {
  float a = fly_math_fabsf(x), r = (a + 8388608.f) - 8388608.f;
  return a < 8388608.f ? fly_math_copysignf(r, x) : x;
}

float fly_math_rintf(float x) { return nearest(x); }

float fly_math_floorf(float x) {
  float r = nearest(x);
  return r > x ? r - 1 : r;
}

float fly_math_ceilf(float x) {
  float r = nearest(x);
  return r < x ? fly_math_copysignf(r + 1, x) : r;
}

float fly_math_truncf(float x) {
  float a = fly_math_fabsf(x), r = nearest(a);
  return fly_math_copysignf(r > a ? r - 1 : r, x);
}

float fly_math_roundf(float x) {
  float a = fly_math_fabsf(x), r = nearest(a);
  r = r > a ? r - 1 : r;
  return fly_math_copysignf(a - r >= .5f ? r + 1 : r, x);
}

/* ---- exponentials ------------------------------------------------------------------------------------------------ */

/* p * 2^n for |n| < 252 in two steps, of which the last one alone rounds. */
INLINE float scale(float p, int32_t n) {
  int32_t half = n >> 1;
  return p * from_bits((uint32_t)(half + 127) << 23) * from_bits((uint32_t)(n - half + 127) << 23);
}

/* x within [low, high]; a NaN stays. */
INLINE float within(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

/* e^f - 1 = f + f^2 q(f) on |f| <= ln(2) / 2. */
INLINE float expm1_reduced(float f) {
  float q = f * 1.991430227e-4f + 1.394110224e-3f;
  q = q * f + 8.333272831e-3f;
  q = q * f + 4.166635354e-2f;
  q = q * f + 1.666666682e-1f;
  q = q * f + 5.000000047e-1f;
  return f * f * q + f;
}

/* x = n ln(2) + the result. */
INLINE float reduce(float x, int32_t *n) {
  float t = x * 1.44269504f + ROUND, k = t - ROUND;
  *n = (int32_t)(bits_of(t) - bits_of(ROUND));
  return x - k * LN2_HIGH - k * LN2_LOW;
}

float fly_math_expf(float x) {
  int32_t n;
  float f = reduce(within(x, -104, 89), &n);
  return scale(expm1_reduced(f) + 1, n);
}

/* 2^f - 1 = f q(f) on |f| <= 1/2. */
float fly_math_exp2f(float x) {
  x = within(x, -151, 129);
  float t = x + ROUND, f = x - (t - ROUND);
  float q = f * 1.531507401e-5f + 1.546723760e-4f;
  q = q * f + 1.333343027e-3f;
  q = q * f + 9.618036542e-3f;
  q = q * f + 5.550410963e-2f;
  q = q * f + 2.402265108e-1f;
  q = q * f + 6.931471805e-1f;
  return scale(q * f + 1, (int32_t)(bits_of(t) - bits_of(ROUND)));
}

/* 2^n (e^f - 1) + 2^n - 1, halved: 2^128 is not a float. */
INLINE float expm1_within(float x) {
  int32_t n;
  float f = reduce(x, &n), half = from_bits((uint32_t)(n + 126) << 23);
  return (half * expm1_reduced(f) + (half - .5f)) * 2;
}

float fly_math_expm1f(float x) {
  float y = expm1_within(within(x, -20, 89));
  return x == 0 ? x : y;
}

/* tanh |x| = e / (e + 2), e = e^(2 |x|) - 1; it is 1 in float from 9.02 on. */
float fly_math_tanhf(float x) {
  float a = fly_math_fabsf(x), e = expm1_within(within(a + a, 0, 20));
  return fly_math_copysignf(e / (e + 2), x);
}

/* ---- logarithms -------------------------------------------------------------------------------------------------- */

/* log(1 + f) = f - f^2 / 2 + f^3 p(f) on [1 / sqrt(2), sqrt(2)] - 1; plus low. */
INLINE float log1p_reduced(float f, float low) {
  float p = f * 6.915158579e-2f - 1.179387027e-1f;
  p = p * f + 1.187515490e-1f;
  p = p * f - 1.238384302e-1f;
  p = p * f + 1.421832127e-1f;
  p = p * f - 1.666926732e-1f;
  p = p * f + 2.000224245e-1f;
  p = p * f - 2.499998649e-1f;
  p = p * f + 3.333331023e-1f;
  float square = f * f;
  return f + (square * f * p + low - .5f * square);
}

/* x = 2^n (1 + the result), for x > 0. */
INLINE float split(float x, float *n) {
  float normal = x < 1.17549435e-38f ? x * 8388608.f : x, less = x < 1.17549435e-38f ? 23 : 0;
  uint32_t from_root = bits_of(normal) - 0x3f3504f3; /* 1 / sqrt(2) */
  int32_t e = (int32_t)from_root >> 23;
  *n = (float)e - less;
  return from_bits(bits_of(normal) - ((uint32_t)e << 23)) - 1;
}

/* The logarithm y of x > 0, completed: of 0, negative numbers, infinity and NaN. */
INLINE float complete_log(float x, float y) {
  y = x < __builtin_inff() ? y : x + x;
  y = x == 0 ? -__builtin_inff() : y;
  return x < 0 ? __builtin_nanf("") : y;
}

float fly_math_logf(float x) {
  float n, f = split(x, &n);
  return complete_log(x, n * LN2_HIGH + log1p_reduced(f, n * LN2_LOW));
}

float fly_math_log2f(float x) {
  float n, f = split(x, &n), y = log1p_reduced(f, 0);
  return complete_log(x, y * 1.925963033e-8f + y * 1.44269502f + n); /* log2(e) in two parts */
}

/* log(u) and what rounding took from u = 1 + x. */
float fly_math_log1pf(float x) {
  float u = 1 + x, n, f = split(u, &n);
  float lost = x > 1 ? 1 - (u - x) : x - (u - 1);
  float y = n * LN2_HIGH + log1p_reduced(f, n * LN2_LOW + lost / u);
  y = x < __builtin_inff() ? y : x + x;
  y = x == -1 ? -__builtin_inff() : y;
  y = x < -1 ? __builtin_nanf("") : y;
  return fly_math_fabsf(x) < 1e-8f ? x : y;
}

/* ---- sine and cosine --------------------------------------------------------------------------------------------- */

/* 2 / pi from its first bit on, 32 bits an entry, behind three entries of zeros. */
static const uint32_t two_over_pi[] = {0,          0,          0,          0xa2f9836e, 0x4e441529,
                                       0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};

/* |x| = (n + r) pi / 2 with |r| <= 1/2 (Payne and Hanek, 1983): the 24 bits of x meet those 96 bits of 2 / pi of which
 * the product's integer part modulo 4 and its fraction are made. r has an error of 2^-61; what is below 2^-7 needs no
 * reduction, and is 2^-30 or more from a multiple of pi / 2 otherwise. The result is r pi / 2. */
INLINE float reduce_turns(float x, uint32_t *n) {
  uint32_t u = bits_of(x) & 0x7fffffff;
  int32_t exponent = (int32_t)(u >> 23) - 150; /* x = m 2^exponent */
  uint64_t m = (u & 0x7fffff) | 0x800000;
  uint32_t place = (uint32_t)(exponent < -94 ? 0 : exponent + 94), word = place >> 5, shift = place & 31;
  uint64_t a = (uint64_t)two_over_pi[word] << 32 | two_over_pi[word + 1];
  uint64_t b = (uint64_t)two_over_pi[word + 1] << 32 | two_over_pi[word + 2];
  uint64_t c = (uint64_t)two_over_pi[word + 2] << 32 | two_over_pi[word + 3];
  uint64_t high = a << shift >> 32, middle = b << shift >> 32, low = c << shift >> 32;
  uint64_t product = (m * high << 32) + m * middle + (m * low >> 32);
  uint64_t whole = product + ((uint64_t)1 << 61);
  float r = (float)((double)(int64_t)(product - (whole & (uint64_t)3 << 62)) * 3.406121580086554e-19); /* pi / 2^63 */
  bool small = u < 0x3c000000;                                                                         /* 2^-7 */
  *n = small ? 0 : (uint32_t)(whole >> 62);
  return small ? from_bits(u) : r;
}

INLINE float sine(float r) { /* r + r^3 p(r^2) on |r| <= pi / 4 */
  float z = r * r, p = z * 2.718237243e-6f - 1.983932713e-4f;
  p = p * z + 8.333329362e-3f;
  p = p * z - 1.666666664e-1f;
  return r * z * p + r;
}

INLINE float cosine(float r) { /* 1 - r^2 / 2 + r^4 p(r^2) */
  float z = r * r, p = z * -2.720954800e-7f + 2.479951177e-5f;
  p = p * z - 1.388888372e-3f;
  p = p * z + 4.166666662e-2f;
  return z * z * p - .5f * z + 1;
}

/* The sine `quarters` of a turn ahead. */
INLINE float turn(float x, uint32_t quarters) {
  uint32_t n;
  float r = reduce_turns(x, &n), y;
  n += quarters;
  y = n & 1 ? cosine(r) : sine(r);
  y = from_bits(bits_of(y) ^ (n & 2) << 30);
  return x - x == 0 ? y : __builtin_nanf("");
}

float fly_math_sinf(float x) {
  float y = turn(x, 0);
  return from_bits(bits_of(y) ^ (bits_of(x) & 0x80000000));
}

float fly_math_cosf(float x) { return turn(x, 1); }

/* ---- powers ------------------------------------------------------------------------------------------------------ */

/* log2 of x > 0: n + 2 log2(e) atanh(z), z = (m - 1) / (m + 1), m in [1 / sqrt(2), sqrt(2)]; its series to z^15. */
INLINE double log2_double(double x) {
  uint64_t u = bits_of_double(x), from_root = u - 0x3fe6a09e667f3bcd;
  int32_t n = (int32_t)(from_root >> 52 << 20) >> 20;
  double m = from_bits_double(u - ((uint64_t)(int64_t)n << 52)), z = (m - 1) / (m + 1), s = z * z;
  double p = s * (1. / 15) + 1. / 13;
  p = p * s + 1. / 11;
  p = p * s + 1. / 9;
  p = p * s + 1. / 7;
  p = p * s + 1. / 5;
  p = p * s + 1. / 3;
  p = p * s + 1;
  return z * p * 2.8853900817779268 + n;
}

/* 2^x for |x| <= 200, or a NaN: the series of e^g to g^9, |g| <= ln(2) / 2. */
INLINE double exp2_double(double x) {
  double t = x + ROUND_DOUBLE, g = (x - (t - ROUND_DOUBLE)) * 0.6931471805599453;
  double p = g * (1. / 362880) + 1. / 40320;
  p = p * g + 1. / 5040;
  p = p * g + 1. / 720;
  p = p * g + 1. / 120;
  p = p * g + 1. / 24;
  p = p * g + 1. / 6;
  p = p * g + .5;
  p = p * g + 1;
  p = p * g + 1;
  return p * from_bits_double((bits_of_double(t) + 1023) << 52);
}

float fly_math_powf(float x, float y) {
  float a = fly_math_fabsf(x), inf = __builtin_inff();
  double l = log2_double(a), t;
  l = a == 0 ? -__builtin_inf() : a < inf ? l : a;
  t = a == 1 ? (x == 1 || y == y ? 0. : y) : y * l;
  t = t < -200 ? -200 : t > 200 ? 200 : t;
  float power = (float)exp2_double(t);
  bool integer = fly_math_truncf(y) == y, odd = integer && fly_math_truncf(y * .5f) != y * .5f;
  power = odd ? fly_math_copysignf(power, x) : power;
  power = x < 0 && x > -inf && !integer && y == y ? __builtin_nanf("") : power;
  return y == 0 ? 1 : power;
}
