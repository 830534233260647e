/* peak_cpu.c: the template of the peak measurement: independent chains of multiply-add in registers, at the vectors of
 * one ISA, or with FLYI_DOTS of dot products of two bf16. Its symbols end in FLYI_ISA: cli_peak_... runs some rounds
 * and cli_peak_flops_... says how many flops a round has. */
#include <stdint.h>

#define PASTE(a, b) a##b
#define NAME(a, b) PASTE(a, b)

/* As many chains as registers allow: two multiply-add units with a latency of 4 or 5 need 10 of them, four 16. */
#if defined(__AVX512F__)
enum { LANES = 16, CHAINS = 24 };
#elif defined(__AVX2__)
enum { LANES = 8, CHAINS = 12 };
#elif defined(__aarch64__)
enum { LANES = 4, CHAINS = 24 };
#else
enum { LANES = 4, CHAINS = 12 };
#endif

typedef float vec __attribute__((ext_vector_type(LANES)));

#ifdef FLYI_DOTS
#include <immintrin.h>
enum { FLOPS = 4 };

static inline vec step(vec sum, vec a, vec b) {
  (void)b;
  return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)a);
}
#else
enum { FLOPS = 2 };

static inline vec step(vec sum, vec a, vec b) { return sum * a + b; }
#endif

double NAME(cli_peak_flops_, FLYI_ISA)(void) { return (double)FLOPS * LANES * CHAINS; }

/* The multiplier is the caller's, so that nothing can be folded. With |factor| < 1 the values of a multiply-add stay
 * finite and normal; a dot's sums grow slowly. */
float NAME(cli_peak_, FLYI_ISA)(int64_t rounds, float factor, float term) {
  vec chain[CHAINS], a = factor, b = term, sum = 0;
  for (int i = 0; i < CHAINS; i++) chain[i] = (float)i;
  for (int64_t round = 0; round < rounds; round++) {
#pragma clang loop unroll(full)
    for (int i = 0; i < CHAINS; i++) chain[i] = step(chain[i], a, b);
  }
  for (int i = 0; i < CHAINS; i++) sum += chain[i];
  return sum[0];
}
