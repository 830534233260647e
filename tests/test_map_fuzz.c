/* Random masks in C (support/random_mask.c), through the whole compiler: their compiled code and their block maps
 * against the same source compiled as ordinary C. Runs for FLYMASK_FUZZ_SECONDS (6), from FLYMASK_FUZZ_SEED (1); a
 * failure names the source that it leaves behind. */
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include "map_truth.h"
#include "native.h"
#include "random_mask.h"

/* However slow the machine. */
enum { MASKS = 25 };

typedef struct fuzz {
  char source[1 << 16], path[256], object[300];
  int32_t words[RANDOM_MASK_WORDS];
  uint8_t bytes[RANDOM_MASK_BYTES];
  int16_t table[RANDOM_MASK_ROWS * RANDOM_MASK_COLUMNS];
  uint8_t wide[RANDOM_MASK_WIDE];
  native_mask native;
  fly_mask *mask;
  long masks, tiles, undecided, pairs;
} fuzz;

static double setting(const char *name, double otherwise) { return getenv(name) ? atof(getenv(name)) : otherwise; }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void compile(fuzz *f) {
  char command[1200];
  fly_error error;
  fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = ""};
  FILE *file = fopen(f->path, "w");
  ck_assert_ptr_nonnull(file);
  fputs(f->source, file);
  fclose(file);
  snprintf(command, sizeof command,
           "cc -std=gnu17 -O1 -fwrapv -ffp-contract=off -w -fPIC -shared -I%s/include -o %s %s", FLYMASK_SOURCE,
           f->object, f->path);
  ck_assert_int_eq(system(command), 0);
  ck_assert_msg(fly_mask_compile(f->source, f->path, &options, &f->mask, &error) == FLY_OK, "%s:%d:%d: %s", f->path,
                error.line, error.column, error.message);
  f->native = native_load_path(f->object);
}

static void set_byte(native_mask *mask, const char *parameter, int value) {
  uint8_t *at = dlsym(mask->handle, parameter);
  ck_assert_ptr_nonnull(at);
  *at = (uint8_t)value;
}

static fly_bound *bind(fuzz *f, test_random *random) {
  const int64_t words[] = {RANDOM_MASK_WORDS}, bytes[] = {RANDOM_MASK_BYTES},
                table[] = {RANDOM_MASK_ROWS, RANDOM_MASK_COLUMNS}, wide[] = {RANDOM_MASK_WIDE};
  int p0 = (int)test_range(random, -9, 40), p1 = (int)test_range(random, -300, 300);
  int p2 = (int)test_range(random, 0, 255), p3 = (int)test_range(random, 1, 127); /* p3 divides */
  bool sorted = test_range(random, 0, 1), halves = test_range(random, 0, 1);
  bool small = test_range(random, 0, 1);
  int least = (int)(small ? 8 * test_range(random, 0, 8) : test_range(random, 0, 255));
  int spread = 1 << test_range(random, 0, small ? 3 : 8);
  fly_buffer *buffer[4];
  fly_bound *bound;
  fly_error error;
  for (int i = 0; i < RANDOM_MASK_WORDS; i++) f->words[i] = (int)(sorted ? i / 13 : test_range(random, -99, 99));
  for (int i = 0; i < RANDOM_MASK_BYTES; i++) f->bytes[i] = (uint8_t)(least + test_range(random, 0, spread - 1));
  for (int i = 0; i < RANDOM_MASK_ROWS * RANDOM_MASK_COLUMNS; i++) f->table[i] = (int16_t)test_range(random, -3, 30);
  for (int i = 0; i < RANDOM_MASK_WIDE; i++)
    f->wide[i] = (uint8_t)(halves ? i / 256 : test_range(random, 0, 3) ? i / 40 : test_range(random, 0, 255));
  ck_fly_ok(fly_buffer_create(FLY_I32, 1, words, f->words, &buffer[0], &error), error);
  ck_fly_ok(fly_buffer_create(FLY_U8, 1, bytes, f->bytes, &buffer[1], &error), error);
  ck_fly_ok(fly_buffer_create(FLY_I16, 2, table, f->table, &buffer[2], &error), error);
  ck_fly_ok(fly_buffer_create(FLY_U8, 1, wide, f->wide, &buffer[3], &error), error);
  fly_arg args[] = {FLY_INT("p0", p0),
                    FLY_INT("p1", p1),
                    FLY_CAPTURE("words", buffer[0]),
                    FLY_CAPTURE("bytes", buffer[1]),
                    FLY_CAPTURE("table", buffer[2]),
                    FLY_CAPTURE("wide", buffer[3]),
                    FLY_INT("p2", p2),
                    FLY_INT("p3", p3)};
  ck_fly_ok(fly_mask_bind(f->mask, args, 8, &bound, &error), error);
  for (int i = 0; i < 4; i++) fly_buffer_release(&buffer[i]);
  native_set_int(&f->native, "p0", p0), native_set_int(&f->native, "p1", p1);
  native_set_buffer(&f->native, "words", f->words, words, 1);
  native_set_buffer(&f->native, "bytes", f->bytes, bytes, 1);
  native_set_buffer(&f->native, "table", f->table, table, 2);
  native_set_buffer(&f->native, "wide", f->wide, wide, 1);
  set_byte(&f->native, "p2", p2), set_byte(&f->native, "p3", p3);
  return bound;
}

/* The native mask, and on the way: the compiled one says the same. */
static void fill(void *context, const fly_map *map, int b, int h, int64_t len_q, int64_t len_kv, uint8_t *see) {
  fuzz *f = context;
  truth_compiled(NULL, map, b, h, len_q, len_kv, see);
  for (int64_t q = 0; q < len_q; q++)
    for (int64_t kv = 0; kv < len_kv; kv++) {
      bool truth = f->native.mask(b, h, (int)(q + map->geometry.q_offset), (int)kv);
      expect(see[q * len_kv + kv] == truth, "%s: (%d, %d, row %d, %d) is %d by its compiled code", f->path, b, h,
             (int)q, (int)kv, !truth);
    }
  f->pairs += len_q * len_kv;
}

static void check_once(fuzz *f, test_random *random) {
  random_call call;
  fly_map *map;
  fly_map_info info;
  fly_error error;
  random_call_init(random, 110, 300, &call);
  const fly_geometry *g = &call.geometry;
  native_set_context(&f->native, g);
  fly_bound *bound = bind(f, random);
  bool fast = test_range(random, 0, 2) == 0;
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = random_tile(random) / 4 + 1,
                             .tile_kv = random_tile(random) / 4 + 1, .fast = fast, .threads = 1};
  ck_fly_ok(fly_map_build(bound, g, &options, &map, &error), error);
  f->tiles += check_map(map, !fast, fill, f, f->path);
  fly_map_get_info(map, &info);
  f->undecided += info.undecided;
  fly_map_release(&map);
  fly_bound_release(&bound);
  random_call_free(&call);
}

START_TEST(random_masks_compile_to_what_they_say_and_so_do_their_maps) {
  static fuzz f;
  double end = now() + setting("FLYMASK_FUZZ_SECONDS", 6);
  uint64_t seed = (uint64_t)setting("FLYMASK_FUZZ_SEED", 1);
  for (; now() < end || f.masks < MASKS; seed++, f.masks++) {
    test_random random = {.state = seed * 0x9E3779B97F4A7C15};
    snprintf(f.path, sizeof f.path, "%s/tests/fuzz-%llu.c", FLYMASK_BUILD, (unsigned long long)seed);
    snprintf(f.object, sizeof f.object, "%s.so", f.path);
    random_mask(&random, f.source, sizeof f.source);
    compile(&f);
    for (int k = 0; k < 6; k++) check_once(&f, &random);
    native_close(&f.native);
    fly_mask_release(&f.mask);
    unlink(f.path), unlink(f.object);
  }
  printf("0 wrong in %ld (mask, tile) pairs of %ld random masks; %ld answers of theirs\n", f.tiles, f.masks, f.pairs);
  ck_assert_int_ge(f.masks, MASKS);
  ck_assert_int_ge(f.tiles, MASKS * 100);
  ck_assert_int_ge(f.pairs, MASKS * 10000);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("map_fuzz");
  TCase *c = tcase_create("map_fuzz");
  tcase_add_test(c, random_masks_compile_to_what_they_say_and_so_do_their_maps);
  suite_add_tcase(s, c);
  return s;
}

FLY_TEST_MAIN(suite)
