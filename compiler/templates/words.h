/* words.h: what a lane of a product multiplies.
 *
 * A word is a float. With FLYI_DOTS it is two bf16, neighbours along the dimension that is summed, the first in the low
 * half: one instruction (AVX512-BF16's vdpbf16ps) multiplies both and adds them to an f32 sum, and takes subnormal
 * numbers for zeros. PAIR says how many elements a word holds; whatever is rounded to bf16 is rounded to nearest. */
#ifndef FLYMASK_WORDS_H
#define FLYMASK_WORDS_H

#include "rows.h"

#ifdef FLYI_DOTS
enum { PAIR = 2 };
typedef uint32_t word;
typedef vu vw;
typedef uint16_t vpair __attribute__((ext_vector_type(2 * W)));

INLINE vf multiply_add(vf sum, vw a, vw b) { return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b); }

/* Two vectors of floats as one of words: x's lanes, then y's. */
INLINE vw round_pair(vf x, vf y) { return (vw)_mm512_cvtne2ps_pbh((__m512)y, (__m512)x); }

/* Lane i of x and of y side by side in word i. */
INLINE vw round_beside(vf x, vf y) {
  const vpair order = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return (vw)_mm512_permutexvar_epi16((__m512i)order, (__m512i)round_pair(x, y));
}

/* W floats as W elements. */
INLINE void store_rounded(word *p, vf x) { *(vh_memory *)p = (vh)_mm512_cvtneps_pbh((__m512)x); }

/* The first half of a vector of words. */
INLINE void store_half_words(word *p, vw x) {
  typedef uint32_t half __attribute__((ext_vector_type(W / 2)));
  typedef half half_memory __attribute__((aligned(4), may_alias));
  *(half_memory *)p = x.lo;
}

/* Elements i of x and of y side by side: the first 16 words, and the others. */
INLINE void interleave_halves(vw x, vw y, vw *low, vw *high) {
  const vpair first = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                       8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  *low = (vw)_mm512_permutex2var_epi16((__m512i)x, (__m512i)first, (__m512i)y);
  *high = (vw)_mm512_permutex2var_epi16((__m512i)x, (__m512i)(first + 16), (__m512i)y);
}

INLINE vw as_words(vf x) { return float_to_bits(x); }
INLINE vw beside(vh x, vh y) { return __builtin_convertvector(x, vu) | __builtin_convertvector(y, vu) << 16; }
/* The first and the second elements of words. */
INLINE vf first_of(vw x) { return bits_to_float(x << 16); }
INLINE vf second_of(vw x) { return bits_to_float(x & 0xffff0000); }

RARE vw load_words_part(const char *row, int n) {
  vw x = (vw)0;
  memcpy(&x, row, 2 * n);
  return x;
}

/* Elements [i, i + 2 W) of a row of bf16, zeros from `count` on. */
INLINE vw load_row_words(const char *row, int i, int count) {
  typedef vw vw_memory __attribute__((aligned(2), may_alias));
  row += 2 * i;
  return i + 2 * W > count ? load_words_part(row, count > i ? count - i : 0) : *(const vw_memory *)row;
}

RARE vh load_half_part(const char *row, int n) {
  vh x = (vh)0;
  memcpy(&x, row, 2 * n);
  return x;
}

/* Elements [i, i + W), likewise. */
INLINE vh load_row_half(const char *row, int i, int count) {
  return i + W > count ? load_half_part(row + 2 * i, count - i) : *(const vh_memory *)(row + 2 * i);
}

/* All ones where an element of a word is an infinity or a NaN. */
INLINE vi special_words(vw x) { return ((x & 0x7f80) == 0x7f80) | ((x & 0x7f800000) == 0x7f800000); }
#else
enum { PAIR = 1 };
typedef float word;
typedef vf vw;

INLINE vf multiply_add(vf sum, vw a, vw b) { return sum + a * b; }
INLINE vw as_words(vf x) { return x; }
#endif

typedef vw vw_words __attribute__((aligned(4), may_alias));
INLINE vw load_words(const word *p) { return *(const vw_words *)p; }
INLINE void store_words(word *p, vw x) { *(vw_words *)p = x; }

/* Words that hold n elements. */
INLINE int words_of(int n) { return (n + PAIR - 1) / PAIR; }

#endif
