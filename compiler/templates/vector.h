/* vector.h: the vectors that the CPU templates compute with: clang's vector extensions at the width of the target
 * that a template is compiled for, and what the language does not say well. */
#ifndef FLYMASK_VECTOR_H
#define FLYMASK_VECTOR_H

#if defined __aarch64__
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define UNROLL _Pragma("clang loop unroll(full)")
#define INLINE static inline __attribute__((always_inline))
#define RARE static __attribute__((noinline))
#define SEPARATE static __attribute__((noinline)) /* a function with registers of its own */

/* W: lanes of a vector. A register block is ROWS x COLS vectors of sums: enough of them to hide the latency of an
 * FMA, with registers to spare for its operands: AVX-512 and NEON have 32 registers, the others 16. NEON's four
 * pipes of latency 4 want all 16 sums. A template may choose another COLS. */
#if defined __AVX512F__
#define W 16
#elif defined __AVX2__
#define W 8
#else
#define W 4
#endif
#define ROWS 4
#ifndef COLS
#if defined __AVX512F__ || defined __aarch64__
#define COLS 4
#else
#define COLS 2
#endif
#endif

typedef float vf __attribute__((ext_vector_type(W)));
typedef int32_t vi __attribute__((ext_vector_type(W)));
typedef uint32_t vu __attribute__((ext_vector_type(W)));
typedef uint16_t vh __attribute__((ext_vector_type(W)));
/* Vectors in memory: at any element, whatever the memory was declared as. */
typedef vf vf_memory __attribute__((aligned(4), may_alias));
typedef vh vh_memory __attribute__((aligned(2), may_alias));

INLINE vf load(const float *p) { return *(const vf_memory *)p; }
INLINE void store(float *p, vf x) { *(vf_memory *)p = x; }
INLINE vf bits_to_float(vu x) { return __builtin_bit_cast(vf, x); }
INLINE vu float_to_bits(vf x) { return __builtin_bit_cast(vu, x); }

/* x where x > y, else y: one instruction, which gives y where either is a NaN. */
INLINE vf greater(vf x, vf y) { return x > y ? x : y; }

INLINE int min(int a, int b) { return a < b ? a : b; }

/* A bit for each lane whose condition is true (all ones). */
INLINE unsigned lanes(vi condition) {
#if W == 16
  typedef bool vb __attribute__((ext_vector_type(W)));
  return __builtin_bit_cast(uint16_t, __builtin_convertvector(condition, vb));
#elif W == 8
  return (unsigned)_mm256_movemask_ps((__m256)condition);
#elif defined __aarch64__
  const vi bit = {1, 2, 4, 8};
  return (unsigned)vaddvq_s32((int32x4_t)(condition & bit));
#else
  return (unsigned)_mm_movemask_ps((__m128)condition);
#endif
}

/* The lanes of x whose bit is set, those of y elsewhere. */
INLINE vf choose(unsigned bits, vf x, vf y) {
#if W == 16
  return (vf)_mm512_mask_mov_ps((__m512)y, (__mmask16)bits, (__m512)x);
#elif W == 8
  const vi bit = {1, 2, 4, 8, 16, 32, 64, 128};
  return ((vi)(int)bits & bit) != 0 ? x : y;
#else
  const vi bit = {1, 2, 4, 8};
  return ((vi)(int)bits & bit) != 0 ? x : y;
#endif
}

/* The lanes of x whose bit is set, -infinity elsewhere. */
INLINE vf where(unsigned bits, vf x) { return choose(bits, x, (vf)-__builtin_inff()); }

/* Across the lanes, by halves: the same order whatever the compiler thinks of reductions. */
#if W == 16
#define HALVES(x, combine)                                      \
  float8 a_ = combine((x).lo, (x).hi);                          \
  float4 b_ = combine(a_.lo, a_.hi);
#elif W == 8
#define HALVES(x, combine) float4 b_ = combine((x).lo, (x).hi);
#else
#define HALVES(x, combine) float4 b_ = (x);
#endif
#define ADD_(x, y) ((x) + (y))
#define GREATER_(x, y) ((x) > (y) ? (x) : (y))
typedef float float4 __attribute__((ext_vector_type(4)));
typedef float float8 __attribute__((ext_vector_type(8)));

INLINE float sum_of(vf x) {
  HALVES(x, ADD_)
  return (b_[0] + b_[2]) + (b_[1] + b_[3]);
}

/* x has no NaN. */
INLINE float greatest_of(vf x) {
  HALVES(x, GREATER_)
  float even = GREATER_(b_[0], b_[2]), odd = GREATER_(b_[1], b_[3]);
  return GREATER_(even, odd);
}

/* The same of four vectors side by side. */
INLINE void greatest_of_rows(const vf *x, float *out) {
  float4 y[4];
  UNROLL for (int r = 0; r < 4; r++) {
    HALVES(x[r], GREATER_)
    y[r] = b_;
  }
  float4 a = GREATER_(__builtin_shufflevector(y[0], y[1], 0, 4, 1, 5), __builtin_shufflevector(y[0], y[1], 2, 6, 3, 7));
  float4 b = GREATER_(__builtin_shufflevector(y[2], y[3], 0, 4, 1, 5), __builtin_shufflevector(y[2], y[3], 2, 6, 3, 7));
  float4 m = GREATER_(__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7));
  UNROLL for (int r = 0; r < 4; r++) out[r] = m[r];
}

/* 2^x for x up to 127, relative error 1e-7 (4.3e-7 where results are rounded to bf16); 0 exactly for -infinity and from
 * -127 down; NaN for a NaN whose low 9 bits are 0. Polynomials are minimax with their constant term fixed at 1, so that
 * an exponent can be cut off without an error. */
#if W == 16
/* In steps of 1/16: an addition leaves 16 times the exponent in the low bits, of which the last four find
 * 2^(i/16), less i in the place that they come to, in a table that is one register. All but four FMAs runs
 * beside the FMA pipes. */
INLINE vf exp2_of(vf x) {
  const vu table = {0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532, 0x3f75fed7, 0x3f75583f,
                    0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c, 0x3f7744fd, 0x3f78ccdf, 0x3f7ac0c7, 0x3f7d257d};
  x = greater((vf)-127.f, x);
  vf t = x + 786432.f; /* 1.5 * 2^23 / 16 */
  vf f = x - (t - 786432.f);
  vu n = float_to_bits(t);
  vf power = bits_to_float((n << 19) + (vu)_mm512_permutexvar_epi32((__m512i)n, (__m512i)table));
#ifdef FLYI_DOTS
  vf p = f * 2.4022644e-1f + 6.9318772e-1f;
#else
  vf p = f * 5.5502140e-2f + 2.4023429e-1f;
  p = p * f + 6.9314718e-1f;
#endif
  p = p * f + 1.f;
  return power * p;
}
#else
/* All but its five FMAs runs beside the FMA pipes. */
INLINE vf exp2_of(vf x) {
#if defined __aarch64__
  x = (vf)vmaxq_f32((float32x4_t)x, vdupq_n_f32(-127.f)); /* a NaN stays, as it does in greater() */
#else
  x = greater((vf)-127.f, x);
#endif
  vf t = x + 12582912.f; /* 1.5 * 2^23: the nearest integer lands in the low bits */
  vf f = x - (t - 12582912.f);
  vf p = f * 1.3264727e-3f + 9.6715129e-3f;
  p = p * f + 5.5507337e-2f;
  p = p * f + 2.4022242e-1f;
  p = p * f + 6.9314698e-1f;
  p = p * f + 1.f;
  return bits_to_float(float_to_bits(p) + (float_to_bits(t) << 23));
}
#endif

/* x and y lane by lane: low gets the first halves, high the second. */
INLINE void interleave(vf x, vf y, vf *low, vf *high) {
#if W == 16
  *low = __builtin_shufflevector(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  *high = __builtin_shufflevector(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif W == 8
  *low = __builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11);
  *high = __builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  *low = __builtin_shufflevector(x, y, 0, 4, 1, 5);
  *high = __builtin_shufflevector(x, y, 2, 6, 3, 7);
#endif
}

#if W == 16
/* 16 x 16 in two steps: squares of 4 x 4 inside the 128-bit lanes, by the shuffles that every vector unit has two of,
 * then whole lanes. */
INLINE void transpose_square(vf *x) {
  vf t[W];
  UNROLL for (int i = 0; i < W; i += 4) {
    vf a = __builtin_shufflevector(x[i], x[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    vf b = __builtin_shufflevector(x[i], x[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    vf c = __builtin_shufflevector(x[i + 2], x[i + 3], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    vf d = __builtin_shufflevector(x[i + 2], x[i + 3], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    t[i] = __builtin_shufflevector(a, c, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    t[i + 1] = __builtin_shufflevector(a, c, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    t[i + 2] = __builtin_shufflevector(b, d, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    t[i + 3] = __builtin_shufflevector(b, d, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
  UNROLL for (int i = 0; i < 4; i++) { /* lanes 0, 2 and 1, 3 of two vectors, twice */
    vf a = __builtin_shufflevector(t[i], t[i + 4], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    vf b = __builtin_shufflevector(t[i], t[i + 4], 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    vf c = __builtin_shufflevector(t[i + 8], t[i + 12], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    vf d = __builtin_shufflevector(t[i + 8], t[i + 12], 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    x[i] = __builtin_shufflevector(a, c, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    x[i + 4] = __builtin_shufflevector(b, d, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    x[i + 8] = __builtin_shufflevector(a, c, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    x[i + 12] = __builtin_shufflevector(b, d, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  }
}
#endif

/* Interleaving the two halves of n vectors log2(n) times transposes: n = W a square, n = 4 four rows to [lane][row]. */
INLINE void transpose(vf *x, int n) {
#if W == 16
  if (n == W) {
    transpose_square(x);
    return;
  }
#endif
  vf y[W];
  UNROLL for (int k = 1; k < n; k *= 2) {
    UNROLL for (int i = 0; i < n / 2; i++) interleave(x[i], x[i + n / 2], &y[2 * i], &y[2 * i + 1]);
    UNROLL for (int i = 0; i < n; i++) x[i] = y[i];
  }
}

#endif
