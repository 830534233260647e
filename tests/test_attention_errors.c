/* Every misuse of the forward call and of kernels is refused before anything is written, and the message names the
 * argument. */
#include "runtime/call.h"
#include "support/call_case.h"

static int32_t bad_rows[200], cu_a[3] = {0, 30, 60}, cu_b[3] = {0, 40, 70};
static fly_bound other_bound;
static fly_mask other_mask;
static char room[1 << 16] __attribute__((aligned(64)));

/* ---- ways to spoil a good call: batch 2, 4 heads on 2, 60 queries on 70 keys, f32, D 16, DV 24 ----------------- */

static void no_size(fly_attention *c) { c->size = 0; }
static void no_kernel(fly_attention *c) { c->kernel = NULL; }
static void no_bound(fly_attention *c) { c->bound = NULL; }
static void foreign_bound(fly_attention *c) {
  other_mask.image.name = "other.c", other_mask.image.identity = (flyi_hash){7, 7}, other_bound.mask = &other_mask;
  c->bound = &other_bound;
}
static void other_values(fly_attention *c) {
  other_bound = *c->bound, other_bound.hash.low ^= 1;
  c->bound = &other_bound;
}
static void no_q(fly_attention *c) { c->q.data = NULL; }
static void no_k(fly_attention *c) { c->k.data = NULL; }
static void no_v(fly_attention *c) { c->v.data = NULL; }
static void no_out(fly_attention *c) { c->out.data = NULL; }
static void q_type(fly_attention *c) { c->q.type = FLY_F16; }
static void v_type(fly_attention *c) { c->v.type = FLY_BF16; }
static void lse_type(fly_attention *c) { c->lse.type = FLY_F16; }
static void q_dim(fly_attention *c) { c->q.shape[3] = 15; }
static void k_dim(fly_attention *c) { c->k.shape[3] = 24; }
static void v_dim(fly_attention *c) { c->v.shape[3] = 16; }
static void out_dim(fly_attention *c) { c->out.shape[3] = 16; }
static void lse_dim(fly_attention *c) { c->lse.shape[3] = 2; }
static void k_stride(fly_attention *c) { c->k.stride[3] = 2; }
static void negative_stride(fly_attention *c) { c->v.stride[2] = -24; }
static void negative_shape(fly_attention *c) { c->k.shape[2] = -1; }
static void huge_stride(fly_attention *c) { c->q.stride[1] = INT64_MAX / 2; }
static void odd_pointer(fly_attention *c) { c->q.data = (char *)c->q.data + 1; }
static void out_broadcast(fly_attention *c) { c->out.stride[1] = 0; }
static void lse_broadcast(fly_attention *c) { c->lse.stride[2] = 0; }
static void out_rows_meet(fly_attention *c) { c->out.stride[2] = 23; }
static void q_batch(fly_attention *c) { c->q.shape[0] = 1; }
static void k_batch(fly_attention *c) { c->k.shape[0] = 1; }
static void q_heads(fly_attention *c) { c->q.shape[1] = 3; }
static void out_heads(fly_attention *c) { c->out.shape[1] = 3; }
static void kv_heads(fly_attention *c) { c->v.shape[1] = 1; }
static void undivided(fly_attention *c) { c->k.shape[1] = c->v.shape[1] = 3; }
static void no_kv_heads(fly_attention *c) { c->k.shape[1] = c->v.shape[1] = 0; }
static void lse_rows(fly_attention *c) { c->lse.shape[2] = 59; }
static void q_short(fly_attention *c) { c->q.shape[2] = 59; }
static void k_short(fly_attention *c) { c->k.shape[2] = 69; }
static void v_short(fly_attention *c) { c->v.shape[2] = 69; }
static void out_short(fly_attention *c) { c->out.shape[2] = c->lse.shape[2] = 59; }
static void negative_length(fly_attention *c) { c->geometry.len_q = -5; }
static void other_length(fly_attention *c) { c->geometry.len_kv = 69; }
static void other_offset(fly_attention *c) { c->geometry.q_offset = 1; }
static void huge_offset(fly_attention *c) { c->geometry.q_offset = INT32_MAX; }
static void half_ragged(fly_attention *c) { c->geometry.cu_seqlens_q = cu_a; }
static void ragged_batch(fly_attention *c) { c->geometry.cu_seqlens_q = cu_a, c->geometry.cu_seqlens_kv = cu_b; }
static void ragged_no_batch(fly_attention *c) { ragged_batch(c), c->geometry.batch = 0; }
static void rows_from(fly_row_map *map, int first) {
  for (int i = 0; i < 200; i++) bad_rows[i] = i % 60;
  bad_rows[5] = first;
  map->rows = bad_rows;
}
static void q_row_large(fly_attention *c) { rows_from(&c->geometry.q_rows, 60); }
static void q_row_negative(fly_attention *c) { rows_from(&c->geometry.q_rows, -1); }
static void kv_row_large(fly_attention *c) { rows_from(&c->geometry.kv_rows, 70); }
static void out_row_large(fly_attention *c) { rows_from(&c->out_rows, 60); }
static void out_row_negative(fly_attention *c) { rows_from(&c->out_rows, -3); }
static void out_row_twice(fly_attention *c) { rows_from(&c->out_rows, 6); }
static void q_row_twice(fly_attention *c) { rows_from(&c->geometry.q_rows, 6); }
static void out_rows_stride(fly_attention *c) { rows_from(&c->out_rows, 5), c->out_rows.stride_head = -60; }
static void other_rows(fly_attention *c) { rows_from(&c->geometry.q_rows, 5); }
static void scale_nan(fly_attention *c) { c->scale = NAN; }
static void negative_threads(fly_attention *c) { c->threads = -1; }
static void out_is_q(fly_attention *c) { c->out.data = c->q.data; }
static void lse_in_v(fly_attention *c) { c->lse.data = (char *)c->v.data + 64; }
static void lse_in_k(fly_attention *c) { c->lse.data = c->k.data; }
static void lse_in_out(fly_attention *c) { c->lse.data = (char *)c->out.data + 40; }
static void odd_workspace(fly_attention *c) { c->workspace = room + 1, c->workspace_size = sizeof room - 1; }
static void small_workspace(fly_attention *c) { c->workspace = room, c->workspace_size = 640; }

static const struct {
  void (*spoil)(fly_attention *call);
  const char *says;
} misuses[] = {
    {no_size, "call.size"},
    {no_kernel, "kernel is NULL"},
    {no_bound, "bound is NULL"},
    {foreign_bound, "other.c"},
    {other_values, "map was built for another mask"},
    {no_q, "q.data is NULL"},
    {no_k, "k.data is NULL"},
    {no_v, "v.data is NULL"},
    {no_out, "out.data is NULL"},
    {q_type, "q.type is f16, wanted f32"},
    {v_type, "v.type is bf16, wanted f32"},
    {lse_type, "lse.type is f16, wanted f32"},
    {q_dim, "q.shape[3] is 15, wanted 16"},
    {k_dim, "k.shape[3] is 24, wanted 16"},
    {v_dim, "v.shape[3] is 16, wanted 24"},
    {out_dim, "out.shape[3]"},
    {lse_dim, "lse.shape[3] is 2, wanted 1"},
    {k_stride, "k.stride[3] is 2"},
    {negative_stride, "v.stride[2] is -24"},
    {negative_shape, "k.shape[2] is -1"},
    {huge_stride, "q: shape and strides"},
    {odd_pointer, "q.data is not aligned"},
    {out_broadcast, "out: strides"},
    {lse_broadcast, "lse: strides"},
    {out_rows_meet, "out: strides"},
    {q_batch, "q.shape[0] is 1"},
    {k_batch, "k.shape[0] is 1"},
    {q_heads, "q.shape[1] is 3"},
    {out_heads, "out.shape[1] is 3"},
    {kv_heads, "v.shape[1] is 1"},
    {undivided, "q has 4 heads, k and v 3"},
    {no_kv_heads, "q has 4 heads, k and v 0"},
    {lse_rows, "lse.shape[2] is 59"},
    {q_short, "the call has 60 query rows, but q has 59"},
    {k_short, "the call has 70 key rows, but k has 69"},
    {v_short, "the call has 70 key rows, but v has 69"},
    {out_short, "the call has 60 query rows, but out has 59"},
    {negative_length, "-5"},
    {other_length, "map was built for another geometry"},
    {other_offset, "map was built for another geometry"},
    {huge_offset, "q_offset"},
    {half_ragged, "cu_seqlens_kv is NULL"},
    {ragged_batch, "with cu_seqlens it must be 1"},
    {ragged_no_batch, "geometry.batch is 0"},
    {q_row_large, "q_rows: row 5 of (batch 0, head 0) is 60, but q has 60 rows"},
    {q_row_negative, "q_rows: row 5"},
    {kv_row_large, "kv_rows: row 5 of (batch 0, head 0) is 70, but k has 70 rows"},
    {out_row_large, "out_rows: row 5 of (batch 0, head 0) is 60, but out has 60 rows"},
    {out_row_negative, "out_rows: row 5"},
    {out_row_twice, "out_rows: row 6 of (batch 0, head 0) is 6 for the second time"},
    {q_row_twice, "q_rows (as out_rows is not given): row 6"},
    {out_rows_stride, "out_rows: strides"},
    {other_rows, "map was built for another geometry"},
    {scale_nan, "scale is not finite"},
    {negative_threads, "threads is -1"},
    {out_is_q, "out and q share memory"},
    {lse_in_v, "lse and v share memory"},
    {lse_in_k, "lse and k share memory"},
    {lse_in_out, "out and lse share memory"},
    {odd_workspace, "workspace is not aligned"},
    {small_workspace, "workspace_size is 640: the call needs"},
};
enum { MISUSES = sizeof misuses / sizeof misuses[0] };

static const call_spec good = {
    .dim = 16, .value_dim = 24, .batch = 2, .heads = 4, .kv_heads = 2, .len_q = 60, .len_kv = 70};

START_TEST(misuse_is_refused_by_name) {
  call_case t;
  fly_error error = {0};
  call_init(&t, &good, see_causal, NULL);
  fly_attention call = t.call;
  misuses[_i].spoil(&call);
  ck_assert_int_eq(fly_attention_forward(&call, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(error.status, FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, misuses[_i].says) != NULL, "says '%s', wanted '%s'", error.message,
                misuses[_i].says);
  ck_assert_int_eq(fly_attention_forward(&call, NULL), FLY_ERROR_ARGUMENT); /* error may be NULL */
  for (int64_t r = 0; r < 60; r++) ck_assert(oracle_get(&t.call.out, 1, 3, r, 23) == CALL_UNTOUCHED);
  call_free(&t);
}
END_TEST

START_TEST(the_good_call_is_accepted) {
  call_test(&good, see_causal, NULL);
  fly_error error;
  ck_assert_int_eq(fly_attention_forward(NULL, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_attention_workspace(NULL, NULL, &error), FLY_ERROR_ARGUMENT);
}
END_TEST

START_TEST(map_tiles_must_be_multiples_of_64) {
  static const int tiles[][2] = {{8, 64}, {64, 24}, {96, 128}, {128, 100}};
  for (int i = 0; i < 4; i++) {
    call_case t;
    fly_error error;
    call_spec s = good;
    s.tile_q = tiles[i][0], s.tile_kv = tiles[i][1];
    call_init(&t, &s, see_causal, NULL);
    ck_assert_int_eq(fly_attention_forward(&t.call, &error), FLY_ERROR_ARGUMENT);
    ck_assert_msg(strstr(error.message, "multiples of 64") != NULL, "%s", error.message);
    call_free(&t);
  }
}
END_TEST

START_TEST(tensors_that_interleave_are_not_overlapping) { /* Q and out in one array of [row][q, out] */
  call_case t;
  fly_error error;
  call_spec s = {.dim = 16, .len_q = 60, .len_kv = 70};
  call_init(&t, &s, see_causal, NULL);
  float *both = malloc(60 * 32 * sizeof *both);
  fly_attention call = t.call;
  call.q.data = both, call.out.data = both + 16;
  call.q.stride[2] = call.out.stride[2] = 32;
  for (int64_t r = 0; r < 60; r++)
    for (int64_t d = 0; d < 16; d++) oracle_set(&call.q, 0, 0, r, d, oracle_get(&t.call.q, 0, 0, r, d));
  ck_fly_ok(fly_attention_forward(&call, &error), error);
  oracle_check(&call, see_causal, NULL, CALL_UNTOUCHED, "interleaved");
  call.out.data = both + 15;
  ck_assert_int_eq(fly_attention_forward(&call, &error), FLY_ERROR_ARGUMENT);
  free(both);
  call_free(&t);
}
END_TEST

START_TEST(geometry_comes_from_the_tensors) {
  call_case t;
  fly_error error;
  call_init(&t, &good, see_causal, NULL);
  t.call.geometry = (fly_geometry){0};
  ck_fly_ok(fly_attention_forward(&t.call, &error), error);
  t.call.geometry = t.made.map.geometry;
  oracle_check(&t.call, see_causal, NULL, CALL_UNTOUCHED, "default geometry");
  call_free(&t);
}
END_TEST

START_TEST(failed_allocations_are_reported) {
  call_case t;
  call_spec s = {.dim = 16, .len_q = 60, .len_kv = 70, .out_rows = 1};
  call_init(&t, &s, see_causal, NULL);
  fly_error error;
  int failures = 0;
  void *kept = flyi_workspace_take(1); /* what earlier calls may have left for this one */
  for (long n = 1; n < 100; n++) {
    flyi_fail_allocation(n);
    fly_status status = fly_attention_forward(&t.call, &error);
    flyi_fail_allocation(0);
    if (status == FLY_OK) break;
    ck_assert_int_eq(status, FLY_ERROR_MEMORY);
    failures++;
  }
  flyi_workspace_give(kept);
  ck_assert_int_ge(failures, 2);
  oracle_check(&t.call, see_causal, NULL, CALL_UNTOUCHED, "after failures");
  call_free(&t);
}
END_TEST

/* ---- kernels --------------------------------------------------------------------------------------------------- */

static void refuse_kernel(fly_kernel_desc desc, fly_status status, const char *says) {
  fly_mask mask = {.references = 1, .image = {.name = "m.c", .target = "x86-64"}};
  fly_kernel *kernel = (fly_kernel *)&mask;
  fly_error error;
  ck_assert_int_eq(fly_kernel_create(&mask, &desc, &kernel, &error), status);
  ck_assert_ptr_null(kernel);
  ck_assert_msg(strstr(error.message, says) != NULL, "%s", error.message);
}

static fly_kernel_desc described(size_t size, fly_type type, int head_dim, int value_dim, const char *target) {
  return (fly_kernel_desc){
      .size = size, .type = type, .head_dim = head_dim, .value_dim = value_dim, .target = target};
}

START_TEST(kernel_descriptions_are_checked) {
  const size_t size = sizeof(fly_kernel_desc);
  refuse_kernel(described(0, FLY_F32, 64, 64, NULL), FLY_ERROR_ARGUMENT, "desc.size");
  refuse_kernel(described(size, FLY_F64, 64, 64, NULL), FLY_ERROR_ARGUMENT, "desc.type is f64");
  refuse_kernel(described(size, FLY_TYPE_NONE, 64, 64, NULL), FLY_ERROR_ARGUMENT, "desc.type");
  refuse_kernel(described(size, FLY_F32, 0, 64, NULL), FLY_ERROR_ARGUMENT, "desc.head_dim is 0");
  refuse_kernel(described(size, FLY_F32, 513, 64, NULL), FLY_ERROR_ARGUMENT, "desc.head_dim is 513");
  refuse_kernel(described(size, FLY_F32, -1, 64, NULL), FLY_ERROR_ARGUMENT, "desc.head_dim is -1");
  refuse_kernel(described(size, FLY_F32, 64, 513, NULL), FLY_ERROR_ARGUMENT, "desc.value_dim is 513");
  refuse_kernel(described(size, FLY_F32, 64, -2, NULL), FLY_ERROR_ARGUMENT, "desc.value_dim is -2");
  refuse_kernel(described(size, FLY_F32, 64, 64, "x86-64-v9"), FLY_ERROR_ARGUMENT, "target x86-64-v9");
  fly_error error;
  fly_kernel *kernel;
  fly_kernel_desc desc = described(size, FLY_F32, 64, 0, NULL);
  ck_assert_int_eq(fly_kernel_create(NULL, &desc, &kernel, &error), FLY_ERROR_ARGUMENT);
  ck_assert_str_eq(error.message, "mask is NULL");
}
END_TEST

START_TEST(targets_follow_the_machine) { /* a lower level can be forced, a higher one cannot */
  flyi_isa isa;
  fly_error error;
  const char *const *targets = fly_cpu_targets();
  ck_assert_str_eq(targets[0], flyi_isa_name(flyi_isa_best()));
  setenv("FLYMASK_ISA", flyi_isa_name(FLYI_ISA_FIRST), 1);
  ck_assert_int_eq(flyi_isa_best(), FLYI_ISA_FIRST);
  ck_assert_str_eq(fly_cpu_targets()[0], flyi_isa_name(FLYI_ISA_FIRST));
  ck_assert_ptr_null(fly_cpu_targets()[1]);
  for (int other = FLYI_ISA_FIRST + 1; other <= FLYI_ISA_LAST; other++)
    ck_assert_int_eq(flyi_isa_parse(flyi_isa_name((flyi_isa)other), &isa, &error), FLY_ERROR_UNSUPPORTED);
  ck_assert_int_eq(flyi_isa_parse(NULL, &isa, &error), FLY_OK);
  ck_assert_int_eq(isa, FLYI_ISA_FIRST);
  flyi_isa foreign = flyi_isa_is_here(FLYI_AARCH64) ? FLYI_X86_64 : FLYI_AARCH64;
  setenv("FLYMASK_ISA", flyi_isa_name(foreign), 1);
  ck_assert_int_eq(flyi_isa_parse(NULL, &isa, &error), FLY_ERROR_ARGUMENT);
  unsetenv("FLYMASK_ISA");
  ck_assert_int_eq(flyi_isa_parse(flyi_isa_name(foreign), &isa, &error), FLY_ERROR_UNSUPPORTED);
  ck_assert_ptr_nonnull(strstr(error.message, "this machine is "));
  ck_assert_int_eq(flyi_isa_parse_any(flyi_isa_name(foreign), &isa, &error), FLY_OK);
  ck_assert_int_eq(isa, foreign);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("attention_errors");
  TCase *tests = tcase_create("errors");
  tcase_add_loop_test(tests, misuse_is_refused_by_name, 0, MISUSES);
  tcase_add_test(tests, the_good_call_is_accepted);
  tcase_add_test(tests, map_tiles_must_be_multiples_of_64);
  tcase_add_test(tests, tensors_that_interleave_are_not_overlapping);
  tcase_add_test(tests, geometry_comes_from_the_tensors);
  tcase_add_test(tests, failed_allocations_are_reported);
  tcase_add_test(tests, kernel_descriptions_are_checked);
  tcase_add_test(tests, targets_follow_the_machine);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
