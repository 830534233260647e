/* Rows more than 2^31 bytes, and more than 2^32 elements, from the start of their tensor: in sparse memory, of which
 * only the pages that are touched exist. */
#include <sys/mman.h>

#include "support/backward_case.h"

enum { LENGTH = 70, DIM = 32, PAGE_ROWS = 80 };

static void *sparse(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

/* Moves a tensor's rows `stride` elements apart. False: no room for that. */
static bool spread(fly_tensor *t, int64_t stride) {
  fly_tensor far = *t;
  far.stride[2] = stride, far.stride[1] = stride * t->shape[2], far.stride[0] = far.stride[1] * t->shape[1];
  far.data = sparse((size_t)far.stride[0] * fly_type_size(t->type));
  if (!far.data) return false;
  for (int64_t s = 0; s < t->shape[2]; s++)
    for (int64_t d = 0; d < t->shape[3]; d++) oracle_set(&far, 0, 0, s, d, oracle_get(t, 0, 0, s, d));
  *t = far;
  return true;
}

static void release(const fly_tensor *t) { munmap(t->data, (size_t)t->stride[0] * fly_type_size(t->type)); }

static const fly_type types[] = {FLY_F32, FLY_BF16};

START_TEST(rows_far_apart) { /* forward and backward, _i: the type */
  backward_case t;
  backward_spec spec = {.call = {.type = types[_i], .dim = DIM, .len_q = LENGTH, .len_kv = LENGTH}};
  backward_init(&t, &spec, see_causal, NULL);
  fly_attention *c = &t.base.call;
  fly_tensor *all[] = {&c->q, &c->k, &c->v, &c->out, &c->d_out, &c->d_q, &c->d_k, &c->d_v};
  for (int i = 0; i < 8; i++)
    if (!spread(all[i], (1ll << 32) / 60 + 5)) { /* the last ones lie behind 2^32 elements */
      for (int j = 0; j < i; j++) release(all[j]);
      backward_free(&t);
      puts("SKIPPED: no address space for sparse tensors");
      return;
    }
  call_run(&t.base);
  oracle_check(c, see_causal, NULL, CALL_UNTOUCHED, "far rows");
  oracle_forward(c, see_causal, NULL);
  backward_run(&t);
  oracle_check_backward(c, see_causal, NULL, "far rows");
  for (int i = 0; i < 8; i++) release(all[i]);
  backward_free(&t);
}
END_TEST

START_TEST(pages_far_away) { /* a paged cache of 2^26 rows, read through a row map; _i / 2: few queries, or many */
  int32_t rows[600];
  call_case t;
  call_spec spec = {.type = types[_i % 2], .dim = DIM, .len_q = _i / 2 ? 2 : 100, .len_kv = 600};
  call_init(&t, &spec, see_all, NULL);
  fly_attention *c = &t.call;
  fly_tensor near[] = {c->k, c->v}, *all[] = {&c->k, &c->v};
  int64_t count = 1ll << 26;
  for (int i = 0; i < 600; i++) rows[i] = (int32_t)(count - 1 - (i / PAGE_ROWS) * 8000001ll - i % PAGE_ROWS);
  for (int k = 0; k < 2; k++) {
    *all[k] = fly_tensor_dense(sparse((size_t)count * DIM * fly_type_size(spec.type)), spec.type, 1, 1, count, DIM);
    ck_assert_ptr_nonnull(all[k]->data);
    for (int i = 0; i < 600; i++)
      for (int d = 0; d < DIM; d++) oracle_set(all[k], 0, 0, rows[i], d, oracle_get(&near[k], 0, 0, i, d));
  }
  c->geometry.kv_rows = (fly_row_map){.rows = rows};
  c->map = NULL; /* of the geometry without the map */
  handmade made;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), spec.type, DIM, 0, NULL};
  c->geometry.len_kv = 600;
  handmade_init(&made, see_all, NULL, NULL, &desc, &c->geometry, 128, 128, 0);
  c->kernel = made.kernel, c->bound = &made.bound, c->map = &made.map;
  call_run(&t);
  oracle_check(c, see_all, NULL, CALL_UNTOUCHED, "far pages");
  handmade_free(&made);
  for (int k = 0; k < 2; k++) release(all[k]);
  call_free(&t);
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("attention_far");
  TCase *tests = tcase_create("far");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, rows_far_apart, 0, 2);
  tcase_add_loop_test(tests, pages_far_away, 0, 4);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(suite)
