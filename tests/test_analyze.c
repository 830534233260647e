/* From LLVM's IR to mask programs: what the translation does not understand stays sound, what it does understand
 * leaves nothing undecided, and it says what a mask reads. */
#include "compiler/compiler.h"
#include "map_truth.h"

#define MASK(DECLARATIONS, BODY)                                                                                       \
  "#include <flymask/mask.h>\n" DECLARATIONS "\nbool mask(int b, int h, int q, int kv) { " BODY " }"

/* Each asks for something of its own from the translation. */
static const char *const sources[] = {
    MASK("FLY_BUFFER(float, f, 1);", "return f[q] < f[kv];"),
    MASK("FLY_BUFFER(int64_t, l, 1);", "return l[q] == l[kv] || l[q] + l[kv] < -5;"),
    MASK("FLY_BUFFER(int, parent, 1);", "int x = q; while (x > kv) x = parent[x]; return x == kv;"),
    MASK("FLY_BUFFER(int, parent, 1);",
         "const int *p = parent; for (int i = 0; i < 8; i++, p++) if (*p == q - kv) return true; return false;"),
    MASK("static const struct { int a; short c; } t[5] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}};",
         "return t[q % 5].a + t[kv % 5].c < 9;"),
    MASK("static const signed char t[3][4] = {{1, -2, 3, 4}, {5, 6}, {-7, 0, 0, 9}};",
         "return t[q / 30 % 3][kv / 25 & 3] > 0;"),
    MASK("", "unsigned x = q * 2654435761u; x = x << 13 | x >> 19; uint64_t y = (uint64_t)x * 0x9E3779B97F4A7C15ull ^ "
             "kv; return (y >> 40) % 5 < 2;"),
    MASK("FLY_BUFFER(uint8_t, t, 4); FLY_PARAM(bool, flip, true); FLY_PARAM(int8_t, m, -3); FLY_PARAM(uint64_t, big, "
         "5);",
         "return (fly_at4(t, b, h, q / 8, kv / 8) != 0) != flip && (uint64_t)q * big > (uint64_t)kv + m;"),
    MASK("", "int a[8] = {0}; for (int i = 0; i < 8; i++) a[(q + i) & 7] += i * kv; return a[kv & 7] % 3 == 0;"),
    MASK("", "switch (q / 50 % 5) { case 0: return kv <= q; case 1: return kv < 64; case 3: return q - kv == 7; "
             "default: return kv > q; }"),
    MASK("FLY_PARAM(float, slope, 0.5f);", "return (int)(slope * (float)q) <= kv && kv <= q;"),
    MASK("", "int64_t x = (int64_t)q * kv << 33; return (x >> 41) % 3 == 1 || (uint64_t)x >> 62 == 2;"),
};
enum { SOURCES = sizeof sources / sizeof *sources };

/* ---- soundness --------------------------------------------------------------------------------------------------- */

static fly_buffer *contents(test_random *random, const fly_buffer_info *info) {
  int64_t one[] = {400}, four[] = {2, 2, 20, 20};
  union {
    int32_t i32[400];
    float f32[400];
    int64_t i64[400];
    uint8_t u8[1600];
  } data;
  fly_buffer *buffer;
  fly_error error;
  for (int i = 0; i < 400; i++) {
    if (info->type == FLY_I32) data.i32[i] = i ? (int32_t)test_range(random, i > 4 ? i - 4 : 0, i - 1) : 0;
    if (info->type == FLY_F32) data.f32[i] = (float)test_range(random, 0, 9);
    if (info->type == FLY_I64) data.i64[i] = test_range(random, -3, 3) * ((int64_t)1 << 60);
  }
  for (int i = 0; i < 1600 && info->type == FLY_U8; i++) data.u8[i] = test_range(random, 0, 3) == 0;
  ck_fly_ok(fly_buffer_create(info->type, info->rank, info->rank == 4 ? four : one, &data, &buffer, &error), error);
  return buffer;
}

static void check_source(test_random *random, fly_mask *mask, const char *source, int rounds) {
  const fly_mask_info *info = fly_mask_get_info(mask);
  for (int round = 0; round < rounds; round++) {
    fly_buffer *buffer = info->buffer_count ? contents(random, &info->buffers[0]) : NULL;
    fly_arg arg = buffer ? FLY_CAPTURE(info->buffers[0].name, buffer) : FLY_INT("", 0);
    fly_bound *bound;
    fly_map *map;
    fly_error error;
    random_call call;
    ck_fly_ok(fly_mask_bind(mask, &arg, buffer != NULL, &bound, &error), error);
    random_call_init(random, 200, 300, &call);
    fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = random_tile(random),
                               .tile_kv = random_tile(random)};
    options.fast = round % 4 == 3;
    ck_fly_ok(fly_map_build(bound, &call.geometry, &options, &map, &error), error);
    check_map(map, !options.fast, truth_compiled, NULL, source);
    fly_map_release(&map);
    fly_bound_release(&bound);
    fly_buffer_release(&buffer);
    random_call_free(&call);
  }
}

START_TEST(what_is_not_understood_stays_sound) {
  test_random random = {.state = 5};
  for (int i = 0; i < SOURCES; i++) {
    fly_mask *mask;
    fly_error error;
    ck_fly_ok(fly_mask_compile(sources[i], "test.c", NULL, &mask, &error), error);
    check_source(&random, mask, sources[i], 20);
    fly_mask_release(&mask);
  }
}
END_TEST

/* ---- precision --------------------------------------------------------------------------------------------------- */

static void expect_decided(const char *name, const fly_arg *args, int count, const fly_geometry *g) {
  char path[512];
  fly_mask *mask;
  fly_bound *bound;
  fly_map *map;
  fly_map_info info;
  fly_error error;
  snprintf(path, sizeof path, "%s/masks/%s.c", FLYMASK_SOURCE, name);
  ck_fly_ok(fly_mask_compile_file(path, NULL, &mask, &error), error);
  ck_fly_ok(fly_mask_bind(mask, args, count, &bound, &error), error);
  ck_fly_ok(fly_map_build(bound, g, NULL, &map, &error), error);
  fly_map_get_info(map, &info);
  ck_assert_msg(info.undecided == 0, "%s: %lld of %lld partial tiles undecided", name, (long long)info.undecided,
                (long long)info.tiles_partial);
  check_map(map, true, truth_compiled, NULL, name);
  fly_map_release(&map);
  fly_bound_release(&bound);
  fly_mask_release(&mask);
}

START_TEST(masks_made_of_intervals_leave_nothing_undecided) {
  enum { N = 3000 };
  static int32_t doc[N];
  static uint8_t bitmap[24 * 24];
  test_random random = {.state = 9};
  int64_t n = N, blocks[] = {24, 24};
  fly_buffer *docs, *bits;
  fly_error error;
  for (int i = 1; i < N; i++) doc[i] = doc[i - 1] + (test_range(&random, 0, 400) == 0);
  for (int i = 0; i < 24 * 24; i++) bitmap[i] = test_range(&random, 0, 3) == 0;
  ck_fly_ok(fly_buffer_create(FLY_I32, 1, &n, doc, &docs, &error), error);
  ck_fly_ok(fly_buffer_create(FLY_U8, 2, blocks, bitmap, &bits, &error), error);
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = N, .len_kv = N};
  expect_decided("full", NULL, 0, &g);
  expect_decided("causal", NULL, 0, &g);
  expect_decided("sliding_window", (fly_arg[]){FLY_INT("left", 255)}, 1, &g);
  expect_decided("sliding_window", (fly_arg[]){FLY_INT("left", -1), FLY_INT("right", 70)}, 2, &g);
  expect_decided("prefix_lm", (fly_arg[]){FLY_INT("prefix", 777)}, 1, &g);
  expect_decided("chunked", (fly_arg[]){FLY_INT("size", 500)}, 1, &g);
  expect_decided("document", (fly_arg[]){FLY_CAPTURE("doc", docs)}, 1, &g);
  expect_decided("block_sparse", (fly_arg[]){FLY_CAPTURE("bitmap", bits)}, 1, &g);
  g.len_q = 100, g.q_offset = N - 100;
  expect_decided("causal", NULL, 0, &g);
  expect_decided("sliding_window", NULL, 0, &g);
  fly_buffer_release(&docs), fly_buffer_release(&bits);
}
END_TEST

/* ---- what a mask reads ------------------------------------------------------------------------------------------- */

static uint32_t reads(const char *source) {
  fly_mask *mask;
  fly_error error;
  ck_fly_ok(fly_mask_compile(source, "test.c", NULL, &mask, &error), error);
  const fly_mask_info *i = fly_mask_get_info(mask);
  uint32_t r = (i->reads_b ? FLYI_READS_B : 0) | (i->reads_h ? FLYI_READS_H : 0) | (i->reads_q ? FLYI_READS_Q : 0) |
               (i->reads_kv ? FLYI_READS_KV : 0) | (i->reads_token_q ? FLYI_READS_TOKEN_Q : 0) |
               (i->reads_token_kv ? FLYI_READS_TOKEN_KV : 0) | (i->reads_len_q ? FLYI_READS_LEN_Q : 0) |
               (i->reads_len_kv ? FLYI_READS_LEN_KV : 0);
  fly_mask_release(&mask);
  return r;
}

START_TEST(a_mask_reads_what_its_answer_depends_on) {
  ck_assert_uint_eq(reads(MASK("", "return true;")), 0);
  ck_assert_uint_eq(reads(MASK("", "return kv <= q;")), FLYI_READS_Q | FLYI_READS_KV);
  ck_assert_uint_eq(reads(MASK("", "int x = h * b; return kv <= 5 + x - x;")), FLYI_READS_KV);
  ck_assert_uint_eq(reads(MASK("", "return kv + h <= 5;")), FLYI_READS_H | FLYI_READS_KV);
  ck_assert_uint_eq(reads(MASK("", "return kv < fly_len_kv(b);")), FLYI_READS_B | FLYI_READS_KV | FLYI_READS_LEN_KV);
  ck_assert_uint_eq(reads(MASK("", "return 7 < fly_len_q(b);")), FLYI_READS_B | FLYI_READS_LEN_Q);
  ck_assert_uint_eq(reads(MASK("", "return fly_token_q(b, h, q) < 9;")),
                    FLYI_READS_B | FLYI_READS_H | FLYI_READS_Q | FLYI_READS_TOKEN_Q);
  ck_assert_uint_eq(reads(MASK("", "return fly_token_kv(b, h, kv) < 9;")),
                    FLYI_READS_B | FLYI_READS_H | FLYI_READS_KV | FLYI_READS_TOKEN_KV);
  /* The call is beyond what the answer needs, but code may make it. */
  ck_assert(reads(MASK("", "int y = (kv ^ 5) * 7 + 1;"
                           "if (kv == 3 && ((y >> 1) + kv) * 3 == 12345) return fly_len_kv(b) + fly_token_kv(b, h, q);"
                           "return kv <= q;")) &
            FLYI_READS_TOKEN_KV);
}
END_TEST

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* The analysis of `ir` whose n-th allocation fails. */
static fly_status analyze(const flyi_bytes *ir, long n) {
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module;
  flyi_declarations declarations = {0};
  flyi_bytes program = {0};
  uint32_t read;
  fly_error error;
  ck_fly_ok(flyi_verify(context, (flyi_section){ir->data, ir->size}, "test.c", &module, &declarations, &error), error);
  flyi_fail_allocation(n);
  fly_status status = flyi_analyze(module, &declarations, &program, &read, &error);
  flyi_fail_allocation(0);
  flyi_bytes_free(&program);
  LLVMDisposeModule(module);
  flyi_declarations_free(&declarations);
  LLVMContextDispose(context);
  return status;
}

START_TEST(failing_allocations_are_errors) {
  for (int i = 0; i < SOURCES; i++) {
    flyi_bytes ir = {0};
    fly_error error;
    fly_status status;
    long n = 1;
    ck_fly_ok(flyi_frontend(sources[i], "test.c", NULL, &ir, &error), error);
    for (; (status = analyze(&ir, n)) != FLY_OK; n++) ck_assert_int_eq(status, FLY_ERROR_MEMORY);
    ck_assert_int_gt(n, 10);
    flyi_bytes_free(&ir);
  }
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("analyze");
  TCase *c = tcase_create("analyze");
  tcase_add_test(c, what_is_not_understood_stays_sound);
  tcase_add_test(c, masks_made_of_intervals_leave_nothing_undecided);
  tcase_add_test(c, a_mask_reads_what_its_answer_depends_on);
  tcase_add_test(c, failing_allocations_are_errors);
  suite_add_tcase(s, c);
  return s;
}

FLY_TEST_MAIN(suite)
