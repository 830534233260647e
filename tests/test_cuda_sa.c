/* Stochastic attention on a CUDA device, simulated here: fly_sa_apply makes a call whose tensors stay in the order
 * of tokens, and nothing is permuted in memory. Against dense attention over tokens in double precision, from the
 * definition of the window. */
#include "cuda_case.h"
#include "oracle_backward.h"

enum { BATCH = 2, HEADS = 4, KV_HEADS = 2, N = 150, D = 64, SIDE = 20 };

/* Position of token i in the order of (b, h); its document. */
static int32_t position[BATCH][HEADS][N];
static const int32_t documents[] = {0, 100, N};
static bool by_document;

/* The window over positions, and no token sees a later one. Documents are entries of a packed call. */
static bool sees(void *context, int b, int h, int i, int j) {
  (void)context;
  int ahead = position[b][h][j] - position[b][h][i];
  return ahead >= -SIDE && ahead <= SIDE && j <= i;
}

static void take_positions(const fly_sa_desc *d) {
  int32_t rows[N];
  for (int b = 0; b < BATCH; b++)
    for (int h = 0; h < HEADS; h++) {
      uint64_t seed = d->seed + (d->per_sample ? (uint64_t)b * 0x9E3779B97F4A7C15 : 0);
      int64_t n = by_document ? documents[b + 1] - documents[b] : N;
      ck_assert_int_eq(fly_permutation(n, seed, d->layer, d->step, d->per_head ? (uint32_t)h : 0, rows, NULL), FLY_OK);
      for (int p = 0; p < n; p++) position[b][h][rows[p]] = p;
    }
}

static fly_tensor tensor(int64_t heads, fly_type type, int64_t dim, test_random *random) {
  int64_t batch = by_document ? 1 : BATCH;
  fly_tensor x = fly_tensor_dense(NULL, type, batch, heads, N, dim);
  x.data = guard_alloc((size_t)(batch * heads * N * dim) * fly_type_size(type), fly_type_size(type), 0);
  for (int64_t b = 0; b < batch; b++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t r = 0; r < N; r++)
        for (int64_t e = 0; e < dim; e++) oracle_set(&x, b, h, r, e, test_normal(random));
  return x;
}

static void make_call(fly_attention *c) {
  test_random random = {3};
  *c = (fly_attention){FLY_INIT(fly_attention)};
  c->q = tensor(HEADS, FLY_BF16, D, &random), c->k = tensor(KV_HEADS, FLY_BF16, D, &random);
  c->v = tensor(KV_HEADS, FLY_BF16, D, &random), c->out = tensor(HEADS, FLY_BF16, D, &random);
  c->lse = tensor(HEADS, FLY_F32, 1, &random), c->d_out = tensor(HEADS, FLY_BF16, D, &random);
  c->d_q = tensor(HEADS, FLY_BF16, D, &random), c->d_k = tensor(KV_HEADS, FLY_BF16, D, &random);
  c->d_v = tensor(KV_HEADS, FLY_BF16, D, &random);
}

static void free_call(fly_attention *c) {
  fly_tensor *all[] = {&c->q, &c->k, &c->v, &c->out, &c->lse, &c->d_out, &c->d_q, &c->d_k, &c->d_v};
  for (int i = 0; i < 9; i++) guard_free(all[i]->data);
}

/* What the oracle is told: the call over tokens, without any row map. */
static fly_attention by_token(const fly_attention *c) {
  fly_attention t = *c;
  t.geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = BATCH, .heads = HEADS, .len_q = N, .len_kv = N};
  if (by_document) t.geometry.cu_seqlens_q = t.geometry.cu_seqlens_kv = documents;
  return t;
}

START_TEST(attention_is_over_a_window_of_permuted_positions) {
  static const struct {
    bool per_head, per_sample, documents;
  } kinds[] = {
      {false, false, false}, {true, false, false}, {true, true, false}, {false, false, true}, {true, false, true}};
  fly_attention call, token;
  fly_sa *sa;
  fly_error error;
  by_document = kinds[_i].documents;
  fly_sa_desc desc = {FLY_INIT(fly_sa_desc), .left = SIDE, .right = SIDE, .batch = BATCH, .heads = HEADS, .seed = 9};
  desc.length = N, desc.layer = 2, desc.step = 5;
  desc.per_head = kinds[_i].per_head, desc.per_sample = kinds[_i].per_sample;
  if (by_document) desc.cu_seqlens = documents;
  fly_kernel *kernel = cuda_kernel("stochastic", NULL, FLY_BF16, D, D);
  fly_cuda *cuda = cuda_open_to_run();
  if (!cuda) { /* the image is written */
    fly_kernel_release(&kernel);
    return;
  }
  make_call(&call);
  take_positions(&desc);
  ck_fly_ok(fly_sa_create(fly_kernel_mask(kernel), &desc, &sa, &error), error);
  ck_fly_ok(fly_sa_apply(sa, &call, &error), error);
  cuda_forward(cuda, &call, kernel);
  token = by_token(&call);
  oracle_check_units(&token, sees, NULL, 0, "stochastic attention");
  oracle_forward(&token, sees, NULL);
  fly_cuda_info before, after;
  fly_cuda_get_info(cuda, &before);
  for (int i = 0; i < 2; i++) cuda_backward(cuda, &call, kernel);
  oracle_check_backward_units(&token, sees, NULL, 0x1p-8, "stochastic attention");
  cuda_forward(cuda, &call, kernel);
  fly_cuda_get_info(
      cuda, &after); /* the transposed map, and the order of sums where heads share keys in orders of their own */
  ck_assert_int_le(after.uploads, before.uploads + 1 + (desc.per_head ? 2 : 0));
  fly_sa_release(&sa);
  fly_kernel_release(&kernel);
  fly_cuda_get_info(cuda, &after);
  ck_assert_uint_eq(after.resident, 0);
  free_call(&call);
  fly_cuda_release(&cuda);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("cuda_sa");
  TCase *tests = tcase_create("sa");
  tcase_add_loop_test(tests, attention_is_over_a_window_of_permuted_positions, 0, 5);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
