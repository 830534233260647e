/* Block maps of the library's masks against every pair, for random geometries, tiles, parameters and buffers. Two
 * truths: the mask as ordinary C, where the inputs are such that C defines the answer; and the compiled mask, for
 * any inputs at all. */
#include <dirent.h>
#include <sys/mman.h>

#include "map_truth.h"
#include "native.h"

/* Each test is a process of its own, and this is shared memory. */
static long *tiles_checked;
enum { LIBRARY_MASKS = 45 };

/* ---- compiled masks and arguments -------------------------------------------------------------------------------- */

static fly_mask *compile(const char *name) {
  char path[512];
  fly_mask *mask;
  fly_error error;
  snprintf(path, sizeof path, "%s/masks/%s.c", FLYMASK_SOURCE, name);
  ck_fly_ok(fly_mask_compile_file(path, NULL, &mask, &error), error);
  return mask;
}

static fly_map *build(fly_bound *bound, const fly_geometry *g, test_random *random, bool fast) {
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = random_tile(random), .tile_kv = random_tile(random),
                             .fast = fast};
  if (test_range(random, 0, 1)) options.tile_kv = options.tile_q;
  options.threads = (int)test_range(random, 1, 3);
  fly_map *map;
  fly_error error;
  ck_fly_ok(fly_map_build(bound, g, &options, &map, &error), error);
  return map;
}

/* ---- any inputs, by the compiled mask ---------------------------------------------------------------------------- */

/* Contents of many kinds: constant, sorted, blocks, small values, anything. */
static fly_buffer *any_buffer(test_random *random, const fly_buffer_info *info) {
  int64_t shape[4] = {1, 1, 1, 1}, count = 1;
  for (int k = 0; k < info->rank; k++) {
    shape[k] = test_range(random, 0, 30) ? test_range(random, 1, info->rank == 1 ? 600 : 24) : 0;
    count *= shape[k];
  }
  size_t size = fly_type_size(info->type);
  uint8_t *data = calloc((size_t)count + 1, size);
  int64_t kind = test_range(random, 0, 4), x = test_range(random, 0, 5);
  for (int64_t i = 0; i < count; i++) {
    if (kind == 1 && test_range(random, 0, 19) == 0) x++;
    if (kind == 2 && i % 16 == 0) x = test_range(random, 0, 9);
    if (kind == 3) x = test_range(random, -2, 300);
    if (kind == 4) x = (int64_t)test_next(random);
    memcpy(data + (size_t)i * size, &x, size);
  }
  fly_buffer *buffer;
  fly_error error;
  ck_fly_ok(fly_buffer_create(info->type, info->rank, shape, data, &buffer, &error), error);
  free(data);
  return buffer;
}

static int64_t any_integer(test_random *random, const fly_parameter_info *info) {
  if (info->type == FLY_BOOL) return test_range(random, 0, 1);
  switch (test_range(random, 0, 6)) {
  case 0:
    return info->value.integer;
  case 1:
    return test_range(random, -3, 3);
  case 2:
    return 1 << test_range(random, 0, 6);
  case 3:
    return test_range(random, -200, 600);
  default:
    return test_range(random, 1, 90);
  }
}

static fly_bound *bind_anything(test_random *random, fly_mask *mask) {
  const fly_mask_info *info = fly_mask_get_info(mask);
  fly_arg args[32];
  fly_buffer *buffers[16];
  int count = 0;
  for (int i = 0; i < info->parameter_count; i++)
    if (info->parameters[i].type != FLY_F32 && info->parameters[i].type != FLY_F64)
      args[count++] = FLY_INT(info->parameters[i].name, any_integer(random, &info->parameters[i]));
  for (int i = 0; i < info->buffer_count; i++) {
    buffers[i] = any_buffer(random, &info->buffers[i]);
    args[count++] = FLY_CAPTURE(info->buffers[i].name, buffers[i]);
  }
  fly_bound *bound;
  fly_error error;
  ck_fly_ok(fly_mask_bind(mask, args, count, &bound, &error), error);
  for (int i = 0; i < info->buffer_count; i++) fly_buffer_release(&buffers[i]);
  return bound;
}

static void check_anything(test_random *random, fly_mask *mask, const char *what) {
  random_call call;
  random_call_init(random, test_range(random, 0, 3) ? 150 : 420, 500, &call);
  fly_bound *bound = bind_anything(random, mask);
  bool fast = test_range(random, 0, 3) == 0;
  fly_map *map = build(bound, &call.geometry, random, fast);
  *tiles_checked += check_map(map, !fast, truth_compiled, NULL, what);
  fly_map_release(&map);
  fly_bound_release(&bound);
  random_call_free(&call);
}

START_TEST(maps_of_the_library_hold_for_any_inputs) {
  char path[512];
  snprintf(path, sizeof path, "%s/masks", FLYMASK_SOURCE);
  DIR *directory = opendir(path);
  ck_assert_ptr_nonnull(directory);
  int masks = 0;
  for (struct dirent *entry; (entry = readdir(directory));) {
    size_t length = strlen(entry->d_name);
    if (length < 3 || strcmp(entry->d_name + length - 2, ".c")) continue;
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)length - 2, entry->d_name);
    fly_mask *mask = compile(name);
    test_random random = {.state = 1000 + (uint64_t)name[0]};
    for (int round = 0; round < 40; round++) check_anything(&random, mask, name);
    fly_mask_release(&mask);
    masks++;
  }
  closedir(directory);
  ck_assert_int_ge(masks, LIBRARY_MASKS);
}
END_TEST

START_TEST(maps_of_composed_masks_hold_for_any_inputs) {
  static const char *const names[] = {"causal",       "sliding_window", "document",   "chunked",
                                      "block_sparse", "prefix_lm",      "stochastic", "full"};
  test_random random = {.state = 77};
  for (int round = 0; round < 12; round++) {
    fly_mask *left = compile(names[test_range(&random, 0, 7)]), *right = compile(names[test_range(&random, 0, 7)]),
             *mask = NULL, *outer;
    fly_error error;
    ck_fly_ok(fly_mask_combine(test_range(&random, 0, 1) ? FLY_AND : FLY_OR, left, right, NULL, &mask, &error), error);
    ck_fly_ok(fly_mask_combine(FLY_NOT, mask, NULL, NULL, &outer, &error), error);
    for (int k = 0; k < 12; k++) check_anything(&random, k % 2 ? mask : outer, "composed");
    fly_mask_release(&left), fly_mask_release(&right), fly_mask_release(&mask), fly_mask_release(&outer);
  }
}
END_TEST

/* ---- sensible inputs, by ordinary C ------------------------------------------------------------------------------ */

static bool see_native(void *context, int b, int h, int q, int kv) {
  return ((native_mask *)context)->mask(b, h, q, kv);
}

typedef struct plain {
  const char *mask;
  const char *parameters[3];
  int least[3], most[3];
  const char *buffer;
} plain;

static const plain plains[] = {
    {"full", {NULL}, {0}, {0}, NULL},
    {"causal", {NULL}, {0}, {0}, NULL},
    {"sliding_window", {"left", "right"}, {-1, -1}, {200, 90}, NULL},
    {"prefix_lm", {"prefix"}, {-5}, {300}, NULL},
    {"chunked", {"size"}, {1}, {150}, NULL},
    {"document", {NULL}, {0}, {0}, "doc"},
    {"block_sparse", {"size"}, {8}, {70}, "bitmap"},
    {"stochastic", {"left", "right", "causal"}, {-1, -1, 0}, {90, 90, 3}, NULL},
};

/* As large as any position asks for, so that C defines every answer. */
static fly_buffer *sensible_buffer(test_random *random, const plain *p, int size, native_mask *native) {
  static int32_t doc[2000];
  static uint8_t bitmap[2000][4];
  int64_t shape[2] = {2000, 1}, n = 700 / size + 1;
  fly_buffer *buffer;
  fly_error error;
  if (!strcmp(p->buffer, "doc")) {
    int32_t current = 0;
    for (int i = 0; i < 2000; i++) doc[i] = current += test_range(random, 0, 50) == 0;
    ck_fly_ok(fly_buffer_create(FLY_I32, 1, shape, doc, &buffer, &error), error);
    native_set_buffer(native, p->buffer, doc, shape, 1);
  } else {
    uint8_t *bits = bitmap[0];
    shape[0] = shape[1] = n < 89 ? n : 89; /* 89 x 89 <= 8,000 */
    for (int64_t i = 0; i < shape[0] * shape[1]; i++) bits[i] = test_range(random, 0, 3) == 0;
    ck_fly_ok(fly_buffer_create(FLY_U8, 2, shape, bits, &buffer, &error), error);
    native_set_buffer(native, p->buffer, bits, shape, 2);
  }
  return buffer;
}

START_TEST(exact_maps_agree_with_ordinary_c) {
  for (size_t which = 0; which < sizeof plains / sizeof *plains; which++) {
    const plain *p = &plains[which];
    fly_mask *mask = compile(p->mask);
    native_mask native = native_load(p->mask);
    test_random random = {.state = which + 1};
    for (int round = 0; round < (strcmp(p->mask, "stochastic") ? 80 : 300); round++) {
      fly_arg args[4];
      fly_buffer *buffer = NULL;
      fly_bound *bound;
      fly_error error;
      random_call call;
      int count = 0, value = 1;
      for (; count < 3 && p->parameters[count]; count++) {
        value = (int)test_range(&random, p->least[count], p->most[count]);
        args[count] = FLY_INT(p->parameters[count], value);
        native_set_int(&native, p->parameters[count], value);
      }
      if (p->buffer) {
        buffer = sensible_buffer(&random, p, value, &native);
        args[count++] = FLY_CAPTURE(p->buffer, buffer);
      }
      ck_fly_ok(fly_mask_bind(mask, args, count, &bound, &error), error);
      random_call_init(&random, 300, 400, &call);
      if (p->buffer && call.geometry.q_offset < 0) call.geometry.q_offset = 0;
      native_set_context(&native, &call.geometry);
      fly_map *map = build(bound, &call.geometry, &random, round % 8 == 7);
      truth_predicate truth = {see_native, &native};
      *tiles_checked += check_map(map, round % 8 != 7, truth_by_predicate, &truth, p->mask);
      fly_map_release(&map);
      fly_bound_release(&bound);
      fly_buffer_release(&buffer);
      random_call_free(&call);
    }
    native_close(&native);
    fly_mask_release(&mask);
  }
}
END_TEST

START_TEST(a_million_tiles_were_checked) {
  printf("0 wrong in %ld (mask, tile) pairs\n", *tiles_checked);
  ck_assert_int_ge(*tiles_checked, 1000000);
}
END_TEST

static Suite *suite(void) {
  tiles_checked = mmap(NULL, sizeof *tiles_checked, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (tiles_checked == MAP_FAILED) abort();
  Suite *s = suite_create("map_soundness");
  TCase *c = tcase_create("map_soundness");
  tcase_add_test(c, maps_of_the_library_hold_for_any_inputs);
  tcase_add_test(c, maps_of_composed_masks_hold_for_any_inputs);
  tcase_add_test(c, exact_maps_agree_with_ordinary_c);
  tcase_add_test(c, a_million_tiles_were_checked); /* last */
  suite_add_tcase(s, c);
  return s;
}

FLY_TEST_MAIN(suite)
