/* failing.h: what a caller may hand the library that is out of the ordinary: memory that runs out, threads that run
 * items in their own order. */
#ifndef TEST_FAILING_H
#define TEST_FAILING_H

#include <flymask/flymask.h>

/* Calls attempt(context) with its first allocation failing, then its second, and so on until it goes through, which it
 * must. Each failure has to be reported as FLY_ERROR_MEMORY. Gives how many there were. */
int test_failing_allocations(fly_status (*attempt)(void *context), void *context);

/* A fly_parallel_for: one after another, the last item first. */
void test_backwards(void *user, int64_t count, void (*body)(void *, int64_t), void *context);

#endif
