/* Gradients end to end: masks from their sources, the command's files, real inputs. The carried sample is compared
 * with the float64 oracle; where FLYMASK_TEST_DATA names a larger set, with the gradients that come with it. */
#include <jansson.h>

#include "cli/npy.h"
#include "command.h"
#include "support/backward_case.h"

static const char *directory;

static void make_directory(void) { directory = command_make_directory(); }

static npy_array read_array(const char *path) {
  npy_array a;
  fly_error error;
  ck_fly_ok(npy_read(path, &a, &error), error);
  return a;
}

static fly_tensor tensor_of(const npy_array *a) {
  return fly_tensor_dense(a->data, a->type, a->shape[0], a->shape[1], a->shape[2], a->rank == 4 ? a->shape[3] : 1);
}

/* ---- the command's files ----------------------------------------------------------------------------------------- */

static void write_random(const char *name, fly_type type, int rank, const int64_t *shape, test_random *random) {
  int64_t count = 1;
  fly_error error;
  for (int i = 0; i < rank; i++) count *= shape[i];
  fly_tensor x = fly_tensor_dense(malloc(count * 4), type, 1, 1, 1, count);
  for (int64_t i = 0; i < count; i++) oracle_set(&x, 0, 0, 0, i, test_normal(random));
  ck_fly_ok(npy_write(command_path(name), type, rank, shape, x.data, &error), error);
  free(x.data);
}

static void write_inputs(fly_type type) {
  test_random random = {11 + type};
  write_random("q.npy", type, 4, (int64_t[]){2, 4, 90, 24}, &random);
  write_random("k.npy", type, 4, (int64_t[]){2, 2, 140, 24}, &random);
  write_random("v.npy", type, 4, (int64_t[]){2, 2, 140, 40}, &random);
  write_random("dout.npy", type, 4, (int64_t[]){2, 4, 90, 40}, &random);
  write_random("dlse.npy", FLY_F32, 3, (int64_t[]){2, 4, 90}, &random);
}

START_TEST(run_writes_the_gradients) { /* _i: f32 or f16 */
  static const char *const names[] = {"q", "k", "v", "dout", "dlse", "dq", "dk", "dv"};
  fly_type type = _i ? FLY_F16 : FLY_F32;
  write_inputs(type);
  command_result r = command_run(directory, "run causal --q-offset end --q q.npy --k k.npy --v v.npy --dout dout.npy "
                                            "--dlse dlse.npy --dq dq.npy --dk dk.npy --dv dv.npy");
  ck_assert_msg(r.code == 0, "%s", r.err);
  npy_array a[8];
  fly_tensor t[8];
  for (int i = 0; i < 8; i++) {
    char name[16];
    snprintf(name, sizeof name, "%s.npy", names[i]);
    a[i] = read_array(command_path(name)), t[i] = tensor_of(&a[i]);
  }
  fly_tensor out = fly_tensor_dense(NULL, type, 2, 4, 90, 40);
  fly_attention call = {FLY_INIT(fly_attention), .q = t[0],   .k = t[1],   .v = t[2],   .d_out = t[3],
                        .d_lse = t[4],           .d_q = t[5], .d_k = t[6], .d_v = t[7], .out = out};
  call.geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = 2,    .heads = 4, .len_q = 90,
                                 .len_kv = 140,          .q_offset = 50};
  oracle_check_backward(&call, see_causal, NULL, "flymask run");
  for (int i = 0; i < 8; i++) npy_free(&a[i]);
  command_free(&r);
}
END_TEST

START_TEST(run_refuses_gradients_that_do_not_fit) {
  static const struct {
    const char *arguments, *text;
    int code;
  } cases[] = {{"--dq dq.npy", "need --dout F", 2},
               {"--dout dout.npy", "needs one of --dq F", 2},
               {"--dlse dlse.npy", "--dlse needs --dout F", 2},
               {"--dout q.npy --dq dq.npy", "q.npy: is not shaped as the output", 1},
               {"--dout none.npy --dq dq.npy", "none.npy", 1},
               {"--dout dout.npy --dlse dout.npy --dq dq.npy", "is not shaped as the log-sum-exp", 1}};
  write_inputs(FLY_F32);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    command_result r = command_run(directory, "run causal --q q.npy --k k.npy --v v.npy %s", cases[i].arguments);
    ck_assert_msg(r.code == cases[i].code && strstr(r.err, cases[i].text), "%s: exit %d: %s", cases[i].arguments,
                  r.code, r.err);
    command_free(&r);
  }
}
END_TEST

static json_t *bench(const char *more) {
  command_result r = command_run(NULL,
                                 "bench sliding_window left=9 right=0 --lengths 300 --heads 4,2 --head-dim 48,32 "
                                 "--dtype bf16 --threads 1 --json %s",
                                 more);
  ck_assert_msg(r.code == 0, "%s", r.err);
  json_t *all = json_loads(r.out, 0, NULL);
  ck_assert_ptr_nonnull(all);
  command_free(&r);
  return all;
}

START_TEST(bench_measures_the_backward_pass_where_asked) {
  json_t *without = bench(""), *with = bench("--backward");
  ck_assert_uint_eq(json_object_size(with), json_object_size(without) + 3);
  double ms = json_number_value(json_object_get(with, "backward_ms"));
  double rate = json_number_value(json_object_get(with, "backward_gflops"));
  double flops = (6 * 48 + 4 * 32) * 4.0 * (300 * 10 - 45); /* the first nine queries see fewer */
  ck_assert_double_gt(ms, 0);
  ck_assert_double_eq_tol(rate * ms * 1e6 / flops, 1, 1e-6);
  ck_assert_double_eq_tol(json_number_value(json_object_get(with, "backward_peak_ratio")) *
                              json_number_value(json_object_get(with, "peak_gflops")) / rate,
                          1, 1e-6);
  json_decref(without), json_decref(with);
}
END_TEST

/* ---- real inputs ------------------------------------------------------------------------------------------------- */

static npy_array read_wide(const char *folder, const char *name) { /* as f32 */
  char path[512];
  fly_error error;
  snprintf(path, sizeof path, "%s/%s.npy", folder, name);
  npy_array a = read_array(path);
  ck_fly_ok(npy_convert(&a, FLY_F32, path, &error), error);
  return a;
}

static bool see_permuted(void *context, int b, int h, int q,
                         int kv) { /* stochastic left=128 right=128: causal by token */
  const int32_t *token = context;
  (void)b, (void)h;
  return q - kv <= 128 && kv - q <= 128 && token[kv] <= token[q];
}

static int window_256[2] = {255, 0};

/* Compiles, runs forward and backward; the caller has set up everything but the mask. */
static void run_masked(fly_attention *call, const char *mask_name, const fly_arg *args, int count, const char *target) {
  char path[512];
  fly_error error;
  fly_mask *mask;
  fly_bound *bound;
  fly_kernel *kernel;
  fly_compile_options options = {FLY_INIT(fly_compile_options), .target = target};
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = call->q.type, .head_dim = (int)call->q.shape[3],
                          .value_dim = (int)call->v.shape[3]};
  snprintf(path, sizeof path, "%s/masks/%s.c", FLYMASK_SOURCE, mask_name);
  ck_fly_ok(fly_mask_compile_file(path, &options, &mask, &error), error);
  ck_fly_ok(fly_mask_bind(mask, args, count, &bound, &error), error);
  ck_fly_ok(fly_kernel_create(mask, &desc, &kernel, &error), error);
  call->kernel = kernel, call->bound = bound;
  ck_fly_ok(fly_attention_forward(call, &error), error);
  ck_fly_ok(fly_attention_backward(call, &error), error);
  fly_kernel_release(&kernel), fly_bound_release(&bound), fly_mask_release(&mask);
}

/* Gradients of a call on `heads` of 3 times as many query heads of the files; d_out comes from the caller. */
typedef struct real_call {
  npy_array q, k, v;
  fly_attention call;
} real_call;

static void *room(const fly_tensor *t) {
  return malloc((size_t)(t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]) * fly_type_size(t->type));
}

static void open_real(real_call *r, const char *folder, const char *prefix, int64_t kv_heads, void *d_out) {
  char name[3][32];
  for (int i = 0; i < 3; i++) snprintf(name[i], sizeof name[i], "%s%c", prefix, "qkv"[i]);
  r->q = read_wide(folder, name[0]), r->k = read_wide(folder, name[1]), r->v = read_wide(folder, name[2]);
  fly_attention *c = &r->call;
  int64_t n = r->q.shape[2];
  *c = (fly_attention){FLY_INIT(fly_attention), .q = tensor_of(&r->q), .k = tensor_of(&r->k), .v = tensor_of(&r->v)};
  c->q.shape[1] = 3 * kv_heads, c->k.shape[1] = c->v.shape[1] = kv_heads;
  c->out = c->d_out = c->d_q = c->q, c->d_k = c->k, c->d_v = c->v;
  c->lse = fly_tensor_dense(NULL, FLY_F32, 1, 3 * kv_heads, n, 1);
  c->out.data = room(&c->out), c->lse.data = room(&c->lse);
  c->d_q.data = room(&c->d_q), c->d_k.data = room(&c->d_k), c->d_v.data = room(&c->d_v);
  c->d_out.data = d_out;
  c->geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = 1, .heads = 3 * kv_heads, .len_q = n, .len_kv = n};
}

static void close_real(real_call *r) {
  fly_attention *c = &r->call;
  free(c->out.data), free(c->lse.data), free(c->d_q.data), free(c->d_k.data), free(c->d_v.data), free(c->d_out.data);
  npy_free(&r->q), npy_free(&r->k), npy_free(&r->v);
}

START_TEST(the_carried_sample_agrees_with_the_oracle) { /* one group of heads; _i: the mask */
  char folder[512];
  snprintf(folder, sizeof folder, "%s/tests/data/sample", FLYMASK_SOURCE);
  npy_array perm = read_array(strcat(strcpy((char[600]){0}, folder), "/perm.npy"));
  test_random random = {5};
  float *d_out = malloc(sizeof(float) * 3 * 1024 * 64);
  for (int i = 0; i < 3 * 1024 * 64; i++) d_out[i] = (float)test_normal(&random);
  real_call r;
  open_real(&r, folder, "", 1, d_out);
  fly_arg window[] = {FLY_INT("left", _i == 1 ? 255 : 128), FLY_INT("right", _i == 1 ? 0 : 128)};
  if (_i == 2) r.call.geometry.q_rows.rows = r.call.geometry.kv_rows.rows = perm.data;
  run_masked(&r.call, _i == 0 ? "causal" : _i == 1 ? "sliding_window" : "stochastic", window, _i == 0 ? 0 : 2, NULL);
  oracle_predicate *see = _i == 0 ? see_causal : _i == 1 ? see_window : see_permuted;
  oracle_check_backward(&r.call, see, _i == 1 ? (void *)window_256 : perm.data, "sample");
  close_real(&r);
  npy_free(&perm);
}
END_TEST

static void compare(const char *folder, const char *name, const float *got) {
  npy_array want = read_wide(folder, name);
  double most = 0, worst = 0;
  for (int64_t i = 0; i < want.count; i++) {
    double x = ((float *)want.data)[i];
    if (fabs(x) > most) most = fabs(x);
    if (!(fabs(got[i] - x) <= worst)) worst = fabs(got[i] - x);
  }
  printf("%s: off by %.2g of the largest gradient\n", name, worst / most);
  ck_assert_msg(worst <= 5e-6 * most, "%s: off by %.2g, the largest gradient is %.2g", name, worst, most);
  npy_free(&want);
}

START_TEST(the_larger_set_agrees_with_its_gradients) {
  const char *folder = getenv("FLYMASK_TEST_DATA");
  if (!folder) {
    puts("SKIPPED: set FLYMASK_TEST_DATA to compare with the gradients of a larger set");
    return;
  }
  npy_array perm = read_array(strcat(strcpy((char[600]){0}, folder), "/perm.npy"));
  CALL_FOR_TARGETS(target) {
    npy_array d_out = read_wide(folder, "dout");
    real_call r;
    open_real(&r, folder, "layer14_", 3, d_out.data); /* now the call's */
    r.call.geometry.q_rows.rows = r.call.geometry.kv_rows.rows = perm.data;
    run_masked(&r.call, "stochastic", (fly_arg[]){FLY_INT("left", 128), FLY_INT("right", 128)}, 2, target);
    printf("%s\n", target);
    compare(folder, "sa128_dq", r.call.d_q.data);
    compare(folder, "sa128_dk", r.call.d_k.data);
    compare(folder, "sa128_dv", r.call.d_v.data);
    close_real(&r);
  }
  npy_free(&perm);
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("backward_command");
  TCase *files = tcase_create("files"), *data = tcase_create("data"), *larger = tcase_create("references");
  tcase_add_checked_fixture(files, make_directory, command_remove_directory);
  tcase_add_loop_test(files, run_writes_the_gradients, 0, 2);
  tcase_add_test(files, run_refuses_gradients_that_do_not_fit);
  tcase_add_test(files, bench_measures_the_backward_pass_where_asked);
  tcase_add_loop_test(data, the_carried_sample_agrees_with_the_oracle, 0, 3);
  tcase_add_test(larger, the_larger_set_agrees_with_its_gradients);
  suite_add_tcase(suite, files);
  suite_add_tcase(suite, data);
  suite_add_tcase(suite, larger);
  return suite;
}

FLY_TEST_MAIN(suite)
