/* op.h: one instruction on many operands: for the conformance tests. */
#ifndef SIMCUDA_TEST_OP_H
#define SIMCUDA_TEST_OP_H

#include "gpu.h"

enum { OP_MOST = 4096 };

/* Operand sets: special values of a width and random ones, all pairs or triples of some. */
typedef struct operands {
  int count;
  uint64_t a[OP_MOST], b[OP_MOST], c[OP_MOST];
} operands;
void operands_int(operands *o, uint64_t seed); /* 64 random or special bits; use the low ones */
void operands_f32(operands *o, uint64_t seed); /* bits of floats: zeros, subnormals, infinities, NaN, ordinary */
void operands_f64(operands *o, uint64_t seed);
void operands_16(operands *o, uint64_t seed, bool bf16);

/* Runs `text`, in which %d (and %e), %a, %b, %c stand for registers, once for each operand set. `types` has a
 * letter for d, a, b, c: h 16 bits, r 32, l 64, p predicate (an operand's lowest bit), f, g registers typed .f32,
 * .f64; a '-' where there is none. Results are zero-extended; of a predicate 0 or 1. Instructions between braces
 * may declare registers. */
CUresult op_try(const char *text, const char *types, const operands *o, uint64_t *d, int target);
void op_run(const char *text, const char *types, const operands *o, uint64_t *d); /* sm_80, must succeed */

static inline float f32_of(uint64_t bits) {
  uint32_t b = (uint32_t)bits;
  float x;
  memcpy(&x, &b, 4);
  return x;
}
static inline double f64_of(uint64_t bits) {
  double x;
  memcpy(&x, &bits, 8);
  return x;
}
static inline uint64_t of_f32(float x) {
  uint32_t b;
  memcpy(&b, &x, 4);
  return b;
}
static inline uint64_t of_f64(double x) {
  uint64_t b;
  memcpy(&b, &x, 8);
  return b;
}

#endif
