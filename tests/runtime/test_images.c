/* Images built ahead of time, as the runtime library alone takes them: kernels of masks and score modifiers give what
 * the double-precision oracle says, forward and backward, between guard pages; another machine's images and damaged
 * ones are refused. CMakeLists.txt builds the images. */
#include "backward_case.h"
#include "images.h"
#include "load_code.h"
#include "native.h"
#include "oracle_score.h"

enum { POSITIONS = 1024 };

static int32_t doc[POSITIONS];

/* ---- masks ------------------------------------------------------------------------------------------------------- */

static const struct scene {
  const char *name;
  const char *parameter[3];
  int value[3];
} scenes[] = {
    {"causal", {0}, {0}},
    {"sliding_window", {"left", "right"}, {75, 3}},
    {"stochastic", {"left", "right", "causal"}, {40, 30, 1}},
    {"document", {0}, {0}},
};
enum { SCENES = sizeof scenes / sizeof *scenes };

static const char *const types[] = {"f32", "f16", "bf16"};

/* Grouped heads and row maps; strides, an offset, and queries behind all keys of a window; ragged lengths, none among
 * them; few queries over many keys. f16 and bf16 take one of the first three. */
static const int32_t cu_q[] = {0, 65, 66, 66, 110}, cu_kv[] = {0, 65, 67, 100, 144};
static const backward_spec specs[] = {
    {.call = {.heads = 4, .kv_heads = 2, .len_q = 129, .len_kv = 129, .q_rows = 1, .kv_rows = 1}},
    {.call = {.batch = 2, .heads = 2, .len_q = 70, .len_kv = 131, .q_offset = 150, .layout = LAYOUT_PADDED},
     .d_lse = true},
    {.call = {.batch = 4, .heads = 2, .kv_heads = 1, .cu_q = cu_q, .cu_kv = cu_kv}},
    {.call = {.heads = 8, .kv_heads = 2, .len_q = 1, .len_kv = 700, .q_offset = 699}},
};
enum { SPECS = sizeof specs / sizeof *specs };

static bool see_native(void *context, int b, int h, int q, int kv) {
  return ((native_mask *)context)->mask(b, h, q, kv);
}

static native_mask load_native(const struct scene *s) {
  native_mask native = native_load(s->name);
  for (int i = 0; i < 3 && s->parameter[i]; i++) native_set_int(&native, s->parameter[i], s->value[i]);
  for (int i = 0; i < POSITIONS; i++) doc[i] = i / 37 * 7 % 5;
  if (strcmp(s->name, "document") == 0) native_set_buffer(&native, "doc", doc, (int64_t[]){POSITIONS}, 1);
  return native;
}

static fly_bound *bind(const fly_kernel *kernel, const struct scene *s) {
  fly_arg args[4];
  fly_buffer *buffer = NULL;
  fly_bound *bound;
  fly_error error = {0};
  int count = 0;
  for (; count < 3 && s->parameter[count]; count++) args[count] = FLY_INT(s->parameter[count], s->value[count]);
  if (strcmp(s->name, "document") == 0) {
    ck_fly_ok(fly_buffer_create(FLY_I32, 1, (int64_t[]){POSITIONS}, doc, &buffer, &error), error);
    args[count++] = FLY_CAPTURE("doc", buffer);
  }
  ck_fly_ok(fly_mask_bind(fly_kernel_mask(kernel), args, count, &bound, &error), error);
  fly_buffer_release(&buffer);
  return bound;
}

/* A call of the kernel's shape whose rows the mask, as ordinary C, knows. */
static void start(backward_case *t, const backward_spec *from, fly_kernel *kernel, fly_bound *bound,
                  native_mask *native) {
  backward_spec spec = *from;
  spec.call.type = kernel->desc.type, spec.call.dim = kernel->desc.head_dim;
  spec.call.value_dim = kernel->desc.value_dim;
  backward_init(t, &spec, see_none, NULL);
  fly_attention *c = &t->base.call;
  native_set_context(native, &c->geometry);
  c->kernel = kernel, c->bound = bound, c->map = NULL;
}

/* Forward with a map made for the call, and with a coarse one at hand; backward. */
static void run(backward_case *t, native_mask *native, const char *what) {
  fly_error error = {0};
  fly_map *map;
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = 64, .tile_kv = 64, .fast = true};
  fly_attention *c = &t->base.call;
  call_reset(&t->base);
  ck_fly_ok(fly_attention_forward(c, &error), error);
  oracle_check(c, see_native, native, CALL_UNTOUCHED, what);
  ck_fly_ok(fly_map_build(c->bound, &c->geometry, &options, &map, &error), error);
  c->map = map;
  call_reset(&t->base);
  ck_fly_ok(fly_attention_forward(c, &error), error);
  oracle_check(c, see_native, native, CALL_UNTOUCHED, what);
  c->map = NULL;
  fly_map_release(&map);
  oracle_forward(c, see_native, native);
  backward_run(t);
  oracle_check_backward(c, see_native, native, what);
}

START_TEST(masks_attend_as_the_oracle_says) {
  const struct scene *s = &scenes[_i % SCENES];
  int type = _i / SCENES;
  native_mask native = load_native(s);
  fly_kernel *kernel = image_kernel(s->name, types[type]);
  fly_bound *bound = bind(kernel, s);
  for (int i = 0; i < SPECS; i++) {
    backward_case t;
    char what[128];
    if (type && i < 3 && i != (type + _i) % 3) continue;
    snprintf(what, sizeof what, "%s %s, call %d", s->name, types[type], i);
    start(&t, &specs[i], kernel, bound, &native);
    run(&t, &native, what);
    backward_free(&t);
  }
  fly_bound_release(&bound);
  fly_kernel_release(&kernel);
  native_close(&native);
}
END_TEST

START_TEST(any_number_of_threads_gives_the_same_bits) {
  const struct scene *s = &scenes[1];
  native_mask native = load_native(s);
  fly_kernel *kernel = image_kernel(s->name, "f32");
  fly_bound *bound = bind(kernel, s);
  backward_case t;
  uint64_t first = 0;
  backward_spec spec = {.call = {.heads = 4, .kv_heads = 2, .len_q = 300, .len_kv = 300}};
  for (int threads = 1; threads <= 3; threads++) {
    start(&t, &spec, kernel, bound, &native);
    t.base.call.threads = threads;
    backward_run(&t);
    uint64_t digest = backward_digest(&t);
    if (threads == 1) first = digest;
    ck_assert_msg(digest == first, "%d threads", threads);
    backward_free(&t);
  }
  fly_bound_release(&bound);
  fly_kernel_release(&kernel);
  native_close(&native);
}
END_TEST

/* ---- score modifiers and sinks ----------------------------------------------------------------------------------- */

static double formula_alibi(void *context, double s, int b, int h, int q, int kv) {
  (void)context, (void)b;
  return s - exp2(-8. * (h + 1) / 8) * fabs((double)q - kv);
}

static double formula_softcap(void *context, double s, int b, int h, int q, int kv) {
  (void)context, (void)b, (void)h, (void)q, (void)kv;
  return 1.5 * tanh(s / 1.5);
}

static const struct {
  const char *image, *type;
  oracle_modifier *formula;
} modifiers[] = {
    {"alibi", "f32", formula_alibi}, {"softcap", "f16", formula_softcap}, {"softcap", "bf16", formula_softcap}};
enum { MODIFIERS = sizeof modifiers / sizeof *modifiers };

START_TEST(score_modifiers_and_sinks_attend_as_the_oracle_says) { /* over causal masks */
  fly_error error = {0};
  fly_kernel *kernel = image_kernel(modifiers[_i].image, modifiers[_i].type);
  fly_bound *bound, *score;
  fly_arg cap = FLY_REAL("cap", 1.5);
  native_mask native = native_load("causal");
  ck_fly_ok(fly_mask_bind(fly_kernel_mask(kernel), NULL, 0, &bound, &error), error);
  ck_fly_ok(fly_score_bind(fly_kernel_score(kernel), &cap, _i > 0, &score, &error), error);
  backward_case t;
  backward_spec spec = {.call = {.heads = 4, .kv_heads = 2, .len_q = 90, .len_kv = 140, .q_offset = 50}, .d_lse = true};
  start(&t, &spec, kernel, bound, &native);
  fly_attention *c = &t.base.call;
  float *sink = guard_alloc(4 * sizeof *sink, 4, 0), *d_sink = guard_alloc(4 * sizeof *d_sink, 4, 1);
  for (int h = 0; h < 4; h++) sink[h] = (float)(h % 3) * 1.5f - 1;
  c->score = score;
  c->sink = fly_tensor_dense(sink, FLY_F32, 1, 4, 1, 1), c->d_sink = fly_tensor_dense(d_sink, FLY_F32, 1, 4, 1, 1);
  oracle_scored oracle = {.call = c, .see = see_native, .see_context = &native, .modify = modifiers[_i].formula};
  call_reset(&t.base);
  ck_fly_ok(fly_attention_forward(c, &error), error);
  oracle_scored_check(&oracle, modifiers[_i].image);
  oracle_scored_forward(&oracle);
  backward_run(&t);
  oracle_scored_check_backward(&oracle, modifiers[_i].image);
  backward_free(&t);
  guard_free(sink), guard_free(d_sink);
  fly_bound_release(&score);
  fly_bound_release(&bound);
  fly_kernel_release(&kernel);
  native_close(&native);
}
END_TEST

/* ---- what is refused --------------------------------------------------------------------------------------------- */

START_TEST(an_image_for_another_machine_is_refused) {
  size_t size;
  fly_error error = {0};
  fly_kernel *kernel;
  char wanted[128];
  const char *here = flyi_isa_machine(FLYI_ISA_FIRST);
  snprintf(wanted, sizeof wanted, "it is for %s, and this machine is %s",
           strcmp(here, "aarch64") == 0 ? "x86-64" : "aarch64", here);
  void *bytes = image_read("foreign", "f32", &size);
  ck_assert_int_eq(fly_kernel_load(bytes, size, &kernel, &error), FLY_ERROR_IMAGE);
  ck_assert_msg(strstr(error.message, wanted) != NULL, "\"%s\" is not in \"%s\"", wanted, error.message);
  ck_assert_ptr_null(kernel);
  free(bytes);
}
END_TEST

/* Every truncation is refused, and a changed byte is refused or other code: it never reads or writes outside. */
START_TEST(damaged_code_does_not_crash_the_loader) {
  static const uint8_t changes[] = {0x01, 0x80, 0xff};
  fly_error error = {0};
  fly_kernel *kernel = image_kernel("stochastic", "f32");
  flyi_section object = kernel->mask->image.code;
  uint8_t *bytes = malloc(object.size);
  int refused = 0;
  memcpy(bytes, object.data, object.size);
  for (size_t size = 0; size < object.size; size += size % 7 + 1)
    ck_assert_int_eq(test_load_code(object.data, size, &error), FLY_ERROR_IMAGE);
  for (size_t at = 0; at < object.size; at++) {
    uint8_t change = changes[at % 3];
    bytes[at] ^= change;
    refused += test_load_code(bytes, object.size, &error) != FLY_OK;
    bytes[at] ^= change;
  }
  ck_assert_int_gt(refused, 100);
  free(bytes);
  fly_kernel_release(&kernel);
}
END_TEST

START_TEST(no_page_is_writable_and_executable) {
  fly_kernel *kernel = image_kernel("stochastic", "f32");
  flyi_code *code = &kernel->mask->code;
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[512], pages[5];
  unsigned long low, high, entry = 0;
  int found = 0;
  memcpy(&entry, &code->tile, sizeof entry);
  while (fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%lx-%lx %4s", &low, &high, pages) != 3) continue;
    ck_assert_msg(!(pages[1] == 'w' && pages[2] == 'x'), "%s", line);
    if (entry >= low && entry < high) found += strcmp(pages, "r-xp") == 0;
  }
  ck_assert_int_eq(found, 1);
  fclose(maps);
  fly_kernel_release(&kernel);
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("images");
  TCase *tests = tcase_create("images");
  tcase_add_loop_test(tests, masks_attend_as_the_oracle_says, 0, 3 * SCENES);
  tcase_add_test(tests, any_number_of_threads_gives_the_same_bits);
  tcase_add_loop_test(tests, score_modifiers_and_sinks_attend_as_the_oracle_says, 0, MODIFIERS);
  tcase_add_test(tests, an_image_for_another_machine_is_refused);
  tcase_add_test(tests, damaged_code_does_not_crash_the_loader);
  tcase_add_test(tests, no_page_is_writable_and_executable);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(suite)
