/* Few queries and many keys on a CUDA device, simulated here: ranges of keys by blocks of their own, merged by LSE,
 * against double precision. simcuda.decode.CASE.TYPE is one case of this suite. */
#include <dlfcn.h>

#include "cuda_case.h"
#include "runtime/runtime.h"
#include "simcuda/simcuda.h"

static fly_cuda *cuda; /* NULL: images are packed, nothing runs */

static void open_device(void) { cuda = cuda_open_to_run(); }
static void close_device(void) { fly_cuda_release(&cuda); }

/* The simulated driver's control calls; on a real GPU there are none. */
static void *control(const char *name) { return dlsym(RTLD_DEFAULT, name); }

/* So far; 0 where nobody counts them. */
static uint64_t launches(void) {
  void (*get)(simcuda_counts *counts) = NULL;
  simcuda_counts counts = {0};
  *(void **)&get = control("simcuda_get_counts");
  if (get) get(&counts);
  return counts.launches;
}

static void set_copies(int copies, uint64_t seed) {
  void (*get)(simcuda_config *) = NULL, (*set)(const simcuda_config *) = NULL;
  simcuda_config config;
  *(void **)&get = control("simcuda_get_config"), *(void **)&set = control("simcuda_set_config");
  if (!get || !set) return;
  get(&config);
  config.copies = copies, config.seed = seed;
  set(&config);
}

/* A host call bound to a mask that says what `see` says, with a map of the given tiles (0: none). */
typedef struct decode_case {
  call_case t;
  cuda_case on;
} decode_case;

static void open_case(decode_case *d, const call_spec *spec, const char *name, const char *source, int left, int right,
                      int tile, oracle_predicate *see, void *context) {
  call_init(&d->t, spec, see, context);
  cuda_case_open(&d->on, &d->t.call, &d->t.spec, name, source, left, right, tile);
}

static void close_case(decode_case *d) {
  cuda_case_close(&d->on);
  call_free(&d->t);
}

/* Runs the call, which must take as many launches: two for parts and their merge; then compares. */
static void check_case(decode_case *d, unsigned wanted, oracle_predicate *see, void *context, const char *what) {
  uint64_t before = launches();
  if (!cuda) return;
  cuda_forward(cuda, &d->t.call, d->on.kernel);
  if (before || launches()) ck_assert_uint_eq(launches() - before, wanted);
  oracle_check_units(&d->t.call, see, context, CALL_UNTOUCHED, what);
}

static void test_window(const call_spec *spec, int left, int right, int tile) {
  int sides[2] = {left, right};
  char what[256];
  decode_case d;
  open_case(&d, spec, "window", cuda_window, left, right, tile, see_window, sides);
  cuda_case_describe(what, &d.t.spec, left, right, tile);
  check_case(&d, 2, see_window, sides, what);
  close_case(&d);
}

static const fly_type types[] = {FLY_BF16, FLY_F16, FLY_F32};
enum { TYPES = 3 };

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

START_TEST(any_head_and_value_dimension) {
  static const int dims[][2] = {{1, 1}, {20, 36}, {64, 64}, {96, 64}, {100, 7}, {128, 128}, {192, 128}, {256, 256}};
  for (int i = 0; i < 8; i++) {
    call_spec spec = {.type = types[_i % TYPES], .dim = dims[i][0], .value_dim = dims[i][1], .heads = 6, .kv_heads = 2};
    spec.len_q = 1, spec.len_kv = 700 + i, spec.q_offset = 650;
    spec.layout = i % 2 ? LAYOUT_BSHD : LAYOUT_BHSD;
    test_window(&spec, -1, 0, 0);
    spec.len_q = 3, spec.layout = LAYOUT_PADDED; /* rows that are not aligned */
    test_window(&spec, 300, 0, 0);
  }
}
END_TEST

static const int32_t cu_q[] = {0, 1, 4, 4, 6}, cu_kv[] = {0, 600, 603, 700, 700};

static const call_spec calls[] = {
    {.dim = 64, .len_q = 1, .len_kv = 512, .q_offset = 511},
    {.dim = 64, .len_q = 16, .len_kv = 600, .q_offset = 584},
    {.dim = 64, .len_q = 11, .len_kv = 800, .heads = 8, .kv_heads = 2, .q_offset = 789}, /* three tiles of rows */
    {.dim = 64, .len_q = 1, .len_kv = 1500, .batch = 3, .heads = 8, .kv_heads = 1, .q_offset = 1499},
    {.dim = 64, .len_q = 40, .len_kv = 600, .q_offset = -20}, /* some see nothing */
    {.dim = 64, .len_q = 2, .len_kv = 700, .heads = 4, .kv_heads = 2, .q_rows = 1, .kv_rows = 1, .q_offset = 690},
    {.dim = 64,
     .len_q = 2,
     .len_kv = 700,
     .batch = 2,
     .heads = 2,
     .q_rows = 2,
     .kv_rows = 2,
     .out_rows = 2,
     .q_offset = 600},
    {.dim = 64, .len_q = 3, .len_kv = 550, .heads = 4, .kv_heads = 2, .kv_rows = 3, .out_rows = 1, .q_offset = 500},
    {.dim = 64, .batch = 4, .heads = 4, .kv_heads = 2, .cu_q = cu_q, .cu_kv = cu_kv, .q_offset = 300},
    {.dim = 64, .batch = 4, .heads = 2, .cu_q = cu_q, .cu_kv = cu_kv, .q_rows = 1, .kv_rows = 1, .out_rows = 1},
    {.dim = 64,
     .len_q = 1,
     .len_kv = 900,
     .heads = 4,
     .layout = LAYOUT_BROADCAST,
     .q_offset = 899,
     .no_lse = true,
     .scale = -0.3f,
     .amplitude = 3},
};
enum { CALLS = sizeof calls / sizeof *calls };

START_TEST(any_layout_rows_and_lengths) {
  for (int i = 0; i < CALLS; i++) {
    call_spec spec = calls[i];
    spec.type = types[_i % TYPES];
    test_window(&spec, 100, 3, 0);
    test_window(&spec, -1, 0, 64);
    test_window(&spec, 400, -1, 192);
  }
}
END_TEST

/* ---- what heads see ---------------------------------------------------------------------------------------------- */

static const char by_head[] = "FLY_PARAM(int, left, 40); FLY_PARAM(int, right, 0);"
                              "bool mask(int b, int h, int q, int kv) {"
                              "  return kv <= q && (q - kv <= left * (h + 1) || (kv + h + b) % 97 == right); }";

static bool see_by_head(void *context, int b, int h, int q, int kv) {
  (void)context;
  return kv <= q && (q - kv <= 40 * (h + 1) || (kv + h + b) % 97 == 3);
}

START_TEST(heads_may_see_other_keys) {
  call_spec spec = {.type = types[_i % TYPES], .dim = 64, .batch = 2, .heads = 6, .kv_heads = 2, .len_q = 2};
  spec.len_kv = 900, spec.q_offset = 880;
  decode_case d;
  open_case(&d, &spec, "by_head", by_head, 40, 3, 64, see_by_head, NULL);
  check_case(&d, 2, see_by_head, NULL, "by head");
  close_case(&d);
}
END_TEST

/* Each query sees keys of one tile alone, which its token says: heads with rows of their own see other tiles. */
static const char by_token[] = "FLY_PARAM(int, left, 0); FLY_PARAM(int, right, 0);"
                               "bool mask(int b, int h, int q, int kv) {"
                               "  return kv / 64 == fly_token_q(b, h, q) % 11 &&"
                               "    fly_token_kv(b, h, kv) % 5 != left + right; }";

static int32_t token(const fly_row_map *map, int b, int h, int64_t row) {
  return map->rows ? map->rows[b * map->stride_batch + h * map->stride_head + row] : (int32_t)row;
}

static bool see_by_token(void *context, int b, int h, int q, int kv) {
  const fly_geometry *g = &((const decode_case *)context)->t.call.geometry;
  return kv / 64 == (token(&g->q_rows, b, h, q - g->q_offset) + g->q_offset) % 11 &&
         token(&g->kv_rows, b, h, kv) % 5 != 0;
}

START_TEST(tokens_are_of_the_rows_own_head) {
  for (int rows = 0; rows <= 2; rows++) { /* queries' maps: none, one for all, one for each head */
    call_spec spec = {.type = types[_i % TYPES], .dim = 64, .batch = 2, .heads = 6, .kv_heads = 2, .len_q = 5};
    spec.len_kv = 700, spec.q_offset = 300, spec.q_rows = rows, spec.kv_rows = 1;
    decode_case d;
    open_case(&d, &spec, "by_token", by_token, 0, 0, 0, see_by_token, &d);
    check_case(&d, 2, see_by_token, &d, "by token");
    close_case(&d);
  }
}
END_TEST

/* Hundreds of runs of one tile: parts begin in the middle of any of them. */
static const char stripes[] = "FLY_PARAM(int, left, 2); FLY_PARAM(int, right, 0);"
                              "bool mask(int b, int h, int q, int kv) {"
                              "  return kv <= q && kv / 64 % 2 == right && (kv / 64 % 4 || kv % left); }";

static bool see_stripes(void *context, int b, int h, int q, int kv) {
  (void)context, (void)b, (void)h;
  return kv <= q && kv / 64 % 2 == 0 && (kv / 64 % 4 || kv % 3);
}

START_TEST(parts_share_irregular_tiles) {
  call_spec spec = {.type = types[_i % TYPES], .dim = 16, .heads = 2, .kv_heads = 1, .len_q = 1, .len_kv = 9000};
  spec.q_offset = 8999;
  decode_case d;
  open_case(&d, &spec, "stripes", stripes, 3, 0, 64, see_stripes, NULL);
  check_case(&d, 2, see_stripes, NULL, "stripes");
  close_case(&d);
}
END_TEST

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

START_TEST(infinities_and_nans_that_are_not_seen_do_not_show) {
  int sides[2] = {200, 0};
  call_spec spec = {.type = types[_i % TYPES], .dim = 64, .heads = 4, .kv_heads = 2, .len_q = 3, .len_kv = 700};
  spec.q_offset = 690;
  decode_case d;
  open_case(&d, &spec, "window", cuda_window, 200, 0, 0, see_window, sides);
  for (int row = 470; row < 700; row += 10) { /* of the first 20 only some queries see one, of the last ones some */
    double x = row % 20 ? INFINITY : NAN;
    if (row < 492 || row > 690) oracle_set(&d.t.call.v, 0, row % 2, row, row % 64, x);
    if (row < 480) oracle_set(&d.t.call.k, 0, 1, row, 3, x);
  }
  check_case(&d, 2, see_window, sides, "special");
  close_case(&d);
}
END_TEST

START_TEST(results_are_the_same_bits_whatever_order_copies_land_in) {
  int sides[2] = {-1, 0};
  static const int copies[] = {SIMCUDA_LATE, SIMCUDA_EAGER, SIMCUDA_RANDOM};
  call_spec spec = {.type = types[_i % TYPES], .dim = 64, .heads = 4, .kv_heads = 2, .len_q = 2, .len_kv = 1000};
  spec.q_offset = 990;
  decode_case d;
  uint64_t digest = 0;
  open_case(&d, &spec, "window", cuda_window, -1, 0, 0, see_window, sides);
  const fly_tensor *out = &d.t.call.out;
  for (int i = 0; i < 3; i++) {
    set_copies(copies[i], (uint64_t)i);
    call_reset(&d.t);
    check_case(&d, 2, see_window, sides, "order");
    flyi_hash hash = flyi_hash_bytes(out->data, (size_t)(4 * 2 * 64) * fly_type_size(out->type));
    ck_assert(!digest || hash.low == digest);
    digest = hash.low;
  }
  close_case(&d);
}
END_TEST

/* ---- when -------------------------------------------------------------------------------------------------------- */

START_TEST(calls_of_many_queries_or_few_keys_go_the_usual_way) {
  static const int64_t lengths[][2] = {{1, 511}, {65, 600}, {17, 600}};
  for (int i = 0; i < 3; i++) {
    int sides[2] = {-1, 0};
    call_spec spec = {.type = types[_i % TYPES], .dim = 64, .len_q = lengths[i][0], .len_kv = lengths[i][1]};
    spec.heads = i == 2 ? 200 : 1; /* enough to do for every multiprocessor */
    spec.kv_heads = spec.heads;
    decode_case d;
    open_case(&d, &spec, "window", cuda_window, -1, 0, 0, see_window, sides);
    check_case(&d, 1, see_window, sides, "usual");
    close_case(&d);
  }
}
END_TEST

/* The same kernel from an image whose code for parts, and IR, are gone. */
static fly_kernel *without_parts(const fly_kernel *kernel) {
  fly_error error;
  fly_kernel *loaded;
  const void *bytes;
  size_t size;
  flyi_image image;
  flyi_bytes written = {0};
  ck_fly_ok(fly_kernel_image(kernel, &bytes, &size, &error), error);
  ck_fly_ok(flyi_image_read(bytes, size, &image, &error), error);
  image.entry_counts[FLYI_DIRECTION_SPLIT] = 0;
  image.ptx[FLYI_DIRECTION_SPLIT] = image.ir = (flyi_section){0};
  ck_fly_ok(flyi_image_write(&image, &written, &error), error);
  ck_fly_ok(fly_kernel_load(written.data, written.size, &loaded, &error), error);
  flyi_bytes_free(&written);
  flyi_image_free(&image);
  return loaded;
}

START_TEST(an_image_without_code_for_parts_is_run_the_usual_way) {
  int sides[2] = {300, 0};
  call_spec spec = {.type = types[_i % TYPES], .dim = 64, .len_q = 1, .len_kv = 700, .q_offset = 699};
  fly_arg args[] = {FLY_INT("left", sides[0]), FLY_INT("right", sides[1])};
  fly_error error;
  decode_case d;
  if (!cuda) return;
  open_case(&d, &spec, "window", cuda_window, sides[0], sides[1], 0, see_window, sides);
  fly_kernel *loaded = without_parts(d.on.kernel);
  fly_kernel_release(&d.on.kernel);
  fly_bound_release(&d.on.bound);
  d.on.kernel = loaded;
  ck_fly_ok(fly_mask_bind(fly_kernel_mask(loaded), args, 2, &d.on.bound, &error), error);
  d.t.call.kernel = loaded, d.t.call.bound = d.on.bound;
  check_case(&d, 1, see_window, sides, "without parts");
  close_case(&d);
}
END_TEST

static Suite *make_suite(void) {
  static const char *const names[TYPES][2] = {{"decode.fwd.bf16", "decode_dims.fwd.bf16"},
                                              {"decode.fwd.f16", "decode_dims.fwd.f16"},
                                              {"decode.fwd.f32", "decode_dims.fwd.f32"}};
  Suite *suite = suite_create("cuda_decode");
  for (int i = 0; i < TYPES; i++) {
    TCase *test = tcase_create(names[i][0]), *shapes = tcase_create(names[i][1]);
    tcase_add_checked_fixture(test, open_device, close_device);
    tcase_add_checked_fixture(shapes, open_device, close_device);
    tcase_add_loop_test(shapes, any_head_and_value_dimension, i, i + 1);
    tcase_add_loop_test(test, any_layout_rows_and_lengths, i, i + 1);
    tcase_add_loop_test(test, heads_may_see_other_keys, i, i + 1);
    tcase_add_loop_test(test, tokens_are_of_the_rows_own_head, i, i + 1);
    tcase_add_loop_test(test, parts_share_irregular_tiles, i, i + 1);
    tcase_add_loop_test(test, infinities_and_nans_that_are_not_seen_do_not_show, i, i + 1);
    tcase_add_loop_test(test, results_are_the_same_bits_whatever_order_copies_land_in, i, i + 1);
    tcase_add_loop_test(test, calls_of_many_queries_or_few_keys_go_the_usual_way, i, i + 1);
    tcase_add_loop_test(test, an_image_without_code_for_parts_is_run_the_usual_way, i, i + 1);
    suite_add_tcase(suite, test);
    suite_add_tcase(suite, shapes);
  }
  return suite;
}

FLY_TEST_MAIN(make_suite)
