/* test_ptx_image.c: kernels for NVIDIA GPUs as bytes: what comes back from them, and what is refused. */
#include <string.h>

#include "runtime/runtime.h"
#include "support/support.h"

static const char source[] =
    "#include <flymask/mask.h>\n"
    "FLY_PARAM(int, window, 64);\n"
    "FLY_BUFFER(int32_t, doc, 1);\n"
    "bool mask(int b, int h, int q, int kv) { return doc[q] == doc[kv] && q - kv < window; }\n";

static fly_mask *compile(const char *cache) {
  fly_error error = {0};
  fly_mask *mask;
  fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = cache};
  ck_fly_ok(fly_mask_compile(source, "mask.c", &options, &mask, &error), error);
  return mask;
}

static fly_kernel *create(fly_mask *mask, const char *target, int dim) {
  fly_error error = {0};
  fly_kernel *kernel;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_BF16, .head_dim = dim, .target = target};
  ck_fly_ok(fly_kernel_create(mask, &desc, &kernel, &error), error);
  return kernel;
}

/* Without a compiler in between: the code of both directions is in the bytes. */
START_TEST(a_kernel_comes_back_from_its_bytes) {
  fly_error error = {0};
  fly_mask *mask = compile("");
  fly_kernel *kernel = create(mask, "sm_80", 64), *loaded;
  const void *bytes;
  size_t size;
  ck_fly_ok(fly_kernel_image(kernel, &bytes, &size, &error), error);
  ck_fly_ok(fly_kernel_load(bytes, size, &loaded, &error), error);
  ck_assert_str_eq(loaded->cuda_target, "sm_80");
  for (int d = 0; d < FLYI_DIRECTIONS; d++) {
    const flyi_cuda_code *made, *read = atomic_load(&loaded->cuda);
    while (read && (int)read->direction != d) read = read->next;
    ck_assert_ptr_nonnull(read);
    ck_fly_ok(flyi_kernel_cuda(kernel, (flyi_direction)d, "sm_80", &made, &error), error);
    ck_assert_str_eq(read->ptx.data, made->ptx.data);
    ck_assert_int_eq(read->entry_count, made->entry_count);
    for (int i = 0; i < read->entry_count; i++) {
      const flyi_cuda_entry *e = &read->entries[i];
      char declared[100];
      snprintf(declared, sizeof declared, ".entry %s(", e->name);
      ck_assert_ptr_nonnull(strstr(read->ptx.data, declared));
      snprintf(declared, sizeof declared, "%s_param_0[%d]", e->name, e->argument_bytes);
      ck_assert_ptr_nonnull(strstr(read->ptx.data, declared));
      ck_assert_int_eq(e->argument_bytes, (int)flyi_cuda_argument_size(1 + FLYI_BUFFER_SLOTS));
      ck_assert_int_eq(e->threads, made->entries[i].threads);
      ck_assert_int_eq(e->shared_bytes, made->entries[i].shared_bytes);
    }
  }
  fly_kernel_release(&loaded);
  fly_kernel_release(&kernel);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(the_same_kernel_is_the_same_text) {
  fly_error error = {0};
  char *texts[2];
  for (int i = 0; i < 2; i++) {
    fly_mask *mask = compile("");
    fly_kernel *kernel = create(mask, "sm_90", 40);
    ck_fly_ok(fly_kernel_emit(kernel, FLY_PASS_FORWARD, FLY_EMIT_ASM, &texts[i], &error), error);
    fly_kernel_release(&kernel);
    fly_mask_release(&mask);
  }
  ck_assert_str_eq(texts[0], texts[1]);
  ck_assert_ptr_nonnull(strstr(texts[0], ".target sm_90"));
  free(texts[0]), free(texts[1]);
}
END_TEST

static void refused(fly_mask *mask, const char *target, fly_type type, const char *part) {
  fly_error error = {0};
  fly_kernel *kernel;
  const void *bytes;
  size_t size;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = type, .head_dim = 64, .target = target};
  fly_status status = fly_kernel_create(mask, &desc, &kernel, &error);
  if (status == FLY_OK) status = fly_kernel_image(kernel, &bytes, &size, &error);
  ck_assert_int_ne(status, FLY_OK);
  ck_assert_msg(strstr(error.message, part) != NULL, "\"%s\" is not in \"%s\"", part, error.message);
  fly_kernel_release(&kernel);
}

START_TEST(targets_that_nothing_compiles_for_are_named) {
  fly_mask *mask = compile("");
  refused(mask, "sm_70", FLY_BF16, "target sm_70: this build compiles for sm_80");
  refused(mask, "sm_", FLY_BF16, "target sm_: ");
  refused(mask, "sm_80x", FLY_BF16, "target sm_80x: ");
  refused(mask, "sm_080", FLY_BF16, "target sm_080: "); /* a number that strtol takes, and no processor of LLVM's */
  refused(mask, "sm_+80", FLY_BF16, "target sm_+80: ");
  refused(mask, "sm_ 80", FLY_BF16, "target sm_ 80: ");
  refused(mask, "sm_8000000000000000000000", FLY_BF16, "not a target");
  refused(mask, "cuda", FLY_BF16, "names no device");
  fly_mask_release(&mask);
}
END_TEST

/* What a launch would trust is checked when the bytes are read. */
START_TEST(entries_that_cannot_be_are_refused) {
  static const flyi_cuda_entry good = {"fly_forward", 0, 0, 128, 64, 128, 1024, 0};
  fly_mask *mask = compile("");
  for (int what = 0; what < 9; what++) {
    fly_error error = {0};
    flyi_cuda_entry e = good;
    flyi_image image = mask->image, out;
    flyi_bytes bytes;
    e.argument_bytes = (int)flyi_cuda_argument_size(0);
    image.kernel = (fly_kernel_desc){.type = FLY_BF16, .head_dim = 64, .value_dim = 64, .target = "sm_80"};
    image.entry_counts[0] = 1, image.entries[0] = &e, image.ptx[0] = (flyi_section){"text", 5};
    if (what == 1) e.threads = 33;
    if (what == 2) e.role = FLYI_CUDA_ROLES;
    if (what == 3) e.outer = 0;
    if (what == 4) e.argument_bytes = FLYI_CUDA_MAX_ARGUMENT + 8;
    if (what == 5) e.name = "no name";
    if (what == 6) image.ptx[0].size = 4; /* no NUL */
    if (what == 7) image.kernel.target = "x86-64";
    if (what == 8) image.entry_counts[0] = 0;
    ck_fly_ok(flyi_image_write(&image, &bytes, &error), error);
    fly_status status = flyi_image_read(bytes.data, bytes.size, &out, &error);
    ck_assert_msg((status == FLY_OK) == (what == 0), "%d: %s", what, error.message);
    if (what == 0) flyi_image_free(&out);
    flyi_bytes_free(&bytes);
  }
  fly_mask_release(&mask);
}
END_TEST

/* ---- what reads tables ------------------------------------------------------------------------------------------- */

static char *forward_text(fly_mask *mask, fly_score *score, const char *target, int dim) {
  fly_error error = {0};
  fly_kernel *kernel;
  char *text;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_BF16, .head_dim = dim, .target = target,
                          .score = score};
  ck_fly_ok(fly_kernel_create(mask, &desc, &kernel, &error), error);
  ck_fly_ok(fly_kernel_emit(kernel, FLY_PASS_FORWARD, FLY_EMIT_ASM, &text, &error), error);
  fly_kernel_release(&kernel);
  return text;
}

/* Loads of uint8, which nothing else in a kernel is, of the two entries; a row worked out again has one in each. */
static int byte_loads(const char *body) {
  char source[300];
  fly_error error = {0};
  fly_mask *mask;
  int count = 0;
  snprintf(source, sizeof source,
           "#include <flymask/mask.h>\nFLY_BUFFER(uint8_t, t, 2);\nFLY_BUFFER(uint8_t, u, 1);\n"
           "bool mask(int b, int h, int q, int kv) { return %s; }",
           body);
  ck_fly_ok(fly_mask_compile(source, "mask.c", NULL, &mask, &error), error);
  char *text = forward_text(mask, NULL, "sm_80", 64);
  for (const char *at = text; (at = strstr(at, "ld.global.")); at++)
    count += strncmp(at, "ld.global.nc.u8", 15) == 0 || strncmp(at, "ld.global.u8", 12) == 0;
  free(text);
  fly_mask_release(&mask);
  return count;
}

/* A thread has 64 scores: 4 queries and 16 keys. */
START_TEST(masks_read_tables_eight_pairs_a_round_and_lists_once) {
  ck_assert_int_eq(byte_loads("fly_at2(t, q, kv) != 0"), 2 * (8 + 1));
  ck_assert_int_eq(byte_loads("u[q] == 1"), 2 * (4 + 1));
  ck_assert_int_eq(byte_loads("u[kv] == 1"), 2 * (16 + 1));
}
END_TEST

START_TEST(modifiers_that_read_tables_have_tiles_of_half_the_scores) {
  static const struct {
    const char *body;
    int dim;
    const char *shape;
  } cases[] = {
      {"s + u[h]", 64, "fly_forward: 128 threads, 49152 bytes of shared memory, tiles 128 x 64"},
      {"s + t[q * 7 + kv]", 64, "fly_forward: 128 threads, 49152 bytes of shared memory, tiles 128 x 64"},
      {"s + fly_at2(v, q, kv)", 64, "fly_forward: 128 threads, 32768 bytes of shared memory, tiles 128 x 32"},
      {"s + u[h]", 128, "fly_forward: 128 threads, 65536 bytes of shared memory, tiles 128 x 32"},
      {"s + fly_at2(v, q, kv)", 128, "fly_forward: 256 threads, 65536 bytes of shared memory, tiles 128 x 32"}};
  fly_error error = {0};
  fly_mask *mask = compile(NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char source[300];
    fly_score *score;
    bool table = strstr(cases[i].body, "fly_at2") != NULL;
    snprintf(source, sizeof source,
             "#include <flymask/score.h>\nFLY_BUFFER(float, %s, %d);\n"
             "float score(float s, int b, int h, int q, int kv) { return %s; }",
             table                     ? "v"
             : cases[i].body[4] == 'u' ? "u"
                                       : "t",
             table ? 2 : 1, cases[i].body);
    ck_fly_ok(fly_score_compile(source, "score.c", NULL, &score, &error), error);
    char *text = forward_text(mask, score, "sm_90", cases[i].dim);
    ck_assert_msg(strstr(text, cases[i].shape) != NULL, "%s, D %d: not %s", cases[i].body, cases[i].dim,
                  cases[i].shape);
    free(text);
    fly_score_release(&score);
  }
  fly_mask_release(&mask);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("ptx_image");
  TCase *all = tcase_create("images");
  tcase_add_test(all, a_kernel_comes_back_from_its_bytes);
  tcase_add_test(all, the_same_kernel_is_the_same_text);
  tcase_add_test(all, targets_that_nothing_compiles_for_are_named);
  tcase_add_test(all, entries_that_cannot_be_are_refused);
  tcase_add_test(all, masks_read_tables_eight_pairs_a_round_and_lists_once);
  tcase_add_test(all, modifiers_that_read_tables_have_tiles_of_half_the_scores);
  suite_add_tcase(s, all);
  return s;
}

FLY_TEST_MAIN(suite)
