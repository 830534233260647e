/* Masks that look at single bits: what the analysis knows of bits is sound for any contents, and enough for contents
 * with structure, of which no tile is left to the compiled mask. */
#include "map_case.h"

static fly_error error;

static const struct {
  const char *body;
  fly_type type;
  int rank; /* 2: columns are bytes of 8 keys */
} masks[] = {
    {"FLY_BUFFER(uint32_t, w, 1);"
     "bool mask(int b, int h, int q, int kv) { return (w[q] & w[kv]) != 0; }",
     FLY_U32, 1},
    {"FLY_BUFFER(uint64_t, w, 1);"
     "bool mask(int b, int h, int q, int kv) { return (w[q] & w[kv]) != 0 && kv <= q; }",
     FLY_U64, 1},
    {"FLY_BUFFER(uint32_t, w, 1);"
     "bool mask(int b, int h, int q, int kv) { return w[(kv >> 5) + (q & ~31)] >> (kv & 31) & 1; }",
     FLY_U32, 1},
    {"FLY_BUFFER(uint64_t, w, 1);"
     "bool mask(int b, int h, int q, int kv) { return w[q] >> (kv / 8 % 64) & 1; }",
     FLY_U64, 1},
    {"FLY_BUFFER(uint8_t, w, 2);"
     "bool mask(int b, int h, int q, int kv) { return fly_at2(w, q, kv / 8) >> (kv % 8) & 1; }",
     FLY_U8, 2},
    {"FLY_BUFFER(int16_t, w, 1);"
     "bool mask(int b, int h, int q, int kv) { return (w[q] ^ w[kv]) >> 3 < 1; }",
     FLY_I16, 1},
    {"FLY_BUFFER(int8_t, w, 1);"
     "bool mask(int b, int h, int q, int kv) { return (w[q] | w[kv]) < 0 || (w[kv] << 4 & 64); }",
     FLY_I8, 1},
    {"FLY_BUFFER(uint16_t, w, 1);"
     "bool mask(int b, int h, int q, int kv) { return (uint8_t)(w[q] & ~w[kv]) == 0; }",
     FLY_U16, 1},
    {"FLY_BUFFER(int32_t, w, 1);"
     "bool mask(int b, int h, int q, int kv) { int x = q & 1 ? w[q] : w[kv]; return (x & 12) == 4 || (x >> q % 32 & "
     "1); }",
     FLY_I32, 1},
};
enum { MASKS = sizeof masks / sizeof *masks, N = 300 };

/* Contents: anything, few bits, blocks of one value, and in these the numbers of a few powers of two. */
static fly_buffer *draw(test_random *random, int which, int kind) {
  int64_t shape[] = {N, (N + 7) / 8}, count = masks[which].rank == 2 ? shape[0] * shape[1] : N;
  size_t size = fly_type_size(masks[which].type);
  uint8_t *data = calloc((size_t)count, size);
  uint64_t x = 0;
  for (int64_t i = 0; i < count; i++) {
    if (kind == 0) x = test_next(random);
    if (kind == 1) x = 1ull << test_range(random, 0, 63);
    if (kind == 2 && i % 64 == 0)
      x = test_range(random, 0, 2) ? 0 - (uint64_t)test_range(random, 0, 1) : test_next(random);
    if (kind == 3 && i % 32 == 0) x = 1ull << test_range(random, 0, 7);
    memcpy(data + (size_t)i * size, &x, size);
  }
  fly_buffer *buffer;
  ck_fly_ok(fly_buffer_create(masks[which].type, masks[which].rank, shape, data, &buffer, &error), error);
  free(data);
  return buffer;
}

START_TEST(bits_are_sound_for_any_contents) {
  long tiles = 0;
  for (int which = 0; which < MASKS; which++) {
    fly_mask *mask = map_compile(masks[which].body);
    for (int round = 0; round < 48; round++) {
      test_random random = {.state = (uint64_t)(which * 100 + round + 1) * 0x9E3779B97F4A7C15};
      fly_buffer *buffer = draw(&random, which, round % 4);
      fly_bound *bound;
      ck_fly_ok(fly_mask_bind(mask, (fly_arg[]){FLY_CAPTURE("w", buffer)}, 1, &bound, &error), error);
      fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = test_range(&random, 1, N),
                        .len_kv = test_range(&random, 1, N)};
      if (round % 5 == 0) g.q_offset = test_range(&random, -40, 40);
      fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = random_tile(&random) / 2 + 1,
                                 .tile_kv = random_tile(&random) / 2 + 1, .fast = round % 3 != 0};
      fly_map *map;
      ck_fly_ok(fly_map_build(bound, &g, &options, &map, &error), error);
      tiles += check_map(map, !options.fast, truth_compiled, NULL, masks[which].body);
      fly_map_release(&map), fly_bound_release(&bound), fly_buffer_release(&buffer);
    }
    fly_mask_release(&mask);
  }
  ck_assert_int_ge(tiles, 10000);
}
END_TEST

/* The share of undecided tiles where groups, words and bytes are all alike in blocks of 32 positions. */
static void expect_decided(int which, fly_buffer *buffer, int tile) {
  fly_mask *mask = map_compile(masks[which].body);
  fly_bound *bound;
  fly_map *map;
  fly_geometry g = map_square(1, 1, 256);
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = tile, .tile_kv = tile};
  ck_fly_ok(fly_mask_bind(mask, (fly_arg[]){FLY_CAPTURE("w", buffer)}, 1, &bound, &error), error);
  ck_fly_ok(fly_map_build(bound, &g, &options, &map, &error), error);
  ck_assert_msg(map->info.undecided == 0, "%s: %d of %d", masks[which].body, (int)map->info.undecided,
                (int)(map->info.tiles_q * map->info.tiles_kv));
  ck_assert(map->info.tiles_empty && map->info.tiles_full + map->info.tiles_partial);
  check_map(map, true, truth_compiled, NULL, "decided");
  fly_map_release(&map), fly_bound_release(&bound), fly_mask_release(&mask), fly_buffer_release(&buffer);
}

START_TEST(bits_are_enough_where_contents_have_structure) {
  test_random random = {.state = 7};
  expect_decided(0, draw(&random, 0, 3), 32); /* shared groups */
  expect_decided(0, draw(&random, 0, 3), 64); /* two groups a tile */
  int64_t words[] = {N}, bytes[] = {256, 32};
  uint64_t word[N];
  static uint8_t byte[256 * 32];
  for (int i = 0; i < N; i++) word[i] = i / 32 % 2 ? 0xffff0000ffffffffull : 0xffffull; /* 64 keys by 8 for each bit */
  for (int i = 0; i < 256 * 32; i++) byte[i] = (i / 32 / 64 + i % 32 / 8) % 3 ? 0xff : 0;
  fly_buffer *buffer;
  ck_fly_ok(fly_buffer_create(FLY_U64, 1, words, word, &buffer, &error), error);
  expect_decided(3, buffer, 32);
  ck_fly_ok(fly_buffer_create(FLY_U8, 2, bytes, byte, &buffer, &error), error);
  expect_decided(4, buffer, 64); /* a packed bitmap */
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("map_bits");
  TCase *c = tcase_create("map_bits");
  tcase_add_test(c, bits_are_sound_for_any_contents);
  tcase_add_test(c, bits_are_enough_where_contents_have_structure);
  suite_add_tcase(s, c);
  return s;
}

FLY_TEST_MAIN(suite)
