/* The masks of masks/, through forward attention, against the oracle with the same masks compiled as ordinary C: once
 * as a user runs them (compiled, analysed, the map built for the call), and once with the tile template compiled
 * natively around them, which the sanitizers can see. */
#include <dlfcn.h>

#include "support/call_case.h"
#include "support/native.h"

enum { POSITIONS = 1024, DOCUMENT = 37, SELECTED = 9 };

static int32_t doc[POSITIONS];
static uint8_t bitmap[SELECTED][SELECTED];

static const struct mask_case {
  const char *name;
  const char *parameter[3];
  int value[3];
} masks[] = {
    {"full", {0}, {0}},
    {"causal", {0}, {0}},
    {"sliding_window", {"left", "right"}, {75, 0}},
    {"sliding_window", {"left", "right"}, {-1, 20}},
    {"prefix_lm", {"prefix"}, {90}},
    {"document", {0}, {0}},
    {"chunked", {"size"}, {50}},
    {"block_sparse", {"size"}, {32}},
    {"stochastic", {"left", "right", "causal"}, {64, 64, 1}},
    {"stochastic", {"left", "right", "causal"}, {64, 100, 3}},
};
enum { MASKS = sizeof masks / sizeof masks[0] };

static const int32_t cu_q[] = {0, 100, 101, 101, 330}, cu_kv[] = {0, 129, 131, 200, 420};

/* Lengths of whole blocks first: a mask that is ordinary C reads buffers and row maps beyond them unclamped. */
static const call_spec specs[] = {
    {.dim = 32, .len_q = 256, .len_kv = 256, .heads = 2, .kv_heads = 1, .q_rows = 1, .kv_rows = 1},
    {.type = FLY_F16,
     .dim = 16,
     .value_dim = 24,
     .batch = 2,
     .heads = 2,
     .len_q = 128,
     .len_kv = 320,
     .q_offset = 192,
     .q_rows = 2,
     .kv_rows = 2,
     .out_rows = 1},
    {.type = FLY_BF16, .dim = 40, .len_q = 193, .len_kv = 257, .q_offset = 64, .layout = LAYOUT_BSHD, .heads = 3},
    {.dim = 20, .batch = 4, .heads = 4, .kv_heads = 2, .cu_q = cu_q, .cu_kv = cu_kv, .kv_rows = 3},
};
enum { SPECS = sizeof specs / sizeof specs[0], WHOLE_BLOCKS = 2 };

/* ---- the mask as ordinary C ------------------------------------------------------------------------------------ */

static bool see_native(void *context, int b, int h, int q, int kv) {
  return ((native_mask *)context)->mask(b, h, q, kv);
}

static void load(native_mask *native, const struct mask_case *m, const char *prefix) {
  char path[512];
  snprintf(path, sizeof path, "%s/tests/%s_%s.so", FLYMASK_BUILD, prefix, m->name);
  *native = native_load_path(path);
  for (int i = 0; i < 3 && m->parameter[i]; i++) native_set_int(native, m->parameter[i], m->value[i]);
  for (int i = 0; i < POSITIONS; i++) doc[i] = i / DOCUMENT * 7 % 5;
  for (int i = 0; i < SELECTED; i++)
    for (int j = 0; j < SELECTED; j++) bitmap[i][j] = (i * 5 + j * 3) % 4 == 0 || i == j;
  if (strcmp(m->name, "document") == 0) native_set_buffer(native, "doc", doc, (int64_t[]){POSITIONS}, 1);
  if (strcmp(m->name, "block_sparse") == 0)
    native_set_buffer(native, "bitmap", bitmap, (int64_t[]){SELECTED, SELECTED}, 2);
}

/* A call whose rows the mask knows, though the handmade map asks it while the call is being made. */
static void start(call_case *t, const call_spec *spec, native_mask *native) {
  call_init(t, spec, see_none, NULL);
  native_set_context(native, &t->call.geometry);
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), t->spec.type, t->spec.dim, t->spec.value_dim, t->spec.target};
  handmade_free(&t->made);
  handmade_init(&t->made, see_native, native, spec->tile, &desc, &t->call.geometry, t->spec.tile_q, t->spec.tile_kv, 0);
  t->call.kernel = t->made.kernel;
}

/* ---- compiled -------------------------------------------------------------------------------------------------- */

static fly_bound *bind(fly_mask *mask, const struct mask_case *m) {
  fly_arg args[4];
  fly_buffer *buffer = NULL;
  fly_bound *bound;
  fly_error error;
  int count = 0;
  for (; count < 3 && m->parameter[count]; count++) args[count] = FLY_INT(m->parameter[count], m->value[count]);
  if (strcmp(m->name, "document") == 0) {
    ck_fly_ok(fly_buffer_create(FLY_I32, 1, (int64_t[]){POSITIONS}, doc, &buffer, &error), error);
    args[count++] = FLY_CAPTURE("doc", buffer);
  } else if (strcmp(m->name, "block_sparse") == 0) {
    ck_fly_ok(fly_buffer_create(FLY_U8, 2, (int64_t[]){SELECTED, SELECTED}, bitmap, &buffer, &error), error);
    args[count++] = FLY_CAPTURE("bitmap", buffer);
  }
  ck_fly_ok(fly_mask_bind(mask, args, count, &bound, &error), error);
  fly_buffer_release(&buffer);
  return bound;
}

static void run_compiled(call_case *t, fly_mask *mask, fly_bound *bound, native_mask *native, const char *what) {
  fly_error error;
  fly_attention call = t->call;
  fly_kernel *kernel;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), t->spec.type, t->spec.dim, t->spec.value_dim, NULL};
  ck_fly_ok(fly_kernel_create(mask, &desc, &kernel, &error), error);
  call.kernel = kernel, call.bound = bound, call.map = NULL;
  ck_fly_ok(fly_attention_forward(&call, &error), error);
  oracle_check(&call, see_native, native, CALL_UNTOUCHED, what);
  for (int fast = 0; fast <= 1; fast++) { /* a map at hand, of smaller tiles, settled or not */
    fly_map *map;
    fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = 64, .tile_kv = 64, .fast = fast};
    ck_fly_ok(fly_map_build(bound, &call.geometry, &options, &map, &error), error);
    call.map = map;
    call_reset(t);
    ck_fly_ok(fly_attention_forward(&call, &error), error);
    oracle_check(&call, see_native, native, CALL_UNTOUCHED, what);
    fly_map_release(&map);
  }
  fly_kernel_release(&kernel);
}

START_TEST(compiled_masks_attend_as_the_oracle_says) {
  const struct mask_case *m = &masks[_i % MASKS];
  native_mask native;
  char path[512], what[256];
  load(&native, m, "native");
  snprintf(path, sizeof path, "%s/masks/%s.c", FLYMASK_SOURCE, m->name);
  CALL_FOR_TARGETS(target) {
    fly_compile_options options = {FLY_INIT(fly_compile_options), .target = target};
    fly_mask *mask;
    fly_error error;
    ck_fly_ok(fly_mask_compile_file(path, &options, &mask, &error), error);
    fly_bound *bound = bind(mask, m);
    call_case t;
    call_spec spec = specs[_i / MASKS];
    spec.target = target;
    snprintf(what, sizeof what, "%s %d %d on %s, call %d", m->name, m->value[0], m->value[1], target, _i / MASKS);
    start(&t, &spec, &native);
    run_compiled(&t, mask, bound, &native, what);
    call_free(&t);
    fly_bound_release(&bound);
    fly_mask_release(&mask);
  }
  native_close(&native);
}
END_TEST

START_TEST(native_template_attends_as_the_oracle_says) {
  const struct mask_case *m = &masks[_i % MASKS];
  native_mask native;
  char what[256];
  load(&native, m, "native_tile");
  call_spec spec = specs[_i / MASKS];
  *(void **)&spec.tile = dlsym(native.handle, FLYI_TILE_SYMBOL);
  ck_assert_ptr_nonnull(*(void **)&spec.tile);
  CALL_FOR_TARGETS(target) {
    call_case t;
    spec.target = target;
    snprintf(what, sizeof what, "%s %d %d native on %s", m->name, m->value[0], m->value[1], target);
    start(&t, &spec, &native);
    call_run(&t);
    oracle_check(&t.call, see_native, &native, CALL_UNTOUCHED, what);
    call_free(&t);
  }
  native_close(&native);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("attention_masks");
  TCase *tests = tcase_create("masks");
  tcase_add_loop_test(tests, native_template_attends_as_the_oracle_says, 0, WHOLE_BLOCKS * MASKS);
  tcase_add_loop_test(tests, compiled_masks_attend_as_the_oracle_says, 0, SPECS * MASKS);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
