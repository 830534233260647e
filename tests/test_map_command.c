/* `flymask map` with maps that come from files and go to files. */
#include <unistd.h>

#include "cli/npy.h"
#include "command.h"
#include "support.h"

static fly_error error;

static command_result expect(int code, const char *directory, const char *arguments) {
  command_result r = command_run(directory, "%s", arguments);
  ck_assert_msg(r.code == code, "'%s' ended with %d: %s%s", arguments, r.code, r.out, r.err);
  return r;
}

static void expect_out(const char *directory, const char *arguments, const char *part) {
  command_result r = expect(0, directory, arguments);
  ck_assert_msg(strstr(r.out, part) != NULL, "'%s' is not in '%s'", part, r.out);
  command_free(&r);
}

static void expect_failure(int code, const char *directory, const char *arguments, const char *part) {
  command_result r = expect(code, directory, arguments);
  ck_assert_msg(strstr(r.err, part) != NULL, "'%s' is not in '%s'", part, r.err);
  command_free(&r);
}

static void write_bytes(const char *directory, const char *name, fly_type type, int rank, const int64_t *shape,
                        const void *data) {
  char path[300];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  ck_fly_ok(npy_write(path, type, rank, shape, data, &error), error);
}

static npy_array read_array(const char *directory, const char *name) {
  char path[300];
  npy_array array;
  snprintf(path, sizeof path, "%s/%s", directory, name);
  ck_fly_ok(npy_read(path, &array, &error), error);
  return array;
}

enum { Q = 100, KV = 140, TILE = 32, ROWS = 4, COLUMNS = 5 };

static bool see(int b, int q, int kv) { return b ? kv >= 96 || q < 32 : kv <= q; }

/* 0 empty, 1 full, 2 partial */
static int kind_of(int b, int row, int column) {
  int seen = 0, all = 0;
  for (int q = row * TILE; q < Q && q < (row + 1) * TILE; q++)
    for (int kv = column * TILE; kv < KV && kv < (column + 1) * TILE; kv++) seen += see(b, q, kv), all++;
  return seen == 0 ? 0 : seen == all ? 1 : 2;
}

START_TEST(a_bitmap_becomes_arrays_and_these_a_map) {
  static uint8_t pairs[2 * Q * KV];
  for (int i = 0; i < 2 * Q * KV; i++) pairs[i] = see(i / (Q * KV), i / KV % Q, i % KV);
  const char *dir = command_make_directory();
  write_bytes(dir, "pairs.npy", FLY_BOOL, 4, (int64_t[]){2, 1, Q, KV}, pairs);
  expect_out(dir, "map --from-bitmap pairs.npy --heads 3 --tile 32,32 --to-arrays blocks --text --at 1,2",
             "#####\n...##\n...##\n...##\n");
  npy_array num = read_array(dir, "blocks/kv_num_blocks.npy"), index = read_array(dir, "blocks/kv_indices.npy"),
            full = read_array(dir, "blocks/full_kv_num_blocks.npy"),
            by_key = read_array(dir, "blocks/full_q_num_blocks.npy"), q = read_array(dir, "blocks/q_indices.npy");
  ck_assert_int_eq(num.type, FLY_I32);
  ck_assert(num.rank == 3 && num.shape[0] == 2 && num.shape[1] == 1 && num.shape[2] == ROWS);
  ck_assert(index.rank == 4 && index.shape[2] == ROWS && index.shape[3] == COLUMNS);
  ck_assert(q.rank == 4 && q.shape[2] == COLUMNS && q.shape[3] == ROWS);
  for (int b = 0; b < 2; b++) {
    int by_column[COLUMNS] = {0};
    for (int row = 0; row < ROWS; row++) {
      int partial = 0, whole = 0;
      for (int column = 0; column < COLUMNS; column++) {
        int kind = kind_of(b, row, column);
        if (kind == 2) ck_assert_int_eq(((int32_t *)index.data)[(b * ROWS + row) * COLUMNS + partial], column);
        partial += kind == 2, whole += kind == 1, by_column[column] += kind == 1;
      }
      ck_assert_int_eq(((int32_t *)num.data)[b * ROWS + row], partial);
      ck_assert_int_eq(((int32_t *)full.data)[b * ROWS + row], whole);
    }
    for (int column = 0; column < COLUMNS; column++)
      ck_assert_int_eq(((int32_t *)by_key.data)[b * COLUMNS + column], by_column[column]);
  }
  npy_free(&num), npy_free(&index), npy_free(&full), npy_free(&by_key), npy_free(&q);
  expect_out(dir, "map --from-arrays blocks --lengths 100,140 --tile 32,32 --text", "+....\n#+...\n##+..\n###+.\n");
  expect_out(dir, "map causal --from-arrays blocks --lengths 100,140 --tile 32,32 --json", "\"tiles_full\": 17");
  expect_failure(1, dir, "map --from-arrays blocks --lengths 100,140", "4 x 5 tiles");
  expect_failure(1, dir, "map causal --from-bitmap pairs.npy --lengths 90", "100 x 140, and the lengths are 90, 90");
  expect_failure(2, dir, "map --from-arrays blocks", "--lengths NQ,NKV is missing");
  expect_failure(2, dir, "map --from-arrays blocks --from-bitmap pairs.npy", "not both");
  expect_failure(2, dir, "map --lengths 5", "no MASK given");
  expect_failure(1, dir, "map --from-arrays nothing --lengths 5", "nothing/kv_num_blocks.npy");
  expect_failure(1, dir, "map causal --lengths 5 --to-arrays pairs.npy", "pairs.npy");
  command_remove_directory();
}
END_TEST

START_TEST(the_mask_of_a_bitmap_must_see_its_pairs) {
  static uint8_t pairs[Q * KV], other[Q * KV], bits[Q][(KV + 7) / 8];
  for (int i = 0; i < Q * KV; i++) {
    pairs[i] = other[i] = i * 7 % 5 < 2;
    if (pairs[i]) bits[i / KV][i % KV / 8] |= (uint8_t)(1 << i % KV % 8);
  }
  other[9 * KV + 9] ^= 1;
  const char *dir = command_make_directory();
  write_bytes(dir, "pairs.npy", FLY_U8, 2, (int64_t[]){Q, KV}, pairs);
  write_bytes(dir, "other.npy", FLY_U8, 2, (int64_t[]){Q, KV}, other);
  write_bytes(dir, "bits.npy", FLY_U8, 2, (int64_t[]){Q, (KV + 7) / 8}, bits);
  expect_out(dir, "map bitmask bits=bits.npy --from-bitmap pairs.npy --json", "\"tiles_partial\": 2");
  expect_failure(1, dir, "map bitmask bits=bits.npy --from-bitmap other.npy", "query row 9, key 9) is");
  write_bytes(dir, "flat.npy", FLY_U8, 1, (int64_t[]){Q}, pairs);
  expect_failure(1, dir, "map --from-bitmap flat.npy", "2 or 4 dimensions");
  command_remove_directory();
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("map_command");
  TCase *c = tcase_create("map_command");
  tcase_add_test(c, a_bitmap_becomes_arrays_and_these_a_map);
  tcase_add_test(c, the_mask_of_a_bitmap_must_see_its_pairs);
  suite_add_tcase(s, c);
  return s;
}

FLY_TEST_MAIN(suite)
