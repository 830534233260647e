/* rows.h: rows of f32, f16 and bf16 tensors as vectors of f32, and back.
 *
 * `type` is a fly_type and a constant wherever these are inlined. Nothing outside a row's `count` elements is
 * touched. */
#ifndef FLYMASK_ROWS_H
#define FLYMASK_ROWS_H

#include <flymask/flymask.h>

#include "vector.h"

INLINE int element_size(int type) { return type == FLY_F32 ? 4 : 2; }

INLINE vf from_f16(vh x) {
#if W == 16
  return (vf)_mm512_cvtph_ps((__m256i)x);
#elif W == 8
  return (vf)_mm256_cvtph_ps((__m128i)x);
#elif defined __aarch64__
  return (vf)vcvt_f32_f16((float16x4_t)x);
#else /* a product changes the exponent's bias, exactly for subnormals too; infinity and NaN keep their exponent */
  vu wide = __builtin_convertvector(x, vu), magnitude = wide & 0x7fff;
  vu value = float_to_bits(bits_to_float(magnitude << 13) * 0x1p112f);
  value = magnitude >= 0x7c00 ? (magnitude << 13) | 0x7f800000 : value;
  return bits_to_float(value | (wide & 0x8000) << 16);
#endif
}

INLINE vh to_f16(vf x) {
#if W == 16
  return (vh)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif W == 8
  return (vh)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
#elif defined __aarch64__
  return (vh)vcvt_f16_f32((float32x4_t)x);
#else
  vu bits = float_to_bits(x), magnitude = bits & 0x7fffffff;
  vu normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13; /* half to even; may carry to infinity */
  vu small = float_to_bits(bits_to_float(magnitude) + 0.5f) -
             0x3f000000; /* below 2^-14: the addition rounds at 2^-24 */
  vu half = magnitude < 0x38800000 ? small : normal;
  half = magnitude >= 0x47800000 ? (vu)0x7c00 : half;
  half = magnitude > 0x7f800000 ? (vu)0x7e00 : half;
  return __builtin_convertvector(half | (bits >> 16 & 0x8000), vh);
#endif
}

INLINE vf from_bf16(vh x) { return bits_to_float(__builtin_convertvector(x, vu) << 16); }

INLINE vh to_bf16(vf x) {
  vu bits = float_to_bits(x), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  vu quiet = bits >> 16 | 0x40; /* rounding could carry a NaN to zero */
  return __builtin_convertvector((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded, vh);
}

/* The first n < W elements; the ends of rows are kept out of the loops. */
RARE vf load_part(int type, const char *row, int n) {
  float wide[W] = {0};
  vh narrow = (vh)0;
  if (type == FLY_F32)
    memcpy(wide, row, 4 * n);
  else
    memcpy(&narrow, row, 2 * n);
  return type == FLY_F32 ? load(wide) : type == FLY_F16 ? from_f16(narrow) : from_bf16(narrow);
}

/* Elements [i, i + W) of a row, zeros from `count` on. */
INLINE vf load_row(int type, const char *row, int i, int count) {
  row += i * element_size(type);
  if (i + W > count) return load_part(type, row, count - i);
  if (type == FLY_F32) return load((const float *)row);
  vh x = *(const vh_memory *)row;
  return type == FLY_F16 ? from_f16(x) : from_bf16(x);
}

RARE void store_part(int type, char *row, int n, vf x) {
  vh narrow = type == FLY_F16 ? to_f16(x) : to_bf16(x);
  if (type == FLY_F32)
    memcpy(row, &x, 4 * n);
  else
    memcpy(row, &narrow, 2 * n);
}

INLINE void store_row(int type, char *row, int i, int count, vf x) {
  row += i * element_size(type);
  if (i + W > count)
    store_part(type, row, count - i, x);
  else if (type == FLY_F32)
    store((float *)row, x);
  else
    *(vh_memory *)row = type == FLY_F16 ? to_f16(x) : to_bf16(x);
}

#endif
