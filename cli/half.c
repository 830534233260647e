/* half.c: f16 and bf16 by their bits, and what a benchmark computes on: random numbers near a normal distribution in
 * any of the tensors' types. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

float f16_to_f32(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits >> 15) << 31, exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return from_bits(sign | 0x7f800000u | fraction << 13);
  if (exponent) return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
  float subnormal = (float)fraction * 0x1p-24f;
  return sign ? -subnormal : subnormal;
}

uint16_t f32_to_f16(float value) {
  uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);  /* NaN */
  if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and above round to infinity */
  if (magnitude < 0x38800000) { /* below 2^-14: adding 0.5 rounds to multiples of 2^-24 */
    return (uint16_t)(sign | (bits_of(from_bits(magnitude) + 0.5f) - bits_of(0.5f)));
  }
  uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
}

uint16_t f32_to_bf16(float value) {
  uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). */
static uint64_t next_random(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* The sum of four uniform numbers, scaled to variance 1: near enough to normal for inputs of a benchmark. */
static float near_normal(uint64_t *state) {
  uint64_t bits = next_random(state);
  float sum = 0;
  for (int i = 0; i < 4; i++) sum += (float)(bits >> (16 * i) & 0xffff) * 0x1p-16f - 0.5f;
  return sum * 1.7320508f;
}

void *random_normal(fly_type type, int64_t count, uint64_t seed) {
  size_t bytes = (size_t)(count > 0 ? count : 1) * fly_type_size(type);
  void *data = aligned_alloc(64, (bytes + 63) / 64 * 64); /* as frameworks allocate tensors */
  if (!data) return NULL;
  for (int64_t i = 0; i < count; i++) {
    float value = near_normal(&seed);
    if (type == FLY_F32)
      ((float *)data)[i] = value;
    else
      ((uint16_t *)data)[i] = type == FLY_F16 ? f32_to_f16(value) : f32_to_bf16(value);
  }
  return data;
}
