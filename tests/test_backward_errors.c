/* Misuse of the backward call is refused before anything is written, and the message names the argument; workspaces and
 * failing allocations. */
#include "runtime/call.h"
#include "support/backward_case.h"

static char room[1 << 16] __attribute__((aligned(64)));

/* ---- ways to spoil a good call: batch 2, 4 heads on 2, 60 queries on 70 keys, f32, D 16, DV 24 ------------------- */

static void no_kernel(fly_attention *c) { c->kernel = NULL; }
static void no_lse(fly_attention *c) { c->lse.data = NULL; }
static void no_d_out(fly_attention *c) { c->d_out.data = NULL; }
static void no_gradients(fly_attention *c) { c->d_q.data = c->d_k.data = c->d_v.data = NULL; }
static void d_out_type(fly_attention *c) { c->d_out.type = FLY_BF16; }
static void d_out_dim(fly_attention *c) { c->d_out.shape[3] = 16; }
static void d_out_rows(fly_attention *c) { c->d_out.shape[2] = 59; }
static void d_out_stride(fly_attention *c) { c->d_out.stride[2] = -24; }
static void d_lse_type(fly_attention *c) { c->d_lse.type = FLY_F16; }
static void d_lse_heads(fly_attention *c) { c->d_lse.shape[1] = 2; }
static void d_q_type(fly_attention *c) { c->d_q.type = FLY_F16; }
static void d_q_dim(fly_attention *c) { c->d_q.shape[3] = 24; }
static void d_q_broadcast(fly_attention *c) { c->d_q.stride[1] = 0; }
static void d_k_heads(fly_attention *c) { c->d_k.shape[1] = 4; }
static void d_k_rows(fly_attention *c) { c->d_k.shape[2] = 71; }
static void d_v_batch(fly_attention *c) { c->d_v.shape[0] = 1; }
static void d_v_rows_meet(fly_attention *c) { c->d_v.stride[2] = 23; }
static void d_q_is_q(fly_attention *c) { c->d_q.data = c->q.data; }
static void d_k_in_v(fly_attention *c) { c->d_k.data = c->v.data; }
static void d_v_in_out(fly_attention *c) { c->d_v.data = (char *)c->out.data + 64; }
static void d_q_in_d_out(fly_attention *c) { c->d_q.data = c->d_out.data; }
static void d_k_is_d_v(fly_attention *c) { c->d_k.data = c->d_v.data; }
static void d_v_in_lse(fly_attention *c) { c->d_v.data = c->lse.data; }
static void d_q_in_d_lse(fly_attention *c) { c->d_q.data = c->d_lse.data; }
static void odd_workspace(fly_attention *c) { c->workspace = room + 1, c->workspace_size = sizeof room - 1; }
static void small_workspace(fly_attention *c) { c->workspace = room, c->workspace_size = 640; }

static const struct {
  void (*spoil)(fly_attention *call);
  const char *says;
} misuses[] = {
    {no_kernel, "kernel is NULL"},
    {no_lse, "lse.data is NULL"},
    {no_d_out, "d_out.data is NULL"},
    {no_gradients, "d_q, d_k and d_v are all NULL"},
    {d_out_type, "d_out.type is bf16, wanted f32"},
    {d_out_dim, "d_out.shape[3] is 16, wanted 24"},
    {d_out_rows, "d_out.shape[2] is 59, out.shape[2] 60"},
    {d_out_stride, "d_out.stride[2] is -24"},
    {d_lse_type, "d_lse.type is f16, wanted f32"},
    {d_lse_heads, "d_lse.shape[1] is 2, lse.shape[1] 4"},
    {d_q_type, "d_q.type is f16, wanted f32"},
    {d_q_dim, "d_q.shape[3] is 24, wanted 16"},
    {d_q_broadcast, "d_q: strides"},
    {d_k_heads, "d_k.shape[1] is 4, k.shape[1] 2"},
    {d_k_rows, "d_k.shape[2] is 71, k.shape[2] 70"},
    {d_v_batch, "d_v.shape[0] is 1, v.shape[0] 2"},
    {d_v_rows_meet, "d_v: strides"},
    {d_q_is_q, "d_q and q share memory"},
    {d_k_in_v, "d_k and v share memory"},
    {d_v_in_out, "d_v and out share memory"},
    {d_q_in_d_out, "d_q and d_out share memory"},
    {d_k_is_d_v, "d_k and d_v share memory"},
    {d_v_in_lse, "share memory"},
    {d_q_in_d_lse, "share memory"},
    {odd_workspace, "workspace is not aligned"},
    {small_workspace, "workspace_size is 640: the call needs"},
};
enum { MISUSES = sizeof misuses / sizeof misuses[0] };

static const backward_spec good = {
    .call = {.dim = 16, .value_dim = 24, .batch = 2, .heads = 4, .kv_heads = 2, .len_q = 60, .len_kv = 70},
    .d_lse = true};

START_TEST(misuse_is_refused_by_name) {
  backward_case t;
  fly_error error = {0};
  backward_init(&t, &good, see_causal, NULL);
  uint64_t before = backward_digest(&t);
  fly_attention call = t.base.call;
  misuses[_i].spoil(&call);
  ck_assert_int_eq(fly_attention_backward(&call, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, misuses[_i].says) != NULL, "says '%s', wanted '%s'", error.message,
                misuses[_i].says);
  ck_assert_int_eq(fly_attention_backward(&call, NULL), FLY_ERROR_ARGUMENT); /* error may be NULL */
  ck_assert_uint_eq(backward_digest(&t), before);
  backward_free(&t);
}
END_TEST

/* 128 heads of 2^30 queries with the same keys are 2^31 blocks of 64, one less are not as many. */
START_TEST(more_blocks_of_queries_than_can_be_numbered_are_refused) {
  backward_case t;
  backward_spec s = {
      .call = {.dim = 16, .value_dim = 16, .batch = 1, .heads = 128, .kv_heads = 1, .len_q = 1, .len_kv = 1},
      .no_d_q = true};
  fly_error error;
  size_t bytes;
  backward_init(&t, &s, see_all, NULL);
  fly_attention call = t.base.call;
  fly_tensor *rows[] = {&call.q, &call.out, &call.d_out, &call.lse};
  for (int64_t n = (INT64_C(1) << 30) - 64; n <= INT64_C(1) << 30; n += 64) {
    for (uint64_t i = 0; i < 4; i++) /* nowhere: nothing reads them */
      *rows[i] = fly_tensor_dense((void *)((i + 1) << 50), FLY_F32, 1, 128, n, rows[i]->shape[3]);
    call.geometry.len_q = n, call.map = NULL;
    fly_status status = fly_attention_backward_workspace(&call, &bytes, &error);
    if (n < INT64_C(1) << 30) {
      ck_fly_ok(status, error);
      continue;
    }
    ck_assert_int_eq(status, FLY_ERROR_UNSUPPORTED);
    ck_assert_msg(strstr(error.message, "128 heads with the same keys, of 1073741824 queries") != NULL, "%s",
                  error.message);
  }
  backward_free(&t);
}
END_TEST

START_TEST(the_good_call_is_accepted) {
  backward_test(&good, see_causal, NULL);
  fly_error error;
  ck_assert_int_eq(fly_attention_backward(NULL, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_attention_backward_workspace(NULL, NULL, &error), FLY_ERROR_ARGUMENT);
}
END_TEST

START_TEST(empty_calls_give_zero_gradients) {
  static const int lengths[][2] = {{0, 70}, {60, 0}, {0, 0}};
  for (int i = 0; i < 3; i++) {
    backward_spec s = good;
    s.call.len_q = lengths[i][0], s.call.len_kv = lengths[i][1];
    backward_test(&s, see_all, NULL);
  }
}
END_TEST

START_TEST(a_workspace_of_the_size_asked_for_is_enough) { /* and nothing outside of it is touched: guard pages */
  for (int rows = 0; rows < 4; rows++)
    for (int type = 0; type < 2; type++) {
      backward_case t;
      fly_error error;
      size_t bytes;
      backward_spec s = {.call = {.type = type ? FLY_BF16 : FLY_F32,
                                  .dim = 64,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .len_q = 200,
                                  .len_kv = 200,
                                  .q_rows = rows & 1 ? 3 : 0,
                                  .kv_rows = rows & 2 ? 3 : 0,
                                  .out_rows = rows & 1,
                                  .threads = 2}};
      backward_init(&t, &s, see_causal, NULL);
      fly_attention *c = &t.base.call;
      ck_fly_ok(fly_attention_backward_workspace(c, &bytes, &error), error);
      ck_assert_uint_eq(bytes % 64, 0);
      c->workspace = guard_alloc(bytes, 64, 0), c->workspace_size = bytes;
      backward_run(&t);
      oracle_check_backward(c, see_causal, NULL, "own workspace");
      c->workspace_size = bytes - 1;
      ck_assert_int_eq(fly_attention_backward(c, &error), FLY_ERROR_ARGUMENT);
      guard_free(c->workspace);
      backward_free(&t);
    }
}
END_TEST

START_TEST(the_workspace_grows_with_the_length_alone) { /* and less than by its square: O(n d) */
  size_t bytes[2];
  for (int i = 0; i < 2; i++) {
    backward_case t;
    fly_error error;
    backward_spec s = {.call = {.dim = 64,
                                .type = FLY_F16,
                                .len_q = 512 << i,
                                .len_kv = 512 << i,
                                .threads = 1,
                                .kv_rows = 3,
                                .q_rows = 3,
                                .out_rows = 1}};
    backward_init(&t, &s, see_none, NULL);
    ck_fly_ok(fly_attention_backward_workspace(&t.base.call, &bytes[i], &error), error);
    backward_free(&t);
  }
  ck_assert_uint_le(bytes[1], 2 * bytes[0]);
  ck_assert_uint_le(bytes[0], 512 * 4 * 64 * 6 + 600000); /* Q, dO, dQ, dK, dV; the scratch of one thread */
}
END_TEST

START_TEST(failed_allocations_are_reported) {
  backward_case t;
  fly_error error;
  backward_spec s = {.call = {.dim = 16, .len_q = 60, .len_kv = 70, .out_rows = 1, .kv_rows = 3}};
  backward_init(&t, &s, see_causal, NULL);
  int failures = 0;
  void *kept = flyi_workspace_take(1); /* what earlier calls may have left for this one */
  for (long n = 1; n < 100; n++) {
    flyi_fail_allocation(n);
    fly_status status = fly_attention_backward(&t.base.call, &error);
    flyi_fail_allocation(0);
    if (status == FLY_OK) break;
    ck_assert_int_eq(status, FLY_ERROR_MEMORY);
    failures++;
  }
  flyi_workspace_give(kept);
  ck_assert_int_ge(failures, 4); /* unique rows, repeated rows, the transposed map, the workspace */
  oracle_check_backward(&t.base.call, see_causal, NULL, "after failures");
  backward_free(&t);
}
END_TEST

/* ---- tensors that share memory, against every byte --------------------------------------------------------------- */

enum { BYTES = 4096 };

static void mark(const fly_tensor *t, char *bytes) {
  memset(bytes, 0, BYTES);
  for (int64_t b = 0; b < t->shape[0]; b++)
    for (int64_t h = 0; h < t->shape[1]; h++)
      for (int64_t r = 0; r < t->shape[2]; r++)
        memset(bytes + ((char *)t->data - room) + 4 * (b * t->stride[0] + h * t->stride[1] + r * t->stride[2]), 1,
               4 * (size_t)t->shape[3]);
}

static bool share(const fly_tensor *a, const fly_tensor *b) {
  char of_a[BYTES], of_b[BYTES];
  mark(a, of_a), mark(b, of_b);
  for (int i = 0; i < BYTES; i++)
    if (of_a[i] && of_b[i]) return true;
  return false;
}

static fly_tensor any_tensor(test_random *random) {
  fly_tensor t = {.type = FLY_F32, .data = room + 4 * test_range(random, 0, 199), .stride = {0, 0, 0, 1}};
  for (int i = 0; i < 4; i++) t.shape[i] = test_range(random, 1, 3);
  for (int i = 0; i < 3; i++)
    t.stride[i] = test_range(random, 0, 1) ? 4 * test_range(random, 0, 19) : test_range(random, 0, 79);
  return t;
}

START_TEST(sharing_is_never_overlooked) {
  test_random random = {1};
  int sharing = 0, apart = 0;
  for (int i = 0; i < 200000; i++) {
    fly_tensor a = any_tensor(&random), b = any_tensor(&random);
    bool both = share(&a, &b), found = flyi_tensors_overlap(&a, &b);
    ck_assert_msg(found || !both, "case %d", i);
    sharing += both, apart += !found;
  }
  ck_assert_int_gt(sharing, 1000);
  ck_assert_int_gt(apart, 1000);
}
END_TEST

/* Heads [first, first + heads) of the rows of one array, whose dimensions batch, rows and heads nest in that order. */
static fly_tensor part_of_array(const int *order, const int64_t *sizes, int64_t first, int64_t heads) {
  int64_t stride[3], step = 4;
  for (int i = 2; i >= 0; i--) stride[order[i]] = step, step *= sizes[order[i]];
  return (fly_tensor){.type = FLY_F32,
                      .data = room + 4 * first * stride[1],
                      .shape = {sizes[0], heads, sizes[2], 4},
                      .stride = {stride[0], stride[1], stride[2], 1}};
}

START_TEST(parts_of_one_array_do_not_share_memory) {
  static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  const int64_t sizes[3] = {2, 6, 5}; /* batch, all heads: 3 of q, 1 of k, 2 of v; rows */
  for (int i = 0; i < 6; i++) {
    fly_tensor q = part_of_array(orders[i], sizes, 0, 3), k = part_of_array(orders[i], sizes, 3, 1);
    fly_tensor v = part_of_array(orders[i], sizes, 4, 2);
    ck_assert(!flyi_tensors_overlap(&q, &k) && !flyi_tensors_overlap(&k, &v) && !flyi_tensors_overlap(&v, &q));
    k.data = (char *)k.data - 4;
    ck_assert(flyi_tensors_overlap(&q, &k));
    ck_assert(!flyi_tensors_overlap(&k, &v));
  }
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("backward_errors");
  TCase *tests = tcase_create("errors");
  tcase_add_loop_test(tests, misuse_is_refused_by_name, 0, MISUSES);
  tcase_add_test(tests, more_blocks_of_queries_than_can_be_numbered_are_refused);
  tcase_add_test(tests, the_good_call_is_accepted);
  tcase_add_test(tests, empty_calls_give_zero_gradients);
  tcase_add_test(tests, a_workspace_of_the_size_asked_for_is_enough);
  tcase_add_test(tests, the_workspace_grows_with_the_length_alone);
  tcase_add_test(tests, failed_allocations_are_reported);
  tcase_add_test(tests, sharing_is_never_overlooked);
  tcase_add_test(tests, parts_of_one_array_do_not_share_memory);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(suite)
