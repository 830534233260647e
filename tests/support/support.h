/* support.h: what every suite uses: Check, a main function, random numbers, float conversions, guarded memory. */
#ifndef TEST_SUPPORT_H
#define TEST_SUPPORT_H

#include <check.h>
#include <flymask/flymask.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guard.h"

/* int main() of a suite: Suite *make(void) builds it. Runs without forking where a sanitizer or debugger wants that
 * (CK_FORK=no). */
#define FLY_TEST_MAIN(make)                                \
  int main(void) {                                         \
    SRunner *runner = srunner_create(make());              \
    srunner_run_all(runner, CK_ENV);                       \
    int failed = srunner_ntests_failed(runner);            \
    srunner_free(runner);                                  \
    return failed != 0;                                    \
  }

/* Checks that a call succeeded, and says the error where it did not. */
#define ck_fly_ok(call, error)                                                                                        \
  ck_assert_msg((call) == FLY_OK, "%s: %s:%d:%d: %s", #call, (error).file, (error).line, (error).column,              \
                (error).message)

/* A small generator (xorshift64*), seeded by the test: failures repeat. */
typedef struct test_random {
  uint64_t state;
} test_random;
uint64_t test_next(test_random *random);
int64_t test_range(test_random *random, int64_t lo, int64_t hi); /* inclusive */
double test_normal(test_random *random);                         /* mean 0, deviation 1 */

/* IEEE binary16 and bfloat16, rounding to nearest even; written for tests, independent of the library's. */
uint16_t test_to_f16(double x);
double test_from_f16(uint16_t x);
uint16_t test_to_bf16(double x);
double test_from_bf16(uint16_t x);

#endif
