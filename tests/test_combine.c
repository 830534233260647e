/* Combined masks answer what C's operators would of the parts' answers, keep everything the parts declare, and
 * combine again. */
#include "compiled.h"

#include <flymask/flymask.h>
#include <unistd.h>

enum { N = FLYI_BLOCK };

static const char causal[] = "#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) { return kv <= q; }\n";
static const char window[] = "#include <flymask/mask.h>\nFLY_PARAM(int, left, 5);\nFLY_PARAM(int, size, 7);\n"
                             "bool mask(int b, int h, int q, int kv) { return q - kv <= left && q / size != 3; }\n";
static const char blocks[] = "#include <flymask/mask.h>\nFLY_PARAM(int, size, 10);\nFLY_BUFFER(uint8_t, left, 1);\n"
                             "static const int table[4] = {0, 1, 1, 0};\n"
                             "bool mask(int b, int h, int q, int kv) {\n"
                             "  return left[q / size] == left[kv / size] || table[(q ^ kv) & 3];\n}\n";
static const char tokens[] =
    "#include <flymask/mask.h>\nFLY_PARAM(int, gap, 9);\nstatic const int table[4] = {5, 0, 0, 5};\n"
    "bool mask(int b, int h, int q, int kv) {\n"
    "  return fly_token_kv(b, h, kv) % gap != fly_token_q(b, h, q) % table[h & 3] && kv < fly_len_kv(b) - 2;\n}\n";

static const uint8_t left_data[8] = {0, 1, 2, 0, 1, 1, 2, 0};

/* ---- the same in C ----------------------------------------------------------------------------------------------- */

static bool see_causal(int q, int kv) { return kv <= q; }
static bool see_window(int q, int kv, int left, int size) { return q - kv <= left && q / size != 3; }
static bool see_blocks(int q, int kv, int size) {
  static const int table[4] = {0, 1, 1, 0};
  int i = q / size > 7 ? 7 : q / size, j = kv / size > 7 ? 7 : kv / size;
  return left_data[i] == left_data[j] || table[(q ^ kv) & 3];
}

static fly_mask *compile(const char *source, const char *name) {
  fly_error error = {0};
  fly_mask *mask;
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = ""};
  ck_fly_ok(fly_mask_compile(source, name, &options, &mask, &error), error);
  return mask;
}

/* Takes over the references. */
static fly_mask *combine(fly_combine how, fly_mask *left, fly_mask *right, const char *target) {
  fly_error error = {0};
  fly_mask *mask;
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = "", .target = target};
  ck_fly_ok(fly_mask_combine(how, left, right, &options, &mask, &error), error);
  fly_mask_release(&left);
  fly_mask_release(&right);
  return mask;
}

static bool has(const fly_mask *mask, const char *name) {
  const fly_mask_info *info = fly_mask_get_info(mask);
  for (int i = 0; i < info->parameter_count; i++)
    if (strcmp(info->parameters[i].name, name) == 0) return true;
  for (int i = 0; i < info->buffer_count; i++)
    if (strcmp(info->buffers[i].name, name) == 0) return true;
  return false;
}

static fly_buffer *left_buffer(void) {
  fly_error error = {0};
  fly_buffer *buffer;
  ck_fly_ok(fly_buffer_create(FLY_U8, 1, (int64_t[]){8}, left_data, &buffer, &error), error);
  return buffer;
}

static const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = 1, .heads = 4, .len_q = N, .len_kv = N};

static void bits_of(const compiled *c, const fly_arg *args, int count, int h, uint64_t bits[N]) {
  compiled_call call = compiled_bind(c, args, count, &geometry);
  compiled_bits(&call, 0, h, 0, 0, bits);
  compiled_call_free(&call);
}

START_TEST(and_or_and_not_are_c_operators) {
  fly_buffer *left = left_buffer();
  for (const char *const *target = fly_cpu_targets(); *target; target++) {
    for (int how = FLY_AND; how <= FLY_NOT; how++) {
      fly_mask *right = how == FLY_NOT ? NULL : compile(causal, "causal.c");
      compiled c = compiled_from_mask(combine((fly_combine)how, compile(blocks, "blocks.c"), right, *target));
      ck_assert_str_eq(fly_mask_get_info(c.mask)->target, *target);
      uint64_t bits[N];
      bits_of(&c, (fly_arg[]){FLY_CAPTURE("left", left), FLY_INT("size", 6)}, 2, 0, bits);
      for (int q = 0; q < N; q++)
        for (int kv = 0; kv < N; kv++) {
          bool l = see_blocks(q, kv, 6), r = see_causal(q, kv);
          ck_assert_int_eq(bits[q] >> kv & 1, how == FLY_AND ? l && r : how == FLY_OR ? l || r : !l);
        }
      compiled_free(&c);
    }
  }
  fly_buffer_release(&left);
}
END_TEST

START_TEST(names_that_both_have_get_a_suffix) {
  fly_buffer *left = left_buffer();
  /* left is a parameter here and a buffer there; size is a parameter of both */
  compiled c = compiled_from_mask(combine(FLY_AND, compile(window, "window.c"), compile(blocks, "blocks.c"), NULL));
  const fly_mask_info *info = fly_mask_get_info(c.mask);
  ck_assert_str_eq(info->name, "(window.c and blocks.c)");
  ck_assert_int_eq(info->parameter_count, 3);
  ck_assert_int_eq(info->buffer_count, 1);
  ck_assert(has(c.mask, "left.left") && has(c.mask, "left.right") && has(c.mask, "size.left") &&
            has(c.mask, "size.right"));
  uint64_t bits[N];
  bits_of(&c,
          (fly_arg[]){FLY_INT("left.left", 20), FLY_INT("size.right", 9), FLY_CAPTURE("left.right", left),
                      FLY_INT("size.left", 8)},
          4, 0, bits);
  for (int q = 0; q < N; q++)
    for (int kv = 0; kv < N; kv++)
      ck_assert_int_eq(bits[q] >> kv & 1, see_window(q, kv, 20, 8) && see_blocks(q, kv, 9));
  compiled_free(&c);
  fly_buffer_release(&left);
}
END_TEST

START_TEST(a_mask_combines_with_itself) {
  fly_error error = {0};
  fly_mask *w = compile(window, "w.c"), *both;
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = ""};
  ck_fly_ok(fly_mask_combine(FLY_OR, w, w, &options, &both, &error), error);
  fly_mask_release(&w);
  compiled c = compiled_from_mask(both);
  uint64_t bits[N];
  bits_of(&c, (fly_arg[]){FLY_INT("left.left", 3), FLY_INT("left.right", -4), FLY_INT("size.right", 2)}, 3, 0, bits);
  for (int q = 0; q < N; q++)
    for (int kv = 0; kv < N; kv++)
      ck_assert_int_eq(bits[q] >> kv & 1, see_window(q, kv, 3, 7) || see_window(q, kv, -4, 2));
  compiled_free(&c);
}
END_TEST

/* left.left comes from a combination, and would come again from the next. */
START_TEST(combined_masks_combine_again_without_clashes) {
  fly_mask *both = combine(FLY_AND, compile(window, "a.c"), compile(window, "b.c"), NULL); /* left.left, left.right */
  fly_mask *three = combine(FLY_OR, both, compile(window, "c.c"), NULL);                   /* and left */
  ck_assert(has(three, "left.left") && has(three, "left.right") && has(three, "left"));
  compiled c = compiled_from_mask(combine(FLY_AND, three, compile(window, "d.c"), NULL));
  ck_assert_int_eq(fly_mask_get_info(c.mask)->parameter_count, 8);
  ck_assert(has(c.mask, "left.left.left") && has(c.mask, "left.right.left") && has(c.mask, "left.left") &&
            has(c.mask, "left.right"));
  ck_assert_str_eq(fly_mask_get_info(c.mask)->name, "(((a.c and b.c) or c.c) and d.c)");
  uint64_t bits[N]; /* of a, c and d; b keeps its default */
  const fly_arg args[] = {FLY_INT("left.left.left", 3), FLY_INT("left.left", 20), FLY_INT("left.right", 30)};
  bits_of(&c, args, 3, 0, bits);
  for (int q = 0; q < N; q++)
    for (int kv = 0; kv < N; kv++) {
      bool wanted = ((see_window(q, kv, 3, 7) && see_window(q, kv, 5, 7)) || see_window(q, kv, 20, 7)) &&
                    see_window(q, kv, 30, 7);
      ck_assert_int_eq(bits[q] >> kv & 1, wanted);
    }
  compiled_free(&c);
}
END_TEST

START_TEST(depth_does_not_matter) {
  fly_mask *mask = compile(causal, "c.c");
  for (int i = 0; i < 9; i++) mask = combine(FLY_NOT, mask, NULL, NULL);
  for (int i = 0; i < 6; i++) mask = combine(FLY_OR, mask, compile(window, "w.c"), NULL);
  compiled c = compiled_from_mask(mask);
  ck_assert_int_eq(fly_mask_get_info(c.mask)->parameter_count, 12);
  uint64_t bits[N];
  bits_of(&c, NULL, 0, 0, bits);
  for (int q = 0; q < N; q++)
    for (int kv = 0; kv < N; kv++) ck_assert_int_eq(bits[q] >> kv & 1, kv > q || see_window(q, kv, 5, 7));
  compiled_free(&c);
}
END_TEST

START_TEST(tokens_lengths_and_tables_are_kept_apart_or_shared) {
  int32_t rows[N];
  for (int i = 0; i < N; i++) rows[i] = (i * 29 + 3) % N;
  fly_buffer *left = left_buffer();
  fly_mask *right = combine(FLY_NOT, compile(tokens, "t.c"), NULL, NULL);
  compiled c = compiled_from_mask(
      combine(FLY_AND, compile(tokens, "t.c"), combine(FLY_OR, compile(blocks, "b.c"), right, NULL), NULL));
  ck_assert(fly_mask_get_info(c.mask)->reads_token_q && fly_mask_get_info(c.mask)->reads_len_kv);
  fly_geometry g = geometry;
  g.q_rows.rows = g.kv_rows.rows = rows;
  const fly_arg args[] = {FLY_CAPTURE("left", left), FLY_INT("gap.left", 4), FLY_INT("gap.right", 11)};
  compiled_call call = compiled_bind(&c, args, 3, &g);
  for (int h = 0; h < 4; h++) {
    static const int table[4] = {5, 0, 0, 5};
    uint64_t bits[N];
    compiled_bits(&call, 0, h, 0, 0, bits);
    for (int q = 0; q < N; q++)
      for (int kv = 0; kv < N; kv++) {
        int t = table[h & 3] ? rows[q] % table[h & 3] : rows[q];
        bool l = rows[kv] % 4 != t && kv < N - 2, r = rows[kv] % 11 != t && kv < N - 2;
        ck_assert_int_eq(bits[q] >> kv & 1, l && (see_blocks(q, kv, 10) || !r));
      }
  }
  compiled_call_free(&call);
  compiled_free(&c);
  fly_buffer_release(&left);
}
END_TEST

START_TEST(baked_parameters_stay_baked) {
  fly_error error = {0};
  fly_mask *baked, *mask;
  fly_bound *bound;
  const fly_arg bake[] = {FLY_INT("size", 3)}, bake_again[] = {FLY_INT("left", 11)}, other[] = {FLY_INT("size", 4)};
  fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = "", .bake = bake, .bake_count = 1};
  ck_fly_ok(fly_mask_compile(window, "w.c", &options, &baked, &error), error);
  options.bake = bake_again;
  ck_fly_ok(fly_mask_combine(FLY_NOT, baked, NULL, &options, &mask, &error), error);
  ck_assert_int_eq(fly_mask_bind(mask, other, 1, &bound, &error), FLY_ERROR_ARGUMENT);
  options.bake = other;
  fly_mask *refused = mask;
  ck_assert_int_eq(fly_mask_combine(FLY_NOT, baked, NULL, &options, &refused, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_null(refused);
  compiled c = compiled_from_mask(mask);
  uint64_t bits[N];
  bits_of(&c, NULL, 0, 0, bits);
  for (int q = 0; q < N; q++)
    for (int kv = 0; kv < N; kv++) ck_assert_int_eq(bits[q] >> kv & 1, !see_window(q, kv, 11, 3));
  compiled_free(&c);
  fly_mask_release(&baked);
}
END_TEST

START_TEST(combinations_are_cached_by_what_they_mean) {
  char directory[] = "/tmp/flymask-test-XXXXXX", command[80];
  ck_assert_ptr_nonnull(mkdtemp(directory));
  fly_error error = {0};
  fly_mask *w = compile(window, "w.c"), *c = compile(causal, "c.c"), *out;
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = directory};
  const struct {
    fly_combine how;
    const fly_mask *left, *right;
    bool cached;
  } calls[] = {{FLY_AND, w, c, false},    {FLY_AND, w, c, true},     {FLY_OR, w, c, false},    {FLY_AND, c, w, false},
               {FLY_NOT, w, NULL, false}, {FLY_NOT, c, NULL, false}, {FLY_NOT, w, NULL, true}, {FLY_AND, c, w, true}};
  flyi_hash seen[8];
  for (int i = 0; i < 8; i++) {
    ck_fly_ok(fly_mask_combine(calls[i].how, calls[i].left, calls[i].right, &options, &out, &error), error);
    ck_assert_msg(fly_mask_get_info(out)->from_cache == calls[i].cached, "call %d", i);
    seen[i] = out->image.identity;
    for (int j = 0; j < i; j++)
      ck_assert_int_eq(flyi_hash_equal(seen[i], seen[j]),
                       (i == 1 && j == 0) || (i == 6 && j == 4) || (i == 7 && j == 3));
    fly_mask_release(&out);
  }
  fly_mask_release(&w), fly_mask_release(&c);
  snprintf(command, sizeof command, "rm -r %s", directory);
  ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(wrong_calls_are_refused) {
  fly_error error = {0};
  fly_mask *c = compile(causal, "c.c"), *out = c;
  const fly_compile_options bad = {.size = 1};
  ck_assert_int_eq(fly_mask_combine(FLY_AND, c, NULL, NULL, &out, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_null(out);
  ck_assert_int_eq(fly_mask_combine(FLY_OR, NULL, c, NULL, &out, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_mask_combine(FLY_NOT, c, c, NULL, &out, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_mask_combine((fly_combine)9, c, c, NULL, &out, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_mask_combine(FLY_AND, c, c, &bad, &out, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_mask_combine(FLY_AND, c, c, NULL, NULL, &error), FLY_ERROR_ARGUMENT);
  fly_mask_release(&c);
}
END_TEST

START_TEST(a_mask_without_ir_says_so) {
  fly_error error = {0};
  fly_mask *c = compile(causal, "c.c"), *bare, *out;
  flyi_image image = c->image;
  flyi_bytes bytes;
  image.ir = (flyi_section){0};
  ck_fly_ok(flyi_image_write(&image, &bytes, &error), error);
  ck_fly_ok(flyi_mask_from_image(bytes.data, bytes.size, (flyi_code){0}, FLYI_LOADED, &bare, &error), error);
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = ""};
  ck_assert_int_eq(fly_mask_combine(FLY_AND, c, bare, &options, &out, &error), FLY_ERROR_UNSUPPORTED);
  ck_assert_ptr_nonnull(strstr(error.message, "c.c comes from an image without IR"));
  fly_mask_release(&c), fly_mask_release(&bare);
}
END_TEST

START_TEST(names_that_grow_too_long_are_refused) {
  fly_error error = {0};
  fly_mask *w = compile(window, "w.c"), *grown, *out;
  flyi_image image = w->image;
  flyi_parameter parameters[2] = {image.parameters[0], image.parameters[1]};
  flyi_bytes bytes;
  char name[1011]; /* an image takes it; with a suffix it would not */
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = 0;
  parameters[0].name = name;
  image.parameters = parameters;
  ck_fly_ok(flyi_image_write(&image, &bytes, &error), error);
  ck_fly_ok(flyi_mask_from_image(bytes.data, bytes.size, (flyi_code){0}, FLYI_LOADED, &grown, &error), error);
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = ""};
  ck_assert_int_eq(fly_mask_combine(FLY_AND, w, grown, &options, &out, &error), FLY_ERROR_UNSUPPORTED);
  ck_assert_ptr_nonnull(strstr(error.message, "too long"));
  fly_mask_release(&w), fly_mask_release(&grown);
}
END_TEST

/* `mask` with as many parameters and buffers as an image takes, that its code does not read. */
static fly_mask *grown(const fly_mask *mask, int parameter_count, int buffer_count) {
  fly_error error = {0};
  flyi_image image = mask->image;
  flyi_bytes bytes;
  fly_mask *out;
  static flyi_parameter parameters[FLYI_MAX_PARAMETERS];
  static fly_buffer_info buffers[FLYI_MAX_BUFFERS];
  static char names[FLYI_MAX_PARAMETERS + FLYI_MAX_BUFFERS][8];
  for (int i = 0; i < parameter_count; i++) {
    sprintf(names[i], "p%d", i);
    parameters[i] = (flyi_parameter){.name = names[i], .type = FLY_I32};
  }
  for (int i = 0; i < buffer_count; i++) {
    sprintf(names[FLYI_MAX_PARAMETERS + i], "b%d", i);
    buffers[i] = (fly_buffer_info){names[FLYI_MAX_PARAMETERS + i], FLY_I8, 1};
  }
  image.parameters = parameters, image.parameter_count = parameter_count;
  image.buffers = buffers, image.buffer_count = buffer_count;
  ck_fly_ok(flyi_image_write(&image, &bytes, &error), error);
  ck_fly_ok(flyi_mask_from_image(bytes.data, bytes.size, (flyi_code){0}, FLYI_LOADED, &out, &error), error);
  return out;
}

/* Each fits an image, both together do not. */
START_TEST(more_than_an_image_holds_is_refused) {
  fly_error error = {0};
  fly_mask *c = compile(causal, "c.c"), *w = compile(window, "w.c"), *b = compile(blocks, "b.c"), *out;
  fly_mask *parameters = grown(c, FLYI_MAX_PARAMETERS - 1, 0), *buffers = grown(c, 0, FLYI_MAX_BUFFERS);
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = ""};
  ck_assert_int_eq(fly_mask_combine(FLY_AND, w, parameters, &options, &out, &error), FLY_ERROR_UNSUPPORTED);
  ck_assert_ptr_nonnull(strstr(error.message, "1025 parameters together: an image holds 1024"));
  ck_assert_int_eq(fly_mask_combine(FLY_AND, buffers, b, &options, &out, &error), FLY_ERROR_UNSUPPORTED);
  ck_assert_ptr_nonnull(strstr(error.message, "257 buffers together: an image holds 256"));
  ck_fly_ok(fly_mask_combine(FLY_AND, b, parameters, &options, &out, &error), error); /* 1024 parameters, 1 buffer */
  ck_assert_int_eq(fly_mask_get_info(out)->parameter_count, FLYI_MAX_PARAMETERS);
  fly_mask_release(&out);
  fly_mask_release(&c), fly_mask_release(&w), fly_mask_release(&b);
  fly_mask_release(&parameters), fly_mask_release(&buffers);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("combine");
  TCase *t = tcase_create("combine");
  tcase_add_test(t, and_or_and_not_are_c_operators);
  tcase_add_test(t, names_that_both_have_get_a_suffix);
  tcase_add_test(t, a_mask_combines_with_itself);
  tcase_add_test(t, combined_masks_combine_again_without_clashes);
  tcase_add_test(t, depth_does_not_matter);
  tcase_add_test(t, tokens_lengths_and_tables_are_kept_apart_or_shared);
  tcase_add_test(t, baked_parameters_stay_baked);
  tcase_add_test(t, combinations_are_cached_by_what_they_mean);
  tcase_add_test(t, wrong_calls_are_refused);
  tcase_add_test(t, a_mask_without_ir_says_so);
  tcase_add_test(t, names_that_grow_too_long_are_refused);
  tcase_add_test(t, more_than_an_image_holds_is_refused);
  suite_add_tcase(s, t);
  return s;
}

FLY_TEST_MAIN(suite)
