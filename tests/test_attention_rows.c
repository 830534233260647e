/* Strides, row maps, offsets and ragged batches reach the right rows and no others. */
#include <sys/mman.h>

#include "support/call_case.h"

static int window[2] = {40, 12};
static int half = 128;
static const fly_type types[] = {FLY_F32, FLY_F16, FLY_BF16};

START_TEST(any_layout) {
  for (int layout = 0; layout < LAYOUTS; layout++)
    for (int t = 0; t < 3; t++) {
      call_spec s = {.type = types[t],
                     .dim = 32,
                     .value_dim = 20,
                     .batch = 2,
                     .heads = 6,
                     .kv_heads = 2,
                     .len_q = 70,
                     .len_kv = 133,
                     .layout = layout,
                     .seed = layout};
      call_test(&s, see_window, window);
      call_test(&s, see_random, &half);
    }
}
END_TEST

START_TEST(value_rows_in_place_and_packed_agree) { /* dense f32 values are read in place, padded ones are packed */
  CALL_FOR_TARGETS(target)
  for (int layout = 0; layout < LAYOUTS; layout++) {
    call_spec s = {
        .dim = 16, .value_dim = 64, .target = target, .heads = 2, .len_q = 100, .len_kv = 130, .layout = layout};
    call_test(&s, see_causal, NULL);
  }
}
END_TEST

START_TEST(row_maps_gather_and_scatter) { /* _i: kinds of the three maps, base 4 */
  int q = _i % 4, kv = _i / 4 % 4, out = _i / 16;
  if (q == 3 && out == 0) return; /* duplicates need out_rows */
  for (int t = 0; t < 3; t++) {
    call_spec s = {.type = types[t],
                   .dim = 24,
                   .batch = 2,
                   .heads = 4,
                   .kv_heads = 2,
                   .len_q = 75,
                   .len_kv = 140,
                   .q_rows = q,
                   .kv_rows = kv,
                   .out_rows = out,
                   .layout = _i % LAYOUTS,
                   .seed = _i};
    if (s.layout == LAYOUT_BROADCAST) s.layout = LAYOUT_BHSD;
    call_test(&s, see_window, window);
    call_test(&s, see_random, &half);
  }
}
END_TEST

START_TEST(query_offset_shifts_what_the_mask_sees) {
  static const int offsets[] = {0, 1, 63, 64, 65, 200, -1, -70, 1000};
  CALL_FOR_TARGETS(target) {
    call_spec s = {.dim = 16, .target = target, .len_q = 80, .len_kv = 230, .q_offset = offsets[_i]};
    call_test(&s, see_causal, NULL);
    call_test(&s, see_window, window);
  }
}
END_TEST

START_TEST(ragged_batches) {
  static const int32_t cu_q[] = {0, 70, 70, 71, 200, 328, 391}, cu_kv[] = {0, 65, 130, 130, 131, 300, 600};
  for (int maps = 0; maps < 8; maps++)
    for (int layout = 0; layout < LAYOUT_BROADCAST; layout++) {
      call_spec s = {.dim = 16,
                     .batch = 6,
                     .heads = 4,
                     .kv_heads = 2,
                     .cu_q = cu_q,
                     .cu_kv = cu_kv,
                     .layout = layout,
                     .q_rows = maps & 1 ? 2 : 0,
                     .kv_rows = maps & 2 ? 3 : 0,
                     .out_rows = maps & 4 ? 1 : 0,
                     .seed = maps};
      call_test(&s, see_causal, NULL);
      call_test(&s, see_random, &half);
    }
}
END_TEST

START_TEST(one_query_on_many_keys) { /* decoding: the cache's rows in any order, some repeated */
  CALL_FOR_TARGETS(target) {
    call_spec s = {.type = types[_i],
                   .dim = 128,
                   .target = target,
                   .batch = 3,
                   .heads = 8,
                   .kv_heads = 2,
                   .len_q = 1,
                   .len_kv = 1000,
                   .q_offset = 999,
                   .kv_rows = 3};
    call_test(&s, see_causal, NULL);
  }
}
END_TEST

/* The call may be larger or smaller than its tensors: rows beyond the call's lengths are not read, and not written. */
START_TEST(rows_beyond_the_lengths_are_left_alone) {
  fly_error error;
  call_spec s = {.dim = 8, .len_q = 100, .len_kv = 90};
  call_case t;
  call_init(&t, &s, see_all, NULL);
  for (int64_t r = 70; r < 90; r++)
    for (int64_t d = 0; d < 8; d++) oracle_set(&t.call.k, 0, 0, r, d, NAN), oracle_set(&t.call.v, 0, 0, r, d, NAN);
  handmade_free(&t.made);
  t.call.geometry.len_q = 66, t.call.geometry.len_kv = 70;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), FLY_F32, 8, 0, NULL};
  handmade_init(&t.made, see_all, NULL, NULL, &desc, &t.call.geometry, 128, 128, 0);
  t.call.kernel = t.made.kernel;
  ck_fly_ok(fly_attention_forward(&t.call, &error), error);
  oracle_check(&t.call, see_all, NULL, CALL_UNTOUCHED, "shorter call");
  call_free(&t);
}
END_TEST

/* Rows of K and V 16 MB apart: offsets beyond 2^31 elements. Only the pages that are touched exist. */
START_TEST(offsets_beyond_31_bits) {
  enum { STEP = 1 << 22, ROWS_KV = 600 };
  size_t bytes = ((size_t)(ROWS_KV - 1) * STEP + 16) * sizeof(float);
  float *far = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (far == MAP_FAILED) {
    printf("skipped: no %zu bytes of address space\n", bytes);
    return;
  }
  call_spec s = {.dim = 8, .len_q = 70, .len_kv = ROWS_KV, .q_offset = ROWS_KV - 70};
  call_case t;
  call_init(&t, &s, see_causal, NULL);
  fly_tensor k = t.call.k, v = t.call.v;
  t.call.k.data = far, t.call.v.data = far + 8;
  t.call.k.stride[2] = t.call.v.stride[2] = STEP;
  for (int64_t r = 0; r < ROWS_KV; r++)
    for (int64_t d = 0; d < 8; d++) {
      oracle_set(&t.call.k, 0, 0, r, d, oracle_get(&k, 0, 0, r, d));
      oracle_set(&t.call.v, 0, 0, r, d, oracle_get(&v, 0, 0, r, d));
    }
  call_run(&t);
  oracle_check(&t.call, see_causal, NULL, CALL_UNTOUCHED, "far rows");
  call_free(&t);
  munmap(far, bytes);
}
END_TEST

/* Rows of 64 byte lines go past the cache where a map scatters so many of them; _i: 1, rows that are no whole lines. */
START_TEST(results_larger_than_the_cache) {
  CALL_FOR_TARGETS(target) {
    call_spec s = {.target = target,
                   .dim = 8,
                   .value_dim = _i ? 250 : 256,
                   .heads = 2,
                   .len_q = 1100,
                   .len_kv = 200,
                   .q_rows = 2,
                   .out_rows = 2,
                   .threads = 2};
    call_test(&s, see_window, window);
  }
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("attention_rows");
  TCase *tests = tcase_create("rows");
  tcase_add_test(tests, any_layout);
  tcase_add_test(tests, value_rows_in_place_and_packed_agree);
  tcase_add_loop_test(tests, row_maps_gather_and_scatter, 0, 48);
  tcase_add_loop_test(tests, query_offset_shifts_what_the_mask_sees, 0, 9);
  tcase_add_test(tests, ragged_batches);
  tcase_add_loop_test(tests, one_query_on_many_keys, 0, 3);
  tcase_add_test(tests, rows_beyond_the_lengths_are_left_alone);
  tcase_add_test(tests, offsets_beyond_31_bits);
  tcase_add_loop_test(tests, results_larger_than_the_cache, 0, 2);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
