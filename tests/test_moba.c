/* Selected blocks. MoBA's gate against products in double precision, with its tie rule; attention over selections,
 * however irregular, against dense attention with the selection as a bitmap, forward and backward. */
#include "sa/scene.h"
#include "selection_case.h"

/* ---- the gate ---------------------------------------------------------------------------------------------------- */

static fly_selection *moba(fly_mask *mask, const moba_spec *s, const fly_tensor *q, const fly_tensor *k) {
  fly_selection *selection;
  fly_error error;
  fly_moba_desc d = {FLY_INIT(fly_moba_desc),         .block = s->block, .top = s->top, .q = *q, .k = *k,
                     .q_offset = s->len_kv - s->len_q};
  ck_fly_ok(fly_moba_select(mask, &d, &selection, &error), error);
  return selection;
}

static const moba_spec gates[] = {
    {FLY_F32, 1, 2, 1, 700, 700, 64, 32, 3},  {FLY_F32, 2, 4, 2, 130, 130, 16, 8, 5},
    {FLY_F16, 1, 2, 2, 300, 300, 20, 16, 2},  {FLY_BF16, 1, 3, 1, 257, 257, 64, 64, 3},
    {FLY_F32, 1, 1, 1, 50, 400, 8, 16, 4},    {FLY_F32, 1, 1, 1, 90, 90, 3, 1, 20},
    {FLY_F32, 1, 1, 1, 100, 100, 33, 128, 3}, {FLY_F32, 1, 1, 1, 129, 129, 256, 4, 1},
    {FLY_F32, 1, 1, 1, 200, 200, 8, 2, 150},  {FLY_F32, 1, 4, 2, 300, 300, 16, 37, 3},
    {FLY_F16, 1, 2, 1, 260, 301, 32, 73, 2},  {FLY_F32, 1, 1, 1, 400, 400, 64, 146, 4},
};
enum { GATES = sizeof gates / sizeof *gates };

START_TEST(the_gate_ranks_mean_keys) {
  fly_mask *mask = scene_mask("selected_tiles");
  const moba_spec *s = &gates[_i];
  fly_selection_info info;
  fly_tensor q = scene_tensor(s->type, s->batch, s->heads, s->len_q, s->dim, 1);
  fly_tensor k = scene_tensor(s->type, s->batch, s->kv_heads, s->len_kv, s->dim, 2);
  fly_selection *selection = moba(mask, s, &q, &k);
  uint8_t *bitmap = selection_bitmap(selection, &info);
  selection_check_gate(s, &q, &k, bitmap, selection_key_blocks(&info), 1e-5);
  free(bitmap);
  fly_selection_release(&selection);
  scene_free(&q), scene_free(&k);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(of_equal_blocks_the_earlier_is_kept) {
  setenv("FLYMASK_ISA", flyi_isa_name((flyi_isa)(FLYI_ISA_FIRST + _i)), 1);
  fly_mask *mask = scene_mask("selected_tiles");
  for (int block = 1; block <= 16; block *= 4)
    for (int top = 1; top < 9; top += 2) {
      moba_spec s = {FLY_F32, 1, 2, 1, 300, 300, 5, block, top};
      fly_selection_info info;
      fly_tensor q = scene_tensor(s.type, 1, 2, s.len_q, s.dim, 1), k = scene_tensor(s.type, 1, 1, s.len_kv, s.dim, 2);
      selection_draw_ties(&q, &k, (uint64_t)(block * 100 + top));
      fly_selection *selection = moba(mask, &s, &q, &k);
      uint8_t *bitmap = selection_bitmap(selection, &info);
      selection_check_gate(&s, &q, &k, bitmap, selection_key_blocks(&info), 0);
      free(bitmap);
      fly_selection_release(&selection);
      scene_free(&q), scene_free(&k);
    }
  fly_mask_release(&mask);
}
END_TEST

/* ---- attention over selections ----------------------------------------------------------------------------------- */

static void make_call(fly_attention *c, fly_mask *mask, const moba_spec *s, int value_dim) {
  *c = (fly_attention){FLY_INIT(fly_attention), .kernel = scene_kernel(mask, s->type, s->dim, value_dim)};
  c->q = scene_tensor(s->type, s->batch, s->heads, s->len_q, s->dim, 1);
  c->k = scene_tensor(s->type, s->batch, s->kv_heads, s->len_kv, s->dim, 2);
  c->v = scene_tensor(s->type, s->batch, s->kv_heads, s->len_kv, value_dim, 3);
  scene_outputs(c, 4);
}

static void free_call(fly_attention *c) {
  fly_kernel_release((fly_kernel **)&c->kernel);
  scene_free_call(c);
}

static void run_both(const fly_selection *selection, const fly_attention *c) {
  fly_error error = {0};
  ck_fly_ok(fly_selection_forward(selection, c, &error), error);
  ck_fly_ok(fly_selection_backward(selection, c, &error), error);
}

static void check_call(const fly_attention *call, chosen *context, const char *what) {
  fly_attention c = *call;
  c.geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = c.q.shape[0],  .heads = c.q.shape[1],
                              .len_q = c.q.shape[2],  .len_kv = c.k.shape[2], .q_offset = context->q_offset};
  oracle_check(&c, see_chosen, context, CALL_UNTOUCHED, what);
  oracle_check_backward(&c, see_chosen, context, what);
}

START_TEST(moba_is_dense_attention_with_its_bitmap) {
  fly_mask *mask = scene_mask("selected_tiles");
  const moba_spec *s = &gates[_i];
  fly_selection_info info;
  fly_attention c;
  make_call(&c, mask, s, s->dim > 60 ? 32 : s->dim + 5);
  fly_selection *selection = moba(mask, s, &c.q, &c.k);
  run_both(selection, &c);
  uint8_t *bitmap = selection_bitmap(selection, &info);
  chosen context = {bitmap, s->heads, s->len_q, selection_key_blocks(&info), info.q_offset, s->block, true};
  check_call(&c, &context, "moba");
  free(bitmap);
  fly_selection_release(&selection);
  free_call(&c);
  fly_mask_release(&mask);
}
END_TEST

/* Any bitmap: with queries that see nothing, blocks nobody sees, all blocks, one token of many. */
typedef struct any_spec {
  moba_spec shape;
  int share; /* of 100 blocks */
  bool not_causal;
  int query_block;
} any_spec;

static const any_spec anys[] = {
    {{FLY_F32, 2, 4, 2, 150, 170, 16, 16, 0}, 30, false, 0},  {{FLY_F32, 1, 2, 1, 200, 200, 64, 128, 0}, 50, true, 0},
    {{FLY_F16, 1, 2, 2, 130, 130, 24, 1, 0}, 10, false, 0},   {{FLY_BF16, 1, 1, 1, 99, 300, 16, 7, 0}, 20, true, 5},
    {{FLY_F32, 1, 2, 1, 257, 257, 8, 100, 0}, 40, false, 32}, {{FLY_F32, 1, 1, 1, 70, 70, 8, 16, 0}, 0, false, 0},
    {{FLY_F32, 1, 1, 1, 70, 500, 8, 65, 0}, 100, true, 0},    {{FLY_F32, 3, 2, 2, 40, 64, 8, 3, 0}, 25, false, 1},
};
enum { ANYS = sizeof anys / sizeof *anys };

typedef struct any_case {
  any_spec spec;
  uint8_t *rows, *bitmap; /* by query block; by query */
  int64_t blocks, q_rows;
} any_case;

static void draw(any_case *t, const any_spec *spec) {
  const moba_spec *s = &spec->shape;
  test_random random = {4711 + (uint64_t)s->block};
  int64_t group = spec->query_block ? spec->query_block : 1;
  *t = (any_case){
      .spec = *spec, .blocks = (s->len_kv + s->block - 1) / s->block, .q_rows = (s->len_q + group - 1) / group};
  t->rows = malloc((size_t)(s->batch * s->heads * t->q_rows * t->blocks));
  t->bitmap = malloc((size_t)(s->batch * s->heads * s->len_q * t->blocks));
  for (int64_t i = 0; i < s->batch * s->heads * t->q_rows * t->blocks; i++)
    t->rows[i] = test_range(&random, 0, 99) < spec->share && i / t->blocks % 11 != 7
                     ? (uint8_t)test_range(&random, 1, 255)
                     : 0;
  for (int64_t i = 0; i < s->batch * s->heads * s->len_q; i++)
    for (int64_t j = 0; j < t->blocks; j++)
      t->bitmap[i * t->blocks + j] = t->rows[(i / s->len_q * t->q_rows + i % s->len_q / group) * t->blocks + j] != 0;
}

/* The same as lists in a shuffled order, with repetitions and holes. */
static int32_t *lists_of(const any_case *t, int *count) {
  const moba_spec *s = &t->spec.shape;
  test_random random = {99};
  *count = (int)t->blocks + 3;
  int64_t rows = s->batch * s->heads * t->q_rows;
  int32_t *lists = malloc((size_t)(rows * *count) * sizeof *lists);
  for (int64_t i = 0; i < rows; i++) {
    int32_t *list = lists + i * *count;
    for (int k = 0; k < *count; k++) list[k] = k < t->blocks && t->rows[i * t->blocks + k] ? k : -1;
    for (int k = 0; k + 3 < *count; k++)
      if (list[k] >= 0) list[t->blocks + k % 3] = list[k];
    for (int k = 0; i % 2 && k < *count; k++) {
      int64_t j = test_range(&random, k, *count - 1);
      int32_t x = list[k];
      list[k] = list[j], list[j] = x;
    }
  }
  return lists;
}

static fly_selection_desc any_desc(const any_case *t) {
  const moba_spec *s = &t->spec.shape;
  return (fly_selection_desc){FLY_INIT(fly_selection_desc),
                              .block = s->block,
                              .batch = s->batch,
                              .heads = s->heads,
                              .len_q = s->len_q,
                              .len_kv = s->len_kv,
                              .q_offset = s->len_kv - s->len_q,
                              .not_causal = t->spec.not_causal,
                              .query_block = t->spec.query_block};
}

static fly_selection *select_any(fly_mask *mask, const any_case *t, bool by_lists) {
  fly_selection_desc d = any_desc(t);
  fly_selection *selection;
  fly_error error;
  int count = (int)t->blocks;
  int32_t *lists = by_lists ? lists_of(t, &count) : NULL;
  d.lists = lists, d.count = count;
  if (!by_lists) d.bitmap = t->rows;
  d.stride_row = count, d.stride_head = t->q_rows * count, d.stride_batch = t->spec.shape.heads * d.stride_head;
  ck_fly_ok(fly_selection_create(mask, &d, &selection, &error), error);
  free(lists);
  return selection;
}

START_TEST(any_selection_is_dense_attention_with_its_bitmap) {
  fly_mask *mask = scene_mask("selected_tiles");
  any_case t;
  draw(&t, &anys[_i]);
  for (int by_lists = 0; by_lists < 2; by_lists++) {
    const moba_spec *s = &t.spec.shape;
    fly_attention c;
    make_call(&c, mask, s, s->dim);
    fly_selection *selection = select_any(mask, &t, by_lists);
    run_both(selection, &c);
    chosen context = {t.bitmap, s->heads, s->len_q, t.blocks, s->len_kv - s->len_q, s->block, !t.spec.not_causal};
    check_call(&c, &context, by_lists ? "lists" : "bitmap");
    fly_selection_release(&selection);
    free_call(&c);
  }
  free(t.rows), free(t.bitmap);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(
    a_selection_equals_the_mask_that_captures_it) { /* masks/moba.c with the exported bitmap, by the same library */
  fly_mask *mask = scene_mask("selected_tiles"), *plain = scene_mask("moba");
  moba_spec s = {FLY_F32, 1, 4, 2, 1000, 1000, 64, 64, 3};
  fly_selection_info info;
  fly_error error;
  fly_attention c, p;
  make_call(&c, mask, &s, 64), make_call(&p, plain, &s, 64);
  fly_selection *selection = moba(mask, &s, &c.q, &c.k);
  run_both(selection, &c);
  uint8_t *bitmap = selection_bitmap(selection, &info);
  fly_buffer *selected;
  ck_fly_ok(fly_buffer_create(FLY_U8, 4, (int64_t[]){1, s.heads, s.len_q, selection_key_blocks(&info)}, bitmap,
                              &selected, &error),
            error);
  fly_arg args[] = {FLY_INT("size", s.block), FLY_CAPTURE("selected", selected)};
  ck_fly_ok(fly_mask_bind(plain, args, 2, &p.bound, &error), error);
  ck_fly_ok(fly_attention_forward(&p, &error), error);
  ck_fly_ok(fly_attention_backward(&p, &error), error);
  const fly_tensor *a[] = {&c.out, &c.lse, &c.d_q, &c.d_k, &c.d_v}, *b[] = {&p.out, &p.lse, &p.d_q, &p.d_k, &p.d_v};
  for (int i = 0; i < 5; i++) {
    scene_difference d = scene_compare(a[i], b[i]);
    ck_assert_double_lt(d.worst, 3e-6 * (1 + d.largest));
    ck_assert_double_lt(d.frobenius, 1e-6);
  }
  free(bitmap);
  fly_buffer_release(&selected);
  fly_bound_release(&p.bound);
  fly_selection_release(&selection);
  free_call(&c), free_call(&p);
  fly_mask_release(&mask), fly_mask_release(&plain);
}
END_TEST

START_TEST(the_bitmap_comes_back) {
  fly_mask *mask = scene_mask("selected_tiles");
  any_case t;
  fly_selection_info info;
  draw(&t, &anys[_i]);
  const moba_spec *s = &t.spec.shape;
  fly_selection *selection = select_any(mask, &t, true);
  uint8_t *bitmap = selection_bitmap(selection, &info);
  for (int64_t i = 0; i < s->batch * s->heads * s->len_q * t.blocks; i++) {
    bool in_reach = t.spec.not_causal || i % t.blocks * s->block <= i / t.blocks % s->len_q + s->len_kv - s->len_q;
    ck_assert_int_eq(bitmap[i], t.bitmap[i] && in_reach);
  }
  free(bitmap), free(t.rows), free(t.bitmap);
  fly_selection_release(&selection);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(any_number_of_threads_gives_the_same_bits) {
  fly_mask *mask = scene_mask("selected_tiles");
  moba_spec s = {FLY_F32, 2, 4, 2, 300, 300, 32, 16, 4};
  fly_attention first = {0};
  for (int threads = 1; threads < 5; threads++) {
    fly_attention c;
    fly_error error;
    fly_selection *selection;
    make_call(&c, mask, &s, 32);
    c.threads = threads, c.parallel_for = threads == 4 ? test_backwards : NULL;
    fly_moba_desc d = {FLY_INIT(fly_moba_desc),       .block = 16, .top = 4, .q = c.q, .k = c.k, .threads = threads,
                       .parallel_for = c.parallel_for};
    ck_fly_ok(fly_moba_select(mask, &d, &selection, &error), error);
    run_both(selection, &c);
    fly_selection_release(&selection);
    if (threads == 1) {
      first = c;
      continue;
    }
    ck_assert(scene_equal(&c.out, &first.out) && scene_equal(&c.lse, &first.lse) && scene_equal(&c.d_q, &first.d_q));
    ck_assert(scene_equal(&c.d_k, &first.d_k) && scene_equal(&c.d_v, &first.d_v));
    free_call(&c);
  }
  free_call(&first);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(nans_stay_with_the_queries_that_see_them) {
  fly_mask *mask = scene_mask("selected_tiles");
  any_case t;
  fly_error error;
  draw(&t, &anys[0]);
  const moba_spec *s = &t.spec.shape;
  fly_attention c;
  make_call(&c, mask, s, s->dim);
  oracle_set(&c.v, 0, 0, 40, 3, NAN), oracle_set(&c.k, 1, 1, 90, 0, NAN);
  fly_selection *selection = select_any(mask, &t, false);
  ck_fly_ok(fly_selection_forward(selection, &c, &error), error);
  for (int64_t p = 0; p < s->batch * s->heads * s->len_q; p++) {
    int64_t b = p / s->len_q / s->heads, h = p / s->len_q % s->heads, i = p % s->len_q,
            token = i + s->len_kv - s->len_q;
    int key = b == 0 && h < 2 ? 40 : b == 1 && h >= 2 ? 90 : -1;
    bool dirty = key >= 0 && key <= token && t.bitmap[p * t.blocks + key / s->block];
    ck_assert_int_eq(isnan(oracle_get(&c.out, b, h, i, 3)), dirty);
  }
  free(t.rows), free(t.bitmap);
  fly_selection_release(&selection);
  free_call(&c);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(empty_selections_are_all_right) {
  fly_mask *mask = scene_mask("selected_tiles");
  for (int what = 0; what < 4; what++) {
    moba_spec s = {FLY_F32, what != 0, what == 1 ? 0 : 2, 2, what == 2 ? 0 : 5, what == 3 ? 0 : 5, 4, 2, 2};
    if (what == 3) s.len_q = 0;
    fly_tensor q = scene_tensor(FLY_F32, s.batch, s.heads, s.len_q, 4, 1),
               k = scene_tensor(FLY_F32, s.batch, 2, s.len_kv, 4, 2);
    fly_selection *selection = moba(mask, &s, &q, &k);
    fly_attention c = {FLY_INIT(fly_attention), .kernel = scene_kernel(mask, FLY_F32, 4, 4), .q = q, .k = k,
                       .v = scene_like(&k, 3)};
    scene_outputs(&c, 1);
    run_both(selection, &c);
    fly_selection_release(&selection);
    free_call(&c);
  }
  fly_mask_release(&mask);
}
END_TEST

/* ---- misuse ------------------------------------------------------------------------------------------------------ */

START_TEST(misuse_of_selections_is_refused) {
  fly_mask *mask = scene_mask("selected_tiles"), *other = scene_mask("causal");
  fly_selection *selection;
  fly_error error;
  int32_t lists[] = {0, 1, 2, 5}, negative[] = {0, -2, 1, 1};
  uint8_t bitmap[4] = {1, 1, 1, 1};
#define REFUSED(mask_, text, ...)                                                                                      \
  do {                                                                                                                 \
    fly_selection_desc d = {FLY_INIT(fly_selection_desc),                                                              \
                            .block = 2,                                                                                \
                            .batch = 1,                                                                                \
                            .heads = 1,                                                                                \
                            .len_q = 4,                                                                                \
                            .len_kv = 4,                                                                               \
                            .count = 1,                                                                                \
                            .lists = lists,                                                                            \
                            .stride_row = 1,                                                                           \
                            __VA_ARGS__};                                                                              \
    ck_assert_int_eq(fly_selection_create(mask_, &d, &selection, &error), FLY_ERROR_ARGUMENT);                         \
    ck_assert_ptr_null(selection);                                                                                     \
    ck_assert_msg(strstr(error.message, text) != NULL, "%s", error.message);                                           \
  } while (0)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
  REFUSED(mask, "is 2, but there are 2 blocks", .threads = 1);
  REFUSED(mask, "is -2, but there are 2 blocks", .lists = negative);
  REFUSED(NULL, "mask is NULL", .threads = 1);
  REFUSED(other, "size", .len_kv = 99);
  REFUSED(mask, "block is 0", .block = 0);
  REFUSED(mask, "query_block is -1", .query_block = -1);
  REFUSED(mask, "exactly one of them", .bitmap = bitmap);
  REFUSED(mask, "exactly one of them", .lists = NULL);
  REFUSED(mask, "count is -1", .count = -1);
  REFUSED(mask, "negative ones", .stride_head = -1);
  REFUSED(mask, "heads -1", .heads = -1);
  REFUSED(mask, "FLY_INIT(fly_selection_desc)", .size = 1);
#pragma GCC diagnostic pop
#undef REFUSED
  ck_assert_int_eq(fly_selection_create(mask, NULL, &selection, &error), FLY_ERROR_ARGUMENT);
  fly_mask_release(&mask), fly_mask_release(&other);
}
END_TEST

START_TEST(misuse_of_gates_and_calls_is_refused) {
  fly_mask *mask = scene_mask("selected_tiles");
  moba_spec s = {FLY_F32, 1, 2, 1, 40, 40, 8, 8, 3};
  fly_attention c;
  fly_error error;
  fly_selection *selection, *none;
  make_call(&c, mask, &s, 8);
  selection = moba(mask, &s, &c.q, &c.k);
#define REFUSED(text, change)                                                                                          \
  do {                                                                                                                 \
    fly_moba_desc d = {FLY_INIT(fly_moba_desc), .block = 8, .top = 3, .q = c.q, .k = c.k};                             \
    fly_attention a = c;                                                                                               \
    fly_status status;                                                                                                 \
    change;                                                                                                            \
    ck_assert_int_eq(status, FLY_ERROR_ARGUMENT);                                                                      \
    ck_assert_msg(strstr(error.message, text) != NULL, "%s", error.message);                                           \
  } while (0)
#define GATE (status = fly_moba_select(mask, &d, &none, &error), (void)a)
#define FORWARD (status = fly_selection_forward(selection, &a, &error), (void)d)
#define BACKWARD (status = fly_selection_backward(selection, &a, &error), (void)d)
  REFUSED("block is 0", (d.block = 0, GATE));
  REFUSED("top is 0", (d.top = 0, GATE));
  REFUSED("q.type is i8", (d.q.type = FLY_I8, GATE));
  REFUSED("k.shape[3] is 7", (d.k.shape[3] = 7, GATE));
  REFUSED("q has 2 heads, k 3", (d.k.shape[1] = 3, d.k.stride[1] = 0, GATE));
  REFUSED("q has 40 tokens from q_offset 1 on: they must be among the 40 keys", (d.q_offset = 1, GATE));
  REFUSED("from q_offset -1 on", (d.q_offset = -1, GATE));
  REFUSED("from q_offset 9223372036854775807 on", (d.q_offset = INT64_MAX, GATE));
  REFUSED("from q_offset -9223372036854775808 on", (d.q_offset = INT64_MIN, GATE));
  REFUSED("must be among the 39 keys", (d.k.shape[2] = 39, GATE));
  REFUSED("FLY_INIT(fly_moba_desc)", (d.size = 5, GATE));
  REFUSED("q.shape[2] is 39, the selection's 40", (a.q.shape[2] = 39, FORWARD));
  REFUSED("v.shape[2] is 39", (a.v.shape[2] = 39, FORWARD));
  REFUSED("out.shape[1] is 1", (a.out.shape[1] = 1, FORWARD));
  REFUSED("kernel is NULL", (a.kernel = NULL, FORWARD));
  REFUSED("out or lse and q share memory", (a.out.data = a.q.data, FORWARD));
  REFUSED("lse.data is NULL", (a.lse.data = NULL, BACKWARD));
  REFUSED("d_out.data is NULL", (a.d_out.data = NULL, BACKWARD));
#undef REFUSED
  ck_assert_int_eq(fly_selection_forward(NULL, &c, &error), FLY_ERROR_ARGUMENT);
  fly_selection_release(&selection);
  free_call(&c);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(failing_allocations_are_reported) {
  fly_mask *mask = scene_mask("selected_tiles");
  moba_spec s = {FLY_F32, 1, 2, 1, 40, 40, 8, 8, 3};
  fly_attention c;
  make_call(&c, mask, &s, 8);
  c.threads = 1;
  fly_moba_desc d = {FLY_INIT(fly_moba_desc), .block = 8, .top = 3, .q = c.q, .k = c.k, .threads = 1};
  scene_failing_selection(mask, &d, &c);
  free_call(&c);
  fly_mask_release(&mask);
}
END_TEST

/* ---- real inputs ------------------------------------------------------------------------------------------------- */

START_TEST(real_inputs_agree_with_float64_references) {
  fly_mask *mask = scene_mask("selected_tiles");
  moba_spec s = {.type = FLY_F32, .len_q = 2048, .len_kv = 2048, .block = 128, .top = 3};
  fly_error error;
  fly_attention c = {FLY_INIT(fly_attention), .q = scene_load("layer14_q"), .k = scene_load("layer14_k"),
                     .v = scene_load("layer14_v"), .kernel = scene_kernel(mask, FLY_F32, 64, 64)};
  fly_tensor out = scene_load("moba128k3_out"), lse = scene_load("moba128k3_lse");
  scene_outputs(&c, 0);
  fly_selection *selection = moba(mask, &s, &c.q, &c.k);
  ck_fly_ok(fly_selection_forward(selection, &c, &error), error);
  scene_difference d = scene_compare(&c.out, &out), l = scene_compare(&c.lse, &lse);
  printf("moba128k3: out at most %.2g, relative Frobenius %.2g; lse at most %.2g\n", d.worst, d.frobenius, l.worst);
  ck_assert_double_le(d.worst, 2e-5);
  ck_assert_double_le(d.frobenius, 1e-6);
  ck_assert_double_le(l.worst, 2e-5);
  scene_free(&out), scene_free(&lse);
  fly_selection_release(&selection);
  free_call(&c);
  fly_mask_release(&mask);
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("moba");
  TCase *tests = tcase_create("moba");
  tcase_add_loop_test(tests, the_gate_ranks_mean_keys, 0, GATES);
  tcase_add_loop_test(tests, of_equal_blocks_the_earlier_is_kept, 0, FLYI_ISA_LAST == FLYI_AARCH64 ? 1 : 3);
  tcase_add_loop_test(tests, moba_is_dense_attention_with_its_bitmap, 0, GATES);
  tcase_add_loop_test(tests, any_selection_is_dense_attention_with_its_bitmap, 0, ANYS);
  tcase_add_test(tests, a_selection_equals_the_mask_that_captures_it);
  tcase_add_loop_test(tests, the_bitmap_comes_back, 0, ANYS);
  tcase_add_test(tests, any_number_of_threads_gives_the_same_bits);
  tcase_add_test(tests, nans_stay_with_the_queries_that_see_them);
  tcase_add_test(tests, empty_selections_are_all_right);
  tcase_add_test(tests, misuse_of_selections_is_refused);
  tcase_add_test(tests, misuse_of_gates_and_calls_is_refused);
  tcase_add_test(tests, failing_allocations_are_reported);
  TCase *references = tcase_create("references");
  if (scene_data()) tcase_add_test(references, real_inputs_agree_with_float64_references);
  suite_add_tcase(suite, tests);
  suite_add_tcase(suite, references);
  return suite;
}

FLY_TEST_MAIN(suite)
