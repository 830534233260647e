/* Compilation as a whole: what comes from the cache and what does not, what a mask's identity is, errors, threads,
 * what the code looks like, and that nothing grows. */
#include "compiled.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char window[] = "#include <flymask/mask.h>\nFLY_PARAM(int, left, 5);\nFLY_PARAM(int, right, 0);\n"
                             "bool mask(int b, int h, int q, int kv) { return q - kv <= left && kv - q <= right; }\n";

/* A sanitizer keeps freed memory, finds leaks by itself, and is slow. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SANITIZED 0
#endif

static char directory[64];

static void setup(void) {
  strcpy(directory, "/tmp/flymask-test-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(directory));
}

static void teardown(void) {
  char command[100];
  snprintf(command, sizeof command, "rm -rf %s", directory);
  ck_assert_int_eq(system(command), 0);
}

static fly_mask *compile(const char *source, const char *name, fly_compile_options options) {
  fly_error error = {0};
  fly_mask *mask;
  options.size = sizeof options;
  if (!options.cache) options.cache = directory;
  ck_fly_ok(fly_mask_compile(source, name, &options, &mask, &error), error);
  return mask;
}

static bool cached(const char *source, const char *name, fly_compile_options options) {
  fly_mask *mask = compile(source, name, options);
  bool from_cache = fly_mask_get_info(mask)->from_cache;
  fly_mask_release(&mask);
  return from_cache;
}

#define OPTIONS(...) ((fly_compile_options){__VA_ARGS__})
static const fly_compile_options none;

START_TEST(the_second_compilation_comes_from_the_cache) {
  ck_assert(!cached(window, "w.c", none));
  ck_assert(cached(window, "w.c", none));
  ck_assert(!cached(window, "w.c", OPTIONS(.cache = "")));
  ck_assert(cached(window, "w.c", none));
}
END_TEST

START_TEST(whatever_changes_the_result_changes_the_entry) {
  const fly_arg two[] = {FLY_INT("left", 2)}, three[] = {FLY_INT("left", 3)}, right[] = {FLY_INT("right", 2)};
  char edited[sizeof window + 1];
  snprintf(edited, sizeof edited, "%s\n", window);
  const fly_compile_options options[] = {none, OPTIONS(.target = "x86-64"), OPTIONS(.bake = two, .bake_count = 1),
                                         OPTIONS(.bake = three, .bake_count = 1),
                                         OPTIONS(.bake = right, .bake_count = 1)};
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < 5; i++) ck_assert_int_eq(cached(window, "w.c", options[i]), round == 1);
    ck_assert_int_eq(cached(window, "other.c", none), round == 1);
    ck_assert_int_eq(cached(edited, "w.c", none), round == 1);
  }
}
END_TEST

START_TEST(limits_do_not_change_the_entry) {
  ck_assert(!cached(window, "w.c", none));
  ck_assert(cached(window, "w.c", OPTIONS(.clang_seconds = 3, .clang_bytes = (size_t)1 << 30)));
  ck_assert(cached(window, "w.c", OPTIONS(.target = fly_cpu_targets()[0])));
}
END_TEST

START_TEST(nothing_is_found_for_another_clang) {
  fly_error error = {0};
  fly_mask *mask;
  ck_assert(!cached(window, "w.c", none));
  fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = directory, .clang = "/nonexistent/clang"};
  ck_assert_int_eq(fly_mask_compile(window, "w.c", &options, &mask, &error), FLY_ERROR_TOOL);
}
END_TEST

/* Another clang of the same name: other bytes, or the same ones installed again. */
START_TEST(nothing_is_found_when_the_clang_was_replaced) {
  char path[100], command[200];
  snprintf(path, sizeof path, "%s/clang", directory);
  for (int edition = 0; edition < 3; edition++) {
    FILE *file = fopen(path, "w");
    fprintf(file, "#!/bin/sh\n%sexec clang-%d \"$@\"\n", edition ? "\n" : "", FLYI_LLVM_MAJOR);
    fclose(file);
    chmod(path, 0755);
    snprintf(command, sizeof command, "touch -d '2020-01-0%d' '%s'", edition < 2 ? 1 : 2, path);
    ck_assert_int_eq(system(command), 0);
    ck_assert(!cached(window, "w.c", OPTIONS(.clang = path)));
    ck_assert(cached(window, "w.c", OPTIONS(.clang = path)));
  }
}
END_TEST

START_TEST(identity_is_the_meaning_alone) {
  const fly_arg left[] = {FLY_INT("left", 5)}, both[] = {FLY_INT("left", 5), FLY_INT("right", 0)};
  const fly_arg reversed[] = {FLY_INT("right", 0), FLY_INT("left", 5)}, six[] = {FLY_INT("left", 6)};
  char edited[sizeof window + 1];
  snprintf(edited, sizeof edited, "%s\n", window);
  fly_mask *masks[] = {compile(window, "w.c", none),
                       compile(window, "w.c", none), /* from the cache */
                       compile(window, "renamed.c", none),
                       compile(window, "w.c", OPTIONS(.target = "x86-64")),
                       compile(window, "w.c", OPTIONS(.bake = both, .bake_count = 2)),
                       compile(window, "w.c", OPTIONS(.bake = reversed, .bake_count = 2)),
                       compile(window, "w.c", OPTIONS(.bake = left, .bake_count = 1)),
                       compile(window, "w.c", OPTIONS(.bake = six, .bake_count = 1)),
                       compile(edited, "w.c", none)};
  static const int meaning[] = {0, 0, 0, 0, 1, 1, 2, 3, 4};
  for (int i = 0; i < 9; i++)
    for (int j = 0; j < i; j++)
      ck_assert_msg(flyi_hash_equal(masks[i]->image.identity, masks[j]->image.identity) == (meaning[i] == meaning[j]),
                    "masks %d and %d", i, j);
  for (int i = 0; i < 9; i++) fly_mask_release(&masks[i]);
}
END_TEST

/* Two masks that somebody made to have one identity: the code of one must not read the slots of the other. */
START_TEST(a_forged_identity_does_not_pair_other_slots) {
  static const char *const others[] = {
      "#include <flymask/mask.h>\nFLY_PARAM(int, left, 5);\nbool mask(int b, int h, int q, int kv) { return q < left; "
      "}\n",
      "#include <flymask/mask.h>\nFLY_PARAM(int, left, 5);\nFLY_PARAM(float, right, 0);\n"
      "bool mask(int b, int h, int q, int kv) { return q < left + right; }\n",
      "#include <flymask/mask.h>\nFLY_PARAM(int, left, 5);\nFLY_PARAM(int, right, 0);\nFLY_BUFFER(int, ends, 1);\n"
      "bool mask(int b, int h, int q, int kv) { return q < left + right + ends[kv]; }\n",
      "#include <flymask/mask.h>\nFLY_PARAM(int, left, 5);\nFLY_PARAM(int, right, 0);\nFLY_BUFFER(int8_t, ends, 1);\n"
      "bool mask(int b, int h, int q, int kv) { return q < left + right + ends[kv]; }\n",
      "#include <flymask/mask.h>\nFLY_PARAM(int, left, 5);\nFLY_PARAM(int, right, 0);\nFLY_BUFFER(int8_t, ends, 2);\n"
      "bool mask(int b, int h, int q, int kv) { return q < left + right; }\n",
      "#include <flymask/mask.h>\nFLY_PARAM(int, a, 5);\nFLY_PARAM(int, b, 0);\n"
      "bool mask(int i, int h, int q, int kv) { return q < a + b; }\n"};
  enum { COUNT = sizeof others / sizeof *others, SAME = COUNT - 1 };
  fly_error error = {0};
  fly_mask *mask = compile(window, "w.c", none), *made[COUNT];
  for (int i = 0; i < COUNT; i++) {
    made[i] = compile(others[i], "o.c", none);
    made[i]->image.identity = mask->image.identity;
    ck_assert_int_eq(flyi_image_same_slots(&mask->image, &made[i]->image), i == SAME);
    for (int j = 0; j < i; j++) ck_assert(!flyi_image_same_slots(&made[j]->image, &made[i]->image));
  }
  const fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_F32, .head_dim = 8};
  static float rows[64 * 8], out[64 * 8];
  for (int i = 0; i <= COUNT; i++) { /* the kernel of each with values of `window`; the last: its own */
    fly_kernel *kernel;
    fly_bound *bound;
    ck_fly_ok(fly_kernel_create(i == COUNT ? mask : made[i], &desc, &kernel, &error), error);
    ck_fly_ok(fly_mask_bind(mask, NULL, 0, &bound, &error), error);
    fly_tensor tensor = {.data = rows, .type = FLY_F32, .shape = {1, 1, 64, 8}, .stride = {512, 512, 8, 1}},
               to = tensor;
    to.data = out;
    const fly_attention call = {
        FLY_INIT(fly_attention), .kernel = kernel, .bound = bound, .q = tensor, .k = tensor, .v = tensor, .out = to};
    fly_status status = fly_attention_forward(&call, &error);
    ck_assert_msg(status == (i < SAME ? FLY_ERROR_ARGUMENT : FLY_OK), "%d: %s", i, error.message);
    if (status) ck_assert_ptr_nonnull(strstr(error.message, "bound is of mask w.c, the kernel of o.c"));
    fly_bound_release(&bound), fly_kernel_release(&kernel);
  }
  for (int i = 0; i < COUNT; i++) fly_mask_release(&made[i]);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(a_cached_mask_comes_within_5_ms) {
  double best = 1;
  ck_assert(!cached(window, "w.c", none));
  for (int i = 0; i < 20; i++) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    ck_assert(cached(window, "w.c", none));
    clock_gettime(CLOCK_MONOTONIC, &to);
    double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    if (seconds < best) best = seconds;
  }
  if (!SANITIZED) ck_assert_double_lt(best, 0.005);
}
END_TEST

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void refused(fly_status status, const char *part, const char *source, fly_compile_options options) {
  fly_error error = {0};
  fly_mask *mask = (fly_mask *)&error;
  options.size = options.size ? options.size : sizeof options;
  options.cache = directory;
  ck_assert_int_eq(fly_mask_compile(source, "w.c", &options, &mask, &error), status);
  ck_assert_ptr_null(mask);
  ck_assert_int_eq(error.status, status);
  ck_assert_msg(strstr(error.message, part) != NULL, "\"%s\" is not in \"%s\"", part, error.message);
  ck_assert_int_eq(fly_mask_compile(source, "w.c", &options, &mask, NULL), status);
}

START_TEST(wrong_options_are_refused) {
  const fly_arg unknown[] = {FLY_INT("lfet", 1)}, twice[] = {FLY_INT("left", 1), FLY_INT("left", 1)},
                real[] = {FLY_REAL("left", 1)};
  const fly_arg large[] = {FLY_INT("left", (int64_t)1 << 40)}, buffer[] = {FLY_CAPTURE("left", NULL)},
                nameless[] = {FLY_INT(NULL, 1)};
  refused(FLY_ERROR_ARGUMENT, "source is NULL", NULL, none);
  refused(FLY_ERROR_ARGUMENT, "size", window, OPTIONS(.size = 3));
  refused(FLY_ERROR_ARGUMENT, "not one of", window, OPTIONS(.target = "x86-64-v9"));
  refused(FLY_ERROR_ARGUMENT, "and no GPU's (sm_80, ...)", window, OPTIONS(.target = "gpu"));
  refused(FLY_ERROR_ARGUMENT, "no parameter lfet", window, OPTIONS(.bake = unknown, .bake_count = 1));
  refused(FLY_ERROR_ARGUMENT, "baked twice", window, OPTIONS(.bake = twice, .bake_count = 2));
  refused(FLY_ERROR_ARGUMENT, "give an integer", window, OPTIONS(.bake = real, .bake_count = 1));
  refused(FLY_ERROR_ARGUMENT, "outside", window, OPTIONS(.bake = large, .bake_count = 1));
  refused(FLY_ERROR_ARGUMENT, "cannot be baked", window, OPTIONS(.bake = buffer, .bake_count = 1));
  refused(FLY_ERROR_ARGUMENT, "no name", window, OPTIONS(.bake = nameless, .bake_count = 1));
  refused(FLY_ERROR_ARGUMENT, "bake is NULL", window, OPTIONS(.bake_count = 1));
  refused(FLY_ERROR_ARGUMENT, "clang_seconds is -1", window, OPTIONS(.clang_seconds = -1));
  refused(FLY_ERROR_ARGUMENT, "clang_seconds is nan", window, OPTIONS(.clang_seconds = fabs(NAN)));
  refused(FLY_ERROR_ARGUMENT, "clang_seconds is -inf", window, OPTIONS(.clang_seconds = -INFINITY));
  refused(FLY_ERROR_ARGUMENT, "check_seconds is -1", window, OPTIONS(.check_seconds = -1));
  refused(FLY_ERROR_ARGUMENT, "check_seconds is nan", window, OPTIONS(.check_seconds = fabs(NAN)));
  fly_error error = {0};
  ck_assert_int_eq(fly_mask_compile(window, "w.c", NULL, NULL, &error), FLY_ERROR_ARGUMENT);
}
END_TEST

START_TEST(errors_of_the_source_have_their_place) {
  fly_error error = {0};
  fly_mask *mask;
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = ""};
  ck_assert_int_eq(
      fly_mask_compile("#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) {\n  return kv <= p;\n}\n",
                       "dir/w.c", &options, &mask, &error),
      FLY_ERROR_SOURCE);
  ck_assert_str_eq(error.file, "dir/w.c");
  ck_assert_int_eq(error.line, 3);
  ck_assert_int_eq(error.column, 16);
}
END_TEST

START_TEST(files_are_compiled_and_their_errors_reported) {
  fly_error error = {0};
  fly_mask *mask;
  char path[100];
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = ""};
  snprintf(path, sizeof path, "%s/w.c", directory);
  ck_assert_int_eq(fly_mask_compile_file(path, &options, &mask, &error), FLY_ERROR_IO);
  ck_assert_ptr_nonnull(strstr(error.message, "No such file"));
  ck_assert_int_eq(fly_mask_compile_file(directory, &options, &mask, &error), FLY_ERROR_IO);
  ck_assert_int_eq(fly_mask_compile_file(NULL, &options, &mask, &error), FLY_ERROR_ARGUMENT);
  FILE *file = fopen(path, "w");
  fwrite(window, 1, sizeof window, file); /* with the NUL */
  fputs("x", file);
  fclose(file);
  ck_assert_int_eq(fly_mask_compile_file(path, &options, &mask, &error), FLY_ERROR_SOURCE);
  file = fopen(path, "w");
  fputs(window, file);
  fclose(file);
  ck_fly_ok(fly_mask_compile_file(path, &options, &mask, &error), error);
  ck_assert_str_eq(fly_mask_get_info(mask)->name, path);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(failing_allocations_are_reported_or_survived) {
  fly_error error = {0};
  fly_mask *mask;
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = ""};
  int failures = 0;
  for (long n = 1; n < 2000; n += 1 + n / 6) {
    flyi_fail_allocation(n);
    fly_status status = fly_mask_compile(window, "w.c", &options, &mask, &error);
    flyi_fail_allocation(0);
    if (!status) {
      ck_assert_ptr_nonnull(mask);
      fly_mask_release(&mask);
      continue;
    }
    ck_assert_msg(status == FLY_ERROR_MEMORY, "allocation %ld: %s", n, error.message);
    ck_assert_ptr_null(mask);
    failures++;
  }
  ck_assert_int_gt(failures, 5);
}
END_TEST

/* ---- threads ----------------------------------------------------------------------------------------------------- */

typedef struct job {
  int number;
  const char *cache;
  char failure[1100];
} job;

/* Masks that differ by a constant, compiled, called and released again. */
static void *compile_some(void *context) {
  job *j = context;
  for (int round = 0; round < 4 && !*j->failure; round++) {
    char source[200];
    int limit = 1 + (j->number * 5 + round) % 23;
    fly_error error = {0};
    fly_mask *mask;
    const fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = j->cache};
    snprintf(source, sizeof source,
             "#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) { return kv < %d; }\n", limit);
    if (fly_mask_compile(source, "t.c", &options, &mask, &error)) {
      snprintf(j->failure, sizeof j->failure, "%s", error.message);
      break;
    }
    uint64_t bits[FLYI_BLOCK];
    flyi_mask_args args = {.batch = 1, .heads = 1, .len_q = 64, .len_kv = 64};
    mask->code.tile(&args, 0, 0, 0, 0, bits);
    for (int r = 0; r < FLYI_BLOCK; r++)
      if (bits[r] != ((uint64_t)1 << limit) - 1) snprintf(j->failure, sizeof j->failure, "wrong bits for %d", limit);
    fly_mask_release(&mask);
  }
  return NULL;
}

START_TEST(threads_compile_at_once) {
  enum { THREADS = 6 };
  for (int with_cache = 0; with_cache < 3; with_cache++) { /* the third time everything is there */
    pthread_t threads[THREADS];
    job jobs[THREADS];
    for (int i = 0; i < THREADS; i++) {
      jobs[i] = (job){.number = i, .cache = with_cache ? directory : ""};
      ck_assert_int_eq(pthread_create(&threads[i], NULL, compile_some, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
      pthread_join(threads[i], NULL);
      ck_assert_msg(!*jobs[i].failure, "%s", jobs[i].failure);
    }
  }
}
END_TEST

static long resident_pages(void) {
  long total, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  ck_assert_int_eq(fscanf(file, "%ld %ld", &total, &resident), 2);
  fclose(file);
  return resident;
}

START_TEST(masks_that_come_and_go_leave_nothing) {
  long before = 0;
  for (int i = 0; i < 600; i++) {
    fly_mask *mask = compile(window, "w.c", none);
    fly_mask_release(&mask);
    if (i == 299) before = resident_pages();
  }
  if (!SANITIZED) ck_assert_int_lt(resident_pages() - before, 128); /* of 4 KiB, for 300 masks */
}
END_TEST

/* ---- code -------------------------------------------------------------------------------------------------------- */

static char *emit_file(const char *path, const char *target, fly_emit what) {
  fly_error error = {0};
  static char source[65536];
  FILE *file = fopen(path, "r");
  ck_assert_ptr_nonnull(file);
  source[fread(source, 1, sizeof source - 1, file)] = 0;
  fclose(file);
  char *text;
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = "", .target = target};
  ck_fly_ok(fly_mask_emit(source, path, &options, what, &text, &error), error);
  return text;
}

/* The loop over the keys has become vectors, as wide as the target has them. (Masks that only order keys have none:
 * test_ranges.c.) */
START_TEST(masks_of_the_library_become_vectors) {
  static const char *const names[] = {"document", "chunked", "stochastic"};
  for (const char *const *target = fly_cpu_targets(); *target; target++)
    for (int i = 0; i < 3; i++) {
      char path[300];
      snprintf(path, sizeof path, "%s/masks/%s.c", FLYMASK_SOURCE, names[i]);
      char *ll = emit_file(path, *target, FLY_EMIT_LL), *text = emit_file(path, *target, FLY_EMIT_ASM);
      ck_assert_msg(strstr(ll, "icmp") && strstr(ll, "<16 x i32>"), "%s for %s:\n%s", names[i], *target, ll);
      ck_assert_ptr_null(strstr(ll, "call "
                                    "i1 @mask"));
      ck_assert_ptr_nonnull(strstr(text, "fly_tile_bits:"));
      bool zmm = strstr(text, "zmm"), ymm = strstr(text, "ymm");
      bool wanted = strncmp(*target, "x86-64-v4", 9) == 0  ? zmm
                    : strcmp(*target, "x86-64-v3") == 0 ? ymm && !zmm
                                                        : !ymm && !zmm;
      ck_assert_msg(wanted && strstr(text, "pcmp"), "%s for %s:\n%s", names[i], *target, text);
      free(ll), free(text);
    }
}
END_TEST

START_TEST(emit_refuses_what_compile_refuses) {
  fly_error error = {0};
  char *text = (char *)&error;
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = "", .target = "x86-64-v9"};
  ck_assert_int_eq(fly_mask_emit(window, "w.c", &options, FLY_EMIT_LL, &text, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_null(text);
  ck_assert_int_eq(fly_mask_emit(window, "w.c", NULL, (fly_emit)7, &text, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_mask_emit(window, "w.c", NULL, FLY_EMIT_LL, NULL, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_mask_emit("int x;", "w.c", NULL, FLY_EMIT_LL, &text, &error), FLY_ERROR_SOURCE);
}
END_TEST

/* Every mask of masks/, for every target, by both loaders: the same bits for the same call. */
START_TEST(all_targets_and_loaders_give_the_same_bits) {
  char folder[200], path[500];
  snprintf(folder, sizeof folder, "%s/masks", FLYMASK_SOURCE);
  DIR *masks = opendir(folder);
  ck_assert_ptr_nonnull(masks);
  int count = 0;
  for (struct dirent *e; (e = readdir(masks));) {
    if (!strstr(e->d_name, ".c")) continue;
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    uint64_t first[2][FLYI_BLOCK];
    for (const char *const *target = fly_cpu_targets(); *target; target++) {
      fly_error error = {0};
      fly_mask *mask;
      fly_arg args[16];
      const fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = "", .target = *target};
      ck_fly_ok(fly_mask_compile_file(path, &options, &mask, &error), error);
      compiled c = compiled_from_mask(mask);
      const fly_mask_info *info = fly_mask_get_info(mask);
      for (int i = 0; i < info->buffer_count; i++) {
        static uint8_t data[256 * 8];
        test_random random = {5};
        size_t size = fly_type_size(info->buffers[i].type);
        for (int k = 0; k < 256; k++) data[k * size] = (uint8_t)test_range(&random, 0, 3);
        fly_buffer *buffer;
        ck_fly_ok(fly_buffer_create(info->buffers[i].type, info->buffers[i].rank, (int64_t[]){4, 4, 4, 4}, data,
                                    &buffer, &error),
                  error);
        args[i] = FLY_CAPTURE(info->buffers[i].name, buffer);
      }
      const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = 2, .heads = 3, .len_q = 3000, .len_kv = 3000};
      compiled_call call = compiled_bind(&c, args, info->buffer_count, &geometry);
      for (int tile = 0; tile < 2; tile++) {
        uint64_t bits[FLYI_BLOCK];
        compiled_bits(&call, tile, 2 * tile, 128 + 640 * tile, 64 + 608 * tile, bits);
        if (target == fly_cpu_targets()) memcpy(first[tile], bits, sizeof bits);
        ck_assert_msg(memcmp(first[tile], bits, sizeof bits) == 0, "%s: %s", e->d_name, *target);
      }
      compiled_call_free(&call);
      for (int i = 0; i < info->buffer_count; i++) fly_buffer_release(&args[i].buffer);
      compiled_free(&c);
    }
    count++;
  }
  closedir(masks);
  ck_assert_int_ge(count, 8);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("compile");
  TCase *t = tcase_create("compile");
  tcase_add_checked_fixture(t, setup, teardown);
  tcase_add_test(t, the_second_compilation_comes_from_the_cache);
  tcase_add_test(t, whatever_changes_the_result_changes_the_entry);
  tcase_add_test(t, limits_do_not_change_the_entry);
  tcase_add_test(t, nothing_is_found_for_another_clang);
  tcase_add_test(t, nothing_is_found_when_the_clang_was_replaced);
  tcase_add_test(t, a_cached_mask_comes_within_5_ms);
  tcase_add_test(t, identity_is_the_meaning_alone);
  tcase_add_test(t, a_forged_identity_does_not_pair_other_slots);
  tcase_add_test(t, wrong_options_are_refused);
  tcase_add_test(t, errors_of_the_source_have_their_place);
  tcase_add_test(t, files_are_compiled_and_their_errors_reported);
  tcase_add_test(t, failing_allocations_are_reported_or_survived);
  tcase_add_test(t, threads_compile_at_once);
  tcase_add_test(t, masks_that_come_and_go_leave_nothing);
  tcase_add_test(t, masks_of_the_library_become_vectors);
  tcase_add_test(t, emit_refuses_what_compile_refuses);
  tcase_add_test(t, all_targets_and_loaders_give_the_same_bits);
  suite_add_tcase(s, t);
  return s;
}

FLY_TEST_MAIN(suite)
