/* The base of the runtime: errors, memory, threads, buffers; and the test support's own arithmetic. */
#include <pthread.h>

#include "runtime/runtime.h"
#include "support.h"

START_TEST(errors_are_written_only_on_failure_and_never_overflow) {
  fly_error error;
  memset(&error, 0x5a, sizeof error);
  fly_error before = error;
  fly_buffer *buffer;
  ck_assert_int_eq(fly_buffer_create(FLY_I32, 1, (int64_t[]){1}, &(int32_t){5}, &buffer, &error), FLY_OK);
  ck_assert_mem_eq(&before, &error, sizeof error);
  fly_buffer_release(&buffer);
  char text[4096];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = 0;
  ck_assert_int_eq(flyi_fail_at(&error, text, 3, 4, "%s", text), FLY_ERROR_SOURCE);
  ck_assert_uint_eq(strlen(error.message), sizeof error.message - 1);
  ck_assert_uint_eq(strlen(error.file), sizeof error.file - 1);
  ck_assert_int_eq(error.line, 3);
  ck_assert_int_eq(flyi_fail(NULL, FLY_ERROR_IO, "nobody listens"), FLY_ERROR_IO);
  flyi_fail(&error, FLY_ERROR_IO, "first");
  flyi_fail(&error, FLY_ERROR_IMAGE, "second: %s", error.message); /* an argument inside the error itself */
  ck_assert_str_eq(error.message, "second: first");
}
END_TEST

START_TEST(every_status_has_a_name) {
  for (int s = FLY_ERROR_DEVICE; s <= FLY_OK; s++) ck_assert_str_ne(fly_status_name(s), "unknown");
  ck_assert_str_eq(fly_status_name(77), "unknown");
}
END_TEST

START_TEST(bad_buffers_are_refused) {
  fly_error error;
  fly_buffer *buffer = (void *)1;
  int64_t one = 1, negative = -1, huge[4] = {1ll << 40, 1ll << 40, 1, 1};
  ck_assert_int_eq(fly_buffer_create(FLY_F16, 1, &one, "ab", &buffer, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_null(buffer);
  ck_assert_int_eq(fly_buffer_create(99, 1, &one, "ab", &buffer, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_buffer_create(FLY_I8, 0, &one, "ab", &buffer, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_buffer_create(FLY_I8, 5, &one, "ab", &buffer, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_buffer_create(FLY_I8, 1, &negative, "ab", &buffer, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_buffer_create(FLY_I8, 4, huge, "ab", &buffer, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_buffer_create(FLY_I8, 1, NULL, "ab", &buffer, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_buffer_create(FLY_I8, 1, &one, NULL, &buffer, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_buffer_create(FLY_I8, 1, &one, "ab", NULL, &error), FLY_ERROR_ARGUMENT);
}
END_TEST

START_TEST(a_buffer_copies_and_counts_references) {
  int32_t data[6] = {1, 2, 3, 4, 5, 6};
  fly_buffer *a, *b, *c;
  ck_assert_int_eq(fly_buffer_create(FLY_I32, 2, (int64_t[]){2, 3}, data, &a, NULL), FLY_OK);
  ck_assert_int_eq(fly_buffer_create(FLY_I32, 2, (int64_t[]){3, 2}, data, &b, NULL), FLY_OK);
  data[0] = 9;
  ck_assert_int_eq(((int32_t *)a->data)[0], 1);
  ck_assert(!flyi_hash_equal(a->hash, b->hash)); /* another shape is another buffer */
  c = fly_buffer_retain(a);
  fly_buffer_release(&a);
  ck_assert_ptr_null(a);
  ck_assert_int_eq(((int32_t *)c->data)[5], 6);
  fly_buffer_release(&c);
  fly_buffer_release(&b);
  fly_buffer_release(&b);
  fly_buffer_release(NULL);
}
END_TEST

START_TEST(a_buffer_without_memory_is_an_error) {
  fly_error error;
  fly_buffer *buffer;
  int64_t shape = 100;
  for (int nth = 1; nth <= 2; nth++) {
    flyi_fail_allocation(nth);
    char data[100] = {0};
    ck_assert_int_eq(fly_buffer_create(FLY_I8, 1, &shape, data, &buffer, &error), FLY_ERROR_MEMORY);
    flyi_fail_allocation(0);
    ck_assert_ptr_null(buffer);
  }
}
END_TEST

typedef struct tally {
  atomic_int seen[1000];
  atomic_int worker[1000];
} tally;

static void count_item(void *context, int64_t item, int worker) {
  tally *t = context;
  atomic_fetch_add(&t->seen[item], 1);
  atomic_fetch_add(&t->worker[worker], 1);
}

static void one_by_one(void *user, int64_t count, void (*body)(void *, int64_t), void *context) {
  ++*(int *)user;
  for (int64_t i = count; i-- > 0;) body(context, i);
}

START_TEST(every_item_runs_once) {
  int calls = 0;
  flyi_threads kinds[] = {{0}, {.limit = 1}, {.limit = 3}, {.limit = 5, .parallel_for = one_by_one, .user = &calls}};
  for (int k = 0; k < 4; k++)
    for (int n = 0; n < 1000; n = n * 3 + 1) {
      static tally t;
      memset(&t, 0, sizeof t);
      int workers = flyi_worker_count(&kinds[k], n);
      ck_assert_int_ge(workers, 1);
      flyi_parallel(&kinds[k], n, count_item, &t);
      for (int i = 0; i < 1000; i++) ck_assert_int_eq(t.seen[i], i < n);
      for (int i = workers; i < 1000; i++) ck_assert_int_eq(t.worker[i], 0);
    }
  ck_assert_int_gt(calls, 0);
}
END_TEST

START_TEST(bytes_grow_and_fail_cleanly) {
  flyi_bytes bytes = {0};
  for (int i = 0; i < 1000; i++) ck_assert(flyi_bytes_add(&bytes, &i, sizeof i));
  for (int i = 0; i < 1000; i++) ck_assert_mem_eq(bytes.data + 4 * i, &i, 4);
  ck_assert(!flyi_bytes_add(&bytes, NULL, SIZE_MAX - 10));
  flyi_bytes_free(&bytes);
  flyi_fail_allocation(1);
  ck_assert(!flyi_bytes_add(&bytes, "x", 1));
  flyi_fail_allocation(0);
  flyi_bytes_free(&bytes);
  ck_assert_ptr_null(flyi_grow(NULL, SIZE_MAX / 2, 3));
  ck_assert_ptr_null(flyi_alloc_aligned(SIZE_MAX - 3));
}
END_TEST

START_TEST(half_floats_convert_by_the_book) { /* IEEE 754 binary16: values from the standard's own definition */
  static const struct {
    uint16_t bits;
    double value;
  } known[] = {{0x0000, 0},        {0x3c00, 1},        {0xc000, -2},       {0x7bff, 65504}, {0x0001, 0x1p-24},
               {0x03ff, 1023 * 0x1p-24}, {0x0400, 0x1p-14}, {0x3555, 0.333251953125}};
  for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
    ck_assert_double_eq(test_from_f16(known[i].bits), known[i].value);
    ck_assert_uint_eq(test_to_f16(known[i].value), known[i].bits);
  }
  ck_assert_uint_eq(test_to_f16(65520), 0x7c00); /* half way to 2^16 rounds to even: infinity */
  ck_assert_uint_eq(test_to_f16(65519), 0x7bff);
  ck_assert_uint_eq(test_to_f16(1 + 0x1p-11), 0x3c00);
  ck_assert_uint_eq(test_to_f16(1 + 0x3p-11), 0x3c02);
  for (unsigned x = 0; x < 65536; x++) {
    double a = test_from_f16(x), b = test_from_bf16(x);
    if (!isnan(a)) ck_assert_uint_eq(test_to_f16(a), x);
    if (!isnan(b)) ck_assert_uint_eq(test_to_bf16(b), x);
    uint32_t wide = x << 16; /* bfloat16 is the upper half of binary32 */
    float f;
    memcpy(&f, &wide, 4);
    if (!isnan(b)) ck_assert_double_eq(b, f);
  }
}
END_TEST

static Suite *make(void) {
  Suite *suite = suite_create("base");
  TCase *tests = tcase_create("all");
  tcase_add_test(tests, errors_are_written_only_on_failure_and_never_overflow);
  tcase_add_test(tests, every_status_has_a_name);
  tcase_add_test(tests, bad_buffers_are_refused);
  tcase_add_test(tests, a_buffer_copies_and_counts_references);
  tcase_add_test(tests, a_buffer_without_memory_is_an_error);
  tcase_add_test(tests, every_item_runs_once);
  tcase_add_test(tests, bytes_grow_and_fail_cleanly);
  tcase_add_test(tests, half_floats_convert_by_the_book);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make)
