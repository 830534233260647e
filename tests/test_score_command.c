/* `flymask run --score`: the modifier and its values reach the kernel, forward and backward; `check` and `build` take
 * them. */
#include <unistd.h>

#include "cli/npy.h"
#include "command.h"
#include "support.h"

enum { N = 70, D = 16 };

static const char *directory;

static void make_directory(void) { directory = command_make_directory(); }

static void write_random(const char *name, float *data, uint64_t seed) {
  test_random random = {seed};
  fly_error error;
  for (int i = 0; i < N * D; i++) data[i] = (float)test_normal(&random);
  ck_fly_ok(npy_write(command_path(name), FLY_F32, 4, (int64_t[]){1, 1, N, D}, data, &error), error);
}

static npy_array read_array(const char *name) {
  npy_array array;
  fly_error error;
  ck_fly_ok(npy_read(command_path(name), &array, &error), error);
  return array;
}

/* Softmax over 2.5 * tanh(s / 2.5), causal, in double precision; sum of dO * O. */
static double attend(const float *q, const float *k, const float *v, const float *d_out, double *out) {
  double total = 0;
  for (int i = 0; i < N; i++) {
    double weight[N], sum = 0;
    for (int j = 0; j <= i; j++) {
      double s = 0;
      for (int d = 0; d < D; d++) s += (double)q[i * D + d] * k[j * D + d];
      sum += weight[j] = exp(2.5 * tanh(s / 4 / 2.5));
    }
    for (int d = 0; d < D; d++) {
      double x = 0;
      for (int j = 0; j <= i; j++) x += weight[j] / sum * v[j * D + d];
      out[i * D + d] = x, total += x * d_out[i * D + d];
    }
  }
  return total;
}

START_TEST(run_takes_a_modifier_and_its_values) {
  static float q[N * D], k[N * D], v[N * D], d_out[N * D];
  static double want[N * D], scratch[N * D];
  write_random("q.npy", q, 1), write_random("k.npy", k, 2), write_random("v.npy", v, 3),
      write_random("g.npy", d_out, 4);
  command_result r = command_run(directory, "%s",
                                 "run causal --score softcap score.cap=2.5 --q q.npy --k k.npy --v v.npy --out o.npy "
                                 "--dout g.npy --dq dq.npy");
  ck_assert_msg(r.code == 0, "%s", r.err);
  command_free(&r);
  npy_array out = read_array("o.npy"), d_q = read_array("dq.npy");
  attend(q, k, v, d_out, want);
  for (int i = 0; i < N * D; i++) ck_assert(fabs(((float *)out.data)[i] - want[i]) < 2e-6);
  for (int i = 0; i < N * D; i += 37) { /* central differences, steps that float holds exactly */
    float before = q[i];
    q[i] = before + 0x1p-8f;
    double up = attend(q, k, v, d_out, scratch);
    double down_step = (double)q[i] - before;
    q[i] = before - 0x1p-8f;
    double slope = (up - attend(q, k, v, d_out, scratch)) / (2 * down_step);
    q[i] = before;
    ck_assert_msg(fabs(((float *)d_q.data)[i] - slope) < 1e-4, "d_q[%d] is %g, not %g", i, ((float *)d_q.data)[i],
                  slope);
  }
  npy_free(&out), npy_free(&d_q);
}
END_TEST

static void check_failure(const char *arguments, const char *text) {
  command_result r = command_run(directory, "%s", arguments);
  ck_assert_int_eq(r.code, 1);
  ck_assert_msg(strstr(r.err, text), "%s: %s", arguments, r.err);
  command_free(&r);
}

/* With q = 0 all scores are 0: out = sum of v over i + 1 + e^z, and the loss is the sum of out. */
START_TEST(run_takes_sinks_and_gives_their_gradient) {
  static float zero[N * D], v[N * D], ones[N * D];
  const float sink[] = {1.25f};
  fly_error error;
  for (int i = 0; i < N * D; i++) ones[i] = 1;
  write_random("k.npy", v, 2), write_random("v.npy", v, 3);
  const int64_t shape[] = {1, 1, N, D}, heads[] = {1};
  ck_fly_ok(npy_write(command_path("q.npy"), FLY_F32, 4, shape, zero, &error), error);
  ck_fly_ok(npy_write(command_path("g.npy"), FLY_F32, 4, shape, ones, &error), error);
  ck_fly_ok(npy_write(command_path("z.npy"), FLY_F32, 1, heads, sink, &error), error);
  command_result r = command_run(directory, "%s",
                                 "run causal --q q.npy --k k.npy --v v.npy --sink z.npy --lse l.npy --dout g.npy "
                                 "--dsink dz.npy");
  ck_assert_msg(r.code == 0, "%s", r.err);
  command_free(&r);
  npy_array lse = read_array("l.npy"), d_sink = read_array("dz.npy");
  double sum = 0, gradient = 0, share = exp(1.25);
  for (int i = 0; i < N; i++) {
    for (int d = 0; d < D; d++) sum += v[i * D + d];
    gradient -= sum * share / ((i + 1 + share) * (i + 1 + share));
    ck_assert(fabs(((float *)lse.data)[i] - log(i + 1 + share)) < 2e-6);
  }
  ck_assert_int_eq(d_sink.rank, 1);
  ck_assert_msg(fabs(((float *)d_sink.data)[0] - gradient) < 1e-5 * (1 + fabs(gradient)), "%g, not %g",
                ((float *)d_sink.data)[0], gradient);
  npy_free(&lse), npy_free(&d_sink);
  check_failure("run causal --q q.npy --k k.npy --v v.npy --sink v.npy --out o.npy", "a logit for each query head");
}
END_TEST

START_TEST(whose_value_it_is_is_said) {
  check_failure("check causal --score softcap cap=2", "the mask ");
  check_failure("check causal --score softcap score.cup=2", "the score modifier ");
  check_failure("check causal --score none_of_these", "no score modifier 'none_of_these'");
  check_failure("check softcap", "no mask 'softcap'");
  check_failure("check causal --score " FLYMASK_SOURCE "/masks/causal.c", "defines no function float score(");
  command_result r = command_run(directory, "%s", "check sliding_window left=3 --score softcap score.cap=2");
  ck_assert_int_eq(r.code, 0);
  ck_assert(strstr(r.out, "sliding_window.c: ok") && strstr(r.out, "softcap.c: ok") && strstr(r.out, "f32 cap"));
  command_free(&r);
}
END_TEST

START_TEST(build_puts_the_modifier_into_the_image) {
  command_result r = command_run(directory, "%s",
                                 "build causal --score softcap score.cap=2 --head-dim 16 --dtype f32 -o k.image");
  ck_assert_msg(r.code == 0, "%s", r.err);
  command_free(&r);
  FILE *file = fopen(command_path("k.image"), "r");
  static char bytes[1 << 20];
  size_t size = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  fly_kernel *kernel = NULL;
  fly_bound *bound = NULL;
  fly_error error;
  ck_fly_ok(fly_kernel_load(bytes, size, &kernel, &error), error);
  ck_assert_ptr_nonnull(fly_kernel_score(kernel));
  ck_assert_int_eq(fly_score_bind(fly_kernel_score(kernel), (fly_arg[]){FLY_REAL("cap", 3)}, 1, &bound, &error),
                   FLY_ERROR_ARGUMENT); /* baked */
  ck_fly_ok(fly_score_bind(fly_kernel_score(kernel), NULL, 0, &bound, &error), error);
  fly_bound_release(&bound);
  fly_kernel_release(&kernel);
  r = command_run(directory, "%s", "build causal --score softcap --head-dim 16 --dtype f32 --emit asm -o -");
  ck_assert(r.code == 0 && strstr(r.out, "fly_score_tile:") && strstr(r.out, "fly_score_slope_tile:"));
  command_free(&r);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("score_command");
  TCase *tests = tcase_create("command");
  tcase_add_checked_fixture(tests, make_directory, command_remove_directory);
  tcase_add_test(tests, run_takes_a_modifier_and_its_values);
  tcase_add_test(tests, run_takes_sinks_and_gives_their_gradient);
  tcase_add_test(tests, whose_value_it_is_is_said);
  tcase_add_test(tests, build_puts_the_modifier_into_the_image);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
