/* Binding: what a mask accepts for its parameters and buffers, and what a geometry may be. */
#include "compiled.h"

static const char source[] =
    "#include <flymask/mask.h>\n"
    "FLY_PARAM(int, left, 3);\n"
    "FLY_PARAM(bool, on, true);\n"
    "FLY_PARAM(int8_t, tiny, -5);\n"
    "FLY_PARAM(uint8_t, small, 200);\n"
    "FLY_PARAM(uint16_t, word, 65535);\n"
    "FLY_PARAM(uint32_t, wide, 4000000000u);\n"
    "FLY_PARAM(int64_t, large, -5000000000);\n"
    "FLY_PARAM(uint64_t, huge, 18446744073709551615u);\n"
    "FLY_PARAM(float, ratio, 0.25f);\n"
    "FLY_PARAM(double, exact, 0.1);\n"
    "FLY_BUFFER(int32_t, doc, 1);\n"
    "FLY_BUFFER(uint8_t, grid, 2);\n"
    "bool mask(int b, int h, int q, int kv) {\n"
    "  return doc[q] + left + on + tiny + small + word + wide + large + huge + ratio + exact > 0 &&\n"
    "         fly_at2(grid, q, kv);\n"
    "}\n";

static compiled c;
static fly_buffer *doc, *grid;

static void setup(void) {
  fly_error error = {0};
  const int32_t ids[4] = {0, 0, 1, 1};
  const uint8_t cells[6] = {1, 0, 1, 1, 1, 0};
  c = compiled_from(source, NULL, NULL);
  ck_fly_ok(fly_buffer_create(FLY_I32, 1, (int64_t[]){4}, ids, &doc, &error), error);
  ck_fly_ok(fly_buffer_create(FLY_U8, 2, (int64_t[]){2, 3}, cells, &grid, &error), error);
}

static void teardown(void) {
  fly_buffer_release(&doc), fly_buffer_release(&grid);
  compiled_free(&c);
}

/* Binds one argument beside the two buffers. */
static fly_status bind_one(fly_arg arg, fly_bound **bound, fly_error *error) {
  const fly_arg args[] = {FLY_CAPTURE("doc", doc), arg, FLY_CAPTURE("grid", grid)};
  return fly_mask_bind(c.mask, args, 3, bound, error);
}

static void refuses(fly_arg arg, const char *part) {
  fly_error error = {0};
  fly_bound *bound = (fly_bound *)&error;
  ck_assert_int_eq(bind_one(arg, &bound, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_null(bound);
  ck_assert_int_eq(error.status, FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, part) != NULL, "\"%s\" is not in \"%s\"", part, error.message);
}

static uint64_t accepts(fly_arg arg) {
  fly_error error = {0};
  fly_bound *bound;
  uint64_t slot = 0;
  ck_fly_ok(bind_one(arg, &bound, &error), error);
  for (int i = 0; i < c.mask->image.parameter_count; i++)
    if (strcmp(c.mask->image.parameters[i].name, arg.name) == 0) slot = bound->slots[i];
  fly_bound_release(&bound);
  return slot;
}

START_TEST(info_tells_declarations_and_defaults) {
  const fly_mask_info *info = fly_mask_get_info(c.mask);
  ck_assert_str_eq(info->name, "test.c");
  ck_assert_int_eq(info->parameter_count, 10);
  ck_assert_int_eq(info->buffer_count, 2);
  static const char *const names[] = {"left", "on", "tiny", "small", "word", "wide", "large", "huge", "ratio", "exact"};
  static const fly_type types[] = {FLY_I32, FLY_BOOL, FLY_I8,  FLY_U8,  FLY_U16,
                                   FLY_U32, FLY_I64,  FLY_U64, FLY_F32, FLY_F64};
  static const int64_t values[] = {3, 1, -5, 200, 65535, 4000000000, -5000000000, -1};
  for (int i = 0; i < 10; i++) {
    const fly_parameter_info *p = NULL;
    for (int k = 0; k < 10; k++)
      if (strcmp(info->parameters[k].name, names[i]) == 0) p = &info->parameters[k];
    ck_assert_msg(p != NULL, "no parameter %s", names[i]);
    ck_assert_int_eq(p->type, types[i]);
    if (i < 8)
      ck_assert_int_eq(p->value.integer, values[i]);
    else
      ck_assert(p->value.real == (i == 8 ? 0.25 : 0.1));
  }
  ck_assert_int_eq(info->buffers[0].rank + info->buffers[1].rank, 3);
  ck_assert(info->reads_q && info->reads_kv && !info->reads_b && !info->reads_h && !info->reads_token_q);
}
END_TEST

START_TEST(values_become_slots_of_their_type) {
  const float quarter = 0.25f;
  uint32_t bits;
  memcpy(&bits, &quarter, sizeof bits);
  ck_assert_uint_eq(accepts(FLY_INT("left", -7)), (uint64_t)-7);
  ck_assert_uint_eq(accepts(FLY_INT("on", 0)), 0);
  ck_assert_uint_eq(accepts(FLY_INT("tiny", -128)), (uint64_t)-128);
  ck_assert_uint_eq(accepts(FLY_INT("small", 255)), 255);
  ck_assert_uint_eq(accepts(FLY_INT("word", 0)), 0);
  ck_assert_uint_eq(accepts(FLY_INT("wide", 4294967295)), 4294967295);
  ck_assert_uint_eq(accepts(FLY_INT("large", INT64_MIN)), (uint64_t)INT64_MIN);
  ck_assert_uint_eq(accepts(FLY_INT("huge", -1)), UINT64_MAX);
  ck_assert_uint_eq(accepts(FLY_REAL("ratio", 0.25)), bits);
  ck_assert_uint_eq(accepts(FLY_INT("exact", 3)), 0x4008000000000000);
  ck_assert_uint_eq(accepts(FLY_REAL("ratio", HUGE_VAL)), 0x7f800000);
}
END_TEST

START_TEST(values_outside_their_type_are_refused) {
  refuses(FLY_INT("left", 2147483648), "-2147483648 .. 2147483647");
  refuses(FLY_INT("left", -2147483649), "outside");
  refuses(FLY_INT("on", 2), "0 .. 1");
  refuses(FLY_INT("on", -1), "0 .. 1");
  refuses(FLY_INT("tiny", 128), "-128 .. 127");
  refuses(FLY_INT("small", 256), "0 .. 255");
  refuses(FLY_INT("small", -1), "0 .. 255");
  refuses(FLY_INT("word", 65536), "0 .. 65535");
  refuses(FLY_INT("wide", 4294967296), "0 .. 4294967295");
  refuses(FLY_INT("wide", -1), "0 .. 4294967295");
  refuses(FLY_REAL("left", 1.5), "give an integer");
  refuses(FLY_REAL("left", 1.0), "give an integer");
  refuses(FLY_REAL("ratio", 1e39), "does not fit f32");
  refuses(FLY_INT("exact", INT64_MAX), "not exactly");
  refuses(FLY_INT("exact", ((int64_t)1 << 53) + 1), "not exactly");
}
END_TEST

START_TEST(names_and_kinds_are_checked) {
  refuses(FLY_INT("rigth", 1), "rigth; it has left, on, tiny");
  refuses(FLY_INT("grid", 1), "is a buffer (u8, rank 2)");
  refuses(FLY_CAPTURE("left", doc), "is a parameter of type i32");
  refuses(FLY_CAPTURE("doc", doc), "given twice");
  refuses(FLY_INT(NULL, 1), "no name");
  fly_error error = {0};
  fly_bound *bound;
  const fly_arg twice[] = {FLY_INT("left", 1), FLY_INT("left", 1)};
  ck_assert_int_eq(fly_mask_bind(c.mask, twice, 2, &bound, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.message, "left is given twice"));
}
END_TEST

START_TEST(buffers_must_be_there_and_fit) {
  fly_error error = {0};
  fly_bound *bound;
  const fly_arg one[] = {FLY_CAPTURE("doc", doc)};
  ck_assert_int_eq(fly_mask_bind(c.mask, one, 1, &bound, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.message, "buffer grid (u8, rank 2) of test.c is not given"));
  const fly_arg crossed[] = {FLY_CAPTURE("doc", grid)};
  ck_assert_int_eq(fly_mask_bind(c.mask, crossed, 1, &bound, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.message, "is u8 of rank 2, declared i32 of rank 1"));
  const fly_arg null[] = {FLY_CAPTURE("doc", NULL)};
  ck_assert_int_eq(fly_mask_bind(c.mask, null, 1, &bound, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_mask_bind(c.mask, NULL, 1, &bound, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_mask_bind(c.mask, one, -1, &bound, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_mask_bind(NULL, one, 1, &bound, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_mask_bind(c.mask, one, 1, NULL, &error), FLY_ERROR_ARGUMENT);
}
END_TEST

START_TEST(a_bound_mask_keeps_its_mask_and_buffers) {
  fly_error error = {0};
  fly_mask *mask = fly_mask_retain(c.mask);
  fly_buffer *own;
  fly_bound *bound;
  ck_fly_ok(fly_buffer_create(FLY_I32, 1, (int64_t[]){1}, (int32_t[]){9}, &own, &error), error);
  const fly_arg args[] = {FLY_CAPTURE("doc", own), FLY_CAPTURE("grid", grid)};
  ck_fly_ok(fly_mask_bind(mask, args, 2, &bound, &error), error);
  fly_buffer_release(&own);
  fly_mask_release(&mask);
  ck_assert_ptr_null(own);
  ck_assert_ptr_null(mask);
  fly_bound *second = fly_bound_retain(bound);
  fly_bound_release(&bound);
  ck_assert_ptr_null(bound);
  int doc_at = strcmp(second->mask->image.buffers[0].name, "doc") == 0 ? 0 : 1;
  ck_assert_int_eq(((const int32_t *)second->buffers[doc_at]->data)[0], 9);
  fly_bound_release(&second);
  fly_bound_release(&second); /* of NULL: nothing */
}
END_TEST

static flyi_hash hash_with(const fly_arg *args, int count) {
  fly_error error = {0};
  fly_bound *bound;
  ck_fly_ok(fly_mask_bind(c.mask, args, count, &bound, &error), error);
  flyi_hash hash = bound->hash;
  fly_bound_release(&bound);
  return hash;
}

START_TEST(the_hash_covers_values_and_contents_and_nothing_else) {
  fly_error error = {0};
  fly_buffer *copy, *other;
  ck_fly_ok(fly_buffer_create(FLY_I32, 1, (int64_t[]){4}, (int32_t[]){0, 0, 1, 1}, &copy, &error), error);
  ck_fly_ok(fly_buffer_create(FLY_I32, 1, (int64_t[]){4}, (int32_t[]){0, 0, 1, 2}, &other, &error), error);
  const fly_arg base[] = {FLY_CAPTURE("doc", doc), FLY_CAPTURE("grid", grid)};
  const fly_arg same[] = {FLY_CAPTURE("grid", grid), FLY_INT("left", 3), FLY_CAPTURE("doc", copy)};
  const fly_arg value[] = {FLY_CAPTURE("grid", grid), FLY_INT("left", 4), FLY_CAPTURE("doc", copy)};
  const fly_arg contents[] = {FLY_CAPTURE("grid", grid), FLY_CAPTURE("doc", other)};
  ck_assert(flyi_hash_equal(hash_with(base, 2), hash_with(same, 3)));
  ck_assert(!flyi_hash_equal(hash_with(base, 2), hash_with(value, 3)));
  ck_assert(!flyi_hash_equal(hash_with(base, 2), hash_with(contents, 2)));
  fly_buffer_release(&copy), fly_buffer_release(&other);
}
END_TEST

START_TEST(a_baked_parameter_binds_only_at_its_value) {
  fly_error error = {0};
  const fly_arg bake[] = {FLY_INT("n", 5)};
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .bake = bake, .bake_count = 1};
  compiled baked = compiled_from("#include <flymask/mask.h>\nFLY_PARAM(int, n, 2);\n"
                                 "bool mask(int b, int h, int q, int kv) { return kv < n; }\n",
                                 NULL, &options);
  fly_bound *bound;
  ck_fly_ok(fly_mask_bind(baked.mask, bake, 1, &bound, &error), error);
  fly_bound_release(&bound);
  const fly_arg other[] = {FLY_INT("n", 2)};
  ck_assert_int_eq(fly_mask_bind(baked.mask, other, 1, &bound, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.message, "baked"));
  ck_assert_int_eq(fly_mask_get_info(baked.mask)->parameters[0].value.integer, 5);
  const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = 64, .len_kv = 64};
  compiled_call call = compiled_bind(&baked, NULL, 0, &geometry);
  uint64_t bits[FLYI_BLOCK];
  compiled_bits(&call, 0, 0, 0, 0, bits);
  for (int r = 0; r < FLYI_BLOCK; r++) ck_assert_uint_eq(bits[r], 31);
  compiled_call_free(&call);
  compiled_free(&baked);
}
END_TEST

START_TEST(every_failing_allocation_is_reported_and_leaks_nothing) {
  fly_error error = {0};
  fly_bound *bound;
  const fly_arg args[] = {FLY_CAPTURE("doc", doc), FLY_CAPTURE("grid", grid)};
  int failures = 0;
  for (long n = 1;; n++) {
    flyi_fail_allocation(n);
    fly_status status = fly_mask_bind(c.mask, args, 2, &bound, &error);
    flyi_fail_allocation(0);
    if (!status) break;
    ck_assert_int_eq(status, FLY_ERROR_MEMORY);
    ck_assert_ptr_null(bound);
    failures++;
  }
  ck_assert_int_ge(failures, 4);
  fly_bound_release(&bound);
  ck_assert_int_eq(atomic_load(&doc->references), 1);
}
END_TEST

/* ---- geometry ---------------------------------------------------------------------------------------------------- */

static const fly_geometry plain = {FLY_INIT(fly_geometry), .batch = 2, .heads = 3, .len_q = 5, .len_kv = 7};

static flyi_domain domain_of(const fly_geometry *geometry) {
  fly_error error = {0};
  flyi_domain domain;
  ck_fly_ok(flyi_domain_check(geometry, &domain, &error), error);
  return domain;
}

static void geometry_refused(const fly_geometry *geometry, const char *part) {
  fly_error error = {0};
  flyi_domain domain;
  ck_assert_int_eq(flyi_domain_check(geometry, &domain, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, part) != NULL, "\"%s\" is not in \"%s\"", part, error.message);
}

#define REFUSED(part, ...)                                                                                             \
  do {                                                                                                                 \
    fly_geometry g = plain;                                                                                            \
    __VA_ARGS__;                                                                                                       \
    geometry_refused(&g, part);                                                                                        \
  } while (0)

START_TEST(a_geometry_outside_the_limits_is_refused) {
  geometry_refused(NULL, "NULL");
  REFUSED("size", g.size = 0);
  REFUSED("negative", g.batch = -1);
  REFUSED("negative", g.heads = -1);
  REFUSED("2^31", g.batch = (int64_t)1 << 40);
  REFUSED("2^31", g.batch = 1 << 20, g.heads = 1 << 20);
  REFUSED("2^31", g.batch = 0, g.heads = (int64_t)1 << 40);
  REFUSED("lengths", g.len_q = -1);
  REFUSED("lengths", g.len_kv = (int64_t)1 << 31);
  REFUSED("q_offset", g.q_offset = INT32_MAX - 4);
  REFUSED("q_offset", g.q_offset = (int64_t)INT32_MIN - 1);
  REFUSED("cu_seqlens_kv is NULL", g.cu_seqlens_q = (int32_t[]){0, 1, 2});
  REFUSED("cu_seqlens_q is NULL", g.cu_seqlens_kv = (int32_t[]){0, 1, 2});
  const int32_t good[] = {0, 1, 2}, from_one[] = {1, 2, 3}, falling[] = {0, 3, 2};
  REFUSED("cu_seqlens_q starts with 1", g.cu_seqlens_q = from_one, g.cu_seqlens_kv = good);
  REFUSED("cu_seqlens_kv descends", g.cu_seqlens_q = good, g.cu_seqlens_kv = falling);
  const int32_t rows[] = {0, 1, 2, -3, 4};
  REFUSED("q_rows: row 3", g.q_rows.rows = rows);
  REFUSED("q_rows: strides", g.q_rows = (fly_row_map){rows, -5, 0});
  REFUSED("kv_rows: strides", g.kv_rows = (fly_row_map){rows, INT64_MAX / 4, 0});
  struct {
    fly_geometry known;
    int64_t later;
  } newer = {plain, 1};
  newer.known.size = sizeof newer;
  geometry_refused(&newer.known, "size");
}
END_TEST

START_TEST(a_geometry_at_the_limits_is_accepted) {
  fly_geometry g = plain;
  g.len_q = g.len_kv = INT32_MAX;
  ck_assert_int_eq(domain_of(&g).max_q, INT32_MAX);
  g.len_q = 5, g.q_offset = INT32_MAX - 5;
  domain_of(&g);
  g.q_offset = INT32_MIN;
  domain_of(&g);
  g = plain, g.batch = g.heads = g.len_q = g.len_kv = 0;
  ck_assert_int_eq(domain_of(&g).max_kv, 0);
  struct {
    fly_geometry known;
    int64_t later;
  } newer = {plain, 0};
  newer.known.size = sizeof newer;
  ck_assert(flyi_hash_equal(domain_of(&newer.known).hash, domain_of(&plain).hash));
}
END_TEST

START_TEST(ragged_lengths_come_from_cu_seqlens) {
  fly_geometry g = plain;
  const int32_t q[] = {0, 4, 4}, kv[] = {0, 1, 12};
  g.cu_seqlens_q = q, g.cu_seqlens_kv = kv, g.len_q = -99;
  flyi_domain domain = domain_of(&g);
  ck_assert_int_eq(domain.max_q, 4);
  ck_assert_int_eq(domain.max_kv, 11);
  ck_assert_int_eq(flyi_len_q(&domain.geometry, 0), 4);
  ck_assert_int_eq(flyi_len_q(&domain.geometry, 1), 0);
  ck_assert_int_eq(flyi_len_kv(&domain.geometry, 1), 11);
}
END_TEST

START_TEST(the_domain_hash_tells_geometries_apart) {
  const int32_t rows[30] = {4, 3, 2, 1, 0}, same[30] = {4, 3, 2, 1, 0}, other[30] = {4, 3, 2, 0, 1};
  flyi_hash base = domain_of(&plain).hash;
  fly_geometry g = plain, changed[8];
  g.q_rows = (fly_row_map){rows, 15, 5};
  for (int i = 0; i < 8; i++) changed[i] = g;
  changed[1].q_rows.rows = same;
  changed[2].q_rows.rows = other;
  changed[3].q_rows.stride_batch = 0;
  changed[4].len_q = 4;
  changed[5].q_offset = 1;
  changed[6].q_rows.rows = NULL;
  changed[7].kv_rows = (fly_row_map){rows, 0, 0};
  flyi_hash first = domain_of(&changed[0]).hash;
  for (int i = 1; i < 8; i++) ck_assert_int_eq(flyi_hash_equal(first, domain_of(&changed[i]).hash), i == 1);
  ck_assert(flyi_hash_equal(base, domain_of(&changed[6]).hash));
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("bind");
  TCase *mask = tcase_create("mask"), *geometry = tcase_create("geometry");
  tcase_add_unchecked_fixture(mask, setup, teardown);
  tcase_add_test(mask, info_tells_declarations_and_defaults);
  tcase_add_test(mask, values_become_slots_of_their_type);
  tcase_add_test(mask, values_outside_their_type_are_refused);
  tcase_add_test(mask, names_and_kinds_are_checked);
  tcase_add_test(mask, buffers_must_be_there_and_fit);
  tcase_add_test(mask, a_bound_mask_keeps_its_mask_and_buffers);
  tcase_add_test(mask, the_hash_covers_values_and_contents_and_nothing_else);
  tcase_add_test(mask, a_baked_parameter_binds_only_at_its_value);
  tcase_add_test(mask, every_failing_allocation_is_reported_and_leaks_nothing);
  suite_add_tcase(s, mask);
  tcase_add_test(geometry, a_geometry_outside_the_limits_is_refused);
  tcase_add_test(geometry, a_geometry_at_the_limits_is_accepted);
  tcase_add_test(geometry, ragged_lengths_come_from_cu_seqlens);
  tcase_add_test(geometry, the_domain_hash_tells_geometries_apart);
  suite_add_tcase(s, geometry);
  return s;
}

FLY_TEST_MAIN(suite)
