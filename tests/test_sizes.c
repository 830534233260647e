/* The sizes of a forward call on the CPU: any of them gives the right result, those that only share out work the same
 * bits, and what cannot be is refused. */
#include "support/call_case.h"

static int window[2] = {200, 0};

static const call_spec tiled = {
    .type = FLY_F32, .dim = 40, .value_dim = 32, .batch = 2, .heads = 2, .kv_heads = 1, .len_q = 600, .len_kv = 600};
static const call_spec split = {.type = FLY_F32, .dim = 64, .heads = 4, .kv_heads = 2, .len_q = 1, .len_kv = 5000};

static size_t bytes_of(const fly_tensor *t) {
  return (size_t)(t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]) * fly_type_size(t->type);
}

START_TEST(sharing_work_out_otherwise_gives_the_same_bits) { /* _i: threads - 1, wide or narrow: packed ahead or not */
  static const int32_t queries[] = {64, 128};
  static const int64_t phases[] = {1, 400 << 10, INT64_C(1) << 40};
  CALL_FOR_TARGETS(target) {
    call_spec s = tiled;
    call_case t;
    s.target = target, s.threads = 1 + _i / 2;
    oracle_predicate *see = _i % 2 ? see_causal : see_window;
    call_init(&t, &s, see, window);
    call_run(&t);
    oracle_check(&t.call, see, window, CALL_UNTOUCHED, "sizes");
    size_t bytes = bytes_of(&t.call.out), lse_bytes = bytes_of(&t.call.lse);
    char *out = malloc(bytes), *lse = malloc(lse_bytes);
    ck_assert(out && lse);
    memcpy(out, t.call.out.data, bytes), memcpy(lse, t.call.lse.data, lse_bytes);
    for (int i = 0; i < 6; i++) {
      fly_cpu_sizes sizes = {FLY_INIT(fly_cpu_sizes), .item_queries = queries[i % 2], .phase_bytes = phases[i / 2]};
      t.call.sizes = &sizes;
      call_reset(&t);
      call_run(&t);
      ck_assert_mem_eq(t.call.out.data, out, bytes);
      ck_assert_mem_eq(t.call.lse.data, lse, lse_bytes);
    }
    free(out), free(lse);
    call_free(&t);
  }
}
END_TEST

START_TEST(any_range_of_keys_gives_the_result) {
  static const int32_t keys[] = {64, 512, 2112, 4992, 5056, 1 << 24};
  CALL_FOR_TARGETS(target) {
    call_spec s = split;
    s.target = target;
    for (int i = 0; i < 6; i++) {
      fly_cpu_sizes sizes = {FLY_INIT(fly_cpu_sizes), .split_keys = keys[i]};
      call_case t;
      size_t bytes;
      fly_error error = {0};
      call_init(&t, &s, see_all, NULL);
      t.call.sizes = &sizes;
      ck_fly_ok(fly_attention_workspace(&t.call, &bytes, &error), error);
      t.call.workspace = guard_alloc(bytes, 64, i % 2 == 0); /* as much as its ranges need */
      t.call.workspace_size = bytes;
      call_run(&t);
      oracle_check(&t.call, see_all, NULL, CALL_UNTOUCHED, "ranges");
      guard_free(t.call.workspace);
      call_free(&t);
    }
  }
}
END_TEST

START_TEST(the_choice_is_complete_and_can_be_asked_for) {
  call_case t;
  fly_error error = {0};
  fly_cpu_sizes choice = {FLY_INIT(fly_cpu_sizes)}, own = {FLY_INIT(fly_cpu_sizes), .split_keys = 640};
  call_spec s = tiled;
  s.threads = 1;
  call_init(&t, &s, see_all, NULL);
  ck_fly_ok(fly_attention_sizes(&t.call, &choice, &error), error);
  ck_assert_int_eq(choice.item_queries, 128); /* 20 items for one worker */
  ck_assert_int_eq(choice.split_keys, 2048);  /* as the header says */
  ck_assert_int_gt(choice.phase_bytes, 0);
  t.call.sizes = &own;
  ck_fly_ok(fly_attention_sizes(&t.call, &own, &error), error); /* its own, completed */
  ck_assert_int_eq(own.split_keys, 640);
  ck_assert_int_eq(own.item_queries, 128);
  struct {
    size_t size;
    int32_t item_queries, behind;
  } shorter = {.size = offsetof(fly_cpu_sizes, split_keys), .behind = 7}; /* as an older caller has them */
  ck_fly_ok(fly_attention_sizes(&t.call, (fly_cpu_sizes *)(void *)&shorter, &error), error);
  ck_assert_int_eq(shorter.item_queries, 128);
  ck_assert_int_eq(shorter.behind, 7);
  call_free(&t);
  s.tile_q = 64; /* no item is larger than a tile */
  call_init(&t, &s, see_all, NULL);
  own = (fly_cpu_sizes){FLY_INIT(fly_cpu_sizes), .item_queries = 128};
  t.call.sizes = &own;
  ck_fly_ok(fly_attention_sizes(&t.call, &choice, &error), error);
  ck_assert_int_eq(choice.item_queries, 64);
  call_free(&t);
}
END_TEST

START_TEST(sizes_that_cannot_be_are_refused) {
  static const struct {
    fly_cpu_sizes sizes;
    const char *says;
  } cases[] = {
      {{.size = 0}, "sizes->size is 0"},
      {{FLY_INIT(fly_cpu_sizes), .item_queries = 32}, "item_queries is 32"},
      {{FLY_INIT(fly_cpu_sizes), .item_queries = -64}, "item_queries is -64"},
      {{FLY_INIT(fly_cpu_sizes), .item_queries = 256}, "item_queries is 256"},
      {{FLY_INIT(fly_cpu_sizes), .split_keys = 100}, "split_keys is 100"},
      {{FLY_INIT(fly_cpu_sizes), .split_keys = -64}, "split_keys is -64"},
      {{FLY_INIT(fly_cpu_sizes), .split_keys = INT32_MAX - 63}, "split_keys is"},
      {{FLY_INIT(fly_cpu_sizes), .phase_bytes = -1}, "phase_bytes is -1"},
      {{FLY_INIT(fly_cpu_sizes), .phase_bytes = INT64_MAX}, "it must be 0 to 2^40"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    call_case t;
    fly_error error = {0};
    fly_cpu_sizes out = {FLY_INIT(fly_cpu_sizes)};
    size_t bytes;
    call_init(&t, &split, see_all, NULL);
    t.call.sizes = &cases[i].sizes;
    ck_assert_int_eq(fly_attention_forward(&t.call, &error), FLY_ERROR_ARGUMENT);
    ck_assert_msg(strstr(error.message, cases[i].says) != NULL, "%s", error.message);
    ck_assert_int_eq(fly_attention_workspace(&t.call, &bytes, &error), FLY_ERROR_ARGUMENT);
    ck_assert_int_eq(fly_attention_sizes(&t.call, &out, &error), FLY_ERROR_ARGUMENT);
    ck_assert(*(float *)t.call.out.data == (float)CALL_UNTOUCHED);
    call_free(&t);
  }
  fly_error error;
  ck_assert_int_eq(fly_attention_sizes(NULL, &(fly_cpu_sizes){FLY_INIT(fly_cpu_sizes)}, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_attention_sizes(&(fly_attention){FLY_INIT(fly_attention)}, &(fly_cpu_sizes){0}, &error),
                   FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.message, "out->size is 0"));
  ck_assert_int_eq(fly_attention_sizes(&(fly_attention){FLY_INIT(fly_attention)}, NULL, &error), FLY_ERROR_ARGUMENT);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("sizes");
  TCase *tests = tcase_create("sizes");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, sharing_work_out_otherwise_gives_the_same_bits, 0, 6);
  tcase_add_test(tests, any_range_of_keys_gives_the_result);
  tcase_add_test(tests, the_choice_is_complete_and_can_be_asked_for);
  tcase_add_test(tests, sizes_that_cannot_be_are_refused);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
