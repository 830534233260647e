/* Block maps where analysis and code could part: arithmetic that wraps in narrow types, what compiled code reads, and
 * random mask programs against an interpreter. */
#include "map_case.h"

/* ---- arithmetic that wraps --------------------------------------------------------------------------------------- */

static fly_buffer *bytes_buffer(const uint8_t *data, int64_t count) {
  fly_buffer *buffer;
  fly_error error;
  ck_fly_ok(fly_buffer_create(FLY_U8, 1, &count, data, &buffer, &error), error);
  return buffer;
}

static fly_map *check_tables(const char *body, const uint8_t *rows, const uint8_t *table, int64_t count, int len_q,
                             int len_kv) {
  fly_buffer *buffer[] = {bytes_buffer(rows, 64), bytes_buffer(table, count)};
  fly_arg args[] = {FLY_CAPTURE("rows", buffer[0]), FLY_CAPTURE("table", buffer[1])};
  fly_bound *bound = map_bind(body, args, 2);
  fly_geometry g = map_square(1, 1, len_q);
  g.len_kv = len_kv;
  fly_map *map = map_build(bound, &g, 16);
  check_map(map, true, truth_compiled, NULL, body);
  fly_bound_release(&bound);
  fly_buffer_release(&buffer[0]), fly_buffer_release(&buffer[1]);
  return map;
}

/* 16 x 16 .. 23 x 16 are rows of the table, but in 8 bits they are 0 .. 7 x 16: what an index means is what it wraps
 * to. */
START_TEST(an_index_that_wraps_is_not_split_into_rows_and_columns) {
  static const char *const bodies[] = {
      "uint8_t r = (uint8_t)(rows[q] * 16); return table[r + (kv & 15)] != 0;",           /* a product that wraps */
      "uint8_t r = (uint8_t)(rows[q] << 4); return table[r + (kv & 15)] != 0;",           /* a shift */
      "uint8_t r = (uint8_t)(rows[q] * 16 + (kv & 15)); return table[r] != 0;",           /* a sum */
      "uint16_t r = (uint16_t)(rows[q] * 4096 + (kv & 15)); return table[r] != 0;",       /* in 16 bits */
      "unsigned r = (rows[q] << 28) + (unsigned)(kv & 15); return table[r & 511] != 0;"}; /* in 32 */
  uint8_t rows[64], table[512];
  for (int i = 0; i < 64; i++) rows[i] = (uint8_t)(16 + i % 8);
  for (int i = 0; i < 512; i++) table[i] = i >= 256;
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
    char body[512];
    snprintf(body, sizeof body,
             "FLY_BUFFER(uint8_t, rows, 1); FLY_BUFFER(uint8_t, table, 1);\n"
             "bool mask(int b, int h, int q, int kv) { %s }",
             bodies[i]);
    fly_map *map = check_tables(body, rows, table, 512, 64, 16);
    if (i < 3) ck_assert_int_eq(map->info.tiles_empty, 4); /* by hand: every index is below 256 */
    fly_map_release(&map);
  }
}
END_TEST

/* Row 5 of a table of 5 7/16 rows is there, but is no whole row. */
START_TEST(the_last_row_of_a_table_may_be_short) {
  uint8_t rows[64] = {0}, table[5 * 16 + 7] = {0};
  memset(table + 80, 1, 7);
  fly_map *map = check_tables("FLY_BUFFER(uint8_t, rows, 1); FLY_BUFFER(uint8_t, table, 1);\n"
                              "bool mask(int b, int h, int q, int kv) { return table[q * 16 + kv] != rows[0]; }",
                              rows, table, sizeof table, 6, 7);
  int64_t pairs;
  fly_error error;
  ck_fly_ok(fly_map_visible_pairs(map, &pairs, &error), error);
  ck_assert_int_eq(pairs, 7);
  fly_map_release(&map);
}
END_TEST

/* x / p * p of a narrow p, cut to its width: LLVM multiplies in 8 bits, where 100 x 100 is 16. */
START_TEST(a_quotient_times_its_divisor_wraps_in_the_width_of_the_product) {
  fly_bound *bound = map_bind("FLY_PARAM(int8_t, p, 100);\n"
                          "bool mask(int b, int h, int q, int kv)"
                          "{ int8_t r = (int8_t)(q / p * p); return r + (kv & 1) < 100; }",
                          NULL, 0);
  fly_geometry g = map_square(1, 1, 10000);
  g.len_kv = 16;
  fly_map *map = map_build(bound, &g, 16);
  check_map(map, true, truth_compiled, NULL, "quotient");
  for (int q = 0; q < 10000; q += 7)
    ck_assert_int_eq(fly_map_visible(map, 0, 0, q, 1), (int8_t)(q / 100 * 100) + 1 < 100);
  fly_map_release(&map);
  fly_bound_release(&bound);
}
END_TEST

/* ---- what the code reads ----------------------------------------------------------------------------------------- */

/* The analysis finds that the token cannot matter; the code, which other passes made, asks for it nevertheless. */
START_TEST(code_finds_the_row_maps_that_it_reads) {
  fly_bound *bound = map_bind("bool mask(int b, int h, int q, int kv) {\n"
                          "  int x = kv;\n"
                          "  if (kv == 3) {\n"
                          "    int y = (kv ^ 5) * 7 + 1;\n"
                          "    if (((y >> 1) + kv) * 3 == 12345) x = fly_token_q(b, h, q) * 3 + 1; else x = kv + 9;\n"
                          "  }\n"
                          "  return (x & 7) != 0 && kv <= q;\n"
                          "}",
                          NULL, 0);
  enum { ROW = 1 << 23 }; /* 32 MiB into a map that has to be there */
  fly_geometry g = map_square(1, 1, ROW + 64);
  flyi_mask_args *args;
  fly_error error;
  uint64_t bits[FLYI_BLOCK];
  g.len_kv = 64;
  ck_assert(fly_mask_get_info(bound->mask)->reads_token_q);
  ck_fly_ok(flyi_mask_args_create(bound, &g, &args, &error), error);
  bound->mask->code.tile(args, 0, 0, ROW, 0, bits);
  for (int r = 0; r < FLYI_BLOCK; r++)
    for (int kv = 0; kv < 64; kv++) ck_assert_int_eq(bits[r] >> kv & 1, ((kv == 3 ? 12 : kv) & 7) != 0);
  flyi_mask_args_free(args);
  fly_bound_release(&bound);
}
END_TEST

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static const program_case *running;
static const fly_geometry *running_geometry;
static bool see_program(void *context, int b, int h, int q, int kv) {
  (void)context;
  return interpret(running, running_geometry, b, h, q, kv) == 1;
}

/* What compiled code would do. */
static void program_tile(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q0, int32_t kv0,
                         uint64_t bits[FLYI_BLOCK]) {
  (void)args;
  const fly_geometry *g = running_geometry;
  int64_t rows = flyi_len_q(g, b) + g->q_offset - q0, columns = flyi_len_kv(g, b) - kv0;
  memset(bits, 0, FLYI_BLOCK * sizeof *bits);
  for (int r = 0; r < FLYI_BLOCK && r < rows; r++)
    for (int j = 0; j < FLYI_BLOCK && j < columns; j++)
      bits[r] |= (uint64_t)see_program(NULL, b, h, q0 + r, kv0 + j) << j;
}

START_TEST(maps_of_random_programs_say_what_the_programs_do) {
  test_random random = {.state = 31};
  for (int round = 0; round < 60; round++) {
    program_case c = {0};
    random_call call;
    fly_error error;
    fly_map *map;
    int32_t data[40];
    int64_t n = 40, parameters[] = {4, 17};
    fly_buffer *buffers[2];
    for (int i = 0; i < 40; i++) data[i] = (int32_t)test_range(&random, -9, 60);
    ck_fly_ok(fly_buffer_create(FLY_I32, 1, &n, data, &buffers[0], &error), error);
    ck_fly_ok(fly_buffer_create(FLY_U8, 1, &n, data, &buffers[1], &error), error);
    random_program(&random, false, &c.program);
    program_case_bind(&c, parameters, 2, buffers, 2);
    c.mask.code.tile = program_tile;
    random_call_init(&random, 40, 90, &call);
    running = &c, running_geometry = &call.geometry;
    fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = (int)test_range(&random, 1, 20),
                               .tile_kv = (int)test_range(&random, 1, 20), .threads = 1};
    ck_fly_ok(fly_map_build(&c.bound, &call.geometry, &options, &map, &error), error);
    truth_predicate truth = {see_program, NULL};
    check_map(map, true, truth_by_predicate, &truth, "program");
    fly_map_release(&map);
    random_call_free(&call);
    program_case_free(&c);
  }
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("map_answers");
  TCase *c = tcase_create("map_answers");
  tcase_add_test(c, an_index_that_wraps_is_not_split_into_rows_and_columns);
  tcase_add_test(c, the_last_row_of_a_table_may_be_short);
  tcase_add_test(c, a_quotient_times_its_divisor_wraps_in_the_width_of_the_product);
  tcase_add_test(c, code_finds_the_row_maps_that_it_reads);
  tcase_add_test(c, maps_of_random_programs_say_what_the_programs_do);
  suite_add_tcase(s, c);
  return s;
}

FLY_TEST_MAIN(suite)
