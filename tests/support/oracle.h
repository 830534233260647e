/* oracle.h: attention in double precision, pair by pair, as the formula says it: the reference of the kernel tests.
 *
 * It reads the call's description (tensors, geometry, row maps) and a predicate, and shares no code with the library.
 */
#ifndef TEST_ORACLE_H
#define TEST_ORACLE_H

#include "support.h"

/* Whether position q (offset added) sees position kv in batch entry b, query head h. */
typedef bool oracle_predicate(void *context, int b, int h, int q, int kv);

typedef struct oracle_row {
  double out[512], lse;
  double size[512]; /* of what is summed up: the weighted mean of |V| */
  double tolerance; /* of an f32 kernel, without the rounding to the output's type */
  double lse_tolerance;
  bool faint; /* an infinite value has so small a weight that it is 0 in f32, and their product NaN: both are right */
} oracle_row;

/* Row `row` of (b, h). An infinite score or a NaN that the query sees gives NaN; a score of -infinity counts as
 * masked. The call's geometry must be complete. */
void oracle_attend(const fly_attention *call, oracle_predicate *see, void *context, int64_t b, int64_t h, int64_t row,
                   oracle_row *result);

/* What the kernel may round P and G by, relative: where it multiplies bf16 as it is, half a unit in the last of bf16's
 * 8 bits, 2^-8; elsewhere 0. The inputs are exact, so nothing else is added: |dO| <= 2^-8 sum P |V| for the forward
 * pass, |d dV| <= 2^-8 sum P |dO|, |d dK| <= 2^-8 sum |G| |Q|, |d dQ| <= 2^-8 sum |G| |K| backward. And subnormal
 * numbers count as 0. */
double oracle_rounding_of_p(const fly_attention *call);
/* Half a unit in the last place of the type at x, and half the smallest subnormal. */
double oracle_half_place(fly_type type, double x);
/* Whether `got` is what is expected: NaN for NaN, the very infinity for an infinity, else within the tolerance. */
bool oracle_agrees(double got, double want, double tolerance);

/* Element i of a row of a tensor as a double; storing rounds to nearest. */
double oracle_get(const fly_tensor *t, int64_t b, int64_t h, int64_t row, int64_t i);
void oracle_set(const fly_tensor *t, int64_t b, int64_t h, int64_t row, int64_t i, double x);

/* Compares everything the call wrote; rows that it must not write have to hold `untouched`. Fails the test with
 * `what`. */
void oracle_check(const fly_attention *call, oracle_predicate *see, void *context, double untouched, const char *what);
/* The same for kernels that multiply by P rounded to the tensors' 16 bits. */
void oracle_check_units(const fly_attention *call, oracle_predicate *see, void *context, double untouched,
                        const char *what);

#endif
