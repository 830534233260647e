/* Images: what is written is read, and nothing else is: no truncation, no changed byte, no well-formed nonsense. */
#include "compiled.h"

enum { CHECKSUM_AT = 48, CHECKED_FROM = 64 }; /* runtime/image.c: the checksum covers what lies behind it */

static const char source[] =
    "#include <flymask/mask.h>\nFLY_PARAM(int, left, 100);\nFLY_PARAM(float, ratio, 0.5f);\n"
    "FLY_BUFFER(int32_t, doc, 1);\n"
    "bool mask(int b, int h, int q, int kv) {\n"
    "  return doc[q] == doc[kv] && q - kv <= left * ratio && fly_token_kv(b, h, kv) <= q;\n}\n";

static fly_mask *mask;

static void setup(void) {
  compiled c = compiled_from(source, NULL, NULL);
  mask = fly_mask_retain(c.mask);
  compiled_free(&c);
}

static void teardown(void) { fly_mask_release(&mask); }

/* Reads a copy that ends right before an inaccessible page. */
static fly_status read_copy(const uint8_t *bytes, size_t size, fly_error *error) {
  flyi_image image;
  uint8_t *copy = guard_alloc(size, 1, 0);
  memcpy(copy, bytes, size);
  fly_status status = flyi_image_read(copy, size, &image, error);
  flyi_image_free(&image);
  guard_free(copy);
  return status;
}

static void write_checksum(uint8_t *bytes, size_t size) {
  flyi_hash hash = flyi_hash_bytes(bytes + CHECKED_FROM, size - CHECKED_FROM);
  memcpy(bytes + CHECKSUM_AT, &hash, sizeof hash);
}

START_TEST(an_image_is_read_as_it_was_written) {
  fly_error error = {0};
  flyi_image image;
  flyi_bytes again;
  ck_fly_ok(flyi_image_read(mask->bytes, mask->size, &image, &error), error);
  ck_fly_ok(flyi_image_write(&image, &again, &error), error);
  ck_assert_uint_eq(again.size, mask->size);
  ck_assert_mem_eq(again.data, mask->bytes, mask->size);
  ck_assert_str_eq(image.name, "test.c");
  ck_assert_str_eq(image.target, fly_cpu_targets()[0]);
  ck_assert_int_eq(image.parameter_count, 2);
  ck_assert_int_eq(image.buffer_count, 1);
  ck_assert_int_eq(image.kernel.type, FLY_TYPE_NONE);
  ck_assert(image.program.size && image.code.size && image.ir.size);
  flyi_bytes_free(&again);
  flyi_image_free(&image);
}
END_TEST

START_TEST(an_image_is_the_same_for_the_same_source) {
  compiled second = compiled_from(source, NULL, NULL);
  ck_assert_uint_eq(second.mask->size, mask->size);
  ck_assert_mem_eq(second.mask->bytes, mask->bytes, mask->size);
  compiled_free(&second);
}
END_TEST

START_TEST(every_truncation_is_refused) {
  fly_error error = {0};
  for (size_t size = 0; size < mask->size; size++)
    ck_assert_msg(read_copy(mask->bytes, size, &error) == FLY_ERROR_IMAGE, "%zu of %zu bytes were accepted", size,
                  mask->size);
  ck_assert_int_eq(read_copy(mask->bytes, mask->size, &error), FLY_OK);
}
END_TEST

START_TEST(every_changed_byte_is_refused) {
  static const uint8_t changes[] = {0x01, 0x80, 0xff};
  fly_error error = {0};
  uint8_t *bytes = malloc(mask->size);
  memcpy(bytes, mask->bytes, mask->size);
  for (size_t at = 0; at < mask->size; at++)
    for (int i = 0; i < 3; i++) {
      flyi_image image;
      bytes[at] ^= changes[i];
      ck_assert_msg(flyi_image_read(bytes, mask->size, &image, &error) == FLY_ERROR_IMAGE, "byte %zu ^ %02x accepted",
                    at, changes[i]);
      ck_assert_ptr_null(image.memory);
      bytes[at] ^= changes[i];
    }
  free(bytes);
}
END_TEST

START_TEST(bytes_behind_the_end_are_refused) {
  fly_error error = {0};
  uint8_t *bytes = calloc(mask->size + 16, 1);
  memcpy(bytes, mask->bytes, mask->size);
  ck_assert_int_eq(read_copy(bytes, mask->size + 16, &error), FLY_ERROR_IMAGE);
  free(bytes);
}
END_TEST

/* Damage behind a checksum that fits: what is accepted all the same must be well-formed, and loading its code must
 * not crash. */
START_TEST(damage_with_a_right_checksum_does_not_crash) {
  test_random random = {99 + (uint64_t)_i};
  fly_error error = {0};
  uint8_t *bytes = malloc(mask->size);
  int accepted = 0;
  for (int round = 0; round < 4000; round++) {
    flyi_image image;
    flyi_code code = {0};
    memcpy(bytes, mask->bytes, mask->size);
    size_t code_at = (size_t)((const uint8_t *)mask->image.code.data - mask->bytes);
    for (int n = (int)test_range(&random, 1, 3); n > 0; n--) {
      size_t last = round % 4 == 3 ? 400 : mask->size - 1; /* a quarter of the rounds: the tables */
      size_t at = round % 4 == 2 ? code_at + test_next(&random) % mask->image.code.size
                                 : CHECKED_FROM + test_next(&random) % (last - CHECKED_FROM + 1);
      bytes[at] = round & 1 ? (uint8_t)test_next(&random) : bytes[at] ^ (uint8_t)(1 << test_next(&random) % 8);
    }
    write_checksum(bytes, mask->size);
    if (flyi_image_read(bytes, mask->size, &image, &error)) continue;
    accepted++;
    flyi_section copy = {guard_alloc(image.code.size, 1, round & 1), image.code.size};
    memcpy((void *)copy.data, image.code.data, copy.size);
    if (flyi_code_load(copy, &code, &error) == FLY_OK) code.unload(&code);
    guard_free((void *)copy.data);
    flyi_image_free(&image);
  }
  ck_assert_int_gt(accepted, 100);
  free(bytes);
}
END_TEST

static void foreign(const char *part, size_t at, const void *data, size_t size) {
  fly_error error = {0};
  uint8_t *bytes = malloc(mask->size);
  memcpy(bytes, mask->bytes, mask->size);
  memcpy(bytes + at, data, size);
  write_checksum(bytes, mask->size);
  ck_assert_int_eq(read_copy(bytes, mask->size, &error), FLY_ERROR_IMAGE);
  ck_assert_msg(strstr(error.message, part) != NULL, "\"%s\" is not in \"%s\"", part, error.message);
  free(bytes);
}

START_TEST(foreign_files_and_versions_are_named) {
  foreign("not a Flymask image", 0,
          "\x7f"
          "ELF\2\1\1",
          8);
  foreign("format 7, this library reads 2", 8, "\7\0\0\0", 4);
  foreign("another build", 40, "\1\2\3\4\5\6\7\10", 8);
  foreign("Flymask 0.0.9, this is", 16, "0.0.9\0\0\0\0\0\0\0\0\0\0\0", 16);
}
END_TEST

/* Writes an image that was changed by `edit`, and expects it to be refused. */
static void nonsense(const char *part, void (*edit)(flyi_image *image)) {
  fly_error error = {0};
  flyi_image image;
  flyi_bytes bytes;
  ck_fly_ok(flyi_image_read(mask->bytes, mask->size, &image, &error), error);
  void *memory = image.memory;
  edit(&image);
  ck_fly_ok(flyi_image_write(&image, &bytes, &error), error);
  ck_assert_int_eq(read_copy(bytes.data, bytes.size, &error), FLY_ERROR_IMAGE);
  ck_assert_msg(strstr(error.message, part) != NULL, "\"%s\" is not in \"%s\"", part, error.message);
  flyi_bytes_free(&bytes);
  free(memory);
}

static void same_names(flyi_image *image) { image->parameters[1].name = image->buffers[0].name; }
static void bad_name(flyi_image *image) { image->parameters[0].name = "le ft"; }
static void dotted_name(flyi_image *image) { image->buffers[0].name = "doc..left"; }
static void empty_name(flyi_image *image) { image->buffers[0].name = ""; }
static void bad_type(flyi_image *image) { image->parameters[0].type = FLY_F16; }
static void large_value(flyi_image *image) { image->parameters[0].value = 1u << 31; }
static void wide_float(flyi_image *image) { image->parameters[1].value |= (uint64_t)1 << 32; }
static void buffer_type(flyi_image *image) { image->buffers[0].type = FLY_F64; }
static void buffer_rank(flyi_image *image) { image->buffers[0].rank = 5; }
static void no_program(flyi_image *image) { image->program.size = 0; }
static void no_code(flyi_image *image) { image->code.size = 0; }
static void half_kernel(flyi_image *image) { image->kernel.head_dim = 64; }
static void wide_kernel(flyi_image *image) {
  image->kernel = (fly_kernel_desc){.type = FLY_F32, .head_dim = 513, .value_dim = 64};
}
static void odd_program(flyi_image *image) { image->program = image->code; }

START_TEST(well_formed_nonsense_is_refused) {
  nonsense("of one name", same_names);
  nonsense("parameter", bad_name);
  nonsense("buffer", dotted_name);
  nonsense("buffer", empty_name);
  nonsense("parameter", bad_type);
  nonsense("parameter", large_value);
  nonsense("parameter", wide_float);
  nonsense("buffer", buffer_type);
  nonsense("buffer", buffer_rank);
  nonsense("no mask program", no_program);
  nonsense("no code", no_code);
  nonsense("fixed", half_kernel);
  nonsense("fixed", wide_kernel);
  nonsense("", odd_program);
}
END_TEST

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

START_TEST(a_kernel_comes_back_from_its_bytes) {
  fly_error error = {0};
  fly_kernel *kernel, *loaded;
  const fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_BF16, .head_dim = 64, .value_dim = 96,
                                .target = "x86-64"};
  ck_fly_ok(fly_kernel_create(mask, &desc, &kernel, &error), error);
  const void *bytes, *again;
  size_t size;
  ck_fly_ok(fly_kernel_image(kernel, &bytes, &size, &error), error);
  ck_fly_ok(fly_kernel_image(kernel, &again, &size, &error), error);
  ck_assert_ptr_eq(bytes, again);
  char *moved = guard_alloc(size + 1, 1, 0); /* at an odd address */
  memcpy(moved + 1, bytes, size);
  ck_fly_ok(fly_kernel_load(moved + 1, size, &loaded, &error), error);
  guard_free(moved);
  ck_assert_int_eq(loaded->desc.type, FLY_BF16);
  ck_assert_int_eq(loaded->desc.head_dim, 64);
  ck_assert_int_eq(loaded->desc.value_dim, 96);
  ck_assert_int_eq(loaded->isa, FLYI_X86_64);
  ck_assert(flyi_hash_equal(loaded->mask->image.identity, mask->image.identity));
  ck_assert_ptr_ne(loaded->mask, mask);
  fly_kernel_release(&kernel), fly_kernel_release(&loaded);
}
END_TEST

START_TEST(what_is_no_kernel_is_not_loaded) {
  fly_error error = {0};
  fly_kernel *loaded = (fly_kernel *)&error;
  ck_assert_int_eq(fly_kernel_load(mask->bytes, mask->size, &loaded, &error), FLY_ERROR_IMAGE);
  ck_assert_ptr_null(loaded);
  ck_assert_ptr_nonnull(strstr(error.message, "not of a kernel"));
  ck_assert_int_eq(fly_kernel_load(NULL, 0, &loaded, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_kernel_load("", 0, &loaded, &error), FLY_ERROR_IMAGE);
  ck_assert_int_eq(fly_kernel_load(mask->bytes, mask->size, NULL, &error), FLY_ERROR_ARGUMENT);
}
END_TEST

/* The image as `target`'s, its bytes in memory of their own. */
static fly_status load_as(const char *target, fly_error *error) {
  flyi_image image = mask->image;
  flyi_bytes bytes;
  fly_mask *loaded;
  image.target = target;
  ck_fly_ok(flyi_image_write(&image, &bytes, error), *error);
  fly_status status = flyi_mask_from_image(bytes.data, bytes.size, (flyi_code){0}, FLYI_LOADED, &loaded, error);
  ck_assert_int_eq(loaded != NULL, status == FLY_OK);
  fly_mask_release(&loaded);
  return status;
}

START_TEST(code_for_another_machine_is_refused) {
  const flyi_isa best = flyi_isa_best();
  fly_error error = {0};
  ck_assert_int_eq(load_as("x86-64", &error), FLY_OK);
  ck_assert_int_eq(load_as("sm_90", &error), FLY_ERROR_IMAGE);
  ck_assert_ptr_nonnull(strstr(error.message, "sm_90"));
  setenv("FLYMASK_ISA", "x86-64", 1);
  ck_assert_int_eq(load_as("x86-64-v3", &error), FLY_ERROR_IMAGE);
  if (best >= FLYI_X86_64_V3) ck_assert_ptr_nonnull(strstr(error.message, "FLYMASK_ISA allows"));
  setenv("FLYMASK_ISA", "x86-64-v9", 1);
  ck_assert_int_eq(load_as("x86-64", &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.message, "FLYMASK_ISA is x86-64-v9: use"));
  setenv("FLYMASK_ISA", "", 1);
  ck_assert_int_eq(load_as("x86-64", &error), FLY_OK);
  unsetenv("FLYMASK_ISA");
}
END_TEST

/* The code is the mask's alone: for the kernel's target there is none. */
START_TEST(a_kernel_for_another_machine_is_refused) {
  fly_error error = {0};
  flyi_image image = mask->image;
  flyi_bytes bytes;
  fly_kernel *loaded;
  image.target = "x86-64";
  image.kernel = (fly_kernel_desc){.type = FLY_F32, .head_dim = 64, .value_dim = 64, .target = "sm_90"};
  ck_fly_ok(flyi_image_write(&image, &bytes, &error), error);
  ck_assert_int_eq(fly_kernel_load(bytes.data, bytes.size, &loaded, &error), FLY_ERROR_IMAGE);
  ck_assert_ptr_nonnull(strstr(error.message, "sm_90"));
  flyi_bytes_free(&bytes);
}
END_TEST

START_TEST(every_failing_allocation_is_reported) {
  fly_error error = {0};
  int failures = 0;
  for (long n = 1;; n++) {
    fly_mask *loaded;
    uint8_t *bytes = malloc(mask->size);
    memcpy(bytes, mask->bytes, mask->size);
    flyi_fail_allocation(n);
    fly_status status = flyi_mask_from_image(bytes, mask->size, (flyi_code){0}, FLYI_LOADED, &loaded, &error);
    flyi_fail_allocation(0);
    if (!status) {
      fly_mask_release(&loaded);
      break;
    }
    ck_assert_int_eq(status, FLY_ERROR_MEMORY);
    ck_assert_ptr_null(loaded);
    failures++;
  }
  ck_assert_int_ge(failures, 4);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("image");
  TCase *bytes = tcase_create("bytes"), *kernels = tcase_create("kernels");
  tcase_add_unchecked_fixture(bytes, setup, teardown);
  tcase_add_test(bytes, an_image_is_read_as_it_was_written);
  tcase_add_test(bytes, an_image_is_the_same_for_the_same_source);
  tcase_add_test(bytes, every_truncation_is_refused);
  tcase_add_test(bytes, every_changed_byte_is_refused);
  tcase_add_test(bytes, bytes_behind_the_end_are_refused);
  tcase_add_loop_test(bytes, damage_with_a_right_checksum_does_not_crash, 0, 4);
  tcase_add_test(bytes, foreign_files_and_versions_are_named);
  tcase_add_test(bytes, well_formed_nonsense_is_refused);
  suite_add_tcase(s, bytes);
  tcase_add_unchecked_fixture(kernels, setup, teardown);
  tcase_add_test(kernels, a_kernel_comes_back_from_its_bytes);
  tcase_add_test(kernels, what_is_no_kernel_is_not_loaded);
  tcase_add_test(kernels, code_for_another_machine_is_refused);
  tcase_add_test(kernels, a_kernel_for_another_machine_is_refused);
  tcase_add_test(kernels, every_failing_allocation_is_reported);
  suite_add_tcase(s, kernels);
  return s;
}

FLY_TEST_MAIN(suite)
