/* Selected blocks in packed documents: each document has blocks of its own, and nothing reaches from one to another.
 * The gate against products in double precision, attention against dense attention, forward and backward. */
#include "sa/scene.h"

static fly_error error;

typedef struct packed {
  const int32_t *cu;
  int documents;
  const uint8_t *bitmap; /* [heads, rows, blocks] */
  int64_t rows, blocks;
  int block;
} packed;

static int document_of(const packed *p, int64_t row) {
  int i = 0;
  while (p->cu[i + 1] <= row) i++;
  return i;
}

static bool sees(void *context, int b, int h, int q, int kv) {
  const packed *p = context;
  (void)b;
  int first = p->cu[document_of(p, q)];
  return kv >= first && kv <= q && p->bitmap[(h * p->rows + q) * p->blocks + (kv - first) / p->block];
}

typedef struct spec {
  fly_type type;
  int heads, kv_heads, dim, block, top, documents;
  int32_t cu[8];
} spec;

static const spec specs[] = {
    {FLY_F32, 2, 1, 64, 32, 3, 3, {0, 200, 265, 500}},
    {FLY_F32, 4, 2, 16, 8, 4, 6, {0, 1, 1, 65, 65, 66, 300}}, /* empty ones and single tokens */
    {FLY_BF16, 2, 2, 24, 64, 2, 2, {0, 129, 400}},
    {FLY_F16, 1, 1, 8, 128, 3, 1, {0, 333}},
    {FLY_F32, 2, 1, 20, 7, 3, 4, {0, 63, 127, 192, 256}}, /* blocks that share tiles */
};
enum { SPECS = sizeof specs / sizeof *specs };

static packed describe(const spec *s) {
  packed p = {.cu = s->cu, .documents = s->documents, .rows = s->cu[s->documents], .block = s->block};
  for (int i = 0; i < s->documents; i++) {
    int64_t blocks = (s->cu[i + 1] - s->cu[i] + s->block - 1) / s->block;
    p.blocks = blocks > p.blocks ? blocks : p.blocks;
  }
  return p;
}

static void make_call(fly_attention *c, fly_mask *mask, const spec *s) {
  int64_t rows = s->cu[s->documents];
  *c = (fly_attention){FLY_INIT(fly_attention), .kernel = scene_kernel(mask, s->type, s->dim, s->dim + 4)};
  c->q = scene_tensor(s->type, 1, s->heads, rows, s->dim, 1);
  c->k = scene_tensor(s->type, 1, s->kv_heads, rows, s->dim, 2);
  c->v = scene_tensor(s->type, 1, s->kv_heads, rows, s->dim + 4, 3);
  scene_outputs(c, 4);
}

static void free_call(fly_attention *c) {
  fly_kernel_release((fly_kernel **)&c->kernel);
  scene_free_call(c);
}

static fly_moba_desc desc_of(const spec *s, const fly_attention *c) {
  return (fly_moba_desc){FLY_INIT(fly_moba_desc), .block = s->block,  .top = s->top, .q = c->q, .k = c->k,
                         .batch = s->documents,   .cu_seqlens = s->cu};
}

static void check_attention(const fly_selection *selection, fly_attention *c, packed *p) {
  ck_fly_ok(fly_selection_forward(selection, c, &error), error);
  ck_fly_ok(fly_selection_backward(selection, c, &error), error);
  fly_attention whole = *c;
  whole.geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = 1, .heads = c->q.shape[1], .len_q = p->rows,
                                  .len_kv = p->rows};
  oracle_check(&whole, sees, p, CALL_UNTOUCHED, "packed");
  oracle_check_backward(&whole, sees, p, "packed");
}

static double product(const fly_attention *c, int64_t h, int64_t q, int64_t first, int block) {
  double score = 0;
  for (int64_t d = 0; d < c->q.shape[3]; d++) {
    double mean = 0;
    for (int64_t j = first; j < first + block; j++)
      mean += oracle_get(&c->k, 0, h / (c->q.shape[1] / c->k.shape[1]), j, d) / block;
    score += oracle_get(&c->q, 0, h, q, d) * mean;
  }
  return score;
}

/* A block is selected if fewer than top - 1 of its document's earlier ones are clearly better, and only if. */
static void check_gate(const spec *s, const fly_attention *c, const packed *p) {
  for (int64_t h = 0; h < s->heads; h++)
    for (int64_t q = 0; q < p->rows; q++) {
      const uint8_t *row = p->bitmap + (h * p->rows + q) * p->blocks;
      int64_t first = s->cu[document_of(p, q)], own = (q - first) / s->block;
      double score[64];
      int chosen = 0;
      for (int64_t j = 0; j < own; j++) score[j] = product(c, h, q, first + j * s->block, s->block);
      for (int64_t j = 0; j < own; j++) {
        int surely = 0, perhaps = 0;
        for (int64_t k = 0; k < own; k++) {
          surely += k != j && score[k] > score[j] + 1e-5;
          perhaps += k != j && score[k] > score[j] - 1e-5;
        }
        ck_assert(row[j] ? surely < s->top - 1 : perhaps >= s->top - 1);
        chosen += row[j];
      }
      ck_assert_int_eq(chosen, own < s->top - 1 ? own : s->top - 1);
      ck_assert_int_eq(row[own], 1);
      for (int64_t j = own + 1; j < p->blocks; j++) ck_assert_int_eq(row[j], 0);
    }
}

START_TEST(moba_stays_in_its_document) {
  const spec *s = &specs[_i];
  fly_mask *mask = scene_mask("selected_tiles");
  fly_attention c;
  fly_selection *selection;
  packed p = describe(s);
  make_call(&c, mask, s);
  fly_moba_desc d = desc_of(s, &c);
  ck_fly_ok(fly_moba_select(mask, &d, &selection, &error), error);
  uint8_t *bitmap = malloc((size_t)(s->heads * p.rows * p.blocks));
  fly_selection_get_bitmap(selection, bitmap);
  p.bitmap = bitmap;
  check_gate(s, &c, &p);
  check_attention(selection, &c, &p);
  free(bitmap);
  fly_selection_release(&selection);
  free_call(&c);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(any_selection_stays_in_its_document) {
  const spec *s = &specs[_i];
  fly_mask *mask = scene_mask("selected_tiles");
  test_random random = {(uint64_t)_i + 1};
  packed p = describe(s);
  size_t rows = (size_t)(s->heads * p.rows);
  uint8_t *bitmap = calloc(rows, (size_t)p.blocks), *back = malloc(rows * (size_t)p.blocks);
  int32_t *lists = malloc(rows * (size_t)p.blocks * sizeof *lists);
  for (size_t i = 0; i < rows; i++) {
    int64_t row = (int64_t)i % p.rows, own = (row - s->cu[document_of(&p, row)]) / s->block;
    for (int64_t j = 0; j < p.blocks; j++) { /* blocks behind the query are not seen anyway: none is named */
      bitmap[i * (size_t)p.blocks + (size_t)j] = j <= own && test_range(&random, 0, 2) == 0;
      lists[i * (size_t)p.blocks + (size_t)j] = bitmap[i * (size_t)p.blocks + (size_t)j] ? (int32_t)j : -1;
    }
  }
  for (int by_lists = 0; by_lists < 2; by_lists++) {
    fly_attention c;
    fly_selection *selection;
    fly_selection_info info;
    make_call(&c, mask, s);
    fly_selection_desc d = {FLY_INIT(fly_selection_desc), .block = s->block,
                            .batch = s->documents,        .heads = s->heads,
                            .stride_row = p.blocks,       .stride_head = p.rows * p.blocks,
                            .cu_seqlens = s->cu};
    if (by_lists)
      d.lists = lists, d.count = (int)p.blocks;
    else
      d.bitmap = bitmap;
    ck_fly_ok(fly_selection_create(mask, &d, &selection, &error), error);
    fly_selection_get_info(selection, &info);
    ck_assert(info.batch == 1 && info.heads == s->heads && info.len_q == p.rows && info.len_kv == p.rows && !info.map);
    fly_selection_get_bitmap(selection, back);
    ck_assert_mem_eq(back, bitmap, rows * (size_t)p.blocks);
    p.bitmap = bitmap;
    check_attention(selection, &c, &p);
    fly_selection_release(&selection);
    free_call(&c);
  }
  free(bitmap), free(back), free(lists);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(a_kept_workspace_serves_all_documents) {
  const spec *s = &specs[0];
  fly_mask *mask = scene_mask("selected_tiles");
  fly_attention c;
  fly_selection *selection;
  make_call(&c, mask, s);
  fly_moba_desc d = desc_of(s, &c);
  ck_fly_ok(fly_moba_select(mask, &d, &selection, &error), error);
  fly_tensor first = scene_like(&c.out, 5), gradient = scene_like(&c.d_k, 6);
  c.threads = 1;
  ck_fly_ok(fly_selection_forward(selection, &c, &error), error);
  ck_fly_ok(fly_selection_backward(selection, &c, &error), error);
  scene_copy(&first, &c.out), scene_copy(&gradient, &c.d_k);
  for (int backward = 0; backward < 2; backward++) {
    size_t bytes;
    fly_status status = backward ? fly_selection_backward_workspace(selection, &c, &bytes, &error)
                                 : fly_selection_workspace(selection, &c, &bytes, &error);
    ck_fly_ok(status, error);
    ck_assert_uint_gt(bytes, 0);
    c.workspace = guard_alloc(bytes, 64, false), c.workspace_size = bytes;
    ck_fly_ok(backward ? fly_selection_backward(selection, &c, &error) : fly_selection_forward(selection, &c, &error),
              error);
    c.workspace_size = bytes - 1;
    status = backward ? fly_selection_backward(selection, &c, &error) : fly_selection_forward(selection, &c, &error);
    ck_assert_int_eq(status, FLY_ERROR_ARGUMENT);
    guard_free(c.workspace);
    c.workspace = NULL, c.workspace_size = 0;
  }
  ck_assert(scene_equal(&first, &c.out) && scene_equal(&gradient, &c.d_k));
  scene_free(&first), scene_free(&gradient);
  fly_selection_release(&selection);
  free_call(&c);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(misuse_of_packed_documents_is_refused) {
  static const int32_t falls[] = {0, 300, 200, 500}, late[] = {1, 200, 265, 500}, short_one[] = {0, 200, 265, 499};
  static const int32_t good[] = {0, 200, 265, 500};
  fly_mask *mask = scene_mask("selected_tiles");
  fly_attention c;
  fly_selection *selection;
  make_call(&c, mask, &specs[0]);
  const struct {
    const int32_t *cu;
    int64_t batch, q_offset;
    const char *says;
  } cases[] = {{falls, 3, 0, "descends from 300 to 200"},
               {late, 3, 0, "starts with 1"},
               {short_one, 3, 0, "must be [1, .., 499"},
               {good, 0, 0, "must be"},
               {good, 3, 0, NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fly_moba_desc d = desc_of(&specs[0], &c);
    d.cu_seqlens = cases[i].cu, d.batch = cases[i].batch, d.q_offset = cases[i].q_offset;
    fly_status status = fly_moba_select(mask, &d, &selection, &error);
    ck_assert_int_eq(status, cases[i].says ? FLY_ERROR_ARGUMENT : FLY_OK);
    if (cases[i].says) ck_assert_msg(strstr(error.message, cases[i].says) && !selection, "%s", error.message);
  }
  c.out.shape[2]--; /* another length than the documents' */
  ck_assert_int_eq(fly_selection_forward(selection, &c, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.message, "out.shape"));
  c.out.shape[2]++;
  fly_selection_release(&selection);
  int32_t lists[500];
  for (int i = 0; i < 500; i++) lists[i] = i == 250 ? 9 : 0; /* the document of 65 tokens has 3 blocks of 32 */
  fly_selection_desc d = {FLY_INIT(fly_selection_desc),
                          .block = 32,
                          .batch = 3,
                          .heads = 2,
                          .count = 1,
                          .lists = lists,
                          .stride_row = 1,
                          .cu_seqlens = good};
  ck_assert_int_eq(fly_selection_create(mask, &d, &selection, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "document 1: ") && strstr(error.message, "3 blocks"), "%s", error.message);
  d.query_block = 2;
  ck_assert_int_eq(fly_selection_create(mask, &d, &selection, &error), FLY_ERROR_ARGUMENT);
  d.query_block = 0, d.q_offset = 1;
  ck_assert_int_eq(fly_selection_create(mask, &d, &selection, &error), FLY_ERROR_ARGUMENT);
  d.q_offset = 0, d.batch = 0;
  ck_assert_int_eq(fly_selection_create(mask, &d, &selection, &error), FLY_ERROR_ARGUMENT);
  free_call(&c);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(failing_allocations_in_documents_are_reported) {
  const spec s = {FLY_F32, 2, 1, 8, 8, 3, 3, {0, 20, 20, 60}};
  fly_mask *mask = scene_mask("selected_tiles");
  fly_attention c;
  make_call(&c, mask, &s);
  c.threads = 1;
  fly_moba_desc d = desc_of(&s, &c);
  d.threads = 1;
  scene_failing_selection(mask, &d, &c);
  free_call(&c);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(documents_without_tokens_are_all_right) {
  const spec s = {FLY_F32, 1, 1, 8, 8, 3, 2, {0, 0, 0}};
  fly_mask *mask = scene_mask("selected_tiles");
  fly_attention c;
  fly_selection *selection;
  make_call(&c, mask, &s);
  fly_moba_desc d = desc_of(&s, &c);
  ck_fly_ok(fly_moba_select(mask, &d, &selection, &error), error);
  ck_fly_ok(fly_selection_forward(selection, &c, &error), error);
  ck_fly_ok(fly_selection_backward(selection, &c, &error), error);
  fly_selection_release(&selection);
  free_call(&c);
  fly_mask_release(&mask);
}
END_TEST

static Suite *make(void) {
  Suite *suite = suite_create("moba_packed");
  TCase *tcase = tcase_create("packed documents");
  tcase_add_loop_test(tcase, moba_stays_in_its_document, 0, SPECS);
  tcase_add_loop_test(tcase, any_selection_stays_in_its_document, 0, SPECS);
  tcase_add_test(tcase, a_kept_workspace_serves_all_documents);
  tcase_add_test(tcase, misuse_of_packed_documents_is_refused);
  tcase_add_test(tcase, failing_allocations_in_documents_are_reported);
  tcase_add_test(tcase, documents_without_tokens_are_all_right);
  suite_add_tcase(suite, tcase);
  return suite;
}

FLY_TEST_MAIN(make)
