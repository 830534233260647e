/* Maps of maps: and, or, not, crops, slices, bitmaps, binding. What comes out is held to every pair, or to the map that
 * fly_map_build gives. test_map_arrays.c has the arrays. */
#include "map_case.h"

static const char *const bodies[] = {
    "bool mask(int b, int h, int q, int kv) { return kv <= q; }",
    "bool mask(int b, int h, int q, int kv) { return q - kv < 70 && kv - q < 20; }",
    "bool mask(int b, int h, int q, int kv) { return (q / 16 + h) % 3 != kv / 16 % 3; }",
    "bool mask(int b, int h, int q, int kv) { return kv < 40 + 30 * b || (q * 7 + kv * 3) % 11 == 0; }",
    "bool mask(int b, int h, int q, int kv) { return fly_token_kv(b, h, kv) <= fly_token_q(b, h, q); }",
    "bool mask(int b, int h, int q, int kv) { return q + kv >= fly_len_q(b) && kv != fly_len_kv(b) - 1; }",
};
enum { BODIES = sizeof bodies / sizeof *bodies, PURE = 4 /* the first ones read positions alone */ };

static fly_error error;

static fly_bound *bind(int i) { return map_bind(bodies[i], NULL, 0); }

static fly_map *build(int body, const fly_geometry *g, const fly_map_options *options) {
  fly_bound *bound = bind(body);
  fly_map *map;
  ck_fly_ok(fly_map_build(bound, g, options, &map, &error), error);
  fly_bound_release(&bound);
  return map;
}

static fly_map_options random_options(test_random *random) {
  return (fly_map_options){FLY_INIT(fly_map_options), .tile_q = random_tile(random), .tile_kv = random_tile(random),
                           .threads = (int)test_range(random, 1, 2)};
}

/* ---- and, or, not ------------------------------------------------------------------------------------------------ */

typedef struct operands {
  fly_combine how;
  const fly_map *left, *right;
} operands;

/* By the operands' compiled masks, pair by pair. */
static void joined(void *context, const fly_map *map, int b, int h, int64_t len_q, int64_t len_kv, uint8_t *see) {
  (void)map;
  const operands *o = context;
  uint8_t *other = calloc((size_t)(len_q * len_kv) + 1, 1);
  truth_compiled(NULL, o->left, b, h, len_q, len_kv, see);
  if (o->right) truth_compiled(NULL, o->right, b, h, len_q, len_kv, other);
  for (int64_t i = 0; i < len_q * len_kv; i++)
    see[i] = o->how == FLY_NOT ? !see[i] : o->how == FLY_AND ? see[i] && other[i] : see[i] || other[i];
  free(other);
}

START_TEST(joined_maps_hold_the_joined_pairs_exactly) {
  long tiles = 0;
  for (int seed = 1; seed <= 60; seed++) {
    test_random random = {.state = (uint64_t)seed * 0x9E3779B97F4A7C15};
    random_call call;
    random_call_init(&random, 300, 300, &call);
    fly_map_options options = random_options(&random);
    fly_map *left = build((int)test_range(&random, 0, BODIES - 1), &call.geometry, &options);
    fly_map *right = build((int)test_range(&random, 0, BODIES - 1), &call.geometry, &options);
    for (int how = FLY_AND; how <= FLY_NOT; how++) {
      operands o = {(fly_combine)how, left, how == FLY_NOT ? NULL : right};
      fly_map *map;
      ck_fly_ok(fly_map_combine(o.how, o.left, o.right, &map, &error), error);
      tiles += check_map(map, true, joined, &o, "joined");
      fly_map_release(&map);
    }
    fly_map_release(&left), fly_map_release(&right);
    random_call_free(&call);
  }
  ck_assert_int_ge(tiles, 5000);
}
END_TEST

START_TEST(a_joined_map_is_that_of_the_joined_mask_and_takes_it) {
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 2, .heads = 3, .len_q = 200, .len_kv = 333};
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = 64, .tile_kv = 64};
  fly_mask *masks[2] = {map_compile(bodies[1]), map_compile(bodies[2])}, *mask;
  fly_map *left = build(1, &g, &options), *right = build(2, &g, &options);
  for (int how = FLY_AND; how <= FLY_NOT; how++) {
    bool one = how == FLY_NOT;
    fly_map *map, *fresh, *ready;
    fly_bound *bound;
    ck_fly_ok(fly_mask_combine((fly_combine)how, masks[0], one ? NULL : masks[1], NULL, &mask, &error), error);
    ck_fly_ok(fly_mask_bind(mask, NULL, 0, &bound, &error), error);
    ck_fly_ok(fly_map_combine((fly_combine)how, left, one ? NULL : right, &map, &error), error);
    ck_fly_ok(fly_map_build(bound, &g, &options, &fresh, &error), error);
    ck_assert(fly_map_equal(map, fresh));
    ck_fly_ok(fly_map_bind(map, bound, &ready, &error), error);
    ck_assert(fly_map_equal(ready, fresh));
    check_map(ready, true, truth_compiled, NULL, "bound");
    fly_map_release(&map), fly_map_release(&fresh), fly_map_release(&ready);
    fly_bound_release(&bound), fly_mask_release(&mask);
  }
  fly_map_release(&left), fly_map_release(&right);
  fly_mask_release(&masks[0]), fly_mask_release(&masks[1]);
}
END_TEST

START_TEST(operations_nest_and_outlive_what_they_are_made_of) {
  fly_geometry g = map_square(2, 2, 190);
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = 32, .tile_kv = 48};
  fly_map *a = build(1, &g, &options), *b = build(3, &g, &options), *either, *nor, *neither[2], *both;
  ck_fly_ok(fly_map_combine(FLY_OR, a, b, &either, &error), error);
  ck_fly_ok(fly_map_combine(FLY_NOT, either, NULL, &nor, &error), error);
  ck_fly_ok(fly_map_combine(FLY_NOT, a, NULL, &neither[0], &error), error);
  ck_fly_ok(fly_map_combine(FLY_NOT, b, NULL, &neither[1], &error), error);
  fly_map_release(&a), fly_map_release(&b), fly_map_release(&either);
  ck_fly_ok(fly_map_combine(FLY_AND, neither[0], neither[1], &both, &error), error); /* De Morgan */
  fly_map_release(&neither[0]), fly_map_release(&neither[1]);
  ck_assert(fly_map_equal(nor, both));
  int64_t pairs[2];
  ck_fly_ok(fly_map_visible_pairs(nor, &pairs[0], &error), error);
  ck_fly_ok(fly_map_visible_pairs(both, &pairs[1], &error), error);
  ck_assert_int_eq(pairs[0], pairs[1]);
  for (int q = 0; q < 190; q += 7)
    for (int kv = 0; kv < 190; kv += 3) {
      bool see = !((q - kv < 70 && kv - q < 20) || kv < 70 || (q * 7 + kv * 3) % 11 == 0);
      ck_assert_int_eq(fly_map_visible(both, 1, 0, q, kv), see);
    }
  fly_map_release(&nor), fly_map_release(&both);
}
END_TEST

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static void expect_equal(const fly_map *a, const fly_map *b, const char *what, int seed) {
  ck_assert_msg(fly_map_equal(a, b), "%s, seed %d", what, seed);
}

START_TEST(a_crop_or_slice_equals_the_freshly_built_map) {
  for (int seed = 1; seed <= 160; seed++) {
    test_random random = {.state = (uint64_t)seed * 0x9E3779B97F4A7C15};
    random_call call;
    random_call_init(&random, 400, 400, &call);
    fly_geometry *g = &call.geometry, part;
    g->cu_seqlens_q = g->cu_seqlens_kv = NULL;
    if (call.cu_q) g->q_rows.rows = g->kv_rows.rows = NULL; /* made for other lengths */
    fly_map_options options = random_options(&random);
    options.fast = test_range(&random, 0, 4) == 0;
    int body = (int)test_range(&random, 0, BODIES - 1);
    fly_map *whole = build(body, g, &options), *cut, *fresh;
    part = *g;
    part.len_q = test_range(&random, 0, g->len_q), part.len_kv = test_range(&random, 0, g->len_kv);
    ck_fly_ok(fly_map_crop(whole, part.len_q, part.len_kv, &cut, &error), error);
    fresh = build(body, &part, &options);
    expect_equal(cut, fresh, "crop", seed);
    if (!options.fast) check_map(cut, true, truth_compiled, NULL, "crop");
    fly_map_release(&cut), fly_map_release(&fresh);
    int64_t first = test_range(&random, 0, g->len_q);
    if (seed % 2) first -= first % options.tile_q;
    part = *g;
    part.len_q = test_range(&random, 0, g->len_q - first), part.q_offset += first;
    if (part.q_rows.rows) part.q_rows.rows += first;
    ck_fly_ok(fly_map_slice(whole, first, part.len_q, &cut, &error), error);
    fresh = build(body, &part, &options);
    expect_equal(cut, fresh, "slice", seed);
    ck_assert(flyi_hash_equal(cut->domain, fresh->domain)); /* an attention call takes it */
    if (!options.fast) check_map(cut, true, truth_compiled, NULL, "slice");
    fly_map_release(&cut), fly_map_release(&fresh), fly_map_release(&whole);
    random_call_free(&call);
  }
}
END_TEST

START_TEST(parts_of_a_joined_map_join_the_parts) {
  for (int seed = 1; seed <= 40; seed++) {
    test_random random = {.state = (uint64_t)seed * 0x9E3779B97F4A7C15};
    fly_geometry g = {FLY_INIT(fly_geometry),
                      .batch = 2,
                      .heads = 2,
                      .len_q = test_range(&random, 1, 300),
                      .len_kv = test_range(&random, 1, 300),
                      .q_offset = test_range(&random, -40, 40)};
    fly_map_options options = random_options(&random);
    fly_map *whole[2], *part[2], *joined_whole, *joined_part, *cut;
    int64_t first = test_range(&random, 0, g.len_q), count = test_range(&random, 0, g.len_q - first);
    int64_t keys = test_range(&random, 0, g.len_kv);
    for (int i = 0; i < 2; i++) {
      whole[i] = build((int)test_range(&random, 0, PURE - 1), &g, &options);
      ck_fly_ok(fly_map_slice(whole[i], first, count, &cut, &error), error);
      ck_fly_ok(fly_map_crop(cut, count, keys, &part[i], &error), error);
      fly_map_release(&cut);
    }
    ck_fly_ok(fly_map_combine(FLY_OR, whole[0], whole[1], &joined_whole, &error), error);
    ck_fly_ok(fly_map_combine(FLY_OR, part[0], part[1], &joined_part, &error), error);
    fly_map *sliced, *cropped;
    ck_fly_ok(fly_map_slice(joined_whole, first, count, &sliced, &error), error);
    ck_fly_ok(fly_map_crop(sliced, count, keys, &cropped, &error), error);
    expect_equal(cropped, joined_part, "parts", seed);
    int64_t pairs[2];
    ck_fly_ok(fly_map_visible_pairs(cropped, &pairs[0], &error), error);
    ck_fly_ok(fly_map_visible_pairs(joined_part, &pairs[1], &error), error);
    ck_assert_int_eq(pairs[0], pairs[1]);
    for (int i = 0; i < 2; i++) fly_map_release(&whole[i]), fly_map_release(&part[i]);
    fly_map_release(&joined_whole), fly_map_release(&joined_part), fly_map_release(&sliced), fly_map_release(&cropped);
  }
}
END_TEST

/* ---- bitmaps ----------------------------------------------------------------------------------------------------- */

typedef struct bitmap {
  uint8_t *pair;
  int64_t batch, heads, len_q, len_kv;
} bitmap;

static void by_bitmap(void *context, const fly_map *map, int b, int h, int64_t len_q, int64_t len_kv, uint8_t *see) {
  (void)map;
  const bitmap *m = context;
  const uint8_t *at = m->pair + ((m->batch == 1 ? 0 : b) * m->heads + (m->heads == 1 ? 0 : h)) * len_q * len_kv;
  for (int64_t i = 0; i < len_q * len_kv; i++) see[i] = at[i] != 0;
}

static fly_buffer *random_bitmap(test_random *random, const fly_geometry *g, bitmap *m) {
  static const uint8_t values[] = {1, 2, 16, 128, 255};
  *m = (bitmap){NULL, test_range(random, 0, 1) ? 1 : g->batch, test_range(random, 0, 1) ? 1 : g->heads, g->len_q,
                g->len_kv};
  bool truth = test_range(random, 0, 1);
  int64_t count = m->batch * m->heads * m->len_q * m->len_kv, shape[] = {m->batch, m->heads, m->len_q, m->len_kv};
  m->pair = calloc((size_t)count + 1, 1);
  for (int64_t i = 0, left = 0, value = 0; i < count; i++, left--) {
    if (left <= 0) left = test_range(random, 1, 4000), value = test_range(random, 0, 2);
    m->pair[i] = value == 2 ? test_range(random, 0, 1) : (uint8_t)value;
    if (m->pair[i] && !truth) m->pair[i] = values[test_range(random, 0, 4)];
  }
  bool flat = m->batch == 1 && m->heads == 1 && test_range(random, 0, 1);
  fly_buffer *buffer;
  ck_fly_ok(
      fly_buffer_create(truth ? FLY_BOOL : FLY_U8, flat ? 2 : 4, flat ? shape + 2 : shape, m->pair, &buffer, &error),
      error);
  return buffer;
}

START_TEST(a_bitmap_becomes_a_map_and_operates_like_any_other) {
  for (int seed = 1; seed <= 60; seed++) {
    test_random random = {.state = (uint64_t)seed * 0x9E3779B97F4A7C15};
    fly_geometry g = {FLY_INIT(fly_geometry),
                      .batch = test_range(&random, 1, 3),
                      .heads = test_range(&random, 1, 3),
                      .len_q = test_range(&random, 0, 300),
                      .len_kv = test_range(&random, 0, 300),
                      .q_offset = test_range(&random, -9, 9)};
    fly_map_options options = random_options(&random);
    bitmap m;
    fly_map *map, *not_map, *slice;
    fly_buffer *buffer = random_bitmap(&random, &g, &m);
    ck_fly_ok(fly_map_from_bitmap(buffer, &g, &options, &map, &error), error);
    fly_buffer_release(&buffer);
    check_map(map, true, by_bitmap, &m, "bitmap");
    ck_fly_ok(fly_map_combine(FLY_NOT, map, NULL, &not_map, &error), error);
    int64_t pairs[2];
    ck_fly_ok(fly_map_visible_pairs(map, &pairs[0], &error), error);
    ck_fly_ok(fly_map_visible_pairs(not_map, &pairs[1], &error), error);
    ck_assert_int_eq(pairs[0] + pairs[1], g.batch * g.heads * g.len_q * g.len_kv);
    int64_t first = test_range(&random, 0, g.len_q), count = g.len_q - first;
    ck_fly_ok(fly_map_slice(map, first, count, &slice, &error), error);
    bitmap part = {calloc((size_t)(m.batch * m.heads * count * g.len_kv) + 1, 1), m.batch, m.heads, count, g.len_kv};
    for (int64_t p = 0; p < m.batch * m.heads; p++)
      memcpy(part.pair + p * count * g.len_kv, m.pair + (p * g.len_q + first) * g.len_kv, (size_t)(count * g.len_kv));
    check_map(slice, true, by_bitmap, &part, "bitmap's slice");
    fly_map_release(&map), fly_map_release(&not_map), fly_map_release(&slice);
    free(m.pair), free(part.pair);
  }
}
END_TEST

static fly_bound *bind_bits(const uint8_t *pair, int64_t len_q, int64_t len_kv) {
  int64_t shape[] = {len_q, (len_kv + 7) / 8};
  uint8_t *bits = calloc((size_t)(shape[0] * shape[1]), 1);
  for (int64_t i = 0; i < len_q * len_kv; i++)
    if (pair[i]) bits[i / len_kv * shape[1] + i % len_kv / 8] |= (uint8_t)(1 << i % len_kv % 8);
  fly_buffer *buffer;
  fly_mask *mask;
  fly_bound *bound;
  ck_fly_ok(fly_buffer_create(FLY_U8, 2, shape, bits, &buffer, &error), error);
  ck_fly_ok(fly_mask_compile_file(FLYMASK_SOURCE "/masks/bitmask.c", NULL, &mask, &error), error);
  ck_fly_ok(fly_mask_bind(mask, (fly_arg[]){FLY_CAPTURE("bits", buffer)}, 1, &bound, &error), error);
  fly_buffer_release(&buffer), fly_mask_release(&mask);
  free(bits);
  return bound;
}

enum { N = 200, D = 8 };

/* The call with the map, or without one. */
static fly_status attend(fly_bound *bound, const fly_map *map, float *out) {
  static float data[3][N * D];
  test_random random = {.state = 5};
  for (int t = 0; t < 3; t++)
    for (int i = 0; i < N * D; i++) data[t][i] = (float)test_normal(&random);
  fly_kernel *kernel;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_F32, .head_dim = D};
  ck_fly_ok(fly_kernel_create(bound->mask, &desc, &kernel, &error), error);
  fly_attention call = {FLY_INIT(fly_attention), .kernel = kernel, .bound = bound, .map = map};
  fly_tensor *t[] = {&call.q, &call.k, &call.v};
  for (int i = 0; i < 3; i++) *t[i] = fly_tensor_dense(data[i], FLY_F32, 1, 1, N, D);
  call.out = fly_tensor_dense(out, FLY_F32, 1, 1, N, D);
  fly_status status = fly_attention_forward(&call, &error);
  fly_kernel_release(&kernel);
  return status;
}

START_TEST(an_attention_call_takes_a_map_whose_mask_agrees_with_it) {
  static float with[N * D], without[N * D];
  test_random random = {.state = 3};
  fly_geometry g = map_square(1, 1, N);
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = 64, .tile_kv = 64};
  bitmap m;
  fly_buffer *buffer = random_bitmap(&random, &g, &m);
  fly_map *map, *ready, *wrong;
  ck_fly_ok(fly_map_from_bitmap(buffer, NULL, &options, &map, &error), error);
  fly_bound *bound = bind_bits(m.pair, N, N);
  ck_assert_int_eq(attend(bound, map, with), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.message, "fly_map_bind"));
  ck_fly_ok(fly_map_bind(map, bound, &ready, &error), error);
  ck_fly_ok(attend(bound, ready, with), error);
  ck_fly_ok(attend(bound, NULL, without), error);
  ck_assert(memcmp(with, without, sizeof with) == 0);
  fly_bound_release(&bound);
  for (int i = N * N - 1;; i--) { /* in a partial tile */
    const fly_run *runs;
    int64_t count = fly_map_row(map, FLY_BY_QUERY, 0, 0, i / N / 64, &runs);
    bool partial = false;
    for (int64_t k = 0; k < count; k++)
      partial |= runs[k].kind == FLY_PARTIAL && i % N / 64 >= runs[k].first &&
                 i % N / 64 < runs[k].first + runs[k].count;
    if (!partial) continue;
    char place[64];
    snprintf(place, sizeof place, "query row %d, key %d", i / N, i % N);
    m.pair[i] = !m.pair[i];
    bound = bind_bits(m.pair, N, N);
    ck_assert_int_eq(fly_map_bind(map, bound, &wrong, &error), FLY_ERROR_ARGUMENT);
    ck_assert_msg(strstr(error.message, place), "%s", error.message);
    break;
  }
  ck_assert_ptr_null(wrong);
  fly_bound_release(&bound), fly_map_release(&map), fly_map_release(&ready), fly_buffer_release(&buffer);
  free(m.pair);
}
END_TEST

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void expect_refused(fly_status status, fly_map *out, const char *message) {
  ck_assert_int_ne(status, FLY_OK);
  ck_assert_ptr_null(out);
  ck_assert_msg(strstr(error.message, message) != NULL, "'%s' is not in '%s'", message, error.message);
}

START_TEST(what_does_not_fit_is_an_error_and_never_zeros) {
  fly_geometry g = map_square(1, 2, 100), other = map_square(1, 2, 101);
  fly_bound *bound = bind(0);
  fly_map *a = map_build(bound, &g, 32), *b = map_build(bound, &other, 32), *c = map_build(bound, &g, 16), *out;
  fly_status status;
#define REFUSED(call, message) out = a, status = call, expect_refused(status, out, message)
  REFUSED(fly_map_combine(FLY_AND, a, b, &out, &error), "100, 100 and 101, 101");
  REFUSED(fly_map_combine(FLY_OR, a, c, &out, &error), "32 x 32 and of 16 x 16");
  REFUSED(fly_map_combine(FLY_NOT, a, a, &out, &error), "right must be NULL");
  REFUSED(fly_map_combine((fly_combine)7, a, a, &out, &error), "how is 7");
  REFUSED(fly_map_crop(a, 101, 100, &out, &error), "shorter only");
  REFUSED(fly_map_crop(a, 100, 101, &out, &error), "shorter only");
  REFUSED(fly_map_crop(a, -1, 100, &out, &error), "-1");
  REFUSED(fly_map_slice(a, 1, 100, &out, &error), "1 on, 100 of them, of a map of 100");
  REFUSED(fly_map_slice(a, -1, 2, &out, &error), "-1");
  REFUSED(fly_map_slice(a, INT64_MAX, INT64_MAX, &out, &error), "of a map of 100");
  REFUSED(fly_map_combine(FLY_AND, a, NULL, &out, &error), "right is NULL");
  REFUSED(fly_map_combine(FLY_NOT, NULL, NULL, &out, &error), "left is NULL");
  REFUSED(fly_map_crop(NULL, 1, 1, &out, &error), "NULL");
  REFUSED(fly_map_slice(NULL, 0, 1, &out, &error), "NULL");
  REFUSED(fly_map_bind(NULL, a->bound, &out, &error), "NULL");
  REFUSED(fly_map_bind(a, NULL, &out, &error), "NULL");
  REFUSED(fly_map_from_bitmap(NULL, NULL, NULL, &out, &error), "NULL");
  int64_t shape[] = {5, 7, 3};
  static const int32_t zeros[5 * 7 * 3];
  fly_buffer *buffer[3];
  ck_fly_ok(fly_buffer_create(FLY_BOOL, 2, shape, zeros, &buffer[0], &error), error);
  ck_fly_ok(fly_buffer_create(FLY_BOOL, 3, shape, zeros, &buffer[1], &error), error);
  ck_fly_ok(fly_buffer_create(FLY_I32, 2, shape, zeros, &buffer[2], &error), error);
  REFUSED(fly_map_from_bitmap(buffer[0], &g, NULL, &out, &error), "5 x 7, and the lengths are 100, 100");
  REFUSED(fly_map_from_bitmap(buffer[1], NULL, NULL, &out, &error), "rank 3");
  REFUSED(fly_map_from_bitmap(buffer[2], NULL, NULL, &out, &error), "i32");
  int32_t cu[] = {0, 5};
  fly_geometry ragged = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .cu_seqlens_q = cu, .cu_seqlens_kv = cu};
  fly_map *packed = map_build(bound, &ragged, 32);
  REFUSED(fly_map_crop(packed, 1, 1, &out, &error), "cu_seqlens");
  REFUSED(fly_map_from_bitmap(buffer[0], &ragged, NULL, &out, &error), "cu_seqlens");
  ck_assert_int_eq(fly_map_combine(FLY_NOT, a, NULL, NULL, &error), FLY_ERROR_ARGUMENT);
  ck_assert(!fly_map_equal(a, b) && !fly_map_equal(a, c) && !fly_map_equal(a, NULL) && fly_map_equal(a, a));
  for (int i = 0; i < 3; i++) fly_buffer_release(&buffer[i]);
  fly_map_release(&a), fly_map_release(&b), fly_map_release(&c), fly_map_release(&packed), fly_bound_release(&bound);
}
END_TEST

START_TEST(a_mask_that_reads_lengths_is_not_cropped_behind_its_back) {
  fly_geometry g = map_square(1, 1, 100);
  fly_bound *bound = bind(5);
  fly_map *built = map_build(bound, &g, 32), *map, *ready, *out;
  ck_fly_ok(fly_map_combine(FLY_NOT, built, NULL, &map, &error), error);
  ck_fly_ok(fly_map_combine(FLY_NOT, map, NULL, &out, &error), error);
  ck_fly_ok(fly_map_bind(out, bound, &ready, &error), error); /* not not: the same pairs */
  fly_map_release(&out);
  fly_status status = fly_map_crop(ready, 50, 50, &out, &error);
  expect_refused(status, out, "lengths or tokens");
  fly_map_release(&built), fly_map_release(&map), fly_map_release(&ready), fly_bound_release(&bound);
}
END_TEST

START_TEST(operations_report_every_allocation_that_fails) {
  fly_geometry g = map_square(2, 2, 150);
  fly_bound *bound = bind(2);
  fly_map *a = map_build(bound, &g, 32), *b = map_build(bound, &g, 32), *out;
  int64_t shape[] = {150, 150};
  static const uint8_t zeros[150 * 150];
  fly_buffer *buffer;
  ck_fly_ok(fly_buffer_create(FLY_BOOL, 2, shape, zeros, &buffer, &error), error);
  for (int what = 0; what < 5; what++) {
    fly_status status = FLY_ERROR_MEMORY;
    for (long n = 1; status != FLY_OK; n++) {
      flyi_fail_allocation(n);
      status = what == 0   ? fly_map_combine(FLY_AND, a, b, &out, &error)
               : what == 1 ? fly_map_slice(a, 32, 100, &out, &error)
               : what == 2 ? fly_map_crop(a, 100, 90, &out, &error)
               : what == 3 ? fly_map_bind(a, bound, &out, &error)
                           : fly_map_from_bitmap(buffer, NULL, NULL, &out, &error);
      flyi_fail_allocation(0);
      ck_assert(status == FLY_OK || (status == FLY_ERROR_MEMORY && !out));
      fly_map_release(&out);
    }
  }
  fly_map_release(&a), fly_map_release(&b), fly_bound_release(&bound), fly_buffer_release(&buffer);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("map_ops");
  TCase *c = tcase_create("map_ops");
  tcase_add_test(c, joined_maps_hold_the_joined_pairs_exactly);
  tcase_add_test(c, a_joined_map_is_that_of_the_joined_mask_and_takes_it);
  tcase_add_test(c, operations_nest_and_outlive_what_they_are_made_of);
  tcase_add_test(c, a_crop_or_slice_equals_the_freshly_built_map);
  tcase_add_test(c, parts_of_a_joined_map_join_the_parts);
  tcase_add_test(c, a_bitmap_becomes_a_map_and_operates_like_any_other);
  tcase_add_test(c, an_attention_call_takes_a_map_whose_mask_agrees_with_it);
  tcase_add_test(c, what_does_not_fit_is_an_error_and_never_zeros);
  tcase_add_test(c, a_mask_that_reads_lengths_is_not_cropped_behind_its_back);
  tcase_add_test(c, operations_report_every_allocation_that_fails);
  suite_add_tcase(s, c);
  return s;
}

FLY_TEST_MAIN(suite)
