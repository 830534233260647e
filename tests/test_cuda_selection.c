/* Attention over selected blocks on a CUDA device, simulated here: against dense attention with the selection as a
 * bitmap in double precision, forward and backward; and MoBA's choice there, by its rule in double precision. */
#include "cuda_case.h"
#include "oracle_backward.h"
#include "scene_tensors.h"
#include "selection_case.h"

static fly_cuda *cuda; /* NULL: images are packed, nothing runs */

static void open_device(void) { cuda = cuda_open_to_run(); }
static void close_device(void) { fly_cuda_release(&cuda); }

typedef struct spec {
  int64_t batch, heads, kv_heads, len_q, len_kv;
  int dim, value_dim, block, top; /* top 0: any blocks, with queries that see nothing */
  bool not_causal;
} spec;

static const spec specs[] = {
    {1, 2, 1, 300, 300, 64, 64, 32, 3, false}, {2, 4, 2, 130, 130, 16, 24, 8, 5, false}, /* several blocks of a tile */
    {1, 2, 2, 70, 300, 32, 32, 100, 2, false}, {1, 2, 1, 150, 170, 32, 32, 16, 0, false},
    {2, 2, 1, 90, 200, 16, 16, 70, 0, true},
};
enum { SPECS = sizeof specs / sizeof *specs };

static fly_selection *select_blocks(fly_mask *mask, const spec *s, const fly_attention *c) {
  fly_selection *selection;
  fly_error error;
  const int64_t blocks = (s->len_kv + s->block - 1) / s->block;
  if (s->top) { /* chosen on the host: the device has tests of its own */
    fly_moba_desc d = {FLY_INIT(fly_moba_desc),         .block = s->block, .top = s->top, .q = c->q, .k = c->k,
                       .q_offset = s->len_kv - s->len_q};
    ck_fly_ok(fly_moba_select(mask, &d, &selection, &error), error);
    return selection;
  }
  uint8_t *bitmap = malloc((size_t)(s->batch * s->heads * s->len_q * blocks));
  test_random random = {11};
  for (int64_t i = 0; i < s->batch * s->heads * s->len_q * blocks; i++)
    bitmap[i] = i / blocks % 13 != 5 && test_range(&random, 0, 99) < 30;
  fly_selection_desc d = {FLY_INIT(fly_selection_desc),
                          .block = s->block,
                          .batch = s->batch,
                          .heads = s->heads,
                          .len_q = s->len_q,
                          .len_kv = s->len_kv,
                          .q_offset = s->len_kv - s->len_q,
                          .not_causal = s->not_causal,
                          .bitmap = bitmap,
                          .stride_row = blocks,
                          .stride_head = s->len_q * blocks,
                          .stride_batch = s->heads * s->len_q * blocks};
  ck_fly_ok(fly_selection_create(mask, &d, &selection, &error), error);
  free(bitmap);
  return selection;
}

static void run(const fly_selection *selection, const fly_attention *host, const fly_kernel *kernel, bool backward) {
  cuda_call t;
  fly_error error;
  void *memory = NULL;
  cuda_call_init(&t, cuda, host, kernel);
  if (!backward) { /* a workspace of the caller's, and after that none */
    ck_fly_ok(fly_selection_workspace(selection, &t.call, &t.call.workspace_size, &error), error);
    ck_fly_ok(fly_cuda_alloc(cuda, t.call.workspace_size, &memory, &error), error);
    t.call.workspace = memory;
    cuda_ok(fly_selection_forward(selection, &t.call, &error), &error);
    t.call.workspace = NULL;
  }
  cuda_ok(fly_selection_forward(selection, &t.call, &error), &error);
  if (backward) cuda_ok(fly_selection_backward(selection, &t.call, &error), &error);
  cuda_ok(fly_cuda_synchronize(cuda, NULL, &error), &error);
  cuda_call_fetch(&t, false);
  if (backward) cuda_call_fetch(&t, true);
  fly_cuda_free(cuda, &memory);
  cuda_call_free(&t);
}

static void test_spec(const spec *s, fly_type type, bool backward) {
  fly_selection_info info;
  fly_kernel *kernel = cuda_kernel("selected_tiles", NULL, type, s->dim, s->value_dim);
  if (!cuda) {
    fly_kernel_release(&kernel);
    return;
  }
  fly_attention c = {FLY_INIT(fly_attention), .q = scene_tensor(type, s->batch, s->heads, s->len_q, s->dim, 1)};
  c.k = scene_tensor(type, s->batch, s->kv_heads, s->len_kv, s->dim, 2);
  c.v = scene_tensor(type, s->batch, s->kv_heads, s->len_kv, s->value_dim, 3);
  scene_outputs(&c, 4);
  fly_selection *selection = select_blocks(fly_kernel_mask(kernel), s, &c);
  fly_selection_get_info(selection, &info);
  const int64_t blocks = (s->len_kv + s->block - 1) / s->block;
  uint8_t *bitmap = malloc((size_t)(s->batch * s->heads * s->len_q * blocks));
  fly_selection_get_bitmap(selection, bitmap);
  chosen context = {bitmap, s->heads, s->len_q, blocks, s->len_kv - s->len_q, s->block, !s->not_causal};
  run(selection, &c, kernel, backward);
  c.kernel = kernel;
  c.geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = s->batch,   .heads = s->heads,
                              .len_q = s->len_q,      .len_kv = s->len_kv, .q_offset = s->len_kv - s->len_q};
  oracle_check_units(&c, see_chosen, &context, CALL_UNTOUCHED, "selection");
  if (backward)
    oracle_check_backward_units(&c, see_chosen, &context, 2 * cuda_operands(type), "selection"); /* out was rounded */
  free(bitmap);
  fly_selection_release(&selection);
  fly_kernel_release(&kernel);
  scene_free_call(&c);
}

static const fly_type types[] = {FLY_F32, FLY_F16, FLY_BF16};

START_TEST(selected) {
  for (int i = 0; i < SPECS; i++) test_spec(&specs[i], types[_i % 3], _i / 3);
}
END_TEST

/* Each document has blocks of its own. */
START_TEST(packed_documents) {
  static const int32_t cu[] = {0, 90, 90, 200};
  const spec s = {1, 2, 1, 200, 200, 32, 32, 16, 3, false};
  const fly_type type = types[_i];
  fly_error error;
  if (!cuda) return; /* `selected` has the kernel */
  fly_attention c = {FLY_INIT(fly_attention), .q = scene_tensor(type, 1, s.heads, s.len_q, s.dim, 1)};
  c.k = scene_tensor(type, 1, s.kv_heads, s.len_kv, s.dim, 2), c.v = scene_like(&c.k, 3);
  scene_outputs(&c, 4);
  fly_kernel *kernel = cuda_kernel("selected_tiles", NULL, type, s.dim, s.value_dim);
  fly_selection *selection;
  fly_moba_desc d = {FLY_INIT(fly_moba_desc), .block = s.block, .top = s.top, .q = c.q, .k = c.k, .batch = 3,
                     .cu_seqlens = cu};
  ck_fly_ok(fly_moba_select(fly_kernel_mask(kernel), &d, &selection, &error), error);
  run(selection, &c, kernel, false);
  c.kernel = kernel;
  uint8_t bitmap[2 * 200 * 7]; /* blocks of the longest document */
  fly_selection_get_bitmap(selection, bitmap);
  for (int i = 0; i < 3; i++) {
    if (cu[i] == cu[i + 1]) continue;
    fly_attention one = c;
    fly_tensor *all[] = {&one.q, &one.k, &one.v, &one.out, &one.lse};
    for (int k = 0; k < 5; k++) {
      all[k]->data = (char *)all[k]->data + cu[i] * all[k]->stride[2] * (int64_t)fly_type_size(all[k]->type);
      all[k]->shape[2] = cu[i + 1] - cu[i];
    }
    one.geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = 1, .heads = 2, .len_q = cu[i + 1] - cu[i],
                                  .len_kv = cu[i + 1] - cu[i]};
    /* heads are 200 rows apart in the bitmap, as in the tensors */
    chosen context = {bitmap + cu[i] * 7, 1, 0, 7, 0, s.block, true};
    context.len_q = 200, context.heads = 2;
    oracle_check_units(&one, see_chosen, &context, CALL_UNTOUCHED, "document");
  }
  fly_selection_release(&selection);
  fly_kernel_release(&kernel);
  scene_free_call(&c);
}
END_TEST

/* ---- MoBA's choice ----------------------------------------------------------------------------------------------- */

static void test_choice(fly_mask *mask, const moba_spec *s, bool ties) {
  fly_selection_info info;
  fly_selection *selection;
  fly_error error;
  fly_tensor q = scene_tensor(s->type, s->batch, s->heads, s->len_q, s->dim, 1);
  fly_tensor k = scene_tensor(s->type, s->batch, s->kv_heads, s->len_kv, s->dim, 2);
  if (ties) selection_draw_ties(&q, &k, (uint64_t)(s->block * 100 + s->top));
  fly_moba_desc d = {FLY_INIT(fly_moba_desc), .block = s->block, .top = s->top, .q_offset = s->len_kv - s->len_q};
  d.q = cuda_tensor_put(cuda, &q), d.k = cuda_tensor_put(cuda, &k), d.cuda = cuda;
  cuda_ok(fly_moba_select(mask, &d, &selection, &error), &error);
  uint8_t *bitmap = selection_bitmap(selection, &info);
  selection_check_gate(s, &q, &k, bitmap, selection_key_blocks(&info), ties ? 0 : 1e-5);
  free(bitmap);
  fly_selection_release(&selection);
  cuda_tensor_free(cuda, &d.q), cuda_tensor_free(cuda, &d.k);
  scene_free(&q), scene_free(&k);
}

static fly_mask *mask_of_a_kernel(void) {
  fly_kernel *kernel = cuda_kernel("selected_tiles", NULL, FLY_F32, 64, 64);
  fly_mask *mask = cuda ? fly_mask_retain(fly_kernel_mask(kernel)) : NULL;
  fly_kernel_release(&kernel);
  return mask;
}

START_TEST(the_gate_ranks_mean_keys) {
  static const moba_spec specs[] = {
      {FLY_F32, 1, 2, 1, 300, 300, 64, 32, 3}, {FLY_F32, 2, 4, 2, 130, 130, 16, 8, 5},
      {FLY_F16, 1, 2, 2, 100, 300, 20, 7, 4},  {FLY_BF16, 1, 3, 1, 257, 257, 70, 64, 3},
      {FLY_F32, 1, 1, 1, 90, 90, 3, 1, 20}, /* many blocks: a lane has several */
      {FLY_F32, 1, 1, 1, 50, 50, 8, 128, 3},   {FLY_F32, 1, 1, 1, 40, 40, 8, 4, 1},
      {FLY_F32, 1, 1, 1, 60, 60, 8, 2, 150}, /* as many as there are */
  };
  fly_mask *mask = mask_of_a_kernel();
  for (size_t i = 0; mask && i < sizeof specs / sizeof *specs; i++) test_choice(mask, &specs[i], false);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(of_equal_blocks_the_earlier_is_kept) {
  fly_mask *mask = mask_of_a_kernel();
  for (int block = 1; mask && block <= 16; block *= 4)
    for (int top = 2; top < 9; top += 3)
      test_choice(mask, &(moba_spec){FLY_F32, 1, 2, 1, 150, 150, 5, block, top}, true);
  fly_mask_release(&mask);
}
END_TEST

/* More queries than warps: each takes several in turn. */
START_TEST(warps_take_queries_in_turn) {
  fly_mask *mask = mask_of_a_kernel();
  if (mask) test_choice(mask, &(moba_spec){FLY_F32, 1, 40, 1, 500, 500, 1, 125, 2}, false);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(misuse_is_refused) {
  fly_mask *mask = mask_of_a_kernel();
  fly_selection *selection;
  fly_error error;
  if (!mask) return;
  fly_moba_desc d = {FLY_INIT(fly_moba_desc), .block = 8, .top = 2};
  d.q = d.k = scene_tensor(FLY_F32, 1, 1, 30, 8, 1), d.stream = &d;
  ck_assert_int_eq(fly_moba_select(mask, &d, &selection, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "cuda is NULL"), "%s", error.message);
  d.stream = NULL, d.cuda = cuda;
  ck_assert_int_eq(fly_moba_select(mask, &d, &selection, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "q.data is not in device memory"), "%s", error.message);
  fly_tensor k = d.k;
  d.block = 1 << 20, d.k.shape[2] = ((int64_t)1 << 30) + 1, d.k.stride[2] = 0;
  ck_assert_int_eq(fly_moba_select(mask, &d, &selection, &error), FLY_ERROR_UNSUPPORTED);
  ck_assert_msg(strstr(error.message, "1073741825 keys: on a GPU positions go to 1073741824"), "%s", error.message);
  d.block = 1, d.top = 31, d.k = k; /* tensors that can be, and more lists than can */
  d.q.shape[0] = d.k.shape[0] = (int64_t)1 << 52, d.q.stride[0] = d.k.stride[0] = 0;
  ck_assert_int_eq(fly_moba_select(mask, &d, &selection, &error), FLY_ERROR_MEMORY);
  d.cuda = NULL;
  ck_assert_int_eq(fly_moba_select(mask, &d, &selection, &error), FLY_ERROR_MEMORY);
  scene_free(&d.q);
  fly_mask_release(&mask);
}
END_TEST

static void add_choice(TCase *test) {
  tcase_add_test(test, the_gate_ranks_mean_keys);
  tcase_add_test(test, of_equal_blocks_the_earlier_is_kept);
  tcase_add_test(test, warps_take_queries_in_turn);
  tcase_add_test(test, misuse_is_refused);
}

static Suite *make_suite(void) {
  static const char *const names[] = {"selection.fwd.f32", "selection.fwd.f16", "selection.fwd.bf16",
                                      "selection.bwd.f32", "selection.bwd.f16", "selection.bwd.bf16"};
  Suite *suite = suite_create("cuda_selection");
  for (int i = 0; i < 6; i++) {
    TCase *test = tcase_create(names[i]);
    tcase_add_checked_fixture(test, open_device, close_device);
    tcase_add_loop_test(test, selected, i, i + 1);
    if (i < 3) tcase_add_loop_test(test, packed_documents, i, i + 1);
    if (i == 0) add_choice(test);
    suite_add_tcase(suite, test);
  }
  return suite;
}

FLY_TEST_MAIN(make_suite)
