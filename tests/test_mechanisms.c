/* Other mechanisms as row maps and masks, as docs/mechanisms.md has them: Focus sorted by group and merged with its
 * window, SMat sorted by profile and type. Each equals its plain mask, and its sorted map has far fewer tiles. Gated SA
 * + SWA over packed documents. Sliding windows on real inputs. */
#include "sa/scene.h"

enum { N = 700, GROUPS = 10, TYPES = 4, WINDOW = 24 };

static int32_t group[N], profile[N], type[N];
static uint32_t bits[N];               /* of a query's group */
static uint8_t visible[TYPES * TYPES]; /* one type for each profile */

static void draw(void) {
  test_random random = {2026};
  for (int i = 0; i < N; i++) {
    group[i] = (int32_t)test_range(&random, 0, GROUPS - 1), bits[i] = 1u << group[i];
    profile[i] = (int32_t)test_range(&random, 0, TYPES - 1), type[i] = (int32_t)test_range(&random, 0, TYPES - 1);
  }
  for (int i = 0; i < TYPES * TYPES; i++) visible[i] = i % TYPES == (i / TYPES * 3 + 1) % TYPES;
}

/* Positions by rising key, tokens in order within one. */
static void sort_by(const int32_t *key, int32_t *rows) {
  int count = 0;
  for (int k = 0; k < GROUPS; k++)
    for (int i = 0; i < N; i++)
      if (key[i] == k) rows[count++] = i;
}

static fly_buffer *capture(fly_type element, int rank, int64_t rows, int64_t columns, const void *data) {
  fly_buffer *buffer;
  fly_error error;
  ck_fly_ok(fly_buffer_create(element, rank, (int64_t[]){rows, columns}, data, &buffer, &error), error);
  return buffer;
}

/* A call of a mask, which it takes over, with what it captures; rows: of queries and keys, or NULL. */
static void call_of(fly_attention *c, fly_mask *mask, const fly_arg *args, int count, const int32_t *q_rows,
                    const int32_t *kv_rows) {
  fly_error error;
  fly_map *map;
  c->kernel = scene_kernel(mask, FLY_F32, 32, 32);
  ck_fly_ok(fly_mask_bind(mask, args, count, &c->bound, &error), error);
  c->geometry = (fly_geometry){
      FLY_INIT(fly_geometry),      .batch = 1, .heads = 2, .len_q = N, .len_kv = N, .q_rows = {.rows = q_rows},
      .kv_rows = {.rows = kv_rows}};
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = 64, .tile_kv = 64};
  ck_fly_ok(fly_map_build(c->bound, &c->geometry, &options, &map, &error), error);
  c->map = map;
  for (int i = 0; i < count; i++)
    if (args[i].kind == FLY_ARG_BUFFER) {
      fly_buffer *buffer = args[i].buffer;
      fly_buffer_release(&buffer);
    }
  fly_mask_release(&mask);
}

static void release_call(fly_attention *c) {
  fly_kernel_release((fly_kernel **)&c->kernel);
  fly_bound_release(&c->bound);
  fly_map_release((fly_map **)&c->map);
}

static int64_t tiles_of(const fly_attention *c) {
  fly_map_info info;
  fly_map_get_info(c->map, &info);
  return info.tiles_full + info.tiles_partial;
}

static fly_attention make_inputs(void) {
  fly_attention c = {FLY_INIT(fly_attention)};
  c.q = scene_tensor(FLY_F32, 1, 2, N, 32, 1), c.k = scene_tensor(FLY_F32, 1, 1, N, 32, 2),
  c.v = scene_tensor(FLY_F32, 1, 1, N, 32, 3);
  scene_outputs(&c, 4);
  return c;
}

static void check_by_token(const fly_attention *call, oracle_predicate *see, const char *what) {
  fly_attention c = *call;
  c.geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = 1, .heads = 2, .len_q = N, .len_kv = N};
  oracle_check(&c, see, NULL, CALL_UNTOUCHED, what);
}

static bool sees_focus(void *context, int b, int h, int q, int kv) {
  (void)context, (void)b, (void)h;
  return kv <= q && (q - kv < WINDOW || group[q] == group[kv]);
}

/* ---- Focus ------------------------------------------------------------------------------------------------------- */

static const char far_in_group[] = "#include <flymask/mask.h>\n"
                                   "FLY_PARAM(int, window, 24);\n"
                                   "FLY_BUFFER(int32_t, group, 1);\n"
                                   "bool mask(int b, int h, int q, int kv) {\n"
                                   "  int token = fly_token_q(b, h, q), other = fly_token_kv(b, h, kv);\n"
                                   "  return group[q] == group[kv] && token - other >= window;\n"
                                   "}\n";

START_TEST(focus_is_a_window_and_a_block_diagonal_merged) {
  static int32_t rows[N], sorted[N];
  fly_attention base = make_inputs(), plain = base, near = base, far = base;
  fly_error error;
  draw();
  sort_by(group, rows);
  for (int i = 0; i < N; i++) sorted[i] = group[rows[i]];
  fly_arg by_bits[] = {FLY_INT("window", WINDOW), FLY_CAPTURE("groups", capture(FLY_U32, 1, N, 1, bits))};
  call_of(&plain, scene_mask("focus"), by_bits, 2, NULL, NULL);
  ck_fly_ok(fly_attention_forward(&plain, &error), error);
  check_by_token(&plain, sees_focus, "focus");

  fly_arg window[] = {FLY_INT("left", WINDOW - 1), FLY_INT("right", 0)};
  fly_arg by_group[] = {FLY_INT("window", WINDOW), FLY_CAPTURE("group", capture(FLY_I32, 1, N, 1, sorted))};
  call_of(&near, scene_mask("sliding_window"), window, 2, NULL, NULL);
  call_of(&far, scene_source(far_in_group), by_group, 2, rows, rows);
  near.out = scene_like(&base.out, -1), near.lse = scene_like(&base.lse, -1);
  far.out = scene_like(&base.out, -1), far.lse = scene_like(&base.lse, -1);
  ck_fly_ok(fly_attention_forward(&near, &error), error);
  ck_fly_ok(fly_attention_forward(&far, &error), error);
  fly_partial partials[] = {{.out = near.out, .lse = near.lse}, {.out = far.out, .lse = far.lse}};
  fly_merge_call merge = {FLY_INIT(fly_merge_call), .partials = partials, .count = 2, .out = base.out, .lse = base.lse};
  ck_fly_ok(fly_merge(&merge, &error), error);
  check_by_token(&base, sees_focus, "merged");
  fly_attention parts[] = {near,
                           far}; /* backward by what was merged; the second one's gradients join the first one's */
  for (int i = 0; i < 2; i++) {
    parts[i].out = base.out, parts[i].lse = base.lse, parts[i].add_gradients = i > 0;
    ck_fly_ok(fly_attention_backward(&parts[i], &error), error);
  }
  base.geometry = plain.geometry;
  oracle_check_backward(&base, sees_focus, NULL, "both parts' gradients");
  ck_assert_int_lt(tiles_of(&near) + tiles_of(&far), tiles_of(&plain));

  scene_free(&near.out), scene_free(&near.lse), scene_free(&far.out), scene_free(&far.lse);
  release_call(&plain), release_call(&near), release_call(&far);
  scene_free_call(&base);
}
END_TEST

/* ---- SMat -------------------------------------------------------------------------------------------------------- */

static bool sees_smat(void *context, int b, int h, int q, int kv) {
  (void)context, (void)b, (void)h;
  return kv <= q && visible[profile[q] * TYPES + type[kv]];
}

static const char sorted_table[] =
    "#include <flymask/mask.h>\n"
    "FLY_BUFFER(int32_t, profile, 1);\n"
    "FLY_BUFFER(int32_t, type, 1);\n"
    "FLY_BUFFER(uint8_t, visible, 2);\n"
    "bool mask(int b, int h, int q, int kv) {\n"
    "  return fly_at2(visible, profile[q], type[kv]) && fly_token_kv(b, h, kv) <= fly_token_q(b, h, q);\n"
    "}\n";

START_TEST(smat_is_a_table_of_blocks_when_sorted) { /* queries by profile, keys by type */
  static int32_t q_rows[N], kv_rows[N], sorted_profile[N], sorted_type[N];
  fly_attention base = make_inputs(), plain = base, sorted = base;
  fly_error error;
  draw();
  sort_by(profile, q_rows), sort_by(type, kv_rows);
  for (int i = 0; i < N; i++) sorted_profile[i] = profile[q_rows[i]], sorted_type[i] = type[kv_rows[i]];
  fly_arg natural[] = {FLY_CAPTURE("profile", capture(FLY_I32, 1, N, 1, profile)),
                       FLY_CAPTURE("type", capture(FLY_I32, 1, N, 1, type)),
                       FLY_CAPTURE("visible", capture(FLY_U8, 2, TYPES, TYPES, visible))};
  call_of(&plain, scene_mask("smat"), natural, 3, NULL, NULL);
  ck_fly_ok(fly_attention_forward(&plain, &error), error);
  check_by_token(&plain, sees_smat, "smat");
  fly_arg by_table[] = {FLY_CAPTURE("profile", capture(FLY_I32, 1, N, 1, sorted_profile)),
                        FLY_CAPTURE("type", capture(FLY_I32, 1, N, 1, sorted_type)),
                        FLY_CAPTURE("visible", capture(FLY_U8, 2, TYPES, TYPES, visible))};
  call_of(&sorted, scene_source(sorted_table), by_table, 3, q_rows, kv_rows);
  ck_fly_ok(fly_attention_forward(&sorted, &error), error);
  check_by_token(&sorted, sees_smat, "sorted");
  ck_assert_int_lt(tiles_of(&sorted), tiles_of(&plain));
  ck_fly_ok(fly_attention_backward(&sorted, &error), error);
  sorted.geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = 1, .heads = 2, .len_q = N, .len_kv = N};
  oracle_check_backward(&sorted, sees_smat, NULL, "sorted");
  release_call(&plain), release_call(&sorted);
  scene_free_call(&base);
}
END_TEST

/* ---- gated SA + SWA over packed documents ------------------------------------------------------------------------ */

enum { DOCUMENTS = 5, PACKED = 397, OUTPUTS = 10 };
static const int32_t cu[DOCUMENTS + 1] = {0, 90, 91, 91, 230, PACKED}; /* 90, 1, none, 139, 167 tokens */

typedef struct packed {
  fly_mask *mask[2];
  fly_kernel *kernel[2];
  fly_tensor q, k, v, d_out, logits[2];
} packed;

/* Of tensors that hold all documents, the rows of some. */
static fly_tensor rows_of(const fly_tensor *all, int64_t first, int64_t count) {
  fly_tensor t = *all;
  t.data = (char *)t.data + first * t.stride[2] * (int64_t)fly_type_size(t.type);
  t.shape[2] = count;
  return t;
}

/* Forward and backward over rows first .. first + count - 1: one document, or those of the lengths. out: the sum, the
 * parts' outputs and LSEs, the gradients of q, k, v and both gates' logits. */
static void run_gated(const packed *p, int64_t first, int64_t count, const int32_t *lengths, fly_tensor *out) {
  fly_error error;
  fly_sa *sa;
  fly_bound *bound;
  fly_gated_part parts[2] = {0};
  fly_arg window[] = {FLY_INT("left", 20), FLY_INT("right", 0)};
  fly_sa_desc d = {
      FLY_INIT(fly_sa_desc), .left = 15, .right = 12, .batch = lengths ? DOCUMENTS : 1, .heads = 2, .length = count,
      .cu_seqlens = lengths, .seed = 3};
  fly_tensor some[OUTPUTS];
  for (int i = 0; i < OUTPUTS; i++) some[i] = rows_of(&out[i], first, count);
  ck_fly_ok(fly_sa_create(p->mask[0], &d, &sa, &error), error);
  ck_fly_ok(fly_mask_bind(p->mask[1], window, 2, &bound, &error), error);
  for (int i = 0; i < 2; i++) {
    fly_attention *a = &parts[i].attention;
    *a = (fly_attention){FLY_INIT(fly_attention), .kernel = p->kernel[i], .out = some[1 + i], .lse = some[3 + i],
                         .bound = bound};
    if (lengths)
      a->geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = DOCUMENTS, .heads = 2, .cu_seqlens_q = lengths,
                                   .cu_seqlens_kv = lengths};
    parts[i].gate = (fly_gate){.logits = rows_of(&p->logits[i], first, count), .d_logits = some[8 + i]};
  }
  ck_fly_ok(fly_sa_apply(sa, &parts[0].attention, &error), error);
  fly_gated_call call = {FLY_INIT(fly_gated_call),
                         .parts = parts,
                         .count = 2,
                         .out = some[0],
                         .d_q = some[5],
                         .d_k = some[6],
                         .d_v = some[7],
                         .q = rows_of(&p->q, first, count),
                         .k = rows_of(&p->k, first, count),
                         .v = rows_of(&p->v, first, count),
                         .d_out = rows_of(&p->d_out, first, count)};
  ck_fly_ok(fly_gated_forward(&call, &error), error);
  ck_fly_ok(fly_gated_backward(&call, &error), error);
  fly_bound_release(&bound);
  fly_sa_release(&sa);
}

START_TEST(gated_sums_of_packed_documents_are_those_of_each_alone) { /* bit by bit */
  packed p = {.mask = {scene_mask("stochastic"), scene_mask("sliding_window")}};
  fly_tensor together[OUTPUTS], alone[OUTPUTS];
  for (int i = 0; i < 2; i++) p.kernel[i] = scene_kernel(p.mask[i], FLY_F32, 16, 24);
  p.q = scene_tensor(FLY_F32, 1, 2, PACKED, 16, 1), p.k = scene_tensor(FLY_F32, 1, 1, PACKED, 16, 2);
  p.v = scene_tensor(FLY_F32, 1, 1, PACKED, 24, 3), p.d_out = scene_tensor(FLY_F32, 1, 2, PACKED, 24, 4);
  for (int i = 0; i < 2; i++) p.logits[i] = scene_tensor(FLY_F32, 1, 2, PACKED, 1, 5 + i);
  const fly_tensor *like[OUTPUTS] = {&p.d_out, &p.d_out, &p.d_out, &p.logits[0], &p.logits[0],
                                     &p.q,     &p.k,     &p.v,     &p.logits[0], &p.logits[0]};
  for (int i = 0; i < OUTPUTS; i++) together[i] = scene_like(like[i], -1), alone[i] = scene_like(like[i], -1);
  run_gated(&p, 0, PACKED, cu, together);
  for (int i = 0; i < DOCUMENTS; i++) run_gated(&p, cu[i], cu[i + 1] - cu[i], NULL, alone);
  for (int i = 0; i < OUTPUTS; i++) {
    ck_assert_msg(scene_equal(&together[i], &alone[i]), "output %d differs", i);
    ck_assert(oracle_get(&together[i], 0, 0, 0, 0) != CALL_UNTOUCHED);
    scene_free(&together[i]), scene_free(&alone[i]);
  }
  fly_tensor *inputs[] = {&p.q, &p.k, &p.v, &p.d_out, &p.logits[0], &p.logits[1]};
  for (int i = 0; i < 6; i++) scene_free(inputs[i]);
  for (int i = 0; i < 2; i++) fly_kernel_release(&p.kernel[i]), fly_mask_release(&p.mask[i]);
}
END_TEST

/* ---- real inputs ------------------------------------------------------------------------------------------------- */

START_TEST(a_window_agrees_with_its_float64_reference) { /* as SA with the identity for a permutation */
  fly_mask *mask = scene_mask("stochastic");
  fly_error error;
  fly_sa *sa;
  fly_attention c = {FLY_INIT(fly_attention), .q = scene_load("layer14_q"), .k = scene_load("layer14_k"),
                     .v = scene_load("layer14_v"), .kernel = scene_kernel(mask, FLY_F32, 64, 64)};
  fly_tensor out = scene_load("swa256_out"), lse = scene_load("swa256_lse");
  int32_t *rows = malloc((size_t)c.q.shape[2] * sizeof *rows);
  for (int32_t i = 0; i < c.q.shape[2]; i++) rows[i] = i;
  scene_outputs(&c, 0);
  fly_sa_desc d = {
      FLY_INIT(fly_sa_desc),  .left = 255,           .causal = FLY_SA_BY_TOKEN, .batch = 1, .heads = c.q.shape[1],
      .length = c.q.shape[2], .rows = {.rows = rows}};
  ck_fly_ok(fly_sa_create(mask, &d, &sa, &error), error);
  ck_fly_ok(fly_sa_apply(sa, &c, &error), error);
  ck_fly_ok(fly_attention_forward(&c, &error), error);
  scene_difference o = scene_compare(&c.out, &out), l = scene_compare(&c.lse, &lse);
  printf("swa256: out at most %.2g, relative Frobenius %.2g; lse at most %.2g\n", o.worst, o.frobenius, l.worst);
  ck_assert_double_le(o.worst, 2e-5);
  ck_assert_double_le(o.frobenius, 1e-6);
  ck_assert_double_le(l.worst, 2e-5);
  free(rows);
  scene_free(&out), scene_free(&lse);
  fly_sa_release(&sa);
  fly_kernel_release((fly_kernel **)&c.kernel);
  scene_free_call(&c);
  fly_mask_release(&mask);
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("mechanisms");
  TCase *tests = tcase_create("mechanisms");
  tcase_add_test(tests, focus_is_a_window_and_a_block_diagonal_merged);
  tcase_add_test(tests, smat_is_a_table_of_blocks_when_sorted);
  tcase_add_test(tests, gated_sums_of_packed_documents_are_those_of_each_alone);
  TCase *references = tcase_create("references");
  if (scene_data()) tcase_add_test(references, a_window_agrees_with_its_float64_reference);
  suite_add_tcase(suite, tests);
  suite_add_tcase(suite, references);
  return suite;
}

FLY_TEST_MAIN(suite)
