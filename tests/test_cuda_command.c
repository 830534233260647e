/* `flymask run --target cuda` and `bench --target cuda`, as a user runs them, on the simulated driver: files
 * against the float64 oracle, and what is said where there is no GPU. */
#include <jansson.h>

#include "backward_case.h"
#include "cli/npy.h"
#include "command.h"
#include "oracle_score.h"

enum { BATCH = 2, HEADS = 4, KV_HEADS = 2, QUERIES = 90, KEYS = 140, DIM = 24, VALUE_DIM = 40 };

static const char *directory;

static void make_directory(void) {
  directory = command_make_directory();
  setenv("LD_LIBRARY_PATH", FLYMASK_BUILD "/simcuda", 1);
}

static const char *in_directory(const char *name) {
  static char paths[8][200];
  static int next;
  char *path = paths[next++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", directory, name);
  return path;
}

static void write_random(const char *name, int64_t heads, int64_t rows, int64_t dim, test_random *random) {
  int64_t shape[4] = {BATCH, heads, rows, dim};
  fly_error error;
  fly_tensor x = fly_tensor_dense(malloc((size_t)(BATCH * heads * rows * dim) * 2), FLY_F16, 1, 1, 1,
                                  BATCH * heads * rows * dim);
  for (int64_t i = 0; i < x.shape[3]; i++) oracle_set(&x, 0, 0, 0, i, test_normal(random));
  ck_fly_ok(npy_write(in_directory(name), FLY_F16, 4, shape, x.data, &error), error);
  free(x.data);
}

static npy_array read_array(const char *name) {
  npy_array a;
  fly_error error;
  ck_fly_ok(npy_read(in_directory(name), &a, &error), error);
  return a;
}

static fly_tensor tensor_of(const npy_array *a) {
  return fly_tensor_dense(a->data, a->type, a->shape[0], a->shape[1], a->shape[2], a->rank == 4 ? a->shape[3] : 1);
}

START_TEST(run_on_a_gpu_writes_what_the_oracle_says) {
  static const char *const names[] = {"q.npy",    "k.npy",  "v.npy",  "out.npy", "lse.npy",
                                      "dout.npy", "dq.npy", "dk.npy", "dv.npy"};
  const int64_t queries = _i == 2 ? 2 : QUERIES, keys = _i == 2 ? 600 : KEYS; /* the last: parts that are merged */
  test_random random = {5};
  write_random("q.npy", HEADS, queries, DIM, &random);
  write_random("k.npy", KV_HEADS, keys, DIM, &random);
  write_random("v.npy", KV_HEADS, keys, VALUE_DIM, &random);
  write_random("dout.npy", HEADS, queries, VALUE_DIM, &random);
  command_result r = command_run(
      directory,
      "run sliding_window left=50 right=0 --target %s --q-offset end --q q.npy --k k.npy "
      "--v v.npy --out out.npy --lse lse.npy --dout dout.npy --dq dq.npy --dk dk.npy --dv dv.npy",
      _i == 1 ? "sm_80" : "cuda");
  ck_assert_msg(r.code == 0, "%s", r.err);
  command_free(&r);
  npy_array a[9];
  for (int i = 0; i < 9; i++) a[i] = read_array(names[i]);
  fly_attention call = {FLY_INIT(fly_attention), .q = tensor_of(&a[0]), .k = tensor_of(&a[1]), .v = tensor_of(&a[2])};
  call.out = tensor_of(&a[3]), call.lse = tensor_of(&a[4]), call.d_out = tensor_of(&a[5]);
  call.d_q = tensor_of(&a[6]), call.d_k = tensor_of(&a[7]), call.d_v = tensor_of(&a[8]);
  call.geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = BATCH, .heads = HEADS};
  call.geometry.len_q = queries, call.geometry.len_kv = keys, call.geometry.q_offset = keys - queries;
  int sides[2] = {50, 0};
  oracle_check_units(&call, see_window, sides, 0, "run --target cuda");
  oracle_check_backward_units(&call, see_window, sides, 0x1p-10, "run --target cuda"); /* out was rounded as well */
  for (int i = 0; i < 9; i++) npy_free(&a[i]);
}
END_TEST

static double see_capped(void *context, double s, int b, int h, int q, int kv) {
  (void)context, (void)b, (void)h, (void)q, (void)kv;
  return 1.5 * tanh(s / 1.5);
}

START_TEST(run_on_a_gpu_takes_modifiers_and_sinks) {
  static const char *const names[] = {"q.npy", "out.npy", "lse.npy", "dout.npy", "dq.npy", "sink.npy", "dsink.npy"};
  float logits[HEADS] = {-1, 0, 1, 2};
  fly_error error;
  test_random random = {6};
  write_random("q.npy", HEADS, KEYS, DIM, &random);
  write_random("dout.npy", HEADS, KEYS, DIM, &random);
  ck_fly_ok(npy_write(in_directory("sink.npy"), FLY_F32, 1, (int64_t[]){HEADS}, logits, &error), error);
  command_result r = command_run(
      directory, "run causal --target cuda --score softcap score.cap=1.5 --sink sink.npy --q q.npy --k q.npy --v q.npy "
                 "--out out.npy --lse lse.npy --dout dout.npy --dq dq.npy --dsink dsink.npy");
  ck_assert_msg(r.code == 0, "%s", r.err);
  command_free(&r);
  npy_array a[7];
  for (int i = 0; i < 7; i++) a[i] = read_array(names[i]);
  fly_attention call = {FLY_INIT(fly_attention), .q = tensor_of(&a[0]), .k = tensor_of(&a[0]), .v = tensor_of(&a[0])};
  call.out = tensor_of(&a[1]), call.lse = tensor_of(&a[2]), call.d_out = tensor_of(&a[3]), call.d_q = tensor_of(&a[4]);
  call.sink = fly_tensor_dense(a[5].data, FLY_F32, 1, HEADS, 1, 1);
  call.d_sink = fly_tensor_dense(a[6].data, FLY_F32, 1, HEADS, 1, 1);
  call.geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = BATCH, .heads = HEADS};
  call.geometry.len_q = KEYS, call.geometry.len_kv = KEYS;
  oracle_scored oracle = {.call = &call, .see = see_causal, .modify = see_capped, .operands = 0x1p-11};
  oracle_scored_check(&oracle, "run --target cuda --score");
  oracle_scored_check_backward(&oracle, "run --target cuda --score");
  for (int i = 0; i < 7; i++) npy_free(&a[i]);
}
END_TEST

/* The command with these arguments behind it, and the file that it writes. */
static char *build(const char *arguments) {
  command_result r =
      command_run(directory, "build causal --head-dim 16 --dtype bf16 --target sm_80 %s -o kernel.out", arguments);
  ck_assert_msg(r.code == 0, "%s: %s", arguments, r.err);
  command_free(&r);
  return command_read_file(in_directory("kernel.out"));
}

START_TEST(build_for_a_gpu_writes_an_image_and_texts) {
  static const struct {
    const char *arguments, *words;
  } cases[] = {{"", "FLYMASK"},
               {"--backward", "FLYMASK"}, /* an image holds all */
               {"--emit ptx", ".entry fly_forward("},
               {"--emit asm", ".entry fly_forward("},
               {"--emit ptx --backward", ".entry fly_backward_keys("},
               {"--emit ptx --decode", ".entry fly_split("},
               {"--emit ll --backward", "@fly_backward_keys("}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *text = build(cases[i].arguments);
    ck_assert_msg(strstr(text, cases[i].words) != NULL, "%s: no %s", cases[i].arguments, cases[i].words);
    free(text);
  }
}
END_TEST

START_TEST(bench_on_a_gpu_gives_rates) {
  command_result r = command_run(
      directory, "bench causal %s --target cuda --lengths 130 --head-dim 64 --dtype bf16 --backward --json",
      _i ? "--score softcap" : "");
  ck_assert_msg(r.code == 0, "%s", r.err);
  json_t *all = json_loads(r.out, 0, NULL);
  ck_assert_ptr_nonnull(all);
  ck_assert_int_eq(json_integer_value(json_object_get(all, "visible_pairs")), 130 * 131 / 2);
  ck_assert(json_real_value(json_object_get(all, "forward_ms")) > 0);
  ck_assert(json_real_value(json_object_get(all, "backward_gflops")) > 0);
  ck_assert_str_eq(json_string_value(json_object_get(all, "peak_kind")), "none");
  json_decref(all);
  command_free(&r);
}
END_TEST

START_TEST(bench_of_one_query_on_a_gpu_gives_bandwidth) {
  command_result r = command_run(directory, "bench full --target cuda --lengths 1,600 --heads 4,2 --head-dim 64 "
                                            "--dtype f32 --bandwidth --json");
  ck_assert_msg(r.code == 0, "%s", r.err);
  json_t *all = json_loads(r.out, 0, NULL);
  ck_assert_ptr_nonnull(all);
  ck_assert_int_eq(json_integer_value(json_object_get(all, "bytes")), 2 * 2 * 600 * 64 * 4);
  ck_assert(json_real_value(json_object_get(all, "gbs")) > 0);
  json_decref(all);
  command_free(&r);
}
END_TEST

START_TEST(a_machine_without_a_gpu_says_so) {
  setenv("SIMCUDA_DEVICES", "0", 1);
  command_result r = command_run(directory, "bench causal --target cuda --lengths 64 --head-dim 64 --dtype bf16");
  ck_assert_int_eq(r.code, 1);
  ck_assert_msg(strstr(r.err, "no CUDA-capable device is detected") != NULL, "%s", r.err);
  command_free(&r);
  unsetenv("SIMCUDA_DEVICES");
  r = command_run(directory, "bench causal --target sm_1 --lengths 64 --head-dim 64 --dtype bf16");
  ck_assert_int_eq(r.code, 1);
  ck_assert_msg(strstr(r.err, "sm_1") != NULL, "%s", r.err);
  command_free(&r);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("cuda_command");
  TCase *tests = tcase_create("command");
  tcase_add_checked_fixture(tests, make_directory, command_remove_directory);
  tcase_add_loop_test(tests, run_on_a_gpu_writes_what_the_oracle_says, 0, 3);
  tcase_add_test(tests, run_on_a_gpu_takes_modifiers_and_sinks);
  tcase_add_test(tests, build_for_a_gpu_writes_an_image_and_texts);
  tcase_add_loop_test(tests, bench_on_a_gpu_gives_rates, 0, 2);
  tcase_add_test(tests, bench_of_one_query_on_a_gpu_gives_bandwidth);
  tcase_add_test(tests, a_machine_without_a_gpu_says_so);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
