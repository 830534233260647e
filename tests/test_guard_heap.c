/* The guarded heap of other suites guards: what is not detected here goes unnoticed there. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heap/guard_heap.h"
#include "runtime/runtime.h"
#include "support.h"

/* Whether reading the byte at `at` ends a process by SIGSEGV. */
static bool faults(const volatile char *at) {
  int status = 0;
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    signal(SIGSEGV, SIG_DFL);
    _exit(*at == 1 ? 2 : 3);
  }
  return waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

START_TEST(the_byte_behind_a_block_cannot_be_read) {
  static const size_t sizes[] = {4, 8, 12, 64, 400, 4092, 4096, 4100, 100000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    long before = guard_heap_count();
    char *blocks[] = {flyi_alloc(sizes[i] / 4, 4), flyi_alloc_aligned(sizes[i]), flyi_grow(NULL, sizes[i], 1)};
    ck_assert_int_eq(guard_heap_count(), before + 3);
    for (int k = 0; k < 3; k++) {
      size_t size = k == 1 ? (sizes[i] + 63) / 64 * 64 : sizes[i];
      ck_assert(faults(blocks[k] + size));
      ck_assert(!faults(blocks[k] + size - 1));
      ck_assert(!faults(blocks[k]));
      ck_assert_uint_eq((uintptr_t)blocks[k] % (k == 1 ? 64 : 4), 0);
      for (size_t j = 0; k == 0 && j < size; j++) ck_assert_int_eq(blocks[k][j], 0);
      memset(blocks[k], 1, size);
      free(blocks[k]);
    }
  }
}
END_TEST

START_TEST(a_freed_block_cannot_be_read) {
  char *volatile block = flyi_alloc(100, 1), *volatile grown = flyi_alloc(25, 4);
  const uintptr_t old = (uintptr_t)block, moved = (uintptr_t)grown;
  memset(grown, 5, 100);
  free(block);
  ck_assert(faults((const char *)old));
  grown = flyi_grow(grown, 1250, 4);
  ck_assert(faults((const char *)moved));
  for (int i = 0; i < 100; i++) ck_assert_int_eq(grown[i], 5);
  ck_assert(faults(grown + 5000));
  free(grown);
}
END_TEST

START_TEST(empty_blocks_are_guarded_and_freed) {
  char *volatile block = flyi_alloc(0, 8);
  const uintptr_t old = (uintptr_t)block;
  ck_assert_ptr_nonnull(block);
  ck_assert(faults((const char *)(old / 4096 * 4096 + 4096)));
  free(block);
  ck_assert(faults((const char *)old));
}
END_TEST

START_TEST(allocations_still_fail_where_a_test_wants_it) {
  flyi_fail_allocation(1);
  void *none = flyi_alloc(4, 4);
  flyi_fail_allocation(0);
  ck_assert_ptr_null(none);
  ck_assert_ptr_null(flyi_alloc(SIZE_MAX, 4));
}
END_TEST

START_TEST(blocks_of_the_c_library_can_be_freed_and_grown) {
  long before = guard_heap_count();
  char *copy = strdup("a block of the C library");
  ck_assert_int_eq(guard_heap_count(), before);
  copy = realloc(copy, 100000);
  ck_assert_str_eq(copy, "a block of the C library");
  free(copy);
  free(NULL);
}
END_TEST

START_TEST(more_blocks_than_there_is_room_for_are_not_guarded) {
  enum { MANY = 30000 };
  static void *blocks[MANY];
  long before = guard_heap_count();
  int missing = 0;
  for (int i = 0; i < MANY; i++) missing += !(blocks[i] = flyi_alloc(1, 8));
  long guarded = guard_heap_count() - before;
  for (int i = 0; i < MANY; i++) free(blocks[i]);
  before = guard_heap_count();
  blocks[0] = flyi_alloc(1, 8);
  long again = guard_heap_count() - before;
  free(blocks[0]);
  ck_assert_int_eq(missing, 0);
  ck_assert_int_gt(guarded, 10000);
  ck_assert_int_lt(guarded, MANY);
  ck_assert_int_eq(again, 1);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("guard_heap");
  TCase *t = tcase_create("guard_heap");
  tcase_add_test(t, the_byte_behind_a_block_cannot_be_read);
  tcase_add_test(t, a_freed_block_cannot_be_read);
  tcase_add_test(t, empty_blocks_are_guarded_and_freed);
  tcase_add_test(t, allocations_still_fail_where_a_test_wants_it);
  tcase_add_test(t, blocks_of_the_c_library_can_be_freed_and_grown);
  tcase_add_test(t, more_blocks_than_there_is_room_for_are_not_guarded);
  suite_add_tcase(s, t);
  return s;
}

FLY_TEST_MAIN(suite)
