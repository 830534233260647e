/* failing.c: allocations that fail one by one; items in reverse order. */
#include "failing.h"

#include "runtime/runtime.h"
#include "support.h"

int test_failing_allocations(fly_status (*attempt)(void *context), void *context) {
  enum { MOST = 1000 };
  for (int failures = 0; failures < MOST; failures++) {
    flyi_fail_allocation(failures + 1);
    fly_status status = attempt(context);
    flyi_fail_allocation(0);
    if (status == FLY_OK) return failures;
    ck_assert_int_eq(status, FLY_ERROR_MEMORY);
  }
  ck_abort_msg("still failing after %d allocations", MOST);
}

void test_backwards(void *user, int64_t count, void (*body)(void *, int64_t), void *context) {
  (void)user;
  for (int64_t i = count - 1; i >= 0; i--) body(context, i);
}
